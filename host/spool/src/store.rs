//! The file: a B-tree in one file (redb), written in transactions that are durable when they are over.
//!
//! Each opening checks every page, and a last transaction that is not whole is rolled back to the one before; entries of it
//! that are whole are put back, since damage may be the reason as well as a crash. A file that is damaged beyond that is not opened: what can be read of it is found by the frames of its entries ([`salvage`]) and put into
//! a new file, and the damaged one is kept beside it until there is another one. What was settled shortly before may come
//! back by that; nothing that can be read is lost.

mod salvage;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use redb::{
    Builder, Database, ReadableDatabase as _, ReadableTable as _, ReadableTableMetadata as _,
    TableDefinition, TableError,
};
use tidegate_model::Timestamp;

pub(crate) use self::salvage::Torn;
use crate::entry::{Entry, Sequence};
use crate::ledger::{Changes, Found, State};

const RECORDS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("records");
/// Attempt and due time in milliseconds since 1970, 0 for none, of those that were handed out more than once or deferred.
const STATES: TableDefinition<'_, u64, (u32, u64)> = TableDefinition::new("states");
const NUMBERS: TableDefinition<'_, &str, u64> = TableDefinition::new("numbers");
/// What has the sequence of what comes next, so that none is used twice.
const NEXT: &str = "next";
const PROBE: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("probe");

/// What files of stores end with.
pub(crate) const EXTENSION: &str = "redb";
/// What the store may keep of the file in memory. Entries are read once, so more would not help.
const CACHE_BYTES: usize = 8 << 20;
/// A file with less than a part of it in use is made smaller when it is opened, if it is larger than this.
const COMPACT_BYTES_MIN: u64 = 64 << 20;
const COMPACT_PART: u64 = 4;

/// An open store.
#[derive(Debug)]
pub(crate) struct Store {
    database: Database,
}

/// What an opening found.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) store: Store,
    pub(crate) found: Vec<Found>,
    /// Entries that are there and cannot be read.
    pub(crate) unreadable: Vec<Sequence>,
    pub(crate) next: Sequence,
    /// Set when the last transaction was not whole.
    pub(crate) torn: Option<Torn>,
    /// Set when the file was damaged.
    pub(crate) damage: Option<Damage>,
}

/// A file that could not be opened as it was.
#[derive(Clone, Debug)]
pub(crate) struct Damage {
    pub(crate) reason: String,
    /// Where the damaged file is now.
    pub(crate) kept_as: PathBuf,
}

/// One transaction.
#[derive(Debug, Default)]
pub(crate) struct Batch<'a> {
    /// Entries and their frames.
    pub(crate) entries: Vec<(Sequence, Vec<u8>)>,
    pub(crate) changes: Option<&'a Changes>,
    pub(crate) next: Sequence,
}

/// Why the store cannot be used now.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    #[error("another process uses it")]
    Taken,
    #[error("it is damaged: {0}")]
    Damaged(String),
    #[error("cannot {action} `{}`: {error}", path.display())]
    File { action: &'static str, path: PathBuf, error: io::Error },
    #[error("{0}")]
    Engine(Box<redb::Error>),
}

impl Store {
    /// Opens or makes a store.
    pub(crate) fn open(path: &Path) -> Result<Opened, StoreError> {
        let new = beside(path, "new");
        if path.exists() {
            // Begun by a salvage that did not end.
            remove(&new)?;
        } else if new.exists() {
            // It was whole when the damaged one was set aside.
            rename(&new, path)?;
        }
        match Self::open_whole(path) {
            Err(StoreError::Damaged(reason)) => {
                salvage::rebuild(path, &new)?;
                let kept_as = beside(path, "damaged");
                rename(path, &kept_as)?;
                rename(&new, path)?;
                Ok(Opened { damage: Some(Damage { reason, kept_as }), ..Self::open_whole(path)? })
            }
            result => result,
        }
    }

