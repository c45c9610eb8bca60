//! One proxy: where it listens and what clients told it about themselves. A restart forgets the latter.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tidegate_proto::rocketmq as wire;
use tokio::sync::{mpsc, watch};

use crate::journal::SettledClient;

/// The memory of a proxy.
#[derive(Debug)]
pub(crate) struct Proxy {
    address: Mutex<SocketAddr>,
    clients: Mutex<HashMap<Arc<str>, Settled>>,
    receives: AtomicUsize,
    streams: AtomicUsize,
    frozen: watch::Sender<bool>,
}

/// What a client settled.
#[derive(Clone, Debug)]
pub(crate) struct Settled {
    pub(crate) client_type: i32,
    pub(crate) group: String,
    pub(crate) topics: Vec<String>,
    /// The telemetry stream it came over.
    stream: usize,
    /// To send the client a command over that stream. Weak, so that the stream can end.
    commands: mpsc::WeakSender<Result<wire::TelemetryCommand, tonic::Status>>,
}

/// What a client wants to settle.
#[derive(Debug)]
pub(crate) struct Settling {
    pub(crate) client_type: i32,
    pub(crate) group: String,
    pub(crate) topics: Vec<String>,
}

/// Counts a receive as long as it lives.
pub(crate) struct Receiving<'a>(&'a AtomicUsize);

/// Clients a proxy remembers.
const CLIENTS_MAX: usize = 100_000;

impl Default for Proxy {
    fn default() -> Self {
        Self {
            address: Mutex::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))),
            clients: Mutex::default(),
            receives: AtomicUsize::new(0),
            streams: AtomicUsize::new(0),
            frozen: watch::Sender::new(false),
        }
    }
}

impl Proxy {
    pub(crate) fn address(&self) -> SocketAddr {
        *self.address.lock()
    }

    pub(crate) fn set_address(&self, address: SocketAddr) {
        *self.address.lock() = address;
    }

    /// Stops answering, or goes on.
    pub(crate) fn set_frozen(&self, frozen: bool) {
        self.frozen.send_replace(frozen);
    }

    /// Waits as long as it is frozen.
    pub(crate) async fn thawed(&self) {
        // An error would mean that we are gone.
        let _ = self.frozen.subscribe().wait_for(|frozen| !frozen).await;
    }

    /// A number for a new telemetry stream.
    pub(crate) fn next_stream(&self) -> usize {
        self.streams.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Remembers a client. Says whether there was room.
    pub(crate) fn settle(
        &self,
        client: &Arc<str>,
        settling: Settling,
        stream: usize,
        commands: &mpsc::Sender<Result<wire::TelemetryCommand, tonic::Status>>,
    ) -> bool {
        let mut clients = self.clients.lock();
        if clients.len() >= CLIENTS_MAX && !clients.contains_key(client) {
            return false;
        }
        let Settling { client_type, group, topics } = settling;
        let settled = Settled { client_type, group, topics, stream, commands: commands.downgrade() };
        clients.insert(Arc::clone(client), settled);
        true
    }

    pub(crate) fn settled(&self, client: &str) -> Option<Settled> {
        self.clients.lock().get(client).cloned()
    }

    pub(crate) fn forget_client(&self, client: &str) -> Option<Settled> {
        self.clients.lock().remove(client)
    }

    /// The client of a stream that ended, unless it has opened another one since.
    pub(crate) fn ended_stream(&self, client: &str, stream: usize) -> Option<Settled> {
        self.clients.lock().get(client).filter(|settled| settled.stream == stream).cloned()
    }

    pub(crate) fn forget_clients(&self) {
        self.clients.lock().clear();
    }

    pub(crate) fn receiving(&self) -> Receiving<'_> {
        self.receives.fetch_add(1, Ordering::Relaxed);
        Receiving(&self.receives)
    }

    pub(crate) fn receives_in_flight(&self) -> usize {
        self.receives.load(Ordering::Relaxed)
    }

    pub(crate) fn settled_clients(&self) -> Vec<(String, SettledClient)> {
        let clients = self.clients.lock();
        let told = |settled: &Settled| SettledClient {
            client_type: settled.client_type,
            group: settled.group.clone(),
            topics: settled.topics.clone(),
        };
        clients.iter().map(|(client, settled)| (client.to_string(), told(settled))).collect()
    }
}

impl Settled {
    /// Sends a command; a client that does not read its stream does not get it.
    pub(crate) fn command(&self, command: wire::TelemetryCommand) -> bool {
        self.commands.upgrade().is_some_and(|commands| commands.try_send(Ok(command)).is_ok())
    }
}

impl Drop for Receiving<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
