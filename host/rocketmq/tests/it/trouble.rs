//! Servers in trouble: forgotten settings, ended streams, bad answers, brokers that are down.

use std::time::Duration;

use tidegate_connector::ReceiveFault;
use tidegate_devbroker::{Call, ClientCommand, Effect, Fault, Method};
use tidegate_model::{SettleFault, Verb};
use tokio::time::Instant;

use crate::support::{ALL, Stage, bodies, eventually};

/// Reported as clients 903: after the server ended the stream, settings could never be sent again.
#[tokio::test]
async fn a_telemetry_stream_that_the_server_ends_is_opened_again_every_time() {
    let stage = Stage::start().await;
    stage.control.inject(Fault::new(Method::Telemetry, Effect::CloseStream, 6));
    let consumer = stage.consumer(stage.lite()).await;
    // The fall-back takes one, five are ended after their answer.
    eventually(|| (settings_seen(&stage) >= 7).then_some(())).await;
    stage.send_lite("tenant-1", 1).await;
    assert_eq!(consumer.receive(1).await.len(), 1);
    consumer.source.close().await;
}

/// Reported as clients 1137: for up to five minutes nothing came after a proxy's restart.
#[tokio::test]
async fn after_a_proxy_restart_settings_come_before_the_next_receive_and_consumption_goes_on() {
    let stage = Stage::start().await;
    let consumer = stage.consumer(stage.lite()).await;
    stage.send_lite("tenant-1", 1).await;
    let first = consumer.receive(1).await;
    stage.control.restart_proxy(Duration::from_millis(300)).await;
    stage.control.clear_requests();
    let restarted = Instant::now();
    stage.send_lite("tenant-2", 1).await;
    let second = consumer.receive(1).await;
    assert!(restarted.elapsed() < Duration::from_secs(10), "{:?}", restarted.elapsed());
    let calls: Vec<_> = stage.control.requests().into_iter().map(|seen| seen.call).collect();
    let settings = calls.iter().position(|call| matches!(call, Call::Settings { group, .. } if group == "G"));
    let receive = calls.iter().position(|call| matches!(call, Call::ReceiveMessage { .. }));
    assert!(settings.is_some() && settings < receive, "{calls:?}");
    let handles: Vec<_> = first.into_iter().chain(second).collect();
    let results = consumer.settle(&handles, Verb::Accept).await;
    assert!(results.iter().all(Result::is_ok), "a handle from before the restart is still good: {results:?}");
    consumer.source.close().await;
}

/// Reported as clients 824.
#[tokio::test]
async fn a_proxy_that_does_not_know_us_gets_our_settings_again() {
    let stage = Stage::start().await;
    let consumer = stage.consumer(stage.lite()).await;
    stage.send_lite("tenant-1", 1).await;
    consumer.receive(1).await;
    let before = settings_seen(&stage);
    let text = "cannot find client settings for this client";
    stage.control.inject(Fault::new(Method::Heartbeat, code(40_015, text), 1));
    eventually(|| (settings_seen(&stage) > before).then_some(())).await;
    eventually(|| consumer.source.status().is_none().then_some(())).await;
    consumer.source.close().await;
}

/// Brokers count subscriptions by name, so that a wildcard group is not refused (5.5.0); one that does so is understood.
#[tokio::test]
async fn a_subscription_quota_is_named() {
    let stage = Stage::start().await;
    let refusal = code(42_902, "lite subscription quota exceeded: 2000");
    stage.control.inject(Fault::new(Method::SyncLiteSubscription, refusal, u32::MAX));
    let consumer = stage.consumer(stage.lite()).await;
    let status = consumer.status(|status| status.contains("LITE_SUBSCRIPTION_QUOTA_EXCEEDED")).await;
    assert!(status.contains("42902") && status.contains("lite.sub.client.quota"), "{status}");
    stage.control.clear_faults();
    consumer.status_is_clear().await;
    consumer.source.close().await;
}

