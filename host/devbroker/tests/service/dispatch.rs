//! Which client of a lite group gets what.

use std::collections::HashSet;
use std::time::Duration;

use tidegate_devbroker::{Broker, Timing};
use tidegate_proto::rocketmq::LiteSubscriptionAction as Action;

use crate::client::*;

#[tokio::test]
async fn two_clients_share_without_duplicates() {
    let broker = Broker::start(options()).await.unwrap();
    let mut first = Client::lite(&broker, "a").await;
    let mut second = Client::lite(&broker, "b").await;
    for at in 0..40 {
        first.send_lite(&format!("m{at}"), &format!("L{at}")).await;
    }
    let one = first.receive(32, 30).await.messages;
    let two = second.receive(32, 30).await.messages;
    assert!(one.len() > 5 && two.len() > 5, "{} and {}", one.len(), two.len());
    let all: HashSet<String> = one.iter().chain(&two).map(body).collect();
    assert_eq!(all.len(), one.len() + two.len());
    broker.stop().await;
}

#[tokio::test]
async fn a_closed_stream_gives_its_events_to_others_and_termination_too() {
    let broker = Broker::start(options()).await.unwrap();
    let control = broker.control();
    let mut first = Client::lite(&broker, "a").await;
    let mut second = Client::lite(&broker, "b").await;
    let mut third = Client::lite(&broker, "c").await;
    for at in 0..20 {
        first.send_lite(&format!("m{at}"), &format!("L{at}")).await;
    }
    second.hang_up();
    assert_eq!(third.terminate().await.code, 20_000);
    while control.lite_clients("LT", "GL").len() > 1 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(first.gather(20, 30).await.len(), 20);
    broker.stop().await;
}

#[tokio::test]
async fn a_client_that_does_not_poll_loses_its_events_after_ten_seconds() {
    let broker = Broker::start(options()).await.unwrap();
    let control = broker.control();
    let mut ack_only = Client::lite(&broker, "ack-only").await;
    ack_only.send_lite("m", "L").await;
    let mut worker = Client::lite(&broker, "worker").await;
    worker.finds_nothing().await;
    control.advance(Duration::from_secs(9));
    worker.finds_nothing().await;
    control.advance(Duration::from_secs(1));
    assert_eq!(worker.bodies(32, 30).await, ["m"]);
    // For ten seconds it gets nothing.
    for at in 0..10 {
        worker.send_lite(&format!("n{at}"), &format!("N{at}")).await;
    }
    assert_eq!(worker.gather(10, 30).await.len(), 10);
    broker.stop().await;
}

#[tokio::test]
async fn a_subscription_not_renewed_for_three_minutes_ends() {
    let broker = Broker::start(options()).await.unwrap();
    let control = broker.control();
    let mut client = Client::lite(&broker, "c").await;
    control.advance(Duration::from_secs(100));
    client.sync(Action::CompleteAdd, &[]).await;
    control.advance(Duration::from_secs(100));
    assert_eq!(control.lite_clients("LT", "GL").len(), 1);
    control.advance(Duration::from_secs(80));
    assert_eq!(control.lite_clients("LT", "GL").len(), 0);
    broker.stop().await;
}

#[tokio::test]
async fn old_backlog_shows_after_the_measured_delay_and_live_messages_at_once() {
    let mut options = options();
    options.timing = Timing::measured();
    let broker = Broker::start(options).await.unwrap();
    let control = broker.control();
    let mut producer = Client::connect(&broker, "p", "LT", "", 1).await;
    producer.send_lite("old", "O").await;
    let mut client = Client::lite(&broker, "c").await;
    client.finds_nothing().await;
    client.send_lite("live", "L").await;
    assert_eq!(client.bodies(32, 60).await, ["live"]);
    control.advance(Duration::from_secs(12));
    client.finds_nothing().await;
    control.advance(Duration::from_secs(1));
    assert_eq!(client.bodies(32, 60).await, ["old"]);
    broker.stop().await;
}

#[tokio::test]
async fn the_event_bound_of_a_group_holds_until_the_next_scan() {
    let mut options = options();
    options.timing = Timing::measured();
    for group in &mut options.groups {
        group.events_max = 10;
    }
    let broker = Broker::start(options).await.unwrap();
    let control = broker.control();
    let mut client = Client::lite(&broker, "c").await;
    for at in 0..15 {
        client.send_lite(&format!("m{at}"), &format!("L{at}")).await;
    }
    assert_eq!(client.bodies(32, 60).await.len(), 10);
    client.finds_nothing().await;
    control.advance(Duration::from_secs(10));
    assert_eq!(client.bodies(32, 60).await.len(), 5);
    broker.stop().await;
}

#[tokio::test]
async fn a_waiting_poll_is_woken_by_a_message() {
    let broker = Broker::start(options()).await.unwrap();
    let control = broker.control();
    let mut client = Client::lite(&broker, "c").await;
    let mut producer = Client::connect(&broker, "p", "LT", "", 1).await;
    let send = async {
        while control.stats().receives_in_flight == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        producer.send_lite("m", "L").await;
    };
    let (bodies, ()) = tokio::join!(client.bodies(1, 10), send);
    assert_eq!(bodies, ["m"]);
    broker.stop().await;
}
