//! What a user may choose, checked: the typed form of the option table.

mod jaas;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jaas::{Login, Module};
use regex::RegexBuilder;
use secrecy::SecretString;
use tidegate_connector::options::{OptionError, Values};
use tidegate_connector::secret::{Secret, SecretSource};
use tidegate_connector::tls::{self, Identity, Pem, ServerNameCheck, Trust};

use crate::{
    AcquireMode, BootstrapServers, ClientOptions, Extension, FetchSettings, FixedSecret, Mechanism, Sasl,
    Security, Subscription, TokenFile, TopicPattern,
};

const SERVERS: &str = "properties.bootstrap.servers";
const GROUP: &str = "share-group-id";
const TOPIC: &str = "topic";
const PATTERN: &str = "topic-pattern";
const FORMAT: &str = "format";
const LIMIT: &str = "delivery-count-limit";
const RESOLVER: &str = "credentials-resolver";
const PROTOCOL: &str = "properties.security.protocol";
const MECHANISM: &str = "properties.sasl.mechanism";
const JAAS: &str = "properties.sasl.jaas.config";
const TOKEN_URL: &str = "properties.sasl.oauthbearer.token.endpoint.url";
const TRUST_FILE: &str = "properties.ssl.truststore.location";
const TRUST_TEXT: &str = "properties.ssl.truststore.certificates";
const TRUST_TYPE: &str = "properties.ssl.truststore.type";
const KEY_FILE: &str = "properties.ssl.keystore.location";
const CHAIN: &str = "properties.ssl.keystore.certificate.chain";
const KEY: &str = "properties.ssl.keystore.key";
const KEY_TYPE: &str = "properties.ssl.keystore.type";
const NAME_CHECK: &str = "properties.ssl.endpoint.identification.algorithm";

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
                records: number("defer-hold-records").unwrap_or(held_records_max).min(held_records_max),
                bytes: values
                    .size("defer-hold-bytes")
                    .and_then(|bytes| usize::try_from(bytes).ok())
                    .unwrap_or(64 << 20),
                time: values.duration("defer-hold-time").unwrap_or(Duration::from_secs(30 * 60)),
            },
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
    let protocol = values.text(PROTOCOL).unwrap_or("PLAINTEXT");
    let (has_tls, has_sasl) = (protocol.ends_with("SSL"), protocol.starts_with("SASL"));
    let idle = |keys: &[&'static str], word: &str, errors: &mut Vec<OptionError>| {
        for key in keys.iter().copied().filter(|key| values.text(key).is_some()) {
            errors.push(invalid(
                key,
                format!("has no effect with `{PROTOCOL}` = `{protocol}`, which has no {word}"),
            ));
        }
    };
    let tls = if has_tls {
        Some(read_tls(values, errors))
    } else {
        idle(&[TRUST_FILE, TRUST_TEXT, KEY_FILE, CHAIN, KEY], "TLS", errors);
        None
    };
    let sasl = if has_sasl {
        read_sasl(values, errors)
    } else {
        idle(&[MECHANISM, JAAS, TOKEN_URL, RESOLVER], "SASL", errors);
        None
    };
    Security { tls, sasl }
}

fn read_tls(values: &Values, errors: &mut Vec<OptionError>) -> tls::Client {
    for (key, convert) in [
        (TRUST_TYPE, "`keytool -exportcert -rfc -keystore STORE -alias ALIAS`"),
        (KEY_TYPE, "`openssl pkcs12 -in STORE -nodes -out FILE.pem`"),
    ] {
        let kind = values.text(key).unwrap_or("PEM");
        if kind != "PEM" {
            errors
                .push(invalid(key, format!("must be `PEM`, not `{kind}`: convert the store with {convert}")));
        }
    }
    for key in [TRUST_FILE, KEY_FILE] {
        if let Some(path) = values.text(key)
            && [".jks", ".p12", ".pfx"].iter().any(|end| path.ends_with(end))
        {
            errors.push(invalid(key, "must name a PEM file, not a store of Java's".to_owned()));
        }
    }
    let text = |key| values.text(key).map(|text| Pem::Text(SecretString::from(text.to_owned())));
    let file = |key| values.text(key).map(|path| Pem::File(PathBuf::from(path)));
    let trust = match (file(TRUST_FILE), text(TRUST_TEXT)) {
        (Some(_), Some(_)) => {
            errors.push(invalid(TRUST_TEXT, format!("cannot stand beside `{TRUST_FILE}`: give one of them")));
            Trust::SystemRoots
        }
        (Some(pem), None) | (None, Some(pem)) => Trust::Certificates(pem),
        (None, None) => Trust::SystemRoots,
    };
    let identity = match (file(KEY_FILE), text(CHAIN), text(KEY)) {
        (None, None, None) => None,
        (Some(file), None, None) => Some(Identity { certificates: file.clone(), key: file }),
        (None, Some(certificates), Some(key)) => Some(Identity { certificates, key }),
        (Some(_), _, _) => {
            errors.push(invalid(
                KEY_FILE,
                format!("cannot stand beside `{CHAIN}` and `{KEY}`: give one or the others"),
            ));
            None
        }
        (None, Some(_), None) => {
            errors.push(invalid(KEY, format!("is missing: `{CHAIN}` is given, and one needs the other")));
            None
        }
        (None, None, Some(_)) => {
            errors.push(invalid(CHAIN, format!("is missing: `{KEY}` is given, and one needs the other")));
            None
        }
    };
    let server_name = match values.text(NAME_CHECK).unwrap_or("https") {
        "" => ServerNameCheck::Off,
        "https" => ServerNameCheck::On,
        other => {
            errors.push(invalid(NAME_CHECK, format!("must be `https` or empty, not `{other}`")));
            ServerNameCheck::On
        }
    };
    tls::Client { trust, server_name, identity }
}

