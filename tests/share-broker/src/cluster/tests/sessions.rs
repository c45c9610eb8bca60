use super::*;
use crate::error_code::*;

const TEN: Fetch<'static> = Fetch { records: 10, ..FETCH };
const NEXT: Fetch<'static> = Fetch { partitions: &[], ..TEN };

#[test]
fn one_counter_for_fetches_and_acknowledgements() {
    let mut bench = Bench::quick(1);
    let connection = bench.connect(1);
    assert_eq!(acquired(&bench.fetch(connection, &TEN)), [(0, 0, 9, 1)]);
    let wrong = bench.fetch(connection, &Fetch { epoch: 5, ..NEXT });
    assert_eq!((wrong.error_code, wrong.acquisition_lock_timeout_ms), (INVALID_SHARE_SESSION_EPOCH, 0));
    let next = bench.fetch(connection, &Fetch { epoch: 1, ..NEXT });
    assert_eq!((next.error_code, next.acquisition_lock_timeout_ms), (0, 30_000));
    assert_eq!(acquired(&next).len(), 10);
    let said = bench.acknowledge(connection, "a", 2, &[(0, 0, 4, &[1])]);
    assert_eq!((said.acquisition_lock_timeout_ms, settled(&said)), (30_000, vec![(0, 0)]));
    assert_eq!(settled(&bench.acknowledge(connection, "a", 3, &[(7, 0, 0, &[1])])), [(7, 3)]);
    assert_eq!(bench.acknowledge(connection, "a", 0, &[]).error_code, INVALID_SHARE_SESSION_EPOCH);
    assert_eq!(bench.acknowledge(connection, "a", 99, &[]).error_code, INVALID_SHARE_SESSION_EPOCH);
    assert_eq!(bench.acknowledge(connection, "ghost", 1, &[]).error_code, SHARE_SESSION_NOT_FOUND);
    let topic = std::mem::replace(&mut bench.topic, Uuid::from_bytes([9; 16]));
    assert_eq!(settled(&bench.acknowledge(connection, "a", 4, &[(0, 0, 0, &[1])])), [(0, UNKNOWN_TOPIC_ID)]);
    bench.topic = topic;
    let opening = bench.fetch(connection, &Fetch { said: &[(0, 5, 5, &[1])], ..TEN });
    assert_eq!(opening.error_code, INVALID_REQUEST, "no acknowledgements in a session's first request");
    let still = bench.fetch(connection, &Fetch { epoch: 5, said: &[(0, 5, 5, &[1])], records: 0, ..NEXT });
    assert_eq!((still.error_code, errors(&still)), (0, vec![(0, 0, 0)]), "the old session survived it");
}

#[test]
fn closing_gives_back_and_the_number_does_not_matter() {
    let mut bench = Bench::quick(1);
    let connection = bench.connect(1);
    bench.fetch(connection, &TEN);
    let closed = bench.acknowledge(connection, "a", -1, &[(0, 0, 4, &[1])]);
    assert_eq!((closed.error_code, settled(&closed)), (0, vec![(0, 0)]));
    assert_eq!(bench.acknowledge(connection, "a", -1, &[]).error_code, SHARE_SESSION_NOT_FOUND);
    assert_eq!(bench.fetch(connection, &Fetch { epoch: -1, ..NEXT }).error_code, SHARE_SESSION_NOT_FOUND);
    let again = bench.fetch(connection, &Fetch { member: "b", records: 5, ..TEN });
    assert_eq!(acquired(&again)[0], (0, 5, 5, 2));
    assert_eq!(bench.cluster.tally(GROUP).given_back, 5);
    assert_eq!(bench.fetch(connection, &Fetch { member: "b", epoch: -1, ..NEXT }).error_code, 0);
    assert!(bench.cluster.sessions(1).is_empty());
}

#[test]
fn a_session_goes_with_the_connection_that_opened_it() {
    let mut bench = Bench::quick(1);
    let (one, two) = (bench.connect(1), bench.connect(1));
    bench.fetch(one, &TEN);
    assert_eq!(
        bench.fetch(two, &Fetch { epoch: 1, ..NEXT }).error_code,
        0,
        "another connection may go on with it"
    );
    assert_eq!(bench.fetch(two, &TEN).error_code, 0, "or open it anew");
    assert_eq!(bench.fetch(one, &Fetch { epoch: 2, ..NEXT }).error_code, INVALID_SHARE_SESSION_EPOCH);
    assert_eq!(
        settled(&bench.acknowledge(two, "a", 1, &[(0, 0, 9, &[1])])),
        [(0, 0)],
        "held since the old session"
    );
    bench.cluster.disconnect(bench.now, one);
    assert_eq!(bench.cluster.sessions(1).len(), 1);
    bench.cluster.disconnect(bench.now, two);
    assert!(bench.cluster.sessions(1).is_empty());
    let three = bench.connect(1);
    assert_eq!(acquired(&bench.fetch(three, &TEN))[0], (0, 10, 10, 2), "given back at once");
}

