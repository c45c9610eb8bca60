//! What to start.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::json;

use super::certificates::Certificates;

/// A release of Apache Kafka.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Version {
    /// 4.3.1: share groups without dead-letter topics.
    #[default]
    V4_3,
    /// 4.4.0.
    V4_4,
}

impl Version {
    /// All that tests run on, the oldest first.
    pub const ALL: [Self; 2] = [Self::V4_3, Self::V4_4];
}

/// As Maven knows it.
impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4_3 => "4.3.1",
            Self::V4_4 => "4.4.0",
        })
    }
}

/// One node of a cluster, from 1.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct NodeId(pub i32);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kafka node {}", self.0)
    }
}

/// Where clients can connect to a node.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Listener {
    /// Neither encrypted nor authenticated, and all-powerful even with [`ClusterOptions::authorizer`]: for the driver.
    Plaintext,
    /// Authenticated; there only with [`ClusterOptions::sasl`].
    SaslPlaintext,
    /// Authenticated and encrypted; there only with [`ClusterOptions::sasl`] and [`ClusterOptions::tls`].
    SaslSsl,
    /// Encrypted, with a client certificate demanded; there only with [`ClusterOptions::tls`].
    Ssl,
}

/// How a user of [`Sasl`] proves who it is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mechanism {
    /// The password itself.
    Plain,
    /// SCRAM with SHA-256.
    ScramSha256,
    /// SCRAM with SHA-512.
    ScramSha512,
}

/// A user that the brokers know from their first start; without rights where there is an authorizer, unless its name
/// is `admin`.
#[derive(Clone)]
pub struct User {
    /// Its name.
    pub name: String,
    /// Its password; for SCRAM without commas and brackets, which the format tool takes as its own.
    pub password: String,
    /// The one mechanism that it can use.
    pub mechanism: Mechanism,
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("User")
            .field("name", &self.name)
            .field("mechanism", &self.mechanism)
            .finish_non_exhaustive()
    }
}

/// Who may connect to the SASL listeners. All mechanisms are on; OAUTHBEARER takes any [`unsecured_token`].
#[derive(Clone, Debug, Default)]
pub struct Sasl {
    /// Users of the other mechanisms.
    pub users: Vec<User>,
}

impl Sasl {
    /// The same with one more user.
    #[must_use]
    pub fn user(mut self, mechanism: Mechanism, name: &str, password: &str) -> Self {
        self.users.push(User { name: name.into(), password: password.into(), mechanism });
        self
    }
}

/// How long share groups take over things.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Pace {
    /// Record locks of 2 s that a group may set down to 1 s, heartbeats every 500 ms, sessions of 5 s, assignments at
    /// once: for tests.
    #[default]
    Quick,
    /// Kafka's own defaults (locks of 30 s, heartbeats every 5 s, sessions of 45 s, assignments once a second).
    Stock,
}

/// How much memory each node may use and how it compiles.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Sizes {
    /// A heap of 64 MiB, in which 2,000 log batches and all share tests went well when measured (40 MiB did too,
    /// 32 MiB did not; resident: 140 to 160 MB), the serial collector and only the quick compiler.
    #[default]
    Small,
    /// A heap of 512 MiB and the JVM's own defaults otherwise, for measuring.
    Lab,
}

/// What to start.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// Which release.
    pub version: Version,
    /// 1, or 3 of which any one may be missing: topics get three replicas then, two of which must have a record.
    pub nodes: u8,
    /// Opens [`Listener::SaslPlaintext`] and, with `tls`, [`Listener::SaslSsl`].
    pub sasl: Option<Sasl>,
    /// Opens [`Listener::Ssl`] and, with `sasl`, [`Listener::SaslSsl`].
    pub tls: Option<Certificates>,
    /// Whether rights are checked on all listeners but [`Listener::Plaintext`].
    pub authorizer: bool,
    /// Share groups' times.
    pub pace: Pace,
    /// Levels of cluster features other than the release's own, as `("share.version", 0)` for no share groups at all.
    pub features: Vec<(&'static str, u16)>,
    /// Lines of `server.properties`, in force over ours.
    pub properties: Vec<(String, String)>,
    /// Memory and compiler settings.
    pub sizes: Sizes,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self {
            version: Version::default(),
            nodes: 1,
            sasl: None,
            tls: None,
            authorizer: false,
            pace: Pace::default(),
            features: Vec::new(),
            properties: Vec::new(),
            sizes: Sizes::default(),
        }
    }
}

impl ClusterOptions {
    /// The same with one more line of `server.properties`.
    #[must_use]
    pub fn property(mut self, name: &str, value: &str) -> Self {
        self.properties.push((name.into(), value.into()));
        self
    }

    pub(crate) fn node_ids(&self) -> impl Iterator<Item = NodeId> + use<> {
        (1..=i32::from(self.nodes)).map(NodeId)
    }

    pub(crate) fn listeners(&self) -> Vec<Listener> {
        let mut listeners = vec![Listener::Plaintext];
        if self.sasl.is_some() {
            listeners.push(Listener::SaslPlaintext);
        }
        if self.sasl.is_some() && self.tls.is_some() {
            listeners.push(Listener::SaslSsl);
        }
        if self.tls.is_some() {
            listeners.push(Listener::Ssl);
        }
        listeners
    }
}

/// A token for OAUTHBEARER as the brokers take it without any key: a JWS of algorithm `none` (RFC 7515, appendix A.5)
/// that says to be `subject` until `lifetime` from now.
#[must_use]
#[allow(clippy::disallowed_methods, reason = "a broker compares the token's times with its own wall clock")]
pub fn unsecured_token(subject: &str, lifetime: Duration) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let part = |value: serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let claims = json!({"sub": subject, "iat": now.as_secs(), "exp": (now + lifetime).as_secs()});
    format!("{}.{}.", part(json!({"alg": "none"})), part(claims))
}
