//! The book: what goes in, what comes out.

mod endings;
mod intake;
mod renewing;
mod settling;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tidegate_model::{
    Capacity, Delivery, DeliveryId, Emission, Handle, Instant, Message, MessageId, Outcome, Report,
    SettleError, Settlement, Standing, Verdict,
};

use crate::attempts::Attempts;
use crate::entry::{ENTRIES_MAX, Entries, InQueue, InRenewal, Place, State, Work};
use crate::event::{BookEvent, Events};
use crate::keys::Keys;
use crate::list::List;
use crate::options::{Options, Valves};
use crate::recent::Recent;
use crate::renewal::{Flight, RenewalOptions, Renewals};
use crate::rounds::Rounds;
use crate::run::Runs;
use crate::wheel::Wheel;

/// One flow's deliveries in flight.
///
/// Call the `handle_*` methods with what happened, then drain the `poll_*` methods until they give `None`: decide,
/// renew, emit, settle, and last receive, since the others may free room. Then wait for the next happening or
/// [`poll_timeout`](Self::poll_timeout).
/// `now` must never go back; it may jump ahead.
///
/// # What it promises
/// * A delivery is settled `accept` only after its sink reported it accepted, or the policy discarded it.
/// * Whatever is received is settled, or left to the end of its lease; then the broker hands it out again. Nothing is
///   forgotten while its lease is ours, but for deliveries of an ordered key behind one that will come again: they
///   come again with it.
/// * First emissions of an ordered key are in order, and its settlements go out in that order, one batch at a time.
/// * A lease that ran out is not used for an emission, a renewal or a report, and the late report is told so. An outcome
///   that came in time and had to wait for its predecessors is still told to the broker, which knows if it counts.
///
/// # Renewal
/// Off until [`handle_renewal_options`](Self::handle_renewal_options) turns it on, which may be done at any time. From
/// then on, after every input:
/// 1. take each question from [`poll_renew`](Self::poll_renew), ask the renewal policy, and give its answer to
///    [`handle_renewal`](Self::handle_renewal), at once or later;
/// 2. send what [`poll_settle`](Self::poll_settle) or [`poll_settle_batch`](Self::poll_settle_batch) gives, as ever:
///    renewals come out of them as settlements with [`Verb::Renew`](tidegate_model::Verb::Renew);
/// 3. give each result to [`handle_settled`](Self::handle_settled), as ever, with the new handle.
///
/// [`poll_timeout`](Self::poll_timeout) names the moment of the next question as well. While a delivery is being renewed it is not
/// emitted, and its settlement waits: then the newest handle is known. A report by id settles with the newest handle,
/// so an emission stays valid through any number of renewals.
///
/// # A message that comes again while it is held
/// The newest lease counts. If no sink has the message, the new delivery simply replaces the old one. If a sink is
/// working on it, the message is not emitted again: the new lease goes to that work, and settles it. But work can be
/// lost, and a lease that is replaced again and again would hide that for ever; so this holds only until the end of
/// the lease that the sink was told of. A message that comes again after that is emitted again.
///
/// Where receipts leave the host ([`Options::may_be_given_back`]) the message may come again because whoever works on it gave
/// it back to the broker. Then the work's lease counts as ended, its report comes too late, and the message is emitted
/// again at once: without order whenever it comes again, in an ordered key when the broker begins the key anew with a
/// message that a sink is working on, and then all of the key that is out. The broker does the same when it restarts and
/// forgets who holds what; then work is done twice for which nobody asked, which *at least once* allows.
#[derive(Debug)]
pub struct LeaseBook {
    options: Options,
    /// Deliveries that may be open; see [`handle_demand`](Self::handle_demand).
    open_max: usize,
    draining: bool,
    entries: Entries,
    /// Deliveries by message. Never iterated over, so that its unseeded hasher cannot influence what the book does.
    index: HashMap<MessageId, u32>,
    keys: Keys,
    rounds: Rounds,
    runs: Runs,
    wheel: Wheel,
    attempts: Attempts,
    expired: Recent,
    received: List<InQueue>,
    ready: List<InQueue>,
    renewal: Option<RenewalOptions>,
    renewals_due: List<InRenewal>,
    renewals_planned: List<InRenewal>,
    /// Questions that are out. Never iterated over.
    asked: HashSet<DeliveryId>,
    /// Renewals that the settler has. Never iterated over.
    flights: HashMap<DeliveryId, Flight>,
    renewals: Renewals,
    batch: u64,
    granted: Capacity,
    tally: Tally,
    undecided: Undecided,
    events: Events,
}

