//! Generations that are left again: by the host when their first calls fail, or by an operator.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use tidegate_model::Verdict;
use tidegate_policy::{
    Answer, Cause, PolicyHost, PolicySpec, PolicyState, Probation, ReloadError, RollbackError, Rung,
};
use tidegate_test_guests::Guest;

use crate::support::{
    Bench, DELIVERED, Traffic, ask, ask_about, caller, message_named, rejected, status, wait_for,
    when_drained,
};

fn trapped() -> Answer {
    Answer::OnError { verdict: Verdict::Deliver, cause: Cause::Panic }
}

/// A host that runs `old`, and `new` in its first calls.
fn on_probation(bench: &Bench, new: &Guest) -> PolicyHost {
    let host = bench.host(vec![bench.policy("fair", Guest::rejecting("old").component())]);
    bench.write("fair.wasm", new.component());
    assert_eq!(host.reload("fair").unwrap().generation, 2);
    assert!(status(&host, "fair").active.unwrap().on_probation);
    host
}

#[test]
fn one_that_fails_on_its_first_messages_is_left_and_not_loaded_again_before_its_file_changes() {
    let bench = Bench::new();
    let host = on_probation(&bench, &Guest::trapping_on_messages());
    let mut caller = caller(&host, "fair");
    let answers: Vec<_> = (0..6).map(|_| ask(&mut caller, "tenant")).collect();
    let old = rejected("old");
    assert_eq!(answers, [trapped(), trapped(), trapped(), old.clone(), old.clone(), old.clone()]);

    let left = status(&host, "fair");
    assert_eq!(left.state, PolicyState::Outdated, "what is on disk does not run");
    let active = left.active.unwrap();
    assert_eq!((active.generation, active.origin, active.on_probation), (3, "earlier", false));
    let error = left.last_error.unwrap();
    assert_eq!((error.rung, error.cause), (Rung::Probation, "rolled-back"));
    assert!(error.reason.contains("generation 2 failed on 3 of its first 3 calls"), "{}", error.reason);
    assert!(error.reason.contains("it panicked"), "{}", error.reason);
    assert_eq!(left.counts.rollbacks, 1);
    let counted =
        "tidegate_policy_reloads_total{policy=\"fair\",result=\"rolled_back\",cause=\"rolled-back\"}";
    assert_eq!(bench.metric(counted), 1.0, "{}", bench.telemetry.encode());
    assert_eq!(bench.metric("tidegate_policy_last_reload_successful{policy=\"fair\"}"), 0.0);
    assert_eq!(bench.metric("tidegate_policy_generation{policy=\"fair\"}"), 3.0);

    // Touched, written again with the same bytes, deleted and put back: it is what was left all the same.
    let bad = fs::read(bench.path("fair.wasm")).unwrap();
    bench.write("fair.wasm", &bad);
    std::thread::sleep(Duration::from_millis(400));
    assert_eq!(ask(&mut caller, "tenant"), old);
    fs::remove_file(bench.path("fair.wasm")).unwrap();
    wait_for(&host, "fair", |status| status.last_error.as_ref().is_some_and(|error| error.cause == "absent"));
    bench.write("fair.wasm", &bad);
    let back = wait_for(&host, "fair", |status| {
        status.last_error.as_ref().is_some_and(|error| error.cause == "rolled-back")
    });
    assert_eq!((back.active.unwrap().generation, back.counts.rollbacks), (3, 1));
    assert_eq!(ask(&mut caller, "tenant"), old);

    bench.write("fair.wasm", Guest::rejecting("new").component());
    let good = wait_for(&host, "fair", |status| status.state == PolicyState::Active);
    assert_eq!((good.active.unwrap().generation, good.last_error), (4, None));
    assert_eq!(ask(&mut caller, "tenant"), rejected("new"));
}

#[test]
fn the_file_that_runs_again_may_come_back() {
    let bench = Bench::new();
    let host = on_probation(&bench, &Guest::trapping_on_messages());
    let mut caller = caller(&host, "fair");
    for _ in 0..3 {
        assert_eq!(ask(&mut caller, "tenant"), trapped());
    }
    bench.write("fair.wasm", Guest::rejecting("old").component());
    let again = wait_for(&host, "fair", |status| status.state == PolicyState::Active);
    assert_eq!((again.active.unwrap().generation, again.last_error), (3, None), "nothing is to be loaded");
    assert_eq!(ask(&mut caller, "tenant"), rejected("old"));
}

