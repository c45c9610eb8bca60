//! Who decides about leases that end soon: the source's renewal policy.

use std::sync::Arc;

use tidegate_connector::Clock;
use tidegate_lease::RenewalQuestion;
use tidegate_model::{Instant, Renewal};
use tidegate_policy::{LeaseFacts, Outcome, RenewalCaller, Renewing};

use super::question::question;

/// The renewing side of one flow.
pub(super) struct Renewer {
    source: Arc<str>,
    policy: Renewing,
    caller: RenewalCaller,
    /// Beginning of the random numbers of the next question.
    seed: u64,
}

impl Renewer {
    pub(super) fn new(source: Arc<str>, policy: Renewing, seed: u64) -> Self {
        let caller = policy.caller();
        Self { source, policy, caller, seed }
    }

    /// Whether the policy wants to know how deliveries ended.
    pub(super) fn observes(&self) -> bool {
        self.policy.observes()
    }

    /// Tells it.
    pub(super) fn observe(&mut self, now: Instant, clock: &Clock, outcomes: &[Outcome]) {
        self.caller.observe(now, clock.wall(), outcomes);
    }

    /// Asks about one lease. A policy that cannot answer lets it run out: the message comes again then.
    pub(super) fn decide(&mut self, asked: &RenewalQuestion, now: Instant, clock: &Clock) -> Renewal {
        self.seed = self.seed.wrapping_add(1);
        let question = question(&self.source, &asked.about, now, clock.wall(), self.seed);
        let facts = LeaseFacts {
            remaining: asked.remaining,
            length: asked.length,
            renewals: asked.renewals,
            emitted: asked.emitted,
            queue_position: asked.queue_position,
        };
        self.caller.decide(&question, &facts)
    }
}
