//! `ack = "implicit"` on a real Kafka: kills at random points while records flow.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::Value;
use tidegate_process_tests::{Configuration, Home, Program, eventually, kill_again_and_again};
use tidegate_test_brokers::kafka::{Cluster, ClusterOptions, Listener, Record};

const RUN: [&str; 3] = ["run", "--config", "tidegate.toml"];
const SEED: u64 = 0x7370_6f6f_6c20_6f6e;
const KILLS: u32 = 20;

#[tokio::test(flavor = "multi_thread")]
async fn kills_on_a_real_share_group_lose_nothing() {
    println!("seed {SEED:#x}");
    let cluster = Cluster::start(ClusterOptions::default()).await.unwrap();
    let driver = cluster.driver();
    driver.create_topic("orders", 1).await.unwrap();
    // What a kill leaves acquired counts as a delivery.
    let settings = [("share.auto.offset.reset", "earliest"), ("share.delivery.count.limit", "10")];
    driver.configure_group("fulfilment", &settings).await.unwrap();
    let home = Home::new();
    let servers = cluster.bootstrap(Listener::Plaintext);
    let configuration = Configuration::new("drain-timeout = \"5s\"\nstate-dir = \"state\"")
        .share_source("orders", &servers, "fulfilment", "topic = \"orders\"\nack = \"implicit\"")
        .sink("out", "file", "path = \"out.jsonl\"")
        .flow("orders", "orders", "out", "key = \"property:tenant\"");
    home.put(&configuration);
    let out = home.file("out.jsonl");
    let made = Arc::new(AtomicU32::new(0));
    let is_over = Arc::new(AtomicU32::new(0));
    let making = async {
        while is_over.load(Ordering::Relaxed) == 0 {
            let next = made.load(Ordering::Relaxed);
            let records: Vec<Record> =
                (next..next + 10).map(|number| Record::new(number.to_string())).collect();
            driver.produce("orders", 0, &records).await.unwrap();
            made.store(next + 10, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    };
    let killing = async {
        kill_again_and_again(&home, &RUN, &out, KILLS, SEED).await;
        is_over.store(1, Ordering::Relaxed);
    };
    tokio::join!(making, killing);
    let wanted: BTreeSet<u32> = (0..made.load(Ordering::Relaxed)).collect();
    let program = Program::start(home.path(), &RUN);
    eventually("everything is there", || (numbers(&out).len() >= wanted.len()).then_some(())).await;
    let ended = program.terminate().await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(numbers(&out), wanted, "each of them, and no other");
    cluster.stop().await;
}

/// The numbers that are in a file. A kill may have cut a line short.
fn numbers(path: &Path) -> BTreeSet<u32> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let number = |line: &str| serde_json::from_str::<Value>(line).ok()?["value"].as_str()?.parse().ok();
    text.lines().filter_map(number).collect()
}
