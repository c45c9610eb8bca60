//! Who consumes.

/// What a contestant is.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub(super) enum Runner {
    /// Apache Kafka's `KafkaShareConsumer`.
    Java,
    /// The share consumer of librdkafka 2.15.0, a preview, from a program in C.
    Librdkafka,
    /// The share consumer of the Rust crate krafka.
    Krafka,
    /// This host's client without the host.
    Client,
    /// The whole host: source, throttle policy, leases, sink.
    Host,
}

/// A way to consume the records.
#[derive(Clone, Copy, Debug)]
pub(super) struct Contestant {
    pub(super) name: &'static str,
    pub(super) runner: Runner,
    /// Further arguments of its program.
    pub(super) settings: &'static [&'static str],
}

const JAVA: &str = "Java KafkaShareConsumer";
const JAVA_TUNED: &str = "Java, 2000 records, 4 MB a fetch";
const LIBRDKAFKA: &str = "librdkafka 2.15.0 (preview)";
const LIBRDKAFKA_TUNED: &str = "librdkafka, 2000 records, 4 MB a fetch";
const KRAFKA: &str = "krafka 0.28.1";
const KRAFKA_TUNED: &str = "krafka, 2000 records, 4 MB a fetch";
const OURS: &str = "tidegate's client";
const OURS_SMALL: &str = "tidegate's client, 500 records a fetch";
const HOST: &str = "tidegate, fair-share, discard";

/// What this host's client does by itself with records of a kilobyte.
const TUNED: &[&str] = &["max.poll.records=2000", "fetch.max.bytes=4000000"];

pub(super) const CONTESTANTS: [Contestant; 9] = [
    Contestant { name: JAVA, runner: Runner::Java, settings: &[] },
    Contestant { name: OURS, runner: Runner::Client, settings: &[] },
    Contestant { name: JAVA_TUNED, runner: Runner::Java, settings: TUNED },
    Contestant { name: HOST, runner: Runner::Host, settings: &[] },
    Contestant { name: LIBRDKAFKA, runner: Runner::Librdkafka, settings: &[] },
    Contestant { name: LIBRDKAFKA_TUNED, runner: Runner::Librdkafka, settings: TUNED },
    Contestant { name: OURS_SMALL, runner: Runner::Client, settings: &["--max-records", "500"] },
    Contestant { name: KRAFKA, runner: Runner::Krafka, settings: &[] },
    Contestant { name: KRAFKA_TUNED, runner: Runner::Krafka, settings: TUNED },
];

/// The run that comes first.
pub(super) const UNCOUNTED: Contestant = CONTESTANTS[1];

/// Who is compared with whom.
pub(super) const RATIOS: [(&str, &str); 9] = [
    (OURS, JAVA),
    (OURS, JAVA_TUNED),
    (OURS, LIBRDKAFKA),
    (OURS, LIBRDKAFKA_TUNED),
    (OURS, KRAFKA),
    (OURS, KRAFKA_TUNED),
    (OURS_SMALL, JAVA),
    (HOST, OURS),
    (HOST, JAVA),
];
