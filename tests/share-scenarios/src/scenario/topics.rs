//! Topics come, go and grow under a member.

use std::time::Duration;

use tidegate_kafka_share::{Subscription, TopicPattern};

use crate::play::Play;

pub(super) async fn a_topic_is_made_later(play: Play) {
    let (topic, group) = (play.own("topic"), play.group("group", &[]).await);
    let member = play.member(&group, &topic);
    member.gets_nothing(Duration::from_millis(500)).await;
    member.until_told("it does not exist", 1).await;
    play.create(&topic, 2).await;
    play.append(&topic, 0, 0..10).await;
    play.append(&topic, 1, 10..20).await;
    member.consume(20).await;
    member.until_told("ended: Topic", 1).await;
    assert!(member.status().troubles.is_empty(), "{}", member.account());
    play.until_done(&group, &topic).await;
    member.close().await;
}

pub(super) async fn a_deleted_topic_leaves_the_others_alone(play: Play) {
    let (gone, kept) = (play.topic("gone", 2).await, play.topic("kept", 2).await);
    let group = play.group("group", &[]).await;
    play.append(&gone, 0, 0..10).await;
    play.append(&kept, 0, 10..20).await;
    let member = play.start(play.wants(&group, &[&gone, &kept]));
    member.consume(20).await;
    play.append(&gone, 0, 20..21).await;
    let held = member.gather(1).await;
    play.stage.delete_topic(&gone).await;
    for round in 0..3 {
        play.append(&kept, round % 2, 30..40).await;
        let got = member.consume(10).await;
        assert!(got.iter().all(|got| *got.topic == *kept), "{}", member.account());
    }
    // Of the held record nobody knows any more.
    let results = member.settle(&held, tidegate_kafka_share::AcknowledgeType::Accept).await;
    assert!(results[0].is_err(), "{results:?}");
    member.until_told("it does not exist", 1).await;
    member.until_assigned(2).await;
    play.until_done(&group, &kept).await;
    member.close().await;
}

/// Another topic of the same name, of which the group knows nothing.
pub(super) async fn a_topic_is_deleted_and_made_anew(play: Play) {
    let (topic, group) = (play.topic("topic", 1).await, play.group("group", &[]).await);
    play.append(&topic, 0, 0..10).await;
    let member = play.member(&group, &topic);
    member.consume(10).await;
    for round in 0..2 {
        play.stage.delete_topic(&topic).await;
        play.create(&topic, 1).await;
        play.append(&topic, 0, 100..105).await;
        let got = member.consume(5).await;
        assert_eq!(got.iter().map(|got| got.offset).collect::<Vec<_>>(), [0, 1, 2, 3, 4], "round {round}");
    }
    play.until_done(&group, &topic).await;
    member.close().await;
}

pub(super) async fn partitions_are_added(play: Play) {
    let (topic, group) = (play.topic("topic", 1).await, play.group("group", &[]).await);
    play.append(&topic, 0, 0..10).await;
    let member = play.member(&group, &topic);
    member.consume(10).await;
    play.stage.add_partitions(&topic, 3).await;
    for partition in 0..3 {
        play.append(&topic, partition, 10..20).await;
    }
    member.consume(30).await;
    member.until_assigned(3).await;
    play.until_done(&group, &topic).await;
    member.close().await;
}

pub(super) async fn a_pattern_follows_topics(play: Play) {
    let (stem, group) = (play.own("match"), play.group("group", &[]).await);
    let (first, second, other) = (format!("{stem}-1"), format!("{stem}-2"), play.topic("other", 1).await);
    let mut wants = play.wants(&group, &[]);
    wants.settings.member.metadata_max_age = Duration::from_secs(1);
    let begins = stem.clone();
    let pattern = TopicPattern::new(format!("{stem}-.*"), move |name: &str| name.starts_with(&begins));
    let member = play.start(wants.subscribed_to(Subscription::Pattern(pattern)));
    member.until_told("no topic matches", 1).await;
    play.create(&first, 1).await;
    play.append(&first, 0, 0..5).await;
    play.append(&other, 0, 5..10).await;
    let got = member.consume(5).await;
    assert!(got.iter().all(|got| *got.topic == *first));
    play.create(&second, 1).await;
    play.append(&second, 0, 10..15).await;
    let got = member.consume(5).await;
    assert!(got.iter().all(|got| *got.topic == *second));
    play.stage.delete_topic(&first).await;
    play.append(&second, 0, 15..20).await;
    member.consume(5).await;
    member.until_assigned(1).await;
    member.gets_nothing(Duration::from_millis(700)).await;
    assert!(member.status().troubles.is_empty(), "{}", member.account());
    member.close().await;
}