#[test]
fn two_failures_are_forgiven() {
    let bench = Bench::new();
    let host = on_probation(&bench, &Guest::trapping_on_messages());
    let mut caller = caller(&host, "fair");
    assert_eq!((ask(&mut caller, "tenant"), ask(&mut caller, "tenant")), (trapped(), trapped()));
    for _ in 0..300 {
        assert_eq!(ask(&mut caller, "self-test"), DELIVERED);
    }
    // The third in three hundred is one in a hundred, and not more.
    assert_eq!(ask(&mut caller, "tenant"), trapped());
    assert_eq!(status(&host, "fair").active.unwrap().generation, 2);
    assert_eq!(ask(&mut caller, "tenant"), trapped());
    assert_eq!(status(&host, "fair").active.unwrap().generation, 3);
}

#[test]
fn a_single_message_that_comes_again_and_again_decides_nothing() {
    let bench = Bench::new();
    let host = on_probation(&bench, &Guest::trapping_on_messages());
    let mut caller = caller(&host, "fair");
    let bad = message_named("tenant", "bad");
    for n in 0..3 {
        assert_eq!(ask_about(&mut caller, &bad, n), trapped());
    }
    let poisoned = Answer::OnError { verdict: Verdict::Deliver, cause: Cause::Poison };
    assert_eq!(ask_about(&mut caller, &bad, 3), poisoned);
    assert_eq!(status(&host, "fair").active.unwrap().generation, 2);
    // Two others are more than an odd one.
    assert_eq!((ask(&mut caller, "tenant"), ask(&mut caller, "tenant")), (trapped(), trapped()));
    assert_eq!(status(&host, "fair").active.unwrap().generation, 3);
}

#[test]
fn a_loop_on_messages_is_left_as_well() {
    let bench = Bench::new();
    let mut spec = bench.policy("fair", Guest::rejecting("old").component());
    spec.limits.deadline = Duration::from_millis(5);
    let host = bench.host(vec![spec]);
    bench.write("fair.wasm", Guest::looping_on_messages().component());
    host.reload("fair").unwrap();
    let mut caller = caller(&host, "fair");
    let answers: Vec<_> = (0..4).map(|_| ask(&mut caller, "tenant")).collect();
    assert_eq!(answers[3], rejected("old"), "{answers:?}");
    assert!(status(&host, "fair").last_error.unwrap().reason.contains("5 ms of computing time"));
}

#[test]
fn after_its_probation_a_failing_generation_stays() {
    let bench = Bench::new();
    let quick = Probation { calls: 10, time: Duration::from_millis(50) };
    let spec = PolicySpec { probation: quick, ..bench.policy("fair", Guest::rejecting("old").component()) };
    let host = bench.host(vec![spec]);
    bench.write("fair.wasm", Guest::trapping_on_messages().component());
    host.reload("fair").unwrap();
    let mut caller = caller(&host, "fair");
    for _ in 0..10 {
        assert_eq!(ask(&mut caller, "self-test"), DELIVERED);
    }
    wait_for(&host, "fair", |status| !status.active.as_ref().unwrap().on_probation);
    for _ in 0..8 {
        assert_eq!(ask(&mut caller, "tenant"), trapped());
    }
    let broken = status(&host, "fair");
    assert_eq!((broken.state, broken.active.unwrap().generation), (PolicyState::Broken, 2));
}

#[test]
fn the_first_generation_has_nothing_to_go_back_to() {
    let bench = Bench::new();
    let host = bench.host(vec![bench.policy("fair", Guest::trapping_on_messages().component())]);
    let mut caller = caller(&host, "fair");
    for _ in 0..7 {
        assert_eq!(ask(&mut caller, "tenant"), trapped());
    }
    let status = status(&host, "fair");
    assert_eq!((status.active.unwrap().generation, status.counts.rollbacks), (1, 0));
}

