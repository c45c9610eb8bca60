//! How much a member asks, and how soon it finds that nobody answers: only the broker in memory can tell.

use std::time::Duration;

use tidegate_share_broker::{Access, Api, Effect, Fault};
use tokio::time::{Instant, sleep};

use crate::play::{Member, Play, REQUEST_TIMEOUT};
use crate::stage::NARROW;

/// For how long it is watched.
const WATCHED: Duration = Duration::from_secs(4);
/// The most requests within a second of a member that has nothing to do, or cannot do anything.
pub(super) const ASKED_MAX: usize = 30;

/// Watches a member that asks for records, once what is in its way is there.
pub(super) async fn is_quiet(play: &Play, member: &Member) {
    play.service().with(|cluster, _| cluster.journal_mut().clear());
    let until = Instant::now() + WATCHED;
    while Instant::now() < until {
        member.gets_nothing(Duration::from_millis(500)).await;
    }
    let service = play.service();
    let (all, total) = service.with(|cluster, _| {
        let journal = cluster.journal();
        (journal.most_within(Duration::from_secs(1), &[]), journal.entries().count())
    });
    assert!(all <= ASKED_MAX, "{all} requests within a second, {total} in all; {}", member.account());
    assert!(total > 0, "it does nothing any more");
}

pub(super) async fn an_idle_member_asks_little(play: Play) {
    let (topic, group) = (play.topic("topic", 3).await, play.group("group", &[]).await);
    let member = play.member(&group, &topic);
    member.until_assigned(3).await;
    is_quiet(&play, &member).await;
    play.append(&topic, 0, 0..1).await;
    member.consume(1).await;
    member.close().await;
}

pub(super) async fn a_missing_topic_is_asked_for_little(play: Play) {
    let (topic, group) = (play.own("topic"), play.group("group", &[]).await);
    let member = play.member(&group, &topic);
    // Eager heartbeats right after the join are wanted: an assignment comes soon, as a rule.
    sleep(Duration::from_secs(5)).await;
    is_quiet(&play, &member).await;
    member.close().await;
}

pub(super) async fn a_missing_leader_is_asked_for_little(play: Play) {
    let (topic, group) = (play.topic("topic", 1).await, play.group("group", &[]).await);
    let member = play.member(&group, &topic);
    member.until_assigned(1).await;
    play.append(&topic, 0, 0..1).await;
    member.consume(1).await;
    play.service().with(|cluster, _| cluster.move_leader(&topic, 0, -1));
    is_quiet(&play, &member).await;
    play.service().with(|cluster, _| cluster.move_leader(&topic, 0, 1));
    play.append(&topic, 0, 1..2).await;
    member.consume(1).await;
    member.close().await;
}

pub(super) async fn a_missing_right_is_asked_for_little(play: Play) {
    let (topic, group) = (play.topic("topic", 1).await, play.group("group", &[]).await);
    let member = play.member(&group, &topic);
    member.until_assigned(1).await;
    play.service().with(|cluster, _| cluster.set_topic_access(&topic, Access::Describe));
    is_quiet(&play, &member).await;
    member.until_told("no right to read it", 1).await;
    play.service().with(|cluster, _| cluster.set_topic_access(&topic, Access::Read));
    play.append(&topic, 0, 0..1).await;
    member.consume(1).await;
    member.close().await;
}

pub(super) async fn refused_sessions_are_asked_for_little(play: Play) {
    // Unknown, share session not found, invalid epoch, no such session's room.
    const CODES: [i16; 4] = [-1, 122, 123, 133];
    let (topic, group) = (play.topic("topic", 1).await, play.group("group", &[]).await);
    let member = play.member(&group, &topic);
    member.until_assigned(1).await;
    for (number, code) in CODES.into_iter().enumerate() {
        play.service()
            .with(|cluster, _| cluster.inject(Fault::new(Api::ShareFetch, Effect::Error(code), 10_000)));
        is_quiet(&play, &member).await;
        play.service().with(|cluster, _| cluster.clear_faults());
        play.append(&topic, 0, number..number + 1).await;
        member.consume(1).await;
    }
    assert!(member.status().troubles.is_empty(), "{}", member.account());
    member.close().await;
}

pub(super) async fn a_full_group_is_asked_for_little(play: Play) {
    let (topic, group) = (play.topic("topic", 1).await, play.group("group", &[]).await);
    let members: Vec<Member> = (0..NARROW).map(|_| play.member(&group, &topic)).collect();
    for member in &members {
        member.until("it has joined", |status| status.is_joined).await;
    }
    let late = play.member(&group, &topic);
    late.until_told("GROUP_MAX_SIZE_REACHED", 1).await;
    is_quiet(&play, &late).await;
    late.close().await;
}

/// The broker goes on, one connection does not: what was asked on it comes to nothing within the request timeout, and
/// records come on a new one.
pub(super) async fn a_silent_connection_is_replaced(play: Play) {
    replaced(&play, |api| Fault::new(api, Effect::Silence, 1)).await;
}

pub(super) async fn a_cut_connection_is_replaced(play: Play) {
    replaced(&play, |api| Fault::new(api, Effect::DisconnectAfter, 1)).await;
}

async fn replaced(play: &Play, fault: impl Fn(Api) -> Fault) {
    let (topic, group) = (play.topic("topic", 1).await, play.group("group", &[]).await);
    let member = play.member(&group, &topic);
    member.until_assigned(1).await;
    let mut next = 0;
    for api in [Api::ShareFetch, Api::ShareGroupHeartbeat, Api::ShareAcknowledge] {
        play.service().with(|cluster, _| cluster.inject(fault(api)));
        let began = Instant::now();
        play.append(&topic, 0, next..next + 10).await;
        // Acknowledgements that nobody answered have failed, and the records come again.
        let mut missing: Vec<usize> = (next..next + 10).collect();
        while !missing.is_empty() {
            let waited = began.elapsed();
            assert!(waited < REQUEST_TIMEOUT * 4, "{missing:?} not within {waited:?}; {}", member.account());
            let got = member.receive(10, Duration::from_secs(1)).await;
            let results = member.settle(&got, tidegate_kafka_share::AcknowledgeType::Accept).await;
            for (got, _) in got.iter().zip(&results).filter(|(_, result)| result.is_ok()) {
                missing.retain(|number| *number != got.number());
            }
            // Accepted, with the answer lost.
            if play.stage.lag(&group, &topic).await == Some(0) {
                missing.clear();
            }
        }
        next += 10;
        let pending = || play.service().with(|cluster, _| cluster.faults_pending()) == 0;
        crate::play::until("the fault has happened", pending).await;
        // The next call says that the broker answers again.
        member.gets_nothing(Duration::from_millis(700)).await;
        member.until_well().await;
    }
    member.close().await;
}
