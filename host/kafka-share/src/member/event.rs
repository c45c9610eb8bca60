//! What a member tells.

use std::sync::Arc;
use std::time::Duration;

use tidegate_model::Instant;

use super::{Subject, Trouble};
use crate::records::Record;
use crate::{AcknowledgeError, AcknowledgeType, BrokerId, Complaint, Damage, ErrorCode, TopicPartition};

/// What a member tells.
#[derive(Debug)]
pub enum Event {
    /// Records came.
    Delivered(DeliveredBatch),
    /// What became of something that was said about held records.
    Acknowledged(Acknowledged),
    /// So many partitions are assigned from now on.
    Assigned {
        /// How many.
        partitions: usize,
    },
    /// The group put the member out; it joins again by itself.
    PutOut(ErrorCode),
    /// Acquired records cannot be read.
    Damaged(Damage),
    /// A broker gave the same offsets twice in one answer; they are handed on once.
    Duplicated {
        /// How many offsets.
        offsets: u64,
    },
    /// Something is in the way.
    TroubleBegan(Trouble),
    /// It is not any more.
    TroubleEnded(Subject),
    /// The member has left its group.
    Left,
    /// The coordinator refuses the member for good: the settings are wrong.
    Refused(Complaint),
}

/// Records of one partition, from one fetch.
#[derive(Debug)]
pub struct DeliveredBatch {
    /// The topic's name.
    pub topic: Arc<str>,
    /// Where they are from.
    pub partition: TopicPartition,
    /// Who holds their locks.
    pub broker: BrokerId,
    /// Tells this acquisition of a record from other ones.
    pub acquisition: u64,
    /// Until when the locks hold at least.
    pub expires_at: Instant,
    /// How long locks are.
    pub lock: Duration,
    /// The records, ascending.
    pub records: Vec<Delivered>,
}

/// One record.
#[derive(Debug)]
pub struct Delivered {
    /// It.
    pub record: Record,
    /// How often the group got it, this time included; approximate when leaders moved.
    pub delivery_count: i16,
}

/// Which handing-out of a record is meant.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Lease {
    /// Who holds its lock.
    pub broker: BrokerId,
    /// Where it is from.
    pub partition: TopicPartition,
    /// Its place there.
    pub offset: i64,
    /// By which acquisition.
    pub acquisition: u64,
}

/// What became of something that was said about held records, or about some of them. Each has exactly one result.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Acknowledged {
    /// As given.
    pub token: u64,
    /// Where they are from.
    pub partition: TopicPartition,
    /// The first and the last of them.
    pub offsets: (i64, i64),
    /// What was said.
    pub kind: AcknowledgeType,
    /// Whether it took effect.
    pub result: Result<(), AcknowledgeError>,
}

impl DeliveredBatch {
    /// The lease of one of the records.
    #[must_use]
    pub const fn lease(&self, offset: i64) -> Lease {
        Lease { broker: self.broker, partition: self.partition, offset, acquisition: self.acquisition }
    }
}
