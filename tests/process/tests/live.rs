//! Operators work on the policies of a running host.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "in the helpers of a test, a failure is the test's failure"
)]

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;

use serde_json::{Value, json};
use tidegate_process_tests::{Ended, Home, Program, Tenants, help_of, run_to_end, start_broker};
use tidegate_test_guests::Guest;

const RUN: [&str; 3] = ["run", "--config", "tidegate.toml"];
const RUNGS: [&str; 16] = [
    "read",
    "size",
    "format",
    "digest",
    "validate",
    "section",
    "version",
    "exports",
    "imports",
    "compile",
    "link",
    "instantiate",
    "describe",
    "rules",
    "configure",
    "self-test",
];

/// A host whose policy `gate` is this guest.
async fn start(home: &Home, endpoint: &str, guest: &Guest, more: &str) -> Program {
    home.write("policies/gate.wasm", guest.component());
    let policy = "throttle = \"gate\"\n";
    let sections = "[policies.gate]\ncomponent = \"gate.wasm\"\non-error = \"deliver\"\n";
    home.configure(endpoint, &format!("{policy}{more}\n{sections}"));
    let program = Program::start(home.path(), &RUN);
    program.admin().await;
    program
}

/// Runs `tidegate policy` against the host.
async fn policy(home: &Home, program: &Program, arguments: &[&str]) -> Ended {
    let address = program.admin().await;
    let mut all = vec!["policy"];
    all.extend(arguments);
    all.extend(["--admin", &address]);
    let (directory, all): (_, Vec<String>) =
        (home.path().to_owned(), all.iter().map(ToString::to_string).collect());
    // The host's own output is read meanwhile.
    let run = move || {
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        run_to_end(&directory, &all)
    };
    tokio::task::spawn_blocking(run).await.expect("the end of the command")
}

fn json_of(ended: &Ended) -> Value {
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
}

