use kafka_wire_core::Uuid;
use metadata_response::{MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic};

use super::*;

fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

/// Two brokers, 1 and 2, and the topic `t` with a leader and its epoch for each partition.
pub(crate) fn cluster(leaders: &[(i32, i32)]) -> MetadataResponse {
    let mut response = MetadataResponse::default();
    for id in [1, 2] {
        let mut broker = MetadataResponseBroker::default();
        broker.node_id = id;
        broker.host = "localhost".into();
        broker.port = 9_000 + id;
        response.brokers.push(broker);
    }
    let mut topic = MetadataResponseTopic::default();
    topic.name = Some("t".into());
    topic.topic_id = Uuid::from_bytes([1; 16]);
    for (index, (leader, epoch)) in (0..).zip(leaders) {
        let mut partition = MetadataResponsePartition::default();
        partition.partition_index = index;
        partition.leader_id = *leader;
        partition.leader_epoch = *epoch;
        topic.partitions.push(partition);
    }
    response.topics.push(topic);
    response
}

fn partition(partition: i32) -> TopicPartition {
    TopicPartition { topic: TopicId([1; 16]), partition }
}

fn known(leaders: &[(i32, i32)]) -> Metadata {
    let mut metadata = Metadata::new(Duration::from_secs(300), 1);
    metadata.want(Wanted::Names(["t".into()].into()));
    metadata.poll(at(0)).unwrap();
    assert!(metadata.handle_response(at(0), &cluster(leaders)));
    metadata
}

#[test]
fn asks_at_once_and_then_when_it_is_old() {
    let metadata = known(&[(1, 1)]);
    assert_eq!(metadata.leader(partition(0)), Some((BrokerId(1), 1)));
    assert_eq!(metadata.due_at(), Some(at(300_000)));
}

#[test]
fn asks_less_and_less_often_while_it_does_not_help() {
    let mut metadata = known(&[(1, 1)]);
    let mut asked = 0;
    for millis in 0..10_000 {
        metadata.refresh();
        if metadata.poll(at(millis)).is_some() {
            asked += 1;
            metadata.handle_response(at(millis), &cluster(&[(1, 1)]));
        }
    }
    assert!((6..14).contains(&asked), "{asked} requests in ten seconds");
}

#[test]
fn an_older_leader_epoch_is_no_news() {
    let mut metadata = known(&[(1, 5)]);
    let hint = LeaderHint { partition: partition(0), leader: BrokerId(2), leader_epoch: 6 };
    assert!(metadata.handle_hint(hint));
    assert!(!metadata.handle_hint(hint));
    metadata.refresh();
    metadata.poll(at(1_000)).unwrap();
    assert!(!metadata.handle_response(at(1_000), &cluster(&[(1, 5)])));
    assert_eq!(metadata.leader(partition(0)), Some((BrokerId(2), 6)));
}

#[test]
fn a_topic_that_is_made_anew_is_another_one() {
    let mut metadata = known(&[(1, 5)]);
    let mut response = cluster(&[(2, 0)]);
    response.topics[0].topic_id = Uuid::from_bytes([2; 16]);
    metadata.refresh();
    metadata.poll(at(1_000)).unwrap();
    assert!(metadata.handle_response(at(1_000), &response));
    assert_eq!(metadata.name(TopicId([1; 16])), None);
    assert_eq!(metadata.leader(partition(0)), None);
    assert_eq!(
        metadata.leader(TopicPartition { topic: TopicId([2; 16]), partition: 0 }),
        Some((BrokerId(2), 0))
    );
}

#[test]
fn a_partition_without_a_leader_has_none() {
    let metadata = known(&[(-1, 5)]);
    assert_eq!(metadata.leader(partition(0)), None);
}

#[test]
fn what_the_cluster_has_against_a_topic_is_kept_by_name() {
    let mut response = cluster(&[]);
    response.topics[0].error_code = ErrorCode::TOPIC_AUTHORIZATION_FAILED.0;
    let mut metadata = Metadata::new(Duration::from_secs(300), 1);
    metadata.poll(at(0)).unwrap();
    metadata.handle_response(at(0), &response);
    assert_eq!(metadata.complaints()["t"].code, ErrorCode::TOPIC_AUTHORIZATION_FAILED);
    assert_eq!(metadata.names().count(), 0);
}

#[test]
fn a_broker_that_is_not_named_any_more_is_still_found() {
    let mut metadata = known(&[(1, 5)]);
    let mut response = cluster(&[(2, 6)]);
    response.brokers.remove(0);
    metadata.refresh();
    metadata.poll(at(1_000)).unwrap();
    assert!(metadata.handle_response(at(1_000), &response));
    assert_eq!(metadata.address(BrokerId(1)).unwrap().port, 9_001);
}
