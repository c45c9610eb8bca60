//! Waits that double, with jitter.

use std::time::Duration;

/// Waits between tries: the first, then doubling up to the longest, each shortened by up to a fifth so that many
/// clients that failed together do not come back together. Pure: the jitter comes from the seed.
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    max: Duration,
    failures: u32,
    random: u64,
}

impl Backoff {
    /// Waits from `first` doubling to `max`.
    #[must_use]
    pub const fn new(first: Duration, max: Duration, seed: u64) -> Self {
        // Zero is the one seed from which xorshift never moves.
        Self { first, max, failures: 0, random: seed | 1 }
    }

    /// The wait after one more failure.
    pub fn next_wait(&mut self) -> Duration {
        let doublings = self.failures.min(20);
        self.failures = self.failures.saturating_add(1);
        let wait = self.first.saturating_mul(1 << doublings).min(self.max);
        wait - wait.mul_f64(self.next_fraction() / 5.0)
    }

    /// Starts anew after a success.
    pub const fn reset(&mut self) {
        self.failures = 0;
    }

    /// Failures since the last success.
    #[must_use]
    pub const fn failures(&self) -> u32 {
        self.failures
    }

    /// A number from 0 to 1 (xorshift64: jitter needs to differ, not to be unpredictable).
    fn next_fraction(&mut self) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        f64::from(u32::try_from(self.random >> 32).unwrap_or(u32::MAX)) / f64::from(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_up_to_the_longest() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(30), 7);
        for expected_ms in [100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 30_000, 30_000] {
            let wait = backoff.next_wait();
            let expected = Duration::from_millis(expected_ms);
            assert!(wait <= expected && wait >= expected.mul_f64(0.8), "{wait:?} for {expected:?}");
        }
        backoff.reset();
        assert!(backoff.next_wait() <= Duration::from_millis(100));
    }

    #[test]
    fn ten_thousand_failures_do_not_overflow() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(30), 0);
        for _ in 0..10_000 {
            assert!(backoff.next_wait() <= Duration::from_secs(30));
        }
    }
}
