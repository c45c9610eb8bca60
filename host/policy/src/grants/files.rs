//! Granted files: read anew each time, and never from outside of their directory.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read as _};
use std::path::{Component, Path, PathBuf};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions};

use crate::bindings::v1::given::files::Failure;

/// Reads `NAME/rest`. The directory is opened each time, so that a mount that was swapped is followed; links are
/// followed while they stay inside of it, as those that Kubernetes makes do.
pub(super) fn read(
    directories: &BTreeMap<Box<str>, PathBuf>,
    path: &str,
    bytes_max: u64,
) -> Result<Vec<u8>, Failure> {
    let (name, rest) = path.split_once('/').unwrap_or((path, ""));
    let directory = directories.get(name).ok_or(Failure::NotFound)?;
    let rest = Path::new(rest);
    if !rest.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) {
        return Err(Failure::Refused(
            "a path has only names in it, no `..` and no `/` at its beginning".to_owned(),
        ));
    }
    if rest.as_os_str().is_empty() {
        return Err(Failure::Refused("a path is `NAME/FILE`, and this one names no file".to_owned()));
    }
    let directory = Dir::open_ambient_dir(directory, ambient_authority()).map_err(failure)?;
    // Looked at before it is opened, because opening some things does something.
    let not_a_file = || Failure::Refused("it is not a regular file".to_owned());
    if !directory.metadata(rest).map_err(failure)?.is_file() {
        return Err(not_a_file());
    }
    let file = directory.open_with(rest, &options()).map_err(failure)?;
    // And again afterwards, because it may be another thing by now.
    let metadata = file.metadata().map_err(failure)?;
    if !metadata.is_file() {
        return Err(not_a_file());
    }
    if metadata.len() > bytes_max {
        return Err(Failure::TooLarge(metadata.len()));
    }
    let mut content = Vec::new();
    // One more than allowed, for a file that grows meanwhile.
    file.take(bytes_max.saturating_add(1)).read_to_end(&mut content).map_err(failure)?;
    let bytes = content.len() as u64;
    if bytes > bytes_max { Err(Failure::TooLarge(bytes)) } else { Ok(content) }
}

/// Opening a pipe would wait for somebody to write.
fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        use cap_std::fs::OpenOptionsExt as _;
        let flags = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default();
        options.custom_flags(flags);
    }
    options
}

#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
fn failure(error: io::Error) -> Failure {
    match error.kind() {
        ErrorKind::NotFound => Failure::NotFound,
        // Without the system's number it is not the system that refused.
        ErrorKind::PermissionDenied if error.raw_os_error().is_none() => {
            Failure::Refused("it leads out of its directory".to_owned())
        }
        ErrorKind::PermissionDenied => Failure::Refused("the host may not read it".to_owned()),
        ErrorKind::NotADirectory => Failure::NotFound,
        _ => Failure::Other(error.to_string()),
    }
}

#[cfg(test)]
mod tests;
