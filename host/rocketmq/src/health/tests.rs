use super::*;

#[test]
fn a_silent_subscription_is_probed_and_its_missing_attribute_named() {
    let mut health = health();
    health.handle_subscribed(at(0));
    health.handle_received(at(0), 0);
    assert!(!health.begin_probe(at(29)));
    assert_eq!(health.sentence(at(29)), None);
    assert!(health.begin_probe(at(30)));
    assert!(!health.begin_probe(at(31)), "not again at once");
    let hint = health.sentence(at(31)).expect("a hint");
    assert!(hint.contains("lite.sub.wildcard") && hint.contains("may lack"), "{hint}");
    health.handle_probed(Wildcard::Missing);
    let said = health.sentence(at(31)).expect("a sentence");
    assert!(said.contains("+lite.bind.topic=T,+lite.sub.wildcard=true"), "{said}");
    health.handle_probed(Wildcard::Present);
    assert_eq!(health.sentence(at(3_000)), None, "merely idle");
}

#[test]
fn a_subscription_that_delivers_is_never_suspected() {
    let mut health = health();
    health.handle_subscribed(at(0));
    health.handle_received(at(0), 1);
    assert!(!health.begin_probe(at(100)));
    assert_eq!(health.sentence(at(100)), None);
}

#[test]
fn after_messages_silence_makes_the_subscription_anew_more_and_more_rarely() {
    let mut health = health();
    health.handle_received(at(0), 1);
    assert_eq!(health.poll_timeout(), None, "no subscription to make anew");
    health.handle_subscribed(at(0));
    assert_eq!(health.poll_timeout(), Some(at(15)));
    health.handle_received(at(0), 1);
    let mut refreshed = Vec::new();
    for second in 0..2_000 {
        if health.begin_refresh(at(second)) {
            refreshed.push(second);
        }
    }
    assert_eq!(refreshed[..6], [15, 45, 105, 225, 465, 765]);
    health.handle_received(at(2_000), 1);
    assert_eq!(health.poll_timeout(), Some(at(2_015)));
}

/// Measured: 23 instead of 3,000 messages a second on 1,000 lite topics.
#[test]
fn many_lite_topics_served_late_point_to_the_event_limit() {
    let mut health = served();
    let topics = topics(60);
    health.handle_arrivals(at(100), secs(9), late(&topics));
    let said = health.sentence(at(101)).expect("a sentence");
    assert!(said.contains("+lite.sub.client.max.event.cnt=5000"), "{said}");
    assert_eq!(health.sentence(at(1_000)), None, "it passes");
}

#[test]
fn what_we_deferred_ourselves_is_not_late() {
    let mut health = served();
    let topics = topics(60);
    health.handle_arrivals(at(100), secs(9), std::iter::empty());
    topics.iter().for_each(|topic| health.handle_deferred(topic));
    health.handle_arrivals(at(101), secs(9), late(&topics));
    assert_eq!(health.sentence(at(102)), None);
}

#[test]
fn a_backlog_after_the_start_and_a_busy_poll_are_normal() {
    let mut health = served();
    let topics = topics(60);
    health.handle_arrivals(at(30), secs(9), late(&topics));
    health.handle_arrivals(at(100), Duration::from_millis(10), late(&topics));
    assert_eq!(health.sentence(at(101)), None);
}

#[test]
fn the_last_failure_is_told_until_a_receive_works() {
    use crate::fault::{Method, Reason, Subject};
    let subject = Subject {
        access_point: "a:1".into(),
        endpoint: None,
        topic: Some("T".into()),
        group: Some("G".into()),
        topic_kind: None,
        names: &crate::OptionNames::KEYS,
    };
    let mut health = health();
    assert!(!health.has_worked());
    health.handle_failed(CallError::other(&subject, Method::ReceiveMessage, Reason::BrokerDown, "no"));
    assert!(health.sentence(at(0)).is_some());
    health.handle_received(at(0), 0);
    assert_eq!(health.sentence(at(0)), None);
    assert!(health.has_worked());
}

fn health() -> Health {
    Health::new("T".into(), "G".into())
}

fn served() -> Health {
    let mut health = health();
    health.handle_subscribed(at(0));
    health.handle_received(at(0), 1);
    health
}

fn topics(count: usize) -> Vec<Arc<str>> {
    (0..count).map(|number| Arc::from(number.to_string())).collect()
}

fn late(topics: &[Arc<str>]) -> impl Iterator<Item = Arrival<'_>> {
    topics.iter().map(|lite_topic| Arrival { lite_topic, attempt: 1, stored_before: secs(8) })
}

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const fn at(seconds: u64) -> Instant {
    Instant::from_millis(seconds * 1_000)
}
