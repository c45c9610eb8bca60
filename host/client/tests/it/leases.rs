//! Handlers that take their time.

use std::sync::Arc;
use std::time::Duration;

use tidegate_client::{Event, Status, Verdict, Worker};

use crate::support::{Broker, FLOW, Host, HostOptions, Running, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_is_kept_while_its_handler_runs() {
    let broker = Broker::start(Duration::from_secs(5));
    let host = Host::start(&broker, HostOptions::default()).await;
    broker.send(["slow"]);
    let renewed = Arc::new(broker.clone());
    let worker = Running::start(Worker::builder(host.url(), FLOW).keep_leases(true), move |_| {
        let broker = Arc::clone(&renewed);
        async move {
            // Each is made at half of the lease: the third is past its end.
            eventually("renewals", || (broker.renewals() >= 3).then_some(())).await;
            Verdict::accept()
        }
    });
    broker.wait_for_done(1).await;
    assert_eq!(broker.ends("slow"), ["accept"]);
    let renewed = |event: &Event| matches!(event, Event::Renewed { status: Status::Done, .. });
    assert!(worker.seen.count(renewed) >= 2, "{:?}", worker.seen.all());
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_are_kept_past_the_host_that_gave_them() {
    let broker = Broker::start(Duration::from_secs(6));
    let first = Host::start(&broker, HostOptions::default()).await;
    let second = Host::start(&broker, HostOptions { name: "host-b", ..HostOptions::default() }).await;
    broker.send(["slow"]);
    let builder = Worker::builder(first.url(), FLOW).or_at(second.url()).keep_leases(true);
    let (goes_on, wait) = tokio::sync::watch::channel(false);
    let worker = Running::start(builder, move |_| {
        let mut wait = wait.clone();
        async move {
            wait.wait_for(|goes_on| *goes_on).await.unwrap();
            Verdict::accept()
        }
    });
    worker.seen.wait_for("a handler", |event| matches!(event, Event::Begun { .. })).await;
    first.kill().await;
    let before = broker.renewals();
    eventually("renewals", || (broker.renewals() >= before + 2).then_some(())).await;
    goes_on.send_replace(true);
    broker.wait_for_done(1).await;
    assert_eq!(broker.ends("slow"), ["accept"]);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_slower_than_its_lease_is_told() {
    let broker = Broker::start(Duration::from_secs(3));
    let host = Host::start(&broker, HostOptions::default()).await;
    broker.send(["slow"]);
    let worker = Running::start(Worker::builder(host.url(), FLOW), |delivery| async move {
        if delivery.attempt == 1 {
            delivery.lost().await;
            assert!(delivery.is_lost());
        }
        Verdict::accept()
    });
    broker.wait_for_done(1).await;
    assert_eq!(broker.ends("slow"), ["expired", "accept"]);
    worker.seen.wait_for("the end of a lease", |event| matches!(event, Event::Lost { .. })).await;
    let expired = |event: &Event| matches!(event, Event::Settled { status: Status::Expired, .. });
    worker.seen.wait_for("a late verdict's answer", expired).await;
    let done = |event: &Event| matches!(event, Event::Settled { status: Status::Done, .. });
    worker.seen.wait_for("the second's", done).await;
    worker.stop().await.unwrap();
}
