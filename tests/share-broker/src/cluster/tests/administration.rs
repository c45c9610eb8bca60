use kafka_wire::{
    AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse, ApiVersionsRequest, ApiVersionsResponse,
    CreateTopicsRequest, CreateTopicsResponse, DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse, DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsResponse,
    FindCoordinatorRequest, FindCoordinatorResponse, MetadataRequest, MetadataResponse,
    SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest, SaslHandshakeResponse,
    ShareGroupDescribeRequest, ShareGroupDescribeResponse, alter_share_group_offsets_request,
    create_topics_request, delete_share_group_offsets_request, describe_share_group_offsets_request,
    metadata_request,
};

use super::*;
use crate::error_code::*;
use crate::options::Reset;
use crate::wire::Api;

fn s(text: &str) -> StrBytes {
    StrBytes::from(text)
}

fn offsets(bench: &mut Bench, connection: ConnectionId) -> Vec<(i64, i64)> {
    let group = message!(describe_share_group_offsets_request::DescribeShareGroupOffsetsRequestGroup {
        group_id: s(GROUP),
        topics: Some(vec![message!(
            describe_share_group_offsets_request::DescribeShareGroupOffsetsRequestTopic {
                topic_name: s(TOPIC),
                partitions: vec![0],
            }
        )]),
    });
    let body = message!(DescribeShareGroupOffsetsRequest { groups: vec![group] });
    let answer: DescribeShareGroupOffsetsResponse = bench.ask(connection, body);
    assert_eq!(answer.groups[0].error_code, 0);
    answer.groups[0].topics[0]
        .partitions
        .iter()
        .map(|partition| (partition.start_offset, partition.lag))
        .collect()
}

#[test]
fn topics_by_name_and_by_id() {
    let mut bench = Bench::new(Options { nodes: 2, ..Options::quick() }, 0);
    bench.cluster.create_topic("u", 3);
    let connection = bench.connect(2);
    let topic = |name: Option<&str>, id| {
        message!(metadata_request::MetadataRequestTopic { name: name.map(s), topic_id: id })
    };
    let asked = vec![
        topic(Some("u"), Uuid::ZERO),
        topic(Some("absent"), Uuid::ZERO),
        topic(None, bench.topic),
        topic(None, Uuid::from_bytes([9; 16])),
    ];
    let answer: MetadataResponse = bench.ask(connection, message!(MetadataRequest { topics: Some(asked) }));
    assert_eq!(answer.brokers.len(), 2);
    let codes: Vec<i16> = answer.topics.iter().map(|topic| topic.error_code).collect();
    assert_eq!(codes, [0, UNKNOWN_TOPIC_OR_PARTITION, 0, UNKNOWN_TOPIC_ID]);
    let leaders: Vec<i32> = answer.topics[0].partitions.iter().map(|partition| partition.leader_id).collect();
    assert_eq!(leaders, [1, 2, 1]);
    assert_eq!(answer.topics[2].name.as_deref(), Some(TOPIC));
    bench.cluster.set_topic_access("u", Access::Nothing);
    let all: MetadataResponse = bench.ask(connection, message!(MetadataRequest { topics: None }));
    assert_eq!(all.topics.len(), 1);
}

#[test]
fn coordinators_are_found_after_a_while_and_only_one_will_do() {
    let options = Options { nodes: 3, coordinator_delay: ms(100), ..Options::quick() };
    let mut bench = Bench::new(options, 0);
    let connection = bench.connect(1);
    let find = |kind| message!(FindCoordinatorRequest { key_type: kind, coordinator_keys: vec![s(GROUP)] });
    let early: FindCoordinatorResponse = bench.ask(connection, find(0));
    assert_eq!(early.coordinators[0].error_code, COORDINATOR_NOT_AVAILABLE);
    bench.now = ms(100);
    let found: FindCoordinatorResponse = bench.ask(connection, find(0));
    assert_eq!(
        (found.coordinators[0].error_code, found.coordinators[0].port),
        (0, 9_000 + found.coordinators[0].node_id)
    );
    let share: FindCoordinatorResponse = bench.ask(connection, find(2));
    assert_eq!(share.coordinators[0].error_code, INVALID_REQUEST, "that kind is for brokers");
    let wrong = found.coordinators[0].node_id % 3 + 1;
    let elsewhere = bench.connect(wrong);
    assert_eq!(bench.heartbeat(elsewhere, "b", 0, Some(&[TOPIC])).error_code, NOT_COORDINATOR);
    bench.cluster.move_coordinator(GROUP, wrong);
    assert_eq!(bench.heartbeat(elsewhere, "b", 0, Some(&[TOPIC])).error_code, 0);
}

