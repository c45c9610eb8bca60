//! What must hold, whatever happens.

use std::collections::HashMap;

use tidegate_lease::{BookEvent, Counts, Decide, Exhausted, Options, RerunKind, Stage, Taken, Valves};
use tidegate_model::{
    Delivery, DeliveryId, Emission, Instant, MessageId, Outcome, SettleError, Settlement, Verb, Verdict,
};

use crate::broker::{BODY_BYTES_MAX, Broker, parse};

/// The promises, with what is needed to judge them.
pub(crate) struct Oracle {
    options: Options,
    messages: HashMap<MessageId, Known>,
    deliveries: HashMap<DeliveryId, Cause>,
    /// By ordered topic.
    orders: HashMap<usize, Order>,
    /// Settlements on their way, by id: the topic and the batch.
    on_way: HashMap<DeliveryId, (usize, u64)>,
    draining: bool,
    /// Whether the book remembers the attempts of every message there is.
    tracks_all: bool,
    pub(crate) seen: Seen,
}

/// What happened at all: a simulation in which nothing happens proves nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) emitted: u64,
    pub(crate) duplicates: u64,
    pub(crate) expired: u64,
    pub(crate) valves: u64,
    pub(crate) runs_ended: u64,
    pub(crate) reruns: u64,
    pub(crate) still_held: u64,
    pub(crate) redelivered: u64,
    pub(crate) failed: u64,
    pub(crate) overtaken_reports: u64,
    pub(crate) late_reports: u64,
}

impl std::ops::AddAssign for Seen {
    fn add_assign(&mut self, other: Self) {
        self.emitted += other.emitted;
        self.duplicates += other.duplicates;
        self.expired += other.expired;
        self.valves += other.valves;
        self.runs_ended += other.runs_ended;
        self.reruns += other.reruns;
        self.still_held += other.still_held;
        self.redelivered += other.redelivered;
        self.failed += other.failed;
        self.overtaken_reports += other.overtaken_reports;
        self.late_reports += other.late_reports;
    }
}

#[derive(Default)]
struct Known {
    /// Newest lease that the host was given.
    serial: u64,
    expires_at: Instant,
    emitted: bool,
    /// A policy or a valve rejected or discarded it once: should that not reach the broker, it may be emitted later,
    /// after others that did not have to wait for it.
    passed_over: bool,
    /// Emissions not reported yet, with the end of the lease that the sink was told.
    working: Vec<(DeliveryId, Instant)>,
    may_be_accepted: bool,
    may_be_rejected: bool,
    /// Deferrals and releases sent, and deferral in sum.
    given_back: u32,
    deferred: std::time::Duration,
    /// The same since the last settlement that should have been the last: the book forgets what it accepted, and an
    /// ack may be lost.
    deferred_since: std::time::Duration,
}

/// Why a delivery may go on as it does.
enum Cause {
    Decide { attempt: u32, deferred: std::time::Duration },
    Verdict { verdict: Verdict, attempt: u32, deferred: std::time::Duration },
    Outcome { outcome: Outcome, attempt: u32 },
}

#[derive(Default)]
struct Order {
    /// Offset after the last first emission.
    emitted_to: usize,
    /// By offset: the serial with which an accept or reject was sent, and whether it was answered OK.
    sent: HashMap<usize, (u64, bool)>,
}

impl Oracle {
    pub(crate) fn new(options: Options, tracks_all: bool) -> Self {
        Self {
            options,
            messages: HashMap::new(),
            deliveries: HashMap::new(),
            orders: HashMap::new(),
            on_way: HashMap::new(),
            draining: false,
            tracks_all,
            seen: Seen::default(),
        }
    }

    /// The host died: what it held is nobody's.
    pub(crate) fn host_died(&mut self) {
        self.deliveries.clear();
        self.on_way.clear();
        self.draining = false;
        for known in self.messages.values_mut() {
            known.working.clear();
            // A new process has forgotten the attempts.
            known.given_back = 0;
            known.deferred = std::time::Duration::ZERO;
            known.deferred_since = std::time::Duration::ZERO;
        }
    }

    pub(crate) fn draining(&mut self) {
        self.draining = true;
    }

    pub(crate) fn received(&mut self, delivery: &Delivery) {
        let known = self.messages.entry(delivery.message.id.clone()).or_default();
        let (_, _, serial) = parse(&delivery.handle);
        if serial > known.serial {
            known.serial = serial;
            known.expires_at = delivery.expires_at;
        }
    }

