use super::*;
use crate::store::message::{NewMessage, Room, Stored, Usage};

fn at(seconds: u64) -> Moment {
    Moment { since_start: Duration::from_secs(seconds), wall_ms: seconds * 1_000 }
}

fn rules() -> Rules {
    Rules {
        events_max: 2,
        backlog_scan_delay: Duration::from_secs(5),
        full_scan_delay: Duration::from_secs(7),
        inactive_after: Duration::from_secs(10),
        silent_after: Duration::from_secs(35),
        blocked_for: Duration::from_secs(10),
        registration_expires_after: Duration::from_secs(180),
    }
}

fn queues(count: u32) -> Vec<Queue> {
    let usage: Arc<Usage> = Arc::default();
    let queue = |number: u32| {
        let mut queue = Queue::new(Some(Arc::from(format!("L{number}"))));
        let message = NewMessage::default();
        let stored = Stored {
            _room: Room::take(&usage, &message),
            message,
            topic: Arc::from("T"),
            sequence: u64::from(number),
            stored_ms: 0,
            attempts_before: 0,
        };
        queue.append(Arc::new(stored), None);
        queue
    };
    (0..count).map(queue).collect()
}

fn take(group: &mut Ordered, now: Moment, queues: &[Queue], client: &Arc<str>) -> Vec<u32> {
    let ask = Take { count_max: 32, invisible: Duration::from_secs(60), holder: client };
    group.take(now, queues, client, ask).into_iter().map(|taken| taken.queue).collect()
}

#[test]
fn backlog_waits_for_the_scan_and_the_rest_for_the_next_one() {
    let queues = queues(5);
    let mut group = Ordered::dispatched(rules(), Random::seeded(1));
    let client: Arc<str> = Arc::from("a");
    group.learn(at(0), &queues);
    group.join(at(0), &queues, &client, Interest::Everything);
    assert_eq!(group.poll_timeout(), Some(Duration::from_secs(5)));
    assert!(take(&mut group, at(4), &queues, &client).is_empty());
    group.handle_timeout(at(5), &queues);
    assert_eq!(group.drain_wakes().count(), 1);
    assert_eq!(take(&mut group, at(5), &queues, &client), [0, 1]);
    group.handle_timeout(at(12), &queues);
    assert_eq!(take(&mut group, at(12), &queues, &client), [2, 3]);
}

#[test]
fn without_delays_room_is_filled_at_once() {
    let queues = queues(5);
    let rules = Rules { backlog_scan_delay: Duration::ZERO, full_scan_delay: Duration::ZERO, ..rules() };
    let mut group = Ordered::dispatched(rules, Random::seeded(1));
    let client: Arc<str> = Arc::from("a");
    group.learn(at(0), &queues);
    group.join(at(0), &queues, &client, Interest::Everything);
    let mut all = Vec::new();
    for _ in 0..3 {
        all.extend(take(&mut group, at(0), &queues, &client));
    }
    assert_eq!(all, [0, 1, 2, 3, 4]);
}

#[test]
fn queues_nobody_asks_for_wait_for_a_name() {
    let queues = queues(3);
    let rules = Rules { backlog_scan_delay: Duration::ZERO, full_scan_delay: Duration::ZERO, ..rules() };
    let mut group = Ordered::dispatched(rules, Random::seeded(1));
    let client: Arc<str> = Arc::from("a");
    group.learn(at(0), &queues);
    let names = |names: &[&str]| Interest::Names(names.iter().map(|name| Arc::from(*name)).collect());
    group.join(at(0), &queues, &client, names(&["L1"]));
    assert_eq!(take(&mut group, at(0), &queues, &client), [1]);
    assert!(take(&mut group, at(0), &queues, &client).is_empty());
    group.join(at(0), &queues, &client, names(&["L1", "L2"]));
    assert_eq!(take(&mut group, at(0), &queues, &client), [2]);
}
