//! Hosts that settle each other's receipts.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::json;
use tidegate_process_tests::{Configuration, Home, Tenants, start_broker};

use crate::service::bodies;
use crate::{KEY, home, start};

/// What one host gave out is settled at the other, also when the first is dead; nothing comes again.
#[tokio::test(flavor = "multi_thread")]
async fn a_receipt_is_good_on_every_host_of_the_fleet() {
    let broker = start_broker().await;
    let endpoint = broker.address().to_string();
    let tenants = Tenants::of(&broker).await;
    let (first_home, second_home) = (home(&endpoint, "", ""), home(&endpoint, "", ""));
    let (first, first_service) = start(&first_home).await;
    for number in 0..30 {
        tenants.send(&format!("tenant-{number}"), &number.to_string()).await;
    }
    let taken = first_service.pull_all(30).await;
    let (second, second_service) = start(&second_home).await;
    let (own, others) = taken.split_at(10);
    assert_eq!(first_service.settle(own, &json!({ "verdict": "accept" })), vec!["done"; 10]);
    assert_eq!(second_service.settle(&others[..10], &json!({ "verdict": "accept" })), vec!["done"; 10]);
    first.kill().await;
    assert_eq!(second_service.settle(&others[10..], &json!({ "verdict": "accept" })), vec!["done"; 10]);
    // Past the end of every lease.
    tokio::time::sleep(Duration::from_secs(32)).await;
    let again = second_service.pull(30, Duration::from_secs(1));
    assert_eq!(bodies(&again), Vec::<String>::new());
    let ended = second.terminate().await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    tenants.close().await;
    broker.stop().await;
}

/// A host without any flow settles what others gave out and takes nothing from them.
#[tokio::test(flavor = "multi_thread")]
async fn a_host_may_only_settle() {
    let broker = start_broker().await;
    let endpoint = broker.address().to_string();
    let tenants = Tenants::of(&broker).await;
    let consuming = home(&endpoint, "", "");
    let (host, service) = start(&consuming).await;
    let settling = Home::new();
    settling.write("fleet.key", KEY);
    let configuration = Configuration::new("receipt-key-file = \"fleet.key\"")
        .settler("all", &endpoint, "")
        .workers("workers", "127.0.0.1:0", "");
    settling.put(&configuration);
    let (settler, other) = start(&settling).await;
    let mut seen = BTreeSet::new();
    for round in 0..5 {
        for tenant in 0..8 {
            tenants.send(&format!("tenant-{tenant}"), &format!("{tenant}-{round}")).await;
        }
        let taken = service.pull_all(8).await;
        for body in bodies(&taken) {
            assert!(seen.insert(body.clone()), "{body} came twice");
        }
        assert_eq!(other.settle(&taken, &json!({ "verdict": "accept" })), vec!["done"; 8]);
        // The host that gave them out is asked as well, and the broker, which has them, says so.
        assert_eq!(service.settle(&taken[..1], &json!({ "verdict": "accept" })), ["done"]);
    }
    let (status, described) = other.ask("GET", "/v1/flows", "");
    assert_eq!((status, &described["flows"]), (200, &json!([])));
    let (status, answer) = other.ask("POST", "/v1/flows/tenants/pull", "{}");
    assert_eq!(status, 404, "{answer}");
    let ended = settler.terminate().await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(host.terminate().await.code, Some(0));
    tenants.close().await;
    broker.stop().await;
}

