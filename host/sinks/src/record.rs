//! A delivery as one JSON object: value, metadata, receipt.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use tidegate_model::{BodyState, Emission, Message};

/// What `stdout` and other text sinks write for one delivery.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Record<'a> {
    #[serde(flatten)]
    value: Value<'a>,
    metadata: Metadata<'a>,
    receipt: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    dead_letter: Option<GivenUp<'a>>,
}

/// Why a delivery was given up, on its way to a dead-letter sink.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct GivenUp<'a> {
    flow: &'a str,
    source: &'a str,
    /// The policy that rejected it; a worker, a sink or a safety valve did when there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<&'a str>,
    reason: &'a str,
    /// How often it was handed out, as the host counts.
    attempts: u32,
    /// Milliseconds since the Unix epoch.
    first_received_at: u64,
    last_received_at: u64,
}

/// A body as text when it is text, else in base64 under a name that says so.
#[derive(Debug, Serialize)]
enum Value<'a> {
    #[serde(rename = "value")]
    Text(&'a str),
    #[serde(rename = "value-base64")]
    Base64(String),
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Metadata<'a> {
    source: &'a str,
    topic: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    lite_topic: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message_group: Option<&'a str>,
    key: &'a str,
    message_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tag: Option<&'a str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    message_keys: &'a [Box<str>],
    #[serde(skip_serializing_if = "Properties::is_empty")]
    properties: Properties<'a>,
    delivery_attempt: u32,
    /// Milliseconds since the Unix epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    born_at: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stored_at: Option<u64>,
    /// Why the body cannot be trusted, when it cannot.
    #[serde(skip_serializing_if = "Option::is_none")]
    corrupted: Option<&'a str>,
}

impl<'a> Record<'a> {
    pub(crate) fn new(source: &'a str, emission: &'a Emission, receipt: &'a str) -> Self {
        let message: &Message = &emission.message;
        let value = match std::str::from_utf8(&message.body) {
            Ok(text) => Value::Text(text),
            Err(_) => Value::Base64(STANDARD.encode(&message.body)),
        };
        let corrupted = match &message.body_state {
            BodyState::Intact => None,
            BodyState::Corrupted { reason } => Some(&**reason),
        };
        let metadata = Metadata {
            source,
            topic: &message.topic,
            lite_topic: message.lite_topic.as_deref(),
            message_group: message.group.as_deref(),
            key: &emission.key,
            message_id: message.id.as_str(),
            tag: message.tag.as_deref(),
            message_keys: &message.keys,
            properties: Properties(message),
            delivery_attempt: emission.attempt,
            born_at: message.born_at.map(|at| at.as_unix_millis()),
            stored_at: message.stored_at.map(|at| at.as_unix_millis()),
            corrupted,
        };
        let dead_letter = emission.dead_letter.as_deref().map(|given_up| GivenUp {
            flow: &given_up.flow,
            source: &given_up.source,
            policy: given_up.policy.as_deref(),
            reason: &given_up.reason,
            attempts: emission.attempt,
            first_received_at: given_up.first_received_at.as_unix_millis(),
            last_received_at: given_up.last_received_at.as_unix_millis(),
        });
        Self { value, metadata, receipt, dead_letter }
    }
}

/// Properties as an object; values that are not text in base64.
#[derive(Debug)]
struct Properties<'a>(&'a Message);

impl Properties<'_> {
    fn is_empty(&self) -> bool {
        self.0.properties.is_empty()
    }
}

impl Serialize for Properties<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.properties.len()))?;
        for (name, value) in &self.0.properties {
            match std::str::from_utf8(value) {
                Ok(text) => map.serialize_entry(name, text)?,
                Err(_) => map.serialize_entry(name, &STANDARD.encode(value))?,
            }
        }
        map.end()
    }
}

#[cfg(test)]
mod tests;