    pub(crate) fn decided(&mut self, decide: &Decide) {
        let known = &self.messages[&decide.message.id];
        let id = &decide.message.id;
        assert!(
            decide.deferred <= known.deferred,
            "{id}: deferred by {:?}, not {:?}",
            known.deferred,
            decide.deferred
        );
        if self.tracks_all {
            let (attempt, given_back) = (decide.attempt, known.given_back);
            assert!(attempt > given_back, "{id}: attempt {attempt} after {given_back} returns");
            assert!(decide.deferred >= known.deferred_since, "{id}: deferred by {:?}", known.deferred_since);
        }
        assert!(
            decide.standing.key_in_flight >= 1 && decide.standing.active_keys >= 1,
            "{:?}",
            decide.standing
        );
        let cause = Cause::Decide { attempt: decide.attempt, deferred: decide.deferred };
        assert!(self.deliveries.insert(decide.id, cause).is_none(), "{} decided twice", decide.id);
    }

    pub(crate) fn verdict(&mut self, id: DeliveryId, message: &MessageId, verdict: Verdict) {
        let known = self.messages.entry(message.clone()).or_default();
        match verdict {
            Verdict::Discard { .. } => known.may_be_accepted = true,
            Verdict::Reject { .. } => known.may_be_rejected = true,
            Verdict::Deliver | Verdict::Defer(_) => {}
        }
        known.passed_over |= match verdict {
            Verdict::Discard { .. } | Verdict::Reject { .. } => true,
            Verdict::Defer(_) => self.options.valves.exhausted == Exhausted::Reject,
            Verdict::Deliver => false,
        };
        let Some(Cause::Decide { attempt, deferred }) = self.deliveries.remove(&id) else {
            panic!("{id}: no question");
        };
        self.deliveries.insert(id, Cause::Verdict { verdict, attempt, deferred });
    }

    pub(crate) fn emitted(&mut self, now: Instant, emission: &Emission) {
        self.seen.emitted += 1;
        let id = &emission.message.id;
        match self.deliveries.get(&emission.id) {
            Some(Cause::Verdict { verdict: Verdict::Deliver, .. }) => {}
            Some(Cause::Verdict { verdict: Verdict::Defer(_), attempt, deferred }) => {
                let valves = self.options.valves;
                assert!(valves.exhausted == Exhausted::Accept, "{id}: emitted though deferred");
                assert!(
                    *attempt >= valves.max_delivery_attempt || is_spent(*deferred, &valves),
                    "{id}: emitted though deferred, at attempt {attempt} after {deferred:?}",
                );
            }
            _ => panic!("{id}: emitted without a verdict for it"),
        }
        let known = self.messages.get_mut(id).expect("received before");
        let (topic, offset, serial) = parse(&emission.handle);
        assert_eq!(serial, known.serial, "{id}: emitted with an old handle");
        assert!(now < emission.expires_at, "{id}: emitted after its lease");
        assert!(!self.draining, "{id}: emitted while draining");
        if let Some((other, until)) = known.working.iter().find(|(_, until)| now < *until) {
            panic!("{id}: emitted as {} while {other} works on it until {until:?}, now {now:?}", emission.id);
        }
        known.working.push((emission.id, emission.expires_at));
        if emission.order.is_some() && !known.emitted && !known.passed_over {
            let order = self.orders.entry(topic).or_default();
            assert!(
                offset >= order.emitted_to,
                "{id}: first emission after that of {}",
                order.emitted_to - 1
            );
            order.emitted_to = offset + 1;
        }
        self.seen.duplicates += u64::from(known.emitted);
        known.emitted = true;
    }

    pub(crate) fn reported(
        &mut self,
        now: Instant,
        emission: &Emission,
        outcome: &Outcome,
        first: bool,
        taken: Taken,
    ) {
        let id = &emission.message.id;
        let known = self.messages.get_mut(id).expect("received before");
        known.working.retain(|(other, _)| *other != emission.id);
        match taken {
            Taken::Yes => {
                assert!(first, "{id}: a second report was taken");
                assert!(now < known.expires_at, "{id}: a yes after its lease");
                match outcome {
                    Outcome::Accepted => known.may_be_accepted = true,
                    Outcome::Rejected { .. } => known.may_be_rejected = true,
                    _ => {}
                }
                let cause = Cause::Outcome { outcome: outcome.clone(), attempt: emission.attempt };
                self.deliveries.insert(emission.id, cause);
            }
            Taken::LeaseExpired => {
                self.seen.late_reports += 1;
                assert!(first && emission.expires_at <= now, "{id}: told that its lease had run out");
            }
            Taken::Overtaken => {
                self.seen.overtaken_reports += 1;
                assert!(first && emission.order.is_some(), "{id}: told that it was overtaken");
            }
            // The book remembers a bounded number of emissions whose lease ran out.
            Taken::Unknown => {
                assert!(!first || emission.expires_at <= now, "{id}: the report of an emission is unknown");
            }
        }
    }

