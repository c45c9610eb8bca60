//! What each key has consumed lately and what its messages cost, in the host's state: it outlives instances and reloads
//! and is the same for all workers.
//!
//! A key takes four of the host's counters, and while it is held back one more and a bucket: with the host's usual bound
//! some ten thousand keys are remembered, and those that did nothing for longest are strangers again.

use tidegate_guest::{Outcome, state};

use crate::decay::{AMOUNT_MAX, Decay, Place};

/// The host's counters, by name. There are two of each sum, of this epoch and the one before.
#[derive(Debug)]
pub(crate) struct Ledger {
    decay: Decay,
    /// Cost of each key.
    cost: [String; 2],
    /// Cost, number and seconds of all messages.
    whole_cost: [String; 2],
    whole_messages: [String; 2],
    whole_seconds: [String; 2],
}

/// What is known when a message of a key is decided.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Account {
    /// What the key has consumed lately.
    pub(crate) consumed: f64,
    /// What one of its messages is like; `None` before the first is done.
    pub(crate) typical: Option<Typical>,
    /// What all keys have consumed lately.
    pub(crate) whole: Whole,
}

/// A message of a key, by the last ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Typical {
    pub(crate) cost: f64,
    /// How long a worker has it.
    pub(crate) seconds: f64,
}

/// What became of all messages lately.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Whole {
    pub(crate) cost: f64,
    pub(crate) messages: f64,
    /// How long workers had them, in sum.
    pub(crate) seconds: f64,
    /// Cost in a second.
    pub(crate) cost_rate: f64,
    /// Workers that were busy, on the average: their seconds in a second.
    pub(crate) workers: f64,
}

impl Account {
    /// What a message of another key costs. Beside one that is dear that is less than the average, which the dear ones make.
    pub(crate) fn cost_of_others(&self, typical: &Typical) -> f64 {
        let average = self.whole.cost / self.whole.messages;
        if typical.cost > average {
            ((self.whole.cost - self.consumed).max(0.0) / self.messages_of_others(typical)).min(average)
        } else {
            // One of many keys makes little of the average.
            average
        }
    }

    /// How long a worker has a message of another key, in seconds; 0 when it is not known.
    pub(crate) fn seconds_of_others(&self, typical: &Typical) -> f64 {
        let messages = self.messages_of_others(typical);
        let own = (self.whole.messages - messages) * typical.seconds;
        // Written so that what is not a number is 0.
        if messages > 0.0 { ((self.whole.seconds - own) / messages).max(0.0) } else { 0.0 }
    }

    /// What is left of all messages without those of this key. What is typical is no sum: it may leave the others none.
    fn messages_of_others(&self, typical: &Typical) -> f64 {
        (self.whole.messages - self.consumed / typical.cost).max(0.0)
    }
}

/// Names of the counters with what one message is like, in millionths.
const TYPICAL_COST: &str = "cost of one";
const TYPICAL_SECONDS: &str = "seconds of one";

/// How long that is remembered after a key's last message, in milliseconds: a tenant that sends a dear one every few
/// minutes must not be a stranger each time.
const TYPICAL_KEPT: u64 = 3_600_000;

/// A mean goes so far towards the newest value: a mean over about the last thirty messages. Enough of them for costs that
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
            whole_seconds: names("whole seconds"),
        }
    }

    /// Takes in how deliveries ended.
    pub(crate) fn charge(&self, outcomes: &[Outcome], now: u64) {
        let place = self.decay.place(now);
        let (mut cost, mut messages, mut seconds) = (0_i64, 0_i64, 0_i64);
        for outcome in outcomes {
            let Some(one) = typical_of(outcome) else { continue };
            let weighed = place.weigh(one.cost);
            self.add(&self.cost, &outcome.key, place, weighed);
            learn(TYPICAL_COST, &outcome.key, one.cost);
            learn(TYPICAL_SECONDS, &outcome.key, one.seconds);
            cost = cost.saturating_add(weighed);
            messages = messages.saturating_add(place.weigh(1.0));
            seconds = seconds.saturating_add(place.weigh(one.seconds));
        }
        if messages > 0 {
            self.add(&self.whole_cost, WHOLE, place, cost);
            self.add(&self.whole_messages, WHOLE, place, messages);
            self.add(&self.whole_seconds, WHOLE, place, seconds);
        }
    }

    /// What is known about a key.
    pub(crate) fn account_of(&self, key: &str, now: u64) -> Account {
        let place = self.decay.place(now);
        let whole = |names| self.sum(names, WHOLE, place);
        let (cost, seconds) = (whole(&self.whole_cost), whole(&self.whole_seconds));
        let learned =
            |name| Some(state::get(name, key)).filter(|mean| *mean > 0).map(|mean| mean as f64 / 1e6);
        let typical = |cost| Typical { cost, seconds: learned(TYPICAL_SECONDS).unwrap_or(0.0) };
        Account {
            consumed: self.sum(&self.cost, key, place),
            typical: learned(TYPICAL_COST).map(typical),
            whole: Whole {
                cost,
                messages: whole(&self.whole_messages),
                seconds,
                cost_rate: self.decay.per_second(cost),
                workers: self.decay.per_second(seconds),
            },
        }
    }

    fn add(&self, names: &[String; 2], key: &str, place: Place, weighed: i64) {
        state::add(&names[place.parity], key, weighed, self.decay.kept());
    }

    fn sum(&self, names: &[String; 2], key: &str, place: Place) -> f64 {
        place.sum(state::get(&names[place.parity], key), state::get(&names[1 - place.parity], key))
    }
}

