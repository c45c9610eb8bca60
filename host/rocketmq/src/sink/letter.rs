//! From an emission to a message that is sent on.

use std::sync::Arc;

use tidegate_connector::template::Template;
use tidegate_model::{BodyState, Emission, Instant};

use super::dead_letter;
use super::runs::Ticket;
use crate::options::SinkOptions;
use crate::outgoing::{Kind, Outgoing, is_internal};

/// A body that did not arrive as it was sent goes on as it came, with this property, so that nobody takes it for a good
/// one: what it says is why.
const CORRUPTED: &str = "tidegate-body-corrupted";

/// A message to be sent, and what its sink has to know of the delivery behind it.
#[derive(Clone, Debug)]
pub(super) struct Letter {
    /// Its order is the source's, `None` when that is not kept.
    pub(super) ticket: Ticket,
    /// When it comes again by itself, and needs not be sent any more; `None` for a dead letter.
    pub(super) expires_at: Option<Instant>,
    pub(super) message: Outgoing,
}

/// Writes letters to one topic.
#[derive(Debug)]
pub(super) struct Writer {
    topic: Arc<str>,
    lite_topic: Option<Template>,
    message_group: Option<Template>,
}

impl Writer {
    pub(super) fn new(options: &SinkOptions) -> Self {
        Self {
            topic: Arc::clone(&options.topic),
            lite_topic: options.lite_topic.clone(),
            message_group: options.message_group.clone(),
        }
    }

    /// Whether what it writes keeps an order.
    pub(super) const fn is_ordered(&self) -> bool {
        self.lite_topic.is_some() || self.message_group.is_some()
    }

    /// The letter of an emission, or why there can be none, in one sentence.
    pub(super) fn write(&self, emission: &Emission) -> Result<Letter, String> {
        let message = self.message(emission)?;
        message
            .validate()
            .map_err(|problem| format!("a message to topic `{}` cannot be sent: {problem}", self.topic))?;
        let is_dead = emission.dead_letter.is_some();
        Ok(Letter {
            ticket: Ticket {
                id: emission.id,
                order: emission.order.clone().filter(|_| self.is_ordered()),
                message_id: emission.message.id.clone(),
                stored_at: emission.message.stored_at,
                arrival: 0,
            },
            expires_at: (!is_dead).then_some(emission.expires_at),
            message,
        })
    }

    fn message(&self, emission: &Emission) -> Result<Outgoing, String> {
        let original = &*emission.message;
        let mut message = Outgoing::new(Arc::clone(&self.topic), original.body.clone(), self.kind(emission)?);
        message.tag = original.tag.clone().filter(|tag| !tag.is_empty());
        message.keys.clone_from(&original.keys);
        for (name, value) in &original.properties {
            let is_ours = &**name == CORRUPTED || dead_letter::is_context(name);
            if is_internal(name) || is_ours {
                continue;
            }
            let text = std::str::from_utf8(value)
                .map_err(|_| format!("the property `{}` is not text", name.escape_debug()))?;
            message.properties.push((name.clone(), text.into()));
        }
        if let BodyState::Corrupted { reason } = &original.body_state {
            message.properties.push((CORRUPTED.into(), dead_letter::plain(reason).into()));
        }
        if let Some(dead) = &emission.dead_letter {
            dead_letter::add_context(&mut message.properties, emission, dead);
        }
        Ok(message)
    }

