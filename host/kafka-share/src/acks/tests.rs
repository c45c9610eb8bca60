use proptest::prelude::*;

use super::*;
use AcknowledgeType::{Accept, Reject, Release, Renew};

const A: Acquisition = Acquisition(1);
const B: Acquisition = Acquisition(2);

fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

fn ack(first: i64, last: i64, acquisition: Acquisition, kind: AcknowledgeType) -> Acknowledgement {
    Acknowledgement { first, last, acquisition, kind, token: u64::try_from(first).unwrap() }
}

fn holding(first: i64, last: i64) -> Acks {
    let mut acks = Acks::default();
    assert_eq!(acks.acquire(first, last, A, at(1_000)), [(first, last)]);
    acks
}

/// Says something and returns what has its result at once.
fn say(acks: &mut Acks, ack: Acknowledgement) -> Vec<Told> {
    let mut results = Vec::new();
    acks.acknowledge(ack, &mut results);
    results
}

fn take(acks: &mut Acks, millis: u64) -> (Vec<Batch>, Vec<Told>) {
    let mut results = Vec::new();
    let batches = acks.take(at(millis), &mut results);
    (batches, results)
}

fn answer(acks: &mut Acks, code: ErrorCode) -> Vec<Told> {
    let mut results = Vec::new();
    acks.handle_answer(code, None, at(5_000), &mut results);
    results
}

#[test]
fn what_is_said_one_by_one_is_told_as_one_range() {
    let mut acks = holding(10, 19);
    for offset in (10..=19).rev() {
        assert_eq!(say(&mut acks, ack(offset, offset, A, Accept)), []);
    }
    let (batches, results) = take(&mut acks, 0);
    assert_eq!(batches, [Batch { first: 10, last: 19, types: vec![1] }]);
    assert_eq!(results, []);
    assert_eq!(answer(&mut acks, ErrorCode::NONE).len(), 10);
    assert!(acks.is_idle());
}

#[test]
fn a_record_is_ended_once() {
    let mut acks = holding(10, 19);
    assert_eq!(say(&mut acks, ack(10, 10, A, Accept)), []);
    let second = say(&mut acks, ack(10, 10, A, Release));
    assert_eq!(second[0].result, Err(AcknowledgeError::LeaseEnded));
    let (batches, _) = take(&mut acks, 0);
    assert_eq!(batches, [Batch { first: 10, last: 10, types: vec![1] }]);
}

#[test]
fn what_is_not_held_is_refused_and_its_neighbours_are_told() {
    let mut acks = holding(10, 19);
    let refused = say(&mut acks, ack(5, 25, A, Accept));
    let ranges: Vec<_> = refused.iter().map(|told| (told.first, told.last)).collect();
    assert_eq!(ranges, [(5, 9), (20, 25)]);
    let (batches, _) = take(&mut acks, 0);
    assert_eq!(batches, [Batch { first: 10, last: 19, types: vec![1] }]);
}

#[test]
fn an_acknowledgement_of_an_earlier_acquisition_does_not_end_a_later_one() {
    let mut acks = holding(10, 19);
    assert_eq!(acks.acquire(12, 14, B, at(2_000)), [(12, 14)]);
    let refused = say(&mut acks, ack(10, 19, A, Accept));
    let ranges: Vec<_> = refused.iter().map(|told| (told.first, told.last)).collect();
    assert_eq!(ranges, [(12, 14)]);
    assert_eq!(acks.held(), 10);
    assert_eq!(say(&mut acks, ack(12, 14, B, Reject)), []);
    let (batches, _) = take(&mut acks, 0);
    assert_eq!(batches, [Batch { first: 10, last: 19, types: vec![1, 1, 3, 3, 3, 1, 1, 1, 1, 1] }]);
}

#[test]
fn an_acknowledgement_that_waited_while_its_record_was_acquired_anew_is_refused() {
    let mut acks = holding(10, 19);
    say(&mut acks, ack(10, 19, A, Accept));
    acks.acquire(12, 12, B, at(2_000));
    let (batches, results) = take(&mut acks, 0);
    assert_eq!(
        batches,
        [Batch { first: 10, last: 11, types: vec![1] }, Batch { first: 13, last: 19, types: vec![1] }]
    );
    assert_eq!(results.iter().map(|told| (told.first, told.last)).collect::<Vec<_>>(), [(12, 12)]);
}