#[test]
fn two_members_on_one_connection_lose_the_first_ones_records_until_the_lock_ends() {
    let mut bench = Bench::quick(1);
    let connection = bench.connect(1);
    bench.fetch(connection, &TEN);
    bench.fetch(connection, &Fetch { member: "b", ..TEN });
    bench.cluster.disconnect(bench.now, connection);
    let other = bench.connect(1);
    let got = acquired(&bench.fetch(other, &Fetch { member: "c", records: 100, ..TEN }));
    assert_eq!((got[0], got.len()), ((0, 10, 10, 2), 90), "b's, and what nobody had");
    assert!(bench.try_fetch(other, &Fetch { member: "c", epoch: 1, wait: 60_000, ..NEXT }).is_none());
    let (when, late) = bench.wait_for_fetch(ms(60_000));
    assert_eq!((when, acquired(&late)[0]), (ms(30_000), (0, 0, 0, 2)));
}

#[test]
fn a_full_node_makes_wait_and_refuses() {
    let mut bench = Bench::new(Options { sessions_max: 1, ..Options::quick() }, 1);
    let (one, two) = (bench.connect(1), bench.connect(1));
    bench.fetch(one, &TEN);
    let other = Fetch { member: "b", wait: 700, ..TEN };
    assert!(bench.try_fetch(two, &other).is_none());
    let (when, refused) = bench.wait_for_fetch(ms(700));
    assert_eq!((when, refused.error_code), (ms(700), SHARE_SESSION_LIMIT_REACHED));
    let next = Fetch { member: "b", epoch: 1, ..NEXT };
    assert_eq!(bench.fetch(two, &next).error_code, SHARE_SESSION_NOT_FOUND);
    bench.cluster.disconnect(bench.now, one);
    assert_eq!(bench.fetch(two, &other).error_code, 0);
}

#[test]
fn partitions_come_and_go() {
    let mut bench = Bench::quick(1);
    let connection = bench.connect(1);
    bench.fetch(connection, &TEN);
    assert!(bench.try_fetch(connection, &Fetch { epoch: 1, forget: &[0], wait: 200, ..NEXT }).is_none());
    let (when, empty) = bench.wait_for_fetch(ms(200));
    assert_eq!(
        (when, empty.error_code, empty.responses.len()),
        (ms(200), 0, 0),
        "an empty session waits in full"
    );
    let added = bench.fetch(connection, &Fetch { epoch: 2, partitions: &[0, 9], ..TEN });
    assert_eq!(errors(&added), [(9, UNKNOWN_TOPIC_OR_PARTITION, 0), (0, 0, 0)]);
    assert_eq!(acquired(&added).len(), 10, "the healthy one is not the worse for it");
    bench.fetch(connection, &Fetch { epoch: 3, forget: &[0, 9], records: 0, ..NEXT });
    let riding = bench.fetch(connection, &Fetch { epoch: 4, said: &[(0, 0, 0, &[1])], records: 5, ..NEXT });
    assert_eq!(acquired(&riding).len(), 5, "named for its acknowledgements, it is fetched too");
    let both = Fetch { epoch: 5, said: &[(0, 1, 1, &[1])], forget: &[0], wait: 0, ..NEXT };
    assert!(bench.try_fetch(connection, &both).is_none());
    let (_, forgotten) = bench.wait_for_fetch(bench.now);
    assert_eq!((errors(&forgotten), acquired(&forgotten).len()), (vec![(0, 0, 0)], 0));
}

#[test]
fn two_requests_at_once_spoil_the_first() {
    let mut bench = Bench::quick(1);
    let (one, two) = (bench.connect(1), bench.connect(1));
    bench.fetch(one, &TEN);
    assert!(bench.try_fetch(one, &Fetch { epoch: 1, min_bytes: 10_000_000, wait: 1_500, ..NEXT }).is_none());
    assert_eq!(bench.acknowledge(two, "a", 2, &[(0, 0, 0, &[1])]).error_code, 0);
    let (when, late) = bench.wait_for_fetch(ms(1_500));
    assert_eq!((when, late.error_code), (ms(1_500), INVALID_SHARE_SESSION_EPOCH));
    assert_eq!(bench.fetch(one, &Fetch { epoch: 3, ..NEXT }).error_code, 0);
}

#[test]
fn renewals_in_a_fetch_fetch_nothing() {
    let mut bench = Bench::quick(1);
    let connection = bench.connect(1);
    bench.fetch(connection, &TEN);
    let bad = Fetch { epoch: 1, renew: true, said: &[(0, 2, 2, &[4])], ..NEXT };
    assert_eq!(bench.fetch(connection, &bad).error_code, INVALID_REQUEST);
    let good = Fetch { wait: 0, min_bytes: 0, max_bytes: 0, records: 0, ..bad };
    assert_eq!(errors(&bench.fetch(connection, &good)), [(0, 0, 0)], "the epoch was not used up");
    let plain = bench.acknowledge(connection, "a", 2, &[(0, 2, 2, &[4])]);
    assert_eq!(settled(&plain), [(0, INVALID_REQUEST)]);
    bench.now = ms(20_000);
    let renewed = bench.acknowledge_renewing(connection, "a", 3, &[(0, 2, 2, &[4])], true);
    assert_eq!(settled(&renewed), [(0, 0)]);
    bench.now = ms(30_000);
    assert_eq!(
        settled(&bench.acknowledge(connection, "a", 4, &[(0, 3, 3, &[1])])),
        [(0, INVALID_RECORD_STATE)]
    );
    assert_eq!(settled(&bench.acknowledge(connection, "a", 5, &[(0, 2, 2, &[1])])), [(0, 0)]);
}
