//! Copies of what last ran well, for a start with files that cannot be used.
//!
//! For each policy `NAME.json` names two files beside it, the component and the rules, by their digests. It is replaced
//! by a rename after they are written, and what it does not name any more is deleted after that, so that at every
//! moment it names files that are whole. They are read like any candidate: through every check.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::files::{Files, Rules, sha256};

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

    /// What ran well, when there is anything and it is what was written.
    pub(crate) fn load(&self, policy: &str) -> Option<Files> {
        let manifest = read_manifest(&self.path(policy, "json"))?;
        let component = fs::read(self.path(policy, &component_suffix(&manifest.component))).ok()?;
        let component_sha256 = sha256(&component);
        if *component_sha256 != *manifest.component {
            return None;
        }
        let rules = match manifest.rules {
            None => None,
            Some(digest) => {
                let file = self.path(policy, &rules_suffix(&digest));
                let text = fs::read_to_string(&file).ok()?;
                let sha256: Arc<str> = sha256(text.as_bytes());
                if *sha256 != *digest {
                    return None;
                }
                Some(Rules { file, text, sha256 })
            }
        };
        Some(Files { component: component.into(), component_sha256, rules })
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
    serde_json::from_slice(&fs::read(path).ok()?).ok()
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
        assert!(copies.load("fair").is_none());
        copies.save("fair", &files(b"one", Some("a = 1"))).unwrap();
        copies.save("fair", &files(b"two", Some("a = 2"))).unwrap();
        copies.save("other", &files(b"one", None)).unwrap();
        let loaded = copies.load("fair").unwrap();
        assert_eq!((&*loaded.component, &*loaded.rules.unwrap().text), (&b"two"[..], "a = 2"));
        assert!(copies.load("other").unwrap().rules.is_none());
        assert_eq!(fs::read_dir(dir.path().join("policies")).unwrap().count(), 3 + 2);
    }

    #[test]
    fn damaged_copies_are_none() {
        let dir = tempfile::tempdir().unwrap();
        let copies = LastGood::new(dir.path().to_owned());
        copies.save("fair", &files(b"one", None)).unwrap();
        fs::write(dir.path().join(format!("fair.{}.wasm", sha256(b"one"))), b"on").unwrap();
        assert!(copies.load("fair").is_none());
        fs::write(dir.path().join("fair.json"), b"{").unwrap();
        assert!(copies.load("fair").is_none());
    }
}
