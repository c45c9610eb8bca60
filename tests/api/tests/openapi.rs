//! Both HTTP APIs of a host do what their descriptions say, whatever they are asked.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "in the helpers of a test, a failure is the test's failure"
)]

use std::time::Duration;

use tidegate_api_tests::Schemathesis;
use tidegate_process_tests::{
    Configuration, Consumed, GROUP, Home, Program, TOPIC, Tenants, eventually, start_broker,
};
use tokio::task::JoinHandle;

/// What ends a flow, and what answers for as long as it is asked to.
const NOT_TO_BE_ASKED: &str = "/(drain|recording|tap)$";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Python and gets packages; `cargo xtask test` runs it as the step `api`"]
async fn are_as_they_are_described() {
    let schemathesis = Schemathesis::ready().await;
    let broker = start_broker().await;
    let home = home(&broker.address().to_string());
    let host = Program::start(home.path(), &["run"]);
    let (service, admin) = (served(&host).await, host.admin().await);
    host.wait_for_log("joined the broker").await;
    let sending = keep_sending(Tenants::of(&broker).await);

    schemathesis.try_out(&service, Some("handoff.toml"), None, 50).await;
    schemathesis.try_out(&service, None, None, 25).await;
    let totals = host.totals().await;
    assert!(totals["delivered"].as_u64() > Some(0), "nothing was settled by a receipt: {totals}");

    schemathesis.try_out(&admin, Some("admin.toml"), Some(NOT_TO_BE_ASKED), 50).await;
    schemathesis.try_out(&admin, None, Some(NOT_TO_BE_ASKED), 25).await;

    sending.abort();
    let ended = host.terminate().await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
    broker.stop().await;
}

fn home(endpoint: &str) -> Home {
    let home = Home::new();
    home.install("fair-share");
    let configuration = Configuration::new("policy-dir = \"policies\"\ndrain-timeout = \"10s\"")
        .policy("fair", "fair-share")
        .source(
            "tenants",
            Consumed { endpoint, topic: TOPIC, group: GROUP },
            "rocketmq.source.await-duration = \"5s\"\nrocketmq.source.invisible-duration = \"10s\"",
        )
        .workers("workers", "127.0.0.1:0", "")
        .flow("tenants", "tenants", "workers", "throttle = \"fair\"");
    home.put(&configuration);
    home
}

/// A pull waits for messages, and so the fuzzer: there are always some.
fn keep_sending(tenants: Tenants) -> JoinHandle<()> {
    tokio::spawn(async move {
        for number in 0_u64.. {
            tenants.send(&format!("tenant-{}", number % 500), &number.to_string()).await;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
}

/// Where workers are served.
async fn served(host: &Program) -> String {
    eventually("where workers are served", || {
        let log = host.log();
        let line = log.lines().find(|line| line.contains("workers are served"))?;
        let (_, address) = line.split_once("address=")?;
        Some(address.split_whitespace().next()?.to_owned())
    })
    .await
}
