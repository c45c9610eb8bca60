//! Who gets what: one flow's workers, what they hold, and what they said of it, without I/O.
//!
//! The dispatcher takes emissions, workers that come and go, their credits and settlements (`handle_*`), and gives
//! deliveries, reports to the flow, answers to settlements (`poll_*`). It promises:
//! * an emission is with one worker at most, and reported to the flow exactly once;
//! * no worker holds more than its credits, but for a single message that is larger than all of them;
//! * what a worker held when it left is released at once;
//! * each settlement is answered exactly once, and never with a *done* that the broker did not give;
//! * emissions of one ordered key reach a worker in order.

mod finished;
mod worker;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use slab::Slab;
use tidegate_connector::{Notice, RenewError, RenewalWish, Reports, VoidCause};
use tidegate_model::{DeliveryId, Emission, Instant, MessageId, Outcome, Report, Routing, SettleFault};

pub(crate) use self::finished::Kind;
use self::finished::{End, Finished};
use self::worker::Worker;
pub(crate) use self::worker::{Credits, WorkerView};

/// A worker's name within one flow, not used again while anybody may mean it.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct WorkerId(u64);

/// Comes back with the answer to a settlement or a renewal.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct Ticket(pub(crate) u64);

/// Which delivery is meant. The message and the handle tell it from one of the host's earlier life that had the same
/// name.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Claim {
    pub(crate) delivery: DeliveryId,
    pub(crate) message: MessageId,
    pub(crate) handle: Arc<str>,
}

/// The answer to a settlement.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Answer {
    /// The broker took it.
    Done,
    /// Its lease had ended.
    Expired(&'static str),
    /// It was settled otherwise before.
    Otherwise(Kind),
    /// The broker was asked and refused.
    Refused(Box<str>),
    /// The broker could not be told.
    RetryLater(Box<str>),
    /// Not one of this dispatcher's, or forgotten since.
    NotHere,
}

/// The answer to a renewal.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum RenewalAnswer {
    /// The lease ends then.
    Until(Instant),
    /// It cannot be kept.
    Failed(Answer),
}

/// How a flow hands out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    /// Whether a delivery is accepted when it was handed over.
    pub(crate) accepts_on_delivery: bool,
    /// Whether messages of one key stay with one worker while it holds any of them.
    pub(crate) key_affinity: bool,
    /// The most that workers may hold in all.
    pub(crate) held_max: usize,
    /// Whether only the host that gave a message out can settle it.
    pub(crate) owner_settles: fn(&Routing) -> bool,
}

/// Settlements of one delivery that wait for the same answer. A worker that asks more often than this is wrong.
const TICKETS_PER_DELIVERY_MAX: usize = 16;

/// One flow's workers and what they hold.
#[derive(Debug)]
pub(crate) struct Dispatcher {
    options: Options,
    workers: Slab<Worker>,
    joined: u64,
    /// Emissions that no worker has yet, in order: each kept only while somebody may come and take it.
    waiting: VecDeque<Emission>,
    held: HashMap<DeliveryId, Held>,
    /// Which worker holds messages of a key, and how many. Only with key affinity.
    homes: HashMap<Arc<str>, (WorkerId, usize)>,
    finished: Finished,
    /// Emissions that the flow waits for.
    unreported: usize,
    draining: bool,
    deliveries: VecDeque<(WorkerId, Arc<Emission>)>,
    lost: VecDeque<(WorkerId, Arc<Emission>)>,
    reports: Vec<Report>,
    wishes: Vec<RenewalWish>,
    answers: VecDeque<(Ticket, Answer)>,
    renewed: VecDeque<(Ticket, RenewalAnswer)>,
}

/// A delivery that a worker has, or had when its stream was not bound to it.
#[derive(Debug)]
struct Held {
    emission: Arc<Emission>,
    size_bytes: usize,
    /// `None` for one that was pulled: nobody's leaving releases it.
    worker: Option<WorkerId>,
    state: State,
    /// Renewals that wait for their answer.
    renewals: Vec<Ticket>,
}

