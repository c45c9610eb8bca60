//! What a user may choose, checked: the typed form of the option table.

mod table;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
pub use table::TABLE;
use tidegate_connector::options::{OptionError, Values};
use tidegate_connector::template::Template;

use crate::credentials::{Anonymous, Credentials, Fixed, Keys};
use crate::endpoints::Endpoints;
use crate::names;
use crate::outgoing::check_group;

/// How to reach a cluster, and as whom.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// The access point as the user gave it: where routes are asked for.
    pub endpoints: Endpoints,
    /// Namespace of topics and groups; empty when there is none.
    pub namespace: Arc<str>,
    /// Asked before each call for the keys to sign with.
    pub credentials: Arc<dyn Credentials>,
    /// Name of the policy that resolves credentials, when one is configured; whoever runs policies then puts its
    /// own [`Credentials`] into `credentials`.
    pub credentials_resolver: Option<Arc<str>>,
    /// Whether and how connections are encrypted.
    pub tls: Tls,
    /// Deadline of one call.
    pub request_timeout: Duration,
    /// How errors name these options to whoever gave them.
    pub names: &'static OptionNames,
}

/// What options are called where they were given. Errors advise to change one or another.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OptionNames {
    /// The access point.
    pub endpoints: &'static str,
    /// Whether connections are encrypted.
    pub tls: &'static str,
    /// The certificates to trust.
    pub tls_ca_file: &'static str,
    /// The client's own certificate, where one can be given.
    pub tls_cert_file: Option<&'static str>,
    /// The key of that certificate, where one can be given.
    pub tls_key_file: Option<&'static str>,
    /// Who the client is.
    pub access_key: &'static str,
    /// How it proves that.
    pub secret_key: &'static str,
    /// The deadline of one call, where it can be chosen.
    pub request_timeout: Option<&'static str>,
}

impl OptionNames {
    /// As keys of the option table.
    pub const KEYS: Self = Self {
        endpoints: "rocketmq.client.endpoints",
        tls: "rocketmq.client.tls-enabled",
        tls_ca_file: "rocketmq.client.tls-ca-file",
        tls_cert_file: Some("rocketmq.client.tls-cert-file"),
        tls_key_file: Some("rocketmq.client.tls-key-file"),
        access_key: "rocketmq.client.access-key",
        secret_key: "rocketmq.client.secret-key",
        request_timeout: Some("rocketmq.client.request-timeout"),
    };
}

/// Whether and how connections are encrypted.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Tls {
    /// Plain HTTP/2.
    #[default]
    Off,
    /// TLS.
    On {
        /// Whom to believe.
        trust: Trust,
        /// The client's own certificate, for proxies that ask for one.
        identity: Option<IdentityFiles>,
    },
}

/// Which server certificates are believed.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Trust {
    /// Those that lead to the system's root certificates.
    #[default]
    SystemRoots,
    /// Those that lead to a certificate of this PEM file.
    CaFile(PathBuf),
    /// Any, without a check: whoever stands on the road can read and alter everything.
    Anyone,
}

/// PEM files of a client certificate.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct IdentityFiles {
    /// The certificate chain.
    pub certificates: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// What to consume, and how.
#[derive(Clone, Debug)]
pub struct SourceOptions {
    /// The cluster.
    pub client: ClientOptions,
    /// The topic; for lite consumption the main topic.
    pub topic: Arc<str>,
    /// The consumer group.
    pub group: Arc<str>,
    /// What kind of topic it is.
    pub topic_kind: TopicKind,
    /// Receive calls that the host keeps in flight.
    pub fetch_concurrency: usize,
    /// Longest wait of one receive.
    pub await_duration: Duration,
    /// Lease of a received message.
    pub invisible_duration: Duration,
    /// Most messages of one receive.
    pub messages_max: usize,
    /// Name of the renewal policy, when one is configured.
    pub renewal_policy: Option<Arc<str>>,
    /// How long before its end a queued message's lease is renewed.
    pub renewal_ahead_time: Duration,
    /// Whether [`connect`](crate::connect) waits for the cluster.
    pub start: Start,
}

