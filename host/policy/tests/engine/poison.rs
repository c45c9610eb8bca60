//! Messages that make a policy fail each time they come, and policies that an operator paused.

use std::time::Duration;

use tidegate_model::Verdict;
use tidegate_policy::{Answer, Cause, OnError, PolicySpec, PolicyState};
use tidegate_test_guests::Guest;

use crate::support::{Bench, DELIVERED, ask, ask_about, caller, message_named, rejected, status};

/// Traps on every message whose key is not that of the self-test.
fn deferring(bench: &Bench) -> PolicySpec {
    PolicySpec {
        on_error: OnError::Defer(Duration::from_secs(5)),
        ..bench.policy("fair", Guest::trapping_on_messages().component())
    }
}

fn cause(answer: &Answer) -> Cause {
    match answer {
        Answer::OnError { verdict: Verdict::Defer(deferral), cause } => {
            assert_eq!(deferral.delay, Duration::from_secs(5));
            *cause
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_message_that_failed_three_times_is_not_asked_about_again_and_others_are() {
    let bench = Bench::new();
    let host = bench.host(vec![deferring(&bench)]);
    let mut caller = caller(&host, "fair");
    let bad = message_named("tenant", "bad");
    let causes: Vec<_> = (0..6).map(|n| cause(&ask_about(&mut caller, &bad, n))).collect();
    assert_eq!(
        causes,
        [Cause::Panic, Cause::Panic, Cause::Panic, Cause::Poison, Cause::Poison, Cause::Poison]
    );
    let after = status(&host, "fair");
    assert_eq!((after.counts.failures["panic"], after.counts.failures["poison"]), (3, 3));
    assert_eq!(after.counts.poisoned, 1);
    assert_eq!(bench.metric("tidegate_policy_poisoned_total{policy=\"fair\"}"), 1.0);
    assert_eq!(after.state, PolicyState::Active);

    let good = message_named("self-test", "good");
    assert_eq!(ask_about(&mut caller, &good, 7), DELIVERED);
    assert_eq!(
        cause(&ask_about(&mut caller, &message_named("tenant", "worse"), 8)),
        Cause::Panic,
        "is asked"
    );
}

#[test]
fn a_message_that_is_not_asked_about_costs_no_instance() {
    let bench = Bench::new();
    let host = bench.host(vec![deferring(&bench)]);
    let mut caller = caller(&host, "fair");
    let (bad, good) = (message_named("tenant", "bad"), message_named("self-test", "good"));
    for n in 0..3 {
        assert_eq!(cause(&ask_about(&mut caller, &bad, n)), Cause::Panic);
    }
    for n in 3..100 {
        assert_eq!(cause(&ask_about(&mut caller, &bad, n)), Cause::Poison);
        assert_eq!(ask_about(&mut caller, &good, n), DELIVERED);
    }
    assert_eq!(
        status(&host, "fair").counts.instances_started,
        4,
        "one for each failure and one for the rest"
    );
}

#[test]
fn another_generation_is_asked_about_it_again() {
    let bench = Bench::new();
    let host = bench.host(vec![deferring(&bench)]);
    let mut caller = caller(&host, "fair");
    let bad = message_named("tenant", "bad");
    for n in 0..4 {
        cause(&ask_about(&mut caller, &bad, n));
    }
    bench.write("fair.wasm", Guest::rejecting("repaired").component());
    host.reload("fair").unwrap();
    assert_eq!(ask_about(&mut caller, &bad, 5), rejected("repaired"));
}

#[test]
fn many_bad_messages_open_the_breaker_and_none_is_asked_meanwhile() {
    let bench = Bench::new();
    let host = bench.host(vec![deferring(&bench)]);
    let mut caller = caller(&host, "fair");
    for n in 0..50 {
        ask_about(&mut caller, &message_named("tenant", &format!("bad-{n}")), 0);
    }
    let broken = status(&host, "fair");
    assert_eq!((broken.state, broken.counts.failures["panic"]), (PolicyState::Broken, 8));
    assert_eq!(broken.counts.poisoned, 0, "each failed once");
    assert_eq!(bench.metric("tidegate_policy_breaker_open{policy=\"fair\"}"), 1.0);
}

#[test]
fn a_paused_policy_is_not_asked_until_it_is_resumed() {
    let bench = Bench::new();
    let spec = bench.policy("fair", Guest::rejecting("asked").component());
    let host = bench.host(vec![spec]);
    let mut caller = caller(&host, "fair");
    assert_eq!(ask(&mut caller, "tenant"), rejected("asked"));
    assert!(host.set_paused("fair", true).unwrap());
    assert!(!host.set_paused("fair", true).unwrap(), "it is paused already");
    let paused = Answer::OnError { verdict: Verdict::Deliver, cause: Cause::Paused };
    assert_eq!(ask(&mut caller, "tenant"), paused);
    assert_eq!(status(&host, "fair").state, PolicyState::Paused);
    assert_eq!(bench.engine.instances(), 0, "it takes no place");
    assert_eq!(bench.metric("tidegate_policy_paused{policy=\"fair\"}"), 1.0);

    // Its files are followed all the same.
    bench.write("fair.wasm", Guest::rejecting("newer").component());
    assert_eq!(host.reload("fair").unwrap().generation, 2);
    assert_eq!(ask(&mut caller, "tenant"), paused);
    assert!(host.set_paused("fair", false).unwrap());
    assert_eq!(ask(&mut caller, "tenant"), rejected("newer"));
    assert_eq!(bench.metric("tidegate_policy_paused{policy=\"fair\"}"), 0.0);
    assert!(host.set_paused("other", true).is_err());
}
