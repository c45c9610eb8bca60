//! Asking a throttle policy for a verdict, and telling it how deliveries ended.

use std::sync::Arc;

use tidegate_model::{Deferral, Instant, Timestamp, Verdict};

use crate::answer_kind::AnswerKind;
use crate::cause::Cause;
use crate::outcome::Outcome;
use crate::policy::Policy;
use crate::question::{Asker, Question};
use crate::spec::OnError;

/// A throttle policy to be asked. Cheap to clone.
#[derive(Clone)]
pub struct Throttle(pub(crate) Arc<Policy>);

/// One flow's way to a throttle policy, with an instance of its own.
#[derive(Debug)]
pub struct ThrottleCaller(Asker);

/// What came of asking.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Answer {
    /// The policy decided.
    Verdict(Verdict),
    /// It could not, and its `on-error` says what becomes of the message.
    OnError {
        /// That.
        verdict: Verdict,
        /// Why it could not.
        cause: Cause,
    },
    /// It could not, and its `on-error` stops the flow. The message stays undecided.
    Stop {
        /// Why it could not.
        cause: Cause,
    },
}

impl Throttle {
    /// The policy's name.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.0.name
    }

    /// Whether it decides without being followed, as its configuration says now.
    #[must_use]
    pub fn is_shadow(&self) -> bool {
        self.0.spec.load().mode.is_shadow()
    }

    /// Whether the generation that runs wants to know how deliveries ended.
    #[must_use]
    pub fn observes(&self) -> bool {
        self.0.observes()
    }

    /// A way to ask, for one flow.
    #[must_use]
    pub fn caller(&self) -> ThrottleCaller {
        ThrottleCaller(Asker::new(&self.0))
    }
}

impl ThrottleCaller {
    /// Asks the policy. Takes about half a microsecond, and in the worst case the policy's deadline; never panics.
    pub fn decide(&mut self, question: &Question<'_>) -> Answer {
        let answer = self.0.ask(question, AnswerKind::of_verdict, |instance, limits, moment, call| {
            instance.decide(limits.deadline, moment, call)
        });
        answer.map_or_else(|cause| self.on_error(cause), Answer::Verdict)
    }

    /// Tells the policy how deliveries ended, if it wants to know. A failure is counted like that of a decision.
    pub fn observe(&mut self, now: Instant, wall: Timestamp, outcomes: &[Outcome]) {
        self.0.caller.observe(now, wall, outcomes);
    }

    /// Bytes of memory that its instance has now.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.0.caller.memory_bytes()
    }

    fn on_error(&self, cause: Cause) -> Answer {
        let policy = self.0.caller.policy();
        match policy.spec.load().on_error {
            OnError::Deliver => Answer::OnError { verdict: Verdict::Deliver, cause },
            OnError::Defer(delay) => {
                let reason = format!("policy {} could not decide: {cause}", policy.name).into();
                Answer::OnError { verdict: Verdict::Defer(Deferral { delay, reason }), cause }
            }
            OnError::Stop => Answer::Stop { cause },
        }
    }
}

impl std::fmt::Debug for Throttle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Throttle").field(&self.0.name).finish()
    }
}
