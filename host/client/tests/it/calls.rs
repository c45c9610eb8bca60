//! The plain calls.

use std::time::Duration;

use parking_lot::Mutex;
use std::sync::Arc;
use tidegate_client::{CallError, Client, Event, Renewal, Settlement, Status, Verdict, Worker};

use crate::support::{Broker, FLOW, Host, HostOptions, Running, eventually};

const LEASE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn whoever_has_a_receipt_settles() {
    let broker = Broker::start(LEASE);
    let host = Host::start(&broker, HostOptions::default()).await;
    let other = Host::start(&broker, HostOptions { name: "host-b", ..HostOptions::default() }).await;
    broker.send(["here", "there"]);
    let receipts = Arc::new(Mutex::new(Vec::new()));
    let carried = Arc::clone(&receipts);
    let worker = Running::start(Worker::builder(host.url(), FLOW).name("holder"), move |delivery| {
        carried.lock().push((delivery.message_id, delivery.receipt));
        std::future::pending()
    });
    let receipt_of = |name: &'static str| {
        let receipts = Arc::clone(&receipts);
        eventually("a receipt", move || {
            receipts.lock().iter().find(|(id, _)| id == name).map(|(_, receipt)| receipt.clone())
        })
    };
    let here = receipt_of("here").await;
    let client = Client::builder(host.url()).build().unwrap();
    let described = client.describe().await.unwrap();
    assert_eq!((&*described.host, &*described.flows[0].name), ("host-a", FLOW));
    assert_eq!(described.flows[0].workers[0].name, "holder");
    let renewed = client.renew(vec![Renewal { receipt: here.clone(), length: LEASE * 2 }]).await.unwrap();
    assert_eq!(renewed[0].status, Status::Done);
    assert!(renewed[0].lease > LEASE, "{:?}", renewed[0].lease);
    let settle = |receipt: &str, verdict| vec![Settlement { receipt: receipt.to_owned(), verdict }];
    let told = client.settle(settle(&here, Verdict::accept())).await.unwrap();
    assert_eq!((told[0].status, &*told[0].receipt), (Status::Done, &*here));
    // The same again is no mistake; another verdict is.
    assert_eq!(client.settle(settle(&here, Verdict::accept())).await.unwrap()[0].status, Status::Done);
    assert_eq!(client.settle(settle(&here, Verdict::release())).await.unwrap()[0].status, Status::Unknown);
    // The other host goes past the flow that gave it out.
    let elsewhere = Client::builder(other.url()).build().unwrap();
    let there = receipt_of("there").await;
    let told = elsewhere.settle(settle(&there, Verdict::reject("no good"))).await.unwrap();
    assert_eq!(told[0].status, Status::Done, "{told:?}");
    assert_eq!(
        (broker.ends("here"), broker.ends("there")),
        (vec!["accept".to_owned()], vec!["reject no good".into()])
    );
    let begun = worker.seen.count(|event| matches!(event, Event::Begun { .. }));
    assert_eq!(begun, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_are_asked_in_batches() {
    let host = Host::start(&Broker::start(LEASE), HostOptions::default()).await;
    let client = Client::builder(host.url()).build().unwrap();
    let settlements: Vec<Settlement> = (0..2_345)
        .map(|number| Settlement { receipt: format!("tg1.{number}"), verdict: Verdict::accept() })
        .collect();
    let results = client.settle(settlements.clone()).await.unwrap();
    let receipts = |receipts: &mut dyn Iterator<Item = String>| receipts.collect::<Vec<_>>();
    assert_eq!(
        receipts(&mut results.iter().map(|result| result.receipt.clone())),
        receipts(&mut settlements.into_iter().map(|settlement| settlement.receipt))
    );
    assert!(results.iter().all(|result| result.status == Status::Refused && !result.detail.is_empty()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_is_not_there_is_told() {
    let broker = Broker::start(LEASE);
    let host = Host::start(&broker, HostOptions::default()).await;
    let url = host.url();
    host.kill().await;
    let error = Client::builder(&*url).build().unwrap().describe().await.unwrap_err();
    assert!(
        error.is_retryable() && matches!(&error, CallError::Unanswered { address, .. } if *address == url)
    );
    assert!(error.to_string().contains("refused") || error.to_string().contains("connect"), "{error}");
}
