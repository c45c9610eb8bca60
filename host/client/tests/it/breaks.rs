//! Hosts that end, and come back or do not.

use std::sync::Arc;
use std::time::Duration;

use tidegate_client::{Event, Status, Verdict, Worker};
use tokio::sync::Semaphore;

use crate::support::{Broker, FLOW, Host, HostOptions, Running, eventually};

/// Longer than any test: what comes again before its end was lost.
const LEASE: Duration = Duration::from_secs(600);

/// A handler that ends when it is let.
fn gated(
    gate: &Arc<Semaphore>,
) -> impl Fn(tidegate_client::Delivery) -> futures::future::BoxFuture<'static, Verdict> + Send + Sync + 'static
{
    let gate = Arc::clone(gate);
    move |_| {
        let gate = Arc::clone(&gate);
        Box::pin(async move {
            gate.acquire().await.expect("never closed").forget();
            Verdict::accept()
        })
    }
}

const fn is_begun(event: &Event) -> bool {
    matches!(event, Event::Begun { .. })
}

const fn is_unsubscribed(event: &Event) -> bool {
    matches!(event, Event::Unsubscribed { .. })
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_finished_during_a_break_is_settled_afterwards() {
    let broker = Broker::start(LEASE);
    let host = Host::start(&broker, HostOptions::default()).await;
    let address = host.address();
    broker.send(["one", "two", "three"]);
    let gate = Arc::new(Semaphore::new(0));
    let worker = Running::start(Worker::builder(host.url(), FLOW).credits(8), gated(&gate));
    eventually("three handlers", || (worker.seen.count(is_begun) == 3).then_some(())).await;
    host.kill().await;
    worker.seen.wait_for("the break", is_unsubscribed).await;
    gate.add_permits(3);
    let mut options = HostOptions::default();
    options.service.listen = address;
    let _host = Host::start(&broker, options).await;
    broker.wait_for_done(3).await;
    // And it goes on.
    gate.add_permits(1);
    broker.send(["four"]);
    broker.wait_for_done(4).await;
    assert!(broker.all_ends().values().all(|ends| ends == &["accept"]), "{:?}", broker.all_ends());
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn receipts_are_good_at_the_next_address() {
    let broker = Broker::start(LEASE);
    let first = Host::start(&broker, HostOptions::default()).await;
    let second = Host::start(&broker, HostOptions { name: "host-b", ..HostOptions::default() }).await;
    broker.send((0..20).map(|number| format!("job-{number}")));
    let gate = Arc::new(Semaphore::new(0));
    let builder = Worker::builder(first.url(), FLOW).or_at(second.url()).credits(20);
    let worker = Running::start(builder, gated(&gate));
    eventually("all handlers", || (worker.seen.count(is_begun) == 20).then_some(())).await;
    first.kill().await;
    worker.seen.subscribed(2).await;
    // None of them is done, and so the next host may give it none.
    broker.send(["last"]);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(worker.seen.count(is_begun), 20);
    gate.add_permits(21);
    broker.wait_for_done(21).await;
    assert!(broker.all_ends().values().all(|ends| ends == &["accept"]), "{:?}", broker.all_ends());
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_cannot_settle_for_others_is_not_the_last_word() {
    let broker = Broker::start(LEASE);
    let first = Host::start(&broker, HostOptions::default()).await;
    let unable = HostOptions { name: "host-b", settles_for_others: false, ..HostOptions::default() };
    let unable = Host::start(&broker, unable).await;
    let able = Host::start(&broker, HostOptions { name: "host-c", ..HostOptions::default() }).await;
    broker.send(["one"]);
    let gate = Arc::new(Semaphore::new(0));
    let builder = Worker::builder(first.url(), FLOW).or_at(unable.url()).or_at(able.url());
    let worker = Running::start(builder, gated(&gate));
    eventually("a handler", || (worker.seen.count(is_begun) == 1).then_some(())).await;
    first.kill().await;
    worker.seen.subscribed(2).await;
    gate.add_permits(1);
    broker.wait_for_done(1).await;
    assert_eq!(broker.ends("one"), ["accept"]);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn from_a_draining_host_it_goes_on_at_the_next() {
    let broker = Broker::start(LEASE);
    let mut first = Host::start(&broker, HostOptions::default()).await;
    let second = Host::start(&broker, HostOptions { name: "host-b", ..HostOptions::default() }).await;
    broker.send(["one", "two"]);
    let gate = Arc::new(Semaphore::new(0));
    let builder = Worker::builder(first.url(), FLOW).or_at(second.url()).credits(3);
    let worker = Running::start(builder, gated(&gate));
    eventually("two handlers", || (worker.seen.count(is_begun) == 2).then_some(())).await;
    first.drain();
    worker.seen.wait_for("the warning", |event| matches!(event, Event::Draining { .. })).await;
    worker.seen.subscribed(2).await;
    broker.send(["three", "four"]);
    // Two of its three credits are still in use.
    eventually("a third handler", || (worker.seen.count(is_begun) == 3).then_some(())).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(worker.seen.count(is_begun), 3);
    gate.add_permits(4);
    broker.wait_for_done(4).await;
    assert!(broker.all_ends().values().all(|ends| ends == &["accept"]), "{:?}", broker.all_ends());
    // It takes leave of the first by itself when nothing of it is open.
    worker.seen.wait_for("its leave", is_unsubscribed).await;
    first.kill().await;
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn no_host_at_first_is_no_end() {
    let broker = Broker::start(LEASE);
    let host = Host::start(&broker, HostOptions::default()).await;
    let (url, address) = (host.url(), host.address());
    host.kill().await;
    let worker = Running::start(Worker::builder(url, FLOW), |_| async { Verdict::accept() });
    eventually("three tries", || (worker.seen.count(is_unsubscribed) >= 3).then_some(())).await;
    let mut options = HostOptions::default();
    options.service.listen = address;
    let _host = Host::start(&broker, options).await;
    broker.send(["one"]);
    broker.wait_for_done(1).await;
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_can_settle_any_more_is_told() {
    let broker = Broker::start(Duration::from_secs(5));
    let host = Host::start(&broker, HostOptions::default()).await;
    broker.send(["one", "two"]);
    let gate = Arc::new(Semaphore::new(0));
    let worker = Running::start(Worker::builder(host.url(), FLOW), gated(&gate));
    eventually("two handlers", || (worker.seen.count(is_begun) == 2).then_some(())).await;
    host.kill().await;
    gate.add_permits(1);
    let unsettled = |event: &Event| matches!(event, Event::Unsettled { verdict: Some(_), .. });
    worker.seen.wait_for("that it gave up", unsettled).await;
    // The other one is still being handled: its handler is told.
    worker.seen.wait_for("the end of a lease", |event| matches!(event, Event::Lost { .. })).await;
    let seen = worker.seen.clone();
    gate.add_permits(1);
    worker.stop().await.unwrap();
    assert_eq!(seen.count(|event| matches!(event, Event::Settled { status: Status::Done, .. })), 0);
}
