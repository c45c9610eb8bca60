//! Who gets which records.

use std::sync::Arc;
use std::time::Duration;

use super::{InFlight, RecordRun, RecordState, Rules, SharePartition};

/// What a member asks of one partition.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) member: Arc<str>,
    /// Record-limit mode: not a record more than asked for; else whole log batches.
    pub(crate) exact: bool,
    /// The preferred size of a range.
    pub(crate) batch_size: i64,
    pub(crate) records_max: i64,
    /// Where the log was read.
    pub(crate) offset: i64,
    pub(crate) now: Duration,
}

/// Records acquired, as the answer lists them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Acquired {
    pub(crate) first: i64,
    pub(crate) last: i64,
    pub(crate) delivery_count: i16,
}

impl Acquired {
    pub(crate) fn length(&self) -> i64 {
        self.last - self.first + 1
    }
}

impl SharePartition {
    /// Acquires from the log batches that were read: base and last offset of each.
    pub(crate) fn acquire(
        &mut self,
        ask: &Ask,
        batches: &[(i64, i64, usize)],
        rules: &Rules,
    ) -> Vec<Acquired> {
        let (Some(&(first, ..)), Some(&(_, last, _))) = (batches.first(), batches.last()) else {
            return Vec::new();
        };
        let Some((mut most, last)) = self.room(ask, last, rules) else { return Vec::new() };
        self.archive_removed(ask.offset, first);
        let mut base = first.max(self.start);
        if let Some((&at, _)) =
            self.in_flight.range(..=first).next_back().filter(|(_, batch)| batch.last >= first)
        {
            base = at;
        }
        let known: Vec<(i64, i64)> =
            self.in_flight.range(base..=last.max(base)).map(|(at, batch)| (*at, batch.last)).collect();
        let Some(&(_, known_last)) = known.last() else {
            return self.acquire_new(ask, batches, first, last, most, rules);
        };
        let until = ask.now + rules.lock;
        let mut acquired: Vec<Acquired> = Vec::new();
        let mut count = 0;
        for (at, _) in known {
            if count >= most {
                break;
            }
            let Some(batch) = self.in_flight.get_mut(&at) else { continue };
            let throttled = batch.is_throttled(first, last, rules);
            if throttled && count > 0 {
                most = 0;
                break;
            }
            let whole = at >= first && batch.last <= last;
            let too_long = ask.exact && batch.last - at + 1 > most - count;
            let before = acquired.len();
            if !whole || batch.per_offset || too_long || throttled {
                // A batch that nobody has split is to be had as a whole or not at all.
                if !batch.per_offset && batch.runs[0].state != RecordState::Available {
                    continue;
                }
                batch.acquire_single(ask, (first, last), most - count, (until, rules), &mut acquired);
            } else if batch.runs[0].state == RecordState::Available {
                let run = &mut batch.runs[0];
                *run = RecordRun::acquired(at, batch.last, run.delivery_count + 1, &ask.member, until);
                acquired.push(Acquired { first: at, last: run.last, delivery_count: run.delivery_count });
            }
            let fresh: i64 = acquired[before..].iter().map(Acquired::length).sum();
            count += fresh;
            if throttled && fresh > 0 {
                most = 0;
            }
        }
        if !acquired.is_empty() {
            self.lock_until(until);
            self.tally.acquired += u64::try_from(count).unwrap_or(0);
        }
        if count < most && known_last < last {
            acquired.extend(self.acquire_new(ask, batches, known_last + 1, last, most - count, rules));
        }
        acquired
    }

    /// How many records may be acquired, and up to which offset. When the window is full, only what lies in it.
    fn room(&self, ask: &Ask, last: i64, rules: &Rules) -> Option<(i64, i64)> {
        let most = ask.records_max.min(rules.locks_max - self.records_in_flight());
        if most > 0 {
            return Some((most, last));
        }
        (ask.records_max > 0 && ask.offset < self.end)
            .then(|| (ask.records_max.min(self.end - ask.offset), last.min(self.end - 1)))
    }

    /// What was to be had again and is not in the log any more is gone.
    fn archive_removed(&mut self, from: i64, until: i64) {
        for (_, batch) in self.in_flight.range_mut(..until) {
            if batch.last >= from && batch.last < until {
                for run in &mut batch.runs {
                    if run.state == RecordState::Available {
                        run.become_(RecordState::Archived);
                    }
                }
            }
        }
        self.advance();
    }

