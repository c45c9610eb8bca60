//! Guests that take all they can get, beside a healthy one that must not notice.

mod rate;

use std::time::Duration;

use tidegate_model::{Instant, Renewal, Timestamp, Verdict};
use tidegate_policy::{
    Answer, Cause, Ending, LeaseFacts, Outcome, OutgoingRecord, PolicyHost, PolicySpec, PolicyState, Rung,
    RungOutcome, check,
};
use tidegate_test_guests::{Guest, with_core_instances};

use crate::support::{
    Bench, DELIVERED, Traffic, ask, ask_at, caller, message, question, rejected, resident_bytes, status,
};

/// What a guest may leave behind in the process, with much else going on in it: each test here would leave gigabytes.
const GROWTH_MAX: u64 = 300 << 20;

fn failed(cause: Cause) -> Answer {
    Answer::OnError { verdict: Verdict::Deliver, cause }
}

/// The default deadline, for guests that run into it.
fn quick(mut spec: PolicySpec) -> PolicySpec {
    spec.limits.deadline = Duration::from_millis(5);
    spec
}

/// A host of these policies and a healthy one that is asked all the time.
fn beside_a_healthy_one(bench: &Bench, mut specs: Vec<PolicySpec>) -> (PolicyHost, Traffic) {
    specs.push(bench.policy("good", Guest::rejecting("good").component()));
    let host = bench.host(specs);
    let traffic = Traffic::start(&host, "good", |answer| *answer == rejected("good"));
    (host, traffic)
}

/// The cause of the only failure of a policy, asked about one message.
fn fails(guest: &Guest) -> (Cause, String) {
    let bench = Bench::new();
    let (host, good) = beside_a_healthy_one(&bench, vec![quick(bench.policy("bad", guest.component()))]);
    let mut bad = caller(&host, "bad");
    let Answer::OnError { verdict: Verdict::Deliver, cause } = ask(&mut bad, "tenant") else {
        panic!("it decided");
    };
    assert_eq!(ask(&mut bad, "self-test"), DELIVERED, "a fresh instance");
    good.goes_on();
    good.end();
    let failure = status(&host, "bad").last_failure.unwrap().failure;
    assert_eq!(failure.cause, cause);
    (cause, failure.message)
}

/// The rung that refuses a component, and why.
fn refused(component: impl AsRef<[u8]>) -> (Rung, String) {
    let bench = Bench::new();
    let report = check(&bench.engine, &bench.policy("bad", component));
    let rung = report.rungs.iter().find(|report| matches!(report.outcome, RungOutcome::Failed(_)));
    (rung.expect("it is refused").rung, report.failure().unwrap().to_owned())
}

#[test]
fn a_loop_on_the_thousandth_call_is_one_message() {
    let bench = Bench::new();
    let spec = quick(bench.policy("bad", Guest::looping_every(1_000).component()));
    let (host, good) = beside_a_healthy_one(&bench, vec![spec]);
    let mut bad = caller(&host, "bad");
    let answers: Vec<_> = (0..3_000).map(|n| ask_at(&mut bad, "tenant", n)).collect();
    let looped: Vec<_> = (0..3_000).filter(|&n| answers[n] == failed(Cause::Timeout)).collect();
    assert_eq!(looped, [999, 1_999, 2_999]);
    assert_eq!(answers.iter().filter(|answer| **answer == DELIVERED).count(), 2_997);
    good.goes_on();
    good.end();
}

