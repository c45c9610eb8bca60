//! How deliveries ended, collected for policies that want to know.
//!
//! It is a notice and not a record: what comes faster than it can be told is dropped and counted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tidegate_lease::Taken;
use tidegate_model::{DeliveryId, Instant, MessageId, Outcome as Reported, Report, Verdict};
use tidegate_policy::{Ending, Outcome};

/// Outcomes told at once, as the contract says.
const BATCH_MAX: usize = 256;
/// Outcomes that wait to be told; four batches a second are told.
const WAITING_MAX: usize = 4 * BATCH_MAX;
/// Between two batches, unless one is full.
const TOLD_EVERY: Duration = Duration::from_millis(250);

/// Collects endings while a policy wants to know them.
#[derive(Debug)]
pub(super) struct Endings {
    is_on: bool,
    /// Deliveries that the flow may hold.
    held_max: usize,
    /// Deliveries that were accepted and have not ended. Those that left because an earlier one of their ordered key
    /// comes again are not told about; the oldest make room when there are more than the flow may hold.
    accepted: BTreeMap<DeliveryId, Accepted>,
    waiting: Vec<Outcome>,
    told_at: Instant,
    dropped: u64,
}

/// A delivery that the policy let pass.
#[derive(Debug)]
struct Accepted {
    key: Arc<str>,
    message: MessageId,
    attempt: u32,
    emitted_at: Option<Instant>,
}

impl Endings {
    /// Of a flow that may hold so many deliveries; off.
    pub(super) const fn new(held_max: usize) -> Self {
        Self {
            is_on: false,
            held_max,
            accepted: BTreeMap::new(),
            waiting: Vec::new(),
            told_at: Instant::ZERO,
            dropped: 0,
        }
    }

    /// Begins or stops collecting. What began to be held before is not told about.
    pub(super) fn set_on(&mut self, is_on: bool) {
        if self.is_on && !is_on {
            self.accepted.clear();
            self.waiting.clear();
        }
        self.is_on = is_on;
    }

    /// A verdict was taken: the end of a delivery that does not pass.
    pub(super) fn handle_verdict(&mut self, decide: &tidegate_lease::Decide, verdict: &Verdict) {
        if !self.is_on {
            return;
        }
        let ending = match verdict {
            Verdict::Deliver => {
                let accepted = Accepted {
                    key: Arc::clone(&decide.key),
                    message: decide.message.id.clone(),
                    attempt: decide.attempt,
                    emitted_at: None,
                };
                self.accepted.insert(decide.id, accepted);
                if self.accepted.len() > self.held_max {
                    self.accepted.pop_first();
                }
                return;
            }
            Verdict::Defer(_) => Ending::Deferred,
            Verdict::Reject { .. } => Ending::Rejected,
            Verdict::Discard { .. } => Ending::Accepted,
        };
        self.push(Outcome {
            key: Arc::clone(&decide.key),
            id: decide.message.id.clone(),
            ending,
            attempt: decide.attempt,
            spent: Duration::ZERO,
            cost: 0.0,
        });
    }

    /// A sink has it.
    pub(super) fn handle_emitted(&mut self, id: DeliveryId, now: Instant) {
        if let Some(accepted) = self.accepted.get_mut(&id) {
            accepted.emitted_at = Some(now);
        }
    }

    /// A sink reported on it, and the book took that or not.
    pub(super) fn handle_report(&mut self, now: Instant, report: &Report, taken: Taken) {
        let Some(accepted) = self.accepted.remove(&report.id) else { return };
        let ending = match (taken, &report.outcome) {
            // What another host was told is not known here; that the work was done is.
            (Taken::Yes, Reported::Accepted | Reported::Elsewhere) => Ending::Accepted,
            (Taken::Yes, Reported::Deferred { .. }) => Ending::Deferred,
            (Taken::Yes, Reported::Released) => Ending::Released,
            (Taken::Yes, Reported::Rejected { .. }) => Ending::Rejected,
            (Taken::LeaseExpired | Taken::Overtaken, _) => Ending::Expired,
            (Taken::Unknown, _) => return,
        };
        self.push(accepted.ended(now, ending, report.cost));
    }

    /// The lease of a message ran out.
    pub(super) fn handle_expired(&mut self, now: Instant, message: &MessageId) {
        // Rare, and no more than the flow holds.
        let id = self.accepted.iter().find(|(_, accepted)| accepted.message == *message).map(|(id, _)| *id);
        if let Some(accepted) = id.and_then(|id| self.accepted.remove(&id)) {
            self.push(accepted.ended(now, Ending::Expired, None));
        }
    }

    /// What to tell now, if it is time to; else when it will be.
    pub(super) fn poll_batch(&mut self, now: Instant) -> Option<Vec<Outcome>> {
        let due = now.saturating_since(self.told_at) >= TOLD_EVERY;
        if self.waiting.is_empty() || !(due || self.waiting.len() >= BATCH_MAX) {
            return None;
        }
        self.told_at = now;
        let rest = self.waiting.split_off(self.waiting.len().min(BATCH_MAX));
        Some(std::mem::replace(&mut self.waiting, rest))
    }

    /// When there is something to tell.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        (!self.waiting.is_empty()).then(|| self.told_at + TOLD_EVERY)
    }

    /// Outcomes that were dropped since the last time somebody asked.
    pub(super) fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    fn push(&mut self, outcome: Outcome) {
        if self.waiting.len() >= WAITING_MAX {
            self.dropped += 1;
        } else {
            self.waiting.push(outcome);
        }
    }
}

