//! Lines into a file that is set aside when it is full or old. All of it blocks.
//!
//! What counts is [`Written::durable`]: so many items, from the first, are where they had to go. After an error the
//! file ends where it ended at the last success, or is cut there before anything else is written to it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use tidegate_model::Timestamp;

use super::place::{Identity, Lock, Place};
use super::{FileError, FileOptions};

/// Bytes that are gathered before they are written: large writes, and little memory beside the messages themselves.
const WRITE_BYTES: usize = 1 << 20;
/// Bytes that are read at once in search of the last end of a line.
const SEARCH_BYTES: u64 = 64 << 10;

/// The file now written to.
#[derive(Debug)]
pub(super) struct Writer {
    place: Place,
    options: FileOptions,
    lock: Option<Lock>,
    open: Option<Open>,
    /// A file that could not be cut after an error, and where it is to be cut.
    to_cut: Option<(Identity, u64)>,
    /// Whether something was created or renamed that the directory may not have on the disk.
    directory_is_dirty: bool,
    notes: Vec<Note>,
}

#[derive(Debug)]
struct Open {
    file: File,
    identity: Identity,
    /// Bytes that are durable: whole lines.
    durable: u64,
    /// Bytes written, durable or not.
    written: u64,
    begun_at: Timestamp,
}

/// What came of items.
#[derive(Debug, Default)]
pub(super) struct Written {
    /// So many items are done, from the first.
    pub(super) durable: usize,
    /// Those of them that could not be made into a line, by place, and why. The others are in a file.
    pub(super) refused: Vec<(usize, String)>,
    /// Bytes of the lines.
    pub(super) bytes: u64,
    /// Why the rest is not done.
    pub(super) error: Option<FileError>,
}

/// What happened on the way, for the log.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Note {
    Rotated { file: PathBuf, bytes: u64 },
    Removed { file: PathBuf, error: Option<String> },
    TailCut { file: PathBuf, bytes: u64 },
    MovedAway { file: PathBuf },
}

impl Writer {
    pub(super) fn new(options: FileOptions) -> Result<Self, FileError> {
        let place = Place::resolve(&options.path)?;
        Ok(Self {
            place,
            options,
            lock: None,
            open: None,
            to_cut: None,
            // A former life may have died right after a rename.
            directory_is_dirty: true,
            notes: Vec::new(),
        })
    }

    /// Makes one line of each item and writes them all. `encode` appends a line without its end.
    pub(super) fn write<T, E: ToString>(
        &mut self,
        now: Timestamp,
        items: &[T],
        encode: impl Fn(&T, &mut Vec<u8>) -> Result<(), E>,
    ) -> Written {
        let mut written = Written::default();
        let mut result = self.try_write(now, items, &encode, &mut written);
        if matches!(result, Err(FileError::Moved { .. })) {
            // Somebody took the file away while it was written to: once more, into a new one.
            result = self.try_write(now, items, &encode, &mut written);
        }
        if let Err(error) = result {
            self.cut_back(&error);
            written.error = Some(error);
        }
        written
    }

    /// Opens the file, if it is not open, and sets it aside when it is old.
    pub(super) fn tend(&mut self, now: Timestamp) -> Result<(), FileError> {
        self.make_ready(now)?;
        if self.rotation_due().is_some_and(|due| due <= now) {
            self.rotate(now)?;
        }
        Ok(())
    }

    /// When the file will be old.
    pub(super) fn rotation_due(&self) -> Option<Timestamp> {
        let interval = u64::try_from(self.options.rotate_interval?.as_millis()).unwrap_or(u64::MAX);
        let open = self.open.as_ref().filter(|open| open.durable > 0)?;
        Some(Timestamp::from_unix_millis(open.begun_at.as_unix_millis().saturating_add(interval)))
    }

