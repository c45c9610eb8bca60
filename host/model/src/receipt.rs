//! Receipts: with one, anyone allowed can settle a delivery later, from any host of the fleet.
//!
//! The text is `tg1.` + base64url (no padding) of: one version byte, the body, and a 16-byte keyed BLAKE3 tag over
//! both. The body is bincode 2, standard configuration, in the field order of `Body` below. A receipt holds no secret;
//! the tag keeps a worker from forging one. Golden bytes below pin the format: a change of layout takes a new
//! version byte, and decoders of old versions stay.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bincode::config;

use crate::{DeliveryId, Emission, MessageId, Routing, Timestamp};

/// What every receipt begins with.
pub const PREFIX: &str = "tg1.";
/// Longest receipt text that is looked at, in bytes: routing, identity and handle are each far below.
pub const TEXT_BYTES_MAX: usize = 8 * 1024;

const VERSION: u8 = 1;
const TAG_BYTES: usize = 16;

/// Everything needed to settle one delivery, apart from credentials.
#[derive(Clone, Eq, PartialEq)]
pub struct Receipt {
    /// Where it can be settled.
    pub routing: Routing,
    /// The topic; for a lite message the main topic.
    pub topic: Arc<str>,
    /// The lite topic, for brokers that have them.
    pub lite_topic: Option<Arc<str>>,
    /// The broker's name of the message.
    pub message_id: MessageId,
    /// The broker's token for the lease.
    pub handle: Arc<str>,
    /// The attempt as the host counted it.
    pub attempt: u32,
    /// The host that took the delivery: some brokers let only that one settle.
    pub owner: Arc<str>,
    /// The flow that emitted it there: what a worker's rights are about.
    pub flow: Arc<str>,
    /// The owner's own name of the delivery. A restarted owner gives the same names again, so it counts only together
    /// with the message and the handle.
    pub delivery: DeliveryId,
    /// When the lease ends, by the owner's clock, as known when the receipt was made. Renewals behind the receipt may
    /// have moved it.
    pub expires_at: Timestamp,
}

/// Who makes receipts: a flow of a host of the fleet.
#[derive(Clone, Debug)]
pub struct ReceiptIssuer {
    /// The fleet's key.
    pub key: ReceiptKey,
    /// The host's id.
    pub owner: Arc<str>,
    /// The flow.
    pub flow: Arc<str>,
}

/// The key of a fleet's receipts: hosts that share it accept each other's.
#[derive(Clone)]
pub struct ReceiptKey([u8; 32]);

/// Why a text is not a receipt of ours.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum DecodeError {
    /// It does not begin with [`PREFIX`].
    #[error("a receipt begins with `{PREFIX}`")]
    Prefix,
    /// It is longer than [`TEXT_BYTES_MAX`].
    #[error("a receipt has at most {TEXT_BYTES_MAX} characters, this has {0}")]
    TooLong(usize),
    /// What follows the prefix is not base64url.
    #[error("after `{PREFIX}` only letters, digits, `-` and `_` may follow")]
    Encoding,
    /// The version byte is not one that this host knows.
    #[error("receipt version {0} is not known to this host")]
    Version(u8),
    /// Cut short, or altered.
    #[error("the receipt is cut short or altered")]
    Malformed,
    /// The tag does not fit: forged, altered, or made by a host with another key.
    #[error("the receipt was altered, or made by a host with another receipt key")]
    Tag,
}

impl ReceiptIssuer {
    /// The text of an emission's receipt. `expires_at` is the end of its lease.
    #[must_use]
    pub fn issue(&self, emission: &Emission, expires_at: Timestamp) -> String {
        let body = Body {
            endpoint: &emission.handle.routing.endpoint,
            namespace: &emission.handle.routing.namespace,
            group: &emission.handle.routing.group,
            topic: &emission.message.topic,
            lite_topic: emission.message.lite_topic.as_deref(),
            message_id: emission.message.id.as_str(),
            handle: &emission.handle.text,
            attempt: emission.attempt,
            owner: &self.owner,
            flow: &self.flow,
            delivery: emission.id.0,
            expires_at_millis: expires_at.as_unix_millis(),
        };
        body.sign(&self.key)
    }
}

impl Receipt {
    /// The text that a worker carries.
    #[must_use]
    pub fn encode(&self, key: &ReceiptKey) -> String {
        let body = Body {
            endpoint: &self.routing.endpoint,
            namespace: &self.routing.namespace,
            group: &self.routing.group,
            topic: &self.topic,
            lite_topic: self.lite_topic.as_deref(),
            message_id: self.message_id.as_str(),
            handle: &self.handle,
            attempt: self.attempt,
            owner: &self.owner,
            flow: &self.flow,
            delivery: self.delivery.0,
            expires_at_millis: self.expires_at.as_unix_millis(),
        };
        body.sign(key)
    }