/// What [`connect`](crate::connect) does about a cluster that does not answer.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Start {
    /// Returns at once and goes on trying for ever; [`Source::status`](tidegate_connector::Source::status) tells.
    #[default]
    InBackground,
    /// Waits at most so long for a session that works, then gives up with the reason.
    Within(Duration),
}

/// What kind of messages a topic holds: its `message.type` attribute.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum TopicKind {
    /// Many small ordered lite topics below one main topic.
    #[default]
    Lite,
    /// Independent messages.
    Normal,
    /// Ordered within a message group.
    Fifo,
    /// Held back by the broker until their time.
    Delay,
}

/// Where a sink sends to.
#[derive(Clone, Debug)]
pub struct SinkOptions {
    /// The cluster.
    pub client: ClientOptions,
    /// The topic; for lite messages the main topic.
    pub topic: Arc<str>,
    /// The lite topic of each message; none sends normal messages, or those of a message group.
    pub lite_topic: Option<Template>,
    /// The message group of each message, for FIFO topics.
    pub message_group: Option<Template>,
    /// Most attempts to send one message.
    pub attempts_max: u32,
}

impl ClientOptions {
    /// Options that reach `endpoints` without credentials or TLS.
    #[must_use]
    pub fn new(endpoints: Endpoints) -> Self {
        Self {
            endpoints,
            namespace: Arc::from(""),
            credentials: Arc::new(Anonymous),
            credentials_resolver: None,
            tls: Tls::Off,
            request_timeout: Duration::from_secs(3),
            names: &OptionNames::KEYS,
        }
    }

    /// Reads the client's part of the options.
    ///
    /// # Errors
    /// Every mistake that the table alone cannot see.
    pub fn from_values(values: &Values) -> Result<Self, Vec<OptionError>> {
        let mut errors = Vec::new();
        let endpoints = Endpoints::parse(values.text("rocketmq.client.endpoints").unwrap_or_default())
            .map_err(|error| errors.push(invalid("rocketmq.client.endpoints", error.to_string())))
            .ok();
        let credentials = read_credentials(values, &mut errors);
        let tls = read_tls(values, &mut errors);
        match endpoints {
            Some(endpoints) if errors.is_empty() => Ok(Self {
                namespace: Arc::from(values.text("rocketmq.client.namespace").unwrap_or_default()),
                credentials,
                credentials_resolver: values.text("rocketmq.client.credentials-resolver").map(Arc::from),
                tls,
                request_timeout: values
                    .duration("rocketmq.client.request-timeout")
                    .unwrap_or(Duration::from_secs(3)),
                names: &OptionNames::KEYS,
                ..Self::new(endpoints)
            }),
            _ => Err(errors),
        }
    }
}

impl SourceOptions {
    /// Options that consume the lite topics of `topic`, with the defaults of the table.
    #[must_use]
    pub fn new(client: ClientOptions, topic: impl Into<Arc<str>>, group: impl Into<Arc<str>>) -> Self {
        Self {
            client,
            topic: topic.into(),
            group: group.into(),
            topic_kind: TopicKind::Lite,
            fetch_concurrency: 1,
            await_duration: Duration::from_secs(20),
            invisible_duration: Duration::from_secs(60),
            messages_max: 32,
            renewal_policy: None,
            renewal_ahead_time: Duration::from_secs(5),
            start: Start::InBackground,
        }
    }

