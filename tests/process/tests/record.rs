//! What a running host decides is recorded, and tried again before another policy.
#![allow(clippy::expect_used, reason = "in the helpers of a test, a failure is the test's failure")]

use serde_json::{Value, json};
use tidegate_process_tests::{Ended, Home, Program, Tenants, eventually, run_to_end, start_broker};
use tidegate_test_guests::Guest;

/// A host whose policy `gate` rejects everything, and a way to send it messages.
struct Stage {
    home: Home,
    program: Program,
    admin: String,
    tenants: Tenants,
    broker: tidegate_devbroker::Broker,
}

impl Stage {
    async fn set() -> Self {
        let broker = start_broker().await;
        let tenants = Tenants::of(&broker).await;
        let home = Home::new();
        home.write("policies/gate.wasm", Guest::rejecting("closed").component());
        home.write("open.wasm", Guest::default().component());
        let policy = "throttle = \"gate\"\n[policies.gate]\ncomponent = \"gate.wasm\"\n";
        home.configure(&broker.address().to_string(), policy);
        let program = Program::start(home.path(), &["run"]);
        let admin = program.admin().await;
        Self { home, program, admin, tenants, broker }
    }

    /// Runs a command against the host; others go on meanwhile.
    fn start(&self, arguments: &[&str]) -> tokio::task::JoinHandle<Ended> {
        let directory = self.home.path().to_owned();
        let mut all: Vec<_> = arguments.iter().map(|&argument| argument.to_owned()).collect();
        all.extend(["--admin".to_owned(), self.admin.clone()]);
        tokio::task::spawn_blocking(move || {
            let all: Vec<_> = all.iter().map(String::as_str).collect();
            run_to_end(&directory, &all)
        })
    }

    async fn run(&self, arguments: &[&str]) -> Ended {
        self.start(arguments).await.expect("the end of the command")
    }

    /// Waits until so many recordings were begun.
    async fn wait_for_recordings(&self, count: usize) {
        eventually("a recording that begins", || {
            let began = self.program.log().matches("a recording of the flow's decisions begins").count();
            (began >= count).then_some(())
        })
        .await;
    }

    fn replay(&self, file: &str) -> Value {
        let arguments = ["policy", "replay", file, "--with", "open.wasm", "--json"];
        let ended = run_to_end(self.home.path(), &arguments);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        serde_json::from_str(&ended.stdout).expect("JSON")
    }

    fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.home.file(file)).expect("the recording")
    }

    async fn end(self) {
        self.broker.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recording_is_masked_ends_by_itself_and_is_replayed() {
    let stage = Stage::set().await;
    let masked = [
        "policy",
        "record",
        "tenants",
        "-o",
        "masked.jsonl",
        "--count",
        "3",
        "--mask",
        "tenant",
        "--mask-keys",
        "--body-bytes",
        "0",
        "--json",
    ];
    let masked = stage.start(&masked);
    let plain = stage.start(&["policy", "record", "tenants", "-o", "-", "--count", "3"]);
    stage.wait_for_recordings(2).await;
    for body in ["the first secret", "the second secret", "the third secret"] {
        stage.tenants.send("somebody", body).await;
    }

    let masked = masked.await.expect("the end of the command");
    assert_eq!(masked.code, Some(0), "{masked:?}");
    let told: Value = serde_json::from_str(&masked.stdout).expect("JSON");
    let expected =
        json!({ "flow": "tenants", "file": "masked.jsonl", "end": "count", "recorded": 3, "missed": 0 });
    assert_eq!(told, expected);
    let text = stage.read("masked.jsonl");
    assert!(!text.contains("secret") && !text.contains("somebody"), "{text}");

    let plain = plain.await.expect("the end of the command");
    assert_eq!(plain.code, Some(0), "{plain:?}");
    assert!(plain.stdout.contains("the second secret") && plain.stdout.contains("somebody"), "{plain:?}");
    assert!(plain.stderr.contains("3 decisions of tenants in -"), "{plain:?}");

    let found = stage.replay("masked.jsonl");
    assert_eq!((&found["messages"], &found["differing"]), (&json!(3), &json!(3)));
    assert_eq!(found["pairs"], json!([{ "recorded": "reject", "new": "deliver", "count": 3 }]));
    assert_eq!(found["recording-end"]["end"], "count");
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recording_outlives_a_quiet_flow_and_ends_well_with_its_host() {
    let stage = Stage::set().await;
    let brief = stage.run(&["policy", "record", "tenants", "-o", "quiet.jsonl", "--for", "300ms"]).await;
    assert_eq!(brief.code, Some(0), "{brief:?}");
    assert_eq!(brief.stdout, "0 decisions of tenants in quiet.jsonl\n");
    assert_eq!(stage.replay("quiet.jsonl")["messages"], 0);

    let arguments = ["policy", "record", "tenants", "-o", "stopped.jsonl", "--admin", &stage.admin];
    let stopped = Program::start(stage.home.path(), &arguments);
    stage.wait_for_recordings(2).await;
    stage.tenants.send("somebody", "just in time").await;
    eventually("the decision in the file", || {
        stage.read("stopped.jsonl").contains("just in time").then_some(())
    })
    .await;
    stopped.signal("INT");
    let stopped = stopped.wait().await;
    assert_eq!(
        (stopped.code, &*stopped.stdout),
        (Some(0), "1 decisions of tenants in stopped.jsonl; you ended it")
    );
    assert_eq!(stage.replay("stopped.jsonl")["recording-end"]["end"], "interrupted");

    let long = stage.start(&["policy", "record", "tenants", "--output", "long.jsonl", "--for", "1h"]);
    stage.wait_for_recordings(3).await;
    stage.tenants.send("somebody", "on its way").await;
    stage.program.signal("TERM");
    let long = long.await.expect("the end of the command");
    assert_eq!(long.code, Some(0), "{long:?}");
    assert!(long.stdout.contains("; the flow has ended"), "{long:?}");
    assert_eq!(stage.replay("long.jsonl")["recording-end"]["end"], "flow");
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_recorded_says_why_and_leaves_no_file() {
    let stage = Stage::set().await;
    let unknown = stage.run(&["policy", "record", "nobody", "-o", "nobody.jsonl"]).await;
    assert_eq!(unknown.code, Some(2), "{unknown:?}");
    assert!(unknown.stderr.contains("there is no flow `nobody` in this host"), "{unknown:?}");
    assert!(!stage.home.file("nobody.jsonl").exists());

    stage.home.write("mine.jsonl", "precious");
    let there = stage.run(&["policy", "record", "tenants", "-o", "mine.jsonl"]).await;
    assert_eq!(there.code, Some(3), "{there:?}");
    assert!(there.stderr.contains("`mine.jsonl` cannot be written"), "{there:?}");
    assert_eq!(stage.read("mine.jsonl"), "precious");

    for (argument, value, word) in [("--sample", "0", "above 0"), ("--for", "61m", "60 minutes")] {
        let arguments = ["policy", "record", "tenants", "-o", "never.jsonl", argument, value];
        let refused = stage.run(&arguments).await;
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.stderr.contains(word), "{refused:?}");
    }
    assert!(!stage.home.file("never.jsonl").exists());

    // A host that dies breaks it off: what came is there and can be replayed.
    let cut = stage.start(&["policy", "record", "tenants", "-o", "cut.jsonl"]);
    stage.wait_for_recordings(1).await;
    stage.tenants.send("somebody", "the last words").await;
    eventually("the decision in the file", || {
        let text = std::fs::read_to_string(stage.home.file("cut.jsonl")).ok()?;
        text.contains("the last words").then_some(())
    })
    .await;
    stage.program.signal("KILL");
    let cut = cut.await.expect("the end of the command");
    assert_eq!(cut.code, Some(3), "{cut:?}");
    assert!(cut.stderr.contains("the recording was broken off after 1 decisions"), "{cut:?}");
    let found = stage.replay("cut.jsonl");
    assert_eq!((&found["messages"], &found["recording-end"]), (&json!(1), &Value::Null));
    stage.end().await;
}
