//! Who is costly, and how much a costly key may do.

use tidegate_guest::Standing;
use tidegate_guest::share::Shares;

use crate::ledger::{Account, Typical};
use crate::queue::workers;

/// From when on a key is costly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Limits {
    pub(crate) shares: Shares,
    /// How far above its share a key must be, in messages of average cost.
    pub(crate) min_excess: f64,
}

/// Why a key is held back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Costly {
    /// It is above its share.
    Known {
        /// What it has consumed and holds, as a part of what all have; more than 1 when it holds more than all consumed.
        share: f64,
        /// The part that it may take.
        allowed: f64,
        typical: Typical,
        /// What it may do.
        messages_per_second: f64,
    },
    /// It holds many messages and nobody knows yet what they cost.
    Unknown {
        /// So many.
        held: u32,
    },
}

/// Messages that a key may have accepted before the first of them is done: the others would wait for workers too, and soon
/// more is known. With fewer, one that is slow would keep a key of cheap ones waiting.
pub(crate) const UNKNOWN_MAX: u32 = 10;

/// Tells whether a key is costly, when workers are short.
pub(crate) fn assess(limits: &Limits, standing: &Standing, account: &Account) -> Option<Costly> {
    let Account { consumed, typical, whole } = account;
    // What is remembered of a key says nothing beside others of which nothing is known.
    let Some(typical) = typical.filter(|_| whole.messages > 0.0) else {
        let held = standing.key_in_flight;
        return (held > UNKNOWN_MAX).then_some(Costly::Unknown { held });
    };
    // One that is alone leaves room for another.
    let active_keys = standing.active_keys.max(2);
    let allowed = limits.shares.allowed(active_keys);
    let cost_of_others = account.cost_of_others(&typical);
    let held = f64::from(standing.key_in_flight);
    let held_by_others = f64::from(standing.flow_in_flight.saturating_sub(standing.key_in_flight));
    let coming = held * typical.cost;
    let mine = consumed + coming;
    // The sink takes one message of each key in turn: this is what it has taken when the last of these is.
    let turns = coming + held_by_others.min(held * f64::from(active_keys - 1)) * cost_of_others;
    let all = if coming > allowed * turns {
        // Until then this key takes more than its share of workers who are not more than they were. What others hold
        // beyond these turns waits behind them, and excuses nothing.
        whole.cost.max(turns)
    } else {
        whole.cost + coming + held_by_others * cost_of_others
    };
    let average = whole.cost / whole.messages;
    let excess = mine - allowed * all;
    // Written so that an account that is not a number makes nobody costly; nor is anybody where all is free.
    if !(average > 0.0 && excess > 0.0 && excess >= limits.min_excess * average) {
        return None;
    }
    // Sums are behind when there is more to do than there was.
    let cost_rate = if whole.workers > 0.0 {
        whole.cost_rate * workers(standing, whole) / whole.workers
    } else {
        whole.cost_rate
    };
    let messages_per_second = allowed * cost_rate / typical.cost;
    Some(Costly::Known { share: mine / all, allowed, typical, messages_per_second })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ledger::Whole;
    use crate::queue::tests::standing;

    const LIMITS: Limits = Limits { shares: Shares { always: 0.1, factor: 1.5 }, min_excess: 3.0 };

    /// Of a flow that did a thousand messages lately, ten of them a second, with ten workers.
    fn account(consumed: f64, cost: f64, whole: f64) -> Account {
        Account {
            consumed,
            typical: Some(Typical { cost, seconds: 1.0 }),
            whole: Whole {
                cost: whole,
                messages: 1_000.0,
                seconds: 1_000.0,
                cost_rate: whole / 100.0,
                workers: 10.0,
            },
        }
    }

    /// The same with another number of messages.
    fn with_messages(messages: f64, account: Account) -> Account {
        Account { whole: Whole { messages, ..account.whole }, ..account }
    }

    /// The share, the part that is allowed and the rate of a key that is costly.
    fn known(standing: &Standing, account: &Account) -> Option<(f64, f64, f64)> {
        match assess(&LIMITS, standing, account) {
            Some(Costly::Known { share, allowed, messages_per_second, .. }) => {
                Some((share, allowed, messages_per_second))
            }
            _ => None,
        }
    }

    #[test]
    fn a_key_with_few_dear_messages_is_costly_and_those_with_many_cheap_ones_are_not() {
        // One of 21 keys, with 2 of 100 messages in flight, each at 50 of what others cost.
        let (share, allowed, rate) = known(&standing(2, 100, 21), &account(1_000.0, 50.0, 2_000.0)).unwrap();
        assert!(share > 0.4 && (allowed - 0.1).abs() < 1e-9, "{share} and {allowed}");
        // A tenth of 20 a second, at 50 for each.
        assert!((rate - 0.04).abs() < 1e-9, "{rate}");
        assert_eq!(assess(&LIMITS, &standing(30, 100, 21), &account(50.0, 1.0, 2_000.0)), None);
    }

    #[test]
    fn many_cheap_messages_are_as_costly_as_few_dear_ones() {
        let (_, _, rate) = known(&standing(50, 100, 21), &account(1_000.0, 1.0, 2_000.0)).unwrap();
        assert!((rate - 2.0).abs() < 1e-9, "{rate}");
    }

    #[test]
    fn what_is_in_flight_counts_before_it_is_done() {
        let before = account(150.0, 50.0, 2_000.0);
        assert_eq!(assess(&LIMITS, &standing(1, 100, 21), &before), None);
        assert!(assess(&LIMITS, &standing(10, 100, 21), &before).is_some());
    }

    #[test]
    fn keys_that_are_all_alike_are_not_costly() {
        for keys in 2..200_u32 {
            let whole = 100.0 * f64::from(keys);
            let account = with_messages(whole, account(100.0, 1.0, whole));
            assert_eq!(assess(&LIMITS, &standing(10, 10 * keys, keys), &account), None, "{keys} keys");
        }
    }

    #[test]
    fn one_of_two_keys_can_be_costly() {
        assert!(assess(&LIMITS, &standing(10, 20, 2), &account(990.0, 1.0, 1_000.0)).is_some());
        assert_eq!(assess(&LIMITS, &standing(10, 20, 2), &account(600.0, 1.0, 1_000.0)), None);
    }

    #[test]
    fn what_nothing_is_known_of_may_hold_a_few() {
        let unknown = Account { typical: None, ..account(0.0, 0.0, 2_000.0) };
        assert_eq!(assess(&LIMITS, &standing(10, 100, 21), &unknown), None);
        assert_eq!(assess(&LIMITS, &standing(11, 100, 21), &unknown), Some(Costly::Unknown { held: 11 }));
        // After a pause what is remembered of the key is all there is.
        let nothing = Whole { cost: 0.0, messages: 0.0, seconds: 0.0, cost_rate: 0.0, workers: 0.0 };
        let alone = Account { whole: nothing, ..account(0.0, 5_000.0, 0.0) };
        assert_eq!(assess(&LIMITS, &standing(10, 100, 21), &alone), None);
        assert_eq!(assess(&LIMITS, &standing(11, 100, 21), &alone), Some(Costly::Unknown { held: 11 }));
    }

    #[test]
    fn a_dear_key_is_costly_beside_as_many_cheap_messages() {
        let dear = with_messages(100.0, account(2_500.0, 50.0, 2_550.0));
        assert!(known(&standing(5, 40, 2), &dear).is_some());
    }

    #[test]
    fn what_workers_do_more_than_they_did_is_shared_out_too() {
        let rate = |flow_emitted| {
            let standing = Standing { flow_emitted, ..standing(2, 100, 21) };
            known(&standing, &account(1_000.0, 50.0, 2_000.0)).unwrap().2
        };
        assert!((rate(20) - 2.0 * rate(10)).abs() < 1e-9);
        assert!((rate(0) - rate(10)).abs() < 1e-9, "or what they did, when they were just served");
    }

    #[test]
    fn few_average_messages_above_its_share_are_not_enough() {
        let first = |n: f64| with_messages(n, account(n * 1e3, 1e3, n * 1e3));
        assert_eq!(assess(&LIMITS, &standing(1, 20, 20), &first(3.0)), None);
        assert!(assess(&LIMITS, &standing(1, 20, 20), &first(9.0)).is_some());
    }

    #[test]
    fn a_key_that_is_alone_leaves_room_for_another() {
        let (_, allowed, _) = known(&standing(100, 100, 1), &account(1_000.0, 1.0, 1_000.0)).unwrap();
        assert!((allowed - 0.75).abs() < 1e-9, "{allowed}");
    }

    #[test]
    fn what_has_the_workers_to_itself_is_not_excused_by_what_waits_behind_it() {
        // It has taken a twentieth so far, and holds as much as all have done lately.
        let before = account(100.0, 50.0, 2_000.0);
        assert!(assess(&LIMITS, &standing(40, 1_000, 2), &before).is_some());
        // The others hold a hundred times what they did lately, because it has the workers.
        assert_eq!(assess(&LIMITS, &standing(960, 1_000, 2), &account(100.0, 1.0, 2_000.0)), None);
    }

    #[test]
    fn an_account_that_is_no_number_makes_nobody_costly() {
        for odd in
            [account(f64::NAN, 1.0, 2_000.0), account(0.0, f64::NAN, 2_000.0), account(0.0, 1.0, f64::NAN)]
        {
            assert_eq!(assess(&LIMITS, &standing(90, 100, 21), &odd), None, "{odd:?}");
        }
        assert_eq!(assess(&LIMITS, &standing(90, 100, 21), &account(0.0, 1e-6, 0.0)), None, "all is free");
    }

    proptest! {
        /// Never more than so many keys can be costly at once, when messages cost the same: each has more than its share
        /// of one whole.
        #[test]
        fn the_costly_are_few(
            keys in prop::collection::vec((0_u32..1_000, 0.0_f64..1e4), 2..60),
            always in 0.05_f64..0.5,
        ) {
            let limits = Limits { shares: Shares { always, ..LIMITS.shares }, ..LIMITS };
            let flow: u32 = keys.iter().map(|(held, _)| held).sum();
            let whole: f64 = keys.iter().map(|(_, consumed)| consumed).sum();
            let active = u32::try_from(keys.len()).unwrap();
            let costly = keys.iter().filter(|(held, consumed)| {
                let account = with_messages(whole, account(*consumed, 1.0, whole));
                assess(&limits, &standing(*held, flow, active), &account).is_some()
            });
            prop_assert!((costly.count() as f64) < 1.0 / limits.shares.allowed(active));
        }

        /// Who takes no more than what everybody may always take is let alone, whoever else does what.
        #[test]
        fn small_costs_are_never_costly(
            held in 1_u32..500, others in 0_u32..500, active in 1_u32..100,
            consumed in 0.0_f64..1e6, mean in 1e-3_f64..1e4, more in 1.0_f64..10.0,
        ) {
            let whole = (consumed + f64::from(held) * mean) / LIMITS.shares.always * more;
            let account = account(consumed, mean, whole);
            prop_assert_eq!(assess(&LIMITS, &standing(held, held + others, active), &account), None);
        }

        /// Whatever its messages cost, what passes is its share of the whole.
        #[test]
        fn what_passes_is_its_share(
            held in 1_u32..500, others in 0_u32..500, active in 2_u32..100,
            consumed in 0.0_f64..1e6, more in 0.0_f64..1e6, mean in 1e-3_f64..1e4,
        ) {
            let account = account(consumed, mean, consumed + more);
            if let Some((share, allowed, rate)) = known(&standing(held, held + others, active), &account) {
                let passing = rate * mean;
                let fair = LIMITS.shares.allowed(active) * account.whole.cost_rate;
                prop_assert!((passing - fair).abs() <= 1e-9 * fair);
                prop_assert!(share > allowed);
            }
        }

        /// Tokens or thousands of tokens: the unit makes no difference.
        #[test]
        fn the_unit_makes_no_difference(
            held in 1_u32..500, others in 0_u32..500, active in 2_u32..100,
            consumed in 0.0_f64..1e6, more in 0.0_f64..1e6, mean in 1e-3_f64..1e4, power in -10_i32..10,
        ) {
            // A power of two, so that nothing is rounded otherwise.
            let unit = f64::from(power).exp2();
            let standing = standing(held, held + others, active);
            let one = account(consumed, mean, consumed + more);
            let other = account(consumed * unit, mean * unit, (consumed + more) * unit);
            prop_assert_eq!(known(&standing, &one), known(&standing, &other));
        }

        /// Who consumed more is costly whenever who consumed less is.
        #[test]
        fn more_is_not_less(
            held in 1_u32..500, others in 0_u32..500, active in 2_u32..100,
            consumed in 0.0_f64..1e5, more in 0.0_f64..1e5, rest in 0.0_f64..1e5, mean in 1e-3_f64..1e4,
        ) {
            let standing = standing(held, held + others, active);
            let whole = consumed + more + rest;
            let share = |consumed| known(&standing, &account(consumed, mean, whole)).map(|(share, ..)| share);
            if let Some(less) = share(consumed) {
                prop_assert!(share(consumed + more).is_some_and(|share| share >= less));
            }
        }
    }
}
