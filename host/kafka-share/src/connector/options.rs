//! What a user may choose, checked: the typed form of the option table.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use regex::RegexBuilder;
use tidegate_connector::options::{OptionError, Values};
use tidegate_connector::secret::SecretSource;
use tidegate_connector::tls;

use super::TABLE;
use crate::properties::{self, Given, Problem};
use crate::{
    AcquireMode, BootstrapServers, ClientOptions, FetchSettings, Security, Subscription, TopicPattern,
};

const SERVERS: &str = "properties.bootstrap.servers";
const GROUP: &str = "share-group-id";
const TOPIC: &str = "topic";
const PATTERN: &str = "topic-pattern";
const FORMAT: &str = "format";
const ACK: &str = "ack";
const HOLD_RECORDS: &str = "defer-hold-records";
const HOLD_BYTES: &str = "defer-hold-bytes";
const HOLD_TIME: &str = "defer-hold-time";
const SPOOL_RECORDS: &str = "spool-records-max";
const SPOOL_BYTES: &str = "spool-bytes-max";
const SPOOL_LEASE: &str = "spool-lease-time";
const LIMIT: &str = "delivery-count-limit";
const RESOLVER: &str = "credentials-resolver";
/// What stands before the names of Java's clients.
const PREFIX: &str = "properties.";

/// What is in a spool at most unless somebody says otherwise, and how long a hand-out from it lasts. A queue that moves slowly,
/// or a worker that is slow, is no reason to hand a record out twice.
const SPOOL_RECORDS_DEFAULT: usize = 100_000;
const SPOOL_BYTES_DEFAULT: u64 = 1 << 30;
const SPOOL_LEASE_DEFAULT: Duration = Duration::from_secs(300);

/// Formats of Kafka connectors elsewhere that are not there yet.
const FORMATS_TO_COME: &[&str] =
    &["csv", "json", "avro", "avro-confluent", "debezium-json", "canal-json", "maxwell-json"];
/// The longest name of a topic, by Kafka's rules.
const TOPIC_CHARS_MAX: usize = 249;
/// The most that a compiled pattern may take, in bytes: expressions with large repetitions explode.
const PATTERN_BYTES_MAX: usize = 1 << 20;

/// What to consume, and how.
#[derive(Clone, Debug)]
pub struct SourceOptions {
    /// Brokers to ask first.
    pub bootstrap: BootstrapServers,
    /// The same as the user gave it.
    pub bootstrap_text: Arc<str>,
    /// How brokers are reached, and as whom.
    pub client: ClientOptions,
    /// Name of the policy that resolves credentials, when one is configured. Whoever runs policies then gives its secrets by
    /// [`use_secrets`](Self::use_secrets).
    pub credentials_resolver: Option<Arc<str>>,
    /// The share group.
    pub group: Arc<str>,
    /// What is consumed.
    pub subscription: Subscription,
    /// Where this host is.
    pub rack: Option<Arc<str>>,
    /// How is fetched.
    pub fetch: FetchSettings,
    /// How old the map of the cluster may become.
    pub metadata_max_age: Duration,
    /// How long a broker may take to answer.
    pub request_timeout: Duration,
    /// Members of the group in this host.
    pub parallelism: usize,
    /// Records held at most, all members together.
    pub held_records_max: usize,
    /// Records that come for this or a later delivery are rejected.
    pub delivery_count_limit: Option<u32>,
    /// What deferrals may hold.
    pub hold: HoldLimits,
    /// The spool, with implicit acknowledgement.
    pub spool: Option<SpoolOptions>,
    /// Name of the renewal policy, when one is configured.
    pub renewal_policy: Option<Arc<str>>,
    /// How long before its end a queued record's lock is renewed.
    pub renewal_ahead_time: Duration,
}

/// What deferrals may hold.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct HoldLimits {
    /// Records whose locks are renewed.
    pub records: usize,
    /// Their bytes.
    pub bytes: usize,
    /// How long one delivery of a record is held in all.
    pub time: Duration,
}

/// The spool of a source with implicit acknowledgement.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SpoolOptions {
    /// How much may be in it.
    pub limits: tidegate_spool::Limits,
    /// How long one hand-out from it lasts.
    pub lease: Duration,
}

