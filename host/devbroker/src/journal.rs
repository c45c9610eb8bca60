//! What clients asked for: counts for ever, the last requests in full.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::faults::Method;

/// One request as it came in.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    /// When, on the broker's monotonic clock.
    pub at: Duration,
    /// From whom.
    pub client: Arc<str>,
    /// Through which proxy, counted from 0.
    pub proxy: usize,
    /// What.
    pub call: Call,
}

/// The parts of a request that clients get wrong.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "the fields are the protocol's own, named alike")]
pub enum Call {
    QueryRoute {
        topic: String,
    },
    QueryAssignment {
        topic: String,
        group: String,
    },
    Heartbeat {
        client_type: i32,
        group: String,
    },
    SendMessage {
        topic: String,
        message_ids: Vec<String>,
    },
    ReceiveMessage {
        group: String,
        batch_size: i32,
        invisible: Option<Duration>,
        polling: Option<Duration>,
        auto_renew: bool,
    },
    AckMessage {
        group: String,
        entries: Vec<AckEntry>,
    },
    ForwardToDeadLetter {
        group: String,
        handle: String,
        lite_topic: Option<String>,
    },
    Settings {
        client_type: i32,
        group: String,
        topics: Vec<String>,
    },
    Terminate {
        group: String,
    },
    ChangeInvisible {
        group: String,
        handle: String,
        invisible: Option<Duration>,
        lite_topic: Option<String>,
        suspend: Option<bool>,
    },
    Recall {
        topic: String,
    },
    SyncLite {
        group: String,
        topic: String,
        action: i32,
        lite_topics: Vec<String>,
    },
}

/// One entry of an ack.
#[derive(Clone, Debug, Eq, PartialEq)]
#[allow(missing_docs, reason = "the fields are the protocol's own, named alike")]
pub struct AckEntry {
    pub message_id: String,
    pub handle: String,
    pub lite_topic: Option<String>,
}

/// What the broker was asked so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// Requests by method and client id.
    pub requests: BTreeMap<Method, BTreeMap<String, u64>>,
    /// Receives that wait for messages now.
    pub receives_in_flight: usize,
    /// The last client type and group each client settled, by client id.
    pub settings: BTreeMap<String, SettledClient>,
    /// Messages held by all brokers.
    pub messages_held: u64,
    /// Bytes held by all brokers.
    pub bytes_held: u64,
}

/// What a client said about itself in its last accepted Settings.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SettledClient {
    /// The protocol's client type.
    pub client_type: i32,
    /// Its group; empty for a producer.
    pub group: String,
    /// The topics it named.
    pub topics: Vec<String>,
}

impl Stats {
    /// Requests of one method, all clients together.
    #[must_use]
    pub fn count(&self, method: Method) -> u64 {
        self.requests.get(&method).map_or(0, |clients| clients.values().sum())
    }
}

/// Counts and keeps requests.
#[derive(Debug)]
pub(crate) struct Journal {
    inner: Mutex<Inner>,
    seen_max: usize,
}

#[derive(Debug, Default)]
struct Inner {
    counts: HashMap<Method, HashMap<Arc<str>, u64>>,
    seen: VecDeque<Seen>,
}

/// Client ids counted apart; the rest are counted under one name, so that the table stays bounded.
const CLIENTS_MAX: usize = 10_000;

impl Journal {
    pub(crate) fn new(seen_max: usize) -> Self {
        Self { inner: Mutex::default(), seen_max }
    }

    pub(crate) fn count(&self, method: Method, client: &Arc<str>) {
        let mut inner = self.inner.lock();
        let clients = inner.counts.entry(method).or_default();
        if let Some(count) = clients.get_mut(client) {
            *count += 1;
        } else {
            let name = if clients.len() < CLIENTS_MAX { Arc::clone(client) } else { Arc::from("(others)") };
            *clients.entry(name).or_default() += 1;
        }
    }

    /// Keeps a request; `call` is only made when requests are kept at all.
    pub(crate) fn keep(&self, at: Duration, client: &Arc<str>, proxy: usize, call: impl FnOnce() -> Call) {
        if self.seen_max == 0 {
            return;
        }
        let seen = Seen { at, client: Arc::clone(client), proxy, call: call() };
        let mut inner = self.inner.lock();
        if inner.seen.len() >= self.seen_max {
            inner.seen.pop_front();
        }
        inner.seen.push_back(seen);
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.inner.lock().seen.iter().cloned().collect()
    }

    pub(crate) fn clear(&self) {
        *self.inner.lock() = Inner::default();
    }

    pub(crate) fn counts(&self) -> BTreeMap<Method, BTreeMap<String, u64>> {
        let inner = self.inner.lock();
        let clients = |clients: &HashMap<Arc<str>, u64>| {
            clients.iter().map(|(client, count)| (client.to_string(), *count)).collect()
        };
        inner.counts.iter().map(|(method, counts)| (*method, clients(counts))).collect()
    }
}
