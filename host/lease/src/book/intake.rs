//! How deliveries enter the book, and what happens when a message comes again while it is held.

use std::sync::Arc;

use tidegate_model::{Delivery, Instant, Message};

use super::LeaseBook;
use crate::attempts::Record;
use crate::entry::{Entry, InRun, Links, Place, Plan, State, Work};
use crate::event::{BookEvent, RerunKind, RunEnd};
use crate::list::List;
use crate::wheel::Timing;

/// How a delivery relates to what the book holds.
enum Held {
    /// Its message is not held.
    No,
    /// Another message has the same id: ids are made by producers. The book tells them apart by content, and by
    /// their coming in one receive.
    Namesake,
    /// Its message is held under a newer lease: two receives overtook each other.
    Newer,
    /// Its message is held under an older lease.
    Older(u32),
}

impl LeaseBook {
    /// Begins anew the runs of ordered keys that the broker has begun anew: it hands out something that is held.
    ///
    /// This comes before any of the deliveries is taken in, since what is held may not be the first of them: an
    /// accept that was answered and still lost makes the key begin before all that the host knows of.
    pub(super) fn note_new_beginnings(&mut self, now: Instant, deliveries: &[(Delivery, Arc<str>)]) {
        // Runs of which the first delivery was looked at: a receive is small.
        let mut begun: Vec<u32> = Vec::new();
        for (delivery, _) in deliveries {
            let Some(run) = delivery.order.as_ref().and_then(|order| self.runs.find(order)) else { continue };
            let is_first = !begun.contains(&run);
            if is_first {
                begun.push(run);
            }
            if let Held::Older(at) = self.held(delivery)
                && self.entries[at].run == Some(run)
                && self.entries[at].epoch == self.runs[run].epoch
            {
                if is_first && self.options.may_be_given_back {
                    self.note_given_back(run, at);
                }
                self.end_life(now, run, RunEnd::HandedOutAgain);
            }
        }
    }

    /// The broker begins a run anew with a delivery of it. If a sink is working on that one, then not because of anything that
    /// this host did. It was given back by whoever has its receipt, or one after it was: the broker does not say which, since
    /// it hands out a key from its first open message on. So all that is out of the key is emitted again when it comes.
    fn note_given_back(&mut self, run: u32, at: u32) {
        if !matches!(self.entries[at].state, State::Emitted(_)) {
            return;
        }
        let mut next = self.runs[run].deliveries.front();
        while let Some(at) = next {
            next = List::<InRun>::next(&self.entries, at);
            if let State::Emitted(work) = &mut self.entries[at].state {
                work.given_back = true;
            }
        }
    }

    /// Begins again after [`handle_drain`](Self::handle_drain): grants are given from now on. What is being given back goes
    /// on being given back. Every delivery that was polled for its decision must have its verdict by now.
    pub fn handle_resume(&mut self) {
        self.draining = false;
    }

    pub(super) fn take_in(&mut self, now: Instant, delivery: Delivery, key: Arc<str>) {
        let run = delivery.order.as_ref().map(|order| self.runs.of(order));
        if run.is_some_and(|run| self.ends_in_deferral(run)) {
            self.drop_behind_deferral(&delivery);
            return;
        }
        match self.held(&delivery) {
            Held::No => self.enter(now, delivery, key, run, true),
            Held::Namesake => self.enter(now, delivery, key, run, false),
            Held::Older(at) => self.replace(now, at, delivery, key, run),
            Held::Newer => {
                self.undecided.merged += 1;
                self.note_rerun(&delivery, key, RerunKind::StillHeld);
                if let Some(run) = run {
                    self.runs.tidy(run);
                }
            }
        }
    }

    fn held(&self, delivery: &Delivery) -> Held {
        let Some(at) = self.index.get(&delivery.message.id) else { return Held::No };
        let entry = &self.entries[*at];
        if entry.batch == self.batch
            || entry.order != delivery.order
            || !is_same(&entry.message, &delivery.message)
        {
            Held::Namesake
        } else if delivery.received_at < entry.received_at {
            Held::Newer
        } else {
            Held::Older(*at)
        }
    }

    /// Lets a delivery take the place of an older one of the same message.
    fn replace(&mut self, now: Instant, at: u32, delivery: Delivery, key: Arc<str>, run: Option<u32>) {
        match &self.entries[at].state {
            // Its settlement ends by itself, and may have no effect: this one counts for itself.
            State::Sent { .. } => {
                self.leave_index(at);
                self.enter(now, delivery, key, run, true);
            }
            // Whoever worked on it has had the time that was promised, and counts as lost; or has given it back.
            State::Emitted(work) if work.until <= now || self.is_given_back(work, run) => {
                self.expire(now, at);
                self.enter(now, delivery, key, run, true);
            }
            _ => {
                self.undecided.merged += 1;
                self.note_rerun(&delivery, key, RerunKind::StillHeld);
                self.renew(at, delivery, run);
            }
        }
    }