#[derive(Debug)]
enum State {
    /// The worker is at it.
    Out,
    /// The flow was told that it is accepted, and the worker is at it.
    Given,
    /// The worker settled it, and the broker has not answered.
    Settling { kind: Kind, tickets: Vec<Ticket> },
    /// Its lease ended while the worker was at it: its place is taken until the worker says something.
    Lapsed,
}

impl Dispatcher {
    pub(crate) fn new(options: Options) -> Self {
        Self {
            options,
            workers: Slab::new(),
            joined: 0,
            waiting: VecDeque::new(),
            held: HashMap::new(),
            homes: HashMap::new(),
            finished: Finished::default(),
            unreported: 0,
            draining: false,
            deliveries: VecDeque::new(),
            lost: VecDeque::new(),
            reports: Vec::new(),
            wishes: Vec::new(),
            answers: VecDeque::new(),
            renewed: VecDeque::new(),
        }
    }

    // === workers ===

    /// A worker comes.
    pub(crate) fn handle_join(&mut self, name: Arc<str>, credits: Credits) -> WorkerId {
        let slot = self.workers.vacant_entry();
        self.joined += 1;
        let id = WorkerId(self.joined << SLOT_BITS | slot.key() as u64);
        slot.insert(Worker::new(id, name, credits));
        self.dispatch();
        id
    }

    /// A worker's credits change.
    pub(crate) fn handle_credits(&mut self, id: WorkerId, credits: Credits) {
        if let Some(worker) = self.worker_mut(id) {
            worker.credits = credits;
            self.dispatch();
        }
    }

    /// A worker is gone: what it holds is released.
    pub(crate) fn handle_leave(&mut self, id: WorkerId) {
        self.deliveries.retain(|(to, _)| *to != id);
        for delivery in self.take_worker(id) {
            let Some(held) = self.held.get_mut(&delivery) else { continue };
            held.worker = None;
            match held.state {
                State::Out => {
                    self.report(delivery, Outcome::Released, None);
                    self.finish(delivery, Kind::Release, End::Pending);
                }
                State::Given | State::Lapsed => self.drop_held(delivery),
                // The broker's answer is still wanted: settlements outlive streams.
                State::Settling { .. } => {}
            }
        }
        self.let_go_when_alone();
        self.dispatch();
    }

    /// A pull has its answer: what it got is held by nobody in particular, until it is settled or its lease ends.
    pub(crate) fn handle_detach(&mut self, id: WorkerId) {
        for delivery in self.take_worker(id) {
            if let Some(held) = self.held.get_mut(&delivery) {
                held.worker = None;
                if matches!(held.state, State::Given | State::Lapsed) {
                    self.drop_held(delivery);
                }
            }
        }
        self.let_go_when_alone();
        self.dispatch();
    }

    // === the flow ===

    /// Emissions to hand out.
    pub(crate) fn handle_emissions(&mut self, emissions: Vec<Emission>) {
        self.unreported += emissions.len();
        self.waiting.extend(emissions);
        self.let_go_when_alone();
        self.dispatch();
    }

    /// What became of emissions.
    pub(crate) fn handle_notice(&mut self, notice: Notice) {
        match notice {
            Notice::Settled { id, result } => {
                let answer = match result {
                    Ok(()) => Answer::Done,
                    Err(error) => match error.fault {
                        SettleFault::LeaseGone => Answer::Expired("the broker had taken the lease back"),
                        SettleFault::Broker => Answer::RetryLater(error.to_string().into()),
                        SettleFault::Refused => Answer::Refused(error.to_string().into()),
                    },
                };
                self.conclude(id, &answer);
            }
            Notice::Void { id, cause } => self.conclude(
                id,
                &Answer::Expired(match cause {
                    VoidCause::LeaseExpired => "the lease had ended",
                    VoidCause::Overtaken => "an earlier message of its key comes again, and this one with it",
                    VoidCause::Unknown => "the host does not hold it any more",
                }),
            ),
            Notice::Expired { id } => self.expire(id),
            Notice::Renewed { id, result } => self.conclude_renewals(id, &result),
            Notice::Draining => {
                self.draining = true;
                self.let_go_waiting();
            }
        }
        self.dispatch();
    }

