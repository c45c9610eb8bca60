//! The spool as its users see it, and the thread that owns the file.

mod keeper;
mod place;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tidegate_connector::Clock;
use tidegate_model::{
    Capacity, Delivery, Handle, Instant, Message, MessageId, Routing, SettleError, SettleFault, Settlement,
    Verb,
};
use tidegate_telemetry::Telemetry;
use tidegate_telemetry::events::spool as events;
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, oneshot, watch};

use self::keeper::{Append, Keeper};
pub use self::place::PlaceError;
use crate::entry::Sequence;
use crate::handle::SpoolHandle;
use crate::ledger::{Admission, Effect, HandOut, Ledger, Limits};

/// What a spool is made of.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Whose it is: the file's name, and what events call it.
    pub name: Arc<str>,
    /// Where the file is; made when absent.
    pub directory: PathBuf,
    /// How much may be in it. What is admitted at once may go over.
    pub limits: Limits,
    /// How long a hand-out lasts. What is not settled within it is handed out again.
    pub lease: Duration,
    /// What handles say about where they can be settled.
    pub routing: Arc<Routing>,
    /// Tells handles of this life from those of others.
    pub life: u64,
}

/// A durable store of deliveries. Dropped without [`close`](Self::close), its thread ends when it is done with what it does.
pub struct Spool {
    shared: Arc<Shared>,
    thread: Mutex<Option<std::thread::JoinHandle<()>>>,
}

/// A message that wants in.
#[derive(Clone, Debug)]
pub struct Arrived {
    /// It.
    pub message: Arc<Message>,
    /// How often the broker handed it out, this time included.
    pub attempt: u32,
}

/// What became of messages that wanted in.
#[derive(Debug)]
pub struct Admitted {
    /// One for each, in their order.
    pub places: Vec<Place>,
    /// When the new ones are durable.
    pub written: Written,
}

/// What became of one of them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Place {
    /// It is being written.
    New,
    /// It is durable, or was settled already: its broker can be told that it is done.
    Known,
    /// The same message came before and is being written: nothing may be told about this one.
    Pending,
}

/// The moment in which messages become durable.
#[derive(Clone, Debug)]
pub struct Written(watch::Receiver<Option<Result<(), NotWritten>>>);

/// Messages are not in the spool: their broker has to keep them.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum NotWritten {
    /// The store could not be written before their lease at the broker ended.
    #[error("the spool could not be written in time")]
    TooLate,
    /// The spool was closed first.
    #[error("the spool is closed")]
    Closed,
}

/// What the thread and the users share.
struct Shared {
    settings: Settings,
    clock: Clock,
    telemetry: Telemetry,
    desk: Mutex<Desk>,
    /// There is something for the thread to do.
    work: Condvar,
    /// Something is ready, or may be received again.
    changed: Notify,
}

/// What there is to do.
struct Desk {
    ledger: Ledger,
    /// One for each receive that is under way.
    appends: Vec<Append>,
    /// What is to be read, no more than was asked for.
    loads: Vec<Sequence>,
    /// Who waits until the changes are written: settlements that are under way.
    waiting: Vec<oneshot::Sender<Result<(), Unwritten>>>,
    /// Why the store cannot be used now.
    trouble: Option<Arc<str>>,
    is_open: bool,
    is_closing: bool,
}

/// A removal is not durable.
#[derive(Clone, Debug)]
struct Unwritten(Arc<str>);

