//! Kills what a test process leaves behind, however that process ends.
//!
//! A shell in its own process group holds the reading end of a pipe whose writing end only the test process has.
//! When that process ends, even by SIGKILL or with clusters in statics that are never dropped, the pipe closes, and
//! the shell kills every process it was told of and removes the data directories.

use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use parking_lot::Mutex;

use crate::ClusterError;

/// Told by lines `watch PID` and `forget PID`; the arguments are the directories to remove at the end.
/// A killed process may still write for a moment, hence the pause before its files are removed.
const SCRIPT: &str = r#"
trap '' INT TERM HUP
pids=
while read -r word pid; do
    case $word in
        watch) pids="$pids $pid" ;;
        forget)
            kept=
            for one in $pids; do [ "$one" = "$pid" ] || kept="$kept $one"; done
            pids=$kept ;;
    esac
done
if [ -n "$pids" ]; then
    kill -9 $pids 2>/dev/null
    sleep 1
fi
rm -rf -- "$@"
"#;

/// The running shell and our end of its pipe.
#[derive(Debug)]
pub(crate) struct Watchdog {
    shell: Mutex<Child>,
    /// `None` only while being dropped.
    orders: Mutex<Option<ChildStdin>>,
}

impl Watchdog {
    /// Starts it; `data` is removed when this process has ended.
    pub(crate) fn start(data: &[&Path]) -> Result<Self, ClusterError> {
        let mut shell = Command::new("sh")
            .arg("-c")
            .arg(SCRIPT)
            .arg("tidegate-test-watchdog")
            .args(data)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(failure)?;
        let orders = Mutex::new(shell.stdin.take());
        Ok(Self { shell: Mutex::new(shell), orders })
    }

    /// From now on, `pid` dies with this process.
    pub(crate) fn watch(&self, pid: u32) -> Result<(), ClusterError> {
        self.order("watch", pid).map_err(failure)
    }

    /// `pid` has ended and been waited for: the number may soon be another's.
    pub(crate) fn forget(&self, pid: u32) {
        // A watchdog that is gone has nothing to remember.
        let _ = self.order("forget", pid);
    }

    fn order(&self, word: &str, pid: u32) -> io::Result<()> {
        self.orders
            .lock()
            .as_mut()
            .map_or(Ok(()), |pipe| pipe.write_all(format!("{word} {pid}\n").as_bytes()))
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.orders.lock().take());
        let _ = self.shell.lock().wait();
    }
}

fn failure(source: io::Error) -> ClusterError {
    ClusterError::Process { what: "start", process: "the watchdog shell `sh`".into(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kills_what_it_watches_and_removes_the_data() {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("store");
        std::fs::create_dir(&data).unwrap();
        let mut watched = Command::new("sleep").arg("600").spawn().unwrap();
        let mut forgotten = Command::new("sleep").arg("600").spawn().unwrap();
        let watchdog = Watchdog::start(&[&data]).unwrap();
        watchdog.watch(watched.id()).unwrap();
        watchdog.watch(forgotten.id()).unwrap();
        watchdog.forget(forgotten.id());

        drop(watchdog);

        assert!(!watched.wait().unwrap().success());
        assert!(!data.exists());
        assert_eq!(forgotten.try_wait().unwrap(), None, "a forgotten process lives on");
        forgotten.kill().unwrap();
        forgotten.wait().unwrap();
    }
}
