//! The crash-loop breaker of one policy: when failing is the rule and not the exception, the policy is not asked for
//! a while, so that it can neither slow its flows nor fill the log.
//!
//! It opens on either of two signs:
//! - *Ratio*: of the calls since trouble began, the last 64 at most, at least [`FAILURES_MIN`] and at least half
//!   failed. A policy that fails on every hundredth message never gets there.
//! - *Time*: failed calls took more of the flow's time than [`WASTE_SHARE`] for longer than a moment. Their callers
//!   count computing time that came near the deadline (see [`crate::deadline`]), so traps and fresh instances are
//!   free and endless loops are not.
//!
//! Open, it refuses every call for a pause that doubles from 1 s to 30 s. Then one call is let through as a probe: a
//! success closes the breaker, a failure opens it again. The pause begins at 1 s again after 10 s without opening.
//!
//! A message that always makes the policy fail is one failure each time it comes; it cannot force more, because a
//! failed call is never repeated by the host.

use std::time::Duration;

use tidegate_model::Instant;

/// Failures before the ratio counts.
const FAILURES_MIN: u32 = 8;

/// Share of the wall time that failed calls may take for long.
const WASTE_SHARE: f64 = 0.1;

/// Failed time that may come at once: ten default deadlines.
const WASTE_BURST: Duration = Duration::from_millis(50);

/// The first pause and the longest.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Closed for so long, the next pause is the first again.
const FORGIVEN_AFTER: Duration = Duration::from_secs(10);

/// A probe that nobody reported on for so long is given up and another is let through.
const PROBE_LOST_AFTER: Duration = Duration::from_secs(1);

