//! What is open: the messages that a worker has, what was said of each, and what the hosts were told, without I/O.
//!
//! The book takes deliveries, verdicts, answers and the time (`handle_*`), and gives what to ask on which stream, what to
//! call elsewhere, credits, events (`poll_*`). It promises:
//! * no more messages are being handled than there are credits, however many streams they came from;
//! * each verdict is told until a host has answered for good, its lease has ended, or the worker gives up;
//! * it ends with exactly one event, [`Event::Settled`] or [`Event::Unsettled`].

mod calls;
mod entries;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

pub(crate) use self::calls::{Answers, Batch, Call};
use self::entries::{Asked, Link, Open, Settling, State};
use crate::backoff::Jitter;
use crate::{Delivery, Event, Renewal, RenewalResult, Settlement, SettlementResult, Status, Verdict, wire};

/// Waits between tries to settle one message.
const FIRST_WAIT: Duration = Duration::from_millis(200);
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// Tries to settle one message. At first its lease bounds them; this many are made in any case, since a worker's clock
/// may be wrong about a lease.
const TRIES_MIN: u32 = 3;
/// However long its lease, a settlement that was tried so often will not get through.
const TRIES_MAX: u32 = 200;
/// How long an answer on a stream is waited for. A host gives one within 300 s, when earlier messages of an ordered key
/// are open; past that something is wrong, and the settlement is tried elsewhere.
const ANSWER_MAX: Duration = Duration::from_secs(330);
/// A renewal that did not work is tried again after a part of what is left of the lease, within these.
const RENEWAL_WAIT_MIN: Duration = Duration::from_millis(100);
const RENEWAL_WAIT_MAX: Duration = Duration::from_secs(5);

/// A delivery's name within one worker.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct Number(u64);

/// A stream's name within one worker.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct LinkId(pub(crate) u64);

/// How much a worker may hold.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Credits {
    pub(crate) messages: u64,
    /// `None`: as much as the host allows.
    pub(crate) bytes: Option<u64>,
}

/// What a stream is asked.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Ask {
    Settle(Settlement),
    Renew(Renewal),
}

/// Who gave an answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Source {
    Link(LinkId),
    Address(usize),
}

/// What is open.
#[derive(Debug)]
pub(crate) struct Book {
    credits: Credits,
    keep_leases: bool,
    addresses: usize,
    jitter: Jitter,
    numbers: u64,
    open: HashMap<Number, Open>,
    /// Under the receipt that was given, and under the one to settle with.
    by_receipt: HashMap<Arc<str>, Number>,
    /// When something is to be done about one. At most one entry each.
    agenda: BTreeSet<(Instant, Number)>,
    links: HashMap<LinkId, Link>,
    /// Handlers that run, and what their messages weigh.
    running: u64,
    running_bytes: u64,
    asks: VecDeque<(LinkId, Ask)>,
    calls: BTreeSet<Number>,
    events: VecDeque<Event>,
    stopping: bool,
}

impl Book {
    pub(crate) fn new(credits: Credits, keep_leases: bool, addresses: usize, jitter: Jitter) -> Self {
        Self {
            credits,
            keep_leases,
            addresses,
            jitter,
            numbers: 0,
            open: HashMap::new(),
            by_receipt: HashMap::new(),
            agenda: BTreeSet::new(),
            links: HashMap::new(),
            running: 0,
            running_bytes: 0,
            asks: VecDeque::new(),
            calls: BTreeSet::new(),
            events: VecDeque::new(),
            stopping: false,
        }
    }

    // === streams ===

    /// A stream is being opened; gives the credits to open it with.
    pub(crate) fn handle_link(&mut self, id: LinkId, address: usize) -> Credits {
        let link = Link {
            address,
            on_delivery: false,
            alive: true,
            told: None,
            open: 0,
            running: 0,
            running_bytes: 0,
        };
        self.links.insert(id, link);
        let credits = self.credits_of(id);
        if let Some(link) = self.links.get_mut(&id) {
            link.told = Some(credits);
        }
        credits
    }

