//! Holding a key to a rate, so that what is held back comes again one by one and not all at once.
//!
//! A message without a token is deferred until one is due. On an ordered key (a lite topic) that message is the head
//! and everything behind it waits with it, so one deferral is enough. On others every message of the key is deferred
//! on its own: they stand in a line in which each has a later place, and jitter keeps two hosts from meeting. Who comes
//! too early goes to the end of the line.
//!
//! The line is nothing but the moment at which its next place is free, in the host's state. There is no count of those
//! who wait: it would be too high for ever after some of them went to another host, or were passed by the host or by
//! the policy itself without being asked about here. A moment that was too late is over some time.

use crate::{clock, state};

/// A rate and how its deferrals are shaped.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Messages a second, above zero.
    pub rate_per_second: f64,
    /// Messages that may pass at once after a pause, at least one.
    pub burst: f64,
    /// The shortest deferral, in milliseconds.
    pub delay: u64,
    /// The longest, in milliseconds.
    pub max_delay: u64,
    /// Part of a deferral that is left to chance, 0 to 1.
    pub jitter: f64,
}

impl Pace {
    /// Takes one message's token from the bucket of `key`: `None` when it may pass, else the milliseconds to defer
    /// it by.
    #[must_use]
    pub fn take(&self, bucket: &str, key: &str) -> Option<u64> {
        let limit = state::Limit { rate_per_second: self.rate_per_second, burst: self.burst.max(1.0) };
        let wait = state::take(bucket, key, 1.0, limit);
        if wait == 0 {
            return None;
        }
        let next = state::get(bucket, key);
        let (place, after) = self.place(next, clock::elapsed(), wait);
        // Of two that join at one moment one may overwrite the other's place, and they come together.
        state::add(bucket, key, after.saturating_sub(next), self.max_delay.saturating_mul(2));
        Some(self.jittered(place, clock::random()))
    }

    /// The deferral of a message for which a token is due in `wait` milliseconds, before jitter, and the moment at which
    /// the place behind it is free, when that of the line was `next`: both moments in microseconds of the host's clock.
    fn place(&self, next: i64, now: u64, wait: u64) -> (u64, i64) {
        let micros = |millis: u64| i64::try_from(millis.saturating_mul(1_000)).unwrap_or(i64::MAX);
        let (now, longest) = (micros(now), micros(self.max_delay.max(1)));
        let place = next.saturating_sub(now).max(micros(wait));
        let interval = (1e6 / self.rate_per_second).max(0.0) as i64;
        // A line is no longer than the longest deferral, so that whatever it says is true again after that.
        let after = place.min(longest).saturating_add(interval).min(longest);
        let delay = (place.min(longest) / 1_000).unsigned_abs();
        (delay.max(self.delay).min(self.max_delay.max(1)), now.saturating_add(after))
    }

    /// A deferral, made longer by a random number: only later, since earlier would find no token, and not beyond the
    /// longest.
    #[allow(clippy::manual_clamp, reason = "the panic of `clamp` costs 15 KB")]
    fn jittered(&self, delay: u64, random: u64) -> u64 {
        let longest = self.max_delay.max(1) as f64;
        let chance = random as f64 / u64::MAX as f64;
        (delay as f64 * (1.0 + self.jitter.max(0.0).min(1.0) * chance)).min(longest).max(1.0) as u64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PACE: Pace = Pace { rate_per_second: 2.0, burst: 4.0, delay: 500, max_delay: 30_000, jitter: 0.2 };

    /// The deferrals of messages that come at these moments, all of them without a token for `wait` milliseconds.
    fn deferrals(pace: &Pace, moments: impl IntoIterator<Item = u64>, wait: u64) -> Vec<u64> {
        let mut next = 0;
        let mut deferrals = Vec::new();
        for now in moments {
            let (deferral, after) = pace.place(next, now, wait);
            next = after;
            deferrals.push(deferral);
        }
        deferrals
    }

    #[test]
    fn each_that_waits_has_a_later_place() {
        assert_eq!(deferrals(&PACE, [1_000; 5], 100), [500, 600, 1_100, 1_600, 2_100]);
        assert_eq!(deferrals(&PACE, [1_000; 100], 100).last(), Some(&30_000), "and none beyond the longest");
    }

    #[test]
    fn a_line_that_nobody_joined_for_long_begins_anew() {
        assert_eq!(PACE.place(5_000_000, 100_000, 700), (700, 101_200_000));
    }

    proptest! {
        #[test]
        fn a_deferral_is_within_its_bounds_and_never_before_its_token(
            next: i64, now in 0_u64..1 << 50, wait in 1_u64..=u64::MAX, random: u64,
            rate_per_second in 0.001_f64..1e6, delay in 0_u64..10_000, longer in 0_u64..100_000, jitter in 0.0_f64..=1.0,
        ) {
            let pace = Pace { rate_per_second, burst: 1.0, delay, max_delay: delay + longer, jitter };
            let (place, after) = pace.place(next, now, wait);
            let deferral = pace.jittered(place, random);
            let longest = pace.max_delay.max(1);
            prop_assert!(deferral >= 1 && deferral >= delay && deferral >= place && deferral <= longest);
            prop_assert!(deferral >= wait.min(longest));
            prop_assert!(after >= now as i64 * 1_000 && after <= (now + longest) as i64 * 1_000);
        }

        #[test]
        fn later_places_are_never_earlier(next in 0_i64..1 << 40, now in 0_u64..1 << 30, wait in 1_u64..10_000) {
            let (place, after) = PACE.place(next, now, wait);
            prop_assert!(PACE.place(after, now, wait).0 >= place);
        }

        /// However many were deferred and never came again, since they went to another host or were passed without a
        /// token: who comes no faster than the rate waits for the token alone, as soon as the longest deferral is over.
        #[test]
        fn those_who_never_come_again_are_forgotten(
            lost in prop::collection::vec(0_u64..2_000, 1..200), gaps in prop::collection::vec(500_u64..3_000, 1..50),
            wait in 1_u64..400,
        ) {
            let mut now = 1_000;
            let mut next = 0;
            for gap in lost {
                now += gap;
                next = PACE.place(next, now, wait).1;
            }
            now += PACE.max_delay;
            for gap in gaps {
                let (deferral, after) = PACE.place(next, now, wait);
                prop_assert_eq!(deferral, PACE.delay.max(wait));
                next = after;
                now += gap.max(wait + 500);
            }
        }
    }
}
