//! Acquired offsets, told apart: records to hand on, offsets without a record, and what cannot be read.

use std::sync::Arc;

use crate::records::{BatchFault, Batches, Decompressor, OffsetRange, OffsetRanges, Record};
use crate::session::Acquired;
use crate::{AcknowledgeType, TopicPartition};

/// What a fetch brought of one partition.
#[derive(Debug, Default)]
pub(crate) struct Sorted {
    /// Records with their delivery counts, ascending.
    pub(crate) records: Vec<(Record, i16)>,
    /// What the member says about the rest of what it acquired.
    pub(crate) rest: Vec<(i64, i64, AcknowledgeType)>,
    pub(crate) damages: Vec<Damage>,
}

/// Acquired records that cannot be read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Damage {
    /// Where.
    pub partition: TopicPartition,
    /// The first and the last of the acquired offsets that it is about.
    pub offsets: (i64, i64),
    /// What is wrong, in one sentence.
    pub reason: Arc<str>,
    /// What the member said about them.
    pub verdict: AcknowledgeType,
}

/// Sorts what was acquired.
///
/// Damaged records are rejected, since nobody can read them, as Java's client does. What this client cannot read and another
/// might, such as an unknown compression, is released, and so is what was not sent: the broker gives it out again. Offsets
/// that have no record to hand on are gaps: markers of transactions, or cleaned away.
pub(crate) fn sort(acquired: &Acquired, decompressor: &mut Decompressor) -> Sorted {
    let mut sorted = Sorted::default();
    // Offsets whose fate is decided, ascending.
    let mut decided: Vec<(i64, i64)> = Vec::new();
    let wanted: OffsetRanges =
        acquired.ranges.iter().map(|(first, last, _)| OffsetRange::new(*first, *last)).collect();
    let mut batches = Batches::new(acquired.records.clone());
    let mut has_unknown = false;
    for batch in batches.by_ref() {
        let outcome = batch.and_then(|batch| {
            if batch.is_control() {
                return Ok(());
            }
            for record in batch.records_within(&wanted, decompressor)? {
                let record = record?;
                // Offsets ascend within a partition; one that does not would be handed on twice.
                let is_new = decided.last().is_none_or(|(_, last)| *last < record.offset);
                if let Some(count) = acquired.count(record.offset).filter(|_| is_new) {
                    extend(&mut decided, record.offset, record.offset);
                    sorted.records.push((record, count));
                }
            }
            Ok(())
        });
        let Err(error) = outcome else { continue };
        let Some(range) = error.offsets else {
            has_unknown = true;
            continue;
        };
        let verdict = verdict(&error.fault);
        let reason: Arc<str> = error.fault.to_string().into();
        for (first, last) in acquired.within(range.first, range.last, &decided) {
            sorted.rest.push((first, last, verdict));
            extend(&mut decided, first, last);
            let reason = Arc::clone(&reason);
            sorted.damages.push(Damage {
                partition: acquired.partition,
                offsets: (first, last),
                reason,
                verdict,
            });
        }
    }
    // Between batches that were seen, an offset without a record is a gap. Anywhere else it was not sent.
    let seen_until = batches.next_offset().filter(|_| !has_unknown).unwrap_or(i64::MIN);
    for (first, last) in acquired.within(i64::MIN, i64::MAX, &decided) {
        if first < seen_until {
            sorted.rest.push((first, last.min(seen_until - 1), AcknowledgeType::Gap));
        }
        if last >= seen_until {
            sorted.rest.push((first.max(seen_until), last, AcknowledgeType::Release));
        }
    }
    sorted
}

const fn verdict(fault: &BatchFault) -> AcknowledgeType {
    match fault {
        BatchFault::Compression { .. } | BatchFault::Format { .. } => AcknowledgeType::Release,
        _ => AcknowledgeType::Reject,
    }
}

fn extend(decided: &mut Vec<(i64, i64)>, first: i64, last: i64) {
    match decided.last_mut() {
        Some(range) if range.1 + 1 == first => range.1 = last,
        _ => decided.push((first, last)),
    }
}

impl Acquired {
    fn count(&self, offset: i64) -> Option<i16> {
        let at = self.ranges.partition_point(|(_, last, _)| *last < offset);
        self.ranges.get(at).filter(|(first, _, _)| *first <= offset).map(|(_, _, count)| *count)
    }

