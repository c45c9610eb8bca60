//! Order, blocking, redelivery and attempts of lite topics.

use std::time::Duration;

use tidegate_devbroker::{Broker, Control};
use tidegate_proto::rocketmq as wire;

use crate::client::*;

async fn start() -> (Broker, Control, Client) {
    let broker = Broker::start(options()).await.unwrap();
    let client = Client::lite(&broker, "c").await;
    let control = broker.control();
    (broker, control, client)
}

fn forward(control: &Control, milliseconds: u64) {
    control.advance(Duration::from_millis(milliseconds));
}

fn bodies(messages: &[wire::Message]) -> Vec<String> {
    messages.iter().map(body).collect()
}

fn attempts(messages: &[wire::Message]) -> Vec<i32> {
    messages.iter().map(attempt).collect()
}

#[tokio::test]
async fn what_is_sent_is_received_in_order_and_acked() {
    let (broker, control, mut client) = start().await;
    client.send_all(&["x-0", "x-1", "x-2"], "X").await;
    client.send_lite("y-0", "Y").await;
    let received = client.receive(64, 10).await;
    assert_eq!(received.code, 20_000);
    assert_eq!(received.order, ["status", "message", "message", "message", "message", "time"]);
    assert_eq!(bodies(&received.messages), ["x-0", "x-1", "x-2", "y-0"]);
    for message in &received.messages {
        assert_eq!(client.ack(message).await, (20_000, "OK".to_owned()));
    }
    forward(&control, 30_000);
    client.finds_nothing().await;
    let audit = control.audit();
    assert_eq!(audit.unacked().count(), 0);
    assert_eq!(audit.lost().count(), 0);
    broker.stop().await;
}

#[tokio::test]
async fn a_message_arrives_as_it_was_sent() {
    let (broker, _control, mut client) = start().await;
    let mut message = client.lite_message("hello rocketmq", "A-b_9");
    message.user_properties.insert("colour".to_owned(), "blue".to_owned());
    message.user_properties.insert("INNER_MULTI_DISPATCH".to_owned(), "overwritten".to_owned());
    let system = message.system_properties.as_mut().unwrap();
    system.message_id = "hello-world".to_owned();
    system.tag = Some("red".to_owned());
    system.keys = vec!["k1".to_owned(), "k2".to_owned()];
    client.send(vec![message]).await;
    let received = client.receive(1, 15).await;
    let message = &received.messages[0];
    let system = message.system_properties.as_ref().unwrap();
    assert_eq!(message.topic.as_ref().unwrap().name, "LT");
    assert_eq!(message.user_properties["colour"], "blue");
    assert_eq!(message.user_properties["INNER_MULTI_DISPATCH"], "%LMQ%$LT$A-b_9");
    assert_eq!(system.message_id, "hello-world");
    assert_eq!(system.tag.as_deref(), Some("red"));
    assert_eq!(system.keys, ["k1", "k2"]);
    assert_eq!(system.lite_topic.as_deref(), Some("A-b_9"));
    assert_eq!(system.message_type, i32::from(wire::MessageType::Lite));
    assert_eq!(system.body_digest.as_ref().unwrap().checksum, "98062D04DAC784C63CEEB3CDB2B1FE4A");
    assert_eq!(system.invisible_duration, Some(seconds(15)));
    assert_eq!(system.delivery_attempt, Some(1));
    let handle = handle(message);
    let fields: Vec<&str> = handle.split(' ').collect();
    assert_eq!(
        (fields.len(), fields[2], fields[3], fields[5], fields[7]),
        (9, "15000", "999", "broker-a", "0")
    );
    broker.stop().await;
}

#[tokio::test]
async fn several_lite_messages_in_one_send_are_told_ok_and_never_delivered() {
    let (broker, _control, mut client) = start().await;
    let messages = vec![client.lite_message("b0", "B"), client.lite_message("b1", "B")];
    let sent = client.send(messages).await;
    assert_eq!(code(&sent.status), 20_000);
    let ids: Vec<&str> = sent.entries.iter().map(|entry| entry.message_id.as_str()).collect();
    assert_eq!(ids, ["b0,b1"]);
    client.finds_nothing().await;
    // They are in the parent topic, for whoever reads that.
    let mut regular = Client::simple(&broker, "s", "LT", "GN").await;
    assert_eq!(regular.bodies(8, 10).await, ["b0", "b1"]);
    broker.stop().await;
}