    /// Whether a store is known to have nothing in it. Changes nothing; of one that was not closed nothing is known.
    pub(crate) fn is_empty(path: &Path) -> bool {
        let Ok(database) = Builder::new().set_cache_size(CACHE_BYTES).open_read_only(path) else {
            return false;
        };
        let Ok(transaction) = database.begin_read() else { return false };
        match transaction.open_table(RECORDS) {
            Ok(records) => records.is_empty().unwrap_or(false),
            Err(error) => matches!(error, TableError::TableDoesNotExist(_)),
        }
    }

    /// Opens or makes a store that is not damaged.
    fn open_whole(path: &Path) -> Result<Opened, StoreError> {
        let mut database = Builder::new()
            .set_cache_size(CACHE_BYTES)
            .set_check_integrity_on_open(true)
            .create(path)
            .map_err(StoreError::from_engine)?;
        let store = Self { database: Self::tidy(&mut database, path).map(|()| database)? };
        let states = store.states()?;
        let transaction = store.database.begin_read().map_err(StoreError::from_engine)?;
        let next = match transaction.open_table(NUMBERS) {
            Ok(numbers) => numbers.get(NEXT).map_err(StoreError::from_engine)?.map_or(1, |next| next.value()),
            Err(TableError::TableDoesNotExist(_)) => 1,
            Err(error) => return Err(StoreError::from_engine(error)),
        };
        drop(transaction);
        let (next, torn) = salvage::restore_tail(path, &store, Sequence(next))?;
        let transaction = store.database.begin_read().map_err(StoreError::from_engine)?;
        let (mut found, mut unreadable) = (Vec::new(), Vec::new());
        match transaction.open_table(RECORDS) {
            Ok(records) => {
                for item in records.iter().map_err(StoreError::from_engine)? {
                    let (key, frame) = item.map_err(StoreError::from_engine)?;
                    let sequence = Sequence(key.value());
                    match Entry::decode(frame.value()) {
                        Ok(entry) if entry.sequence == sequence => found.push(Found {
                            sequence,
                            id: entry.message.id.clone(),
                            bytes: entry.message.size_bytes(),
                            state: states
                                .get(&sequence)
                                .copied()
                                .unwrap_or(State { attempt: entry.attempt, due: None }),
                        }),
                        _ => unreadable.push(sequence),
                    }
                }
            }
            Err(TableError::TableDoesNotExist(_)) => {}
            Err(error) => return Err(StoreError::from_engine(error)),
        }
        drop(transaction);
        Ok(Opened { store, found, unreadable, next, torn, damage: None })
    }

    /// Makes a file smaller that is mostly empty.
    fn tidy(database: &mut Database, path: &Path) -> Result<(), StoreError> {
        let length = fs::metadata(path).map_or(0, |metadata| metadata.len());
        if length < COMPACT_BYTES_MIN {
            return Ok(());
        }
        let used = {
            let transaction = database.begin_write().map_err(StoreError::from_engine)?;
            let stats = transaction.stats().map_err(StoreError::from_engine)?;
            transaction.abort().map_err(StoreError::from_engine)?;
            stats.stored_bytes() + stats.fragmented_bytes()
        };
        if used < length / COMPACT_PART {
            database.compact().map_err(StoreError::from_engine)?;
        }
        Ok(())
    }

    fn states(&self) -> Result<BTreeMap<Sequence, State>, StoreError> {
        let transaction = self.database.begin_read().map_err(StoreError::from_engine)?;
        let table = match transaction.open_table(STATES) {
            Ok(table) => table,
            Err(TableError::TableDoesNotExist(_)) => return Ok(BTreeMap::new()),
            Err(error) => return Err(StoreError::from_engine(error)),
        };
        let mut states = BTreeMap::new();
        for item in table.iter().map_err(StoreError::from_engine)? {
            let (key, state) = item.map_err(StoreError::from_engine)?;
            let (attempt, due) = state.value();
            let due = (due > 0).then(|| Timestamp::from_unix_millis(due));
            states.insert(Sequence(key.value()), State { attempt, due });
        }
        Ok(states)
    }

