use kafka_wire::{
    ShareAcknowledgeResponse, ShareFetchResponse, share_acknowledge_response, share_fetch_response,
};
use kafka_wire_core::Uuid;

use super::*;
use crate::acks::Acquisition;
use crate::{AcknowledgeType, AcquireMode, BrokerId, ErrorCode, TopicId};
use AcknowledgeType::{Accept, Renew};

const LOCK: Duration = Duration::from_secs(30);
const CARRIED_WITHIN_MS: u64 = 2;

fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

fn partition(partition: i32) -> TopicPartition {
    TopicPartition { topic: TopicId([1; 16]), partition }
}

/// A session, driven by hand.
struct Driven {
    session: Session,
    now: u64,
    acquisitions: u64,
    told: Vec<(TopicPartition, Told)>,
}

impl Driven {
    fn new(partitions: &[i32]) -> Self {
        let identity = Identity { group: "g".into(), member_id: "m".into() };
        let settings =
            FetchSettings { acquire_mode: AcquireMode::BatchOptimized, ..FetchSettings::default() };
        let mut session = Session::new(identity, Arc::new(settings), 1);
        session.assign(partitions.iter().map(|index| partition(*index)).collect());
        Self { session, now: 0, acquisitions: 0, told: Vec::new() }
    }

    fn poll(&mut self, records: usize) -> Option<SessionRequest> {
        let allowance = Allowance { records, bytes: usize::MAX };
        self.session.poll(at(self.now), allowance, &mut self.told)
    }

    fn fetch(&mut self) -> ShareFetchRequest {
        match self.poll(500) {
            Some(SessionRequest::Fetch(request)) => request,
            other => panic!("{other:?}"),
        }
    }

    /// What goes when no fetch took it along in time.
    fn acknowledge(&mut self) -> ShareAcknowledgeRequest {
        if self.session.may_be_carried(at(self.now)) {
            self.now += CARRIED_WITHIN_MS;
        }
        match self.poll(0) {
            Some(SessionRequest::Acknowledge(request)) => request,
            other => panic!("{other:?}"),
        }
    }

    fn fetched(&mut self, response: ShareFetchResponse) -> Effects {
        self.acquisitions += 1;
        let mut effects = self.session.handle_fetched(at(self.now), response, Acquisition(self.acquisitions));
        self.told.append(&mut effects.told);
        effects
    }

    fn acknowledged(&mut self, response: &ShareAcknowledgeResponse) -> Effects {
        let mut effects = self.session.handle_acknowledged(at(self.now), response);
        self.told.append(&mut effects.told);
        effects
    }

    /// Fetches offsets of one partition.
    fn acquire(&mut self, index: i32, first: i64, last: i64) -> Acquisition {
        self.fetch();
        let effects = self.fetched(records(index, first, last));
        assert_eq!(effects.acquired.len(), 1);
        Acquisition(self.acquisitions)
    }

    fn say(&mut self, index: i32, first: i64, last: i64, acquisition: Acquisition, kind: AcknowledgeType) {
        let ack = Acknowledgement { first, last, acquisition, kind, token: 7 };
        let mut told = Vec::new();
        self.session.acknowledge(partition(index), ack, &mut told);
        self.told.extend(told.into_iter().map(|told| (partition(index), told)));
    }
}

fn fetch_answer() -> ShareFetchResponse {
    let mut response = ShareFetchResponse::default();
    response.acquisition_lock_timeout_ms = 30_000;
    response
}

fn with_partition(
    mut response: ShareFetchResponse,
    change: impl FnOnce(&mut share_fetch_response::PartitionData),
) -> ShareFetchResponse {
    let mut data = share_fetch_response::PartitionData::default();
    data.current_leader.leader_id = -1;
    change(&mut data);
    let mut topic = share_fetch_response::ShareFetchableTopicResponse::default();
    topic.topic_id = Uuid::from_bytes([1; 16]);
    topic.partitions = vec![data];
    response.responses.push(topic);
    response
}

fn records(index: i32, first: i64, last: i64) -> ShareFetchResponse {
    with_partition(fetch_answer(), |data| {
        data.partition_index = index;
        let mut range = share_fetch_response::AcquiredRecords::default();
        range.first_offset = first;
        range.last_offset = last;
        range.delivery_count = 1;
        data.acquired_records = vec![range];
        data.records = vec![0; usize::try_from(last - first + 1).unwrap() * 1_000].into();
    })
}

