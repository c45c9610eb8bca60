//! Files that change under a running host.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidegate_model::Verdict;
use tidegate_policy::{Answer, Cause, OnError, PolicySpec, PolicyState, ReloadError, Rung};
use tidegate_test_guests::Guest;

use crate::support::{Bench, DELIVERED, ask, caller, rejected, status, wait_for};

fn not_loaded() -> Answer {
    Answer::OnError { verdict: Verdict::Deliver, cause: Cause::NotLoaded }
}

#[test]
fn an_absent_component_is_loaded_when_it_appears() {
    let bench = Bench::new();
    let host = bench.host(vec![bench.spec("late")]);
    let mut caller = caller(&host, "late");
    assert_eq!(ask(&mut caller, "tenant"), not_loaded());
    let absent = status(&host, "late");
    assert_eq!(absent.state, PolicyState::Absent);
    assert!(absent.last_error.unwrap().reason.contains("late.wasm is not there"));
    bench.write("late.wasm", Guest::rejecting("here").component());
    wait_for(&host, "late", |status| status.state == PolicyState::Active);
    assert_eq!(ask(&mut caller, "tenant"), rejected("here"));
}

#[test]
fn bad_files_change_nothing_and_a_good_one_after_them_is_taken() {
    let bench = Bench::new();
    let host = bench.host(vec![bench.policy("fair", Guest::rejecting("one").component())]);
    let mut caller = caller(&host, "fair");
    for (n, bad) in [b"hello".to_vec(), Guest::trapping_every(1).component()].into_iter().enumerate() {
        bench.write("fair.wasm", &bad);
        let outdated = wait_for(&host, "fair", |status| status.counts.reloads_rejected == n as u64 + 1);
        assert_eq!(outdated.state, PolicyState::Outdated);
        assert_eq!(outdated.active.unwrap().generation, 1);
        assert_eq!(ask(&mut caller, "tenant"), rejected("one"));
    }
    assert!(bench.telemetry.encode().contains("tidegate_policy_last_reload_successful{policy=\"fair\"} 0"));
    bench.write("fair.wasm", Guest::rejecting("two").component());
    let good = wait_for(&host, "fair", |status| status.state == PolicyState::Active);
    assert_eq!((good.active.unwrap().generation, good.last_error), (2, None));
    assert_eq!(ask(&mut caller, "tenant"), rejected("two"));
    let metrics = bench.telemetry.encode();
    assert!(metrics.contains("tidegate_policy_last_reload_successful{policy=\"fair\"} 1"), "{metrics}");
    assert!(
        metrics.contains(
            "tidegate_policy_reloads_total{policy=\"fair\",result=\"rejected\",cause=\"format\"} 1"
        ),
        "{metrics}"
    );
}

#[test]
fn a_bad_edit_that_is_taken_back_is_good_again() {
    let bench = Bench::new();
    let mut spec = bench.policy("fair", Guest::default().component());
    spec.rules = Some(bench.path("fair.toml"));
    bench.write("fair.toml", "# good\n");
    let host = bench.host(vec![spec]);
    bench.write("fair.toml", "shares = 3\n");
    let outdated = wait_for(&host, "fair", |status| status.state == PolicyState::Outdated);
    let error = outdated.last_error.unwrap();
    assert_eq!(error.rung, Rung::Rules);
    assert!(error.reason.contains("fair.toml:1: `shares`"), "{}", error.reason);
    bench.write("fair.toml", "# good\n");
    let active = wait_for(&host, "fair", |status| status.state == PolicyState::Active);
    assert_eq!(active.active.unwrap().generation, 1, "what runs is what it was");
}