    fn kind(&self, emission: &Emission) -> Result<Kind, String> {
        let render = |template: &Template, what: &str| {
            let rendered = template.render(emission);
            rendered.map_err(|error| format!("there is no {what} for the message: {error}"))
        };
        if let Some(template) = &self.lite_topic {
            return Ok(Kind::Lite { lite_topic: render(template, "lite topic")?.into() });
        }
        if let Some(template) = &self.message_group {
            return Ok(Kind::Fifo { group: render(template, "message group")?.into() });
        }
        Ok(Kind::Normal)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tidegate_model::{DeadLetter, DeliveryId, Handle, Message, Timestamp};

    use super::*;
    use crate::incoming::INTERNAL_DISPATCH;
    use crate::options::ClientOptions;
    use crate::{Endpoints, InvalidMessage};

    #[test]
    fn what_the_message_has_goes_with_it() {
        let letter = writer(Some("out-{lite-topic}"), None).write(&emission()).expect("a letter");
        let message = &letter.message;
        assert_eq!(message.kind, Kind::Lite { lite_topic: "out-tenant-7".into() });
        assert_eq!((&*message.topic, &*message.body), ("T", &b"hello"[..]));
        assert_eq!(message.tag.as_deref(), Some("red"));
        assert_eq!(message.keys, ["order-1".into()]);
        assert_eq!(message.properties, [("who".into(), "me".into())]);
        assert_eq!(letter.ticket.order.as_deref(), Some("tenant-7"));
        assert_eq!(letter.expires_at, Some(Instant::from_millis(60_000)));
    }

    /// On any message brokers obey it: it would come back to its old lite topic, un-ackable (measured).
    #[test]
    fn what_brokers_dispatch_by_never_goes_with_it() {
        let mut emission = emission();
        let message = Arc::make_mut(&mut emission.message);
        for name in [INTERNAL_DISPATCH, "INNER_MULTI_QUEUE_OFFSET"] {
            message.properties.push((name.into(), Bytes::from_static(b"%LMQ%$T$a")));
        }
        let letter = writer(None, None).write(&emission).expect("a letter");
        assert_eq!(letter.message.properties, [("who".into(), "me".into())]);
        assert_eq!(letter.message.kind, Kind::Normal);
    }

    #[test]
    fn what_cannot_be_sent_is_told_in_a_sentence() {
        let refusal = |lite: Option<&str>, change: &dyn Fn(&mut Message)| {
            let mut emission = emission();
            change(Arc::make_mut(&mut emission.message));
            writer(lite, None).write(&emission).expect_err("refused")
        };
        let missing = refusal(Some("{property:tenant}"), &|_| {});
        assert!(missing.contains("no lite topic") && missing.contains("{property:tenant}"), "{missing}");
        let name = refusal(Some("{tag}"), &|message| message.tag = Some("a/b".into()));
        assert!(name.contains("lite topic contains `/`"), "{name}");
        let empty = refusal(None, &|message| message.body = Bytes::new());
        assert!(empty.contains(&InvalidMessage::EmptyBody.to_string()), "{empty}");
        let binary = refusal(None, &|message| {
            message.properties.push(("raw".into(), Bytes::from_static(b"\xff")));
        });
        assert!(binary.contains("`raw` is not text"), "{binary}");
        let long = refusal(Some("{property:who}"), &|message| {
            message.properties[0].1 = Bytes::from("x".repeat(65));
        });
        assert!(long.contains("65 characters"), "{long}");
    }

    #[test]
    fn a_body_that_did_not_arrive_as_sent_is_marked() {
        let mut emission = emission();
        Arc::make_mut(&mut emission.message).body_state =
            BodyState::Corrupted { reason: "its CRC32\nis another".into() };
        let letter = writer(None, None).write(&emission).expect("a letter");
        let marked = letter.message.properties.iter().find(|(name, _)| &**name == CORRUPTED);
        assert_eq!(marked.map(|(_, why)| &**why), Some("its CRC32 is another"));
    }

    #[test]
    fn a_dead_letter_is_sent_however_old_it_is() {
        let dead = DeadLetter {
            flow: "tenants".into(),
            source: "orders".into(),
            policy: None,
            reason: "poison".into(),
            first_received_at: Timestamp::from_unix_millis(1),
            last_received_at: Timestamp::from_unix_millis(2),
        };
        let emission = Emission { dead_letter: Some(Arc::new(dead)), order: None, ..emission() };
        let letter = writer(None, Some("{key}")).write(&emission).expect("a letter");
        assert_eq!(letter.expires_at, None);
        assert_eq!(letter.message.kind, Kind::Fifo { group: "tenant-7".into() });
        let names: Vec<_> = letter.message.properties.iter().map(|(name, _)| &**name).collect();
        assert!(names.contains(&"who") && names.contains(&"tidegate-dead-letter-reason"), "{names:?}");
    }

    fn writer(lite_topic: Option<&str>, message_group: Option<&str>) -> Writer {
        let template = |text: &str| Template::parse(text).expect("a template");
        let client = ClientOptions::new(Endpoints::parse("a:1").expect("endpoints"));
        let mut options = SinkOptions::new(client, "T");
        options.lite_topic = lite_topic.map(template);
        options.message_group = message_group.map(template);
        Writer::new(&options)
    }

    fn emission() -> Emission {
        let mut message = Message::new("source", "01AB");
        message.lite_topic = Some("tenant-7".into());
        message.tag = Some("red".into());
        message.keys = vec!["order-1".into()];
        message.properties = vec![("who".into(), Bytes::from_static(b"me"))];
        message.body = Bytes::from_static(b"hello");
        Emission {
            id: DeliveryId(1),
            message: Arc::new(message),
            key: "tenant-7".into(),
            order: Some("tenant-7".into()),
            attempt: 1,
            handle: Handle { routing: Arc::default(), text: "".into() },
            received_at: Instant::ZERO,
            expires_at: Instant::from_millis(60_000),
            dead_letter: None,
        }
    }
}