    pub(super) fn take_notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes)
    }

    fn try_write<T, E: ToString>(
        &mut self,
        now: Timestamp,
        items: &[T],
        encode: &impl Fn(&T, &mut Vec<u8>) -> Result<(), E>,
        written: &mut Written,
    ) -> Result<(), FileError> {
        self.tend(now)?;
        let first = written.durable;
        let mut refused = Vec::new();
        let mut buffer = Vec::new();
        for (at, item) in items.iter().enumerate().skip(first) {
            let begin = buffer.len();
            if let Err(error) = encode(item, &mut buffer) {
                buffer.truncate(begin);
                refused.push((at, error.to_string()));
                continue;
            }
            buffer.push(b'\n');
            let before = self.written() + begin as u64;
            let size = before + (buffer.len() - begin) as u64;
            if before > 0 && size > self.options.rotate_size {
                let line = buffer.split_off(begin);
                self.append(&buffer)?;
                self.commit(at, &mut refused, written)?;
                self.rotate(now)?;
                buffer = line;
            }
            if buffer.len() >= WRITE_BYTES {
                self.append(&buffer)?;
                buffer.clear();
            }
        }
        self.append(&buffer)?;
        self.commit(items.len(), &mut refused, written)
    }

    fn written(&self) -> u64 {
        self.open.as_ref().map_or(0, |open| open.written)
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        let open = self.opened()?;
        open.written += bytes.len() as u64;
        let written = open.file.write_all(bytes);
        written.map_err(|problem| FileError::Write { path: self.place.file().to_owned(), problem })
    }

    /// Makes what was written durable and counts it, up to the item `until`.
    fn commit(
        &mut self,
        until: usize,
        refused: &mut Vec<(usize, String)>,
        written: &mut Written,
    ) -> Result<(), FileError> {
        let (fsync, path) = (self.options.fsync, self.place.file().to_owned());
        let open = self.opened()?;
        if fsync && open.written > open.durable {
            open.file.sync_data().map_err(|problem| FileError::Sync { path: path.clone(), problem })?;
        }
        let identity = open.identity;
        self.sync_directory()?;
        // What is in a file that nobody can find any more is not where it had to go.
        if self.place.look().is_none_or(|(found, _)| found != identity) {
            self.open = None;
            self.notes.push(Note::MovedAway { file: path.clone() });
            return Err(FileError::Moved { path });
        }
        let open = self.opened()?;
        written.bytes += open.written - open.durable;
        open.durable = open.written;
        written.durable = until;
        written.refused.append(refused);
        Ok(())
    }

    fn opened(&mut self) -> Result<&mut Open, FileError> {
        let path = self.place.file();
        self.open.as_mut().ok_or_else(|| FileError::Moved { path: path.to_owned() })
    }

    /// Cuts off what was written and not made durable.
    fn cut_back(&mut self, error: &FileError) {
        // A failed write may leave a part of a line, and after a failed sync nobody knows what the disk has: the next try
        // writes all of it anew.
        let Some(open) = self.open.take() else { return };
        let is_moved = matches!(error, FileError::Moved { .. });
        if !is_moved && open.written > open.durable && open.file.set_len(open.durable).is_err() {
            self.to_cut = Some((open.identity, open.durable));
        }
    }

    /// Opens the file, unless it is open and still at its place.
    fn make_ready(&mut self, now: Timestamp) -> Result<(), FileError> {
        if self.lock.as_ref().is_none_or(|lock| !self.place.is_held(lock)) {
            // With the lock went the directory, and the file with it.
            self.lock = None;
            self.lock = Some(self.place.lock()?);
        }
        if let Some(open) = &self.open {
            if self.place.look() == Some((open.identity, open.durable)) {
                return Ok(());
            }
            self.open = None;
            self.notes.push(Note::MovedAway { file: self.place.file().to_owned() });
        }
        self.open = Some(self.open_file(now)?);
        self.sync_directory()
    }

    fn open_file(&mut self, now: Timestamp) -> Result<Open, FileError> {
        let path = self.place.file().to_owned();
        let failed = |problem| FileError::Open { path: path.clone(), problem };
        match fs::metadata(&path) {
            Ok(found) if !found.is_file() => return Err(FileError::NotAFile { path }),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.directory_is_dirty = true,
            Err(error) => return Err(failed(error)),
        }
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(&path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        let identity = Identity::of(&metadata);
        let mut end = metadata.len();
        if let Some((known, durable)) = self.to_cut
            && known == identity
            && end > durable
        {
            file.set_len(durable).map_err(failed)?;
            end = durable;
        }
        self.to_cut = None;
        let whole = end_of_last_line(&mut file, end).map_err(failed)?;
        if whole < end {
            file.set_len(whole).map_err(failed)?;
            self.notes.push(Note::TailCut { file: path.clone(), bytes: end - whole });
        }
        let begun = metadata.created().or_else(|_| metadata.modified()).ok().filter(|_| whole > 0);
        let begun = begun.and_then(|begun| begun.duration_since(UNIX_EPOCH).ok());
        let begun = begun.map(|begun: Duration| u64::try_from(begun.as_millis()).unwrap_or(u64::MAX));
        let begun_at = begun.map_or(now, |begun| Timestamp::from_unix_millis(begun).min(now));
        Ok(Open { file, identity, durable: whole, written: whole, begun_at })
    }

    /// Sets the file aside, all of which is durable, and begins a new one.
    fn rotate(&mut self, now: Timestamp) -> Result<(), FileError> {
        let Some(open) = self.open.take() else { return Ok(()) };
        // Names sort by time even when the clock was set back or two fall together.
        let newest = self.place.set_aside()?.last().map(|(time, _)| time.as_unix_millis() + 1);
        let time = now.as_unix_millis().max(newest.unwrap_or(0));
        let (from, to) = (self.place.file(), self.place.name_at(Timestamp::from_unix_millis(time)));
        fs::rename(from, &to).map_err(|problem| FileError::Rotate {
            path: from.to_owned(),
            to: to.clone(),
            problem,
        })?;
        self.directory_is_dirty = true;
        self.notes.push(Note::Rotated { file: to, bytes: open.durable });
        self.open = Some(self.open_file(now)?);
        self.sync_directory()?;
        self.remove_old();
        Ok(())
    }

    /// Removes the oldest files above the number that is kept. What cannot be removed now is tried at the next rotation.
    fn remove_old(&mut self) {
        if self.options.keep == 0 {
            return;
        }
        let Ok(mut found) = self.place.set_aside() else { return };
        found.truncate(found.len().saturating_sub(self.options.keep));
        for (_, file) in found {
            let error = fs::remove_file(&file).err().map(|error| error.to_string());
            self.notes.push(Note::Removed { file, error });
        }
    }

    fn sync_directory(&mut self) -> Result<(), FileError> {
        if self.directory_is_dirty && self.options.fsync {
            self.place.sync_directory()?;
        }
        self.directory_is_dirty = false;
        Ok(())
    }
}

/// Where the last whole line of a file with `end` bytes ends.
fn end_of_last_line(file: &mut File, end: u64) -> io::Result<u64> {
    let mut end = end;
    let mut chunk = Vec::new();
    // The last byte first: nearly always it ends a line.
    let mut length = 1;
    while end > 0 {
        let begin = end.saturating_sub(length);
        file.seek(SeekFrom::Start(begin))?;
        chunk.clear();
        file.take(end - begin).read_to_end(&mut chunk)?;
        if let Some(at) = chunk.iter().rposition(|byte| *byte == b'\n') {
            return Ok(begin + at as u64 + 1);
        }
        end = begin;
        length = SEARCH_BYTES;
    }
    Ok(0)
}

#[cfg(test)]
mod tests;
