//! Lets so many events a second pass and counts the others.

use std::time::Duration;

use tidegate_model::Instant;

/// A window of one second at a time.
#[derive(Debug)]
pub(crate) struct Gate {
    per_second: u32,
    since: Option<Instant>,
    passed: u32,
    held: u64,
}

impl Gate {
    pub(crate) const fn new(per_second: u32) -> Self {
        Self { per_second, since: None, passed: 0, held: 0 }
    }

    /// Whether this event passes; with it the number of those that were held since the last that did.
    pub(crate) fn pass(&mut self, now: Instant) -> (bool, u64) {
        let over = self.since.is_none_or(|since| now.saturating_since(since) >= Duration::from_secs(1));
        if over {
            self.since = Some(now);
            self.passed = 0;
        }
        if self.passed < self.per_second {
            self.passed += 1;
            (true, std::mem::take(&mut self.held))
        } else {
            self.held += 1;
            (false, 0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_told_with_the_next_that_passes() {
        let mut gate = Gate::new(2);
        let answers: Vec<_> = (0..5).map(|n| gate.pass(Instant::from_millis(n))).collect();
        assert_eq!(answers, [(true, 0), (true, 0), (false, 0), (false, 0), (false, 0)]);
        assert_eq!(gate.pass(Instant::from_millis(1_000)), (true, 3));
        assert_eq!(gate.pass(Instant::from_millis(1_000)), (true, 0));
    }
}
