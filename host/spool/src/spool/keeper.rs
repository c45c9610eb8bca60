//! The thread that owns the file: carries work and its results between the desk and the store.
//!
//! All that has come together is one transaction. In trouble the store is opened anew and tried again with growing waits:
//! first what makes room, then what needs it, and nothing is received until as much as was asked for can be written.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::MutexGuard;
use tidegate_connector::Backoff;
use tidegate_model::{Instant, Message};
use tidegate_telemetry::events::spool as events;
use tokio::sync::{oneshot, watch};

use super::{Desk, NotWritten, Shared, Unwritten};
use crate::entry::{Entry, Sequence};
use crate::ledger::Changes;
use crate::store::{Batch, EXTENSION, Opened, Store, StoreError, Torn};

/// The first and the longest wait before a store in trouble is tried again.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// What has to find room before a store that was full counts as well again; the more bounds a waste of deliveries.
const PROBE_BYTES: (usize, usize) = (1 << 20, 64 << 20);

/// Entries that are to be written together.
pub(super) struct Append {
    pub(super) entries: Vec<(Sequence, u32, Arc<Message>)>,
    /// Until when their broker keeps them.
    pub(super) kept_until: Instant,
    pub(super) done: watch::Sender<Option<Result<(), NotWritten>>>,
}

/// What is done in one turn.
#[derive(Default)]
struct Work {
    appends: Vec<Append>,
    loads: Vec<Sequence>,
    changes: Changes,
    waiting: Vec<oneshot::Sender<Result<(), Unwritten>>>,
    low_water: Sequence,
    next: Sequence,
}

pub(super) struct Keeper {
    shared: Arc<Shared>,
    path: PathBuf,
    backoff: Backoff,
    /// Whether the ledger knows what an earlier life left.
    is_restored: bool,
    /// Bytes of the largest append that failed.
    failed_bytes: usize,
}