    /// The acquired offsets from `first` to `last` that are not in `decided`, which ascends.
    fn within(&self, first: i64, last: i64, decided: &[(i64, i64)]) -> Vec<(i64, i64)> {
        let mut left = Vec::new();
        for (range_first, range_last, _) in &self.ranges {
            let mut next = (*range_first).max(first);
            let end = (*range_last).min(last);
            let from = decided.partition_point(|(_, decided_last)| *decided_last < next);
            for (decided_first, decided_last) in &decided[from..] {
                if *decided_first > end {
                    break;
                }
                if *decided_first > next {
                    left.push((next, decided_first - 1));
                }
                next = decided_last.saturating_add(1);
            }
            if next <= end {
                left.push((next, end));
            }
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use AcknowledgeType::{Gap, Reject, Release};
    use bytes::{Bytes, BytesMut};
    use tidegate_model::Instant;

    use super::*;
    use crate::TopicId;
    use crate::acks::Acquisition;
    use crate::records::{BatchBuilder, NewRecord};

    fn batch(base: i64, builder: impl FnOnce(BatchBuilder) -> BatchBuilder, offsets: usize) -> Bytes {
        let mut builder = builder(BatchBuilder::new(base));
        for _ in 0..offsets {
            builder.push(&NewRecord { timestamp_ms: 1, key: None, value: Some(b"x"), headers: &[] });
        }
        builder.build().unwrap()
    }

    fn plain(base: i64, offsets: usize) -> Bytes {
        batch(base, |builder| builder, offsets)
    }

    fn sorted(ranges: &[(i64, i64)], records: &[Bytes]) -> (Vec<i64>, Vec<(i64, i64, AcknowledgeType)>) {
        let mut bytes = BytesMut::new();
        for record in records {
            bytes.extend_from_slice(record);
        }
        let acquired = Acquired {
            partition: TopicPartition { topic: TopicId([1; 16]), partition: 0 },
            acquisition: Acquisition(1),
            ranges: ranges.iter().map(|(first, last)| (*first, *last, 1)).collect(),
            records: bytes.freeze(),
            expires_at: Instant::ZERO,
            lock: Duration::ZERO,
        };
        let sorted = sort(&acquired, &mut Decompressor::new(1 << 20));
        (sorted.records.iter().map(|(record, _)| record.offset).collect(), sorted.rest)
    }

    #[test]
    fn only_acquired_offsets_are_handed_on() {
        let (records, rest) = sorted(&[(2, 3), (7, 11)], &[plain(0, 5), plain(5, 10)]);
        assert_eq!(records, [2, 3, 7, 8, 9, 10, 11]);
        assert_eq!(rest, []);
    }

    #[test]
    fn markers_and_cleaned_offsets_are_gaps() {
        let mut cleaned = BatchBuilder::new(4);
        cleaned.skip(3);
        cleaned.push(&NewRecord { timestamp_ms: 1, key: None, value: None, headers: &[] });
        let marker = batch(3, BatchBuilder::control, 1);
        let (records, rest) = sorted(&[(0, 7)], &[plain(0, 3), marker, cleaned.build().unwrap()]);
        assert_eq!(records, [0, 1, 2, 7]);
        assert_eq!(rest, [(3, 6, Gap)]);
    }

    #[test]
    fn damaged_records_are_rejected_and_their_neighbours_handed_on() {
        let mut damaged = plain(3, 3).to_vec();
        let at = damaged.len() - 1;
        damaged[at] ^= 1;
        let (records, rest) = sorted(&[(0, 8)], &[plain(0, 3), damaged.into(), plain(6, 3)]);
        assert_eq!(records, [0, 1, 2, 6, 7, 8]);
        assert_eq!(rest, [(3, 5, Reject)]);
    }

    #[test]
    fn what_was_not_sent_is_released_and_never_called_a_gap() {
        let cut = plain(3, 3);
        let (records, rest) = sorted(&[(0, 5)], &[plain(0, 3), cut.slice(..cut.len() - 1)]);
        assert_eq!(records, [0, 1, 2]);
        assert_eq!(rest, [(3, 5, Release)]);
        assert_eq!(sorted(&[(0, 5)], &[]), (vec![], vec![(0, 5, Release)]));
        assert_eq!(sorted(&[(0, 9)], &[plain(0, 3)]).1, [(3, 9, Release)]);
    }

    #[test]
    fn an_unknown_format_is_released() {
        let mut unknown = plain(3, 3).to_vec();
        unknown[16] = 9;
        let (records, rest) = sorted(&[(0, 8)], &[plain(0, 3), unknown.into(), plain(6, 3)]);
        assert_eq!(records, [0, 1, 2, 6, 7, 8]);
        assert_eq!(rest, [(3, 5, Release)]);
    }

    #[test]
    fn batches_without_records_are_passed_over() {
        let mut empty = BatchBuilder::new(3);
        empty.skip(2);
        let (records, rest) = sorted(&[(0, 5)], &[plain(0, 3), empty.build().unwrap(), plain(5, 1)]);
        assert_eq!(records, [0, 1, 2, 5]);
        assert_eq!(rest, [(3, 4, Gap)]);
    }
}
