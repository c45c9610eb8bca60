use std::collections::BTreeMap;
use std::time::Duration;

use super::super::Expectation;
use super::super::facts::{Backing, Unreachable};
use super::*;
use crate::admin::topics::Rights;
use crate::admin::{GroupDescription, MemberDescription, PartitionOffset, TopicOffsets};
use crate::{BrokerId, Complaint};

const READ_AND_DESCRIBE: i32 = 1 << 3 | 1 << 8;

/// A group with one member, of one topic with two partitions, which has not fetched yet.
fn healthy() -> Facts {
    let mut facts = Facts::nothing(Expectation::default());
    facts.share_version = Some(1);
    facts.brokers = 1;
    facts.offsets_topic = Backing { exists: true, replicas: Some(1) };
    facts.state_topic = Backing { exists: true, replicas: Some(1) };
    facts.size_max = Some(200);
    facts.description = Some(Ok(group_of(1)));
    facts.settings = Some(Ok(settings_of("earliest", "true")));
    facts.offsets = Some(Vec::new());
    facts.topics.insert("t".into(), topic(&[Some(1), Some(1)], READ_AND_DESCRIBE));
    facts
}

fn group_of(members: i32) -> GroupDescription {
    let member = |number| MemberDescription {
        id: format!("m{number}").into(),
        client_id: "c".into(),
        client_host: "127.0.0.1".into(),
        rack: None,
        epoch: 2,
        topics: vec!["t".into()],
        assignment: Vec::new(),
    };
    GroupDescription {
        id: "g".into(),
        state: "Stable".into(),
        epoch: 2,
        assignment_epoch: 2,
        assignor: "simple".into(),
        members: (0..members).map(member).collect(),
        rights: Rights::of(READ_AND_DESCRIBE),
    }
}

fn settings_of(reset: &str, renew: &str) -> GroupConfiguration {
    GroupConfiguration::of(&[
        ("share.auto.offset.reset", reset),
        ("share.record.lock.duration.ms", "30000"),
        ("share.renew.acknowledge.enable", renew),
    ])
}

fn topic(leaders: &[Option<i32>], rights: i32) -> TopicFacts {
    let leaders = (0..).zip(leaders).map(|(number, leader)| (number, leader.map(BrokerId)));
    let found = Topic { leaders: leaders.collect(), rights: Rights::of(rights) };
    TopicFacts { found: Some(Ok(found)), ends: BTreeMap::from([(0, (10, 30)), (1, (0, 5))]) }
}

fn refused(code: ErrorCode) -> TopicFacts {
    let complaint = Complaint { code, message: None };
    TopicFacts { found: Some(Err(complaint)), ends: BTreeMap::new() }
}

/// What is found, as `severity name`.
fn found(facts: &Facts) -> Vec<String> {
    let findings = judge(facts);
    findings.iter().map(|finding| format!("{} {}", finding.severity.name(), finding.cause.name())).collect()
}

/// What is found after one change to what is healthy.
fn after(change: impl FnOnce(&mut Facts)) -> Vec<String> {
    let mut facts = healthy();
    change(&mut facts);
    found(&facts)
}

#[test]
fn nothing_is_found_where_nothing_is_wrong() {
    assert_eq!(found(&healthy()), Vec::<String>::new());
}

#[test]
fn a_cluster_that_cannot_be_asked_is_all_that_is_found() {
    let unreachable = |is_too_old| {
        let mut facts = Facts::nothing(Expectation { renews_locks: true, ..Expectation::default() });
        facts.has_renewal = false;
        facts.unreachable = Some(Unreachable { problem: "why".into(), is_too_old });
        found(&facts)
    };
    assert_eq!(unreachable(false), ["blocks unreachable"]);
    assert_eq!(unreachable(true), ["blocks too-old"]);
}

#[test]
fn share_groups_that_are_switched_off() {
    assert_eq!(after(|facts| facts.share_version = Some(0)), ["blocks share-version-off"]);
    assert_eq!(after(|facts| facts.membership = Membership::SwitchedOff), ["blocks share-version-off"]);
    assert_eq!(after(|facts| facts.share_version = None), Vec::<String>::new(), "a broker that says nothing");
}

#[test]
fn topics_of_the_clusters_own_that_cannot_be_made() {
    let backing = |exists, replicas| Backing { exists, replicas };
    let state = |of| after(|facts| facts.state_topic = of);
    assert_eq!(state(backing(false, Some(3))), ["blocks state-topic-replication"]);
    assert_eq!(state(backing(true, Some(3))), Vec::<String>::new(), "it was made before");
    assert_eq!(state(backing(false, Some(1))), Vec::<String>::new());
    assert_eq!(state(backing(false, None)), Vec::<String>::new(), "nobody may know");
    let offsets = after(|facts| facts.offsets_topic = backing(false, Some(3)));
    assert_eq!(offsets, ["blocks offsets-topic-replication"]);
    let cause = Cause::StateTopicReplication { wanted: 3, brokers: 1 };
    assert!(cause.to_string().contains("is 3 and there is one broker; start more brokers"), "{cause}");
}

