//! What a user may choose about requests.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderName, HeaderValue, header};
use secrecy::{ExposeSecret as _, SecretString};
use tidegate_connector::options::{Default, Kind, OptionError, OptionSpec, Side, Table, Values};
use tidegate_connector::origin::Origin;
use tidegate_connector::template::{Template, TemplateError};

/// Its options.
pub const HTTP: Table = Table {
    connector: "http",
    summary: "Sends deliveries to a web server, each in a request or several in one. 2xx accepts; 5xx, 429, 408 and failed connections are tried again while the lease lives; what else the server answers rejects.",
    options: &[
        option(
            URL,
            Kind::Text,
            Default::Required,
            "Where to send to, such as `https://hooks.example/tenants/{lite-topic}`. Path and query may have fields of the delivery, the origin may not. Connections are made directly, never through a proxy, and redirects are not followed.",
        ),
        option(METHOD, Kind::Choice(&["POST", "PUT"]), Default::Value("POST"), "The method."),
        option(
            BODY,
            Kind::Choice(&["json", "ndjson", "raw"]),
            Default::Value("json"),
            "What a body is: `json`, a record with value, metadata and receipt, or an array of records when `batch-max` is more than 1; `ndjson`, one record a line; `raw`, the message's own bytes, with the metadata in headers that begin with `tidegate-`.",
        ),
        option(
            BATCH_MAX,
            Kind::Integer { min: 1, max: 256 },
            Default::Value("1"),
            "Most deliveries of one request, all of which share its outcome. Only deliveries with the same URL and headers come together, and nothing waits for more to come.",
        ),
        OptionSpec {
            secret: true,
            ..option(
                HEADERS,
                Kind::Pairs,
                Default::None,
                "Headers to send, such as `{ x-tenant = \"{lite-topic}\" }`; values may have fields of the delivery, unless they come from `env:` or `file:`.",
            )
        },
        option(
            TIMEOUT,
            Kind::Duration { min_millis: 100, max_millis: 600_000 },
            Default::Value("10s"),
            "Deadline of one request, from connecting to the answer.",
        ),
        option(
            CONCURRENCY,
            Kind::Integer { min: 1, max: 256 },
            Default::Value("16"),
            "Most requests at the same time. Those of one ordered key go one after the other.",
        ),
        option(
            RETRY_MAX_WAIT,
            Kind::Duration { min_millis: 100, max_millis: 3_600_000 },
            Default::Value("30s"),
            "Longest wait between two tries. Waits double from 200 ms, and are longer when the server says so with `Retry-After`, but never longer than this.",
        ),
        OptionSpec {
            secret: true,
            ..option(
                SIGNATURE_SECRET,
                Kind::Text,
                Default::None,
                "Signs requests: the header `tidegate-signature` then has `t=SECONDS,v1=HEX`, where HEX is the HMAC-SHA256 with this secret over the seconds, a full stop, and the body.",
            )
        },
        OptionSpec {
            secret: true,
            ..option(
                AUTHORIZATION,
                Kind::Text,
                Default::None,
                "Whole value of the header `authorization`, such as `Bearer TOKEN`.",
            )
        },
        option(
            TLS_CA_FILE,
            Kind::Path,
            Default::None,
            "PEM file with the certificates to trust in place of the system's roots.",
        ),
    ],
};

const URL: &str = "url";
const METHOD: &str = "method";
const BODY: &str = "body";
const BATCH_MAX: &str = "batch-max";
const HEADERS: &str = "headers";
const TIMEOUT: &str = "timeout";
const CONCURRENCY: &str = "concurrency";
const RETRY_MAX_WAIT: &str = "retry-max-wait";
const SIGNATURE_SECRET: &str = "signature-secret";
const AUTHORIZATION: &str = "authorization";
pub(super) const TLS_CA_FILE: &str = "tls-ca-file";

/// Headers that each request has at most beside those that the sink makes itself.
const HEADERS_MAX: usize = 64;

const fn option(key: &'static str, kind: Kind, default: Default, summary: &'static str) -> OptionSpec {
    OptionSpec { key, kind, default, side: Side::Sink, secret: false, summary }
}

/// What to send where.
#[derive(Clone)]
pub struct HttpOptions {
    /// Scheme, host and port.
    pub origin: Origin,
    /// Path and query.
    pub path_and_query: Template,
    /// The method.
    pub method: HttpMethod,
    /// What a body is.
    pub body: BodyFormat,
    /// Most deliveries of one request.
    pub batch_max: usize,
    /// Names, and templates of values; those that were looked up are literal and secrets.
    pub headers: Vec<(HeaderName, Template)>,
    /// Deadline of one request.
    pub timeout: Duration,
    /// Most requests at the same time.
    pub concurrency: usize,
    /// Longest wait between two tries.
    pub retry_max_wait: Duration,
    /// What requests are signed with.
    pub signature_secret: Option<SecretString>,
    /// The value of `authorization`.
    pub authorization: Option<SecretString>,
    /// Certificates to trust in place of the system's roots.
    pub tls_ca_file: Option<PathBuf>,
}

