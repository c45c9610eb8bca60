//! Files that change under a running host.

use std::fs;
use std::time::Duration;

use tidegate_model::Verdict;
use tidegate_policy::{Answer, Cause, OnError, PolicySpec, PolicyState, ReloadError, Rung, World, check};
use tidegate_test_guests::Guest;

use crate::support::{Bench, DELIVERED, Traffic, ask, caller, rejected, status, wait_for, when_drained};

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
        bench.write_in_place("fair.wasm", &new[..end]);
        std::thread::sleep(Duration::from_millis(30));
    }
    bench.write_in_place("fair.wasm", &new);
    wait_for(&host, "fair", |status| status.active.as_ref().is_some_and(|active| active.generation == 2));
    assert_eq!(ask(&mut caller(&host, "fair"), "tenant"), rejected("new"));
}

#[test]
fn no_call_is_lost_and_nothing_is_left_behind_while_generations_come_and_go() {
    const RELOADS: u64 = 200;
    let bench = Bench::new();
    let generations: Vec<_> =
        (0..2).map(|n| Guest::rejecting(&format!("generation {n}")).component()).collect();
    let host = bench.host(vec![bench.policy("fair", &generations[0])]);
    let decides = |answer: &Answer| matches!(answer, Answer::Verdict(Verdict::Reject { .. }));
    let threads = [(); 2].map(|()| Traffic::start(&host, "fair", decides));
    for n in 1..=RELOADS {
        bench.write("fair.wasm", &generations[usize::try_from(n % 2).unwrap()]);
        let report = when_drained(|| host.reload("fair"));
        assert_eq!(report.generation, n + 1);
        let alive = status(&host, "fair").generations;
        assert!(alive <= 3, "{alive} generations after {n} reloads");
        assert!(bench.engine.instances() <= 2, "{} instances", bench.engine.instances());
    }
    let calls: u64 = threads.into_iter().map(Traffic::end).sum();
    let status = status(&host, "fair");
    assert_eq!(status.counts.verdicts["reject"], calls);
    assert!(status.counts.failures.values().all(|count| *count == 0), "{:?}", status.counts);
    assert_eq!(status.generations, 2, "what runs and what ran before it");
    assert_eq!(bench.engine.instances(), 0);
}

#[test]
fn rules_and_code_come_into_force_together() {
    let bench = Bench::new();
    let mut spec = bench.policy("rates", Guest::rejecting("old").component());
    spec.rules = Some(bench.path("rates.toml"));
    bench.write("rates.toml", "# none\n");
    let host = bench.host(vec![spec]);
    let mut caller = caller(&host, "rates");

    // The new code is good and its rules are not: neither comes.
    bench.write("rates.toml", "[[rule]]\nrejects = \"closed\"\n");
    bench.write("rates.wasm", rate_rules());
    let outdated = wait_for(&host, "rates", |status| {
        status.last_error.as_ref().is_some_and(|error| error.reason.contains("rejects"))
    });
    assert_eq!(outdated.active.unwrap().generation, 1);
    assert_eq!(ask(&mut caller, "tenant"), rejected("old"));

    // Now the rules alone are written, and both come.
    bench.write("rates.toml", "[[rule]]\nreject = \"closed\"\n");
    let both = wait_for(&host, "rates", |status| status.state == PolicyState::Active);
    let active = both.active.unwrap();
    assert_eq!((active.generation, &*active.name), (2, "rate-rules"));
    assert_eq!(ask(&mut caller, "tenant"), rejected("closed"));
}

#[test]
fn what_was_refused_is_not_looked_at_again_before_it_changes() {
    let bench = Bench::new();
    let host = bench.host(vec![bench.policy("fair", Guest::rejecting("old").component())]);
    bench.write("fair.wasm", "bad");
    let refused = wait_for(&host, "fair", |status| status.counts.reloads_rejected == 1);
    let reason = refused.last_error.unwrap().reason;
    for _ in 0..3 {
        // Another time, the same bytes.
        bench.write("fair.wasm", "bad");
        std::thread::sleep(Duration::from_millis(300));
    }
    let after = status(&host, "fair");
    assert_eq!((after.counts.reloads_rejected, after.state), (1, PolicyState::Outdated));
    assert_eq!(after.last_error.unwrap().reason, reason);
    // Whoever asks is told again.
    assert!(host.reload("fair").is_err());
    assert_eq!(status(&host, "fair").counts.reloads_rejected, 2);
}

