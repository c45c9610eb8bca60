//! Deliveries as the protocol has them.

use std::borrow::Cow;
use std::sync::Arc;

use tidegate_connector::Clock;
use tidegate_model::{BodyState, DeadLetter, Emission, ReceiptIssuer, Timestamp};
use tidegate_proto::handoff as proto;

use crate::dispatch::Credits;

/// The most messages that one worker may hold.
pub(crate) const CREDIT_MESSAGES_MAX: u64 = 100_000;
/// The longest name of a worker, in characters.
const WORKER_CHARS_MAX: usize = 64;
/// Bytes of a sentence that repeats what a caller sent, whatever that was.
const SENTENCE_BYTES_MAX: usize = 512;

/// A delivery with its receipt.
pub(crate) fn delivery(emission: &Emission, issuer: &ReceiptIssuer, clock: Clock) -> proto::Delivery {
    let message = &*emission.message;
    let text = |text: &Option<Arc<str>>| text.as_deref().unwrap_or_default().to_owned();
    let millis = |at: Option<Timestamp>| at.map_or(0, Timestamp::as_unix_millis);
    let lease = emission.expires_at.saturating_since(clock.now());
    proto::Delivery {
        receipt: issuer.issue(emission, clock.wall_at(emission.expires_at)),
        message_id: message.id.as_str().to_owned(),
        topic: message.topic.to_string(),
        lite_topic: text(&message.lite_topic),
        key: emission.key.to_string(),
        body: message.body.clone(),
        properties: message
            .properties
            .iter()
            .map(|(name, value)| proto::Property { name: name.to_string(), value: value.clone() })
            .collect(),
        tag: message.tag.as_deref().unwrap_or_default().to_owned(),
        message_keys: message.keys.iter().map(ToString::to_string).collect(),
        message_group: message.group.as_deref().unwrap_or_default().to_owned(),
        attempt: emission.attempt,
        born_at_ms: millis(message.born_at),
        stored_at_ms: millis(message.stored_at),
        lease_ms: u64::try_from(lease.as_millis()).unwrap_or(u64::MAX),
        corrupted: match &message.body_state {
            BodyState::Intact => String::new(),
            BodyState::Corrupted { reason } => reason.to_string(),
        },
        dead_letter: emission.dead_letter.as_deref().map(|dead| dead_letter(emission, dead)),
    }
}

fn dead_letter(emission: &Emission, dead: &DeadLetter) -> proto::DeadLetter {
    proto::DeadLetter {
        flow: dead.flow.to_string(),
        source: dead.source.to_string(),
        policy: dead.policy.as_deref().unwrap_or_default().to_owned(),
        reason: dead.reason.to_string(),
        attempts: emission.attempt,
        first_received_at_ms: dead.first_received_at.as_unix_millis(),
        last_received_at_ms: dead.last_received_at.as_unix_millis(),
    }
}

/// A worker's credits, checked.
pub(crate) fn credits(credits: Option<&proto::Credits>) -> Result<Credits, String> {
    let credits = credits.ok_or("`credits` are needed: how many messages the worker may hold")?;
    if credits.messages > CREDIT_MESSAGES_MAX {
        return Err(format!(
            "`credits.messages` is {}, and at most {CREDIT_MESSAGES_MAX} can be held by one worker",
            credits.messages
        ));
    }
    Ok(Credits {
        messages: usize::try_from(credits.messages).unwrap_or(usize::MAX),
        bytes: (credits.bytes > 0).then(|| usize::try_from(credits.bytes).unwrap_or(usize::MAX)),
    })
}

/// A worker's name for people: what it calls itself, or something in its place.
pub(crate) fn worker_name(name: &str) -> Result<Arc<str>, String> {
    if name.chars().count() > WORKER_CHARS_MAX || name.chars().any(char::is_control) {
        return Err(format!("`worker` has at most {WORKER_CHARS_MAX} characters and no control characters"));
    }
    Ok(if name.is_empty() { "unnamed".into() } else { name.into() })
}

/// A sentence that repeats what a caller sent, for its answer and for logs.
pub(crate) fn in_short(sentence: &str) -> Cow<'_, str> {
    if sentence.len() <= SENTENCE_BYTES_MAX {
        return sentence.into();
    }
    let half = SENTENCE_BYTES_MAX / 2;
    // Both ends: what was sent is most often in the middle.
    let (begin, end) =
        (sentence.floor_char_boundary(half), sentence.ceil_char_boundary(sentence.len() - half));
    format!("{} … {}", &sentence[..begin], &sentence[end..]).into()
}

/// The protocol's word for when a message is done.
pub(crate) const fn ack_mode(accepts_on_delivery: bool) -> proto::AckMode {
    if accepts_on_delivery { proto::AckMode::OnDelivery } else { proto::AckMode::ByWorker }
}
