//! Finds entries in a file that cannot be opened: each is in one piece, begins with a mark and has a checksum.
//!
//! Entries that were removed may still lie in pages that nothing has overwritten. Each entry says what the lowest one in the
//! spool was when it was written; those below the highest of that were settled, and are left out. Others that were settled
//! come back, which is allowed; what is whole is never left out.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use super::{Batch, Store, StoreError, remove};
use crate::entry::{Entry, HEADER_BYTES, MAGIC, Sequence, payload_length};

/// How much of the file is looked through at a time.
const WINDOW_BYTES: usize = 1 << 20;
/// How much is written to the new file at a time.
const WRITE_BYTES: usize = 8 << 20;

/// Where an entry lies.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Spot {
    offset: u64,
    length: usize,
}

/// What was found of a last transaction that was not whole.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Torn {
    /// Entries that were put back.
    pub(crate) restored: usize,
    /// Entries between them of which nothing can be read.
    pub(crate) missing: u64,
}

/// Puts entries back into a store that lie in its file and came after everything that it has: a last transaction of which
/// not all was whole. Returns the sequence of what comes next, and what was found, if there was anything.
pub(super) fn restore_tail(
    path: &Path,
    store: &Store,
    next: Sequence,
) -> Result<(Sequence, Option<Torn>), StoreError> {
    let failed = |error| StoreError::File { action: "read", path: path.to_owned(), error };
    let file = File::open(path).map_err(failed)?;
    let tail = search(&file).map_err(failed)?.split_off(&next);
    let Some((last, _)) = tail.last_key_value() else { return Ok((next, None)) };
    let missing = (last.0 - next.0 + 1).saturating_sub(tail.len() as u64);
    let torn = Torn { restored: tail.len(), missing };
    let next = copy(&file, tail, store).map_err(|error| match error {
        CopyError::Read(error) => failed(error),
        CopyError::Write(error) => error,
    })?;
    Ok((next, Some(torn)))
}

/// Makes a store at `new` of what can be read of the file at `damaged`.
pub(super) fn rebuild(damaged: &Path, new: &Path) -> Result<(), StoreError> {
    let failed = |error| StoreError::File { action: "read", path: damaged.to_owned(), error };
    let file = File::open(damaged).map_err(failed)?;
    let spots = search(&file).map_err(failed)?;
    remove(new)?;
    let store = Store::open_whole(new)?.store;
    copy(&file, spots, &store).map(drop).map_err(|error| match error {
        CopyError::Read(error) => failed(error),
        CopyError::Write(error) => error,
    })
}

enum CopyError {
    Read(io::Error),
    Write(StoreError),
}

/// Writes entries of a file to a store, a bounded part at a time.
fn copy(file: &File, spots: BTreeMap<Sequence, Spot>, store: &Store) -> Result<Sequence, CopyError> {
    let next = spots.last_key_value().map_or(Sequence(1), |(last, _)| last.next());
    let mut batch = Batch { next, ..Batch::default() };
    let mut bytes = 0;
    for (sequence, Spot { offset, length }) in spots {
        let mut frame = vec![0; length];
        file.read_exact_at(&mut frame, offset).map_err(CopyError::Read)?;
        batch.entries.push((sequence, frame));
        bytes += length;
        if bytes >= WRITE_BYTES {
            store.write(&batch).map_err(CopyError::Write)?;
            batch.entries.clear();
            bytes = 0;
        }
    }
    store.write(&batch).map_err(CopyError::Write)?;
    Ok(next)
}

/// All entries that are whole, without those that were certainly settled.
fn search(file: &File) -> io::Result<BTreeMap<Sequence, Spot>> {
    let end = file.metadata()?.len();
    let mut spots = BTreeMap::new();
    let mut low_water = Sequence::default();
    let mut offset = 0;
    let mut window = Vec::new();
    while offset < end {
        let length = usize::try_from(end - offset).unwrap_or(usize::MAX).min(WINDOW_BYTES);
        window.resize(length, 0);
        file.read_exact_at(&mut window, offset)?;
        let mut at = 0;
        while let Some(found) = find(&window[at..]) {
            let begin = offset + (at + found) as u64;
            at += found + 1;
            if let Some((entry, length)) = read(file, begin, end)? {
                low_water = low_water.max(entry.low_water);
                spots.insert(entry.sequence, Spot { offset: begin, length });
            }
        }
        if offset + length as u64 >= end {
            break;
        }
        // A mark may lie across the border.
        offset += (length - (MAGIC.len() - 1)) as u64;
    }
    Ok(spots.split_off(&low_water))
}

fn find(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    while let Some(found) = bytes[at..].iter().position(|byte| *byte == MAGIC[0]) {
        at += found;
        if bytes[at..].starts_with(&MAGIC) {
            return Some(at);
        }
        at += 1;
    }
    None
}

/// The entry that begins there, if it is whole, and the length of its frame.
fn read(file: &File, begin: u64, end: u64) -> io::Result<Option<(Entry, usize)>> {
    let mut header = [0; HEADER_BYTES];
    if end - begin < HEADER_BYTES as u64 {
        return Ok(None);
    }
    file.read_exact_at(&mut header, begin)?;
    let Ok(length) = payload_length(&header) else { return Ok(None) };
    let length = HEADER_BYTES + length;
    if end - begin < length as u64 {
        return Ok(None);
    }
    let mut frame = vec![0; length];
    file.read_exact_at(&mut frame, begin)?;
    Ok(Entry::decode(&frame).ok().map(|entry| (entry, length)))
}
