//! One partition as one share group sees it: which records are out, with whom, until when, for the how-manieth time.
//!
//! The window from `start` to `end` holds what was fetched and is not yet done for good. It consists of the batches that
//! were acquired together ([`InFlight`]): an acknowledgement or a later delivery of a part makes a batch one of single
//! offsets, which shows in the ranges of the next delivery and in how poison is isolated.

mod acknowledge;
mod acquire;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use self::acknowledge::{Acknowledgement, Refusal};
pub(crate) use self::acquire::{Acquired, Ask};

/// A group's rules for its records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// How long a record is acquired for.
    pub(crate) lock: Duration,
    /// Deliveries after which a record is archived.
    pub(crate) delivery_limit: i16,
    /// Records from the first to the last one in flight.
    pub(crate) locks_max: i64,
    /// Whether locks may be renewed.
    pub(crate) renew: bool,
}

/// What became of a record.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RecordState {
    /// Whoever asks next gets it.
    Available,
    /// A member has it.
    Acquired,
    /// Accepted.
    Acknowledged,
    /// Rejected, a gap, or delivered too often.
    Archived,
}

/// Neighbouring records of one state.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RecordRun {
    /// The first offset.
    pub first: i64,
    /// The last offset.
    pub last: i64,
    /// What became of them.
    pub state: RecordState,
    /// How often each was delivered.
    pub delivery_count: i16,
    /// Who has them.
    pub member: Option<Arc<str>>,
    /// Until when.
    pub until: Option<Duration>,
}

/// A share partition as it stands.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ShareState {
    /// The first offset not done for good.
    pub start: i64,
    /// The first offset never fetched.
    pub end: i64,
    /// What lies between.
    pub runs: Vec<RecordRun>,
    /// What happened so far.
    pub tally: Tally,
}

/// Records, counted by what happened to them.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Tally {
    pub acquired: u64,
    pub accepted: u64,
    pub released: u64,
    pub rejected: u64,
    pub gaps: u64,
    pub renewed: u64,
    pub expired: u64,
    /// Given back by the end of a session or of its connection.
    pub given_back: u64,
    /// Archived since they had been delivered too often.
    pub exhausted: u64,
    /// Acknowledgement batches, however many records each names.
    pub acknowledgement_batches: u64,
}

/// Records acquired together.
#[derive(Clone, Debug)]
struct InFlight {
    last: i64,
    /// Once a part of it was treated apart, every offset is.
    per_offset: bool,
    /// Contiguous, from the first offset to the last.
    runs: Vec<RecordRun>,
}

#[derive(Debug, Default)]
pub(crate) struct SharePartition {
    start: i64,
    /// The start as it is kept for when the leader is gone. It is written with what members say, before that moves the start:
    /// so it lies one settlement behind, as measured.
    stored: i64,
    end: i64,
    in_flight: BTreeMap<i64, InFlight>,
    /// No lock runs out before; the first one may run out later.
    earliest: Option<Duration>,
    tally: Tally,
}

impl SharePartition {
    pub(crate) fn starting_at(offset: i64) -> Self {
        Self { start: offset, stored: offset, end: offset, ..Self::default() }
    }

    pub(crate) fn start(&self) -> i64 {
        self.start
    }

    pub(crate) fn stored(&self) -> i64 {
        self.stored
    }

    /// Where the next fetch reads: at the first record to be had again, else at the end.
    pub(crate) fn next_fetch(&self) -> i64 {
        let again = self.in_flight.values().flat_map(|batch| &batch.runs);
        again
            .filter(|run| run.last >= self.start)
            .find(|run| run.state == RecordState::Available)
            .map_or(self.end, |run| run.first.max(self.start))
    }

    pub(crate) fn can_acquire(&self, rules: &Rules) -> bool {
        self.records_in_flight() < rules.locks_max || self.next_fetch() != self.end
    }

    /// Records not to be delivered any more, above the start.
    pub(crate) fn done_in_window(&self) -> i64 {
        let runs = self.in_flight.values().flat_map(|batch| &batch.runs).filter(|run| run.last >= self.start);
        runs.filter(|run| run.state.is_final()).map(|run| run.last - run.first.max(self.start) + 1).sum()
    }

    pub(crate) fn state(&self) -> ShareState {
        let runs = self.in_flight.values().flat_map(|batch| batch.runs.iter().cloned());
        let mut merged: Vec<RecordRun> = Vec::new();
        for run in runs.filter(|run| run.last >= self.start) {
            match merged.last_mut() {
                Some(before) if before.is_like(&run) => before.last = run.last,
                _ => merged.push(run),
            }
        }
        ShareState { start: self.start, end: self.end, runs: merged, tally: self.tally }
    }

    /// When a lock may run out next.
    pub(crate) fn poll_timeout(&self) -> Option<Duration> {
        self.earliest
    }

    /// Lets locks run out; whether records are to be had again by that.
    pub(crate) fn handle_timeout(&mut self, now: Duration, rules: &Rules) -> bool {
        if self.earliest.is_none_or(|earliest| earliest > now) {
            return false;
        }
        let (back, gone) = self.give_back(rules, |run| run.until.is_some_and(|until| until <= now));
        self.tally.expired += back + gone;
        self.earliest =
            self.in_flight.values().flat_map(|batch| &batch.runs).filter_map(|run| run.until).min();
        back > 0
    }

