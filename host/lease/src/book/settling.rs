//! From a verdict or a report to the settlement and its result.

use std::sync::Arc;
use std::time::Duration;

use tidegate_model::{
    Deferral, DeliveryId, Handle, Instant, Outcome, SettleError, Settlement, Verb, Verdict,
};

use super::LeaseBook;
use crate::entry::{Place, Plan, State, Story, Work};
use crate::event::{BookEvent, RerunKind, RunEnd};
use crate::options::Exhausted;
use crate::spacing;
use crate::valves::{Ruling, Valve};

impl LeaseBook {
    /// The story of a delivery that is held, until its settlement has its result; `None` when it is gone.
    #[must_use]
    pub fn story(&self, id: DeliveryId) -> Option<Story> {
        let entry = &self.entries[self.entries.find(id)?];
        Some(Story {
            first_received_at: entry.first_received_at,
            received_at: entry.received_at,
            expires_at: entry.expires_at,
            rejected_by_policy: entry.rejected_by_policy,
        })
    }

    /// Follows a verdict, within the safety valves.
    pub(super) fn follow(&mut self, now: Instant, at: u32, verdict: Verdict) {
        match verdict {
            Verdict::Deliver => self.queue(at),
            Verdict::Reject { reason } => {
                self.entries[at].rejected_by_policy = true;
                self.settle(now, at, Plan::Reject { reason });
            }
            Verdict::Discard { .. } => self.settle(now, at, Plan::Accept),
            Verdict::Defer(Deferral { delay, reason }) => match self.judge(at, delay) {
                Ruling::Defer(delay) | Ruling::Cut(delay) => self.defer(now, at, delay),
                Ruling::Refuse(_) => match self.options.valves.exhausted {
                    Exhausted::Accept => self.queue(at),
                    Exhausted::Reject => self.settle(now, at, Plan::Reject { reason }),
                },
            },
        }
    }

    /// Concludes an emission with its outcome, within the safety valves.
    pub(super) fn conclude(&mut self, now: Instant, at: u32, outcome: Outcome) {
        match outcome {
            Outcome::Accepted => self.settle(now, at, Plan::Accept),
            Outcome::Rejected { reason } => self.settle(now, at, Plan::Reject { reason }),
            Outcome::Released => self.settle(now, at, Plan::Release),
            Outcome::Elsewhere => {
                let replaced = matches!(self.entries[at].state, State::Emitted(Work { replaced: true, .. }));
                self.settle(now, at, if replaced { Plan::Accept } else { Plan::Elsewhere });
            }
            Outcome::Deferred { delay } => match self.judge(at, delay) {
                Ruling::Defer(delay) | Ruling::Cut(delay) => self.defer(now, at, delay),
                Ruling::Refuse(_) => match self.options.valves.exhausted {
                    // Accepting it would lose it: its worker has not done it.
                    Exhausted::Accept => {
                        self.defer(now, at, delay.min(self.options.valves.max_invisible_duration));
                    }
                    Exhausted::Reject => {
                        let reason = "deferred too often or for too long".into();
                        self.settle(now, at, Plan::Reject { reason });
                    }
                },
            },
        }
    }

    /// Gives a delivery its plan. It goes to the settler at once, or when its predecessors are settled.
    pub(super) fn settle(&mut self, now: Instant, at: u32, plan: Plan) {
        self.leave_queue(at);
        self.leave_renewal(at);
        self.wheel.remove(&mut self.entries, at);
        let comes_again = plan.comes_again();
        let state = self.set_state(at, State::Settling(plan));
        self.undecided.released += u64::from(matches!(state, State::Received));
        let Some(run) = self.entries[at].run else {
            // One that is being renewed goes when it is known which handle counts.
            if !self.entries[at].renewing.is_under_way() {
                self.entries[at].place = Place::Ready;
                self.ready.push_back(&mut self.entries, at);
            }
            return;
        };
        self.runs[run].skip(&self.entries);
        if comes_again {
            self.end_run_behind(now, run, at);
        }
        self.advance(run);
    }

    /// Lets an emission's ordered key go on with the next one.
    pub(super) fn offer_next(&mut self, at: u32) {
        if let Some(run) = self.entries[at].run {
            self.runs[run].skip(&self.entries);
            self.advance(run);
        }
    }

    /// The next settlement: of `run`, if its first one may follow what was just given out of it, else of whatever
    /// has waited longest.
    pub(super) fn next_settlement(&mut self, now: Instant, run: Option<u32>) -> Option<Settlement> {
        self.end_elsewhere(now);
        let next = run.and_then(|run| self.next_accept(run));
        if next.is_none()
            && let Some(renewal) = self.next_renewal(now)
        {
            return Some(renewal);
        }
        let at = next.or_else(|| self.ready.front())?;
        self.leave_queue(at);
        if let Some(run) = self.entries[at].run {
            self.runs[run].remove(&mut self.entries, at);
            self.runs[run].on_way += 1;
        }
        let last = !matches!(&self.entries[at].state, State::Settling(plan) if plan.comes_again());
        if let Some(run) = self.entries[at].run {
            self.runs[run].gives_back = !last;
        }
        let state = self.set_state(at, State::Sent { last });
        let State::Settling(plan) = state else {
            self.bug("a delivery without an outcome was about to be settled", Some(self.entries[at].id));
            return None;
        };
        let verb = self.verb(now, at, plan);
        let entry = &mut self.entries[at];
        let text = std::mem::take(&mut entry.handle.text);
        Some(Settlement {
            id: entry.id,
            verb,
            message: Arc::clone(&entry.message),
            handle: Handle { routing: Arc::clone(&entry.handle.routing), text },
            attempt: entry.attempt,
        })
    }

