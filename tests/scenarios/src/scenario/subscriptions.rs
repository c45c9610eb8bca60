//! Topics and groups that do not fit: each gets a sentence that names what is wrong.

use tidegate_connector::ReceiveFault;
use tidegate_rocketmq::{SourceOptions, Start, TopicKind};

use crate::broker::GroupKind;
use crate::stage::{ATTEMPTS_MAX, Consumer, Stage, Subscription};

/// Without the attribute the server takes the subscription and never delivers: the source says so by itself.
pub(crate) async fn a_missing_wildcard_attribute_is_named(stage: Stage) {
    let topic = stage.own("topic");
    let group = GroupKind::Lite { bind: topic.clone(), wildcard: false };
    let lite = stage.subscription(TopicKind::Lite, group, ATTEMPTS_MAX).await;
    let producer = stage.producer().await;
    producer.send_lite(&lite.topic, "a", "0").await;
    let report = stage.check(&lite).await;
    assert!(report.contains("lite.sub.wildcard"), "{report}");
    assert!(report.contains(&lite.group), "{report}");
}

/// A group can be bound to one main topic only.
pub(crate) async fn a_group_bound_elsewhere_is_named(stage: Stage) {
    let group = GroupKind::wildcard("another-topic");
    let lite = stage.subscription(TopicKind::Lite, group, ATTEMPTS_MAX).await;
    refused(&stage, &lite, &["another-topic", &lite.topic, &lite.group]).await;
}

/// A group without `lite.bind.topic` is a regular one.
pub(crate) async fn a_regular_group_is_named(stage: Stage) {
    let lite = stage.subscription(TopicKind::Lite, GroupKind::Normal, ATTEMPTS_MAX).await;
    refused(&stage, &lite, &["lite.bind.topic", &lite.group]).await;
}

/// A topic that the cluster does not have.
pub(crate) async fn an_unknown_topic_is_named(stage: Stage) {
    let unknown =
        Subscription { topic: stage.own("topic"), group: stage.own("group"), kind: TopicKind::Lite };
    stage.broker.create_group(&unknown.group, GroupKind::wildcard(&unknown.topic), ATTEMPTS_MAX).await;
    refused(&stage, &unknown, &[&unknown.topic]).await;
}

/// A topic of another type has no lite topics.
pub(crate) async fn a_topic_without_lite_topics_is_named(stage: Stage) {
    let topic = stage.own("topic");
    let normal = stage.subscription(TopicKind::Normal, GroupKind::wildcard(&topic), ATTEMPTS_MAX).await;
    let lite = Subscription { kind: TopicKind::Lite, ..normal };
    refused(&stage, &lite, &[&lite.topic, "message.type"]).await;
}

/// The most common mistake of all: the name server's port in place of the proxy's.
pub(crate) async fn the_name_servers_port_is_named(stage: Stage) {
    let lite = stage.lite().await;
    let address = stage.broker.name_server();
    let consumer = background(&stage, &lite, |options| options.client = stage.client_at(&address)).await;
    // 8081 is the proxy's usual port.
    consumer.trouble(&[&address, "8081"]).await;
}

async fn refused(stage: &Stage, subscription: &Subscription, words: &[&str]) {
    let consumer = background(stage, subscription, |_| {}).await;
    let refusal = consumer.refusal().await;
    assert_eq!(refusal.fault, ReceiveFault::Subscription, "{refusal}");
    let sentence = refusal.to_string();
    for word in words {
        assert!(sentence.contains(word), "`{word}` is not in: {sentence}");
    }
    let status = consumer.status().expect("a source that is refused says so");
    assert!(status.contains(words[0]), "`{}` is not in the status: {status}", words[0]);
}

async fn background(
    stage: &Stage,
    subscription: &Subscription,
    change: impl FnOnce(&mut SourceOptions),
) -> Consumer {
    stage
        .consumer_with(subscription, |options| {
            options.start = Start::InBackground;
            change(options);
        })
        .await
}