#[test]
fn heartbeats_that_cannot_be() {
    let mut bench = Bench::quick(0);
    let connection = bench.connect(1);
    assert_eq!(bench.heartbeat(connection, "", 0, Some(&[TOPIC])).error_code, INVALID_REQUEST);
    assert_eq!(bench.heartbeat(connection, &"x".repeat(37), 0, Some(&[TOPIC])).error_code, INVALID_REQUEST);
    assert_eq!(bench.heartbeat(connection, "a", -2, None).error_code, INVALID_REQUEST);
    assert_eq!(bench.heartbeat(connection, "zz", 3, None).error_code, UNKNOWN_MEMBER_ID);
    let body =
        message!(ShareGroupHeartbeatRequest { group_id: s("absent"), member_id: s("a"), member_epoch: 5 });
    let answer: ShareGroupHeartbeatResponse = bench.ask(connection, body);
    assert_eq!(answer.error_code, GROUP_ID_NOT_FOUND);
    assert_eq!(answer.error_message.as_deref(), Some("Share group absent not found."));
}

#[test]
fn groups_are_described() {
    let mut bench = Bench::quick(0);
    let connection = bench.connect(1);
    bench.heartbeat(connection, "a", 3, None);
    let body = message!(ShareGroupDescribeRequest { group_ids: vec![s(GROUP), s("absent")] });
    let answer: ShareGroupDescribeResponse = bench.ask(connection, body.clone());
    let (group, absent) = (&answer.groups[0], &answer.groups[1]);
    assert_eq!((group.group_state.as_str(), group.members.len()), ("Stable", 1));
    assert_eq!(group.members[0].assignment.topic_partitions[0].topic_name.as_str(), TOPIC);
    assert_eq!((absent.error_code, absent.group_state.as_str()), (GROUP_ID_NOT_FOUND, "Dead"));
    bench.now = ms(45_000);
    let answer: ShareGroupDescribeResponse = bench.ask(connection, body);
    assert_eq!(answer.groups[0].group_state.as_str(), "Empty");
}

#[test]
fn offsets_are_seen_and_set_when_nobody_is_there() {
    let mut bench = Bench::quick(1);
    let connection = bench.connect(1);
    assert_eq!(offsets(&mut bench, connection), [(-1, -1)]);
    bench.fetch(connection, &Fetch { records: 10, ..FETCH });
    bench.acknowledge(connection, "a", 1, &[(0, 5, 9, &[1])]);
    assert_eq!(offsets(&mut bench, connection), [(0, 95)]);
    let partition = message!(alter_share_group_offsets_request::AlterShareGroupOffsetsRequestPartition {
        partition_index: 0,
        start_offset: 50,
    });
    let topic = message!(alter_share_group_offsets_request::AlterShareGroupOffsetsRequestTopic {
        topic_name: s(TOPIC),
        partitions: vec![partition],
    });
    let alter = message!(AlterShareGroupOffsetsRequest { group_id: s(GROUP), topics: vec![topic] });
    let refused: AlterShareGroupOffsetsResponse = bench.ask(connection, alter.clone());
    assert_eq!(refused.error_code, NON_EMPTY_GROUP);
    assert_eq!(bench.heartbeat(connection, "a", -1, None).error_code, 0);
    let altered: AlterShareGroupOffsetsResponse = bench.ask(connection, alter);
    assert_eq!((altered.error_code, altered.responses[0].partitions[0].error_code), (0, 0));
    assert_eq!(offsets(&mut bench, connection), [(50, 50)]);
    bench.join("a");
    let first = bench.fetch(connection, &Fetch { records: 1, ..FETCH });
    assert_eq!(acquired(&first)[0], (0, 50, 50, 1));
    assert_eq!(bench.heartbeat(connection, "a", -1, None).error_code, 0);
    let topic = message!(delete_share_group_offsets_request::DeleteShareGroupOffsetsRequestTopic {
        topic_name: s(TOPIC),
    });
    let delete = message!(DeleteShareGroupOffsetsRequest { group_id: s(GROUP), topics: vec![topic] });
    let deleted: DeleteShareGroupOffsetsResponse = bench.ask(connection, delete);
    assert_eq!((deleted.error_code, deleted.responses[0].error_code), (0, 0));
    assert_eq!(offsets(&mut bench, connection), [(-1, -1)]);
}

#[test]
fn topics_are_made_on_request() {
    let mut bench = Bench::quick(0);
    let connection = bench.connect(1);
    let topic = |name: &str, partitions| {
        message!(create_topics_request::CreatableTopic { name: s(name), num_partitions: partitions })
    };
    let body =
        message!(CreateTopicsRequest { topics: vec![topic("new", 3), topic(TOPIC, 1), topic("none", 0)] });
    let answer: CreateTopicsResponse = bench.ask(connection, body);
    let codes: Vec<i16> = answer.topics.iter().map(|topic| topic.error_code).collect();
    assert_eq!(codes, [0, TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS]);
    assert_eq!(bench.cluster.topic_id("new"), Some(answer.topics[0].topic_id));
}

