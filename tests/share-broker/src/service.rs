//! The cluster behind sockets: a listener for each node, and one task that answers what waits.

mod connection;

use std::collections::{BTreeMap, HashMap};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::cluster::{Answer, Cluster, ConnectionId};
use crate::options::Options;

/// Connections the system keeps for a listener.
const LISTEN_BACKLOG: u32 = 1_024;

/// Answers that wait to be written to one connection: a client has one request in flight, and a fault may answer twice.
const ANSWERS_MAX: usize = 64;

/// How often a stopped node's listener is tried again while its port is not free.
const REBIND_PAUSE: Duration = Duration::from_millis(20);

/// A running broker. [`Service::stop`] ends it and waits for all its tasks; dropping it only asks them to end.
#[derive(Debug)]
pub struct Service {
    shared: Arc<Shared>,
    addresses: BTreeMap<i32, SocketAddr>,
}

/// Why a broker did not start.
#[derive(Debug, thiserror::Error)]
#[error("the share broker cannot listen on a port of its own")]
pub struct StartError(#[source] std::io::Error);

#[derive(Debug)]
struct Shared {
    cluster: Mutex<Cluster>,
    origin: Instant,
    /// Somebody changed what is due next.
    changed: Notify,
    /// When the answering task will look by itself.
    armed: Mutex<Option<Duration>>,
    /// A node was stopped or started.
    nodes: Notify,
    writers: Mutex<HashMap<ConnectionId, mpsc::Sender<Answer>>>,
    stopping: CancellationToken,
    tasks: TaskTracker,
}

impl Service {
    /// Starts a cluster, each node at a port of its own on 127.0.0.1.
    ///
    /// # Errors
    /// There is no port to be had; nothing is left running then.
    pub async fn start(options: Options) -> Result<Self, StartError> {
        Self::serve(Cluster::new(options)).await
    }

    /// Serves a cluster that was prepared.
    ///
    /// # Errors
    /// There is no port to be had; nothing is left running then.
    pub async fn serve(mut cluster: Cluster) -> Result<Self, StartError> {
        let mut listeners = Vec::new();
        let mut addresses = BTreeMap::new();
        for node in cluster.nodes().collect::<Vec<i32>>() {
            let listener = listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).map_err(StartError)?;
            let address = listener.local_addr().map_err(StartError)?;
            cluster.set_endpoint(node, "127.0.0.1", address.port());
            addresses.insert(node, address);
            listeners.push((node, listener, address));
        }
        let shared = Arc::new(Shared {
            cluster: Mutex::new(cluster),
            origin: Instant::now(),
            changed: Notify::new(),
            armed: Mutex::new(None),
            nodes: Notify::new(),
            writers: Mutex::new(HashMap::new()),
            stopping: CancellationToken::new(),
            tasks: TaskTracker::new(),
        });
        for (node, listener, address) in listeners {
            shared.tasks.spawn(run_node(Arc::clone(&shared), node, listener, address));
        }
        shared.tasks.spawn(answer_waiting(Arc::clone(&shared)));
        shared.tasks.close();
        Ok(Self { shared, addresses })
    }

    /// Where a node listens.
    #[must_use]
    pub fn address(&self, node: i32) -> Option<SocketAddr> {
        self.addresses.get(&node).copied()
    }

    /// Where all nodes listen.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.addresses.values().copied().collect()
    }

    /// The nodes as clients are given them: `host:port,host:port`.
    #[must_use]
    pub fn bootstrap_servers(&self) -> String {
        let servers: Vec<String> = self.addresses.values().map(ToString::to_string).collect();
        servers.join(",")
    }

    /// Looks at the cluster, or does something to it, at the time it is; what waits for that is answered.
    pub fn with<T>(&self, act: impl FnOnce(&mut Cluster, Duration) -> T) -> T {
        let done = act(&mut self.shared.cluster.lock(), self.shared.now());
        self.shared.changed.notify_one();
        self.shared.nodes.notify_waiters();
        done
    }

    /// Stops listening, drops every connection and waits for all tasks.
    pub async fn stop(self) {
        self.shared.stopping.cancel();
        self.shared.tasks.wait().await;
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.shared.stopping.cancel();
    }
}

impl Shared {
    fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    /// Tells the answering task, if something is due before it would look.
    fn rearm(&self, cluster: &Cluster) {
        let due = cluster.poll_timeout();
        let armed = *self.armed.lock();
        if due.is_some_and(|due| armed.is_none_or(|armed| due < armed)) {
            self.changed.notify_one();
        }
    }

    fn deliver(&self, answers: Vec<(ConnectionId, Answer)>) {
        let writers = self.writers.lock();
        for (connection, answer) in answers {
            // A client that reads nothing any more loses answers; its connection will find out by itself.
            if let Some(writer) = writers.get(&connection)
                && writer.try_send(answer).is_err()
            {
                tracing::debug!(?connection, "an answer of the share broker found no reader");
            }
        }
    }
}

fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    // A stopped node comes back to its port at once.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(LISTEN_BACKLOG)
}

/// Answers fetches that waited, and everything else that is due at some time.
async fn answer_waiting(shared: Arc<Shared>) {
    loop {
        let (answers, due) = {
            let mut cluster = shared.cluster.lock();
            let answers = cluster.poll_answers(shared.now());
            let due = cluster.poll_timeout();
            *shared.armed.lock() = due;
            (answers, due)
        };
        shared.deliver(answers);
        let sleep = async {
            match due {
                Some(due) => tokio::time::sleep_until(shared.origin + due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = sleep => {}
            () = shared.changed.notified() => {}
            () = shared.stopping.cancelled() => return,
        }
    }
}

/// Serves a node's port while the node is up.
async fn run_node(shared: Arc<Shared>, node: i32, first: TcpListener, address: SocketAddr) {
    let mut listener = Some(first);
    loop {
        let changed = shared.nodes.notified();
        let up = shared.cluster.lock().is_up(node);
        if !up {
            listener = None;
        } else if listener.is_none() {
            listener = listen(address).ok();
            if listener.is_none() {
                tokio::time::sleep(REBIND_PAUSE).await;
                continue;
            }
        }
        let accepted = async {
            match &listener {
                Some(listener) => listener.accept().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            accepted = accepted => match accepted {
                Ok((stream, _)) => {
                    shared.tasks.spawn(connection::run(Arc::clone(&shared), node, stream));
                }
                // Most often too many open files: without a pause this loop would spin.
                Err(_) => tokio::time::sleep(REBIND_PAUSE).await,
            },
            () = changed => {}
            () = shared.stopping.cancelled() => return,
        }
    }
}

#[cfg(test)]
mod tests;