    /// Writes; durable when it is over.
    pub(crate) fn write(&self, batch: &Batch<'_>) -> Result<(), StoreError> {
        let transaction = self.database.begin_write().map_err(StoreError::from_engine)?;
        {
            let mut records = transaction.open_table(RECORDS).map_err(StoreError::from_engine)?;
            let mut states = transaction.open_table(STATES).map_err(StoreError::from_engine)?;
            let mut numbers = transaction.open_table(NUMBERS).map_err(StoreError::from_engine)?;
            for (sequence, frame) in &batch.entries {
                records.insert(sequence.0, frame.as_slice()).map_err(StoreError::from_engine)?;
            }
            if !batch.entries.is_empty() {
                numbers.insert(NEXT, batch.next.0).map_err(StoreError::from_engine)?;
            }
            if let Some(changes) = batch.changes {
                for (sequence, State { attempt, due }) in &changes.states {
                    let due = due.map_or(0, Timestamp::as_unix_millis);
                    states.insert(sequence.0, (*attempt, due)).map_err(StoreError::from_engine)?;
                }
                for sequence in &changes.removed {
                    records.remove(sequence.0).map_err(StoreError::from_engine)?;
                    states.remove(sequence.0).map_err(StoreError::from_engine)?;
                }
            }
        }
        transaction.commit().map_err(StoreError::from_engine)
    }

    /// Reads entries; `None` for one that is not there or cannot be read.
    pub(crate) fn load(&self, sequences: &[Sequence]) -> Result<Vec<Option<Entry>>, StoreError> {
        let transaction = self.database.begin_read().map_err(StoreError::from_engine)?;
        let records = match transaction.open_table(RECORDS) {
            Ok(records) => records,
            Err(TableError::TableDoesNotExist(_)) => return Ok(vec![None; sequences.len()]),
            Err(error) => return Err(StoreError::from_engine(error)),
        };
        let mut entries = Vec::with_capacity(sequences.len());
        for sequence in sequences {
            let frame = records.get(sequence.0).map_err(StoreError::from_engine)?;
            let entry = frame.and_then(|frame| Entry::decode(frame.value()).ok());
            entries.push(entry.filter(|entry| entry.sequence == *sequence));
        }
        Ok(entries)
    }

    /// Writes so many bytes and removes them again: whether there is room for what is to come.
    pub(crate) fn probe(&self, bytes: usize) -> Result<(), StoreError> {
        let transaction = self.database.begin_write().map_err(StoreError::from_engine)?;
        {
            let mut probe = transaction.open_table(PROBE).map_err(StoreError::from_engine)?;
            probe.insert(0, vec![0; bytes].as_slice()).map_err(StoreError::from_engine)?;
        }
        transaction.commit().map_err(StoreError::from_engine)?;
        let transaction = self.database.begin_write().map_err(StoreError::from_engine)?;
        transaction.delete_table(PROBE).map_err(StoreError::from_engine)?;
        transaction.commit().map_err(StoreError::from_engine)
    }
}

impl StoreError {
    fn from_engine(error: impl Into<redb::Error>) -> Self {
        match error.into() {
            redb::Error::DatabaseAlreadyOpen => Self::Taken,
            redb::Error::Corrupted(reason) => Self::Damaged(reason),
            // How it says that a file is none of its own.
            redb::Error::Io(error)
                if matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) =>
            {
                Self::Damaged(error.to_string())
            }
            error => Self::Engine(Box::new(error)),
        }
    }
}

/// A file's name with something behind it.
fn beside(path: &Path, what: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(what);
    name.into()
}

fn remove(path: &Path) -> Result<(), StoreError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(StoreError::File { action: "remove", path: path.to_owned(), error })
        }
        _ => Ok(()),
    }
}

/// Renames a file within its directory, durably.
fn rename(from: &Path, to: &Path) -> Result<(), StoreError> {
    let failed = |error| StoreError::File { action: "rename", path: from.to_owned(), error };
    fs::rename(from, to).map_err(failed)?;
    let directory = to.parent().unwrap_or(Path::new("."));
    File::open(directory).and_then(|directory| directory.sync_all()).map_err(failed)
}

#[cfg(test)]
mod tests;
