use super::*;

fn directory(names: &[&str]) -> Directory {
    Directory::new(names.iter().map(|name| ((*name).into(), format!("http://{name}:9641").into())))
}

fn at(millis: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(millis)
}

fn away() -> Failure {
    Failure { fault: Fault::Away, problem: "connection refused".into() }
}

fn refuses() -> Failure {
    Failure { fault: Fault::Refuses, problem: "this bearer token is not known here".into() }
}

fn nobody(found: Find) -> Nobody {
    match found {
        Find::Nobody(nobody) => nobody,
        found => panic!("{found:?}"),
    }
}

#[test]
fn all_are_asked_once_and_the_owner_is_remembered() {
    let mut peers = directory(&["a", "b"]);
    assert_eq!(peers.find(at(0), "host-b"), Find::Ask(vec![0, 1]));
    assert!(peers.handle_described(at(1), 0, "host-a"));
    assert!(peers.handle_described(at(1), 1, "host-b"));
    assert_eq!(peers.find(at(2), "host-b"), Find::Peer(1));
    assert!(!peers.handle_described(at(3), 1, "host-b"), "no news");
    assert_eq!(peers.find(at(1_000_000), "host-b"), Find::Peer(1));
}

#[test]
fn an_unknown_owner_is_looked_for_now_and_then() {
    let mut peers = directory(&["a", "b"]);
    peers.handle_described(at(0), 0, "host-a");
    peers.handle_described(at(0), 1, "host-b");
    let none = nobody(peers.find(at(10), "host-c"));
    assert!(
        !none.may_come && none.detail.contains("host-c") && none.detail.contains("[peers.NAME]"),
        "{none:?}"
    );
    assert!(none.detail.contains("`a`, `b`"), "{none:?}");
    assert!(!peers.may_ask(at(10), 0));
    assert_eq!(peers.find(at(5000), "host-c"), Find::Ask(vec![0, 1]));
}

#[test]
fn an_owner_that_is_away_is_asked_again_after_a_while() {
    let mut peers = directory(&["a", "b"]);
    peers.handle_described(at(0), 0, "host-a");
    peers.handle_described(at(0), 1, "host-b");
    assert!(peers.handle_failed(at(10), 0, away()));
    let none = nobody(peers.find(at(10), "host-a"));
    assert!(none.may_come && none.detail.contains("`a` at http://a:9641"), "{none:?}");
    assert_eq!(none.look_again, at(260));
    assert_eq!(peers.find(at(260), "host-a"), Find::Ask(vec![0]));
    assert!(!peers.handle_failed(at(260), 0, away()), "no news");
    assert_eq!(nobody(peers.find(at(261), "host-a")).look_again, at(760));
    assert!(peers.handle_described(at(800), 0, "host-a"));
    assert_eq!(peers.find(at(800), "host-a"), Find::Peer(0));
    for _ in 0..40 {
        peers.handle_failed(at(1000), 0, away());
    }
    assert_eq!(nobody(peers.find(at(1001), "host-a")).look_again, at(6000), "the wait is bounded");
}

#[test]
fn one_that_is_away_may_be_the_owner_and_one_that_refuses_is_to_be_put_right() {
    let mut peers = directory(&["a", "b"]);
    peers.handle_described(at(0), 0, "host-a");
    peers.handle_failed(at(0), 1, away());
    let none = nobody(peers.find(at(1), "host-c"));
    assert!(none.may_come && none.detail.contains("`b` at http://b:9641 (connection refused)"), "{none:?}");
    assert!(none.detail.contains("end by themselves"), "{none:?}");
    peers.handle_failed(at(300), 1, refuses());
    let none = nobody(peers.find(at(301), "host-c"));
    assert!(
        !none.may_come && none.detail.contains("bearer token") && none.detail.contains("`token`"),
        "{none:?}"
    );
}

#[test]
fn an_owner_whose_token_was_withdrawn_is_named() {
    let mut peers = directory(&["a"]);
    peers.handle_described(at(0), 0, "host-a");
    assert!(peers.handle_failed(at(1), 0, refuses()));
    let none = nobody(peers.find(at(2), "host-a"));
    assert!(!none.may_come && none.detail.contains("[peers.a]"), "{none:?}");
}

#[test]
fn one_that_became_another_host_is_asked_at_once() {
    let mut peers = directory(&["a"]);
    peers.handle_described(at(0), 0, "host-a");
    peers.handle_stranger(at(1), 0);
    assert_eq!(peers.find(at(1), "host-a"), Find::Ask(vec![0]));
    assert!(peers.handle_described(at(1), 0, "host-z"));
    assert!(!nobody(peers.find(at(2), "host-a")).may_come);
    assert_eq!(peers.find(at(2), "host-z"), Find::Peer(0));
}

#[test]
fn an_owner_that_moved_to_another_endpoint_is_found_there() {
    let mut peers = directory(&["old", "new"]);
    peers.handle_described(at(0), 0, "host-a");
    peers.handle_failed(at(0), 1, away());
    peers.handle_failed(at(1000), 0, away());
    // The old one is asked when its time has come, and the others when it is not.
    assert_eq!(peers.find(at(1001), "host-a"), Find::Ask(vec![1]));
    peers.handle_described(at(1002), 1, "host-a");
    assert_eq!(peers.find(at(1003), "host-a"), Find::Peer(1));
}
