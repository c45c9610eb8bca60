//! What a policy costs: a decision that reads three fields on an instance used again, and on a fresh one.
//!
//! Limits of the project: 500 ns and 50 µs.
#![allow(clippy::expect_used, reason = "a bench that cannot be set up has nothing to measure")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use tidegate_connector::Clock;
use tidegate_model::{Instant, Message, Standing, Timestamp};
use tidegate_policy::{Engine, EngineOptions, Limits, PolicyHost, PolicySpec, Question};
use tidegate_telemetry::Telemetry;
use tidegate_test_guests::Guest;

fn bench(criterion: &mut Criterion) {
    let dir = tempfile::tempdir().expect("a directory");
    let engine = Engine::new(EngineOptions::new(Clock::start(), 1), Telemetry::default()).expect("an engine");
    let spec = |name: &str, component: Vec<u8>, limits: Limits| {
        let path = dir.path().join(format!("{name}.wasm"));
        std::fs::write(&path, component).expect("a file");
        PolicySpec { limits, ..PolicySpec::new(name, path) }
    };
    let reading = Guest::reading_three_fields().component();
    let shipped = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../../policies/fair-share.wasm"));
    let shipped = shipped.expect("the shipped policy");
    let fresh = Limits { uses_max: 1, ..Limits::default() };
    let specs = vec![
        spec("three fields, used again", reading.clone(), Limits::default()),
        spec("three fields, fresh", reading, fresh),
        spec("fair-share, quiet key, used again", shipped.clone(), Limits::default()),
        spec("fair-share, quiet key, fresh", shipped, fresh),
    ];
    let names: Vec<_> = specs.iter().map(|spec| Arc::clone(&spec.name)).collect();
    let host = PolicyHost::start(&engine, specs, None).expect("a host");
    let (message, key) = (message(), Arc::from("tenant-17"));
    let question = Question {
        source: "tenants",
        message: &message,
        key: &key,
        attempt: 1,
        age: Duration::from_millis(20),
        waited: Duration::from_millis(1),
        deferred: Duration::ZERO,
        standing: Standing {
            key_in_flight: 2,
            flow_in_flight: 100,
            flow_budget: 1_000,
            flow_queued: 50,
            flow_emitted: 32,
            active_keys: 21,
            key_rate: 2.0,
            flow_rate: 400.0,
            flow_throughput: 380.0,
            key_share: 0.01,
        },
        wall: Timestamp::from_unix_millis(1_700_000_000_000),
        now: Instant::from_millis(1),
        seed: 1,
    };
    for name in names {
        let mut caller = host.throttle(&name).expect("the policy").caller();
        criterion
            .bench_function(&name, |bencher| bencher.iter(|| black_box(caller.decide(black_box(&question)))));
    }
}

fn message() -> Arc<Message> {
    Arc::new(Message {
        lite_topic: Some("tenant-17".into()),
        body: vec![7; 1_024].into(),
        ..Message::new("tenants", "01A2B3C4D5E6F708")
    })
}

criterion_group!(benches, bench);
criterion_main!(benches);
