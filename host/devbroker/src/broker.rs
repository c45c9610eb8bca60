//! A running broker.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{mpsc, oneshot};
use tokio_rustls::TlsAcceptor;

use crate::control::Control;
use crate::hub::Hub;
use crate::listener::{self, TlsError};
use crate::options::Options;

/// Connections the system keeps for a listener.
const LISTEN_BACKLOG: u32 = 1_024;

/// How long a restarted proxy tries to get its port back.
const REBIND_TIMEOUT: Duration = Duration::from_secs(10);

/// A running broker. [`Broker::stop`] ends it and waits for all its tasks; dropping it only asks them to end.
#[derive(Debug)]
pub struct Broker {
    hub: Arc<Hub>,
    control: Control,
    addresses: Vec<SocketAddr>,
}

/// Why a broker did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address cannot be listened on.
    #[error("the development broker cannot listen on {address}; is another program using the port?")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The certificate cannot be used.
    #[error("the development broker cannot serve TLS")]
    Tls(#[source] TlsError),
}

impl Broker {
    /// Starts a broker and its proxies.
    ///
    /// # Errors
    /// An address is taken or the certificate is unusable; nothing is left running then.
    pub async fn start(options: Options) -> Result<Self, StartError> {
        let tls = options.tls.as_ref().map(listener::acceptor).transpose().map_err(StartError::Tls)?;
        let wanted: Vec<SocketAddr> =
            std::iter::once(options.listen).chain(options.more_listeners.iter().copied()).collect();
        let mut listeners = Vec::with_capacity(wanted.len());
        let mut addresses = Vec::with_capacity(wanted.len());
        for address in wanted {
            let bound = listen(address).and_then(|listener| Ok((listener.local_addr()?, listener)));
            let (bound, listener) = bound.map_err(|source| StartError::Listen { address, source })?;
            addresses.push(bound);
            listeners.push(listener);
        }
        let hub = Arc::new(Hub::new(&options));
        let mut orders = Vec::with_capacity(listeners.len());
        for (proxy, (listener, address)) in listeners.into_iter().zip(&addresses).enumerate() {
            hub.proxies[proxy].set_address(*address);
            hub.tasks.spawn(Arc::clone(&hub).keep_time(proxy));
            let (order, given) = mpsc::channel(1);
            hub.tasks.spawn(run_proxy(Arc::clone(&hub), proxy, listener, tls.clone(), given));
            orders.push(order);
        }
        hub.tasks.close();
        let control = Control::new(Arc::clone(&hub), orders);
        Ok(Self { hub, control, addresses })
    }

    /// Where the first proxy listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.addresses[0]
    }

    /// Where all proxies listen, the first one first.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// A handle for tests and demonstrations.
    #[must_use]
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// Stops listening, drops every connection and waits for all tasks.
    pub async fn stop(self) {
        self.hub.stopping.cancel();
        self.hub.tasks.wait().await;
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.hub.stopping.cancel();
    }
}

/// What a proxy is told.
#[derive(Debug)]
pub(crate) enum Order {
    /// Drop every connection, forget every client, listen no more. Answered when it is done.
    Stop(oneshot::Sender<()>),
    /// Listen on the same port again. Answered when it is open.
    Start(oneshot::Sender<()>),
}

/// Serves a proxy's port, unless told not to, until the broker stops.
async fn run_proxy(
    hub: Arc<Hub>,
    proxy: usize,
    first: TcpListener,
    tls: Option<TlsAcceptor>,
    mut orders: mpsc::Receiver<Order>,
) {
    let mut listener = Some(first);
    while let Some(current) = listener.take() {
        let cut = hub.stopping.child_token();
        let serving = listener::serve(Arc::clone(&hub), proxy, current, tls.clone(), cut.clone());
        tokio::pin!(serving);
        let stopped = loop {
            tokio::select! {
                () = &mut serving => return,
                order = orders.recv() => match order {
                    Some(Order::Stop(stopped)) => break Some(stopped),
                    Some(Order::Start(started)) => answer(started),
                    None => break None,
                },
            }
        };
        let Some(stopped) = stopped else {
            serving.await;
            return;
        };
        cut.cancel();
        serving.await;
        hub.proxies[proxy].forget_clients();
        answer(stopped);
        let Some(started) = next_start(&hub, &mut orders).await else { return };
        listener = rebind(&hub, proxy).await;
        answer(started);
    }
}

/// Waits until a stopped proxy is told to start; none when that never happens.
async fn next_start(hub: &Hub, orders: &mut mpsc::Receiver<Order>) -> Option<oneshot::Sender<()>> {
    loop {
        let order = tokio::select! {
            order = orders.recv() => order?,
            () = hub.stopping.cancelled() => return None,
        };
        match order {
            Order::Start(started) => return Some(started),
            Order::Stop(stopped) => answer(stopped),
        }
    }
}

fn answer(done: oneshot::Sender<()>) {
    // Whoever gave the order may have stopped waiting.
    let _ = done.send(());
}

/// Gets the proxy's port back. Gives none when that fails for long or the broker stops.
async fn rebind(hub: &Hub, proxy: usize) -> Option<TcpListener> {
    let address = hub.proxies[proxy].address();
    let give_up_at = tokio::time::Instant::now() + REBIND_TIMEOUT;
    loop {
        match listen(address) {
            Ok(listener) => return Some(listener),
            Err(error) if tokio::time::Instant::now() >= give_up_at => {
                tracing::error!(%address, %error, "the development broker's proxy could not listen again");
                return None;
            }
            Err(_) => {}
        }
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(20)) => {}
            () = hub.stopping.cancelled() => return None,
        }
    }
}

fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A restarted proxy must get its port back although old connections linger.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(LISTEN_BACKLOG)
}
