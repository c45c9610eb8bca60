//! A start with files that cannot be used, after a run in which they could.

use std::fs;
use std::time::Duration;

use tidegate_policy::{Answer, Cause, PolicySpec, PolicyState, Probation};
use tidegate_test_guests::Guest;

use crate::support::{Bench, DELIVERED, ask, caller, rejected, status, wait_for};

fn quick(spec: PolicySpec) -> PolicySpec {
    PolicySpec { probation: Probation { calls: 2, time: Duration::from_millis(20) }, ..spec }
}

/// Runs a good policy until its copy is kept.
fn ran_well(bench: &Bench) -> PolicySpec {
    let mut spec = quick(bench.policy("fair", Guest::rejecting("kept").component()));
    spec.rules = Some(bench.path("fair.toml"));
    bench.write("fair.toml", "# kept\n");
    let host = bench.host_keeping_copies(vec![spec.clone()]);
    let mut caller = caller(&host, "fair");
    assert_eq!(ask(&mut caller, "tenant"), rejected("kept"));
    assert!(!bench.path("last-good/fair.json").exists(), "not before it has shown what it can do");
    assert_eq!(ask(&mut caller, "tenant"), rejected("kept"));
    wait_for(&host, "fair", |status| !status.active.as_ref().unwrap().on_probation);
    wait_for(&host, "fair", |_| bench.path("last-good/fair.json").exists());
    spec
}

#[test]
fn the_copy_is_used_and_said_to_be_used_until_the_files_are_good() {
    let bench = Bench::new();
    let spec = ran_well(&bench);
    bench.write("fair.wasm", "broken");
    let host = bench.host_keeping_copies(vec![spec]);
    let mut caller = caller(&host, "fair");
    assert_eq!(ask(&mut caller, "tenant"), rejected("kept"));
    let first = status(&host, "fair");
    assert_eq!(first.state, PolicyState::Outdated);
    let active = first.active.unwrap();
    assert_eq!((active.origin, active.on_probation), ("last-good", false));
    assert!(first.remarks.iter().any(|remark| remark.contains("a copy of what last ran well runs")));
    let error = first.last_error.unwrap();
    assert_eq!(error.cause, "format", "{}", error.reason);
    assert_eq!(bench.metric("tidegate_policy_last_reload_successful{policy=\"fair\"}"), 0.0);

    bench.write("fair.wasm", Guest::rejecting("repaired").component());
    let good = wait_for(&host, "fair", |status| status.state == PolicyState::Active);
    assert_eq!(good.active.unwrap().origin, "files");
    assert_eq!(ask(&mut caller, "tenant"), rejected("repaired"));
}

#[test]
fn the_very_file_of_the_copy_makes_it_a_generation_of_files() {
    let bench = Bench::new();
    let spec = ran_well(&bench);
    fs::remove_file(bench.path("fair.wasm")).unwrap();
    let host = bench.host_keeping_copies(vec![spec]);
    assert_eq!(status(&host, "fair").active.unwrap().origin, "last-good");
    bench.write("fair.wasm", Guest::rejecting("kept").component());
    let good = wait_for(&host, "fair", |status| status.state == PolicyState::Active);
    assert_eq!((good.active.unwrap().origin, good.last_error), ("files", None));
}

/// As after a restart with a file that had been rolled back before it.
#[test]
fn a_first_generation_that_fails_in_its_probation_is_left_for_the_copy() {
    let bench = Bench::new();
    let spec = ran_well(&bench);
    bench.write("fair.wasm", Guest::trapping_on_messages().component());
    let host = bench.host_keeping_copies(vec![PolicySpec { probation: Probation::default(), ..spec }]);
    let mut caller = caller(&host, "fair");
    for _ in 0..3 {
        assert!(matches!(ask(&mut caller, "tenant"), Answer::OnError { cause: Cause::Panic, .. }));
    }
    let left = wait_for(&host, "fair", |status| status.counts.rollbacks == 1);
    assert_eq!(left.state, PolicyState::Outdated);
    let active = left.active.unwrap();
    assert_eq!((active.generation, active.origin, active.on_probation), (2, "last-good", false));
    let error = left.last_error.unwrap();
    assert_eq!(error.cause, "rolled-back");
    assert!(error.reason.contains("generation 1 failed on 3 of its first 3 calls"), "{}", error.reason);
    assert!(error.reason.contains("it panicked"), "{}", error.reason);
    assert_eq!(ask(&mut caller, "tenant"), rejected("kept"));

    // What failed is known, and does not come back by itself.
    std::thread::sleep(Duration::from_millis(400));
    assert_eq!(ask(&mut caller, "tenant"), rejected("kept"));
    bench.write("fair.wasm", Guest::rejecting("repaired").component());
    wait_for(&host, "fair", |status| status.state == PolicyState::Active);
    assert_eq!(ask(&mut caller, "tenant"), rejected("repaired"));
}

