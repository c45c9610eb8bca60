//! Somebody looks on at what a running host decides.
#![allow(clippy::expect_used, reason = "in the helpers of a test, a failure is the test's failure")]

use serde_json::{Value, json};
use tidegate_devbroker::Broker;
use tidegate_process_tests::{Ended, Home, Program, Tenants, eventually, run_to_end, start_broker};

/// A host whose flow delivers everything but to the tenant `closed`, and a way to send it messages.
struct Stage {
    home: Home,
    program: Program,
    admin: String,
    tenants: Tenants,
    broker: Broker,
}

const RULES: &str = "[[rule]]\nlite-topic = \"closed\"\nreject = \"the tenant has left\"\n";

impl Stage {
    async fn set() -> Self {
        let broker = start_broker().await;
        let tenants = Tenants::of(&broker).await;
        let home = Home::new();
        home.install("rate-rules");
        home.write("policies/rate-rules.toml", RULES);
        let policy = "throttle = \"gate\"\n[policies.gate]\ncomponent = \"rate-rules.wasm\"\nrules = \"rate-rules.toml\"\n";
        home.configure(&broker.address().to_string(), policy);
        let program = Program::start(home.path(), &["run"]);
        let admin = program.admin().await;
        Self { home, program, admin, tenants, broker }
    }

    /// Runs `tidegate tap tenants`; others go on meanwhile.
    fn tap(&self, arguments: &[&str]) -> tokio::task::JoinHandle<Ended> {
        let directory = self.home.path().to_owned();
        let mut all = vec!["tap".to_owned(), "tenants".to_owned()];
        all.extend(arguments.iter().map(|&argument| argument.to_owned()));
        all.extend(["--admin".to_owned(), self.admin.clone()]);
        tokio::task::spawn_blocking(move || {
            let all: Vec<_> = all.iter().map(String::as_str).collect();
            run_to_end(&directory, &all)
        })
    }

    /// Waits until so many taps were begun.
    async fn wait_for_taps(&self, count: usize) {
        eventually("a tap that begins", || {
            (self.program.log().matches("a tap of the flow begins").count() >= count).then_some(())
        })
        .await;
    }

    async fn end(self) {
        self.broker.stop().await;
    }
}

