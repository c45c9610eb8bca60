//! `tidegate run` from its start to its end.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::time::Duration;

use serde_json::Value;
use tidegate_process_tests::{
    Configuration, Consumed, GROUP, Home, PATIENCE, Program, TOPIC, Tenants, eventually, start_broker,
    start_broker_at,
};
use tidegate_test_guests::Guest;

const RUN: [&str; 3] = ["run", "--config", "tidegate.toml"];

#[tokio::test(flavor = "multi_thread")]
async fn messages_come_out_as_json_lines_and_are_acknowledged() {
    let broker = start_broker().await;
    let tenants = Tenants::of(&broker).await;
    let home = Home::new();
    home.configure(&broker.address().to_string(), "");
    let program = Program::start(home.path(), &RUN);
    for number in 0..50 {
        tenants.send(&format!("tenant-{}", number % 5), &format!("message {number}")).await;
    }
    eventually("50 lines", || (program.lines().len() >= 50).then_some(())).await;
    eventually("50 acknowledgements", || broker.control().audit().unacked().next().is_none().then_some(()))
        .await;

    let line: Value = serde_json::from_str(&program.lines()[0]).unwrap();
    let metadata = &line["metadata"];
    assert_eq!(metadata["source"], "tenants");
    assert_eq!(metadata["topic"], "LiteMainTopic");
    assert_eq!(metadata["key"], metadata["lite-topic"]);
    assert_eq!(metadata["delivery-attempt"], 1);
    assert!(metadata["message-id"].as_str().unwrap().len() > 10, "{metadata}");
    assert!(metadata["properties"].is_null(), "the broker's internal property is not shown: {metadata}");
    assert!(line["receipt"].as_str().unwrap().starts_with("tg1."));

    let ended = program.terminate().await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("nothing left behind"), "{}", ended.stderr);
    let values = ended.values();
    assert_eq!(values.len(), 50);
    assert_eq!(values.iter().collect::<BTreeSet<_>>().len(), 50, "each once");
    for tenant in 0..5 {
        let own: Vec<u32> = values
            .iter()
            .map(|value| value["message ".len()..].parse().unwrap())
            .filter(|number| number % 5 == tenant)
            .collect();
        assert!(own.is_sorted(), "the order of a lite topic is kept: {own:?}");
    }
    tenants.close().await;
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_is_killed_loses_nothing() {
    let broker = start_broker().await;
    let tenants = Tenants::of(&broker).await;
    let home = Home::new();
    home.configure(&broker.address().to_string(), "");
    let first = Program::start(home.path(), &RUN);
    for number in 0..100 {
        tenants.send(&format!("tenant-{}", number % 20), &format!("{number}")).await;
    }
    eventually("some lines", || (first.lines().len() > 20).then_some(())).await;
    // Stopped, its receives are answered all the same: it dies holding messages.
    let held = || broker.control().audit().unacked().any(|message| !message.deliveries.is_empty());
    let mut sent = 100;
    loop {
        first.signal("STOP");
        for _ in 0..20 {
            tenants.send(&format!("tenant-{}", sent % 20), &format!("{sent}")).await;
            sent += 1;
        }
        // Acknowledgements that were on their way arrive.
        tokio::time::sleep(Duration::from_millis(200)).await;
        if held() {
            break;
        }
        assert!(sent < 1_000, "a stopped host holds nothing");
        first.signal("CONT");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let first = first.kill().await;
    let second = Program::start(home.path(), &RUN);
    second.wait_for_log("admin API listens").await;
    // What the first one held comes again when its leases end.
    broker.control().advance(Duration::from_secs(61));
    eventually("all acknowledged", || broker.control().audit().unacked().next().is_none().then_some(()))
        .await;
    let second = second.terminate().await;
    assert_eq!(second.code, Some(0), "{}", second.stderr);
    let seen: BTreeSet<String> = first.values().into_iter().chain(second.values()).collect();
    assert_eq!(seen.len(), sent);
    assert!(broker.control().audit().messages.iter().any(|message| message.deliveries.len() > 1));
    tenants.close().await;
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_is_away_is_waited_for_and_the_status_says_so() {
    let broker = start_broker().await;
    let address = broker.address();
    broker.stop().await;
    let home = Home::new();
    home.configure(&address.to_string(), "");
    let program = Program::start(home.path(), &RUN);
    program.wait_for_log(&address.to_string()).await;
    let flows = program.get("/api/flows").await;
    assert_eq!(flows["flows"][0]["state"], "running");
    assert_eq!(flows["flows"][0]["joined"], false);
    let remarks = eventually("a remark", || {
        let flows = tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(program.get("/api/flows"))
        });
        flows["flows"][0]["remarks"][0].as_str().map(str::to_owned)
    })
    .await;
    assert!(remarks.contains(&address.to_string()), "{remarks}");
    let (status, unready) = program.ask("/readyz").await;
    assert_eq!((status, &unready["ready"]), (503, &Value::Bool(false)), "{unready}");
    assert_eq!(unready["reasons"][0]["flow"], "tenants");
    let reason = unready["reasons"][0]["reason"].as_str().unwrap();
    assert!(reason.contains(&address.to_string()), "{reason}");
    assert_eq!(program.ask("/healthz").await.0, 200);
    assert_joined(&program, 0).await;
    assert_eq!(program.terminate().await.code, Some(0));
}

