//! Asking a partitioner where a record goes.

use std::sync::Arc;

use bytes::Bytes;
use tidegate_model::{Instant, Timestamp};

use crate::answer_kind::AnswerKind;
use crate::caller::{Caller, Occasion};
use crate::cause::Cause;
use crate::policy::Policy;

/// A partitioner to be asked. Cheap to clone.
#[derive(Clone)]
pub struct Partitioner(pub(crate) Arc<Policy>);

/// One sink's way to a partitioner, with an instance of its own.
#[derive(Debug)]
pub struct PartitionerCaller(Caller);

/// A record that is being placed.
#[derive(Clone, Debug)]
pub struct OutgoingRecord {
    /// Where it goes.
    pub topic: Arc<str>,
    /// Its key.
    pub key: Option<Bytes>,
    /// Its headers, in order.
    pub headers: Vec<(Box<str>, Bytes)>,
    /// What it holds.
    pub value: Bytes,
}

impl Partitioner {
    /// The policy's name.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.0.name
    }

    /// A way to ask, for one sink.
    #[must_use]
    pub fn caller(&self) -> PartitionerCaller {
        PartitionerCaller(Caller::new(&self.0))
    }
}

impl PartitionerCaller {
    /// Asks for a partition below `partitions`.
    ///
    /// # Errors
    /// When the policy could not say: the sink then places the record as it would without a partitioner.
    pub fn partition(
        &mut self,
        now: Instant,
        wall: Timestamp,
        seed: u64,
        record: OutgoingRecord,
        partitions: u32,
    ) -> Result<u32, Cause> {
        let occasion = Occasion { now, wall, seed, message: None };
        self.0.call(
            &occasion,
            |_| AnswerKind::Partition,
            |instance, limits, moment| instance.partition(limits.deadline, moment, record, partitions),
        )
    }
}

impl std::fmt::Debug for Partitioner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Partitioner").field(&self.0.name).finish()
    }
}
