//! What a renewal keeps, and for whom.
//!
//! Every handle carries its own end, so whatever shall be kept is renewed by itself. On lite and FIFO topics what is
//! held of one queue comes again when the last of its leases ends.

use std::time::Duration;

use tidegate_model::{Delivery, SettleFault, Verb};
use tokio::time::{Instant, sleep_until};

use crate::broker::{GroupKind, TopicKind};
use crate::stage::{ATTEMPTS_MAX, Consumer, LEASE, Stage, Subscription, bodies};

/// Twice the lease, so that a message that comes at the first end is seen to come too early.
const RENEWED: Duration = Duration::from_secs(20);
/// Normal topics bring a message back about two seconds after its lease.
const REVIVAL: Duration = Duration::from_secs(3);

/// A renewed normal message goes to nobody else before the new end, and its newest handle settles it.
pub(crate) async fn a_renewed_normal_message_stays_with_its_holder(stage: Stage) {
    let plain = stage.plain(TopicKind::Normal, GroupKind::Normal, ATTEMPTS_MAX).await;
    let producer = stage.producer().await;
    let consumer = stage.consumer(&plain).await;
    producer.send_normal(&plain.topic, "0").await;
    producer.send_normal(&plain.topic, "1").await;
    let mut held = consumer.take(2).await;
    held.sort_by_key(|delivery| delivery.message.body.clone());
    stays_with_its_holder(stage, plain, consumer, held).await;
}

/// The same for what is held of a message group.
pub(crate) async fn a_renewed_message_group_stays_with_its_holder(stage: Stage) {
    let fifo = stage.plain(TopicKind::Fifo, GroupKind::Orderly, ATTEMPTS_MAX).await;
    let producer = stage.producer().await;
    let consumer = stage.consumer(&fifo).await;
    producer.send_fifo(&fifo.topic, "a", "0").await;
    producer.send_fifo(&fifo.topic, "a", "1").await;
    let mut held = consumer.take_some().await;
    // The first may be handed out before the second is in its queue.
    while held.len() < 2 {
        consumer.defer(&held[0], Duration::ZERO).await;
        held = consumer.take_some().await;
    }
    stays_with_its_holder(stage, fifo, consumer, held).await;
}

/// The same for what is held of lite topics.
pub(crate) async fn a_renewed_lite_message_stays_with_its_holder(stage: Stage) {
    let lite = stage.lite().await;
    let producer = stage.producer().await;
    let consumer = stage.consumer(&lite).await;
    stage.send_numbered(&producer, &lite, "a", 1).await;
    let mut held = consumer.take(1).await;
    producer.send_lite(&lite.topic, "b", "1").await;
    held.extend(consumer.take(1).await);
    stays_with_its_holder(stage, lite, consumer, held).await;
}

/// Of what is held of a lite topic each is renewed for another time: nothing comes before the last of the ends, and then
/// all comes. The attempt counts the handing-out, not the renewals.
pub(crate) async fn a_lite_topic_comes_again_after_the_longest_renewal(stage: Stage) {
    let lite = stage.lite().await;
    let producer = stage.producer().await;
    let consumer = stage.consumer(&lite).await;
    stage.send_numbered(&producer, &lite, "a", 3).await;
    let mut held = consumer.take(3).await;
    let before = Instant::now();
    renew(&consumer, &mut held[1..2], RENEWED).await;
    renew(&consumer, &mut held[..1], LEASE).await;
    renew(&consumer, &mut held[2..], LEASE + Duration::from_secs(3)).await;
    let again = consumer.take(3).await;
    assert!(before.elapsed() >= RENEWED, "again after {:?}", before.elapsed());
    assert_eq!(bodies(&again), ["0", "1", "2"]);
    assert!(again.iter().all(|delivery| delivery.attempt == 2), "{again:?}");
    consumer.accept(&again).await;
    stage.all_acknowledged(&lite).await;
}

/// A renewal of the head keeps the lite topic away, and makes no other handle good for longer.
pub(crate) async fn a_renewal_is_one_of_its_own_handle(stage: Stage) {
    let lite = stage.lite().await;
    let producer = stage.producer().await;
    let consumer = stage.consumer(&lite).await;
    stage.send_numbered(&producer, &lite, "a", 2).await;
    let mut held = consumer.take(2).await;
    let before = Instant::now();
    renew(&consumer, &mut held[..1], RENEWED).await;
    sleep_until(before + LEASE + Duration::from_secs(1)).await;
    let refusal = consumer.settle(Verb::Accept, &held[1]).await.expect_err("its own lease has ended");
    assert_eq!(refusal.fault, SettleFault::LeaseGone, "{refusal}");
    consumer.accept(&held[..1]).await;
    let again = consumer.take(1).await;
    assert_eq!(bodies(&again), ["1"]);
    consumer.accept(&again).await;
    stage.all_acknowledged(&lite).await;
}

/// After a renewal a deferral still decides when the lite topic comes again.
pub(crate) async fn a_deferral_ends_renewed_leases(stage: Stage) {
    const DELAY: Duration = Duration::from_secs(2);
    let lite = stage.lite().await;
    let producer = stage.producer().await;
    let consumer = stage.consumer(&lite).await;
    stage.send_numbered(&producer, &lite, "a", 3).await;
    let mut held = consumer.take(3).await;
    renew(&consumer, &mut held, Duration::from_secs(600)).await;
    let before = Instant::now();
    consumer.defer(&held[0], DELAY).await;
    let again = consumer.take(3).await;
    assert!(before.elapsed() >= DELAY, "again after {:?}", before.elapsed());
    assert_eq!(bodies(&again), ["0", "1", "2"]);
    consumer.accept(&again).await;
    stage.all_acknowledged(&lite).await;
}

/// Two messages are renewed twice: the first is accepted with its newest handle after its first lease, the second is left
/// to run out and comes to another consumer, not before the renewed end.
async fn stays_with_its_holder(
    stage: Stage,
    subscription: Subscription,
    holder: Consumer,
    mut held: Vec<Delivery>,
) {
    assert_eq!(bodies(&held), ["0", "1"]);
    let other = stage.consumer(&subscription).await;
    renew(&holder, &mut held, LEASE).await;
    let before = Instant::now();
    renew(&holder, &mut held, RENEWED).await;
    other.silence(LEASE + REVIVAL).await;
    holder.accept(&held[..1]).await;
    holder.close().await;
    let again = other.take(1).await;
    assert!(before.elapsed() >= RENEWED, "again after {:?}", before.elapsed());
    assert_eq!(bodies(&again), ["1"]);
    other.accept(&again).await;
    other.silence(REVIVAL).await;
}

/// Renews each by itself and keeps the new handles.
async fn renew(consumer: &Consumer, held: &mut [Delivery], length: Duration) {
    for delivery in held {
        match consumer.settle(Verb::Renew(length), delivery).await {
            Ok(Some(handle)) => delivery.handle = handle,
            other => panic!("renewing {:?}: {other:?}", delivery.message),
        }
    }
}