    /// Lets go of deliveries that another host settles, as far as they are next. Should one not be settled there, its lease
    /// runs out at the broker, which then begins its ordered key anew.
    fn end_elsewhere(&mut self, now: Instant) {
        while let Some(at) = self.ready.front()
            && matches!(self.entries[at].state, State::Settling(Plan::Elsewhere))
        {
            let entry = self.forget(now, at);
            self.attempts.remove(&entry.message.id);
            if let Some(run) = entry.run {
                self.advance(run);
            }
        }
    }

    /// The run whose next accept may follow this settlement in the same batch. Only accepts follow accepts: any other
    /// verb takes a way of its own to the broker, where order would be lost.
    pub(super) fn run_on_way(&self, settlement: &Settlement) -> Option<u32> {
        if settlement.verb != Verb::Accept {
            return None;
        }
        self.entries[self.entries.find(settlement.id)?].run
    }

    /// Ends a settlement that the settler answered.
    pub(super) fn end_settlement(&mut self, now: Instant, at: u32, error: Option<SettleError>) {
        let entry = &self.entries[at];
        let (run, was_emitted) = (entry.run, entry.was_emitted);
        let last = matches!(entry.state, State::Sent { last: true });
        let counts = run.is_none_or(|run| self.runs[run].epoch == entry.epoch);
        let failed = error.is_some();
        let (message, first) = (entry.message.id.clone(), entry.first_received_at);
        if let Some(run) = run {
            self.runs[run].on_way -= 1;
            self.runs[run].gives_back = false;
        }
        match error {
            // A deferral was counted when it was sent.
            None if !last => {}
            None if counts => self.attempts.remove(&message),
            // It had no lasting effect, since an earlier one of its key will come again.
            None => {
                let kind = if was_emitted { RerunKind::Duplicate } else { RerunKind::Dropped };
                self.attempts.change(&message, first, |record| record.rerun = Some(kind));
            }
            Some(error) => {
                if last {
                    self.attempts.change(&message, first, |record| {
                        record.ended = record.ended.saturating_add(1);
                    });
                }
                let key = Arc::clone(&self.keys[entry.key].name);
                self.events.push(BookEvent::SettleFailed { message, key, error });
            }
        }
        if let Some(run) = run
            && failed
            && counts
        {
            self.end_life(now, run, RunEnd::SettleFailed);
        }
        self.forget(now, at);
        if let Some(run) = run {
            self.advance(run);
        }
    }

    /// Lets an accepted delivery wait for its emission.
    fn queue(&mut self, at: u32) {
        self.set_state(at, State::Queued);
        match self.entries[at].run {
            Some(run) => self.advance(run),
            None => self.rounds.push(&mut self.keys, &mut self.entries, at),
        }
    }

    fn defer(&mut self, now: Instant, at: u32, delay: Duration) {
        let entry = &self.entries[at];
        let due = if entry.order.is_some() {
            // Only one of an ordered key is deferred at a time, so there is nothing to bring together.
            now + delay
        } else {
            let longest = self.options.valves.longest_deferral(entry.deferred).max(delay);
            spacing::due(now, delay, self.keys[entry.key].phase).min(now + longest)
        };
        self.settle(now, at, Plan::Defer { due });
    }

    /// What the valves say to a wish to defer. Says so when it is not just followed.
    fn judge(&mut self, at: u32, delay: Duration) -> Ruling {
        let entry = &self.entries[at];
        let ruling = self.options.valves.judge(entry.attempt, entry.deferred, delay);
        let valve = match ruling {
            Ruling::Defer(_) => return ruling,
            Ruling::Cut(_) => Valve::Length,
            Ruling::Refuse(valve) => valve,
        };
        let message = entry.message.id.clone();
        let key = Arc::clone(&self.keys[entry.key].name);
        self.events.push(BookEvent::Valve { message, key, valve });
        ruling
    }

    /// The first delivery of the run, if it is to be accepted.
    fn next_accept(&self, run: u32) -> Option<u32> {
        let at = self.runs[run].deliveries.front()?;
        let entry = &self.entries[at];
        let ready = matches!(entry.state, State::Settling(Plan::Accept)) && !entry.renewing.is_under_way();
        ready.then_some(at)
    }

    /// The plan in the broker's words. A deferral or release is counted here: from now on the message comes again.
    fn verb(&mut self, now: Instant, at: u32, plan: Plan) -> Verb {
        let delay = match plan {
            // One of the latter never comes here.
            Plan::Accept | Plan::Elsewhere => return Verb::Accept,
            Plan::Reject { reason } => return Verb::Reject { reason },
            Plan::Defer { due } => due.saturating_since(now),
            Plan::Release => Duration::ZERO,
            Plan::Unblock => {
                let entry = &self.entries[at];
                self.attempts.change(&entry.message.id, entry.first_received_at, |record| {
                    record.rerun = Some(RerunKind::Dropped);
                });
                return Verb::Release;
            }
        };
        let entry = &self.entries[at];
        let is_kept = self.options.keeps_deferred && !entry.was_emitted && matches!(plan, Plan::Defer { .. });
        self.attempts.change(&entry.message.id, entry.first_received_at, |record| {
            record.ended = record.ended.saturating_add(u32::from(!is_kept));
            record.deferred = record.deferred.saturating_add(delay);
        });
        if matches!(plan, Plan::Release) { Verb::Release } else { Verb::Defer(delay) }
    }
}
