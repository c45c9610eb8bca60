//! Who this host is: its id and the key of its receipts, kept in the state directory.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidegate_model::{ReceiptIssuer, ReceiptKey};

/// A host's id and receipt key. Hosts that shall accept each other's receipts share the key file.
#[derive(Clone, Debug)]
pub struct Identity {
    host_id: Arc<str>,
    receipt_key: ReceiptKey,
}

/// Why the identity could not be read or made.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The state directory or a file in it.
    #[error("cannot {action} `{}`", path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// A file holds something else.
    #[error("`{}` must hold {expected}; delete it to have a new one made", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What it must hold.
        expected: &'static str,
    },
    /// The operating system gave no random bytes.
    #[error("the operating system gave no random bytes: {0}")]
    Random(getrandom::Error),
}

const KEY_FILE: &str = "receipt.key";
const KEY_HEX_CHARS: usize = 64;
const HOST_ID_CHARS_MAX: usize = 64;

impl Identity {
    /// Reads `host-id` and `receipt.key` in `state_dir`, making what is missing. A key file that was named has to be
    /// there: a fleet shares it.
    ///
    /// # Errors
    /// When the directory cannot be used or a file holds something else.
    pub fn load(state_dir: &Path, key_file: Option<&Path>) -> Result<Self, IdentityError> {
        let file = |action, path: &Path| {
            let path = path.to_owned();
            move |source| IdentityError::File { action, path, source }
        };
        fs::create_dir_all(state_dir).map_err(file("create", state_dir))?;
        let id_path = state_dir.join("host-id");
        let host_id = read_or_make(&id_path, || Ok(format!("host-{}", random_hex::<6>()?)))?;
        if host_id.is_empty() || host_id.len() > HOST_ID_CHARS_MAX || !host_id.is_ascii() {
            return Err(IdentityError::Content { path: id_path, expected: "1 to 64 ASCII characters" });
        }
        let receipt_key = match key_file {
            Some(path) => Self::read_key(path)?,
            None => {
                let path = state_dir.join(KEY_FILE);
                read_or_make(&path, random_hex::<{ KEY_HEX_CHARS / 2 }>)?;
                Self::read_key(&path)?
            }
        };
        Ok(Self { host_id: host_id.into(), receipt_key })
    }

    /// The key file of a state directory.
    #[must_use]
    pub fn key_file(state_dir: &Path) -> PathBuf {
        state_dir.join(KEY_FILE)
    }

    /// Reads a key file and makes nothing.
    ///
    /// # Errors
    /// When it is not there, or holds something else.
    pub fn read_key(path: &Path) -> Result<ReceiptKey, IdentityError> {
        let text = fs::read_to_string(path).map_err(|source| IdentityError::File {
            action: "read",
            path: path.to_owned(),
            source,
        })?;
        let key = parse_hex(text.trim());
        let content = || IdentityError::Content { path: path.to_owned(), expected: "64 hexadecimal digits" };
        key.map(ReceiptKey::new).ok_or_else(content)
    }

    /// An identity that lasts as long as the process: for the demo, which leaves no state.
    ///
    /// # Errors
    /// When the operating system gives no random bytes.
    pub fn ephemeral() -> Result<Self, IdentityError> {
        let mut key = [0; 32];
        getrandom::fill(&mut key).map_err(IdentityError::Random)?;
        let host_id = format!("host-{}", random_hex::<6>()?);
        Ok(Self { host_id: host_id.into(), receipt_key: ReceiptKey::new(key) })
    }

    /// The host's id, as receipts carry it.
    #[must_use]
    pub const fn host_id(&self) -> &Arc<str> {
        &self.host_id
    }

    /// Who signs the receipts of a flow.
    #[must_use]
    pub fn issuer(&self, flow: &Arc<str>) -> ReceiptIssuer {
        ReceiptIssuer {
            key: self.receipt_key.clone(),
            owner: Arc::clone(&self.host_id),
            flow: Arc::clone(flow),
        }
    }

    /// The key that signs receipts.
    #[must_use]
    pub const fn receipt_key(&self) -> &ReceiptKey {
        &self.receipt_key
    }
}

fn read_or_make(
    path: &Path,
    make: impl FnOnce() -> Result<String, IdentityError>,
) -> Result<String, IdentityError> {
    let failed = |action| move |source| IdentityError::File { action, path: path.to_owned(), source };
    match fs::read_to_string(path) {
        Ok(text) => return Ok(text.trim().to_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed("read")(error)),
    }
    let text = make()?;
    // Written aside and renamed, so that a second host that starts now reads a whole file or none.
    let aside = path.with_extension(format!("{}.new", std::process::id()));
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&aside).map_err(failed("create"))?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed("write"))?;
    // The first one to link wins; everybody then reads what won.
    let linked = fs::hard_link(&aside, path);
    fs::remove_file(&aside).map_err(failed("remove"))?;
    match linked {
        Ok(()) => Ok(text),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            fs::read_to_string(path).map(|text| text.trim().to_owned()).map_err(failed("read"))
        }
        Err(error) => Err(failed("create")(error)),
    }
}

fn random_hex<const BYTES: usize>() -> Result<String, IdentityError> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).map_err(IdentityError::Random)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn parse_hex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != KEY_HEX_CHARS || !text.is_ascii() {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(at * 2..at * 2 + 2)?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_made_once_and_kept() {
        let dir = tempfile::tempdir().expect("directory");
        let first = Identity::load(dir.path(), None).expect("made");
        let second = Identity::load(dir.path(), None).expect("read");
        assert_eq!(first.host_id(), second.host_id());
        let key = |identity: &Identity| parse_hex_of(dir.path(), identity);
        assert_eq!(key(&first), key(&second));
    }

    fn parse_hex_of(dir: &Path, _: &Identity) -> Option<[u8; 32]> {
        parse_hex(&fs::read_to_string(dir.join("receipt.key")).expect("file"))
    }

    #[test]
    fn a_foreign_key_file_is_named() {
        let dir = tempfile::tempdir().expect("directory");
        fs::write(dir.path().join("receipt.key"), "not a key").expect("write");
        let error = Identity::load(dir.path(), None).expect_err("refused").to_string();
        assert!(error.contains("receipt.key") && error.contains("64 hexadecimal digits"), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn the_key_file_is_private() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().expect("directory");
        Identity::load(dir.path(), None).expect("made");
        let mode = fs::metadata(dir.path().join("receipt.key")).expect("file").permissions().mode();
        assert_eq!(mode & 0o077, 0);
    }
}