fn lines_of(ended: &Ended) -> Vec<Value> {
    assert_eq!((ended.code, &*ended.stderr), (Some(0), ""), "{ended:?}");
    ended.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn decisions_and_endings_are_shown_as_json_lines() {
    let stage = Stage::set().await;
    let all = stage.tap(&["--json", "--mask", "tenant", "--body-bytes", "4", "--for", "1h"]);
    let some = stage.tap(&["--json", "--verdict", "reject", "--key", "clo*", "--count", "1"]);
    stage.wait_for_taps(2).await;
    stage.tenants.send("open", "delivered").await;
    stage.tenants.send("closed", "rejected").await;
    let some = lines_of(&some.await.expect("the end of the command"));
    assert_eq!(some.len(), 2, "{some:?}");
    assert_eq!(
        (&some[0]["verdict"], &some[0]["reason"], &some[0]["key"], &some[0]["origin"]),
        (&json!("reject"), &json!("the tenant has left"), &json!("closed"), &json!("policy"))
    );
    assert_eq!(some[0]["body"], json!({ "text": "rejected" }));
    assert_eq!(some[1], json!({ "end": "count", "shown": 1, "missed": 0, "endings": 0 }));

    // Nothing was consumed by looking on, and nobody waited for it.
    stage.program.wait_for_total("accepted", 1).await;
    // Endings are told a quarter of a second later at most.
    tokio::time::sleep(std::time::Duration::from_millis(600)).await;
    let lines = stage.program.lines();
    assert_eq!(lines.len(), 1, "{lines:?}");
    stage.program.signal("TERM");
    let all = lines_of(&all.await.expect("the end of the command"));
    let of = |key: &str| all.iter().find(|line| line["key"] == key).expect("a decision");
    let delivered = of("open");
    assert_eq!(
        (&delivered["verdict"], &delivered["attempt"], &delivered["topic"], &delivered["lite-topic"]),
        (&json!("deliver"), &json!(1), &json!("LiteMainTopic"), &json!("open"))
    );
    assert_eq!((&delivered["body"], &delivered["body-bytes"]), (&json!({ "text": "deli" }), &json!(9)));
    assert_eq!(of("closed")["verdict"], "reject");
    let ending = all.iter().find(|line| line["ended"].is_string()).expect("an ending");
    assert_eq!(
        (&ending["ended"], &ending["message-id"], &ending["attempt"]),
        (&json!("accepted"), &delivered["message-id"], &json!(1))
    );
    let end = all.last().expect("an end");
    assert_eq!(*end, json!({ "end": "flow", "shown": 2, "missed": 0, "endings": 1 }));
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn people_get_columns_and_a_sentence_at_the_end() {
    let stage = Stage::set().await;
    let counted = stage.tap(&["--count", "2"]);
    stage.wait_for_taps(1).await;
    stage.tenants.send("closed", "one\u{1b}[2J of those that steer").await;
    stage.tenants.send("closed", "two").await;
    let counted = counted.await.expect("the end of the command");
    assert_eq!((counted.code, &*counted.stderr), (Some(0), ""), "{counted:?}");
    let lines: Vec<_> = counted.stdout.lines().collect();
    assert!(
        lines[0].starts_with("TIME (UTC)    KEY                   TRY  VERDICT           MESSAGE"),
        "{lines:?}"
    );
    assert!(lines[1].contains("  closed                  1  reject            "), "{lines:?}");
    assert!(lines[1].ends_with("  the tenant has left | one·[2J of those that steer"), "{lines:?}");
    assert_eq!(lines[3], "2 decisions of tenants");

    let brief = stage.tap(&["--for", "200ms"]).await.expect("the end of the command");
    assert_eq!(
        (brief.code, &*brief.stdout),
        (Some(0), "0 decisions of tenants; the time is over\n"),
        "{brief:?}"
    );

    let arguments = ["tap", "tenants", "--admin", &stage.admin];
    let interrupted = Program::start(stage.home.path(), &arguments);
    stage.wait_for_taps(3).await;
    stage.tenants.send("closed", "three").await;
    eventually("a decision", || (interrupted.lines().len() == 2).then_some(())).await;
    interrupted.signal("INT");
    let interrupted = interrupted.wait().await;
    assert_eq!(interrupted.code, Some(0), "{interrupted:?}");
    assert!(interrupted.stdout.ends_with("\n1 decisions of tenants; you ended it"), "{interrupted:?}");
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_shown_says_why() {
    let stage = Stage::set().await;
    let arguments = ["tap", "nobody", "--admin", &stage.admin];
    let unknown = run_to_end(stage.home.path(), &arguments);
    assert_eq!((unknown.code, &*unknown.stdout), (Some(2), ""), "{unknown:?}");
    assert!(unknown.stderr.contains("there is no flow `nobody` in this host"), "{unknown:?}");
    for (argument, value, word) in [
        ("--sample", "0", "above 0"),
        ("--for", "61m", "60 minutes"),
        ("--verdict", "maybe", "deliver, defer"),
    ] {
        let refused = stage.tap(&[argument, value]).await.expect("the end of the command");
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.stderr.contains(word), "{refused:?}");
    }

    let cut = stage.tap(&[]);
    stage.wait_for_taps(1).await;
    stage.tenants.send("open", "the last words").await;
    // The sink has it, so the tap was shown it before.
    eventually("the delivery", || (!stage.program.lines().is_empty()).then_some(())).await;
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    stage.program.signal("KILL");
    let cut = cut.await.expect("the end of the command");
    assert_eq!(cut.code, Some(3), "{cut:?}");
    assert!(cut.stderr.contains("the tap was broken off after 1 decisions"), "{cut:?}");
    stage.end().await;
}