/// The method of requests.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum HttpMethod {
    /// `POST`.
    #[default]
    Post,
    /// `PUT`.
    Put,
}

/// What a body is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum BodyFormat {
    /// A record as JSON, or an array of records.
    #[default]
    Json,
    /// Records, one a line.
    Ndjson,
    /// The message's own bytes.
    Raw,
}

impl HttpOptions {
    /// Options for a URL with the defaults of the table.
    ///
    /// # Errors
    /// What is wrong with the URL.
    pub fn new(url: &str) -> Result<Self, OptionError> {
        let wrong = |problem| OptionError::Invalid { key: URL, problem };
        let (origin, path_and_query) = read_url(url).map_err(wrong)?;
        Ok(Self {
            origin,
            path_and_query,
            method: HttpMethod::Post,
            body: BodyFormat::Json,
            batch_max: 1,
            headers: Vec::new(),
            timeout: Duration::from_secs(10),
            concurrency: 16,
            retry_max_wait: Duration::from_secs(30),
            signature_secret: None,
            authorization: None,
            tls_ca_file: None,
        })
    }

    /// Reads the options. Opens nothing, reads no file.
    ///
    /// # Errors
    /// Every mistake that the table alone cannot see.
    pub fn from_values(values: &Values) -> Result<Self, Vec<OptionError>> {
        let mut errors = Vec::new();
        let defaults = Self::new(values.text(URL).unwrap_or_default());
        let defaults = defaults.map_err(|error| errors.push(error)).ok();
        let mut wrong = |key, problem| errors.push(OptionError::Invalid { key, problem });
        let headers = read_headers(values).unwrap_or_else(|problems| {
            problems.into_iter().for_each(|problem| wrong(HEADERS, problem));
            Vec::new()
        });
        let secret = |key| {
            let text = values.text(key).filter(|text| !text.is_empty());
            text.map(|text| SecretString::from(text.to_owned()))
        };
        let authorization = secret(AUTHORIZATION);
        if authorization.as_ref().is_some_and(|value| HeaderValue::from_str(value.expose_secret()).is_err()) {
            wrong(
                AUTHORIZATION,
                "has characters that no header can have, such as the end of a line".to_owned(),
            );
        }
        let body = match values.text(BODY) {
            Some("ndjson") => BodyFormat::Ndjson,
            Some("raw") => BodyFormat::Raw,
            _ => BodyFormat::Json,
        };
        let count = |key| values.integer(key).and_then(|count| usize::try_from(count).ok());
        let batch_max = count(BATCH_MAX).unwrap_or(1);
        if body == BodyFormat::Raw && batch_max > 1 {
            let problem =
                "must be 1 when `body` is `raw`: the bytes of several messages cannot be told apart";
            wrong(BATCH_MAX, problem.to_owned());
        }
        let tls_ca_file = values.text(TLS_CA_FILE).map(PathBuf::from);
        let is_https = defaults.as_ref().is_none_or(|options| options.origin.is_https());
        if tls_ca_file.is_some() && !is_https {
            wrong(TLS_CA_FILE, "is of no use without TLS: `url` begins with `http://`".to_owned());
        }
        let Some(defaults) = defaults.filter(|_| errors.is_empty()) else { return Err(errors) };
        Ok(Self {
            method: if values.text(METHOD) == Some("PUT") { HttpMethod::Put } else { HttpMethod::Post },
            body,
            batch_max,
            headers,
            timeout: values.duration(TIMEOUT).unwrap_or(defaults.timeout),
            concurrency: count(CONCURRENCY).unwrap_or(defaults.concurrency),
            retry_max_wait: values.duration(RETRY_MAX_WAIT).unwrap_or(defaults.retry_max_wait),
            signature_secret: secret(SIGNATURE_SECRET),
            authorization,
            tls_ca_file,
            ..defaults
        })
    }
}

