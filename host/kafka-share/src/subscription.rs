//! What a member fetches from.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// What a member fetches from.
#[derive(Clone, Debug)]
pub enum Subscription {
    /// These topics. One that is not there yet is fetched from once it is.
    Topics(BTreeSet<Arc<str>>),
    /// Every topic whose whole name matches, also those that are made later. Topics that brokers keep for themselves never
    /// match.
    Pattern(TopicPattern),
}

impl Subscription {
    /// Of topics by their names.
    #[must_use]
    pub fn topics<T: Into<Arc<str>>>(names: impl IntoIterator<Item = T>) -> Self {
        Self::Topics(names.into_iter().map(Into::into).collect())
    }
}

/// A regular expression over topic names.
#[derive(Clone)]
pub struct TopicPattern(Arc<dyn Fn(&str) -> bool + Send + Sync>, Arc<str>);

impl TopicPattern {
    /// `text` for people, `matches` for names. The expression's syntax is the caller's choice.
    pub fn new(text: impl Into<Arc<str>>, matches: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(matches), text.into())
    }

    /// Whether a topic is meant.
    #[must_use]
    pub fn matches(&self, topic: &str) -> bool {
        (self.0)(topic)
    }
}

impl fmt::Display for TopicPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.1)
    }
}

impl fmt::Debug for TopicPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TopicPattern").field(&self.1).finish()
    }
}
