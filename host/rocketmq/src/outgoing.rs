//! Messages to be sent: checked here, so that mistakes get a sentence instead of a code.

use std::sync::Arc;

use bytes::Bytes;
use tidegate_model::Timestamp;
use tidegate_proto::rocketmq as proto;

use crate::incoming::INTERNAL_DISPATCH;
use crate::names::{self, NameError};

/// One message to be sent.
#[derive(Clone, Debug)]
pub struct Outgoing {
    pub(crate) topic: Arc<str>,
    pub(crate) kind: Kind,
    pub(crate) body: Bytes,
    pub(crate) tag: Option<Box<str>>,
    pub(crate) keys: Vec<Box<str>>,
    pub(crate) properties: Vec<(Box<str>, Box<str>)>,
}

/// What kind of message it is. The server derives the kind from the fields, so each has its own.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    Normal,
    Fifo { group: Arc<str> },
    Delay { at: Timestamp },
    Lite { lite_topic: Arc<str> },
}

/// Why a message cannot be sent as it is.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum InvalidMessage {
    /// The topic's name.
    #[error("the topic {0}")]
    Topic(NameError),
    /// The lite topic's name.
    #[error("the lite topic {0}")]
    LiteTopic(NameError),
    /// The message group.
    #[error("the message group must have 1 to {GROUP_CHARS_MAX} characters, not {0}")]
    Group(usize),
    /// No body.
    #[error("the body is empty, and RocketMQ takes only bodies of at least one byte")]
    EmptyBody,
    /// Too large.
    #[error("the body has {bytes} bytes, the server takes {max} at most")]
    BodyTooLarge {
        /// As given.
        bytes: usize,
        /// As the server says, or its default.
        max: usize,
    },
    /// A tag that filters could not name.
    #[error("the tag must not be empty and must not contain `|` or control characters")]
    Tag,
    /// Too many properties.
    #[error("it has {0} properties, at most {PROPERTIES_MAX} are allowed")]
    TooManyProperties(usize),
    /// Properties too large.
    #[error("its properties have {0} bytes, at most {PROPERTIES_BYTES_MAX} are allowed")]
    PropertiesTooLarge(usize),
    /// A property that brokers obey.
    #[error("the property `{0}` is the broker's own: it would put the message into other queues as well")]
    InternalProperty(Box<str>),
    /// A property that cannot be written.
    #[error("the property `{0}` has an empty name or control characters")]
    Property(Box<str>),
}

/// Largest body, unless the server's Settings say otherwise (its default, in bytes).
pub(crate) const BODY_BYTES_MAX: usize = 4 << 20;
/// Most properties, and most bytes of them with the system's own (43101 above).
pub(crate) const PROPERTIES_MAX: usize = 128;
pub(crate) const PROPERTIES_BYTES_MAX: usize = 16 << 10;
/// Longest message group, in characters.
const GROUP_CHARS_MAX: usize = 63;
/// Properties by which brokers dispatch messages to further queues (measured: obeyed even on normal messages).
const INTERNAL_PROPERTIES: [&str; 2] = [INTERNAL_DISPATCH, "INNER_MULTI_QUEUE_OFFSET"];

impl Outgoing {
    /// A message of its own.
    #[must_use]
    pub fn normal(topic: impl Into<Arc<str>>, body: impl Into<Bytes>) -> Self {
        Self::new(topic, body, Kind::Normal)
    }

    /// A message that comes after those sent before with the same group.
    #[must_use]
    pub fn fifo(topic: impl Into<Arc<str>>, group: impl Into<Arc<str>>, body: impl Into<Bytes>) -> Self {
        Self::new(topic, body, Kind::Fifo { group: group.into() })
    }

    /// A message that is held back until a time.
    #[must_use]
    pub fn delay(topic: impl Into<Arc<str>>, at: Timestamp, body: impl Into<Bytes>) -> Self {
        Self::new(topic, body, Kind::Delay { at })
    }

    /// A message to a lite topic below a main topic.
    #[must_use]
    pub fn lite(topic: impl Into<Arc<str>>, lite_topic: impl Into<Arc<str>>, body: impl Into<Bytes>) -> Self {
        Self::new(topic, body, Kind::Lite { lite_topic: lite_topic.into() })
    }

    /// Adds a tag to filter by.
    #[must_use]
    pub fn with_tag(mut self, tag: impl Into<Box<str>>) -> Self {
        self.tag = Some(tag.into());
        self
    }

