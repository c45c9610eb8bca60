//! What holds on any cluster.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_kafka_share::Fault;
use tidegate_kafka_share::admin::{
    AssignedTopic, Cause, ConfigureError, DeleteGroupError, DeleteOffsetsError, DescribeError, Expectation,
    Finding, Position, ResetError, ResetTarget, SettingChange, SettingSource, Severity, ShareGroupAdmin,
};

use crate::stage::{CLIENT, PATIENCE, Stage, now_millis};

const RESET: &str = "share.auto.offset.reset";
const LOCK: &str = "share.record.lock.duration.ms";
const RENEW: &str = "share.renew.acknowledge.enable";

fn change(name: &str, value: Option<&str>) -> SettingChange {
    SettingChange { name: name.into(), value: value.map(Into::into) }
}

async fn set(admin: &mut ShareGroupAdmin, group: &str, name: &str, value: &str) {
    admin.configure(group, &[change(name, Some(value))]).await.unwrap();
    let deadline = tokio::time::Instant::now() + PATIENCE;
    // In force a moment later.
    while admin.configuration(group).await.unwrap().value(name) != Some(value) {
        assert!(tokio::time::Instant::now() < deadline, "{name} is not {value}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn to(position: Position, topics: &[&str]) -> ResetTarget {
    ResetTarget::Position { position, topics: topics.iter().map(|topic| (*topic).into()).collect() }
}

fn exact(offsets: &[(&str, i32, i64)]) -> ResetTarget {
    let offsets = offsets.iter().map(|(topic, partition, offset)| (((*topic).into(), *partition), *offset));
    ResetTarget::Offsets(offsets.collect())
}

/// Where a group stands: partition, start, lag.
async fn stands(admin: &mut ShareGroupAdmin, group: &str) -> Vec<(i32, Option<i64>, Option<i64>)> {
    let topics = admin.offsets(group).await.unwrap();
    let partitions = topics.iter().flat_map(|topic| &topic.partitions);
    partitions.map(|of| (of.partition, of.start, of.lag)).collect()
}

/// Waits until so much is left of partitions whose next offset is known, all that came before being done: what is accepted
/// is stored a moment later. The offset itself is stored with the next settlement only, so it may lie behind.
async fn until_left(admin: &mut ShareGroupAdmin, group: &str, expected: &[(i32, i64, i64)]) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let found = stands(admin, group).await;
        let is_so = found.len() == expected.len()
            && found.iter().zip(expected).all(|(found, expected)| {
                let is_behind = found.1.is_some_and(|start| start <= expected.1);
                found.0 == expected.0 && is_behind && found.2 == Some(expected.2)
            });
        if is_so {
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "{found:?}, not {expected:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

pub(crate) async fn groups_are_listed_and_described(stage: &Stage) {
    let (group, topic) = ("seen", "seen-topic");
    stage.create_topic(topic, 2).await;
    let one = stage.member(group, "seen-one", topic).await;
    let mut admin = stage.admin();
    let listed = admin.list().await.unwrap();
    let found = listed.iter().find(|listed| &*listed.id == group).unwrap();
    assert_eq!(&*found.state, "Stable");
    let described = admin.describe(group).await.unwrap();
    assert_eq!((&*described.state, &*described.assignor), ("Stable", "simple"));
    assert!(described.epoch >= described.assignment_epoch && described.assignment_epoch > 0, "{described:?}");
    let [member] = &described.members[..] else { panic!("{described:?}") };
    assert_eq!((&*member.id, &*member.client_id, &*member.client_host), ("seen-one", CLIENT, "127.0.0.1"));
    assert_eq!((member.rack.as_deref(), &member.topics[..]), (Some("r1"), &[topic.into()][..]));
    assert_eq!(member.assignment, [AssignedTopic { topic: topic.into(), partitions: vec![0, 1] }]);
    one.close().await;
    assert_eq!(&*admin.describe(group).await.unwrap().state, "Empty");
    admin.close().await;
}

pub(crate) async fn a_group_that_is_not_there(stage: &Stage) {
    let mut admin = stage.admin();
    let error = admin.describe("absent").await.unwrap_err();
    assert!(matches!(error, DescribeError::NotFound { .. }), "{error:?}");
    assert!(error.to_string().starts_with("there is no share group `absent`"), "{error}");
    assert_eq!(error.fault(), Fault::Configuration);
    let error = admin.delete("absent").await.unwrap_err();
    assert!(matches!(error, DeleteGroupError::NotFound { .. }), "{error:?}");
    assert!(admin.list().await.unwrap().iter().all(|listed| &*listed.id != "absent"));
    let error = admin.plan_reset("absent", &to(Position::Latest, &[])).await.unwrap_err();
    assert!(matches!(error, ResetError::NoTopics { .. }), "{error:?}");
}

pub(crate) async fn offsets_are_told_from_the_first_record_on(stage: &Stage) {
    let (group, topic) = ("stands", "stands-topic");
    stage.create_topic(topic, 1).await;
    stage.append(topic, 0, 10).await;
    let mut admin = stage.admin();
    set(&mut admin, group, RESET, "earliest").await;
    let member = stage.member(group, "stands-one", topic).await;
    stage.accept(&member, 10).await;
    stage.append(topic, 0, 5).await;
    member.close().await;
    until_left(&mut admin, group, &[(0, 10, 5)]).await;
    let offsets = admin.offsets(group).await.unwrap();
    assert_eq!((&*offsets[0].topic, offsets[0].partitions[0].leader_epoch), (topic, Some(0)));
}

pub(crate) async fn a_group_is_set_to_a_position_when_nobody_is_in_it(stage: &Stage) {
    let (group, topic) = ("moved", "moved-topic");
    stage.create_topic(topic, 2).await;
    stage.append(topic, 0, 6).await;
    stage.append(topic, 1, 4).await;
    let mut admin = stage.admin();
    set(&mut admin, group, RESET, "earliest").await;
    let member = stage.member(group, "moved-one", topic).await;
    stage.accept(&member, 10).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    let between = now_millis();
    tokio::time::sleep(Duration::from_millis(20)).await;
    stage.append(topic, 0, 3).await;
    stage.accept(&member, 3).await;

    let plan = admin.plan_reset(group, &to(Position::Earliest, &[])).await.unwrap();
    assert_eq!(plan.members.len(), 1, "{plan:?}");
    let error = admin.reset(&plan).await.unwrap_err();
    assert!(matches!(&error, ResetError::NotEmpty { members, .. } if members.len() == 1), "{error:?}");
    assert!(
        error
            .to_string()
            .contains(&format!("(`moved-one` of client `{CLIENT}` at 127.0.0.1); stop its members first")),
        "{error}"
    );
    member.close().await;
    until_left(&mut admin, group, &[(0, 9, 0), (1, 4, 0)]).await;

    for (position, expected) in [
        (Position::Earliest, [0, 0]),
        (Position::Latest, [9, 4]),
        (Position::Time(between), [6, 4]),
        (Position::Time(0), [0, 0]),
    ] {
        let plan = admin.plan_reset(group, &to(position, &[])).await.unwrap();
        let moves: Vec<_> = plan.moves.iter().map(|one| (&*one.topic, one.partition, one.to)).collect();
        assert_eq!(moves, [(topic, 0, expected[0]), (topic, 1, expected[1])], "{position:?}");
        assert!(plan.members.is_empty() && plan.moves.iter().all(|one| one.from.is_some()), "{plan:?}");
        admin.reset(&plan).await.unwrap();
        let starts = stands(&mut admin, group).await;
        assert_eq!(starts.iter().map(|of| of.1).collect::<Vec<_>>(), expected.map(Some), "{position:?}");
    }
    let member = stage.member(group, "moved-two", topic).await;
    assert_eq!(stage.accept(&member, 13).await, [(0, 0), (1, 0)]);
    member.close().await;
}

pub(crate) async fn a_group_is_set_to_offsets_that_there_are(stage: &Stage) {
    let (group, topic) = ("exact", "exact-topic");
    stage.create_topic(topic, 2).await;
    stage.append(topic, 0, 10).await;
    let mut admin = stage.admin();
    let member = stage.member(group, "exact-one", topic).await;
    member.close().await;
    let plan = admin.plan_reset(group, &exact(&[(topic, 0, 7)])).await.unwrap();
    assert_eq!(plan.moves.len(), 1);
    admin.reset(&plan).await.unwrap();
    let starts: BTreeMap<_, _> = stands(&mut admin, group).await.iter().map(|of| (of.0, of.1)).collect();
    assert_eq!(starts.get(&0), Some(&Some(7)));
    for (offsets, expected) in [
        ((topic, 0, 11), "11 is not between 0, its first offset, and 10, its next"),
        ((topic, 2, 0), "`exact-topic:2`: there is no such partition"),
        (("exact-absent", 0, 0), "topic `exact-absent`: there is no such topic"),
    ] {
        let error = admin.plan_reset(group, &exact(&[offsets])).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(error.fault(), Fault::Configuration, "{error}");
    }
}

pub(crate) async fn a_group_can_be_told_where_to_begin_before_it_is_there(stage: &Stage) {
    let (group, topic) = ("early", "early-topic");
    stage.create_topic(topic, 1).await;
    stage.append(topic, 0, 10).await;
    let mut admin = stage.admin();
    let plan = admin.plan_reset(group, &exact(&[(topic, 0, 4)])).await.unwrap();
    assert_eq!(plan.moves[0].from, None);
    admin.reset(&plan).await.unwrap();
    let member = stage.member(group, "early-one", topic).await;
    assert_eq!(stage.accept(&member, 6).await, [(0, 4)]);
    member.close().await;
}

pub(crate) async fn topics_are_forgotten_and_groups_deleted(stage: &Stage) {
    let (group, topic) = ("gone", "gone-topic");
    stage.create_topic(topic, 1).await;
    stage.append(topic, 0, 3).await;
    let mut admin = stage.admin();
    set(&mut admin, group, RESET, "earliest").await;
    let member = stage.member(group, "gone-one", topic).await;
    stage.accept(&member, 3).await;
    let error = admin.delete(group).await.unwrap_err();
    assert!(matches!(&error, DeleteGroupError::NotEmpty { members, .. } if members.len() == 1), "{error:?}");
    let error = admin.delete_offsets(group, &[topic.into()]).await.unwrap_err();
    assert!(
        matches!(&error, DeleteOffsetsError::NotEmpty { members, .. } if members.len() == 1),
        "{error:?}"
    );
    member.close().await;
    until_left(&mut admin, group, &[(0, 3, 0)]).await;
    admin.delete_offsets(group, &[topic.into()]).await.unwrap();
    assert!(stands(&mut admin, group).await.iter().all(|of| of.1.is_none()));
    let error = admin.delete_offsets(group, &["gone-absent".into()]).await.unwrap_err();
    assert!(
        matches!(&error, DeleteOffsetsError::Topic { topic, .. } if &**topic == "gone-absent"),
        "{error:?}"
    );
    let member = stage.member(group, "gone-two", topic).await;
    assert_eq!(stage.accept(&member, 3).await, [(0, 0)], "it begins anew");
    member.close().await;
    admin.delete(group).await.unwrap();
    let error = admin.describe(group).await.unwrap_err();
    assert!(matches!(error, DescribeError::NotFound { .. }), "{error:?}");
}

pub(crate) async fn groups_are_configured(stage: &Stage) {
    let group = "configured";
    let mut admin = stage.admin();
    let before = admin.configuration(group).await.unwrap();
    assert!(before.settings().iter().all(|setting| setting.source != SettingSource::Group), "{before:?}");
    assert_eq!((before.delivery_count_limit(), before.renews_locks()), (Some(5), Some(true)));
    assert_eq!(before.isolation_level(), Some("read_uncommitted"));
    assert!(before.settings().iter().all(|setting| !setting.name.starts_with("consumer.")), "{before:?}");
    set(&mut admin, group, LOCK, "20000").await;
    set(&mut admin, group, RESET, "earliest").await;
    let after = admin.configuration(group).await.unwrap();
    assert_eq!(after.record_lock_duration(), Some(Duration::from_secs(20)));
    assert_eq!(after.reset_policy(), Some("earliest"));
    let lock = after.settings().iter().find(|setting| &*setting.name == LOCK).unwrap();
    assert_eq!(lock.source, SettingSource::Group);
    for (name, value) in [(LOCK, "100"), (RESET, "sometimes"), ("share.nope", "1")] {
        let changes = [change(RENEW, Some("false")), change(name, Some(value))];
        let error = admin.configure(group, &changes).await.unwrap_err();
        assert!(
            matches!(&error, ConfigureError::Invalid { reason, .. } if reason.contains(name)),
            "{error:?}"
        );
        assert_eq!(error.fault(), Fault::Configuration);
    }
    assert_eq!(admin.configuration(group).await.unwrap().renews_locks(), Some(true), "all of it or nothing");
    admin.configure(group, &[change(LOCK, None)]).await.unwrap();
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while admin.configuration(group).await.unwrap().value(LOCK) != before.value(LOCK) {
        assert!(tokio::time::Instant::now() < deadline, "it is set back");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub(crate) async fn what_keeps_records_away_is_found(stage: &Stage) {
    let (group, topic) = ("found", "found-topic");
    stage.create_topic(topic, 2).await;
    stage.append(topic, 0, 4).await;
    stage.append(topic, 1, 3).await;
    let mut admin = stage.admin();
    set(&mut admin, group, RESET, "latest").await;
    set(&mut admin, group, RENEW, "false").await;
    let topics = vec![topic.into(), "found-absent".into()];
    let expectation = Expectation { topics, renews_locks: true };
    let findings = admin.diagnose(group, &expectation).await;
    let lock = admin.configuration(group).await.unwrap().record_lock_duration();
    let skips = Cause::SkipsOlderRecords { topic: topic.into(), records: 7, policy: "latest".into() };
    let expected = [
        (Severity::Blocks, Cause::TopicMissing { topic: "found-absent".into() }),
        (Severity::Warning, skips),
        (Severity::Warning, Cause::RenewDisabled { lock }),
        (Severity::Note, Cause::NobodyThere),
    ];
    assert_eq!(findings, expected.map(|(severity, cause)| Finding { severity, cause }));

    set(&mut admin, group, RESET, "earliest").await;
    set(&mut admin, group, RENEW, "true").await;
    let member = stage.member(group, "found-one", topic).await;
    let expectation = Expectation { topics: Vec::new(), renews_locks: true };
    assert_eq!(admin.diagnose(group, &expectation).await, Vec::new());
    stage.accept(&member, 7).await;
    member.close().await;
    until_left(&mut admin, group, &[(0, 4, 0), (1, 3, 0)]).await;
    let findings = admin.diagnose(group, &expectation).await;
    let causes: Vec<_> = findings.iter().map(|finding| finding.cause.clone()).collect();
    assert_eq!(causes, [Cause::NobodyThere, Cause::NothingLeft]);
}