    /// Gives back all that a member holds.
    pub(crate) fn release_member(&mut self, member: &str, rules: &Rules) {
        let (back, gone) = self.give_back(rules, |run| run.member.as_deref() == Some(member));
        self.tally.given_back += back + gone;
    }

    fn give_back(&mut self, rules: &Rules, which: impl Fn(&RecordRun) -> bool) -> (u64, u64) {
        let (mut back, mut gone) = (0, 0);
        for batch in self.in_flight.values_mut() {
            for run in &mut batch.runs {
                if run.state == RecordState::Acquired && which(run) {
                    run.release(rules);
                    let count = if run.state == RecordState::Available { &mut back } else { &mut gone };
                    *count += run.length();
                }
            }
        }
        self.tally.exhausted += gone;
        self.advance();
        (back, gone)
    }

    /// Another node took the partition over: what was acquired is so no more, and its deliveries may be forgotten.
    pub(crate) fn take_over(&mut self, forget_deliveries: bool) {
        for run in self.in_flight.values_mut().flat_map(|batch| &mut batch.runs) {
            if run.state == RecordState::Acquired {
                run.become_(RecordState::Available);
                run.delivery_count -= i16::from(forget_deliveries);
            }
        }
        self.earliest = None;
    }

    /// The log begins later now.
    pub(crate) fn trim(&mut self, log_start: i64) {
        if log_start <= self.start {
            return;
        }
        for (_, batch) in self.in_flight.range_mut(..log_start) {
            batch.split(log_start);
            for run in batch.runs.iter_mut().filter(|run| run.last < log_start) {
                run.become_(RecordState::Archived);
            }
        }
        self.end = self.end.max(log_start);
        self.advance();
        self.start = self.start.max(log_start);
    }

    fn records_in_flight(&self) -> i64 {
        if self.in_flight.is_empty() { 0 } else { self.end - self.start }
    }

    /// Moves the start over what is done.
    fn advance(&mut self) {
        while let Some(first) = self.in_flight.first_entry() {
            if let Some(open) = first.get().runs.iter().find(|run| !run.state.is_final()) {
                self.start = self.start.max(open.first);
                return;
            }
            self.start = first.get().last + 1;
            first.remove();
        }
        self.start = self.end;
    }

    fn lock_until(&mut self, until: Duration) {
        self.earliest = Some(self.earliest.map_or(until, |earliest| earliest.min(until)));
    }
}

impl RecordState {
    fn is_final(self) -> bool {
        matches!(self, Self::Acknowledged | Self::Archived)
    }
}

impl RecordRun {
    fn acquired(first: i64, last: i64, count: i16, member: &Arc<str>, until: Duration) -> Self {
        Self {
            first,
            last,
            state: RecordState::Acquired,
            delivery_count: count,
            member: Some(Arc::clone(member)),
            until: Some(until),
        }
    }

    fn available(first: i64, last: i64) -> Self {
        let state = RecordState::Available;
        Self { first, last, state, delivery_count: 0, member: None, until: None }
    }

    fn length(&self) -> u64 {
        u64::try_from(self.last - self.first + 1).unwrap_or(0)
    }

    fn become_(&mut self, state: RecordState) {
        self.state = state;
        self.member = None;
        self.until = None;
    }

    /// Available again, or archived when it has been delivered often enough.
    fn release(&mut self, rules: &Rules) {
        let exhausted = self.delivery_count >= rules.delivery_limit;
        self.become_(if exhausted { RecordState::Archived } else { RecordState::Available });
    }

    fn is_like(&self, next: &Self) -> bool {
        self.last + 1 == next.first
            && self.state == next.state
            && self.delivery_count == next.delivery_count
            && self.member == next.member
            && self.until == next.until
    }
}

impl InFlight {
    fn whole(run: RecordRun) -> Self {
        Self { last: run.last, per_offset: false, runs: vec![run] }
    }

    /// Makes a run begin at `offset`.
    fn split(&mut self, offset: i64) {
        let Some(at) = self.runs.iter().position(|run| run.first < offset && offset <= run.last) else {
            return;
        };
        let mut rest = self.runs[at].clone();
        rest.first = offset;
        self.runs[at].last = offset - 1;
        self.runs.insert(at + 1, rest);
        self.per_offset = true;
    }

    /// The runs from `first` to `last`, no offset more or less.
    fn part(&mut self, first: i64, last: i64) -> impl Iterator<Item = &mut RecordRun> {
        self.split(first);
        self.split(last + 1);
        self.runs.iter_mut().filter(move |run| run.first >= first && run.last <= last)
    }

    /// Joins neighbours that became alike.
    fn join(&mut self) {
        self.runs.dedup_by(|next, run| {
            let alike = run.is_like(next);
            if alike {
                run.last = next.last;
            }
            alike
        });
    }
}

impl std::ops::Add for Tally {
    type Output = Self;

    fn add(self, more: Self) -> Self {
        Self {
            acquired: self.acquired + more.acquired,
            accepted: self.accepted + more.accepted,
            released: self.released + more.released,
            rejected: self.rejected + more.rejected,
            gaps: self.gaps + more.gaps,
            renewed: self.renewed + more.renewed,
            expired: self.expired + more.expired,
            given_back: self.given_back + more.given_back,
            exhausted: self.exhausted + more.exhausted,
            acknowledgement_batches: self.acknowledgement_batches + more.acknowledgement_batches,
        }
    }
}
