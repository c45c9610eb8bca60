use std::collections::BTreeMap;

use http::uri::PathAndQuery;
use proptest::prelude::*;
use tidegate_model::Message;

use super::*;
use crate::testing;

fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

fn target(path: &'static str) -> Arc<Target> {
    Arc::new(Target { path_and_query: PathAndQuery::from_static(path), headers: Vec::new() })
}

fn schedule(concurrency: usize, batch_max: usize) -> Schedule {
    let rules = Rules {
        concurrency,
        batch_max,
        batch_bytes: 10_000,
        wait_first: Duration::from_millis(100),
        wait_max: Duration::from_millis(1_000),
    };
    Schedule::new(rules, 1)
}

fn emission(id: u64, order: Option<&str>) -> Emission {
    Emission { order: order.map(Arc::from), ..testing::emission(id, Message::new("t", "i")) }
}

fn ids(batch: &Batch) -> Vec<u64> {
    batch.emissions.iter().map(|emission| emission.id.0).collect()
}

/// All that starts now.
fn start(schedule: &mut Schedule, now: Instant) -> Vec<Batch> {
    std::iter::from_fn(|| schedule.poll_start(now)).collect()
}

fn started(schedule: &mut Schedule, now: Instant) -> Vec<Vec<u64>> {
    start(schedule, now).iter().map(ids).collect()
}

fn released(schedule: &mut Schedule) -> Vec<(u64, ReleaseCause)> {
    schedule.take_released().into_iter().map(|(id, cause)| (id.0, cause)).collect()
}

#[test]
fn others_go_side_by_side_and_one_key_goes_one_after_the_other() {
    let mut schedule = schedule(3, 1);
    for (id, order) in [(1, Some("a")), (2, Some("a")), (3, None), (4, Some("b")), (5, None), (6, Some("a"))]
    {
        schedule.handle_emission(emission(id, order), target("/"));
    }
    let batches = start(&mut schedule, at(0));
    assert_eq!(batches.iter().map(ids).collect::<Vec<_>>(), [[1], [3], [4]]);
    assert!(schedule.poll_start(at(0)).is_none());
    schedule.handle_ended(&batches[1]);
    // 2 is behind 1, which is under way.
    assert_eq!(started(&mut schedule, at(0)), [[5]]);
    schedule.handle_ended(&batches[0]);
    let second = start(&mut schedule, at(0));
    assert_eq!(ids(&second[0]), [2]);
    schedule.handle_ended(&second[0]);
    assert_eq!(started(&mut schedule, at(0)), [[6]]);
}

#[test]
fn a_batch_is_what_waits_for_the_same_target() {
    let mut schedule = schedule(1, 4);
    schedule.handle_emission(emission(1, None), target("/a"));
    let first = start(&mut schedule, at(0));
    assert_eq!(ids(&first[0]), [1]);
    for (id, order, path) in [
        (2, Some("x"), "/a"),
        (3, None, "/b"),
        (4, Some("x"), "/a"),
        (5, Some("x"), "/b"),
        (6, None, "/a"),
        (7, Some("x"), "/a"),
        (8, None, "/b"),
    ] {
        schedule.handle_emission(emission(id, order), target(path));
    }
    let mut batches = Vec::new();
    let mut last = first;
    loop {
        schedule.handle_ended(&last[0]);
        last = start(&mut schedule, at(0));
        match last.first() {
            Some(batch) => batches.push((batch.target.path_and_query.to_string(), ids(batch))),
            None => break,
        }
    }
    let expected = [("/a", vec![2, 4, 6]), ("/b", vec![3, 8, 5]), ("/a", vec![7])];
    assert_eq!(batches, expected.map(|(path, ids)| (path.to_owned(), ids)));
}

#[test]
fn a_batch_is_full_with_so_many_bytes() {
    let mut schedule = schedule(1, 100);
    for id in 0..5 {
        let body = vec![0; 4_000].into();
        let emission = testing::emission(id, Message { body, ..Message::new("t", "i") });
        schedule.handle_emission(emission, target("/"));
    }
    let first = start(&mut schedule, at(0));
    assert_eq!(ids(&first[0]), [0, 1, 2]);
    schedule.handle_ended(&first[0]);
    assert_eq!(started(&mut schedule, at(0)), [[3, 4]]);
}

#[test]
fn what_failed_is_tried_again_in_turn_with_what_is_new() {
    let mut schedule = schedule(1, 1);
    for id in 1..=3 {
        schedule.handle_emission(emission(id, None), target("/"));
    }
    let mut order = Vec::new();
    let mut now = 0;
    for failing in [true, true, false, false, false, false] {
        let Some(batch) = schedule.poll_start(at(now)) else { break };
        order.push(batch.emissions[0].id.0);
        if failing {
            schedule.handle_failed(batch, at(now + 10));
        } else {
            schedule.handle_ended(&batch);
        }
        now += 20;
    }
    // Neither kind keeps the other from its turn.
    assert_eq!(order, [1, 1, 2, 1, 3]);
    assert!(released(&mut schedule).is_empty());
}

