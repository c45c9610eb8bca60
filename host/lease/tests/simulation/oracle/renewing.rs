//! What must hold of renewals: which questions may come and which must, and what may be sent for which answer.
//!
//! A question is about one delivery and, in an ordered key, speaks for all of it. The oracle does not see which of a key's
//! deliveries the book still holds; where it has to guess, it guesses in favour of the book. Without order it is exact.

use std::collections::HashMap;
use std::time::Duration;

use tidegate_lease::{RenewalOptions, RenewalQuestion, Wish};
use tidegate_model::{
    DeliveryId, Emission, Handle, Instant, MessageId, Renewal, SettleError, SettleFault, Settlement,
};

use super::{Known, Oracle};
use crate::broker::{generation, parse};

/// Two questions about one delivery are so far apart.
const SPACING: Duration = Duration::from_secs(1);
/// The book's timers are late by two ticks of 2^24 ns at most.
const LATE_MAX: Duration = Duration::from_millis(34);

/// The renewals of one book and the questions about them, as far as they are not a message's own.
#[derive(Default)]
pub(super) struct Renewing {
    /// Questions that are out: the message, and what the answer will be.
    questions: HashMap<DeliveryId, (MessageId, Renewal)>,
    asked_at: HashMap<DeliveryId, Instant>,
    /// Renewals that are on their way.
    flights: HashMap<DeliveryId, Flight>,
    /// By ordered topic: not to be asked about before this, or not surely.
    quiet_until: HashMap<usize, Instant>,
    /// An answer allows a renewal that was not sent yet.
    wishes: bool,
    /// Renewals for workers that were not sent yet.
    of_workers: HashMap<DeliveryId, (MessageId, Duration)>,
}

pub(super) struct Flight {
    message: MessageId,
    serial: u64,
    sent_at: Instant,
}

/// What is known of the renewals of a message's newest lease.
#[derive(Debug)]
pub(super) struct Lease {
    /// How often it was renewed by all that the host was told.
    pub(super) renewals: u32,
    kept: Duration,
    /// How long before its end it may be asked about, and must be, as far as the options have it.
    lead_most: Duration,
    lead_least: Duration,
    /// A question spoke for it since it began or was renewed last.
    asked: bool,
    /// It was due and nothing was in the way, and yet it was not asked about.
    pub(super) overlooked: bool,
    /// Not to be asked about before this, or not surely.
    quiet_until: Instant,
    /// It may be one that is never asked about again.
    may_have_lapsed: bool,
    /// By this delivery it surely is.
    lapsed: Option<DeliveryId>,
    failures: u32,
    /// The longest renewal that an answer allowed, and the one that is not sent yet.
    wish_max: Option<Duration>,
    wish: Option<Duration>,
    /// An answer allows to give it back.
    pub(super) may_go_back: bool,
    /// It was renewed, and the head of its key was lost: it goes back for that one's sake, without having had its turn.
    pub(super) may_follow_head: bool,
    /// It may be overtaken.
    pub(super) may_be_overtaken: bool,
}

impl Lease {
    /// Of a message that just came, whether it is held or not.
    pub(super) fn begin_anew(&mut self, now: Instant, is_worked_on: bool) {
        *self = Self {
            quiet_until: self.quiet_until.max(now + LATE_MAX),
            may_be_overtaken: self.may_be_overtaken && is_worked_on,
            ..Self::default()
        };
    }
}

impl Default for Lease {
    fn default() -> Self {
        Self {
            renewals: 0,
            kept: Duration::ZERO,
            lead_most: Duration::MAX,
            lead_least: Duration::MAX,
            asked: false,
            overlooked: false,
            quiet_until: Instant::ZERO,
            may_have_lapsed: false,
            lapsed: None,
            failures: 0,
            wish_max: None,
            wish: None,
            may_go_back: false,
            may_follow_head: false,
            may_be_overtaken: false,
        }
    }
}

impl Known {
    fn is_due(&self, now: Instant, options: &RenewalOptions) -> bool {
        now < self.expires_at && self.expires_at - options.ahead.min(self.lease.lead_most) <= now
    }

