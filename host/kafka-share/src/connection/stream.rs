//! Making the stream to one broker: name, addresses, TCP, TLS.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{self, Instant};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::address::BrokerAddress;
use super::channel::ExchangeError;
use super::error::{OpenProblem, Phase, TlsFault};
use super::options::Deadlines;

/// Most addresses of one name that are tried.
const RESOLVED_MAX: usize = 16;
/// A connection that says nothing is asked after so long, and then so often, whether the other side is still there.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// A connected stream of either kind.
#[derive(Debug)]
pub(super) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// What is left of the time for opening one connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    total: Duration,
    end: Instant,
}

impl Budget {
    pub(super) fn new(total: Duration) -> Self {
        Self { total, end: Instant::now() + total }
    }

    /// Runs a step for as long as it may take, and no longer than anything may.
    pub(super) async fn run<T>(
        self,
        phase: Phase,
        limit: Duration,
        step: impl Future<Output = Result<T, OpenProblem>>,
    ) -> Result<T, OpenProblem> {
        let own_end = Instant::now() + limit;
        let (end, after) = if own_end < self.end { (own_end, limit) } else { (self.end, self.total) };
        time::timeout_at(end, step).await.unwrap_or(Err(OpenProblem::TimedOut { phase, after }))
    }
}

impl Stream {
    pub(super) async fn open(
        address: &BrokerAddress,
        tls: Option<&TlsConnector>,
        deadlines: &Deadlines,
        budget: Budget,
    ) -> Result<Self, OpenProblem> {
        let resolved = budget.run(Phase::Resolve, deadlines.resolve, resolve(address)).await?;
        let tcp = connect(&resolved, deadlines.connect, budget).await?;
        prepare(&tcp).map_err(|error| OpenProblem::broken(Phase::Connect, &error))?;
        match tls {
            None => Ok(Self::Plain(tcp)),
            Some(tls) => budget.run(Phase::Tls, deadlines.greeting, encrypt(address, tls, tcp)).await,
        }
    }
}

async fn resolve(address: &BrokerAddress) -> Result<Vec<SocketAddr>, OpenProblem> {
    let found = lookup_host((address.host(), address.port())).await;
    let found = found.map_err(|error| OpenProblem::Resolve { reason: error.to_string().into() })?;
    let addresses: Vec<_> = found.take(RESOLVED_MAX).collect();
    if addresses.is_empty() { Err(OpenProblem::NoAddress) } else { Ok(addresses) }
}

/// The first address that takes a connection.
async fn connect(
    addresses: &[SocketAddr],
    limit: Duration,
    budget: Budget,
) -> Result<TcpStream, OpenProblem> {
    let mut tried = Vec::new();
    for address in addresses {
        let attempt = async {
            TcpStream::connect(address).await.map_err(|error| OpenProblem::broken(Phase::Connect, &error))
        };
        let problem = match budget.run(Phase::Connect, limit, attempt).await {
            Ok(stream) => return Ok(stream),
            Err(OpenProblem::Broken { reason, .. }) => reason,
            Err(problem) => problem.to_string().into(),
        };
        tried.push((*address, problem));
    }
    Err(OpenProblem::Unreachable { tried: tried.into() })
}

fn prepare(tcp: &TcpStream) -> io::Result<()> {
    tcp.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_AFTER).with_interval(KEEPALIVE_INTERVAL);
    SockRef::from(tcp).set_tcp_keepalive(&keepalive)
}

async fn encrypt(address: &BrokerAddress, tls: &TlsConnector, tcp: TcpStream) -> Result<Stream, OpenProblem> {
    let name = ServerName::try_from(address.host().to_owned()).map_err(|_| OpenProblem::ServerName)?;
    match tls.connect(name, tcp).await {
        Ok(stream) => Ok(Stream::Tls(Box::new(stream))),
        Err(error) => Err(match ExchangeError::of(error) {
            // Bytes that are no TLS record: the server speaks something else.
            ExchangeError::Tls(rustls::Error::InvalidMessage(error)) => {
                OpenProblem::NotTls { reason: format!("{error:?}").into() }
            }
            ExchangeError::Tls(error) => OpenProblem::tls(&error),
            ExchangeError::Broken(error) => OpenProblem::broken(Phase::Tls, &error),
            _ => OpenProblem::Closed { phase: Phase::Tls },
        }),
    }
}

impl OpenProblem {
    pub(super) fn broken(phase: Phase, error: &io::Error) -> Self {
        Self::Broken { phase, reason: error.to_string().into() }
    }

    pub(super) fn tls(error: &rustls::Error) -> Self {
        use rustls::{AlertDescription as Alert, CertificateError as Wrong, Error};
        let fault = match error {
            Error::InvalidCertificate(Wrong::NotValidForName | Wrong::NotValidForNameContext { .. }) => {
                TlsFault::ServerName
            }
            Error::InvalidCertificate(_) => TlsFault::ServerCertificate,
            Error::AlertReceived(
                Alert::CertificateRequired
                | Alert::BadCertificate
                | Alert::CertificateUnknown
                | Alert::CertificateExpired
                | Alert::CertificateRevoked
                | Alert::UnsupportedCertificate
                | Alert::NoCertificate
                | Alert::UnknownCA
                | Alert::AccessDenied,
            ) => TlsFault::ClientCertificate,
            _ => TlsFault::Other,
        };
        Self::TlsFailed { fault, reason: error.to_string().into() }
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
