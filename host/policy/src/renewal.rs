//! Asking a renewal policy about a lease.

use std::sync::Arc;
use std::time::Duration;

use tidegate_model::{Instant, Renewal, Timestamp};

use crate::answer_kind::AnswerKind;
use crate::caller::{Caller, Occasion};
use crate::guest::{Call, Lease};
use crate::outcome::Outcome;
use crate::policy::Policy;
use crate::throttle::Question;

/// A renewal policy to be asked. Cheap to clone.
#[derive(Clone)]
pub struct Renewing(pub(crate) Arc<Policy>);

/// One flow's way to a renewal policy, with an instance of its own.
#[derive(Debug)]
pub struct RenewalCaller {
    caller: Caller,
    source: Arc<str>,
}

/// The lease that a renewal policy is asked about, beside what is known of its message.
#[derive(Clone, Copy, Debug)]
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
        RenewalCaller { caller: Caller::new(&self.0), source: "".into() }
    }
}

impl RenewalCaller {
    /// Asks the policy. When it cannot answer the lease runs out and the message comes again: that loses nothing and
    /// holds nothing back.
    pub fn decide(&mut self, question: &Question<'_>, facts: &LeaseFacts) -> Renewal {
        if *self.source != *question.source {
            self.source = question.source.into();
        }
        let source = &self.source;
        let occasion = Occasion {
            now: question.now,
            wall: question.wall,
            seed: question.seed,
            message: Some(&question.message.id),
        };
        let answer = self.caller.call(&occasion, AnswerKind::of_renewal, |instance, limits, moment| {
            let call = Call {
                source: Arc::clone(source),
                message: Arc::clone(question.message),
                key: Arc::clone(question.key),
                attempt: question.attempt,
                age: question.age,
                waited: question.waited,
                deferred: question.deferred,
                standing: question.standing,
            };
            let lease = Lease {
                remaining: facts.remaining,
                length: facts.length,
                renewals: facts.renewals,
                emitted: facts.emitted,
                queue_position: facts.queue_position,
            };
            instance.renew(limits.deadline, moment, call, lease)
        });
        answer.unwrap_or(Renewal::Lapse)
    }

    /// Tells the policy how deliveries ended, if it wants to know.
    pub fn observe(&mut self, now: Instant, wall: Timestamp, outcomes: &[Outcome]) {
        self.caller.observe(now, wall, outcomes);
    }
}

impl std::fmt::Debug for Renewing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Renewing").field(&self.0.name).finish()
    }
}
