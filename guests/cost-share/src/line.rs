//! When a key's deferred messages come back: one after another.
//!
//! A message that is deferred for its key's sake is of use again when there is a token for it, or when the workers run out
//! of what others have sent. Nobody knows when that is. So the messages of a key stand in a line and come back one by one,
//! about twice as fast as the workers could do them if they had nothing else to do: then there is always one for a worker
//! that would be idle, and the broker hands out little more than that. Who comes too early goes to the end of the line.
//!
//! The line is nothing but the moment at which its last one comes, in the host's state. There is no count of those who
//! wait, which would be wrong for ever after one of them went to another host or was passed by the host itself; and a
//! moment that was too late is over some time.

use tidegate_guest::state;

/// How deferrals of a line may be, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Line {
    pub(crate) shortest: u64,
    pub(crate) longest: u64,
}

/// How many messages come back in the time in which the workers could do one. With no more than one they would be idle at
/// times: deferrals are a little longer than they have to be, and some messages come while there is enough to do.
const DENSITY: f64 = 2.0;

/// Name of the counters with the next free moment of each line, in microseconds of the host's clock.
const NEXT: &str = "next";

impl Line {
    /// The deferral of one more message of the key, in milliseconds: no shorter than `earliest`, when the workers could
    /// do one every `seconds`. `None` when the line is longer than a deferral may be.
    pub(crate) fn join(&self, key: &str, now: u64, earliest: u64, seconds: f64) -> Option<u64> {
        let next = state::get(NEXT, key);
        let (delay, after) = self.place(next, now, earliest, seconds)?;
        // Of two that join at one moment one may overwrite the other's place, and they come together.
        state::add(NEXT, key, after - next, self.longest.saturating_mul(2));
        Some(delay)
    }

    /// The deferral, and the free moment after it.
    fn place(&self, next: i64, now: u64, earliest: u64, seconds: f64) -> Option<(u64, i64)> {
        let now = now.saturating_mul(1_000) as i64;
        let soonest = earliest.max(self.shortest).min(self.longest).saturating_mul(1_000) as i64;
        let longest = self.longest.saturating_mul(1_000) as i64;
        let wait = next.saturating_sub(now).max(soonest);
        (wait <= longest).then(|| {
            let step = ((seconds / DENSITY * 1e6).max(0.0) as i64).min(longest);
            ((wait / 1_000) as u64, now.saturating_add(wait).saturating_add(step))
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LINE: Line = Line { shortest: 250, longest: 60_000 };

    /// The deferrals of so many messages that are deferred at one moment.
    fn deferrals(n: usize, now: u64, earliest: u64, seconds: f64) -> Vec<u64> {
        let mut next = 0;
        let mut deferrals = Vec::new();
        for _ in 0..n {
            let Some((delay, after)) = LINE.place(next, now, earliest, seconds) else { break };
            next = after;
            deferrals.push(delay);
        }
        deferrals
    }

    #[test]
    fn they_come_one_after_another_from_when_the_first_is_of_use() {
        assert_eq!(deferrals(3, 1_000, 0, 1.0), [250, 750, 1_250]);
        assert_eq!(deferrals(3, 1_000, 2_000, 1.0), [2_000, 2_500, 3_000]);
        assert_eq!(deferrals(4, 1_000, 0, 0.0008), [250, 250, 250, 251]);
    }

    #[test]
    fn a_line_is_no_longer_than_the_longest_deferral() {
        let deferrals = deferrals(1_000, 1_000, 0, 1.0);
        assert_eq!(deferrals.len(), 120);
        assert_eq!(deferrals.last(), Some(&59_750));
    }

    #[test]
    fn a_line_that_nobody_joined_for_long_begins_anew() {
        let (delay, after) = LINE.place(5_000_000, 100_000, 0, 1.0).unwrap();
        assert_eq!((delay, after), (250, 100_750_000));
    }

    #[test]
    fn one_that_takes_for_ever_does_not_keep_the_line() {
        for seconds in [f64::INFINITY, 1e300] {
            let (_, after) = LINE.place(0, 1_000, 0, seconds).unwrap();
            assert_eq!(after, 61_250_000);
        }
        let (_, after) = LINE.place(0, 1_000, 0, f64::NAN).unwrap();
        assert_eq!(after, 1_250_000);
    }

    proptest! {
        #[test]
        fn deferrals_are_within_their_bounds_and_in_order(
            next: i64, now in 0_u64..1 << 50, earliest: u64, seconds in 0.0_f64..1e6,
        ) {
            if let Some((delay, after)) = LINE.place(next, now, earliest, seconds) {
                prop_assert!((250..=60_000).contains(&delay));
                prop_assert!(delay >= earliest.min(60_000));
                prop_assert!(after >= next || next > (now * 1_000) as i64);
                prop_assert!(after >= (now * 1_000) as i64);
            }
        }
    }
}