/// A delivery that waits for its verdict.
#[derive(Clone, Debug)]
pub struct Decide {
    /// Comes back with the verdict.
    pub id: DeliveryId,
    /// What to decide about.
    pub message: Arc<Message>,
    /// What fairness is counted by.
    pub key: Arc<str>,
    /// The attempt as the host counts it, from 1.
    pub attempt: u32,
    /// Since the host received it.
    pub waited: Duration,
    /// By how much it has been deferred so far, in sum.
    pub deferred: Duration,
    /// How its key stands in the flow now.
    pub standing: Standing,
}

/// The truthful answer to whoever reports an outcome.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Taken {
    /// It will be told to the broker as soon as order allows.
    Yes,
    /// The lease had run out: the message comes again, or has come again already.
    LeaseExpired,
    /// An earlier message of its ordered key will come again, and with it this one: the outcome is not settled.
    Overtaken,
    /// There is no such work: never emitted, or already reported.
    Unknown,
}

/// What the book holds now.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Deliveries held, in whatever state.
    pub in_flight: usize,
    /// Bytes held.
    pub in_flight_bytes: usize,
    /// Room reserved for receives that are under way.
    pub granted: Capacity,
    /// Deliveries that wait for their decision.
    pub received: usize,
    /// Deliveries whose decision is being made.
    pub deciding: usize,
    /// Accepted deliveries that wait for the sink.
    pub queued: usize,
    /// Deliveries that a sink is working on, overtaken ones included.
    pub emitted: usize,
    /// Deliveries whose outcome is known and that the settler does not have yet.
    pub settling: usize,
    /// Deliveries that the settler has.
    pub sent: usize,
    /// Renewals that the settler has. Their deliveries are in whatever state, or gone.
    pub renewing: usize,
    /// Renewals since the beginning.
    pub renewals: Renewals,
    /// Keys whose facts are kept.
    pub keys: usize,
    /// Keys with something in flight now or within the last ten seconds.
    pub active_keys: usize,
    /// Ordered keys with something in flight.
    pub ordered_keys: usize,
    /// Messages whose attempts are remembered.
    pub tracked_messages: usize,
    /// Emissions whose lease ran out and that nobody has reported yet.
    pub expired_emissions: usize,
    /// Deliveries that left before anybody was asked about them, since the beginning.
    pub undecided: Undecided,
    /// Events that nobody drained in time.
    pub events_lost: u64,
}

/// Deliveries that left before anybody was asked about them, by why. Every delivery handed in is polled once for its
/// decision, waits for that, or is one of these.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Undecided {
    /// An earlier one of their ordered key comes again, and they with it.
    pub dropped: u64,
    /// Their lease ran out.
    pub expired: u64,
    /// Their message is held already: they only renewed its lease.
    pub merged: u64,
    /// Given back by a drain or a renewal policy.
    pub released: u64,
}

/// Deliveries by state, and their bytes.
#[derive(Debug, Default)]
struct Tally {
    received: usize,
    deciding: usize,
    queued: usize,
    emitted: usize,
    settling: usize,
    sent: usize,
    bytes: usize,
}

impl LeaseBook {
    /// An empty book.
    #[must_use]
    pub fn new(mut options: Options, now: Instant) -> Self {
        options.budget_messages = options.budget_messages.min(ENTRIES_MAX);
        Self {
            open_max: options.budget_messages,
            draining: false,
            entries: Entries::default(),
            index: HashMap::new(),
            keys: Keys::new(options.keys_max, options.seed),
            rounds: Rounds::default(),
            runs: Runs::default(),
            wheel: Wheel::new(now),
            attempts: Attempts::new(options.tracked_messages_max),
            expired: Recent::new(options.budget_messages),
            received: List::default(),
            ready: List::default(),
            renewal: None,
            renewals_due: List::default(),
            renewals_planned: List::default(),
            asked: HashSet::new(),
            flights: HashMap::new(),
            renewals: Renewals::default(),
            batch: 0,
            granted: Capacity::default(),
            tally: Tally::default(),
            undecided: Undecided::default(),
            events: Events::default(),
            options,
        }
    }

