//! Files that a command makes for what messages hold.

use std::fs::{File, OpenOptions};
use std::path::Path;

use anyhow::Context as _;

use crate::exit::Failure;

/// A file that was not there and that only this user may read.
pub(crate) fn create_private(file: &Path) -> Result<File, Failure> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.mode(0o600);
    }
    options.open(file).with_context(cannot_write(file)).map_err(Failure::Environment)
}

/// What is said when it cannot be had, or not be written to.
pub(crate) fn cannot_write(file: &Path) -> impl FnOnce() -> String {
    move || format!("`{}` cannot be written", file.display())
}
