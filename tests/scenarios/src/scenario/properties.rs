//! Properties of messages.

use crate::stage::{Stage, bodies};

/// The property by which the broker puts a message into its lite topic.
const INTERNAL: &str = "INNER_MULTI_DISPATCH";

/// The broker adds a property of its own to every lite message; whoever sent it on with a copy of the message would
/// have the broker put the copy into the lite topic once more, where nobody can acknowledge it.
pub(crate) async fn the_brokers_internal_property_never_shows(stage: Stage) {
    let lite = stage.lite().await;
    let producer = stage.producer().await;
    let consumer = stage.consumer(&lite).await;
    producer
        .send_lite_with(&lite.topic, "a", "0", &[("colour", "blue")])
        .await
        .expect("a user's own property");

    let taken = consumer.take(1).await;
    assert_eq!(bodies(&taken), ["0"]);
    let names: Vec<&str> = taken[0].message.properties.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["colour"]);
    assert_eq!(taken[0].message.property("colour"), Some("blue"));
    consumer.accept(&taken).await;
    stage.all_acknowledged(&lite).await;
}

/// The producer refuses to send it, and says which property it was.
pub(crate) async fn the_brokers_internal_property_is_not_sent(stage: Stage) {
    let lite = stage.lite().await;
    let producer = stage.producer().await;
    let refusal = producer.send_lite_with(&lite.topic, "a", "0", &[(INTERNAL, "%LMQ%$other$a")]).await;
    let sentence = refusal.expect_err("refused before it leaves the host");
    assert!(sentence.contains(INTERNAL), "{sentence}");
    assert_eq!(stage.broker.unacknowledged(&lite.group, &lite.topic).await, 0, "nothing reached the broker");
}
