//! The host as a process: started, read, killed.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, bail};
use parking_lot::Mutex;
use tempfile::TempDir;
use tidegate_process_tests::{Configuration, Consumed};

use crate::ledger::Ledger;
use crate::process::terminate;

/// A directory with everything that the host needs.
#[derive(Debug)]
pub(crate) struct Setup {
    program: PathBuf,
    directory: TempDir,
}

/// A running host.
#[derive(Debug)]
pub(crate) struct HostProcess {
    child: Child,
    reader: Option<JoinHandle<()>>,
}

impl Setup {
    pub(crate) fn new(
        program: &Path,
        policies: &Path,
        endpoint: &str,
        topic: &str,
        group: &str,
    ) -> anyhow::Result<Self> {
        let program = program.canonicalize().with_context(|| {
            format!("there is no host at `{}`; build it with `cargo build --release`", program.display())
        })?;
        let directory = tempfile::tempdir()?;
        let own = directory.path().join("policies");
        fs::create_dir(&own)?;
        for name in ["fair-share.wasm", "fair-share.toml"] {
            let from = policies.join(name);
            fs::copy(&from, own.join(name)).with_context(|| format!("cannot copy `{}`", from.display()))?;
        }
        let config = Configuration::new("drain-timeout = \"20s\"")
            .policy("fair", "fair-share")
            .source(
                "audit",
                Consumed { endpoint, topic, group },
                "rocketmq.source.fetch-concurrency = 8\n\
                 rocketmq.source.await-duration = \"5s\"\n\
                 rocketmq.source.invisible-duration = \"15s\"",
            )
            .sink("out", "stdout", "")
            .flow("audit", "audit", "out", "throttle = \"fair\"");
        fs::write(directory.path().join("tidegate.toml"), config.toml())?;
        Ok(Self { program, directory })
    }

    pub(crate) fn log_path(&self) -> PathBuf {
        self.directory.path().join("host.log")
    }

    /// Keeps the directory beyond the end of the audit.
    pub(crate) fn keep(&self) -> PathBuf {
        let kept = std::env::temp_dir().join(format!("tidegate-audit-{}.log", std::process::id()));
        // The log is what matters; without it there is still the message.
        let _ = fs::copy(self.log_path(), &kept);
        kept
    }
}

impl HostProcess {
    /// Starts the host; what it writes goes into the ledger, line by line.
    pub(crate) fn start(setup: &Setup, ledger: Arc<Mutex<Ledger>>) -> anyhow::Result<Self> {
        let log = File::options().create(true).append(true).open(setup.log_path())?;
        let mut child = Command::new(&setup.program)
            .args(["run", "--config", "tidegate.toml"])
            .current_dir(setup.directory.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .context("the host does not start")?;
        let stdout = child.stdout.take().context("the host has no standard output")?;
        let reader = std::thread::spawn(move || read(stdout, &ledger));
        Ok(Self { child, reader: Some(reader) })
    }

    pub(crate) fn has_ended(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// SIGKILL, then everything that it had still written.
    pub(crate) fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        self.join_reader()
    }

    /// SIGTERM; the host must drain and end with 0 within half a minute.
    pub(crate) fn terminate(mut self) -> anyhow::Result<()> {
        let status = terminate(&mut self.child, Duration::from_secs(30))?;
        self.join_reader()?;
        if !status.success() {
            bail!("it ended with {status}");
        }
        Ok(())
    }

    fn join_reader(&mut self) -> anyhow::Result<()> {
        match self.reader.take().map(JoinHandle::join) {
            Some(Err(_)) => bail!("the reader of the host's output panicked"),
            _ => Ok(()),
        }
    }
}

impl Drop for HostProcess {
    fn drop(&mut self) {
        // Already over in the good case.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read(stdout: ChildStdout, ledger: &Mutex<Ledger>) {
    let mut reader = BufReader::with_capacity(1 << 20, stdout);
    let mut line = String::new();
    loop {
        line.clear();
        match reader.read_line(&mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => ledger.lock().observe(line.trim_end_matches('\n')),
        }
    }
}
