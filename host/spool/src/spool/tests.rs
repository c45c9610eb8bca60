//! The thread and the file together, in real time.

use std::path::Path;

use bytes::Bytes;
use tidegate_model::DeliveryId;

use super::*;

const ALL: Capacity = Capacity { messages: 1_000, bytes: usize::MAX };
/// How long anything may take; only waited for when something is wrong.
const PATIENCE: Duration = Duration::from_secs(30);

fn spool(directory: &Path) -> Spool {
    spool_of(directory, 1)
}

fn spool_of(directory: &Path, life: u64) -> Spool {
    let settings = Settings {
        name: "orders".into(),
        directory: directory.to_owned(),
        limits: Limits { records: 1_000, bytes: 1 << 30 },
        lease: Duration::from_secs(300),
        routing: Arc::new(Routing::default()),
        life,
    };
    Spool::start(settings, Clock::start(), Telemetry::default()).expect("a thread")
}

fn arrived(ids: impl IntoIterator<Item = u32>) -> Vec<Arrived> {
    let arrived = |id: u32| {
        let mut message = Message::new("orders", format!("m{id}"));
        message.body = Bytes::from(format!("body {id}"));
        Arrived { message: Arc::new(message), attempt: 1 }
    };
    ids.into_iter().map(arrived).collect()
}

async fn admit(spool: &Spool, ids: impl IntoIterator<Item = u32>) {
    let mut admitted = spool.admit(arrived(ids), spool.shared.clock.now() + PATIENCE);
    assert!(admitted.places.iter().all(|place| *place == Place::New), "{:?}", admitted.places);
    admitted.written.durable().await.expect("it is written");
}

/// Takes until so many are here.
async fn take(spool: &Spool, count: usize) -> Vec<Delivery> {
    let mut taken = Vec::new();
    let all = async {
        while taken.len() < count {
            let changed = spool.changed();
            let more = spool.take(ALL);
            if more.is_empty() {
                changed.await;
            }
            taken.extend(more);
        }
    };
    tokio::time::timeout(PATIENCE, all).await.unwrap_or_else(|_| panic!("{:?}", spool.status()));
    taken
}

async fn eventually(spool: &Spool, condition: impl Fn(&Spool) -> bool) {
    let all = async {
        while !condition(spool) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, all).await.unwrap_or_else(|_| panic!("{:?}", spool.status()));
}

fn ids(taken: &[Delivery]) -> Vec<&str> {
    taken.iter().map(|delivery| delivery.message.id.as_str()).collect()
}

fn settlement(delivery: &Delivery, verb: Verb) -> Settlement {
    Settlement {
        id: DeliveryId(0),
        verb,
        message: Arc::clone(&delivery.message),
        handle: delivery.handle.clone(),
        attempt: delivery.attempt,
    }
}

async fn settle(spool: &Spool, delivery: &Delivery, verb: Verb) -> Result<(), SettleFault> {
    let results = spool.settle(&[settlement(delivery, verb)]).await;
    results.into_iter().next().expect("one for each").map(drop).map_err(|error| error.fault)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_settled_comes_again_in_the_next_life_first_and_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let first = spool(directory.path());
    admit(&first, 0..10).await;
    let taken = take(&first, 10).await;
    for delivery in &taken[..5] {
        assert_eq!(settle(&first, delivery, Verb::Accept).await, Ok(()));
    }
    assert_eq!(settle(&first, &taken[5], Verb::Reject { reason: "no".into() }).await, Ok(()));
    assert_eq!(settle(&first, &taken[6], Verb::Defer(Duration::from_secs(3_600))).await, Ok(()));
    first.close().await;
    assert_eq!(settle(&first, &taken[7], Verb::Accept).await, Err(SettleFault::Broker), "it is closed");
    let second = spool_of(directory.path(), 2);
    eventually(&second, Spool::is_well).await;
    assert!(second.room().is_none(), "nothing new before them");
    let again = take(&second, 3).await;
    assert_eq!(ids(&again), ["m7", "m8", "m9"]);
    assert_eq!((again[0].attempt, &*again[0].message.body), (2, &b"body 7"[..]));
    assert!(second.room().is_some());
    assert_eq!(
        settle(&second, &taken[7], Verb::Accept).await,
        Err(SettleFault::LeaseGone),
        "of another life"
    );
    let known = second.admit(arrived([6, 8, 30]), Instant::ZERO + Duration::from_secs(9_999));
    assert_eq!(known.places, [Place::Known, Place::Known, Place::New], "deferred, out, and new");
    second.close().await;
}