#[test]
fn an_operator_goes_back_once_and_the_files_are_not_loaded_by_themselves() {
    let bench = Bench::new();
    let host = on_probation(&bench, &Guest::rejecting("new"));
    let mut caller = caller(&host, "fair");
    assert_eq!(ask(&mut caller, "tenant"), rejected("new"));
    assert_eq!(status(&host, "fair").previous_generation, Some(1));
    assert_eq!(host.roll_back("fair").unwrap(), 3);
    assert_eq!(ask(&mut caller, "tenant"), rejected("old"));
    let left = status(&host, "fair");
    let error = left.last_error.unwrap();
    assert_eq!((left.state, error.rung, error.cause), (PolicyState::Outdated, Rung::Asked, "asked"));
    assert_eq!(left.previous_generation, None);
    let again = host.roll_back("fair").unwrap_err();
    assert!(
        matches!(again, ReloadError::NoRollback { source: RollbackError::NoEarlier, .. }),
        "there is nothing before it: {again:?}"
    );
    bench.write("fair.wasm", Guest::rejecting("new").component());
    std::thread::sleep(Duration::from_millis(400));
    assert_eq!(ask(&mut caller, "tenant"), rejected("old"));
    // Somebody who asks for it has it.
    assert_eq!(host.reload("fair").unwrap().generation, 4);
    assert_eq!(ask(&mut caller, "tenant"), rejected("new"));
    assert!(matches!(host.roll_back("other"), Err(ReloadError::Unknown(_))));
}

#[test]
fn nothing_loaded_is_nothing_to_go_back_from() {
    let bench = Bench::new();
    let host = bench.host(vec![bench.spec("absent")]);
    let error = host.roll_back("absent").unwrap_err();
    assert!(matches!(error, ReloadError::NoRollback { source: RollbackError::Nothing, .. }), "{error:?}");
}

/// A caller that fails the breaker open, an operator who reloads, and somebody who looks: none waits for another.
#[test]
fn looking_at_a_policy_never_gets_in_the_way_of_its_reloads() {
    let bench = Bench::new();
    let host = Arc::new(bench.host(vec![bench.policy("fair", Guest::trapping_on_messages().component())]));
    let traffic = Traffic::start(&host, "fair", |answer| matches!(answer, Answer::OnError { .. }));
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let looking = std::thread::spawn({
        let (host, stop) = (Arc::clone(&host), Arc::clone(&stop));
        move || {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                assert_eq!(host.status().len(), 1);
            }
        }
    });
    for n in 0..150_u64 {
        // The breaker is open by now, or soon.
        wait_for(&host, "fair", |status| status.breaker.is_some());
        let mut spec = bench.spec("fair");
        spec.limits.log_bytes_per_call = 1_000 + usize::try_from(n).unwrap();
        assert!(when_drained(|| host.update(spec.clone())).changed);
        if host.status()[0].previous_generation.is_some() && n % 3 == 0 {
            // A probation may have been quicker.
            let _ = host.roll_back("fair");
        }
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    looking.join().unwrap();
    assert!(traffic.end() > 0);
}

/// A call that goes on for long keeps its generation, and there is room for one such.
#[test]
fn a_fourth_generation_waits_until_a_call_has_ended() {
    let bench = Bench::new();
    let mut spec = bench.policy("fair", Guest::looping_on_messages().component());
    spec.limits.deadline = Duration::from_secs(3);
    let host = bench.host(vec![spec.clone()]);
    let calls: Vec<_> = (1..=3_u64)
        .map(|generation| {
            let mut asking = caller(&host, "fair");
            let call = std::thread::spawn(move || ask(&mut asking, "tenant"));
            // In its call, which ends after seconds.
            wait_for(&host, "fair", |status| status.counts.instances_started == generation);
            std::thread::sleep(Duration::from_millis(50));
            spec.limits.log_bytes_per_call += 1;
            let updated = host.update(spec.clone());
            assert_eq!(updated.is_ok(), generation < 3, "{updated:?}");
            assert!(status(&host, "fair").generations <= 3);
            call
        })
        .collect();
    let waiting = status(&host, "fair");
    let error = waiting.last_error.unwrap();
    assert_eq!((error.cause, waiting.active.unwrap().generation), ("draining", 3), "{}", error.reason);
    assert!(error.reason.contains("3 generations are still in calls"), "{}", error.reason);
    for call in calls {
        assert!(matches!(call.join().unwrap(), Answer::OnError { cause: Cause::Timeout, .. }));
    }
    assert_eq!(host.update(spec).unwrap().generation, 4);
    assert!(status(&host, "fair").generations <= 2);
}
