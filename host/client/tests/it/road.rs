//! What a worker does when all goes well.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tidegate_client::{Event, Status, Verdict, Worker};
use tokio::sync::Semaphore;

use crate::support::{Broker, FLOW, Host, HostOptions, Running, eventually};

const LEASE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn every_verdict_reaches_the_broker() {
    let broker = Broker::start(LEASE);
    let host = Host::start(&broker, HostOptions::default()).await;
    broker.send(["accept", "defer", "release", "reject"]);
    let worker = Running::start(Worker::builder(host.url(), FLOW).name("one"), |delivery| async move {
        assert_eq!(delivery.property("kind"), Some(&b"test"[..]));
        assert_eq!((&*delivery.topic, delivery.lite_topic.as_deref()), ("Jobs", Some("tenant-1")));
        match (&delivery.body[..], delivery.attempt) {
            (b"defer", 1) => Verdict::defer(Duration::from_millis(50)),
            (b"release", 1) => Verdict::release(),
            (b"reject", _) => Verdict::reject("no good").with_cost(2.5),
            _ => Verdict::accept().with_cost(0.0),
        }
    });
    broker.wait_for_done(4).await;
    assert_eq!(broker.ends("accept"), ["accept"]);
    assert_eq!(broker.ends("defer"), ["defer", "accept"]);
    assert_eq!(broker.ends("release"), ["release", "accept"]);
    assert_eq!(broker.ends("reject"), ["reject no good"]);
    let settled = |event: &Event| matches!(event, Event::Settled { status: Status::Done, .. });
    eventually("six settlements", || (worker.seen.count(settled) == 6).then_some(())).await;
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn as_many_at_a_time_as_there_are_credits() {
    let broker = Broker::start(LEASE);
    let host = Host::start(&broker, HostOptions::default()).await;
    broker.send((0..200).map(|number| format!("job-{number}")));
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let most_ever = Arc::clone(&most);
    let worker = Running::start(Worker::builder(host.url(), FLOW).credits(8), move |_| {
        let (running, most) = (Arc::clone(&running), Arc::clone(&most));
        async move {
            most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(5)).await;
            running.fetch_sub(1, Ordering::SeqCst);
            Verdict::accept()
        }
    });
    broker.wait_for_done(200).await;
    assert_eq!(most_ever.load(Ordering::SeqCst), 8);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_releases_its_message() {
    let broker = Broker::start(LEASE);
    let host = Host::start(&broker, HostOptions::default()).await;
    broker.send(["early", "late", "good"]);
    let worker = Running::start(Worker::builder(host.url(), FLOW), |delivery| {
        assert!(&delivery.body[..] != b"early" || delivery.attempt > 1, "before it waits");
        async move {
            tokio::task::yield_now().await;
            assert!(&delivery.body[..] != b"late" || delivery.attempt > 1, "after {}", "that");
            Verdict::accept()
        }
    });
    broker.wait_for_done(3).await;
    assert_eq!(broker.ends("early"), ["release", "accept"]);
    assert_eq!(broker.ends("late"), ["release", "accept"]);
    assert_eq!(broker.ends("good"), ["accept"]);
    for said in ["before it waits", "after that"] {
        let is_it = |event: &Event| matches!(event, Event::Panicked { detail, .. } if detail == said);
        assert_eq!(worker.seen.count(is_it), 1, "{:?}", worker.seen.all());
    }
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_stops_finishes_what_it_has_and_leaves() {
    let broker = Broker::start(LEASE);
    let host = Host::start(&broker, HostOptions::default()).await;
    broker.send((0..10).map(|number| format!("job-{number}")));
    let gate = Arc::new(Semaphore::new(0));
    let opened = Arc::clone(&gate);
    let mut worker = Running::start(Worker::builder(host.url(), FLOW).credits(4), move |_| {
        let gate = Arc::clone(&gate);
        async move {
            gate.acquire().await.unwrap().forget();
            Verdict::accept()
        }
    });
    let begun = |event: &Event| matches!(event, Event::Begun { .. });
    eventually("four handlers", || (worker.seen.count(begun) == 4).then_some(())).await;
    worker.tell_to_stop();
    opened.add_permits(10);
    let seen = worker.seen.clone();
    worker.end().await.unwrap();
    // Four were being handled; what was already on its way then went back.
    assert_eq!(seen.count(begun), 4);
    assert_eq!(broker.done(), 4);
    let accepted = |event: &Event| matches!(event, Event::Settled { verdict, status: Status::Done, .. } if *verdict == Verdict::accept());
    assert_eq!(seen.count(accepted), 4, "{:?}", seen.all());
    let next = Running::start(Worker::builder(host.url(), FLOW), |_| async { Verdict::accept() });
    broker.wait_for_done(10).await;
    next.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_never_ends_does_not_keep_the_worker() {
    let broker = Broker::start(LEASE);
    let host = Host::start(&broker, HostOptions::default()).await;
    broker.send(["endless"]);
    let builder = Worker::builder(host.url(), FLOW).stop_within(Duration::from_millis(200));
    let worker = Running::start(builder, |_| std::future::pending());
    worker.seen.wait_for("a handler", |event| matches!(event, Event::Begun { .. })).await;
    let seen = worker.seen.clone();
    worker.stop().await.unwrap();
    assert_eq!(seen.count(|event| matches!(event, Event::Unsettled { verdict: None, .. })), 1);
    // Its host releases what it held.
    eventually("its release", || (broker.ends("endless") == ["release"]).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_messages_are_done_on_delivery_a_verdict_only_frees_credits() {
    let broker = Broker::start(LEASE);
    let options = HostOptions { accepts_on_delivery: true, ..HostOptions::default() };
    let host = Host::start(&broker, options).await;
    broker.send((0..20).map(|number| format!("job-{number}")));
    let builder = Worker::builder(host.url(), FLOW).credits(2).keep_leases(true);
    let worker = Running::start(builder, |delivery| async move {
        if &delivery.body[..] == b"job-7" { Verdict::reject("no good") } else { Verdict::accept() }
    });
    broker.wait_for_done(20).await;
    assert_eq!(broker.ends("job-7"), ["accept"]);
    let is_settled = || worker.seen.settled("job-7");
    assert_eq!(eventually("an answer", is_settled).await.1, Status::Unknown);
    worker.stop().await.unwrap();
}
