//! `tidegate run` on a Kafka share group: a cluster in memory, behind real sockets.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "in the helpers of a test, a failure is the test's failure"
)]

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use tidegate_process_tests::{Configuration, Home, Program, eventually, run_to_end};
use tidegate_share_broker::{Api, Effect, Fault, Options, Record, Service, Tally};

const RUN: [&str; 3] = ["run", "--config", "tidegate.toml"];
const CHECK: [&str; 3] = ["check", "--config", "tidegate.toml"];

async fn cluster(partitions: i32) -> Service {
    let service = Service::start(Options { nodes: 3, ..Options::quick() }).await.unwrap();
    service.with(|cluster, _| cluster.create_topic("orders", partitions));
    service
}

/// A flow from the share group to `stdout`, counted by the header `tenant`, with a throttle policy.
fn configure(home: &Home, servers: &str, policy: &str, more: &str) {
    home.install(policy);
    let flow = format!("throttle = \"{policy}\"\nkey = \"property:tenant\"");
    let configuration = Configuration::new("drain-timeout = \"10s\"")
        .policy(policy, policy)
        .share_source(
            "orders",
            servers,
            "fulfilment",
            &format!("topic = \"orders\"\nsource.parallelism = 2\n{more}"),
        )
        .sink("out", "stdout", "")
        .flow("orders", "orders", "out", &flow);
    home.put(&configuration);
}

fn tally(service: &Service) -> Tally {
    service.with(|cluster, _| cluster.tally("fulfilment"))
}

