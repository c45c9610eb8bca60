//! From a message on the wire to a delivery of ours, without copying large bodies.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tidegate_model::{BodyState, Delivery, Handle, Instant, Message, MessageId, Routing, Timestamp};
use tidegate_proto::rocketmq as proto;

use crate::body;
use crate::intern::Interner;
use crate::options::TopicKind;

/// A property that the broker dispatches lite messages by. It stands among the user's own in every lite message; a
/// message that is sent on with it is put into the lite topic once more, where it cannot be acknowledged (measured).
pub(crate) const INTERNAL_DISPATCH: &str = "INNER_MULTI_DISPATCH";

/// A body of no more bytes is copied: it is a small part of the buffer that it came in, and would keep all of that as long
/// as the message is held.
const COPIED_BODY_BYTES_MAX: usize = 512;

/// Most lite topics and groups whose names are shared.
const SHARED_NAMES_MAX: usize = 65_536;

/// Makes deliveries of one source.
#[derive(Debug)]
pub(crate) struct Incoming {
    topic: Arc<str>,
    kind: TopicKind,
    names: Mutex<Interner>,
}

/// What all deliveries of one answer share.
#[derive(Clone, Debug)]
pub(crate) struct Batch<'a> {
    pub(crate) routing: &'a Arc<Routing>,
    pub(crate) received_at: Instant,
    pub(crate) lease: Duration,
    pub(crate) expires_at: Instant,
}

impl Incoming {
    pub(crate) fn new(topic: Arc<str>, kind: TopicKind) -> Self {
        Self { topic, kind, names: Mutex::new(Interner::new(SHARED_NAMES_MAX)) }
    }

    /// The deliveries of one answer, in its order. A message without a handle is none: nothing could be told about it,
    /// and it comes again by itself.
    pub(crate) fn deliveries(&self, batch: &Batch<'_>, messages: Vec<proto::Message>) -> Vec<Delivery> {
        let mut names = self.names.lock();
        messages
            .into_iter()
            .filter(has_handle)
            .map(|message| self.delivery(batch, message, &mut names))
            .collect()
    }

    fn delivery(&self, batch: &Batch<'_>, message: proto::Message, names: &mut Interner) -> Delivery {
        let system = message.system_properties.unwrap_or_default();
        let (body, body_state) = body::decode(
            message.body,
            system.body_encoding,
            system.body_digest.as_ref(),
            body::DECODED_BYTES_MAX,
        );
        let body = if body.len() <= COPIED_BODY_BYTES_MAX { Bytes::copy_from_slice(&body) } else { body };
        let name = |names: &mut Interner, text: Option<String>| {
            text.filter(|text| !text.is_empty()).map(|text| names.intern(&text))
        };
        let lite_topic = name(names, system.lite_topic);
        let group = name(names, system.message_group);
        let order = match self.kind {
            TopicKind::Lite => lite_topic.clone(),
            TopicKind::Fifo => group.clone(),
            TopicKind::Normal | TopicKind::Delay => None,
        };
        let message = Message {
            // Not what the wire says: a redelivered message may name a retry topic, and is settled by this one.
            topic: Arc::clone(&self.topic),
            lite_topic,
            group,
            id: MessageId::from(system.message_id),
            tag: system.tag.map(String::into_boxed_str),
            keys: system.keys.into_iter().map(String::into_boxed_str).collect(),
            properties: properties(message.user_properties),
            body,
            body_state,
            born_at: system.born_timestamp.and_then(timestamp),
            stored_at: system.store_timestamp.and_then(timestamp),
        };
        Delivery {
            message: Arc::new(message),
            order,
            attempt: system
                .delivery_attempt
                .and_then(|attempt| u32::try_from(attempt).ok())
                .unwrap_or(1)
                .max(1),
            received_at: batch.received_at,
            lease: batch.lease,
            expires_at: batch.expires_at,
            handle: Handle {
                routing: Arc::clone(batch.routing),
                text: system.receipt_handle.unwrap_or_default().into(),
            },
        }
    }
}

/// When a lease surely still holds: from the last moment at which the broker cannot have started it yet.
///
/// It starts when the broker hands the messages out: after the request left us, and before the answer's first item came.
/// A long poll may lie between the two, so that counting from the request would end a short lease before it began.
/// The broker answers a poll as soon as it has something: between the hand-out and its arrival lies the way back,
/// for which a tenth of the lease is far more than enough.
pub(crate) fn lease_end(asked_at: Instant, first_item_at: Instant, lease: Duration) -> Instant {
    asked_at.max(first_item_at - lease / 10) + lease
}

/// The body's reason, when a delivery's body is corrupted.
pub(crate) fn corruption(delivery: &Delivery) -> Option<&str> {
    match &delivery.message.body_state {
        BodyState::Intact => None,
        BodyState::Corrupted { reason } => Some(reason),
    }
}

fn has_handle(message: &proto::Message) -> bool {
    let handle = message.system_properties.as_ref().and_then(|system| system.receipt_handle.as_deref());
    handle.is_some_and(|text| !text.is_empty())
}

fn properties(user_properties: std::collections::HashMap<String, String>) -> Vec<(Box<str>, Bytes)> {
    if user_properties.is_empty() {
        return Vec::new();
    }
    let own = user_properties.into_iter().filter(|(name, _)| name != INTERNAL_DISPATCH);
    let mut properties: Vec<_> =
        own.map(|(name, value)| (name.into_boxed_str(), Bytes::from(value.into_bytes()))).collect();
    // The wire has them in no order: sorted, the same message always looks the same.
    properties.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    properties
}

