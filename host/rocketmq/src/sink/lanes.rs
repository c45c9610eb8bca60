//! What a sink holds, without I/O: what may be sent now, what waits, what is given back.
//!
//! A lane is a lite topic or message group of the target: one message of it is under way at a time. Messages without
//! either share one lane, which sends batches side by side. A lane whose message could not be sent waits, longer each
//! time, then gives it back and tries the next; when everything fails, the [`Gate`] shuts for all lanes.
//!
//! Inputs are `push` and `handle_*`; then `poll_send` until `None`, `poll_change` until `None`, and `take_reports`.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tidegate_connector::Backoff;
use tidegate_model::{DeliveryId, Instant, Outcome, Report};

use super::fate::Fate;
use super::gate::{Gate, WAIT_FIRST};
use super::letter::Letter;
use super::runs::{Runs, Standing, Ticket};
use crate::outgoing::{Kind, Outgoing};

/// Messages under way in lanes of their own. Enough to keep a broker busy across a round trip (measured: more gave a
/// public client nothing).
const LANES_IN_FLIGHT_MAX: usize = 64;
/// Batches of the shared lane under way, and messages of one: as many as one request carries.
const BATCHES_IN_FLIGHT_MAX: usize = 4;
const BATCH_MESSAGES_MAX: usize = 128;
/// Credits of a sink with lanes: beside each message under way another one may stand ready. More is better left in the
/// lease book, where keys take turns.
pub(super) const CREDITS_ORDERED: usize = 2 * LANES_IN_FLIGHT_MAX;
/// The same for batches.
pub(super) const CREDITS_UNORDERED: usize = (BATCHES_IN_FLIGHT_MAX + 1) * BATCH_MESSAGES_MAX;
/// Longest wait of one lane. Shorter than that of all: a lane that waits holds credits that others could use.
const LANE_WAIT_MAX: Duration = Duration::from_secs(10);
/// Most lanes, with those remembered that stand empty and failed lately; and how long those are remembered at least
/// before others make room.
const LANES_MAX: usize = 4_096;
const LANE_MEMORY: Duration = Duration::from_secs(60);

/// A lane's lite topic or message group; `None` is the shared one.
type Name = Option<Arc<str>>;

/// Everything that a sink holds.
#[derive(Debug)]
pub(super) struct Lanes {
    lanes: HashMap<Name, Lane>,
    /// Lanes that may have something to send, in the order of their turns.
    ready: VecDeque<Name>,
    /// When lanes that wait go on.
    timers: BTreeSet<(Instant, Name)>,
    gate: Gate,
    runs: Runs,
    /// Shipments under way.
    in_flight: usize,
    /// Letters that are not reported.
    letters: usize,
    /// Letters that have come, ever.
    arrivals: u64,
    is_draining: bool,
    reports: Vec<Report>,
    changes: VecDeque<Change>,
    seed: u64,
}

/// What is to be sent in one go.
#[derive(Debug)]
pub(super) struct Shipment {
    pub(super) messages: Vec<Outgoing>,
    tickets: Vec<Ticket>,
    lane: Name,
    began: Instant,
}

/// What is worth telling.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Change {
    /// Nothing is sent for a while.
    Held { wait: Duration, failures: u32 },
    /// It is again.
    Resumed { held: Duration },
}

#[derive(Debug)]
struct Lane {
    queue: VecDeque<Letter>,
    in_flight: usize,
    /// Could not be sent; given back when the wait is over.
    held: Vec<Ticket>,
    waits_until: Option<Instant>,
    backoff: Backoff,
    failed_at: Instant,
    is_listed: bool,
}