#[tokio::test]
async fn an_open_message_blocks_its_lite_topic_and_no_other() {
    let (broker, control, mut client) = start().await;
    client.send_all(&["x-0", "x-1"], "X").await;
    assert_eq!(client.bodies(1, 20).await, ["x-0"]);
    client.send_lite("y-0", "Y").await;
    client.send_lite("x-2", "X").await;
    assert_eq!(client.bodies(16, 20).await, ["y-0"]);
    client.finds_nothing().await;
    forward(&control, 20_000);
    // The head, and everything after it.
    let again = client.gather(4, 10).await;
    assert_eq!(bodies(&again).iter().filter(|body| body.starts_with('x')).count(), 3);
    broker.stop().await;
}

#[tokio::test]
async fn the_whole_tail_comes_again_when_the_invisible_time_is_over() {
    let (broker, control, mut client) = start().await;
    client.send_all(&["c-0", "c-1", "c-2"], "C").await;
    for round in 1..=3 {
        let messages = client.gather(3, 10).await;
        assert_eq!(bodies(&messages), ["c-0", "c-1", "c-2"]);
        assert_eq!(attempts(&messages), [round, round, round]);
        forward(&control, 9_000);
        client.finds_nothing().await;
        forward(&control, 1_000);
    }
    broker.stop().await;
}

#[tokio::test]
async fn the_last_suspended_change_speaks_for_the_whole_lite_topic() {
    // Measured: in a batch of three, the head and the second deferred, in either order of their ends.
    for (head, second) in [(3, 8), (8, 3)] {
        let (broker, control, mut client) = start().await;
        client.send_all(&["h0", "h1", "h2"], "H").await;
        let messages = client.gather(3, 12).await;
        client.change(&messages[0], head, Some(true)).await;
        client.change(&messages[1], second, Some(true)).await;
        forward(&control, u64::try_from(second).unwrap() * 1_000 - 500);
        client.finds_nothing().await;
        forward(&control, 500);
        assert_eq!(bodies(&client.gather(3, 12).await), ["h0", "h1", "h2"]);
        broker.stop().await;
    }
}

#[tokio::test]
async fn an_unsuspended_change_of_a_later_message_waits_for_the_head() {
    let (broker, control, mut client) = start().await;
    client.send_all(&["s0", "s1"], "S").await;
    let messages = client.gather(2, 12).await;
    client.change(&messages[1], 3, None).await;
    forward(&control, 11_500);
    client.finds_nothing().await;
    forward(&control, 500);
    assert_eq!(bodies(&client.gather(2, 12).await), ["s0", "s1"]);
    broker.stop().await;
}

/// What is done with a batch of four, and what comes again after the deferral of 3 s.
async fn deferral(steps: &[(&str, usize)], again: &[&str]) {
    let (broker, control, mut client) = start().await;
    client.send_all(&["0", "1", "2", "3"], "P").await;
    let messages = client.gather(4, 20).await;
    for (step, at) in steps {
        let message = &messages[*at];
        match *step {
            "ack" => assert_eq!(client.ack(message).await.0, 20_000),
            _ => assert_eq!(code(&client.change(message, 3, Some(true)).await.status), 20_000),
        }
    }
    client.finds_nothing().await;
    forward(&control, 3_000);
    let received = client.gather(again.len(), 20).await;
    assert_eq!(bodies(&received), again, "after {steps:?}");
    assert_eq!(attempts(&received), vec![2; again.len()]);
    broker.stop().await;
}

