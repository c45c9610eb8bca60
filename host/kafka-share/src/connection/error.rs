//! Why there is no connection, and why a call failed: where, whose fault, and what to do.

mod call;
mod open;

pub use call::{CallError, CallProblem};
pub use open::{OpenError, OpenProblem, TlsFault};

use super::options::OptionNames;

/// Whose fault it is.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Fault {
    /// The road or the broker is down: passes by itself.
    Network,
    /// Whoever answers there does not do what a broker should.
    Broker,
    /// Wrong credentials or missing rights: passes when somebody changes them.
    Access,
    /// The options do not fit the server: passes when somebody changes one of both.
    Configuration,
}

/// How far the opening of a connection had come.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Phase {
    /// Finding the addresses of a name.
    Resolve,
    /// Connecting to one of them.
    Connect,
    /// The TLS handshake.
    Tls,
    /// Asking for the versions that the broker speaks.
    Versions,
    /// Authentication.
    Sasl,
}

/// What the user chose, as far as advice needs it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    /// What the options are called.
    pub(super) names: &'static OptionNames,
    /// The security protocol.
    pub(super) protocol: &'static str,
}

impl Asked {
    fn has_tls(self) -> bool {
        self.protocol.ends_with("SSL")
    }
}

impl Phase {
    /// In words, to follow "during".
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Resolve => "the resolution of the name",
            Self::Connect => "connecting",
            Self::Tls => "the TLS handshake",
            Self::Versions => "the first question",
            Self::Sasl => "authentication",
        }
    }
}