#[test]
fn rights_that_are_missing_are_each_told_once() {
    let group = |operation| MissingRight::on_group(operation, "g");
    let denied = after(|facts| {
        facts.membership = Membership::Denied(group(Operation::Describe));
        let right = group(Operation::Describe);
        facts.description = Some(Err(DescribeError::Denied { group: "g".into(), right }));
    });
    assert_eq!(denied, ["blocks denied"]);
    let unread = after(|facts| {
        facts.membership = Membership::Denied(group(Operation::Read));
        let mut described = group_of(1);
        described.rights = Rights::of(1 << 8);
        facts.description = Some(Ok(described));
    });
    assert_eq!(unread, ["blocks denied"]);
    let topic_unread = after(|facts| {
        facts.topics.insert("t".into(), topic(&[Some(1)], 1 << 8));
    });
    assert_eq!(topic_unread, ["blocks denied"]);
    let topic_unseen = after(|facts| {
        facts.topics.insert("t".into(), refused(ErrorCode::TOPIC_AUTHORIZATION_FAILED));
    });
    assert_eq!(topic_unseen, ["blocks denied"]);
    let settings_unseen = after(|facts| {
        let right = group(Operation::DescribeConfigs);
        facts.settings = Some(Err(ConfigurationError::Denied { group: "g".into(), right }));
    });
    assert_eq!(settings_unseen, ["note settings-unseen"]);
}

#[test]
fn topics_that_are_not_there_or_have_no_leader() {
    let with = |facts_of_topic| after(|facts| drop(facts.topics.insert("t".into(), facts_of_topic)));
    assert_eq!(with(refused(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)), ["blocks topic-missing"]);
    assert_eq!(with(TopicFacts { found: None, ends: BTreeMap::new() }), ["blocks topic-missing"]);
    assert_eq!(with(refused(ErrorCode::INVALID_TOPIC_EXCEPTION)), ["blocks topic-refused"]);
    assert_eq!(with(topic(&[None, None], READ_AND_DESCRIBE)), ["blocks no-leader"]);
    assert_eq!(with(topic(&[Some(1), None], READ_AND_DESCRIBE)), ["warning no-leader"]);
    let cause = Cause::NoLeader { topic: "t".into(), partitions: vec![1, 4], total: 6 };
    assert_eq!(
        cause.to_string(),
        "2 of 6 partitions of topic `t` have no leader (1, 4); start the brokers that have it"
    );
    assert_eq!(after(|facts| facts.topics.clear()), ["note no-topics"]);
}

#[test]
fn records_that_are_older_than_the_group() {
    let latest = |facts: &mut Facts| facts.settings = Some(Ok(settings_of("latest", "true")));
    let mut facts = healthy();
    latest(&mut facts);
    let findings = judge(&facts);
    let expected = Cause::SkipsOlderRecords { topic: "t".into(), records: 25, policy: "latest".into() };
    assert_eq!(findings, [Finding { severity: Severity::Warning, cause: expected }]);
    let stands = |start| {
        after(|facts| {
            latest(facts);
            let partition =
                PartitionOffset { partition: 0, start, leader_epoch: None, lag: None, complaint: None };
            facts.offsets = Some(vec![TopicOffsets { topic: "t".into(), partitions: vec![partition] }]);
        })
    };
    assert_eq!(stands(Some(12)), Vec::<String>::new(), "it has begun");
    assert_eq!(stands(None), ["warning skips-older-records"]);
    let empty = after(|facts| {
        latest(facts);
        facts.topics.values_mut().for_each(|topic| topic.ends = BTreeMap::from([(0, (7, 7))]));
    });
    assert_eq!(empty, Vec::<String>::new());
}

#[test]
fn locks_that_cannot_be_renewed_matter_to_who_renews_them() {
    let with = |renews_locks, has_renewal| {
        after(|facts| {
            facts.expectation.renews_locks = renews_locks;
            facts.has_renewal = has_renewal;
            facts.settings = Some(Ok(settings_of("earliest", "false")));
        })
    };
    assert_eq!(with(false, true), Vec::<String>::new());
    assert_eq!(with(true, true), ["warning renew-disabled"]);
    assert_eq!(with(true, false), ["warning renew-unknown"]);
    let cause = Cause::RenewDisabled { lock: Some(Duration::from_secs(30)) };
    assert!(cause.to_string().contains("comes again 30s after it was handed out"), "{cause}");
}

#[test]
fn a_group_that_is_full_or_empty_or_done() {
    let of = |members, limit| {
        after(|facts| {
            facts.description = Some(Ok(group_of(members)));
            facts.size_max = limit;
        })
    };
    assert_eq!(of(3, Some(3)), ["blocks group-full"]);
    assert_eq!(of(3, None), Vec::<String>::new());
    assert_eq!(of(0, Some(3)), ["note nobody-there"]);
    let done = after(|facts| {
        let partition = |partition, lag| PartitionOffset {
            partition,
            start: Some(1),
            leader_epoch: Some(0),
            lag,
            complaint: None,
        };
        let partitions = vec![partition(0, Some(0)), partition(1, Some(0))];
        facts.offsets = Some(vec![TopicOffsets { topic: "t".into(), partitions }]);
    });
    assert_eq!(done, ["note nothing-left"]);
}