    pub(crate) fn sent(&mut self, broker: &Broker, batch: u64, settlement: &Settlement) {
        self.check_cause(settlement);
        let id = &settlement.message.id;
        let known = self.messages.get_mut(id).expect("received before");
        let (topic, offset, serial) = parse(&settlement.handle);
        assert_eq!(serial, known.serial, "{id}: settled with an old handle");
        if let Verb::Defer(_) | Verb::Release = settlement.verb {
            known.given_back += 1;
            if let Verb::Defer(delay) = settlement.verb {
                assert!(delay <= self.options.valves.max_invisible_duration, "{id}: deferred by {delay:?}");
                known.deferred += delay;
                known.deferred_since += delay;
            }
        }
        if broker.topics[topic].ordered {
            self.check_order(broker, batch, settlement, (topic, offset, serial));
        }
        assert!(self.on_way.insert(settlement.id, (topic, batch)).is_none(), "{id}: settled twice");
    }

    /// A settlement comes from the verdict or report of the very delivery, and says what that said.
    fn check_cause(&self, settlement: &Settlement) {
        let valves = self.options.valves;
        let id = &settlement.message.id;
        let cause = self.deliveries.get(&settlement.id);
        let fits = match (&settlement.verb, cause) {
            (Verb::Release, _) if self.draining => true,
            (Verb::Accept, Some(Cause::Verdict { verdict: Verdict::Discard { .. }, .. }))
            | (Verb::Reject { .. }, Some(Cause::Verdict { verdict: Verdict::Reject { .. }, .. }))
            | (Verb::Accept, Some(Cause::Outcome { outcome: Outcome::Accepted, .. }))
            | (Verb::Reject { .. }, Some(Cause::Outcome { outcome: Outcome::Rejected { .. }, .. }))
            | (Verb::Release, Some(Cause::Outcome { outcome: Outcome::Released, .. })) => true,
            (Verb::Reject { .. }, Some(Cause::Verdict { verdict: Verdict::Defer(_), attempt, deferred })) => {
                valves.exhausted == Exhausted::Reject
                    && (*attempt >= valves.max_delivery_attempt || is_spent(*deferred, &valves))
            }
            (Verb::Reject { .. }, Some(Cause::Outcome { outcome: Outcome::Deferred { .. }, .. })) => {
                valves.exhausted == Exhausted::Reject
            }
            (
                Verb::Defer(delay),
                Some(Cause::Verdict { verdict: Verdict::Defer(wish), attempt, deferred }),
            ) => {
                *attempt < valves.max_delivery_attempt
                    && *delay <= wish.delay + wish.delay / 10
                    && *deferred + *delay <= valves.max_total_deferral
            }
            (
                Verb::Defer(delay),
                Some(Cause::Outcome { outcome: Outcome::Deferred { delay: wish }, attempt }),
            ) => {
                let may = valves.exhausted == Exhausted::Accept || *attempt < valves.max_delivery_attempt;
                may && *delay <= *wish + *wish / 10
            }
            _ => false,
        };
        assert!(fits, "{id}: {} has no cause", settlement.verb);
    }

    fn check_order(&mut self, broker: &Broker, batch: u64, settlement: &Settlement, at: (usize, usize, u64)) {
        let (topic, offset, serial) = at;
        let id = &settlement.message.id;
        for (other, (_, other_batch)) in self.on_way.iter().filter(|(_, (other, _))| *other == topic) {
            assert_eq!(*other_batch, batch, "{id}: sent while {other} of its key is on its way");
        }
        let alone = !self.on_way.values().any(|(other, _)| *other == topic);
        let order = self.orders.entry(topic).or_default();
        let stored = &broker.topics[topic].messages;
        if stored[offset].serial == serial {
            let open = stored.iter().enumerate().take(offset).skip(broker.topics[topic].frontier);
            for (earlier, other) in open {
                let sent = order.sent.get(&earlier).filter(|(sent, _)| *sent == other.serial);
                assert!(sent.is_some(), "{id}: sent before {earlier}");
                if settlement.verb != Verb::Accept {
                    assert!(
                        sent.is_some_and(|(_, answered)| *answered),
                        "{id}: {} before the answer to {earlier}",
                        settlement.verb
                    );
                }
            }
        }
        match settlement.verb {
            Verb::Accept => {}
            _ => assert!(alone, "{id}: {} is not alone on its way", settlement.verb),
        }
        if let Verb::Accept | Verb::Reject { .. } = settlement.verb {
            order.sent.insert(offset, (serial, false));
        }
    }

