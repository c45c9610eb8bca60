//! What is in a member's way. Told when it begins, when it changes and when it ends, and so again when it comes back.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::sync::Arc;

use super::Event;
use crate::BrokerId;

/// The most troubles that are kept apart; more say nothing new.
const TROUBLES_MAX: usize = 256;

/// What a trouble is about. In the order of importance.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Subject {
    /// The whole cluster.
    Cluster,
    /// The member's place in the group.
    Group,
    /// One broker.
    Broker(BrokerId),
    /// One topic.
    Topic(Arc<str>),
}

/// Something in the way.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Trouble {
    /// What it is about.
    pub subject: Subject,
    /// In one sentence.
    pub detail: Box<str>,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.subject {
            Subject::Cluster | Subject::Group => f.write_str(&self.detail),
            Subject::Broker(broker) => write!(f, "broker {broker}: {}", self.detail),
            Subject::Topic(topic) => write!(f, "topic `{topic}`: {}", self.detail),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Troubles(BTreeMap<Subject, Trouble>);

impl Troubles {
    /// Something is in the way; an event unless that is known.
    pub(super) fn raise(&mut self, subject: Subject, detail: impl Into<Box<str>>) -> Option<Event> {
        let trouble = Trouble { subject: subject.clone(), detail: detail.into() };
        let has_room = self.0.len() < TROUBLES_MAX;
        match self.0.entry(subject) {
            Entry::Occupied(known) if known.get() == &trouble => return None,
            Entry::Occupied(mut known) => {
                known.insert(trouble.clone());
            }
            Entry::Vacant(place) if has_room => {
                place.insert(trouble.clone());
            }
            Entry::Vacant(_) => return None,
        }
        Some(Event::TroubleBegan(trouble))
    }

    /// It is not, any more; an event if it was.
    pub(super) fn clear(&mut self, subject: &Subject) -> Option<Event> {
        self.0.remove(subject).map(|trouble| Event::TroubleEnded(trouble.subject))
    }

    /// Of all topics, only these are in trouble now.
    pub(super) fn retain_topics(&mut self, mut is_in_trouble: impl FnMut(&str) -> bool) -> Vec<Event> {
        let over: Vec<Subject> = self
            .0
            .keys()
            .filter(|subject| matches!(subject, Subject::Topic(topic) if !is_in_trouble(topic)))
            .cloned()
            .collect();
        over.iter().filter_map(|subject| self.clear(subject)).collect()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Trouble> {
        self.0.values()
    }

    /// Whether one is about more than a part of the work.
    pub(super) fn is_any_serious(&self) -> bool {
        self.0.keys().any(|subject| matches!(subject, Subject::Cluster | Subject::Group))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trouble_is_told_once_and_again_when_it_comes_back() {
        let mut troubles = Troubles::default();
        let topic = || Subject::Topic("t".into());
        assert!(troubles.raise(topic(), "no right").is_some());
        assert!(troubles.raise(topic(), "no right").is_none());
        assert!(troubles.raise(topic(), "something else").is_some());
        assert!(matches!(troubles.clear(&topic()), Some(Event::TroubleEnded(_))));
        assert!(troubles.clear(&topic()).is_none());
        assert!(troubles.raise(topic(), "no right").is_some());
    }

    #[test]
    fn the_number_of_troubles_is_bounded() {
        let mut troubles = Troubles::default();
        for index in 0..10_000 {
            troubles.raise(Subject::Topic(index.to_string().into()), "no right");
        }
        assert_eq!(troubles.iter().count(), TROUBLES_MAX);
    }
}
