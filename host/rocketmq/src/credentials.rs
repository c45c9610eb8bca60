//! Who we are to a cluster: keys, and where they come from.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use secrecy::SecretString;

/// Where keys come from. Asked before every call, so the answer is one that is at hand; a source of keys that must be
/// waited for does so in [`refresh`](Self::refresh) and by itself before keys run out.
#[async_trait]
pub trait Credentials: Send + Sync + fmt::Debug + 'static {
    /// The keys for calls to `endpoint`; `None` means that calls are not signed.
    ///
    /// # Errors
    /// When keys are needed and there are none: the call is not made.
    fn keys(&self, endpoint: &str) -> Result<Option<Arc<Keys>>, CredentialsError>;

    /// Fetches new keys after `endpoint` refused the present ones. True when there are new ones, so that one more
    /// try makes sense.
    async fn refresh(&self, endpoint: &str) -> bool;
}

/// A RocketMQ user's keys. Shows no secret.
#[derive(Debug)]
pub struct Keys {
    access_key: Box<str>,
    secret_key: SecretString,
    session_token: Option<SecretString>,
}

/// No keys could be had.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("no credentials for {endpoint}: {detail}")]
pub struct CredentialsError {
    /// For whom.
    pub endpoint: Box<str>,
    /// Why, in a few words, without secrets.
    pub detail: Box<str>,
}

/// Calls are not signed.
#[derive(Clone, Copy, Debug)]
pub struct Anonymous;

/// The same keys for every endpoint, for ever.
#[derive(Clone, Debug)]
pub struct Fixed(Arc<Keys>);

impl Keys {
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

    pub(crate) const fn secret_key(&self) -> &SecretString {
        &self.secret_key
    }

    pub(crate) const fn session_token(&self) -> Option<&SecretString> {
        self.session_token.as_ref()
    }
}

impl Fixed {
    /// These keys.
    #[must_use]
    pub fn new(keys: Keys) -> Self {
        Self(Arc::new(keys))
    }
}

#[async_trait]
impl Credentials for Anonymous {
    fn keys(&self, _endpoint: &str) -> Result<Option<Arc<Keys>>, CredentialsError> {
        Ok(None)
    }

    async fn refresh(&self, _endpoint: &str) -> bool {
        false
    }
}

#[async_trait]
impl Credentials for Fixed {
    fn keys(&self, _endpoint: &str) -> Result<Option<Arc<Keys>>, CredentialsError> {
        Ok(Some(Arc::clone(&self.0)))
    }

    async fn refresh(&self, _endpoint: &str) -> bool {
        false
    }
}
