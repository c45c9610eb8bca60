//! What ends a lease, and what a settlement with the wrong handle does.

use std::sync::Arc;
use std::time::Duration;

use tidegate_model::{Delivery, SettleFault, Verb};
use tokio::time::Instant;

use crate::stage::{LEASE, Stage, bodies};

/// Nothing of a batch acknowledged: at the end of the lease all of it comes again, in order, not earlier.
pub(crate) async fn an_ended_lease_brings_the_whole_tail_again(stage: Stage) {
    let lite = stage.lite().await;
    let producer = stage.producer().await;
    let consumer = stage.consumer(&lite).await;
    stage.send_numbered(&producer, &lite, "a", 4).await;

    let before = Instant::now();
    let first = consumer.take(4).await;
    assert_eq!(bodies(&first), ["0", "1", "2", "3"]);
    assert!(first.iter().all(|delivery| delivery.attempt == 1), "{first:?}");
    let second = consumer.take(4).await;
    assert!(before.elapsed() >= LEASE, "again after {:?} of a lease of {LEASE:?}", before.elapsed());
    assert_eq!(bodies(&second), ["0", "1", "2", "3"]);
    assert!(second.iter().all(|delivery| delivery.attempt == 2), "{second:?}");
    consumer.accept(&second).await;
    stage.all_acknowledged(&lite).await;
}

/// A part acknowledged in order: only the rest comes again.
pub(crate) async fn an_ended_lease_spares_what_was_acknowledged_in_order(stage: Stage) {
    let lite = stage.lite().await;
    let producer = stage.producer().await;
    let consumer = stage.consumer(&lite).await;
    stage.send_numbered(&producer, &lite, "a", 4).await;

    let first = consumer.take(4).await;
    consumer.accept(&first[..2]).await;
    let second = consumer.take(2).await;
    assert_eq!(bodies(&second), ["2", "3"]);
    consumer.accept(&second).await;
    stage.all_acknowledged(&lite).await;
}

/// The attempt of a lite message rises once and then stays, however often the message is put off: it is no counter.
pub(crate) async fn deferral_raises_the_attempt_of_a_lite_message_once(stage: Stage) {
    let lite = stage.lite().await;
    let producer = stage.producer().await;
    let consumer = stage.consumer(&lite).await;
    producer.send_lite(&lite.topic, "a", "0").await;

    let mut attempts = Vec::new();
    for _ in 0..5 {
        let taken = consumer.take(1).await;
        attempts.push(taken[0].attempt);
        consumer.defer(&taken[0], Duration::from_secs(1)).await;
    }
    assert_eq!(attempts, [1, 2, 2, 2, 2]);
    let last = consumer.take(1).await;
    consumer.accept(&last).await;
    stage.all_acknowledged(&lite).await;
}

/// After its lease a handle settles nothing, and the host is told so.
pub(crate) async fn an_expired_handle_is_refused(stage: Stage) {
    let lite = stage.lite().await;
    let producer = stage.producer().await;
    let consumer = stage.consumer(&lite).await;
    producer.send_lite(&lite.topic, "a", "0").await;

    let first = consumer.take(1).await;
    let again = consumer.take(1).await;
    for verb in [Verb::Accept, Verb::Defer(Duration::from_secs(1))] {
        let refusal = consumer.settle(verb.clone(), &first[0]).await.expect_err("the lease has ended");
        assert_eq!(refusal.fault, SettleFault::LeaseGone, "{verb}: {refusal}");
    }
    consumer.accept(&again).await;
    stage.all_acknowledged(&lite).await;
}

/// A handle that was replaced by a later delivery still looks good to the server and settles nothing: only the
/// newest handle of a message may be used.
pub(crate) async fn a_stale_handle_settles_nothing(stage: Stage) {
    let lite = stage.lite().await;
    let producer = stage.producer().await;
    let consumer = stage.consumer(&lite).await;
    producer.send_lite(&lite.topic, "a", "0").await;

    let first = consumer.take(1).await;
    consumer.defer(&first[0], Duration::from_secs(1)).await;
    let second = consumer.take(1).await;
    // Whatever the answer is, the message must come a third time.
    let _ = consumer.settle(Verb::Accept, &first[0]).await;
    let third = consumer.take(1).await;
    assert_eq!(bodies(&third), bodies(&second));
    consumer.accept(&third).await;
    stage.all_acknowledged(&lite).await;
}

/// An acknowledgement without the lite topic is answered with OK and settles nothing.
pub(crate) async fn an_acknowledgement_without_its_lite_topic_settles_nothing(stage: Stage) {
    let lite = stage.lite().await;
    let producer = stage.producer().await;
    let consumer = stage.consumer(&lite).await;
    producer.send_lite(&lite.topic, "a", "0").await;

    let first = consumer.take(1).await;
    let mut message = (*first[0].message).clone();
    message.lite_topic = None;
    let astray = Delivery { message: Arc::new(message), ..first[0].clone() };
    // Whatever the answer is, the message must come again.
    let _ = consumer.settle(Verb::Accept, &astray).await;
    let second = consumer.take(1).await;
    assert_eq!(bodies(&second), ["0"]);
    consumer.accept(&second).await;
    stage.all_acknowledged(&lite).await;
}
