//! What a call cost on the wire.

use crate::connection::Answer;
use crate::member::Request;

/// Bytes of an acknowledgement batch beside its types: two offsets, the length of the list of types, and the end of the
/// batch. The list is shorter than 128 as a rule, and its length one byte then.
const BATCH_BYTES: usize = 8 + 8 + 1 + 1;

/// A request and its answer, by what they took on the wire.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Exchange {
    /// What it was about.
    pub kind: ExchangeKind,
    /// Bytes of the request.
    pub sent_bytes: usize,
    /// Of these: acknowledgements.
    pub acknowledgement_bytes: usize,
    /// Bytes of the answer.
    pub received_bytes: usize,
}

/// What an exchange was about.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum ExchangeKind {
    /// Brokers, topics, who coordinates.
    Cluster,
    /// The member's place in its group.
    Heartbeat,
    /// Records; acknowledgements may ride on the request.
    Fetch,
    /// Acknowledgements alone.
    Acknowledge,
}

impl Exchange {
    pub(super) fn of<T>(request: &Request, answer: &Answer<T>) -> Self {
        let (kind, acknowledgement_bytes) = match request {
            Request::Metadata(_) | Request::FindCoordinator(_) => (ExchangeKind::Cluster, 0),
            Request::Heartbeat(_) => (ExchangeKind::Heartbeat, 0),
            Request::Fetch(request) => {
                let partitions = request.topics.iter().flat_map(|topic| &topic.partitions);
                let batches = partitions.flat_map(|partition| &partition.acknowledgement_batches);
                (ExchangeKind::Fetch, batches.map(|batch| BATCH_BYTES + batch.acknowledge_types.len()).sum())
            }
            Request::Acknowledge(request) => {
                let partitions = request.topics.iter().flat_map(|topic| &topic.partitions);
                let batches = partitions.flat_map(|partition| &partition.acknowledgement_batches);
                let bytes = batches.map(|batch| BATCH_BYTES + batch.acknowledge_types.len()).sum();
                (ExchangeKind::Acknowledge, bytes)
            }
        };
        let Answer { sent_bytes, bytes, .. } = answer;
        Self { kind, sent_bytes: *sent_bytes, acknowledgement_bytes, received_bytes: *bytes }
    }
}
