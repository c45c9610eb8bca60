//! What is known about the cluster: brokers, topics, who leads which partition.
//!
//! Sans-io: gives the requests that are due, takes their answers and what other answers say about leaders.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kafka_wire::{MetadataRequest, MetadataResponse, metadata_request, metadata_response};
use tidegate_connector::Backoff;
use tidegate_model::Instant;

use crate::session::{LeaderHint, NodeAddress};
use crate::{BrokerId, Complaint, ErrorCode, TopicId, TopicPartition};

/// The first and the longest wait between two requests while answers do not bring what is looked for.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// Bounds of what one answer may add: a broken one must not cost memory without end.
const TOPICS_MAX: usize = 100_000;
/// The most brokers that are remembered after the cluster has forgotten them.
const FORMER_MAX: usize = 1_000;

/// What to ask about.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Wanted {
    /// These topics.
    Names(BTreeSet<Arc<str>>),
    /// Every topic that this client may see.
    All,
}

/// What is known about the cluster.
#[derive(Debug)]
pub(crate) struct Metadata {
    wanted: Wanted,
    max_age: Duration,
    brokers: BTreeMap<BrokerId, NodeAddress>,
    /// Where brokers were that are not named any more: a session with one of them may still be open.
    former: BTreeMap<BrokerId, NodeAddress>,
    topics: BTreeMap<TopicId, Topic>,
    /// Topics that the cluster has an error for, by name.
    complaints: BTreeMap<Arc<str>, Complaint>,
    is_in_flight: bool,
    /// Asked for before its time.
    is_wanted: bool,
    asked_at: Option<Instant>,
    not_before: Instant,
    backoff: Backoff,
}

#[derive(Clone, Debug, Eq, PartialEq)]
struct Topic {
    name: Arc<str>,
    is_internal: bool,
    leaders: BTreeMap<i32, Leader>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Leader {
    /// `None` while there is none.
    broker: Option<BrokerId>,
    epoch: i32,
}

impl Metadata {
    /// `seed` is for waits only.
    pub(crate) fn new(max_age: Duration, seed: u64) -> Self {
        Self {
            wanted: Wanted::Names(BTreeSet::new()),
            max_age,
            brokers: BTreeMap::new(),
            former: BTreeMap::new(),
            topics: BTreeMap::new(),
            complaints: BTreeMap::new(),
            is_in_flight: false,
            is_wanted: false,
            asked_at: None,
            not_before: Instant::ZERO,
            backoff: Backoff::new(BACKOFF.0, BACKOFF.1, seed),
        }
    }

    /// What to ask about from now on.
    pub(crate) fn want(&mut self, wanted: Wanted) {
        if self.wanted != wanted {
            self.wanted = wanted;
            self.is_wanted = true;
        }
    }

    /// Something is not where it was thought to be: asks soon, and less and less soon while that does not help.
    pub(crate) const fn refresh(&mut self) {
        self.is_wanted = true;
    }

    /// When a request is due; `None` while one is under way.
    pub(crate) fn due_at(&self) -> Option<Instant> {
        if self.is_in_flight {
            return None;
        }
        let aged = self.asked_at.map_or(Instant::ZERO, |asked_at| asked_at + self.max_age);
        Some(if self.is_wanted { self.not_before } else { aged.max(self.not_before) })
    }

    /// The request that is due. It is owed [`Self::handle_response`] or [`Self::handle_failure`].
    pub(crate) fn poll(&mut self, now: Instant) -> Option<MetadataRequest> {
        if self.due_at().is_none_or(|due_at| due_at > now) {
            return None;
        }
        let mut request = MetadataRequest::default();
        request.topics = match &self.wanted {
            Wanted::All => None,
            Wanted::Names(names) => Some(
                names
                    .iter()
                    .map(|name| {
                        let mut topic = metadata_request::MetadataRequestTopic::default();
                        topic.name = Some((&**name).into());
                        topic
                    })
                    .collect(),
            ),
        };
        request.allow_auto_topic_creation = false;
        self.is_in_flight = true;
        self.is_wanted = false;
        self.asked_at = Some(now);
        self.not_before = now + self.backoff.next_wait();
        Some(request)
    }

