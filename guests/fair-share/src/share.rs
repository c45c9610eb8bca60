//! Who is noisy, and how much a noisy key may do.

use tidegate_guest::Standing;
use tidegate_guest::share::Shares;

/// From when on a key is noisy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Limits {
    pub(crate) shares: Shares,
    /// Messages in flight below which it is never noisy.
    pub(crate) min_in_flight: f64,
    /// Messages waiting for the sink below which nobody is noisy.
    pub(crate) min_queued: f64,
    /// Deliveries a second below which it is never noisy.
    pub(crate) min_rate: f64,
}

/// A key above its share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Noise {
    /// Its part of what is in flight.
    pub(crate) held: f64,
    /// Its part of the recent traffic.
    pub(crate) traffic: f64,
    /// How many times its share it holds, above 1.
    pub(crate) pressure: f64,
    /// What it may do.
    pub(crate) rate_per_second: f64,
}

/// Tells whether a key is noisy.
pub(crate) fn assess(limits: &Limits, standing: &Standing) -> Option<Noise> {
    let held_messages = f64::from(standing.key_in_flight);
    if held_messages < limits.min_in_flight || standing.active_keys < 2 {
        return None;
    }
    if f64::from(standing.flow_queued) < limits.min_queued {
        // The workers keep up: what a key takes it takes from nobody.
        return None;
    }
    let allowed = limits.shares.allowed(standing.active_keys);
    let held = held_messages / f64::from(standing.flow_in_flight.max(standing.key_in_flight).max(1));
    let rate_share = if standing.key_rate >= limits.min_rate {
        standing.key_rate / standing.flow_rate.max(standing.key_rate)
    } else {
        0.0
    };
    let traffic = rate_share.max(standing.key_share);
    // Written so that a standing that is not a number makes nobody noisy.
    if !(held > allowed && traffic > allowed) {
        return None;
    }
    let pressure = held / allowed;
    let fair_rate = limits.shares.factor * standing.flow_rate / f64::from(standing.active_keys);
    Some(Noise { held, traffic, pressure, rate_per_second: fair_rate.max(limits.min_rate) })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: Limits = Limits {
        shares: Shares { always: 0.1, factor: 2.0 },
        min_in_flight: 10.0,
        min_queued: 10.0,
        min_rate: 5.0,
    };

    fn standing(key: u32, flow: u32, keys: u32, key_rate: f64, flow_rate: f64) -> Standing {
        Standing {
            key_in_flight: key,
            flow_in_flight: flow,
            flow_budget: flow,
            flow_queued: flow / 2,
            flow_emitted: 0,
            active_keys: keys,
            key_rate,
            flow_rate,
            flow_throughput: flow_rate,
            key_share: 0.0,
        }
    }

    #[test]
    fn a_flooding_tenant_among_twenty_quiet_ones_is_noisy_and_they_are_not() {
        let noise = assess(&LIMITS, &standing(90, 100, 21, 400.0, 440.0)).unwrap();
        assert!((noise.pressure - 9.0).abs() < 1e-9, "{noise:?}");
        assert!(noise.rate_per_second >= LIMITS.min_rate && noise.rate_per_second < 400.0, "{noise:?}");
        assert_eq!(assess(&LIMITS, &standing(2, 100, 21, 2.0, 440.0)), None);
    }

    #[test]
    fn nobody_is_noisy_while_the_workers_keep_up() {
        let flooding = standing(90, 100, 21, 400.0, 440.0);
        assert_eq!(assess(&LIMITS, &Standing { flow_queued: 9, ..flooding }), None);
        assert!(assess(&LIMITS, &Standing { flow_queued: 10, ..flooding }).is_some());
    }

    #[test]
    fn a_key_on_its_own_is_never_noisy() {
        assert_eq!(assess(&LIMITS, &standing(1_000, 1_000, 1, 1e6, 1e6)), None);
        assert_eq!(assess(&LIMITS, &standing(1_000, 1_000, 0, 1e6, 1e6)), None);
    }

    #[test]
    fn one_of_two_keys_can_be_noisy() {
        assert!(assess(&LIMITS, &standing(99, 100, 2, 99.0, 100.0)).is_some());
        assert_eq!(assess(&LIMITS, &standing(60, 100, 2, 60.0, 100.0)), None);
    }

    #[test]
    fn holding_much_without_traffic_is_not_noisy_and_neither_is_traffic_that_leaves_at_once() {
        assert_eq!(assess(&LIMITS, &standing(90, 100, 21, 1.0, 440.0)), None);
        assert_eq!(assess(&LIMITS, &standing(9, 20, 21, 400.0, 440.0)), None);
    }

    #[test]
    fn heavy_work_counts_as_traffic() {
        let heavy = Standing { key_share: 0.6, ..standing(20, 100, 21, 1.0, 440.0) };
        assert!(assess(&LIMITS, &heavy).is_some());
    }

    #[test]
    fn keys_that_are_all_alike_are_not_noisy() {
        for keys in 1..200 {
            let alike = standing(20, 20 * keys, keys, 50.0, 50.0 * f64::from(keys));
            assert_eq!(assess(&LIMITS, &alike), None, "{keys} keys");
        }
    }

    #[test]
    fn a_standing_that_is_no_number_makes_nobody_noisy() {
        let odd = Standing { key_share: f64::NAN, ..standing(90, 100, 21, f64::NAN, f64::NAN) };
        assert_eq!(assess(&LIMITS, &odd), None);
    }

    proptest! {
        /// Never more than so many keys can be noisy at once: each holds more than its share of one whole.
        #[test]
        fn the_noisy_are_few(held in prop::collection::vec(0_u32..1_000, 2..60), seed_share in 0.05_f64..0.5) {
            let limits = Limits { shares: Shares { always: seed_share, ..LIMITS.shares }, ..LIMITS };
            let flow: u32 = held.iter().sum();
            let keys = u32::try_from(held.len()).unwrap();
            let noisy = held.iter().filter(|&&key| {
                assess(&limits, &standing(key, flow, keys, f64::from(key), f64::from(flow))).is_some()
            });
            prop_assert!((noisy.count() as f64) < 1.0 / limits.shares.allowed(keys));
        }

        /// The more a key holds, the less it may do, and never less than the minimum.
        #[test]
        fn pressure_slows_down(key in 30_u32..900, more in 1_u32..100) {
            let at = |key| assess(&LIMITS, &standing(key, 1_000, 21, 400.0, 440.0));
            if let (Some(less), Some(more)) = (at(key), at(key + more)) {
                prop_assert!(more.pressure > less.pressure);
                prop_assert!(more.rate_per_second <= less.rate_per_second);
                prop_assert!(more.rate_per_second >= LIMITS.min_rate);
            }
        }
    }
}