#[tokio::test]
async fn a_deferral_brings_its_message_and_everything_after_it_back() {
    // The four shapes that were measured, and the whole batch.
    deferral(&[("ack", 1), ("ack", 2), ("ack", 3), ("defer", 0)], &["0", "1", "2", "3"]).await;
    deferral(&[("defer", 0)], &["0", "1", "2", "3"]).await;
    deferral(&[("defer", 0), ("defer", 1), ("defer", 2), ("defer", 3)], &["0", "1", "2", "3"]).await;
    deferral(&[("ack", 0), ("ack", 1), ("defer", 2), ("ack", 3)], &["2", "3"]).await;
    deferral(&[("ack", 0), ("ack", 1), ("ack", 2), ("defer", 3)], &["3"]).await;
}

#[tokio::test]
async fn a_new_message_does_not_wake_a_deferred_topic_and_comes_with_it() {
    let (broker, control, mut client) = start().await;
    client.send_lite("a-0", "S").await;
    let held = client.gather(1, 20).await;
    client.change(&held[0], 5, Some(true)).await;
    client.send_lite("a-1", "S").await;
    client.finds_nothing().await;
    forward(&control, 5_000);
    let again = client.gather(2, 20).await;
    assert_eq!(bodies(&again), ["a-0", "a-1"]);
    // The delivered set grew: attempts begin anew.
    assert_eq!(attempts(&again), [1, 1]);
    broker.stop().await;
}

#[tokio::test]
async fn a_suspended_deferral_raises_the_attempt_once_and_never_dead_letters() {
    let mut options = options();
    options.groups.retain(|group| &*group.name != "GL");
    options.groups.push(tidegate_devbroker::Group::lite("GL", "LT").with_attempts_max(3));
    let broker = Broker::start(options).await.unwrap();
    let control = broker.control();
    let mut client = Client::lite(&broker, "c").await;
    client.send_lite("m", "L").await;
    let mut seen = Vec::new();
    for _ in 0..8 {
        let messages = client.gather(1, 20).await;
        seen.extend(attempts(&messages));
        client.change(&messages[0], 1, Some(true)).await;
        forward(&control, 1_000);
    }
    assert_eq!(seen, [1, 2, 2, 2, 2, 2, 2, 2]);
    broker.stop().await;
}

#[tokio::test]
async fn the_next_attempt_counts_from_one_when_another_client_takes_over() {
    let (broker, control, mut first) = start().await;
    first.send_lite("m", "L").await;
    assert_eq!(attempts(&first.gather(1, 15).await), [1]);
    assert_eq!(first.terminate().await.code, 20_000);
    let mut second = Client::lite(&broker, "d").await;
    second.finds_nothing().await;
    forward(&control, 15_000);
    assert_eq!(attempts(&second.gather(1, 15).await), [1]);
    broker.stop().await;
}

#[tokio::test]
async fn an_old_handle_stays_good_until_its_own_time() {
    let (broker, control, mut client) = start().await;
    client.send_lite("m", "L").await;
    let first = client.gather(1, 10).await.remove(0);
    let renewed = client.change(&first, 12, Some(true)).await.receipt_handle;
    let fields = |handle: &str| handle.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let (old, new) = (fields(&handle(&first)), fields(&renewed));
    assert_eq!(old[1], new[1], "the pop time stays");
    assert_ne!(old[2], new[2], "the invisible time grows");
    assert_eq!(code(&client.change(&first, 13, Some(true)).await.status), 20_000);
    assert_eq!(client.ack(&first).await.0, 20_000);
    forward(&control, 60_000);
    client.finds_nothing().await;
    assert_eq!(client.ack(&first).await, (40_013, "receipt handle is expired".to_owned()));
    broker.stop().await;
}

