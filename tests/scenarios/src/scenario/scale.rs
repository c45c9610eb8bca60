//! Many lite topics.

use std::collections::HashSet;
use std::time::Duration;

use futures::StreamExt as _;
use tokio::time::Instant;

use crate::stage::Stage;

/// A backlog on two thousand lite topics that was there before the first client came.
pub(crate) async fn two_thousand_lite_topics_with_a_backlog(stage: Stage) {
    const LITE_TOPICS: usize = 2_000;
    const SENDS_IN_FLIGHT: usize = 16;
    /// First deliveries to a new client came after 13 to 15 s, then 3,000 messages a second on a quiet machine.
    const LIMIT: Duration = Duration::from_secs(120);
    let lite = stage.lite().await;
    let producer = stage.producer().await;
    futures::stream::iter(0..LITE_TOPICS)
        .map(|name| {
            let (producer, topic) = (&producer, &lite.topic);
            async move { producer.send_lite(topic, &format!("lite-{name}"), "0").await }
        })
        .buffer_unordered(SENDS_IN_FLIGHT)
        .collect::<()>()
        .await;
    let consumer = stage.consumer(&lite).await;

    let deadline = Instant::now() + LIMIT;
    let mut seen = HashSet::new();
    while seen.len() < LITE_TOPICS {
        assert!(Instant::now() < deadline, "{} of {LITE_TOPICS} lite topics within {LIMIT:?}", seen.len());
        let batch = consumer.poll().await;
        consumer.accept(&batch).await;
        seen.extend(batch.into_iter().map(|delivery| delivery.message.lite_topic.clone()));
    }
    stage.all_acknowledged(&lite).await;
}
