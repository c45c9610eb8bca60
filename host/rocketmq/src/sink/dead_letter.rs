//! Why a message was given up, as properties of the dead letter.

use tidegate_model::{DeadLetter, Emission};

use crate::outgoing::{PROPERTIES_BYTES_MAX, PROPERTIES_MAX};

/// What the names of these properties begin with.
const PREFIX: &str = "tidegate-dead-letter-";
/// The server counts its own properties of some hundred bytes as well.
const SYSTEM_BYTES: usize = 1_024;
/// Longest reason, and what it has at least even when other context is left out for it, in bytes.
const REASON_BYTES_MAX: usize = 1_024;
const REASON_BYTES_MIN: usize = 128;

/// Whether a property is of an earlier dead-lettering: the last one counts.
pub(super) fn is_context(property: &str) -> bool {
    property.starts_with(PREFIX)
}

/// Adds the context to a message's properties, as much of it as the protocol's limits leave room for. The reason comes
/// first, cut if need be.
pub(super) fn add_context(
    properties: &mut Vec<(Box<str>, Box<str>)>,
    emission: &Emission,
    dead: &DeadLetter,
) {
    let message = &emission.message;
    let others = [
        ("flow", Some(dead.flow.to_string())),
        ("source", Some(dead.source.to_string())),
        ("policy", dead.policy.as_deref().map(str::to_owned)),
        ("topic", Some(message.topic.to_string())),
        ("lite-topic", message.lite_topic.as_deref().map(str::to_owned)),
        ("message-id", Some(message.id.to_string())),
        ("attempts", Some(emission.attempt.to_string())),
        ("first-received-at", Some(dead.first_received_at.as_unix_millis().to_string())),
        ("last-received-at", Some(dead.last_received_at.as_unix_millis().to_string())),
    ];
    let others: Vec<(String, String)> = others
        .into_iter()
        .filter_map(|(name, value)| Some((format!("{PREFIX}{name}"), plain(&value?))))
        .filter(|(_, value)| !value.is_empty())
        .collect();
    let bytes_of = |name: &str, value: &str| name.len() + value.len();
    let carried: usize = properties.iter().map(|(name, value)| bytes_of(name, value)).sum();
    let mut room = (PROPERTIES_BYTES_MAX - SYSTEM_BYTES).saturating_sub(carried);
    let name = format!("{PREFIX}reason");
    let for_others: usize = others.iter().map(|(name, value)| bytes_of(name, value)).sum();
    let for_reason = room.saturating_sub(for_others + name.len()).clamp(REASON_BYTES_MIN, REASON_BYTES_MAX);
    let reason = cut(plain(&dead.reason), for_reason);
    for (name, value) in std::iter::once((name, reason)).chain(others) {
        let bytes = bytes_of(&name, &value);
        if properties.len() < PROPERTIES_MAX && bytes <= room {
            room -= bytes;
            properties.push((name.into(), value.into()));
        }
    }
}

/// A text that a property can hold: one line, without control characters.
pub(super) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>().trim().to_owned()
}

fn cut(mut text: String, bytes_max: usize) -> String {
    const ELLIPSIS: &str = "...";
    if text.len() > bytes_max {
        let mut end = bytes_max.saturating_sub(ELLIPSIS.len());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push_str(ELLIPSIS);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use tidegate_model::{DeliveryId, Handle, Instant, Message, Timestamp};

    use super::*;
    use crate::outgoing::Outgoing;

    #[test]
    fn the_whole_context() {
        let mut properties = vec![("who".into(), "me".into())];
        add_context(&mut properties, &emission(), &dead("poison\nfor ever"));
        let shown: Vec<_> = properties.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(
            shown,
            [
                "who=me",
                "tidegate-dead-letter-reason=poison for ever",
                "tidegate-dead-letter-flow=tenants",
                "tidegate-dead-letter-source=orders",
                "tidegate-dead-letter-policy=quota",
                "tidegate-dead-letter-topic=T",
                "tidegate-dead-letter-lite-topic=tenant-7",
                "tidegate-dead-letter-message-id=01AB",
                "tidegate-dead-letter-attempts=3",
                "tidegate-dead-letter-first-received-at=1000",
                "tidegate-dead-letter-last-received-at=2000",
            ]
        );
    }

    #[test]
    fn when_there_is_little_room_the_reason_comes_first() {
        let mut properties =
            vec![("big".into(), "x".repeat(PROPERTIES_BYTES_MAX - SYSTEM_BYTES - 300).into())];
        add_context(&mut properties, &emission(), &dead(&"why ".repeat(1_000)));
        let (name, reason) = &properties[1];
        assert_eq!(&**name, "tidegate-dead-letter-reason");
        assert_eq!(reason.len(), REASON_BYTES_MIN);
        assert!(reason.ends_with("..."));
        let mut many: Vec<_> = (0..PROPERTIES_MAX - 1).map(|n| (n.to_string().into(), "v".into())).collect();
        add_context(&mut many, &emission(), &dead("why"));
        assert_eq!(many.len(), PROPERTIES_MAX);
        assert_eq!(&*many[PROPERTIES_MAX - 1].0, "tidegate-dead-letter-reason");
    }

    proptest! {
        /// Whatever a message carries and whatever was said: what the context adds never makes it unsendable.
        #[test]
        fn within_the_limits(
            reason in "\\PC{0,3000}|[\\x00-\\x1f a-z]{0,3000}", carried in 0usize..PROPERTIES_BYTES_MAX, count in 0usize..PROPERTIES_MAX,
        ) {
            let mut properties: Vec<(Box<str>, Box<str>)> =
                (0..count).map(|n| (format!("p{n}").into(), "".into())).collect();
            let names: usize = properties.iter().map(|(name, _)| name.len()).sum();
            if let Some((_, value)) = properties.first_mut() {
                *value = "x".repeat(carried.saturating_sub(names)).into();
            }
            add_context(&mut properties, &emission(), &dead(&reason));
            let mut message = Outgoing::normal("T", "x");
            message.properties = properties;
            prop_assert_eq!(message.validate(), Ok(()));
        }
    }

    fn dead(reason: &str) -> DeadLetter {
        DeadLetter {
            flow: "tenants".into(),
            source: "orders".into(),
            policy: Some("quota".into()),
            reason: reason.into(),
            first_received_at: Timestamp::from_unix_millis(1_000),
            last_received_at: Timestamp::from_unix_millis(2_000),
        }
    }

    fn emission() -> Emission {
        let mut message = Message::new("T", "01AB");
        message.lite_topic = Some("tenant-7".into());
        Emission {
            id: DeliveryId(1),
            message: Arc::new(message),
            key: "tenant-7".into(),
            order: None,
            attempt: 3,
            handle: Handle { routing: Arc::default(), text: "".into() },
            received_at: Instant::ZERO,
            expires_at: Instant::ZERO,
            dead_letter: None,
        }
    }
}