/// Paths may have tokens in them, values of headers as well: only the origin and names are shown.
impl fmt::Debug for HttpOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers: Vec<_> = self.headers.iter().map(|(name, _)| name).collect();
        f.debug_struct("HttpOptions")
            .field("origin", &self.origin)
            .field("method", &self.method)
            .field("body", &self.body)
            .field("batch_max", &self.batch_max)
            .field("headers", &headers)
            .field("timeout", &self.timeout)
            .field("concurrency", &self.concurrency)
            .field("retry_max_wait", &self.retry_max_wait)
            .field("is_signed", &self.signature_secret.is_some())
            .field("is_authorized", &self.authorization.is_some())
            .field("tls_ca_file", &self.tls_ca_file)
            .finish_non_exhaustive()
    }
}

fn read_url(url: &str) -> Result<(Origin, Template), String> {
    const EXAMPLE: &str = "write it such as `https://hooks.example/tenants/{lite-topic}`";
    let Some((scheme, rest)) = url.split_once("://") else {
        return Err(format!("has no scheme; {EXAMPLE}"));
    };
    let (host, rest) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    if scheme.contains(['{', '}']) || host.contains(['{', '}']) {
        return Err(
            "has a field in its origin: only path and query may have fields, or whoever sends messages \
                    could choose where they go"
                .to_owned(),
        );
    }
    if host.contains('@') {
        return Err("has a user name or password in it; give them as `authorization`".to_owned());
    }
    let origin: Origin =
        format!("{scheme}://{host}").parse().map_err(|_| format!("has no valid origin; {EXAMPLE}"))?;
    if rest.contains('#') {
        return Err(
            "has a fragment, which is never sent: a `#` that is meant as one is written `%23`".to_owned()
        );
    }
    let slash = if rest.starts_with('/') { "" } else { "/" };
    let template = Template::parse(&format!("{slash}{rest}")).map_err(|error| error.to_string())?;
    for literal in template.literals() {
        if let Some(odd) = literal.chars().find(|c| !is_allowed_in_path_and_query(*c)) {
            return Err(format!(
                "has the character {odd:?}, which no URL can have; write it as `%` and its bytes"
            ));
        }
    }
    if template.fixed().is_some_and(super::target::has_dot_segment) {
        return Err("has `.` or `..` as a segment of its path".to_owned());
    }
    Ok((origin, template))
}

/// RFC 3986: `pchar`, `/` and `?`.
fn is_allowed_in_path_and_query(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-._~!$&'()*+,;=:@/?%".contains(c)
}

/// Headers that describe the connection or the body, or that the sink makes itself.
fn reserved(name: &HeaderName) -> Option<&'static str> {
    let makes = "is made by the sink itself";
    match name {
        &header::AUTHORIZATION => Some("is a secret; give it as `authorization`"),
        &header::HOST
        | &header::CONTENT_LENGTH
        | &header::TRANSFER_ENCODING
        | &header::CONNECTION
        | &header::UPGRADE
        | &header::TE
        | &header::TRAILER
        | &header::EXPECT => Some(makes),
        name if name.as_str().starts_with("tidegate-") => Some(makes),
        name if name.as_str().starts_with("proxy-") || name.as_str() == "keep-alive" => {
            Some("is between connections, and proxies are not used")
        }
        _ => None,
    }
}

fn read_headers(values: &Values) -> Result<Vec<(HeaderName, Template)>, Vec<String>> {
    let Some(pairs) = values.pairs(HEADERS) else { return Ok(Vec::new()) };
    let (mut headers, mut problems) = (Vec::<(HeaderName, Template)>::new(), Vec::new());
    for (name, template) in pairs {
        let Ok(header) = HeaderName::from_bytes(name.as_bytes()) else {
            problems.push(format!("has `{name}`, which is no name of a header"));
            continue;
        };
        if let Some(reason) = reserved(&header) {
            problems.push(format!("has `{name}`, which {reason}"));
        }
        if headers.iter().any(|(known, _)| *known == header) {
            problems.push(format!("has `{name}` twice: upper and lower case are the same"));
        }
        let read = if values.is_looked_up(HEADERS, name) { Template::literal } else { Template::parse };
        match read(template) {
            Ok(template) if template.literals().any(|text| HeaderValue::from_str(text).is_err()) => {
                problems.push(format!("has a value for `{name}` with characters that no header can have"));
            }
            Ok(template) => headers.push((header, template)),
            Err(mut error) => {
                // What stands in braces may be a part of a token.
                if let TemplateError::UnknownField { field, .. } = &mut error {
                    *field = "...".into();
                }
                problems.push(format!("has a value for `{name}` that is no template: {error}"));
            }
        }
    }
    if pairs.len() > HEADERS_MAX {
        problems.push(format!("has {} headers, and at most {HEADERS_MAX} are sent", pairs.len()));
    }
    if problems.is_empty() { Ok(headers) } else { Err(problems) }
}

#[cfg(test)]
mod tests;
