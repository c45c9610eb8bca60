//! The running processes of one cluster.

use std::collections::HashMap;
use std::fmt::Display;
use std::hash::Hash;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use crate::ClusterError;
use crate::process::{JavaProcess, Launch, Usage};
use crate::watchdog::Watchdog;

/// The slowest took 9 s to open its port on two busy cores and 15 s on a loaded machine; the rest is for worse ones.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// Servers took up to 3 s to end after a SIGTERM; one that waits for others in vain may take until this.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Processes by what they are in their cluster; dropping it kills all.
#[derive(Debug)]
pub(crate) struct Processes<N> {
    running: Mutex<HashMap<N, JavaProcess>>,
    watchdog: Arc<Watchdog>,
    /// Where a person finds their logs.
    logs: PathBuf,
}

impl<N: Copy + Display + Eq + Hash> Processes<N> {
    pub(crate) fn new(watchdog: Arc<Watchdog>, logs: PathBuf) -> Self {
        Self { running: Mutex::default(), watchdog, logs }
    }

    pub(crate) fn start(&self, node: N, launch: &Launch) -> Result<(), ClusterError> {
        let process = JavaProcess::start(launch, &self.watchdog)?;
        self.running.lock().insert(node, process);
        Ok(())
    }

    /// With SIGKILL, and waits for the end. No effect on one that is not running.
    pub(crate) fn kill(&self, node: N) {
        let process = self.running.lock().remove(&node);
        drop(process);
    }

    /// With SIGTERM, and waits for the end, which is a SIGKILL when the process takes too long.
    pub(crate) async fn terminate(&self, node: N) -> Result<(), ClusterError> {
        self.with(node, "terminate", JavaProcess::terminate)?;
        let deadline = Instant::now() + STOP_TIMEOUT;
        while self.running.lock().get_mut(&node).is_some_and(|process| process.check_alive().is_ok()) {
            if Instant::now() >= deadline {
                self.kill(node);
                let what = format!("{node} ending after SIGTERM");
                return Err(ClusterError::Late { what, waited: STOP_TIMEOUT, logs: self.logs.clone() });
            }
            sleep(POLL_INTERVAL).await;
        }
        self.kill(node);
        Ok(())
    }

    /// Freezes one with SIGSTOP.
    pub(crate) fn pause(&self, node: N) -> Result<(), ClusterError> {
        self.with(node, "pause", JavaProcess::pause)
    }

    pub(crate) fn resume(&self, node: N) -> Result<(), ClusterError> {
        self.with(node, "resume", JavaProcess::resume)
    }

    pub(crate) fn usage(&self, node: N) -> Result<Usage, ClusterError> {
        self.with(node, "measure", |process| {
            Usage::of(process.id()).map_err(|source| failure(node, "measure", source))
        })
    }

    /// Asks `check` again and again until it agrees, the process of `node` ends, or [`START_TIMEOUT`] is over.
    pub(crate) async fn wait<T, F>(
        &self,
        node: N,
        what: &str,
        mut check: impl FnMut() -> F,
    ) -> Result<T, ClusterError>
    where
        F: Future<Output = Result<T, String>>,
    {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            let obstacle = match check().await {
                Ok(found) => return Ok(found),
                Err(obstacle) => obstacle,
            };
            if let Some(process) = self.running.lock().get_mut(&node) {
                process.check_alive()?;
            }
            if Instant::now() >= deadline {
                let what = format!("{what} (last obstacle: {obstacle})");
                return Err(ClusterError::Late { what, waited: START_TIMEOUT, logs: self.logs.clone() });
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    fn with<T>(
        &self,
        node: N,
        what: &'static str,
        act: impl FnOnce(&JavaProcess) -> Result<T, ClusterError>,
    ) -> Result<T, ClusterError> {
        let running = self.running.lock();
        let process =
            running.get(&node).ok_or_else(|| failure(node, what, io::ErrorKind::NotFound.into()))?;
        act(process)
    }
}

fn failure(node: impl Display, what: &'static str, source: io::Error) -> ClusterError {
    ClusterError::Process { what, process: node.to_string(), source }
}