/// A copy of the file is what a process leaves that is killed.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_durable_is_there_after_a_kill_at_any_moment() {
    let directory = tempfile::tempdir().unwrap();
    let first = spool(&directory.path().join("first"));
    for round in 0..10 {
        admit(&first, round * 10..round * 10 + 10).await;
        let taken = take(&first, 10).await;
        for delivery in &taken[..9] {
            assert_eq!(settle(&first, delivery, Verb::Accept).await, Ok(()));
        }
        let copy = directory.path().join(format!("copy-{round}"));
        std::fs::create_dir(&copy).unwrap();
        std::fs::copy(directory.path().join("first/orders.redb"), copy.join("orders.redb")).unwrap();
        let second = spool_of(&copy, 2);
        let left = take(&second, round as usize + 1).await;
        let wanted: Vec<_> = (0..=round).map(|round| format!("m{}", round * 10 + 9)).collect();
        assert_eq!(ids(&left), wanted);
        second.close().await;
    }
    first.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deferred_one_is_read_again_when_it_is_due_and_a_released_one_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let spool = spool(directory.path());
    admit(&spool, 0..2).await;
    let taken = take(&spool, 2).await;
    assert_eq!(settle(&spool, &taken[0], Verb::Defer(Duration::from_millis(30))).await, Ok(()));
    assert_eq!(settle(&spool, &taken[1], Verb::Release).await, Ok(()));
    let released = take(&spool, 1).await;
    assert_eq!((ids(&released), released[0].attempt), (vec!["m1"], 2));
    let due_at = spool.due_at().expect("it is deferred");
    tokio::time::sleep_until(spool.shared.clock.deadline(due_at)).await;
    let due = take(&spool, 1).await;
    assert_eq!((ids(&due), due[0].attempt, &*due[0].message.body), (vec!["m0"], 1, &b"body 0"[..]));
    spool.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_one_waits_until_the_first_lets_go_of_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let first = spool(directory.path());
    admit(&first, [1]).await;
    let second = spool_of(directory.path(), 2);
    eventually(&second, |second| second.status().is_some_and(|status| status.contains("another process")))
        .await;
    assert!(!second.is_well() && second.room().is_none());
    first.close().await;
    assert_eq!(ids(&take(&second, 1).await), ["m1"]);
    eventually(&second, |second| second.is_well() && second.status().is_none()).await;
    second.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_place_that_cannot_be_used_is_tried_until_it_can() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("spool");
    std::fs::write(&place, "a file").unwrap();
    assert!(matches!(Spool::check_place(&place), Err(PlaceError::NoDirectory { .. })));
    let spool = spool(&place);
    eventually(&spool, |spool| spool.status().is_some_and(|status| status.contains("cannot create"))).await;
    // What cannot be written in time is the broker's.
    let mut late = spool.admit(arrived([1]), spool.shared.clock.now());
    assert_eq!(late.written.durable().await, Err(NotWritten::TooLate));
    std::fs::remove_file(&place).unwrap();
    assert!(Spool::check_place(&place).is_ok(), "it is made when it is needed");
    admit(&spool, [1]).await;
    assert_eq!(ids(&take(&spool, 1).await), ["m1"]);
    spool.close().await;
    let mut closed = spool.admit(arrived([2]), Instant::ZERO + PATIENCE);
    assert_eq!(closed.written.durable().await, Err(NotWritten::Closed));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_nobody_with_something_in_it_is_a_stray() {
    let directory = tempfile::tempdir().unwrap();
    let strays = |known: &str| Spool::strays(directory.path(), |name| name == known).len();
    assert_eq!(strays("orders"), 0);
    let first = spool(directory.path());
    admit(&first, [1]).await;
    first.close().await;
    assert_eq!((strays("orders"), strays("refunds")), (0, 1));
    let second = spool_of(directory.path(), 2);
    let taken = take(&second, 1).await;
    assert_eq!(settle(&second, &taken[0], Verb::Accept).await, Ok(()));
    second.close().await;
    assert_eq!(strays("refunds"), 0, "it is empty");
}
