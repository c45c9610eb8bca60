//! What users said and wait for the results of.

use std::collections::HashMap;
use std::ops::Range;

use tokio::sync::oneshot;

use super::Acknowledge;
use crate::{AcknowledgeError, AcknowledgeType, Acknowledged, Lease};

/// Low bits of a token: which run of those that were said together.
const RUN_BITS: u32 = 24;
/// The most acknowledgements that are said together.
pub(super) const TOGETHER_MAX: usize = 1 << RUN_BITS;

type Results = Vec<Result<(), AcknowledgeError>>;

/// What users said and wait for the results of.
///
/// Users say one thing for each record, and a member's work grows with the number of things said: neighbours of one
/// acquisition and one kind are therefore said as one run, and what becomes of a part of it is told to those it is about.
#[derive(Default)]
pub(super) struct Said {
    batches: HashMap<u64, Batch>,
    next: u64,
}

struct Batch {
    acks: Vec<Acknowledge>,
    /// Places in `acks`, by lease.
    sorted: Vec<usize>,
    /// Parts of `sorted`.
    runs: Vec<Range<usize>>,
    /// By the places of `acks`.
    results: Results,
    /// Offsets without a result.
    left: u64,
    reply: oneshot::Sender<Results>,
}

/// Neighbouring records about which the same is said.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Run {
    pub(super) lease: Lease,
    pub(super) last: i64,
    pub(super) kind: AcknowledgeType,
    /// Comes back with the results.
    pub(super) token: u64,
}

impl Said {
    /// Takes in what is said together. Returns what to say.
    pub(super) fn add(&mut self, acks: Vec<Acknowledge>, reply: oneshot::Sender<Results>) -> Vec<Run> {
        let left = acks.iter().map(length).sum();
        let results = vec![Ok(()); acks.len()];
        if left == 0 {
            let _ = reply.send(results);
            return Vec::new();
        }
        let number = self.next;
        // Never the member's own token, which is the highest.
        self.next = (self.next + 1) % (1 << (u64::BITS - RUN_BITS - 1));
        let mut sorted: Vec<usize> = (0..acks.len()).filter(|at| length(&acks[*at]) > 0).collect();
        // Stable, so that of two things about one record the first is said first. What is sorted already costs little.
        sorted.sort_by_key(|at| acks[*at].lease);
        let runs: Vec<Range<usize>> = runs(&acks, &sorted);
        let told = (0..).zip(&runs).map(|(index, run): (u64, _)| {
            let (first, last) = (&acks[sorted[run.start]], &acks[sorted[run.end - 1]]);
            let token = (number << RUN_BITS) | index;
            Run { lease: first.lease, last: last.last, kind: first.kind, token }
        });
        let told = told.collect();
        self.batches.insert(number, Batch { acks, sorted, runs, results, left, reply });
        told
    }

    /// A result, for a whole run or for a part: of those about one acknowledgement the first failure counts.
    pub(super) fn resolve(&mut self, done: Acknowledged) {
        let number = done.token >> RUN_BITS;
        let Some(batch) = self.batches.get_mut(&number) else { return };
        let (first, last) = done.offsets;
        if let Err(error) = done.result {
            let index = usize::try_from(done.token & ((1 << RUN_BITS) - 1)).unwrap_or(usize::MAX);
            let run = batch.runs.get(index).cloned().unwrap_or_default();
            for at in &batch.sorted[run] {
                let ack = &batch.acks[*at];
                let is_meant = ack.lease.offset <= last && first <= ack.last;
                if is_meant && batch.results[*at].is_ok() {
                    batch.results[*at] = Err(error.clone());
                }
            }
        }
        batch.left = batch.left.saturating_sub((last - first + 1).unsigned_abs());
        if batch.left == 0
            && let Some(batch) = self.batches.remove(&number)
        {
            // Whoever asked may have gone.
            let _ = batch.reply.send(batch.results);
        }
    }
}

/// Parts of `sorted` whose acknowledgements follow each other without a hole and are alike.
fn runs(acks: &[Acknowledge], sorted: &[usize]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (place, at) in sorted.iter().enumerate() {
        match runs.last_mut() {
            Some(run) if is_next(&acks[sorted[place - 1]], &acks[*at]) => run.end = place + 1,
            _ => runs.push(place..place + 1),
        }
    }
    runs
}

