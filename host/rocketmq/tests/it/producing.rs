//! Sending.

use std::collections::HashSet;

use tidegate_devbroker::{Call, Effect, Fault, Method, Topology};
use tidegate_model::Verb;
use tidegate_rocketmq::{Outgoing, SendError};

use crate::support::{Stage, options};

#[tokio::test]
async fn several_messages_of_a_topic_share_a_request_and_have_their_own_results() {
    let stage = Stage::start().await;
    let producer = stage.producer().await;
    let mut messages: Vec<_> = (0..50).map(|n| Outgoing::normal("N", n.to_string())).collect();
    messages.push(Outgoing::normal("N", ""));
    messages.push(Outgoing::normal("N", "y"));
    let results = producer.send_batch(messages).await;
    assert_eq!(results.len(), 52);
    assert!(matches!(results[50], Err(SendError::Invalid { .. })), "{:?}", results[50]);
    let ids: HashSet<_> = results.iter().flatten().map(|sent| sent.message_id.clone()).collect();
    assert_eq!(ids.len(), 51);
    assert!(ids.iter().all(|id| id.as_str().len() == 34));
    let requests = stage.control.stats().count(Method::SendMessage);
    assert!(requests <= 2, "{requests}");
    producer.close().await;
}

/// Several lite messages in one request are answered OK and never reach their lite topics (measured on 5.5.0).
#[tokio::test]
async fn every_lite_message_has_a_request_of_its_own_and_those_of_a_lite_topic_keep_their_order() {
    let stage = Stage::start().await;
    let producer = stage.producer().await;
    let messages = (0..40).map(|n| Outgoing::lite("T", format!("tenant-{}", n % 2), n.to_string())).collect();
    let sent: Vec<_> =
        producer.send_batch(messages).await.into_iter().map(|sent| sent.expect("sent")).collect();
    assert_eq!(stage.control.stats().count(Method::SendMessage), 40);
    let consumer = stage.consumer(stage.lite()).await;
    let mut deliveries = Vec::new();
    while deliveries.len() < 40 {
        let more = consumer.receive(1).await;
        assert!(consumer.settle(&more, Verb::Accept).await.iter().all(Result::is_ok));
        deliveries.extend(more);
    }
    for tenant in 0..2 {
        let expected: Vec<_> = sent.iter().skip(tenant).step_by(2).map(|sent| &sent.message_id).collect();
        let name = format!("tenant-{tenant}");
        let of_tenant = deliveries.iter().filter(|delivery| delivery.order.as_deref() == Some(&*name));
        assert_eq!(of_tenant.map(|delivery| &delivery.message.id).collect::<Vec<_>>(), expected);
    }
    consumer.source.close().await;
    producer.close().await;
}

#[tokio::test]
async fn a_failure_is_tried_again_up_to_three_times() {
    let stage = Stage::start().await;
    let producer = stage.producer().await;
    let down = || Effect::Code { code: 50_001, message: "RemotingConnectException".into() };
    stage.control.inject(Fault::new(Method::SendMessage, down(), 2));
    producer.send(Outgoing::normal("N", "x")).await.expect("the third attempt");
    stage.control.inject(Fault::new(Method::SendMessage, down(), 3));
    let error = producer.send(Outgoing::normal("N", "x")).await.expect_err("no fourth");
    assert!(matches!(error, SendError::Failed { attempts: 3, .. }), "{error:?}");
    assert!(error.is_retryable());
    producer.close().await;
}

#[tokio::test]
async fn a_further_attempt_goes_to_another_broker() {
    let mut options = options();
    options.more_listeners = vec![([127, 0, 0, 1], 0).into()];
    options.topology = Topology::Local;
    let stage = Stage::with(options).await;
    let producer = stage.producer().await;
    let unavailable = Effect::Grpc { code: 14, message: "gone".into() };
    stage.control.inject(Fault::new(Method::SendMessage, unavailable, 1));
    producer.send(Outgoing::normal("N", "x")).await.expect("the other broker");
    let proxies: Vec<_> = stage
        .control
        .requests()
        .into_iter()
        .filter(|seen| matches!(seen.call, Call::SendMessage { .. }))
        .map(|seen| seen.proxy)
        .collect();
    assert!(proxies.contains(&0) || proxies.contains(&1), "{proxies:?}");
    let first_stored = proxies.last().copied();
    // The one that failed is left alone until it answers a heartbeat.
    producer.send(Outgoing::normal("N", "y")).await.expect("sent");
    let after = stage.control.requests().into_iter().rev().find_map(|seen| match seen.call {
        Call::SendMessage { .. } => Some(seen.proxy),
        _ => None,
    });
    assert_eq!(after, first_stored);
    producer.close().await;
}

#[tokio::test]
async fn a_topic_of_another_kind_or_name_gets_a_sentence() {
    let stage = Stage::start().await;
    let producer = stage.producer().await;
    let error = producer.send(Outgoing::normal("T", "x")).await.expect_err("a lite topic");
    assert_eq!(error.to_string(), "topic `T` takes no NORMAL messages; its `message.type` is LITE");
    let error = producer.send(Outgoing::normal("nowhere", "x")).await.expect_err("no such topic");
    let SendError::Failed { attempts: 0, source, .. } = error else { panic!("{error:?}") };
    assert!(source.to_string().contains("create topic `nowhere`"), "{source}");
    producer.close().await;
}

/// Measured: after a broker's restart a proxy does not know for a moment what its topics take.
#[tokio::test]
async fn a_topic_whose_kind_is_not_known_yet_is_tried() {
    let stage = Stage::start().await;
    let producer = stage.producer().await;
    stage.control.inject(Fault::new(Method::QueryRoute, Effect::UnknownKinds, 1));
    let text = "the expected type is UNSPECIFIED, but actual type is LITE";
    let conflict = || Effect::Code { code: 40_014, message: text.into() };
    stage.control.inject(Fault::new(Method::SendMessage, conflict(), 3));
    let error = producer.send(Outgoing::lite("T", "tenant-1", "x")).await.expect_err("not yet");
    assert!(error.is_retryable(), "{error:?}");
    producer.send(Outgoing::lite("T", "tenant-1", "x")).await.expect("sent");
    let error = producer.send(Outgoing::normal("T", "x")).await.expect_err("the kind is known again");
    assert!(matches!(error, SendError::WrongKind { .. }), "{error:?}");
    producer.close().await;
}

#[tokio::test]
async fn clones_send_at_the_same_time() {
    let stage = Stage::start().await;
    let producer = stage.producer().await;
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..20 {
        let producer = producer.clone();
        tasks.spawn(async move { producer.send(Outgoing::lite("T", "tenant-1", number.to_string())).await });
    }
    while let Some(sent) = tasks.join_next().await {
        sent.expect("no panic").expect("sent");
    }
    assert_eq!(stage.control.stats().count(Method::QueryRoute), 1, "one route for all");
    producer.close().await;
}