    /// Reads a receipt and checks its tag.
    ///
    /// # Errors
    /// When the text is not a receipt, or not one made with `key`.
    pub fn decode(text: &str, key: &ReceiptKey) -> Result<Self, DecodeError> {
        let (receipt, signed, tag) = Self::parse(text)?;
        // Compared in constant time: how far a forger came must not show.
        if blake3::Hash::from_bytes(padded(key.tag(&signed))) != blake3::Hash::from_bytes(padded(tag)) {
            return Err(DecodeError::Tag);
        }
        Ok(receipt)
    }

    /// Reads a receipt without checking its tag: to explain one, never to act on it.
    ///
    /// # Errors
    /// When the text is not a receipt.
    pub fn decode_unverified(text: &str) -> Result<Self, DecodeError> {
        Self::parse(text).map(|(receipt, _, _)| receipt)
    }

    fn parse(text: &str) -> Result<(Self, Vec<u8>, Tag), DecodeError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(DecodeError::TooLong(text.len()));
        }
        let encoded = text.strip_prefix(PREFIX).ok_or(DecodeError::Prefix)?;
        let mut signed = URL_SAFE_NO_PAD.decode(encoded).map_err(|error| match error {
            base64::DecodeError::InvalidByte(..) | base64::DecodeError::InvalidPadding => {
                DecodeError::Encoding
            }
            // Every character is one of them, and they do not add up to whole bytes.
            base64::DecodeError::InvalidLength(_) | base64::DecodeError::InvalidLastSymbol(..) => {
                DecodeError::Malformed
            }
        })?;
        let version = *signed.first().ok_or(DecodeError::Malformed)?;
        if version != VERSION {
            return Err(DecodeError::Version(version));
        }
        let at = signed.len().checked_sub(TAG_BYTES).filter(|at| *at > 0).ok_or(DecodeError::Malformed)?;
        let tag: Tag = signed.split_off(at).try_into().map_err(|_| DecodeError::Malformed)?;
        let limits = config::standard().with_limit::<TEXT_BYTES_MAX>();
        let (body, read): (Body<'_>, usize) =
            bincode::borrow_decode_from_slice(&signed[1..], limits).map_err(|_| DecodeError::Malformed)?;
        if read + 1 != signed.len() {
            return Err(DecodeError::Malformed);
        }
        let receipt = Self {
            routing: Routing {
                endpoint: body.endpoint.into(),
                namespace: body.namespace.into(),
                group: body.group.into(),
            },
            topic: body.topic.into(),
            lite_topic: body.lite_topic.map(Into::into),
            message_id: body.message_id.into(),
            handle: body.handle.into(),
            attempt: body.attempt,
            owner: body.owner.into(),
            flow: body.flow.into(),
            delivery: DeliveryId(body.delivery),
            expires_at: Timestamp::from_unix_millis(body.expires_at_millis),
        };
        Ok((receipt, signed, tag))
    }
}

/// The handle lets its holder settle the message, so it stays out of logs.
impl fmt::Debug for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receipt")
            .field("routing", &self.routing)
            .field("topic", &self.topic)
            .field("lite_topic", &self.lite_topic)
            .field("message_id", &self.message_id)
            .field("attempt", &self.attempt)
            .field("owner", &self.owner)
            .field("flow", &self.flow)
            .field("delivery", &self.delivery)
            .field("expires_at", &self.expires_at)
            .finish_non_exhaustive()
    }
}

impl ReceiptKey {
    /// A key of 32 secret bytes.
    #[must_use]
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    fn tag(&self, signed: &[u8]) -> Tag {
        let hash = blake3::keyed_hash(&self.0, signed);
        let mut tag = [0; TAG_BYTES];
        tag.copy_from_slice(&hash.as_bytes()[..TAG_BYTES]);
        tag
    }
}

impl fmt::Debug for ReceiptKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReceiptKey(..)")
    }
}

type Tag = [u8; TAG_BYTES];

/// As long as the hashes that the library compares in constant time.
fn padded(tag: Tag) -> [u8; 32] {
    let mut padded = [0; 32];
    padded[..TAG_BYTES].copy_from_slice(&tag);
    padded
}

/// The layout on the wire. The order of fields is the format.
#[derive(bincode::Encode, bincode::BorrowDecode)]
struct Body<'a> {
    endpoint: &'a str,
    namespace: &'a str,
    group: &'a str,
    topic: &'a str,
    lite_topic: Option<&'a str>,
    message_id: &'a str,
    handle: &'a str,
    attempt: u32,
    owner: &'a str,
    flow: &'a str,
    delivery: u64,
    expires_at_millis: u64,
}