    // === settlements ===

    /// A worker says how one ended. The answer comes out of [`poll_answer`](Self::poll_answer).
    pub(crate) fn handle_settlement(
        &mut self,
        ticket: Ticket,
        claim: &Claim,
        outcome: Outcome,
        cost: Option<f64>,
    ) {
        let kind = Kind::of(&outcome);
        let delivery = claim.delivery;
        let Some(held) = self.held.get_mut(&delivery).filter(|held| held.is(claim)) else {
            let answer = self.finished.answer(claim, kind).unwrap_or(Answer::NotHere);
            self.answers.push_back((ticket, answer));
            return;
        };
        match &mut held.state {
            State::Out => {
                held.state = State::Settling { kind, tickets: vec![ticket] };
                // It has its place again before the broker has answered: the work is over.
                self.free_place(delivery);
                self.report(delivery, outcome, cost);
                self.dispatch();
            }
            State::Given => {
                self.finish(delivery, Kind::Accept, End::Done);
                let answer = if kind == Kind::Accept {
                    Answer::Done
                } else {
                    // It was accepted when it was handed over.
                    Answer::Otherwise(Kind::Accept)
                };
                self.answers.push_back((ticket, answer));
                self.dispatch();
            }
            State::Settling { kind: first, tickets } if *first == kind => {
                if tickets.len() < TICKETS_PER_DELIVERY_MAX {
                    tickets.push(ticket);
                } else {
                    let answer = Answer::RetryLater("it is being settled already".into());
                    self.answers.push_back((ticket, answer));
                }
            }
            State::Settling { kind: first, .. } => {
                let answer = Answer::Otherwise(*first);
                self.answers.push_back((ticket, answer));
            }
            State::Lapsed => {
                self.finish(delivery, kind, End::Expired);
                self.answers.push_back((ticket, Answer::Expired("the lease had ended")));
                self.dispatch();
            }
        }
    }

    /// A worker is done with one and has another host accept it: it is let go of, and its worker's leaving does not release it.
    pub(crate) fn handle_elsewhere(&mut self, claim: &Claim) {
        let delivery = claim.delivery;
        let Some(held) = self.held.get(&delivery).filter(|held| held.is(claim)) else { return };
        match held.state {
            // The other host will pass it on to this one, which alone can settle it.
            State::Out if (self.options.owner_settles)(&held.emission.handle.routing) => {
                self.free_place(delivery);
            }
            State::Out => {
                self.report(delivery, Outcome::Elsewhere, None);
                // Should it be settled here all the same, the broker is asked.
                self.finish(delivery, Kind::Accept, End::Open);
            }
            State::Given => self.finish(delivery, Kind::Accept, End::Done),
            State::Lapsed => self.finish(delivery, Kind::Accept, End::Expired),
            // It was settled here first.
            State::Settling { .. } => return,
        }
        self.dispatch();
    }

    /// A worker needs more time. The answer comes out of [`poll_renewed`](Self::poll_renewed).
    pub(crate) fn handle_renewal(&mut self, ticket: Ticket, claim: &Claim, length: Duration) {
        let held = self.held.get_mut(&claim.delivery).filter(|held| held.is(claim));
        let refusal = match held {
            None => Some(self.finished.answer(claim, Kind::Renew).unwrap_or(Answer::NotHere)),
            Some(held) => match &held.state {
                State::Out if held.renewals.is_empty() => {
                    held.renewals.push(ticket);
                    self.wishes.push(RenewalWish { id: claim.delivery, length });
                    None
                }
                State::Out if held.renewals.len() < TICKETS_PER_DELIVERY_MAX => {
                    held.renewals.push(ticket);
                    None
                }
                State::Out => Some(Answer::RetryLater("it is being renewed already".into())),
                State::Given => Some(Answer::Otherwise(Kind::Accept)),
                State::Settling { kind, .. } => Some(Answer::Otherwise(*kind)),
                State::Lapsed => Some(Answer::Expired("the lease had ended")),
            },
        };
        if let Some(refusal) = refusal {
            self.renewed.push_back((ticket, RenewalAnswer::Failed(refusal)));
        }
    }

