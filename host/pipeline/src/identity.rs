//! Who this host is: its id and the key of its receipts, kept in the state directory.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidegate_connector::files::{self, ReadError};
use tidegate_model::{ReceiptIssuer, ReceiptKey};

/// A host's id and receipt key. Hosts that shall accept each other's receipts share the key file.
#[derive(Clone, Debug)]
pub struct Identity {
    host_id: Arc<str>,
    receipt_key: ReceiptKey,
    /// That the state directory is this host's, as long as it lives.
    _claim: Option<Arc<Claim>>,
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
    /// Where the state directory is to be, there is something else.
    #[error("`{}` is no directory, and `state-dir` is to be one", path.display())]
    NoDirectory {
        /// What is there.
        path: PathBuf,
    },
    /// Another host runs with the state directory.
    #[error(
        "the state directory `{}` is another host's that runs now, which holds `{CLAIM_FILE}` there; give each host a \
         `state-dir` of its own, and let hosts share a key by `receipt-key-file`",
        path.display()
    )]
    Taken {
        /// The directory.
        path: PathBuf,
    },
    /// The file of the host's id holds something else.
    #[error("`{}` must hold 1 to 64 ASCII characters; delete it to have a new one made", path.display())]
    HostId {
        /// The file.
        path: PathBuf,
    },
    /// A key file that was named cannot be used. It is not made: a fleet shares it.
    #[error("{0}; make it once for all hosts of a fleet: `openssl rand -hex 32 > {path}`", path = .0.path.display())]
    NamedKey(KeyError),
    /// The state directory's own key cannot be used.
    #[error(
        "{0}; delete it to have a new one made, with which receipts that were given out before are no longer accepted"
    )]
    OwnKey(KeyError),
    /// The operating system gave no random bytes.
    #[error("the operating system gave no random bytes: {0}")]
    Random(getrandom::Error),
}

/// A key file that cannot be used. Shows nothing of what it holds.
#[derive(Debug, thiserror::Error)]
#[error("the key file `{}` {problem}", path.display())]
pub struct KeyError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it, as the rest of a sentence.
    pub problem: Box<str>,
}

impl IdentityError {
    /// Whether the configuration is at fault, rather than the surroundings.
    #[must_use]
    pub const fn is_config(&self) -> bool {
        matches!(self, Self::NoDirectory { .. } | Self::HostId { .. } | Self::NamedKey(_) | Self::OwnKey(_))
    }
}

const KEY_FILE: &str = "receipt.key";
const KEY_HEX_CHARS: usize = 64;
/// The largest key file that is read, in bytes: room for the digits and whatever blanks are around them.
const KEY_FILE_BYTES_MAX: u64 = 4096;
const HOST_ID_FILE: &str = "host-id";
const HOST_ID_CHARS_MAX: usize = 64;
const CLAIM_FILE: &str = "host.lock";

/// A lock on a state directory. Two hosts there would take each other's compiled code and last good policies away.
#[derive(Debug)]
struct Claim(fs::File);

/// Said, not left to the closing of the file: a process that is just being started holds a copy of it for a moment.
impl Drop for Claim {
    fn drop(&mut self) {
        // Whatever comes of it, the file is closed next.
        let _ = self.0.unlock();
    }
}

impl Claim {
    fn take(state_dir: &Path) -> Result<Self, IdentityError> {
        let path = state_dir.join(CLAIM_FILE);
        let failed = |source| IdentityError::File { action: "lock", path: path.clone(), source };
        let file =
            fs::OpenOptions::new().create(true).truncate(false).write(true).open(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => Ok(Self(file)),
            Err(fs::TryLockError::WouldBlock) => Err(IdentityError::Taken { path: state_dir.to_owned() }),
            Err(fs::TryLockError::Error(error)) => Err(failed(error)),
        }
    }
}

impl Identity {
    /// Reads `host-id` and `receipt.key` in `state_dir`, making what is missing, and keeps other hosts out of it. A key
    /// file that was named has to be there: a fleet shares it.
    ///
    /// # Errors
    /// When the directory cannot be used, another host uses it, or a file holds something else.
    pub fn load(state_dir: &Path, key_file: Option<&Path>) -> Result<Self, IdentityError> {
        if let Some(error) = Self::look(state_dir, key_file).into_iter().next() {
            return Err(error);
        }
        fs::create_dir_all(state_dir).map_err(|source| IdentityError::File {
            action: "create",
            path: state_dir.to_owned(),
            source,
        })?;
        let claim = Claim::take(state_dir)?;
        let id_path = state_dir.join(HOST_ID_FILE);
        let host_id = read_or_make(&id_path, || Ok(format!("host-{}", random_hex::<6>()?)))?;
        let receipt_key = match key_file {
            Some(path) => Self::read_key(path).map_err(IdentityError::NamedKey)?,
            None => {
                let path = Self::key_file(state_dir);
                read_or_make(&path, random_hex::<{ KEY_HEX_CHARS / 2 }>)?;
                Self::read_key(&path).map_err(IdentityError::OwnKey)?
            }
        };
        Ok(Self { host_id: host_id.into(), receipt_key, _claim: Some(Arc::new(claim)) })
    }

