//! Topics and their partitions.

use kafka_wire_core::Uuid;

use crate::log::Log;

#[derive(Debug)]
pub(crate) struct Topic {
    pub(crate) id: Uuid,
    pub(crate) partitions: Vec<Partition>,
}

#[derive(Debug)]
pub(crate) struct Partition {
    /// The node that leads; -1 for none.
    pub(crate) leader: i32,
    pub(crate) leader_epoch: i32,
    pub(crate) log: Log,
}

impl Topic {
    pub(crate) fn partition(&self, number: i32) -> Option<&Partition> {
        self.partitions.get(usize::try_from(number).ok()?)
    }

    pub(crate) fn partition_mut(&mut self, number: i32) -> Option<&mut Partition> {
        self.partitions.get_mut(usize::try_from(number).ok()?)
    }

    pub(crate) fn count(&self) -> i32 {
        i32::try_from(self.partitions.len()).unwrap_or(i32::MAX)
    }
}
