//! Policies that were built when a version of the contract was new. Every later host of the same major version must
//! load them: `tests/golden/README.md`.

use std::fs;
use std::path::{Path, PathBuf};

use tidegate_model::{Instant, Timestamp};
use tidegate_policy::{Ending, Outcome, OutgoingRecord, PolicySpec, World, check, encode_component};
use tidegate_test_guests::Guest;

use crate::support::{Bench, ask, caller, rejected, status};

const VERSION: &str = "1.0.0";

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{VERSION}/{name}.wasm"))
}

fn guests() -> [(&'static str, Guest, World); 5] {
    [
        ("throttle", Guest::rejecting("golden"), World::ThrottlePolicy),
        ("observing-throttle", Guest::counting_what_it_is_told(), World::ThrottlePolicy),
        ("renewal", Guest::renewing_for(1_000), World::RenewalPolicy),
        ("partitioner", Guest::placing_in(7), World::PartitionerPolicy),
        ("credential-resolver", Guest::bearing_a_token(), World::CredentialResolver),
    ]
}

#[test]
fn every_world_of_the_first_version_is_loaded() {
    let bench = Bench::new();
    for (name, _, world) in guests() {
        let report = check(&bench.engine, &PolicySpec::new(name, golden(name)));
        assert!(report.passed, "{report:#?}");
        assert_eq!(report.world, Some(world));
        assert_eq!(report.trailer.unwrap().wit, "tidegate:policy@1.0.0", "it proves itself complete");
    }
}

#[test]
fn policies_of_the_first_version_are_asked_and_told() {
    let bench = Bench::new();
    let specs = ["throttle", "observing-throttle", "partitioner"]
        .map(|name| PolicySpec { component: golden(name), ..bench.spec(name) });
    let host = bench.host(specs.into());
    assert_eq!(ask(&mut caller(&host, "throttle"), "tenant"), rejected("golden"));
    let outcome = Outcome {
        key: "tenant".into(),
        id: tidegate_model::MessageId::from("message"),
        ending: Ending::Accepted,
        attempt: 1,
        spent: std::time::Duration::ZERO,
        cost: 0.0,
    };
    let (now, wall) = (Instant::from_millis(1), Timestamp::default());
    caller(&host, "observing-throttle").observe(now, wall, &[outcome]);
    assert_eq!(status(&host, "observing-throttle").kept.counters, 1);
    let record =
        OutgoingRecord { topic: "t".into(), key: None, headers: Vec::new(), value: "a value".into() };
    let mut partitioner = host.partitioner("partitioner").unwrap().caller();
    assert_eq!(partitioner.partition(now, wall, 1, record, 8), Ok(7));
}

/// Makes the files of a version that has none yet. Files that are there are never made again: they are what users have.
#[test]
#[ignore = "run once for each version of the contract"]
fn make() {
    for (name, guest, _) in guests() {
        let path = golden(name);
        if !path.exists() {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, encode_component(&guest.built_with_the_sdk().module()).unwrap()).unwrap();
        }
    }
}
