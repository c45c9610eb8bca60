//! Making a connection: each address in turn, with a deadline, then TLS if chosen.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt as _};
use http::Uri;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time;
use tokio_rustls::TlsConnector;
use tower::Service;

use crate::endpoints::{Address, Endpoints};
use crate::wire::{Finding, Preface, Slot};

/// Deadline of a connection attempt to one address, TLS included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Connects to one endpoint.
#[derive(Clone, Debug)]
pub(super) struct Dialer(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    endpoints: Endpoints,
    tls: Option<Arc<ClientConfig>>,
    slot: Slot,
    /// The address that worked last, or is next to be tried.
    preferred: AtomicUsize,
}

/// A connected stream of either kind.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

impl Dialer {
    pub(super) fn new(endpoints: Endpoints, tls: Option<Arc<ClientConfig>>, slot: Slot) -> Self {
        Self(Arc::new(Inner { endpoints, tls, slot, preferred: AtomicUsize::new(0) }))
    }

    pub(super) fn endpoints(&self) -> &Endpoints {
        &self.0.endpoints
    }

    pub(super) fn is_tls(&self) -> bool {
        self.0.tls.is_some()
    }

    /// Tries each address once, beginning with the one that worked last.
    async fn dial(&self) -> io::Result<Box<dyn Stream>> {
        if let Some(known) = self.0.slot.stranger() {
            return Err(io::Error::other(known.sentence().unwrap_or_default()));
        }
        let addresses = self.0.endpoints.addresses();
        let first = self.0.preferred.load(Ordering::Relaxed);
        let mut last_error = None;
        for step in 0..addresses.len() {
            let at = (first + step) % addresses.len();
            match self.dial_one(&addresses[at]).await {
                Ok(stream) => {
                    self.0.preferred.store(at, Ordering::Relaxed);
                    return Ok(stream);
                }
                Err(error) => last_error = Some(error),
            }
        }
        Err(last_error.unwrap_or_else(|| io::Error::other("no address")))
    }

    async fn dial_one(&self, address: &Address) -> io::Result<Box<dyn Stream>> {
        match time::timeout(CONNECT_TIMEOUT, self.establish(address)).await {
            Ok(result) => result,
            Err(_) => {
                let text = format!("no connection to {address} within {CONNECT_TIMEOUT:?}");
                // Silent means connected, so a handshake was going on.
                self.0.slot.set(match self.0.slot.finding() {
                    Finding::Silent if self.is_tls() => Finding::NoTls("no answer to the handshake".into()),
                    _ => Finding::Unreachable(text.as_str().into()),
                });
                Err(io::Error::new(io::ErrorKind::TimedOut, text))
            }
        }
    }

    async fn establish(&self, address: &Address) -> io::Result<Box<dyn Stream>> {
        let slot = &self.0.slot;
        let tcp = TcpStream::connect((&*address.host, address.port)).await.inspect_err(|error| {
            slot.set(Finding::Unreachable(format!("{address}: {error}").into()));
        })?;
        tcp.set_nodelay(true)?;
        let Some(tls) = &self.0.tls else { return Ok(Box::new(Preface::new(tcp, slot.clone()))) };
        slot.set(Finding::Silent);
        let name = ServerName::try_from(address.host.to_string()).map_err(|error| {
            slot.set(Finding::TlsFailed(format!("`{}` is not a server name", address.host).into()));
            io::Error::other(error)
        })?;
        let stream = TlsConnector::from(Arc::clone(tls)).connect(name, tcp).await.inspect_err(|error| {
            slot.set(tls_finding(error));
        })?;
        Ok(Box::new(Preface::over_tls(stream, slot.clone())))
    }
}

/// What a gRPC channel calls whenever it needs a connection. The URI is the channel's own affair.
impl Service<Uri> for Dialer {
    type Response = TokioIo<Box<dyn Stream>>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Self::Response>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _uri: Uri) -> Self::Future {
        let dialer = self.clone();
        async move { dialer.dial().await.map(TokioIo::new) }.boxed()
    }
}

/// A peer that answers a handshake with something that is no TLS record, or hangs up, speaks plain text.
fn tls_finding(error: &io::Error) -> Finding {
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match tls {
        Some(rustls::Error::InvalidMessage(_)) => Finding::NoTls(error.to_string().into()),
        Some(_) => Finding::TlsFailed(error.to_string().into()),
        None => Finding::NoTls(error.to_string().into()),
    }
}
