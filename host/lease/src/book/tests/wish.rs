//! Workers that need more time, and outcomes that came to nothing.

use super::*;

fn wish(rig: &mut Rig, emission: &Emission, seconds: u64) -> Wish {
    rig.book.handle_renewal_wish(rig.now, emission.id, Duration::from_secs(seconds))
}

/// Answers renewals with a new handle.
fn land(rig: &mut Rig, settlements: &[Settlement]) {
    for settlement in settlements {
        assert!(matches!(settlement.verb, Verb::Renew(_)), "{settlement:?}");
        let handle =
            Handle { text: format!("{}'", settlement.handle.text).into(), ..settlement.handle.clone() };
        rig.book.handle_settled(rig.now, settlement.id, Ok(Some(handle)));
    }
}

#[test]
fn a_worker_keeps_its_lease_without_any_policy() {
    let mut rig = Rig::new(|_| {});
    let emissions = rig.start(&["a-1"]);
    rig.wait(30_000);
    assert_eq!(wish(&mut rig, &emissions[0], 120), Wish::Planned);
    assert_eq!(wish(&mut rig, &emissions[0], 120), Wish::Busy, "one at a time");
    let renewals = rig.settle();
    assert_eq!(told(&renewals), ["renew a-1"]);
    let before = rig.now;
    rig.wait(200);
    land(&mut rig, &renewals);
    assert_eq!(rig.book.lease_end(emissions[0].id), Some(before + Duration::from_secs(120)));
    rig.wait(100_000);
    assert_eq!(rig.report(&emissions[0], Outcome::Accepted), Taken::Yes, "past the end of its first lease");
    let settlements = rig.settle();
    assert_eq!((told(&settlements), handles(&settlements)), (vec!["accept a-1".to_owned()], vec!["a-1@1'"]));
    assert_eq!(rig.book.lease_end(emissions[0].id), None);
    assert_eq!(wish(&mut rig, &emissions[0], 120), Wish::LeaseGone, "it is being settled");
}

#[test]
fn a_report_waits_for_the_renewal_under_way() {
    let mut rig = Rig::new(|_| {});
    let emissions = rig.start(&["a-1"]);
    wish(&mut rig, &emissions[0], 120);
    let renewals = rig.settle();
    assert_eq!(rig.report(&emissions[0], Outcome::Accepted), Taken::Yes);
    assert!(rig.settle().is_empty(), "it is not known which handle counts");
    land(&mut rig, &renewals);
    assert_eq!(handles(&rig.settle()), ["a-1@1'"]);
}

#[test]
fn the_valves_bound_what_a_worker_may_keep() {
    let mut rig = Rig::new(|options| {
        options.valves.max_invisible_duration = Duration::from_secs(100);
        options.valves.max_total_deferral = Duration::from_secs(150);
    });
    let emissions = rig.start(&["a-1"]);
    assert_eq!(wish(&mut rig, &emissions[0], 10), Wish::Enough(emissions[0].expires_at), "it lasts longer");
    let mut end = emissions[0].expires_at;
    for expected in [100, 100, 90] {
        rig.wait(40_000);
        assert_eq!(wish(&mut rig, &emissions[0], 9_999), Wish::Planned);
        let renewals = rig.settle();
        let Verb::Renew(length) = renewals[0].verb else { panic!("{renewals:?}") };
        assert!(length <= Duration::from_secs(expected), "{length:?} of {expected}");
        land(&mut rig, &renewals);
        let kept = rig.book.lease_end(emissions[0].id).expect("it is the worker's");
        assert!(kept > end);
        end = kept;
    }
    // 60 s of lease and 150 s of keeping in all.
    assert!(end.saturating_since(emissions[0].received_at) <= Duration::from_secs(210), "{end:?}");
}

#[test]
fn a_lease_that_is_gone_cannot_be_kept() {
    let mut rig = Rig::new(|_| {});
    let emissions = rig.start(&["a-1", "a-2"]);
    rig.wait(61_000);
    assert_eq!(wish(&mut rig, &emissions[0], 60), Wish::LeaseGone);
    let emissions = rig.start(&["b:1", "b:2"]);
    rig.report(&emissions[0], Outcome::Deferred { delay: Duration::from_secs(5) });
    assert_eq!(wish(&mut rig, &emissions[1], 60), Wish::LeaseGone, "it comes again with the one before it");
    let never = DeliveryId(99 << 24);
    assert_eq!(rig.book.handle_renewal_wish(rig.now, never, Duration::from_secs(60)), Wish::LeaseGone);
}

#[test]
fn a_renewal_that_fails_leaves_the_lease_as_it_was() {
    let mut rig = Rig::new(|_| {});
    let emissions = rig.start(&["a-1"]);
    wish(&mut rig, &emissions[0], 120);
    let renewals = rig.settle();
    rig.book.handle_settled(rig.now, renewals[0].id, Err(failure(SettleFault::Broker)));
    assert_eq!(rig.book.lease_end(emissions[0].id), Some(emissions[0].expires_at));
    assert_eq!(wish(&mut rig, &emissions[0], 120), Wish::Planned, "it may be tried again");
    let renewals = rig.settle();
    rig.book.handle_settled(rig.now, renewals[0].id, Err(failure(SettleFault::LeaseGone)));
    assert_eq!(rig.book.lease_end(emissions[0].id), None);
    rig.events();
}

#[test]
fn an_outcome_that_comes_to_nothing_is_told() {
    let mut rig = Rig::new(|_| {});
    let emissions = rig.start(&["a:1", "a:2"]);
    assert_eq!(rig.report(&emissions[1], Outcome::Accepted), Taken::Yes, "it waits for the one before");
    rig.report(&emissions[0], Outcome::Released);
    let undone: Vec<_> = rig
        .events()
        .into_iter()
        .filter_map(|event| match event {
            BookEvent::Undone { id, .. } => Some(id),
            _ => None,
        })
        .collect();
    assert_eq!(undone, [emissions[1].id]);
    assert_eq!(told(&rig.settle()), ["release a:1"]);
}