impl SourceOptions {
    /// Reads the options of a source.
    ///
    /// # Errors
    /// Every mistake that the table alone cannot see.
    pub fn from_values(values: &Values) -> Result<Self, Vec<OptionError>> {
        let mut errors = Vec::new();
        let bootstrap_text = values.text(SERVERS).unwrap_or_default();
        let bootstrap = BootstrapServers::parse(bootstrap_text)
            .map_err(|error| errors.push(invalid(SERVERS, error.to_string())))
            .ok();
        let group = values.text(GROUP).unwrap_or_default();
        if group.is_empty() {
            errors.push(invalid(GROUP, "must not be empty".to_owned()));
        }
        let subscription = read_subscription(values, &mut errors);
        check_format(values, &mut errors);
        let limit = values.integer(LIMIT).unwrap_or(-1);
        if limit == 0 {
            errors.push(invalid(
                LIMIT,
                "must be at least 1, or -1 for none: with 0 every record would be rejected".to_owned(),
            ));
        }
        let spool = read_spool(values, &mut errors);
        let security = read_security(values, &mut errors);
        let (Some(bootstrap), Some(subscription)) = (bootstrap, subscription) else { return Err(errors) };
        if !errors.is_empty() {
            return Err(errors);
        }
        let number = |key| values.integer(key).and_then(|number| usize::try_from(number).ok());
        let millis = |key, default| {
            values
                .integer(key)
                .and_then(|number| u64::try_from(number).ok())
                .map_or(default, Duration::from_millis)
        };
        let fetch = FetchSettings::default();
        let max_wait = millis("properties.fetch.max.wait.ms", fetch.max_wait);
        let held_records_max = number("max-queue-size").unwrap_or(10_000);
        let request_timeout = millis("properties.request.timeout.ms", Duration::from_secs(30));
        Ok(Self {
            bootstrap,
            bootstrap_text: bootstrap_text.into(),
            client: ClientOptions {
                security,
                client_id: values.text("properties.client.id").unwrap_or("tidegate").into(),
                ..ClientOptions::default()
            },
            credentials_resolver: values.text(RESOLVER).map(Arc::from),
            group: group.into(),
            subscription,
            rack: values.text("properties.client.rack").filter(|rack| !rack.is_empty()).map(Arc::from),
            fetch: FetchSettings {
                max_records: number("properties.max.poll.records").unwrap_or(fetch.max_records),
                max_bytes: number("properties.fetch.max.bytes").unwrap_or(fetch.max_bytes),
                max_wait,
                max_wait_while_held: fetch.max_wait_while_held.min(max_wait),
                acquire_mode: match values.text("properties.share.acquire.mode") {
                    Some("record_limit") => AcquireMode::RecordLimit,
                    _ => AcquireMode::BatchOptimized,
                },
            },
            metadata_max_age: millis("properties.metadata.max.age.ms", Duration::from_secs(300)),
            request_timeout,
            parallelism: number("source.parallelism").unwrap_or(1),
            held_records_max,
            delivery_count_limit: u32::try_from(limit).ok(),
            hold: HoldLimits {
                records: number(HOLD_RECORDS).unwrap_or(held_records_max).min(held_records_max),
                bytes: values
                    .size(HOLD_BYTES)
                    .and_then(|bytes| usize::try_from(bytes).ok())
                    .unwrap_or(64 << 20),
                time: values.duration(HOLD_TIME).unwrap_or(Duration::from_secs(30 * 60)),
            },
            spool,
            renewal_policy: values.text("renewal-policy").map(Arc::from),
            renewal_ahead_time: values.duration("renewal-ahead-time").unwrap_or(Duration::from_secs(5)),
        })
    }

    /// Logs in with secrets from there. Without SASL nobody logs in.
    pub fn use_secrets(&mut self, secrets: Arc<dyn SecretSource>) {
        if let Some(sasl) = &mut self.client.security.sasl {
            sasl.secrets = secrets;
        }
    }

    /// Looks at every file that the options name; opens no connection.
    #[must_use]
    pub fn check_files(&self) -> Vec<tls::TlsError> {
        self.client.check()
    }

    /// The most records that one receive asks for.
    #[must_use]
    pub fn receive_records_max(&self) -> usize {
        self.fetch.max_records.min(self.held_records_max.div_ceil(self.parallelism)).max(1)
    }
}

