//! Why there is no connection.

use std::fmt::{self, Write as _};
use std::net::SocketAddr;
use std::time::Duration;

use super::{Asked, Fault, Phase};
use crate::connection::address::BrokerAddress;
use crate::connection::options::OptionNames;
use crate::connection::versions::VersionError;
use crate::error_code::ErrorCode;
use crate::sasl::{Mechanism, SaslError};
use crate::wire::AnswerError;

/// There is no connection. Its text is one sentence: where, what happened, what to do.
#[derive(Clone, Debug, thiserror::Error)]
#[error("cannot connect to {address}: {problem}{}", problem.advice(*asked))]
pub struct OpenError {
    address: BrokerAddress,
    problem: OpenProblem,
    asked: Asked,
}

/// What kept a connection from being opened.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum OpenProblem {
    /// The name has no address that can be found now.
    Resolve {
        /// What the system says.
        reason: Box<str>,
    },
    /// The name has no address.
    NoAddress,
    /// No address takes connections.
    Unreachable {
        /// All addresses, with what happened.
        tried: Box<[(SocketAddr, Box<str>)]>,
    },
    /// A step took too long.
    TimedOut {
        /// Which.
        phase: Phase,
        /// How long it was waited for.
        after: Duration,
    },
    /// The server closed the connection.
    Closed {
        /// During which step.
        phase: Phase,
    },
    /// The connection broke.
    Broken {
        /// During which step.
        phase: Phase,
        /// What the system says.
        reason: Box<str>,
    },
    /// The host is a name that no certificate can have.
    ServerName,
    /// The server answered the handshake with something that is not TLS.
    NotTls {
        /// What TLS says about it.
        reason: Box<str>,
    },
    /// TLS could not be agreed on, or a certificate was refused.
    TlsFailed {
        /// By whom, and why.
        fault: TlsFault,
        /// What TLS says about it.
        reason: Box<str>,
    },
    /// The server answered with TLS.
    WantsTls,
    /// The server answered with something that is no Kafka.
    NotKafka {
        /// How it begins.
        begins: Box<str>,
    },
    /// The answer cannot be used.
    Answer {
        /// During which step.
        phase: Phase,
        /// Why not.
        error: AnswerError,
    },
    /// The broker answered with an error that has no entry of its own here.
    Code {
        /// During which step.
        phase: Phase,
        /// Which.
        code: ErrorCode,
    },
    /// The broker is too old for share groups, or too new.
    Version(VersionError),
    /// The listener takes no SASL.
    NoSasl,
    /// The broker does not offer the mechanism.
    Mechanism {
        /// The one that was asked for.
        wanted: Mechanism,
        /// Those that it offers.
        offered: Box<[Box<str>]>,
    },
    /// The broker refused the credentials.
    Denied {
        /// The mechanism.
        mechanism: Mechanism,
        /// What the broker said.
        told: Box<str>,
    },
    /// The exchange cannot go on.
    Sasl(SaslError),
    /// There is no secret.
    Secret {
        /// Why not.
        detail: Box<str>,
    },
    /// The system gives no random bytes.
    Random {
        /// Why not.
        reason: Box<str>,
    },
}

/// What of TLS failed.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum TlsFault {
    /// The server's certificate is not believed.
    ServerCertificate,
    /// The server's certificate is for another name.
    ServerName,
    /// The server refused the client's certificate, or wants one.
    ClientCertificate,
    /// Something else.
    Other,
}

impl OpenError {
    pub(in crate::connection) const fn new(
        address: BrokerAddress,
        problem: OpenProblem,
        asked: Asked,
    ) -> Self {
        Self { address, problem, asked }
    }

    /// Where to.
    #[must_use]
    pub const fn address(&self) -> &BrokerAddress {
        &self.address
    }

    /// What happened.
    #[must_use]
    pub const fn problem(&self) -> &OpenProblem {
        &self.problem
    }

    /// What happened and what to do about it, without the address.
    #[must_use]
    pub fn reason(&self) -> String {
        format!("{}{}", self.problem, self.problem.advice(self.asked))
    }

    /// Whose fault it is.
    #[must_use]
    pub const fn fault(&self) -> Fault {
        self.problem.fault()
    }

    /// Whether waiting alone can help.
    #[must_use]
    pub const fn is_retriable(&self) -> bool {
        self.problem.is_retriable()
    }
}

impl OpenProblem {
    /// How far it had come.
    #[must_use]
    pub const fn phase(&self) -> Phase {
        match self {
            Self::Resolve { .. } | Self::NoAddress => Phase::Resolve,
            Self::Unreachable { .. } => Phase::Connect,
            Self::TimedOut { phase, .. }
            | Self::Closed { phase }
            | Self::Broken { phase, .. }
            | Self::Answer { phase, .. }
            | Self::Code { phase, .. } => *phase,
            Self::ServerName | Self::NotTls { .. } | Self::TlsFailed { .. } => Phase::Tls,
            Self::WantsTls | Self::NotKafka { .. } | Self::Version(_) => Phase::Versions,
            Self::NoSasl
            | Self::Mechanism { .. }
            | Self::Denied { .. }
            | Self::Sasl(_)
            | Self::Secret { .. }
            | Self::Random { .. } => Phase::Sasl,
        }
    }

