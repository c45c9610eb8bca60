//! What a broker stores: a message, the same at every delivery.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::Timestamp;

/// The broker's own name of a message, opaque to the host. Cheap to clone.
#[derive(Clone, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct MessageId(Arc<str>);

impl MessageId {
    /// The id as text, exactly as the broker gave it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<T: Into<Arc<str>>> From<T> for MessageId {
    fn from(id: T) -> Self {
        Self(id.into())
    }
}

impl fmt::Debug for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Whether the body arrived as it was sent.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum BodyState {
    /// The digest matched, or there was none to check.
    #[default]
    Intact,
    /// The digest did not match or the body could not be decompressed; `body` holds the bytes as carried.
    Corrupted {
        /// What did not fit, in one sentence.
        reason: Box<str>,
    },
}

/// One message. Immutable and shared: a delivery, a policy call and a sink all look at the same one.
#[derive(Clone, Eq, PartialEq)]
pub struct Message {
    /// The topic it was sent to; for a lite message the main topic.
    pub topic: Arc<str>,
    /// The lite topic, for brokers that have them.
    pub lite_topic: Option<Arc<str>>,
    /// The message group of a FIFO topic.
    pub group: Option<Arc<str>>,
    /// The broker's name for it.
    pub id: MessageId,
    /// The tag used for filtering, if any.
    pub tag: Option<Box<str>>,
    /// Keys for look-up (RocketMQ), or the record key (Kafka) as the only element.
    pub keys: Vec<Box<str>>,
    /// Properties or headers in the order received. Names are unique for RocketMQ, may repeat for Kafka.
    pub properties: Vec<(Box<str>, Bytes)>,
    /// The body, decompressed.
    pub body: Bytes,
    /// Whether the body can be trusted.
    pub body_state: BodyState,
    /// When the producer made it, by the producer's clock.
    pub born_at: Option<Timestamp>,
    /// When the broker stored it, by the broker's clock.
    pub stored_at: Option<Timestamp>,
}

impl Message {
    /// One with a name, a topic and nothing else.
    #[must_use]
    pub fn new(topic: impl Into<Arc<str>>, id: impl Into<MessageId>) -> Self {
        Self {
            topic: topic.into(),
            lite_topic: None,
            group: None,
            id: id.into(),
            tag: None,
            keys: Vec::new(),
            properties: Vec::new(),
            body: Bytes::new(),
            body_state: BodyState::Intact,
            born_at: None,
            stored_at: None,
        }
    }

    /// The first value of the property `name`, as text; `None` when absent or not UTF-8.
    #[must_use]
    pub fn property(&self, name: &str) -> Option<&str> {
        let (_, value) = self.properties.iter().find(|(key, _)| &**key == name)?;
        std::str::from_utf8(value).ok()
    }

    /// Bytes that this message holds in memory, roughly: body, properties, keys and names. Used for budgets.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        /// What the struct, its reference counts and the bookkeeping around it take.
        const OVERHEAD_BYTES: usize = 256;
        let properties: usize = self.properties.iter().map(|(name, value)| name.len() + value.len()).sum();
        let keys: usize = self.keys.iter().map(|key| key.len()).sum();
        OVERHEAD_BYTES + self.body.len() + properties + keys
    }
}

/// Bodies and properties hold users' data: only their sizes are shown.
impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("topic", &self.topic)
            .field("lite_topic", &self.lite_topic)
            .field("group", &self.group)
            .field("id", &self.id)
            .field("tag", &self.tag)
            .field("properties", &self.properties.len())
            .field("body_bytes", &self.body.len())
            .field("body_state", &self.body_state)
            .finish_non_exhaustive()
    }
}
