//! Order within a lite topic, independence between them.

use std::collections::HashMap;
use std::time::Duration;

use crate::stage::{Stage, bodies};

/// Messages of a lite topic come in the order in which they were sent, whatever happens in others.
pub(crate) async fn a_lite_topic_keeps_its_order(stage: Stage) {
    const LITE_TOPICS: usize = 5;
    const MESSAGES: usize = 20;
    let lite = stage.lite().await;
    let consumer = stage.consumer(&lite).await;
    let producer = stage.producer().await;
    for number in 0..MESSAGES {
        for name in 0..LITE_TOPICS {
            producer.send_lite(&lite.topic, &format!("lite-{name}"), &format!("{number}")).await;
        }
    }

    let mut next: HashMap<String, usize> = HashMap::new();
    let mut taken = 0;
    while taken < LITE_TOPICS * MESSAGES {
        let batch = consumer.take_some().await;
        for delivery in &batch {
            let name = delivery.message.lite_topic.as_deref().expect("a lite message has its lite topic");
            let expected = next.entry(name.to_owned()).or_default();
            assert_eq!(bodies(std::slice::from_ref(delivery)), [expected.to_string()], "in {name}");
            assert_eq!(delivery.order.as_deref(), Some(name), "a lite topic is an ordered key");
            *expected += 1;
        }
        taken += batch.len();
        consumer.accept(&batch).await;
    }
    stage.all_acknowledged(&lite).await;
}

/// What is held in one lite topic holds nothing back in others, and everything in its own.
pub(crate) async fn a_held_head_blocks_only_its_lite_topic(stage: Stage) {
    let lite = stage.lite().await;
    let consumer = stage.consumer(&lite).await;
    let producer = stage.producer().await;
    producer.send_lite(&lite.topic, "held", "held-0").await;
    let head = consumer.take(1).await;
    assert_eq!(bodies(&head), ["held-0"]);

    producer.send_lite(&lite.topic, "held", "held-1").await;
    producer.send_lite(&lite.topic, "free", "free-0").await;
    let free = consumer.take(1).await;
    assert_eq!(bodies(&free), ["free-0"]);
    consumer.accept(&free).await;
    // Short of the head's lease of ten seconds, with the time that the lines above took in mind.
    consumer.silence(Duration::from_secs(3)).await;

    consumer.accept(&head).await;
    let next = consumer.take(1).await;
    assert_eq!(bodies(&next), ["held-1"]);
    consumer.accept(&next).await;
    stage.all_acknowledged(&lite).await;
}
