//! Asking a renewal policy about a lease.

use std::sync::Arc;
use std::time::Duration;

use tidegate_model::{Instant, Renewal, Timestamp};

use crate::answer_kind::AnswerKind;
use crate::outcome::Outcome;
use crate::policy::Policy;
use crate::question::{Asker, Question};

/// A renewal policy to be asked. Cheap to clone.
#[derive(Clone)]
pub struct Renewing(pub(crate) Arc<Policy>);

/// One flow's way to a renewal policy, with an instance of its own.
#[derive(Debug)]
pub struct RenewalCaller(Asker);

/// The lease that a renewal policy is asked about, beside what is known of its message.
#[derive(Clone, Copy, Debug, Default)]
pub struct LeaseFacts {
    /// Until it ends.
    pub remaining: Duration,
    /// For how long it was taken at first.
    pub length: Duration,
    /// How often it was renewed already.
    pub renewals: u32,
    /// Whether a sink has the delivery.
    pub emitted: bool,
    /// Deliveries that the sink gets before this one.
    pub queue_position: u32,
}

impl Renewing {
    /// The policy's name.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.0.name
    }

    /// Whether the generation that runs wants to know how deliveries ended.
    #[must_use]
    pub fn observes(&self) -> bool {
        self.0.observes()
    }

    /// A way to ask, for one flow.
    #[must_use]
    pub fn caller(&self) -> RenewalCaller {
        RenewalCaller(Asker::new(&self.0))
    }
}

impl RenewalCaller {
    /// Asks the policy. When it cannot answer the lease runs out and the message comes again: that loses nothing and
    /// holds nothing back.
    pub fn decide(&mut self, question: &Question<'_>, facts: &LeaseFacts) -> Renewal {
        let answer = self.0.ask(question, AnswerKind::of_renewal, |instance, limits, moment, call| {
            instance.renew(limits.deadline, moment, call, *facts)
        });
        answer.unwrap_or(Renewal::Lapse)
    }

    /// Tells the policy how deliveries ended, if it wants to know.
    pub fn observe(&mut self, now: Instant, wall: Timestamp, outcomes: &[Outcome]) {
        self.0.caller.observe(now, wall, outcomes);
    }
}

impl std::fmt::Debug for Renewing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Renewing").field(&self.0.name).finish()
    }
}
