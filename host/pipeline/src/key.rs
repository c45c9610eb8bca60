//! What fairness is counted by.

use std::sync::Arc;

use tidegate_model::Message;

/// How a flow finds the key of a message.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum KeyRule {
    /// The lite topic; else the message group; else the topic.
    #[default]
    LiteTopic,
    /// The value of a property; messages without it share the empty key.
    Property(Box<str>),
    /// The first key of the message; messages without one share the empty key.
    RecordKey,
}

impl KeyRule {
    /// The key of `message`.
    #[must_use]
    pub fn key_of(&self, message: &Message) -> Arc<str> {
        match self {
            Self::LiteTopic => {
                let key = message.lite_topic.as_ref().or(message.group.as_ref()).unwrap_or(&message.topic);
                Arc::clone(key)
            }
            Self::Property(name) => message.property(name).unwrap_or_default().into(),
            Self::RecordKey => message.keys.first().map(|key| &**key).unwrap_or_default().into(),
        }
    }
}
