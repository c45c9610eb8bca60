//! Where secrets come from when nobody resolves them.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use secrecy::{ExposeSecret as _, SecretString};
use tidegate_connector::files::{self, ReadError};
use tidegate_connector::secret::{Purpose, Secret, SecretError, SecretSource};

/// The largest file with a token, in bytes. Tokens of many groups reach some 10 KiB.
const TOKEN_BYTES_MAX: u64 = 64 << 10;

/// The same secret for every broker, for ever.
#[derive(Clone, Debug)]
pub struct FixedSecret(Arc<Secret>);

impl FixedSecret {
    /// This secret.
    #[must_use]
    pub fn new(secret: Secret) -> Self {
        Self(Arc::new(secret))
    }
}

#[async_trait]
impl SecretSource for FixedSecret {
    fn current(&self, _endpoint: &str, _purpose: Purpose) -> Result<Arc<Secret>, SecretError> {
        Ok(Arc::clone(&self.0))
    }

    async fn first(&self, endpoint: &str, purpose: Purpose) -> Result<Arc<Secret>, SecretError> {
        self.current(endpoint, purpose)
    }

    async fn renew(&self, _endpoint: &str, _purpose: Purpose, _refused: &Arc<Secret>) -> bool {
        false
    }
}

/// A token in a file that somebody keeps fresh, read whenever a token is needed. White space around it is not part of it.
#[derive(Clone, Debug)]
pub struct TokenFile(PathBuf);

impl TokenFile {
    /// The file at `path`.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }
}

#[async_trait]
impl SecretSource for TokenFile {
    fn current(&self, _endpoint: &str, _purpose: Purpose) -> Result<Arc<Secret>, SecretError> {
        let wrong = |problem: String| SecretError {
            detail: format!("the token's file `{}` {problem}", self.0.display()).into(),
        };
        let content = files::read(&self.0, TOKEN_BYTES_MAX).map_err(|error| {
            wrong(match error {
                ReadError::Io(error) => format!("cannot be read: {error}"),
                ReadError::NotAFile { .. } => "is not a regular file".to_owned(),
                ReadError::TooLarge { .. } => format!("is larger than {TOKEN_BYTES_MAX} bytes"),
            })
        })?;
        let text = String::from_utf8(content).map_err(|_| wrong("holds no text".to_owned()))?;
        match text.trim() {
            "" => Err(wrong("is empty".to_owned())),
            token => Ok(Arc::new(Secret::Bearer(SecretString::from(token.to_owned())))),
        }
    }

    async fn first(&self, endpoint: &str, purpose: Purpose) -> Result<Arc<Secret>, SecretError> {
        self.current(endpoint, purpose)
    }

    /// Whether the file has another token by now.
    async fn renew(&self, endpoint: &str, purpose: Purpose, refused: &Arc<Secret>) -> bool {
        let Secret::Bearer(refused) = &**refused else { return false };
        match self.current(endpoint, purpose).as_deref() {
            Ok(Secret::Bearer(token)) => token.expose_secret() != refused.expose_secret(),
            _ => false,
        }
    }
}
