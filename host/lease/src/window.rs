//! Sliding window counters: a sum over the last so many seconds from two numbers.
//!
//! The usual approximation: the current window's sum, plus the previous window's in proportion to how much of it is
//! still inside. Exact when what happened in the previous window was evenly spread.

use tidegate_model::Instant;

/// A sum over the last `SECONDS` seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Window<const SECONDS: u64> {
    /// Which window `current` is of, counted from the beginning of the process.
    number: u64,
    current: f64,
    previous: f64,
}

impl<const SECONDS: u64> Window<SECONDS> {
    const NANOS: u64 = SECONDS * 1_000_000_000;

    pub(crate) fn add(&mut self, now: Instant, amount: f64) {
        let number = now.as_nanos() / Self::NANOS;
        if number != self.number {
            *self = self.at(number);
        }
        self.current += amount;
    }

    /// The sum over the last `SECONDS` seconds.
    pub(crate) fn sum(&self, now: Instant) -> f64 {
        let nanos = now.as_nanos();
        let rolled = self.at(nanos / Self::NANOS);
        let inside = (Self::NANOS - nanos % Self::NANOS) as f64 / Self::NANOS as f64;
        rolled.current + rolled.previous * inside
    }

    pub(crate) fn rate_per_second(&self, now: Instant) -> f64 {
        self.sum(now) / SECONDS as f64
    }

    /// Moved on to window `number`. A reading that lies before the last one counts as the last one.
    const fn at(&self, number: u64) -> Self {
        match number.saturating_sub(self.number) {
            0 => *self,
            1 => Self { number, current: 0.0, previous: self.current },
            _ => Self { number, current: 0.0, previous: 0.0 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_stream_has_its_rate_and_an_ended_one_none() {
        let mut window = Window::<10>::default();
        for millis in (0..25_000).step_by(100) {
            window.add(Instant::from_millis(millis), 1.0);
        }
        let rate = window.rate_per_second(Instant::from_millis(25_000));
        assert!((rate - 10.0).abs() < 0.1, "{rate}");
        assert!(window.sum(Instant::from_millis(32_000)) < 100.0);
        assert!(window.sum(Instant::from_millis(40_001)).abs() < f64::EPSILON);
    }
}
