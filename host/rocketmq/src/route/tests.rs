use proptest::prelude::*;

use super::*;
use crate::fault::{Method, Reason, Subject};

#[test]
fn asks_at_once_then_after_ten_seconds_then_every_thirty() {
    let mut route = Route::new(at(0), 1);
    assert!(route.begin_query(at(0)));
    assert_eq!(route.query_due(), None, "one at a time");
    found(&mut route, at(5), &["a"]);
    assert_eq!(route.query_due(), Some(at(10_005)));
    found(&mut route, at(10_010), &["a"]);
    assert_eq!(route.query_due(), Some(at(40_010)));
}

#[test]
fn a_failed_query_is_repeated_soon_and_does_not_lose_the_route() {
    let mut route = Route::new(at(0), 1);
    found(&mut route, at(0), &["a"]);
    assert_eq!(route.handle_queues(at(10_000), Err(failure()), routing), None);
    let due = route.query_due().expect("due");
    assert!(due.saturating_since(at(10_000)) <= QUERY_WAIT_FIRST);
    assert!(route.started && route.problem().is_some());
    assert_eq!(ask(&mut route, at(10_000)).as_deref(), Some("a"));
}

#[test]
fn one_readable_queue_of_each_master_is_kept() {
    let mut route = Route::new(at(0), 1);
    let mut queues =
        vec![queue("b", 0, 4), queue("b", 0, 4), queue("a", 0, 2), queue("c", 1, 4), queue("d", 0, 3)];
    queues[4].broker.as_mut().expect("a broker").endpoints = None;
    let change = route.handle_queues(at(0), Ok(queues), routing).expect("new");
    assert_eq!(change.brokers, 2, "c is a slave, d cannot be read");
    assert_eq!(change.endpoints.len(), 2);
}

#[test]
fn an_unchanged_route_is_no_news() {
    let mut route = Route::new(at(0), 1);
    assert!(found(&mut route, at(0), &["a", "b"]).is_some());
    assert!(found(&mut route, at(1), &["b", "a"]).is_none());
    assert!(found(&mut route, at(2), &["a"]).is_some());
}

#[test]
fn receives_rotate_over_brokers() {
    let mut route = started(&["a", "b", "c"]);
    let mut asked = Vec::new();
    for turn in 0..6 {
        let broker = ask(&mut route, at(turn)).expect("somebody");
        route.end(at(turn), &broker, Ended::Messages);
        asked.push(broker);
    }
    assert_eq!(asked, ["a", "b", "c", "a", "b", "c"]);
}

#[test]
fn receives_in_flight_spread_over_brokers() {
    let mut route = started(&["a", "b"]);
    let asked: Vec<_> = (0..4).map(|_| ask(&mut route, at(0)).expect("somebody")).collect();
    assert_eq!(asked.iter().filter(|broker| *broker == "a").count(), 2);
    route.end(at(1), "b", Ended::Messages);
    assert_eq!(ask(&mut route, at(1)).as_deref(), Some("b"), "it has the fewest");
}

/// Measured: while a broker is down, receives fail within 10 ms. Asked again at once, that is a hot loop.
#[test]
fn a_broker_that_is_down_is_left_alone_longer_and_longer() {
    let mut route = started(&["a"]);
    let mut now = at(0);
    let mut asked = 0;
    while now < at(60_000) {
        match route.begin(now, |_| true) {
            Next::Ask(queue) => {
                asked += 1;
                route.end(now, &queue.broker, Ended::Failed);
            }
            Next::Wait(until) => now = until,
            Next::Nobody => panic!("there is a route"),
        }
    }
    assert!(asked <= 14, "{asked} in a minute");
    route.end(now, "a", Ended::Messages);
    assert_eq!(ask(&mut route, now).as_deref(), Some("a"), "forgiven by a success");
}

/// Whoever receives waits after that, and only there.
#[test]
fn refused_keys_make_no_wait_here_and_the_broker_serves_nobody() {
    let mut route = started(&["a"]);
    for _ in 0..10 {
        assert_eq!(ask(&mut route, at(0)).as_deref(), Some("a"));
        route.end(at(0), "a", Ended::Refused);
        assert!(!route.is_served(at(0), |_| true));
    }
    assert_eq!(ask(&mut route, at(0)).as_deref(), Some("a"));
    route.end(at(0), "a", Ended::Messages);
    assert!(route.is_served(at(0), |_| true));
}

#[test]
fn a_failing_broker_does_not_hold_up_the_others() {
    let mut route = started(&["a", "b"]);
    for turn in 0..10 {
        let broker = ask(&mut route, at(turn)).expect("somebody");
        let ended = if broker == "a" { Ended::Failed } else { Ended::Messages };
        route.end(at(turn), &broker, ended);
    }
    assert_eq!(ask(&mut route, at(11)).as_deref(), Some("b"));
}

#[test]
fn failures_of_receives_in_flight_together_count_once() {
    let mut route = started(&["a"]);
    for _ in 0..8 {
        ask(&mut route, at(0));
    }
    for _ in 0..8 {
        route.end(at(1), "a", Ended::Failed);
    }
    let Next::Wait(until) = route.begin(at(1), |_| true) else { panic!("not left alone") };
    assert!(until.saturating_since(at(1)) <= PENALTY_FIRST);
}