/// What a delivery was like; `None` when it was not worked on, or its worker reported something that is no cost.
fn typical_of(outcome: &Outcome) -> Option<Typical> {
    let Outcome { spent, cost, .. } = outcome;
    let was_worked_on = *spent > 0 || *cost > 0.0;
    let is_cost = cost.is_finite() && *cost >= 0.0;
    (was_worked_on && is_cost)
        .then(|| Typical { cost: cost.min(AMOUNT_MAX), seconds: (*spent as f64 / 1e3).min(AMOUNT_MAX) })
}

/// Moves what a message of the key is like towards one that is done.
fn learn(name: &str, key: &str, amount: f64) {
    let mean = state::get(name, key);
    state::add(name, key, learned(mean, amount) - mean, TYPICAL_KEPT);
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
            let typical =
                |spent, cost| typical_of(&outcome(ending, spent, cost)).map(|one| (one.cost, one.seconds));
            assert_eq!(typical(500, 20.0), Some((20.0, 0.5)));
            assert_eq!(typical(0, 0.0004), Some((0.0004, 0.0)), "in less than a millisecond");
            assert_eq!(typical(500, 0.0), Some((0.0, 0.5)), "reported as free");
            assert_eq!(typical(0, 0.0), None, "no worker had it");
        }
    }

    #[test]
    fn what_is_no_cost_counts_nothing() {
        let cost = |cost| typical_of(&outcome(Ending::Accepted, 500, cost)).map(|one| one.cost);
        for wrong in [f64::NAN, f64::INFINITY, -1.0] {
            assert_eq!(cost(wrong), None, "{wrong}");
        }
        assert_eq!(cost(1e300), Some(AMOUNT_MAX));
    }

    /// A hundred messages of this key and of another one, with ten workers.
    fn account(consumed: f64, typical: Typical, cost: f64, seconds: f64) -> (Account, Typical) {
        let whole = Whole { cost, messages: 200.0, seconds, cost_rate: cost / 20.0, workers: 10.0 };
        (Account { consumed, typical: Some(typical), whole }, typical)
    }

    #[test]
    fn others_that_are_cheap_are_not_taken_for_dear() {
        // At fifty times the cost, and the time.
        let (dear, one) = account(5_000.0, Typical { cost: 50.0, seconds: 5.0 }, 5_100.0, 510.0);
        assert!((dear.cost_of_others(&one) - 1.0).abs() < 1e-9);
        assert!((dear.seconds_of_others(&one) - 0.1).abs() < 1e-9);
        let (cheap, one) = account(100.0, Typical { cost: 1.0, seconds: 0.1 }, 5_100.0, 510.0);
        assert!((cheap.cost_of_others(&one) - 25.5).abs() < 1e-9, "seen by a cheap one");
        assert!((cheap.seconds_of_others(&one) - 5.0).abs() < 1e-9);
    }

    #[test]
    fn what_is_typical_of_the_last_messages_may_not_fit_the_sums() {
        let (odd, one) = account(5_100.0, Typical { cost: 25.0, seconds: 5.0 }, 5_100.0, 510.0);
        assert!((odd.cost_of_others(&one) - 25.5).abs() < 1e-9, "the average");
        assert!(odd.seconds_of_others(&one).abs() < 1e-9, "not known");
        let (slower, one) = account(5_000.0, Typical { cost: 50.0, seconds: 9.0 }, 5_100.0, 510.0);
        assert!(slower.seconds_of_others(&one).abs() < 1e-9);
        let (free, one) = account(0.0, Typical { cost: 0.0, seconds: 1.0 }, 0.0, 200.0);
        assert!(free.seconds_of_others(&one).abs() < 1e-9);
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
