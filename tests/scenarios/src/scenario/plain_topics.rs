//! Normal, FIFO and delay topics through the same connector.

use std::time::Duration;

use tidegate_model::Verb;
use tokio::time::Instant;

use crate::broker::{GroupKind, TopicKind};
use crate::stage::{Stage, bodies};

const DELAY: Duration = Duration::from_secs(1);

/// On a normal topic every deferral counts, and after the last attempt the message is a dead letter.
pub(crate) async fn a_normal_message_dies_after_its_attempts(stage: Stage) {
    let plain = stage.plain(TopicKind::Normal, GroupKind::Normal, 3).await;
    let producer = stage.producer().await;
    let consumer = stage.consumer(&plain).await;
    producer.send_normal(&plain.topic, "0").await;

    for attempt in 1..=3 {
        let taken = consumer.take(1).await;
        assert_eq!(taken[0].attempt, attempt);
        consumer.defer(&taken[0], DELAY).await;
    }
    // The proxy moves it when somebody next asks for messages.
    let (graveyard, ()) = tokio::join!(stage.dead_letters(&plain), consumer.silence(Duration::from_secs(10)));
    let dead = graveyard.take(1).await;
    assert_eq!(bodies(&dead), ["0"]);
    graveyard.accept(&dead).await;
    consumer.silence(Duration::from_secs(5)).await;
}

/// A rejected normal message is a dead letter at once, and only there.
pub(crate) async fn a_rejected_normal_message_is_a_dead_letter(stage: Stage) {
    let plain = stage.plain(TopicKind::Normal, GroupKind::Normal, 17).await;
    let producer = stage.producer().await;
    let consumer = stage.consumer(&plain).await;
    producer.send_normal(&plain.topic, "0").await;

    let taken = consumer.take(1).await;
    consumer
        .settle(Verb::Reject { reason: "never".into() }, &taken[0])
        .await
        .expect("normal topics have dead letters");
    let graveyard = stage.dead_letters(&plain).await;
    let dead = graveyard.take(1).await;
    assert_eq!(bodies(&dead), ["0"]);
    graveyard.accept(&dead).await;
    consumer.silence(Duration::from_secs(5)).await;
}

/// Messages of a group come in order; a deferred head brings the rest of its group after it.
pub(crate) async fn a_message_group_keeps_its_order(stage: Stage) {
    let fifo = stage.plain(TopicKind::Fifo, GroupKind::Orderly, 17).await;
    let producer = stage.producer().await;
    let consumer = stage.consumer(&fifo).await;
    for number in 0..3 {
        producer.send_fifo(&fifo.topic, "a", &format!("{number}")).await;
    }
    let head = consumer.take_some().await;
    assert_eq!(bodies(&head)[0], "0");
    assert_eq!(head[0].message.group.as_deref(), Some("a"));
    consumer.defer(&head[0], DELAY).await;
    let mut seen = Vec::new();
    while seen.last().map(String::as_str) != Some("2") {
        let batch = consumer.take_some().await;
        seen.extend(bodies(&batch).into_iter().map(str::to_owned));
        consumer.accept(&batch).await;
    }
    assert_eq!(seen, ["0", "1", "2"], "after the deferral");
}

/// A message with a delivery time comes at that time, not before.
pub(crate) async fn a_delayed_message_comes_at_its_time(stage: Stage) {
    const LATER: Duration = Duration::from_secs(4);
    /// Delay queues work in whole seconds.
    const GRAIN: Duration = Duration::from_secs(1);
    let plain = stage.plain(TopicKind::Delay, GroupKind::Normal, 17).await;
    let producer = stage.producer().await;
    let consumer = stage.consumer(&plain).await;
    let before = Instant::now();
    producer.send_delayed(&plain.topic, LATER, "0").await;
    let taken = consumer.take(1).await;
    assert!(before.elapsed() + GRAIN >= LATER, "came after {:?}", before.elapsed());
    assert_eq!(bodies(&taken), ["0"]);
    consumer.accept(&taken).await;
}