    /// Whose fault it is.
    #[must_use]
    pub const fn fault(&self) -> Fault {
        match self {
            Self::Resolve { .. }
            | Self::NoAddress
            | Self::Unreachable { .. }
            | Self::TimedOut { .. }
            | Self::Closed { .. }
            | Self::Broken { .. } => Fault::Network,
            Self::Answer { .. } | Self::Code { .. } | Self::Random { .. } => Fault::Broker,
            Self::ServerName
            | Self::NotTls { .. }
            | Self::TlsFailed { .. }
            | Self::WantsTls
            | Self::NotKafka { .. }
            | Self::Version(_)
            | Self::NoSasl
            | Self::Mechanism { .. } => Fault::Configuration,
            Self::Denied { .. } | Self::Secret { .. } => Fault::Access,
            Self::Sasl(error) => {
                if error.is_about_the_secret() {
                    Fault::Access
                } else {
                    Fault::Broker
                }
            }
        }
    }

    /// Whether waiting alone can help. A secret that is not there may be on its way.
    #[must_use]
    pub const fn is_retriable(&self) -> bool {
        matches!(self.fault(), Fault::Network)
            || matches!(self, Self::Code { .. } | Self::Secret { .. } | Self::Random { .. })
    }

    /// What to do, to follow the problem; empty when that is plain or unknown.
    fn advice(&self, asked: Asked) -> String {
        let Asked { names, protocol } = asked;
        let OptionNames { bootstrap_servers, security_protocol, tls, endpoint_identification, .. } = names;
        let advice = match self {
            Self::Resolve { .. } | Self::NoAddress | Self::Unreachable { .. } => {
                format!("is it right in `{bootstrap_servers}`, or in what the brokers advertise?")
            }
            Self::NotTls { .. }
            | Self::Closed { phase: Phase::Tls }
            | Self::TimedOut { phase: Phase::Tls, .. } => {
                format!("if the listener takes no TLS, say so with `{security_protocol}`")
            }
            Self::Closed { phase: Phase::Versions } if asked.has_tls() => format!(
                "if the listener wants a client's certificate, give one as `{}` with `{}`",
                tls.certificates, tls.key
            ),
            Self::Closed { phase: Phase::Versions } | Self::TimedOut { phase: Phase::Versions, .. } => {
                format!("does the listener fit `{security_protocol}`, which is {protocol}?")
            }
            Self::WantsTls => format!("make `{security_protocol}` SSL or SASL_SSL, not {protocol}"),
            Self::NotKafka { .. } => format!("is the port in `{bootstrap_servers}` that of a broker?"),
            Self::ServerName => format!("use the broker's name in `{bootstrap_servers}`"),
            Self::TlsFailed { fault, .. } => match fault {
                TlsFault::ServerCertificate => {
                    format!("give the CA that signed the server's certificate as `{}`", tls.trust)
                }
                TlsFault::ServerName => format!(
                    "use the name of the certificate in `{bootstrap_servers}` and in what the brokers advertise, or \
                     leave names unchecked with an empty `{endpoint_identification}`"
                ),
                TlsFault::ClientCertificate => format!(
                    "give a certificate that the server accepts as `{}` with `{}`",
                    tls.certificates, tls.key
                ),
                TlsFault::Other => return String::new(),
            },
            Self::NoSasl => format!("make `{security_protocol}` PLAINTEXT or SSL"),
            Self::Mechanism { .. } => format!("choose another `{}`", names.mechanism),
            Self::Denied { .. } | Self::Closed { phase: Phase::Sasl } => format!("check `{}`", names.login),
            Self::Sasl(error) if error.is_about_the_secret() => format!("check `{}`", names.login),
            _ => return String::new(),
        };
        format!("; {advice}")
    }
}

impl fmt::Display for OpenProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resolve { reason } => write!(f, "the name cannot be resolved ({reason})"),
            Self::NoAddress => f.write_str("the name has no address"),
            Self::Unreachable { tried } => {
                f.write_str("no connection")?;
                for (at, (address, reason)) in tried.iter().enumerate() {
                    f.write_str(if at == 0 { " (" } else { "; " })?;
                    write!(f, "{address}: {reason}")?;
                }
                f.write_char(')')
            }
            Self::TimedOut { phase, after } => write!(f, "{} took longer than {after:?}", phase.name()),
            Self::Closed { phase } => write!(f, "the server closed the connection during {}", phase.name()),
            Self::Broken { phase, reason } => {
                write!(f, "the connection broke during {} ({reason})", phase.name())
            }
            Self::ServerName => f.write_str("no certificate can be for this name"),
            Self::NotTls { reason } => write!(f, "the server does not speak TLS ({reason})"),
            Self::TlsFailed { reason, .. } => write!(f, "the TLS handshake failed ({reason})"),
            Self::WantsTls => f.write_str("the server speaks TLS, and the client came without"),
            Self::NotKafka { begins } => {
                write!(f, "the server does not speak Kafka's protocol: its answer begins with {begins}")
            }
            Self::Answer { phase, error } => write!(f, "{error} (during {})", phase.name()),
            Self::Code { phase, code } => write!(f, "the broker answered {code} during {}", phase.name()),
            Self::Version(error) => error.fmt(f),
            Self::NoSasl => f.write_str("the listener takes no SASL"),
            Self::Mechanism { wanted, offered } => {
                let offered = if offered.is_empty() { "none".to_owned() } else { offered.join(", ") };
                write!(f, "the broker does not offer {wanted}, but {offered}")
            }
            Self::Denied { mechanism, told } => write!(f, "the broker refused {mechanism}: {told}"),
            Self::Sasl(error) => error.fmt(f),
            Self::Secret { detail } => write!(f, "there is no secret to authenticate with: {detail}"),
            Self::Random { reason } => write!(f, "the system gives no random bytes ({reason})"),
        }
    }
}
