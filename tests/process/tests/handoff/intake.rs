//! How much a host takes in for workers that come and go, and how soon they have what was given back past it.

use std::time::Duration;

use serde_json::{Value, json};
use tidegate_process_tests::{Home, PATIENCE, Program, run_to_end};

use crate::service::{Service, bodies};
use crate::stream::{Stream, accept, connect, open};
use crate::{Stage, home};

/// Messages that nobody works on yet.
const BACKLOG: usize = 300;
/// What a flow keeps at hand at least.
const RESERVE: u64 = 16;

/// A host whose leases outlast the test, and that waits so long for its workers when it ends.
fn waiting(endpoint: &str, drain_timeout: &str) -> Home {
    let home = home(endpoint, "", "");
    home.edit("invisible-duration = \"30s\"", "invisible-duration = \"10m\"");
    home.edit("drain-timeout = \"10s\"", &format!("drain-timeout = \"{drain_timeout}\""));
    home
}

async fn flow(host: &Program) -> Value {
    host.get("/api/flows").await["flows"][0].clone()
}

/// Without workers nothing is taken in; for one of one credit a few are at hand; a pull finds what it asks for.
#[tokio::test(flavor = "multi_thread")]
async fn a_host_takes_in_what_its_workers_can_take() {
    let stage = Stage::set().await;
    let (host, service) = (&stage.host, &stage.service);
    stage.tenants.send_all((0..BACKLOG).map(|number| (format!("tenant-{number}"), number.to_string()))).await;
    // Where it would take in too much it has by then.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let idle = flow(host).await;
    assert_eq!((&idle["totals"]["received"], &idle["joined"]), (&json!(0), &json!(true)), "{idle}");

    let mut worker = Stream::open(&connect(&service.address).await, open(1)).await.expect("opened");
    let first = worker.deliveries().await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let busy = flow(host).await;
    assert_eq!((first.len(), &busy["emitted"]), (1, &json!(1)), "{busy}");
    let held = busy["in-flight"].as_u64().expect("a number");
    assert!((2..=1 + RESERVE).contains(&held), "{busy}");
    assert!(worker.settle(vec![accept(&first[0].receipt)]).await);
    worker.settled().await;
    drop(worker);

    let rest = service.pull_all(BACKLOG - 1).await;
    assert_eq!(service.settle(&rest, &json!({ "verdict": "accept" })), vec!["done"; rest.len()]);
    host.wait_for_total("accepted", BACKLOG as u64).await;
    stage.end().await;
}

/// What is given back straight at the broker comes to the workers of the host that gave it out long before its lease ends;
/// the receipt of before is expired.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_given_back_past_the_owner_comes_at_once() {
    // Nothing comes back because its lease has ended.
    let stage = Stage::set_in(|endpoint| waiting(endpoint, "10s")).await;
    let service = &stage.service;
    for name in ["a", "b"] {
        stage.tenants.send(name, name).await;
    }
    let taken = service.pull_all(2).await;
    for (delivery, command) in taken.iter().zip([&["release"][..], &["defer", "--delay", "2s"]]) {
        let receipt = delivery["receipt"].as_str().expect("a receipt").to_owned();
        let (path, command) = (stage.home.path().to_owned(), command.to_vec());
        let given_back =
            tokio::task::spawn_blocking(move || run_to_end(&path, &[&command[..], &[&receipt]].concat()));
        let given_back = given_back.await.expect("no panic");
        assert_eq!(given_back.code, Some(0), "{}", given_back.stderr);
    }
    let again = service.pull_all(2).await;
    let sorted = |deliveries: &[Value]| {
        let mut bodies = bodies(deliveries);
        bodies.sort();
        bodies
    };
    assert_eq!(sorted(&again), sorted(&taken));
    assert_eq!(service.settle(&taken, &json!({ "verdict": "accept" })), ["expired", "expired"]);
    assert_eq!(service.settle(&again, &json!({ "verdict": "accept" })), ["done", "done"]);
    assert!(service.pull(2, PATIENCE / 20).is_empty());
    stage.end().await;
}

