//! Names of things at the brokers.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use kafka_wire_core::Uuid;

/// A broker's node id.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct BrokerId(pub i32);

impl fmt::Display for BrokerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A topic's id: another one when a topic is deleted and made anew under the same name.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct TopicId(pub [u8; 16]);

impl TopicId {
    /// What brokers send when there is none.
    pub const NONE: Self = Self([0; 16]);
}

impl From<Uuid> for TopicId {
    fn from(id: Uuid) -> Self {
        Self(id.to_bytes())
    }
}

impl From<TopicId> for Uuid {
    fn from(id: TopicId) -> Self {
        Self::from_bytes(id.0)
    }
}

/// As Kafka's tools write it: base64url without padding.
impl fmt::Display for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl fmt::Debug for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One partition of one topic.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct TopicPartition {
    /// Which topic.
    pub topic: TopicId,
    /// Which of its partitions, from 0.
    pub partition: i32,
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

/// What a member says about an acquired record (KIP-932, KIP-1222).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(i8)]
pub enum AcknowledgeType {
    /// There is no record to deliver at this offset: a transaction's marker, or compacted away.
    Gap = 0,
    /// Done.
    Accept = 1,
    /// Hand it out again; the delivery counts.
    Release = 2,
    /// Never hand it out again.
    Reject = 3,
    /// Keep it with this member for another lock duration from now. Kafka 4.2 and later.
    Renew = 4,
}

impl AcknowledgeType {
    /// As on the wire.
    #[must_use]
    pub const fn code(self) -> i8 {
        self as i8
    }

    /// From the wire.
    #[must_use]
    pub const fn from_code(code: i8) -> Option<Self> {
        Some(match code {
            0 => Self::Gap,
            1 => Self::Accept,
            2 => Self::Release,
            3 => Self::Reject,
            4 => Self::Renew,
            _ => return None,
        })
    }
}