    fn acquire_new(
        &mut self,
        ask: &Ask,
        batches: &[(i64, i64, usize)],
        first: i64,
        last: i64,
        most: i64,
        rules: &Rules,
    ) -> Vec<Acquired> {
        let first = if self.in_flight.is_empty() { first.max(self.end) } else { first };
        let mut last = last;
        if most < last - first + 1 {
            let wanted = first + most - 1;
            last = batches.iter().map(|(_, last, _)| *last).find(|last| *last >= wanted).unwrap_or(last);
        }
        if last < first {
            return Vec::new();
        }
        if self.in_flight.is_empty() {
            self.start = first;
        }
        let until = ask.now + rules.lock;
        let mut ranges = Vec::new();
        if ask.exact {
            let taken = last.min(first + most - 1);
            let mut batch = InFlight::whole(RecordRun::acquired(first, taken, 1, &ask.member, until));
            if taken < last {
                batch.runs.push(RecordRun::available(taken + 1, last));
                batch.last = last;
                batch.per_offset = true;
            }
            self.in_flight.insert(first, batch);
            ranges.push((first, taken));
        } else {
            let mut from = first;
            for (base, ..) in batches.iter().filter(|(base, ..)| *base <= last) {
                if last - first + 1 > ask.batch_size && base - from >= ask.batch_size.max(1) {
                    ranges.push((from, base - 1));
                    from = *base;
                }
            }
            ranges.push((from, last));
            for (first, last) in &ranges {
                let run = RecordRun::acquired(*first, *last, 1, &ask.member, until);
                self.in_flight.insert(*first, InFlight::whole(run));
            }
        }
        self.end = self.end.max(last + 1);
        self.lock_until(until);
        let acquired: Vec<Acquired> =
            ranges.into_iter().map(|(first, last)| Acquired { first, last, delivery_count: 1 }).collect();
        self.tally.acquired +=
            acquired.iter().map(|range| u64::try_from(range.length()).unwrap_or(0)).sum::<u64>();
        acquired
    }
}

/// The delivery count from which on records are handed out in smaller and smaller pieces.
fn throttle_from(rules: &Rules) -> i16 {
    (rules.delivery_limit.saturating_add(1) / 2).max(2)
}

impl InFlight {
    fn is_throttled(&self, first: i64, last: i64, rules: &Rules) -> bool {
        let near =
            self.runs.iter().filter(|run| !self.per_offset || (run.last >= first && run.first <= last));
        near.filter(|run| run.state == RecordState::Available)
            .any(|run| run.delivery_count >= throttle_from(rules))
    }

    /// Acquires single offsets: fewer, the nearer they are to their last delivery; the last one alone.
    fn acquire_single(
        &mut self,
        ask: &Ask,
        (first, last): (i64, i64),
        most: i64,
        (until, rules): (Duration, &Rules),
        acquired: &mut Vec<Acquired>,
    ) {
        let Some(at) = self.runs.first().map(|run| run.first) else { return };
        let size = self.last - at + 1;
        self.per_offset = true;
        let mut count = 0;
        let mut piece = None;
        for offset in at.max(first)..=self.last.min(last) {
            let Some(run) = self.runs.iter().find(|run| run.first <= offset && offset <= run.last) else {
                continue;
            };
            if run.state != RecordState::Available {
                continue;
            }
            let deliveries = run.delivery_count;
            let isolate = rules.delivery_limit > 2 && deliveries == rules.delivery_limit - 1;
            if isolate && count > 0 {
                break;
            }
            if deliveries >= throttle_from(rules) && piece.is_none() {
                let halvings = u32::try_from(deliveries - throttle_from(rules) + 1).unwrap_or(0);
                piece = Some(size.checked_shr(halvings).unwrap_or(0).max(1));
            }
            for run in self.part(offset, offset) {
                *run = RecordRun::acquired(offset, offset, deliveries + 1, &ask.member, until);
            }
            acquired.push(Acquired { first: offset, last: offset, delivery_count: deliveries + 1 });
            count += 1;
            if isolate || (ask.exact && count == most) || piece == Some(count) {
                break;
            }
        }
        self.join();
    }
}