async fn assert_joined(program: &Program, joined: u8) {
    let metrics = program.get("/metrics").await;
    let line = format!("tidegate_flow_joined{{flow=\"tenants\"}} {joined}");
    assert!(metrics.as_str().is_some_and(|text| text.contains(&line)), "{line} is not in {metrics}");
}

async fn wait_for_readiness(program: &Program, ready: bool) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while program.ask("/readyz").await.1["ready"] != ready {
        assert!(tokio::time::Instant::now() < deadline, "waited in vain for ready = {ready}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_joined(program, u8::from(ready)).await;
    assert_eq!(program.get("/api/flows").await["flows"][0]["joined"], ready);
}

#[tokio::test(flavor = "multi_thread")]
async fn readiness_follows_the_broker() {
    let broker = start_broker().await;
    let home = Home::new();
    home.configure(&broker.address().to_string(), "");
    let program = Program::start(home.path(), &RUN);
    wait_for_readiness(&program, true).await;
    let address = broker.address();
    broker.stop().await;
    wait_for_readiness(&program, false).await;
    program.wait_for_log("not served by the broker any more").await;
    let broker = start_broker_at(address).await;
    wait_for_readiness(&program, true).await;
    program.wait_for_log("served by the broker again").await;
    assert_eq!(program.terminate().await.code, Some(0));
    broker.stop().await;
}

/// A policy that defers the first message of a lite topic leaves those behind it undecided: they count as that.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_received_is_decided_in_hand_or_accounted_for() {
    let broker = start_broker().await;
    let home = Home::new();
    home.install("rate-rules");
    home.write(
        "policies/rate-rules.toml",
        "[[rule]]\nlite-topic = \"*\"\nrate = 5\nburst = 1\ndelay = \"100ms\"\nmax-delay = \"300ms\"\n",
    );
    let policy = "throttle = \"rates\"\n\n[policies.rates]\ncomponent = \"rate-rules.wasm\"\nrules = \"rate-rules.toml\"";
    home.configure(&broker.address().to_string(), policy);
    let tenants = Tenants::of(&broker).await;
    for number in 0..30 {
        tenants.send("tenant", &format!("{number}")).await;
    }
    let program = Program::start(home.path(), &RUN);
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let mut flow = Value::Null;
    while flow["totals"]["undecided-endings"]["dropped"].as_u64().unwrap_or(0) < 5 {
        assert!(tokio::time::Instant::now() < deadline, "nothing was dropped: {flow}");
        flow = program.get("/api/flows").await["flows"][0].clone();
        let totals = &flow["totals"];
        let sum = |value: &Value, keys: &[&str]| -> u64 {
            keys.iter().map(|key| value[key].as_u64().unwrap()).sum()
        };
        let decided = sum(totals, &["delivered", "deferred", "rejected", "discarded"]);
        let left = sum(&totals["undecided-endings"], &["dropped", "expired", "merged", "released"]);
        assert_eq!(totals["received"], decided + left + flow["undecided"].as_u64().unwrap(), "{flow}");
    }
    let metrics = program.get("/metrics").await;
    let metrics = metrics.as_str().unwrap();
    assert!(
        metrics.contains("tidegate_flow_undecided_endings_total{flow=\"tenants\",cause=\"dropped\"}"),
        "{metrics}"
    );
    assert_eq!(program.terminate().await.code, Some(0));
    tenants.close().await;
    broker.stop().await;
}