#[tokio::test]
async fn acks_that_do_nothing_are_answered_with_ok() {
    let (broker, control, mut client) = start().await;
    client.send_lite("m", "L").await;
    let message = client.gather(1, 40).await.remove(0);
    let mut entry_ = entry(&message);
    for lite_topic in [None, Some("NoSuchLite".to_owned())] {
        entry_.lite_topic = lite_topic;
        let answer = client.ack_entries(vec![entry_.clone()]).await;
        assert_eq!((code(&answer.status), code(&answer.entries[0].status)), (20_000, 20_000));
    }
    // Deferred and delivered again: the handle of the first delivery is stale, though not expired.
    client.change(&message, 1, Some(true)).await;
    forward(&control, 1_000);
    let again = client.gather(1, 12).await.remove(0);
    assert_eq!(client.ack(&message).await.0, 20_000);
    forward(&control, 12_000);
    let third = client.gather(1, 12).await.remove(0);
    assert_eq!(client.ack(&again).await.0, 40_013);
    assert_eq!(client.ack(&third).await.0, 20_000);
    assert_eq!(client.ack(&third).await.0, 20_000, "a second ack is fine");
    assert_eq!(code(&client.change(&third, 2, Some(true)).await.status), 20_000);
    forward(&control, 10_000);
    client.finds_nothing().await;
    broker.stop().await;
}

#[tokio::test]
async fn acks_that_are_wrong_are_told_so() {
    let (broker, _control, mut client) = start().await;
    client.send_lite("m", "L").await;
    let message = client.gather(1, 40).await.remove(0);
    let text = |code: i32, text: &str| (code, text.to_owned());
    let ack = async |client: &mut Client, message: &wire::Message| client.ack(message).await;
    let garbage = with_handle(&message, "garbage");
    let (code_, told) = ack(&mut client, &garbage).await;
    assert_eq!(code_, 50_001);
    assert!(told.starts_with("Parse failed, dataList size 1"), "{told}");
    assert_eq!(code(&client.change(&with_field(&message, 7, "1000"), 5, Some(true)).await.status), 50_001);
    let old = with_handle(&message, "1 2 3 4 5 6 7 8 9");
    assert_eq!(ack(&mut client, &old).await, text(40_013, "receipt handle is expired"));
    let elsewhere = with_field(&message, 5, "no-such-broker");
    assert_eq!(ack(&mut client, &elsewhere).await, text(40_013, "cannot find broker no-such-broker"));
    let beyond = with_field(&message, 7, "1000");
    assert_eq!(ack(&mut client, &beyond).await, text(50_001, "ack failed: status is abnormal"));
    for group in ["GL2", "NOPE"] {
        client.group = group.to_owned();
        assert_eq!(ack(&mut client, &message).await, text(50_001, "ack failed: status is abnormal"));
    }
    client.group = "GL".to_owned();
    let empty = client.ack_entries(Vec::new()).await.status.unwrap();
    assert_eq!((empty.code, empty.message.as_str()), (50_001, "ack message result is empty"));
    let mixed = client.ack_entries(vec![entry(&message), entry(&garbage)]).await;
    assert_eq!(code(&mixed.status), 30_000);
    let codes: Vec<i32> = mixed.entries.iter().map(|entry| code(&entry.status)).collect();
    assert_eq!(codes, [20_000, 50_001]);
    let expired = client.ack_entries(vec![entry(&old)]).await.status.unwrap();
    assert_eq!((expired.code, expired.message.as_str()), (40_013, "INVALID_RECEIPT_HANDLE"));
    broker.stop().await;
}

#[tokio::test]
async fn anybody_may_ack_but_a_change_needs_settings() {
    let (broker, control, mut client) = start().await;
    client.send_all(&["a"], "A").await;
    client.send_all(&["b"], "B").await;
    let messages = client.gather(2, 15).await;
    let mut stranger = Client::connect(&broker, "stranger", "LT", "GL", LITE).await;
    assert_eq!(stranger.ack(&messages[0]).await.0, 20_000);
    let refused = stranger.change(&messages[1], 10, Some(true)).await.status.unwrap();
    assert_eq!(refused.code, 50_001);
    assert!(refused.message.contains("\"this.channel\" is null"), "{}", refused.message);
    forward(&control, 15_000);
    assert_eq!(client.bodies(32, 15).await, ["b"]);
    broker.stop().await;
}

