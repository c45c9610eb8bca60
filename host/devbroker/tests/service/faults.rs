//! Ordered faults and what the control handle tells.

use std::time::Duration;

use tidegate_devbroker::{Broker, Call, ClientCommand, Effect, Fault, Method};
use tidegate_proto::rocketmq::telemetry_command::Command;

use crate::client::*;

#[tokio::test]
async fn receives_come_reversed_headless_cut_or_not_at_all() {
    let broker = Broker::start(options()).await.unwrap();
    let control = broker.control();
    let mut client = Client::lite(&broker, "c").await;
    for at in 0..5 {
        client.send_all(&["m-0", "m-1"], &format!("L{at}")).await;
    }
    let inject = |effect| control.inject(Fault::new(Method::ReceiveMessage, effect, 1));
    inject(Effect::ReverseItems);
    assert_eq!(client.receive(2, 10).await.order, ["time", "message", "message", "status"]);
    inject(Effect::OmitStatus);
    assert_eq!(client.receive(2, 10).await.order, ["message", "message", "time"]);
    inject(Effect::CutAfter(1));
    let message = client.receive_request(2, 10);
    let cut = client.receive_with(message, Some(Duration::from_secs(9))).await.err().unwrap();
    assert_eq!(cut.code(), tonic::Code::Unavailable);
    inject(Effect::CloseStream);
    assert!(client.receive(2, 10).await.order.is_empty());
    inject(Effect::Code { code: 42_900, message: "slow down".to_owned() });
    let refused = client.receive(2, 10).await;
    assert_eq!((refused.code, refused.text.as_str()), (42_900, "slow down"));
    assert_eq!(client.receive(2, 10).await.messages.len(), 2, "the faults are used up");
    broker.stop().await;
}

#[tokio::test]
async fn handles_come_stale_expired_or_empty() {
    let broker = Broker::start(options()).await.unwrap();
    let control = broker.control();
    let mut client = Client::lite(&broker, "c").await;
    for at in 0..2 {
        client.send_lite("m", &format!("L{at}")).await;
    }
    control.inject(Fault::new(Method::ReceiveMessage, Effect::StaleHandle, 1));
    let stale = client.receive(1, 10).await.messages.remove(0);
    assert_eq!(client.ack(&stale).await.0, 20_000);
    control.inject(Fault::new(Method::ReceiveMessage, Effect::ExpiredHandle, 1));
    let expired = client.receive(1, 10).await.messages.remove(0);
    assert_eq!(client.ack(&expired).await.0, 40_013);
    control.advance(Duration::from_secs(10));
    let messages = client.gather(2, 10).await;
    control.inject(Fault::new(Method::ChangeInvisibleDuration, Effect::EmptyHandle, 1));
    let change = client.change(&messages[0], 5, Some(true)).await;
    assert_eq!((code(&change.status), change.receipt_handle.as_str()), (20_000, ""));
    let refusal = Effect::Code { code: 42_900, message: String::new() };
    control.inject(Fault::new(Method::ChangeInvisibleDuration, refusal, 1));
    let change = client.change(&messages[1], 5, Some(true)).await;
    assert_eq!((code(&change.status), change.receipt_handle.as_str()), (42_900, ""));
    assert_eq!(client.ack(&messages[1]).await.0, 20_000);
    broker.stop().await;
}

#[tokio::test]
async fn a_dropped_reply_is_work_done_and_faults_can_be_for_one_client() {
    let broker = Broker::start(options()).await.unwrap();
    let control = broker.control();
    let mut client = Client::lite(&broker, "c").await;
    let mut other = Client::connect(&broker, "other", "LT", "GL", LITE).await;
    client.send_lite("m", "L").await;
    let message = client.gather(1, 10).await.remove(0);
    control.inject(Fault::new(Method::AckMessage, Effect::DropReply, 1).of_client("c"));
    control.inject(Fault::new(Method::QueryRoute, Effect::Grpc { code: 14, message: "gone".into() }, 1));
    let never = tokio::time::timeout(Duration::from_millis(100), client.ack(&message)).await;
    assert!(never.is_err());
    assert_eq!(other.ack(&message).await.0, 20_000);
    assert_eq!(control.audit().unacked().count(), 0);
    let request = other.request(Default::default(), None);
    assert_eq!(other.grpc.query_route(request).await.unwrap_err().code(), tonic::Code::Unavailable);
    assert_eq!(control.stats().count(Method::AckMessage), 2);
    broker.stop().await;
}

#[tokio::test]
async fn telemetry_streams_end_and_carry_commands() {
    let broker = Broker::start(options()).await.unwrap();
    let control = broker.control();
    let mut client = Client::connect(&broker, "c", "LT", "GL", LITE).await;
    control.inject(Fault::new(Method::Telemetry, Effect::CloseStream, 1));
    let (_, mut stream) = client.settle_with(client.settings()).await.unwrap();
    assert_eq!(stream.message().await.unwrap(), None, "a clean end after the first answer");
    let (_, mut stream) = client.settle_with(client.settings()).await.unwrap();
    assert!(control.send_command("c", &ClientCommand::ReconnectEndpoints));
    let command = stream.message().await.unwrap().unwrap().command.unwrap();
    assert!(matches!(command, Command::ReconnectEndpointsCommand(_)));
    assert!(!control.send_command("nobody", &ClientCommand::PrintThreadStackTrace));
    broker.stop().await;
}

#[tokio::test]
async fn requests_are_counted_and_kept() {
    let broker = Broker::start(options()).await.unwrap();
    let control = broker.control();
    let mut client = Client::lite(&broker, "c").await;
    client.send_lite("m", "L").await;
    let message = client.gather(1, 10).await.remove(0);
    client.change(&message, 5, Some(true)).await;
    client.ack(&message).await;
    let stats = control.stats();
    assert_eq!(stats.requests[&Method::SyncLiteSubscription]["c"], 1);
    assert_eq!(stats.settings["c"].client_type, LITE);
    assert_eq!(stats.messages_held, 1);
    let calls: Vec<Call> = control.requests().into_iter().map(|seen| seen.call).collect();
    assert!(calls.iter().any(|call| matches!(
        call,
        Call::ChangeInvisible { suspend: Some(true), lite_topic: Some(name), .. } if name == "L"
    )));
    assert!(calls.iter().any(|call| matches!(
        call,
        Call::SyncLite { action: 2, lite_topics, .. } if lite_topics.is_empty()
    )));
    control.clear_requests();
    assert_eq!(control.requests().len(), 0);
    broker.stop().await;
}
