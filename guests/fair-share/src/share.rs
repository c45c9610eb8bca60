//! Who is noisy, and how much a noisy key may do.
//!
//! Two things are shared: the places in the host, of which a flood would take all, and the workers. The sink serves the
//! keys in turns, so what a key has waiting delays others by little; what is to be kept free for them are places. The
//! workers' time is anybody's who has work: a noisy key may take what nobody else uses of it.

use tidegate_guest::Standing;

/// From when on a key is noisy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Limits {
    /// Part of the whole that a key may always take.
    pub(crate) share: f64,
    /// How many even shares it may take.
    pub(crate) factor: f64,
    /// Messages in flight below which it is never noisy.
    pub(crate) min_in_flight: f64,
    /// Messages waiting for the sink below which nobody is noisy.
    pub(crate) min_queued: f64,
    /// Deliveries a second below which it is never noisy.
    pub(crate) min_rate: f64,
    /// Seconds for which it is held back at least.
    pub(crate) delay: f64,
}

/// So many deferrals' work waits for the workers before anybody is held back.
const DEFERRALS_AHEAD: f64 = 10.0;

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
    /// Seconds for which what waits keeps the workers busy without it.
    pub(crate) cover: f64,
}

/// Tells whether a key is noisy.
pub(crate) fn assess(limits: &Limits, standing: &Standing) -> Option<Noise> {
    let held_messages = f64::from(standing.key_in_flight);
    if held_messages < limits.min_in_flight || standing.active_keys < 2 {
        return None;
    }
    let queued = f64::from(standing.flow_queued);
    let enough = enough_queued(limits, standing);
    if queued < enough {
        // The workers keep up, or would have nothing to do soon: what a key takes it takes from nobody.
        return None;
    }
    let allowed = allowed_share(limits, standing.active_keys);
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
    // What is deferred comes again and is counted again, so more may arrive than the workers can do; what they do is
    // the better measure, as soon as there is one.
    let shared_rate = if standing.flow_throughput > 0.0 {
        standing.flow_rate.min(standing.flow_throughput)
    } else {
        standing.flow_rate
    };
    let fair_rate = limits.factor * shared_rate / f64::from(standing.active_keys);
    let spare = spare_rate(standing);
    // All that is spare while just enough waits, and less the more waits, so that the queue goes back to that.
    let left_over = if queued > 0.0 { spare * (enough / queued) } else { spare };
    let rate_per_second = fair_rate.max(left_over).max(limits.min_rate);
    let cover = if spare > 0.0 { queued / spare } else { f64::INFINITY };
    Some(Noise { held, traffic, pressure, rate_per_second, cover })
}

/// What the workers do a second beyond what all other keys ask for.
fn spare_rate(standing: &Standing) -> f64 {
    let others = (standing.flow_rate - standing.key_rate).max(0.0);
    (standing.flow_throughput - others).max(0.0)
}

/// How many messages must wait before anybody is held back, so that the workers are busy with them meanwhile.
///
/// That is what they do in some deferrals, and one for each busy worker, since all may end at once; but a flood is
/// held back from half of the places in the host on. What the workers did of late is less than what they can do when
/// they had too little; that is why it is some deferrals and not one: more is let in then than they did, they do more,
/// and so on until the queue shows that they can do no more. With a minimum of 0 keys are held to their share whether
/// the workers are busy or not.
fn enough_queued(limits: &Limits, standing: &Standing) -> f64 {
    if limits.min_queued <= 0.0 {
        return 0.0;
    }
    let work =
        (standing.flow_throughput * limits.delay * DEFERRALS_AHEAD).max(f64::from(standing.flow_emitted));
    work.min(f64::from(standing.flow_budget) / 2.0).max(limits.min_queued)
}