/// Every verdict has its effect, and the same again gets the same answer.
#[tokio::test(flavor = "multi_thread")]
async fn each_verdict_has_its_effect() {
    let broker = start_broker().await;
    let tenants = Tenants::of(&broker).await;
    let dead = "dead-letter = \"dead\"\n[sinks.dead]\nconnector = \"file\"\npath = \"dead.jsonl\"\n";
    let home = home(&broker.address().to_string(), "", dead);
    let (host, service) = start(&home).await;
    for name in ["accept", "defer", "release", "reject"] {
        tenants.send(name, name).await;
    }
    let taken = service.pull_all(4).await;
    let of = |name: &str| {
        let found = taken.iter().find(|delivery| delivery["value"] == name);
        std::slice::from_ref(found.expect("it came"))
    };
    assert_eq!(service.settle(of("accept"), &json!({ "verdict": "accept", "cost": 2.5 })), ["done"]);
    assert_eq!(service.settle(of("defer"), &json!({ "verdict": "defer", "delay-ms": 1500 })), ["done"]);
    assert_eq!(service.settle(of("release"), &json!({ "verdict": "release" })), ["done"]);
    let reason = "cannot be read";
    assert_eq!(service.settle(of("reject"), &json!({ "verdict": "reject", "reason": reason })), ["done"]);
    for (name, verdict) in [
        ("accept", json!({ "verdict": "accept" })),
        ("release", json!({ "verdict": "release" })),
        ("reject", json!({ "verdict": "reject" })),
    ] {
        assert_eq!(service.settle(of(name), &verdict), ["done"], "{name} again");
    }
    assert_eq!(service.settle(of("accept"), &json!({ "verdict": "release" })), ["unknown"]);

    let again = service.pull_all(2).await;
    let names: BTreeSet<String> = bodies(&again).into_iter().collect();
    assert_eq!(names, BTreeSet::from(["defer".to_owned(), "release".to_owned()]));
    assert!(again.iter().all(|delivery| delivery["delivery-attempt"] == 2), "{again:?}");
    assert_eq!(service.settle(&again, &json!({ "verdict": "accept" })), ["done", "done"]);

    let text = std::fs::read_to_string(home.file("dead.jsonl")).expect("a dead letter");
    let letter: serde_json::Value = serde_json::from_str(text.trim()).expect("one line");
    assert_eq!((&letter["value"], &letter["dead-letter"]["reason"]), (&json!("reject"), &json!(reason)));
    assert_eq!(letter["dead-letter"]["flow"], "tenants");
    assert_eq!(host.terminate().await.code, Some(0));
    tenants.close().await;
    broker.stop().await;
}

/// A lease that was renewed lasts, and a lease that ended is told so.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_is_kept_by_renewal() {
    let broker = start_broker().await;
    let tenants = Tenants::of(&broker).await;
    let home = home(&broker.address().to_string(), "", "");
    let text = std::fs::read_to_string(home.file("tidegate.toml")).expect("the configuration");
    home.write("tidegate.toml", text.replace("invisible-duration = \"30s\"", "invisible-duration = \"10s\""));
    let (host, service) = start(&home).await;
    tenants.send("kept", "kept").await;
    tenants.send("lost", "lost").await;
    let taken = service.pull_all(2).await;
    let kept = taken.iter().position(|delivery| delivery["value"] == "kept").expect("it came");
    let renewals = json!({ "renewals": [{ "receipt": taken[kept]["receipt"], "length-ms": 40_000 }] });
    let (status, answer) = service.ask("POST", "/v1/renew", &renewals.to_string());
    assert_eq!((status, &answer["results"][0]["status"]), (200, &json!("done")), "{answer}");
    assert!(answer["results"][0]["lease-ms"].as_u64().expect("a lease") > 30_000, "{answer}");
    let again = service.pull_all(1).await;
    assert_eq!(bodies(&again), ["lost"], "its lease ended, the other's did not");
    assert_eq!(service.settle(&taken[1 - kept..][..1], &json!({ "verdict": "accept" })), ["expired"]);
    assert_eq!(service.settle(&taken[kept..][..1], &json!({ "verdict": "accept" })), ["done"]);
    assert_eq!(service.settle(&again, &json!({ "verdict": "accept" })), ["done"]);
    assert_eq!(host.terminate().await.code, Some(0));
    tenants.close().await;
    broker.stop().await;
}
