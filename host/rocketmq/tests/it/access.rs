//! Keys and rights.

use std::sync::Arc;

use secrecy::SecretString;
use tidegate_connector::ReceiveFault;
use tidegate_devbroker::User;
use tidegate_model::Verb;
use tidegate_rocketmq::{Fixed, Keys, Outgoing, Producer, SourceOptions, TopicKind};

use crate::support::{ALL, Stage, options};

#[tokio::test]
async fn right_keys_consume_and_send() {
    let stage = guarded().await;
    let producer = producer(&stage, "alice", "right").await;
    producer.send(Outgoing::lite("T", "tenant-1", "x")).await.expect("sent");
    let consumer = stage.consumer(source(&stage, "alice", "right")).await;
    let deliveries = consumer.receive(1).await;
    assert!(consumer.settle(&deliveries, Verb::Accept).await.iter().all(Result::is_ok));
    consumer.source.close().await;
    producer.close().await;
}

#[tokio::test]
async fn wrong_keys_are_named_with_their_options_and_never_shown() {
    let stage = guarded().await;
    let consumer = stage.consumer(source(&stage, "alice", "hunter2")).await;
    let status = consumer.status(|status| status.contains("40100")).await;
    assert!(status.contains("rocketmq.client.secret-key"), "{status}");
    assert!(!status.contains("hunter2"), "{status}");
    let error = consumer.source.receive(ALL).await.expect_err("refused");
    assert_eq!(error.fault, ReceiveFault::Access);
    consumer.source.close().await;
    let producer = producer(&stage, "alice", "hunter2").await;
    let error = producer.send(Outgoing::lite("T", "tenant-1", "x")).await.expect_err("refused");
    assert!(!error.is_retryable());
    producer.close().await;
}

#[tokio::test]
async fn a_missing_right_names_topic_and_group() {
    let stage = guarded().await;
    let mut options = source(&stage, "alice", "right");
    options.topic = "N".into();
    options.group = "GN".into();
    options.topic_kind = TopicKind::Normal;
    let consumer = stage.consumer(options).await;
    let status = consumer.status(|status| status.contains("40100")).await;
    assert!(status.contains("`N`") && status.contains("`GN`"), "{status}");
    consumer.source.close().await;
}

/// A broker that only `alice` may use, and of it only some.
pub(crate) async fn guarded() -> Stage {
    let mut options = options();
    options.users = vec![User {
        access_key: "alice".into(),
        secret_key: "right".into(),
        is_admin: false,
        topics: vec!["T".into()],
        groups: vec!["G".into()],
    }];
    Stage::with(options).await
}

fn source(stage: &Stage, access_key: &str, secret_key: &str) -> SourceOptions {
    let mut options = stage.lite();
    options.client.credentials = keys(access_key, secret_key);
    options
}

async fn producer(stage: &Stage, access_key: &str, secret_key: &str) -> Producer {
    let mut options = stage.client();
    options.credentials = keys(access_key, secret_key);
    Producer::connect(options, stage.clock, stage.telemetry.clone(), "p".into()).await.expect("set up")
}

fn keys(access_key: &str, secret_key: &str) -> Arc<Fixed> {
    Arc::new(Fixed::new(Keys::new(access_key, SecretString::from(secret_key.to_owned()))))
}
