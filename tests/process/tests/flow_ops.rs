//! Operators look at the flows of a running host, pause them, resume them and end them.
#![allow(clippy::expect_used, reason = "in the helpers of a test, a failure is the test's failure")]

use std::io::Write as _;
use std::net::TcpStream;

use serde_json::{Value, json};
use tidegate_devbroker::Broker;
use tidegate_process_tests::{
    Configuration, Consumed, Ended, GROUP, Home, PATIENCE, Program, TOPIC, Tenants, help_of, run_to_end,
    start_broker,
};
use tidegate_test_guests::Guest;

/// A host with one flow, and a way to send it messages.
struct Stage {
    home: Home,
    program: Program,
    admin: String,
    tenants: Tenants,
    broker: Broker,
}

impl Stage {
    /// With these lines for the flow and after it.
    async fn set(more: &str) -> Self {
        Self::set_in(|home, endpoint| {
            home.write("policies/gate.wasm", Guest::rejecting("closed").component());
            home.configure(endpoint, more);
        })
        .await
    }

    /// With what a home is given for a broker at an endpoint.
    async fn set_in(configure: impl FnOnce(&Home, &str)) -> Self {
        let broker = start_broker().await;
        let tenants = Tenants::of(&broker).await;
        let home = Home::new();
        configure(&home, &broker.address().to_string());
        let program = Program::start(home.path(), &["run"]);
        let admin = program.admin().await;
        Self { home, program, admin, tenants, broker }
    }

    /// Runs a command against the host.
    async fn run(&self, arguments: &[&str]) -> Ended {
        let directory = self.home.path().to_owned();
        let mut all: Vec<_> = arguments.iter().map(|&argument| argument.to_owned()).collect();
        all.extend(["--admin".to_owned(), self.admin.clone()]);
        let running = tokio::task::spawn_blocking(move || {
            let all: Vec<_> = all.iter().map(String::as_str).collect();
            run_to_end(&directory, &all)
        });
        running.await.expect("the end of the command")
    }

    /// What a command says that succeeds.
    async fn say(&self, arguments: &[&str]) -> String {
        let ended = self.run(arguments).await;
        assert_eq!((ended.code, &*ended.stderr), (Some(0), ""), "{ended:?}");
        ended.stdout
    }

    /// The flow, once it is as it should be.
    async fn flow(&self, is: impl Fn(&Value) -> bool) -> Value {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let flow = self.program.get("/api/flows").await["flows"][0].clone();
            if is(&flow) {
                return flow;
            }
            assert!(tokio::time::Instant::now() < deadline, "waited in vain: {flow}");
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    }