/// The pool of instances wants hundreds of gigabytes of address space, which is nothing but numbers, where there are.
#[tokio::test(flavor = "multi_thread")]
async fn without_address_space_for_the_pool_policies_decide_and_it_is_said() {
    let broker = start_broker().await;
    let tenants = Tenants::of(&broker).await;
    let home = Home::new();
    home.write("policies/gate.wasm", Guest::rejecting("closed").component());
    let policy = "throttle = \"gate\"\n[policies.gate]\ncomponent = \"gate.wasm\"\n";
    home.configure(&broker.address().to_string(), policy);
    let program = Program::start_with_address_space(home.path(), &RUN, 20_000_000);
    program.wait_for_log("cannot reserve address space for the pool of policy instances").await;
    assert!(program.log().contains("Raise the limit (`ulimit -v`)"), "{}", program.log());
    let (_, metrics) = program.ask_as("GET", "/metrics").await;
    assert!(metrics.contains("tidegate_policy_allocator{allocator=\"on-demand\"} 1"), "{metrics}");

    tenants.send("tenant", "knock").await;
    program.wait_for_total("rejected", 1).await;
    let ended = program.terminate().await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    tenants.close().await;
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_in_use_is_the_environments_fault() {
    let broker = start_broker().await;
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let home = Home::new();
    home.configure(&broker.address().to_string(), "");
    let text = std::fs::read_to_string(home.file("tidegate.toml")).unwrap();
    let taken_address = taken.local_addr().unwrap().to_string();
    home.write("tidegate.toml", text.replace("127.0.0.1:0", &taken_address));
    let ended = Program::start(home.path(), &RUN).wait().await;
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
    assert!(
        ended.stderr.contains(&taken_address) && ended.stderr.contains("admin-listen"),
        "{}",
        ended.stderr
    );
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_goes_away_stops_the_flow_and_says_why() {
    let broker = start_broker().await;
    let tenants = Tenants::of(&broker).await;
    let home = Home::new();
    home.configure(&broker.address().to_string(), "");
    tenants.send("tenant", "x").await;
    let program = tidegate_process_tests::program_path();
    let output = std::process::Command::new("sh")
        .args([
            "-c",
            &format!("{{ '{}' run --config tidegate.toml; echo code $? >&2; }} | true", program.display()),
        ])
        .current_dir(home.path())
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("code 1") && stderr.contains("standard output cannot be written"), "{stderr}");
    let unacked = broker.control().audit().unacked().count();
    assert_eq!(unacked, 1, "what nobody read is not acknowledged");
    tenants.close().await;
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_configuration_is_reloaded_when_it_is_edited() {
    let broker = start_broker().await;
    let home = Home::new();
    home.configure(&broker.address().to_string(), "");
    let program = Program::start(home.path(), &RUN);
    program.wait_for_log("admin API listens").await;

    home.configure(&broker.address().to_string(), "max-delivery-attempt = 5");
    program.wait_for_log("configuration reloaded").await;
    home.configure(&broker.address().to_string(), "max-delivery-attempt = \"many\"");
    program.wait_for_log("new configuration refused").await;
    home.configure(&broker.address().to_string(), "max-delivery-attempt = 5");
    program.wait_for_log("configuration holds what runs again: the refused edit is gone").await;
    let metrics = program.get("/metrics").await;
    let successful = "tidegate_host_config_last_reload_successful 1";
    assert!(metrics.as_str().unwrap().contains(successful), "{metrics}");
    home.configure(&broker.address().to_string(), "max-delivery-attempt = 7\nkey = \"record-key\"");
    program.wait_for_log("needs a restart").await;
    home.configure(&broker.address().to_string(), "max-delivery-attempt = 7");
    program.wait_for_log("nothing waits for a restart any more").await;
    wait_for_readiness(&program, true).await;
    assert_eq!(program.terminate().await.code, Some(0));
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_is_json_when_asked_for_and_the_configuration_has_the_last_word() {
    let broker = start_broker().await;
    let home = Home::new();
    home.configure(&broker.address().to_string(), "");
    let config = std::fs::read_to_string(home.file("tidegate.toml")).unwrap();
    for (flag, format, json) in
        [(true, None, true), (false, None, false), (true, Some("text"), false), (false, Some("json"), true)]
    {
        let key = format.map(|format| format!("[host]\nlog-format = \"{format}\""));
        home.write("tidegate.toml", config.replace("[host]", key.as_deref().unwrap_or("[host]")));
        let arguments = [&["--json"][..usize::from(flag)], &RUN].concat();
        let program = Program::start(home.path(), &arguments);
        program.wait_for_log("admin API listens").await;
        let ended = program.terminate().await;
        let is_json = |line: &str| serde_json::from_str::<Value>(line).is_ok();
        assert!(
            ended.stderr.lines().all(|line| is_json(line) == json),
            "{flag} {format:?}: {}",
            ended.stderr
        );
    }
    broker.stop().await;
}

/// A soft limit that is low for the sake of old programs keeps nobody out, and a hard one that is too low is named.
#[tokio::test(flavor = "multi_thread")]
async fn as_many_connections_as_the_system_allows() {
    const NAMED: &str = "files and connections open, and its configuration may need";
    let home = Home::new();
    // Nobody answers there, which a host that starts does not mind.
    let consumed = Consumed { endpoint: "127.0.0.1:1", topic: TOPIC, group: GROUP };
    let configuration = Configuration::new("drain-timeout = \"5s\"")
        .source("tenants", consumed, "")
        .workers("workers", "127.0.0.1:0", "")
        .flow("tenants", "tenants", "workers", "");
    home.put(&configuration);
    for (hard, is_named) in [(4096, false), (512, true)] {
        let program =
            Program::start_with_limits(home.path(), &RUN, &format!("ulimit -Sn 256 && ulimit -Hn {hard}"));
        program.wait_for_log("workers are served").await;
        assert_eq!(program.open_files_max(), hard);
        assert_eq!(program.log().contains(NAMED), is_named, "{}", program.log());
        let ended = program.terminate().await;
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    }
}