#[test]
fn empty_answers_that_come_at_once_are_slowed_down() {
    let mut route = started(&["a"]);
    let mut now = at(0);
    let mut asked = 0;
    while now < at(10_000) {
        match route.begin(now, |_| true) {
            Next::Ask(queue) => {
                asked += 1;
                route.end(now, &queue.broker, Ended::Empty { after: Duration::ZERO });
            }
            Next::Wait(until) => now = until,
            Next::Nobody => panic!("there is a route"),
        }
    }
    assert!((10..=25).contains(&asked), "{asked} in ten seconds");
    route.end(now, "a", Ended::Empty { after: Duration::from_secs(5) });
    assert!(ask(&mut route, now).is_some(), "a real poll is asked again at once");
}

#[test]
fn without_a_session_there_is_nobody_to_ask() {
    let mut route = started(&["a", "b"]);
    assert!(matches!(route.begin(at(0), |_| false), Next::Nobody));
    let only_b = |endpoints: &Endpoints| endpoints.to_string().starts_with('b');
    assert!(matches!(route.begin(at(0), only_b), Next::Ask(queue) if &*queue.broker == "b"));
}

#[test]
fn served_means_joined_and_not_failing() {
    let mut route = started(&["a"]);
    assert!(!route.is_served(at(0), |_| false), "no session");
    assert!(route.is_served(at(0), |_| true));
    ask(&mut route, at(0));
    route.end(at(1), "a", Ended::Failed);
    assert!(!route.is_served(at(1), |_| true));
    ask(&mut route, at(1_000));
    assert!(!route.is_served(at(1_100), |_| true), "may fail at once like the one before");
    let held = at(1_000) + HELD_MIN;
    assert!(route.is_served(held, |_| true), "the broker holds the poll open");
    route.end(held, "a", Ended::Failed);
    assert!(!route.is_served(held, |_| true));
    ask(&mut route, at(10_000));
    route.end(at(10_001), "a", Ended::Messages);
    assert!(route.is_served(at(10_001), |_| true));
    assert!(!Route::new(at(0), 1).is_served(at(0), |_| true), "no route");
}

#[test]
fn one_broker_of_two_is_enough_to_be_served() {
    let mut route = started(&["a", "b"]);
    route.end(at(1), "a", Ended::Failed);
    assert!(route.is_served(at(1), |_| true));
    assert!(!route.is_served(at(1), |endpoints| endpoints.to_string().starts_with('a')));
}

#[test]
fn polls_are_shorter_when_brokers_must_share_receives() {
    let route = started(&["a", "b", "c"]);
    let long = Duration::from_secs(20);
    assert_eq!(route.poll_duration(long, 3), long);
    assert_eq!(route.poll_duration(long, 2), Duration::from_secs(10));
    assert_eq!(route.poll_duration(long, 1), Duration::from_millis(6_666_666 / 1_000).max(long / 3));
    assert_eq!(route.poll_duration(Duration::from_secs(6), 1), POLL_MIN);
    assert_eq!(route.poll_duration(Duration::from_secs(2), 1), Duration::from_secs(2));
}

proptest! {
    /// Any course of events leaves counts right: after everything ended, nothing is in flight.
    #[test]
    fn counts_stay_right(steps in proptest::collection::vec((0..4_u8, 0..1_000_u64), 0..200)) {
        let mut route = started(&["a", "b", "c"]);
        let mut now = at(0);
        let mut in_flight = Vec::new();
        for (step, wait) in steps {
            now += Duration::from_millis(wait);
            match step {
                0 | 1 => in_flight.extend(ask(&mut route, now)),
                2 => if let Some(broker) = in_flight.pop() {
                    route.end(now, &broker, Ended::Failed);
                },
                _ => if let Some(broker) = in_flight.pop() {
                    route.end(now, &broker, Ended::Messages);
                },
            }
            let counted: usize = route.seats.iter().map(|seat| seat.in_flight).sum();
            prop_assert_eq!(counted, in_flight.len());
        }
    }
}

fn started(brokers: &[&str]) -> Route {
    let mut route = Route::new(at(0), 1);
    found(&mut route, at(0), brokers);
    route
}

fn found(route: &mut Route, now: Instant, brokers: &[&str]) -> Option<Change> {
    let queues = brokers.iter().map(|broker| queue(broker, 0, 4)).collect();
    route.handle_queues(now, Ok(queues), routing)
}

fn ask(route: &mut Route, now: Instant) -> Option<String> {
    match route.begin(now, |_| true) {
        Next::Ask(queue) => Some(queue.broker.to_string()),
        Next::Wait(_) | Next::Nobody => None,
    }
}

fn queue(broker: &str, id: i32, permission: i32) -> proto::MessageQueue {
    let endpoints = Endpoints::parse(&format!("{broker}:8081")).expect("endpoints");
    proto::MessageQueue {
        permission,
        broker: Some(proto::Broker { name: broker.to_owned(), id, endpoints: Some(endpoints.to_proto()) }),
        ..Default::default()
    }
}

fn routing(endpoints: &Endpoints) -> Arc<Routing> {
    Arc::new(Routing { endpoint: Arc::clone(endpoints.text()), ..Default::default() })
}

fn failure() -> CallError {
    let subject = Subject {
        access_point: "a:1".into(),
        endpoint: None,
        topic: Some("T".into()),
        group: None,
        topic_kind: None,
        names: &crate::OptionNames::KEYS,
    };
    CallError::other(&subject, Method::QueryRoute, Reason::TopicUnknown, "gone")
}

const fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}