    /// Reads the options of a source.
    ///
    /// # Errors
    /// Every mistake that the table alone cannot see.
    pub fn from_values(values: &Values) -> Result<Self, Vec<OptionError>> {
        let (client, mut errors) = split(ClientOptions::from_values(values));
        let topic = checked_name(values, "rocketmq.source.main-topic", &mut errors);
        let group = checked_name(values, "rocketmq.source.consumer-group", &mut errors);
        let invisible_duration =
            values.duration("rocketmq.source.invisible-duration").unwrap_or(Duration::from_secs(60));
        let renewal_ahead_time =
            values.duration("rocketmq.source.renewal-ahead-time").unwrap_or(Duration::from_secs(5));
        if renewal_ahead_time >= invisible_duration {
            errors.push(invalid(
                "rocketmq.source.renewal-ahead-time",
                "must be shorter than `rocketmq.source.invisible-duration`".to_owned(),
            ));
        }
        let Some(client) = client.filter(|_| errors.is_empty()) else { return Err(errors) };
        let defaults = Self::new(client, topic, group);
        Ok(Self {
            topic_kind: values
                .text("rocketmq.source.topic-kind")
                .and_then(TopicKind::parse)
                .unwrap_or_default(),
            fetch_concurrency: count(values, "rocketmq.source.fetch-concurrency")
                .unwrap_or(defaults.fetch_concurrency),
            await_duration: values
                .duration("rocketmq.source.await-duration")
                .unwrap_or(defaults.await_duration),
            invisible_duration,
            messages_max: count(values, "rocketmq.source.max-message-num").unwrap_or(defaults.messages_max),
            renewal_policy: values.text("rocketmq.source.renewal-policy").map(Arc::from),
            renewal_ahead_time,
            ..defaults
        })
    }
}

impl SinkOptions {
    /// Options that send normal messages to `topic`, with the defaults of the table.
    #[must_use]
    pub fn new(client: ClientOptions, topic: impl Into<Arc<str>>) -> Self {
        Self { client, topic: topic.into(), lite_topic: None, message_group: None, attempts_max: 3 }
    }

    /// Reads the options of a sink.
    ///
    /// # Errors
    /// Every mistake that the table alone cannot see.
    pub fn from_values(values: &Values) -> Result<Self, Vec<OptionError>> {
        const LITE_TOPIC: &str = "rocketmq.sink.lite-topic";
        const MESSAGE_GROUP: &str = "rocketmq.sink.message-group";
        let (client, mut errors) = split(ClientOptions::from_values(values));
        let topic = checked_name(values, "rocketmq.sink.topic", &mut errors);
        let lite_topic = template(values, LITE_TOPIC, names::check_lite_topic, &mut errors);
        let message_group = template(values, MESSAGE_GROUP, check_group, &mut errors);
        if values.text(LITE_TOPIC).is_some() && values.text(MESSAGE_GROUP).is_some() {
            let problem = format!("cannot stand beside `{LITE_TOPIC}`: a message has one or the other");
            errors.push(invalid(MESSAGE_GROUP, problem));
        }
        let Some(client) = client.filter(|_| errors.is_empty()) else { return Err(errors) };
        let attempts = values.integer("rocketmq.sink.max-attempts").and_then(|n| u32::try_from(n).ok());
        let defaults = Self::new(client, topic);
        Ok(Self {
            lite_topic,
            message_group,
            attempts_max: attempts.unwrap_or(defaults.attempts_max),
            ..defaults
        })
    }
}

impl TopicKind {
    /// The word of the option.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lite => "lite",
            Self::Normal => "normal",
            Self::Fifo => "fifo",
            Self::Delay => "delay",
        }
    }

    /// Reads the word of the option.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Lite, Self::Normal, Self::Fifo, Self::Delay].into_iter().find(|kind| kind.name() == word)
    }
}