#[test]
fn memory_that_is_written_to_is_given_back() {
    let bench = Bench::new();
    let (host, good) = beside_a_healthy_one(
        &bench,
        vec![bench.policy("bad", Guest::filling_its_memory_on_messages().component())],
    );
    let before = resident_bytes();
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let mut bad = caller(&host, "bad");
            std::thread::spawn(move || {
                for n in 0..50 {
                    // Fewer than half of the calls fail, so that the breaker does not end the test.
                    assert_eq!(ask_at(&mut bad, "tenant", n), failed(Cause::Memory));
                    assert_eq!(ask_at(&mut bad, "self-test", n), DELIVERED);
                    assert_eq!(ask_at(&mut bad, "self-test", n), DELIVERED);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    good.goes_on();
    good.end();
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < GROWTH_MAX, "{grown} bytes more after filling 100 times 64 MiB");
}

#[test]
fn many_memories_share_one_budget() {
    let good = Guest::default().component();
    // With the guest's own page exactly the 64 MiB of the budget, and a page more.
    let bench = Bench::new();
    let whole = with_core_instances(&good, "(module (memory 1023))", 1);
    assert!(check(&bench.engine, &bench.policy("whole", whole)).passed);
    let (rung, reason) = refused(with_core_instances(&good, "(module (memory 1024))", 1));
    assert_eq!(rung, Rung::Instantiate);
    assert!(reason.contains("asked for 67174400 bytes of memory in all and may have 67108864"), "{reason}");
    // More memories than an instance's share of the pool.
    let (rung, reason) = refused(with_core_instances(&good, "(module (memory 1))", 30));
    assert_eq!(rung, Rung::Compile);
    assert!(reason.contains("memories"), "{reason}");
    let (rung, reason) = refused(with_core_instances(&good, "(module (table 1 funcref))", 30));
    assert_eq!(rung, Rung::Compile);
    assert!(reason.contains("tables"), "{reason}");
}

#[test]
fn many_core_instances_do_not_take_the_places_of_others() {
    let good = Guest::default().component();
    let (rung, reason) = refused(with_core_instances(&good, "(module)", 150));
    assert_eq!(rung, Rung::Compile, "{reason}");
    assert!(reason.contains("core module instances"), "{reason}");
    // As many as are let through, in all the instances that there are room for.
    let bench = Bench::new();
    let many = with_core_instances(&good, "(module)", 40);
    let (host, traffic) = beside_a_healthy_one(&bench, vec![bench.policy("many", many)]);
    let mut callers: Vec<_> = (0..19).map(|_| caller(&host, "many")).collect();
    for caller in &mut callers {
        assert_eq!(ask(caller, "tenant"), DELIVERED);
    }
    traffic.goes_on();
    traffic.end();
}

#[test]
fn a_recursion_ends_at_the_stacks_end() {
    assert_eq!(fails(&Guest::recursing_on_messages()).0, Cause::Stack);
}

#[test]
fn handles_are_counted() {
    assert_eq!(fails(&Guest::keeping_its_handle_on_messages()).0, Cause::HostError);
    let bench = Bench::new();
    let guest = Guest::piling_up_handles_on_renewed_leases();
    let (host, good) = beside_a_healthy_one(&bench, vec![bench.policy("bad", guest.component())]);
    let mut bad = host.renewing("bad").unwrap().caller();
    let before = resident_bytes();
    for _ in 0..20 {
        assert_eq!(renew(&mut bad, 1), Renewal::Lapse);
        assert_eq!(renew(&mut bad, 0), Renewal::Renew(Duration::from_secs(1)));
        assert_eq!(renew(&mut bad, 0), Renewal::Renew(Duration::from_secs(1)));
    }
    let after = status(&host, "bad");
    assert_eq!(after.counts.failures["host-error"], 20, "{after:#?}");
    let message = after.last_failure.unwrap().failure.message;
    assert!(message.contains("handles"), "{message}");
    assert!(resident_bytes().saturating_sub(before) < GROWTH_MAX);
    good.goes_on();
    good.end();
}

fn renew(caller: &mut tidegate_policy::RenewalCaller, renewals: u32) -> Renewal {
    let message = message("tenant");
    let facts = LeaseFacts {
        remaining: Duration::from_secs(5),
        length: Duration::from_secs(60),
        renewals,
        emitted: false,
        queue_position: 3,
    };
    caller.decide(&question(&message, &"tenant".into(), 1), &facts)
}

#[test]
fn a_flood_of_lines_is_cut_for_each_call_and_for_each_second() {
    let bench = Bench::new();
    let spec = bench.policy("bad", Guest::logging(10_000, 30).component());
    let (host, good) = beside_a_healthy_one(&bench, vec![spec]);
    let mut bad = caller(&host, "bad");
    let before = resident_bytes();
    for _ in 0..20 {
        // All in the same second.
        assert_eq!(ask_at(&mut bad, "tenant", 500), DELIVERED);
    }
    good.goes_on();
    good.end();
    host.shutdown();
    let taken = bench.metric("tidegate_policy_log_lines_total{policy=\"bad\",level=\"info\"}");
    let dropped = bench.metric("tidegate_policy_log_lines_dropped_total{policy=\"bad\"}");
    assert_eq!((taken, taken + dropped), (20.0, 200_000.0), "{}", bench.telemetry.encode());
    assert!(resident_bytes().saturating_sub(before) < GROWTH_MAX);
}

#[test]
fn answers_that_are_too_long_are_the_guests_failure() {
    let (cause, reason) = fails(&Guest::deferring_for_a_reason_of(10 << 20));
    assert_eq!(cause, Cause::HostError, "{reason}");
    assert!(reason.contains("more bytes to the host than one call may"), "{reason}");
    let (rung, reason) = refused(Guest::describing_itself_in(10 << 20).component());
    assert_eq!(rung, Rung::Describe);
    assert!(reason.contains("more bytes to the host than one call may"), "{reason}");
    let (rung, reason) = refused(Guest::with_parameters(100_000).component());
    assert_eq!(rung, Rung::Describe);
    assert!(reason.contains("more bytes to the host than one call may"), "{reason}");
}

#[test]
fn a_long_reason_is_cut_and_a_long_delay_is_a_long_delay() {
    let bench = Bench::new();
    let host = bench.host(vec![
        bench.policy("long", Guest::deferring_for_a_reason_of(100_000).component()),
        bench.policy("late", Guest::deferring_for(u64::MAX).component()),
    ]);
    let deferral = |policy| match ask(&mut caller(&host, policy), "tenant") {
        Answer::Verdict(Verdict::Defer(deferral)) => deferral,
        other => panic!("{other:?}"),
    };
    assert!(deferral("long").reason.len() <= 256);
    assert_eq!(deferral("late").delay, Duration::from_millis(u64::MAX));
}

#[test]
fn garbage_for_an_answer_is_the_guests_failure() {
    let cases = [
        (Guest::rejecting_for_bytes_that_are_no_text(), "utf-8"),
        (Guest::rejecting_for_a_reason_elsewhere(), "out of bounds"),
        (Guest::answering_an_unknown_verdict(), "discriminant"),
        (Guest::answering_from_elsewhere(), "out of bounds"),
    ];
    for (guest, word) in cases {
        let (cause, reason) = fails(&guest);
        assert!(matches!(cause, Cause::Type | Cause::Other), "{cause}: {reason}");
        assert!(reason.contains(word), "`{word}` is not in: {reason}");
    }
    let (rung, reason) = refused(Guest::configured_with_an_unknown_result().component());
    assert_eq!(rung, Rung::Configure);
    assert!(reason.contains("discriminant"), "{reason}");
}

#[test]
fn memory_for_the_hosts_strings_is_the_guests_to_give() {
    let cases = [
        (Guest::giving_no_memory_on_messages(), Cause::Other, "realloc"),
        (Guest::trapping_when_asked_for_memory(), Cause::Panic, "panicked"),
        (Guest::looping_when_asked_for_memory(), Cause::Timeout, "5 ms"),
        (Guest::asking_when_asked_for_memory(), Cause::Other, "cannot leave"),
    ];
    for (guest, cause, word) in cases {
        let (found, reason) = fails(&guest);
        assert_eq!(found, cause, "{reason}");
        assert!(reason.contains(word), "`{word}` is not in: {reason}");
    }
}

#[test]
fn what_follows_an_answer_is_a_part_of_the_call() {
    assert_eq!(fails(&Guest::trapping_after_its_answer()).0, Cause::Panic);
    assert_eq!(fails(&Guest::looping_after_its_answer()).0, Cause::Timeout);
}

#[test]
fn a_million_keys_take_no_more_room_than_the_table_has() {
    let bench = Bench::new();
    let mut spec = bench.policy("bad", Guest::filling_buckets(10_000).component());
    spec.limits.state_entries_max = 50_000;
    let (host, good) = beside_a_healthy_one(&bench, vec![spec]);
    let mut bad = caller(&host, "bad");
    let before = resident_bytes();
    for _ in 0..100 {
        assert_eq!(ask(&mut bad, "tenant"), DELIVERED);
    }
    let kept = status(&host, "bad").kept;
    assert_eq!((kept.buckets, kept.evicted), (50_000, 950_000));
    assert!(resident_bytes().saturating_sub(before) < GROWTH_MAX);
    good.goes_on();
    good.end();
    host.shutdown();
    assert_eq!(bench.metric("tidegate_policy_state_evictions_total{policy=\"bad\"}"), 950_000.0);
}

fn outcomes(count: u32) -> Vec<Outcome> {
    let outcome = |attempt| Outcome {
        key: "tenant".into(),
        id: tidegate_model::MessageId::from("message"),
        ending: Ending::Accepted,
        attempt,
        spent: Duration::from_millis(7),
        cost: 0.007,
    };
    (1..=count).map(outcome).collect()
}

#[test]
fn an_observer_that_fails_costs_its_own_notices_and_no_decision() {
    let bench = Bench::new();
    let cases =
        [("trap", Guest::trapping_when_told(), "panic"), ("loop", Guest::looping_when_told(), "timeout")];
    let specs = cases.iter().map(|(name, guest, _)| quick(bench.policy(name, guest.component()))).collect();
    let (host, good) = beside_a_healthy_one(&bench, specs);
    for (name, _, cause) in cases {
        assert!(host.throttle(name).unwrap().observes());
        let mut caller = caller(&host, name);
        for n in 0..5 {
            for _ in 0..20 {
                assert_eq!(ask_at(&mut caller, "tenant", n * 1_000), DELIVERED, "{name}");
            }
            let now = Instant::from_millis(n * 1_000 + 500);
            caller.observe(now, Timestamp::from_unix_millis(n), &outcomes(3));
        }
        let after = status(&host, name);
        assert_eq!((after.state, after.counts.failures[cause]), (PolicyState::Active, 5), "{after:#?}");
        assert_eq!((after.counts.verdicts["deliver"], after.counts.verdicts["observed"]), (100, 0));
    }
    good.goes_on();
    good.end();
}

#[test]
fn an_observer_is_told_and_others_are_not() {
    let bench = Bench::new();
    let host = bench.host(vec![
        bench.policy("told", Guest::counting_what_it_is_told().component()),
        bench.policy("deaf", Guest::default().component()),
    ]);
    for (name, told) in [("told", 2), ("deaf", 0)] {
        let mut caller = caller(&host, name);
        for _ in 0..2 {
            caller.observe(Instant::from_millis(1), Timestamp::default(), &outcomes(256));
        }
        caller.observe(Instant::from_millis(1), Timestamp::default(), &[]);
        assert_eq!(status(&host, name).counts.verdicts["observed"], told);
        assert_eq!(status(&host, name).kept.counters, usize::from(told > 0));
    }
}

#[test]
fn a_renewal_policy_answers_what_it_likes_and_fails_for_its_lease_alone() {
    let bench = Bench::new();
    let specs = vec![
        bench.policy("long", Guest::renewing_for(u64::MAX).component()),
        bench.policy("trap", Guest::trapping_on_renewed_leases().component()),
        quick(bench.policy("loop", Guest::looping_on_renewed_leases().component())),
    ];
    let (host, good) = beside_a_healthy_one(&bench, specs);
    let ask = |policy: &str, renewals| renew(&mut host.renewing(policy).unwrap().caller(), renewals);
    assert_eq!(ask("long", 1), Renewal::Renew(Duration::from_millis(u64::MAX)));
    for (policy, cause) in [("trap", "panic"), ("loop", "timeout")] {
        assert_eq!(ask(policy, 1), Renewal::Lapse, "{policy}");
        assert_eq!(ask(policy, 0), Renewal::Renew(Duration::from_secs(1)), "{policy} after its failure");
        let counts = status(&host, policy).counts;
        assert_eq!((counts.failures[cause], counts.verdicts["renew"]), (1, 1), "{policy}");
    }
    good.goes_on();
    good.end();
}

#[test]
fn a_partition_beyond_the_last_is_no_answer() {
    let bench = Bench::new();
    let host = bench.host(vec![
        bench.policy("last", Guest::placing_in(7).component()),
        bench.policy("beyond", Guest::placing_in(8).component()),
        bench.policy("far", Guest::placing_in(u32::MAX).component()),
    ]);
    let place = |policy: &str| {
        let record = OutgoingRecord {
            topic: "orders".into(),
            key: Some("k".into()),
            headers: Vec::new(),
            value: "a value".into(),
        };
        let mut caller = host.partitioner(policy).unwrap().caller();
        caller.partition(Instant::from_millis(1), Timestamp::default(), 1, record, 8)
    };
    assert_eq!(place("last"), Ok(7));
    assert_eq!((place("beyond"), place("far")), (Err(Cause::Other), Err(Cause::Other)));
    let message = status(&host, "beyond").last_failure.unwrap().failure.message;
    assert!(message.contains("partition 8 of 8"), "{message}");
}

#[test]
fn a_caller_of_another_world_is_told_so_and_nothing_breaks() {
    let bench = Bench::new();
    let host = bench.host(vec![
        bench.policy("renewal", Guest::renewing_for(1).component()),
        bench.policy("throttle", Guest::default().component()),
    ]);
    assert_eq!(ask(&mut caller(&host, "renewal"), "tenant"), failed(Cause::Type));
    assert_eq!(renew(&mut host.renewing("throttle").unwrap().caller(), 0), Renewal::Lapse);
    let message = status(&host, "renewal").last_failure.unwrap().failure.message;
    assert!(message.contains("does not export `throttle`"), "{message}");
}

/// What a guest says about itself and its rules reaches logs, terminals and labels of metrics.
#[test]
fn words_of_a_guest_cannot_forge_lines_or_fill_labels() {
    let forged = "fine\n2026-01-01 ERROR all is lost\x1b[2J";
    for (key, message) in [("share", forged), (forged, "no such key")] {
        let (rung, reason) = refused(Guest::refusing_its_rules_with(key, message).component());
        assert_eq!(rung, Rung::Configure);
        assert!(reason.contains("fine\\n2026-01-01"), "{reason}");
        assert!(!reason.chars().any(char::is_control), "{reason:?}");
    }
    let (_, reason) = refused(Guest::refusing_its_rules_with("share", &"x".repeat(20_000)).component());
    assert!(reason.len() < 2_000, "{} bytes", reason.len());

    for (name, version) in [(forged, "1.0.0"), ("fair", forged), ("fair", &"1".repeat(1_000))] {
        let (rung, reason) = refused(Guest::described_as(name, version, "").component());
        assert_eq!(rung, Rung::Describe);
        assert!(reason.contains("makes no sense"), "{reason}");
        assert!(!reason.chars().any(char::is_control) && reason.len() < 1_000, "{reason:?}");
    }
    let bench = Bench::new();
    let wordy = Guest::described_as("fair", "1.0.0", &format!("{forged}{}", "x".repeat(20_000)));
    let host = bench.host(vec![bench.policy("fair", wordy.component())]);
    let summary = status(&host, "fair").active.unwrap().summary;
    assert!(!summary.chars().any(char::is_control) && summary.len() <= 1_024, "{summary:?}");
}

/// The loader looks for all mistakes of a rules file by the keys that a policy names.
#[test]
fn a_complaint_about_the_last_of_all_numbers_keeps_nobody_waiting() {
    let bench = Bench::new();
    let key = format!("rule[{}].rate", usize::MAX);
    let mut spec = bench.policy("bad", Guest::refusing_its_rules_with(&key, "no").component());
    spec.rules = Some(bench.path("rules.toml"));
    bench.write("rules.toml", "# none\n");
    let host = bench.host(vec![spec]);
    assert!(status(&host, "bad").last_error.unwrap().reason.contains(&key));
}
