//! Compiled components on disk, so that a start does not compile what was compiled before: a Python or JavaScript
//! policy takes seconds to compile and milliseconds to load.
//!
//! Compiled code is run as it is, so the directory is the host's own: nobody else may enter it, and nothing that
//! somebody puts into `policies/` is ever loaded this way. A file's name says which component it was made of and by
//! which engine (version and configuration of wasmtime), and its last bytes are a digest of the others. Whatever is
//! wrong with a file, it is deleted and the component compiled anew; without a directory that can be used, everything
//! is compiled as if there were no cache.

mod room;
mod seal;

use std::fs::{self, File, OpenOptions};
use std::hash::{Hash as _, Hasher};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use tidegate_connector::files::{self, ReadError};
use tidegate_model::Timestamp;
use wasmtime::Engine;
use wasmtime::component::Component;

use crate::files::sha256;
use crate::last_good::create_private;

/// All compiled files together. A Python policy has 35 MB.
const BYTES_MAX: u64 = 512 << 20;

/// A file that was not used for so long goes.
const UNUSED_MAX: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// How the names of its files end.
const COMPILED: &str = "compiled";

/// How the names of files end that are being written.
const UNFINISHED: &str = "unfinished";

/// What is wrong with the cache or a file of it. Never a reason not to load a policy.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CacheError {
    #[error("cannot use {}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{} belongs to another user, who could put any code into it", .0.display())]
    Foreign(PathBuf),
    #[error("{} is damaged", .0.display())]
    Damaged(PathBuf),
    #[error("{} cannot be loaded: {message}", path.display())]
    Refused { path: PathBuf, message: String },
}

/// The directory of compiled components.
pub(crate) struct Cache {
    directory: PathBuf,
    /// Tells what this engine compiled from what another one did.
    engine: String,
    bytes_max: u64,
    /// Held while a file is written. Who finds it held leaves its own out: a disk that hangs then holds one thread.
    writing: Mutex<()>,
    written: AtomicU64,
}

impl Cache {
    /// Makes the directory, if need be, and looks whether it can be used.
    ///
    /// # Errors
    /// When it cannot be made the host's own, or not be written to.
    pub(crate) fn open(directory: &Path, engine: &Engine, wall: Timestamp) -> Result<Self, CacheError> {
        let unusable = |source| CacheError::Io { path: directory.to_owned(), source };
        create_private(directory).map_err(unusable)?;
        let cache = Self {
            directory: directory.to_owned(),
            engine: fingerprint(engine),
            bytes_max: BYTES_MAX,
            writing: Mutex::new(()),
            written: AtomicU64::new(0),
        };
        cache.make_private().map_err(unusable)?;
        let (probe, file) = cache.create().map_err(unusable)?;
        let ours = same_owner(&file, directory);
        // One that stays is deleted like any other that was never finished.
        let _ = fs::remove_file(probe);
        if !ours.map_err(unusable)? {
            return Err(CacheError::Foreign(directory.to_owned()));
        }
        cache.make_room(system_time(wall)).map_err(unusable)?;
        Ok(cache)
    }

    /// What was compiled of the component with that digest, if it is there.
    ///
    /// # Errors
    /// When it is there and is not what was written, or the engine does not take it. It is then deleted.
    pub(crate) fn load(
        &self,
        engine: &Engine,
        sha256: &str,
        wall: Timestamp,
    ) -> Result<Option<Component>, CacheError> {
        let path = self.path(sha256);
        let loaded = match self.read(&path) {
            Ok(None) => return Ok(None),
            Ok(Some(sealed)) => {
                let component = seal::opened(&sealed).map(|bytes| deserialize(engine, bytes));
                match component {
                    None => Err(CacheError::Damaged(path.clone())),
                    Some(Ok(component)) => Ok(component),
                    Some(Err(error)) => {
                        Err(CacheError::Refused { path: path.clone(), message: format!("{error:#}") })
                    }
                }
            }
            Err(source) => Err(CacheError::Io { path: path.clone(), source }),
        };
        match loaded {
            Ok(component) => {
                // Only its turn to go depends on that.
                let _ = File::open(&path).and_then(|file| file.set_modified(system_time(wall)));
                Ok(Some(component))
            }
            Err(error) => {
                // Else it is overwritten.
                let _ = fs::remove_file(&path);
                Err(error)
            }
        }
    }