impl Spool {
    /// Begins to open the store. One that cannot be opened or written is tried for ever; [`status`](Self::status) tells.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(settings: Settings, clock: Clock, telemetry: Telemetry) -> std::io::Result<Self> {
        let desk = Desk {
            ledger: Ledger::new(settings.limits, settings.lease),
            appends: Vec::new(),
            loads: Vec::new(),
            waiting: Vec::new(),
            trouble: None,
            is_open: false,
            is_closing: false,
        };
        let shared = Arc::new(Shared {
            settings,
            clock,
            telemetry,
            desk: Mutex::new(desk),
            work: Condvar::new(),
            changed: Notify::new(),
        });
        let keeper = Keeper::new(Arc::clone(&shared));
        let thread = std::thread::Builder::new().name("spool".to_owned()).spawn(move || keeper.run())?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Lets messages in that their broker keeps until `kept_until`. What is new is on its way to the disk from here on, also
    /// when nobody waits for it; it is given up when it cannot be written by then.
    pub fn admit(&self, arrived: Vec<Arrived>, kept_until: Instant) -> Admitted {
        let shared = &*self.shared;
        let (done, written) = watch::channel(None);
        let (mut places, mut known) = (Vec::with_capacity(arrived.len()), 0_u64);
        let mut desk = shared.desk.lock();
        let mut entries = Vec::new();
        for Arrived { message, attempt } in arrived {
            places.push(match desk.ledger.admit(&message, attempt) {
                Admission::New(sequence) => {
                    entries.push((sequence, attempt, message));
                    Place::New
                }
                Admission::Known => {
                    known += 1;
                    Place::Known
                }
                Admission::Pending => Place::Pending,
            });
        }
        if entries.is_empty() {
            done.send_replace(Some(Ok(())));
        } else if desk.is_closing {
            desk.ledger.handle_given_up(entries.into_iter().map(|(sequence, ..)| sequence));
            done.send_replace(Some(Err(NotWritten::Closed)));
        } else {
            desk.appends.push(Append { entries, kept_until, done });
            shared.work.notify_one();
        }
        drop(desk);
        if known > 0 {
            let name = Arc::clone(&shared.settings.name);
            shared.telemetry.emit(events::Recognized { name, records: known });
        }
        Admitted { places, written: Written(written) }
    }