    /// The host has said how its flow does things.
    pub(crate) fn handle_opened(&mut self, id: LinkId, on_delivery: bool) {
        if let Some(link) = self.links.get_mut(&id) {
            link.on_delivery = on_delivery;
        }
    }

    /// Nothing more comes from a stream; it can still be asked.
    pub(crate) fn handle_draining(&mut self, id: LinkId) {
        if let Some(link) = self.links.get_mut(&id) {
            link.told = None;
        }
    }

    /// A stream is gone. What it was asked and has not answered is asked elsewhere.
    pub(crate) fn handle_link_lost(&mut self, now: Instant, id: LinkId) {
        let Some(link) = self.links.get_mut(&id) else { return };
        (link.alive, link.told) = (false, None);
        let on_delivery = link.on_delivery;
        self.asks.retain(|(to, _)| *to != id);
        let came_from_it = self.open.iter().filter(|(_, open)| open.link == id);
        let mut concerned: Vec<Number> = came_from_it.map(|(number, _)| *number).collect();
        concerned.sort_unstable();
        for number in concerned {
            let Some(open) = self.open.get_mut(&number) else { continue };
            match &mut open.state {
                State::Running { .. } => self.look_at_lease(now, number),
                State::Settling(settling) if settling.asked == Some(Asked::Link) => {
                    settling.asked = None;
                    if on_delivery {
                        self.conclude_given(number);
                    } else {
                        self.set_due(number, Some(now));
                    }
                }
                _ => {}
            }
        }
        self.forget_link(id);
    }

    /// Whether nothing that came from a stream is open.
    pub(crate) fn is_done_with(&self, id: LinkId) -> bool {
        self.links.get(&id).is_none_or(|link| link.open == 0)
    }

    // === messages ===

    /// A message came. Gives what its handler's verdict comes back under; `None` when it is given back at once.
    pub(crate) fn handle_delivery(
        &mut self,
        now: Instant,
        link: LinkId,
        delivery: &Delivery,
    ) -> Option<Number> {
        let from = self.links.get_mut(&link)?;
        from.open += 1;
        self.numbers += 1;
        let number = Number(self.numbers);
        let receipt: Arc<str> = delivery.receipt.as_str().into();
        let size_bytes = wire::size_bytes(delivery);
        let open = Open {
            link,
            receipt: Arc::clone(&receipt),
            given: Arc::clone(&receipt),
            message_id: delivery.message_id.as_str().into(),
            size_bytes,
            began_at: now,
            lease: delivery.lease,
            ends_at: now + delivery.lease,
            lost: delivery.lost.clone(),
            due: None,
            state: State::Running { renews: self.keep_leases && !from.on_delivery },
        };
        self.by_receipt.insert(receipt, number);
        from.running += 1;
        from.running_bytes += size_bytes;
        self.running += 1;
        self.running_bytes += size_bytes;
        let message_id = Arc::clone(&open.message_id);
        self.open.insert(number, open);
        // A host gives no more than the credits; whatever comes on its way while the worker stops goes back.
        if self.stopping || self.running > self.credits.messages {
            self.handle_verdict(now, number, Verdict::release());
            return None;
        }
        self.events.push_back(Event::Begun { message_id, attempt: delivery.attempt });
        self.look_at_lease(now, number);
        Some(number)
    }

    /// A handler has ended.
    pub(crate) fn handle_verdict(&mut self, now: Instant, number: Number, verdict: Verdict) {
        let Some(open) = self.open.get_mut(&number) else { return };
        if !matches!(open.state, State::Running { .. }) {
            return;
        }
        let took = now - open.began_at;
        open.state = State::Settling(Settling {
            verdict,
            took,
            tries: 0,
            asked: None,
            refused: Vec::new(),
            detail: String::new(),
        });
        let (link, size_bytes) = (open.link, open.size_bytes);
        self.running -= 1;
        self.running_bytes -= size_bytes;
        if let Some(link) = self.links.get_mut(&link) {
            link.running -= 1;
            link.running_bytes -= size_bytes;
        }
        self.ask(now, number);
    }

