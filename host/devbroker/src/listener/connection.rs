//! A connection that can be cut from outside, as a killed proxy cuts it.

use std::future::Future;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::transport::server::Connected;

/// A client's connection, plaintext or TLS.
pub(crate) struct Connection {
    stream: Stream,
    peer: SocketAddr,
    /// None once it happened.
    cut: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

/// Where a connection comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) SocketAddr);

enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Connection {
    pub(crate) fn plain(stream: TcpStream, peer: SocketAddr, cut: CancellationToken) -> Self {
        Self { stream: Stream::Plain(stream), peer, cut: Some(Box::pin(cut.cancelled_owned())) }
    }

    pub(crate) fn tls(stream: TlsStream<TcpStream>, peer: SocketAddr, cut: CancellationToken) -> Self {
        Self { stream: Stream::Tls(Box::new(stream)), peer, cut: Some(Box::pin(cut.cancelled_owned())) }
    }

    /// Whether the connection is cut. Registers for the cut, so that an idle connection notices too; a cut future must
    /// not be polled again, so the answer is remembered.
    fn is_cut(&mut self, cx: &mut Context<'_>) -> bool {
        if let Some(cut) = &mut self.cut
            && cut.as_mut().poll(cx).is_ready()
        {
            self.cut = None;
        }
        self.cut.is_none()
    }
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        Peer(self.peer)
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.is_cut(cx) {
            return Poll::Ready(Err(cut_error()));
        }
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Stream::Tls(stream) => Pin::new(stream.as_mut()).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.cut.is_none() {
            return Poll::Ready(Err(cut_error()));
        }
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Stream::Tls(stream) => Pin::new(stream.as_mut()).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.cut.is_none() {
            return Poll::Ready(Err(cut_error()));
        }
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bytes),
            Stream::Tls(stream) => Pin::new(stream.as_mut()).poll_write_vectored(cx, bytes),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Stream::Plain(stream) => stream.is_write_vectored(),
            Stream::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.cut.is_none() {
            return Poll::Ready(Err(cut_error()));
        }
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Tls(stream) => Pin::new(stream.as_mut()).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Tls(stream) => Pin::new(stream.as_mut()).poll_shutdown(cx),
        }
    }
}

fn cut_error() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "the proxy was stopped")
}
