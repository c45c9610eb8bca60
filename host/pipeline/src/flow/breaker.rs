//! How fast a flow may give messages up before it stops and asks: a mistake in a policy or in a worker would otherwise
//! move a whole topic to the dead letters.

use std::time::Duration;

use tidegate_model::Instant;

/// The window is counted in so many slices: a dead letter counts for the window, and for at most a sixtieth of it longer.
const SLICES: usize = 60;
/// The slice that is being filled comes on top.
const PLACES: usize = SLICES + 1;

/// Counts dead letters of the last while. Once there were too many nothing passes until [`reset`](Self::reset).
#[derive(Debug)]
pub(super) struct Breaker {
    burst: u32,
    slice: Duration,
    /// Dead letters by slice, a ring.
    counts: [u32; PLACES],
    /// The number of the slice that is being filled, since the clock's beginning.
    newest: u64,
    total: u32,
    tripped: bool,
}

/// What becomes of a message that is to be given up.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Ruling {
    /// It may be, and counts.
    Pass,
    /// It is the first one too many.
    Trip,
    /// There were too many before it.
    HoldBack,
}

impl Breaker {
    /// Lets `burst` pass within `window`.
    pub(super) fn new(burst: u32, window: Duration) -> Self {
        let slice = (window / SLICES as u32).max(Duration::from_nanos(1));
        Self { burst, slice, counts: [0; PLACES], newest: 0, total: 0, tripped: false }
    }

    /// Whether one more message may be given up.
    pub(super) fn judge(&mut self, now: Instant) -> Ruling {
        if self.tripped {
            return Ruling::HoldBack;
        }
        self.age(now);
        if self.total >= self.burst {
            self.tripped = true;
            return Ruling::Trip;
        }
        self.counts[place(self.newest)] += 1;
        self.total += 1;
        Ruling::Pass
    }

    /// One that passed was not given up after all.
    pub(super) fn take_back(&mut self) {
        let newest_first = (0..PLACES as u64).filter_map(|back| self.newest.checked_sub(back));
        let found = newest_first.map(place).find(|place| self.counts[*place] > 0);
        if let Some(place) = found {
            self.counts[place] -= 1;
            self.total -= 1;
        }
    }

    /// Begins anew, with an empty window.
    pub(super) fn reset(&mut self) {
        self.counts = [0; PLACES];
        self.total = 0;
        self.tripped = false;
    }

    /// Forgets what is older than the window.
    fn age(&mut self, now: Instant) {
        let current = u64::try_from(u128::from(now.as_nanos()) / self.slice.as_nanos()).unwrap_or(u64::MAX);
        let passed = current.saturating_sub(self.newest).min(PLACES as u64);
        for slice in (0..passed).map(|back| current - back) {
            let forgotten = std::mem::take(&mut self.counts[place(slice)]);
            self.total -= forgotten;
        }
        self.newest = self.newest.max(current);
    }
}

const fn place(slice: u64) -> usize {
    (slice % PLACES as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_secs(60);

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    fn passed(breaker: &mut Breaker, now: Instant, count: usize) -> usize {
        (0..count).filter(|_| breaker.judge(now) == Ruling::Pass).count()
    }

    #[test]
    fn the_first_one_too_many_trips_it_and_nothing_passes_any_more() {
        let mut breaker = Breaker::new(100, WINDOW);
        assert_eq!(passed(&mut breaker, at(5_000), 100), 100);
        assert_eq!(breaker.judge(at(5_001)), Ruling::Trip);
        assert_eq!(breaker.judge(at(5_002)), Ruling::HoldBack);
        assert_eq!(breaker.judge(at(600_000)), Ruling::HoldBack, "time alone does not mend it");
        breaker.reset();
        assert_eq!(passed(&mut breaker, at(600_000), 1_000), 100, "a fresh window");
    }

    #[test]
    fn as_many_as_the_burst_in_every_window_never_trip_it() {
        let mut breaker = Breaker::new(10, WINDOW);
        for minute in 0..200 {
            // The window and one slice apart, whatever lies between two of them.
            let now = at(7 + minute * 61_000);
            assert_eq!(passed(&mut breaker, now, 10), 10, "minute {minute}");
        }
        // Evenly spread.
        let mut breaker = Breaker::new(61, WINDOW);
        for second in 0..1_000 {
            assert_eq!(breaker.judge(at(second * 1_000)), Ruling::Pass, "second {second}");
        }
    }

    #[test]
    fn none_is_forgotten_before_the_window_is_over() {
        for first in [0, 1, 499, 999, 1_000, 59_999, 60_000, 1_234_567] {
            let mut breaker = Breaker::new(1, WINDOW);
            assert_eq!(breaker.judge(at(first)), Ruling::Pass);
            assert_eq!(breaker.judge(at(first + 59_999)), Ruling::Trip, "from {first}");
            let mut breaker = Breaker::new(1, WINDOW);
            assert_eq!(breaker.judge(at(first)), Ruling::Pass);
            assert_eq!(breaker.judge(at(first + 61_000)), Ruling::Pass, "from {first}");
        }
    }

    #[test]
    fn what_was_not_given_up_does_not_count() {
        let mut breaker = Breaker::new(2, WINDOW);
        assert_eq!(breaker.judge(at(0)), Ruling::Pass);
        assert_eq!(breaker.judge(at(30_000)), Ruling::Pass);
        breaker.take_back();
        assert_eq!(breaker.judge(at(40_000)), Ruling::Pass);
        assert_eq!(breaker.judge(at(41_000)), Ruling::Trip);
        breaker.reset();
        breaker.take_back();
        assert_eq!(passed(&mut breaker, at(42_000), 9), 2, "one that was forgotten already");
    }

    #[test]
    fn a_long_silence_and_a_clock_that_stands_still_are_no_trouble() {
        let mut breaker = Breaker::new(3, Duration::from_secs(1));
        assert_eq!(passed(&mut breaker, at(0), 3), 3);
        assert_eq!(passed(&mut breaker, at(86_400_000), 3), 3);
        assert_eq!(breaker.judge(at(86_400_000)), Ruling::Trip);
    }
}
