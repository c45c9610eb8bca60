//! Normal groups, dead letters, FIFO topics under both kinds of group, DELAY messages.

use std::time::Duration;

use tidegate_devbroker::{Broker, Control};
use tidegate_proto::rocketmq as wire;

use crate::client::*;

async fn start(topic: &str, group: &str) -> (Broker, Control, Client) {
    let broker = Broker::start(options()).await.unwrap();
    let client = Client::simple(&broker, "s", topic, group).await;
    let control = broker.control();
    (broker, control, client)
}

async fn send(client: &mut Client, bodies: &[&str]) {
    let messages = bodies.iter().map(|body| client.message(body)).collect();
    assert_eq!(code(&client.send(messages).await.status), 20_000);
}

async fn send_in_group(client: &mut Client, bodies: &[&str], group: &str) {
    for body in bodies {
        let mut message = client.message(body);
        message.system_properties.as_mut().unwrap().message_group = Some(group.to_owned());
        assert_eq!(code(&client.send(vec![message]).await.status), 20_000);
    }
}

fn forward(control: &Control, milliseconds: u64) {
    control.advance(Duration::from_millis(milliseconds));
}

fn bodies(messages: &[wire::Message]) -> Vec<String> {
    messages.iter().map(body).collect()
}

#[tokio::test]
async fn an_unacked_message_comes_again_two_seconds_late_with_a_new_offset() {
    let (broker, control, mut client) = start("NT", "GN").await;
    send(&mut client, &["filler", "m"]).await;
    let first = client.gather(2, 10).await;
    assert_eq!(client.ack(&first[0]).await.0, 20_000);
    forward(&control, 10_000);
    client.finds_nothing().await;
    assert_eq!(client.ack(&first[1]).await.0, 40_013);
    assert_eq!(code(&client.change(&first[1], 5, None).await.status), 40_013);
    forward(&control, 2_100);
    let again = client.gather(1, 10).await.remove(0);
    assert_eq!((body(&again), attempt(&again)), ("m".to_owned(), 2));
    let kind = handle(&again).split(' ').nth(4).unwrap().to_owned();
    assert_eq!(kind, "1", "it comes from the group's retry topic");
    assert_eq!(client.ack(&again).await.0, 20_000);
    assert_eq!(client.ack(&again).await.0, 20_000);
    forward(&control, 60_000);
    client.finds_nothing().await;
    broker.stop().await;
}

#[tokio::test]
async fn a_change_takes_the_old_handles_power_away() {
    let (broker, control, mut client) = start("NT", "GN").await;
    send(&mut client, &["m"]).await;
    let first = client.gather(1, 15).await.remove(0);
    let renewed = client.change(&first, 3, None).await;
    assert_eq!(code(&renewed.status), 20_000);
    assert_ne!(renewed.receipt_handle, handle(&first));
    assert_eq!(client.ack(&first).await.0, 20_000, "answered with OK, without effect");
    forward(&control, 5_100);
    let again = client.gather(1, 15).await.remove(0);
    assert_eq!(attempt(&again), 2);
    let renewed = client.change(&again, 30, None).await.receipt_handle;
    let again = with_handle(&again, &renewed);
    assert_eq!(client.ack(&again).await.0, 20_000);
    forward(&control, 20_000);
    client.finds_nothing().await;
    // Never renew after an ack: that brings the message back.
    assert_eq!(code(&client.change(&again, 5, None).await.status), 20_000);
    forward(&control, 7_100);
    assert_eq!(client.bodies(1, 15).await, ["m"]);
    let tooo_long = client.change(&again, 43_201, None).await.status.unwrap();
    assert_eq!(tooo_long.code, 40_011);
    assert!(tooo_long.message.ends_with("max is 43200000"));
    broker.stop().await;
}