    /// The answer to the request under way. Whether it changed anything.
    pub(crate) fn handle_response(&mut self, now: Instant, response: &MetadataResponse) -> bool {
        self.is_in_flight = false;
        let throttle = Duration::from_millis(u64::try_from(response.throttle_time_ms).unwrap_or(0));
        self.not_before = self.not_before.max(now + throttle);
        if !ErrorCode(response.error_code).is_ok() {
            self.is_wanted = true;
            return false;
        }
        let brokers: BTreeMap<_, _> = response
            .brokers
            .iter()
            .filter_map(|node| NodeAddress::new(node.node_id, &node.host, node.port))
            .map(|node| (node.broker, node))
            .collect();
        let mut topics = BTreeMap::new();
        self.complaints.clear();
        for topic in response.topics.iter().take(TOPICS_MAX) {
            let Some(name) = topic.name.as_deref() else { continue };
            let code = ErrorCode(topic.error_code);
            if !code.is_ok() {
                self.complaints.insert(name.into(), Complaint::new(code, None));
            }
            let id = TopicId::from(topic.topic_id);
            // A topic without a leader is there all the same.
            if (code.is_ok() || code == ErrorCode::LEADER_NOT_AVAILABLE) && id != TopicId::NONE {
                topics.insert(id, self.topic(id, name, topic));
            }
        }
        let has_changed = self.brokers != brokers || self.topics != topics;
        if has_changed {
            self.backoff.reset();
            self.not_before = now + BACKOFF.0;
        }
        if self.former.len() > FORMER_MAX {
            self.former.clear();
        }
        self.former.append(&mut std::mem::replace(&mut self.brokers, brokers));
        self.topics = topics;
        has_changed
    }

    /// The request under way had no answer.
    pub(crate) const fn handle_failure(&mut self) {
        self.is_in_flight = false;
        self.is_wanted = true;
    }

    /// A broker says who leads. Whether that is news.
    pub(crate) fn handle_hint(&mut self, hint: LeaderHint) -> bool {
        let topic = self.topics.get_mut(&hint.partition.topic);
        let Some(leader) = topic.and_then(|topic| topic.leaders.get_mut(&hint.partition.partition)) else {
            return false;
        };
        if hint.leader_epoch <= leader.epoch || !self.brokers.contains_key(&hint.leader) {
            return false;
        }
        *leader = Leader { broker: Some(hint.leader), epoch: hint.leader_epoch };
        true
    }

    /// A broker says where another one is.
    pub(crate) fn handle_node(&mut self, node: NodeAddress) {
        self.brokers.insert(node.broker, node);
    }

    /// Where a broker is, or was when it was named last.
    pub(crate) fn address(&self, broker: BrokerId) -> Option<&NodeAddress> {
        self.brokers.get(&broker).or_else(|| self.former.get(&broker))
    }

    /// Who leads a partition, and since which leader epoch.
    pub(crate) fn leader(&self, partition: TopicPartition) -> Option<(BrokerId, i32)> {
        let leader = self.topics.get(&partition.topic)?.leaders.get(&partition.partition)?;
        Some((leader.broker?, leader.epoch))
    }

    /// The name of a topic; `None` when there is none with this id, as far as is known.
    pub(crate) fn name(&self, topic: TopicId) -> Option<&Arc<str>> {
        self.topics.get(&topic).map(|topic| &topic.name)
    }

    /// Names of the cluster's topics, those aside that brokers keep for themselves.
    pub(crate) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.topics.values().filter(|topic| !topic.is_internal).map(|topic| &topic.name)
    }

    /// What the cluster has against topics that were asked for, by name.
    pub(crate) const fn complaints(&self) -> &BTreeMap<Arc<str>, Complaint> {
        &self.complaints
    }

    fn topic(&self, id: TopicId, name: &str, topic: &metadata_response::MetadataResponseTopic) -> Topic {
        let known = self.topics.get(&id);
        let leaders = topic.partitions.iter().map(|partition| {
            let told = Leader {
                broker: (partition.leader_id >= 0).then_some(BrokerId(partition.leader_id)),
                epoch: partition.leader_epoch,
            };
            // Brokers learn of a new leader one after the other: an older epoch is no news.
            let newer = known
                .and_then(|topic| topic.leaders.get(&partition.partition_index))
                .filter(|leader| leader.epoch > told.epoch);
            (partition.partition_index, newer.copied().unwrap_or(told))
        });
        let leaders = leaders.collect();
        let name = known.map_or_else(|| name.into(), |topic| Arc::clone(&topic.name));
        Topic { name, is_internal: topic.is_internal, leaders }
    }
}

#[cfg(test)]
pub(crate) mod tests;
