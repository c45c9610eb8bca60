//! One message as bytes in the store: framed and checked, so that it can be found again in a file that is damaged.
//!
//! ```text
//! magic (8)  length (4)  CRC-32C (4)  payload
//! ```
//!
//! Numbers are little-endian; the checksum is the payload's. The payload is a protocol buffer, so that a later version may add
//! to it.

use std::sync::Arc;

use bytes::Bytes;
use prost::Message as _;
use tidegate_model::{BodyState, Message, Timestamp};

/// What a frame begins with. Another layout takes another one.
pub(crate) const MAGIC: [u8; 8] = *b"\xf1tgSp01\n";
/// Bytes before the payload.
pub(crate) const HEADER_BYTES: usize = MAGIC.len() + 8;
/// The largest payload, in bytes. Brokers' messages are far below; a length beyond it is damage.
pub(crate) const PAYLOAD_BYTES_MAX: usize = 512 << 20;

/// A place in a spool; later ones are higher, for the whole life of the store.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct Sequence(pub(crate) u64);

impl Sequence {
    pub(crate) const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// A message in the store.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) sequence: Sequence,
    /// The lowest sequence that was in the spool when this one was written: what lies below was settled.
    pub(crate) low_water: Sequence,
    /// The attempt that the broker told.
    pub(crate) attempt: u32,
    pub(crate) message: Arc<Message>,
}

/// Why bytes are no entry.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum EntryError {
    #[error("it does not begin as an entry does")]
    Magic,
    #[error("its length is not what it says")]
    Length,
    #[error("its checksum does not match")]
    Checksum,
    #[error("its payload cannot be read")]
    Payload,
}

#[derive(prost::Message)]
struct Stored {
    #[prost(uint64, tag = "1")]
    sequence: u64,
    #[prost(uint64, tag = "2")]
    low_water: u64,
    #[prost(uint32, tag = "3")]
    attempt: u32,
    #[prost(string, tag = "4")]
    topic: String,
    #[prost(string, optional, tag = "5")]
    lite_topic: Option<String>,
    #[prost(string, optional, tag = "6")]
    group: Option<String>,
    #[prost(string, tag = "7")]
    id: String,
    #[prost(string, optional, tag = "8")]
    tag: Option<String>,
    #[prost(string, repeated, tag = "9")]
    keys: Vec<String>,
    #[prost(message, repeated, tag = "10")]
    properties: Vec<Property>,
    #[prost(bytes = "bytes", tag = "11")]
    body: Bytes,
    /// Why the body is corrupted; absent when it is not.
    #[prost(string, optional, tag = "12")]
    corrupted: Option<String>,
    #[prost(uint64, optional, tag = "13")]
    born_at: Option<u64>,
    #[prost(uint64, optional, tag = "14")]
    stored_at: Option<u64>,
}

#[derive(prost::Message)]
struct Property {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(bytes = "bytes", tag = "2")]
    value: Bytes,
}

impl Entry {
    /// The frame.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let message = &self.message;
        let stored = Stored {
            sequence: self.sequence.0,
            low_water: self.low_water.0,
            attempt: self.attempt,
            topic: message.topic.to_string(),
            lite_topic: message.lite_topic.as_deref().map(str::to_owned),
            group: message.group.as_deref().map(str::to_owned),
            id: message.id.as_str().to_owned(),
            tag: message.tag.as_deref().map(str::to_owned),
            keys: message.keys.iter().map(ToString::to_string).collect(),
            properties: message
                .properties
                .iter()
                .map(|(name, value)| Property { name: name.to_string(), value: value.clone() })
                .collect(),
            body: message.body.clone(),
            corrupted: match &message.body_state {
                BodyState::Intact => None,
                BodyState::Corrupted { reason } => Some(reason.to_string()),
            },
            born_at: message.born_at.map(Timestamp::as_unix_millis),
            stored_at: message.stored_at.map(Timestamp::as_unix_millis),
        };
        let length = stored.encoded_len();
        let mut frame = Vec::with_capacity(HEADER_BYTES + length);
        frame.extend_from_slice(&MAGIC);
        frame.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
        frame.extend_from_slice(&[0; 4]);
        stored.encode_raw(&mut frame);
        let checksum = crc32c::crc32c(&frame[HEADER_BYTES..]);
        frame[HEADER_BYTES - 4..HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
        frame
    }

