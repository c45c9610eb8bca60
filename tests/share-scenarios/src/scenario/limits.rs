//! More members and sessions than a cluster takes.

use std::time::Duration;

use crate::play::Play;
use crate::stage::NARROW;

pub(super) async fn a_full_group_is_told_and_joined_when_there_is_room(play: Play) {
    let (topic, group) = (play.topic("topic", 1).await, play.group("group", &[]).await);
    let mut members = Vec::new();
    for _ in 0..NARROW {
        let member = play.member(&group, &topic);
        member.until("it has joined", |status| status.is_joined).await;
        members.push(member);
    }
    let late = play.member(&group, &topic);
    late.until_told("GROUP_MAX_SIZE_REACHED", 1).await;
    assert!(!late.status().is_joined && !late.status().is_over, "{}", late.account());
    for member in members {
        member.close().await;
    }
    play.append(&topic, 0, 0..5).await;
    late.consume(5).await;
    assert!(late.status().is_joined && late.status().troubles.is_empty(), "{}", late.account());
    late.close().await;
}

pub(super) async fn full_sessions_are_told_and_opened_when_there_is_room(play: Play) {
    let topic = play.topic("topic", 1).await;
    let (group, other) = (play.group("group", &[]).await, play.group("other", &[]).await);
    let mut members = Vec::new();
    // A session is opened by the first fetch.
    for number in 0..NARROW {
        let member = play.member(&group, &topic);
        member.until_assigned(1).await;
        play.append(&topic, 0, number..number + 1).await;
        member.consume(1).await;
        members.push(member);
    }
    let late = play.member(&other, &topic);
    late.until_assigned(1).await;
    late.gets_nothing(Duration::from_millis(1_500)).await;
    late.until_told("SHARE_SESSION_LIMIT_REACHED", 1).await;
    members.pop().unwrap().close().await;
    late.consume(NARROW).await;
    assert!(late.status().troubles.is_empty(), "{}", late.account());
    for member in members {
        member.close().await;
    }
    late.close().await;
}
