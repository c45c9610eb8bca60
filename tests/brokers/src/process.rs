//! One Java process: started so that it cannot be left behind, measured through `/proc`.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use crate::watchdog::Watchdog;
use crate::{ClusterError, artifacts};

/// The shell waits for a line before it becomes Java, so that the watchdog knows of the process before it does
/// anything; a test process that dies in between closes the pipe, and the shell ends.
const GATE: &str = r#"read -r _ && exec "$@""#;

/// What to run.
#[derive(Debug)]
pub(crate) struct Launch {
    /// For people: `proxy 0`.
    pub(crate) name: String,
    /// Everything after `java`.
    pub(crate) arguments: Vec<String>,
    /// Environment variables added to ours.
    pub(crate) environment: Vec<(&'static str, String)>,
    /// Where it runs.
    pub(crate) directory: PathBuf,
    /// Where its output is appended.
    pub(crate) log: PathBuf,
    /// Whether its standard output is for us rather than for the log.
    pub(crate) talks: bool,
}

/// A running Java process; dropping it kills it.
#[derive(Debug)]
pub(crate) struct JavaProcess {
    name: String,
    log: PathBuf,
    child: Child,
    watchdog: Arc<Watchdog>,
}

impl JavaProcess {
    pub(crate) fn start(launch: &Launch, watchdog: &Arc<Watchdog>) -> Result<Self, ClusterError> {
        let failure = |source| ClusterError::Process { what: "start", process: launch.name.clone(), source };
        let log = File::options()
            .create(true)
            .append(true)
            .open(&launch.log)
            .map_err(ClusterError::file("open", &launch.log))?;
        let child = Command::new("sh")
            .args(["-c", GATE, &launch.name, "java"])
            .args(&launch.arguments)
            .envs(launch.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(&launch.directory)
            .stdin(Stdio::piped())
            .stdout(if launch.talks { Stdio::piped() } else { log.try_clone().map_err(failure)?.into() })
            .stderr(log)
            // A Ctrl-C at the terminal is for the test; the watchdog ends these.
            .process_group(0)
            .spawn()
            .map_err(failure)?;
        let mut process = Self {
            name: launch.name.clone(),
            log: launch.log.clone(),
            child,
            watchdog: Arc::clone(watchdog),
        };
        watchdog.watch(process.id())?;
        if let Some(gate) = process.child.stdin.as_mut() {
            gate.write_all(b"go\n").map_err(failure)?;
        }
        Ok(process)
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Our ends of its input and output, for one that talks.
    pub(crate) fn take_pipes(&mut self) -> Option<(ChildStdin, ChildStdout)> {
        Some((self.child.stdin.take()?, self.child.stdout.take()?))
    }

    /// Fails once the process has ended by itself.
    pub(crate) fn check_alive(&mut self) -> Result<(), ClusterError> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(ClusterError::Ended {
                process: self.name.clone(),
                status: status.to_string(),
                log: self.log.clone(),
                tail: fs::read_to_string(&self.log).map(|text| artifacts::tail(&text)).unwrap_or_default(),
            }),
            Err(source) => Err(ClusterError::Process { what: "watch", process: self.name.clone(), source }),
        }
    }

    /// Stops it from running without ending it, as a machine that hangs would.
    pub(crate) fn pause(&self) -> Result<(), ClusterError> {
        self.signal("STOP", "pause")
    }

    /// Asks it to end.
    pub(crate) fn terminate(&self) -> Result<(), ClusterError> {
        self.signal("TERM", "terminate")
    }

    /// Lets a paused one run on.
    pub(crate) fn resume(&self) -> Result<(), ClusterError> {
        self.signal("CONT", "resume")
    }

    /// The shell's built-in `kill`: the standard library can only send SIGKILL.
    fn signal(&self, signal: &str, what: &'static str) -> Result<(), ClusterError> {
        let failure = |source| ClusterError::Process { what, process: self.name.clone(), source };
        let status = Command::new("sh")
            .args(["-c", r#"kill -s "$1" "$2""#, "kill", signal, &self.id().to_string()])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .map_err(failure)?;
        if status.success() {
            Ok(())
        } else {
            Err(failure(io::Error::other(format!("kill ended with {status}"))))
        }
    }
}

impl Drop for JavaProcess {
    fn drop(&mut self) {
        // Both fail only when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.watchdog.forget(self.id());
    }
}

/// What a process has used, as the system counts it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Usage {
    /// Memory it has in RAM now.
    pub resident_bytes: u64,
    /// The most it ever had.
    pub resident_peak_bytes: u64,
    /// Processor time of all its threads since it began.
    pub cpu: Duration,
}

impl Usage {
    /// Of the process `pid`. Linux only.
    ///
    /// # Errors
    /// When there is no such process.
    pub fn of(pid: u32) -> io::Result<Self> {
        let directory = Path::new("/proc").join(pid.to_string());
        let status = fs::read_to_string(directory.join("status"))?;
        let stat = fs::read_to_string(directory.join("stat"))?;
        Self::parse(&status, &stat).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, "/proc has another format than proc(5) says")
        })
    }

    fn parse(status: &str, stat: &str) -> Option<Self> {
        /// Ticks a second in `/proc`: `USER_HZ`, fixed at 100 by the Linux ABI.
        const TICKS_PER_SECOND: u64 = 100;
        let kibibytes = |name: &str| -> Option<u64> {
            let line = status.lines().find(|line| line.starts_with(name))?;
            line.split_whitespace().nth(1)?.parse().ok()
        };
        // The second field, the command's name, may hold anything; what follows its closing parenthesis may not.
        let (_, after_name) = stat.rsplit_once(')')?;
        let mut fields = after_name.split_whitespace().skip(11);
        let ticks: u64 = fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?;
        Some(Self {
            resident_bytes: kibibytes("VmRSS:")? * 1024,
            resident_peak_bytes: kibibytes("VmHWM:")? * 1024,
            cpu: Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_of_ourselves() {
        let usage = Usage::of(std::process::id()).unwrap();
        assert!(usage.resident_bytes > 100_000, "{usage:?}");
        assert!(usage.resident_peak_bytes >= usage.resident_bytes, "{usage:?}");
    }

    #[test]
    fn usage_reads_past_a_name_with_spaces_and_parentheses() {
        let status = "Name:\tx\nVmHWM:\t  2048 kB\nVmRSS:\t  1024 kB\n";
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194304 100 0 0 0 150 50 0 0 20 0 1 0 100 0 0";
        let usage = Usage::parse(status, stat).unwrap();
        assert_eq!(usage.resident_bytes, 1024 * 1024);
        assert_eq!(usage.resident_peak_bytes, 2048 * 1024);
        assert_eq!(usage.cpu, Duration::from_secs(2));
        assert_eq!(Usage::parse("", stat), None);
    }
}