    fn must_be_asked_about(&self, now: Instant, options: &RenewalOptions) -> bool {
        let lease = &self.lease;
        let due = self.expires_at - options.ahead.min(lease.lead_least);
        let frozen = !self.working.is_empty() && (!options.renew_emitted || lease.may_be_overtaken);
        due + LATE_MAX <= now
            && lease.quiet_until <= now
            && !(lease.asked || lease.may_have_lapsed || lease.may_be_overtaken || frozen)
    }
}

impl Oracle {
    /// A question, and the answer that it will get.
    pub(crate) fn asked(
        &mut self,
        now: Instant,
        question: &RenewalQuestion,
        answer: Renewal,
        options: &RenewalOptions,
    ) {
        self.seen.asked += 1;
        let id = question.about.id;
        let message = &question.about.message.id;
        let known = &self.messages[message];
        assert!(!self.settled.contains(&id), "{id}: asked about though settled");
        assert!(!known.renewing, "{id}: asked about while it is renewed");
        let emitted = known.working.iter().any(|(working, _)| *working == id);
        assert_eq!(question.emitted, emitted, "{id}: {question:?}");
        assert!(!emitted || options.renew_emitted, "{id}: frozen by its emission");
        assert!(emitted || !self.draining, "{id}: asked about while draining");
        assert_ne!(known.lease.lapsed, Some(id), "{id}: asked about though lapsed");
        assert!(!known.lease.overlooked, "{id}: asked about too late: {:?}", known.lease);
        assert_eq!(question.renewals, known.lease.renewals, "{id}");
        assert!(now < known.expires_at, "{id}: asked about after its lease");
        let peers = self.peers(message);
        let mut live = peers.iter().map(|peer| &self.messages[peer]).filter(|peer| now < peer.expires_at);
        assert!(
            live.clone().any(|peer| peer.is_due(now, options)),
            "{id}: asked about early, {:?} before its end",
            question.remaining
        );
        let end = now + question.remaining;
        assert!(end <= known.expires_at, "{id}: ends after {:?}", question.remaining);
        assert!(
            live.any(|peer| peer.expires_at == end),
            "{id}: no lease ends after {:?}",
            question.remaining
        );
        if let Some(before) = self.renewing.asked_at.insert(id, now) {
            assert!(
                before + SPACING <= now,
                "{id}: asked about again after {:?}",
                now.saturating_since(before)
            );
        }
        let out = self.renewing.questions.insert(id, (message.clone(), answer));
        assert!(out.is_none(), "{id}: asked about twice");
        self.quieten(message, now + SPACING + LATE_MAX);
        for peer in peers {
            let lease = &mut self.known(&peer).lease;
            lease.asked = true;
            lease.overlooked = false;
        }
    }

    /// The answer reaches the book.
    pub(crate) fn told(&mut self, now: Instant, id: DeliveryId, options: Option<&RenewalOptions>) {
        let (message, answer) = self.renewing.questions.remove(&id).expect("asked before");
        self.quieten(&message, now + SPACING + LATE_MAX);
        self.renewing.wishes |= matches!(answer, Renewal::Renew(_));
        let flies = self.renewing.flights.contains_key(&id);
        let known = self.known(&message);
        let renewable = |options: &RenewalOptions| known.working.is_empty() || options.renew_emitted;
        let counts = options.is_some_and(renewable) && !known.lease.may_be_overtaken && !flies;
        if answer == Renewal::Lapse && counts {
            known.lease.lapsed = Some(id);
        }
        for peer in self.peers(&message) {
            let lease = &mut self.known(&peer).lease;
            lease.asked = true;
            lease.overlooked = false;
            match answer {
                Renewal::Renew(wish) => {
                    lease.wish_max = lease.wish_max.max(Some(wish));
                    lease.wish.get_or_insert(wish);
                }
                Renewal::Release => {
                    lease.may_go_back = true;
                    lease.may_have_lapsed = true;
                }
                Renewal::Lapse => lease.may_have_lapsed = true,
            }
        }
    }