#[tokio::test]
async fn a_dead_letter_comes_back_as_a_copy_that_cannot_be_acked() {
    let broker = Broker::start(options()).await.unwrap();
    let control = broker.control();
    let mut client = Client::connect(&broker, "c", "LT", "GL3", LITE).await;
    client.ready().await;
    client.send_lite("z-0", "Z").await;
    for attempt_ in 1..=3 {
        assert_eq!(attempts(&client.gather(1, 10).await), [attempt_]);
        forward(&control, 10_000);
    }
    let copy = client.gather(1, 10).await.remove(0);
    assert_eq!((attempt(&copy), body(&copy)), (1, "z-0".to_owned()));
    assert_eq!(handle(&copy).split(' ').nth(7), Some("0"), "it shows the offset of its original");
    assert_eq!(client.ack(&copy).await.0, 20_000);
    forward(&control, 10_000);
    assert_eq!(attempts(&client.gather(1, 10).await), [2]);
    forward(&control, 10_000);
    let third = client.gather(1, 10).await.remove(0);
    // With the real offset patched in the loop ends.
    assert_eq!(client.ack(&with_field(&third, 7, "1")).await.0, 20_000);
    forward(&control, 60_000);
    client.finds_nothing().await;
    let mut reader = Client::simple(&broker, "r", "%DLQ%GL3", "GN").await;
    assert_eq!(reader.route().await.message_queues.len(), 1);
    let dead = reader.gather(1, 10).await.remove(0);
    assert_eq!(body(&dead), "z-0");
    assert_eq!(reader.ack(&dead).await, (50_001, "ack failed: status is abnormal".to_owned()));
    broker.stop().await;
}

#[tokio::test]
async fn twelve_deliveries_of_one_poisoned_message_in_95_seconds() {
    let broker = Broker::start(options()).await.unwrap();
    let control = broker.control();
    let mut client = Client::connect(&broker, "c", "LT", "GL3", LITE).await;
    client.ready().await;
    client.send_lite("z-0", "Z").await;
    let mut deliveries = 0;
    for _ in 0..10 {
        deliveries += client.glance(8, 10).await.len();
        forward(&control, 10_000);
    }
    assert_eq!(deliveries, 12, "the number measured on 5.5.0");
    broker.stop().await;
}

#[tokio::test]
async fn forwarding_to_the_dead_letter_topic_re_injects_at_once() {
    let (broker, control, mut client) = start().await;
    client.send_all(&["f-0", "f-1"], "F").await;
    let head = client.receive(1, 12).await.messages.remove(0);
    let answer = client.forward(&head, true).await;
    assert_eq!((answer.code, answer.message.as_str()), (20_000, "0"));
    assert_eq!(client.bodies(32, 12).await, ["f-1", "f-0"]);
    client.send_all(&["g-0", "g-1"], "G").await;
    let head = client.receive(1, 12).await.messages.remove(0);
    assert_eq!(client.forward(&head, false).await.code, 20_000);
    client.finds_nothing().await;
    forward(&control, 12_000);
    let again = client.gather(5, 12).await;
    let of_g: Vec<String> = bodies(&again).into_iter().filter(|body| body.starts_with('g')).collect();
    assert_eq!(of_g, ["g-0", "g-1", "g-0"]);
    broker.stop().await;
}

#[tokio::test]
async fn the_dispatch_property_on_a_normal_message_is_obeyed() {
    let (broker, control, mut client) = start().await;
    let mut simple = Client::simple(&broker, "s", "NT", "GN").await;
    simple.send(vec![simple.message("filler")]).await;
    let mut copy = simple.message("copy-with");
    copy.user_properties.insert("INNER_MULTI_DISPATCH".to_owned(), "%LMQ%$LT$cp".to_owned());
    assert_eq!(code(&simple.send(vec![copy]).await.status), 20_000);
    let in_lite = client.gather(1, 10).await.remove(0);
    assert_eq!(body(&in_lite), "copy-with");
    assert_eq!(in_lite.system_properties.as_ref().unwrap().lite_topic, None);
    assert_eq!(client.ack(&in_lite).await.0, 20_000);
    forward(&control, 10_000);
    assert_eq!(client.bodies(8, 10).await, ["copy-with"]);
    assert_eq!(simple.bodies(8, 10).await, ["filler", "copy-with"]);
    broker.stop().await;
}