/// What happened to the breaker.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Change {
    Opened { pause: Duration, reason: &'static str },
    Closed,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Breaker {
    state: State,
    /// The last calls since trouble began, the newest in the lowest bit; a failure is a 1.
    recent: u64,
    /// How many of the bits are calls.
    seen: u32,
    wasted: Duration,
    wasted_at: Instant,
    pause: Duration,
    closed_at: Instant,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    Closed,
    Open { until: Instant },
    HalfOpen { since: Instant },
}

impl Breaker {
    pub(crate) const fn new() -> Self {
        Self {
            state: State::Closed,
            recent: 0,
            seen: 0,
            wasted: Duration::ZERO,
            wasted_at: Instant::ZERO,
            pause: Duration::ZERO,
            closed_at: Instant::ZERO,
        }
    }

    /// Whether it is closed and no recent call failed. While it is calm, successes need not be reported.
    pub(crate) fn is_calm(&self) -> bool {
        self.state == State::Closed && self.seen == 0
    }

    /// Whether it refuses calls or waits for a probe.
    pub(crate) fn is_open(&self) -> bool {
        self.state != State::Closed
    }

    /// Whether a call may be made now. Who is let through reports how it went.
    pub(crate) fn admit(&mut self, now: Instant) -> bool {
        match self.state {
            State::Closed => true,
            State::Open { until } if now < until => false,
            State::HalfOpen { since } if now.saturating_since(since) < PROBE_LOST_AFTER => false,
            State::Open { .. } | State::HalfOpen { .. } => {
                self.state = State::HalfOpen { since: now };
                true
            }
        }
    }

    /// A call went well.
    pub(crate) fn handle_success(&mut self, now: Instant) -> Option<Change> {
        match self.state {
            State::Closed if self.seen == 0 => None,
            State::Closed => {
                self.record(0);
                if self.recent == 0 {
                    self.seen = 0;
                }
                None
            }
            // Begun before it opened, by another caller.
            State::Open { .. } => None,
            State::HalfOpen { .. } => {
                self.state = State::Closed;
                self.closed_at = now;
                self.forget();
                Some(Change::Closed)
            }
        }
    }

    /// A call failed that had computed for so long.
    pub(crate) fn handle_failure(&mut self, now: Instant, spent: Duration) -> Option<Change> {
        match self.state {
            State::Open { .. } => None,
            State::HalfOpen { .. } => Some(self.open(now, "its probe failed")),
            State::Closed => {
                self.record(1);
                let failed = self.recent.count_ones();
                if failed >= FAILURES_MIN && failed * 2 >= self.seen {
                    return Some(self.open(now, "it failed on at least half of its last calls"));
                }
                self.waste(now, spent).then(|| self.open(now, "its failed calls take too much time"))
            }
        }
    }

    /// Another generation came into force: what went before says nothing about it.
    pub(crate) fn handle_swap(&mut self) -> Option<Change> {
        let was_open = self.is_open();
        *self = Self::new();
        was_open.then_some(Change::Closed)
    }

    const fn record(&mut self, failed: u64) {
        self.recent = self.recent << 1 | failed;
        if self.seen < u64::BITS {
            self.seen += 1;
        }
    }

    /// Adds to the wasted time, which drains at the allowed share; whether it ran over.
    fn waste(&mut self, now: Instant, spent: Duration) -> bool {
        let drained = now.saturating_since(self.wasted_at).mul_f64(WASTE_SHARE);
        self.wasted_at = self.wasted_at.max(now);
        self.wasted = self.wasted.saturating_sub(drained) + spent;
        self.wasted > WASTE_BURST
    }

    fn open(&mut self, now: Instant, reason: &'static str) -> Change {
        let forgiven = self.state == State::Closed && now.saturating_since(self.closed_at) >= FORGIVEN_AFTER;
        self.pause =
            if forgiven || self.pause.is_zero() { PAUSE_MIN } else { (self.pause * 2).min(PAUSE_MAX) };
        self.state = State::Open { until: now + self.pause };
        self.forget();
        Change::Opened { pause: self.pause, reason }
    }

    const fn forget(&mut self) {
        self.recent = 0;
        self.seen = 0;
        self.wasted = Duration::ZERO;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DEADLINE: Duration = Duration::from_millis(5);
    const TRAP: Duration = Duration::from_micros(40);

    const fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    /// A caller that makes `rate` calls a second for `seconds`; answers calls made, calls refused, and the time that
    /// failed calls took.
    fn run(seconds: u64, rate: u64, took: Duration, fails: impl Fn(u64) -> bool) -> (u64, u64, Duration) {
        let mut breaker = Breaker::new();
        let (mut made, mut refused, mut wasted) = (0, 0, Duration::ZERO);
        for n in 0..seconds * rate {
            let now = Instant::from_nanos(n * 1_000_000_000 / rate);
            if !breaker.admit(now) {
                refused += 1;
            } else if fails(n) {
                made += 1;
                wasted += took;
                breaker.handle_failure(now, took);
            } else {
                made += 1;
                breaker.handle_success(now);
            }
        }
        (made, refused, wasted)
    }

    #[test]
    fn a_trap_on_every_hundredth_message_never_opens_it() {
        for rate in [10, 1_000, 100_000] {
            let (_, refused, _) = run(20, rate, TRAP, |n| n % 100 == 0);
            assert_eq!(refused, 0, "at {rate} calls a second");
        }
    }

    #[test]
    fn a_policy_that_always_traps_is_hardly_asked() {
        let (made, refused, _) = run(60, 1_000, TRAP, |_| true);
        assert!(made < 20, "{made} calls in a minute");
        assert_eq!(made + refused, 60_000);
    }

    #[test]
    fn a_policy_that_always_loops_takes_no_time_to_speak_of() {
        let (_, _, wasted) = run(10, 5_000, DEADLINE, |_| true);
        assert!(wasted <= Duration::from_millis(70), "{wasted:?} of 10 s");
    }

    #[test]
    fn a_policy_that_loops_now_and_then_takes_a_bounded_share() {
        let (_, refused, wasted) = run(60, 5_000, DEADLINE, |n| n % 100 == 0);
        assert!(wasted <= Duration::from_secs(9), "{wasted:?} of 60 s");
        assert!(refused > 0);
        let (_, refused, _) = run(60, 5_000, DEADLINE, |n| n % 1_000 == 0);
        assert_eq!(refused, 0, "a loop on every thousandth message is within the share");
    }

    #[test]
    fn after_long_health_it_opens_as_fast() {
        let mut breaker = Breaker::new();
        for n in 0..10_000 {
            breaker.handle_success(at(n));
        }
        let opened = (0..FAILURES_MIN).find_map(|_| breaker.handle_failure(at(10_000), TRAP));
        assert!(matches!(opened, Some(Change::Opened { pause: PAUSE_MIN, .. })), "{opened:?}");
    }

    #[test]
    fn pauses_double_and_one_probe_goes_through() {
        let mut breaker = Breaker::new();
        let mut now = at(0);
        while breaker.handle_failure(now, TRAP).is_none() {}
        for pause in [1, 2, 4, 8, 16, 30, 30] {
            assert!(!breaker.admit(now + Duration::from_secs(pause) - Duration::from_nanos(1)));
            now += Duration::from_secs(pause);
            assert!(breaker.admit(now), "the probe after {pause} s");
            assert!(!breaker.admit(now), "and only one");
            breaker.handle_failure(now, TRAP);
        }
        now += Duration::from_secs(30);
        assert!(breaker.admit(now));
        assert_eq!(breaker.handle_success(now), Some(Change::Closed));
        assert!(breaker.is_calm() && breaker.admit(now) && breaker.admit(now));
    }

    #[test]
    fn a_relapse_is_not_forgiven_before_ten_good_seconds() {
        let relapse_after = |good: Duration| {
            let mut breaker = Breaker::new();
            while breaker.handle_failure(at(0), TRAP).is_none() {}
            assert!(breaker.admit(at(1_000)));
            breaker.handle_success(at(1_000));
            loop {
                if let Some(change) = breaker.handle_failure(at(1_000) + good, TRAP) {
                    return change;
                }
            }
        };
        let pause = |change| match change {
            Change::Opened { pause, .. } => pause,
            Change::Closed => Duration::ZERO,
        };
        assert_eq!(pause(relapse_after(Duration::from_secs(9))), PAUSE_MIN * 2);
        assert_eq!(pause(relapse_after(Duration::from_secs(10))), PAUSE_MIN);
    }

    #[test]
    fn a_lost_probe_does_not_keep_it_shut() {
        let mut breaker = Breaker::new();
        while breaker.handle_failure(at(0), TRAP).is_none() {}
        assert!(breaker.admit(at(1_000)));
        assert!(!breaker.admit(at(1_999)));
        assert!(breaker.admit(at(2_000)));
    }

    #[test]
    fn another_generation_begins_with_a_clean_sheet() {
        let mut breaker = Breaker::new();
        assert_eq!(breaker.handle_swap(), None);
        while breaker.handle_failure(at(0), TRAP).is_none() {}
        assert_eq!(breaker.handle_swap(), Some(Change::Closed));
        assert!(breaker.admit(at(1)) && breaker.is_calm());
    }

    proptest! {
        /// Whatever happens, it is never shut for longer than the longest pause and a lost probe.
        #[test]
        fn it_always_lets_a_call_through_again(events in prop::collection::vec((0_u64..3_000, 0_u8..3), 0..300)) {
            let mut breaker = Breaker::new();
            let mut now = at(0);
            for (wait, kind) in events {
                now += Duration::from_millis(wait);
                match kind {
                    0 => drop(breaker.handle_success(now)),
                    1 => drop(breaker.handle_failure(now, DEADLINE)),
                    _ => drop(breaker.admit(now)),
                }
                let mut later = Breaker { ..breaker };
                prop_assert!(later.admit(now + PAUSE_MAX + PROBE_LOST_AFTER));
            }
        }
    }
}
