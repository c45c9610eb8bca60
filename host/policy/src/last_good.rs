//! Copies of what last ran well, for a start with files that cannot be used.
//!
//! For each policy `NAME.json` names two files beside it, the component and the rules, by their digests. It is replaced
//! by a rename after they are written, and what it does not name any more is deleted after that, so that at every
//! moment it names files that are whole. They are read like any candidate: through every check.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use tidegate_connector::files;

use crate::files::{Files, Rules, sha256};

/// The largest file that is read: larger than any limit on a policy's files.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// This file is there and not what was written.
#[derive(Clone, Debug, thiserror::Error)]
#[error("`{}` is not what was kept", .0.display())]
pub(crate) struct Damage(PathBuf);

/// The directory of the copies.
#[derive(Clone, Debug)]
pub(crate) struct LastGood {
    directory: PathBuf,
}

/// What `NAME.json` holds.
#[derive(Debug, Deserialize, Eq, PartialEq, Serialize)]
struct Manifest {
    component: String,
    rules: Option<String>,
}

impl LastGood {
    pub(crate) const fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// Keeps what runs well.
    pub(crate) fn save(&self, policy: &str, files: &Files) -> io::Result<()> {
        create_private(&self.directory)?;
        let manifest = Manifest {
            component: files.component_sha256.to_string(),
            rules: files.rules_sha256().map(ToString::to_string),
        };
        let json = self.path(policy, "json");
        let before = read_manifest(&json);
        if before.as_ref() == Some(&manifest) {
            return Ok(());
        }
        write(&self.path(policy, &component_suffix(&manifest.component)), &files.component)?;
        if let Some(rules) = &files.rules {
            write(&self.path(policy, &rules_suffix(&rules.sha256)), rules.text.as_bytes())?;
        }
        write(&json, &serde_json::to_vec(&manifest)?)?;
        if let Some(before) = before {
            if before.component != manifest.component {
                remove(&self.path(policy, &component_suffix(&before.component)))?;
            }
            if let Some(rules) = before.rules.filter(|rules| manifest.rules.as_ref() != Some(rules)) {
                remove(&self.path(policy, &rules_suffix(&rules)))?;
            }
        }
        Ok(())
    }

    /// What ran well; `None` when nothing was kept.
    ///
    /// # Errors
    /// Why it cannot be used, when there is something that is not what was written.
    pub(crate) fn load(&self, policy: &str) -> Result<Option<Files>, Damage> {
        let path = self.path(policy, "json");
        if fs::symlink_metadata(&path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            return Ok(None);
        }
        let manifest = read_manifest(&path).ok_or(Damage(path))?;
        let path = self.path(policy, &component_suffix(&manifest.component));
        let component = read(&path).filter(|bytes| *sha256(bytes) == *manifest.component);
        let component = component.ok_or(Damage(path))?;
        let rules = match manifest.rules {
            None => None,
            Some(digest) => {
                let file = self.path(policy, &rules_suffix(&digest));
                let text = read(&file).filter(|bytes| *sha256(bytes) == *digest);
                let text = text.and_then(|bytes| String::from_utf8(bytes).ok());
                let text = text.ok_or_else(|| Damage(file.clone()))?;
                Some(Rules { file, text, sha256: digest.into() })
            }
        };
        Ok(Some(Files { component: component.into(), component_sha256: manifest.component.into(), rules }))
    }

    fn path(&self, policy: &str, suffix: &str) -> PathBuf {
        self.directory.join(format!("{policy}.{suffix}"))
    }
}

fn component_suffix(digest: &str) -> String {
    format!("{digest}.wasm")
}

fn rules_suffix(digest: &str) -> String {
    format!("{digest}.toml")
}

fn read_manifest(path: &Path) -> Option<Manifest> {
    serde_json::from_slice(&read(path)?).ok()
}

/// Nothing but files, and none that was not written here.
fn read(path: &Path) -> Option<Vec<u8>> {
    files::read(path, FILE_BYTES_MAX).ok()
}

/// Writes the whole of a file or nothing.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension("tmp");
    let mut file = File::create(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    drop(file);
    fs::rename(&temporary, path)
}

/// Makes a directory that nobody else may look into.
pub(crate) fn create_private(directory: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt as _;
        builder.mode(0o700);
    }
    builder.create(directory)
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(component: &[u8], rules: Option<&str>) -> Files {
        Files {
            component: component.into(),
            component_sha256: sha256(component),
            rules: rules.map(|text| Rules {
                file: "rules.toml".into(),
                text: text.to_owned(),
                sha256: sha256(text.as_bytes()),
            }),
        }
    }

    #[test]
    fn what_was_saved_last_is_what_is_loaded_and_nothing_else_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let copies = LastGood::new(dir.path().join("policies"));
        assert!(copies.load("fair").unwrap().is_none());
        copies.save("fair", &files(b"one", Some("a = 1"))).unwrap();
        copies.save("fair", &files(b"two", Some("a = 2"))).unwrap();
        copies.save("other", &files(b"one", None)).unwrap();
        let loaded = copies.load("fair").unwrap().unwrap();
        assert_eq!((&*loaded.component, &*loaded.rules.unwrap().text), (&b"two"[..], "a = 2"));
        assert!(copies.load("other").unwrap().unwrap().rules.is_none());
        assert_eq!(fs::read_dir(dir.path().join("policies")).unwrap().count(), 3 + 2);
    }

    #[test]
    fn damaged_copies_are_none() {
        let dir = tempfile::tempdir().unwrap();
        let copies = LastGood::new(dir.path().to_owned());
        copies.save("fair", &files(b"one", None)).unwrap();
        fs::write(dir.path().join(format!("fair.{}.wasm", sha256(b"one"))), b"on").unwrap();
        assert!(copies.load("fair").is_err());
        fs::write(dir.path().join("fair.json"), b"{").unwrap();
        assert!(copies.load("fair").is_err());
    }
}
