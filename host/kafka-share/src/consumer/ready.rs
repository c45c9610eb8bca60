//! Records that came, and who waits for some.

use std::collections::VecDeque;

use tidegate_model::Instant;
use tokio::sync::oneshot;

use crate::{AcknowledgeType, DeliveredBatch, Lease};

/// Records that came, and who waits for some. First come, first served.
#[derive(Default)]
pub(super) struct Ready {
    batches: VecDeque<DeliveredBatch>,
    waiting: VecDeque<Waiting>,
}

struct Waiting {
    records: usize,
    bytes: usize,
    reply: oneshot::Sender<Vec<DeliveredBatch>>,
}

/// Neighbouring records that nobody took in time, with what is said about them.
pub(super) type GivenBack = (Lease, i64, AcknowledgeType);

impl Ready {
    pub(super) fn wait(&mut self, records: usize, bytes: usize, reply: oneshot::Sender<Vec<DeliveredBatch>>) {
        self.waiting.push_back(Waiting { records: records.max(1), bytes: bytes.max(1), reply });
    }

    pub(super) fn push(&mut self, batch: DeliveredBatch) {
        self.batches.push_back(batch);
    }

    /// Records and bytes that are waited for and not here.
    pub(super) fn demand(&mut self) -> (usize, usize) {
        self.waiting.retain(|waiting| !waiting.reply.is_closed());
        let records: usize = self.waiting.iter().map(|waiting| waiting.records).sum();
        let bytes = self.waiting.iter().fold(0_usize, |sum, waiting| sum.saturating_add(waiting.bytes));
        (records.saturating_sub(self.len()), bytes)
    }

    /// Hands out what is here to those who wait. What lies here with less than half of its lock left is given back instead:
    /// its new holder would have too little time.
    pub(super) fn hand_out(&mut self, now: Instant) -> Vec<GivenBack> {
        let mut given_back = Vec::new();
        while let Some(batch) = self.batches.front() {
            if batch.expires_at.saturating_since(now) > batch.lock / 2 {
                break;
            }
            given_back.extend(self.batches.pop_front().iter().flat_map(release));
        }
        while !self.batches.is_empty()
            && let Some(waiting) = self.waiting.pop_front()
        {
            if waiting.reply.is_closed() {
                continue;
            }
            let taken = self.take(waiting.records, waiting.bytes);
            if let Err(taken) = waiting.reply.send(taken) {
                // Its asker left in this moment.
                for batch in taken.into_iter().rev() {
                    self.batches.push_front(batch);
                }
            }
        }
        given_back
    }

    /// Gives back all that lies here.
    pub(super) fn give_back(&mut self) -> Vec<GivenBack> {
        self.batches.drain(..).flat_map(|batch| release(&batch)).collect()
    }

    /// When something that lies here should be given back.
    pub(super) fn stale_at(&self) -> Option<Instant> {
        self.batches.front().map(|batch| batch.expires_at - batch.lock / 2)
    }

    fn len(&self) -> usize {
        self.batches.iter().map(|batch| batch.records.len()).sum()
    }

    fn take(&mut self, records: usize, bytes: usize) -> Vec<DeliveredBatch> {
        let (mut records_left, mut bytes_left) = (records, bytes);
        let mut taken = Vec::new();
        while records_left > 0
            && bytes_left > 0
            && let Some(batch) = self.batches.pop_front()
        {
            let mut count = 0;
            for delivered in batch.records.iter().take(records_left) {
                if bytes_left == 0 {
                    break;
                }
                bytes_left = bytes_left.saturating_sub(delivered.record.size_bytes());
                count += 1;
            }
            let (first, rest) = split(batch, count);
            records_left -= first.records.len();
            taken.push(first);
            if let Some(rest) = rest {
                self.batches.push_front(rest);
                break;
            }
        }
        taken
    }
}

fn split(mut batch: DeliveredBatch, count: usize) -> (DeliveredBatch, Option<DeliveredBatch>) {
    if count >= batch.records.len() {
        return (batch, None);
    }
    let records = batch.records.split_off(count);
    let rest = DeliveredBatch {
        topic: std::sync::Arc::clone(&batch.topic),
        partition: batch.partition,
        broker: batch.broker,
        acquisition: batch.acquisition,
        expires_at: batch.expires_at,
        lock: batch.lock,
        records,
    };
    (batch, Some(rest))
}

fn release(batch: &DeliveredBatch) -> Vec<GivenBack> {
    let mut runs: Vec<GivenBack> = Vec::new();
    for delivered in &batch.records {
        let offset = delivered.record.offset;
        match runs.last_mut() {
            Some((_, last, _)) if *last + 1 == offset => *last = offset,
            _ => runs.push((batch.lease(offset), offset, AcknowledgeType::Release)),
        }
    }
    runs
}
