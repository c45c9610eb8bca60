//! Guests that fail while they decide: each failure is one message's, has its cause, and costs one instance.

use std::time::Duration;

use tidegate_connector::Clock;
use tidegate_model::Verdict;
use tidegate_policy::{
    Allocator, Answer, Cause, Engine, EngineOptions, OnError, PolicyHost, PolicySpec, PolicyState,
};
use tidegate_telemetry::Telemetry;
use tidegate_test_guests::Guest;

use crate::support::{Bench, DELIVERED, ask, ask_at, caller, rejected, status, wait_for};

fn failed(cause: Cause) -> Answer {
    Answer::OnError { verdict: Verdict::Deliver, cause }
}

/// The spec with the default deadline, for guests that run into it.
fn quick(spec: PolicySpec) -> PolicySpec {
    let mut spec = spec;
    spec.limits.deadline = Duration::from_millis(5);
    spec
}

#[test]
fn each_way_to_fail_has_its_cause_and_the_next_message_a_fresh_instance() {
    let bench = Bench::new();
    let cases = [
        ("trap", Guest::trapping_on_messages(), Cause::Panic),
        ("memory", Guest::growing_on_messages(), Cause::Memory),
        ("table", Guest::growing_a_table_on_messages(), Cause::Memory),
        ("stack", Guest::recursing_on_messages(), Cause::Stack),
        ("handle", Guest::keeping_its_handle_on_messages(), Cause::HostError),
    ];
    let specs = cases.iter().map(|(name, guest, _)| bench.policy(name, guest.component())).collect();
    let host = bench.host(specs);
    for (name, _, cause) in &cases {
        let mut caller = caller(&host, name);
        assert_eq!(ask(&mut caller, "tenant"), failed(*cause), "{name}");
        assert_eq!(ask(&mut caller, "self-test"), DELIVERED, "{name} after its failure");
        let status = status(&host, name);
        assert_eq!(status.counts.failures[cause.label()], 1, "{name}");
        assert_eq!(status.counts.instances_started, 2, "{name}");
        assert_eq!(status.last_failure.unwrap().failure.cause, *cause);
    }
    let memory = status(&host, "memory").last_failure.unwrap().failure.message;
    assert!(memory.contains("may have 67108864"), "{memory}");
}

#[test]
fn a_loop_is_stopped_at_its_deadline() {
    let bench = Bench::new();
    let spec = quick(bench.policy("loop", Guest::looping_on_messages().component()));
    let host = bench.host(vec![spec]);
    let mut caller = caller(&host, "loop");
    assert_eq!(ask(&mut caller, "tenant"), failed(Cause::Timeout));
    let message = status(&host, "loop").last_failure.unwrap().failure.message;
    assert!(message.contains("5 ms of computing time"), "{message}");
}

#[test]
fn on_error_says_what_becomes_of_the_message() {
    let bench = Bench::new();
    let trap = Guest::trapping_on_messages().component();
    let deferring =
        PolicySpec { on_error: OnError::Defer(Duration::from_secs(5)), ..bench.policy("defer", &trap) };
    let stopping = PolicySpec { on_error: OnError::Stop, ..bench.policy("stop", &trap) };
    let host = bench.host(vec![deferring, stopping]);
    let Answer::OnError { verdict: Verdict::Defer(deferral), cause: Cause::Panic } =
        ask(&mut caller(&host, "defer"), "tenant")
    else {
        panic!("not deferred");
    };
    assert_eq!(deferral.delay, Duration::from_secs(5));
    assert_eq!(&*deferral.reason, "policy defer could not decide: panic");
    assert_eq!(ask(&mut caller(&host, "stop"), "tenant"), Answer::Stop { cause: Cause::Panic });
}

#[test]
fn a_trap_on_every_hundredth_message_is_a_hundred_of_ten_thousand() {
    let bench = Bench::new();
    let host = bench.host(vec![bench.policy("often", Guest::trapping_every(100).component())]);
    let mut caller = caller(&host, "often");
    let answers: Vec<_> = (0..10_000).map(|n| ask_at(&mut caller, "tenant", n)).collect();
    let failures = answers.iter().filter(|answer| **answer == failed(Cause::Panic)).count();
    let decided = answers.iter().filter(|answer| **answer == DELIVERED).count();
    assert_eq!((failures, decided), (100, 9_900));
    assert_eq!(status(&host, "often").state, PolicyState::Active);
}

#[test]
fn a_policy_that_always_traps_is_not_asked_until_a_good_one_comes() {
    let bench = Bench::new();
    let host = bench.host(vec![bench.policy("bad", Guest::trapping_on_messages().component())]);
    let mut caller = caller(&host, "bad");
    for n in 0..10_000 {
        let answer = ask_at(&mut caller, "tenant", n / 100);
        assert!(matches!(answer, Answer::OnError { verdict: Verdict::Deliver, .. }), "{answer:?}");
    }
    let broken = status(&host, "bad");
    assert_eq!(broken.state, PolicyState::Broken);
    assert_eq!(broken.counts.failures["panic"], 8, "the guest was not called any more");
    assert_eq!(broken.counts.failures["breaker"], 9_992);
    assert!(broken.breaker.unwrap().reason.contains("half"));
    bench.write("bad.wasm", Guest::rejecting("good now").component());
    host.reload("bad").unwrap();
    assert_eq!(ask_at(&mut caller, "tenant", 101), rejected("good now"));
    assert_eq!(status(&host, "bad").state, PolicyState::Active);
}

