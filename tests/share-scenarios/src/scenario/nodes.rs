//! Leaders and coordinators move, brokers end, freeze and come back.

use std::collections::BTreeSet;
use std::time::Duration;

use tidegate_kafka_share::AcknowledgeType::Accept;
use tokio::time::sleep;

use crate::play::{Got, Member, Play, REQUEST_TIMEOUT};

/// Accepts what comes until every one of these numbers was accepted; what comes twice is taken twice. The answer to an
/// acknowledgement may be lost though it took effect: then the group is done with the topic and the record does not come.
async fn consume_all(play: &Play, member: &Member, topic: &str, numbers: impl Iterator<Item = usize>) {
    let group = play.own("group");
    let mut missing: BTreeSet<usize> = numbers.collect();
    let mut last_results = Vec::new();
    let deadline = tokio::time::Instant::now() + crate::play::PATIENCE;
    while !missing.is_empty() {
        assert!(
            tokio::time::Instant::now() < deadline,
            "{missing:?} did not come; {last_results:?}; {}",
            member.account()
        );
        let got = member.receive(500, Duration::from_secs(1)).await;
        let results = member.settle(&got, Accept).await;
        for (got, _) in got.iter().zip(&results).filter(|(_, result)| result.is_ok()) {
            missing.remove(&got.number());
        }
        if got.is_empty() && play.stage.lag(&group, topic).await == Some(0) {
            return;
        }
        last_results = results;
    }
}

/// What was accepted before stays so, what was held is told to be gone or accepted, and comes from the new leader.
pub(super) async fn a_leader_moves_between_acknowledgements(play: Play) {
    let topic = play.topic("topic", 1).await;
    let group = play.group("group", &[("share.record.lock.duration.ms", "60000")]).await;
    play.append(&topic, 0, 0..100).await;
    let member = play.member(&group, &topic);
    let mut got = member.gather(100).await;
    for round in 0_usize..3 {
        let (before, after) = got.split_at(50);
        member.accept(before).await;
        let old = play.stage.leader(&topic, 0).await;
        let new = *play.stage.nodes().iter().find(|node| **node != old).unwrap();
        play.stage.move_leader(&topic, 0, new).await;
        let results = member.settle(after, Accept).await;
        let (ok, refused) = (results.iter().filter(|result| result.is_ok()).count(), results.len());
        assert!(ok == 0 || ok == refused, "all of one partition share one fate: {results:?}");
        let next = 100 * (round + 1)..100 * (round + 1) + if ok == 0 { 50 } else { 100 };
        play.append(&topic, 0, next).await;
        let accepted: BTreeSet<i64> = before.iter().map(|got| got.offset).collect();
        got = member.gather(100).await;
        assert!(got.iter().all(|got| !accepted.contains(&got.offset)), "an accepted record came again");
    }
    member.accept(&got).await;
    play.until_done(&group, &topic).await;
    assert!(member.status().troubles.is_empty(), "{}", member.account());
    member.close().await;
}

/// Makes this node the leader of partition 0 and another one that of partition 1.
async fn spread(play: &Play, topic: &str, node: i32) {
    let other = *play.stage.nodes().iter().find(|other| **other != node).unwrap();
    for (partition, to) in [(0, node), (1, other)] {
        play.lead(topic, partition, to).await;
    }
}

pub(super) async fn a_killed_leaders_records_come_from_the_next(play: Play) {
    let (topic, group) = (play.topic("topic", 2).await, play.group("group", &[]).await);
    let coordinator = play.stage.coordinator(&group).await;
    let doomed = *play.stage.nodes().iter().find(|node| **node != coordinator).unwrap();
    spread(&play, &topic, doomed).await;
    play.append(&topic, 0, 0..50).await;
    play.append(&topic, 1, 50..100).await;
    let member = play.member(&group, &topic);
    let held = member.gather(100).await;
    play.stage.kill(doomed).await;
    let results = member.settle(&held, Accept).await;
    let done: BTreeSet<usize> =
        held.iter().zip(&results).filter(|(_, result)| result.is_ok()).map(|(got, _)| got.number()).collect();
    consume_all(&play, &member, &topic, (0..100).filter(|number| !done.contains(number))).await;
    play.append(&topic, 0, 100..150).await;
    play.append(&topic, 1, 150..200).await;
    consume_all(&play, &member, &topic, 100..200).await;
    play.until_done(&group, &topic).await;
    play.stage.revive(doomed).await;
    play.append(&topic, 0, 200..210).await;
    consume_all(&play, &member, &topic, 200..210).await;
    member.close().await;
}