    /// A delivery whose lease ended had not been written to its worker, which never hears of it.
    pub(crate) fn handle_unwritten(&mut self, delivery: DeliveryId) {
        if self.held.get(&delivery).is_some_and(|held| matches!(held.state, State::Lapsed)) {
            self.finish(delivery, Kind::Release, End::Expired);
            self.dispatch();
        }
    }

    /// A delivery of a flow that accepts on delivery was written to its worker.
    pub(crate) fn handle_written(&mut self, delivery: DeliveryId) {
        let accepts = self.options.accepts_on_delivery;
        let Some(held) = self.held.get_mut(&delivery).filter(|_| accepts) else { return };
        if !matches!(held.state, State::Out) {
            return;
        }
        if held.worker.is_some() {
            held.state = State::Given;
            self.report(delivery, Outcome::Accepted, None);
        } else {
            // Pulled: there is nobody whose place it takes.
            self.report(delivery, Outcome::Accepted, None);
            self.finish(delivery, Kind::Accept, End::Done);
        }
    }

    // === outputs ===

    /// The next delivery, and to whom.
    pub(crate) fn poll_delivery(&mut self) -> Option<(WorkerId, Arc<Emission>)> {
        self.deliveries.pop_front()
    }

    /// The next worker to be told that a lease of its ended.
    pub(crate) fn poll_lost(&mut self) -> Option<(WorkerId, Arc<Emission>)> {
        self.lost.pop_front()
    }

    /// What the flow is to be told now, if anything.
    pub(crate) fn poll_reports(&mut self) -> Option<Reports> {
        if self.reports.is_empty() && self.wishes.is_empty() {
            return None;
        }
        let (ended, renewals) = (std::mem::take(&mut self.reports), std::mem::take(&mut self.wishes));
        Some(Reports { ended, renewals })
    }

    /// The next answer to a settlement.
    pub(crate) fn poll_answer(&mut self) -> Option<(Ticket, Answer)> {
        self.answers.pop_front()
    }

    /// The next answer to a renewal.
    pub(crate) fn poll_renewed(&mut self) -> Option<(Ticket, RenewalAnswer)> {
        self.renewed.pop_front()
    }

    /// The most that the flow may have unreported now: what it has, and what workers have room for.
    pub(crate) fn limit(&self) -> usize {
        if self.draining {
            return self.unreported;
        }
        let room: usize = self.workers.iter().map(|(_, worker)| worker.room()).sum();
        // What waits for a worker takes the room of the others only once it is theirs.
        let waiting = self.waiting.len();
        (self.unreported + room.saturating_sub(waiting)).min(self.options.held_max.max(self.unreported))
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining
    }

    /// Emissions that workers have.
    pub(crate) fn held(&self) -> usize {
        self.held.len()
    }

    /// Workers, for people.
    pub(crate) fn workers(&self) -> impl Iterator<Item = WorkerView> {
        self.workers.iter().map(|(_, worker)| worker.view())
    }

    // === the parts ===