    /// Everything that [`load`](Self::load) would find wrong with what is there now. Makes nothing and locks nothing.
    #[must_use]
    pub fn look(state_dir: &Path, key_file: Option<&Path>) -> Vec<IdentityError> {
        let mut errors = Vec::new();
        // What is not there yet is made below the nearest that is.
        let nearest = state_dir.ancestors().find(|path| !path.as_os_str().is_empty() && path.exists());
        if let Some(path) = nearest.filter(|path| !path.is_dir()) {
            errors.push(IdentityError::NoDirectory { path: path.to_owned() });
        }
        let path = state_dir.join(HOST_ID_FILE);
        match fs::read_to_string(&path) {
            Ok(id) if is_host_id(id.trim()) => {}
            Ok(_) => errors.push(IdentityError::HostId { path }),
            Err(error) if is_missing(&error) => {}
            Err(source) => errors.push(IdentityError::File { action: "read", path, source }),
        }
        match key_file {
            Some(path) => errors.extend(Self::read_key(path).err().map(IdentityError::NamedKey)),
            None => {
                let path = Self::key_file(state_dir);
                if path.exists() {
                    errors.extend(Self::read_key(&path).err().map(IdentityError::OwnKey));
                }
            }
        }
        errors
    }

    /// The id of the host that a state directory is of, if it has one yet. Makes nothing and locks nothing.
    #[must_use]
    pub fn read_host_id(state_dir: &Path) -> Option<String> {
        let id = fs::read_to_string(state_dir.join(HOST_ID_FILE)).ok()?;
        Some(id.trim().to_owned()).filter(|id| is_host_id(id))
    }

    /// The key file of a state directory.
    #[must_use]
    pub fn key_file(state_dir: &Path) -> PathBuf {
        state_dir.join(KEY_FILE)
    }

    /// Reads a key file and makes nothing: 64 hexadecimal digits, with or without blanks and line ends around them.
    ///
    /// # Errors
    /// When it is not there, or holds something else.
    pub fn read_key(path: &Path) -> Result<ReceiptKey, KeyError> {
        let wrong = |problem: String| KeyError { path: path.to_owned(), problem: problem.into() };
        let bytes = files::read(path, KEY_FILE_BYTES_MAX).map_err(|error| {
            wrong(match error {
                ReadError::Io(error) => format!("cannot be read: {error}"),
                ReadError::NotAFile { .. } => "is no regular file".to_owned(),
                ReadError::TooLarge { bytes } => {
                    format!("has {bytes} bytes, and must hold {KEY_HEX_CHARS} hexadecimal digits")
                }
            })
        })?;
        let text = str::from_utf8(&bytes).unwrap_or("?").trim();
        let key = parse_hex(text).ok_or_else(|| {
            wrong(if text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                format!("has {} hexadecimal digits, and must hold {KEY_HEX_CHARS}", text.len())
            } else {
                format!("must hold {KEY_HEX_CHARS} hexadecimal digits and nothing else")
            })
        })?;
        Ok(ReceiptKey::new(key))
    }

    /// An identity that lasts as long as the process: for the demo, which leaves no state.
    ///
    /// # Errors
    /// When the operating system gives no random bytes.
    pub fn ephemeral() -> Result<Self, IdentityError> {
        let mut key = [0; 32];
        getrandom::fill(&mut key).map_err(IdentityError::Random)?;
        let host_id = format!("host-{}", random_hex::<6>()?);
        Ok(Self { host_id: host_id.into(), receipt_key: ReceiptKey::new(key), _claim: None })
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

fn is_host_id(text: &str) -> bool {
    !text.is_empty() && text.len() <= HOST_ID_CHARS_MAX && text.is_ascii()
}

/// Whether there is no such file; where its directory is to be there may be a file, which is told by itself.
fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn parse_hex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    // A sign would pass for a digit below.
    if text.len() != KEY_HEX_CHARS || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
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
        let key = || fs::read_to_string(Identity::key_file(dir.path())).expect("file");
        let load = || Identity::load(dir.path(), None).expect("identity").host_id().clone();
        let first = (load(), key());
        assert_eq!(first, (load(), key()));
        assert!(parse_hex(&first.1).is_some());
    }

    #[test]
    fn one_host_at_a_time_has_a_state_directory() {
        let dir = tempfile::tempdir().expect("directory");
        let first = Identity::load(dir.path(), None).expect("made");
        let copy = first.clone();
        drop(first);
        let told = Identity::load(dir.path(), None).expect_err("taken");
        assert!(matches!(&told, IdentityError::Taken { .. }) && !told.is_config(), "{told}");
        assert!(told.to_string().contains("state-dir"), "{told}");
        assert!(Identity::look(dir.path(), None).is_empty(), "a look takes nothing");
        drop(copy);
        Identity::load(dir.path(), None).expect("free again");
    }

    #[test]
    fn a_look_finds_everything_and_makes_nothing() {
        let dir = tempfile::tempdir().expect("directory");
        let (state, key) = (dir.path().join("deep/state"), dir.path().join("fleet.key"));
        assert!(Identity::look(&state, None).is_empty());
        let told = Identity::look(&state, Some(&key)).remove(0).to_string();
        assert!(told.contains("cannot be read") && told.contains("openssl rand -hex 32 >"), "{told}");
        for (text, says) in [("abc", "has 3 hexadecimal digits"), (&*"+f".repeat(32), "must hold 64")] {
            fs::write(&key, text).expect("write");
            let told = Identity::look(&state, Some(&key)).remove(0).to_string();
            assert!(told.contains(says) && !told.contains("delete"), "{told}");
        }
        fs::write(&key, format!("{}\n", "aB".repeat(32))).expect("write");
        assert!(Identity::look(&state, Some(&key)).is_empty());
        assert!(!dir.path().join("deep").exists());
        fs::write(dir.path().join("deep"), "a file").expect("write");
        assert!(matches!(&Identity::look(&state, None)[..], [IdentityError::NoDirectory { .. }]));
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
