//! Certificates and credentials.

use tidegate_connector::ReceiveFault;
use tidegate_rocketmq::{ClientOptions, SourceOptions, Start, Tls, TopicKind, Trust};

use crate::broker::{GRANTED_GROUP, GRANTED_TOPIC, GroupKind, Login};
use crate::stage::{ATTEMPTS_MAX, Consumer, Stage, Subscription, bodies};

/// A message through TLS, checked against the cluster's own authority, signed by the administrator.
pub(crate) async fn tls_with_the_clusters_own_authority(stage: Stage) {
    let authority = stage.security().authority_file.clone();
    through(&stage, Trust::CaFile(authority)).await;
}

/// The same without a check, by explicit choice.
pub(crate) async fn any_certificate_is_taken_when_told_to(stage: Stage) {
    through(&stage, Trust::Anyone).await;
}

/// The system's authorities know nothing of the cluster's.
pub(crate) async fn an_unknown_certificate_is_refused_in_a_sentence(stage: Stage) {
    let lite = stage.lite().await;
    let admin = stage.security().admin.clone();
    let consumer = background(&stage, &lite, |options| {
        options.client = ClientOptions { tls: tls(Trust::SystemRoots), ..stage.signed(&admin) };
    })
    .await;
    // The option is what helps.
    consumer.trouble(&["certificate", "rocketmq.client.tls-ca-file"]).await;
}

/// The right user with a wrong secret.
pub(crate) async fn a_wrong_secret_is_named(stage: Stage) {
    let lite = stage.lite().await;
    let wrong = Login { secret_key: "not-the-secret".into(), ..stage.security().admin.clone() };
    let sentence = denied(&stage, &lite, |options| options.client = stage.signed(&wrong)).await;
    assert!(sentence.contains("rocketmq.client.secret-key"), "{sentence}");
    assert!(!sentence.contains("not-the-secret"), "a secret shows: {sentence}");
}

/// No credentials where some are wanted.
pub(crate) async fn no_secret_at_all_is_named(stage: Stage) {
    let lite = stage.lite().await;
    let sentence = denied(&stage, &lite, |_| {}).await;
    assert!(sentence.contains("rocketmq.client.access-key"), "{sentence}");
}

/// A user who may use another topic, and may use it.
pub(crate) async fn a_missing_right_is_named(stage: Stage) {
    let lite = stage.lite().await;
    let limited = stage.security().limited.clone();
    let sentence = denied(&stage, &lite, |options| options.client = stage.signed(&limited)).await;
    assert!(sentence.contains(&lite.topic), "{sentence}");
    assert!(sentence.contains(&limited.access_key), "{sentence}");

    let granted =
        Subscription { topic: GRANTED_TOPIC.into(), group: GRANTED_GROUP.into(), kind: TopicKind::Lite };
    stage.broker.create_topic(&granted.topic, granted.kind).await;
    stage.broker.create_group(&granted.group, GroupKind::wildcard(&granted.topic), ATTEMPTS_MAX).await;
    let consumer = stage.consumer_with(&granted, |options| options.client = stage.signed(&limited)).await;
    let producer = stage.producer_with(stage.signed(&limited)).await;
    producer.send_lite(&granted.topic, "a", "0").await;
    let taken = consumer.take(1).await;
    assert_eq!(bodies(&taken), ["0"]);
    consumer.accept(&taken).await;
}

async fn through(stage: &Stage, trust: Trust) {
    let lite = stage.lite().await;
    let admin = stage.security().admin.clone();
    let client = ClientOptions { tls: tls(trust), ..stage.signed(&admin) };
    let producer = stage.producer_with(client.clone()).await;
    let consumer = stage.consumer_with(&lite, |options| options.client = client).await;
    producer.send_lite(&lite.topic, "a", "0").await;
    let taken = consumer.take(1).await;
    assert_eq!(bodies(&taken), ["0"]);
    consumer.accept(&taken).await;
    stage.all_acknowledged(&lite).await;
}

async fn denied(stage: &Stage, lite: &Subscription, change: impl FnOnce(&mut SourceOptions)) -> String {
    let consumer = background(stage, lite, change).await;
    let refusal = consumer.refusal().await;
    assert_eq!(refusal.fault, ReceiveFault::Access, "{refusal}");
    refusal.to_string()
}

async fn background(stage: &Stage, lite: &Subscription, change: impl FnOnce(&mut SourceOptions)) -> Consumer {
    stage
        .consumer_with(lite, |options| {
            options.start = Start::InBackground;
            change(options);
        })
        .await
}

fn tls(trust: Trust) -> Tls {
    Tls::On { trust, identity: None }
}