/// Editors that save in place truncate a file before they write it.
#[test]
fn a_rules_file_that_becomes_blank_changes_nothing() {
    let bench = Bench::new();
    let mut spec = bench.policy("rates", rate_rules());
    spec.rules = Some(bench.path("rates.toml"));
    bench.write("rates.toml", "[[rule]]\nreject = \"closed\"\n");
    let host = bench.host(vec![spec]);
    let mut caller = caller(&host, "rates");
    assert_eq!(ask(&mut caller, "tenant"), rejected("closed"));
    for (n, blank) in ["", " \n\t\n"].into_iter().enumerate() {
        bench.write("rates.toml", blank);
        let outdated = wait_for(&host, "rates", |status| status.counts.reloads_rejected == n as u64 + 1);
        let error = outdated.last_error.unwrap();
        assert_eq!((error.rung, error.cause), (Rung::Rules, "blank"));
        assert!(error.reason.contains("rates.toml is empty"), "{}", error.reason);
        assert_eq!(ask(&mut caller, "tenant"), rejected("closed"), "the rules in force go on");
    }
    bench.write("rates.toml", "# Nobody is held back.\n");
    let active = wait_for(&host, "rates", |status| status.state == PolicyState::Active);
    assert_eq!(active.active.unwrap().generation, 2, "a comment says that it is meant");
    assert_eq!(active.remarks, ["the rules' file sets nothing, so every parameter has its default"]);
    assert_eq!(ask(&mut caller, "tenant"), DELIVERED);
}

#[test]
fn a_rules_file_that_is_blank_from_the_start_is_remarked() {
    let bench = Bench::new();
    let mut spec = bench.policy("rates", rate_rules());
    spec.rules = Some(bench.path("rates.toml"));
    bench.write("rates.toml", "");
    let host = bench.host(vec![spec]);
    let status = status(&host, "rates");
    assert_eq!((status.state, status.remarks.len()), (PolicyState::Active, 1));
    bench.write("rates.toml", "[[rule]]\nreject = \"closed\"\n");
    let ruled = wait_for(&host, "rates", |status| status.active.as_ref().is_some_and(|a| a.generation == 2));
    assert_eq!(ruled.remarks, [""; 0]);
}

fn rate_rules() -> Vec<u8> {
    let shipped = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies/rate-rules.wasm");
    fs::read(shipped).unwrap()
}

#[test]
fn rules_alone_make_a_generation_without_compiling() {
    let bench = Bench::new();
    let mut spec = bench.policy("fair", Guest::default().component());
    spec.rules = Some(bench.path("fair.toml"));
    bench.write("fair.toml", "");
    let host = bench.host(vec![spec]);
    // The watcher may be quicker than we are: then the next edit.
    let report = (1..100)
        .find_map(|edit| {
            bench.write("fair.toml", format!("# changed {edit} times\n"));
            let report = host.reload("fair").unwrap();
            assert_eq!(report.generation, edit + 1);
            report.changed.then_some(report)
        })
        .unwrap();
    assert!(report.rungs.iter().all(|report| report.rung != Rung::Compile), "{report:#?}");
    let again = host.reload("fair").unwrap();
    assert_eq!((again.changed, again.generation), (false, report.generation));
}

#[test]
fn files_may_come_by_rename_by_link_and_after_a_deletion() {
    let bench = Bench::new();
    let host = bench.host(vec![bench.policy("fair", Guest::rejecting("0").component())]);
    let mut caller = caller(&host, "fair");
    let expect = |n: u64| {
        wait_for(&host, "fair", |status| {
            status.active.as_ref().is_some_and(|active| active.generation == n + 1)
        })
    };

    bench.write("new", Guest::rejecting("1").component());
    fs::rename(bench.path("new"), bench.path("fair.wasm")).unwrap();
    expect(1);
    assert_eq!(ask(&mut caller, "tenant"), rejected("1"));

    fs::remove_file(bench.path("fair.wasm")).unwrap();
    let gone = wait_for(&host, "fair", |status| status.state == PolicyState::Outdated);
    assert_eq!(gone.last_error.unwrap().cause, "absent");
    assert_eq!(ask(&mut caller, "tenant"), rejected("1"), "what ran goes on");
    bench.write("fair.wasm", Guest::rejecting("2").component());
    expect(2);

    // As Kubernetes does it: a link to a link to a directory, of which the middle one is swapped.
    for (version, reason) in [("v1", "3"), ("v2", "4")] {
        fs::create_dir(bench.path(version)).unwrap();
        bench.write(&format!("{version}/fair.wasm"), Guest::rejecting(reason).component());
    }
    std::os::unix::fs::symlink("v1", bench.path("..data")).unwrap();
    fs::remove_file(bench.path("fair.wasm")).unwrap();
    std::os::unix::fs::symlink("..data/fair.wasm", bench.path("fair.wasm")).unwrap();
    expect(3);
    std::os::unix::fs::symlink("v2", bench.path("..new")).unwrap();
    fs::rename(bench.path("..new"), bench.path("..data")).unwrap();
    expect(4);
    assert_eq!(ask(&mut caller, "tenant"), rejected("4"));
}

