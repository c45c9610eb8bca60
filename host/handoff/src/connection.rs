//! The bytes of one connection, and how long the other end may keep it waiting.
//!
//! The protocols have bounds of their own, but not for everything: a client that sends nothing at all is waited for before
//! it is known which protocol it speaks, and one that takes nothing is waited for by every write.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// How many bytes tell which protocol is spoken: as many as HTTP/2 begins with. No request is shorter that may be
/// followed by another.
const GREETING_BYTES: usize = 24;

/// How long the other end may keep a connection waiting.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// For its first bytes, from the beginning.
    pub(crate) greeting: Duration,
    /// For taking anything of what is being sent to it.
    pub(crate) taking: Duration,
}

/// A stream that ends with an error when the other end keeps it waiting.
#[derive(Debug)]
pub(crate) struct Impatient<S> {
    stream: S,
    taking: Duration,
    greeting: Option<Greeting>,
    /// Runs while a write waits.
    stalled: Option<Pin<Box<Sleep>>>,
}

#[derive(Debug)]
struct Greeting {
    missing: usize,
    deadline: Pin<Box<Sleep>>,
}

impl<S> Impatient<S> {
    pub(crate) fn new(stream: S, patience: Patience) -> Self {
        let greeting = Greeting { missing: GREETING_BYTES, deadline: Box::pin(sleep(patience.greeting)) };
        Self { stream, taking: patience.taking, greeting: Some(greeting), stalled: None }
    }

    /// What a write came to; an error when it has waited for too long.
    fn bound<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let taking = self.taking;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(taking)));
        ready!(stalled.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the other end takes nothing")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Impatient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        let Some(greeting) = &mut self.greeting else { return read };
        if read.is_ready() {
            greeting.missing = greeting.missing.saturating_sub(buf.filled().len() - before);
            if greeting.missing == 0 {
                self.greeting = None;
            }
            return read;
        }
        ready!(greeting.deadline.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the other end sends nothing")))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Impatient<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.bound(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.bound(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.bound(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.bound(cx, shut)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    const PATIENCE: Patience =
        Patience { greeting: Duration::from_secs(10), taking: Duration::from_secs(30) };

    #[tokio::test(start_paused = true)]
    async fn whoever_says_nothing_is_not_waited_for() {
        let (mut client, server) = duplex(64);
        let mut server = Impatient::new(server, PATIENCE);
        // A byte now and then does not help.
        client.write_all(b"PRI *").await.unwrap();
        let mut bytes = [0; 64];
        assert_eq!(server.read(&mut bytes).await.unwrap(), 5);
        assert_eq!(server.read(&mut bytes).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_has_greeted_may_be_silent() {
        let (mut client, server) = duplex(64);
        let mut server = Impatient::new(server, PATIENCE);
        client.write_all(&[b'x'; GREETING_BYTES]).await.unwrap();
        let mut bytes = [0; 64];
        assert_eq!(server.read(&mut bytes).await.unwrap(), GREETING_BYTES);
        let silent = tokio::time::timeout(Duration::from_secs(3600), server.read(&mut bytes)).await;
        assert!(silent.is_err(), "{silent:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_takes_nothing_is_not_waited_for() {
        let (mut client, server) = duplex(64);
        let mut server = Impatient::new(server, PATIENCE);
        let sending = async {
            let mut sent = 0;
            loop {
                match server.write(&[0; 64]).await {
                    Ok(written) => sent += written,
                    Err(error) => return (sent, error.kind()),
                }
            }
        };
        let taking = async {
            // Slowly, and then not at all.
            for _ in 0..3 {
                sleep(Duration::from_secs(29)).await;
                client.read_exact(&mut [0; 64]).await.unwrap();
            }
            std::future::pending::<()>().await;
        };
        let ended = tokio::select! {
            ended = sending => ended,
            () = taking => unreachable!("it does not end"),
        };
        assert_eq!(ended, (4 * 64, io::ErrorKind::TimedOut));
    }
}
