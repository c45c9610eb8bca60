//! Policies change while messages flow, and no message notices.

use std::time::Duration;

use serde_json::Value;
use tidegate_process_tests::{Home, Program, Tenants, start_broker};
use tokio::time::sleep;

const POLICY: &str = r#"throttle = "fair"

[policies.fair]
component = "fair-share.wasm"
rules = "fair-share.toml"
"#;

async fn policy(program: &Program) -> Value {
    program.get("/api/policies").await["policies"][0].clone()
}

async fn wait_for(program: &Program, what: &str, mut is: impl FnMut(&Value) -> bool) -> Value {
    let deadline = tokio::time::Instant::now() + tidegate_process_tests::PATIENCE;
    loop {
        let policy = policy(program).await;
        if is(&policy) {
            return policy;
        }
        assert!(tokio::time::Instant::now() < deadline, "waited in vain for {what}: {policy}");
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn edits_and_broken_files_under_load_lose_no_message() {
    let broker = start_broker().await;
    let home = Home::new();
    home.install("fair-share");
    home.configure(&broker.address().to_string(), POLICY);
    let program = Program::start(home.path(), &["run", "--config", "tidegate.toml"]);
    wait_for(&program, "the first generation", |policy| policy["active"]["number"] == 1).await;

    let tenants = Tenants::of(&broker).await;
    let load = {
        let tenants = tenants.clone();
        tokio::spawn(async move {
            let mut sent = 0_usize;
            let until = tokio::time::Instant::now() + Duration::from_secs(8);
            while tokio::time::Instant::now() < until {
                tenants.send(&format!("tenant-{}", sent % 40), &format!("{sent}")).await;
                sent += 1;
            }
            sent
        })
    };

    let rules = std::fs::read_to_string(home.file("policies/fair-share.toml")).unwrap();
    home.write("policies/fair-share.toml", rules.replace("delay = \"250ms\"", "delay = \"2s\""));
    let edited = wait_for(&program, "the edit in force", |policy| policy["active"]["number"] == 2).await;
    assert!(edited["refused"].is_null(), "{edited}");

    home.write("policies/fair-share.toml", rules.replace("delay = ", "dellay = "));
    let refused = wait_for(&program, "the broken edit refused", |policy| !policy["refused"].is_null()).await;
    assert_eq!(refused["active"]["number"], 2, "what ran goes on");
    let reason = refused["refused"]["reason"].as_str().unwrap();
    assert!(
        reason.contains("dellay") && reason.contains("delay"),
        "names the key and the right one: {reason}"
    );

    home.write("policies/fair-share.toml", &rules);
    wait_for(&program, "the mended edit in force", |policy| policy["active"]["number"] == 3).await;

    let component = std::fs::read(home.file("policies/fair-share.wasm")).unwrap();
    home.write("policies/fair-share.wasm", &component[..component.len() / 2]);
    let refused = wait_for(&program, "half a component refused", |policy| !policy["refused"].is_null()).await;
    assert_eq!(refused["active"]["number"], 3);
    home.write("policies/fair-share.wasm", &component);
    wait_for(&program, "the whole component", |policy| policy["refused"].is_null()).await;
    program.wait_for_log("what was refused is gone").await;

    home.write("policies/fair-share.toml", "");
    let refused = wait_for(&program, "blank rules refused", |policy| !policy["refused"].is_null()).await;
    assert_eq!(refused["active"]["number"], 3, "what ran goes on");
    home.write("policies/fair-share.toml", &rules);
    wait_for(&program, "the rules again", |policy| policy["refused"].is_null()).await;

    let metrics = program.get("/metrics").await;
    let metrics = metrics.as_str().unwrap();
    assert!(metrics.contains("tidegate_policy_last_reload_successful"), "{metrics}");

    let sent = load.await.unwrap();
    tidegate_process_tests::eventually("all acknowledged", || {
        broker.control().audit().unacked().next().is_none().then_some(())
    })
    .await;
    let flows = program.get("/api/flows").await;
    let totals = &flows["flows"][0]["totals"];
    assert_eq!(totals["on-error"], 0, "every message was decided by a policy: {totals}");
    assert_eq!(totals["settle-failures"], 0, "{totals}");
    let ended = program.terminate().await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let values: std::collections::BTreeSet<String> = ended.values().into_iter().collect();
    assert_eq!(values.len(), sent);
    tenants.close().await;
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_is_not_there_stops_nothing_until_strict_is_asked_for() {
    let broker = start_broker().await;
    let home = Home::new();
    home.configure(&broker.address().to_string(), POLICY);
    let ended = Program::start(home.path(), &["run", "--config", "tidegate.toml", "--strict"]).wait().await;
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("fair-share.wasm"), "{}", ended.stderr);

    let program = Program::start(home.path(), &["run", "--config", "tidegate.toml"]);
    let tenants = Tenants::of(&broker).await;
    tenants.send("tenant", "through on-error").await;
    tidegate_process_tests::eventually("the message", || (program.lines().len() == 1).then_some(())).await;
    assert_eq!(policy(&program).await["state"], "absent");
    home.install("fair-share");
    wait_for(&program, "the policy that appeared", |policy| policy["state"] == "active").await;
    assert_eq!(program.terminate().await.code, Some(0));
    tenants.close().await;
    broker.stop().await;
}
