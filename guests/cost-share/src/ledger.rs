//! What each key has consumed lately and what its messages cost, in the host's state: it outlives instances and reloads
//! and is the same for all workers.
//!
//! A key takes three of the host's counters, and one more while messages of it wait: with the host's usual bound some
//! sixteen thousand keys are remembered, and those that did nothing for longest are strangers again.

use tidegate_guest::{Outcome, state};

use crate::decay::{AMOUNT_MAX, Decay, Place};

/// The host's counters, by name. There are two of each sum, of this epoch and the one before.
#[derive(Debug)]
pub(crate) struct Ledger {
    decay: Decay,
    /// Cost of each key.
    cost: [String; 2],
    /// Cost and number of all messages.
    whole_cost: [String; 2],
    whole_messages: [String; 2],
}

/// What is known when a message of a key is decided.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Account {
    /// What the key has consumed lately.
    pub(crate) consumed: f64,
    /// What one of its messages costs; `None` before the first is done.
    pub(crate) mean: Option<f64>,
    /// What all keys have consumed lately.
    pub(crate) whole: f64,
    /// With so many messages.
    pub(crate) messages: f64,
    /// What all keys consume in a second.
    pub(crate) whole_per_second: f64,
}

/// Name of the counters with what one message costs, in millionths.
const MEAN: &str = "mean";

/// How long that is remembered after a key's last message, in milliseconds: a tenant that sends a dear one every few
/// minutes must not be a stranger each time.
const MEAN_KEPT: u64 = 3_600_000;

/// The mean goes so far towards the newest cost: a mean over about the last thirty messages. Enough of them for costs that
/// vary, few enough for a tenant that begins to send other ones.
const MEAN_STEP: f64 = 1.0 / 16.0;

/// Key of the counters that are not any key's.
const WHOLE: &str = "";

impl Ledger {
    /// The half-life in milliseconds. It is part of the names: sums of different half-lives cannot be read together.
    pub(crate) fn new(half_life: u64) -> Self {
        let names = |name: &str| ["even", "odd"].map(|parity| format!("{name} {half_life} {parity}"));
        Self {
            decay: Decay::new(half_life),
            cost: names("cost"),
            whole_cost: names("whole cost"),
            whole_messages: names("whole messages"),
        }
    }

    /// Takes in how deliveries ended.
    pub(crate) fn charge(&self, outcomes: &[Outcome], now: u64) {
        let place = self.decay.place(now);
        let (mut cost, mut messages) = (0_i64, 0_i64);
        for outcome in outcomes {
            let Some(amount) = cost_of(outcome) else { continue };
            let weighed = place.weigh(amount);
            self.add(&self.cost, &outcome.key, place, weighed);
            learn(&outcome.key, amount);
            cost = cost.saturating_add(weighed);
            messages = messages.saturating_add(place.weigh(1.0));
        }
        if messages > 0 {
            self.add(&self.whole_cost, WHOLE, place, cost);
            self.add(&self.whole_messages, WHOLE, place, messages);
        }
    }

    /// What is known about a key.
    pub(crate) fn account_of(&self, key: &str, now: u64) -> Account {
        let place = self.decay.place(now);
        let whole = self.sum(&self.whole_cost, WHOLE, place);
        Account {
            consumed: self.sum(&self.cost, key, place),
            mean: Some(state::get(MEAN, key)).filter(|mean| *mean > 0).map(|mean| mean as f64 / 1e6),
            whole,
            messages: self.sum(&self.whole_messages, WHOLE, place),
            whole_per_second: self.decay.per_second(whole),
        }
    }

    fn add(&self, names: &[String; 2], key: &str, place: Place, weighed: i64) {
        state::add(&names[place.parity], key, weighed, self.decay.kept());
    }

    fn sum(&self, names: &[String; 2], key: &str, place: Place) -> f64 {
        place.sum(state::get(&names[place.parity], key), state::get(&names[1 - place.parity], key))
    }
}

/// What a delivery cost; `None` when it was not worked on, or its worker reported something that is no cost.
fn cost_of(outcome: &Outcome) -> Option<f64> {
    let Outcome { spent, cost, .. } = outcome;
    let was_worked_on = *spent > 0 || *cost > 0.0;
    (was_worked_on && cost.is_finite() && *cost >= 0.0).then(|| cost.min(AMOUNT_MAX))
}

/// Moves what a message of the key costs towards the cost of one that is done.
fn learn(key: &str, amount: f64) {
    let mean = state::get(MEAN, key);
    state::add(MEAN, key, learned(mean, amount) - mean, MEAN_KEPT);
}

/// The new mean, in millionths; 0 stands for none. Messages that cost nothing have a mean all the same.
fn learned(mean: i64, amount: f64) -> i64 {
    let amount = amount * 1e6;
    let step = if mean > 0 { (amount - mean as f64) * MEAN_STEP } else { amount };
    ((mean as f64 + step) as i64).max(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tidegate_guest::Ending;

    use super::*;

    fn outcome(ending: Ending, spent: u64, cost: f64) -> Outcome {
        Outcome { key: "tenant".to_owned(), id: "1".to_owned(), ending, attempt: 1, spent, cost }
    }

    #[test]
    fn what_was_worked_on_has_a_cost_however_it_ended() {
        for ending in
            [Ending::Accepted, Ending::Deferred, Ending::Rejected, Ending::Released, Ending::Expired]
        {
            assert_eq!(cost_of(&outcome(ending, 500, 0.5)), Some(0.5));
            assert_eq!(cost_of(&outcome(ending, 0, 0.0004)), Some(0.0004), "in less than a millisecond");
            assert_eq!(cost_of(&outcome(ending, 500, 0.0)), Some(0.0), "reported as free");
            assert_eq!(cost_of(&outcome(ending, 0, 0.0)), None, "no worker had it");
        }
    }

    #[test]
    fn what_is_no_cost_counts_nothing() {
        for wrong in [f64::NAN, f64::INFINITY, -1.0] {
            assert_eq!(cost_of(&outcome(Ending::Accepted, 500, wrong)), None, "{wrong}");
        }
        assert_eq!(cost_of(&outcome(Ending::Accepted, 500, 1e300)), Some(AMOUNT_MAX));
    }

    #[test]
    fn the_first_message_tells_the_cost_and_the_next_ones_correct_it() {
        assert_eq!(learned(0, 2.0), 2_000_000);
        assert_eq!(learned(2_000_000, 18.0), 3_000_000);
        let mut mean = learned(0, 1.0);
        for _ in 0..60 {
            mean = learned(mean, 50.0);
        }
        assert!((48_000_000..50_000_000).contains(&mean), "{mean}");
        assert_eq!(learned(0, 0.0), 1, "known, and next to nothing");
    }

    proptest! {
        #[test]
        fn a_mean_is_between_what_it_is_the_mean_of(costs in prop::collection::vec(0.0_f64..AMOUNT_MAX, 1..100)) {
            let mean = costs.iter().fold(0, |mean, cost| learned(mean, *cost)) as f64 / 1e6;
            let least = costs.iter().copied().fold(f64::INFINITY, f64::min);
            let most = costs.iter().copied().fold(0.0, f64::max);
            prop_assert!(mean >= least * (1.0 - 1e-9) - 1e-3 && mean <= most * (1.0 + 1e-9) + 1e-3);
        }
    }
}
