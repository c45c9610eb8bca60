//! Normal, FIFO and delay topics.

use std::time::Duration;

use tidegate_connector::Support;
use tidegate_devbroker::Method;
use tidegate_model::Verb;
use tidegate_rocketmq::{Outgoing, TopicKind};

use crate::support::{Stage, bodies, eventually};

#[tokio::test]
async fn normal_messages_are_received_and_acknowledged() {
    let stage = Stage::start().await;
    let consumer = stage.consumer(stage.of("N", "GN", TopicKind::Normal)).await;
    let producer = stage.producer().await;
    let message = Outgoing::normal("N", "hello").with_tag("a").with_key("k").with_property("p", "v");
    let sent = producer.send(message).await.expect("sent");
    let delivery = consumer.receive(1).await.remove(0);
    assert_eq!(delivery.message.id, sent.message_id);
    assert_eq!(delivery.message.tag.as_deref(), Some("a"));
    assert_eq!(delivery.message.keys, ["k".into()]);
    assert_eq!(delivery.message.property("p"), Some("v"));
    assert_eq!(delivery.order, None);
    assert!(delivery.message.born_at.is_some());
    consumer.settle_one(&delivery, Verb::Accept).await.expect("acknowledged");
    assert_eq!(stage.control.audit().unacked().count(), 0);
    consumer.source.close().await;
    producer.close().await;
}

#[tokio::test]
async fn a_rejected_normal_message_goes_to_the_servers_dead_letters() {
    let stage = Stage::start().await;
    let consumer = stage.consumer(stage.of("N", "GN", TopicKind::Normal)).await;
    let producer = stage.producer().await;
    producer.send(Outgoing::normal("N", "poison")).await.expect("sent");
    let delivery = consumer.receive(1).await.remove(0);
    let reject = Verb::Reject { reason: "poison".into() };
    assert_eq!(consumer.settler.support(&reject), Support::Native);
    consumer.settle_one(&delivery, reject).await.expect("dead-lettered");
    assert_eq!(stage.control.stats().count(Method::ForwardMessageToDeadLetterQueue), 1);
    let dead = stage.control.audit().messages.iter().filter(|message| message.dead_lettered).count();
    assert_eq!(dead, 1);
    consumer.source.close().await;
    producer.close().await;
}

#[tokio::test]
async fn fifo_messages_keep_the_order_of_their_group() {
    let stage = Stage::start().await;
    let consumer = stage.consumer(stage.of("F", "GF", TopicKind::Fifo)).await;
    let producer = stage.producer().await;
    for number in 0..6 {
        let group = format!("order-{}", number % 2);
        producer.send(Outgoing::fifo("F", group, number.to_string())).await.expect("sent");
    }
    let mut seen = Vec::new();
    while seen.len() < 6 {
        let deliveries = consumer.receive(1).await;
        for delivery in &deliveries {
            assert_eq!(delivery.order, delivery.message.group);
        }
        assert!(consumer.settle(&deliveries, Verb::Accept).await.iter().all(Result::is_ok));
        seen.extend(deliveries);
    }
    for group in ["order-0", "order-1"] {
        let of_group: Vec<_> =
            seen.iter().filter(|delivery| delivery.order.as_deref() == Some(group)).cloned().collect();
        let bodies = bodies(&of_group);
        assert!(bodies.is_sorted() && bodies.len() == 3, "{bodies:?}");
    }
    consumer.source.close().await;
    producer.close().await;
}

#[tokio::test]
async fn a_delayed_message_comes_when_it_is_due() {
    let stage = Stage::start().await;
    let consumer = stage.consumer(stage.of("D", "GD", TopicKind::Delay)).await;
    let producer = stage.producer().await;
    let due = stage.clock.wall().as_unix_millis() + 60_000;
    let at = tidegate_model::Timestamp::from_unix_millis(due);
    producer.send(Outgoing::delay("D", at, "later")).await.expect("sent");
    eventually(|| consumer.source.status().is_none().then_some(())).await;
    stage.control.advance(Duration::from_secs(61));
    assert_eq!(bodies(&consumer.receive(1).await), ["later"]);
    consumer.source.close().await;
    producer.close().await;
}
