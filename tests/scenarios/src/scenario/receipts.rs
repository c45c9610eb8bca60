//! Settling by receipt from another host, which consumes nothing.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tidegate_connector::{Clock, ReceiptSettler as _, SettleByReceipt};
use tidegate_model::{Delivery, DeliveryId, Handle, Receipt, SettleError, SettleFault, Timestamp, Verb};
use tidegate_rocketmq::{AckClient, AckPool, AckScope, TopicKind};
use tidegate_telemetry::Telemetry;
use tokio::time::{Instant, sleep};

use crate::broker::GroupKind;
use crate::stage::{ATTEMPTS_MAX, LEASE, PATIENCE, Stage, bodies};

/// What the host that took a delivery gives out, as another host reads it.
fn receipt(delivery: &Delivery) -> Receipt {
    Receipt {
        routing: (*delivery.handle.routing).clone(),
        topic: Arc::clone(&delivery.message.topic),
        lite_topic: delivery.message.lite_topic.clone(),
        message_id: delivery.message.id.clone(),
        handle: delivery.handle.text.clone(),
        attempt: delivery.attempt,
        owner: "host-a".into(),
        flow: "tenants".into(),
        delivery: DeliveryId(1),
        expires_at: Timestamp::from_unix_millis(0),
    }
}

fn pool(stage: &Stage) -> AckPool {
    let client = AckClient {
        name: "others".into(),
        client: stage.client(),
        scope: AckScope::Namespace,
        endpoint: None,
    };
    AckPool::start(vec![client], Clock::start(), Telemetry::default()).expect("a pool")
}

async fn settle(
    pool: &AckPool,
    verb: &Verb,
    deliveries: &[Delivery],
) -> Vec<Result<Option<Handle>, SettleError>> {
    let batch = deliveries
        .iter()
        .map(|delivery| SettleByReceipt { receipt: receipt(delivery), verb: verb.clone() })
        .collect();
    pool.settle(batch).await
}

async fn settled(pool: &AckPool, verb: &Verb, deliveries: &[Delivery]) {
    for (result, delivery) in settle(pool, verb, deliveries).await.into_iter().zip(deliveries) {
        assert!(result.is_ok(), "{verb} of {:?}: {result:?}", delivery.message.id);
    }
}

/// All that one host takes is acknowledged by another, which stays connected all the while: everything still comes to
/// the one that consumes, once, and none of it late because the other was asked.
pub(crate) async fn another_host_settles_and_takes_nothing(stage: Stage) {
    const LITE_TOPICS: usize = 12;
    const ROUNDS: usize = 5;
    let lite = stage.lite().await;
    let producer = stage.producer().await;
    let consumer = stage.consumer(&lite).await;
    let pool = pool(&stage);
    let mut seen = BTreeSet::new();
    for round in 0..ROUNDS {
        for lite_topic in 0..LITE_TOPICS {
            let body = format!("{lite_topic}-{round}");
            producer.send_lite(&lite.topic, &format!("tenant-{lite_topic}"), &body).await;
        }
        let began = Instant::now();
        let mut taken = 0;
        while taken < LITE_TOPICS {
            let batch = consumer.take_some().await;
            for body in bodies(&batch) {
                assert!(seen.insert(body.to_owned()), "{body} came twice");
            }
            taken += batch.len();
            settled(&pool, &Verb::Accept, &batch).await;
        }
        // A broker that offers a lite topic to a client that does not take it waits ten seconds and more. The first
        // round is when clients are new to the broker.
        let late = began.elapsed() > LEASE;
        assert!(round == 0 || !late, "round {round} took {:?}", began.elapsed());
    }
    stage.all_acknowledged(&lite).await;
    assert_eq!(seen.len(), LITE_TOPICS * ROUNDS);
    pool.close().await;
}

/// Every other verb has the effect that it has from the host that took the delivery.
pub(crate) async fn another_host_defers_renews_and_releases(stage: Stage) {
    let lite = stage.lite().await;
    let producer = stage.producer().await;
    stage.send_numbered(&producer, &lite, "tenant", 1).await;
    let consumer = stage.consumer(&lite).await;
    let pool = pool(&stage);

    let taken = consumer.take(1).await;
    settled(&pool, &Verb::Defer(Duration::from_secs(3)), &taken).await;
    let deferred = Instant::now();
    let again = consumer.take(1).await;
    assert!(deferred.elapsed() >= Duration::from_millis(2_500), "{:?}", deferred.elapsed());

    // Kept for longer than its lease: the new handle settles it then, and the old one is past its end.
    let renewed = settle(&pool, &Verb::Renew(LEASE * 3), &again).await;
    let handle = renewed[0].clone().expect("renewed").expect("a new handle");
    sleep(LEASE + Duration::from_secs(2)).await;
    let late = settle(&pool, &Verb::Accept, &again).await;
    assert_eq!(late[0].as_ref().map_err(|error| error.fault), Err(SettleFault::LeaseGone), "{late:?}");
    let kept = Delivery { handle, ..again[0].clone() };
    let released = Instant::now();
    settled(&pool, &Verb::Release, std::slice::from_ref(&kept)).await;
    let last = consumer.take(1).await;
    assert!(released.elapsed() < LEASE * 2, "{:?}", released.elapsed());
    settled(&pool, &Verb::Accept, &last).await;
    stage.all_acknowledged(&lite).await;
    pool.close().await;
}

/// A normal message is rejected from another host: the broker keeps it as a dead letter.
pub(crate) async fn another_host_rejects_a_normal_message(stage: Stage) {
    let normal = stage.plain(TopicKind::Normal, GroupKind::Normal, ATTEMPTS_MAX).await;
    let producer = stage.producer().await;
    producer.send_normal(&normal.topic, "0").await;
    let consumer = stage.consumer(&normal).await;
    let taken = consumer.take(1).await;
    let pool = pool(&stage);
    settled(&pool, &Verb::Reject { reason: "cannot be read".into() }, &taken).await;
    let undertaker = stage.dead_letters(&normal).await;
    let buried = undertaker.take(1).await;
    assert_eq!(bodies(&buried), ["0"]);
    undertaker.accept(&buried).await;
    pool.close().await;
}

/// Thousands of receipts of many lite topics, in the order in which they were given out.
pub(crate) async fn another_host_settles_thousands(stage: Stage) {
    const LITE_TOPICS: usize = 40;
    const MESSAGES: usize = 50;
    let lite = stage.lite().await;
    let producer = stage.producer().await;
    for message in 0..MESSAGES {
        let sending = (0..LITE_TOPICS).map(|lite_topic| {
            let (producer, lite) = (&producer, &lite);
            async move {
                let body = format!("{lite_topic}-{message}");
                producer.send_lite(&lite.topic, &format!("tenant-{lite_topic}"), &body).await;
            }
        });
        futures::future::join_all(sending).await;
    }
    let consumer = stage.consumer(&lite).await;
    let pool = pool(&stage);
    let deadline = Instant::now() + PATIENCE * 2;
    let mut seen = BTreeSet::new();
    while seen.len() < LITE_TOPICS * MESSAGES {
        assert!(Instant::now() < deadline, "{} of {}", seen.len(), LITE_TOPICS * MESSAGES);
        let batch = consumer.poll().await;
        seen.extend(bodies(&batch).into_iter().map(str::to_owned));
        settled(&pool, &Verb::Accept, &batch).await;
    }
    stage.all_acknowledged(&lite).await;
    pool.close().await;
}