/// The part of the whole that a key may take when so many are active.
///
/// Some even shares; with many keys, where those are tiny, a fixed part; with two or three, where they are nearly
/// everything, half of what is beyond an even share, so that one of two keys can be noisy at all.
fn allowed_share(limits: &Limits, active_keys: u32) -> f64 {
    let even = 1.0 / f64::from(active_keys.max(1));
    (limits.factor * even).max(limits.share).min(f64::midpoint(1.0, even))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(super) const LIMITS: Limits =
        Limits { share: 0.1, factor: 2.0, min_in_flight: 10.0, min_queued: 10.0, min_rate: 5.0, delay: 0.25 };

    /// A standing in a flow that waits for its first work.
    fn standing(key: u32, flow: u32, keys: u32, key_rate: f64, flow_rate: f64) -> Standing {
        Standing {
            key_in_flight: key,
            flow_in_flight: flow,
            flow_budget: 1_000,
            flow_queued: flow / 2,
            flow_emitted: 8,
            active_keys: keys,
            key_rate,
            flow_rate,
            flow_throughput: 0.0,
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
    fn nobody_is_held_back_while_less_waits_than_the_workers_do_meanwhile() {
        // They do 100 a second and others ask for 40: 250 in ten quarters of a second.
        let flooding = Standing { flow_throughput: 100.0, ..standing(300, 400, 21, 900.0, 940.0) };
        assert_eq!(assess(&LIMITS, &Standing { flow_queued: 249, ..flooding }), None);
        let noise = assess(&LIMITS, &Standing { flow_queued: 250, ..flooding }).unwrap();
        assert!((noise.rate_per_second - 60.0).abs() < 1e-9, "all that is spare: {noise:?}");
        assert!((noise.cover - 250.0 / 60.0).abs() < 1e-9, "{noise:?}");
    }

    #[test]
    fn a_longer_queue_leaves_less_and_never_below_the_fair_rate() {
        let flooding = Standing { flow_throughput: 100.0, ..standing(300, 400, 21, 900.0, 940.0) };
        let rate =
            |flow_queued| assess(&LIMITS, &Standing { flow_queued, ..flooding }).unwrap().rate_per_second;
        assert!((rate(500) - 30.0).abs() < 1e-9, "{}", rate(500));
        let fair = 2.0 * 100.0 / 21.0;
        assert!((rate(100_000) - fair).abs() < 1e-9, "{}", rate(100_000));
    }

    #[test]
    fn every_busy_worker_finds_a_next_message() {
        // Work of many seconds: little is done a second, and all of it may end at once.
        let agents =
            Standing { flow_emitted: 40, flow_throughput: 1.0, ..standing(90, 100, 21, 400.0, 440.0) };
        assert_eq!(assess(&LIMITS, &Standing { flow_queued: 39, ..agents }), None);
        assert!(assess(&LIMITS, &Standing { flow_queued: 40, ..agents }).is_some());
    }

    #[test]
    fn a_flood_is_held_back_from_half_of_the_places_on() {
        let fast = Standing { flow_throughput: 50_000.0, ..standing(480, 500, 21, 50_000.0, 50_040.0) };
        assert_eq!(assess(&LIMITS, &Standing { flow_queued: 499, ..fast }), None);
        assert!(assess(&LIMITS, &Standing { flow_queued: 500, ..fast }).is_some());
    }

    #[test]
    fn what_the_others_ask_for_is_theirs() {
        let flooding =
            Standing { flow_queued: 250, flow_throughput: 100.0, ..standing(290, 300, 21, 400.0, 500.0) };
        let noise = assess(&LIMITS, &flooding).unwrap();
        assert!((noise.rate_per_second - 2.0 * 100.0 / 21.0).abs() < 1e-9, "nothing is spare: {noise:?}");
        assert!(noise.cover.is_infinite(), "{noise:?}");
    }

    #[test]
    fn with_a_minimum_of_none_a_key_is_held_to_its_share_at_once() {
        let limits = Limits { min_queued: 0.0, ..LIMITS };
        let flooding = Standing { flow_throughput: 100.0, ..standing(90, 100, 21, 400.0, 440.0) };
        let noise = assess(&limits, &Standing { flow_queued: 0, ..flooding }).unwrap();
        assert!((noise.rate_per_second - 60.0).abs() < 1e-9, "nothing waits: {noise:?}");
        let noise = assess(&limits, &Standing { flow_queued: 1, ..flooding }).unwrap();
        assert!((noise.rate_per_second - 2.0 * 100.0 / 21.0).abs() < 1e-9, "{noise:?}");
    }

    #[test]
    fn before_anything_is_done_the_traffic_is_the_measure() {
        let start = Standing { flow_throughput: 0.0, ..standing(90, 100, 21, 400.0, 440.0) };
        let noise = assess(&LIMITS, &start).unwrap();
        assert!((noise.rate_per_second - 2.0 * 440.0 / 21.0).abs() < 1e-9, "{noise:?}");
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
        let odd = Standing {
            key_share: f64::NAN,
            flow_throughput: f64::NAN,
            ..standing(90, 100, 21, f64::NAN, f64::NAN)
        };
        assert_eq!(assess(&LIMITS, &odd), None);
    }

    proptest! {
        /// Never more than so many keys can be noisy at once: each holds more than its share of one whole.
        #[test]
        fn the_noisy_are_few(held in prop::collection::vec(0_u32..1_000, 2..60), seed_share in 0.05_f64..0.5) {
            let limits = Limits { share: seed_share, ..LIMITS };
            let flow: u32 = held.iter().sum();
            let keys = u32::try_from(held.len()).unwrap();
            let noisy = held.iter().filter(|&&key| {
                assess(&limits, &standing(key, flow, keys, f64::from(key), f64::from(flow))).is_some()
            });
            prop_assert!((noisy.count() as f64) < 1.0 / allowed_share(&limits, keys));
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