/// Reported as rocketmq 11138 and 8714: a proxy shows forgotten settings as a null pointer, in whatever words.
#[tokio::test]
async fn a_null_pointer_at_a_receive_also_sends_settings_again() {
    for text in
        ["Cannot invoke \"Settings.getClientType()\" because \"settings\" is null", "NullPointerException"]
    {
        let stage = Stage::start().await;
        let consumer = stage.consumer(stage.lite()).await;
        eventually(|| consumer.source.status().is_none().then_some(())).await;
        tokio::time::sleep(Duration::from_millis(3_100)).await;
        let before = settings_seen(&stage);
        stage.control.inject(Fault::new(Method::ReceiveMessage, code(50_001, text), 1));
        let error = consumer.source.receive(ALL).await.expect_err("the fault");
        assert_eq!(error.fault, ReceiveFault::Broker);
        stage.send_lite("tenant-1", 1).await;
        consumer.receive(1).await;
        assert!(settings_seen(&stage) > before, "{text}");
        consumer.source.close().await;
    }
}

/// Reported as rocketmq 10569: settings are taken, and then the client is unknown for ever.
#[tokio::test]
async fn a_server_that_never_knows_us_is_called_too_old() {
    let stage = Stage::start().await;
    let text = "cannot find client settings for this client";
    stage.control.inject(Fault::new(Method::Heartbeat, code(40_015, text), u32::MAX));
    let consumer = stage.consumer(stage.lite()).await;
    let status = consumer.status(|status| status.contains("too old")).await;
    assert!(status.contains("5.5.0 or newer"), "{status}");
    consumer.source.close().await;
}

/// Reported as rocketmq 10895: a group that the server does not take for this topic, from the start.
#[tokio::test]
async fn a_group_that_the_server_never_finds_is_named_with_its_remedy() {
    let stage = Stage::start().await;
    let fault = Fault::new(Method::SyncLiteSubscription, code(40_003, "group not found: G"), u32::MAX);
    stage.control.inject(fault);
    let consumer = stage.consumer(stage.lite()).await;
    let status = consumer.status(|status| status.contains("group not found")).await;
    assert!(status.contains("`G`") && status.contains("+lite.bind.topic=T"), "{status}");
    stage.control.clear_faults();
    consumer.status_is_clear().await;
    stage.send_lite("tenant-1", 1).await;
    consumer.receive(1).await;
    consumer.source.close().await;
}

/// Reported as rocketmq 9515: a change that is told to slow down comes back with an empty handle.
#[tokio::test]
async fn a_failed_change_keeps_the_old_handle() {
    let stage = Stage::start().await;
    let consumer = stage.consumer(stage.of("N", "GN", tidegate_rocketmq::TopicKind::Normal)).await;
    send_normal(&stage, 1).await;
    let delivery = consumer.receive(1).await.remove(0);
    stage.control.inject(Fault::new(Method::ChangeInvisibleDuration, code(42_900, "slow down"), 3));
    let error =
        consumer.settle_one(&delivery, Verb::Renew(Duration::from_secs(30))).await.expect_err("three");
    assert_eq!(error.fault, SettleFault::Broker);
    consumer.settle_one(&delivery, Verb::Accept).await.expect("the old handle is still good");
    let acked = stage.control.requests().into_iter().find_map(|seen| match seen.call {
        Call::AckMessage { entries, .. } => Some(entries),
        _ => None,
    });
    assert_eq!(acked.expect("an ack")[0].handle, *delivery.handle.text);
    consumer.source.close().await;
}

/// And one that is OK but names no handle leaves the old one in force too.
#[tokio::test]
async fn an_empty_handle_never_replaces_one() {
    let stage = Stage::start().await;
    let consumer = stage.consumer(stage.of("N", "GN", tidegate_rocketmq::TopicKind::Normal)).await;
    send_normal(&stage, 1).await;
    let delivery = consumer.receive(1).await.remove(0);
    stage.control.inject(Fault::new(Method::ChangeInvisibleDuration, Effect::EmptyHandle, 1));
    let handle = consumer.settle_one(&delivery, Verb::Renew(Duration::from_secs(30))).await.expect("changed");
    assert_eq!(handle, None);
    consumer.source.close().await;
}