fn acknowledge_answer(partitions: &[(i32, ErrorCode)]) -> ShareAcknowledgeResponse {
    let mut response = ShareAcknowledgeResponse::default();
    response.acquisition_lock_timeout_ms = 30_000;
    let mut topic = share_acknowledge_response::ShareAcknowledgeTopicResponse::default();
    topic.topic_id = Uuid::from_bytes([1; 16]);
    for (index, code) in partitions {
        let mut data = share_acknowledge_response::PartitionData::default();
        data.partition_index = *index;
        data.error_code = code.0;
        data.current_leader.leader_id = -1;
        topic.partitions.push(data);
    }
    response.responses.push(topic);
    response
}

fn indexes(topics: &[kafka_wire::share_fetch_request::FetchTopic]) -> Vec<i32> {
    topics.iter().flat_map(|topic| topic.partitions.iter().map(|p| p.partition_index)).collect()
}

fn forgotten(request: &ShareFetchRequest) -> Vec<i32> {
    request.forgotten_topics_data.iter().flat_map(|topic| topic.partitions.clone()).collect()
}

#[test]
fn the_first_fetch_opens_with_everything_and_later_ones_name_only_what_changed() {
    let mut driven = Driven::new(&[0, 1]);
    let opening = driven.fetch();
    assert_eq!((opening.share_session_epoch, indexes(&opening.topics)), (0, vec![0, 1]));
    assert!(driven.poll(500).is_none(), "one request at a time");
    driven.now = 500;
    driven.fetched(fetch_answer());
    let second = driven.fetch();
    assert_eq!((second.share_session_epoch, indexes(&second.topics)), (1, vec![]));
    driven.now = 1_000;
    driven.fetched(fetch_answer());
    driven.session.assign([partition(1), partition(2)].into());
    let third = driven.fetch();
    assert_eq!((indexes(&third.topics), forgotten(&third)), (vec![2], vec![0]));
    assert_eq!(third.share_session_epoch, 2);
}

#[test]
fn nothing_is_sent_that_nobody_wants() {
    let mut driven = Driven::new(&[0]);
    assert!(driven.poll(0).is_none());
    driven.acquire(0, 0, 9);
    assert!(driven.poll(0).is_none());
}

#[test]
fn acknowledgements_travel_with_a_fetch_while_records_flow_and_alone_otherwise() {
    let mut driven = Driven::new(&[0]);
    let first = driven.acquire(0, 0, 9);
    driven.say(0, 0, 9, first, Accept);
    let fetch = driven.fetch();
    assert_eq!(fetch.topics[0].partitions[0].acknowledgement_batches[0].last_offset, 9);
    driven.fetched(records(0, 10, 19));
    assert_eq!(driven.told.len(), 1);
    assert!(driven.told[0].1.result.is_ok());

    driven.fetch();
    driven.now += 100;
    driven.fetched(fetch_answer());
    driven.say(0, 10, 19, Acquisition(2), Accept);
    let alone = match driven.poll(500) {
        Some(SessionRequest::Acknowledge(request)) => request,
        other => panic!("{other:?}"),
    };
    assert_eq!((alone.share_session_epoch, alone.is_renew_ack), (3, false));
    driven.acknowledged(&acknowledge_answer(&[(0, ErrorCode::NONE)]));
    assert_eq!(driven.told.len(), 2);
}

#[test]
fn a_renewal_goes_alone_and_says_so() {
    let mut driven = Driven::new(&[0]);
    let first = driven.acquire(0, 0, 9);
    driven.say(0, 0, 4, first, Renew);
    driven.say(0, 5, 9, first, Accept);
    let request = driven.acknowledge();
    assert!(request.is_renew_ack);
    driven.acknowledged(&acknowledge_answer(&[(0, ErrorCode::NONE)]));
    assert_eq!(driven.session.held(), 5);
}

#[test]
fn a_partition_that_left_is_forgotten_within_the_next_request_and_its_records_can_still_be_acknowledged() {
    let mut driven = Driven::new(&[0, 1]);
    let first = driven.acquire(0, 0, 9);
    driven.session.assign([partition(1)].into());
    driven.say(0, 0, 9, first, Accept);
    let request = driven.acknowledge();
    assert_eq!(request.topics[0].partitions[0].partition_index, 0);
    driven.acknowledged(&acknowledge_answer(&[(0, ErrorCode::NONE)]));
    // Also when no record is wanted.
    let Some(SessionRequest::Fetch(fetch)) = driven.poll(0) else { panic!() };
    assert_eq!((forgotten(&fetch), fetch.max_records, fetch.max_wait_ms), (vec![0], 0, 0));
    driven.fetched(fetch_answer());
    assert!(driven.poll(0).is_none());
}

