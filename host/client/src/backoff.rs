//! Waits that double, with jitter.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

/// Where jitter comes from (xorshift64: it needs to differ between workers, not to be unpredictable).
#[derive(Clone, Debug)]
pub(crate) struct Jitter(u64);

/// Beyond so many doublings a wait is the longest in any case.
const DOUBLINGS_MAX: u32 = 20;

impl Jitter {
    /// One that differs from every other worker's.
    pub(crate) fn new() -> Self {
        // The standard library's keys are random, and that is all that is wanted of them.
        Self::from_seed(RandomState::new().hash_one(0))
    }

    pub(crate) const fn from_seed(seed: u64) -> Self {
        // Zero is the one seed from which xorshift never moves.
        Self(seed | 1)
    }

    /// The wait after so many failures: `first`, doubling up to `longest`, of which up to a half is left out, so that
    /// workers that lost one host together do not come to the next together.
    pub(crate) fn wait(&mut self, first: Duration, longest: Duration, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(DOUBLINGS_MAX);
        let wait = first.saturating_mul(1 << doublings).min(longest);
        wait - wait.mul_f64(self.next_fraction() / 2.0)
    }

    fn next_fraction(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        f64::from(u32::try_from(self.0 >> 32).unwrap_or(u32::MAX)) / f64::from(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_differ() {
        let mut jitter = Jitter::from_seed(7);
        let (first, longest) = (Duration::from_millis(100), Duration::from_secs(10));
        for (failures, whole) in [(1, 100), (2, 200), (3, 400), (7, 6_400), (8, 10_000), (u32::MAX, 10_000)] {
            let whole = Duration::from_millis(whole);
            let wait = jitter.wait(first, longest, failures);
            assert!(wait <= whole && wait >= whole / 2, "{wait:?} of {whole:?}");
        }
        assert_ne!(jitter.wait(first, longest, 9), jitter.wait(first, longest, 9));
    }
}
