//! What users said and wait for the results of.

use std::collections::HashMap;

use tokio::sync::oneshot;

use super::Acknowledge;
use crate::{AcknowledgeError, Acknowledged};

/// Low bits of a token: the place of an acknowledgement among those that were said together.
const INDEX_BITS: u32 = 24;
/// The most acknowledgements that are said together.
pub(super) const TOGETHER_MAX: usize = 1 << INDEX_BITS;

type Results = Vec<Result<(), AcknowledgeError>>;

/// What users said and wait for the results of.
#[derive(Default)]
pub(super) struct Said {
    batches: HashMap<u64, Batch>,
    next: u64,
}

struct Batch {
    results: Results,
    /// Offsets without a result.
    left: u64,
    reply: oneshot::Sender<Results>,
}

impl Said {
    /// Takes in what is said together. Returns the token of each.
    pub(super) fn add(&mut self, acks: &[Acknowledge], reply: oneshot::Sender<Results>) -> Vec<u64> {
        let left = acks.iter().map(length).sum();
        let results = vec![Ok(()); acks.len()];
        if left == 0 {
            let _ = reply.send(results);
            return Vec::new();
        }
        let number = self.next;
        // Never the member's own token, which is the highest.
        self.next = (self.next + 1) % (1 << (u64::BITS - INDEX_BITS - 1));
        self.batches.insert(number, Batch { results, left, reply });
        (0..).take(acks.len()).map(|index: u64| (number << INDEX_BITS) | index).collect()
    }

    /// A result, for all that it is about or for a part: the first failure of a part counts for the whole.
    pub(super) fn resolve(&mut self, done: Acknowledged) {
        let number = done.token >> INDEX_BITS;
        let Some(batch) = self.batches.get_mut(&number) else { return };
        let index = usize::try_from(done.token & ((1 << INDEX_BITS) - 1)).unwrap_or(usize::MAX);
        if let (Some(result), Err(error)) = (batch.results.get_mut(index), done.result) {
            *result = Err(error);
        }
        batch.left = batch.left.saturating_sub((done.offsets.1 - done.offsets.0 + 1).unsigned_abs());
        if batch.left == 0
            && let Some(batch) = self.batches.remove(&number)
        {
            // Whoever asked may have gone.
            let _ = batch.reply.send(batch.results);
        }
    }
}

/// Offsets that an acknowledgement is about; none when it ends before it begins.
pub(super) fn length(ack: &Acknowledge) -> u64 {
    u64::try_from(ack.last - ack.lease.offset + 1).unwrap_or(0)
}