    /// Keeps what was compiled of the component with that digest. Does nothing while another is being written.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn store(
        &self,
        sha256: &str,
        component: &Component,
        wall: Timestamp,
    ) -> Result<(), CacheError> {
        let Some(_writing) = self.writing.try_lock() else { return Ok(()) };
        let path = self.path(sha256);
        let refused = |error: wasmtime::Error| CacheError::Refused {
            path: path.clone(),
            message: format!("it cannot be written down: {error:#}"),
        };
        let sealed = seal::sealed(component.serialize().map_err(refused)?);
        if sealed.len() as u64 > self.bytes_max {
            return Ok(());
        }
        self.write(&path, &sealed, wall).map_err(|source| CacheError::Io { path: path.clone(), source })
    }

    fn path(&self, sha256: &str) -> PathBuf {
        self.directory.join(format!("{sha256}.{}.{COMPILED}", self.engine))
    }

    fn read(&self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        match files::read(path, self.bytes_max) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(ReadError::Io(error)) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(ReadError::Io(error)) => Err(error),
            Err(ReadError::TooLarge { bytes }) => Err(io::Error::other(format!(
                "it has {bytes} bytes and the whole cache may have {}",
                self.bytes_max
            ))),
            Err(other @ ReadError::NotAFile { .. }) => Err(io::Error::other(other)),
        }
    }

    /// Writes the whole of a file or nothing. What another process reads meanwhile under that name stays what it was.
    fn write(&self, path: &Path, bytes: &[u8], wall: Timestamp) -> io::Result<()> {
        let (unfinished, mut file) = self.create()?;
        let written = file
            .write_all(bytes)
            .and_then(|()| file.set_modified(system_time(wall)))
            .and_then(|()| file.sync_all())
            .and_then(|()| fs::rename(&unfinished, path));
        if written.is_err() {
            let _ = fs::remove_file(&unfinished);
        }
        written?;
        self.make_room(system_time(wall))
    }

    /// A new file with a name of its own that only this user may read.
    fn create(&self) -> io::Result<(PathBuf, File)> {
        let count = self.written.fetch_add(1, Ordering::Relaxed);
        let path = self.directory.join(format!("{}-{count}.{UNFINISHED}", std::process::id()));
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        {
            use std::os::unix::fs::OpenOptionsExt as _;
            options.mode(0o600);
        }
        match options.open(&path) {
            // A process that had the same number left it.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                fs::remove_file(&path)?;
                Ok((path.clone(), options.open(path)?))
            }
            other => Ok((path, other?)),
        }
    }

    /// A directory that was there before may have been open to others.
    fn make_private(&self) -> io::Result<()> {
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            if fs::metadata(&self.directory)?.permissions().mode() & 0o077 != 0 {
                fs::set_permissions(&self.directory, fs::Permissions::from_mode(0o700))?;
            }
        }
        Ok(())
    }

    /// Deletes what was not used for long, and what was used longest ago until the others fit.
    fn make_room(&self, now: SystemTime) -> io::Result<()> {
        let mut kept = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            // One that has gone meanwhile takes no room.
            let Ok(metadata) = entry.metadata() else { continue };
            let path = entry.path();
            let is = |ending| path.extension().is_some_and(|extension| extension == ending);
            if metadata.is_file() && (is(COMPILED) || is(UNFINISHED)) {
                let used = metadata.modified()?;
                kept.push(room::Kept { finished: is(COMPILED), path, bytes: metadata.len(), used });
            }
        }
        for path in room::to_delete(kept, now, self.bytes_max, UNUSED_MAX) {
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

/// A digest of all that decides whether one engine can run what another compiled.
fn fingerprint(engine: &Engine) -> String {
    /// Enough to tell engines apart; wasmtime looks again when it loads.
    const DIGITS: usize = 16;
    let mut hashed = Hashed(Vec::new());
    engine.precompile_compatibility_hash().hash(&mut hashed);
    sha256(&hashed.0)[..DIGITS].to_owned()
}

/// Keeps what is hashed, for a digest that is the same in every build, which the standard library's hashes are not.
struct Hashed(Vec<u8>);

impl Hasher for Hashed {
    fn write(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Nobody asks for it.
    fn finish(&self) -> u64 {
        0
    }
}

/// Loads compiled code from memory: wasmtime copies it, so that nothing that happens to the file afterwards matters.
/// (`deserialize_file` would map the file, and a page read later would have what is in the file then.)
#[allow(unsafe_code, reason = "running code that was compiled before is what the cache is for")]
fn deserialize(engine: &Engine, compiled: &[u8]) -> wasmtime::Result<Component> {
    // SAFETY: the bytes must be what `Component::serialize` gave. They come from a file in a directory that belongs to
    // this user and that no other may enter (`Cache::open`), which only `Cache::store` writes, and their digest is the
    // one that it sealed them with (`seal::opened`), so that a damaged disk or a half-written file does not get here.
    // wasmtime itself refuses what another version or configuration of it has compiled.
    unsafe { Component::deserialize(engine, compiled) }
}

fn system_time(wall: Timestamp) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(wall.as_unix_millis())
}

/// Whether a file that this process made belongs to the same user as the directory.
#[cfg(unix)]
fn same_owner(file: &File, directory: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt as _;
    Ok(file.metadata()?.uid() == fs::metadata(directory)?.uid())
}

#[cfg(not(unix))]
fn same_owner(_: &File, _: &Path) -> io::Result<bool> {
    Ok(true)
}

#[cfg(test)]
mod tests {
    use tidegate_test_guests::Guest;

    use super::*;

    const fn at(seconds: u64) -> Timestamp {
        Timestamp::from_unix_millis(seconds * 1_000)
    }

    #[test]
    fn what_was_loaded_longest_ago_makes_room() {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::default();
        let component = Component::from_binary(&engine, &Guest::default().component()).unwrap();
        let mut cache = Cache::open(dir.path(), &engine, at(0)).unwrap();
        cache.store("a", &component, at(1)).unwrap();
        let bytes = fs::metadata(cache.path("a")).unwrap().len();
        cache.bytes_max = bytes * 5 / 2;
        cache.store("b", &component, at(2)).unwrap();
        assert!(cache.load(&engine, "a", at(3)).unwrap().is_some());
        cache.store("c", &component, at(4)).unwrap();
        let is_there = |name| cache.load(&engine, name, at(5)).unwrap().is_some();
        assert_eq!((is_there("a"), is_there("b"), is_there("c")), (true, false, true));

        cache.bytes_max = bytes - 1;
        cache.store("d", &component, at(6)).unwrap();
        assert!(!cache.path("d").exists(), "there is no room for it at all");
        assert!(cache.load(&engine, "a", at(7)).is_err(), "nor is it read");
    }

    #[test]
    fn what_was_not_used_for_a_month_goes_at_a_start() {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::default();
        let component = Component::from_binary(&engine, &Guest::default().component()).unwrap();
        let cache = Cache::open(dir.path(), &engine, at(0)).unwrap();
        let day = 24 * 60 * 60;
        cache.store("old", &component, at(day)).unwrap();
        cache.store("new", &component, at(20 * day)).unwrap();
        fs::write(dir.path().join("a-note"), "not one of its files").unwrap();
        let later = Cache::open(dir.path(), &engine, at(32 * day)).unwrap();
        let is_there = |name| later.load(&engine, name, at(33 * day)).unwrap().is_some();
        assert_eq!((is_there("old"), is_there("new")), (false, true));
        assert!(dir.path().join("a-note").exists());
    }

    #[test]
    fn one_file_is_written_at_a_time_and_others_are_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::default();
        let component = Component::from_binary(&engine, &Guest::default().component()).unwrap();
        let cache = Cache::open(dir.path(), &engine, at(0)).unwrap();
        let writing = cache.writing.lock();
        cache.store("a", &component, at(1)).unwrap();
        assert!(!cache.path("a").exists());
        drop(writing);
        cache.store("a", &component, at(1)).unwrap();
        assert!(cache.path("a").exists());
    }
}