impl Lanes {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            lanes: HashMap::new(),
            ready: VecDeque::new(),
            timers: BTreeSet::new(),
            gate: Gate::new(seed),
            runs: Runs::default(),
            in_flight: 0,
            letters: 0,
            arrivals: 0,
            is_draining: false,
            reports: Vec::new(),
            changes: VecDeque::new(),
            seed,
        }
    }

    /// Whether everything is reported.
    pub(super) const fn is_empty(&self) -> bool {
        self.letters == 0
    }

    // === inputs ===

    /// Takes a letter.
    pub(super) fn push(&mut self, now: Instant, mut letter: Letter) {
        self.letters += 1;
        letter.ticket.arrival = self.arrivals;
        self.arrivals += 1;
        let name = lane_of(&letter);
        if !self.lanes.contains_key(&name) {
            self.make_room(now);
            self.seed = self.seed.wrapping_add(1);
            self.lanes.insert(name.clone(), Lane::new(now, self.seed));
        }
        let is_missed = self.runs.handle_arrival(&letter.ticket);
        if let Some(lane) = self.lanes.get_mut(&name) {
            lane.queue.push_back(letter);
            // What waits only for this one need wait no longer.
            if is_missed
                && lane.held.is_empty()
                && let Some(until) = lane.waits_until.take()
            {
                self.timers.remove(&(until, name.clone()));
            }
        }
        self.list(&name);
        self.give_back_when_draining(now);
    }

    /// A shipment has ended; one fate for each of its messages.
    pub(super) fn handle_sent(&mut self, now: Instant, shipment: &Shipment, fates: Vec<Fate>) {
        self.in_flight -= 1;
        let (mut is_alive, mut has_failed, mut concerns_all) = (false, false, false);
        for (ticket, fate) in shipment.tickets.iter().zip(fates) {
            is_alive |= fate == Fate::Sent
                || fate.is_by_server()
                || matches!(fate, Fate::Failed { concerns_all: false, .. });
            match fate {
                Fate::Sent => self.end(ticket, Outcome::Accepted),
                Fate::Refused { detail, .. } => {
                    self.end(ticket, Outcome::Rejected { reason: detail.into() });
                }
                Fate::Failed { concerns_all: all, .. } => {
                    self.runs.handle_held(now, ticket);
                    if let Some(lane) = self.lanes.get_mut(&shipment.lane) {
                        lane.held.push(ticket.clone());
                    }
                    has_failed = true;
                    concerns_all |= all;
                }
            }
        }
        if is_alive {
            self.changes.extend(self.gate.handle_sent(now).map(|held| Change::Resumed { held }));
        } else if concerns_all && let Some((wait, failures)) = self.gate.handle_failed(now, shipment.began) {
            self.changes.push_back(Change::Held { wait, failures });
        }
        self.end_shipment(now, &shipment.lane, has_failed);
        self.give_back_when_draining(now);
    }

    /// The flow has heard what was reported of a delivery.
    pub(super) fn handle_heard(&mut self, id: DeliveryId) {
        if !self.runs.handle_heard(id, self.arrivals) {
            return;
        }
        // Lanes that hold nothing wait only for this.
        let waiting: Vec<(Instant, Name)> = self
            .timers
            .iter()
            .filter(|(_, name)| self.lanes.get(name).is_some_and(|lane| lane.held.is_empty()))
            .cloned()
            .collect();
        for timer in waiting {
            self.timers.remove(&timer);
            if let Some(lane) = self.lanes.get_mut(&timer.1) {
                lane.waits_until = None;
            }
            self.list(&timer.1);
        }
    }

    /// Gives back what has waited long enough.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        while self.timers.first().is_some_and(|(due, _)| *due <= now)
            && let Some((_, name)) = self.timers.pop_first()
        {
            let Some(lane) = self.lanes.get_mut(&name) else { continue };
            lane.waits_until = None;
            self.give_back_held(now, &name);
            self.list(&name);
            self.tidy(&name);
        }
    }

    /// Nothing more is coming, or soon will not be: what waits is given back now, and nothing waits from now on.
    pub(super) fn handle_drain(&mut self, now: Instant) {
        self.is_draining = true;
        self.give_back_when_draining(now);
    }

    /// An outcome from elsewhere.
    pub(super) fn report(&mut self, report: Report) {
        self.reports.push(report);
    }

    // === outputs ===

    /// The next to be sent.
    pub(super) fn poll_send(&mut self, now: Instant) -> Option<Shipment> {
        while self.in_flight < LANES_IN_FLIGHT_MAX && self.gate.lets_pass(now, self.in_flight) {
            let name = self.ready.pop_front()?;
            let Some(lane) = self.lanes.get_mut(&name) else { continue };
            lane.is_listed = false;
            if !lane.may_send(name.is_none()) {
                continue;
            }
            let shipment = self.take(now, &name);
            if shipment.is_some() {
                self.in_flight += 1;
                if let Some(lane) = self.lanes.get_mut(&name) {
                    lane.in_flight += 1;
                }
            }
            self.list(&name);
            self.tidy(&name);
            if shipment.is_some() {
                return shipment;
            }
        }
        None
    }

    pub(super) fn poll_change(&mut self) -> Option<Change> {
        self.changes.pop_front()
    }

    pub(super) fn take_reports(&mut self) -> Vec<Report> {
        std::mem::take(&mut self.reports)
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due, or something may be sent.
    pub(super) fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        let lane = self.timers.first().map(|(due, _)| *due);
        let gate = self.gate.until().filter(|until| *until > now && !self.ready.is_empty());
        [lane, gate].into_iter().flatten().min()
    }

    // === inside ===

    /// Takes a shipment from a lane, passing over what comes again by itself.
    fn take(&mut self, now: Instant, name: &Name) -> Option<Shipment> {
        let most = if name.is_none() { BATCH_MESSAGES_MAX } else { 1 };
        let mut shipment =
            Shipment { messages: Vec::new(), tickets: Vec::new(), lane: name.clone(), began: now };
        while shipment.messages.len() < most
            && let Some(letter) = self.lanes.get_mut(name).and_then(|lane| lane.queue.pop_front())
        {
            let Letter { ticket, expires_at, message } = letter;
            if expires_at.is_some_and(|at| at <= now) {
                // Sent, it would be there twice: it comes again, or has come again already.
                self.runs.handle_lost(now, &ticket, self.arrivals);
                self.end(&ticket, Outcome::Released);
                continue;
            }
            match self.runs.standing(now, &ticket) {
                Standing::Free => {
                    shipment.messages.push(message);
                    shipment.tickets.push(ticket);
                }
                Standing::Overtaken => self.give_back_overtaken(now, &ticket),
                Standing::Unclear(until) => {
                    if let Some(lane) = self.lanes.get_mut(name) {
                        lane.queue.push_front(Letter { ticket, expires_at, message });
                        lane.waits_until = Some(until);
                        self.timers.insert((until, name.clone()));
                    }
                    break;
                }
            }
        }
        (!shipment.messages.is_empty()).then_some(shipment)
    }

    fn end_shipment(&mut self, now: Instant, name: &Name, has_failed: bool) {
        let gate_until = self.gate.until();
        let Some(lane) = self.lanes.get_mut(name) else { return };
        lane.in_flight -= 1;
        if !has_failed {
            lane.backoff.reset();
        } else if lane.waits_until.is_none() {
            // While all wait, what failed is not given back: it would only come again, and wait again.
            let own = now + lane.backoff.next_wait();
            let until = gate_until.map_or(own, |gate| gate.max(own));
            lane.failed_at = now;
            lane.waits_until = Some(until);
            self.timers.insert((until, name.clone()));
        }
        self.list(name);
        self.tidy(name);
    }

    /// Gives back what a lane holds, and what of the same ordered keys stands behind it.
    fn give_back_held(&mut self, now: Instant, name: &Name) {
        let Some(lane) = self.lanes.get_mut(name) else { return };
        let (held, queue) = (std::mem::take(&mut lane.held), std::mem::take(&mut lane.queue));
        for ticket in &held {
            self.runs.handle_given_back(now, ticket, self.arrivals);
            self.end(ticket, Outcome::Released);
        }
        // What was held may have come again already, and what is behind that follows it.
        for letter in &queue {
            self.runs.handle_arrival(&letter.ticket);
        }
        let mut kept = VecDeque::with_capacity(queue.len());
        for letter in queue {
            if self.runs.is_overtaken(&letter.ticket) {
                self.give_back_overtaken(now, &letter.ticket);
            } else {
                kept.push_back(letter);
            }
        }
        if let Some(lane) = self.lanes.get_mut(name) {
            lane.queue = kept;
        }
    }

    fn give_back_overtaken(&mut self, now: Instant, ticket: &Ticket) {
        self.runs.handle_overtaken(now, ticket);
        self.end(ticket, Outcome::Released);
    }

    fn give_back_queued(&mut self, name: &Name) {
        let Some(lane) = self.lanes.get_mut(name) else { return };
        for letter in std::mem::take(&mut lane.queue) {
            self.end(&letter.ticket, Outcome::Released);
        }
    }

    fn give_back_when_draining(&mut self, now: Instant) {
        if !self.is_draining {
            return;
        }
        let is_shut = self.gate.is_shut();
        let waits = |lane: &Lane| is_shut || lane.waits_until.is_some();
        let waiting: Vec<Name> =
            self.lanes.iter().filter(|(_, lane)| waits(lane)).map(|(name, _)| name.clone()).collect();
        for name in waiting {
            if let Some(until) = self.lanes.get_mut(&name).and_then(|lane| lane.waits_until.take()) {
                self.timers.remove(&(until, name.clone()));
            }
            self.give_back_held(now, &name);
            self.give_back_queued(&name);
            self.tidy(&name);
        }
    }

    fn end(&mut self, ticket: &Ticket, outcome: Outcome) {
        self.letters -= 1;
        self.reports.push(Report { id: ticket.id, outcome, cost: None });
    }

    /// Gives a lane a turn if it has something to send.
    fn list(&mut self, name: &Name) {
        let Some(lane) = self.lanes.get_mut(name) else { return };
        if !lane.is_listed && !lane.queue.is_empty() && lane.may_send(name.is_none()) {
            lane.is_listed = true;
            self.ready.push_back(name.clone());
        }
    }

    /// Forgets a lane that is empty and works.
    fn tidy(&mut self, name: &Name) {
        if self.lanes.get(name).is_some_and(|lane| lane.is_idle() && lane.backoff.failures() == 0) {
            self.lanes.remove(name);
        }
    }

    fn make_room(&mut self, now: Instant) {
        if self.lanes.len() < LANES_MAX {
            return;
        }
        self.lanes.retain(|_, lane| !lane.is_idle() || now.saturating_since(lane.failed_at) < LANE_MEMORY);
        if self.lanes.len() >= LANES_MAX {
            // There are no more of the others than the sink has credits.
            self.lanes.retain(|_, lane| !lane.is_idle());
        }
    }
}

impl Lane {
    const fn new(now: Instant, seed: u64) -> Self {
        Self {
            queue: VecDeque::new(),
            in_flight: 0,
            held: Vec::new(),
            waits_until: None,
            backoff: Backoff::new(WAIT_FIRST, LANE_WAIT_MAX, seed),
            failed_at: now,
            is_listed: false,
        }
    }

    /// Whether another shipment may go. After a failure the shared lane, too, tries one alone.
    const fn may_send(&self, is_shared: bool) -> bool {
        let width = if is_shared && self.backoff.failures() == 0 { BATCHES_IN_FLIGHT_MAX } else { 1 };
        self.waits_until.is_none() && self.in_flight < width
    }

    fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.in_flight == 0 && self.held.is_empty()
    }
}

fn lane_of(letter: &Letter) -> Name {
    match &letter.message.kind {
        Kind::Lite { lite_topic } => Some(Arc::clone(lite_topic)),
        Kind::Fifo { group } => Some(Arc::clone(group)),
        Kind::Normal | Kind::Delay { .. } => None,
    }
}

#[cfg(test)]
mod tests;