    /// Adds a key to look the message up by.
    #[must_use]
    pub fn with_key(mut self, key: impl Into<Box<str>>) -> Self {
        self.keys.push(key.into());
        self
    }

    /// Adds a property. The last value of a name counts.
    #[must_use]
    pub fn with_property(mut self, name: impl Into<Box<str>>, value: impl Into<Box<str>>) -> Self {
        self.properties.push((name.into(), value.into()));
        self
    }

    /// The topic that it goes to.
    #[must_use]
    pub const fn topic(&self) -> &Arc<str> {
        &self.topic
    }

    /// Bytes of the body.
    #[must_use]
    pub fn body_bytes(&self) -> usize {
        self.body.len()
    }

    /// Checks everything but the size of the body, whose limit only the server knows.
    ///
    /// # Errors
    /// What the server would refuse.
    pub fn validate(&self) -> Result<(), InvalidMessage> {
        self.check(usize::MAX)
    }

    pub(crate) fn new(topic: impl Into<Arc<str>>, body: impl Into<Bytes>, kind: Kind) -> Self {
        let (topic, body) = (topic.into(), body.into());
        Self { topic, kind, body, tag: None, keys: Vec::new(), properties: Vec::new() }
    }

    /// Checks what the server would refuse.
    pub(crate) fn check(&self, body_bytes_max: usize) -> Result<(), InvalidMessage> {
        names::check_resource(&self.topic).map_err(InvalidMessage::Topic)?;
        match &self.kind {
            Kind::Lite { lite_topic } => {
                names::check_lite_topic(lite_topic).map_err(InvalidMessage::LiteTopic)?;
            }
            Kind::Fifo { group } => check_group(group)?,
            Kind::Normal | Kind::Delay { .. } => {}
        }
        match self.body.len() {
            0 => return Err(InvalidMessage::EmptyBody),
            bytes if bytes > body_bytes_max => {
                return Err(InvalidMessage::BodyTooLarge { bytes, max: body_bytes_max });
            }
            _ => {}
        }
        let bad_tag = |tag: &str| tag.trim().is_empty() || tag.contains('|') || has_control(tag);
        if self.tag.as_deref().is_some_and(bad_tag) {
            return Err(InvalidMessage::Tag);
        }
        self.check_properties()
    }

    fn check_properties(&self) -> Result<(), InvalidMessage> {
        if self.properties.len() > PROPERTIES_MAX {
            return Err(InvalidMessage::TooManyProperties(self.properties.len()));
        }
        for (name, value) in &self.properties {
            if is_internal(name) {
                return Err(InvalidMessage::InternalProperty(name.clone()));
            }
            if name.is_empty() || has_control(name) || has_control(value) {
                return Err(InvalidMessage::Property(name.escape_default().to_string().into()));
            }
        }
        let bytes: usize = self.properties.iter().map(|(name, value)| name.len() + value.len()).sum();
        if bytes > PROPERTIES_BYTES_MAX {
            return Err(InvalidMessage::PropertiesTooLarge(bytes));
        }
        Ok(())
    }

    /// As it goes over the wire, apart from the queue. The body is shared, not copied.
    pub(crate) fn to_proto(
        &self,
        topic: proto::Resource,
        message_id: String,
        born_at: Timestamp,
        born_host: &str,
    ) -> proto::Message {
        let mut system = proto::SystemProperties {
            tag: self.tag.as_deref().map(str::to_owned),
            keys: self.keys.iter().map(|key| key.as_ref().to_owned()).collect(),
            message_id,
            body_encoding: proto::Encoding::Identity.into(),
            message_type: self.kind.to_proto().into(),
            born_timestamp: Some(timestamp(born_at)),
            born_host: born_host.to_owned(),
            ..Default::default()
        };
        match &self.kind {
            Kind::Normal => {}
            Kind::Fifo { group } => system.message_group = Some(group.as_ref().to_owned()),
            Kind::Delay { at } => system.delivery_timestamp = Some(timestamp(*at)),
            Kind::Lite { lite_topic } => system.lite_topic = Some(lite_topic.as_ref().to_owned()),
        }
        let properties = self.properties.iter();
        proto::Message {
            topic: Some(topic),
            user_properties: properties
                .map(|(name, value)| (name.as_ref().to_owned(), value.as_ref().to_owned()))
                .collect(),
            system_properties: Some(system),
            body: self.body.clone(),
        }
    }
}

