//! Asking a throttle policy for a verdict, and telling it how deliveries ended.

use std::sync::Arc;
use std::time::Duration;

use tidegate_model::{Deferral, Instant, Message, Standing, Timestamp, Verdict};

use crate::answer_kind::AnswerKind;
use crate::caller::{Caller, Occasion};
use crate::cause::Cause;
use crate::guest::Call;
use crate::outcome::Outcome;
use crate::policy::Policy;
use crate::spec::OnError;

/// A throttle policy to be asked. Cheap to clone.
#[derive(Clone)]
pub struct Throttle(pub(crate) Arc<Policy>);

/// One flow's way to a throttle policy, with an instance of its own.
#[derive(Debug)]
pub struct ThrottleCaller {
    caller: Caller,
    /// Name of the flow's source; the same at every call.
    source: Arc<str>,
}

/// What a policy is asked.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The source's name in the configuration.
    pub source: &'a str,
    /// The message.
    pub message: &'a Arc<Message>,
    /// What fairness is counted by.
    pub key: &'a Arc<str>,
    /// The larger of the broker's count and the host's, from 1.
    pub attempt: u32,
    /// Since it was produced.
    pub age: Duration,
    /// Since this host first received it.
    pub waited: Duration,
    /// By which it has been deferred so far.
    pub deferred: Duration,
    /// How its key stands in the flow.
    pub standing: Standing,
    /// The wall clock, frozen for the call.
    pub wall: Timestamp,
    /// The monotonic clock, frozen for the call.
    pub now: Instant,
    /// Beginning of the random numbers that the policy sees: with the same seed it sees the same.
    pub seed: u64,
}

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
        ThrottleCaller { caller: Caller::new(&self.0), source: "".into() }
    }
}

impl ThrottleCaller {
    /// Asks the policy. Takes about half a microsecond, and in the worst case the policy's deadline; never panics.
    pub fn decide(&mut self, question: &Question<'_>) -> Answer {
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
        let answer = self.caller.call(&occasion, AnswerKind::of_verdict, |instance, limits, moment| {
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
            instance.decide(limits.deadline, moment, call)
        });
        answer.map_or_else(|cause| self.on_error(cause), Answer::Verdict)
    }

    /// Tells the policy how deliveries ended, if it wants to know. A failure is counted like that of a decision.
    pub fn observe(&mut self, now: Instant, wall: Timestamp, outcomes: &[Outcome]) {
        self.caller.observe(now, wall, outcomes);
    }

    /// Bytes of memory that its instance has now.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.caller.memory_bytes()
    }

    fn on_error(&self, cause: Cause) -> Answer {
        let policy = self.caller.policy();
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
