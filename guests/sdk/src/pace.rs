//! Holding a key to a rate, so that what is held back comes again one by one and not all at once.
//!
//! A message without a token is deferred until one is due. On an ordered key (a lite topic) that message is the head
//! and everything behind it waits with it, so one deferral is enough. On others every message of the key is deferred
//! on its own; the host's counter of those that wait gives each a later place, and jitter keeps two hosts from
//! meeting.

use crate::Message;
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
    pub fn take(&self, bucket: &str, key: &str, message: &Message) -> Option<u64> {
        let limit = state::Limit { rate_per_second: self.rate_per_second, burst: self.burst.max(1.0) };
        let wait = state::take(bucket, key, 1.0, limit);
        let waited_before = message.deferred() > 0;
        // Whoever waits is counted until it passes, or until it should long have come again.
        let remembered = self.max_delay.saturating_mul(2);
        if wait == 0 {
            // It may have been forgotten meanwhile.
            if waited_before && state::get(bucket, key) > 0 {
                state::add(bucket, key, -1, remembered);
            }
            return None;
        }
        let ahead = if waited_before {
            state::get(bucket, key) - 1
        } else {
            state::add(bucket, key, 1, remembered) - 1
        };
        Some(self.delay_of(wait, u64::try_from(ahead).unwrap_or(0), clock::random()))
    }

    #[allow(clippy::manual_clamp, reason = "the panic of `clamp` costs 15 KB")]
    /// The deferral of a message for which a token is due in `wait` milliseconds and before which `ahead` others
    /// wait, given a random number.
    #[must_use]
    pub fn delay_of(&self, wait: u64, ahead: u64, random: u64) -> u64 {
        let interval = 1_000.0 / self.rate_per_second;
        let place = wait as f64 + ahead as f64 * interval;
        let longest = self.max_delay.max(1) as f64;
        // Not by `clamp`, whose panic would format its bounds: see `format_number`.
        let base = place.max(self.delay as f64).min(longest);
        // Only later, since earlier would find no token; and not beyond the longest.
        let chance = random as f64 / u64::MAX as f64;
        (base * (1.0 + self.jitter.max(0.0).min(1.0) * chance)).min(longest).max(1.0) as u64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PACE: Pace = Pace { rate_per_second: 2.0, burst: 4.0, delay: 500, max_delay: 30_000, jitter: 0.2 };

    #[test]
    fn each_that_waits_has_a_later_place() {
        let delays: Vec<_> = (0..5).map(|ahead| PACE.delay_of(100, ahead, 0)).collect();
        assert_eq!(delays, [500, 600, 1_100, 1_600, 2_100]);
    }

    proptest! {
        #[test]
        fn a_deferral_is_within_its_bounds_and_never_before_its_token(
            wait in 1_u64..=u64::MAX, ahead in 0_u64..1_000_000, random: u64,
            rate_per_second in 0.001_f64..1e6, delay in 0_u64..10_000, longer in 0_u64..100_000, jitter in 0.0_f64..=1.0,
        ) {
            let pace = Pace { rate_per_second, burst: 1.0, delay, max_delay: delay + longer, jitter };
            let deferral = pace.delay_of(wait, ahead, random);
            prop_assert!(deferral >= 1 && deferral >= delay);
            prop_assert!(deferral <= pace.max_delay.max(1));
            prop_assert!(deferral >= wait.min(pace.max_delay.max(1)));
        }

        #[test]
        fn later_places_are_never_earlier(wait in 1_u64..10_000, ahead in 0_u64..1_000, random: u64) {
            prop_assert!(PACE.delay_of(wait, ahead + 1, random) >= PACE.delay_of(wait, ahead, random));
        }
    }
}