fn is_next(ack: &Acknowledge, next: &Acknowledge) -> bool {
    let expected = Lease { offset: ack.last.saturating_add(1), ..ack.lease };
    next.kind == ack.kind && next.lease == expected
}

/// Offsets that an acknowledgement is about; none when it ends before it begins.
fn length(ack: &Acknowledge) -> u64 {
    u64::try_from(ack.last.saturating_sub(ack.lease.offset).saturating_add(1)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BrokerId, TopicId, TopicPartition};
    use AcknowledgeType::{Accept, Release};

    fn ack(partition: i32, offset: i64, last: i64, kind: AcknowledgeType) -> Acknowledge {
        let partition = TopicPartition { topic: TopicId([1; 16]), partition };
        Acknowledge { lease: Lease { broker: BrokerId(1), partition, offset, acquisition: 7 }, last, kind }
    }

    fn of_acquisition(acquisition: u64, ack: Acknowledge) -> Acknowledge {
        Acknowledge { lease: Lease { acquisition, ..ack.lease }, ..ack }
    }

    fn done(run: &Run, offsets: (i64, i64), result: Result<(), AcknowledgeError>) -> Acknowledged {
        Acknowledged { token: run.token, partition: run.lease.partition, offsets, kind: run.kind, result }
    }

    fn spans(runs: &[Run]) -> Vec<(i32, i64, i64, AcknowledgeType)> {
        runs.iter().map(|run| (run.lease.partition.partition, run.lease.offset, run.last, run.kind)).collect()
    }

    #[test]
    fn neighbours_of_one_kind_are_said_as_one() {
        let mut said = Said::default();
        let (reply, _answer) = oneshot::channel();
        let acks = vec![
            ack(0, 3, 3, Accept),
            ack(1, 5, 5, Accept),
            ack(0, 1, 2, Accept),
            ack(0, 4, 4, Release),
            ack(0, 6, 6, Accept),
            of_acquisition(8, ack(0, 7, 7, Accept)),
            ack(0, 9, 8, Accept),
        ];
        let runs = said.add(acks, reply);
        let expected =
            [(0, 1, 3, Accept), (0, 4, 4, Release), (0, 6, 6, Accept), (0, 7, 7, Accept), (1, 5, 5, Accept)];
        assert_eq!(spans(&runs), expected);
    }

    #[test]
    fn what_fails_in_part_fails_for_those_it_is_about() {
        let mut said = Said::default();
        let (reply, mut answer) = oneshot::channel();
        let acks =
            vec![ack(0, 5, 5, Accept), ack(0, 0, 1, Accept), ack(0, 2, 4, Accept), ack(1, 5, 5, Accept)];
        let runs = said.add(acks, reply);
        assert_eq!(spans(&runs), [(0, 0, 5, Accept), (1, 5, 5, Accept)]);
        said.resolve(done(&runs[0], (0, 2), Ok(())));
        said.resolve(done(&runs[0], (3, 3), Err(AcknowledgeError::LeaseEnded)));
        said.resolve(done(&runs[1], (5, 5), Ok(())));
        assert!(answer.try_recv().is_err(), "two offsets have no result yet");
        said.resolve(done(&runs[0], (4, 5), Ok(())));
        let results = answer.try_recv().unwrap();
        assert_eq!(results, [Ok(()), Ok(()), Err(AcknowledgeError::LeaseEnded), Ok(())]);
    }

    #[test]
    fn of_two_things_about_one_record_each_has_its_result() {
        let mut said = Said::default();
        let (reply, mut answer) = oneshot::channel();
        let runs = said.add(vec![ack(0, 1, 1, Release), ack(0, 1, 1, Accept)], reply);
        assert_eq!(spans(&runs), [(0, 1, 1, Release), (0, 1, 1, Accept)]);
        said.resolve(done(&runs[1], (1, 1), Err(AcknowledgeError::LeaseEnded)));
        said.resolve(done(&runs[0], (1, 1), Ok(())));
        assert_eq!(answer.try_recv().unwrap(), [Ok(()), Err(AcknowledgeError::LeaseEnded)]);
    }

    #[test]
    fn nothing_said_is_answered_at_once() {
        let mut said = Said::default();
        let (reply, mut answer) = oneshot::channel();
        assert!(said.add(vec![ack(0, 9, 8, Accept)], reply).is_empty());
        assert_eq!(answer.try_recv().unwrap(), [Ok(())]);
    }
}
