//! Ordered keys of which a message was given back, without I/O.
//!
//! When a sink gives a message back, the flow has everything after it of its ordered key come again as well, and ignores
//! what the sink still says about that. Some of it is with the sink already, and some is emitted before the flow has
//! heard: sent, it would stand before the message that it follows. So nothing later of the key is sent until either that
//! message comes again, or the flow has said that it heard; what was emitted before then is given back, too.
//!
//! Emissions and the flow's notices come in one order, which is what this rests on: no clock is asked.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tidegate_model::{DeliveryId, Instant, MessageId, Timestamp};

/// Longest wait for the flow to say that it heard. It says so when the broker has answered, or has been given up.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// Most keys and reports remembered. Of more, those that were given back longest ago are forgotten: what is left of them
/// in the flow's channel is no more than the sink has credits, and goes by within moments.
const KEYS_MAX: usize = 16_384;
const REPORTS_MAX: usize = 65_536;

/// A delivery of an ordered key.
#[derive(Clone, Debug)]
pub(super) struct Ticket {
    pub(super) id: DeliveryId,
    pub(super) order: Option<Arc<str>>,
    pub(super) message_id: MessageId,
    pub(super) stored_at: Option<Timestamp>,
    /// As how manieth it came.
    pub(super) arrival: u64,
}

/// Whether a delivery may be sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Standing {
    /// It may.
    Free,
    /// It comes again behind one that was given back.
    Overtaken,
    /// One of these, and which shows when the flow has heard, at the latest by this time.
    Unclear(Instant),
}

/// The keys that are broken off.
#[derive(Debug, Default)]
pub(super) struct Runs {
    broken: HashMap<Arc<str>, Break>,
    /// Deliveries that were given back and of which the flow has not said that it heard.
    unheard: HashMap<DeliveryId, Arc<str>>,
}

#[derive(Debug)]
struct Break {
    /// Messages that failed and are not given back yet.
    held: usize,
    /// The earliest message that failed or was lost, and is to come again.
    missing: Ticket,
    /// As how manieth it came again, while it stands behind others: those behind it follow it.
    came_as: Option<u64>,
    /// Deliveries that were given back and of which the flow has not said that it heard.
    unheard: Vec<DeliveryId>,
    /// What came before as manieth comes again, unless it is the missing one or earlier.
    overtaken_before: u64,
    given_back_at: Instant,
}

impl Ticket {
    /// Whether it is of an earlier message. What a broker stored in the same millisecond goes by its delivery.
    fn is_before(&self, other: &Self) -> bool {
        match (self.stored_at, other.stored_at) {
            (Some(own), Some(others)) if own != others => own < others,
            _ => self.id < other.id,
        }
    }
}

impl Runs {
    /// A message failed: nothing of its key goes past it.
    pub(super) fn handle_held(&mut self, now: Instant, ticket: &Ticket) {
        if let Some(broken) = self.break_off(now, ticket) {
            broken.held += 1;
        }
    }

    /// A message that was held is given back. So far `arrivals` have come.
    pub(super) fn handle_given_back(&mut self, now: Instant, ticket: &Ticket, arrivals: u64) {
        if let Some(broken) = ticket.order.as_ref().and_then(|order| self.broken.get_mut(order)) {
            broken.held = broken.held.saturating_sub(1);
        }
        self.handle_lost(now, ticket, arrivals);
    }

    /// A message comes again without having been held, since its lease ran out. So far `arrivals` have come.
    pub(super) fn handle_lost(&mut self, now: Instant, ticket: &Ticket, arrivals: u64) {
        if let Some(broken) = self.break_off(now, ticket) {
            broken.overtaken_before = arrivals;
            self.await_notice(ticket);
        }
    }

    /// A message is given back because it comes again. The flow may think otherwise, and begin the key anew for it.
    pub(super) fn handle_overtaken(&mut self, now: Instant, ticket: &Ticket) {
        if self.break_off(now, ticket).is_some() {
            self.await_notice(ticket);
        }
    }

    /// The flow has heard what became of a delivery; so far `arrivals` have come. True when that makes the standing of
    /// others clear.
    pub(super) fn handle_heard(&mut self, id: DeliveryId, arrivals: u64) -> bool {
        let Some(broken) = self.unheard.remove(&id).and_then(|order| self.broken.get_mut(&order)) else {
            return false;
        };
        // The key may have been mended and broken off again since.
        let Some(at) = broken.unheard.iter().position(|other| *other == id) else { return false };
        broken.unheard.swap_remove(at);
        broken.overtaken_before = arrivals;
        broken.unheard.is_empty()
    }

    /// A delivery has come. True when it is one that others of its key wait for.
    pub(super) fn handle_arrival(&mut self, ticket: &Ticket) -> bool {
        let Some(broken) = ticket.order.as_ref().and_then(|order| self.broken.get_mut(order)) else {
            return false;
        };
        let is_missing = broken.held == 0 && broken.is_missing(ticket);
        if is_missing && broken.came_as.is_none() {
            broken.came_as = Some(ticket.arrival);
        }
        is_missing
    }