    // === inputs ===

    /// Takes what a receive brought, each delivery with its fairness key, and ends the receive's grant, whatever came
    /// of it: a failed receive hands in nothing.
    pub fn handle_received(
        &mut self,
        now: Instant,
        granted: Capacity,
        deliveries: Vec<(Delivery, Arc<str>)>,
    ) {
        self.end_grant(granted);
        if deliveries.len() > granted.messages {
            self.bug("a receive brought more than it was granted", None);
        }
        self.expire_due(now);
        self.batch += 1;
        self.note_new_beginnings(now, &deliveries);
        for (delivery, key) in deliveries {
            self.take_in(now, delivery, key);
        }
    }

    /// Takes the policy's verdict on a delivery from [`poll_decide`](Self::poll_decide). One that is gone meanwhile,
    /// or given back by a drain, needs none: then nothing happens.
    pub fn handle_verdict(&mut self, now: Instant, id: DeliveryId, verdict: Verdict) {
        let Some(at) = self.entries.find(id) else {
            if !self.entries.was_issued(id) {
                self.bug("a verdict on a delivery that never was", Some(id));
            }
            return;
        };
        match self.entries[at].state {
            State::Deciding if self.has_ended(now, at) => self.expire(now, at),
            State::Deciding => self.follow(now, at, verdict),
            _ if self.draining => {}
            _ => self.bug("a verdict on a delivery that was not being decided", Some(id)),
        }
    }

    /// Takes the outcome of an emission. The answer is for whoever asked: an outcome that cannot be settled any more
    /// is never answered with a yes.
    pub fn handle_report(&mut self, now: Instant, report: Report) -> Taken {
        let Some(at) = self.entries.find(report.id) else {
            return if self.expired.remove(report.id) { Taken::LeaseExpired } else { Taken::Unknown };
        };
        let State::Emitted(work) = self.entries[at].state else {
            // A second report is the worker's business. One before the emission cannot be the worker's.
            if !matches!(self.entries[at].state, State::Settling(_) | State::Sent { .. }) {
                self.bug("a report on a delivery that was not emitted", Some(report.id));
            }
            return Taken::Unknown;
        };
        if self.has_ended(now, at) {
            self.expire(now, at);
            self.expired.remove(report.id);
            return Taken::LeaseExpired;
        }
        let cost = report.cost.unwrap_or_else(|| now.saturating_since(work.began_at).as_secs_f64());
        self.keys.add_work(now, self.entries[at].key, cost);
        if matches!(report.outcome, Outcome::Accepted | Outcome::Elsewhere) {
            self.keys.add_finished(now);
        }
        if work.overtaken {
            self.drop_overtaken(now, at);
            return Taken::Overtaken;
        }
        self.conclude(now, at, report.outcome);
        Taken::Yes
    }

    /// Takes the result of a settlement from [`poll_settle`](Self::poll_settle) or
    /// [`poll_settle_batch`](Self::poll_settle_batch). Every settlement polled must get one, in whatever order: until
    /// then it counts as on its way.
    ///
    /// A renewal's handle is kept in place of the old one. The handle that a deferral may come back with is of no use any
    /// more, since the delivery is gone.
    pub fn handle_settled(
        &mut self,
        now: Instant,
        id: DeliveryId,
        result: Result<Option<Handle>, SettleError>,
    ) {
        if let Some(flight) = self.flights.remove(&id) {
            self.land(now, id, flight, result);
            return;
        }
        let sent = self.entries.find(id).filter(|at| matches!(self.entries[*at].state, State::Sent { .. }));
        match sent {
            Some(at) => self.end_settlement(now, at, result.err()),
            None => self.bug("a result for a settlement that was not on its way", Some(id)),
        }
    }

