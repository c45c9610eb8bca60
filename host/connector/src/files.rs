//! Reading files that users name: never a pipe that would be waited for, never more than is wanted.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;

/// Why a file was not read. Whoever asked says which file it was and what for.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The system does not give it.
    #[error("it cannot be read")]
    Io(#[source] io::Error),
    /// There is something else.
    #[error("it is not a regular file")]
    NotAFile {
        /// Whether that is a directory.
        is_directory: bool,
    },
    /// There is more in it than is wanted.
    #[error("it is larger than wanted")]
    TooLarge {
        /// Its size as far as it is known.
        bytes: u64,
    },
}

/// All bytes of the regular file at `path`, symbolic links followed, when they are `bytes_max` at most.
///
/// # Errors
/// Nothing else than the file has been touched then.
pub fn read(path: &Path, bytes_max: u64) -> Result<Vec<u8>, ReadError> {
    // Looked at before it is opened: opening a pipe waits for somebody to write.
    let metadata = fs::metadata(path).map_err(ReadError::Io)?;
    if !metadata.is_file() {
        return Err(ReadError::NotAFile { is_directory: metadata.is_dir() });
    }
    let file = File::open(path).map_err(ReadError::Io)?;
    if metadata.len() > bytes_max {
        return Err(ReadError::TooLarge { bytes: metadata.len() });
    }
    let mut content = Vec::new();
    // One more than allowed, for a file that grows meanwhile.
    file.take(bytes_max.saturating_add(1)).read_to_end(&mut content).map_err(ReadError::Io)?;
    let bytes = content.len() as u64;
    if bytes > bytes_max { Err(ReadError::TooLarge { bytes }) } else { Ok(content) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_up_to_its_bound() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, "four").unwrap();
        assert_eq!(read(&path, 4).unwrap(), b"four");
        assert!(matches!(read(&path, 3), Err(ReadError::TooLarge { bytes: 4 })));
        assert!(matches!(read(directory.path(), 4), Err(ReadError::NotAFile { is_directory: true })));
        let absent = read(&directory.path().join("absent"), 4);
        assert!(matches!(absent, Err(ReadError::Io(error)) if error.kind() == io::ErrorKind::NotFound));
        // A device without an end has no size either.
        assert!(matches!(read(Path::new("/dev/zero"), 4), Err(ReadError::NotAFile { is_directory: false })));
    }
}