    /// Gives what waits to the workers with room.
    fn dispatch(&mut self) {
        let mut passed_over = VecDeque::new();
        // Ordered keys of which one was passed over: those behind it must not go before it.
        let mut blocked: Vec<Arc<str>> = Vec::new();
        while let Some(emission) = self.waiting.pop_front() {
            if emission.order.as_ref().is_some_and(|order| blocked.contains(order)) {
                passed_over.push_back(emission);
                continue;
            }
            match self.choose(&emission) {
                Some(worker) => self.hand_over(worker, emission),
                None => {
                    let home = self.options.key_affinity && self.homes.contains_key(&emission.key);
                    blocked.extend(emission.order.clone());
                    passed_over.push_back(emission);
                    if !home && self.workers.iter().all(|(_, worker)| worker.room() == 0) {
                        break;
                    }
                }
            }
        }
        passed_over.append(&mut self.waiting);
        self.waiting = passed_over;
    }

    /// The worker that holds the key, or the one with the smallest part of its credits in use; of equals the one that
    /// was served longest ago.
    fn choose(&self, emission: &Emission) -> Option<WorkerId> {
        let size = emission.message.size_bytes();
        if self.options.key_affinity
            && let Some((home, _)) = self.homes.get(&emission.key)
        {
            return self.worker(*home).filter(|worker| worker.takes(size)).map(|worker| worker.id);
        }
        let able = self.workers.iter().map(|(_, worker)| worker).filter(|worker| worker.takes(size));
        able.min_by(|a, b| a.load().total_cmp(&b.load()).then(a.served.cmp(&b.served)))
            .map(|worker| worker.id)
    }

    fn hand_over(&mut self, id: WorkerId, emission: Emission) {
        let (delivery, size_bytes) = (emission.id, emission.message.size_bytes());
        if self.options.key_affinity {
            self.homes.entry(Arc::clone(&emission.key)).or_insert((id, 0)).1 += 1;
        }
        if let Some(worker) = self.worker_mut(id) {
            worker.take(delivery, size_bytes);
        }
        let emission = Arc::new(emission);
        self.deliveries.push_back((id, Arc::clone(&emission)));
        let held = Held { emission, size_bytes, worker: Some(id), state: State::Out, renewals: Vec::new() };
        self.held.insert(delivery, held);
    }

    fn report(&mut self, id: DeliveryId, outcome: Outcome, cost: Option<f64>) {
        self.unreported = self.unreported.saturating_sub(1);
        self.reports.push(Report { id, outcome, cost });
    }

    /// The flow answered to a report.
    fn conclude(&mut self, id: DeliveryId, answer: &Answer) {
        let Some(held) = self.held.get_mut(&id) else {
            // Released because its worker left.
            self.finished.conclude(id, answer);
            return;
        };
        let State::Settling { kind, tickets } = &mut held.state else { return };
        let (kind, tickets) = (*kind, std::mem::take(tickets));
        let end = match answer {
            Answer::Done => End::Done,
            Answer::Expired(_) => End::Expired,
            // Its lease goes on at the broker, and the host has let go of it: a further try goes there.
            _ => End::Open,
        };
        self.answers.extend(tickets.into_iter().map(|ticket| (ticket, answer.clone())));
        self.finish(id, kind, end);
    }

    fn expire(&mut self, id: DeliveryId) {
        if let Some(at) = self.waiting.iter().position(|emission| emission.id == id) {
            self.waiting.remove(at);
            self.report(id, Outcome::Released, None);
            return;
        }
        let Some(held) = self.held.get_mut(&id) else { return };
        if !matches!(held.state, State::Out) {
            return;
        }
        // A report is owed all the same, and has no effect.
        match held.worker {
            Some(worker) => {
                held.state = State::Lapsed;
                self.lost.push_back((worker, Arc::clone(&held.emission)));
                self.fail_renewals(id);
                self.report(id, Outcome::Released, None);
            }
            None => {
                self.report(id, Outcome::Released, None);
                self.finish(id, Kind::Release, End::Expired);
            }
        }
    }

