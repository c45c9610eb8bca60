//! `tidegate check --connect` says what would keep records of a share group away: on a Kafka cluster in memory.
#![allow(clippy::unwrap_used, reason = "in the helpers of a test, a failure is the test's failure")]

use std::time::Duration;

use serde_json::Value;
use tidegate_process_tests::{Configuration, Ended, Home, run_to_end, run_with_variables};
use tidegate_share_broker::{GroupOptions, Options, Record, Reset, Service};

/// A configuration with a source, whose lines of its own follow, and a flow with a throttle policy.
fn configure(home: &Home, servers: &str, more: &str) {
    home.install("fair-share");
    let more = format!("properties.request.timeout.ms = 2000\n{more}");
    let configuration = Configuration::new("")
        .policy("fair", "fair-share")
        .share_source("orders", servers, "fulfilment", &more)
        .sink("out", "stdout", "")
        .flow("orders", "orders", "out", "throttle = \"fair\"");
    home.put(&configuration);
}

/// Checks while the cluster, which lives on this runtime, answers.
async fn check(home: &Home, more: &'static [&str]) -> Ended {
    let directory = home.path().to_owned();
    let arguments = [&["check", "--config", "tidegate.toml", "--connect"], more].concat();
    tokio::task::spawn_blocking(move || run_to_end(&directory, &arguments)).await.unwrap()
}

async fn cluster() -> Service {
    let service = Service::start(Options::quick()).await.unwrap();
    service.with(|cluster, _| {
        cluster.create_topic("orders", 2);
        cluster.append("orders", 0, (0..5).map(|_| Record::new("x"))).unwrap();
    });
    service
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_will_work_is_said_to() {
    let (service, home) = (cluster().await, Home::new());
    for subscription in ["topic = \"orders\"", "topic-pattern = \"ord.*\""] {
        configure(&home, &service.bootstrap_servers(), subscription);
        let ended = check(&home, &[]).await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let told = "source orders\ngroup        ok       nothing keeps records away from `fulfilment`\n\
                    nobody-there ok       nobody is in the group at the moment\n";
        assert!(ended.stdout.contains(told), "{}", ended.stdout);
    }
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_keeps_records_away_is_explained() {
    let (service, home) = (cluster().await, Home::new());
    service.with(|cluster, _| {
        let group = GroupOptions {
            reset: Reset::Latest,
            renew_acknowledge: false,
            record_lock_duration: Duration::from_secs(30),
            ..GroupOptions::default()
        };
        cluster.configure_group("fulfilment", group);
    });
    configure(&home, &service.bootstrap_servers(), "topic = \"orders;absent\"");
    let ended = check(&home, &[]).await;
    assert_eq!(ended.code, Some(3), "{ended:?}");
    for line in [
        "failed   there is no topic `absent`",
        "warning  the group begins in topic `orders` with what is written after its first fetch",
        "warning  locks cannot be renewed: the group has `share.renew.acknowledge.enable` off",
    ] {
        assert!(ended.stdout.contains(line), "{line}: {}", ended.stdout);
    }
    assert!(ended.stderr.contains("sources that cannot receive as configured: `orders`"), "{}", ended.stderr);

    let ended = check(&home, &["--json"]).await;
    let told: Value = serde_json::from_str(&ended.stdout).unwrap();
    let steps = told["brokers"][0]["steps"].as_array().unwrap();
    let named = |name: &str| steps.iter().find(|step| step["step"] == name).unwrap()["outcome"].clone();
    assert_eq!(named("topic-missing"), "failed");
    assert_eq!(named("skips-older-records"), "warning");

    configure(&home, &service.bootstrap_servers(), "topic-pattern = \"nothing-.*\"");
    let ended = check(&home, &[]).await;
    assert_eq!(ended.code, Some(0), "a topic may be made later: {ended:?}");
    assert!(ended.stdout.contains("no topic that the client may see matches `nothing-.*`"), "{ended:?}");

    let servers = service.bootstrap_servers();
    service.stop().await;
    for subscription in ["topic = \"orders\"", "topic-pattern = \"ord.*\""] {
        configure(&home, &servers, subscription);
        let ended = check(&home, &[]).await;
        assert_eq!(ended.code, Some(3), "{ended:?}");
        assert!(ended.stdout.contains("failed ") && ended.stdout.contains(&servers), "{}", ended.stdout);
    }
}

/// The example's own tests know keys, not connectors.
#[test]
fn the_source_of_the_example_is_right() {
    let example = include_str!("../../../host/config/example.toml");
    let sections = ["[sources.orders]", "[flows.orders]", "[sinks.archive]"];
    let mut is_wanted = false;
    let mut text = String::new();
    for line in example.lines().filter_map(|line| line.strip_prefix('#')) {
        if line.starts_with('[') {
            is_wanted = sections.contains(&line);
        }
        if is_wanted && line.starts_with(|c: char| c.is_ascii_lowercase() || c == '[') {
            text.push_str(line);
            text.push('\n');
        }
    }
    let home = Home::new();
    home.write("tidegate.toml", &text);
    let login = "org.apache.kafka.common.security.scram.ScramLoginModule required username=u password=p;";
    let arguments = ["check", "--config", "tidegate.toml"];
    let ended = run_with_variables(home.path(), &arguments, &[("KAFKA_LOGIN", login)]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "tidegate.toml: ok\n"), "{text}\n{ended:?}");
}