#[test]
fn a_session_with_nothing_left_in_it_is_closed() {
    let mut driven = Driven::new(&[0]);
    let first = driven.acquire(0, 0, 9);
    driven.session.assign(BTreeSet::new());
    let Some(SessionRequest::Fetch(fetch)) = driven.poll(0) else { panic!() };
    assert_eq!(forgotten(&fetch), [0], "held records keep the session open");
    driven.fetched(fetch_answer());
    assert!(driven.poll(500).is_none());
    driven.say(0, 0, 9, first, Accept);
    assert_eq!(driven.acknowledge().share_session_epoch, 2);
    driven.acknowledged(&acknowledge_answer(&[(0, ErrorCode::NONE)]));
    assert_eq!(driven.acknowledge().share_session_epoch, -1);
    driven.acknowledged(&acknowledge_answer(&[]));
    assert!(driven.session.is_over());
}

#[test]
fn closing_says_what_is_waiting() {
    let mut driven = Driven::new(&[0]);
    let first = driven.acquire(0, 0, 9);
    driven.say(0, 0, 3, first, Accept);
    driven.session.close();
    driven.session.assign([partition(0)].into());
    let request = driven.acknowledge();
    assert_eq!(request.share_session_epoch, -1);
    assert_eq!(request.topics[0].partitions[0].acknowledgement_batches[0].last_offset, 3);
    driven.acknowledged(&acknowledge_answer(&[(0, ErrorCode::NONE)]));
    assert!(driven.told[0].1.result.is_ok());
    assert!(driven.session.is_over());
}

#[test]
fn a_lost_session_is_opened_anew_and_what_it_was_to_be_told_is_told_again() {
    let mut driven = Driven::new(&[0]);
    let first = driven.acquire(0, 0, 9);
    driven.say(0, 0, 9, first, Accept);
    driven.acknowledge();
    let mut lost = ShareAcknowledgeResponse::default();
    lost.error_code = ErrorCode::SHARE_SESSION_NOT_FOUND.0;
    driven.acknowledged(&lost);
    assert_eq!(driven.told, []);
    let Some(SessionRequest::Fetch(opening)) = driven.poll(0) else { panic!() };
    assert_eq!((opening.share_session_epoch, opening.max_records), (0, 0));
    assert!(opening.topics[0].partitions[0].acknowledgement_batches.is_empty());
    driven.fetched(fetch_answer());
    assert_eq!(driven.acknowledge().share_session_epoch, 1);
    driven.acknowledged(&acknowledge_answer(&[(0, ErrorCode::NONE)]));
    assert!(driven.told[0].1.result.is_ok());
}

#[test]
fn sessions_that_are_lost_again_and_again_are_not_opened_in_a_loop() {
    let mut driven = Driven::new(&[0]);
    let mut opened = 0;
    for millis in 0..10_000 {
        driven.now = millis;
        if driven.poll(500).is_some() {
            opened += 1;
            let mut response = fetch_answer();
            response.error_code = ErrorCode::SHARE_SESSION_NOT_FOUND.0;
            driven.fetched(response);
        }
    }
    assert!(opened < 12, "{opened} openings in ten seconds");
}

#[test]
fn a_deleted_topic_counts_as_a_request_and_asks_for_metadata_without_a_loop() {
    let mut driven = Driven::new(&[0]);
    driven.acquire(0, 0, 0);
    let mut requests = 0;
    for millis in 0..10_000 {
        driven.now = millis;
        if let Some(SessionRequest::Fetch(fetch)) = driven.poll(500) {
            requests += 1;
            assert_eq!(fetch.share_session_epoch, requests);
            let mut response = ShareFetchResponse::default();
            response.error_code = ErrorCode::UNKNOWN_SERVER_ERROR.0;
            assert!(driven.fetched(response).is_metadata_old);
        }
    }
    assert!(requests < 12, "{requests} requests in ten seconds");
}

#[test]
fn answers_that_come_at_once_with_nothing_in_them_do_not_make_a_loop() {
    let mut driven = Driven::new(&[0]);
    let mut requests = 0;
    for millis in 0..10_000 {
        driven.now = millis;
        if driven.poll(500).is_some() {
            requests += 1;
            driven.fetched(fetch_answer());
        }
    }
    assert!(requests < 25, "{requests} requests in ten seconds");
}

#[test]
fn a_partition_with_an_error_is_left_alone_for_a_while_and_the_others_are_not() {
    let mut driven = Driven::new(&[0, 1]);
    driven.fetch();
    driven.now = 400;
    let effects = driven.fetched(with_partition(fetch_answer(), |data| {
        data.partition_index = 0;
        data.error_code = ErrorCode::NOT_LEADER_OR_FOLLOWER.0;
        data.current_leader.leader_id = 2;
        data.current_leader.leader_epoch = 9;
    }));
    assert_eq!(
        effects.leaders,
        [LeaderHint { partition: partition(0), leader: BrokerId(2), leader_epoch: 9 }]
    );
    let next = driven.fetch();
    assert_eq!(forgotten(&next), [0]);
    driven.now = 900;
    driven.fetched(fetch_answer());
    driven.now = 1_500;
    assert_eq!(indexes(&driven.fetch().topics), [0], "tried again");
}

