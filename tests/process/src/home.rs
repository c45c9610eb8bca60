//! A directory with a configuration and policies.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::{Configuration, Consumed, shipped_policies};

/// A directory for one run of the program.
#[derive(Debug)]
pub struct Home(TempDir);

impl Home {
    /// A directory with an empty `policies` in it.
    #[must_use]
    pub fn new() -> Self {
        let directory = tempfile::tempdir().expect("temporary directory");
        fs::create_dir(directory.path().join("policies")).expect("policies");
        Self(directory)
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// A file below it.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// Writes a file below it.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.file(name), content).expect("write");
    }

    /// Replaces a piece of `tidegate.toml`.
    pub fn edit(&self, piece: &str, by: &str) {
        let text = fs::read_to_string(self.file("tidegate.toml")).expect("the configuration");
        assert!(text.contains(piece), "`{piece}` is not in\n{text}");
        self.write("tidegate.toml", text.replace(piece, by));
    }

    /// Puts a shipped policy and its rules in place.
    pub fn install(&self, policy: &str) {
        for extension in ["wasm", "toml"] {
            let name = format!("{policy}.{extension}");
            fs::copy(shipped_policies().join(&name), self.file("policies").join(&name))
                .expect("shipped policy");
        }
    }

    /// Writes `tidegate.toml`: one flow from the broker at `endpoint` to `stdout`, and whatever `more` has. The flow
    /// is the last section, so `more` begins with keys of it.
    pub fn configure(&self, endpoint: &str, more: &str) {
        let more = format!("\n{more}");
        let configuration = Configuration::new("drain-timeout = \"10s\"")
            .source(
                "tenants",
                Consumed { endpoint, topic: crate::TOPIC, group: crate::GROUP },
                "rocketmq.source.fetch-concurrency = 2\nrocketmq.source.await-duration = \"5s\"",
            )
            .sink("out", "stdout", "")
            .flow("tenants", "tenants", "out", &more);
        self.put(&configuration);
    }

    /// Writes a configuration as `tidegate.toml`.
    pub fn put(&self, configuration: &Configuration) {
        self.write("tidegate.toml", configuration.toml());
    }
}

impl Default for Home {
    fn default() -> Self {
        Self::new()
    }
}
