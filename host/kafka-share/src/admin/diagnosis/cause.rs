//! What can be found, and what to do about it.

use std::fmt;
use std::time::Duration;

use crate::admin::error::MissingRight;

/// How bad it is.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Severity {
    /// Nothing will arrive as long as it is so, or nothing of a topic.
    Blocks,
    /// Something will not arrive, or not as it is meant to.
    Warning,
    /// Worth knowing.
    Note,
}

impl Severity {
    /// In a word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Blocks => "blocks",
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }
}

/// What keeps records away.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Cause {
    /// No broker can be asked.
    Unreachable {
        /// Why not.
        problem: Box<str>,
    },
    /// The brokers do not speak the protocol.
    TooOld {
        /// In which way.
        problem: Box<str>,
    },
    /// The cluster has share groups switched off.
    ShareVersionOff,
    /// There can be no coordinator: its topic cannot be made.
    OffsetsTopicReplication {
        /// Replicas that it wants.
        wanted: i64,
        /// Brokers that there are.
        brokers: usize,
    },
    /// The group's state cannot be stored: its topic cannot be made.
    StateTopicReplication {
        /// Replicas that it wants.
        wanted: i64,
        /// Brokers that there are.
        brokers: usize,
    },
    /// A right is missing.
    Denied(MissingRight),
    /// The group cannot be seen, for another reason than a right.
    GroupUnseen {
        /// Which.
        problem: Box<str>,
    },
    /// A topic is not there, or the client may not see it.
    TopicMissing {
        /// Which.
        topic: Box<str>,
    },
    /// The brokers complain about a topic.
    TopicRefused {
        /// Which.
        topic: Box<str>,
        /// What they say.
        problem: Box<str>,
    },
    /// Nobody leads partitions.
    NoLeader {
        /// Of which topic.
        topic: Box<str>,
        /// Which.
        partitions: Vec<i32>,
        /// How many it has.
        total: usize,
    },
    /// There is nothing to fetch from.
    NoTopics,
    /// No further member can join.
    GroupFull {
        /// Members that it has.
        members: usize,
        /// Members that it may have.
        limit: i64,
    },
    /// Records that are there already will be passed over.
    SkipsOlderRecords {
        /// Of which topic.
        topic: Box<str>,
        /// How many.
        records: i64,
        /// How the group's policy is called.
        policy: Box<str>,
    },
    /// Locks cannot be renewed: the group says so.
    RenewDisabled {
        /// How long they last.
        lock: Option<Duration>,
    },
    /// Locks cannot be renewed: the brokers do not know how.
    RenewUnknown,
    /// The group's settings cannot be seen, so nothing is said about them.
    SettingsUnseen {
        /// Why not.
        problem: Box<str>,
    },
    /// Nobody is in the group.
    NobodyThere,
    /// The group is done with all that there is.
    NothingLeft,
}

impl Cause {
    /// In a word, for programs.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Unreachable { .. } => "unreachable",
            Self::TooOld { .. } => "too-old",
            Self::ShareVersionOff => "share-version-off",
            Self::OffsetsTopicReplication { .. } => "offsets-topic-replication",
            Self::StateTopicReplication { .. } => "state-topic-replication",
            Self::Denied(_) => "denied",
            Self::GroupUnseen { .. } => "group-unseen",
            Self::TopicMissing { .. } => "topic-missing",
            Self::TopicRefused { .. } => "topic-refused",
            Self::NoLeader { .. } => "no-leader",
            Self::NoTopics => "no-topics",
            Self::GroupFull { .. } => "group-full",
            Self::SkipsOlderRecords { .. } => "skips-older-records",
            Self::RenewDisabled { .. } => "renew-disabled",
            Self::RenewUnknown => "renew-unknown",
            Self::SettingsUnseen { .. } => "settings-unseen",
            Self::NobodyThere => "nobody-there",
            Self::NothingLeft => "nothing-left",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable { problem } | Self::TooOld { problem } => f.write_str(problem),
            Self::ShareVersionOff => f.write_str(
                "the cluster has share groups switched off; `kafka-features.sh upgrade --feature share.version=1` switches \
                 them on",
            ),
            Self::OffsetsTopicReplication { wanted, brokers } => write!(
                f,
                "no group can have a coordinator: `offsets.topic.replication.factor` is {wanted} and there {}; start \
                 more brokers, or lower it",
                are(*brokers)
            ),
            Self::StateTopicReplication { wanted, brokers } => write!(
                f,
                "the state of share groups cannot be stored: `share.coordinator.state.topic.replication.factor` is {wanted} \
                 and there {}; start more brokers, or lower it on the brokers, with `share.coordinator.state.topic.min.isr`",
                are(*brokers)
            ),
            Self::Denied(right) => right.fmt(f),
            Self::GroupUnseen { problem } => f.write_str(problem),
            Self::TopicMissing { topic } => write!(
                f,
                "there is no topic `{topic}`, or the client may not see it; create it, or grant Describe and Read to it"
            ),
            Self::TopicRefused { topic, problem } => write!(f, "topic `{topic}` cannot be used: {problem}"),
            Self::NoLeader { topic, partitions, total } => {
                let numbers: Vec<_> = partitions.iter().map(ToString::to_string).collect();
                if partitions.len() == *total {
                    write!(f, "no partition of topic `{topic}` has a leader")?;
                } else {
                    write!(f, "{} of {total} partitions of topic `{topic}` have no leader", partitions.len())?;
                    write!(f, " ({})", numbers.join(", "))?;
                }
                f.write_str("; start the brokers that have it")
            }
            Self::NoTopics => f.write_str(
                "nobody said which topics, and the group stands in none: name those that are to be fetched from",
            ),
            Self::GroupFull { members, limit } => write!(
                f,
                "the group has {members} members and may have {limit}; stop some, or raise `group.share.max.size` on the \
                 brokers"
            ),
            Self::SkipsOlderRecords { topic, records, policy } => write!(
                f,
                "the group begins in topic `{topic}` with what is written after its first fetch \
                 (`share.auto.offset.reset` is {policy}): {records} records that are there already will not come; set it to \
                 earliest before the first fetch, or reset the group's offsets",
            ),
            Self::RenewDisabled { lock } => {
                f.write_str("locks cannot be renewed: the group has `share.renew.acknowledge.enable` off")?;
                if let Some(lock) = lock {
                    write!(f, ", so each record comes again {lock:?} after it was handed out")?;
                }
                f.write_str("; set it to true, or do without policies that renew or defer")
            }
            Self::RenewUnknown => f.write_str(
                "locks cannot be renewed: the brokers are older than Kafka 4.2; upgrade them, or do without policies \
                 that renew or defer",
            ),
            Self::SettingsUnseen { problem } => {
                write!(f, "nothing is known of the group's settings: {problem}")
            }
            Self::NobodyThere => f.write_str("nobody is in the group at the moment"),
            Self::NothingLeft => f.write_str("the group is done with all records that there are"),
        }
    }
}

fn are(brokers: usize) -> String {
    if brokers == 1 { "is one broker".to_owned() } else { format!("are {brokers} brokers") }
}