#[test]
fn a_broken_policy_is_probed_and_closes_by_itself() {
    let bench = Bench::new();
    let host = bench.host(vec![bench.policy("bad", Guest::trapping_on_messages().component())]);
    let mut caller = caller(&host, "bad");
    for _ in 0..8 {
        ask_at(&mut caller, "tenant", 0);
    }
    assert_eq!(ask_at(&mut caller, "self-test", 999), failed(Cause::Breaker));
    assert_eq!(ask_at(&mut caller, "self-test", 1_000), DELIVERED, "the probe");
    assert_eq!(ask_at(&mut caller, "self-test", 1_001), DELIVERED, "closed");
    assert_eq!(status(&host, "bad").state, PolicyState::Active);
}

#[test]
fn a_flood_of_failures_leaves_no_store_behind_and_no_other_policy_notices() {
    let bench = Bench::new();
    let mut bad = bench.policy("bad", Guest::trapping_every(2).component());
    bad.limits.memory_bytes = 1 << 20;
    let host = bench.host(vec![bad, bench.policy("good", Guest::rejecting("good").component())]);
    let (mut bad, mut good) = (caller(&host, "bad"), caller(&host, "good"));
    let mut failures = 0;
    for n in 0..20_000 {
        // A failure on every second message: the breaker opens now and then, and the flood goes on in between.
        failures += u32::from(ask_at(&mut bad, "tenant", n * 40) == failed(Cause::Panic));
        assert_eq!(ask_at(&mut good, "tenant", n), rejected("good"));
        assert!(bench.engine.instances() <= 2, "{} instances live", bench.engine.instances());
    }
    assert!(failures > 100, "{failures}");
    drop((bad, good));
    assert_eq!(bench.engine.instances(), 0);
}

#[test]
fn log_lines_are_capped_and_counted() {
    let bench = Bench::new();
    let mut spec = bench.policy("chatty", Guest::logging(1_000, 1_000).component());
    spec.limits.log_bytes_per_call = 4_096;
    let host = bench.host(vec![spec]);
    assert_eq!(ask(&mut caller(&host, "chatty"), "tenant"), DELIVERED);
    host.shutdown();
    let metrics = bench.telemetry.encode();
    let count = |name: &str| {
        let line = metrics.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.rsplit(' ').next().and_then(|number| number.parse::<u64>().ok()).unwrap_or(0)
    };
    let (taken, dropped) =
        (count("tidegate_policy_log_lines_total{"), count("tidegate_policy_log_lines_dropped_total{"));
    assert_eq!(taken + dropped, 1_000, "{metrics}");
    assert!(taken <= 4, "{taken}");
}

#[test]
fn more_bytes_than_a_host_call_may_take_are_the_guests_failure() {
    let bench = Bench::new();
    let host = bench.host(vec![bench.policy("quiet", Guest::rejecting("quiet").component())]);
    // It logs in the self-test already, so it never comes into force.
    bench.write("quiet.wasm", Guest::logging(1, 1 << 20).component());
    let error = host.reload("quiet").unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.contains("more bytes to the host than one call may"), "{source}");
    assert_eq!(ask(&mut caller(&host, "quiet"), "tenant"), rejected("quiet"));
}

#[test]
fn an_exhausted_pool_is_named() {
    let bench = Bench::new();
    let host = bench.host(vec![bench.policy("good", Guest::default().component())]);
    let mut callers: Vec<_> = (0..21).map(|_| caller(&host, "good")).collect();
    let answers: Vec<_> = callers.iter_mut().map(|caller| ask(caller, "tenant")).collect();
    assert_eq!(answers.last(), Some(&failed(Cause::Other)));
    let message = status(&host, "good").last_failure.unwrap().failure.message;
    assert!(message.contains("pool of instances is exhausted"), "{message}");
    drop(callers);
    wait_for(&host, "good", |_| bench.engine.instances() == 0);
}

#[test]
fn without_room_for_a_pool_instances_come_from_the_system() {
    let telemetry = Telemetry::default();
    // Two memories of 4 GiB each for every instance: more than 47 bits of addresses.
    let options = EngineOptions { instances_max: 1_000_000, ..EngineOptions::new(Clock::start(), 7) };
    let engine = Engine::new(options, telemetry.clone()).unwrap();
    assert_eq!(engine.allocator(), Allocator::OnDemand);
    let metrics = telemetry.encode();
    assert!(metrics.contains("tidegate_policy_allocator{allocator=\"on-demand\"} 1"), "{metrics}");
    let bench = Bench::new();
    let spec = bench.policy("good", Guest::rejecting("good").component());
    let host = PolicyHost::start(&engine, vec![spec], None).unwrap();
    assert_eq!(ask(&mut caller(&host, "good"), "tenant"), rejected("good"));
}

#[test]
fn a_policy_that_always_loops_costs_a_few_deadlines() {
    let bench = Bench::new();
    let host = bench.host(vec![quick(bench.policy("loop", Guest::looping_on_messages().component()))]);
    let mut caller = caller(&host, "loop");
    for n in 0..10_000 {
        assert!(matches!(ask_at(&mut caller, "tenant", n / 100), Answer::OnError { .. }));
    }
    let counts = status(&host, "loop").counts;
    assert!(counts.failures["timeout"] <= 8, "{counts:?}");
    assert_eq!(counts.failures["timeout"] + counts.failures["breaker"], 10_000);
}
