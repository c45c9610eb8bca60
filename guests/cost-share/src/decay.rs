//! Sums that halve in so long, kept in whole numbers that can only be added to.
//!
//! What is added later weighs more, instead of what was added before weighing less (forward decay: Cormode and others,
//! 2009): so any number of workers can add at the same time, and nothing has to be written anew as time goes. Weights
//! begin anew with each epoch, before they grow too large. A sum is that of this epoch and of the one before, which has
//! sunk to less than a hundredth when it is dropped.

/// Half-lives in an epoch: so weights are 1 to 256.
const EPOCH: u64 = 8;

/// A unit of the whole numbers is a millionth: of a second, a token, a row.
const UNITS: f64 = 1e6;

/// The largest amount that is added at once. Larger ones are a worker's mistake, and the sum over all keys would not hold
/// many of them.
pub(crate) const AMOUNT_MAX: f64 = 1e9;

/// How fast sums decay.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decay {
    /// Milliseconds.
    half_life: u64,
}

/// Where in time a number belongs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// Which of the two alternating counters is that of this epoch.
    pub(crate) parity: usize,
    /// Half-lives since the epoch began.
    age: f64,
}

impl Decay {
    pub(crate) const fn new(half_life: u64) -> Self {
        Self { half_life }
    }

    /// How long a counter is kept after its last change, in milliseconds: through the epoch after its own and no longer,
    /// since the one after that counts in the same place.
    pub(crate) const fn kept(self) -> u64 {
        EPOCH * self.half_life
    }

    pub(crate) fn place(self, now: u64) -> Place {
        let epoch = EPOCH * self.half_life;
        Place { parity: (now / epoch % 2) as usize, age: (now % epoch) as f64 / self.half_life as f64 }
    }

    /// What a steady stream would have to be, per second, for its sum to be so high.
    pub(crate) fn per_second(self, sum: f64) -> f64 {
        sum * std::f64::consts::LN_2 * 1_000.0 / self.half_life as f64
    }
}

impl Place {
    /// What an amount adds to the counter of this epoch.
    #[allow(clippy::manual_clamp, reason = "what is not a number is 0, and not what it was")]
    pub(crate) fn weigh(self, amount: f64) -> i64 {
        (amount.max(0.0).min(AMOUNT_MAX) * UNITS * self.age.exp2()) as i64
    }

    /// What the counters of this epoch and the one before stand for.
    pub(crate) fn sum(self, this: i64, last: i64) -> f64 {
        (this as f64 + last as f64 / (1_u64 << EPOCH) as f64) / UNITS / self.age.exp2()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The host's two counters.
    #[derive(Debug, Default)]
    struct Counters([(i64, u64); 2]);

    impl Counters {
        fn add(&mut self, decay: Decay, now: u64, amount: f64) {
            let place = decay.place(now);
            let value = self.get(place.parity, now);
            self.0[place.parity] = (value.saturating_add(place.weigh(amount)), now + decay.kept());
        }

        fn get(&self, parity: usize, now: u64) -> i64 {
            let (value, until) = self.0[parity];
            if until > now { value } else { 0 }
        }

        fn sum(&self, decay: Decay, now: u64) -> f64 {
            let place = decay.place(now);
            place.sum(self.get(place.parity, now), self.get(1 - place.parity, now))
        }
    }

    #[test]
    fn a_sum_halves_in_a_half_life_also_over_the_end_of_an_epoch() {
        let decay = Decay::new(1_000);
        for start in [0, 500, 7_900, 8_000, 1_000_001] {
            let mut counters = Counters::default();
            counters.add(decay, start, 100.0);
            for half_lives in 0..7 {
                let sum = counters.sum(decay, start + half_lives * 1_000);
                let expected = 100.0 / (1 << half_lives) as f64;
                assert!((sum - expected).abs() < 1e-3, "{start}: {sum} after {half_lives}");
            }
            assert!(counters.sum(decay, start + 8_000) < 0.5, "{start}");
        }
    }

    #[test]
    fn a_steady_stream_has_its_rate() {
        let decay = Decay::new(30_000);
        let mut counters = Counters::default();
        for now in (0..600_000).step_by(250) {
            counters.add(decay, now, 2.5);
        }
        let rate = decay.per_second(counters.sum(decay, 600_000));
        assert!((rate - 10.0).abs() < 0.1, "{rate}");
    }

    #[test]
    fn mistakes_of_workers_are_cut_and_an_overflow_stays_full() {
        let place = Decay::new(1_000).place(7_999);
        assert_eq!(place.weigh(f64::MAX), place.weigh(AMOUNT_MAX));
        assert!(place.weigh(AMOUNT_MAX) < i64::MAX / 30, "so many are held exactly");
        assert_eq!((place.weigh(-1.0), place.weigh(f64::NAN)), (0, 0));
        assert!(place.sum(i64::MAX, i64::MAX).is_finite());
    }

    proptest! {
        /// Against the sum of exact powers: what is missing is what was dropped after an epoch or more.
        #[test]
        fn it_is_the_sum_of_what_is_left_of_each_amount(
            steps in prop::collection::vec((0_u64..5_000, 0.0_f64..1e6), 1..200),
            start in 0_u64..1_000_000,
            half_life in 1_000_u64..20_000,
        ) {
            let decay = Decay::new(half_life);
            let (mut counters, mut now) = (Counters::default(), start);
            let mut added: Vec<(u64, f64)> = Vec::new();
            for (wait, amount) in steps {
                now += wait;
                counters.add(decay, now, amount);
                added.push((now, amount));
                let left = |(then, amount): &(u64, f64)| {
                    let age = (now - then) as f64 / half_life as f64;
                    (amount * (-age).exp2(), age)
                };
                let exact: f64 = added.iter().map(|added| left(added).0).sum();
                let kept: f64 = added.iter().map(left).filter(|(_, age)| *age < EPOCH as f64).map(|(part, _)| part).sum();
                let sum = counters.sum(decay, now);
                prop_assert!(sum <= exact * (1.0 + 1e-9) + 1e-6, "{} of {}", sum, exact);
                prop_assert!(sum >= kept * (1.0 - 1e-9) - 1e-3, "{} of {}", sum, kept);
            }
        }
    }
}
