//! How brokers are reached, and as whom.

use std::sync::Arc;
use std::time::Duration;

use tidegate_connector::secret::SecretSource;
use tidegate_connector::tls::{Client as Tls, OptionNames as TlsNames, TlsError};

use crate::sasl::{Extension, Mechanism};

/// How brokers are reached, and as whom.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Encryption and authentication.
    pub security: Security,
    /// What brokers call this client in their logs, quotas and metrics.
    pub client_id: Box<str>,
    /// How long each step may take.
    pub deadlines: Deadlines,
    /// The longest answer that is taken, in bytes.
    pub answer_bytes_max: usize,
    /// How errors name these options to whoever gave them.
    pub names: &'static OptionNames,
}

/// Encryption and authentication. Which of both there are is what Kafka calls the security protocol.
#[derive(Clone, Debug, Default)]
pub struct Security {
    /// TLS, when connections are encrypted.
    pub tls: Option<Tls>,
    /// SASL, when the client says who it is by a secret.
    pub sasl: Option<Sasl>,
}

/// Authentication by SASL.
#[derive(Clone, Debug)]
pub struct Sasl {
    /// How.
    pub mechanism: Mechanism,
    /// With what. Asked for each connection, and again whenever a connection must prove itself anew.
    pub secrets: Arc<dyn SecretSource>,
    /// What goes along with a token; other mechanisms have none.
    pub extensions: Vec<Extension>,
}

/// How long steps may take. What takes longer has failed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Deadlines {
    /// All of opening a connection, the other steps included.
    pub open: Duration,
    /// Finding the addresses of a name.
    pub resolve: Duration,
    /// The connection to one of these addresses.
    pub connect: Duration,
    /// The TLS handshake, and the first answer after it. Whoever does not answer within it is no Kafka broker, or wants
    /// the other of TLS and plain text.
    pub greeting: Duration,
    /// Authentication, in all its steps. Brokers wait on purpose before they refuse.
    pub sasl: Duration,
}

/// What options are called where they were given. Errors advise to change one or another.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OptionNames {
    /// The servers to ask first.
    pub bootstrap_servers: &'static str,
    /// Which of TLS and SASL there are.
    pub security_protocol: &'static str,
    /// Trusted certificates, and the client's own.
    pub tls: TlsNames,
    /// Whether the server's name is checked.
    pub endpoint_identification: &'static str,
    /// The SASL mechanism.
    pub mechanism: &'static str,
    /// The name and password, or token.
    pub login: &'static str,
}

impl OptionNames {
    /// As keys of the option table, which are those of Java's client with `properties.` before them.
    pub const KEYS: Self = Self {
        bootstrap_servers: "properties.bootstrap.servers",
        security_protocol: "properties.security.protocol",
        tls: TlsNames {
            trust: "properties.ssl.truststore.location",
            certificates: "properties.ssl.keystore.certificate.chain",
            key: "properties.ssl.keystore.key",
        },
        endpoint_identification: "properties.ssl.endpoint.identification.algorithm",
        mechanism: "properties.sasl.mechanism",
        login: "properties.sasl.jaas.config",
    };
}

impl Default for ClientOptions {
    /// Plain text, nobody in particular.
    fn default() -> Self {
        Self {
            security: Security::default(),
            client_id: "tidegate".into(),
            deadlines: Deadlines::default(),
            // What Java's client takes at most is as much as fits a length; a fetch asks for 50 MiB by default there.
            answer_bytes_max: 128 << 20,
            names: &OptionNames::KEYS,
        }
    }
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            open: Duration::from_secs(10),
            resolve: Duration::from_secs(5),
            connect: Duration::from_secs(3),
            greeting: Duration::from_secs(4),
            sasl: Duration::from_secs(8),
        }
    }
}

impl ClientOptions {
    /// Looks at every file that the options name for TLS; opens no connection.
    #[must_use]
    pub fn check(&self) -> Vec<TlsError> {
        self.security.tls.as_ref().map(|tls| tls.check(&self.names.tls)).unwrap_or_default()
    }
}

impl Security {
    /// Kafka's word for it.
    #[must_use]
    pub const fn protocol(&self) -> &'static str {
        match (&self.tls, &self.sasl) {
            (None, None) => "PLAINTEXT",
            (Some(_), None) => "SSL",
            (None, Some(_)) => "SASL_PLAINTEXT",
            (Some(_), Some(_)) => "SASL_SSL",
        }
    }
}