fn read_sasl(values: &Values, errors: &mut Vec<OptionError>) -> Option<Sasl> {
    let Some(mechanism) = values.text(MECHANISM).and_then(Mechanism::parse) else {
        if values.text(MECHANISM).is_none() {
            errors.push(OptionError::Missing { key: MECHANISM, summary: "how the client logs in" });
        }
        return None;
    };
    let mut wrong = |key, problem: String| {
        errors.push(invalid(key, problem));
        None
    };
    let is_bearer = mechanism == Mechanism::OauthBearer;
    // A reference to a secret that has not been looked up yet is right as it is.
    let jaas = values.text(JAAS).filter(|text| !is_reference(text));
    let login = match jaas.map(Login::parse) {
        Some(Err(problem)) => return wrong(JAAS, problem),
        Some(Ok(login)) => Some(login),
        None => None,
    };
    if let Some(login) = &login {
        let wanted = match mechanism {
            Mechanism::Plain => Module::Plain,
            Mechanism::OauthBearer => Module::OauthBearer,
            Mechanism::ScramSha256 | Mechanism::ScramSha512 => Module::Scram,
        };
        if login.module != wanted {
            return wrong(JAAS, format!("must have `{}` for `{MECHANISM}` = `{mechanism}`", wanted.name()));
        }
    }
    let extensions = match login.as_ref().map(extensions) {
        Some(Err(problem)) => return wrong(JAAS, problem),
        Some(Ok(extensions)) => extensions,
        None => Vec::new(),
    };
    if !is_bearer && values.text(TOKEN_URL).is_some() {
        return wrong(TOKEN_URL, format!("has no effect with `{MECHANISM}` = `{mechanism}`"));
    }
    let has_resolver = values.text(RESOLVER).is_some();
    let secrets: Arc<dyn SecretSource> = if has_resolver {
        if !is_bearer && values.text(JAAS).is_some() {
            return wrong(JAAS, format!("cannot stand beside `{RESOLVER}`: give one of them"));
        }
        if values.text(TOKEN_URL).is_some() {
            return wrong(TOKEN_URL, format!("cannot stand beside `{RESOLVER}`: give one of them"));
        }
        Arc::new(FixedSecret::new(Secret::None))
    } else if is_bearer {
        match token_file(values.text(TOKEN_URL)) {
            Ok(file) => Arc::new(file),
            Err(problem) => return wrong(TOKEN_URL, problem),
        }
    } else {
        let Some(login) = login else {
            if values.text(JAAS).is_none() {
                let problem =
                    format!("is missing: `{MECHANISM}` is {mechanism}, which takes a name and a password");
                return wrong(JAAS, problem);
            }
            return Some(Sasl { mechanism, secrets: Arc::new(FixedSecret::new(Secret::None)), extensions });
        };
        let (Some(username), Some(password)) = (login.option("username"), login.option("password")) else {
            return wrong(JAAS, "must have `username=\"…\"` and `password=\"…\"`".to_owned());
        };
        let (username, password) = (username.into(), SecretString::from(password.to_owned()));
        Arc::new(FixedSecret::new(Secret::Login { username, password }))
    };
    Some(Sasl { mechanism, secrets, extensions })
}

/// Whether a secret stands elsewhere and has not been looked up.
fn is_reference(text: &str) -> bool {
    text.starts_with("env:") || text.starts_with("file:")
}

/// What goes along with a token: options called `extension_NAME`.
fn extensions(login: &Login) -> Result<Vec<Extension>, String> {
    let given =
        login.options.iter().filter_map(|(name, value)| Some((name.strip_prefix("extension_")?, value)));
    given
        .map(|(name, value)| {
            Extension::new(name, value)
                .map_err(|error| format!("has the extension `{name}`, which cannot be sent: {error}"))
        })
        .collect()
}

fn token_file(url: Option<&str>) -> Result<TokenFile, String> {
    let advice = format!(
        "give a file that somebody keeps fresh, as `file:///run/secrets/token`, or a policy as `{RESOLVER}`"
    );
    match url.map(|url| (url, url.strip_prefix("file://"))) {
        None => Err(format!("is missing: OAUTHBEARER takes a token; {advice}")),
        Some((_, Some(path))) if path.starts_with('/') => Ok(TokenFile::new(path)),
        Some((_, Some(_))) => {
            Err("must be `file://` and a whole path, as `file:///run/secrets/token`".to_owned())
        }
        Some((_, None)) => {
            Err(format!("must be a file: tokens are not fetched from a server here; {advice}"))
        }
    }
}

fn invalid(key: &'static str, problem: String) -> OptionError {
    OptionError::Invalid { key, problem }
}

#[cfg(test)]
mod tests;