    /// Lets leases run out. Calling it early does nothing.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.expire_due(now);
    }

    /// Changes the safety valves from the next verdict or report on.
    pub fn handle_valves(&mut self, valves: Valves) {
        self.options.valves = valves;
    }

    /// Changes how many deliveries may be open from the next grant on: received and not yet reported by a sink, or settled
    /// by the policy. What is held already stays, and what is being settled does not count, so that a slow broker does not
    /// keep the sink from its work. Beside it the budget goes on to bound all that is held; at first that is all there is.
    pub fn handle_demand(&mut self, open_max: usize) {
        self.open_max = open_max;
    }

    /// Begins the end: no more grants, what is not emitted goes back to the broker at once, what is gets finished.
    pub fn handle_drain(&mut self, now: Instant) {
        if !std::mem::replace(&mut self.draining, true) {
            self.release_all(now);
        }
    }

    // === outputs ===

    /// Reserves room for one receive. `None` means: do not ask now.
    ///
    /// The bytes granted are the messages' share of the byte budget, as far as that is free, so that several receives
    /// at once share it evenly.
    pub fn poll_receive(&mut self, _now: Instant) -> Option<Capacity> {
        let Options { budget_messages, budget_bytes, receive_batch_max, .. } = self.options;
        let held = self.entries.len() + self.granted.messages;
        let open = held - (self.tally.settling + self.tally.sent);
        let free_messages = budget_messages.saturating_sub(held).min(self.open_max.saturating_sub(open));
        let free_bytes = budget_bytes.saturating_sub(self.tally.bytes + self.granted.bytes);
        let messages = free_messages.min(receive_batch_max);
        if self.draining || messages == 0 || free_bytes == 0 {
            return None;
        }
        let share = budget_bytes.div_ceil(budget_messages).saturating_mul(messages);
        let grant = Capacity { messages, bytes: share.min(free_bytes) };
        self.granted.messages += grant.messages;
        self.granted.bytes += grant.bytes;
        Some(grant)
    }

    /// The next delivery to decide about, in the order received.
    pub fn poll_decide(&mut self, now: Instant) -> Option<Decide> {
        loop {
            let at = self.received.front()?;
            if self.has_ended(now, at) {
                self.expire(now, at);
                continue;
            }
            self.keys.age(now);
            self.leave_queue(at);
            self.set_state(at, State::Deciding);
            return Some(self.decide(now, at));
        }
    }

    /// The next accepted delivery, which then counts as emitted. Call it only while the sink has room.
    pub fn poll_emit(&mut self, now: Instant) -> Option<Emission> {
        loop {
            let at = self.rounds.pop(&mut self.keys, &mut self.entries)?;
            if self.has_ended(now, at) {
                self.expire(now, at);
                continue;
            }
            if self.entries[at].renewing.is_under_way() {
                self.entries[at].renewing.turn_missed = true;
                continue;
            }
            let entry = &self.entries[at];
            let work = Work {
                began_at: now,
                until: entry.expires_at,
                overtaken: false,
                given_back: false,
                replaced: false,
            };
            self.set_state(at, State::Emitted(work));
            self.entries[at].was_emitted = true;
            self.offer_next(at);
            let entry = &self.entries[at];
            return Some(Emission {
                id: entry.id,
                message: Arc::clone(&entry.message),
                key: Arc::clone(&self.keys[entry.key].name),
                order: entry.order.clone(),
                attempt: entry.attempt,
                handle: entry.handle.clone(),
                received_at: entry.received_at,
                expires_at: entry.expires_at,
                dead_letter: None,
            });
        }
    }

    /// The next settlement, which then counts as on its way: a batch of one. See
    /// [`poll_settle_batch`](Self::poll_settle_batch).
    pub fn poll_settle(&mut self, now: Instant) -> Option<Settlement> {
        self.next_settlement(now, None)
    }

    /// Moves at most `room` settlements to the end of `batch`; they then count as on their way.
    ///
    /// Several of one ordered key may be in one batch, in order: the settler must tell them in that order. No more of
    /// that key are given out until each of them has its result, so batches may be on their way side by side.
    pub fn poll_settle_batch(&mut self, now: Instant, room: usize, batch: &mut Vec<Settlement>) {
        let mut run = None;
        for _ in 0..room {
            let Some(settlement) = self.next_settlement(now, run) else { return };
            run = self.run_on_way(&settlement);
            batch.push(settlement);
        }
    }

    /// When to call [`handle_timeout`](Self::handle_timeout), if nothing else happens: a lease ends then, or is to be
    /// asked about.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.wheel.next_deadline()
    }

    /// The next thing that happened beside the regular road.
    pub fn poll_event(&mut self) -> Option<BookEvent> {
        self.events.pop()
    }

    /// Whether a drain was asked for and is over: nothing held, no receive and no renewal under way.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.draining && self.entries.len() == 0 && self.granted.messages == 0 && self.flights.is_empty()
    }

    /// What the book holds now.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts {
            in_flight: self.entries.len(),
            in_flight_bytes: self.tally.bytes,
            granted: self.granted,
            received: self.tally.received,
            deciding: self.tally.deciding,
            queued: self.tally.queued,
            emitted: self.tally.emitted,
            settling: self.tally.settling,
            sent: self.tally.sent,
            renewing: self.flights.len(),
            renewals: self.renewals,
            keys: self.keys.len(),
            active_keys: self.keys.active() as usize,
            ordered_keys: self.runs.len(),
            tracked_messages: self.attempts.len(),
            expired_emissions: self.expired.len(),
            undecided: self.undecided,
            events_lost: self.events.lost(),
        }
    }

    /// How a key stands in the flow now.
    #[must_use]
    pub fn standing(&self, now: Instant, key: &str) -> Standing {
        self.with_flow(self.keys.standing(now, key))
    }

    /// Deliveries that the sink finishes in a second, over the last ten.
    #[must_use]
    pub fn throughput(&self, now: Instant) -> f64 {
        self.keys.throughput(now)
    }

    // === shared by the parts ===

    /// What is known of a delivery, for whoever decides about it.
    fn decide(&self, now: Instant, at: u32) -> Decide {
        let entry = &self.entries[at];
        Decide {
            id: entry.id,
            message: Arc::clone(&entry.message),
            key: Arc::clone(&self.keys[entry.key].name),
            attempt: entry.attempt,
            waited: now.saturating_since(entry.received_at),
            deferred: entry.deferred,
            standing: self.with_flow(self.keys.standing_at(now, entry.key)),
        }
    }

    /// A key's facts, and those of the flow that only the book knows.
    fn with_flow(&self, standing: Standing) -> Standing {
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Standing {
            flow_budget: count(self.reach()),
            flow_queued: count(self.tally.queued),
            flow_emitted: count(self.tally.emitted),
            ..standing
        }
    }

    /// Deliveries that the flow may hold as things are.
    fn reach(&self) -> usize {
        self.options.budget_messages.min(self.open_max)
    }

    fn end_grant(&mut self, granted: Capacity) {
        if granted.messages > self.granted.messages || granted.bytes > self.granted.bytes {
            self.bug("a grant was ended that was not given", None);
        }
        self.granted.messages = self.granted.messages.saturating_sub(granted.messages);
        self.granted.bytes = self.granted.bytes.saturating_sub(granted.bytes);
    }

    fn set_state(&mut self, at: u32, state: State) -> State {
        *self.tally.of(&state) += 1;
        let old = std::mem::replace(&mut self.entries[at].state, state);
        *self.tally.of(&old) -= 1;
        old
    }

    /// Takes the entry out of whatever queue it waits in.
    fn leave_queue(&mut self, at: u32) {
        match std::mem::replace(&mut self.entries[at].place, Place::Nowhere) {
            Place::Nowhere => {}
            Place::Received => self.received.remove(&mut self.entries, at),
            Place::Ready => self.ready.remove(&mut self.entries, at),
            Place::Key => self.rounds.remove(&mut self.keys, &mut self.entries, at),
        }
    }

    fn bug(&mut self, what: &'static str, id: Option<DeliveryId>) {
        self.events.push(BookEvent::Bug { what, id });
    }
}

impl Tally {
    const fn of(&mut self, state: &State) -> &mut usize {
        match state {
            State::Received => &mut self.received,
            State::Deciding => &mut self.deciding,
            State::Queued => &mut self.queued,
            State::Emitted(_) => &mut self.emitted,
            State::Settling(_) => &mut self.settling,
            State::Sent { .. } => &mut self.sent,
        }
    }
}

#[cfg(test)]
mod tests;