    pub(crate) fn answered(&mut self, settlement: &Settlement, result: &Result<(), SettleError>) {
        let (topic, offset, serial) = parse(&settlement.handle);
        self.on_way.remove(&settlement.id);
        if result.is_ok()
            && let Verb::Accept | Verb::Reject { .. } = settlement.verb
            && let Some(known) = self.messages.get_mut(&settlement.message.id)
        {
            known.given_back = 0;
            known.deferred_since = std::time::Duration::ZERO;
        }
        if result.is_ok()
            && let Some(sent) = self.orders.entry(topic).or_default().sent.get_mut(&offset)
            && sent.0 == serial
        {
            sent.1 = true;
        }
    }

    /// The broker forgot the message because of this settlement.
    pub(crate) fn done(&mut self, settlement: &Settlement) {
        let known = &self.messages[&settlement.message.id];
        let fits = match settlement.verb {
            Verb::Accept => known.may_be_accepted,
            _ => known.may_be_rejected || self.options.valves.exhausted == Exhausted::Reject,
        };
        assert!(fits, "{}: done by {} that nobody asked for", settlement.message.id, settlement.verb);
    }

    pub(crate) fn event(&mut self, now: Instant, event: &BookEvent) {
        match event {
            BookEvent::Expired { message, stage, .. } => {
                self.seen.expired += 1;
                if let (Stage::Emitted, Some(known)) = (stage, self.messages.get_mut(message)) {
                    known.working.clear();
                }
            }
            BookEvent::Valve { .. } => self.seen.valves += 1,
            BookEvent::RunEnded { .. } => self.seen.runs_ended += 1,
            BookEvent::Rerun { kind: RerunKind::StillHeld, message, .. } => {
                self.seen.still_held += 1;
                let works = &self.messages[message].working;
                assert!(
                    works.iter().all(|(_, until)| now < *until),
                    "{message}: not emitted again, for work that should have been done",
                );
            }
            BookEvent::Rerun { .. } => self.seen.reruns += 1,
            BookEvent::Redelivered { attempt, .. } => {
                assert!(*attempt > 1, "redelivered at attempt {attempt}");
                self.seen.redelivered += 1;
            }
            BookEvent::SettleFailed { .. } => self.seen.failed += 1,
            BookEvent::Bug { what, id } => panic!("{what} ({id:?})"),
        }
    }

    pub(crate) fn bounds(&self, counts: &Counts, workers: usize) {
        let options = &self.options;
        assert!(counts.in_flight + counts.granted.messages <= options.budget_messages, "{counts:?}");
        let over = workers * (BODY_BYTES_MAX + 1000);
        assert!(counts.in_flight_bytes + counts.granted.bytes <= options.budget_bytes + over, "{counts:?}");
        assert!(counts.keys <= options.keys_max + counts.in_flight, "{counts:?}");
        assert!(counts.tracked_messages <= options.tracked_messages_max, "{counts:?}");
        assert!(counts.expired_emissions <= options.budget_messages, "{counts:?}");
        assert!(counts.ordered_keys <= counts.in_flight, "{counts:?}");
        let by_state = counts.received
            + counts.deciding
            + counts.queued
            + counts.emitted
            + counts.settling
            + counts.sent;
        assert_eq!(by_state, counts.in_flight, "{counts:?}");
    }

    /// At the end of everything.
    pub(crate) fn finished(&self, broker: &Broker, counts: &Counts) {
        for topic in &broker.topics {
            for stored in &topic.messages {
                let id = &stored.message.id;
                let known = self.messages.get(id);
                assert!(stored.acked, "{id} is lost");
                assert!(
                    known.is_some_and(|known| known.emitted || known.may_be_accepted || stored.dead_lettered),
                    "{id} is done, and nobody saw it"
                );
            }
        }
        assert_eq!((counts.in_flight, counts.in_flight_bytes, counts.ordered_keys), (0, 0, 0), "{counts:?}");
        assert_eq!(counts.events_lost, 0, "{counts:?}");
    }
}

/// A tenth of a second is not worth a trip to the broker.
fn is_spent(deferred: std::time::Duration, valves: &Valves) -> bool {
    deferred + std::time::Duration::from_millis(100) > valves.max_total_deferral
}