    /// How a delivery stands whose turn it is. Whoever is told that it is free sends it.
    pub(super) fn standing(&mut self, now: Instant, ticket: &Ticket) -> Standing {
        let Some(order) = &ticket.order else { return Standing::Free };
        let Some(broken) = self.broken.get_mut(order) else { return Standing::Free };
        let until = broken.given_back_at + PATIENCE;
        if !broken.unheard.is_empty() && until <= now {
            // Nobody will say any more.
            broken.unheard.clear();
            broken.overtaken_before = ticket.arrival + 1;
        }
        let standing = broken.standing(ticket, until);
        let is_missing = broken.is_missing(ticket);
        let is_behind = !is_missing && !ticket.is_before(&broken.missing) && broken.came_as.is_none();
        if standing == Standing::Free && broken.held == 0 && (is_missing || is_behind) {
            self.broken.remove(order);
        }
        standing
    }

    /// Whether a delivery that is not yet to be sent surely comes again.
    pub(super) fn is_overtaken(&self, ticket: &Ticket) -> bool {
        let broken = ticket.order.as_ref().and_then(|order| self.broken.get(order));
        broken.is_some_and(|broken| broken.standing(ticket, Instant::ZERO) == Standing::Overtaken)
    }

    fn break_off(&mut self, now: Instant, ticket: &Ticket) -> Option<&mut Break> {
        let order = ticket.order.as_ref()?;
        if !self.broken.contains_key(order) {
            self.make_room();
        }
        let broken = self.broken.entry(Arc::clone(order)).or_insert_with(|| Break::at(ticket.clone()));
        broken.given_back_at = now;
        if ticket.is_before(&broken.missing) || ticket.message_id == broken.missing.message_id {
            broken.missing = ticket.clone();
            broken.came_as = None;
        }
        Some(broken)
    }

    fn await_notice(&mut self, ticket: &Ticket) {
        let Some(order) = &ticket.order else { return };
        if self.unheard.len() >= REPORTS_MAX {
            self.unheard.clear();
        }
        self.unheard.insert(ticket.id, Arc::clone(order));
        if let Some(broken) = self.broken.get_mut(order) {
            broken.unheard.push(ticket.id);
        }
    }

    fn make_room(&mut self) {
        if self.broken.len() < KEYS_MAX {
            return;
        }
        let mut ends: Vec<Instant> = self.broken.values().map(|broken| broken.given_back_at).collect();
        ends.sort_unstable();
        let median = ends[ends.len() / 2];
        // What is held stays: there is no more of it than the sink has credits.
        self.broken.retain(|_, broken| broken.held > 0 || broken.given_back_at > median);
    }
}

impl Break {
    const fn at(missing: Ticket) -> Self {
        let given_back_at = Instant::ZERO;
        Self { held: 0, missing, came_as: None, unheard: Vec::new(), overtaken_before: 0, given_back_at }
    }

    fn standing(&self, ticket: &Ticket, until: Instant) -> Standing {
        let is_missing = self.held == 0 && self.is_missing(ticket);
        if is_missing || ticket.is_before(&self.missing) {
            return Standing::Free;
        }
        match self.came_as {
            _ if self.held > 0 => Standing::Overtaken,
            Some(came_as) if ticket.arrival < came_as => Standing::Overtaken,
            Some(_) => Standing::Free,
            None if ticket.arrival < self.overtaken_before => Standing::Overtaken,
            None if !self.unheard.is_empty() => Standing::Unclear(until),
            // The flow has begun the key anew, and behind what is missing: that went another way.
            None => Standing::Free,
        }
    }

