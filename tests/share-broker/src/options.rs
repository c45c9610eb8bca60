//! What a broker is made of.

use std::time::Duration;

use crate::share::Rules;

/// A cluster's make.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many nodes, numbered from 1.
    pub nodes: i32,
    /// For what a real cluster leaves to chance: topic ids, and whether deliveries are remembered across a leader's move.
    pub seed: u64,
    /// What clients are told of the cluster.
    pub cluster_id: String,
    /// The rules of a group nobody configured.
    pub group: GroupOptions,
    /// The most members of a group.
    pub group_size_max: usize,
    /// The most share sessions at a node.
    pub sessions_max: usize,
    /// How long a group's share state takes to be made for a topic that is new to it.
    pub initialize_delay: Duration,
    /// How long the coordinator is not there after the first question for one (15 until then).
    pub coordinator_delay: Duration,
    /// Users and passwords for SASL PLAIN; nobody is asked when there are none.
    pub users: Vec<(String, String)>,
    /// Whether the cluster knows share groups at all.
    pub share_groups: bool,
    /// The level of the feature `share.version`: with 0, share groups are switched off and their calls answer 35.
    pub share_version: i16,
    /// Lines of a node's configuration that clients may ask for.
    pub properties: Vec<(String, String)>,
    /// Whether clients may see how nodes are configured.
    pub describe_nodes: bool,
    /// Requests kept in full by the journal; the oldest go first.
    pub journal_max: usize,
}

impl Default for Options {
    /// One node with the defaults of Kafka 4.3.1.
    fn default() -> Self {
        Self {
            nodes: 1,
            seed: 0,
            cluster_id: "share-broker".to_owned(),
            group: GroupOptions::default(),
            group_size_max: 200,
            sessions_max: 2_000,
            initialize_delay: Duration::from_millis(30),
            coordinator_delay: Duration::ZERO,
            users: Vec::new(),
            share_groups: true,
            share_version: 1,
            properties: vec![
                ("share.coordinator.state.topic.replication.factor".to_owned(), "1".to_owned()),
                ("offsets.topic.replication.factor".to_owned(), "1".to_owned()),
            ],
            describe_nodes: true,
            journal_max: 100_000,
        }
    }
}

impl Options {
    /// For tests that do not care about waiting: no assignment interval, no delay of the share state, reading from the
    /// start of topics.
    #[must_use]
    pub fn quick() -> Self {
        Self {
            group: GroupOptions {
                reset: Reset::Earliest,
                assignment_interval: Duration::ZERO,
                ..GroupOptions::default()
            },
            initialize_delay: Duration::ZERO,
            ..Self::default()
        }
    }
}

/// A group's configuration, named as Kafka's `share.*`.
#[derive(Clone, Debug)]
pub struct GroupOptions {
    /// Where the group begins on a topic.
    pub reset: Reset,
    /// How long a record is acquired for.
    pub record_lock_duration: Duration,
    /// Deliveries after which a record is archived.
    pub delivery_count_limit: i16,
    /// Records of a partition in flight, from the first to the last.
    pub partition_max_record_locks: i64,
    /// How long a member may be silent.
    pub session_timeout: Duration,
    /// How often a member is told to speak.
    pub heartbeat_interval: Duration,
    /// The shortest time between two assignments.
    pub assignment_interval: Duration,
    /// Whether locks may be renewed.
    pub renew_acknowledge: bool,
    /// Whether records of open transactions are kept back. Kept and told; there are no transactions here.
    pub read_committed: bool,
}

impl Default for GroupOptions {
    fn default() -> Self {
        Self {
            reset: Reset::Latest,
            record_lock_duration: Duration::from_secs(30),
            delivery_count_limit: 5,
            partition_max_record_locks: 2_000,
            session_timeout: Duration::from_secs(45),
            heartbeat_interval: Duration::from_secs(5),
            assignment_interval: Duration::from_secs(1),
            renew_acknowledge: true,
            read_committed: false,
        }
    }
}

impl GroupOptions {
    pub(crate) fn rules(&self) -> Rules {
        Rules {
            lock: self.record_lock_duration,
            delivery_limit: self.delivery_count_limit,
            locks_max: self.partition_max_record_locks,
            renew: self.renew_acknowledge,
        }
    }
}

/// Where a group begins on a topic.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reset {
    /// At what is written after the first fetch.
    Latest,
    /// At the first record kept.
    Earliest,
}

/// What clients may do with a topic.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub enum Access {
    /// Not even see it.
    Nothing,
    /// See it and be assigned it.
    Describe,
    /// Read it.
    #[default]
    Read,
}