    /// The broker has confirmed that it will not hand these out again.
    pub fn confirm<'a>(&self, ids: impl IntoIterator<Item = &'a MessageId>) {
        let mut desk = self.shared.desk.lock();
        ids.into_iter().for_each(|id| desk.ledger.confirm(id));
    }

    /// Hands out what is ready, those that came first first, at most so much, but one at least. What has to be read from the
    /// disk first is, and [`changed`](Self::changed) tells when it is there.
    pub fn take(&self, capacity: Capacity) -> Vec<Delivery> {
        let Shared { settings, clock, desk, work, .. } = &*self.shared;
        let now = clock.now();
        let mut desk = desk.lock();
        desk.ledger.tick(now);
        let taken = desk.ledger.take(now, capacity);
        if taken.is_empty() {
            let loads = desk.ledger.poll_load(capacity);
            desk.loads.extend(loads);
        }
        if !desk.loads.is_empty() || desk.ledger.has_changes() {
            work.notify_one();
        }
        drop(desk);
        let delivery = |hand_out: HandOut| {
            let HandOut { sequence, hand_out, message, attempt, expires_at } = hand_out;
            let text = SpoolHandle { life: settings.life, sequence, hand_out }.encode();
            Delivery {
                message,
                order: None,
                attempt,
                received_at: now,
                lease: settings.lease,
                expires_at,
                handle: Handle { routing: Arc::clone(&settings.routing), text: text.into() },
            }
        };
        taken.into_iter().map(delivery).collect()
    }

    /// Resolves when something is ready or deferred that was not, or may be received again. To miss nothing it is made before it is
    /// looked.
    pub fn changed(&self) -> Notified<'_> {
        self.shared.changed.notified()
    }

    /// When something is due next that is in the spool.
    pub fn due_at(&self) -> Option<Instant> {
        self.shared.desk.lock().ledger.poll_timeout()
    }

    /// How much may be received now; `None` while nothing may: the store is being opened or in trouble, what an earlier life
    /// left is not handed out yet, or the spool is full.
    pub fn room(&self) -> Option<Capacity> {
        let desk = self.shared.desk.lock();
        if desk.is_open && desk.trouble.is_none() && !desk.is_closing { desk.ledger.room() } else { None }
    }

    /// Settles hand-outs of this spool; one result for each, in their order. What is accepted or rejected is never handed out
    /// again by this process; the answer comes when it is durable that no other one does.
    pub async fn settle(&self, batch: &[Settlement]) -> Vec<Result<Option<Handle>, SettleError>> {
        let (now, wall) = (self.shared.clock.now(), self.shared.clock.wall());
        let mut removed = Vec::new();
        let mut written = None;
        let mut results: Vec<_> = {
            let mut desk = self.shared.desk.lock();
            let results = batch
                .iter()
                .enumerate()
                .map(|(at, settlement)| {
                    let hand_out = self.open(settlement)?;
                    match desk.ledger.settle(now, wall, hand_out, &settlement.verb, &settlement.message) {
                        Effect::Gone => Err(gone(settlement)),
                        Effect::Keeps => Ok(None),
                        Effect::Removes => {
                            removed.push(at);
                            Ok(None)
                        }
                    }
                })
                .collect();
            if !removed.is_empty() {
                let (sender, receiver) = oneshot::channel();
                if desk.is_closing {
                    let _ = sender.send(Err(Unwritten("the spool is closed".into())));
                } else {
                    desk.waiting.push(sender);
                }
                written = Some(receiver);
            }
            results
        };
        self.shared.work.notify_one();
        if batch.iter().any(|settlement| matches!(settlement.verb, Verb::Release | Verb::Defer(_))) {
            self.shared.changed.notify_waiters();
        }
        if let Some(written) = written {
            let written = written.await.unwrap_or_else(|_| Err(Unwritten("the spool is closed".into())));
            if let Err(Unwritten(reason)) = written {
                for at in removed {
                    results[at] = Err(unwritten(&batch[at], &reason));
                }
            }
        }
        results
    }

    /// Which hand-out a handle names, if it is one of this life.
    fn open(&self, settlement: &Settlement) -> Result<(Sequence, u32), SettleError> {
        match SpoolHandle::parse(&settlement.handle.text) {
            None => Err(SettleError {
                verb: settlement.verb.name(),
                detail: "this is no handle of a spool".into(),
                fault: SettleFault::Refused,
            }),
            Some(handle) if handle.life != self.shared.settings.life => Err(gone(settlement)),
            Some(handle) => Ok((handle.sequence, handle.hand_out)),
        }
    }

    /// What is in the way of receiving, in one sentence.
    pub fn status(&self) -> Option<String> {
        let desk = self.shared.desk.lock();
        if let Some(trouble) = &desk.trouble {
            return Some(format!(
                "{trouble}; nothing is received until it can be used, and what is in it is kept"
            ));
        }
        if !desk.is_open {
            return Some("the spool is being opened".to_owned());
        }
        desk.ledger.is_full().then(|| {
            let (records, bytes) = (desk.ledger.records(), desk.ledger.bytes());
            format!("the spool is full, with {records} records of {bytes} bytes: nothing is received until some are settled")
        })
    }

    /// Whether the store can be used.
    pub fn is_well(&self) -> bool {
        let desk = self.shared.desk.lock();
        desk.is_open && desk.trouble.is_none()
    }

    /// Writes what is to be written, and lets go of the file.
    pub async fn close(&self) {
        self.shared.begin_closing();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            // It panics only with a bug, which is told where it happened.
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
    }
}

impl Written {
    /// Resolves when they are durable.
    ///
    /// # Errors
    /// When they will not be.
    pub async fn durable(&mut self) -> Result<(), NotWritten> {
        match self.0.wait_for(Option::is_some).await {
            Ok(written) => written.unwrap_or(Ok(())),
            Err(_) => Err(NotWritten::Closed),
        }
    }
}

impl Shared {
    fn begin_closing(&self) {
        self.desk.lock().is_closing = true;
        self.work.notify_one();
        self.changed.notify_waiters();
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        self.shared.begin_closing();
    }
}

fn gone(settlement: &Settlement) -> SettleError {
    SettleError {
        verb: settlement.verb.name(),
        detail: "the record was settled before, or is handed out again since".into(),
        fault: SettleFault::LeaseGone,
    }
}

fn unwritten(settlement: &Settlement, reason: &str) -> SettleError {
    let detail = format!(
        "{reason}; this process does not hand the record out again, but another one does if this one ends before the spool \
         can be written"
    );
    SettleError { verb: settlement.verb.name(), detail: detail.into(), fault: SettleFault::Broker }
}

impl fmt::Debug for Spool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spool").field("name", &self.shared.settings.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