/// Over HTTP as on a stream: what is named as settled elsewhere is not held any more, and no end waits for it.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_named_as_settled_elsewhere_is_not_waited_for() {
    // Whoever waited for what is named would not end in time for anything.
    let stage = Stage::set_in(|endpoint| waiting(endpoint, "5m")).await;
    let service = &stage.service;
    for name in ["a", "b"] {
        stage.tenants.send(name, name).await;
    }
    let taken = service.pull_all(2).await;
    let receipts: Vec<&str> =
        taken.iter().map(|delivery| delivery["receipt"].as_str().expect("a receipt")).collect();
    let named = [&receipts[..], &["tg1.rubbish"]].concat();
    let (status, answer) = service.ask("POST", "/v1/elsewhere", &json!({ "receipts": named }).to_string());
    let statuses: Vec<_> = (0..3).map(|at| answer["results"][at]["status"].as_str()).collect();
    assert_eq!((status, statuses), (200, vec![Some("done"), Some("done"), Some("refused")]), "{answer}");
    let path = stage.home.path().to_owned();
    let command: Vec<String> = ["ack"].into_iter().chain(receipts).map(str::to_owned).collect();
    let settled = tokio::task::spawn_blocking(move || {
        run_to_end(&path, &command.iter().map(String::as_str).collect::<Vec<_>>())
    });
    assert_eq!(settled.await.expect("no panic").code, Some(0));
    assert!(stage.broker.control().audit().unacked().next().is_none(), "all are done");
    let ended = stage.end().await;
    assert!(!ended.stderr.contains("waits for what its sink"), "{}", ended.stderr);
}

/// A host that ends says what it waits for, and waits no longer than it was told to.
#[tokio::test(flavor = "multi_thread")]
async fn an_end_says_what_it_waits_for() {
    let stage = Stage::set_in(|endpoint| waiting(endpoint, "1s")).await;
    stage.tenants.send("a", "a").await;
    stage.service.pull_all(1).await;
    let ended = stage.end().await;
    assert!(
        ended.stderr.contains("waits for what its sink or its workers have not settled"),
        "{}",
        ended.stderr
    );
    assert!(ended.stderr.contains("1 deliveries were not finished in time"), "{}", ended.stderr);
}

/// A dead letter that goes to workers tells them why and where it was given up.
#[tokio::test(flavor = "multi_thread")]
async fn workers_learn_why_a_dead_letter_was_given_up() {
    let dead = "[sinks.dead]\nconnector = \"handoff\"\nlisten = \"127.0.0.1:0\"\n";
    let stage = Stage::set_in(|endpoint| home(endpoint, dead, "dead-letter = \"dead\"")).await;
    let host = &stage.host;
    let workers = Service::of_sink(host, "\"workers\"").await;
    let dead = Service::of_sink(host, "\"dead\"").await;
    stage.tenants.send("a", "poison").await;
    let taken = workers.pull_all(1).await;
    assert!(taken[0].get("dead-letter").is_none(), "{}", taken[0]);
    let verdict = json!({ "verdict": "reject", "reason": "cannot be read" });
    let reject = |taken: &[Value]| {
        let (workers, taken, verdict) = (workers.clone(), taken.to_vec(), verdict.clone());
        tokio::task::spawn_blocking(move || workers.settle(&taken, &verdict))
    };
    let rejecting = reject(&taken);
    let mut stream = Stream::open(&connect(&dead.address).await, open(1)).await.expect("opened");
    let letter = stream.deliveries().await.remove(0);
    let story = letter.dead_letter.expect("a story");
    let id = taken[0]["message-id"].as_str().expect("an id");
    assert_eq!((&*letter.message_id, &*letter.body), (id, &b"poison"[..]));
    assert_eq!((&*story.flow, &*story.source, &*story.policy), ("tenants", "tenants", ""));
    assert_eq!((&*story.reason, story.attempts), ("cannot be read", 1));
    assert!(story.first_received_at_ms > 0 && story.first_received_at_ms <= story.last_received_at_ms);
    assert!(stream.settle(vec![accept(&letter.receipt)]).await);
    assert_eq!(rejecting.await.expect("no panic"), ["done"]);
    drop(stream);

    stage.tenants.send("b", "poison").await;
    let rejecting = reject(&workers.pull_all(1).await);
    let pulled = dead.pull_all(1).await;
    let shown = &pulled[0]["dead-letter"];
    assert_eq!((&shown["flow"], &shown["reason"]), (&json!("tenants"), &json!("cannot be read")), "{shown}");
    assert_eq!(dead.settle(&pulled, &json!({ "verdict": "accept" })), ["done"]);
    assert_eq!(rejecting.await.expect("no panic"), ["done"]);
    assert!(stage.broker.control().audit().unacked().next().is_none(), "it is done");
    stage.end().await;
}
