//! What must hold, whatever happens.

mod renewing;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tidegate_lease::{
    BookEvent, Counts, Decide, Exhausted, Options, RenewalOptions, RerunKind, RunEnd, Stage, Taken, Valves,
};
use tidegate_model::{
    Delivery, DeliveryId, Emission, Handle, Instant, MessageId, Outcome, SettleError, Settlement, Verb,
    Verdict,
};

use crate::broker::{BODY_BYTES_MAX, Broker, generation, parse};
use renewing::{Lease, Renewing};

/// The promises, with what is needed to judge them.
pub(crate) struct Oracle {
    options: Options,
    messages: HashMap<MessageId, Known>,
    deliveries: HashMap<DeliveryId, Cause>,
    /// By ordered topic.
    orders: HashMap<usize, Order>,
    /// Settlements on their way.
    on_way: HashMap<DeliveryId, OnWay>,
    /// Deliveries that a sink was given, and those whose settlement was sent.
    emitted: HashSet<DeliveryId>,
    settled: HashSet<DeliveryId>,
    renewing: Renewing,
    draining: bool,
    /// Deliveries that may be open.
    open_max: usize,
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
    pub(crate) asked: u64,
    pub(crate) renewed: u64,
    pub(crate) wished: u64,
    pub(crate) elsewhere: u64,
    pub(crate) given_back: u64,
    pub(crate) renewed_then_done: u64,
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
        self.asked += other.asked;
        self.renewed += other.renewed;
        self.wished += other.wished;
        self.elsewhere += other.elsewhere;
        self.given_back += other.given_back;
        self.renewed_then_done += other.renewed_then_done;
    }
}

#[derive(Default)]
struct Known {
    topic: usize,
    ordered: bool,
    /// Newest lease that the host was given.
    serial: u64,
    expires_at: Instant,
    /// How often that lease was renewed, by the newest handle, and whether another renewal is on its way.
    generation: u64,
    renewing: bool,
    lease: Lease,
    /// Deliveries whose lease the book gave up, or whose renewal was told that it is gone.
    gone: HashSet<DeliveryId>,
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
    deferred: Duration,
    /// The same since the last settlement that should have been the last: the book forgets what it accepted, and an
    /// ack may be lost.
    deferred_since: Duration,
}

impl Known {
    /// Whether the delivery's lease ended before its time: a renewal was told so, or a newer and shorter one has ended.
    fn ended(&self, now: Instant, id: DeliveryId) -> bool {
        self.expires_at <= now || self.gone.contains(&id)
    }
}

/// Why a delivery may go on as it does.
enum Cause {
    Decide { attempt: u32, deferred: Duration },
    Verdict { verdict: Verdict, attempt: u32, deferred: Duration },
    Outcome { outcome: Outcome, attempt: u32, handle: Arc<str> },
}

