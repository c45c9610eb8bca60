//! Who the host is to an endpoint: secrets, what they are for, and where they come from.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use secrecy::{ExposeSecret as _, SecretString};

/// What a secret is used for.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Purpose {
    /// Receiving.
    Consume,
    /// Sending.
    Produce,
    /// Settling what was received.
    Acknowledge,
    /// Reading schemas.
    Registry,
}

impl Purpose {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Consume, Self::Produce, Self::Acknowledge, Self::Registry];

    /// The word for people, and the label of metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Consume => "consume",
            Self::Produce => "produce",
            Self::Acknowledge => "acknowledge",
            Self::Registry => "registry",
        }
    }
}

/// What proves who the host is. Shows nothing of it.
#[derive(Clone)]
pub enum Secret {
    /// The endpoint wants none.
    None,
    /// A user's keys, to sign with.
    AccessKey(Arc<AccessKey>),
    /// A user's name and password.
    Login {
        /// The name.
        username: Box<str>,
        /// The password.
        password: SecretString,
    },
    /// A token that is sent as it is.
    Bearer(SecretString),
    /// A client certificate.
    Identity {
        /// PEM.
        certificate_chain: Box<str>,
        /// PEM.
        private_key: SecretString,
    },
}

/// A user's keys. Shows no secret.
#[derive(Debug)]
pub struct AccessKey {
    access_key: Box<str>,
    secret_key: SecretString,
    session_token: Option<SecretString>,
}

/// Where secrets come from when they are not in the configuration.
#[async_trait]
pub trait SecretSource: Send + Sync + fmt::Debug + 'static {
    /// The secret that is at hand. Never waits; what is not there yet is asked for.
    ///
    /// # Errors
    /// When there is none: not yet, not any more, or because it was denied.
    fn current(&self, endpoint: &str, purpose: Purpose) -> Result<Arc<Secret>, SecretError>;

    /// Waits until the first secret is there, or until it is clear that there is none for now. Whoever asks bounds
    /// the wait.
    ///
    /// # Errors
    /// As [`current`](Self::current).
    async fn first(&self, endpoint: &str, purpose: Purpose) -> Result<Arc<Secret>, SecretError>;

    /// Asks for another secret after the endpoint refused `refused`, and waits for the answer. True when there is
    /// another one, so that one more try makes sense. Whoever asks bounds the wait.
    async fn renew(&self, endpoint: &str, purpose: Purpose, refused: &Arc<Secret>) -> bool;
}

/// There is no secret.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{detail}")]
pub struct SecretError {
    /// Why, in a sentence without secrets.
    pub detail: Box<str>,
}

impl AccessKey {
    /// Keys of a user.
    #[must_use]
    pub fn new(access_key: impl Into<Box<str>>, secret_key: SecretString) -> Self {
        Self { access_key: access_key.into(), secret_key, session_token: None }
    }

    /// Adds the security token of temporary keys.
    #[must_use]
    pub fn with_session_token(mut self, token: SecretString) -> Self {
        self.session_token = Some(token);
        self
    }

    /// The user's name.
    #[must_use]
    pub fn access_key(&self) -> &str {
        &self.access_key
    }

    /// What is signed with.
    #[must_use]
    pub const fn secret_key(&self) -> &SecretString {
        &self.secret_key
    }

    /// The token of temporary keys.
    #[must_use]
    pub const fn session_token(&self) -> Option<&SecretString> {
        self.session_token.as_ref()
    }
}

impl Secret {
    /// What kind it is, for people.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::AccessKey(_) => "access key",
            Self::Login { .. } => "login",
            Self::Bearer(_) => "bearer token",
            Self::Identity { .. } => "client certificate",
        }
    }

    /// The parts that nobody may see.
    #[must_use]
    pub fn hidden(&self) -> Vec<&SecretString> {
        match self {
            Self::None => Vec::new(),
            Self::AccessKey(keys) => {
                std::iter::once(&keys.secret_key).chain(keys.session_token.as_ref()).collect()
            }
            Self::Login { password, .. } => vec![password],
            Self::Bearer(token) => vec![token],
            Self::Identity { private_key, .. } => vec![private_key],
        }
    }

    /// Whether both are the same, so that the endpoint would answer both alike.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let public = |secret: &Self| match secret {
            Self::None | Self::Bearer(_) => String::new(),
            Self::AccessKey(keys) => {
                format!("{} {}", keys.session_token.is_some(), keys.access_key)
            }
            Self::Login { username, .. } => username.to_string(),
            Self::Identity { certificate_chain, .. } => certificate_chain.to_string(),
        };
        let (ours, theirs) = (self.hidden(), other.hidden());
        self.kind() == other.kind()
            && public(self) == public(other)
            && ours.len() == theirs.len()
            && ours.iter().zip(theirs).all(|(a, b)| a.expose_secret() == b.expose_secret())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({})", self.kind())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str, secret: &str) -> AccessKey {
        AccessKey::new(name, SecretString::from(secret.to_owned()))
    }

    #[test]
    fn nothing_of_a_secret_is_shown() {
        let token = SecretString::from("hunter3".to_owned());
        let keys = Secret::AccessKey(Arc::new(key("alice", "hunter2").with_session_token(token)));
        assert_eq!(format!("{keys:?}"), "Secret(access key)");
        let debug = format!("{:?}", key("alice", "hunter2"));
        assert!(debug.contains("alice") && !debug.contains("hunter2"), "{debug}");
        assert_eq!(keys.hidden().len(), 2);
    }

    #[test]
    fn secrets_are_the_same_when_all_their_parts_are() {
        let keys = |name, secret| Secret::AccessKey(Arc::new(key(name, secret)));
        assert!(keys("a", "s").is_same(&keys("a", "s")));
        assert!(!keys("a", "s").is_same(&keys("b", "s")));
        assert!(!keys("a", "s").is_same(&keys("a", "t")));
        let token = || SecretString::from("s".to_owned());
        assert!(
            !keys("a", "s").is_same(&Secret::AccessKey(Arc::new(key("a", "s").with_session_token(token()))))
        );
        assert!(!Secret::Bearer(token()).is_same(&Secret::None));
        assert!(Secret::None.is_same(&Secret::None));
    }
}