/// Reported as clients 759: the new handle of a change was not stored, and the later ack failed.
#[tokio::test]
async fn a_change_gives_the_new_handle_and_an_ack_with_it_counts() {
    let stage = Stage::start().await;
    let consumer = stage.consumer(stage.of("N", "GN", tidegate_rocketmq::TopicKind::Normal)).await;
    send_normal(&stage, 1).await;
    let mut delivery = consumer.receive(1).await.remove(0);
    let renew = Verb::Renew(Duration::from_secs(30));
    let handle = consumer.settle_one(&delivery, renew).await.expect("changed").expect("a new handle");
    assert_ne!(handle.text, delivery.handle.text);
    delivery.handle = handle;
    consumer.settle_one(&delivery, Verb::Accept).await.expect("acknowledged");
    assert_eq!(stage.control.audit().unacked().count(), 0);
    consumer.source.close().await;
}

/// Reported as rocketmq 4953: a handle that is not known made endless errors.
#[tokio::test]
async fn a_stale_handle_is_a_counted_warning_asked_once() {
    let stage = Stage::start().await;
    let consumer = stage.consumer(stage.lite()).await;
    stage.control.inject(Fault::new(Method::ReceiveMessage, Effect::ExpiredHandle, 1));
    stage.send_lite("tenant-1", 1).await;
    let delivery = consumer.receive(1).await.remove(0);
    let error = consumer.settle_one(&delivery, Verb::Accept).await.expect_err("expired");
    assert_eq!(error.fault, SettleFault::LeaseGone);
    assert_eq!(stage.control.stats().count(Method::AckMessage), 1, "never retried");
    let metrics = stage.telemetry.encode();
    assert!(metrics.contains("tidegate_rocketmq_stale_handles_total{source=\"test\"} 1"), "{metrics}");
    consumer.source.close().await;
}

#[tokio::test]
async fn of_a_batch_only_the_entry_that_failed_fails() {
    let stage = Stage::start().await;
    let consumer = stage.consumer(stage.lite()).await;
    stage.send_lite("tenant-1", 1).await;
    stage.send_lite("tenant-2", 1).await;
    let mut deliveries = consumer.receive(2).await;
    deliveries[0].handle.text = "garbage".into();
    let results = consumer.settle(&deliveries, Verb::Accept).await;
    assert_eq!(results[0].as_ref().expect_err("garbage").fault, SettleFault::Refused);
    assert_eq!(results[1], Ok(None));
    consumer.source.close().await;
}

#[tokio::test]
async fn a_broker_hiccup_is_retried_and_the_message_acknowledged() {
    let stage = Stage::start().await;
    let consumer = stage.consumer(stage.lite()).await;
    stage.send_lite("tenant-1", 1).await;
    let delivery = consumer.receive(1).await.remove(0);
    let down = "connect to 127.0.0.1:10911 failed. RemotingConnectException";
    stage.control.inject(Fault::new(Method::AckMessage, code(50_001, down), 2));
    consumer.settle_one(&delivery, Verb::Accept).await.expect("the third try");
    assert_eq!(stage.control.stats().count(Method::AckMessage), 3);
    stage.send_lite("tenant-2", 1).await;
    let delivery = consumer.receive(1).await.remove(0);
    stage.control.inject(Fault::new(Method::AckMessage, code(50_001, down), 3));
    let error = consumer.settle_one(&delivery, Verb::Accept).await.expect_err("no fourth");
    assert_eq!(error.fault, SettleFault::Broker);
    consumer.source.close().await;
}

#[tokio::test]
async fn items_of_an_answer_may_come_in_any_order_or_break_off() {
    let stage = Stage::start().await;
    let consumer = stage.consumer(stage.lite()).await;
    for effect in [Effect::ReverseItems, Effect::OmitStatus, Effect::CutAfter(3)] {
        eventually(|| consumer.source.status().is_none().then_some(())).await;
        stage.control.inject(Fault::new(Method::ReceiveMessage, effect.clone(), 1));
        stage.send_lite("tenant-1", 3).await;
        let deliveries = consumer.receive(3).await;
        let mut bodies = bodies(&deliveries);
        // The fault reverses messages as well.
        bodies.sort();
        assert_eq!(bodies, ["0", "1", "2"], "{effect:?}");
        assert!(consumer.settle(&deliveries, Verb::Accept).await.iter().all(Result::is_ok));
    }
    consumer.source.close().await;
}