#[test]
fn a_broken_connection_ends_everything_that_was_held() {
    let mut driven = Driven::new(&[0]);
    let first = driven.acquire(0, 0, 9);
    driven.say(0, 0, 3, first, Accept);
    driven.acknowledge();
    driven.say(0, 4, 5, first, Accept);
    let effects = driven.session.handle_lost(at(0));
    assert_eq!(effects.told.len(), 2);
    assert_eq!(driven.session.held(), 0);
    driven.now = 200;
    assert_eq!(driven.fetch().share_session_epoch, 0);
}

#[test]
fn a_broker_that_does_not_answer_about_a_partition_is_told_again() {
    let mut driven = Driven::new(&[0]);
    let first = driven.acquire(0, 0, 9);
    driven.say(0, 0, 9, first, Accept);
    driven.acknowledge();
    driven.acknowledged(&acknowledge_answer(&[]));
    assert_eq!(driven.told, []);
    driven.acknowledge();
}

#[test]
fn acknowledgements_wait_a_moment_for_the_fetch_that_takes_them_along() {
    let mut driven = Driven::new(&[0]);
    let first = driven.acquire(0, 0, 9);
    driven.say(0, 0, 4, first, Accept);
    assert!(driven.poll(0).is_none());
    let due_at = at(CARRIED_WITHIN_MS);
    assert_eq!((CARRIED_WITHIN, driven.session.due_at(at(0))), (Duration::from_millis(2), Some(due_at)));
    assert_eq!(driven.fetch().topics[0].partitions[0].acknowledgement_batches.len(), 1);
    driven.fetched(records(0, 10, 19));
    driven.say(0, 5, 9, first, Accept);
    assert!(driven.poll(0).is_none());
    driven.now += CARRIED_WITHIN_MS;
    assert!(matches!(driven.poll(0), Some(SessionRequest::Acknowledge(_))));
}

#[test]
fn offsets_that_come_twice_in_one_answer_are_acquired_once() {
    let mut driven = Driven::new(&[0]);
    driven.fetch();
    let mut response = records(0, 0, 9);
    let mut again = share_fetch_response::AcquiredRecords::default();
    again.first_offset = 5;
    again.last_offset = 14;
    response.responses[0].partitions[0].acquired_records.push(again);
    let effects = driven.fetched(response);
    assert_eq!(effects.duplicates, 5);
    let ranges: Vec<_> = effects.acquired[0].ranges.iter().map(|(first, last, _)| (*first, *last)).collect();
    assert_eq!(ranges, [(0, 9), (10, 14)]);
}

#[test]
fn ranges_that_cannot_be_are_left_out() {
    let mut driven = Driven::new(&[0]);
    driven.fetch();
    let mut response = records(0, 0, 9);
    for (first, last) in [(0, i64::MAX), (9, 3), (i64::MIN, i64::MAX)] {
        let mut range = share_fetch_response::AcquiredRecords::default();
        range.first_offset = first;
        range.last_offset = last;
        response.responses[0].partitions[0].acquired_records.push(range);
    }
    driven.fetched(response);
    assert_eq!(driven.session.held(), 10);
}

#[test]
fn fetches_ask_for_the_bytes_that_the_records_may_take() {
    let mut driven = Driven::new(&[0]);
    driven.acquire(0, 0, 9);
    let fetch = driven.fetch();
    assert_eq!((fetch.max_records, fetch.max_bytes), (500, 1_000_000));
}

#[test]
fn leases_end_before_the_broker_ends_them() {
    let mut driven = Driven::new(&[0]);
    driven.fetch();
    driven.now = 400;
    let effects = driven.fetched(records(0, 0, 9));
    assert_eq!(effects.acquired[0].expires_at, at(0) + LOCK);
}

#[test]
fn throttling_is_obeyed() {
    let mut driven = Driven::new(&[0]);
    driven.fetch();
    let mut response = records(0, 0, 9);
    response.throttle_time_ms = 700;
    driven.fetched(response);
    assert!(driven.poll(500).is_none());
    assert_eq!(driven.session.due_at(at(0)), Some(at(700)));
    driven.now = 700;
    driven.fetch();
}

#[test]
fn fetches_wait_for_a_part_of_the_lock_at_most() {
    let mut driven = Driven::new(&[0]);
    assert_eq!(driven.fetch().max_wait_ms, 500);
    driven.now = 500;
    let mut response = fetch_answer();
    response.acquisition_lock_timeout_ms = 1_000;
    driven.fetched(response);
    assert_eq!(driven.fetch().max_wait_ms, 125);
}