    /// Whether a message that comes again was given back by whoever works on it. Without order the broker hands out again only
    /// what was given back or what it lost track of; in an ordered key also whatever is behind that.
    const fn is_given_back(&self, work: &Work, run: Option<u32>) -> bool {
        self.options.may_be_given_back && (run.is_none() || work.given_back)
    }

    /// Gives the newest lease to a delivery that is held: one without order, or one that a sink is working on.
    fn renew(&mut self, at: u32, delivery: Delivery, run: Option<u32>) {
        let entry = &mut self.entries[at];
        entry.handle = delivery.handle;
        entry.received_at = delivery.received_at;
        entry.expires_at = delivery.expires_at;
        entry.attempt = entry.attempt.max(delivery.attempt);
        entry.batch = self.batch;
        match &mut entry.state {
            State::Emitted(work) => {
                work.overtaken = false;
                work.replaced = true;
            }
            State::Settling(plan) if *plan == Plan::Elsewhere => *plan = Plan::Accept,
            _ => {}
        }
        self.begin_anew(at, delivery.lease);
        if !matches!(self.entries[at].state, State::Settling(_)) {
            self.set_timer(at);
        }
        if let (Some(run), None) = (run, self.entries[at].run) {
            self.entries[at].run = Some(run);
            self.entries[at].epoch = self.runs[run].epoch;
            self.runs[run].push_back(&mut self.entries, at);
        }
    }

    fn enter(&mut self, now: Instant, delivery: Delivery, key: Arc<str>, run: Option<u32>, indexed: bool) {
        let record = self.record_of(&delivery);
        let attempt = self.count_attempt(&delivery, &key, record);
        let renewing = self.renewing(delivery.expires_at, delivery.lease, record.kept);
        let at = self.entries.insert(|id| Entry {
            id,
            state: State::Received,
            handle: delivery.handle,
            received_at: delivery.received_at,
            first_received_at: record.first_received_at,
            expires_at: delivery.expires_at,
            attempt,
            deferred: record.deferred,
            size_bytes: delivery.message.size_bytes(),
            key: self.keys.begin(now, key),
            order: delivery.order,
            run,
            epoch: run.map_or(0, |run| self.runs[run].epoch),
            batch: self.batch,
            indexed,
            was_emitted: false,
            rejected_by_policy: false,
            place: Place::Received,
            ticket: 0,
            renewing,
            timing: Timing::NONE,
            links: Links::UNLINKED,
            message: delivery.message,
        });
        self.tally.received += 1;
        self.tally.bytes += self.entries[at].size_bytes;
        self.received.push_back(&mut self.entries, at);
        self.set_timer(at);
        if indexed {
            self.index.insert(self.entries[at].message.id.clone(), at);
        }
        if let Some(run) = run {
            self.runs[run].push_back(&mut self.entries, at);
        }
        if self.draining {
            self.settle(now, at, Plan::Release);
        }
    }

    /// What is remembered of the delivery's message, or is to be.
    fn record_of(&self, delivery: &Delivery) -> Record {
        self.attempts.get(&delivery.message.id).unwrap_or(Record::new(delivery.received_at))
    }

    /// The delivery's attempt as the host counts it. Says so when it is not the first.
    fn count_attempt(&mut self, delivery: &Delivery, key: &Arc<str>, record: Record) -> u32 {
        let id = &delivery.message.id;
        let attempt = delivery.attempt.max(record.ended.saturating_add(1));
        if let Some(kind) = record.rerun {
            self.note_rerun(delivery, Arc::clone(key), kind);
            let rest = Record { rerun: None, ..record };
            if rest == Record::new(record.first_received_at) {
                self.attempts.remove(id);
            } else {
                self.attempts.change(id, record.first_received_at, |record| *record = rest);
            }
        } else if attempt > 1 {
            self.events.push(BookEvent::Redelivered { message: id.clone(), key: Arc::clone(key), attempt });
        }
        attempt
    }

    /// Whether whatever comes to the run now will come again after what it ends in.
    fn ends_in_deferral(&self, run: u32) -> bool {
        let last = self.runs[run].deliveries.back();
        last.is_some_and(|at| matches!(&self.entries[at].state, State::Settling(plan) if plan.comes_again()))
    }

    fn drop_behind_deferral(&mut self, delivery: &Delivery) {
        self.undecided.dropped += 1;
        self.attempts.change(&delivery.message.id, delivery.received_at, |record| {
            record.rerun.get_or_insert(RerunKind::Dropped);
        });
        if let Some(order) = &delivery.order {
            let order = Arc::clone(order);
            self.events.push(BookEvent::RunEnded {
                order,
                cause: RunEnd::Deferred,
                dropped: 1,
                overtaken: 0,
            });
        }
    }

    fn note_rerun(&mut self, delivery: &Delivery, key: Arc<str>, kind: RerunKind) {
        self.events.push(BookEvent::Rerun { message: delivery.message.id.clone(), key, kind });
    }
}

/// Whether two messages with one id are one message.
fn is_same(one: &Arc<Message>, other: &Arc<Message>) -> bool {
    Arc::ptr_eq(one, other) || (one.born_at == other.born_at && one.body == other.body)
}