/// Measured: a broker that is down is reported within 10 ms.
#[tokio::test]
async fn a_broker_that_is_down_is_not_asked_in_a_hot_loop() {
    let stage = Stage::start().await;
    let consumer = stage.consumer(stage.lite()).await;
    stage.send_lite("tenant-1", 1).await;
    let first = consumer.receive(1).await;
    consumer.settle(&first, Verb::Accept).await;
    stage.control.clear_requests();
    stage.control.restart_broker(Duration::from_secs(3), Duration::from_millis(500));
    let down = Instant::now();
    while down.elapsed() < Duration::from_secs(3) {
        // A caller that does not wait by itself.
        let _ = consumer.source.receive(ALL).await;
    }
    let receives = stage.control.stats().count(Method::ReceiveMessage);
    assert!(receives <= 20, "{receives} in three seconds");
    eventually_sent(&stage).await;
    let again = consumer.receive(1).await;
    assert_eq!(again.len(), 1, "and it is asked again once it is back");
    consumer.source.close().await;
}

/// Measured: the thirty seconds' renewal alone left a consumer without messages for 62 s.
#[tokio::test]
async fn after_broker_trouble_the_subscription_is_renewed_soon() {
    let stage = Stage::start().await;
    let consumer = stage.consumer(stage.lite()).await;
    eventually(|| consumer.source.status().is_none().then_some(())).await;
    stage.control.clear_requests();
    let down = "send request to 127.0.0.1:10911 failed. RemotingSendRequestException";
    stage.control.inject(Fault::new(Method::ReceiveMessage, code(50_001, down), 1));
    stage.control.inject(Fault::new(Method::SyncLiteSubscription, code(40_402, "no route"), 1));
    consumer.source.receive(ALL).await.expect_err("the fault");
    let begun = Instant::now();
    eventually(|| (stage.control.stats().count(Method::SyncLiteSubscription) >= 2).then_some(())).await;
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    consumer.source.close().await;
}

#[tokio::test]
async fn commands_of_the_server_are_obeyed() {
    let stage = Stage::start().await;
    let consumer = stage.consumer(stage.lite()).await;
    stage.send_lite("tenant-1", 1).await;
    consumer.receive(1).await;
    let client = stage.control.lite_clients("T", "G").remove(0);
    assert!(stage.control.send_command(&client, &ClientCommand::PrintThreadStackTrace));
    assert!(stage.control.send_command(&client, &ClientCommand::UnsubscribeLite("tenant-1".into())));
    let before = settings_seen(&stage);
    assert!(stage.control.send_command(&client, &ClientCommand::ReconnectEndpoints));
    eventually(|| (settings_seen(&stage) > before).then_some(())).await;
    stage.send_lite("tenant-2", 1).await;
    consumer.receive(1).await;
    consumer.source.close().await;
}

async fn send_normal(stage: &Stage, count: usize) {
    let producer = stage.producer().await;
    for number in 0..count {
        producer.send(tidegate_rocketmq::Outgoing::normal("N", number.to_string())).await.expect("sent");
    }
    producer.close().await;
}

async fn eventually_sent(stage: &Stage) {
    let producer = stage.producer().await;
    let sending = async {
        while producer.send(tidegate_rocketmq::Outgoing::lite("T", "tenant-9", "x")).await.is_err() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(crate::support::PATIENCE, sending).await.expect("sent in the end");
    producer.close().await;
}

fn settings_seen(stage: &Stage) -> usize {
    let requests = stage.control.requests();
    requests.iter().filter(|seen| matches!(&seen.call, Call::Settings { group, .. } if group == "G")).count()
}

fn code(code: i32, message: &str) -> Effect {
    Effect::Code { code, message: message.to_owned() }
}