    /// Whether a delivery is a newer one of the message that is missing.
    fn is_missing(&self, ticket: &Ticket) -> bool {
        self.missing.message_id == ticket.message_id && self.missing.id != ticket.id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_a_message_that_was_given_back_waits_for_it() {
        let mut runs = Runs::default();
        let failed = ticket(10, 5, 0);
        runs.handle_held(at(100), &failed);
        assert_eq!(runs.standing(at(200), &ticket(11, 6, 1)), Standing::Overtaken);
        runs.handle_given_back(at(300), &failed, 3);
        assert_eq!(runs.standing(at(310), &ticket(12, 7, 2)), Standing::Overtaken, "it was there");
        let next = ticket(13, 8, 3);
        assert_eq!(
            runs.standing(at(310), &next),
            Standing::Unclear(at(300) + PATIENCE),
            "has the flow heard?"
        );
        let again = ticket(14, 5, 4);
        assert!(runs.handle_arrival(&again));
        assert_eq!(runs.standing(at(320), &next), Standing::Overtaken, "it had not");
        assert_eq!(runs.standing(at(320), &again), Standing::Free);
        assert_eq!(runs.standing(at(320), &ticket(15, 6, 5)), Standing::Free, "and what follows it");
    }

    /// It was rejected by the policy, or another host has it.
    #[test]
    fn a_message_that_does_not_come_again_is_not_waited_for_once_the_flow_has_heard() {
        let mut runs = Runs::default();
        runs.handle_lost(at(1_000), &ticket(10, 5, 0), 1);
        let (before, after) = (ticket(11, 6, 1), ticket(12, 6, 2));
        assert!(matches!(runs.standing(at(1_100), &before), Standing::Unclear(_)));
        assert!(runs.handle_heard(DeliveryId(10), 2));
        assert_eq!(runs.standing(at(1_200), &before), Standing::Overtaken);
        assert_eq!(runs.standing(at(1_200), &after), Standing::Free);
        assert!(runs.broken.is_empty());
    }

    #[test]
    fn a_flow_that_says_nothing_is_not_waited_for_for_ever() {
        let mut runs = Runs::default();
        runs.handle_lost(at(1_000), &ticket(10, 5, 0), 1);
        let later = ticket(11, 6, 1);
        let Standing::Unclear(until) = runs.standing(at(1_100), &later) else { panic!("clear") };
        assert_eq!(runs.standing(until, &later), Standing::Overtaken, "once more, to be sure");
        assert_eq!(runs.standing(until, &ticket(12, 6, 2)), Standing::Free);
    }

    /// The broker begins with an earlier one, whose acknowledgement was lost.
    #[test]
    fn an_earlier_message_is_free_and_mends_nothing() {
        let mut runs = Runs::default();
        runs.handle_lost(at(1_000), &ticket(10, 5, 0), 2);
        assert_eq!(runs.standing(at(1_100), &ticket(11, 4, 3)), Standing::Free);
        assert_eq!(runs.standing(at(1_100), &ticket(9, 6, 1)), Standing::Overtaken);
        assert_eq!(runs.standing(at(1_100), &ticket(12, 5, 4)), Standing::Free);
        assert_eq!(runs.standing(at(1_100), &ticket(13, 6, 5)), Standing::Free);
    }

    /// Its lease ran out while it was held: the flow has begun its key anew before it is given back.
    #[test]
    fn what_came_again_before_it_was_given_back_is_free() {
        let mut runs = Runs::default();
        let failed = ticket(10, 5, 0);
        runs.handle_held(at(100), &failed);
        runs.handle_given_back(at(9_000), &failed, 4);
        assert_eq!(runs.standing(at(9_000), &ticket(11, 6, 1)), Standing::Overtaken);
        assert_eq!(runs.standing(at(9_000), &ticket(12, 5, 2)), Standing::Free);
        assert_eq!(runs.standing(at(9_000), &ticket(13, 6, 3)), Standing::Free);
    }

    #[test]
    fn of_several_given_back_the_earliest_is_waited_for() {
        let mut runs = Runs::default();
        let (early, late) = (ticket(10, 5, 0), ticket(13, 8, 1));
        runs.handle_held(at(1), &late);
        runs.handle_held(at(2), &early);
        runs.handle_given_back(at(3), &late, 2);
        assert_eq!(runs.standing(at(4), &ticket(14, 8, 2)), Standing::Overtaken, "one is still held");
        runs.handle_given_back(at(5), &early, 3);
        assert!(!runs.handle_heard(DeliveryId(13), 3), "of the other it has not");
        assert!(matches!(runs.standing(at(6), &ticket(15, 8, 3)), Standing::Unclear(_)));
        assert_eq!(runs.standing(at(7), &ticket(16, 5, 4)), Standing::Free);
    }

    #[test]
    fn what_has_no_order_is_free_and_keys_do_not_mix() {
        let mut runs = Runs::default();
        let unordered = Ticket { order: None, ..ticket(1, 1, 0) };
        runs.handle_held(at(1), &unordered);
        runs.handle_given_back(at(1), &unordered, 1);
        assert_eq!(runs.standing(at(1), &unordered), Standing::Free);
        runs.handle_lost(at(10), &ticket(2, 1, 1), 2);
        let other = Ticket { order: Some("other".into()), ..ticket(3, 2, 0) };
        assert_eq!(runs.standing(at(10), &other), Standing::Free);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut runs = Runs::default();
        for number in 0..100_000 {
            let order = Some(number.to_string().into());
            runs.handle_lost(at(number), &Ticket { order, ..ticket(number, 1, number) }, number + 1);
        }
        assert!(runs.broken.len() <= KEYS_MAX && runs.unheard.len() <= REPORTS_MAX);
    }

    fn ticket(id: u64, number: u64, arrival: u64) -> Ticket {
        Ticket {
            id: DeliveryId(id),
            order: Some("key".into()),
            message_id: number.to_string().into(),
            stored_at: Some(Timestamp::from_unix_millis(number)),
            arrival,
        }
    }

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }
}
