//! What comes again, and when, if a message of a batch is put off.
//!
//! A deferral is one of the whole lite topic: at its end everything from the first message on that is not
//! acknowledged comes again, whatever was held, acknowledged out of order or put off for another time before.

use std::time::Duration;

use tokio::time::Instant;

use crate::stage::{Lite, Stage, bodies};

const DELAY: Duration = Duration::from_secs(3);
/// Longer than any scenario waits, so that only the deferral brings a message back.
const LONG_LEASE: Duration = Duration::from_secs(600);

/// Acknowledging the tail does not stick while the head is open.
pub(crate) async fn head_deferred_after_its_tail_was_acknowledged(stage: Stage) {
    Shape { accept_first: &[1, 2, 3], defer: &[0], accept_then: &[], again: &["0", "1", "2", "3"] }
        .play(stage)
        .await;
}

/// What is held behind a deferred head comes again with it, though its own lease runs on.
pub(crate) async fn head_deferred_while_its_tail_is_held(stage: Stage) {
    Shape { accept_first: &[], defer: &[0], accept_then: &[], again: &["0", "1", "2", "3"] }
        .play(stage)
        .await;
}

/// A whole batch put off comes again as a whole.
pub(crate) async fn whole_batch_deferred(stage: Stage) {
    Shape { accept_first: &[], defer: &[0, 1, 2, 3], accept_then: &[], again: &["0", "1", "2", "3"] }
        .play(stage)
        .await;
}

/// What was acknowledged before the deferred one stays so, what was acknowledged after it does not.
pub(crate) async fn middle_deferred_between_acknowledged_ones(stage: Stage) {
    Shape { accept_first: &[0, 1], defer: &[2], accept_then: &[3], again: &["2", "3"] }.play(stage).await;
}

/// Nothing but the last one is open: nothing but that comes again.
pub(crate) async fn last_deferred(stage: Stage) {
    Shape { accept_first: &[0, 1, 2], defer: &[3], accept_then: &[], again: &["3"] }.play(stage).await;
}

/// Putting off a message ends the leases of those before it, too: they come again with it.
pub(crate) async fn middle_deferred_while_an_earlier_one_is_held(stage: Stage) {
    Shape { accept_first: &[], defer: &[1], accept_then: &[], again: &["0", "1", "2", "3"] }
        .play(stage)
        .await;
}

/// A later, shorter deferral takes the place of an earlier, longer one of the same batch.
pub(crate) async fn the_last_deferral_of_a_batch_decides(stage: Stage) {
    let lite = stage.lite().await;
    let producer = stage.producer().await;
    let consumer = stage.consumer_with(&lite, |options| options.invisible_duration = LONG_LEASE).await;
    stage.send_numbered(&producer, &lite, "a", 2).await;
    let batch = consumer.take(2).await;
    let before = Instant::now();
    consumer.defer(&batch[0], LONG_LEASE).await;
    consumer.defer(&batch[1], DELAY).await;

    let again = consumer.take(2).await;
    assert!(before.elapsed() >= DELAY, "again after {:?}", before.elapsed());
    assert_eq!(bodies(&again), ["0", "1"]);
    consumer.accept(&again).await;
    stage.all_acknowledged(&lite).await;
}

/// A message sent while the head is put off neither wakes it early nor overtakes it.
pub(crate) async fn a_new_message_waits_behind_a_deferred_head(stage: Stage) {
    let lite = stage.lite().await;
    let producer = stage.producer().await;
    let consumer = stage.consumer_with(&lite, |options| options.invisible_duration = LONG_LEASE).await;
    producer.send_lite(&lite.topic, "a", "0").await;
    let head = consumer.take(1).await;
    let before = Instant::now();
    consumer.defer(&head[0], DELAY).await;
    producer.send_lite(&lite.topic, "a", "1").await;

    let again = consumer.take(2).await;
    assert!(before.elapsed() >= DELAY, "again after {:?}", before.elapsed());
    assert_eq!(bodies(&again), ["0", "1"]);
    consumer.accept(&again).await;
    stage.all_acknowledged(&lite).await;
}

/// Four messages of one lite topic, numbered from 0, and what is done with them.
struct Shape {
    accept_first: &'static [usize],
    defer: &'static [usize],
    accept_then: &'static [usize],
    again: &'static [&'static str],
}

impl Shape {
    async fn play(self, stage: Stage) {
        let lite: Lite = stage.lite().await;
        let producer = stage.producer().await;
        let consumer = stage.consumer_with(&lite, |options| options.invisible_duration = LONG_LEASE).await;
        stage.send_numbered(&producer, &lite, "a", 4).await;
        let batch = consumer.take(4).await;
        assert_eq!(bodies(&batch), ["0", "1", "2", "3"]);

        for index in self.accept_first {
            consumer.accept(&batch[*index..=*index]).await;
        }
        let before = Instant::now();
        for index in self.defer {
            consumer.defer(&batch[*index], DELAY).await;
        }
        for index in self.accept_then {
            consumer.accept(&batch[*index..=*index]).await;
        }
        let again = consumer.take(self.again.len()).await;
        assert!(before.elapsed() >= DELAY, "again after {:?}", before.elapsed());
        assert_eq!(bodies(&again), self.again);
        consumer.accept(&again).await;
        stage.all_acknowledged(&lite).await;
        consumer.silence(Duration::from_secs(1)).await;
    }
}