#[test]
fn versions_that_are_not_served() {
    let mut bench = Bench::quick(0);
    let connection = bench.connect(1);
    let versions: ApiVersionsResponse = bench.ask(connection, ApiVersionsRequest::default());
    let of = |api: Api| {
        let key = versions.api_keys.iter().find(|key| key.api_key == api.key()).expect("it is served");
        (key.min_version, key.max_version)
    };
    assert_eq!(
        (of(Api::ShareFetch), of(Api::ShareGroupHeartbeat), of(Api::Metadata)),
        ((1, 2), (1, 1), (0, 13))
    );
    assert_eq!(versions.finalized_features[0].name.as_str(), "share.version");
    // Key, version, number, no client id, no tags.
    let frame = |key: u8, version: u8| Bytes::from(vec![0, key, 0, version, 0, 0, 0, 7, 255, 255, 0]);
    let future = bench.cluster.handle_frame(bench.now, connection, frame(18, 9));
    let Some(Answer::Response(response)) = future.first() else { panic!("no answer: {future:?}") };
    assert_eq!((response.version, response.correlation_id), (0, 7));
    let frame_bytes = response.encode().expect("it can be said in version 0");
    assert_eq!(frame_bytes[4..10], [0, 0, 0, 7, 0, 35]);
    assert_eq!(bench.cluster.handle_frame(bench.now, connection, frame(78, 3)), [Answer::Disconnect]);
    assert!(bench.cluster.connections_of(1).is_empty());
}

#[test]
fn a_cluster_without_share_groups() {
    let mut cluster = Cluster::new(Options { share_groups: false, ..Options::quick() });
    let topic = cluster.create_topic(TOPIC, 1);
    let mut bench = Bench { cluster, now: Duration::ZERO, topic };
    let connection = bench.connect(1);
    let versions: ApiVersionsResponse = bench.ask(connection, ApiVersionsRequest::default());
    assert!(versions.api_keys.iter().all(|key| key.api_key < 76));
    assert!(versions.finalized_features.is_empty());
    let request = Request::new(bench.fetch_body(&FETCH));
    assert_eq!(bench.cluster.handle_request(bench.now, connection, request), [Answer::Disconnect]);
}

#[test]
fn who_does_not_say_who_he_is_is_shown_the_door() {
    let users = vec![("alice".to_owned(), "secret".to_owned())];
    let mut cluster = Cluster::new(Options { users, ..Options::quick() });
    let topic = cluster.create_topic(TOPIC, 1);
    let mut bench = Bench { cluster, now: Duration::ZERO, topic };
    let connection = bench.connect(1);
    let metadata = || Request::new(message!(MetadataRequest { topics: None }));
    assert_eq!(bench.cluster.handle_request(bench.now, connection, metadata()), [Answer::Disconnect]);
    let connection = bench.connect(1);
    let handshake = |mechanism| message!(SaslHandshakeRequest { mechanism: s(mechanism) });
    let refused: SaslHandshakeResponse = bench.ask(connection, handshake("SCRAM-SHA-256"));
    assert_eq!((refused.error_code, refused.mechanisms.len()), (UNSUPPORTED_SASL_MECHANISM, 1));
    let chosen: SaslHandshakeResponse = bench.ask(connection, handshake("PLAIN"));
    assert_eq!(chosen.error_code, 0);
    let say =
        |bytes: &'static [u8]| message!(SaslAuthenticateRequest { auth_bytes: Bytes::from_static(bytes) });
    assert!(bench.try_ask::<SaslAuthenticateResponse>(connection, say(b"\0alice\0wrong")).is_none());
    let answers = bench.wait_until(ms(1_000));
    assert_eq!((answers[0].0, answers.len(), &answers[1].1), (ms(300), 2, &Answer::Disconnect));
    let connection = bench.connect(1);
    let _: SaslHandshakeResponse = bench.ask(connection, handshake("PLAIN"));
    let done: SaslAuthenticateResponse = bench.ask(connection, say(b"\0alice\0secret"));
    assert_eq!(done.error_code, 0);
    assert_eq!(bench.cluster.handle_request(bench.now, connection, metadata()).len(), 1);
}

#[test]
fn topics_to_come_are_read_from_their_start_when_the_group_says_so() {
    let mut options = Options::quick();
    options.group.reset = Reset::Latest;
    let mut bench = Bench::new(options, 0);
    let connection = bench.connect(1);
    bench.cluster.grow_topic(TOPIC, 2);
    bench.cluster.append(TOPIC, 1, [Record::new("early")]).expect("it has grown");
    bench.heartbeat(connection, "a", 3, None);
    let answer = bench.try_fetch(connection, &Fetch { partitions: &[1], ..FETCH });
    assert!(
        answer.is_some_and(|answer| acquired(&answer) == [(1, 0, 0, 1)]),
        "partitions added later start at 0"
    );
}
