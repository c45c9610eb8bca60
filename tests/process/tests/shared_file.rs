//! Two flows that name one `file` sink write to one file.
#![allow(clippy::expect_used, reason = "in the helpers of a test, a failure is the test's failure")]

use std::collections::BTreeSet;

use serde_json::Value;
use tidegate_process_tests::{
    Configuration, Consumed, GROUP, Home, Program, TOPIC, Tenants, eventually, start_broker,
};

const MESSAGES: usize = 200;

#[tokio::test(flavor = "multi_thread")]
async fn two_flows_write_to_one_file() {
    let broker = start_broker().await;
    let tenants = Tenants::of(&broker).await;
    let home = Home::new();
    let file = home.file("out.jsonl");
    let endpoint = broker.address().to_string();
    let consumed = Consumed { endpoint: &endpoint, topic: TOPIC, group: GROUP };
    let source = "rocketmq.source.await-duration = \"5s\"";
    let configuration = Configuration::new("")
        .source("one", consumed, source)
        .source("other", consumed, source)
        .sink("out", "file", &format!("path = \"{}\"", file.display()))
        .flow("one", "one", "out", "")
        .flow("other", "other", "out", "");
    home.put(&configuration);
    let program = Program::start(home.path(), &["run"]);
    program.wait_for_log("admin API listens").await;
    // Both take part before anything comes, so that each gets a share.
    eventually("both flows have joined", || {
        (broker.control().lite_clients(TOPIC, GROUP).len() == 2).then_some(())
    })
    .await;
    let message = |number: usize| (format!("tenant-{}", number % 20), number.to_string());
    tenants.send_all((0..MESSAGES).map(message)).await;
    eventually("all is acknowledged", || (broker.control().audit().unacked().count() == 0).then_some(()))
        .await;
    let flows = program.get("/api/flows").await;
    let accepted = |at: usize| flows["flows"][at]["totals"]["accepted"].as_u64().expect("a count");
    assert!(accepted(0) > 0 && accepted(1) > 0, "{flows}");

    let text = std::fs::read_to_string(&file).expect("the file");
    let numbers: BTreeSet<usize> = text.lines().map(number_of).collect();
    assert_eq!(numbers, (0..MESSAGES).collect());
    let ended = program.terminate().await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    tenants.close().await;
    broker.stop().await;
}

fn number_of(line: &str) -> usize {
    let record: Value = serde_json::from_str(line).expect("a whole record");
    record["value"].as_str().expect("a value").parse().expect("a number")
}
