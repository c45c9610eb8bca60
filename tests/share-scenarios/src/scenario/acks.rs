//! What is said about records, and what comes of it.

use std::time::Duration;

use tidegate_kafka_share::AcknowledgeType::{Accept, Reject, Release};
use tidegate_kafka_share::{AcknowledgeError, AcquireMode};

use crate::play::{Got, Play, is_all_ok, numbers};

/// Accepted and rejected records are done; released ones come again, and again, in any mixture and order.
pub(super) async fn acceptance_release_and_rejection_mixed(play: Play) {
    let (topic, group) = (play.topic("topic", 2).await, play.group("group", &[]).await);
    play.append(&topic, 0, 0..150).await;
    play.append(&topic, 1, 150..300).await;
    let member = play.member(&group, &topic);
    let got = member.gather(300).await;
    assert!(got.iter().all(|got| got.count == 1));
    let kind = |got: &Got| [Accept, Release, Reject][got.number() % 3];
    // From the last to the first, and in three parts.
    let backwards: Vec<&Got> = got.iter().rev().collect();
    for part in backwards.chunks(100) {
        let results = member.say(part.iter().map(|got| (*got, kind(got)))).await;
        assert!(is_all_ok(&results), "{results:?}");
    }
    let again = member.gather(100).await;
    assert_eq!(numbers(&again), (0..300).filter(|number| number % 3 == 1).collect());
    assert!(again.iter().all(|got| got.count == 2), "{:?}", again.iter().map(|got| got.count).max());
    let halves = again.split_at(50);
    let results = member.say(halves.0.iter().map(|got| (got, Release))).await;
    assert!(is_all_ok(&results), "{results:?}");
    member.accept(halves.1).await;
    let last = member.consume(50).await;
    assert_eq!(numbers(&last), numbers(halves.0));
    assert!(last.iter().all(|got| got.count == 3));
    play.until_done(&group, &topic).await;
    member.gets_nothing(Duration::from_millis(700)).await;
    member.close().await;
}

pub(super) async fn what_is_settled_cannot_be_settled_again(play: Play) {
    let (topic, group) = (play.topic("topic", 1).await, play.group("group", &[]).await);
    play.append(&topic, 0, 0..3).await;
    let member = play.member(&group, &topic);
    let got = member.gather(3).await;
    member.accept(&got[..1]).await;
    // Once more, together with one that can be settled: each has a result of its own.
    let results = member.settle(&got[..2], Release).await;
    assert_eq!(results, [Err(AcknowledgeError::LeaseEnded), Ok(())]);
    let again = member.consume(1).await;
    assert_eq!((again[0].offset, again[0].count), (1, 2));
    // The first handing-out of it is over, whatever became of the second.
    let results = member.settle(&got[1..], Accept).await;
    assert_eq!(results, [Err(AcknowledgeError::LeaseEnded), Ok(())]);
    play.until_done(&group, &topic).await;
    member.close().await;
}

pub(super) async fn the_delivery_limit_ends_deliveries(play: Play) {
    let topic = play.topic("topic", 1).await;
    let group = play.group("group", &[("share.delivery.count.limit", "3")]).await;
    play.append(&topic, 0, 0..10).await;
    let member = play.member(&group, &topic);
    for count in 1..=3 {
        // The last delivery comes record by record.
        let got = member.gather(10).await;
        assert!(got.iter().all(|got| got.count == count), "{count}: {got:?}");
        let results = member.settle(&got, Release).await;
        assert!(is_all_ok(&results), "{results:?}");
    }
    play.until_done(&group, &topic).await;
    member.gets_nothing(Duration::from_millis(700)).await;
    play.append(&topic, 0, 10..11).await;
    assert_eq!(member.consume(1).await[0].number(), 10, "the next ones come");
    member.close().await;
}

/// A batch of a hundred is handed out five by five, and what is not handed out stays for others.
pub(super) async fn the_record_limit_is_exact(play: Play) {
    let (topic, group) = (play.topic("topic", 1).await, play.group("group", &[]).await);
    play.append(&topic, 0, 0..100).await;
    let limited = || {
        play.start(
            play.wants(&group, &[&topic]).fetching(|fetch| fetch.acquire_mode = AcquireMode::RecordLimit),
        )
    };
    let first = limited();
    let got = first.gather(5).await;
    first.until("it holds what was asked for", |status| status.held == 5).await;
    let second = limited();
    let rest = second.consume(95).await;
    assert!(rest.iter().all(|got| got.count == 1), "nobody had them before");
    first.accept(&got).await;
    let all: Vec<Got> = [got, rest].concat();
    assert_eq!(numbers(&all), (0..100).collect());
    play.until_done(&group, &topic).await;
    first.close().await;
    second.close().await;
}

/// The group's bound of records in flight holds back what comes after, until something is settled.
pub(super) async fn what_is_held_is_bounded(play: Play) {
    let topic = play.topic("topic", 1).await;
    let group = play
        .group(
            "group",
            &[("share.partition.max.record.locks", "100"), ("share.record.lock.duration.ms", "15000")],
        )
        .await;
    for batch in 0..6 {
        play.append(&topic, 0, batch * 50..(batch + 1) * 50).await;
    }
    let member = play.member(&group, &topic);
    let got = member.gather(100).await;
    member.gets_nothing(Duration::from_millis(1_200)).await;
    member.accept(&got).await;
    let rest = member.consume(200).await;
    assert!(rest.iter().all(|got| got.count == 1));
    play.until_done(&group, &topic).await;
    member.close().await;
}