/// A settlement on its way.
struct OnWay {
    topic: usize,
    ordered: bool,
    batch: u64,
    gives_back: bool,
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
            emitted: HashSet::new(),
            settled: HashSet::new(),
            renewing: Renewing::default(),
            draining: false,
            open_max: usize::MAX,
            tracks_all,
            seen: Seen::default(),
        }
    }

    /// The host died: what it held is nobody's.
    pub(crate) fn host_died(&mut self) {
        self.deliveries.clear();
        self.on_way.clear();
        self.emitted.clear();
        self.settled.clear();
        self.renewing = Renewing::default();
        self.draining = false;
        for known in self.messages.values_mut() {
            known.working.clear();
            known.expires_at = Instant::ZERO;
            known.renewing = false;
            known.lease = Lease::default();
            // A new process has forgotten the attempts.
            known.given_back = 0;
            known.deferred = Duration::ZERO;
            known.deferred_since = Duration::ZERO;
        }
    }

    pub(crate) fn draining(&mut self) {
        self.draining = true;
    }

    /// From now on the sink has room for so many.
    pub(crate) fn demanded(&mut self, open_max: usize) {
        self.open_max = open_max;
    }

    /// A receive was allowed.
    pub(crate) fn granted(&self, counts: &Counts) {
        let open = counts.granted.messages + counts.in_flight - counts.settling - counts.sent;
        assert!(open <= self.open_max, "taken in beyond {}: {counts:?}", self.open_max);
    }

    pub(crate) fn received(&mut self, now: Instant, delivery: &Delivery) {
        let known = self.messages.entry(delivery.message.id.clone()).or_default();
        let (topic, _, serial) = parse(&delivery.handle);
        (known.topic, known.ordered) = (topic, delivery.order.is_some());
        if serial > known.serial {
            known.lease.begin_anew(now, !known.working.is_empty());
            known.serial = serial;
            known.expires_at = delivery.expires_at;
            known.generation = 0;
            known.renewing = false;
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
        assert!(self.emitted.insert(emission.id), "{id}: {} emitted twice", emission.id);
        assert!(!self.settled.contains(&emission.id), "{id}: emitted after it was settled");
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
        assert_eq!(generation(&emission.handle), known.generation, "{id}: emitted with an old handle");
        assert!(!known.renewing, "{id}: emitted while it is renewed");
        assert_eq!(emission.expires_at, known.expires_at, "{id}");
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
                assert!(now < known.expires_at || known.renewing, "{id}: a yes after its lease");
                match outcome {
                    Outcome::Accepted => known.may_be_accepted = true,
                    Outcome::Rejected { .. } => known.may_be_rejected = true,
                    // For this host it is over.
                    Outcome::Elsewhere => {
                        self.seen.elsewhere += 1;
                        known.may_be_accepted = true;
                        known.given_back = 0;
                        known.deferred_since = Duration::ZERO;
                        // By the newest lease: the emission's may have been replaced by one that came again.
                        let (topic, offset, _) = parse(&emission.handle);
                        self.orders.entry(topic).or_default().sent.insert(offset, (known.serial, true));
                    }
                    Outcome::Deferred { .. } | Outcome::Released => {}
                }
                let handle = emission.handle.text.clone();
                let cause = Cause::Outcome { outcome: outcome.clone(), attempt: emission.attempt, handle };
                self.deliveries.insert(emission.id, cause);
            }
            Taken::LeaseExpired => {
                self.seen.late_reports += 1;
                let told = first && (emission.expires_at <= now || known.ended(now, emission.id));
                assert!(told, "{id}: told that its lease had run out");
            }
            Taken::Overtaken => {
                self.seen.overtaken_reports += 1;
                assert!(first && emission.order.is_some(), "{id}: told that it was overtaken");
            }
            // The book remembers a bounded number of emissions whose lease ran out.
            Taken::Unknown => {
                let ended = emission.expires_at <= now || known.ended(now, emission.id);
                assert!(!first || ended, "{id}: the report of an emission is unknown");
            }
        }
    }

    pub(crate) fn sent(
        &mut self,
        now: Instant,
        broker: &Broker,
        batch: u64,
        settlement: &Settlement,
        renewal: Option<&RenewalOptions>,
    ) {
        if let Verb::Renew(length) = settlement.verb {
            self.renewal_sent(now, settlement, length, renewal);
            return;
        }
        self.check_cause(settlement);
        let id = &settlement.message.id;
        let known = self.messages.get_mut(id).expect("received before");
        let (topic, offset, serial) = parse(&settlement.handle);
        assert_eq!(serial, known.serial, "{id}: settled with an old handle");
        assert_eq!(generation(&settlement.handle), known.generation, "{id}: settled with an old handle");
        assert!(!known.renewing, "{id}: settled while it is renewed");
        let ordered = broker.topics[topic].ordered;
        let gives_back = matches!(settlement.verb, Verb::Defer(_) | Verb::Release);
        if gives_back {
            known.given_back += u32::from(settlement.verb != Verb::Release || !known.lease.may_follow_head);
            if let Verb::Defer(delay) = settlement.verb {
                assert!(delay <= self.options.valves.max_invisible_duration, "{id}: deferred by {delay:?}");
                known.deferred += delay;
                known.deferred_since += delay;
            }
        }
        if ordered {
            assert!(!gives_back || !self.is_renewed(topic), "{id}: given back while its key is renewed");
            self.check_order(broker, batch, settlement, (topic, offset, serial));
        }
        assert!(self.settled.insert(settlement.id), "{id}: settled twice");
        self.on_way.insert(settlement.id, OnWay { topic, ordered, batch, gives_back });
    }

    /// A settlement comes from the verdict or report of the very delivery, and says what that said.
    fn check_cause(&self, settlement: &Settlement) {
        let valves = self.options.valves;
        let id = &settlement.message.id;
        let cause = self.deliveries.get(&settlement.id);
        let fits = match (&settlement.verb, cause) {
            // Only what came anew, with which the worker's receipt has nothing to do any more.
            (Verb::Accept, Some(Cause::Outcome { outcome: Outcome::Elsewhere, handle, .. })) => {
                settlement.handle.text != *handle
            }
            (_, Some(Cause::Outcome { outcome: Outcome::Elsewhere, .. })) => false,
            (Verb::Release, Some(Cause::Outcome { outcome: Outcome::Released, .. })) => true,
            (Verb::Release, Some(Cause::Outcome { .. })) => self.draining,
            (Verb::Release, _) => self.draining || self.may_go_back(settlement),
            (Verb::Accept, Some(Cause::Verdict { verdict: Verdict::Discard { .. }, .. }))
            | (Verb::Reject { .. }, Some(Cause::Verdict { verdict: Verdict::Reject { .. }, .. }))
            | (Verb::Accept, Some(Cause::Outcome { outcome: Outcome::Accepted, .. }))
            | (Verb::Reject { .. }, Some(Cause::Outcome { outcome: Outcome::Rejected { .. }, .. })) => true,
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
                Some(Cause::Outcome { outcome: Outcome::Deferred { delay: wish }, attempt, .. }),
            ) => {
                let may = valves.exhausted == Exhausted::Accept || *attempt < valves.max_delivery_attempt;
                may && *delay <= *wish + *wish / 10
            }
            _ => false,
        };
        assert!(fits, "{id}: {} has no cause", settlement.verb);
    }

    /// Whether it may be given back though nobody reported so: a renewal policy may say that of whatever is not emitted,
    /// and a tail that was renewed is given back when its head is lost.
    fn may_go_back(&self, settlement: &Settlement) -> bool {
        let lease = &self.messages[&settlement.message.id].lease;
        !self.emitted.contains(&settlement.id) && (lease.may_go_back || lease.may_follow_head)
    }

    fn check_order(&mut self, broker: &Broker, batch: u64, settlement: &Settlement, at: (usize, usize, u64)) {
        let (topic, offset, serial) = at;
        let id = &settlement.message.id;
        for (other, way) in self.on_way.iter().filter(|(_, way)| way.topic == topic) {
            assert_eq!(way.batch, batch, "{id}: sent while {other} of its key is on its way");
        }
        let alone = !self.on_way.values().any(|way| way.topic == topic);
        let order = self.orders.entry(topic).or_default();
        let stored = &broker.topics[topic].messages;
        if stored[offset].serial == serial {
            let open = stored.iter().enumerate().take(offset).skip(broker.topics[topic].frontier);
            // A renewed one whose head is lost goes back, and with it all behind that head.
            let lost = settlement.verb == Verb::Release && self.messages[id].lease.may_follow_head;
            for (earlier, other) in open.filter(|_| !lost) {
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

    pub(crate) fn answered(
        &mut self,
        now: Instant,
        settlement: &Settlement,
        result: &Result<Option<Handle>, SettleError>,
    ) {
        if let Verb::Renew(length) = settlement.verb {
            self.renewal_answered(now, settlement, length, result);
            return;
        }
        let (topic, offset, serial) = parse(&settlement.handle);
        self.on_way.remove(&settlement.id);
        if result.is_ok()
            && let Verb::Accept | Verb::Reject { .. } = settlement.verb
            && let Some(known) = self.messages.get_mut(&settlement.message.id)
        {
            known.given_back = 0;
            known.deferred_since = Duration::ZERO;
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
        self.seen.renewed_then_done += u64::from(known.generation > 0);
        assert!(fits, "{}: done by {} that nobody asked for", settlement.message.id, settlement.verb);
    }

    pub(crate) fn event(&mut self, now: Instant, event: &BookEvent) {
        match event {
            BookEvent::Expired { message, stage, .. } => {
                self.seen.expired += 1;
                let known = self.messages.get(message);
                let early = known.is_some_and(|known| known.working.iter().any(|(_, until)| now < *until));
                self.seen.given_back += u64::from(early && *stage == Stage::Emitted);
                let overlooked = self.messages.get(message).is_some_and(|known| known.lease.overlooked);
                assert!(!overlooked, "{message}: ran out, and nobody was asked");
                if let (Stage::Emitted, Some(known)) = (stage, self.messages.get_mut(message)) {
                    known.gone.extend(known.working.drain(..).map(|(id, _)| id));
                }
            }
            BookEvent::Valve { .. } => self.seen.valves += 1,
            BookEvent::RunEnded { order, cause, .. } => {
                self.seen.runs_ended += 1;
                let topic = order.strip_prefix("topic-").and_then(|topic| topic.parse().ok());
                let topic: usize = topic.expect("a topic's name");
                let head_lost = matches!(cause, RunEnd::Expired | RunEnd::SettleFailed);
                for known in self.messages.values_mut().filter(|known| known.topic == topic) {
                    known.lease.may_be_overtaken |= !known.working.is_empty();
                    known.lease.may_follow_head |= head_lost && known.lease.renewals > 0;
                }
            }
            BookEvent::Rerun { kind: RerunKind::StillHeld, message, .. } => {
                self.seen.still_held += 1;
                let known = &self.messages[message];
                let works = &known.working;
                let is_kept = known.ordered || works.is_empty() || !self.options.may_be_given_back;
                assert!(is_kept, "{message}: not emitted again though it was given back");
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
            BookEvent::Undone { .. } => self.seen.reruns += 1,
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
        assert!(counts.ordered_keys <= counts.in_flight + counts.renewing, "{counts:?}");
        assert!(counts.renewing <= 64, "{counts:?}");
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
fn is_spent(deferred: Duration, valves: &Valves) -> bool {
    deferred + Duration::from_millis(100) > valves.max_total_deferral
}