fn read_spool(values: &Values, errors: &mut Vec<OptionError>) -> Option<SpoolOptions> {
    let is_implicit = values.text(ACK) == Some("implicit");
    let (idle, other): (&[&'static str], _) = if is_implicit {
        (&[HOLD_RECORDS, HOLD_BYTES, HOLD_TIME], "which holds what is deferred in the spool")
    } else {
        (&[SPOOL_RECORDS, SPOOL_BYTES, SPOOL_LEASE], "which has no spool")
    };
    for key in idle.iter().copied().filter(|key| values.get(key).is_some()) {
        let ack = if is_implicit { "implicit" } else { "explicit" };
        errors.push(invalid(key, format!("has no effect with `{ACK}` = `{ack}`, {other}")));
    }
    is_implicit.then(|| SpoolOptions {
        limits: tidegate_spool::Limits {
            records: values
                .integer(SPOOL_RECORDS)
                .and_then(|records| usize::try_from(records).ok())
                .unwrap_or(SPOOL_RECORDS_DEFAULT),
            bytes: values.size(SPOOL_BYTES).unwrap_or(SPOOL_BYTES_DEFAULT),
        },
        lease: values.duration(SPOOL_LEASE).unwrap_or(SPOOL_LEASE_DEFAULT),
    })
}

fn read_subscription(values: &Values, errors: &mut Vec<OptionError>) -> Option<Subscription> {
    match (values.text(TOPIC), values.text(PATTERN)) {
        (Some(_), Some(_)) => {
            errors.push(invalid(PATTERN, format!("cannot stand beside `{TOPIC}`: give one of them")));
            None
        }
        (None, None) => {
            errors.push(OptionError::Missing { key: TOPIC, summary: "what is consumed, or `topic-pattern`" });
            None
        }
        (Some(text), None) => {
            let names: BTreeSet<Arc<str>> =
                text.split(';').map(str::trim).filter(|name| !name.is_empty()).map(Arc::from).collect();
            let problems: Vec<_> = names.iter().filter_map(|name| topic_problem(name)).collect();
            if names.is_empty() {
                errors.push(invalid(TOPIC, "names no topic".to_owned()));
            }
            let is_right = !names.is_empty() && problems.is_empty();
            errors.extend(problems.into_iter().map(|problem| invalid(TOPIC, problem)));
            is_right.then_some(Subscription::Topics(names))
        }
        (None, Some(text)) => {
            let whole = format!("^(?:{text})$");
            // Looked at without the frame first: `a)(b` is right only within it.
            let read = compile(text).and_then(|_| compile(&whole));
            match read {
                Ok(expression) => Some(Subscription::Pattern(TopicPattern::new(text, move |topic| {
                    expression.is_match(topic)
                }))),
                Err(error) => {
                    errors.push(invalid(PATTERN, format!("is not a regular expression: {error}")));
                    None
                }
            }
        }
    }
}

fn compile(text: &str) -> Result<regex::Regex, regex::Error> {
    RegexBuilder::new(text).size_limit(PATTERN_BYTES_MAX).dfa_size_limit(PATTERN_BYTES_MAX).build()
}

/// What is wrong with the name of a topic, by Kafka's rules.
fn topic_problem(name: &str) -> Option<String> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if matches!(name, "." | "..") || name.len() > TOPIC_CHARS_MAX || !name.chars().all(is_allowed) {
        let hint = if name.contains(',') { "; several topics are separated by `;`" } else { "" };
        return Some(format!(
            "names `{name}`, which no topic can be called: 1 to {TOPIC_CHARS_MAX} letters, digits, `.`, `_` and `-`{hint}"
        ));
    }
    None
}

fn check_format(values: &Values, errors: &mut Vec<OptionError>) {
    let format = values.text(FORMAT).unwrap_or("raw");
    if FORMATS_TO_COME.contains(&format) {
        errors.push(invalid(
            FORMAT,
            format!("cannot be `{format}` yet: there is only `raw`, the bytes as they are"),
        ));
    } else if format != "raw" {
        errors.push(invalid(FORMAT, format!("must be `raw`, not `{format}`")));
    }
}

fn read_security(values: &Values, errors: &mut Vec<OptionError>) -> Security {
    let mut problems = Vec::new();
    let security = properties::read(&Prefixed(values), &mut problems);
    errors.extend(problems.into_iter().map(|Problem { name, text }| invalid(key(name), text)));
    let protocol = values.text(key(properties::PROTOCOL)).unwrap_or_default();
    if !protocol.starts_with("SASL") && values.text(RESOLVER).is_some() {
        let problem =
            format!("has no effect: `{}` is {protocol}, which has no SASL", key(properties::PROTOCOL));
        errors.push(invalid(RESOLVER, problem));
    }
    security
}

/// A property's key in the table.
fn key(name: &str) -> &'static str {
    let is_it = |key: &&str| key.strip_prefix(PREFIX) == Some(name);
    // Each of them has an option; a test sees to it.
    TABLE.options.iter().map(|option| option.key).find(is_it).unwrap_or(PREFIX)
}

/// Java's properties among the options of a source.
struct Prefixed<'a>(&'a Values);

impl Given for Prefixed<'_> {
    fn text(&self, name: &'static str) -> Option<&str> {
        self.0.text(key(name))
    }

    fn called(&self, name: &'static str) -> String {
        key(name).to_owned()
    }

    fn resolver(&self) -> Option<&str> {
        self.0.text(RESOLVER).map(|_| RESOLVER)
    }

    fn is_elsewhere(&self, value: &str) -> bool {
        value.starts_with("env:") || value.starts_with("file:")
    }

    fn token_advice(&self) -> String {
        format!(
            "give a file that somebody keeps fresh, as `file:///run/secrets/token`, or a policy as `{RESOLVER}`"
        )
    }
}

fn invalid(key: &'static str, problem: String) -> OptionError {
    OptionError::Invalid { key, problem }
}

#[cfg(test)]
mod tests;
