//! The safety valves: what becomes of a wish to defer.

use std::time::Duration;

use crate::Valves;

/// A rest of the total deferral that is shorter than this is none. A deferral counts from the moment in which it is sent,
/// a little after it was decided, so the sum never quite reaches its bound: without this the last deferrals would be cut
/// to nothing, and the message would come in a hot loop until the attempt valve ends it.
const REST_MIN: Duration = Duration::from_millis(100);

/// A safety valve.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Valve {
    /// The message has been handed out too often: the deferral was not followed.
    Attempts,
    /// The message has been deferred for too long in sum, or kept for too long by renewals: the wish was not followed.
    TotalDeferral,
    /// The deferral or renewal was cut to the longest allowed.
    Length,
}

/// What becomes of a wish to defer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Ruling {
    /// Defer it for so long.
    Defer(Duration),
    /// Defer it, but not for as long as wished.
    Cut(Duration),
    /// Do not defer it.
    Refuse(Valve),
}

impl Valves {
    /// Judges a wish to defer a message for `delay` at its `attempt`th delivery, after it has been deferred for
    /// `deferred` in sum.
    pub(crate) fn judge(&self, attempt: u32, deferred: Duration, delay: Duration) -> Ruling {
        if attempt >= self.max_delivery_attempt {
            return Ruling::Refuse(Valve::Attempts);
        }
        let left = self.max_total_deferral.saturating_sub(deferred);
        let spent = left.is_zero() || (left < REST_MIN && !deferred.is_zero());
        if spent && !delay.is_zero() {
            return Ruling::Refuse(Valve::TotalDeferral);
        }
        let longest = self.longest_deferral(deferred);
        if delay > longest { Ruling::Cut(longest) } else { Ruling::Defer(delay) }
    }

    /// The longest deferral that a message may still get.
    pub(crate) fn longest_deferral(&self, deferred: Duration) -> Duration {
        self.max_total_deferral.saturating_sub(deferred).min(self.max_invisible_duration)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALVES: Valves = Valves {
        max_delivery_attempt: 3,
        max_invisible_duration: Duration::from_secs(10),
        max_total_deferral: Duration::from_secs(15),
        exhausted: crate::Exhausted::Accept,
    };

    #[test]
    fn a_deferral_that_lost_a_moment_on_its_way_spends_the_sum_as_well() {
        let almost = Duration::from_millis(14_999);
        assert_eq!(VALVES.judge(2, almost, Duration::from_secs(1)), Ruling::Refuse(Valve::TotalDeferral));
        assert_eq!(VALVES.judge(2, almost, Duration::ZERO), Ruling::Defer(Duration::ZERO));
        let short = Valves { max_total_deferral: Duration::from_millis(50), ..VALVES };
        assert_eq!(
            short.judge(1, Duration::ZERO, Duration::from_secs(1)),
            Ruling::Cut(Duration::from_millis(50))
        );
    }

    fn check(attempt: u32, deferred_s: u64, delay_s: u64, expected: Ruling) {
        let ruling = VALVES.judge(attempt, Duration::from_secs(deferred_s), Duration::from_secs(delay_s));
        assert_eq!(ruling, expected, "attempt {attempt}, deferred {deferred_s} s, delay {delay_s} s");
    }

    #[test]
    fn each_valve_holds_at_its_edge() {
        check(1, 0, 10, Ruling::Defer(Duration::from_secs(10)));
        check(1, 0, 11, Ruling::Cut(Duration::from_secs(10)));
        check(2, 10, 5, Ruling::Defer(Duration::from_secs(5)));
        check(2, 10, 6, Ruling::Cut(Duration::from_secs(5)));
        check(2, 15, 1, Ruling::Refuse(Valve::TotalDeferral));
        check(3, 0, 1, Ruling::Refuse(Valve::Attempts));
        check(u32::MAX, 0, 0, Ruling::Refuse(Valve::Attempts));
    }
}
