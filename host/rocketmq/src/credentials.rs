//! Who we are to a cluster: keys, and where they come from.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use tidegate_connector::secret::{Secret, SecretError, SecretSource};

/// A RocketMQ user's keys. Shows no secret.
pub use tidegate_connector::secret::AccessKey as Keys;
pub use tidegate_connector::secret::Purpose;

/// Where keys come from. Asked before every call, so the answer is one that is at hand.
#[async_trait]
pub trait Credentials: Send + Sync + fmt::Debug + 'static {
    /// The keys for calls to `endpoint`; `None` means that calls are not signed.
    ///
    /// # Errors
    /// When keys are needed and there are none: the call is not made.
    fn keys(&self, endpoint: &str, purpose: Purpose) -> Result<Option<Arc<Keys>>, CredentialsError>;

    /// As [`keys`](Self::keys), but waits for the first ones when they are on their way. The caller bounds the wait.
    ///
    /// # Errors
    /// As [`keys`](Self::keys).
    async fn first_keys(
        &self,
        endpoint: &str,
        purpose: Purpose,
    ) -> Result<Option<Arc<Keys>>, CredentialsError> {
        self.keys(endpoint, purpose)
    }

    /// What tells these credentials from others; `None` when only their place in memory does.
    fn identity(&self) -> Option<Identity<'_>> {
        None
    }

    /// Whether other keys may ever come.
    fn may_change(&self) -> bool {
        false
    }

    /// Fetches other keys after `endpoint` refused these. True when there are others, so that one more try makes
    /// sense. The caller bounds the wait.
    async fn refresh(&self, _endpoint: &str, _purpose: Purpose, _refused: Option<&Arc<Keys>>) -> bool {
        false
    }
}

/// What tells credentials from others.
#[derive(Debug)]
pub enum Identity<'a> {
    /// Calls are not signed.
    Nobody,
    /// The same keys for ever.
    Keys(&'a Arc<Keys>),
    /// Whatever this source gives.
    Source(&'a Arc<dyn SecretSource>),
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

/// Keys that somebody else finds out, and replaces before they end.
#[derive(Clone, Debug)]
pub struct Resolving(Arc<dyn SecretSource>);

/// Whether both sign alike, for ever, so that one client can stand for the other.
pub(crate) fn are_same(a: &Arc<dyn Credentials>, b: &Arc<dyn Credentials>) -> bool {
    let same_place = std::ptr::addr_eq(Arc::as_ptr(a), Arc::as_ptr(b));
    same_place
        || match (a.identity(), b.identity()) {
            (Some(Identity::Nobody), Some(Identity::Nobody)) => true,
            (Some(Identity::Keys(a)), Some(Identity::Keys(b))) => {
                Secret::AccessKey(Arc::clone(a)).is_same(&Secret::AccessKey(Arc::clone(b)))
            }
            (Some(Identity::Source(a)), Some(Identity::Source(b))) => {
                std::ptr::addr_eq(Arc::as_ptr(a), Arc::as_ptr(b))
            }
            _ => false,
        }
}

impl Fixed {
    /// These keys.
    #[must_use]
    pub fn new(keys: Keys) -> Self {
        Self(Arc::new(keys))
    }
}

impl Resolving {
    /// Keys from there.
    #[must_use]
    pub fn new(source: Arc<dyn SecretSource>) -> Self {
        Self(source)
    }
}

#[async_trait]
impl Credentials for Anonymous {
    fn keys(&self, _: &str, _: Purpose) -> Result<Option<Arc<Keys>>, CredentialsError> {
        Ok(None)
    }

    fn identity(&self) -> Option<Identity<'_>> {
        Some(Identity::Nobody)
    }
}

#[async_trait]
impl Credentials for Fixed {
    fn keys(&self, _: &str, _: Purpose) -> Result<Option<Arc<Keys>>, CredentialsError> {
        Ok(Some(Arc::clone(&self.0)))
    }

    fn identity(&self) -> Option<Identity<'_>> {
        Some(Identity::Keys(&self.0))
    }
}

#[async_trait]
impl Credentials for Resolving {
    fn keys(&self, endpoint: &str, purpose: Purpose) -> Result<Option<Arc<Keys>>, CredentialsError> {
        keys_of(endpoint, &self.0.current(endpoint, purpose))
    }

