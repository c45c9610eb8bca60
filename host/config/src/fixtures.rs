//! Connectors and configurations that the tests share.

use std::path::Path;

use tidegate_connector::options::{Default, Kind, OptionError, OptionSpec, PolicyUse, Side, Table, Values};

use crate::{Catalog, Config, Connector, Role, Unsupported, parse};

/// A connector with an option of every kind, under the keys that the example configuration uses.
pub(crate) const BROKER: Table = Table {
    connector: "rocketmq-grpc",
    summary: "A broker for tests, with an option of every kind and a summary that is long enough to be wrapped.",
    options: &[
        both("rocketmq.client.endpoints", Kind::Text, Default::Required),
        both("rocketmq.client.access-key", Kind::Text, Default::None),
        OptionSpec { secret: true, ..both("rocketmq.client.secret-key", Kind::Text, Default::None) },
        OptionSpec { secret: true, ..both("rocketmq.client.extra", Kind::Pairs, Default::None) },
        both("rocketmq.client.tls-enabled", Kind::Bool, Default::Value("false")),
        both("rocketmq.client.tls-ca-file", Kind::Path, Default::None),
        both("rocketmq.client.buffer", Kind::Size { min: 1 << 10, max: 1 << 30 }, Default::Value("1MiB")),
        source("rocketmq.source.main-topic", Kind::Text, Default::Required),
        source("rocketmq.source.consumer-group", Kind::Text, Default::Required),
        source(
            "rocketmq.source.topic-kind",
            Kind::Choice(&["lite", "normal", "fifo", "delay"]),
            Default::Value("lite"),
        ),
        source("rocketmq.source.fetch-concurrency", Kind::Integer { min: 1, max: 256 }, Default::Value("1")),
        source("rocketmq.source.max-message-num", Kind::Integer { min: 1, max: 32 }, Default::Value("32")),
        source("rocketmq.source.invisible-duration", LEASE, Default::Value("60s")),
        source("rocketmq.source.renewal-policy", Kind::PolicyName(PolicyUse::Renewal), Default::None),
        source("rocketmq.source.renewal-ahead-time", LEASE, Default::Value("10s")),
        OptionSpec { side: Side::Sink, ..both("rocketmq.sink.topic", Kind::Text, Default::Required) },
    ],
};

/// Another broker, under the keys that the example configuration uses.
const LOG: Table = Table {
    connector: "kafka-sharegroup",
    summary: "Another broker for tests.",
    options: &[
        source("properties.bootstrap.servers", Kind::Text, Default::Required),
        source("share-group-id", Kind::Text, Default::Required),
        source("topic", Kind::Text, Default::None),
        source("source.parallelism", Kind::Integer { min: 1, max: 64 }, Default::Value("1")),
        source("max-queue-size", Kind::Integer { min: 1, max: 1_000_000 }, Default::Value("10000")),
        source("delivery-count-limit", Kind::Integer { min: -1, max: 1_000 }, Default::Value("-1")),
        source("defer-hold-bytes", Kind::Size { min: 1 << 10, max: 1 << 40 }, Default::Value("64MiB")),
        source("defer-hold-time", LEASE, Default::Value("30m")),
        source("properties.security.protocol", Kind::Text, Default::None),
        source("properties.sasl.mechanism", Kind::Text, Default::None),
        source("properties.sasl.jaas.config", Kind::Text, Default::None),
    ],
};

pub(crate) const STDOUT: Table =
    Table { connector: "stdout", summary: "Writes one JSON object a line.", options: &[] };

const CONNECTORS: [Connector<'static>; 3] = [
    Connector::source(&BROKER)
        .and_settler()
        .refusing(&[Unsupported {
            key: "rocketmq.source.renewal-ahead-time",
            reason: "belongs to renewal, which this version does not have; remove the key",
        }])
        .checked_by(keys_come_in_pairs),
    Connector::source(&LOG),
    Connector::sink(&STDOUT),
];

pub(crate) const CATALOG: Catalog<'static> = Catalog { connectors: &CONNECTORS };

const LEASE: Kind = Kind::Duration { min_millis: 10_000, max_millis: 43_200_000 };

/// The least that is a configuration.
pub(crate) const SMALLEST: &str = r#"
[sources.orders]
connector = "rocketmq-grpc"
rocketmq.client.endpoints = "127.0.0.1:8081"
rocketmq.source.main-topic = "Orders"
rocketmq.source.consumer-group = "GID-orders"

[sinks.out]
connector = "stdout"

[flows.orders]
source = "orders"
sink = "out"
"#;

/// The configuration in `text`, as if it stood in `/etc/tidegate/tidegate.toml`.
pub(crate) fn config(text: &str) -> Config {
    parse("/etc/tidegate/tidegate.toml", text, &CATALOG).expect("a valid configuration")
}

/// Every mistake in `text`, one a line.
pub(crate) fn mistakes(text: &str) -> String {
    parse("tidegate.toml", text, &CATALOG).expect_err("an invalid configuration").to_string()
}

/// [`SMALLEST`] with some of it replaced.
pub(crate) fn smallest_with(from: &str, to: &str) -> String {
    assert!(SMALLEST.contains(from), "{from} is not in the configuration");
    SMALLEST.replace(from, to)
}

/// What the example leaves out is put in, and what cannot stand beside it is left out.
pub(crate) fn example_with_everything() -> String {
    let lines = example_lines().filter(|line| !line.starts_with("sink = "));
    lines.collect::<Vec<_>>().join("\n")
}

/// The example's lines, with those that it leaves out.
pub(crate) fn example_lines() -> impl Iterator<Item = &'static str> {
    crate::EXAMPLE.lines().map(|line| match line.strip_prefix('#') {
        Some(key) if key.starts_with(|c: char| c.is_ascii_lowercase() || c == '[') => key,
        _ => line,
    })
}

pub(crate) fn etc(path: &str) -> std::path::PathBuf {
    Path::new("/etc/tidegate").join(path)
}

fn keys_come_in_pairs(_role: Role, values: &Values) -> Vec<OptionError> {
    let given = |key| values.text(key).is_some();
    if given("rocketmq.client.access-key") == given("rocketmq.client.secret-key") {
        return Vec::new();
    }
    vec![OptionError::Invalid {
        key: "rocketmq.client.access-key",
        problem: "goes together with `rocketmq.client.secret-key`; give both or neither".to_owned(),
    }]
}

const fn both(key: &'static str, kind: Kind, default: Default) -> OptionSpec {
    OptionSpec { key, kind, default, side: Side::Both, secret: false, summary: "What it does." }
}

const fn source(key: &'static str, kind: Kind, default: Default) -> OptionSpec {
    OptionSpec { side: Side::Source, ..both(key, kind, default) }
}
