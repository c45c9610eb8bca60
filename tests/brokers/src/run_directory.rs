//! Where one cluster keeps its configuration, data and logs.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{process, thread};

use crate::{ClusterError, artifacts};

/// Directories of ended runs that are kept for their logs; each holds a few megabytes.
const KEPT: usize = 8;
const LOCK: &str = "lock";

/// A directory of our own under the build directory, locked as long as it is in use.
#[derive(Debug)]
pub(crate) struct RunDirectory {
    path: PathBuf,
    _lock: File,
}

impl RunDirectory {
    /// Makes one, and removes the oldest of ended runs beyond [`KEPT`].
    pub(crate) fn create() -> Result<Self, ClusterError> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let runs = artifacts::directory().join("run");
        prune(&runs);
        let path = runs.join(format!("{}-{}", process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
        // A left-over of an earlier process with our number.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).map_err(ClusterError::file("create", &path))?;
        let lock_path = path.join(LOCK);
        let lock = File::create(&lock_path).map_err(ClusterError::file("create", &lock_path))?;
        lock.lock().map_err(ClusterError::file("lock", &lock_path))?;
        Ok(Self { path, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Without a failing test the logs interest nobody.
impl Drop for RunDirectory {
    #[allow(clippy::print_stderr, reason = "tells the person at the terminal where to look")]
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("the brokers' logs are in {}", self.path.display());
        } else {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

fn prune(runs: &Path) {
    let Ok(entries) = fs::read_dir(runs) else { return };
    let mut ended: Vec<_> = entries
        .filter_map(Result::ok)
        .filter(|entry| File::open(entry.path().join(LOCK)).is_ok_and(|lock| lock.try_lock().is_ok()))
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    ended.sort();
    let surplus = ended.len().saturating_sub(KEPT);
    for (_, path) in ended.into_iter().take(surplus) {
        let _ = fs::remove_dir_all(path);
    }
}