fn append(service: &Service, partition: i32, tenant: &str, numbers: std::ops::Range<u32>) {
    let records = numbers.map(|number| {
        Record::new(format!("{tenant} {number}")).keyed("k").with_header("tenant", tenant.to_owned())
    });
    service.with(|cluster, _| cluster.append("orders", partition, records).unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn records_come_out_as_json_lines_and_are_accepted() {
    let service = cluster(6).await;
    let home = Home::new();
    configure(&home, &service.bootstrap_servers(), "fair-share", "");
    let checked = run_to_end(home.path(), &CHECK);
    assert_eq!(checked.code, Some(0), "{}", checked.stderr);
    let program = Program::start(home.path(), &RUN);
    for partition in 0..6 {
        append(&service, partition, &format!("tenant-{partition}"), 0..20);
    }
    eventually("120 lines", || (program.lines().len() >= 120).then_some(())).await;
    eventually("120 accepted", || (tally(&service).accepted == 120).then_some(())).await;
    assert_eq!(service.with(|cluster, _| cluster.members("fulfilment")).len(), 2);

    let line: Value = serde_json::from_str(&program.lines()[0]).unwrap();
    let metadata = &line["metadata"];
    assert_eq!((&metadata["source"], &metadata["topic"]), (&"orders".into(), &"orders".into()), "{line}");
    assert_eq!(metadata["key"], metadata["properties"]["tenant"], "{line}");
    assert_eq!(metadata["delivery-attempt"], 1);
    assert!(line["receipt"].as_str().unwrap().starts_with("tg1."), "{line}");

    let ended = program.terminate().await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("nothing left behind"), "{}", ended.stderr);
    let values = ended.values();
    assert_eq!((values.len(), values.iter().collect::<BTreeSet<_>>().len()), (120, 120), "each once");
    assert_eq!(tally(&service).acquired, 120);
    assert!(service.with(|cluster, _| cluster.members("fulfilment")).is_empty(), "it has left");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_above_its_rate_is_held_and_costs_no_delivery() {
    let service = cluster(2).await;
    let home = Home::new();
    configure(&home, &service.bootstrap_servers(), "rate-rules", "");
    // Deferred more often than that, all the same.
    home.edit("sink = \"out\"", "sink = \"out\"\nmax-delivery-attempt = 2");
    home.write(
        "policies/rate-rules.toml",
        "[[rule]]\nproperty.tenant = \"noisy\"\nrate = 4\nburst = 1\ndelay = \"250ms\"\n",
    );
    append(&service, 0, "noisy", 0..8);
    append(&service, 0, "quiet", 0..30);
    append(&service, 1, "quiet", 30..60);
    let program = Program::start(home.path(), &RUN);
    eventually("all accepted", || (tally(&service).accepted == 68).then_some(())).await;
    let ended = program.terminate().await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let mut attempts: BTreeMap<bool, u64> = BTreeMap::new();
    for line in ended.stdout.lines() {
        let metadata = &serde_json::from_str::<Value>(line).unwrap()["metadata"];
        let attempt = metadata["delivery-attempt"].as_u64().unwrap();
        let most = attempts.entry(metadata["key"] == "noisy").or_default();
        *most = attempt.max(*most);
    }
    // Nobody handed anything out twice, so that no attempt is counted, and the valve let every deferral be.
    assert_eq!(attempts, BTreeMap::from([(false, 1), (true, 1)]));
    let Tally { acquired, released, expired, .. } = tally(&service);
    assert_eq!((acquired, released, expired), (68, 0, 0));
    service.stop().await;
}

/// Its work is done, and no broker has heard of it: the next host has it again, as another delivery.
#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_dies_before_it_is_heard_leaves_its_work_to_the_next() {
    const COORDINATOR_NOT_AVAILABLE: i16 = 15;
    let service = cluster(1).await;
    let home = Home::new();
    configure(&home, &service.bootstrap_servers(), "fair-share", "");
    service.with(|cluster, _| {
        cluster.inject(Fault::new(Api::ShareAcknowledge, Effect::Silence, u32::MAX));
        let refusal = Effect::AcknowledgeError(COORDINATOR_NOT_AVAILABLE);
        cluster.inject(Fault::new(Api::ShareFetch, refusal, u32::MAX));
    });
    append(&service, 0, "tenant", 0..5);
    let program = Program::start(home.path(), &RUN);
    eventually("its work is done", || (program.lines().len() >= 5).then_some(())).await;
    program.kill().await;
    assert_eq!(tally(&service).accepted, 0);
    service.with(|cluster, _| cluster.clear_faults());

    let program = Program::start(home.path(), &RUN);
    eventually("all accepted", || (tally(&service).accepted == 5).then_some(())).await;
    let ended = program.terminate().await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let again: BTreeSet<String> = ended.values().into_iter().collect();
    assert_eq!(again, (0..5).map(|number| format!("tenant {number}")).collect());
    for line in ended.stdout.lines() {
        let metadata = &serde_json::from_str::<Value>(line).unwrap()["metadata"];
        assert!(metadata["delivery-attempt"].as_u64().unwrap() > 1, "{metadata}");
    }
    service.stop().await;
}

#[test]
fn keys_of_other_clients_are_refused_with_what_to_do() {
    let home = Home::new();
    let more = "properties.group.id = \"x\"\nproperties.auto.offset.reset = \"earliest\"\n\
                properties.fetch.max.byte = 1\nproperties.ssl.truststore.password = \"hunter2\"\n";
    configure(&home, "127.0.0.1:9092", "fair-share", more);
    let ended = run_to_end(home.path(), &CHECK);
    assert_eq!(ended.code, Some(2), "{}", ended.stdout);
    for said in
        ["share-group-id", "share.auto.offset.reset", "did you mean `properties.fetch.max.bytes`", "PEM"]
    {
        assert!(ended.stderr.contains(said), "{said}: {}", ended.stderr);
    }
    assert!(!ended.stderr.contains("hunter2"), "{}", ended.stderr);
}

#[test]
fn mistakes_that_only_the_connector_sees_are_told() {
    let home = Home::new();
    let more = "topic-pattern = \"x\"\nformat = \"json\"\nproperties.security.protocol = \"SASL_SSL\"\n\
                properties.sasl.mechanism = \"PLAIN\"\n";
    configure(&home, "http://broker", "fair-share", more);
    let ended = run_to_end(home.path(), &CHECK);
    assert_eq!(ended.code, Some(2), "{}", ended.stdout);
    for said in ["without a scheme", "topic-pattern", "cannot be `json` yet", "sasl.jaas.config"] {
        assert!(ended.stderr.contains(said), "{said}: {}", ended.stderr);
    }
}