#[test]
fn an_offset_that_one_answer_names_twice_counts_once() {
    let mut acks = holding(10, 19);
    assert_eq!(acks.acquire(15, 25, A, at(1_000)), [(20, 25)]);
    assert_eq!(acks.acquire(12, 13, A, at(1_000)), []);
    assert_eq!(acks.held(), 16);
}

#[test]
fn what_is_certainly_late_is_not_told() {
    let mut acks = holding(10, 19);
    acks.acquire(20, 29, B, at(3_000));
    say(&mut acks, ack(10, 19, A, Accept));
    say(&mut acks, ack(20, 29, B, Accept));
    let (batches, results) = take(&mut acks, 2_000);
    assert_eq!(batches, [Batch { first: 20, last: 29, types: vec![1] }]);
    assert_eq!((results[0].first, results[0].last), (10, 19));
    assert_eq!(results[0].result, Err(AcknowledgeError::LeaseEnded));
}

#[test]
fn a_renewal_moves_the_end_and_ends_nothing() {
    let mut acks = holding(10, 19);
    say(&mut acks, ack(10, 19, A, Renew));
    assert!(acks.has_renewal());
    take(&mut acks, 900);
    assert_eq!(answer(&mut acks, ErrorCode::NONE).len(), 1);
    assert_eq!(acks.held(), 10);
    assert_eq!(acks.next_deadline(), Some(at(5_000)));
    say(&mut acks, ack(10, 19, A, Accept));
    assert_eq!(take(&mut acks, 4_000).0.len(), 1);
}

#[test]
fn an_end_said_before_a_renewal_is_told_wins() {
    let mut acks = holding(10, 19);
    say(&mut acks, ack(10, 19, A, Renew));
    say(&mut acks, ack(12, 12, A, Accept));
    let (batches, results) = take(&mut acks, 0);
    assert_eq!(batches, [Batch { first: 10, last: 19, types: vec![4, 4, 1, 4, 4, 4, 4, 4, 4, 4] }]);
    assert_eq!(results.iter().map(|told| (told.first, told.last)).collect::<Vec<_>>(), [(12, 12)]);
}

#[test]
fn renewals_that_a_group_does_not_allow_leave_the_rest_alone() {
    let mut acks = holding(10, 19);
    say(&mut acks, ack(10, 14, A, Accept));
    say(&mut acks, ack(15, 19, A, Renew));
    take(&mut acks, 0);
    let mut results = Vec::new();
    let text = Some("Renewing acquisition locks is not enabled for the group.");
    acks.handle_answer(ErrorCode::INVALID_RECORD_STATE, text, at(5_000), &mut results);
    assert_eq!(results, []);
    let (batches, _) = take(&mut acks, 0);
    assert_eq!(batches, [Batch { first: 10, last: 14, types: vec![1] }]);
    assert!(answer(&mut acks, ErrorCode::NONE)[0].result.is_ok());
    assert_eq!(acks.held(), 5);
}

#[test]
fn a_broker_that_cannot_store_is_told_again_and_not_for_ever() {
    let mut acks = holding(10, 10);
    say(&mut acks, ack(10, 10, A, Accept));
    for _ in 1..TELLINGS_MAX {
        take(&mut acks, 0);
        assert_eq!(answer(&mut acks, ErrorCode::COORDINATOR_NOT_AVAILABLE), []);
    }
    take(&mut acks, 0);
    let results = answer(&mut acks, ErrorCode::COORDINATOR_NOT_AVAILABLE);
    assert!(matches!(results[0].result, Err(AcknowledgeError::Broker { .. })));
    assert!(acks.is_idle());
}

#[test]
fn a_lost_connection_answers_for_everything() {
    let mut acks = holding(10, 19);
    say(&mut acks, ack(10, 12, A, Accept));
    take(&mut acks, 0);
    say(&mut acks, ack(13, 13, A, Accept));
    let mut results = Vec::new();
    acks.handle_lost(&AcknowledgeError::ConnectionLost, &mut results);
    assert_eq!(results.len(), 2);
    assert!(acks.is_idle());
    assert_eq!(acks.held(), 0);
}

