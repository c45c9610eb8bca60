//! Notices of changed files: a wake-up for the loader, which then looks itself.
//!
//! Directories are watched and not files, because a file that is replaced by a rename, or reached through a link that
//! is swapped, is lost to a watch on it. A directory that was itself replaced is watched anew at the next look. None
//! of it is relied on: the loader looks once a second anyway, for file systems that give no notice.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tidegate_telemetry::{Telemetry, events};

use crate::spec::PolicySpec;

/// The watched directories.
pub(crate) struct Watches {
    watcher: Option<RecommendedWatcher>,
    watched: BTreeMap<PathBuf, Option<Identity>>,
    telemetry: Telemetry,
}

/// Tells one directory from another that later has its name.
type Identity = (u64, u64);

impl Watches {
    /// Begins without a directory; `wake` is called from another thread.
    pub(crate) fn new(telemetry: Telemetry, wake: impl Fn() + Send + 'static) -> Self {
        let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            // Reading a file is an event too: waking up for those would let the loader wake itself.
            if event.is_ok_and(|event| !matches!(event.kind, EventKind::Access(_))) {
                wake();
            }
        });
        let watcher = match watcher {
            Ok(watcher) => Some(watcher),
            Err(error) => {
                let reason = error.to_string();
                telemetry.emit(events::policy::WatchUnavailable { directory: "any", reason: &reason });
                None
            }
        };
        Self { watcher, watched: BTreeMap::new(), telemetry }
    }

    /// Watches the directories that the files are in now, and no others.
    pub(crate) fn refresh<'a>(&mut self, specs: impl Iterator<Item = &'a PolicySpec>) {
        let Some(watcher) = &mut self.watcher else { return };
        let wanted: BTreeSet<PathBuf> = specs.flat_map(directories).collect();
        self.watched.retain(|directory, _| {
            let keep = wanted.contains(directory);
            if !keep {
                // It may be gone already, and its watch with it.
                let _ = watcher.unwatch(directory);
            }
            keep
        });
        for directory in wanted {
            let identity = identity(&directory);
            let known = self.watched.get(&directory);
            if identity.is_none() || known == Some(&identity) {
                continue;
            }
            if known.is_some() {
                let _ = watcher.unwatch(&directory);
            }
            if let Err(error) = watcher.watch(&directory, RecursiveMode::NonRecursive) {
                self.telemetry.emit(events::policy::WatchUnavailable {
                    directory: &directory.display().to_string(),
                    reason: &error.to_string(),
                });
            }
            // Also when it failed: once is enough to say so, and the looks go on.
            self.watched.insert(directory, identity);
        }
    }
}

/// Where the files are as named, and where they really are.
fn directories(spec: &PolicySpec) -> Vec<PathBuf> {
    let mut directories = Vec::new();
    for file in [Some(&spec.component), spec.rules.as_ref()].into_iter().flatten() {
        directories.extend(parent(file));
        directories.extend(fs::canonicalize(file).ok().as_deref().and_then(parent));
    }
    directories
}

fn parent(file: &Path) -> Option<PathBuf> {
    let parent = file.parent()?;
    Some(if parent.as_os_str().is_empty() { PathBuf::from(".") } else { parent.to_owned() })
}

fn identity(directory: &Path) -> Option<Identity> {
    let metadata = fs::metadata(directory).ok()?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        Some((metadata.dev(), metadata.ino()))
    }
    #[cfg(not(unix))]
    {
        let created = metadata.created().ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
        Some((created.as_secs(), u64::from(created.subsec_nanos())))
    }
}