    /// A handler panicked.
    pub(crate) fn handle_panic(&mut self, now: Instant, number: Number, detail: String) {
        if let Some(open) = self.open.get(&number) {
            self.events.push_back(Event::Panicked { message_id: Arc::clone(&open.message_id), detail });
        }
        self.handle_verdict(now, number, Verdict::release());
    }

    /// A host says that a lease has ended.
    pub(crate) fn handle_expired(&mut self, receipt: &str) {
        let Some(number) = self.by_receipt.get(receipt).copied() else { return };
        let is_running =
            self.open.get(&number).is_some_and(|open| matches!(open.state, State::Running { .. }));
        if is_running {
            self.lose(number);
        }
    }

    // === answers ===

    /// The answer to a settlement.
    pub(crate) fn handle_settled(&mut self, now: Instant, source: Source, result: SettlementResult) {
        let Some(number) = self.by_receipt.get(&*result.receipt).copied() else { return };
        let at = match source {
            Source::Address(address) => Some(address),
            Source::Link(id) => self.links.get(&id).map(|link| link.address),
        };
        let Some(Open { state: State::Settling(settling), .. }) = self.open.get_mut(&number) else { return };
        match result.status {
            Status::RetryLater => {
                settling.asked = None;
                settling.detail = result.detail;
                self.retry(now, number);
            }
            Status::Refused => {
                settling.refused.extend(at.filter(|at| !settling.refused.contains(at)));
                settling.detail = result.detail;
                if settling.refused.len() >= self.addresses {
                    self.conclude(number, Status::Refused);
                } else {
                    // Another host may be able to: not each can settle what others gave out.
                    settling.asked = Some(Asked::Call);
                    self.set_due(number, Some(now + ANSWER_MAX));
                    self.calls.insert(number);
                }
            }
            status => {
                settling.detail = result.detail;
                self.conclude(number, status);
            }
        }
    }

    /// The answer to a renewal.
    pub(crate) fn handle_renewed(&mut self, now: Instant, result: RenewalResult) {
        let Some(number) = self.by_receipt.get(&*result.receipt).copied() else { return };
        let Some(open) = self.open.get_mut(&number) else { return };
        let RenewalResult { status, detail, next_receipt, lease, .. } = result;
        if let Some(next) = next_receipt.filter(|_| status == Status::Done) {
            let next: Arc<str> = next.into();
            if open.receipt != open.given {
                self.by_receipt.remove(&open.receipt);
            }
            open.receipt = Arc::clone(&next);
            self.by_receipt.insert(next, number);
        }
        let message_id = Arc::clone(&open.message_id);
        if status == Status::Done {
            open.ends_at = now + lease;
        }
        if let State::Running { renews } = &mut open.state {
            match status {
                Status::Done => self.look_at_lease(now, number),
                Status::RetryLater => self.renew_later(now, number),
                Status::Expired | Status::Unknown | Status::Refused => {
                    *renews = false;
                    self.look_at_lease(now, number);
                }
            }
            self.events.push_back(Event::Renewed { message_id, status, detail });
            if status == Status::Expired {
                self.lose(number);
            }
        }
    }

    // === time, and the end ===