/// A file that is written through another name gives no notice in the directory that is watched.
#[test]
fn a_change_without_a_notice_is_found() {
    let bench = Bench::new();
    let host = bench.host(vec![bench.policy("fair", Guest::rejecting("old").component())]);
    let elsewhere = tempfile::tempdir_in(bench.path("").parent().unwrap()).unwrap();
    let other_name = elsewhere.path().join("other");
    fs::hard_link(bench.path("fair.wasm"), &other_name).unwrap();
    fs::write(&other_name, Guest::rejecting("new").component()).unwrap();
    wait_for(&host, "fair", |status| status.active.as_ref().is_some_and(|active| active.generation == 2));
    assert_eq!(ask(&mut caller(&host, "fair"), "tenant"), rejected("new"));
}

#[test]
fn a_copy_that_stops_half_way_changes_nothing_until_it_goes_on() {
    let bench = Bench::new();
    let host = bench.host(vec![bench.policy("fair", Guest::rejecting("old").component())]);
    let traffic =
        Traffic::start(&host, "fair", |answer| *answer == rejected("old") || *answer == rejected("new"));
    let new = Guest::rejecting("new").built_with_the_sdk();
    let new = tidegate_policy::encode_component(&new.module()).unwrap();
    // Cut in the middle, and where only the last section is missing.
    let last_section = new.len() - 20;
    for (n, end) in [new.len() / 2, last_section].into_iter().enumerate() {
        bench.write_in_place("fair.wasm", &new[..end]);
        let half = wait_for(&host, "fair", |status| status.counts.reloads_rejected == n as u64 + 1);
        assert_eq!(half.active.unwrap().generation, 1);
        traffic.goes_on();
    }
    bench.write_in_place("fair.wasm", &new);
    wait_for(&host, "fair", |status| status.active.as_ref().is_some_and(|active| active.generation == 2));
    traffic.goes_on();
    assert!(traffic.end() > 0);
}

/// Other tools write no section that proves a file complete; a pinned digest does.
#[test]
fn half_a_component_that_compiles_is_found_by_its_digest() {
    let bench = Bench::new();
    let whole = Guest::rejecting("whole").component();
    let passes = |len: &usize| check(&bench.engine, &bench.policy("cut", &whole[..*len])).passed;
    let cut = (whole.len() - 400..whole.len()).rev().find(passes).expect("a part that is a component");
    let digest = check(&bench.engine, &bench.policy("whole", &whole)).component_sha256.unwrap();
    let spec = PolicySpec { sha256: Some(digest.to_string()), ..bench.policy("fair", &whole[..cut]) };
    let host = bench.host(vec![spec]);
    let failed = status(&host, "fair");
    assert_eq!((failed.state, failed.last_error.unwrap().rung), (PolicyState::Failed, Rung::Digest));
    bench.write("fair.wasm", &whole);
    wait_for(&host, "fair", |status| status.state == PolicyState::Active);
    assert_eq!(ask(&mut caller(&host, "fair"), "tenant"), rejected("whole"));
}

#[test]
fn a_component_of_another_world_is_not_taken_because_it_runs_already() {
    let bench = Bench::new();
    let spec = bench.policy("fair", Guest::rejecting("throttle").component());
    let host = bench.host(vec![spec.clone()]);
    let renewing = PolicySpec { world: Some(World::RenewalPolicy), ..spec };
    let error = host.update(renewing).unwrap_err();
    let reason = std::error::Error::source(&error).unwrap().to_string();
    assert!(reason.contains("it is a `throttle-policy` and is used as a `renewal-policy`"), "{reason}");
    assert_eq!(ask(&mut caller(&host, "fair"), "tenant"), rejected("throttle"));
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
    assert!(matches!(host.reload("fair"), Err(ReloadError::Ended)));
    assert_eq!(ask(&mut caller, "tenant"), DELIVERED);
}