impl Accepted {
    fn ended(self, now: Instant, ending: Ending, cost: Option<f64>) -> Outcome {
        let spent = self.emitted_at.map_or(Duration::ZERO, |at| now.saturating_since(at));
        Outcome {
            key: self.key,
            id: self.message,
            ending,
            attempt: self.attempt,
            spent,
            cost: cost.unwrap_or(spent.as_secs_f64()),
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_lease::Decide;
    use tidegate_model::{BodyState, Deferral, Message, Standing};

    use super::*;

    fn decide(n: u64) -> Decide {
        Decide {
            id: DeliveryId(n),
            message: Arc::new(Message {
                topic: "orders".into(),
                lite_topic: None,
                group: None,
                id: MessageId::from(format!("message-{n}")),
                tag: None,
                keys: vec![],
                properties: vec![],
                body: "".into(),
                body_state: BodyState::Intact,
                born_at: None,
                stored_at: None,
            }),
            key: "tenant".into(),
            attempt: 2,
            waited: Duration::ZERO,
            deferred: Duration::ZERO,
            standing: Standing::default(),
        }
    }

    fn on() -> Endings {
        let mut endings = Endings::new(10);
        endings.set_on(true);
        endings
    }

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    fn deferral() -> Verdict {
        Verdict::Defer(Deferral { delay: Duration::from_secs(1), reason: "busy".into() })
    }

    #[test]
    fn a_delivery_is_told_with_what_its_sink_did_and_how_long() {
        let mut endings = on();
        endings.handle_verdict(&decide(1), &Verdict::Deliver);
        endings.handle_emitted(DeliveryId(1), at(1_000));
        let report = Report { id: DeliveryId(1), outcome: Reported::Accepted, cost: None };
        endings.handle_report(at(1_500), &report, Taken::Yes);
        let told = endings.poll_batch(at(1_500)).unwrap();
        assert_eq!(told.len(), 1);
        assert_eq!((told[0].ending, told[0].attempt), (Ending::Accepted, 2));
        assert_eq!((told[0].spent, told[0].cost), (Duration::from_millis(500), 0.5));
        assert!(endings.accepted.is_empty() && endings.poll_timeout().is_none());
    }

    #[test]
    fn the_workers_cost_counts_and_a_late_report_is_an_expiry() {
        let mut endings = on();
        for n in 1..=2 {
            endings.handle_verdict(&decide(n), &Verdict::Deliver);
        }
        let report = |id, cost| Report { id: DeliveryId(id), outcome: Reported::Released, cost };
        endings.handle_report(at(1_000), &report(1, Some(7.0)), Taken::Yes);
        endings.handle_report(at(1_000), &report(2, None), Taken::LeaseExpired);
        let told = endings.poll_batch(at(1_000)).unwrap();
        assert_eq!((told[0].ending, told[0].cost), (Ending::Released, 7.0));
        assert_eq!(told[1].ending, Ending::Expired);
    }

    #[test]
    fn an_expiry_is_told_once() {
        let mut endings = on();
        endings.handle_verdict(&decide(1), &Verdict::Deliver);
        endings.handle_expired(at(900), &MessageId::from("message-1"));
        endings.handle_expired(at(900), &MessageId::from("message-1"));
        let report = Report { id: DeliveryId(1), outcome: Reported::Accepted, cost: None };
        endings.handle_report(at(950), &report, Taken::Unknown);
        assert_eq!(endings.poll_batch(at(1_000)).unwrap().len(), 1);
    }

    #[test]
    fn batches_are_spaced_and_bounded_and_the_rest_is_counted() {
        let mut endings = on();
        for n in 0..2_000 {
            endings.handle_verdict(&decide(n), &deferral());
        }
        assert_eq!(endings.take_dropped(), 2_000 - WAITING_MAX as u64);
        assert_eq!(endings.poll_batch(at(1_000)).unwrap().len(), BATCH_MAX);
        let more = std::iter::from_fn(|| endings.poll_batch(at(1_001))).map(|batch| batch.len());
        assert_eq!(more.collect::<Vec<_>>(), [BATCH_MAX; 3]);
        endings.handle_verdict(&decide(1), &deferral());
        assert_eq!(endings.poll_batch(at(1_100)), None, "a quarter of a second apart");
        assert_eq!(endings.poll_timeout(), Some(at(1_251)));
        assert_eq!(endings.poll_batch(at(1_251)).unwrap().len(), 1);
    }

    #[test]
    fn no_more_is_kept_than_a_flow_holds() {
        let mut endings = on();
        for n in 0..100 {
            endings.handle_verdict(&decide(n), &Verdict::Deliver);
        }
        assert_eq!(endings.accepted.len(), 10);
        assert!(endings.accepted.contains_key(&DeliveryId(99)));
    }

    #[test]
    fn nothing_is_kept_for_a_policy_that_does_not_want_to_know() {
        let mut endings = Endings::new(10);
        endings.handle_verdict(&decide(1), &Verdict::Deliver);
        endings.handle_verdict(&decide(2), &deferral());
        assert!(endings.accepted.is_empty() && endings.poll_batch(at(9_000)).is_none());
    }
}