    fn conclude_renewals(&mut self, id: DeliveryId, result: &Result<Instant, RenewError>) {
        let Some(held) = self.held.get_mut(&id) else { return };
        let answer = match result {
            Ok(until) => RenewalAnswer::Until(*until),
            Err(RenewError::LeaseGone) => RenewalAnswer::Failed(Answer::Expired("the lease had ended")),
            Err(RenewError::Busy) => {
                RenewalAnswer::Failed(Answer::RetryLater("it is being renewed already".into()))
            }
            Err(RenewError::Settle(error)) => RenewalAnswer::Failed(match error.fault {
                SettleFault::LeaseGone => Answer::Expired("the broker had taken the lease back"),
                SettleFault::Broker => Answer::RetryLater(error.to_string().into()),
                SettleFault::Refused => Answer::Refused(error.to_string().into()),
            }),
        };
        let waiting = std::mem::take(&mut held.renewals);
        self.renewed.extend(waiting.into_iter().map(|ticket| (ticket, answer.clone())));
    }

    /// Renewals of what is over have failed.
    fn fail_renewals(&mut self, id: DeliveryId) {
        let Some(held) = self.held.get_mut(&id) else { return };
        let waiting = std::mem::take(&mut held.renewals);
        let gone = || RenewalAnswer::Failed(Answer::Expired("the lease had ended"));
        self.renewed.extend(waiting.into_iter().map(|ticket| (ticket, gone())));
    }

    /// Forgets a delivery, but for how it ended.
    fn finish(&mut self, id: DeliveryId, kind: Kind, end: End) {
        if let Some(held) = self.held.get(&id) {
            self.finished.insert(&held.emission, kind, end);
        }
        self.drop_held(id);
    }

    fn drop_held(&mut self, id: DeliveryId) {
        self.fail_renewals(id);
        self.free_place(id);
        self.held.remove(&id);
    }

    /// A worker has one less to work on.
    fn free_place(&mut self, id: DeliveryId) {
        let Some(held) = self.held.get_mut(&id) else { return };
        let (worker, size_bytes) = (held.worker.take(), held.size_bytes);
        let Some(worker) = worker else { return };
        let key = Arc::clone(&held.emission.key);
        if let Some(worker) = self.worker_mut(worker) {
            worker.free(id, size_bytes);
        }
        self.leave_home(&key);
    }

    fn leave_home(&mut self, key: &Arc<str>) {
        if let Some((_, count)) = self.homes.get_mut(key) {
            *count -= 1;
            if *count == 0 {
                self.homes.remove(key);
            }
        }
    }

    /// Takes a worker out; gives what it held, in the order in which it got it.
    fn take_worker(&mut self, id: WorkerId) -> Vec<DeliveryId> {
        if self.worker(id).is_none() {
            return Vec::new();
        }
        let worker = self.workers.remove(slot(id));
        let mut held = worker.into_held();
        held.sort_unstable();
        for delivery in &held {
            if let Some(key) = self.held.get(delivery).map(|held| Arc::clone(&held.emission.key)) {
                self.leave_home(&key);
            }
        }
        held
    }

    /// Without a worker nothing waits here: other hosts may have some.
    fn let_go_when_alone(&mut self) {
        if self.workers.is_empty() || self.draining {
            self.let_go_waiting();
        }
    }

    fn let_go_waiting(&mut self) {
        for emission in std::mem::take(&mut self.waiting) {
            self.report(emission.id, Outcome::Released, None);
        }
    }

    fn worker(&self, id: WorkerId) -> Option<&Worker> {
        self.workers.get(slot(id)).filter(|worker| worker.id == id)
    }

    fn worker_mut(&mut self, id: WorkerId) -> Option<&mut Worker> {
        self.workers.get_mut(slot(id)).filter(|worker| worker.id == id)
    }
}

/// Bits of a worker's name that are its slot.
const SLOT_BITS: u32 = 20;

const fn slot(id: WorkerId) -> usize {
    (id.0 & ((1 << SLOT_BITS) - 1)) as usize
}

impl Held {
    fn is(&self, claim: &Claim) -> bool {
        self.emission.message.id == claim.message && self.emission.handle.text == claim.handle
    }
}

#[cfg(test)]
mod tests;
