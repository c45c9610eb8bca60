//! Which endpoints belong to the cluster behind an access point, without I/O: those that it has named as brokers of a
//! topic. What a receipt names besides is a stranger, to whom the cluster's keys are not sent.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tidegate_model::{Instant, SettleFault};

use crate::endpoints::Endpoints;

/// Topics that are known at one time; the one asked for longest ago makes room.
const TOPICS_MAX: usize = 1_024;
/// Addresses of one topic that are remembered. A broker that is away at times is in no route meanwhile, and what it gave
/// out before may be settled later.
const ADDRESSES_MAX: usize = 1_024;
/// An access point is not asked again about a topic before this time, whatever it said.
const ASK_AGAIN: Duration = Duration::from_secs(5);

/// What an access point is asked.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct Question {
    /// Which of the pool's configurations asks.
    pub(super) configuration: usize,
    pub(super) namespace: Arc<str>,
    pub(super) topic: Arc<str>,
}

/// Why an access point did not say.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Silence {
    pub(super) detail: Box<str>,
    pub(super) fault: SettleFault,
}

/// Whether an endpoint belongs to a cluster.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Belonging {
    Own,
    Stranger,
    Unknown(Silence),
    /// The access point has to be asked first.
    Unasked,
}

/// What access points have said.
#[derive(Debug, Default)]
pub(super) struct Clusters {
    entries: HashMap<Question, Entry>,
}

#[derive(Debug, Default)]
struct Entry {
    addresses: BTreeSet<Box<str>>,
    asked_at: Instant,
    silence: Option<Silence>,
}

impl Clusters {
    /// Whether `endpoint`, all of it, belongs to the cluster that a question is about.
    pub(super) fn look(&self, now: Instant, question: &Question, endpoint: &str) -> Belonging {
        let Some(entry) = self.entries.get(question) else { return Belonging::Unasked };
        if endpoint.split(';').all(|address| entry.addresses.contains(address)) {
            return Belonging::Own;
        }
        if now.saturating_since(entry.asked_at) >= ASK_AGAIN {
            return Belonging::Unasked;
        }
        entry.silence.clone().map_or(Belonging::Stranger, Belonging::Unknown)
    }

    /// An access point has answered with the endpoints of a topic's brokers, or has not.
    pub(super) fn handle(&mut self, now: Instant, question: Question, said: Result<Vec<Endpoints>, Silence>) {
        if !self.entries.contains_key(&question) && self.entries.len() >= TOPICS_MAX {
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.asked_at);
            if let Some(oldest) = oldest.map(|(question, _)| question.clone()) {
                self.entries.remove(&oldest);
            }
        }
        let entry = self.entries.entry(question).or_default();
        entry.asked_at = now;
        entry.silence = None;
        match said {
            Err(silence) => entry.silence = Some(silence),
            Ok(endpoints) => {
                let addresses = endpoints.iter().flat_map(|endpoints| endpoints.text().split(';'));
                for address in addresses {
                    if entry.addresses.len() < ADDRESSES_MAX {
                        entry.addresses.insert(address.into());
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_named_once_belongs_and_all_else_is_a_stranger() {
        let mut clusters = Clusters::default();
        let look =
            |clusters: &Clusters, second, endpoint| clusters.look(at(second), &question(0, "T"), endpoint);
        assert_eq!(look(&clusters, 0, "a:1"), Belonging::Unasked);
        clusters.handle(at(0), question(0, "T"), Ok(vec![endpoints("a:1;b:1"), endpoints("c:1")]));
        assert_eq!(look(&clusters, 1, "a:1"), Belonging::Own);
        assert_eq!(look(&clusters, 1, "c:1;b:1"), Belonging::Own);
        assert_eq!(look(&clusters, 1, "a:1;d:1"), Belonging::Stranger, "one of them is");
        assert_eq!(look(&clusters, 6, "d:1"), Belonging::Unasked, "it may have come since");
        clusters.handle(at(6), question(0, "T"), Ok(vec![endpoints("d:1")]));
        assert_eq!(look(&clusters, 60, "a:1"), Belonging::Own, "a broker that is away comes back");
        assert_eq!(
            clusters.look(at(7), &question(1, "T"), "a:1"),
            Belonging::Unasked,
            "another access point"
        );
        assert_eq!(clusters.look(at(7), &question(0, "U"), "a:1"), Belonging::Unasked, "another topic");
    }

    #[test]
    fn whoever_did_not_answer_is_asked_again_later() {
        let mut clusters = Clusters::default();
        let silence = Silence { detail: "away".into(), fault: SettleFault::Broker };
        clusters.handle(at(0), question(0, "T"), Err(silence.clone()));
        assert_eq!(clusters.look(at(1), &question(0, "T"), "a:1"), Belonging::Unknown(silence.clone()));
        assert_eq!(clusters.look(at(5), &question(0, "T"), "a:1"), Belonging::Unasked);
        clusters.handle(at(5), question(0, "T"), Ok(vec![endpoints("a:1")]));
        clusters.handle(at(10), question(0, "T"), Err(silence));
        assert_eq!(clusters.look(at(11), &question(0, "T"), "a:1"), Belonging::Own, "it said so before");
    }

    #[test]
    fn however_many_topics_there_are_the_memory_is_bounded() {
        let mut clusters = Clusters::default();
        for number in 0..2 * TOPICS_MAX as u64 {
            clusters.handle(at(number), question(0, &number.to_string()), Ok(vec![endpoints("a:1")]));
        }
        assert_eq!(clusters.entries.len(), TOPICS_MAX);
        assert_eq!(clusters.look(at(0), &question(0, "0"), "a:1"), Belonging::Unasked);
    }

    fn question(configuration: usize, topic: &str) -> Question {
        Question { configuration, namespace: "".into(), topic: topic.into() }
    }

    fn endpoints(text: &str) -> Endpoints {
        Endpoints::parse(text).expect("endpoints")
    }

    fn at(second: u64) -> Instant {
        Instant::from_millis(second * 1_000)
    }
}