impl Kind {
    pub(crate) const fn to_proto(&self) -> proto::MessageType {
        match self {
            Self::Normal => proto::MessageType::Normal,
            Self::Fifo { .. } => proto::MessageType::Fifo,
            Self::Delay { .. } => proto::MessageType::Delay,
            Self::Lite { .. } => proto::MessageType::Lite,
        }
    }

    /// The protocol's name.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Normal => "NORMAL",
            Self::Fifo { .. } => "FIFO",
            Self::Delay { .. } => "DELAY",
            Self::Lite { .. } => "LITE",
        }
    }
}

/// Whether a property is one that brokers obey: it is never sent on.
pub(crate) fn is_internal(property: &str) -> bool {
    INTERNAL_PROPERTIES.contains(&property)
}

/// Checks a message group.
pub(crate) fn check_group(group: &str) -> Result<(), InvalidMessage> {
    let length = group.chars().count();
    if (1..=GROUP_CHARS_MAX).contains(&length) { Ok(()) } else { Err(InvalidMessage::Group(length)) }
}

fn has_control(text: &str) -> bool {
    text.chars().any(char::is_control)
}

fn timestamp(time: Timestamp) -> prost_types::Timestamp {
    let millis = time.as_unix_millis();
    prost_types::Timestamp {
        seconds: i64::try_from(millis / 1_000).unwrap_or(i64::MAX),
        nanos: i32::try_from(millis % 1_000).unwrap_or(0) * 1_000_000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ordinary_message_passes() {
        let message =
            Outgoing::lite("T", "tenant-1", "hello").with_tag("a").with_key("k").with_property("p", "v");
        assert_eq!(message.check(BODY_BYTES_MAX), Ok(()));
        let wire = message.to_proto(
            proto::Resource::default(),
            "01".into(),
            Timestamp::from_unix_millis(1_500),
            "h",
        );
        let system = wire.system_properties.expect("some");
        assert_eq!(system.lite_topic.as_deref(), Some("tenant-1"));
        assert_eq!(system.message_type(), proto::MessageType::Lite);
        assert_eq!(system.born_timestamp.expect("some").nanos, 500_000_000);
        assert_eq!(system.message_group, None);
        assert_eq!(wire.user_properties["p"], "v");
    }

    /// On a normal message a broker obeys it and delivers the message twice (measured).
    #[test]
    fn the_brokers_dispatch_property_is_refused() {
        let message = Outgoing::normal("T", "x").with_property(INTERNAL_DISPATCH, "%LMQ%$T$a");
        assert!(matches!(message.check(BODY_BYTES_MAX), Err(InvalidMessage::InternalProperty(_))));
    }

    #[test]
    fn limits_are_checked_before_the_server_is_asked() {
        let check = |message: Outgoing| message.check(10).expect_err("refused");
        assert_eq!(check(Outgoing::normal("T", "")), InvalidMessage::EmptyBody);
        assert_eq!(Outgoing::normal("T", vec![0; 10]).check(10), Ok(()));
        let large = InvalidMessage::BodyTooLarge { bytes: 11, max: 10 };
        assert_eq!(check(Outgoing::normal("T", vec![0; 11])), large);
        assert!(matches!(check(Outgoing::normal("a b", "x")), InvalidMessage::Topic(_)));
        assert!(matches!(check(Outgoing::lite("T", "a/b", "x")), InvalidMessage::LiteTopic(_)));
        assert!(matches!(check(Outgoing::lite("T", "a".repeat(65), "x")), InvalidMessage::LiteTopic(_)));
        assert_eq!(check(Outgoing::fifo("T", "", "x")), InvalidMessage::Group(0));
        assert_eq!(check(Outgoing::fifo("T", "g".repeat(64), "x")), InvalidMessage::Group(64));
        assert_eq!(check(Outgoing::normal("T", "x").with_tag("a|b")), InvalidMessage::Tag);
        let mut many = Outgoing::normal("T", "x");
        for number in 0..129 {
            many = many.with_property(number.to_string(), "v");
        }
        assert_eq!(check(many), InvalidMessage::TooManyProperties(129));
        let heavy = Outgoing::normal("T", "x").with_property("p", "v".repeat(16 << 10));
        assert_eq!(check(heavy), InvalidMessage::PropertiesTooLarge((16 << 10) + 1));
        let control = Outgoing::normal("T", "x").with_property("p", "a\u{1}b");
        assert!(matches!(check(control), InvalidMessage::Property(_)));
    }
}
