use super::*;

fn at(seconds: u64) -> Moment {
    Moment { since_start: Duration::from_secs(seconds), wall_ms: 1_000_000 + seconds * 1_000 }
}

fn take(cursor: &mut Cursor, now: Moment, end: u64, count_max: u32) -> Option<Batch> {
    take_as(cursor, now, end, count_max, "client")
}

fn take_as(cursor: &mut Cursor, now: Moment, end: u64, count_max: u32, holder: &str) -> Option<Batch> {
    let holder: Arc<str> = Arc::from(holder);
    cursor.take(now, end, Take { count_max, invisible: Duration::from_secs(10), holder: &holder })
}

#[test]
fn an_open_delivery_blocks_until_it_is_due_and_then_restarts_at_its_first_open_offset() {
    let mut cursor = Cursor::default();
    let batch = take(&mut cursor, at(0), 4, 32).unwrap();
    assert_eq!((batch.first, batch.count, batch.attempt), (0, 4, 1));
    assert_eq!(cursor.ack(batch.popped_ms, 0, 4), Effect::Done);
    assert_eq!(cursor.ack(batch.popped_ms, 2, 4), Effect::Done);
    assert_eq!(cursor.committed(), 1);
    assert_eq!(take(&mut cursor, at(9), 4, 32), None);
    assert_eq!(cursor.blocked_until(at(9)), Some(Duration::from_secs(10)));
    let again = take(&mut cursor, at(10), 4, 32).unwrap();
    assert_eq!((again.first, again.count, again.attempt), (1, 3, 2));
}

#[test]
fn a_suspended_change_speaks_for_the_whole_queue_and_the_last_one_counts() {
    let change = |cursor: &mut Cursor, batch: Batch, offset, seconds| {
        cursor.change(batch.popped_ms, offset, Duration::from_secs(seconds), true)
    };
    for (first, second, due) in [((0, 3), (1, 8), 8), ((0, 8), (1, 3), 3), ((1, 2), (1, 18), 18)] {
        let mut cursor = Cursor::default();
        let batch = take(&mut cursor, at(0), 3, 32).unwrap();
        assert_eq!(change(&mut cursor, batch, first.0, first.1), Effect::Done);
        assert_eq!(change(&mut cursor, batch, second.0, second.1), Effect::Done);
        assert_eq!(take(&mut cursor, at(due - 1), 3, 32), None);
        assert_eq!(take(&mut cursor, at(due), 3, 32).unwrap().first, 0);
    }
}

#[test]
fn an_unsuspended_change_speaks_for_its_message_only() {
    let mut cursor = Cursor::default();
    let batch = take(&mut cursor, at(0), 2, 32).unwrap();
    cursor.change(batch.popped_ms, 1, Duration::from_secs(3), false);
    assert_eq!(take(&mut cursor, at(9), 2, 32), None);
    cursor.ack(batch.popped_ms, 0, 2);
    assert_eq!(take(&mut cursor, at(9), 2, 32).unwrap().first, 1);
}

#[test]
fn of_changes_that_are_not_suspended_the_longest_counts() {
    // Renewed one by one, in whatever order.
    for lengths in [[28, 11, 18], [11, 28, 18], [11, 18, 28]] {
        let mut cursor = Cursor::default();
        let batch = take(&mut cursor, at(0), 3, 32).unwrap();
        for (offset, due) in lengths.into_iter().enumerate() {
            let due = Duration::from_secs(due);
            assert_eq!(cursor.change(batch.popped_ms, offset as u64, due, false), Effect::Done);
        }
        assert_eq!(cursor.blocked_until(at(11)), Some(Duration::from_secs(28)));
        assert_eq!(take(&mut cursor, at(28), 3, 32).unwrap().attempt, 2, "renewals are no attempts");
    }
}

#[test]
fn a_change_that_is_not_suspended_takes_a_suspended_one_back() {
    let mut cursor = Cursor::default();
    let batch = take(&mut cursor, at(0), 3, 32).unwrap();
    cursor.change(batch.popped_ms, 0, Duration::from_secs(5), true);
    cursor.change(batch.popped_ms, 1, Duration::from_secs(22), false);
    assert_eq!(cursor.blocked_until(at(5)), Some(Duration::from_secs(22)));
    cursor.change(batch.popped_ms, 0, Duration::from_secs(7), true);
    assert_eq!(cursor.blocked_until(at(6)), Some(Duration::from_secs(7)), "and the other way round");
}

#[test]
fn acks_are_judged_by_the_pop_time() {
    let mut cursor = Cursor::default();
    let first = take(&mut cursor, at(0), 2, 32).unwrap();
    let second = take(&mut cursor, at(10), 2, 32).unwrap();
    assert_eq!(cursor.ack(first.popped_ms, 0, 2), Effect::None);
    assert_eq!(cursor.change(first.popped_ms, 0, Duration::from_secs(60), true), Effect::None);
    assert_eq!(cursor.committed(), 0);
    assert_eq!(cursor.ack(second.popped_ms, 5, 2), Effect::Abnormal);
    assert_eq!(cursor.ack(second.popped_ms, 0, 2), Effect::Done);
    assert_eq!(cursor.ack(second.popped_ms, 0, 2), Effect::None);
}

#[test]
fn a_redelivery_in_the_same_millisecond_has_another_pop_time() {
    let mut cursor = Cursor::default();
    let first = take(&mut cursor, at(0), 1, 32).unwrap();
    cursor.change(first.popped_ms, 0, Duration::ZERO, true);
    let second = take(&mut cursor, at(0), 1, 32).unwrap();
    assert!(second.popped_ms > first.popped_ms);
    assert_eq!(cursor.ack(first.popped_ms, 0, 1), Effect::None);
}

#[test]
fn attempts_grow_with_the_same_set_only() {
    let mut cursor = Cursor::default();
    assert_eq!(take(&mut cursor, at(0), 2, 32).unwrap().attempt, 1);
    assert_eq!(take(&mut cursor, at(10), 2, 32).unwrap().attempt, 2);
    let third = take(&mut cursor, at(20), 2, 32).unwrap();
    assert_eq!(third.attempt, 3);
    cursor.change(third.popped_ms, 0, Duration::from_secs(21), true);
    assert_eq!(take(&mut cursor, at(21), 2, 32).unwrap().attempt, 3, "suspended: no further");
    assert_eq!(take(&mut cursor, at(31), 3, 32).unwrap().attempt, 1, "a message joined");
    assert_eq!(take_as(&mut cursor, at(41), 3, 32, "other").unwrap().attempt, 1, "another holder");
    assert_eq!(take_as(&mut cursor, at(51), 3, 32, "other").unwrap().attempt, 2);
    assert_eq!(take_as(&mut cursor, at(61), 3, 1, "other").unwrap().attempt, 3, "a part of the set");
}

#[test]
fn without_a_record_the_broker_believes_the_handle() {
    let mut cursor = Cursor::default();
    let batch = take(&mut cursor, at(0), 3, 32).unwrap();
    cursor.forget_held();
    assert_eq!(cursor.ack(batch.popped_ms, 1, 3), Effect::Done);
    assert_eq!(cursor.committed(), 2);
}