pub(super) async fn a_killed_coordinator_is_replaced(play: Play) {
    let (topic, group) = (play.topic("topic", 2).await, play.group("group", &[]).await);
    let coordinator = play.stage.coordinator(&group).await;
    let member = play.member(&group, &topic);
    member.until_assigned(2).await;
    play.append(&topic, 0, 0..10).await;
    member.consume(10).await;
    play.stage.kill(coordinator).await;
    for round in 1..=5 {
        play.append(&topic, 0, round * 100..round * 100 + 10).await;
        play.append(&topic, 1, round * 100 + 10..round * 100 + 20).await;
        consume_all(&play, &member, &topic, round * 100..round * 100 + 20).await;
        sleep(Duration::from_millis(300)).await;
    }
    member.until_assigned(2).await;
    // A newcomer finds the new coordinator too, and the old one's group is whole.
    let second = play.member(&group, &topic);
    second.until_assigned(1).await;
    member.until_assigned(1).await;
    assert!(member.status().troubles.is_empty(), "{}", member.account());
    second.close().await;
    member.close().await;
    play.until_done(&group, &topic).await;
    play.stage.revive(coordinator).await;
}

/// The other leaders' records come while one does not answer, and its own when another one leads.
pub(super) async fn a_frozen_leader_keeps_only_its_own_back(play: Play) {
    let (topic, group) = (play.topic("topic", 2).await, play.group("group", &[]).await);
    let coordinator = play.stage.coordinator(&group).await;
    let frozen = *play.stage.nodes().iter().find(|node| **node != coordinator).unwrap();
    spread(&play, &topic, frozen).await;
    play.append(&topic, 0, 0..10).await;
    play.append(&topic, 1, 10..20).await;
    let mut wants = play.wants(&group, &[&topic]);
    wants.settings.request_timeout = Duration::from_secs(2);
    let member = play.start(wants);
    consume_all(&play, &member, &topic, 0..20).await;
    play.stage.freeze(frozen).await;
    play.append(&topic, 1, 20..30).await;
    consume_all(&play, &member, &topic, 20..30).await;
    play.append(&topic, 0, 30..40).await;
    consume_all(&play, &member, &topic, 30..40).await;
    play.stage.thaw(frozen).await;
    play.append(&topic, 0, 40..50).await;
    consume_all(&play, &member, &topic, 40..50).await;
    play.until_done(&group, &topic).await;
    member.close().await;
}

pub(super) async fn a_killed_broker_comes_back(play: Play) {
    come_back(&play, async || {
        play.stage.kill(1).await;
    })
    .await;
}

pub(super) async fn a_broker_is_stopped_in_order_and_comes_back(play: Play) {
    come_back(&play, async || {
        play.stage.terminate(1).await;
    })
    .await;
}

/// The only broker ends while records are held: each has a result, none is lost, and what is in the way is told.
async fn come_back(play: &Play, end: impl AsyncFnOnce()) {
    let (topic, group) = (play.topic("topic", 2).await, play.group("group", &[]).await);
    play.append(&topic, 0, 0..100).await;
    play.append(&topic, 1, 100..200).await;
    let member = play.member(&group, &topic);
    let got = member.gather(200).await;
    let (before, held) = got.split_at(100);
    member.accept(before).await;
    end().await;
    let results = member.settle(held, Accept).await;
    let done: BTreeSet<usize> =
        held.iter().zip(&results).filter(|(_, result)| result.is_ok()).map(|(got, _)| got.number()).collect();
    member.gets_nothing(Duration::from_secs(1)).await;
    member.until_told("trouble: ", 1).await;
    play.stage.revive(1).await;
    let accepted: BTreeSet<usize> = before.iter().map(Got::number).collect();
    consume_all(
        play,
        &member,
        &topic,
        (0..200).filter(|number| !done.contains(number) && !accepted.contains(number)),
    )
    .await;
    play.append(&topic, 0, 200..210).await;
    consume_all(play, &member, &topic, 200..210).await;
    play.until_done(&group, &topic).await;
    member.until_well().await;
    member.close().await;
}

/// Its connections stay open and nothing comes: the request timeout finds out.
pub(super) async fn a_frozen_broker_is_told_and_goes_on(play: Play) {
    let (topic, group) = (play.topic("topic", 1).await, play.group("group", &[]).await);
    play.append(&topic, 0, 0..10).await;
    let member = play.member(&group, &topic);
    consume_all(&play, &member, &topic, 0..10).await;
    play.stage.freeze(1).await;
    member.gets_nothing(REQUEST_TIMEOUT + Duration::from_secs(2)).await;
    member.until_told("trouble: ", 1).await;
    assert!(!member.status().is_joined, "{}", member.account());
    play.stage.thaw(1).await;
    play.append(&topic, 0, 10..20).await;
    consume_all(&play, &member, &topic, 10..20).await;
    play.until_done(&group, &topic).await;
    member.until_well().await;
    member.close().await;
}