fn read_credentials(values: &Values, errors: &mut Vec<OptionError>) -> Arc<dyn Credentials> {
    const ACCESS: &str = "rocketmq.client.access-key";
    const SECRET: &str = "rocketmq.client.secret-key";
    let given = |key| values.text(key).filter(|text| !text.trim().is_empty());
    match (given(ACCESS), given(SECRET)) {
        (None, None) => Arc::new(Anonymous),
        (Some(access), Some(secret)) => {
            Arc::new(Fixed::new(Keys::new(access, SecretString::from(secret.to_owned()))))
        }
        (Some(_), None) => {
            errors.push(invalid(SECRET, format!("is missing: `{ACCESS}` is given, and one needs the other")));
            Arc::new(Anonymous)
        }
        (None, Some(_)) => {
            errors.push(invalid(ACCESS, format!("is missing: `{SECRET}` is given, and one needs the other")));
            Arc::new(Anonymous)
        }
    }
}

fn read_tls(values: &Values, errors: &mut Vec<OptionError>) -> Tls {
    const ENABLED: &str = "rocketmq.client.tls-enabled";
    const CA: &str = "rocketmq.client.tls-ca-file";
    const CERTIFICATE: &str = "rocketmq.client.tls-cert-file";
    const KEY: &str = "rocketmq.client.tls-key-file";
    const INSECURE: &str = "rocketmq.client.tls-insecure";
    let insecure = values.flag(INSECURE);
    if !values.flag(ENABLED) {
        let idle = [CA, CERTIFICATE, KEY].into_iter().filter(|key| values.text(key).is_some());
        for key in idle.chain(insecure.then_some(INSECURE)) {
            errors.push(invalid(key, format!("has no effect while `{ENABLED}` is false")));
        }
        return Tls::Off;
    }
    let trust = match (values.text(CA), insecure) {
        (Some(_), true) => {
            errors.push(invalid(INSECURE, format!("would make `{CA}` useless: give one of them")));
            Trust::Anyone
        }
        (Some(path), false) => Trust::CaFile(path.into()),
        (None, true) => Trust::Anyone,
        (None, false) => Trust::SystemRoots,
    };
    let identity = match (values.text(CERTIFICATE), values.text(KEY)) {
        (None, None) => None,
        (Some(certificates), Some(key)) => {
            Some(IdentityFiles { certificates: certificates.into(), key: key.into() })
        }
        (Some(_), None) => {
            errors
                .push(invalid(KEY, format!("is missing: `{CERTIFICATE}` is given, and one needs the other")));
            None
        }
        (None, Some(_)) => {
            errors
                .push(invalid(CERTIFICATE, format!("is missing: `{KEY}` is given, and one needs the other")));
            None
        }
    };
    Tls::On { trust, identity }
}

fn checked_name<'a>(values: &'a Values, key: &'static str, errors: &mut Vec<OptionError>) -> &'a str {
    let name = values.text(key).unwrap_or_default();
    if let Err(problem) = names::check_resource(name) {
        errors.push(invalid(key, problem.to_string()));
    }
    name
}

/// A template; one that gives every message the same text is checked here and now.
fn template<E: std::fmt::Display>(
    values: &Values,
    key: &'static str,
    check: impl Fn(&str) -> Result<(), E>,
    errors: &mut Vec<OptionError>,
) -> Option<Template> {
    let template = match Template::parse(values.text(key)?) {
        Ok(template) => template,
        Err(error) => {
            errors.push(invalid(key, format!("is not a template: {error}")));
            return None;
        }
    };
    if let Some(Err(problem)) = template.fixed().map(check) {
        errors.push(invalid(key, problem.to_string()));
    }
    Some(template)
}

fn count(values: &Values, key: &str) -> Option<usize> {
    values.integer(key).and_then(|number| usize::try_from(number).ok())
}

fn split<T>(result: Result<T, Vec<OptionError>>) -> (Option<T>, Vec<OptionError>) {
    match result {
        Ok(value) => (Some(value), Vec::new()),
        Err(errors) => (None, errors),
    }
}

fn invalid(key: &'static str, problem: String) -> OptionError {
    OptionError::Invalid { key, problem }
}

#[cfg(test)]
mod tests;