impl Body<'_> {
    fn sign(self, key: &ReceiptKey) -> String {
        // A typical one has about 200 bytes.
        let mut bytes = Vec::with_capacity(320);
        bytes.push(VERSION);
        // Encoding borrowed strings into a growing vector has no way to fail.
        let encoded = bincode::encode_into_std_write(self, &mut bytes, config::standard());
        debug_assert!(encoded.is_ok(), "{encoded:?}");
        let tag = key.tag(&bytes);
        bytes.extend_from_slice(&tag);
        let mut text = String::with_capacity(PREFIX.len() + bytes.len() * 4 / 3 + 4);
        text.push_str(PREFIX);
        URL_SAFE_NO_PAD.encode_string(bytes, &mut text);
        text
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sample() -> Receipt {
        Receipt {
            routing: Routing {
                endpoint: "127.0.0.1:8081".into(),
                namespace: "".into(),
                group: "GID-lite".into(),
            },
            topic: "LiteMainTopic".into(),
            lite_topic: Some("tenant-7".into()),
            message_id: "01AB".into(),
            handle: "0 1764450000000 60000 999 0 broker-a 0 42 1000".into(),
            attempt: 3,
            owner: "host-1".into(),
            flow: "tenants".into(),
            delivery: DeliveryId(16_777_217),
            expires_at: Timestamp::from_unix_millis(1_764_450_060_000),
        }
    }

    fn key() -> ReceiptKey {
        ReceiptKey::new([7; 32])
    }

    #[test]
    fn golden_bytes() {
        insta::assert_snapshot!(sample().encode(&key()), @"tg1.AQ4xMjcuMC4wLjE6ODA4MQAIR0lELWxpdGUNTGl0ZU1haW5Ub3BpYwEIdGVuYW50LTcEMDFBQi4wIDE3NjQ0NTAwMDAwMDAgNjAwMDAgOTk5IDAgYnJva2VyLWEgMCA0MiAxMDAwAwZob3N0LTEHdGVuYW50c_wBAAAB_eBGa9GaAQAAGyhjB9PwSyghQdOmcmwqkA");
    }

    #[test]
    fn another_key_is_refused() {
        let text = sample().encode(&key());
        assert_eq!(Receipt::decode(&text, &ReceiptKey::new([8; 32])), Err(DecodeError::Tag));
        assert_eq!(Receipt::decode_unverified(&text), Ok(sample()));
    }

    #[test]
    fn every_single_bit_flip_is_refused() {
        let text = sample().encode(&key());
        let bytes = URL_SAFE_NO_PAD.decode(&text[PREFIX.len()..]).expect("own encoding");
        for at in 0..bytes.len() * 8 {
            let mut altered = bytes.clone();
            altered[at / 8] ^= 1 << (at % 8);
            let text = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(altered));
            assert!(Receipt::decode(&text, &key()).is_err(), "bit {at}");
        }
    }

    #[test]
    fn rubbish_gets_its_own_sentence() {
        assert_eq!(Receipt::decode("", &key()), Err(DecodeError::Prefix));
        assert_eq!(Receipt::decode("tg1.", &key()), Err(DecodeError::Malformed));
        assert_eq!(Receipt::decode("tg1.!!", &key()), Err(DecodeError::Encoding));
        let whole = sample().encode(&key());
        for cut in 1..8 {
            let error = Receipt::decode(&whole[..whole.len() - cut], &key());
            assert!(matches!(error, Err(DecodeError::Malformed | DecodeError::Tag)), "{cut}: {error:?}");
        }
        assert_eq!(Receipt::decode("tg1.CQAA", &key()), Err(DecodeError::Version(9)));
        let long = format!("tg1.{}", "A".repeat(TEXT_BYTES_MAX));
        assert_eq!(Receipt::decode(&long, &key()), Err(DecodeError::TooLong(long.len())));
    }

    proptest! {
        #[test]
        fn round_trip(
            endpoint in ".{0,40}", group in ".{0,40}", lite in proptest::option::of(".{0,64}"),
            id in ".{0,40}", handle in ".{0,200}", flow in ".{0,40}", attempt: u32, delivery: u64, expires: u64,
        ) {
            let receipt = Receipt {
                routing: Routing { endpoint: endpoint.into(), namespace: "n".into(), group: group.into() },
                lite_topic: lite.map(Into::into),
                message_id: id.into(),
                handle: handle.into(),
                attempt,
                flow: flow.into(),
                delivery: DeliveryId(delivery),
                expires_at: Timestamp::from_unix_millis(expires),
                ..sample()
            };
            prop_assert_eq!(Receipt::decode(&receipt.encode(&key()), &key()), Ok(receipt));
        }

        #[test]
        fn no_text_panics(text in "(tg1\\.)?[A-Za-z0-9_-]{0,200}") {
            let _ = Receipt::decode(&text, &key());
        }
    }
}