#[tokio::test]
async fn after_the_last_attempt_a_message_is_a_dead_letter() {
    let (broker, control, mut client) = start("NT", "GN3").await;
    send(&mut client, &["dl-0"]).await;
    for attempt_ in 1..=3 {
        let messages = client.gather(1, 10).await;
        assert_eq!(attempt(&messages[0]), attempt_);
        forward(&control, 12_100);
    }
    client.finds_nothing().await;
    send(&mut client, &["dl-1"]).await;
    let message = client.gather(1, 12).await.remove(0);
    let answer = client.forward(&message, true).await;
    assert_eq!((answer.code, answer.message.as_str()), (20_000, "0"));
    assert_eq!(client.ack(&message).await.0, 20_000);
    forward(&control, 15_000);
    client.finds_nothing().await;
    let mut reader = Client::simple(&broker, "r", "%DLQ%GN3", "GN").await;
    let dead = reader.gather(2, 20).await;
    assert_eq!(bodies(&dead), ["dl-0", "dl-1"]);
    assert_eq!([attempt(&dead[0]), attempt(&dead[1])], [5, 2]);
    assert!(dead.iter().all(|message| message.user_properties.is_empty()));
    assert_eq!(reader.ack(&dead[0]).await.0, 20_000);
    let audit = control.audit();
    assert_eq!((audit.unacked().count(), audit.lost().count()), (0, 0));
    broker.stop().await;
}

#[tokio::test]
async fn two_groups_get_everything_and_one_group_shares() {
    let (broker, _control, mut client) = start("NT", "GN").await;
    send(&mut client, &["0", "1", "2", "3"]).await;
    assert_eq!(client.bodies(2, 10).await, ["0", "1"]);
    let mut second = Client::simple(&broker, "s2", "NT", "GN").await;
    assert_eq!(second.bodies(8, 10).await, ["2", "3"]);
    // A group nobody made is made when it is asked for; it gets old backlog too.
    let mut other = Client::simple(&broker, "s3", "NT", "GroupOfToday").await;
    assert_eq!(other.heartbeat().await.code, 20_000);
    assert_eq!(other.bodies(8, 10).await, ["0", "1", "2", "3"]);
    broker.stop().await;
}

