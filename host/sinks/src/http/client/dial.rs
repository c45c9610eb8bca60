//! Making a connection: TCP, then TLS if the origin wants it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt as _};
use http::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tidegate_connector::origin::Origin;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsConnector;
use tower::Service;

use crate::http::HttpError;

/// Deadline of one connection, TLS included. The pool may go on with one whose request has ended.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The system looks whether an idle peer is there after so long.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// Connects to one origin.
#[derive(Clone, Debug)]
pub(super) struct Dialer {
    tcp: HttpConnector,
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
}

trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Io for S {}

/// A connection.
pub(super) struct Stream {
    io: Box<dyn Io>,
    is_http2: bool,
}

impl Dialer {
    pub(super) fn new(origin: &Origin, tls: Option<Arc<ClientConfig>>) -> Result<Self, HttpError> {
        let name = |_| HttpError::ServerName { host: origin.host().into() };
        let server = |config| Ok((config, ServerName::try_from(origin.host().to_owned()).map_err(name)?));
        let tls = tls.map(server).transpose()?;
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(KEEPALIVE));
        tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
        Ok(Self { tcp, tls })
    }

    async fn dial(mut self, uri: Uri) -> io::Result<TokioIo<Stream>> {
        let tcp = self.tcp.call(uri).await.map_err(io::Error::other)?.into_inner();
        let Some((config, name)) = self.tls else {
            return Ok(TokioIo::new(Stream { io: Box::new(tcp), is_http2: false }));
        };
        let tls = TlsConnector::from(config).connect(name, tcp).await?;
        let is_http2 = tls.get_ref().1.alpn_protocol() == Some(b"h2");
        Ok(TokioIo::new(Stream { io: Box::new(tls), is_http2 }))
    }
}

impl Service<Uri> for Dialer {
    type Response = TokioIo<Stream>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Self::Response>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let dialer = self.clone();
        async move {
            tokio::time::timeout(CONNECT_TIMEOUT, dialer.dial(uri)).await.unwrap_or_else(|_| {
                let text = format!("no connection within {CONNECT_TIMEOUT:?}");
                Err(io::Error::new(io::ErrorKind::TimedOut, text))
            })
        }
        .boxed()
    }
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        if self.is_http2 { Connected::new().negotiated_h2() } else { Connected::new() }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
