//! Asking a policy: the hot path.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant as StdInstant};

use tidegate_model::{Deferral, Instant, Message, Standing, Timestamp, Verdict};
use tidegate_telemetry::events;

use crate::cause::{Cause, Failure};
use crate::guest::{Call, Moment};
use crate::instance::Instance;
use crate::policy::{Generation, Policy};
use crate::random::SplitMix64;
use crate::spec::OnError;
use crate::verdict_kind::VerdictKind;

/// One call in so many is timed; reading the clock twice costs a tenth of a call.
const TIMED_ONE_IN: u32 = 64;

/// A throttle policy to be asked. Cheap to clone.
#[derive(Clone)]
pub struct Throttle(pub(crate) Arc<Policy>);

/// One flow's way to a policy. It owns an instance, which it uses again and again, and which it replaces when the
/// policy was reloaded or the instance failed.
///
/// A guest runs on the stack of the thread that asks, which must have 2 MiB (as tokio's threads and the standard
/// library's have).
pub struct ThrottleCaller {
    policy: Arc<Policy>,
    live: Option<Live>,
    /// Name of the flow's source; the same at every call.
    source: Arc<str>,
    random: SplitMix64,
    until_timed: u32,
}

struct Live {
    /// Number of the generation that it was made from.
    generation: u64,
    instance: Instance,
    uses_left: u32,
}

impl Live {
    fn fits(&self, generation: &Generation) -> bool {
        self.generation == generation.number && self.uses_left > 0
    }
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

    /// A way to ask, for one flow.
    #[must_use]
    pub fn caller(&self) -> ThrottleCaller {
        ThrottleCaller {
            policy: Arc::clone(&self.0),
            live: None,
            source: "".into(),
            random: SplitMix64::new(self.0.engine.next_seed()),
            until_timed: 0,
        }
    }
}

impl ThrottleCaller {
    /// Asks the policy. Takes about half a microsecond, and in the worst case the policy's deadline; never panics.
    pub fn decide(&mut self, question: &Question<'_>) -> Answer {
        let policy = Arc::clone(&self.policy);
        let loaded = policy.live.load();
        let Some(generation) = loaded.as_deref() else {
            return self.on_error(Cause::NotLoaded);
        };
        if !policy.admit(question.now) {
            // An instance that is not asked for a second or more need not take its place in the pool.
            self.live = None;
            return self.on_error(Cause::Breaker);
        }
        match self.ask(generation, question) {
            Ok(verdict) => {
                policy.succeeded(question.now, VerdictKind::of(&verdict));
                Answer::Verdict(verdict)
            }
            Err(failure) => {
                // The Store is poisoned.
                self.live = None;
                let cause = failure.cause;
                policy.failed(question.now, generation, question.message.id.as_str(), failure);
                self.answer_on_error(cause)
            }
        }
    }

    fn ask(&mut self, generation: &Generation, question: &Question<'_>) -> Result<Verdict, Failure> {
        if *self.source != *question.source {
            self.source = question.source.into();
        }
        let moment = Moment { wall: question.wall, now: question.now, random: self.random.fork() };
        let timer = self.timer();
        if !self.live.as_ref().is_some_and(|live| live.fits(generation)) {
            // The old one goes first: a pool that is full has no room for both.
            self.live = None;
            self.live = Some(self.start(generation, moment.clone(), question.now)?);
        }
        let Some(live) = &mut self.live else {
            return Err(Failure::new(Cause::Other, "there is no instance"));
        };
        live.uses_left -= 1;
        let call = Call {
            source: Arc::clone(&self.source),
            message: Arc::clone(question.message),
            key: Arc::clone(question.key),
            attempt: question.attempt,
            age: question.age,
            waited: question.waited,
            deferred: question.deferred,
            standing: question.standing,
        };
        let verdict = live.instance.decide(generation.limits.deadline, moment, call)?;
        if let Some(began) = timer {
            let took = began.elapsed();
            self.policy
                .engine
                .telemetry()
                .emit(events::policy::CallTimed { policy: &self.policy.name, took });
        }
        if let Some((lines, dropped)) = live.instance.take_log() {
            self.policy.log(question.now, lines, dropped);
        }
        Ok(verdict)
    }

    /// A fresh instance with its rules.
    fn start(&mut self, generation: &Generation, moment: Moment, now: Instant) -> Result<Live, Failure> {
        let Generation { prepared, rules_json, limits, .. } = generation;
        let policy = &self.policy;
        policy.counts.instances_started.fetch_add(1, Ordering::Relaxed);
        let mut instance =
            Instance::start(&policy.engine, &prepared.component, limits, &policy.state, moment)?;
        // It took the very same rules when it was loaded.
        instance.configure(limits, rules_json)?.map_err(|refused| {
            Failure::new(Cause::Other, format!("it refused its rules: {}: {}", refused.key, refused.message))
        })?;
        if let Some((lines, dropped)) = instance.take_log() {
            policy.log(now, lines, dropped);
        }
        let uses_left = spread(limits.uses_max, &mut self.random);
        Ok(Live { generation: generation.number, instance, uses_left })
    }

    #[allow(clippy::disallowed_methods, reason = "measures a call for the histogram, decides nothing")]
    fn timer(&mut self) -> Option<StdInstant> {
        if self.until_timed == 0 {
            self.until_timed = TIMED_ONE_IN;
            return Some(StdInstant::now());
        }
        self.until_timed -= 1;
        None
    }

    fn on_error(&self, cause: Cause) -> Answer {
        self.policy.count_failure(cause);
        self.answer_on_error(cause)
    }

    fn answer_on_error(&self, cause: Cause) -> Answer {
        match self.policy.spec.load().on_error {
            OnError::Deliver => Answer::OnError { verdict: Verdict::Deliver, cause },
            OnError::Defer(delay) => {
                let reason = format!("policy {} could not decide: {cause}", self.policy.name).into();
                Answer::OnError { verdict: Verdict::Defer(Deferral { delay, reason }), cause }
            }
            OnError::Stop => Answer::Stop { cause },
        }
    }
}

/// `uses`, a quarter more or less, and at least one.
fn spread(uses: u32, random: &mut SplitMix64) -> u32 {
    let quarter = u64::from(uses / 4);
    let drawn = u64::from(uses) - quarter + random.next() % (2 * quarter + 1);
    u32::try_from(drawn).unwrap_or(u32::MAX).max(1)
}

impl std::fmt::Debug for Throttle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Throttle").field(&self.0.name).finish()
    }
}

impl std::fmt::Debug for ThrottleCaller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ThrottleCaller").field("policy", &self.policy.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_live_for_about_as_many_uses_as_allowed() {
        let mut random = SplitMix64::new(1);
        let drawn: Vec<_> = (0..1_000).map(|_| spread(1_000, &mut random)).collect();
        assert!(drawn.iter().all(|uses| (750..=1_250).contains(uses)));
        assert!(drawn.iter().any(|&uses| uses < 800) && drawn.iter().any(|&uses| uses > 1_200));
        assert_eq!(spread(0, &mut random), 1);
        assert_eq!(spread(1, &mut random), 1);
    }
}
