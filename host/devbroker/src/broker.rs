//! A running broker.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket};
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
        let mut restarts = Vec::with_capacity(listeners.len());
        for (proxy, (listener, address)) in listeners.into_iter().zip(&addresses).enumerate() {
            hub.proxies[proxy].set_address(*address);
            hub.tasks.spawn(Arc::clone(&hub).keep_time(proxy));
            let (restart, asked) = tokio::sync::mpsc::channel(1);
            hub.tasks.spawn(run_proxy(Arc::clone(&hub), proxy, listener, tls.clone(), asked));
            restarts.push(restart);
        }
        hub.tasks.close();
        let control = Control::new(Arc::clone(&hub), restarts);
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

/// A wish to restart a proxy.
#[derive(Debug)]
pub(crate) struct Restart {
    /// How long nobody listens.
    pub(crate) pause: Duration,
    /// Told when the port is open again.
    pub(crate) done: tokio::sync::oneshot::Sender<()>,
}

/// Serves a proxy's port, again after each restart, until the broker stops.
async fn run_proxy(
    hub: Arc<Hub>,
    proxy: usize,
    first: TcpListener,
    tls: Option<TlsAcceptor>,
    mut asked: tokio::sync::mpsc::Receiver<Restart>,
) {
    let mut listener = Some(first);
    let mut done: Option<tokio::sync::oneshot::Sender<()>> = None;
    while let Some(current) = listener.take() {
        if let Some(done) = done.take() {
            // Whoever asked may have stopped waiting.
            let _ = done.send(());
        }
        let cut = hub.stopping.child_token();
        let serving = listener::serve(Arc::clone(&hub), proxy, current, tls.clone(), cut.clone());
        tokio::pin!(serving);
        let restart = tokio::select! {
            () = &mut serving => return,
            restart = asked.recv() => restart,
        };
        let Some(restart) = restart else {
            serving.await;
            return;
        };
        cut.cancel();
        serving.await;
        hub.proxies[proxy].forget_clients();
        tokio::select! {
            () = tokio::time::sleep(restart.pause) => {}
            () = hub.stopping.cancelled() => return,
        }
        done = Some(restart.done);
        listener = rebind(&hub, proxy).await;
    }
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