#[test]
fn a_directory_may_be_replaced() {
    let bench = Bench::new();
    fs::create_dir(bench.path("policies")).unwrap();
    bench.write("policies/fair.wasm", Guest::rejecting("old").component());
    let spec = PolicySpec { component: bench.path("policies/fair.wasm"), ..bench.spec("fair") };
    let host = bench.host(vec![spec]);
    fs::rename(bench.path("policies"), bench.path("aside")).unwrap();
    fs::create_dir(bench.path("policies")).unwrap();
    bench.write("policies/fair.wasm", Guest::rejecting("new").component());
    wait_for(&host, "fair", |status| status.active.as_ref().is_some_and(|active| active.generation == 2));
    assert_eq!(ask(&mut caller(&host, "fair"), "tenant"), rejected("new"));
}

#[test]
fn a_half_written_file_is_not_read_before_it_has_settled() {
    let bench = Bench::new();
    let host = bench.host(vec![bench.policy("fair", Guest::rejecting("old").component())]);
    let new = Guest::rejecting("new").component();
    for end in (0..new.len()).step_by(new.len() / 8) {
        bench.write("fair.wasm", &new[..end]);
        std::thread::sleep(Duration::from_millis(30));
    }
    bench.write("fair.wasm", &new);
    wait_for(&host, "fair", |status| status.active.as_ref().is_some_and(|active| active.generation == 2));
    assert_eq!(ask(&mut caller(&host, "fair"), "tenant"), rejected("new"));
}

#[test]
fn no_call_is_lost_while_generations_come_and_go() {
    let bench = Bench::new();
    let generations: Vec<_> =
        (0..2).map(|n| Guest::rejecting(&format!("generation {n}")).component()).collect();
    let host = Arc::new(bench.host(vec![bench.policy("fair", &generations[0])]));
    let stop = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let (mut caller, stop) = (caller(&host, "fair"), Arc::clone(&stop));
            std::thread::spawn(move || {
                let mut calls = 0_u64;
                while !stop.load(Ordering::Relaxed) {
                    let answer = ask(&mut caller, "tenant");
                    assert!(matches!(answer, Answer::Verdict(Verdict::Reject { .. })), "{answer:?}");
                    calls += 1;
                }
                calls
            })
        })
        .collect();
    for n in 1..=20 {
        bench.write("fair.wasm", &generations[n % 2]);
        assert_eq!(host.reload("fair").unwrap().generation, n as u64 + 1);
    }
    stop.store(true, Ordering::Relaxed);
    let calls: u64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    let status = status(&host, "fair");
    assert_eq!(status.counts.verdicts["reject"], calls);
    assert!(status.counts.failures.values().all(|count| *count == 0), "{:?}", status.counts);
    assert_eq!(bench.engine.instances(), 0);
}

#[test]
fn another_configuration_comes_into_force_as_a_whole_or_not_at_all() {
    let bench = Bench::new();
    let spec = bench.policy("fair", Guest::rejecting("old").component());
    bench.write("other.wasm", Guest::trapping_on_messages().component());
    let host = bench.host(vec![spec.clone()]);
    let absent = PolicySpec { component: bench.path("absent.wasm"), ..spec.clone() };
    assert!(matches!(host.update(absent), Err(ReloadError::Rejected { .. })));
    assert_eq!(status(&host, "fair").component, spec.component);
    let other = PolicySpec { component: bench.path("other.wasm"), on_error: OnError::Stop, ..spec };
    assert!(host.update(other).unwrap().changed);
    assert_eq!(ask(&mut caller(&host, "fair"), "tenant"), Answer::Stop { cause: Cause::Panic });
}

#[test]
fn callers_go_on_after_a_shutdown_and_commands_do_not() {
    let bench = Bench::new();
    let host = bench.host(vec![bench.policy("fair", Guest::default().component())]);
    let mut caller = caller(&host, "fair");
    assert!(matches!(host.reload("other"), Err(ReloadError::Unknown(_))));
    host.shutdown();
    assert!(matches!(host.reload("fair"), Err(ReloadError::Busy(_))));
    assert_eq!(ask(&mut caller, "tenant"), DELIVERED);
}