fn timestamp(wire: prost_types::Timestamp) -> Option<Timestamp> {
    let millis_of_second = u64::try_from(wire.nanos / 1_000_000).ok()?;
    let seconds = u64::try_from(wire.seconds).ok()?;
    Some(Timestamp::from_unix_millis(seconds.saturating_mul(1_000).saturating_add(millis_of_second)))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn a_lite_message_is_ordered_by_its_lite_topic() {
        let delivery = received(TopicKind::Lite, lite_message());
        assert_eq!(delivery.order.as_deref(), Some("tenant-1"));
        assert_eq!(delivery.message.lite_topic.as_deref(), Some("tenant-1"));
        assert_eq!(&*delivery.message.topic, "T");
        assert_eq!(delivery.message.id.as_str(), "01AB");
        assert_eq!(&*delivery.handle.text, "h1");
        assert_eq!(delivery.attempt, 2);
        assert_eq!(delivery.message.born_at, Some(Timestamp::from_unix_millis(1_500)));
    }

    #[test]
    fn a_fifo_message_is_ordered_by_its_group_and_others_are_not_ordered() {
        let mut message = lite_message();
        let system = message.system_properties.as_mut().expect("some");
        system.lite_topic = None;
        system.message_group = Some("order-7".into());
        assert_eq!(received(TopicKind::Fifo, message.clone()).order.as_deref(), Some("order-7"));
        assert_eq!(received(TopicKind::Normal, message.clone()).order, None);
        assert_eq!(received(TopicKind::Delay, message).order, None);
    }

    /// Copied along with a message it would put that message into the lite topic again (measured).
    #[test]
    fn the_brokers_dispatch_property_is_stripped() {
        let delivery = received(TopicKind::Lite, lite_message());
        let names: Vec<_> = delivery.message.properties.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(delivery.message.property("a"), Some("1"));
    }

    #[test]
    fn large_bodies_are_not_copied() {
        let body = Bytes::from(vec![7; 1_000]);
        let message = proto::Message { body: body.clone(), ..lite_message() };
        assert_eq!(received(TopicKind::Lite, message).message.body.as_ptr(), body.as_ptr());
    }

    #[test]
    fn a_handle_is_all_that_a_delivery_needs() {
        let with_handle = proto::SystemProperties { receipt_handle: Some("h1".into()), ..Default::default() };
        let message = proto::Message { system_properties: Some(with_handle), ..Default::default() };
        let delivery = received(TopicKind::Lite, message);
        assert_eq!((delivery.attempt, delivery.order), (1, None));
        assert_eq!(&*delivery.message.topic, "T");
        let incoming = Incoming::new("T".into(), TopicKind::Lite);
        assert!(deliveries(&incoming, vec![proto::Message::default()]).is_empty());
    }

    #[test]
    fn names_are_shared() {
        let incoming = Incoming::new("T".into(), TopicKind::Lite);
        let deliveries = deliveries(&incoming, vec![lite_message(), lite_message()]);
        let lite = |at: usize| deliveries[at].message.lite_topic.clone().expect("one");
        assert!(Arc::ptr_eq(&lite(0), &lite(1)));
    }

    #[test]
    fn a_lease_never_ends_later_than_the_broker_thinks() {
        let (asked, lease) = (Instant::from_millis(1_000), Duration::from_secs(60));
        // Answered at once: counted from the request.
        assert_eq!(lease_end(asked, Instant::from_millis(1_005), lease), asked + lease);
        // After a long poll: a tenth of the lease before the answer.
        let first = Instant::from_millis(21_000);
        assert_eq!(lease_end(asked, first, lease), first + Duration::from_secs(54));
        // Even when the poll is longer than the lease.
        assert!(lease_end(asked, first, Duration::from_secs(10)) > first);
    }

    fn received(kind: TopicKind, message: proto::Message) -> Delivery {
        deliveries(&Incoming::new("T".into(), kind), vec![message]).remove(0)
    }

    fn deliveries(incoming: &Incoming, messages: Vec<proto::Message>) -> Vec<Delivery> {
        let routing = Arc::new(Routing::default());
        let batch = Batch {
            routing: &routing,
            received_at: Instant::ZERO,
            lease: Duration::from_secs(60),
            expires_at: Instant::ZERO,
        };
        incoming.deliveries(&batch, messages)
    }

    fn lite_message() -> proto::Message {
        let user_properties = HashMap::from([
            ("b".to_owned(), "2".to_owned()),
            ("a".to_owned(), "1".to_owned()),
            (INTERNAL_DISPATCH.to_owned(), "%LMQ%$T$tenant-1".to_owned()),
        ]);
        proto::Message {
            topic: Some(proto::Resource { name: "T".into(), ..Default::default() }),
            user_properties,
            system_properties: Some(proto::SystemProperties {
                message_id: "01AB".into(),
                receipt_handle: Some("h1".into()),
                lite_topic: Some("tenant-1".into()),
                delivery_attempt: Some(2),
                born_timestamp: Some(prost_types::Timestamp { seconds: 1, nanos: 500_000_000 }),
                ..Default::default()
            }),
            body: Bytes::from_static(b"hello"),
        }
    }
}
