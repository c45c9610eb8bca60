//! Locks: renewed, not renewable, run out.

use std::time::Duration;

use tidegate_kafka_share::AcknowledgeError;
use tidegate_kafka_share::AcknowledgeType::{Accept, Renew};
use tokio::time::{Instant, sleep};

use crate::play::{Play, is_all_ok};

const LOCK: Duration = Duration::from_secs(2);

/// Held for more than three lock durations, while another member waits for it.
pub(super) async fn a_renewed_record_stays_with_its_holder(play: Play) {
    let topic = play.topic("topic", 1).await;
    let lock = LOCK.as_millis().to_string();
    let group = play.group("group", &[("share.record.lock.duration.ms", &lock)]).await;
    play.append(&topic, 0, 0..10).await;
    let holder = play.member(&group, &topic);
    let got = holder.gather(10).await;
    let waiting = play.member(&group, &topic);
    waiting.until_assigned(1).await;
    let waits = waiting.gets_nothing(LOCK * 7 / 2);
    let renews = async {
        let until = Instant::now() + LOCK * 7 / 2;
        while Instant::now() < until {
            sleep(LOCK / 4).await;
            let results = holder.settle(&got, Renew).await;
            assert!(is_all_ok(&results), "{results:?}; {}", holder.account());
        }
    };
    tokio::join!(waits, renews);
    assert_eq!(holder.status().held, 10);
    holder.accept(&got).await;
    play.until_done(&group, &topic).await;
    waiting.gets_nothing(Duration::from_millis(700)).await;
    holder.close().await;
    waiting.close().await;
}

pub(super) async fn renewal_that_is_switched_off_is_told(play: Play) {
    let topic = play.topic("topic", 1).await;
    let group = play
        .group(
            "group",
            &[("share.renew.acknowledge.enable", "false"), ("share.record.lock.duration.ms", "15000")],
        )
        .await;
    play.append(&topic, 0, 0..3).await;
    let member = play.member(&group, &topic);
    let got = member.gather(3).await;
    let results = member.settle(&got, Renew).await;
    assert_eq!(results, vec![Err(AcknowledgeError::NotRenewable); 3], "{}", member.account());
    member.accept(&got).await;
    play.until_done(&group, &topic).await;
    member.close().await;
}

pub(super) async fn an_ended_lock_is_told_and_the_record_comes_once_more(play: Play) {
    let topic = play.topic("topic", 1).await;
    let group = play.group("group", &[("share.record.lock.duration.ms", "1000")]).await;
    play.append(&topic, 0, 0..5).await;
    let slow = play.member(&group, &topic);
    let held = slow.gather(5).await;
    let other = play.member(&group, &topic);
    let again = other.gather(5).await;
    // On a busy machine it may have been given back once, with too little left of the lock.
    assert!(again.iter().all(|got| got.count >= 2), "{again:?}");
    other.accept(&again).await;
    // A member counts its locks from the answer, which a busy machine brings late; a broker says yes to what is done already.
    sleep(Duration::from_secs(1)).await;
    let results = slow.settle(&held, Accept).await;
    assert_eq!(results, vec![Err(AcknowledgeError::LeaseEnded); 5]);
    assert_eq!(slow.status().held, 0);
    play.until_done(&group, &topic).await;
    other.gets_nothing(Duration::from_millis(1_500)).await;
    slow.gets_nothing(Duration::from_millis(100)).await;
    slow.close().await;
    other.close().await;
}
