//! What becomes of deferred records, moment by moment.

use std::sync::Arc;

use tidegate_model::{Handle, Message};

use super::*;
use crate::{BrokerId, Lease, TopicId, TopicPartition};

const LOCK: Duration = Duration::from_secs(30);
const LIMITS: HoldLimits = HoldLimits { records: 2, bytes: 10_000, time: Duration::from_secs(120) };

fn at(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

fn key(offset: i64) -> Key {
    let partition = TopicPartition { topic: TopicId([1; 16]), partition: 0 };
    Key { member: 0, lease: Lease { broker: BrokerId(1), partition, offset, acquisition: 1 } }
}

fn delivery(offset: i64) -> Delivery {
    Delivery {
        message: Arc::new(Message::new("t", format!("{offset}"))),
        order: None,
        attempt: 3,
        received_at: at(0),
        lease: LOCK,
        expires_at: at(30),
        handle: Handle { routing: Arc::default(), text: "h".into() },
    }
}

/// A keeper that was told at 0 to hold a record of a lock until 30.
fn deferred(limits: HoldLimits, due: u64) -> Keeper {
    let mut keeper = Keeper::new(limits);
    defer(&mut keeper, 1, due);
    keeper
}

fn defer(keeper: &mut Keeper, offset: i64, due: u64) {
    let lock = Lock { ends: at(30), length: LOCK };
    assert!(keeper.defer(at(0), key(offset), lock, delivery(offset), at(due)));
}

fn take(keeper: &mut Keeper, now: u64) -> Vec<Delivery> {
    keeper.take_due(at(now), 10, usize::MAX)
}

#[test]
fn it_comes_again_when_it_is_due_and_not_before() {
    let mut keeper = deferred(LIMITS, 10);
    assert_eq!(keeper.held().records, 1);
    assert_eq!(keeper.poll_timeout(), Some(at(10)));
    assert_eq!(keeper.poll(at(9)), []);
    assert!(take(&mut keeper, 9).is_empty() && !keeper.has_due());
    assert_eq!(keeper.poll(at(10)), []);
    assert!(keeper.has_due());
    let taken = take(&mut keeper, 11);
    assert_eq!(taken.len(), 1);
    assert_eq!((taken[0].attempt, taken[0].received_at, taken[0].expires_at), (3, at(11), at(30)));
    assert_eq!(keeper.held(), Amount::default());
    assert_eq!(keeper.take_ended(), Ended { due: 1, ..Ended::default() });
    // Forgotten with its lock.
    assert_eq!(keeper.poll(at(30)), []);
    assert_eq!((keeper.poll_timeout(), keeper.entries.len()), (None, 0));
}

#[test]
fn its_lock_is_renewed_until_it_is_due() {
    let mut keeper = deferred(LIMITS, 40);
    assert_eq!(keeper.poll(at(14)), []);
    assert_eq!(keeper.poll(at(15)), [(key(1), Action::Renew)]);
    assert_eq!(keeper.poll_timeout(), None);
    keeper.handle_result(at(16), key(1), Action::Renew, at(15), &Ok(()));
    assert_eq!(keeper.entries[&key(1)].lock.ends, at(45));
    assert_eq!(keeper.poll(at(30)), [(key(1), Action::Renew)]);
    keeper.handle_result(at(31), key(1), Action::Renew, at(30), &Ok(()));
    assert_eq!(keeper.poll(at(40)), []);
    assert_eq!(take(&mut keeper, 40)[0].expires_at, at(60));
}

#[test]
fn one_that_is_due_and_not_taken_is_kept_on() {
    let mut keeper = deferred(LIMITS, 10);
    keeper.poll(at(10));
    assert_eq!(keeper.poll(at(15)), [(key(1), Action::Renew)]);
    keeper.handle_result(at(15), key(1), Action::Renew, at(15), &Ok(()));
    assert_eq!(take(&mut keeper, 20)[0].expires_at, at(45));
}

#[test]
fn what_is_beyond_the_count_is_released_when_due_or_at_the_end_of_its_lock() {
    let mut keeper = Keeper::new(LIMITS);
    for (offset, due) in [(1, 100), (2, 100), (3, 100), (4, 20), (5, 10)] {
        defer(&mut keeper, offset, due);
    }
    assert_eq!(keeper.held().records, 5);
    keeper.poll(at(10));
    assert_eq!(take(&mut keeper, 10)[0].message.id.as_str(), "5");
    assert_eq!(keeper.poll(at(15)), [(key(1), Action::Renew), (key(2), Action::Renew)]);
    for offset in [1, 2] {
        keeper.handle_result(at(15), key(offset), Action::Renew, at(15), &Ok(()));
    }
    assert_eq!(keeper.poll(at(20)), [(key(4), Action::Release)]);
    assert_eq!(keeper.poll(at(26)), []);
    assert_eq!(keeper.poll(at(27)), [(key(3), Action::Release)]);
    for offset in [3, 4] {
        keeper.handle_result(at(28), key(offset), Action::Release, at(27), &Ok(()));
    }
    assert_eq!(keeper.take_ended(), Ended { due: 1, released: 2, lease_gone: 0 });
    assert_eq!(keeper.held().records, 2);
}

#[test]
fn bytes_are_bounded_and_fill_it() {
    let limits = HoldLimits { bytes: 600, records: 10, ..LIMITS };
    let mut keeper = Keeper::new(limits);
    for offset in 1..=3 {
        defer(&mut keeper, offset, 100);
    }
    let size = delivery(1).message.size_bytes();
    assert_eq!((keeper.held().bytes, keeper.renewed.records), (3 * size, 600 / size));
    assert!(keeper.is_full());
}

#[test]
fn time_is_bounded_over_all_deferrals_of_one_delivery() {
    let mut keeper = deferred(LIMITS, 10);
    keeper.poll(at(10));
    take(&mut keeper, 10);
    let lock = Lock { ends: at(30), length: LOCK };
    assert!(keeper.defer(at(12), key(1), lock, delivery(1), at(1_000)));
    let mut now = 15;
    while let [(_, Action::Renew)] = keeper.poll(at(now))[..] {
        keeper.handle_result(at(now), key(1), Action::Renew, at(now), &Ok(()));
        now += 15;
    }
    // Deferred first at 0, so not renewed at 120 any more; the last lock is until 135.
    assert_eq!(now, 120);
    assert_eq!(keeper.poll(at(131)), []);
    assert_eq!(keeper.poll(at(132)), [(key(1), Action::Release)]);
}

#[test]
fn a_lock_that_cannot_be_renewed_is_used_up() {
    let mut keeper = deferred(LIMITS, 25);
    assert_eq!(keeper.poll(at(15)), [(key(1), Action::Renew)]);
    keeper.handle_result(at(15), key(1), Action::Renew, at(15), &Err(AcknowledgeError::NotRenewable));
    assert_eq!(keeper.poll(at(24)), []);
    assert_eq!(keeper.poll(at(25)), [(key(1), Action::Release)]);
}

#[test]
fn a_lock_that_is_lost_is_forgotten() {
    let mut keeper = deferred(LIMITS, 40);
    keeper.poll(at(15));
    keeper.handle_result(at(15), key(1), Action::Renew, at(15), &Err(AcknowledgeError::LeaseEnded));
    assert_eq!(keeper.take_ended().lease_gone, 1);
    let mut late = deferred(LIMITS, 10);
    assert_eq!(late.poll(at(30)), []);
    assert_eq!((late.take_ended().lease_gone, late.held().records), (1, 0));
    let lock = Lock { ends: at(30), length: LOCK };
    assert!(!late.defer(at(30), key(1), lock, delivery(1), at(40)));
}

#[test]
fn a_renewal_under_way_is_waited_for() {
    let mut keeper = deferred(LIMITS, 40);
    keeper.poll(at(15));
    keeper.handle_result(at(15), key(1), Action::Renew, at(15), &Err(AcknowledgeError::RenewalUnderWay));
    assert_eq!(keeper.poll_timeout(), Some(at(15) + SPACING));
}

#[test]
fn a_long_renewal_is_renewed_again_until_something_final_is_said() {
    let mut keeper = Keeper::new(LIMITS);
    keeper.keep(at(10), key(1), Lock { ends: at(40), length: LOCK }, at(70));
    assert_eq!(keeper.poll(at(25)), [(key(1), Action::Renew)]);
    keeper.handle_result(at(25), key(1), Action::Renew, at(25), &Ok(()));
    assert_eq!(keeper.poll(at(40)), [(key(1), Action::Renew)]);
    keeper.forget(&key(1));
    keeper.handle_result(at(41), key(1), Action::Renew, at(40), &Ok(()));
    assert_eq!((keeper.poll_timeout(), keeper.entries.len()), (None, 0));
    keeper.keep(at(10), key(2), Lock { ends: at(40), length: LOCK }, at(40));
    assert_eq!(keeper.poll(at(39)), []);
    assert_eq!(keeper.held(), Amount::default());
}

#[test]
fn while_nothing_is_handed_out_all_is_given_back() {
    let limits = HoldLimits { records: 4, ..LIMITS };
    let mut keeper = deferred(limits, 10);
    defer(&mut keeper, 2, 14);
    defer(&mut keeper, 3, 100);
    assert_eq!(keeper.poll(at(10)), []);
    assert!(keeper.has_due());
    keeper.set_handing_out(at(11), false);
    assert!(take(&mut keeper, 11).is_empty() && !keeper.has_due());
    assert_eq!(keeper.poll(at(11)), [(key(1), Action::Release)], "it was due");
    assert_eq!(keeper.poll(at(13)), []);
    assert_eq!(keeper.poll(at(14)), [(key(2), Action::Release)], "when it is due");
    let lock = Lock { ends: at(30), length: LOCK };
    assert!(keeper.defer(at(14), key(4), lock, delivery(4), at(50)));
    assert_eq!(keeper.poll(at(26)), []);
    let last = [(key(3), Action::Release), (key(4), Action::Release)];
    assert_eq!(keeper.poll(at(27)), last, "no lock is renewed any more");
    for offset in 1..=4 {
        keeper.handle_result(at(27), key(offset), Action::Release, at(27), &Ok(()));
    }
    assert_eq!((keeper.held().records, keeper.take_ended().released), (0, 4));
    keeper.set_handing_out(at(28), true);
    assert!(keeper.defer(at(28), key(5), Lock { ends: at(58), length: LOCK }, delivery(5), at(29)));
    assert_eq!(keeper.poll(at(29)), []);
    assert_eq!(take(&mut keeper, 29).len(), 1);
}
