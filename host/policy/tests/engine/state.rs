//! What the host keeps and gives: state, clock, facts.

use std::sync::Arc;

use tidegate_test_guests::Guest;

use crate::support::{Bench, DELIVERED, ask, caller, rejected, status};

#[test]
fn buckets_are_shared_by_callers_and_outlive_instances_and_reloads() {
    let bench = Bench::new();
    let mut spec = bench.policy("tokens", Guest::with_three_tokens().component());
    spec.rules = Some(bench.path("rules.toml"));
    bench.write("rules.toml", "");
    let host = bench.host(vec![spec]);
    assert_eq!(ask(&mut caller(&host, "tokens"), "tenant"), DELIVERED, "the self-test took none of them");
    assert_eq!(ask(&mut caller(&host, "tokens"), "tenant"), DELIVERED);
    bench.write("rules.toml", "# another digest\n");
    assert_eq!(host.reload("tokens").unwrap().generation, 2);
    let mut caller = caller(&host, "tokens");
    assert_eq!(ask(&mut caller, "tenant"), DELIVERED);
    assert_eq!(ask(&mut caller, "tenant"), rejected("no token"));
    assert_eq!(status(&host, "tokens").kept.buckets, 1);
}

#[test]
fn policies_do_not_see_each_others_state() {
    let bench = Bench::new();
    let component = Guest::with_three_tokens().component();
    let host = bench.host(vec![bench.policy("one", &component), bench.policy("two", &component)]);
    let mut one = caller(&host, "one");
    while ask(&mut one, "tenant") == DELIVERED {}
    assert_eq!(ask(&mut caller(&host, "two"), "tenant"), DELIVERED);
}

#[test]
fn nonsense_for_a_bucket_is_the_policys_failure() {
    let bench = Bench::new();
    let spec = bench.policy("nan", Guest::with_a_bucket_of_nan().component());
    let report = tidegate_policy::check(&bench.engine, &spec);
    assert!(report.failure().unwrap().contains("a burst of NaN"), "{report:#?}");
}

#[test]
fn the_clock_stands_still_and_random_numbers_do_not() {
    let bench = Bench::new();
    let host = bench.host(vec![bench.policy("clock", Guest::looking_at_its_clock().component())]);
    let mut caller = caller(&host, "clock");
    for _ in 0..100 {
        assert_eq!(ask(&mut caller, "tenant"), DELIVERED);
    }
}

#[test]
fn instances_are_replaced_after_many_uses() {
    let bench = Bench::new();
    let mut spec = bench.policy("used", Guest::default().component());
    spec.limits.uses_max = 100;
    let host = bench.host(vec![spec]);
    let mut caller = caller(&host, "used");
    for _ in 0..1_000 {
        assert_eq!(ask(&mut caller, "tenant"), DELIVERED);
    }
    let started = status(&host, "used").counts.instances_started;
    assert!((8..=14).contains(&started), "{started}");
}

#[test]
fn a_caller_keeps_no_message_alive() {
    let bench = Bench::new();
    let host = bench.host(vec![bench.policy("good", Guest::reading_three_fields().component())]);
    let mut caller = caller(&host, "good");
    let message = crate::support::message("tenant");
    let key = Arc::from("tenant");
    let question = tidegate_policy::Question {
        source: "tenants",
        message: &message,
        key: &key,
        attempt: 1,
        age: std::time::Duration::ZERO,
        waited: std::time::Duration::ZERO,
        deferred: std::time::Duration::ZERO,
        standing: tidegate_model::Standing::default(),
        wall: tidegate_model::Timestamp::default(),
        now: tidegate_model::Instant::ZERO,
        seed: 0,
    };
    assert_eq!(caller.decide(&question), DELIVERED);
    assert_eq!((Arc::strong_count(&message), Arc::strong_count(&key)), (1, 1));
}
