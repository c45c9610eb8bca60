//! One immutable state of a policy, and its probation.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use tidegate_model::{Instant, Timestamp};

use crate::ladder::Candidate;
use crate::prepared::Prepared;
use crate::rules;
use crate::spec::{Limits, Probation};

/// Failed calls that a probation stands in any case, so that a single odd message decides nothing.
const FAILURES_ALLOWED: u32 = 2;

/// Beyond those, one failed call among so many is too much.
const CALLS_PER_FAILURE: u64 = 100;

/// A probation that hardly any call came by ends all the same after so many times its length.
const TIMES_MAX: u32 = 10;

/// One immutable state of a policy: component, rules and limits. A reload makes another one.
pub(crate) struct Generation {
    /// From 1, counted per policy.
    pub(crate) number: u64,
    pub(crate) prepared: Arc<Prepared>,
    pub(crate) rules_json: Arc<str>,
    pub(crate) rules_sha256: Option<Arc<str>>,
    pub(crate) limits: Limits,
    pub(crate) since: Timestamp,
    pub(crate) origin: Origin,
    pub(crate) trial: Trial,
}

/// Where a generation came from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Origin {
    /// The policy's files.
    Files,
    /// The copy of what last ran well, because the files could not be used.
    LastGood,
    /// A generation before it, because the one after that was rolled back.
    Earlier,
}

/// Digests of the component and the rules.
pub(crate) type Digests = (Arc<str>, Option<Arc<str>>);

impl Generation {
    pub(crate) fn new(
        number: u64,
        candidate: Candidate,
        limits: Limits,
        since: Timestamp,
        origin: Origin,
        trial: Trial,
    ) -> Self {
        let Candidate { prepared, rules_json, rules_sha256 } = candidate;
        Self { number, prepared, rules_json, rules_sha256, limits, since, origin, trial }
    }

    pub(crate) fn digests(&self) -> Digests {
        (Arc::clone(&self.prepared.sha256), self.rules_sha256.clone())
    }

    /// Whether its rules set anything.
    pub(crate) fn has_rules(&self) -> bool {
        &*self.rules_json != rules::NOTHING
    }

    /// What there is to say about it: rules that set nothing may not be what was meant.
    pub(crate) fn remark(&self) -> Option<&'static str> {
        let is_empty = self.rules_sha256.is_some() && !self.has_rules();
        is_empty.then_some(rules::SETS_NOTHING)
    }
}

/// The first calls of a generation, in which it shows whether it can be left alone.
#[derive(Debug)]
pub(crate) struct Trial {
    rule: Probation,
    began: Instant,
    over: AtomicBool,
    calls: AtomicU32,
    failures: AtomicU32,
}

impl Trial {
    /// Begins now.
    pub(crate) const fn new(rule: Probation, began: Instant) -> Self {
        let over = AtomicBool::new(rule.calls == 0 && rule.time.is_zero());
        Self { rule, began, over, calls: AtomicU32::new(0), failures: AtomicU32::new(0) }
    }

    /// One that is not needed: the generation has shown already what it can do.
    pub(crate) const fn passed() -> Self {
        Self::new(Probation { calls: 0, time: Duration::ZERO }, Instant::ZERO)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    pub(crate) fn calls(&self) -> u32 {
        self.calls.load(Ordering::Relaxed)
    }

    pub(crate) fn failures(&self) -> u32 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Counts a call that went well.
    pub(crate) fn handle_success(&self) {
        if !self.is_over() {
            self.calls.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a call that failed; true when there are too many of them.
    pub(crate) fn handle_failure(&self) -> bool {
        if self.is_over() {
            return false;
        }
        let calls = self.calls.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let failures = self.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        is_too_much(failures, calls)
    }

    /// Whether too many calls have failed, and nothing has ended it: there was nothing to go back to.
    pub(crate) fn is_failing(&self) -> bool {
        !self.is_over() && is_too_much(self.failures(), self.calls())
    }

    /// Ends it when its time has come; true when that is now.
    pub(crate) fn handle_time(&self, now: Instant) -> bool {
        if self.is_over() {
            return false;
        }
        let ran = now.saturating_since(self.began);
        let tried = self.calls() >= self.rule.calls && ran >= self.rule.time;
        let ends = tried || ran >= self.rule.time * TIMES_MAX;
        ends && !self.over.swap(true, Ordering::Relaxed)
    }

    /// Ends it, whatever came of it.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

const fn is_too_much(failures: u32, calls: u32) -> bool {
    failures > FAILURES_ALLOWED && failures as u64 * CALLS_PER_FAILURE > calls as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: Probation = Probation { calls: 100, time: Duration::from_secs(10) };

    const fn at(seconds: u64) -> Instant {
        Instant::from_millis(seconds * 1_000)
    }

    #[test]
    fn two_failures_are_nothing_and_three_of_a_hundred_too_many() {
        let trial = Trial::new(RULE, at(0));
        (0..97).for_each(|_| trial.handle_success());
        assert!(!trial.handle_failure());
        assert!(!trial.handle_failure());
        assert!(trial.handle_failure());
    }

    #[test]
    fn three_failures_of_a_thousand_are_not_too_many() {
        let trial = Trial::new(RULE, at(0));
        (0..1_000).for_each(|_| trial.handle_success());
        assert!((0..3).all(|_| !trial.handle_failure()));
    }

    #[test]
    fn it_ends_when_both_calls_and_time_are_enough() {
        let trial = Trial::new(RULE, at(0));
        assert!(!trial.handle_time(at(20)), "no calls yet");
        (0..100).for_each(|_| trial.handle_success());
        assert!(!Trial::new(RULE, at(0)).handle_time(at(9)));
        assert!(trial.handle_time(at(20)));
        assert!(!trial.handle_time(at(21)), "only once");
        assert!(!trial.handle_failure(), "it is over");
    }

    #[test]
    fn without_traffic_it_ends_in_the_end() {
        let trial = Trial::new(RULE, at(0));
        assert!(!trial.handle_time(at(99)));
        assert!(trial.handle_time(at(100)));
    }

    #[test]
    fn without_calls_and_time_there_is_none() {
        assert!(Trial::new(Probation { calls: 0, time: Duration::ZERO }, at(5)).is_over());
    }
}
