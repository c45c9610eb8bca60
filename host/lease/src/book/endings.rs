//! How deliveries leave without a settlement: leases that run out, runs that end.

use std::sync::Arc;

use tidegate_model::Instant;

use super::LeaseBook;
use crate::entry::{Entry, InRun, Place, Plan, State};
use crate::event::{BookEvent, RerunKind, RunEnd, Stage};
use crate::list::List;

impl LeaseBook {
    pub(super) fn expire_due(&mut self, now: Instant) {
        while let Some(at) = self.wheel.pop_due(&mut self.entries, now) {
            self.expire(now, at);
        }
        self.keys.age(now);
    }

    /// Ends a delivery whose lease ran out, and its run from there on: the broker hands out again from here.
    pub(super) fn expire(&mut self, now: Instant, at: u32) {
        let entry = &self.entries[at];
        let (stage, work) = match entry.state {
            State::Received | State::Deciding => (Stage::Undecided, None),
            State::Queued => (Stage::Queued, None),
            State::Emitted(work) => (Stage::Emitted, Some(work)),
            // The settler finds out whether it still counts.
            State::Settling(_) | State::Sent { .. } => return,
        };
        self.undecided.expired += u64::from(matches!(entry.state, State::Received));
        let message = entry.message.id.clone();
        let key = Arc::clone(&self.keys[entry.key].name);
        self.events.push(BookEvent::Expired { message: message.clone(), key, stage });
        if let Some(work) = work {
            let spent = now.saturating_since(work.began_at).as_secs_f64();
            self.keys.add_work(now, self.entries[at].key, spent);
            self.expired.insert(self.entries[at].id);
        }
        if stage != Stage::Undecided {
            let overtaken = work.is_some_and(|work| work.overtaken);
            self.attempts.change(&message, |record| {
                if overtaken {
                    record.rerun = Some(RerunKind::Duplicate);
                } else {
                    record.ended = record.ended.saturating_add(1);
                }
            });
        }
        let run = self.entries[at].run;
        if let Some(run) = run {
            self.end_run(now, run, Some(at), RunEnd::Expired);
        }
        self.forget(now, at);
        if let Some(run) = run {
            self.advance(run);
        }
    }

    /// Ends an overtaken emission that was reported.
    pub(super) fn drop_overtaken(&mut self, now: Instant, at: u32) {
        let message = self.entries[at].message.id.clone();
        self.attempts.change(&message, |record| record.rerun = Some(RerunKind::Duplicate));
        self.forget(now, at);
    }

    /// Gives up all of a run that is not with the settler: from here on it has another life, which what is with the
    /// settler cannot end.
    pub(super) fn end_life(&mut self, now: Instant, run: u32, cause: RunEnd) {
        self.end_run(now, run, None, cause);
        self.runs[run].epoch += 1;
    }

    /// Ends a run: everything after `after`, or all of it, comes again. What a sink is working on is overtaken, the
    /// rest is dropped.
    pub(super) fn end_run(&mut self, now: Instant, run: u32, after: Option<u32>, cause: RunEnd) {
        let mut next = match after {
            Some(at) => List::<InRun>::next(&self.entries, at),
            None => self.runs[run].deliveries.front(),
        };
        let (mut dropped, mut overtaken) = (0, 0);
        while let Some(at) = next {
            next = List::<InRun>::next(&self.entries, at);
            if let State::Emitted(work) = &mut self.entries[at].state {
                work.overtaken = true;
                self.runs[run].remove(&mut self.entries, at);
                self.entries[at].run = None;
                overtaken += 1;
            } else {
                let entry = self.forget(now, at);
                self.undecided.dropped += u64::from(matches!(entry.state, State::Received));
                let kind = if entry.was_emitted { RerunKind::Duplicate } else { RerunKind::Dropped };
                self.attempts.change(&entry.message.id, |record| record.rerun = Some(kind));
                dropped += 1;
            }
        }
        if dropped + overtaken > 0 {
            let order = Arc::clone(&self.runs[run].name);
            self.events.push(BookEvent::RunEnded { order, cause, dropped, overtaken });
        }
    }

    /// Gives back to the broker whatever is not emitted.
    pub(super) fn release_all(&mut self, now: Instant) {
        self.expire_due(now);
        let without_order = self.entries.slots().filter(|at| {
            let entry = &self.entries[*at];
            entry.run.is_none() && matches!(entry.state, State::Received | State::Deciding | State::Queued)
        });
        // What comes after the first of a run comes again with it.
        let firsts = self.runs.slots().filter_map(|run| self.runs[run].next);
        for at in without_order.chain(firsts).collect::<Vec<_>>() {
            self.settle(now, at, Plan::Release);
        }
    }

    /// Lets a run's next delivery into its key's queue, and its first settlement to the settler, if their time has
    /// come; forgets the run when nothing of it is left.
    pub(super) fn advance(&mut self, run: u32) {
        if let Some(at) = self.runs[run].next
            && matches!(self.entries[at].state, State::Queued)
            && self.entries[at].place == Place::Nowhere
        {
            self.rounds.push(&mut self.keys, &mut self.entries, at);
        }
        if self.runs[run].on_way == 0
            && let Some(at) = self.runs[run].deliveries.front()
            && matches!(self.entries[at].state, State::Settling(_))
            && self.entries[at].place == Place::Nowhere
        {
            self.entries[at].place = Place::Ready;
            self.ready.push_back(&mut self.entries, at);
        }
        self.runs.tidy(run);
    }

    /// Takes a delivery out of everything.
    pub(super) fn forget(&mut self, now: Instant, at: u32) -> Entry {
        self.leave_queue(at);
        self.wheel.remove(&mut self.entries, at);
        if let Some(run) = self.entries[at].run
            && !matches!(self.entries[at].state, State::Sent { .. })
        {
            self.runs[run].remove(&mut self.entries, at);
        }
        self.leave_index(at);
        let entry = self.entries.remove(at);
        *self.tally.of(&entry.state) -= 1;
        self.tally.bytes -= entry.size_bytes;
        self.keys.end(now, entry.key);
        entry
    }

    pub(super) fn leave_index(&mut self, at: u32) {
        if std::mem::take(&mut self.entries[at].indexed) {
            self.index.remove(&self.entries[at].message.id);
        }
    }
}