    async fn first_keys(
        &self,
        endpoint: &str,
        purpose: Purpose,
    ) -> Result<Option<Arc<Keys>>, CredentialsError> {
        keys_of(endpoint, &self.0.first(endpoint, purpose).await)
    }

    fn identity(&self) -> Option<Identity<'_>> {
        Some(Identity::Source(&self.0))
    }

    fn may_change(&self) -> bool {
        true
    }

    async fn refresh(&self, endpoint: &str, purpose: Purpose, refused: Option<&Arc<Keys>>) -> bool {
        // Without any the calls cannot go on; with others than the refused they can at once.
        let Ok(present) = self.0.current(endpoint, purpose) else {
            return self.0.first(endpoint, purpose).await.is_ok();
        };
        let is_refused = match (&*present, refused) {
            (Secret::AccessKey(keys), Some(refused)) => Arc::ptr_eq(keys, refused),
            (Secret::AccessKey(_), None) | (_, Some(_)) => false,
            (_, None) => true,
        };
        !is_refused || self.0.renew(endpoint, purpose, &present).await
    }
}

fn keys_of(
    endpoint: &str,
    secret: &Result<Arc<Secret>, SecretError>,
) -> Result<Option<Arc<Keys>>, CredentialsError> {
    let error = |detail: String| CredentialsError { endpoint: endpoint.into(), detail: detail.into() };
    match secret.as_deref() {
        Ok(Secret::None) => Ok(None),
        Ok(Secret::AccessKey(keys)) => Ok(Some(Arc::clone(keys))),
        Ok(other) => {
            let kind = other.kind();
            Err(error(format!("the resolver gave a {kind}, and RocketMQ takes an access key or none")))
        }
        Err(reason) => Err(error(reason.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use secrecy::SecretString;

    use super::*;

    #[test]
    fn credentials_are_the_same_when_they_sign_alike() {
        let (nobody, other_nobody): (Arc<dyn Credentials>, Arc<dyn Credentials>) =
            (Arc::new(Anonymous), Arc::new(Anonymous));
        assert!(are_same(&nobody, &other_nobody));
        assert!(are_same(&fixed("alice", "a"), &fixed("alice", "a")));
        for other in [fixed("alice", "b"), fixed("bob", "a"), nobody] {
            assert!(!are_same(&fixed("alice", "a"), &other));
        }
        let (source, other_source) = (source(), source());
        assert!(are_same(&resolving(&source), &resolving(&source)));
        assert!(!are_same(&resolving(&source), &resolving(&other_source)));
    }

    /// Of which nothing is known but its place in memory.
    #[derive(Debug)]
    struct Own;

    impl Credentials for Own {
        fn keys(&self, _: &str, _: Purpose) -> Result<Option<Arc<Keys>>, CredentialsError> {
            Ok(None)
        }
    }

    #[test]
    fn unknown_credentials_are_only_the_same_as_themselves() {
        let (one, anonymous): (Arc<dyn Credentials>, Arc<dyn Credentials>) =
            (Arc::new(Own), Arc::new(Anonymous));
        assert!(are_same(&one, &Arc::clone(&one)));
        assert!(!are_same(&one, &anonymous));
        assert!(!are_same(&one, &(Arc::new(Own) as Arc<dyn Credentials>)));
    }

    #[derive(Debug)]
    struct Static(Arc<Secret>);

    #[async_trait]
    impl SecretSource for Static {
        fn current(&self, _: &str, _: Purpose) -> Result<Arc<Secret>, SecretError> {
            Ok(Arc::clone(&self.0))
        }

        async fn first(&self, _: &str, _: Purpose) -> Result<Arc<Secret>, SecretError> {
            Ok(Arc::clone(&self.0))
        }

        async fn renew(&self, _: &str, _: Purpose, _: &Arc<Secret>) -> bool {
            false
        }
    }

    fn source() -> Arc<dyn SecretSource> {
        Arc::new(Static(Arc::new(Secret::None)))
    }

    fn resolving(source: &Arc<dyn SecretSource>) -> Arc<dyn Credentials> {
        Arc::new(Resolving::new(Arc::clone(source)))
    }

    fn fixed(access_key: &str, secret_key: &str) -> Arc<dyn Credentials> {
        Arc::new(Fixed::new(Keys::new(access_key, SecretString::from(secret_key.to_owned()))))
    }
}