/// What has become of a policy so far, when that is as it should be.
async fn status(home: &Home, program: &Program, name: &str, is: impl Fn(&Value) -> bool) -> Value {
    let deadline = tokio::time::Instant::now() + tidegate_process_tests::PATIENCE;
    loop {
        let ended = policy(home, program, &["status", name, "--json"]).await;
        let status = json_of(&ended);
        if is(&status) {
            return status;
        }
        assert!(tokio::time::Instant::now() < deadline, "waited in vain: {status}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

fn outcomes(report: &Value) -> Vec<(String, String)> {
    let rung = |rung: &Value| {
        (rung["rung"].as_str().unwrap().to_owned(), rung["outcome"].as_str().unwrap().to_owned())
    };
    report["rungs"].as_array().unwrap().iter().map(rung).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_tried_taken_refused_and_left_again() {
    let broker = start_broker().await;
    let tenants = Tenants::of(&broker).await;
    let home = Home::new();
    let program = start(&home, &broker.address().to_string(), &Guest::default(), "").await;
    tenants.send("tenant", "by the first").await;
    program.wait_for_total("delivered", 1).await;

    // What runs.
    let same = policy(&home, &program, &["reload", "gate", "--dry-run"]).await;
    assert_eq!(same.code, Some(0), "{same:?}");
    assert!(same.stdout.contains("ok    self-test"), "{same:?}");
    assert!(same.stdout.ends_with("gate: is in force already as generation 1\n"), "{same:?}");

    // Another one, taken at once: by this command, or by the host that has seen it already.
    home.write("policies/gate.new", Guest::rejecting("closed").component());
    std::fs::rename(home.file("policies/gate.new"), home.file("policies/gate.wasm")).unwrap();
    let taken = policy(&home, &program, &["reload", "gate", "--json"]).await;
    assert_eq!(taken.code, Some(0), "{taken:?}");
    let report = json_of(&taken);
    assert_eq!(
        (&report["passed"], &report["generation"], &report["error"]),
        (&json!(true), &json!(2), &Value::Null)
    );
    tenants.send("tenant", "by the second").await;
    program.wait_for_total("rejected", 1).await;

    // A broken one: every check is named, and nothing changes.
    let whole = std::fs::read(home.file("policies/gate.wasm")).unwrap();
    home.write("policies/gate.wasm", &whole[..whole.len() - 1]);
    let tried = policy(&home, &program, &["reload", "gate", "--dry-run", "--json"]).await;
    assert_eq!(tried.code, Some(2), "{tried:?}");
    let report = json_of(&tried);
    assert_eq!((&report["passed"], &report["dry-run"]), (&json!(false), &json!(true)));
    let found = outcomes(&report);
    assert_eq!(found.iter().map(|(rung, _)| rung.as_str()).collect::<Vec<_>>(), RUNGS);
    let failed = found.iter().position(|(_, outcome)| outcome == "failed").expect("one failed");
    assert_eq!(found[failed].0, "validate");
    assert!(found[..failed].iter().all(|(_, outcome)| outcome == "passed"), "{found:?}");
    assert!(found[failed + 1..].iter().all(|(_, outcome)| outcome == "skipped"), "{found:?}");
    let told = report["rungs"][failed]["text"].as_str().unwrap();
    assert!(told.contains("damaged or only half written"), "{told}");
    assert!(tried.stderr.contains("`gate` would be refused"), "{tried:?}");

    let refused = policy(&home, &program, &["reload", "gate"]).await;
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stdout.contains("FAIL  validate"), "{refused:?}");
    assert!(refused.stdout.contains("the 11 further checks were not made"), "{refused:?}");
    assert!(refused.stderr.contains("`gate` was refused, and generation 2 goes on: "), "{refused:?}");

    // Back to the first, whatever is on disk.
    home.write("policies/gate.wasm", &whole);
    status(&home, &program, "gate", |status| status["state"] == "active").await;
    let back = policy(&home, &program, &["rollback", "gate"]).await;
    assert_eq!((back.code, &*back.stdout), (Some(0), "gate: generation 3 is in force\n"), "{back:?}");
    tenants.send("tenant", "by the first again").await;
    program.wait_for_total("delivered", 2).await;
    let after = status(&home, &program, "gate", |_| true).await;
    assert_eq!((&after["state"], &after["active"]["origin"]), (&json!("outdated"), &json!("earlier")));
    assert_eq!((&after["refused"]["check"], &after["rollbacks"]), (&json!("asked"), &json!(1)));
    assert_eq!(after["previous-generation"], Value::Null);

    let again = policy(&home, &program, &["rollback", "gate"]).await;
    assert_eq!(again.code, Some(1), "{again:?}");
    assert!(again.stderr.contains("no earlier generation"), "{again:?}");

    let mut values = program.terminate().await.values();
    values.sort();
    assert_eq!(values, ["by the first", "by the first again"]);
    tenants.close().await;
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_policy_is_not_asked() {
    let broker = start_broker().await;
    let tenants = Tenants::of(&broker).await;
    let home = Home::new();
    let program = start(&home, &broker.address().to_string(), &Guest::rejecting("closed"), "").await;
    tenants.send("tenant", "decided").await;
    program.wait_for_total("rejected", 1).await;

    let paused = policy(&home, &program, &["pause", "gate"]).await;
    assert_eq!(
        (paused.code, &*paused.stdout),
        (Some(0), "gate: paused; its messages follow its on-error\n"),
        "{paused:?}"
    );
    let paused = policy(&home, &program, &["pause", "gate", "--json"]).await;
    assert_eq!(json_of(&paused), json!({ "policy": "gate", "paused": true, "changed": false }));
    for number in 0..3 {
        tenants.send("tenant", &format!("{number} past the policy")).await;
    }
    program.wait_for_total("on-error", 3).await;
    program.wait_for_total("accepted", 3).await;
    let status = status(&home, &program, "gate", |_| true).await;
    assert_eq!((&status["state"], &status["failures"]["paused"]), (&json!("paused"), &json!(3)));
    let line = policy(&home, &program, &["status"]).await;
    let words: Vec<&str> = line.stdout.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(words[..6], ["gate", "paused", "enforce", "1", "1", "3"], "{line:?}");

    let resumed = policy(&home, &program, &["resume", "gate"]).await;
    assert_eq!((resumed.code, &*resumed.stdout), (Some(0), "gate: it decides again\n"), "{resumed:?}");
    tenants.send("tenant", "decided again").await;
    program.wait_for_total("rejected", 2).await;
    assert_eq!(program.totals().await["on-error"], 3);

    let ended = program.terminate().await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(ended.values().len(), 3);
    tenants.close().await;
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shadow_is_compared_and_not_followed() {
    let broker = start_broker().await;
    let tenants = Tenants::of(&broker).await;
    let home = Home::new();
    home.write("policies/new.wasm", Guest::with_three_tokens().component());
    let more = "shadow = \"new\"\n[policies.new]\ncomponent = \"new.wasm\"\n";
    let program = start(&home, &broker.address().to_string(), &Guest::default(), more).await;
    for number in 0..8 {
        tenants.send("tenant", &format!("{number}")).await;
    }
    program.wait_for_total("accepted", 8).await;

    let compared = policy(&home, &program, &["diff", "tenants", "--json"]).await;
    assert_eq!(compared.code, Some(0), "{compared:?}");
    let body = json_of(&compared);
    let found = &body["comparisons"][0];
    assert_eq!(
        (&found["policy"], &found["compared"], &found["differing"]),
        (&json!("new"), &json!(8), &json!(5))
    );
    assert_eq!(
        found["pairs"],
        json!([
            { "live": "deliver", "shadow": "deliver", "count": 3 },
            { "live": "deliver", "shadow": "reject", "count": 5 },
        ])
    );
    assert_eq!(found["keys"], json!([{ "key": "tenant", "count": 5 }]));
    assert_eq!(found["differences"].as_array().unwrap().len(), 5);
    let sent: Vec<String> =
        broker.control().audit().messages.iter().map(|message| message.message_id.to_string()).collect();
    for difference in found["differences"].as_array().unwrap() {
        assert!(sent.iter().any(|id| *id == difference["message-id"]), "{difference} is none of {sent:?}");
    }

    let shown = policy(&home, &program, &["diff", "tenants"]).await;
    assert!(shown.stdout.starts_with("tenants, shadow new: 8 compared, 5 differ (62.50 %)\n"), "{shown:?}");
    let pair = shown.stdout.lines().find(|line| line.contains("reject")).unwrap();
    assert_eq!(pair.split_whitespace().collect::<Vec<_>>(), ["deliver", "reject", "5"]);
    assert!(shown.stdout.contains("keys that differ: tenant 5\n"), "{shown:?}");
    assert_eq!(shown.stdout.matches("deliver -> reject").count(), 5, "{shown:?}");

    let unknown = policy(&home, &program, &["diff", "nobody"]).await;
    assert_eq!(unknown.code, Some(2), "{unknown:?}");
    assert!(unknown.stderr.contains("there is no flow `nobody`"), "{unknown:?}");
    let flow = &program.get("/api/flows").await["flows"][0];
    assert_eq!(flow["shadow"], "new");
    let modes = policy(&home, &program, &["status", "--json"]).await;
    let modes = json_of(&modes)["policies"].as_array().unwrap().clone();
    let modes: Vec<_> = modes.iter().map(|policy| (policy["name"].clone(), policy["mode"].clone())).collect();
    assert_eq!(modes, [(json!("gate"), json!("enforce")), (json!("new"), json!("shadow"))]);
    assert_eq!(program.terminate().await.values().len(), 8, "only the throttle policy is followed");
    tenants.close().await;
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_policy_is_shown_with_what_it_did_last() {
    let broker = start_broker().await;
    let tenants = Tenants::of(&broker).await;
    let home = Home::new();
    let guest = Guest::trapping_on_messages();
    let program = start(&home, &broker.address().to_string(), &guest, "").await;
    tenants.send("tenant", "any").await;
    program.wait_for_total("on-error", 1).await;
    let status = status(&home, &program, "gate", |status| !status["last-failure"].is_null()).await;
    assert_eq!(status["last-failure"]["cause"], "panic", "{status}");
    assert!(!status["last-failure"]["frames"].as_array().unwrap().is_empty(), "{status}");
    let shown = policy(&home, &program, &["status", "gate"]).await;
    assert_eq!(shown.code, Some(0), "{shown:?}");
    assert!(shown.stdout.contains("  on-error          deliver\n"), "{shown:?}");
    assert!(shown.stdout.contains("panic: it panicked"), "{shown:?}");
    assert!(shown.stdout.contains("failures          panic 1\n"), "{shown:?}");
    let unknown = policy(&home, &program, &["status", "nobody"]).await;
    assert_eq!(unknown.code, Some(2), "{unknown:?}");
    assert_eq!(program.terminate().await.code, Some(0));
    tenants.close().await;
    broker.stop().await;
}

#[test]
fn a_host_that_is_not_there_is_told_with_what_to_do() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    for arguments in [
        &["status"][..],
        &["reload", "gate"],
        &["rollback", "gate"],
        &["pause", "gate"],
        &["resume", "gate"],
        &["diff", "tenants"],
    ] {
        let ended = run_to_end(Path::new("."), &[&["policy"], arguments, &["--admin", &address]].concat());
        assert_eq!(ended.code, Some(3), "{ended:?}");
        let told = format!("error: no tidegate host answers at {address}; is `tidegate run` running there?");
        assert!(ended.stderr.starts_with(&told), "{ended:?}");
        assert!(ended.stderr.contains("refused"), "{ended:?}");
    }
    let ended = run_to_end(Path::new("."), &["policy", "status", "--admin", "http://127.0.0.1:9640"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("must be a host and a port"), "{ended:?}");
}

#[test]
fn another_server_is_not_taken_for_a_host() {
    for (answer, told) in [
        ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", "is not the admin API of a tidegate host"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n{", "did not answer to the end"),
        ("SSH-2.0-OpenSSH_9.9\r\n", "did not answer to the end"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = [0; 1024];
            let length = stream.read(&mut head).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
            String::from_utf8_lossy(&head[..length]).into_owned()
        });
        let ended = run_to_end(Path::new("."), &["policy", "status", "--admin", &address]);
        assert_eq!(ended.code, Some(3), "{ended:?}");
        assert!(ended.stderr.contains(told), "{ended:?}");
        let head = server.join().unwrap();
        assert!(head.starts_with("GET /api/policies HTTP/1.1\r\n"), "{head}");
        assert!(head.contains(&format!("host: {address}\r\n")), "{head}");
    }
}

#[test]
fn help_of_every_command() {
    insta::assert_snapshot!(help_of(&[
        &["policy", "status"],
        &["policy", "reload"],
        &["policy", "rollback"],
        &["policy", "pause"],
        &["policy", "resume"],
        &["policy", "diff"],
    ]));
}
