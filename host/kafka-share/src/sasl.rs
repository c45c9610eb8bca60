//! Proving who the client is, sans-io: what to send, and what to make of the answers.
//!
//! Mechanisms are PLAIN (RFC 4616), SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677) and OAUTHBEARER (RFC 7628).
//! Names and passwords are taken as they are, in UTF-8 and without SASLprep: Kafka's brokers and tools do the same, so
//! only the same bytes match.

mod oauth_bearer;
mod plain;
mod scram;
mod secrets;

use std::fmt;

use scram::Scram;
use secrecy::SecretSlice;
pub use secrets::{FixedSecret, TokenFile};
use tidegate_connector::secret::Secret;

pub(crate) use scram::Nonce;

/// How the client proves who it is.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Mechanism {
    /// A name and a password as they are; only TLS keeps others from reading them.
    Plain,
    /// A name, and proof of a password that is never sent.
    ScramSha256,
    /// The same with a longer digest.
    ScramSha512,
    /// A token; only TLS keeps others from reading it.
    OauthBearer,
}

/// One name and value that goes along with a token.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Extension {
    name: Box<str>,
    value: Box<str>,
}

/// Why an exchange cannot go on.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SaslError {
    /// There is a secret, but not of the kind that the mechanism takes.
    #[error("{mechanism} takes {wanted}, and a secret of the kind `{given}` is given")]
    WrongKind {
        /// The mechanism.
        mechanism: Mechanism,
        /// What it takes.
        wanted: &'static str,
        /// What there is.
        given: &'static str,
    },
    /// The secret cannot be written in the mechanism's message.
    #[error("the {part} {problem}, so it cannot be sent")]
    Unsendable {
        /// What of the secret.
        part: &'static str,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The server said something that the mechanism does not know.
    #[error("the server's answer is not what {mechanism} knows: {problem}")]
    Malformed {
        /// The mechanism.
        mechanism: Mechanism,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// Too few repetitions protect no password, too many keep the client busy.
    #[error(
        "the server asks for {0} iterations, and only {min} to {max} are done",
        min = scram::ITERATIONS_MIN,
        max = scram::ITERATIONS_MAX
    )]
    Iterations(Box<str>),
    /// The server does not know the password either, so it is not the server it should be.
    #[error("the server could not prove that it knows the password: it may be an impostor")]
    Impostor,
    /// The server said no within the mechanism.
    #[error("the server refused: {0}")]
    Refused(Box<str>),
}

impl SaslError {
    /// Whether another secret could help.
    #[must_use]
    pub const fn is_about_the_secret(&self) -> bool {
        matches!(self, Self::WrongKind { .. } | Self::Unsendable { .. } | Self::Refused(_))
    }
}

impl Mechanism {
    /// All of them, the safest first.
    pub const ALL: [Self; 4] = [Self::ScramSha512, Self::ScramSha256, Self::OauthBearer, Self::Plain];

    /// The name that brokers know it by.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "PLAIN",
            Self::ScramSha256 => "SCRAM-SHA-256",
            Self::ScramSha512 => "SCRAM-SHA-512",
            Self::OauthBearer => "OAUTHBEARER",
        }
    }

    /// Reads that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mechanism| mechanism.name() == name)
    }

    /// Whether somebody who listens on the road could pose as the client afterwards.
    #[must_use]
    pub const fn shows_the_secret(self) -> bool {
        matches!(self, Self::Plain | Self::OauthBearer)
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Extension {
    /// Letters, and a value in ASCII that can be seen, with blanks and line ends (RFC 7628, 3.1).
    ///
    /// # Errors
    /// When they are something else, or the name is `auth`, which is the token's.
    pub fn new(name: &str, value: &str) -> Result<Self, SaslError> {
        let wrong = |part, problem| Err(SaslError::Unsendable { part, problem });
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphabetic()) {
            return wrong("name of an extension", "has other characters than letters");
        }
        if name == "auth" {
            return wrong("name of an extension", "is `auth`, which is the token's own");
        }
        let is_sendable = |byte: u8| byte.is_ascii_graphic() || matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
        if !value.bytes().all(is_sendable) {
            return wrong("value of an extension", "has characters outside of printable ASCII");
        }
        Ok(Self { name: name.into(), value: value.into() })
    }
}

/// What to do next.
#[derive(Debug)]
pub(crate) enum Step {
    /// Send this, and hand in the answer.
    Send(SecretSlice<u8>),
    /// Nothing: the exchange has ended well.
    Done,
}

/// One exchange with one server.
#[derive(Debug)]
pub(crate) enum Exchange {
    Plain,
    Scram(Box<Scram>),
    OauthBearer(oauth_bearer::Exchange),
}

impl Exchange {
    /// Begins, and gives the first message. `nonce` must be random, and is used by SCRAM only.
    pub(crate) fn start(
        mechanism: Mechanism,
        secret: &Secret,
        extensions: &[Extension],
        nonce: Nonce,
    ) -> Result<(Self, SecretSlice<u8>), SaslError> {
        let wrong = |wanted| SaslError::WrongKind { mechanism, wanted, given: secret.kind() };
        let hash = match mechanism {
            Mechanism::Plain => {
                let Secret::Login { username, password } = secret else { return Err(wrong(LOGIN)) };
                return Ok((Self::Plain, plain::message(username, password)?));
            }
            Mechanism::OauthBearer => {
                let Secret::Bearer(token) = secret else { return Err(wrong("a token")) };
                let message = oauth_bearer::message(token, extensions)?;
                return Ok((Self::OauthBearer(oauth_bearer::Exchange::default()), message));
            }
            Mechanism::ScramSha256 => scram::Hash::Sha256,
            Mechanism::ScramSha512 => scram::Hash::Sha512,
        };
        let Secret::Login { username, password } = secret else { return Err(wrong(LOGIN)) };
        let (scram, message) = Scram::start(hash, username, password, nonce)?;
        Ok((Self::Scram(Box::new(scram)), message))
    }

    /// What follows from the server's answer to the last message.
    pub(crate) fn handle_answer(&mut self, answer: &[u8]) -> Result<Step, SaslError> {
        match self {
            Self::Plain => plain::step(answer),
            Self::Scram(scram) => scram.step(answer),
            Self::OauthBearer(exchange) => exchange.step(answer),
        }
    }
}

const LOGIN: &str = "a name and a password";

/// What a server says, fit for a log: one line, not endless, nothing that a terminal would obey.
pub(crate) fn told(text: &str) -> Box<str> {
    const CHARS_MAX: usize = 300;
    let mut told: String =
        text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(CHARS_MAX).collect();
    if text.chars().nth(CHARS_MAX).is_some() {
        told.push_str("...");
    }
    told.into()
}

#[cfg(test)]
pub(crate) mod tests;
