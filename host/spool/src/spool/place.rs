//! Whether a spool can be kept somewhere, and what spools lie there. Makes nothing.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use super::Spool;
use crate::store::{EXTENSION, Store};

/// A directory in which no spool can be kept.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// There is something else.
    #[error("`{}` is no directory, and the spool is to be kept below it", path.display())]
    NoDirectory {
        /// What is there.
        path: PathBuf,
    },
    /// Nothing can be written there.
    #[error("nothing can be written in `{}`, where the spool is to be kept", path.display())]
    NotWritable {
        /// The directory.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
}

impl Spool {
    /// Whether spools can be kept in a directory, which may not be there yet.
    ///
    /// # Errors
    /// When they cannot.
    pub fn check_place(directory: &Path) -> Result<(), PlaceError> {
        let here = Path::new(".");
        // What is not there yet is made below the nearest that is.
        let nearest = directory.ancestors().find(|path| !path.as_os_str().is_empty() && path.exists());
        let nearest = nearest.unwrap_or(here);
        if !nearest.is_dir() {
            return Err(PlaceError::NoDirectory { path: nearest.to_owned() });
        }
        access(nearest, Access::WRITE_OK | Access::EXEC_OK)
            .map_err(|error| PlaceError::NotWritable { path: nearest.to_owned(), source: error.into() })
    }

    /// Files of spools in a directory that belong to none of these names and are not known to be empty.
    #[must_use]
    pub fn strays(directory: &Path, is_known: impl Fn(&str) -> bool) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok);
        let is_stray = |path: &PathBuf| {
            path.extension().is_some_and(|extension| extension == EXTENSION)
                && !path.file_stem().and_then(|stem| stem.to_str()).is_some_and(&is_known)
                && !Store::is_empty(path)
        };
        let mut strays: Vec<_> = entries.map(|entry| entry.path()).filter(is_stray).collect();
        strays.sort();
        strays
    }
}