#[test]
fn what_nobody_speaks_about_is_forgotten_when_it_is_over() {
    let mut acks = holding(10, 19);
    say(&mut acks, ack(10, 10, A, Accept));
    assert_eq!(acks.expire(at(999)), 0);
    assert_eq!(acks.expire(at(1_000)), 9);
    assert_eq!(acks.held(), 1);
}

/// A broker's side: which offsets it thinks are held, all or nothing for each request.
fn broker_takes(late: &[i64], batches: &[Batch], ended: &mut Vec<i64>) -> ErrorCode {
    let offsets: Vec<i64> = batches.iter().flat_map(|batch| batch.first..=batch.last).collect();
    if offsets.iter().any(|offset| late.contains(offset)) {
        return ErrorCode::INVALID_RECORD_STATE;
    }
    ended.extend(offsets);
    ErrorCode::NONE
}

proptest! {
    #[test]
    fn every_offset_has_one_result_and_late_ones_do_not_harm_the_others(
        late in proptest::collection::vec(0i64..200, 0..3),
        singles in any::<bool>(),
    ) {
        let mut acks = holding(0, 199);
        if singles {
            for offset in 0..200 {
                say(&mut acks, ack(offset, offset, A, Accept));
            }
        } else {
            say(&mut acks, ack(0, 199, A, Accept));
        }
        let (mut ended, mut results, mut requests) = (Vec::new(), Vec::new(), 0);
        while acks.is_waiting() {
            let batches = acks.take(at(0), &mut results);
            let code = broker_takes(&late, &batches, &mut ended);
            acks.handle_answer(code, None, at(5_000), &mut results);
            requests += 1;
            prop_assert!(requests <= SEARCH_REQUESTS_MAX + 2);
        }
        let mut told: Vec<(i64, bool)> = results
            .iter()
            .flat_map(|told| (told.first..=told.last).map(|offset| (offset, told.result.is_ok())))
            .collect();
        told.sort_unstable();
        let expected: Vec<(i64, bool)> = (0..200).map(|offset| (offset, !late.contains(&offset))).collect();
        prop_assert_eq!(told, expected);
        ended.sort_unstable();
        prop_assert_eq!(ended, (0..200).filter(|offset| !late.contains(offset)).collect::<Vec<_>>());
        prop_assert!(acks.is_idle());
    }

    #[test]
    fn what_is_told_is_ascending_held_and_answered_once(
        steps in proptest::collection::vec((0u8..6, 0i64..60, 1i64..20, 1u64..6, 0u8..4), 1..60),
    ) {
        let mut acks = Acks::default();
        let (mut said, mut answered) = (0i64, 0i64);
        let mut now = 0;
        // Each acquisition has a number of its own; what is said is about one of the last few.
        let mut newest = 0u64;
        for (step, first, length, back, kind) in steps {
            let last = first + length - 1;
            newest += u64::from(step < 2);
            let acquisition = Acquisition(if step < 2 { newest } else { newest.saturating_sub(back - 1) });
            let kind = [Accept, Release, Reject, Renew][usize::from(kind)];
            let mut results = Vec::new();
            match step {
                0 | 1 => {
                    acks.acquire(first, last, acquisition, at(now + 300));
                }
                2 | 3 => {
                    said += length;
                    acks.acknowledge(ack(first, last, acquisition, kind), &mut results);
                }
                4 => {
                    let batches = acks.take(at(now), &mut results);
                    for pair in batches.windows(2) {
                        prop_assert!(pair[0].last < pair[1].first);
                    }
                    for batch in &batches {
                        let count = usize::try_from(batch.last - batch.first + 1).unwrap();
                        prop_assert!(batch.types.len() == 1 || batch.types.len() == count);
                    }
                    let code = if length % 3 == 0 { ErrorCode::INVALID_RECORD_STATE } else { ErrorCode::NONE };
                    acks.handle_answer(code, None, at(now + 400), &mut results);
                }
                _ => {
                    now += 100;
                    acks.expire(at(now));
                }
            }
            answered += results.iter().map(|told| told.last - told.first + 1).sum::<i64>();
        }
        let mut results = Vec::new();
        acks.handle_lost(&AcknowledgeError::ConnectionLost, &mut results);
        answered += results.iter().map(|told| told.last - told.first + 1).sum::<i64>();
        prop_assert_eq!(said, answered);
        prop_assert!(acks.is_idle());
    }
}
