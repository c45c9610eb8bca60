//! What all proxies share: the brokers, the catalog, the clock, the faults.

mod catalog;
mod cell;
mod proxy;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(crate) use self::catalog::Catalog;
pub(crate) use self::cell::{Availability, Cell, Waiting};
pub(crate) use self::proxy::{Proxy, Settling};

use crate::auth::Users;
use crate::clock::Clock;
use crate::faults::Faults;
use crate::journal::{Journal, Stats};
use crate::options::{Options, Profile, Topology};
use crate::store::{Audit, StoreOptions};

/// The shared state of a running broker.
#[derive(Debug)]
pub(crate) struct Hub {
    pub(crate) clock: Clock,
    pub(crate) catalog: Catalog,
    pub(crate) cells: Vec<Cell>,
    pub(crate) proxies: Vec<Proxy>,
    pub(crate) faults: Faults,
    pub(crate) journal: Journal,
    pub(crate) users: Users,
    pub(crate) profile: Profile,
    pub(crate) topology: Topology,
    /// Messages sent that may go to any broker.
    turns: AtomicUsize,
    pub(crate) stopping: CancellationToken,
    pub(crate) tasks: TaskTracker,
}

impl Hub {
    pub(crate) fn new(options: &Options) -> Self {
        let count = 1 + options.more_listeners.len();
        let cells: Vec<Cell> = (0..count)
            .map(|index| {
                Cell::new(StoreOptions {
                    broker: broker_name(index),
                    timing: options.timing,
                    retention: options.retention,
                    audited_messages_max: options.audited_messages_max,
                    seed: options.seed.wrapping_add(index as u64),
                })
            })
            .collect();
        let hub = Self {
            clock: Clock::start(),
            catalog: Catalog::default(),
            cells,
            proxies: (0..count).map(|_| Proxy::default()).collect(),
            faults: Faults::default(),
            journal: Journal::new(options.journal_max),
            users: Users::new(options.users.clone()),
            profile: options.profile,
            topology: options.topology,
            turns: AtomicUsize::new(0),
            stopping: CancellationToken::new(),
            tasks: TaskTracker::new(),
        };
        for topic in &options.topics {
            hub.create_topic(topic);
        }
        for group in &options.groups {
            hub.catalog.create_group(group.clone());
        }
        hub
    }

    pub(crate) fn create_topic(&self, topic: &crate::options::Topic) {
        self.catalog.create_topic(topic.clone());
        for cell in &self.cells {
            cell.run(&self.clock, |store, _| store.create_topic(topic));
        }
    }

    /// The broker a proxy reaches by name. Without a name it is the proxy's own.
    pub(crate) fn cell_named(&self, proxy: usize, broker: &str) -> Option<&Cell> {
        let at = self.cells.iter().position(|cell| **cell.name() == *broker)?;
        (self.topology == Topology::Cluster || at == proxy).then(|| &self.cells[at])
    }

    /// The brokers a proxy reaches.
    pub(crate) fn cells_of(&self, proxy: usize) -> impl Iterator<Item = &Cell> {
        let local = self.topology == Topology::Local;
        self.cells.iter().enumerate().filter(move |(at, _)| !local || *at == proxy).map(|(_, cell)| cell)
    }

    /// Where a proxy puts a message: in its own broker, or, where it reaches all of them, in one that it routes to.
    /// `sticky` names what must stay together, such as a lite topic; other messages go round.
    pub(crate) fn cell_for(&self, proxy: usize, sticky: Option<&str>) -> &Cell {
        let now = self.clock.now();
        let routed: Vec<&Cell> =
            self.cells_of(proxy).filter(|cell| cell.availability(now) != Availability::Unknown).collect();
        let turn = match sticky {
            Some(name) => stable_hash(name),
            None => self.turns.fetch_add(1, Ordering::Relaxed),
        };
        // While it routes to none of them, any one says so.
        routed.get(turn % routed.len().max(1)).copied().unwrap_or(&self.cells[proxy])
    }

    /// Ends a client's lite registrations at every broker the proxy reaches.
    pub(crate) fn unregister(&self, proxy: usize, group: &str, client: &str) {
        let Some(group) = self.catalog.group(group) else { return };
        let Some(topic) = &group.lite_bind_topic else { return };
        for cell in self.cells_of(proxy) {
            cell.run(&self.clock, |store, now| store.unregister(now, topic, &group.name, client));
        }
    }

    pub(crate) fn audit(&self) -> Audit {
        let mut all = Audit::default();
        for cell in &self.cells {
            all.extend(cell.run(&self.clock, |store, _| store.audit()));
        }
        all
    }

    pub(crate) fn stats(&self) -> Stats {
        let mut stats = Stats { requests: self.journal.counts(), ..Stats::default() };
        for proxy in &self.proxies {
            stats.receives_in_flight += proxy.receives_in_flight();
            stats.settings.extend(proxy.settled_clients());
        }
        for cell in &self.cells {
            let (messages, bytes) = cell.run(&self.clock, |store, _| store.held());
            stats.messages_held += messages;
            stats.bytes_held += bytes;
        }
        stats
    }

    /// Keeps one broker's timeouts until the broker stops.
    pub(crate) async fn keep_time(self: Arc<Self>, at: usize) {
        let cell = &self.cells[at];
        loop {
            let mut advances = self.clock.advances();
            let due = cell.next_timeout();
            let sleep = async {
                match due {
                    Some(due) => tokio::time::sleep_until(self.clock.deadline(due)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.stopping.cancelled() => return,
                () = cell.timeout_changed() => continue,
                _ = advances.changed() => {}
                () = sleep => {}
            }
            cell.run(&self.clock, |store, now| store.handle_timeout(now));
        }
    }

    /// Kills a broker and starts it again after `down`; for `unknown` after that its topics and groups are not found.
    pub(crate) fn restart_broker(&self, at: usize, down: Duration, unknown: Duration) {
        if let Some(cell) = self.cells.get(at) {
            cell.restart(&self.clock, down, unknown);
        }
    }
}

/// FNV-1a: the same at every run.
fn stable_hash(text: &str) -> usize {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325, step);
    // The upper half is the better mixed one.
    usize::try_from(hash >> 33).unwrap_or(0)
}

/// `broker-a`, `broker-b`, …; past the alphabet numbers.
fn broker_name(index: usize) -> Arc<str> {
    match u8::try_from(index).ok().filter(|index| *index < 26) {
        Some(index) => Arc::from(format!("broker-{}", char::from(b'a' + index))),
        None => Arc::from(format!("broker-{index}")),
    }
}
