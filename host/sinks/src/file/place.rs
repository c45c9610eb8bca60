//! Where a file is, what its siblings are called, and whose it is.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::Access;
use tidegate_model::Timestamp;

use super::FileError;
use super::stamp;

/// A file, the names of what was set aside, and the lock.
#[derive(Debug)]
pub(super) struct Place {
    file: PathBuf,
    directory: PathBuf,
    lock: PathBuf,
    /// What names of files set aside have before the stamp, and behind it.
    before: OsString,
    behind: OsString,
}

/// What the system knows a file by, whatever it is called.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Identity {
    device: u64,
    inode: u64,
}

/// That the place is ours, until it is dropped.
#[derive(Debug)]
pub(super) struct Lock {
    file: File,
    identity: Identity,
}

/// Said, not left to the closing of the file: a process that is just being started holds a copy of it for a moment.
impl Drop for Lock {
    fn drop(&mut self) {
        // What was never locked does no harm either.
        let _ = self.file.unlock();
    }
}

impl Place {
    /// The place of `path`. A link is followed, so that what is set aside lies beside the file itself.
    pub(super) fn resolve(path: &Path) -> Result<Self, FileError> {
        let failed = |problem| FileError::Open { path: path.to_owned(), problem };
        let file = match fs::canonicalize(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
                let parent = parent.unwrap_or(Path::new("."));
                let directory = fs::canonicalize(parent).map_err(|problem| FileError::NoDirectory {
                    path: path.to_owned(),
                    directory: parent.to_owned(),
                    problem,
                })?;
                directory.join(path.file_name().unwrap_or_default())
            }
            Err(error) => return Err(failed(error)),
        };
        let name = file.file_name().unwrap_or_default().as_bytes();
        // The last dot, unless the name begins with it.
        let end = name.iter().rposition(|byte| *byte == b'.').filter(|at| *at > 0).unwrap_or(name.len());
        let os = |parts: &[&[u8]]| OsString::from_vec(parts.concat());
        let (before, behind, lock) =
            (os(&[&name[..end], b"-"]), os(&[&name[end..]]), os(&[b".", name, b".lock"]));
        let directory = file.parent().map(Path::to_owned).unwrap_or_default();
        Ok(Self { lock: directory.join(lock), directory, before, behind, file })
    }

    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    /// Whether a file can be written here, as far as can be seen without making anything.
    pub(super) fn look_ahead(&self) -> Result<(), FileError> {
        let may = |path: &Path, access| rustix::fs::access(path, access).map_err(io::Error::from);
        let opened = |problem| FileError::Open { path: self.file.clone(), problem };
        let is_new = match fs::metadata(&self.file) {
            Ok(found) if !found.is_file() => return Err(FileError::NotAFile { path: self.file.clone() }),
            Ok(_) => {
                may(&self.file, Access::READ_OK | Access::WRITE_OK).map_err(opened)?;
                false
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => true,
            Err(error) => return Err(opened(error)),
        };
        if is_new || !self.lock.exists() {
            may(&self.directory, Access::WRITE_OK | Access::EXEC_OK)
                .map_err(|problem| FileError::Lock { path: self.lock.clone(), problem })?;
        }
        Ok(())
    }

    /// Takes the lock.
    pub(super) fn lock(&self) -> Result<Lock, FileError> {
        let failed = |problem: io::Error| match problem.kind() {
            io::ErrorKind::NotFound => {
                FileError::NoDirectory { path: self.file.clone(), directory: self.directory.clone(), problem }
            }
            _ => FileError::Lock { path: self.lock.clone(), problem },
        };
        let taken = || FileError::Locked { path: self.file.clone(), lock: self.lock.clone() };
        let file =
            OpenOptions::new().create(true).truncate(false).write(true).open(&self.lock).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(taken()),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let lock = Lock { identity: Identity::of(&file.metadata().map_err(failed)?), file };
        // Somebody may have removed it in between, and another may hold its successor.
        if self.is_held(&lock) { Ok(lock) } else { Err(taken()) }
    }

    /// Whether the lock is still the one that others find.
    pub(super) fn is_held(&self, lock: &Lock) -> bool {
        fs::metadata(&self.lock).is_ok_and(|found| Identity::of(&found) == lock.identity)
    }

    /// What is at the file's place now, if it is a file.
    pub(super) fn look(&self) -> Option<(Identity, u64)> {
        let found = fs::metadata(&self.file).ok().filter(Metadata::is_file)?;
        Some((Identity::of(&found), found.len()))
    }

    /// Makes creations and renames in the directory durable.
    pub(super) fn sync_directory(&self) -> Result<(), FileError> {
        let synced = File::open(&self.directory).and_then(|directory| directory.sync_all());
        synced.map_err(|problem| FileError::Directory { path: self.directory.clone(), problem })
    }

    /// The files set aside, the oldest first.
    pub(super) fn set_aside(&self) -> Result<Vec<(Timestamp, PathBuf)>, FileError> {
        let failed = |problem| FileError::Directory { path: self.directory.clone(), problem };
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.directory).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if let Some(time) = self.time_of(&entry.file_name()) {
                found.push((time, entry.path()));
            }
        }
        found.sort();
        Ok(found)
    }

    /// The name of a file set aside at `time`.
    pub(super) fn name_at(&self, time: Timestamp) -> PathBuf {
        let mut name = self.before.clone();
        name.push(stamp::format(time));
        name.push(&self.behind);
        self.directory.join(name)
    }

    fn time_of(&self, name: &OsStr) -> Option<Timestamp> {
        let rest = name.as_bytes().strip_prefix(self.before.as_bytes())?;
        stamp::parse(rest.strip_suffix(self.behind.as_bytes())?)
    }
}

impl Identity {
    pub(super) fn of(metadata: &Metadata) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino() }
    }
}