    /// A worker's wish for more time, and what the book says to it.
    pub(crate) fn wished(&mut self, now: Instant, emission: &Emission, length: Duration, wish: Wish) {
        let (delivery, id) = (emission.id, &emission.message.id);
        let planned = self.renewing.of_workers.contains_key(&delivery);
        let known = &self.messages[id];
        let works = known.working.iter().any(|(working, _)| *working == delivery);
        match wish {
            Wish::LeaseGone => {
                let gone = !works || known.ended(now, delivery) || known.lease.may_be_overtaken;
                assert!(gone, "{id}: a worker is told that its lease is gone");
                return;
            }
            Wish::Busy => return,
            Wish::Enough(until) => {
                assert_eq!(until, known.expires_at, "{id}");
                // The book looks again at when to ask.
                self.known(id).lease.lead_least = Duration::ZERO;
            }
            Wish::Planned => {
                let known = self.known(id);
                // Also one that a policy has left to itself.
                known.lease.lapsed = None;
                self.renewing.of_workers.insert(delivery, (id.clone(), length));
                self.seen.wished += 1;
            }
        }
        let known = &self.messages[id];
        assert!(works && now < known.expires_at, "{id}: {wish:?} though its lease is gone");
        assert!(!known.renewing && !planned, "{id}: {wish:?} though it is being renewed");
        self.quieten(id, now + SPACING + LATE_MAX);
    }

    /// The valve allows no further renewal of the message, so that it was not asked about.
    pub(crate) fn spent(&mut self, message: &MessageId) {
        self.known(message).lease.may_have_lapsed = true;
    }

    /// The renewal options change.
    pub(crate) fn reloaded(&mut self, now: Instant) {
        // They may be dropped with what policies wanted.
        self.renewing.of_workers.clear();
        for known in self.messages.values_mut() {
            known.lease.quiet_until = known.lease.quiet_until.max(now + LATE_MAX);
        }
    }

    /// The book was woken, and asked for all its questions.
    pub(crate) fn all_asked(&mut self, now: Instant, options: Option<&RenewalOptions>) {
        let Some(options) = options else { return };
        // What keeps a key, or a message without order, from being asked about.
        let out = self.renewing.questions.values().map(|(message, _)| message);
        let flying = self.renewing.flights.values().map(|flight| &flight.message);
        let planned = self.renewing.of_workers.values().map(|(message, _)| message);
        let live = self.messages.iter().filter(|(_, known)| now < known.expires_at);
        let lapsed = live.filter(|(_, known)| known.lease.may_have_lapsed);
        let blocked = out.chain(flying).chain(planned).chain(lapsed.map(|(message, _)| message));
        for message in blocked.cloned().collect::<Vec<_>>() {
            self.quieten(&message, now + SPACING + LATE_MAX);
        }
        for known in self.messages.values_mut().filter(|known| now < known.expires_at) {
            let quiet_until = self.renewing.quiet_until.get(&known.topic);
            let quiet = known.ordered && quiet_until.is_some_and(|until| now < *until);
            if !quiet && known.must_be_asked_about(now, options) {
                known.lease.overlooked = true;
            }
        }
    }

    /// The book was asked for all its settlements: a wish that was not sent would not have lengthened the lease.
    pub(crate) fn all_sent(&mut self, now: Instant, options: Option<&RenewalOptions>) {
        if !std::mem::take(&mut self.renewing.wishes) {
            return;
        }
        for known in self.messages.values_mut() {
            let Some(wish) = known.lease.wish.take() else { continue };
            let length = options.map_or(wish, |options| wish.min(options.length_max));
            let lead = length.min(known.expires_at.saturating_since(now)) / 2;
            known.lease.lead_least = known.lease.lead_least.min(lead);
        }
    }

