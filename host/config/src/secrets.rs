//! Looking up what stands behind `env:NAME` and `file:PATH`.
//!
//! A step of its own after [`crate::parse`], so that `tidegate check` can look at a configuration on a machine that
//! has none of the secrets. Errors name the key and the variable or file, never what was found.

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use serde::{Serialize, Serializer};

use crate::config::Config;
use crate::sections::SECRET_BYTES_MAX;

const VARIABLE: &str = "env:";
const FILE: &str = "file:";

/// Where secrets are looked up.
pub trait Environment {
    /// An environment variable.
    fn variable(&self, name: &str) -> Option<OsString>;

    /// The first `bytes_max` bytes of a file.
    ///
    /// # Errors
    /// When it cannot be read.
    fn file(&self, path: &Path, bytes_max: u64) -> io::Result<Vec<u8>>;
}

/// The process's own environment and file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessEnvironment;

/// Every secret that could not be looked up. Never empty.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub struct SecretErrors(Vec<SecretError>);

/// Why one secret could not be looked up. Says where it was looked for, never what was found.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The environment variable is not set.
    #[error("`{key}` names the environment variable `{name}`, which is not set")]
    Unset {
        /// The full path of the key.
        key: String,
        /// The variable.
        name: String,
    },
    /// The reference has no name or path after the colon.
    #[error("`{key}` begins with `{prefix}` and goes no further; write `env:NAME` or `file:PATH`")]
    Unnamed {
        /// The full path of the key.
        key: String,
        /// `env:` or `file:`.
        prefix: &'static str,
    },
    /// The file cannot be read.
    #[error("`{key}` names the file `{}`, which cannot be read: {source}", path.display())]
    Unreadable {
        /// The full path of the key.
        key: String,
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The file is too large to be a secret.
    #[error("`{key}` names the file `{}`, which is larger than {SECRET_BYTES_MAX} bytes", path.display())]
    TooLarge {
        /// The full path of the key.
        key: String,
        /// The file.
        path: PathBuf,
    },
    /// What was found is not text.
    #[error("`{key}` comes from {origin}, which is not UTF-8 text")]
    NotText {
        /// The full path of the key.
        key: String,
        /// The variable or file.
        origin: String,
    },
    /// What was found is empty.
    #[error("`{key}` comes from {origin}, which is empty")]
    Empty {
        /// The full path of the key.
        key: String,
        /// The variable or file.
        origin: String,
    },
}

impl Config {
    /// Puts every secret in the place of its reference. Does nothing to secrets that are written out.
    ///
    /// # Errors
    /// With every secret that could not be looked up; the others are in place then.
    pub fn resolve_secrets(&mut self, environment: &impl Environment) -> Result<(), SecretErrors> {
        let Self { sources, sinks, settlers, peers, base_dir, .. } = self;
        let sources = sources.iter_mut().map(|(name, source)| ("sources", name, &mut source.values));
        let sinks = sinks.iter_mut().map(|(name, sink)| ("sinks", name, &mut sink.values));
        let settlers = settlers.iter_mut().map(|(name, settler)| ("settlers", name, &mut settler.values));
        let peers = peers.iter_mut().map(|(name, peer)| ("peers", name, &mut peer.values));
        let mut errors = Vec::new();
        for (section, name, values) in sources.chain(sinks).chain(settlers).chain(peers) {
            let keys = values.secret_keys().to_vec();
            for key in keys {
                let path = format!("{section}.{name}.{key}");
                if let Some(text) = values.text(key) {
                    match resolve(text, path, base_dir, environment) {
                        Ok(Some(secret)) => values.set_text(key, secret),
                        Ok(None) => {}
                        Err(error) => errors.push(error),
                    }
                } else if let Some(pairs) = values.pairs(key) {
                    for (part, text) in pairs.clone() {
                        match resolve(&text, format!("{path}.{part}"), base_dir, environment) {
                            Ok(Some(secret)) => values.set_part(key, &part, secret),
                            Ok(None) => {}
                            Err(error) => errors.push(error),
                        }
                    }
                }
            }
        }
        if errors.is_empty() { Ok(()) } else { Err(SecretErrors(errors)) }
    }
}

/// The secret behind a reference; `None` when the value is no reference.
fn resolve(
    text: &str,
    path: String,
    base_dir: &Path,
    environment: &impl Environment,
) -> Result<Option<String>, SecretError> {
    let (bytes, origin) = if let Some(name) = text.strip_prefix(VARIABLE) {
        if name.is_empty() {
            return Err(SecretError::Unnamed { key: path, prefix: VARIABLE });
        }
        // The standard library panics on names that no variable can have.
        let found = if name.contains(['=', '\0']) { None } else { environment.variable(name) };
        let Some(found) = found else { return Err(SecretError::Unset { key: path, name: name.to_owned() }) };
        (found.into_encoded_bytes(), format!("the environment variable `{name}`"))
    } else if let Some(file) = text.strip_prefix(FILE) {
        if file.is_empty() {
            return Err(SecretError::Unnamed { key: path, prefix: FILE });
        }
        let file = base_dir.join(file);
        let bytes = match environment.file(&file, SECRET_BYTES_MAX + 1) {
            Ok(bytes) if bytes.len() as u64 > SECRET_BYTES_MAX => {
                return Err(SecretError::TooLarge { key: path, path: file });
            }
            Ok(bytes) => bytes,
            Err(source) => return Err(SecretError::Unreadable { key: path, path: file, source }),
        };
        (bytes, format!("the file `{}`", file.display()))
    } else {
        return Ok(None);
    };
    let Ok(secret) = String::from_utf8(bytes) else {
        return Err(SecretError::NotText { key: path, origin });
    };
    // Editors and `echo` end a file with a line break that nobody means.
    let secret =
        secret.strip_suffix('\n').map_or(&*secret, |secret| secret.strip_suffix('\r').unwrap_or(secret));
    if secret.is_empty() {
        return Err(SecretError::Empty { key: path, origin });
    }
    Ok(Some(secret.to_owned()))
}

impl Environment for ProcessEnvironment {
    fn variable(&self, name: &str) -> Option<OsString> {
        std::env::var_os(name)
    }

    fn file(&self, path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(path)?.take(bytes_max).read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

impl SecretErrors {
    /// All of them.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &SecretError> {
        self.0.iter()
    }
}

/// One line each.
impl fmt::Display for SecretErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, error) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            error.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for SecretErrors {}

impl SecretError {
    /// The full path of the key.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            Self::Unset { key, .. }
            | Self::Unnamed { key, .. }
            | Self::Unreadable { key, .. }
            | Self::TooLarge { key, .. }
            | Self::NotText { key, .. }
            | Self::Empty { key, .. } => key,
        }
    }
}

impl Serialize for SecretError {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct as _;
        let mut fields = serializer.serialize_struct("SecretError", 2)?;
        fields.serialize_field("key", self.key())?;
        fields.serialize_field("message", &self.to_string())?;
        fields.end()
    }
}

#[cfg(test)]
mod tests;
