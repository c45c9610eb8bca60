use std::collections::BTreeMap;

use tidegate_connector::options::{Raw, Side};

use super::*;

#[test]
fn the_least_that_a_source_needs() {
    let options = source(&[]).expect("valid");
    assert_eq!(options.client.endpoints.to_string(), "127.0.0.1:8081");
    assert_eq!((&*options.topic, &*options.group), ("T", "G"));
    assert_eq!(options.topic_kind, TopicKind::Lite);
    assert_eq!(options.fetch_concurrency, 1);
    assert_eq!(options.await_duration, Duration::from_secs(20));
    assert_eq!(options.invisible_duration, Duration::from_secs(60));
    assert_eq!(options.messages_max, 32);
    assert_eq!(options.renewal_ahead_time, Duration::from_secs(5));
    assert_eq!(options.client.request_timeout, Duration::from_secs(3));
    assert_eq!(options.client.tls, Tls::Off);
    assert!(
        options
            .client
            .credentials
            .keys("127.0.0.1:8081", crate::Purpose::Consume)
            .expect("none needed")
            .is_none()
    );
}

#[test]
fn both_keys_or_neither() {
    assert_problem(&[("rocketmq.client.access-key", "alice")], "rocketmq.client.secret-key");
    assert_problem(&[("rocketmq.client.secret-key", "hunter2")], "rocketmq.client.access-key");
    let options =
        source(&[("rocketmq.client.access-key", "alice"), ("rocketmq.client.secret-key", "hunter2")]);
    let shown = format!("{:?}", options.expect("valid"));
    assert!(!shown.contains("hunter2"), "{shown}");
}

#[test]
fn tls_files_need_tls() {
    assert_problem(&[("rocketmq.client.tls-ca-file", "ca.pem")], "rocketmq.client.tls-ca-file");
    assert_problem(&[("rocketmq.client.tls-insecure", "true")], "rocketmq.client.tls-insecure");
    let on = ("rocketmq.client.tls-enabled", "true");
    assert_problem(&[on, ("rocketmq.client.tls-cert-file", "c.pem")], "rocketmq.client.tls-key-file");
    assert_problem(&[on, ("rocketmq.client.tls-key-file", "k.pem")], "rocketmq.client.tls-cert-file");
    let both = [on, ("rocketmq.client.tls-insecure", "true"), ("rocketmq.client.tls-ca-file", "ca.pem")];
    assert_problem(&both, "rocketmq.client.tls-insecure");
    let options = source(&[on, ("rocketmq.client.tls-ca-file", "ca.pem")]).expect("valid");
    let expected = Tls::On { trust: Trust::CaFile("ca.pem".into()), identity: None };
    assert_eq!(options.client.tls, expected);
}

/// Proxies refuse a lease below ten seconds (40011), so the option does.
#[test]
fn a_lease_below_ten_seconds_is_refused_locally() {
    assert_problem(&[("rocketmq.source.invisible-duration", "9s")], "rocketmq.source.invisible-duration");
}

#[test]
fn a_renewal_must_come_before_the_end_of_the_lease() {
    let pairs =
        [("rocketmq.source.invisible-duration", "10s"), ("rocketmq.source.renewal-ahead-time", "10s")];
    assert_problem(&pairs, "rocketmq.source.renewal-ahead-time");
}

#[test]
fn all_mistakes_are_reported_at_once() {
    let pairs = [
        ("rocketmq.client.endpoints", "nowhere"),
        ("rocketmq.source.main-topic", "a b"),
        ("rocketmq.client.secret-key", "x"),
    ];
    assert_eq!(source(&pairs).expect_err("three mistakes").len(), 3);
}

#[test]
fn the_least_that_a_sink_needs() {
    let options = sink(&[]).expect("valid");
    assert_eq!(&*options.topic, "T");
    assert_eq!((options.lite_topic, options.message_group, options.attempts_max), (None, None, 3));
}

#[test]
fn a_sink_checks_what_it_is_told_to_send_to() {
    for (key, text) in [
        ("rocketmq.sink.lite-topic", "a/b"),
        ("rocketmq.sink.lite-topic", ""),
        ("rocketmq.sink.lite-topic", "{lite-topic"),
        ("rocketmq.sink.lite-topic", "{tennant}"),
        ("rocketmq.sink.message-group", "{key"),
    ] {
        assert_sink_problem(&[(key, text)], key);
    }
    let long = "g".repeat(64);
    assert_sink_problem(&[("rocketmq.sink.message-group", &long)], "rocketmq.sink.message-group");
    let both = [("rocketmq.sink.lite-topic", "a"), ("rocketmq.sink.message-group", "{key}")];
    assert_sink_problem(&both, "rocketmq.sink.message-group");
}

/// What it gives is only known with a message.
#[test]
fn a_template_with_fields_is_taken_as_it_is() {
    let options = sink(&[("rocketmq.sink.lite-topic", "out-{property:tenant|none}")]).expect("valid");
    assert_eq!(options.lite_topic.expect("given").as_str(), "out-{property:tenant|none}");
    let options = sink(&[("rocketmq.sink.message-group", "{key}")]).expect("valid");
    assert!(options.lite_topic.is_none() && options.message_group.is_some());
}

#[test]
fn all_mistakes_of_a_sink_are_reported_at_once() {
    let pairs = [
        ("rocketmq.client.endpoints", "nowhere"),
        ("rocketmq.sink.topic", "a b"),
        ("rocketmq.sink.lite-topic", "}"),
    ];
    assert_eq!(sink(&pairs).expect_err("three mistakes").len(), 3);
}

fn sink(pairs: &[(&str, &str)]) -> Result<SinkOptions, Vec<OptionError>> {
    let least = [("rocketmq.client.endpoints", "127.0.0.1:8081"), ("rocketmq.sink.topic", "T")];
    SinkOptions::from_values(&TABLE.read(Side::Sink, &raw(&least, pairs))?)
}

fn assert_sink_problem(pairs: &[(&str, &str)], key: &str) {
    let errors = sink(pairs).expect_err(key);
    assert_eq!(errors.iter().map(OptionError::key).collect::<Vec<_>>(), [key], "{errors:?}");
}

fn source(pairs: &[(&str, &str)]) -> Result<SourceOptions, Vec<OptionError>> {
    let least = [
        ("rocketmq.client.endpoints", "127.0.0.1:8081"),
        ("rocketmq.source.main-topic", "T"),
        ("rocketmq.source.consumer-group", "G"),
    ];
    SourceOptions::from_values(&TABLE.read(Side::Source, &raw(&least, pairs))?)
}

fn raw(least: &[(&str, &str)], pairs: &[(&str, &str)]) -> BTreeMap<String, Raw> {
    let pairs = least.iter().chain(pairs);
    pairs.map(|(key, value)| ((*key).to_owned(), Raw::Text((*value).to_owned()))).collect()
}

fn assert_problem(pairs: &[(&str, &str)], key: &str) {
    let errors = source(pairs).expect_err(key);
    assert_eq!(errors.iter().map(OptionError::key).collect::<Vec<_>>(), [key], "{errors:?}");
}