impl Keeper {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let settings = &shared.settings;
        let path = settings.directory.join(format!("{}.{EXTENSION}", settings.name));
        let backoff = Backoff::new(BACKOFF.0, BACKOFF.1, settings.life);
        Self { shared, path, backoff, is_restored: false, failed_bytes: 0 }
    }

    pub(super) fn run(mut self) {
        let mut store = None;
        loop {
            if store.is_none() {
                match self.open() {
                    Ok(opened) => store = Some(opened),
                    Err(error) => self.tell_trouble("open", &error),
                }
            }
            let done = match &store {
                Some(open) => self.turn(open),
                None => Err(()),
            };
            match done {
                Ok(true) => {}
                Ok(false) => break,
                Err(()) => {
                    // After an error an engine wants to be opened anew.
                    store = None;
                    if !self.wait() {
                        break;
                    }
                }
            }
        }
        drop(store);
        let mut desk = self.shared.desk.lock();
        desk.is_closing = true;
        let (appends, waiting) = (std::mem::take(&mut desk.appends), std::mem::take(&mut desk.waiting));
        drop(desk);
        for append in appends {
            append.done.send_replace(Some(Err(NotWritten::Closed)));
        }
        waiting.into_iter().for_each(|waiter| {
            let _ = waiter.send(Err(Unwritten("the spool is closed".into())));
        });
        self.tell_amount(0, 0);
        self.shared.changed.notify_waiters();
    }

    /// Opens the store and tells the ledger what is in it.
    fn open(&mut self) -> Result<Store, StoreError> {
        let directory = &self.shared.settings.directory;
        std::fs::create_dir_all(directory).map_err(|error| StoreError::File {
            action: "create",
            path: directory.clone(),
            error,
        })?;
        let Opened { store, found, unreadable, next, torn, damage } = Store::open(&self.path)?;
        let name = || Arc::clone(&self.shared.settings.name);
        if let Some(Torn { restored, missing }) = torn {
            self.shared.telemetry.emit(events::Torn { name: name(), restored, missing });
        }
        if let Some(damage) = damage {
            self.shared.telemetry.emit(events::Damaged {
                name: name(),
                reason: damage.reason,
                kept_as: damage.kept_as,
                read: found.len(),
            });
        }
        if !unreadable.is_empty() {
            self.shared.telemetry.emit(events::Unreadable { name: name(), records: unreadable.len() });
        }
        let (now, wall) = (self.shared.clock.now(), self.shared.clock.wall());
        let mut desk = self.shared.desk.lock();
        let count = found.len();
        if self.is_restored {
            desk.ledger.handle_reopened(&found);
        } else {
            desk.ledger.restore(now, wall, found, next);
            self.is_restored = true;
            let (path, bytes) = (self.path.clone(), desk.ledger.bytes());
            self.shared.telemetry.emit(events::Opened { name: name(), path, records: count, bytes });
        }
        desk.ledger.forget(unreadable);
        let is_well = desk.trouble.is_none();
        desk.is_open = true;
        let (records, bytes) = (desk.ledger.records(), desk.ledger.bytes());
        drop(desk);
        self.tell_amount(records, bytes);
        if is_well {
            self.shared.changed.notify_waiters();
        }
        Ok(store)
    }

    /// One turn. False when it was the last one; an error when the store is in trouble, which has been told.
    fn turn(&mut self, store: &Store) -> Result<bool, ()> {
        let is_in_trouble = self.shared.desk.lock().trouble.is_some();
        if is_in_trouble {
            self.recover(store)?;
        }
        let mut desk = self.shared.desk.lock();
        while !desk.has_work() && !desk.is_closing {
            self.shared.work.wait(&mut desk);
        }
        let is_last = desk.is_closing;
        let work = desk.take_work();
        drop(desk);
        self.write(store, work)?;
        Ok(!is_last)
    }

    /// Tries whether the store can be used again: reads what is wanted, removes what is to go, sees whether there is room.
    fn recover(&mut self, store: &Store) -> Result<(), ()> {
        let mut desk = self.shared.desk.lock();
        let Work { appends, loads, changes, waiting, .. } = desk.take_work();
        desk.appends = appends;
        drop(desk);
        self.write(store, Work { loads, changes, waiting, ..Work::default() })?;
        let bytes = self.failed_bytes.clamp(PROBE_BYTES.0, PROBE_BYTES.1);
        store.probe(bytes).map_err(|error| self.tell_trouble("write", &error))?;
        self.shared.desk.lock().trouble = None;
        self.backoff.reset();
        self.failed_bytes = 0;
        self.shared.telemetry.emit(events::TroubleEnded { name: Arc::clone(&self.shared.settings.name) });
        self.shared.changed.notify_waiters();
        Ok(())
    }

    fn write(&mut self, store: &Store, mut work: Work) -> Result<(), ()> {
        let mut bytes = 0;
        let low_water = work.low_water;
        let frame = |(sequence, attempt, message): &(Sequence, u32, Arc<Message>)| {
            let message = Arc::clone(message);
            let entry = Entry { sequence: *sequence, low_water, attempt: *attempt, message };
            let frame = entry.encode();
            bytes += frame.len();
            (*sequence, frame)
        };
        let entries: Vec<_> = work.appends.iter().flat_map(|append| &append.entries).map(frame).collect();
        let count = entries.len();
        if count > 0 || !work.changes.is_empty() {
            let batch = Batch { entries, changes: Some(&work.changes), next: work.next };
            if let Err(error) = store.write(&batch) {
                self.failed_bytes = self.failed_bytes.max(bytes);
                self.give_back(work, &error);
                self.tell_trouble("write", &error);
                return Err(());
            }
        }
        let loaded = store.load(&work.loads);
        let mut desk = self.shared.desk.lock();
        let was_shut = desk.ledger.room().is_none();
        desk.ledger.handle_changed(&work.changes);
        for append in &work.appends {
            desk.ledger.handle_written(append.entries.iter().map(|(sequence, ..)| *sequence));
        }
        let mut unreadable = 0;
        let result = match loaded {
            Ok(loaded) => {
                for (sequence, entry) in work.loads.iter().zip(loaded) {
                    let message = entry.map(|entry| entry.message);
                    unreadable += usize::from(!desk.ledger.handle_loaded(*sequence, message));
                }
                Ok(())
            }
            Err(error) => {
                desk.ledger.handle_not_loaded(std::mem::take(&mut work.loads));
                Err(error)
            }
        };
        let (records, bytes_kept) = (desk.ledger.records(), desk.ledger.bytes());
        drop(desk);
        for waiter in work.waiting {
            // Whoever asked may have gone.
            let _ = waiter.send(Ok(()));
        }
        for append in work.appends {
            append.done.send_replace(Some(Ok(())));
        }
        if was_shut || count > 0 || !work.loads.is_empty() {
            self.shared.changed.notify_waiters();
        }
        let name = || Arc::clone(&self.shared.settings.name);
        if count > 0 {
            self.shared.telemetry.emit(events::Written { name: name(), records: count, bytes });
        }
        if unreadable > 0 {
            self.shared.telemetry.emit(events::Unreadable { name: name(), records: unreadable });
        }
        self.tell_amount(records, bytes_kept);
        result.map_err(|error| self.tell_trouble("read", &error))
    }

    /// Puts work back that could not be done; who waits for a removal is told.
    fn give_back(&self, work: Work, error: &StoreError) {
        let reason: Arc<str> = self.describe("write", error);
        let mut desk = self.shared.desk.lock();
        desk.ledger.handle_not_changed(work.changes);
        desk.ledger.handle_not_loaded(work.loads);
        desk.appends.splice(0..0, work.appends);
        drop(desk);
        for waiter in work.waiting {
            let _ = waiter.send(Err(Unwritten(Arc::clone(&reason))));
        }
    }

    /// Waits before the store is tried again; false when it is not to be.
    fn wait(&mut self) -> bool {
        let wait = self.backoff.next_wait();
        let until = self.shared.clock.now() + wait;
        let mut desk = self.shared.desk.lock();
        loop {
            self.give_up_late(&mut desk);
            if desk.is_closing {
                return false;
            }
            let reason = desk.trouble.clone().unwrap_or_else(|| "the spool is in trouble".into());
            for waiter in std::mem::take(&mut desk.waiting) {
                let _ = waiter.send(Err(Unwritten(Arc::clone(&reason))));
            }
            let left = until.saturating_since(self.shared.clock.now());
            if left.is_zero() {
                return true;
            }
            self.shared.work.wait_for(&mut desk, left);
        }
    }

    /// Lets go of what its broker does not keep any longer: it comes again from there.
    fn give_up_late(&self, desk: &mut MutexGuard<'_, Desk>) {
        let now = self.shared.clock.now();
        let late: Vec<_> = desk.appends.extract_if(.., |append| append.kept_until <= now).collect();
        for append in late {
            desk.ledger.handle_given_up(append.entries.iter().map(|(sequence, ..)| *sequence));
            append.done.send_replace(Some(Err(NotWritten::TooLate)));
        }
    }

    fn describe(&self, action: &str, error: &StoreError) -> Arc<str> {
        format!("cannot {action} the spool `{}`: {error}", self.path.display()).into()
    }

    fn tell_trouble(&self, action: &str, error: &StoreError) {
        let detail = self.describe(action, error);
        let mut desk = self.shared.desk.lock();
        let before = desk.trouble.replace(Arc::clone(&detail));
        drop(desk);
        // The same again is no news.
        if before.as_ref() != Some(&detail) {
            let name = Arc::clone(&self.shared.settings.name);
            self.shared.telemetry.emit(events::TroubleBegan { name, detail, is_new: before.is_none() });
        }
    }

    fn tell_amount(&self, records: usize, bytes: u64) {
        let name = Arc::clone(&self.shared.settings.name);
        self.shared.telemetry.emit(events::Amount { name, records, bytes });
    }
}

impl Desk {
    fn has_work(&self) -> bool {
        !self.appends.is_empty()
            || !self.loads.is_empty()
            || !self.waiting.is_empty()
            || self.ledger.has_changes()
    }

    fn take_work(&mut self) -> Work {
        Work {
            appends: std::mem::take(&mut self.appends),
            loads: std::mem::take(&mut self.loads),
            changes: self.ledger.take_changes(),
            waiting: std::mem::take(&mut self.waiting),
            low_water: self.ledger.low_water(),
            next: self.ledger.next(),
        }
    }
}