#[tokio::test]
async fn tags_are_filtered_on_normal_topics() {
    let (broker, _control, mut client) = start("NT", "GN").await;
    for (body, tag) in [("a", "red"), ("b", "blue"), ("c", "green")] {
        let mut message = client.message(body);
        message.system_properties.as_mut().unwrap().tag = Some(tag.to_owned());
        client.send(vec![message]).await;
    }
    let mut message = client.receive_request(8, 10);
    message.filter_expression =
        Some(wire::FilterExpression { r#type: 1, expression: "red || green".to_owned() });
    let received = client.receive_with(message.clone(), Some(Duration::from_secs(9))).await.unwrap();
    assert_eq!(bodies(&received.messages), ["a", "c"]);
    message.filter_expression = Some(wire::FilterExpression { r#type: 2, expression: "a > 1".to_owned() });
    let refused = client.receive_with(message, Some(Duration::from_secs(9))).await.unwrap();
    assert_eq!(refused.code, 40_010);
    broker.stop().await;
}

#[tokio::test]
async fn an_orderly_group_keeps_the_order_of_each_message_group() {
    let (broker, control, mut client) = start("FT", "GF").await;
    send_in_group(&mut client, &["A0", "A1", "A2", "A3"], "A").await;
    send_in_group(&mut client, &["B0", "B1"], "Bgrp7").await;
    let mut held = client.gather(1, 10).await;
    assert_eq!(held.len(), 6, "both queues in one batch");
    let of = |messages: &[wire::Message], group: &str| -> Vec<String> {
        bodies(messages).into_iter().filter(|body| body.starts_with(group)).collect()
    };
    assert_eq!(of(&held, "A"), ["A0", "A1", "A2", "A3"]);
    held.retain(|message| body(message).starts_with('B'));
    for message in &held {
        assert_eq!(client.ack(message).await.0, 20_000);
    }
    client.finds_nothing().await;
    // Exactly at the end, without the lag of normal groups.
    forward(&control, 10_000);
    let again = client.receive(1, 15).await.messages;
    assert_eq!(bodies(&again), ["A0"]);
    assert_eq!(attempt(&again[0]), 2);
    client.change(&again[0], 4, None).await;
    client.finds_nothing().await;
    forward(&control, 4_000);
    let again = client.gather(4, 15).await;
    assert_eq!(bodies(&again), ["A0", "A1", "A2", "A3"]);
    assert_eq!(client.forward(&again[0], true).await.code, 20_000);
    for message in &again[1..] {
        assert_eq!(client.ack(message).await.0, 20_000);
    }
    forward(&control, 60_000);
    client.finds_nothing().await;
    broker.stop().await;
}

#[tokio::test]
async fn a_normal_group_on_a_fifo_topic_is_not_ordered() {
    let (broker, control, mut client) = start("FT", "GN").await;
    send_in_group(&mut client, &["A0", "A1", "A2", "A3"], "A").await;
    assert_eq!(client.bodies(2, 10).await, ["A0", "A1"]);
    assert_eq!(client.bodies(2, 30).await, ["A2", "A3"]);
    forward(&control, 12_100);
    assert_eq!(client.bodies(2, 10).await, ["A0", "A1"]);
    broker.stop().await;
}

#[tokio::test]
async fn a_regular_group_reads_a_lite_parent_without_lite_rules() {
    let (broker, _control, mut client) = start("LT", "GN").await;
    client.send_all(&["x-0", "x-1"], "X").await;
    assert_eq!(client.bodies(1, 10).await, ["x-0"]);
    assert_eq!(client.bodies(1, 10).await, ["x-1"]);
    broker.stop().await;
}

#[tokio::test]
async fn a_delayed_message_waits_and_can_be_recalled() {
    let (broker, control, mut client) = start("DT", "GN").await;
    let mut handles = Vec::new();
    for body in ["late", "recalled"] {
        let mut message = client.message(body);
        let wall = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs() + 5;
        message.system_properties.as_mut().unwrap().delivery_timestamp =
            Some(prost_types::Timestamp { seconds: i64::try_from(wall).unwrap(), nanos: 0 });
        let sent = client.send(vec![message]).await;
        handles.push(sent.entries[0].recall_handle.clone());
    }
    client.finds_nothing().await;
    let recall =
        wire::RecallMessageRequest { topic: Some(resource("DT")), recall_handle: handles[1].clone() };
    let request = client.request(recall, Some(Duration::from_secs(3)));
    let answer = client.grpc.recall_message(request).await.unwrap().into_inner();
    assert_eq!((code(&answer.status), answer.message_id.as_str()), (20_000, "recalled"));
    forward(&control, 5_000);
    assert_eq!(client.bodies(8, 10).await, ["late"]);
    let mut message = client.message("too late");
    let wall = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs() + 90_000;
    message.system_properties.as_mut().unwrap().delivery_timestamp =
        Some(prost_types::Timestamp { seconds: i64::try_from(wall).unwrap(), nanos: 0 });
    assert_eq!(code(&client.send(vec![message]).await.status), 40_012);
    broker.stop().await;
}

#[tokio::test]
async fn a_full_broker_lets_acked_messages_go_and_then_refuses() {
    let mut options = options();
    options.retention.messages_max = 4;
    let broker = Broker::start(options).await.unwrap();
    let mut client = Client::simple(&broker, "s", "NT", "GN").await;
    send(&mut client, &["0", "1", "2", "3"]).await;
    let more = vec![client.message("4")];
    let full = client.send(more.clone()).await.status.unwrap();
    assert_eq!(full.code, 42_900);
    assert!(full.message.contains("is full: 4 messages"), "{}", full.message);
    let first = client.receive(1, 10).await.messages.remove(0);
    assert_eq!(client.ack(&first).await.0, 20_000);
    assert_eq!(code(&client.send(more).await.status), 20_000);
    assert_eq!(client.bodies(32, 10).await, ["1", "2", "3", "4"]);
    let audit = broker.control().audit();
    assert_eq!(audit.lost().count(), 0);
    assert_eq!(audit.unacked().count(), 4);
    broker.stop().await;
}
