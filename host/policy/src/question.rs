//! What policies are asked about a message, and the way of one flow to a policy that is asked so.

use std::sync::Arc;
use std::time::Duration;

use tidegate_model::{Instant, Message, Standing, Timestamp};

use crate::answer_kind::AnswerKind;
use crate::caller::{Caller, Occasion};
use crate::cause::{Cause, Failure};
use crate::guest::{Call, Moment};
use crate::instance::Instance;
use crate::policy::Policy;
use crate::spec::Limits;

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

impl Question<'_> {
    /// When it is asked.
    pub(crate) fn occasion(&self) -> Occasion<'_> {
        Occasion { now: self.now, wall: self.wall, seed: self.seed, message: Some(&self.message.id) }
    }

    /// What the policy may look at; `source` is the question's own, shared.
    pub(crate) fn call(&self, source: Arc<str>) -> Call {
        Call {
            source,
            message: Arc::clone(self.message),
            key: Arc::clone(self.key),
            attempt: self.attempt,
            age: self.age,
            waited: self.waited,
            deferred: self.deferred,
            standing: self.standing,
        }
    }
}

/// A caller that asks about messages of one source.
#[derive(Debug)]
pub(crate) struct Asker {
    pub(crate) caller: Caller,
    /// Name of the flow's source; the same at every call.
    source: Arc<str>,
}

impl Asker {
    pub(crate) fn new(policy: &Arc<Policy>) -> Self {
        Self { caller: Caller::new(policy), source: "".into() }
    }

    /// Asks; see [`Caller::call`].
    pub(crate) fn ask<T>(
        &mut self,
        question: &Question<'_>,
        kind: impl FnOnce(&T) -> AnswerKind,
        entry: impl FnOnce(&mut Instance, &Limits, Moment, Call) -> Result<T, Failure>,
    ) -> Result<T, Cause> {
        if *self.source != *question.source {
            self.source = question.source.into();
        }
        let source = &self.source;
        self.caller.call(&question.occasion(), kind, |instance, limits, moment| {
            entry(instance, limits, moment, question.call(Arc::clone(source)))
        })
    }
}