    /// Reads a whole frame.
    pub(crate) fn decode(frame: &[u8]) -> Result<Self, EntryError> {
        let length = payload_length(frame)?;
        let payload = &frame[HEADER_BYTES..];
        if payload.len() != length {
            return Err(EntryError::Length);
        }
        let told = frame[HEADER_BYTES - 4..HEADER_BYTES].try_into().map_err(|_| EntryError::Length)?;
        if crc32c::crc32c(payload) != u32::from_le_bytes(told) {
            return Err(EntryError::Checksum);
        }
        // One copy, of which body and properties are slices.
        let stored = Stored::decode(Bytes::copy_from_slice(payload)).map_err(|_| EntryError::Payload)?;
        Ok(stored.into())
    }
}

/// The length of the payload that a frame's header tells.
pub(crate) fn payload_length(frame: &[u8]) -> Result<usize, EntryError> {
    let header = frame.get(..HEADER_BYTES).ok_or(EntryError::Length)?;
    let (magic, numbers) = header.split_at(MAGIC.len());
    if magic != MAGIC {
        return Err(EntryError::Magic);
    }
    let length = numbers[..4].try_into().map_err(|_| EntryError::Length)?;
    let length = usize::try_from(u32::from_le_bytes(length)).map_err(|_| EntryError::Length)?;
    if length > PAYLOAD_BYTES_MAX { Err(EntryError::Length) } else { Ok(length) }
}

impl From<Stored> for Entry {
    fn from(stored: Stored) -> Self {
        let message = Message {
            topic: stored.topic.into(),
            lite_topic: stored.lite_topic.map(Into::into),
            group: stored.group.map(Into::into),
            id: stored.id.into(),
            tag: stored.tag.map(Into::into),
            keys: stored.keys.into_iter().map(Into::into).collect(),
            properties: stored
                .properties
                .into_iter()
                .map(|Property { name, value }| (name.into(), value))
                .collect(),
            body: stored.body,
            body_state: match stored.corrupted {
                None => BodyState::Intact,
                Some(reason) => BodyState::Corrupted { reason: reason.into() },
            },
            born_at: stored.born_at.map(Timestamp::from_unix_millis),
            stored_at: stored.stored_at.map(Timestamp::from_unix_millis),
        };
        Self {
            sequence: Sequence(stored.sequence),
            low_water: Sequence(stored.low_water),
            attempt: stored.attempt,
            message: Arc::new(message),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn messages() -> impl Strategy<Value = Message> {
        let text = || ".{0,12}";
        let names = (text(), proptest::option::of(text()), proptest::option::of(text()), text());
        let more = (
            proptest::option::of(text()),
            proptest::collection::vec(text(), 0..3),
            proptest::collection::vec((text(), proptest::collection::vec(any::<u8>(), 0..9)), 0..4),
            proptest::collection::vec(any::<u8>(), 0..200),
            proptest::option::of(text()),
            proptest::option::of(any::<u64>()),
            proptest::option::of(any::<u64>()),
        );
        (names, more).prop_map(
            |((topic, lite, group, id), (tag, keys, properties, body, bad, born, stored))| Message {
                topic: topic.into(),
                lite_topic: lite.map(Into::into),
                group: group.map(Into::into),
                id: id.into(),
                tag: tag.map(Into::into),
                keys: keys.into_iter().map(Into::into).collect(),
                properties: properties.into_iter().map(|(n, v)| (n.into(), v.into())).collect(),
                body: body.into(),
                body_state: bad
                    .map_or(BodyState::Intact, |reason| BodyState::Corrupted { reason: reason.into() }),
                born_at: born.map(Timestamp::from_unix_millis),
                stored_at: stored.map(Timestamp::from_unix_millis),
            },
        )
    }

    proptest! {
        #[test]
        fn what_was_written_is_read_again(
            message in messages(),
            sequence: u64,
            low_water: u64,
            attempt: u32,
        ) {
            let message = Arc::new(message);
            let entry = Entry {
                sequence: Sequence(sequence),
                low_water: Sequence(low_water),
                attempt,
                message: Arc::clone(&message),
            };
            let read = Entry::decode(&entry.encode()).expect("it is whole");
            prop_assert!(*read.message == *message);
            prop_assert_eq!((read.sequence.0, read.low_water.0, read.attempt), (sequence, low_water, attempt));
        }

        #[test]
        fn a_changed_byte_is_seen_and_a_missing_one(
            message in messages(),
            at in any::<proptest::sample::Index>(),
            flip in 1..=255_u8,
        ) {
            let entry = Entry {
                sequence: Sequence(7),
                low_water: Sequence(3),
                attempt: 1,
                message: Arc::new(message),
            };
            let frame = entry.encode();
            let at = at.index(frame.len());
            let mut changed = frame.clone();
            changed[at] ^= flip;
            prop_assert!(Entry::decode(&changed).is_err());
            prop_assert!(Entry::decode(&frame[..at]).is_err());
        }
    }
}