    /// A worker that waits for a message as long as its connection is kept.
    fn waiting_worker(&self) -> TcpStream {
        let log = self.program.log();
        let served = log.lines().find(|line| line.contains("workers are served")).expect("they are");
        let (_, address) = served.split_once("address=").expect("an address");
        let address = address.split_whitespace().next().expect("an address");
        let body = json!({ "max-messages": 1, "wait-ms": 60_000 }).to_string();
        let mut worker = TcpStream::connect(address).expect("a connection");
        let request = format!(
            "POST /v1/flows/tenants/pull HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        worker.write_all(request.as_bytes()).expect("written");
        worker
    }

    fn unacked(&self) -> usize {
        self.broker.control().audit().unacked().count()
    }

    async fn metric(&self, sample: &str) -> bool {
        let (_, metrics) = self.program.ask_as("GET", "/metrics").await;
        metrics.lines().any(|line| line == sample)
    }

    async fn end(self) -> Ended {
        let ended = self.program.terminate().await;
        self.tenants.close().await;
        self.broker.stop().await;
        ended
    }
}

#[test]
fn help_of_every_command() {
    insta::assert_snapshot!(help_of(&[
        &["flows"],
        &["flow"],
        &["flow", "pause"],
        &["flow", "resume"],
        &["flow", "drain"],
        &["tap"],
    ]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flow_is_paused_resumed_and_drained() {
    let stage = Stage::set("").await;
    stage.tenants.send("tenant", "first").await;
    stage.program.wait_for_total("accepted", 1).await;
    stage.flow(|flow| flow["joined"] == true).await;
    let table = stage.say(&["flows"]).await;
    let head = "NAME     SOURCE   POLICY  SINK  STATE    JOINED  WORKERS  IN FLIGHT  QUEUED  EMITTED  RECEIVED  ACCEPTED  DEFERRED  REJECTED  DEAD\n";
    let row = "tenants  tenants  -       out   running  yes     -        0          0       0        1         1         0         0         0\n";
    assert_eq!(table, format!("{head}{row}"));
    let body: Value = serde_json::from_str(&stage.say(&["flows", "--json"]).await).expect("JSON");
    assert_eq!(
        (&body["flows"][0]["state"], &body["flows"][0]["paused-by"]),
        (&json!("running"), &Value::Null)
    );
    let rates = stage.say(&["flows", "--rates", "100ms", "--json"]).await;
    let rates: Value = serde_json::from_str(&rates).expect("JSON");
    assert_eq!(rates["flows"][0]["rates"]["received"], 0.0);

    let told = stage.say(&["flow", "pause", "tenants"]).await;
    assert_eq!(told, "tenants: paused; what workers hold is finished, the rest goes back to the broker\n");
    assert_eq!(stage.say(&["flow", "pause", "tenants"]).await, "tenants: paused already\n");
    let table = stage.say(&["flows"]).await;
    assert!(table.contains(" paused "), "{table}");
    assert!(table.contains("\n  tenants: an operator paused it: it receives nothing until"), "{table}");
    assert_eq!(stage.program.ask("/readyz").await, (200, json!({ "ready": true, "reasons": [] })));
    assert!(stage.metric("tidegate_flow_state{flow=\"tenants\",state=\"paused\"} 1").await);
    stage.tenants.send("tenant", "second").await;
    // Time for it to come by the receive that was under way.
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    assert_eq!((stage.unacked(), stage.program.lines().len()), (1, 1));

    let told = stage.say(&["flow", "resume", "tenants", "--json"]).await;
    let told: Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!(
        told,
        json!({
            "flow": "tenants", "state": "running", "changed": true, "in-flight": told["in-flight"], "drain": null
        })
    );
    assert_eq!(stage.say(&["flow", "resume", "tenants"]).await, "tenants: it was not paused\n");
    stage.program.wait_for_total("accepted", 2).await;

    let told = stage.run(&["flow", "drain", "tenants"]).await;
    assert_eq!(
        (told.code, &*told.stdout),
        (
            Some(0),
            "tenants: drained; nothing was under way; the host goes on without it until it starts again\n"
        )
    );
    assert_eq!(stage.say(&["flow", "drain", "tenants"]).await, "tenants: it is over already\n");
    assert!(stage.say(&["flows"]).await.contains(" stopped "));
    let refused = stage.run(&["flow", "resume", "tenants"]).await;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(
        refused.stderr.contains("the flow was drained and is over, which cannot be taken back"),
        "{refused:?}"
    );
    // It was meant so.
    assert_eq!(stage.program.ask("/readyz").await, (200, json!({ "ready": true, "reasons": [] })));

    let unknown = stage.run(&["flow", "pause", "nobody"]).await;
    assert_eq!(unknown.code, Some(2), "{unknown:?}");
    assert!(unknown.stderr.contains("there is no flow `nobody` in this host"), "{unknown:?}");
    let ended = stage.end().await;
    assert_eq!((ended.code, ended.values()), (Some(0), vec!["first".to_owned(), "second".to_owned()]));
}

/// A policy that suddenly rejects everything does not empty the topic.
#[tokio::test(flavor = "multi_thread")]
async fn a_flow_that_rejects_too_much_pauses_itself_until_somebody_has_looked() {
    let more = "throttle = \"gate\"\ndead-letter = \"dead\"\ndead-letter-burst = 5\n\
                [policies.gate]\ncomponent = \"gate.wasm\"\n[sinks.dead]\nconnector = \"stdout\"\n";
    let stage = Stage::set(more).await;
    for number in 0..20 {
        stage.tenants.send(&format!("tenant-{number}"), &number.to_string()).await;
    }
    let flow = stage.flow(|flow| flow["state"] == "paused" && flow["in-flight"] == 0).await;
    assert_eq!(flow["paused-by"], "dead-letters");
    let remark = flow["remarks"][0].as_str().expect("a remark");
    assert!(remark.contains("more than 5 messages were rejected within 60s"), "{remark}");
    assert!(stage.metric("tidegate_flow_dead_letters_total{flow=\"tenants\",result=\"taken\"} 5").await);
    let dead = &flow["totals"]["dead-letters"];
    assert_eq!(
        (&dead["taken"], &dead["dropped"], &dead["refused"]),
        (&json!(5), &json!(0), &json!(0)),
        "{dead}"
    );
    assert!(dead["held-back"].as_u64() > Some(0), "{dead}");
    assert!(stage.metric("tidegate_flow_dead_letter_pauses_total{flow=\"tenants\"} 1").await);
    let (status, readiness) = stage.program.ask("/readyz").await;
    let reason = readiness["reasons"][0]["reason"].as_str().expect("a reason");
    assert!(status == 503 && reason.starts_with("the flow is paused: it paused itself"), "{readiness}");
    stage.program.wait_for_log("it paused itself: more than 5 messages were rejected").await;
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while stage.unacked() != 15 {
        assert!(tokio::time::Instant::now() < deadline, "{} are open", stage.unacked());
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let lines = stage.program.lines();
    let letter: Value = serde_json::from_str(&lines[0]).expect("JSON");
    let told = &letter["dead-letter"];
    assert_eq!(
        (&told["flow"], &told["policy"], &told["reason"], &told["attempts"]),
        (&json!("tenants"), &json!("gate"), &json!("closed"), &json!(1))
    );

    stage.home.write("policies/gate.new", Guest::default().component());
    std::fs::rename(stage.home.file("policies/gate.new"), stage.home.file("policies/gate.wasm"))
        .expect("in place");
    stage.say(&["policy", "reload", "gate"]).await;
    assert_eq!(stage.say(&["flow", "resume", "tenants"]).await, "tenants: it goes on\n");
    stage.program.wait_for_total("accepted", 15).await;
    stage.flow(|flow| flow["joined"] == true).await;
    assert_eq!(stage.program.ask("/readyz").await.0, 200);
    let ended = stage.end().await;
    let mut values: Vec<u32> = ended.values().iter().map(|value| value.parse().expect("a number")).collect();
    values.sort_unstable();
    assert_eq!(values, (0..20).collect::<Vec<_>>(), "five dead letters and fifteen others");
}

/// What stands behind a flow is told with it: a sink that does not work and since when, workers, and where rejected
/// messages went.
#[tokio::test(flavor = "multi_thread")]
async fn a_sink_in_trouble_and_dead_letters_are_shown() {
    let stage = Stage::set_in(|home, endpoint| {
        home.write("policies/gate.wasm", Guest::rejecting("closed").component());
        // Nobody listens at port 1.
        let configuration = Configuration::new("drain-timeout = \"10s\"")
            .section("policies.gate", "component = \"gate.wasm\"")
            .source(
                "tenants",
                Consumed { endpoint, topic: TOPIC, group: GROUP },
                "rocketmq.source.await-duration = \"5s\"",
            )
            .sink("web", "http", "url = \"http://127.0.0.1:1/\"")
            .workers("workers", "127.0.0.1:0", "")
            .flow("tenants", "tenants", "workers", "throttle = \"gate\"\ndead-letter = \"web\"");
        home.put(&configuration);
    })
    .await;
    stage.tenants.send("tenant", "rejected").await;
    // A flow whose workers are all away takes in nothing, whatever its policy would do.
    let worker = stage.waiting_worker();
    stage.flow(|flow| flow["dead-letter"]["trouble"]["reason"].is_string()).await;
    drop(worker);
    let flow = stage.flow(|flow| flow["sinks"][0]["workers"] == 0).await;
    assert_eq!(flow["sinks"], json!([{ "name": "workers", "workers": 0, "trouble": null }]));
    let reason = flow["dead-letter"]["trouble"]["reason"].as_str().expect("a reason");
    assert!(reason.contains("127.0.0.1:1"), "{reason}");
    let told = stage.say(&["flows"]).await;
    let row = told.lines().nth(1).expect("a row");
    assert!(row.contains(" yes     0        ") && row.ends_with(" 0"), "{told}");
    assert!(told.contains("\n  tenants: dead-letter sink `web` has been in trouble for "), "{told}");
    assert!(told.contains("\n  tenants: no worker is connected to sink `workers`\n"), "{told}");
    assert_eq!(stage.program.ask("/readyz").await.0, 200, "the flow itself is served");
    stage.end().await;
}