#[test]
fn broken_rules_are_replaced_together_with_the_component() {
    let bench = Bench::new();
    let spec = ran_well(&bench);
    bench.write("fair.wasm", Guest::rejecting("newer").component());
    bench.write("fair.toml", "shares = 1\n");
    let host = bench.host_keeping_copies(vec![spec]);
    assert_eq!(ask(&mut caller(&host, "fair"), "tenant"), rejected("kept"), "and not the newer one");
    assert_eq!(status(&host, "fair").last_error.unwrap().cause, "rules");
}

#[test]
fn the_copy_is_not_used_when_that_is_not_wanted() {
    let bench = Bench::new();
    let spec = PolicySpec { last_good: false, ..ran_well(&bench) };
    bench.write("fair.wasm", "broken");
    let host = bench.host_keeping_copies(vec![spec]);
    let status = status(&host, "fair");
    assert_eq!((status.state, status.active), (PolicyState::Failed, None));
}

#[test]
fn a_damaged_copy_is_not_used() {
    let bench = Bench::new();
    let spec = ran_well(&bench);
    bench.write("fair.wasm", "broken");
    for entry in fs::read_dir(bench.path("last-good")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "wasm") {
            let mut bytes = fs::read(&path).unwrap();
            let last = bytes.len() - 1;
            bytes[last] ^= 1;
            fs::write(path, bytes).unwrap();
        }
    }
    let host = bench.host_keeping_copies(vec![spec]);
    assert_eq!(status(&host, "fair").state, PolicyState::Failed);
}

#[test]
fn the_copy_passes_every_check_again() {
    let bench = Bench::new();
    let mut spec = ran_well(&bench);
    bench.write("fair.wasm", "broken");
    spec.sha256 = Some("0".repeat(64));
    let host = bench.host_keeping_copies(vec![spec]);
    assert_eq!(status(&host, "fair").state, PolicyState::Failed, "the pin holds for the copy too");
}

#[test]
fn what_was_rolled_back_is_not_kept() {
    let bench = Bench::new();
    let spec = ran_well(&bench);
    let host = bench.host_keeping_copies(vec![spec.clone()]);
    bench.write("fair.wasm", Guest::trapping_on_messages().component());
    host.reload("fair").unwrap();
    let mut asking = caller(&host, "fair");
    for _ in 0..3 {
        ask(&mut asking, "tenant");
    }
    assert_eq!(status(&host, "fair").counts.rollbacks, 1);
    std::thread::sleep(Duration::from_millis(1_200));
    drop((asking, host));
    // The file that fails on messages passes every check, so it is what the next start loads; but no copy is it.
    bench.write("fair.wasm", "broken");
    let host = bench.host_keeping_copies(vec![spec]);
    assert_eq!(ask(&mut caller(&host, "fair"), "tenant"), rejected("kept"));
}

#[test]
fn a_directory_that_cannot_be_written_to_stops_nothing() {
    let bench = Bench::new();
    bench.write("last-good", "a file where the directory should be");
    let host = bench.host_keeping_copies(vec![quick(bench.policy("fair", Guest::default().component()))]);
    let mut caller = caller(&host, "fair");
    for _ in 0..4 {
        assert_eq!(ask(&mut caller, "tenant"), DELIVERED);
    }
    wait_for(&host, "fair", |status| !status.active.as_ref().unwrap().on_probation);
    assert_eq!(ask(&mut caller, "tenant"), DELIVERED);
    assert_eq!(status(&host, "fair").state, PolicyState::Active);
    assert_eq!(status(&host, "fair").counts.failures[Cause::NotLoaded.label()], 0);
}