#[test]
fn a_key_waits_while_its_first_is_tried_again() {
    let mut schedule = schedule(4, 1);
    for id in 1..=2 {
        schedule.handle_emission(emission(id, Some("a")), target("/"));
    }
    let batch = schedule.poll_start(at(0)).unwrap();
    schedule.handle_failed(batch, at(100));
    assert_eq!(schedule.poll_timeout(), Some(at(100)));
    assert!(schedule.poll_start(at(99)).is_none());
    let again = schedule.poll_start(at(100)).unwrap();
    assert_eq!(ids(&again), [1]);
    assert!(schedule.poll_start(at(100)).is_none());
    schedule.handle_ended(&again);
    assert_eq!(started(&mut schedule, at(100)), [[2]]);
}

#[test]
fn with_its_lease_a_delivery_is_given_back_and_its_key_with_it() {
    let mut schedule = schedule(4, 2);
    let short = |id, order| Emission { expires_at: at(50), ..emission(id, order) };
    schedule.handle_emission(short(1, Some("a")), target("/"));
    schedule.handle_emission(emission(2, None), target("/"));
    let batch = schedule.poll_start(at(0)).unwrap();
    assert_eq!(ids(&batch), [1, 2]);
    schedule.handle_emission(emission(3, Some("a")), target("/"));
    schedule.handle_failed(batch, at(100));
    // The rest of the batch goes on.
    let rest = schedule.poll_start(at(100)).unwrap();
    assert_eq!(ids(&rest), [2]);
    let expected = [(1, ReleaseCause::LeaseOver), (3, ReleaseCause::Overtaken)];
    assert_eq!(released(&mut schedule), expected);
    // What comes then of that key begins anew.
    schedule.handle_emission(emission(4, Some("a")), target("/"));
    assert_eq!(started(&mut schedule, at(100)), [[4]]);
    schedule.handle_ended(&rest);
    assert!(schedule.lanes.len() == 1 && released(&mut schedule).is_empty());
}

#[test]
fn nothing_is_given_back_before_its_lease_is_over() {
    let mut schedule = schedule(1, 1);
    schedule.handle_emission(Emission { expires_at: at(500), ..emission(1, None) }, target("/"));
    let batch = schedule.poll_start(at(0)).unwrap();
    schedule.handle_failed(batch, at(60_000));
    assert_eq!(schedule.poll_timeout(), Some(at(500)));
    assert!(schedule.poll_start(at(499)).is_none() && released(&mut schedule).is_empty());
    assert!(schedule.poll_start(at(500)).is_none());
    assert_eq!(released(&mut schedule), [(1, ReleaseCause::LeaseOver)]);
    assert_eq!(schedule.poll_timeout(), None);
}

#[test]
fn a_lease_that_is_renewed_is_worked_on_for_longer() {
    let mut schedule = schedule(1, 2);
    let short = |id| Emission { expires_at: at(500), ..emission(id, None) };
    schedule.handle_emission(short(1), target("/"));
    schedule.handle_emission(short(2), target("/"));
    let batch = schedule.poll_start(at(0)).unwrap();
    // While it is under way, and while it waits.
    schedule.handle_renewed(DeliveryId(1), at(1_000));
    schedule.handle_failed(batch, at(60_000));
    assert_eq!(schedule.poll_timeout(), Some(at(1_000)));
    schedule.handle_renewed(DeliveryId(1), at(100_000));
    schedule.handle_renewed(DeliveryId(3), at(100_000));
    assert!(schedule.poll_start(at(1_000)).is_none() && released(&mut schedule).is_empty());
    assert_eq!(schedule.poll_timeout(), Some(at(60_000)));
    let again = schedule.poll_start(at(60_000)).unwrap();
    assert_eq!((ids(&again), again.emissions[0].expires_at), (vec![1], at(100_000)));
    assert_eq!(released(&mut schedule), [(2, ReleaseCause::LeaseOver)]);
    schedule.handle_ended(&again);
    assert!(schedule.leases.is_empty());
}

#[test]
fn a_lease_that_is_over_before_its_turn_is_not_used() {
    let mut schedule = schedule(4, 1);
    schedule.handle_emission(Emission { expires_at: at(50), ..emission(1, Some("a")) }, target("/"));
    schedule.handle_emission(emission(2, Some("a")), target("/"));
    schedule.handle_emission(emission(3, None), target("/"));
    assert_eq!(started(&mut schedule, at(50)), [[3]]);
    let expected = [(1, ReleaseCause::LeaseOver), (2, ReleaseCause::Overtaken)];
    assert_eq!(released(&mut schedule), expected);
    assert!(schedule.lanes.is_empty());
}

