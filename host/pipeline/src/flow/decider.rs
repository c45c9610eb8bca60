//! Who decides about a flow's messages: the throttle policy, and the policies that are only compared with it.

use std::sync::Arc;
use std::time::Duration;

use tidegate_connector::Clock;
use tidegate_lease::Decide;
use tidegate_model::{Instant, Verdict};
use tidegate_policy::{Answer, Cause, Kind, Outcome, Question, Throttle, ThrottleCaller};
use tidegate_telemetry::events::flow::{Origin, Progress};

use super::question::question;
use super::shadow::Shadows;
use super::tap::Taps;

/// The deciding side of one flow.
pub(super) struct Decider {
    source: Arc<str>,
    throttle: Option<Asked>,
    shadow: Option<Asked>,
    shadows: Shadows,
    taps: Taps,
    /// Beginning of the random numbers of the next question.
    seed: u64,
}

/// A policy and the flow's way to it.
struct Asked {
    policy: Throttle,
    caller: ThrottleCaller,
}

/// What came of asking.
#[derive(Debug)]
pub(super) struct Decided {
    /// What is done.
    pub(super) verdict: Verdict,
    /// Who said so.
    pub(super) origin: Origin,
    /// Set when the flow is to stop, with the reason: the message stays undecided then.
    pub(super) stop: Option<Cause>,
}

impl Decider {
    pub(super) fn new(
        source: Arc<str>,
        throttle: Option<Throttle>,
        shadow: Option<Throttle>,
        shadows: Shadows,
        taps: Taps,
        seed: u64,
    ) -> Self {
        Self {
            source,
            throttle: throttle.map(Asked::new),
            shadow: shadow.map(Asked::new),
            shadows,
            taps,
            seed,
        }
    }

    /// Whether there is anybody to ask.
    pub(super) const fn has_policy(&self) -> bool {
        self.throttle.is_some() || self.shadow.is_some()
    }

    /// Whether any of its policies wants to know how deliveries ended.
    pub(super) fn observes(&self) -> bool {
        self.asked().any(|asked| asked.policy.observes())
    }

    /// Tells those that want to know.
    pub(super) fn observe(&mut self, now: Instant, clock: &Clock, outcomes: &[Outcome]) {
        let wall = clock.wall();
        for asked in [&mut self.throttle, &mut self.shadow].into_iter().flatten() {
            asked.caller.observe(now, wall, outcomes);
        }
    }

    fn asked(&self) -> impl Iterator<Item = &Asked> {
        [&self.throttle, &self.shadow].into_iter().flatten()
    }

    /// Decides about one delivery.
    pub(super) fn decide(
        &mut self,
        decide: &Decide,
        now: Instant,
        clock: &Clock,
        progress: &mut Progress,
    ) -> Decided {
        if !self.has_policy() && !self.taps.has_any() {
            return Decided::without_policy();
        }
        self.seed = self.seed.wrapping_add(1);
        let question = question(&self.source, decide, now, clock.wall(), self.seed);
        let decided = match &mut self.throttle {
            None => {
                self.taps.show(&question, &Answer::Verdict(Verdict::Deliver), Origin::None);
                Decided::without_policy()
            }
            Some(throttle) => {
                let answer = throttle.caller.decide(&question);
                if throttle.policy.is_shadow() {
                    self.taps.show(&question, &Answer::Verdict(Verdict::Deliver), Origin::None);
                    let decided = Decided::without_policy();
                    compare(&self.shadows, progress, throttle, &question, &decided, &answer);
                    decided
                } else {
                    self.taps.show(&question, &answer, origin_of(&answer));
                    Decided::of(answer)
                }
            }
        };
        if let Some(shadow) = &mut self.shadow {
            // The very same question: the same clock, the same random numbers.
            let answer = shadow.caller.decide(&question);
            compare(&self.shadows, progress, shadow, &question, &decided, &answer);
        }
        decided
    }
}

fn compare(
    shadows: &Shadows,
    progress: &mut Progress,
    shadow: &Asked,
    question: &Question<'_>,
    live: &Decided,
    answer: &Answer,
) {
    let live = if live.stop.is_some() { Kind::NoAnswer } else { Kind::of_verdict(&live.verdict) };
    let other = Kind::said(answer);
    shadows.note(shadow.policy.name(), question, live, other);
    progress.shadow_verdict(shadow.policy.name(), live.label(), other.label());
}

/// Who answered.
const fn origin_of(answer: &Answer) -> Origin {
    match answer {
        Answer::Verdict(_) => Origin::Policy,
        Answer::OnError { .. } | Answer::Stop { .. } => Origin::OnError,
    }
}

impl Asked {
    fn new(policy: Throttle) -> Self {
        let caller = policy.caller();
        Self { policy, caller }
    }
}

impl Decided {
    const fn without_policy() -> Self {
        Self { verdict: Verdict::Deliver, origin: Origin::None, stop: None }
    }

    fn of(answer: Answer) -> Self {
        let origin = origin_of(&answer);
        match answer {
            Answer::Verdict(verdict) | Answer::OnError { verdict, .. } => {
                Self { verdict, origin, stop: None }
            }
            Answer::Stop { cause } => {
                let reason = "the flow stops".into();
                let deferral = tidegate_model::Deferral { delay: Duration::ZERO, reason };
                Self { verdict: Verdict::Defer(deferral), origin, stop: Some(cause) }
            }
        }
    }
}
