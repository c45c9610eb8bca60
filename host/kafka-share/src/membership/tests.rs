use kafka_wire_core::Uuid;
use share_group_heartbeat_response::{Assignment, TopicPartitions};

use super::*;

fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

fn member() -> Membership {
    let mut membership = Membership::new("g".into(), "m".into(), None, 1);
    membership.subscribe(at(0), ["t".into()].into());
    membership
}

fn answer(epoch: i32, partitions: Option<&[i32]>) -> ShareGroupHeartbeatResponse {
    let mut response = ShareGroupHeartbeatResponse::default();
    response.member_epoch = epoch;
    response.heartbeat_interval_ms = 5_000;
    response.assignment = partitions.map(|partitions| {
        let mut topic = TopicPartitions::default();
        topic.topic_id = Uuid::from_bytes([1; 16]);
        topic.partitions = partitions.to_vec();
        let mut assignment = Assignment::default();
        if !partitions.is_empty() {
            assignment.topic_partitions = vec![topic];
        }
        assignment
    });
    response
}

fn refusal(code: ErrorCode) -> ShareGroupHeartbeatResponse {
    let mut response = ShareGroupHeartbeatResponse::default();
    response.error_code = code.0;
    response
}

/// Joins and is assigned partition 0 after `millis`.
fn joined(membership: &mut Membership, millis: u64) {
    membership.poll(at(millis)).unwrap();
    membership.handle_response(at(millis), &answer(2, Some(&[0])));
    membership.poll(at(millis)).unwrap();
    membership.handle_response(at(millis), &answer(2, None));
}

#[test]
fn a_join_names_the_topics_and_later_heartbeats_do_not() {
    let mut membership = member();
    let join = membership.poll(at(0)).unwrap();
    assert_eq!((join.member_epoch, join.subscribed_topic_names.unwrap().len()), (0, 1));
    assert!(membership.poll(at(9_000)).is_none(), "one at a time");
    assert_eq!(membership.handle_response(at(10), &answer(2, Some(&[]))), Outcome::Unchanged);
    let next = membership.poll(at(60)).unwrap();
    assert_eq!((next.member_epoch, next.subscribed_topic_names), (2, None));
}

#[test]
fn heartbeats_are_eager_until_the_first_assignment_and_not_for_ever() {
    let mut membership = member();
    let mut sent = 0;
    for millis in (0..10_000).step_by(10) {
        if membership.poll(at(millis)).is_some() {
            sent += 1;
            membership.handle_response(at(millis), &answer(2, None));
        }
    }
    assert!((70..=90).contains(&sent), "{sent} heartbeats in ten seconds");
}

#[test]
fn an_assignment_is_answered_at_once() {
    let mut membership = member();
    membership.poll(at(0)).unwrap();
    let outcome = membership.handle_response(at(5), &answer(3, Some(&[0, 1])));
    assert!(matches!(outcome, Outcome::Assigned(partitions) if partitions.len() == 2));
    assert_eq!(membership.due_at(), Some(at(5)));
    assert_eq!(membership.poll(at(5)).unwrap().member_epoch, 3);
    membership.handle_response(at(6), &answer(3, None));
    assert_eq!(membership.due_at(), Some(at(5_006)));
}

#[test]
fn a_member_that_is_put_out_joins_again_with_all_it_wants_and_not_in_a_loop() {
    let mut membership = member();
    joined(&mut membership, 0);
    membership.poll(at(5_000)).unwrap();
    let outcome = membership.handle_response(at(5_000), &refusal(ErrorCode::FENCED_MEMBER_EPOCH));
    assert_eq!(outcome, Outcome::PutOut(ErrorCode::FENCED_MEMBER_EPOCH));
    assert!(membership.assignment().is_empty());
    let again = membership.poll(at(5_000)).unwrap();
    assert_eq!((again.member_epoch, again.subscribed_topic_names.is_some()), (0, true));
    let mut joins = 0;
    for millis in 5_000..15_000 {
        membership.handle_response(at(millis), &refusal(ErrorCode::UNKNOWN_MEMBER_ID));
        joins += u32::from(membership.poll(at(millis)).is_some());
    }
    assert!(joins < 12, "{joins} joins in ten seconds");
}

#[test]
fn rights_that_are_missing_are_told_and_waited_for() {
    let mut membership = member();
    membership.poll(at(0)).unwrap();
    let outcome = membership.handle_response(at(0), &refusal(ErrorCode::TOPIC_AUTHORIZATION_FAILED));
    assert!(matches!(outcome, Outcome::Complaint(_)));
    let due_at = membership.due_at().unwrap();
    assert!(due_at > at(50) && due_at <= at(100), "{due_at:?}");
    assert!(membership.poll(due_at).unwrap().subscribed_topic_names.is_some());
}

#[test]
fn a_request_that_is_wrong_is_not_repeated() {
    let mut membership = member();
    membership.poll(at(0)).unwrap();
    let outcome = membership.handle_response(at(0), &refusal(ErrorCode::INVALID_REQUEST));
    assert!(matches!(outcome, Outcome::Refused(_)));
    assert_eq!(membership.due_at(), None);
}

#[test]
fn a_leave_is_sent_once_and_an_unreachable_coordinator_does_not_hold_it_up() {
    let mut membership = member();
    joined(&mut membership, 0);
    membership.leave(at(100));
    assert_eq!(membership.poll(at(100)).unwrap().member_epoch, -1);
    assert_eq!(membership.handle_response(at(101), &answer(-1, None)), Outcome::Left);
    assert!(membership.is_outside());

    let mut membership = member();
    joined(&mut membership, 0);
    membership.leave(at(100));
    membership.poll(at(100)).unwrap();
    assert_eq!(membership.handle_failure(at(200)), Outcome::Left);
}

#[test]
fn who_leaves_while_joining_leaves_after_the_answer() {
    let mut membership = member();
    membership.poll(at(0)).unwrap();
    membership.leave(at(1));
    membership.handle_response(at(2), &answer(2, None));
    assert_eq!(membership.poll(at(2)).unwrap().member_epoch, -1);
}

#[test]
fn who_subscribes_while_leaving_joins_again() {
    let mut membership = member();
    joined(&mut membership, 0);
    membership.leave(at(100));
    membership.poll(at(100)).unwrap();
    membership.subscribe(at(101), ["u".into()].into());
    membership.handle_response(at(102), &answer(-1, None));
    let join = membership.poll(at(102)).unwrap();
    assert_eq!((join.member_epoch, join.subscribed_topic_names.unwrap()[0].as_str()), (0, "u"));
}

#[test]
fn what_is_subscribed_to_while_a_heartbeat_is_under_way_goes_with_the_next() {
    let mut membership = member();
    joined(&mut membership, 0);
    membership.poll(at(5_000)).unwrap();
    membership.subscribe(at(5_001), ["u".into()].into());
    membership.handle_response(at(5_002), &answer(2, None));
    let next = membership.poll(at(5_002)).unwrap();
    assert_eq!(next.subscribed_topic_names.unwrap()[0].as_str(), "u");
}

#[test]
fn throttling_is_obeyed() {
    let mut membership = member();
    membership.poll(at(0)).unwrap();
    let mut response = answer(2, None);
    response.throttle_time_ms = 700;
    membership.handle_response(at(0), &response);
    assert_eq!(membership.due_at(), Some(at(700)));
}