    /// When [`handle_time`](Self::handle_time) has something to do next.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.agenda.first().map(|(at, _)| *at)
    }

    /// Time has passed.
    pub(crate) fn handle_time(&mut self, now: Instant) {
        while let Some((_, number)) = self.agenda.first().copied().filter(|(at, _)| *at <= now) {
            self.set_due(number, None);
            let Some(open) = self.open.get_mut(&number) else { continue };
            match &mut open.state {
                State::Running { renews } => {
                    if now >= open.ends_at {
                        *renews = false;
                        self.lose(number);
                    } else {
                        self.renew(number);
                    }
                }
                State::Settling(settling) => {
                    if settling.asked.take().is_some() {
                        "no answer came".clone_into(&mut settling.detail);
                        self.retry(now, number);
                    } else {
                        self.ask(now, number);
                    }
                }
            }
        }
    }

    /// Nothing more is taken.
    pub(crate) fn handle_stop(&mut self) {
        self.stopping = true;
    }

    /// The worker ends, whatever is open.
    pub(crate) fn handle_end(&mut self) {
        let mut numbers: Vec<Number> = self.open.keys().copied().collect();
        numbers.sort_unstable();
        for number in numbers {
            let Some(open) = self.open.get(&number) else { continue };
            let detail = match &open.state {
                State::Running { .. } => "the worker ended before its handler".to_owned(),
                State::Settling(settling) => {
                    format!("the worker ended before an answer; {}", settling.detail)
                }
            };
            self.give_up(number, detail);
        }
    }

    /// Whether nothing is open.
    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    // === outputs ===

    /// The next thing to ask on a stream.
    pub(crate) fn poll_ask(&mut self) -> Option<(LinkId, Ask)> {
        self.asks.pop_front()
    }

    /// The next stream whose credits have changed.
    pub(crate) fn poll_credits(&mut self) -> Option<(LinkId, Credits)> {
        let changed = |id: &LinkId, link: &Link| {
            let credits = self.credits_of(*id);
            link.told.is_some_and(|told| told != credits).then_some((*id, credits))
        };
        let (id, credits) = self.links.iter().find_map(|(id, link)| changed(id, link))?;
        self.links.get_mut(&id)?.told = Some(credits);
        Some((id, credits))
    }

    /// The next thing that happened.
    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    // === the parts ===

    /// What a stream may have: the credits, less what handlers still have from others.
    fn credits_of(&self, id: LinkId) -> Credits {
        if self.stopping {
            return Credits { messages: 0, bytes: self.credits.bytes };
        }
        let (own, own_bytes) = self.links.get(&id).map_or((0, 0), |link| (link.running, link.running_bytes));
        Credits {
            messages: self.credits.messages.saturating_sub(self.running - own),
            // Zero would mean: as much as the host allows.
            bytes: self
                .credits
                .bytes
                .map(|bytes| bytes.saturating_sub(self.running_bytes - own_bytes).max(1)),
        }
    }

    /// Tells a verdict: on the stream that the message came from, or past it when that is gone.
    fn ask(&mut self, now: Instant, number: Number) {
        let Some(open) = self.open.get_mut(&number) else { return };
        let State::Settling(settling) = &mut open.state else { return };
        let link = self.links.get(&open.link);
        if link.is_some_and(|link| link.alive) && settling.refused.is_empty() {
            let settlement =
                Settlement { receipt: open.receipt.to_string(), verdict: settling.verdict.clone() };
            settling.asked = Some(Asked::Link);
            self.asks.push_back((open.link, Ask::Settle(settlement)));
        } else if link.is_some_and(|link| link.on_delivery) {
            self.conclude_given(number);
            return;
        } else {
            settling.asked = Some(Asked::Call);
            self.calls.insert(number);
        }
        self.set_due(number, Some(now + ANSWER_MAX));
    }

    fn retry(&mut self, now: Instant, number: Number) {
        let Some(open) = self.open.get_mut(&number) else { return };
        let State::Settling(settling) = &mut open.state else { return };
        settling.tries += 1;
        let at = now + self.jitter.wait(FIRST_WAIT, LONGEST_WAIT, settling.tries);
        if settling.tries >= TRIES_MAX || (settling.tries >= TRIES_MIN && at > open.ends_at) {
            let detail = format!("after {} tries: {}", settling.tries, settling.detail);
            self.give_up(number, detail);
        } else {
            self.set_due(number, Some(at));
        }
    }

    fn renew(&mut self, number: Number) {
        let Some(open) = self.open.get_mut(&number) else { return };
        if !matches!(open.state, State::Running { renews: true }) {
            return;
        }
        if self.links.get(&open.link).is_some_and(|link| link.alive) {
            let renewal = Renewal { receipt: open.receipt.to_string(), length: open.lease };
            self.asks.push_back((open.link, Ask::Renew(renewal)));
        } else {
            self.calls.insert(number);
        }
        // Should no answer come, this is looked at again when the lease ends.
        let ends_at = open.ends_at;
        self.set_due(number, Some(ends_at));
    }

    fn renew_later(&mut self, now: Instant, number: Number) {
        let Some(open) = self.open.get(&number) else { return };
        let left = open.ends_at.saturating_duration_since(now);
        self.set_due(number, Some(now + (left / 4).clamp(RENEWAL_WAIT_MIN, RENEWAL_WAIT_MAX)));
    }

    /// A lease has ended under a handler.
    fn lose(&mut self, number: Number) {
        let Some(open) = self.open.get(&number) else { return };
        if !open.lost.is_cancelled() {
            open.lost.cancel();
            self.events.push_back(Event::Lost { message_id: Arc::clone(&open.message_id) });
        }
        self.set_due(number, None);
    }

    /// A message that was done when it was handed over needs no answer.
    fn conclude_given(&mut self, number: Number) {
        let Some(Open { state: State::Settling(settling), .. }) = self.open.get_mut(&number) else { return };
        if settling.verdict.name() == Verdict::accept().name() {
            self.conclude(number, Status::Done);
        } else {
            "it was accepted when it was handed over".clone_into(&mut settling.detail);
            self.conclude(number, Status::Unknown);
        }
    }

    fn conclude(&mut self, number: Number, status: Status) {
        let Some(open) = self.remove(number) else { return };
        let State::Settling(Settling { verdict, took, detail, .. }) = open.state else { return };
        let detail = if status == Status::Done { String::new() } else { detail };
        let message_id = open.message_id;
        self.events.push_back(Event::Settled { message_id, verdict, status, detail, took });
    }

    fn give_up(&mut self, number: Number, detail: String) {
        let Some(open) = self.remove(number) else { return };
        let verdict = match open.state {
            State::Running { .. } => {
                self.running -= 1;
                self.running_bytes -= open.size_bytes;
                None
            }
            State::Settling(settling) => Some(settling.verdict),
        };
        self.events.push_back(Event::Unsettled { message_id: open.message_id, verdict, detail });
    }

    fn remove(&mut self, number: Number) -> Option<Open> {
        self.set_due(number, None);
        let open = self.open.remove(&number)?;
        self.by_receipt.remove(&open.receipt);
        self.by_receipt.remove(&open.given);
        if let Some(link) = self.links.get_mut(&open.link) {
            link.open -= 1;
            if matches!(open.state, State::Running { .. }) {
                link.running -= 1;
                link.running_bytes -= open.size_bytes;
            }
        }
        self.forget_link(open.link);
        Some(open)
    }

    /// A stream that is gone is remembered as long as something that came from it is open.
    fn forget_link(&mut self, id: LinkId) {
        if self.links.get(&id).is_some_and(|link| !link.alive && link.open == 0) {
            self.links.remove(&id);
        }
    }

    /// Sets when a message is looked at whose handler runs: at half of what is left of a lease that is renewed, else at
    /// its end when there is no host to tell that.
    fn look_at_lease(&mut self, now: Instant, number: Number) {
        let Some(open) = self.open.get(&number) else { return };
        let link = self.links.get(&open.link);
        let (alive, on_delivery) = link.map_or((false, false), |link| (link.alive, link.on_delivery));
        let due = match open.state {
            _ if on_delivery || open.lost.is_cancelled() => None,
            State::Running { renews: true } => Some(now + open.ends_at.saturating_duration_since(now) / 2),
            State::Running { renews: false } => (!alive).then_some(open.ends_at),
            State::Settling(_) => None,
        };
        self.set_due(number, due);
    }

    fn set_due(&mut self, number: Number, due: Option<Instant>) {
        let Some(open) = self.open.get_mut(&number) else { return };
        if let Some(before) = std::mem::replace(&mut open.due, due) {
            self.agenda.remove(&(before, number));
        }
        self.agenda.extend(due.map(|due| (due, number)));
    }
}

#[cfg(test)]
mod tests;
