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
            if self.entries[at].expires_at <= now {
                self.expire(now, at);
            } else {
                self.handle_early(now, at);
            }
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
        let (message, first) = (entry.message.id.clone(), entry.first_received_at);
        let key = Arc::clone(&self.keys[entry.key].name);
        let id = entry.id;
        self.events.push(BookEvent::Expired { id, message: message.clone(), key, stage });
        if let Some(work) = work {
            let spent = now.saturating_since(work.began_at).as_secs_f64();
            self.keys.add_work(now, self.entries[at].key, spent);
            self.expired.insert(self.entries[at].id);
        }
        if stage != Stage::Undecided {
            let overtaken = work.is_some_and(|work| work.overtaken);
            self.attempts.change(&message, first, |record| {
                if overtaken {
                    record.rerun = Some(RerunKind::Duplicate);
                } else {
                    record.ended = record.ended.saturating_add(1);
                }
            });
        }
        let run = self.entries[at].run;
        let spared = run.and_then(|run| self.end_run(now, run, Some(at), RunEnd::Expired));
        self.forget(now, at);
        if let Some(spared) = spared {
            self.settle(now, spared, Plan::Unblock);
        }
        if let Some(run) = run {
            self.advance(run);
        }
    }

    /// Ends an overtaken emission that was reported.
    pub(super) fn drop_overtaken(&mut self, now: Instant, at: u32) {
        let entry = &self.entries[at];
        self.attempts.change(&entry.message.id, entry.first_received_at, |record| {
            record.rerun = Some(RerunKind::Duplicate);
        });
        self.forget(now, at);
    }

    /// Gives up all of a run that is not with the settler: from here on it has another life, which what is with the
    /// settler cannot end.
    pub(super) fn end_life(&mut self, now: Instant, run: u32, cause: RunEnd) {
        let spared = self.end_run(now, run, None, cause);
        self.runs[run].epoch += 1;
        if let Some(spared) = spared {
            self.entries[spared].epoch = self.runs[run].epoch;
            self.settle(now, spared, Plan::Unblock);
        }
    }

    /// Ends a run behind a delivery that is deferred or given back.
    pub(super) fn end_run_behind(&mut self, now: Instant, run: u32, at: u32) {
        // Giving back one speaks for the whole key, so nothing is spared.
        let _ = self.end_run(now, run, Some(at), RunEnd::Deferred);
    }

    /// Ends a run: everything after `after`, or all of it, comes again. What a sink is working on is overtaken, the
    /// rest is dropped.
    ///
    /// The broker hands out again when the last lease on the key ends. If renewals made one of those dropped last
    /// longer, it is spared: whoever ends the run gives it back, which ends all of them.
    fn end_run(&mut self, now: Instant, run: u32, after: Option<u32>, cause: RunEnd) -> Option<u32> {
        let mut spared = None;
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
            } else if spared.is_none() && self.would_block(now, at, cause) {
                spared = Some(at);
                dropped += 1;
            } else {
                let entry = self.forget(now, at);
                self.undecided.dropped += u64::from(matches!(entry.state, State::Received));
                if entry.was_emitted && matches!(entry.state, State::Settling(_)) {
                    self.events.push(BookEvent::Undone { id: entry.id, message: entry.message.id.clone() });
                }
                let kind = if entry.was_emitted { RerunKind::Duplicate } else { RerunKind::Dropped };
                self.attempts.change(&entry.message.id, entry.first_received_at, |record| {
                    record.rerun = Some(kind);
                });
                dropped += 1;
            }
        }
        if dropped + overtaken > 0 {
            let order = Arc::clone(&self.runs[run].name);
            self.events.push(BookEvent::RunEnded { order, cause, dropped, overtaken });
        }
        spared
    }

    /// Whether the lease of a delivery that is dropped keeps the broker from handing out again.
    fn would_block(&self, now: Instant, at: u32, cause: RunEnd) -> bool {
        let entry = &self.entries[at];
        matches!(cause, RunEnd::Expired | RunEnd::SettleFailed)
            && matches!(entry.state, State::Received | State::Queued)
            && entry.renewing.renewals > 0
            && !self.has_ended(now, at)
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
            && !self.entries[at].renewing.turn_missed
        {
            self.rounds.push(&mut self.keys, &mut self.entries, at);
        }
        if self.runs[run].on_way == 0
            && let Some(at) = self.runs[run].deliveries.front()
            && let State::Settling(plan) = &self.entries[at].state
            && !(plan.comes_again() && self.runs[run].renewing > 0)
            && !self.entries[at].renewing.is_under_way()
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
        self.leave_renewal(at);
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
