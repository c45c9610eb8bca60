//! The files of one policy on disk: what they look like without reading them, and reading them.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use sha2::{Digest as _, Sha256};
use tidegate_connector::files::{self, ReadError};

use crate::error::LoadError;
use crate::spec::PolicySpec;

/// What the system says about the files, symbolic links followed. Any write, rename or swapped link changes it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Fingerprint {
    component: Option<Stamp>,
    rules: Option<Stamp>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
struct Stamp {
    bytes: u64,
    modified: Option<SystemTime>,
    /// Device, inode and the time of the last change of either: a renamed file has another inode, and a file that
    /// was written with its old times restored has another change time.
    #[cfg(unix)]
    identity: (u64, u64, i64, i64),
}

impl Fingerprint {
    pub(crate) fn of(spec: &PolicySpec) -> Self {
        Self { component: stamp(&spec.component), rules: spec.rules.as_deref().and_then(stamp) }
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let metadata = fs::metadata(path).ok()?;
    Some(Stamp {
        bytes: metadata.len(),
        modified: metadata.modified().ok(),
        #[cfg(unix)]
        identity: {
            use std::os::unix::fs::MetadataExt as _;
            (metadata.dev(), metadata.ino(), metadata.ctime(), metadata.ctime_nsec())
        },
    })
}

/// The contents, read once.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    pub(crate) component: Arc<[u8]>,
    pub(crate) component_sha256: Arc<str>,
    pub(crate) rules: Option<Rules>,
}

/// A rules file.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub(crate) file: PathBuf,
    pub(crate) text: String,
    pub(crate) sha256: Arc<str>,
}

impl Files {
    pub(crate) fn read(spec: &PolicySpec) -> Result<Self, LoadError> {
        let component =
            read_capped(&spec.component, spec.limits.file_bytes_max, "limits.file-size", |path| {
                LoadError::Absent { path }
            })?;
        let rules =
            spec.rules.as_deref().map(|file| Rules::read(file, spec.limits.rules_bytes_max)).transpose()?;
        Ok(Self { component_sha256: sha256(&component), component: component.into(), rules })
    }

    /// The rules' file, when there is nothing but white space in it.
    pub(crate) fn blank_rules(&self) -> Option<&Path> {
        self.rules.as_ref().filter(|rules| rules.text.trim().is_empty()).map(|rules| &*rules.file)
    }

    pub(crate) fn rules_sha256(&self) -> Option<&Arc<str>> {
        self.rules.as_ref().map(|rules| &rules.sha256)
    }
}

impl Rules {
    pub(crate) fn read(file: &Path, bytes_max: u64) -> Result<Self, LoadError> {
        let bytes =
            read_capped(file, bytes_max, "limits.rules-size", |path| LoadError::RulesAbsent { path })?;
        let sha256 = sha256(&bytes);
        let text = String::from_utf8(bytes).map_err(|error| LoadError::Read {
            path: file.to_owned(),
            source: io::Error::new(ErrorKind::InvalidData, error.utf8_error()),
        })?;
        Ok(Self { file: file.to_owned(), text, sha256 })
    }
}

fn read_capped(
    path: &Path,
    max: u64,
    key: &'static str,
    absent: impl Fn(PathBuf) -> LoadError,
) -> Result<Vec<u8>, LoadError> {
    let failed = |source: io::Error| match source.kind() {
        ErrorKind::NotFound => absent(path.to_owned()),
        _ => LoadError::Read { path: path.to_owned(), source },
    };
    files::read(path, max).map_err(|error| match error {
        ReadError::Io(source) => failed(source),
        ReadError::NotAFile { is_directory: true } => failed(ErrorKind::IsADirectory.into()),
        ReadError::NotAFile { is_directory: false } => {
            failed(io::Error::other("it is a pipe, a socket or a device, not a file"))
        }
        ReadError::TooLarge { bytes } => LoadError::TooLarge { path: path.to_owned(), bytes, max, key },
    })
}

/// The SHA-256 as 64 hexadecimal digits.
pub(crate) fn sha256(bytes: &[u8]) -> Arc<str> {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(64);
    for byte in Sha256::digest(bytes) {
        // Writing to a string has no way to fail.
        let _ = write!(text, "{byte:02x}");
    }
    text.into()
}