    pub(super) fn renewal_sent(
        &mut self,
        now: Instant,
        settlement: &Settlement,
        length: Duration,
        options: Option<&RenewalOptions>,
    ) {
        self.seen.renewed += 1;
        let id = &settlement.message.id;
        assert!(!self.settled.contains(&settlement.id), "{id}: renewed after it was settled");
        let (topic, _, serial) = parse(&settlement.handle);
        assert!(
            !self.on_way.values().any(|way| way.topic == topic && way.ordered && way.gives_back),
            "{id}: renewed while its key is given back"
        );
        let valves = self.options.valves;
        let of_worker = self.renewing.of_workers.remove(&settlement.id);
        let known = self.known(id);
        assert_eq!(serial, known.serial, "{id}: renewed with an old handle");
        assert_eq!(generation(&settlement.handle), known.generation, "{id}: renewed with an old handle");
        assert!(!known.renewing, "{id}: renewed twice");
        assert!(now < known.expires_at, "{id}: renewed after its lease");
        assert!(now + length > known.expires_at, "{id}: a renewal that shortens");
        if let Some((_, wish)) = of_worker {
            assert!(length <= wish && length <= valves.max_invisible_duration, "{id}: renewed by {length:?}");
        } else {
            let options = options.expect("renewed though renewal is off");
            assert!(known.working.is_empty() || options.renew_emitted, "{id}: frozen by its emission");
            let wish = known.lease.wish_max.expect("renewed though no answer says so");
            assert!(length <= wish && length <= options.length_max, "{id}: renewed by {length:?}");
            known.lease.wish = None;
        }
        let kept = known.lease.kept + (now + length).saturating_since(known.expires_at);
        assert!(kept <= valves.max_total_deferral, "{id}: kept for {kept:?}");
        known.renewing = true;
        let flight = Flight { message: id.clone(), serial, sent_at: now };
        assert!(self.renewing.flights.insert(settlement.id, flight).is_none(), "{id}: renewed twice");
    }

    pub(super) fn renewal_answered(
        &mut self,
        now: Instant,
        settlement: &Settlement,
        length: Duration,
        result: &Result<Option<Handle>, SettleError>,
    ) {
        let Some(flight) = self.renewing.flights.remove(&settlement.id) else { return };
        self.quieten(&flight.message, now + SPACING + LATE_MAX);
        let known = self.known(&flight.message);
        let gone = result.as_ref().is_err_and(|error| error.fault == SettleFault::LeaseGone);
        if gone {
            known.gone.insert(settlement.id);
        }
        if known.serial != flight.serial {
            return;
        }
        known.renewing = false;
        let end = flight.sent_at + length;
        match result {
            Ok(handle) => {
                let lease = &mut known.lease;
                lease.kept += end.saturating_since(known.expires_at);
                lease.renewals += 1;
                lease.failures = 0;
                lease.asked = false;
                (lease.lead_most, lease.lead_least) = (length / 2, length / 2);
                known.expires_at = end;
                known.generation = handle.as_ref().map_or(known.generation, generation);
                for (_, until) in known.working.iter_mut().filter(|(id, _)| *id == settlement.id) {
                    *until = end;
                }
            }
            Err(_) if gone => known.expires_at = Instant::ZERO,
            Err(_) => {
                known.lease.failures += 1;
                known.lease.may_have_lapsed |= known.lease.failures > 1;
            }
        }
    }

    /// Whatever a question about the message speaks for.
    fn peers(&self, message: &MessageId) -> Vec<MessageId> {
        let about = &self.messages[message];
        if !about.ordered {
            return vec![message.clone()];
        }
        let of_key = self.messages.iter().filter(|(_, known)| known.topic == about.topic);
        of_key.map(|(peer, _)| peer.clone()).collect()
    }

    /// Nobody has to ask about the message, or its ordered key, before `until`.
    fn quieten(&mut self, message: &MessageId, until: Instant) {
        let known = self.known(message);
        known.lease.quiet_until = known.lease.quiet_until.max(until);
        if known.ordered {
            let of_key = self.renewing.quiet_until.entry(self.messages[message].topic).or_default();
            *of_key = until.max(*of_key);
        }
    }

    /// Whether a renewal of the ordered topic is on its way.
    pub(super) fn is_renewed(&self, topic: usize) -> bool {
        self.renewing.flights.values().any(|flight| self.messages[&flight.message].topic == topic)
    }

    fn known(&mut self, message: &MessageId) -> &mut Known {
        self.messages.get_mut(message).expect("received before")
    }
}