#[test]
fn a_drain_ends_what_waits_for_another_try() {
    let mut schedule = schedule(2, 1);
    for (id, order) in [(1, Some("a")), (2, None), (3, Some("a")), (4, None)] {
        schedule.handle_emission(emission(id, order), target("/"));
    }
    let mut batches = start(&mut schedule, at(0));
    assert_eq!(batches.iter().map(ids).collect::<Vec<_>>(), [[1], [2]]);
    schedule.handle_failed(batches.remove(0), at(1_000));
    schedule.handle_drain();
    assert_eq!(released(&mut schedule), [(1, ReleaseCause::Draining), (3, ReleaseCause::Overtaken)]);
    // What was never tried gets its one try.
    let last = start(&mut schedule, at(0));
    assert_eq!(last.iter().map(ids).collect::<Vec<_>>(), [[4]]);
    for batch in last.into_iter().chain(batches) {
        schedule.handle_failed(batch, at(1_000));
    }
    assert_eq!(released(&mut schedule), [(4, ReleaseCause::Draining), (2, ReleaseCause::Draining)]);
    assert_eq!((schedule.poll_timeout(), schedule.in_flight), (None, 0));
}

#[derive(Clone, Debug)]
enum Step {
    Emit { order: Option<u8>, path: bool, lease: u64 },
    End(prop::sample::Index),
    EndFirst,
    Fail(prop::sample::Index, u64),
    Renew(prop::sample::Index, u64),
    Wait(u64),
    Drain,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (prop::option::of(0..3_u8), any::<bool>(), prop_oneof![1..300_u64, Just(1_000_000)])
            .prop_map(|(order, path, lease)| Step::Emit { order, path, lease }),
        4 => any::<prop::sample::Index>().prop_map(Step::End),
        4 => (any::<prop::sample::Index>(), 0..500_u64).prop_map(|(which, wait)| Step::Fail(which, wait)),
        1 => (any::<prop::sample::Index>(), 0..500_u64).prop_map(|(which, length)| Step::Renew(which, length)),
        3 => (0..200_u64).prop_map(Step::Wait),
        1 => Just(Step::Drain),
    ]
}

proptest! {
    #[test]
    fn everything_ends_once_and_keys_keep_their_order(
        steps in prop::collection::vec(step(), 0..120),
        concurrency in 1..4_usize,
        batch_max in 1..4_usize,
    ) {
        let mut schedule = schedule(concurrency, batch_max);
        let (mut now, mut emitted) = (0_u64, 0_u64);
        let mut under_way: Vec<Batch> = Vec::new();
        // By delivery, how it ended.
        let mut ended: BTreeMap<u64, &str> = BTreeMap::new();
        let mut last_started: HashMap<Arc<str>, u64> = HashMap::new();
        let finish = [Step::Drain, Step::Wait(2_000_000)].into_iter();
        let ends = std::iter::repeat_n(Step::EndFirst, 400);
        let mut all = steps.into_iter().chain(finish).chain(ends);
        loop {
            while let Some(batch) = schedule.poll_start(at(now)) {
                prop_assert!(batch.emissions.len() <= batch_max && !batch.emissions.is_empty());
                for emission in &batch.emissions {
                    prop_assert!(work_end(emission) > at(now), "a lease that is over was used");
                    let Some(order) = &emission.order else { continue };
                    let is_busy = under_way.iter().any(|other| other.orders().contains(order));
                    prop_assert!(!is_busy, "two requests with one key");
                    // Later ones first, or the same once more.
                    let before = last_started.insert(Arc::clone(order), emission.id.0);
                    prop_assert!(before.is_none_or(|before| {
                        before <= emission.id.0 || batch.failures() > 0
                    }), "a key out of order");
                }
                under_way.push(batch);
                prop_assert!(under_way.len() <= concurrency);
            }
            for (id, _) in schedule.take_released() {
                prop_assert_eq!(ended.insert(id.0, "released"), None);
            }
            let Some(step) = all.next() else { break };
            match step {
                Step::Emit { order, path, lease } => {
                    emitted += 1;
                    let order = order.map(|order| format!("k{order}"));
                    let emission = Emission {
                        expires_at: at(now + lease),
                        ..emission(emitted, order.as_deref())
                    };
                    schedule.handle_emission(emission, target(if path { "/a" } else { "/b" }));
                }
                Step::End(_) | Step::EndFirst if !under_way.is_empty() => {
                    let at = if let Step::End(which) = step { which.index(under_way.len()) } else { 0 };
                    let batch = under_way.swap_remove(at);
                    schedule.handle_ended(&batch);
                    for id in ids(&batch) {
                        prop_assert_eq!(ended.insert(id, "ended"), None);
                    }
                }
                Step::Fail(which, wait) if !under_way.is_empty() => {
                    let mut batch = under_way.swap_remove(which.index(under_way.len()));
                    batch.next_wait();
                    schedule.handle_failed(batch, at(now + wait));
                }
                Step::Renew(which, length) => {
                    let id = which.index(emitted as usize + 1) as u64;
                    schedule.handle_renewed(DeliveryId(id), at(now + length));
                }
                Step::Wait(millis) => now += millis,
                Step::Drain => schedule.handle_drain(),
                Step::End(_) | Step::EndFirst | Step::Fail(..) => {}
            }
        }
        prop_assert_eq!(ended.len() as u64, emitted);
        prop_assert!(schedule.lanes.is_empty() && schedule.ready.is_empty() && schedule.turns.is_empty());
        prop_assert!(schedule.leases.is_empty());
        prop_assert_eq!((schedule.in_flight, schedule.poll_timeout()), (0, None));
    }
}
