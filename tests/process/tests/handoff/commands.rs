//! `tidegate receipt`, `ack`, `defer`, `release`, `reject`.

use std::time::Duration;

use serde_json::{Value, json};
use tidegate_process_tests::{Ended, Tenants, run_to_end, run_with_input, start_broker};

use crate::service::bodies;
use crate::{Stage, home, start};

/// Thousands of receipts from standard input, settled straight at the broker, while the host that gave them out is gone.
#[tokio::test(flavor = "multi_thread")]
async fn receipts_are_settled_by_the_thousand() {
    let broker = start_broker().await;
    let tenants = Tenants::of(&broker).await;
    let home = home(&broker.address().to_string(), "", "");
    let (host, service) = start(&home).await;
    const MESSAGES: usize = 1500;
    for number in 0..MESSAGES {
        tenants.send(&format!("tenant-{number}"), &number.to_string()).await;
    }
    let taken = service.pull_all(MESSAGES).await;
    host.kill().await;
    let receipts: String = taken
        .iter()
        .map(|delivery| format!("{}\n", delivery["receipt"].as_str().expect("a receipt")))
        .collect();
    let path = home.path().to_owned();
    let ended = tokio::task::spawn_blocking(move || {
        run_with_input(&path, &["ack", "--json", "-"], receipts.as_bytes())
    });
    let ended = ended.await.expect("no panic");
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let lines: Vec<Value> =
        ended.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines.len(), MESSAGES);
    assert!(lines.iter().all(|line| line["status"] == "done"), "{}", ended.stdout);
    let (host, service) = start(&home).await;
    tokio::time::sleep(Duration::from_secs(31)).await;
    assert_eq!(bodies(&service.pull(10, Duration::from_secs(1))), Vec::<String>::new());
    assert_eq!(host.terminate().await.code, Some(0));
    tenants.close().await;
    broker.stop().await;
}

/// Each command says what it did, and its exit code whether all went well.
#[tokio::test(flavor = "multi_thread")]
async fn commands_say_what_they_did() {
    let stage = Stage::set().await;
    for name in ["a", "b", "c"] {
        stage.tenants.send(name, name).await;
    }
    let taken = stage.service.pull_all(3).await;
    let receipt = |at: usize| taken[at]["receipt"].as_str().expect("a receipt").to_owned();
    let run = async |arguments: Vec<String>| -> Ended {
        let path = stage.home.path().to_owned();
        let running = tokio::task::spawn_blocking(move || {
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            run_to_end(&path, &arguments)
        });
        running.await.expect("no panic")
    };
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();

    let explained = run([words("receipt --config tidegate.toml"), vec![receipt(0)]].concat()).await;
    assert_eq!(explained.code, Some(0), "{}", explained.stderr);
    assert!(explained.stdout.contains("good: a host of this fleet made it"), "{}", explained.stdout);
    let unchecked = run(vec!["receipt".into(), "--json".into(), receipt(0)]).await;
    let shown: Value = serde_json::from_str(unchecked.stdout.trim()).expect("JSON");
    assert_eq!((&shown["tag"], &shown["flow"]), (&json!("unchecked"), &json!("tenants")), "{shown}");
    stage.home.write("other.key", "f".repeat(64));
    let foreign = run([words("receipt --key-file other.key"), vec![receipt(0)]].concat()).await;
    assert_eq!(foreign.code, Some(1), "{}", foreign.stdout);
    assert!(foreign.stdout.contains("BAD") && foreign.stdout.contains("`other.key`"), "{}", foreign.stdout);
    let rubbish = run(words("receipt tg1.rubbish")).await;
    assert_eq!(rubbish.code, Some(2), "{}", rubbish.stdout);

    let deferred = run([words("defer --delay 2s"), vec![receipt(0)]].concat()).await;
    assert_eq!(deferred.code, Some(0), "{}", deferred.stderr);
    let released = run(vec!["release".into(), receipt(1)]).await;
    assert_eq!(released.code, Some(0), "{}", released.stderr);
    let rejected = run(vec!["reject".into(), receipt(2)]).await;
    assert_eq!(rejected.code, Some(1), "{}", rejected.stdout);
    assert!(rejected.stdout.contains("the message itself is needed"), "{}", rejected.stdout);
    let forged = run([words("ack --key-file other.key"), vec![receipt(2)]].concat()).await;
    assert_eq!(forged.code, Some(1), "{}", forged.stdout);
    assert!(forged.stdout.contains("refused") && forged.stdout.contains("`other.key`"), "{}", forged.stdout);
    let lines = format!("\n{}\ntg1.{}the-very-end\n", "x".repeat(20_000), "A".repeat(40));
    let path = stage.home.path().to_owned();
    let among = tokio::task::spawn_blocking(move || run_with_input(&path, &["ack", "-"], lines.as_bytes()));
    let among = among.await.expect("no panic");
    assert_eq!(among.code, Some(1), "{}", among.stdout);
    assert!(among.stdout.contains("  line 2 (…xxxxxxxxxxxx)"), "{}", among.stdout);
    assert!(among.stdout.contains("  line 3 (…the-very-end)"), "{}", among.stdout);
    let by_hand =
        run([words("ack --endpoints"), vec![stage.broker.address().to_string(), receipt(2)]].concat()).await;
    assert_eq!(by_hand.code, Some(0), "{}", by_hand.stderr);
    let short = run([words("defer --delay 10ms"), vec![receipt(0)]].concat()).await;
    assert_eq!(short.code, Some(2), "{}", short.stderr);
    let nowhere = run([words("ack --config gone.toml"), vec![receipt(0)]].concat()).await;
    assert_eq!(nowhere.code, Some(2), "{}", nowhere.stderr);
    assert!(
        nowhere.stderr.contains("--config") && nowhere.stderr.contains("--endpoints"),
        "{}",
        nowhere.stderr
    );

    let mut again = bodies(&stage.service.pull_all(2).await);
    again.sort();
    let mut expected = bodies(&taken[..2]);
    expected.sort();
    assert_eq!(again, expected);
    stage.end().await;
}
