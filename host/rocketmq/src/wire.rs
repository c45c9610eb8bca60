//! What a connection saw: the plain truth behind a gRPC status of "transport error".
//!
//! gRPC libraries report a name server's port, a TLS mismatch and a closed socket alike. The connector notes in a
//! [`Slot`] how connecting went, and [`Preface`] looks at the first bytes that the server sends: an HTTP/2 server begins
//! with a SETTINGS frame, a TLS server answers with an alert, others with something else or not at all.

use std::fmt::Write as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use crate::fault::Reason;

/// What is known about the connections to one endpoint. Shared by the connector and by whoever explains errors.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slot(Arc<Mutex<Record>>);

#[derive(Debug, Default)]
struct Record {
    finding: Finding,
    /// Connections in a row that were made and then did not speak HTTP/2.
    strangers: u32,
    last_stranger_at: Option<Instant>,
}

/// First and longest wait before somebody who did not speak HTTP/2 is called again. A channel would do so at once and for
/// ever, for as long as a request waits.
const STRANGER_WAIT_FIRST: Duration = Duration::from_millis(200);
const STRANGER_WAIT_MAX: Duration = Duration::from_secs(5);

/// The newest finding.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) enum Finding {
    /// Nothing worth telling: not tried, or speaking HTTP/2.
    #[default]
    Nothing,
    /// No connection could be made.
    Unreachable(Box<str>),
    /// Connected, but the server has not said a word yet.
    Silent,
    /// It closed the connection without a word.
    ClosedUnheard,
    /// It answered with TLS to plain HTTP/2.
    SpeaksTls,
    /// It answered with something that is neither.
    SpeaksOther(Box<str>),
    /// It answered a TLS handshake with something that is not TLS, or hung up.
    NoTls(Box<str>),
    /// The TLS handshake failed.
    TlsFailed(Box<str>),
}

impl Slot {
    pub(crate) fn finding(&self) -> Finding {
        self.0.lock().finding.clone()
    }

    pub(crate) fn set(&self, finding: Finding) {
        let mut record = self.0.lock();
        match finding {
            Finding::Nothing => record.strangers = 0,
            // A new connection to a stranger: that it is silent so far is no better knowledge.
            Finding::Silent if record.strangers > 0 => return,
            _ if finding.is_of_a_stranger() => {
                record.strangers = record.strangers.saturating_add(1);
                record.last_stranger_at = Some(Instant::now());
            }
            _ => {}
        }
        record.finding = finding;
    }

    /// What is known about whoever listens there, when it is too early to call them again.
    pub(crate) fn stranger(&self) -> Option<Finding> {
        let record = self.0.lock();
        let doublings = record.strangers.checked_sub(1)?.min(10);
        let wait = STRANGER_WAIT_FIRST.saturating_mul(1 << doublings).min(STRANGER_WAIT_MAX);
        record.last_stranger_at.filter(|at| at.elapsed() < wait).map(|_| record.finding.clone())
    }
}

impl Finding {
    /// What it means, when it explains a failed call.
    pub(crate) const fn reason(&self) -> Option<Reason> {
        match self {
            Self::Nothing => None,
            Self::Unreachable(_) => Some(Reason::Unreachable),
            Self::Silent => Some(Reason::TimedOut),
            Self::ClosedUnheard | Self::SpeaksOther(_) => Some(Reason::NotAProxy),
            Self::SpeaksTls | Self::NoTls(_) => Some(Reason::TlsMismatch),
            Self::TlsFailed(_) => Some(Reason::TlsFailed),
        }
    }

    /// Whether somebody listens there who is not a proxy, or not in this mode.
    const fn is_of_a_stranger(&self) -> bool {
        match self {
            Self::Nothing | Self::Unreachable(_) | Self::Silent => false,
            Self::ClosedUnheard
            | Self::SpeaksTls
            | Self::SpeaksOther(_)
            | Self::NoTls(_)
            | Self::TlsFailed(_) => true,
        }
    }

    /// In words, to follow a colon.
    pub(crate) fn sentence(&self) -> Option<String> {
        Some(match self {
            Self::Nothing => return None,
            Self::Unreachable(detail) => format!("no connection: {detail}"),
            Self::Silent => "the server took the connection but says nothing".to_owned(),
            Self::ClosedUnheard => {
                "the server closed the connection without a word, so it does not speak plain HTTP/2"
                    .to_owned()
            }
            Self::SpeaksTls => "the server wants TLS, but the client came without".to_owned(),
            Self::SpeaksOther(bytes) => {
                format!("the server does not speak HTTP/2: its answer begins with {bytes}")
            }
            Self::NoTls(detail) => {
                format!("the TLS handshake failed because the server does not speak TLS ({detail})")
            }
            Self::TlsFailed(detail) => format!("the TLS handshake failed: {detail}"),
        })
    }
}

/// A stream whose first bytes from the server are looked at. Nothing is changed or held back.
#[derive(Debug)]
pub(crate) struct Preface<S> {
    stream: S,
    slot: Slot,
    seen: [u8; HEAD_BYTES],
    seen_bytes: usize,
    over_tls: bool,
}

/// Of a frame header (three bytes of length, one of type) as much as tells SETTINGS from TLS and the rest.
const HEAD_BYTES: usize = 4;
const SETTINGS_FRAME_TYPE: u8 = 4;
/// Records of a TLS server: alert or handshake, then the major version 3.
const TLS_RECORDS: [[u8; 2]; 2] = [[0x15, 3], [0x16, 3]];

impl<S> Preface<S> {
    pub(crate) fn new(stream: S, slot: Slot) -> Self {
        slot.set(Finding::Silent);
        Self { stream, slot, seen: [0; HEAD_BYTES], seen_bytes: 0, over_tls: false }
    }

    /// Over TLS, a server that refuses the client's certificate says so only after the handshake.
    pub(crate) fn over_tls(stream: S, slot: Slot) -> Self {
        Self { over_tls: true, ..Self::new(stream, slot) }
    }

    fn look_at(&mut self, bytes: &[u8]) {
        if self.seen_bytes == HEAD_BYTES {
            return;
        }
        if bytes.is_empty() {
            self.slot.set(if self.seen_bytes == 0 { Finding::ClosedUnheard } else { self.other() });
            self.seen_bytes = HEAD_BYTES;
            return;
        }
        for byte in bytes.iter().take(HEAD_BYTES - self.seen_bytes) {
            self.seen[self.seen_bytes] = *byte;
            self.seen_bytes += 1;
        }
        let [first, second, _, frame_type] = self.seen;
        if self.seen_bytes >= 2 && TLS_RECORDS.contains(&[first, second]) {
            self.seen_bytes = HEAD_BYTES;
            self.slot.set(Finding::SpeaksTls);
        } else if self.seen_bytes == HEAD_BYTES {
            // A server's first frame is SETTINGS, of far less than 64 KiB.
            let is_http2 = first == 0 && frame_type == SETTINGS_FRAME_TYPE;
            self.slot.set(if is_http2 { Finding::Nothing } else { self.other() });
        }
    }

    /// The stream broke. A read that failed is as wordless as one that ended; over TLS the cause is TLS's.
    fn note_break(&mut self, error: &io::Error) {
        if self.seen_bytes < HEAD_BYTES && self.over_tls {
            self.seen_bytes = HEAD_BYTES;
            self.slot.set(Finding::TlsFailed(error.to_string().into()));
        } else {
            self.look_at(&[]);
        }
    }

    fn other(&self) -> Finding {
        let seen = &self.seen[..self.seen_bytes];
        let mut bytes = String::new();
        for byte in seen {
            // Writing to a string has no way to fail.
            let _ = write!(bytes, "{byte:02x} ");
        }
        let bytes = bytes.trim_end();
        let text = seen.escape_ascii();
        Finding::SpeaksOther(format!("the bytes {bytes} (`{text}`)").into())
    }
}

impl<S: AsyncRead + Unpin> Preface<S> {
    /// A server that hangs up makes a write fail before anybody reads; what it said last is still there to be read.
    fn hear_out(&mut self, cx: &mut Context<'_>, error: &io::Error) {
        let mut bytes = [0; HEAD_BYTES];
        while self.seen_bytes < HEAD_BYTES {
            let mut buf = ReadBuf::new(&mut bytes);
            match Pin::new(&mut self.stream).poll_read(cx, &mut buf) {
                Poll::Ready(Ok(())) => self.look_at(buf.filled()),
                Poll::Ready(Err(_)) | Poll::Pending => self.note_break(error),
            }
        }
    }

    fn heard_out<T>(&mut self, cx: &mut Context<'_>, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if let Poll::Ready(Err(error)) = &result {
            self.hear_out(cx, error);
        }
        result
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Preface<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let result = ready!(Pin::new(&mut self.stream).poll_read(cx, buf));
        if self.seen_bytes < HEAD_BYTES {
            match &result {
                Ok(()) => self.look_at(&buf.filled()[before..]),
                Err(error) => self.note_break(error),
            }
        }
        Poll::Ready(result)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Preface<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.heard_out(cx, result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.heard_out(cx, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_flush(cx);
        self.heard_out(cx, result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_bytes_tell() {
        assert_eq!(finding(&[b"\0\0\x12\x04\0\0\0\0\0"]), Finding::Nothing);
        assert_eq!(finding(&[b"\0", b"\0", b"\x12", b"\x04"]), Finding::Nothing);
        assert_eq!(finding(&[b"\x15\x03\x03\0\x02\x02\x46"]), Finding::SpeaksTls);
        assert_eq!(finding(&[b"\x15", b"\x03"]), Finding::SpeaksTls);
        assert!(matches!(finding(&[b"HTTP/1.1 400"]), Finding::SpeaksOther(text) if text.contains("HTTP")));
        assert_eq!(finding(&[]), Finding::Silent);
        assert_eq!(finding(&[b""]), Finding::ClosedUnheard);
        assert!(matches!(finding(&[b"ab", b""]), Finding::SpeaksOther(_)));
    }

    #[test]
    fn a_proxy_that_closes_later_is_not_blamed() {
        assert_eq!(finding(&[b"\0\0\0\x04\0\0\0\0\0", b""]), Finding::Nothing);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stranger_is_called_again_later_and_later() {
        let slot = Slot::default();
        assert_eq!(slot.stranger(), None);
        let mut waits = Vec::new();
        for _ in 0..8 {
            slot.set(Finding::Silent);
            slot.set(Finding::ClosedUnheard);
            assert_eq!(slot.finding(), Finding::ClosedUnheard);
            let begun = Instant::now();
            while slot.stranger().is_some() {
                tokio::time::advance(Duration::from_millis(50)).await;
            }
            waits.push(begun.elapsed().as_millis());
        }
        assert_eq!(waits, [200, 400, 800, 1_600, 3_200, 5_000, 5_000, 5_000]);
        slot.set(Finding::Silent);
        assert_eq!(slot.finding(), Finding::ClosedUnheard, "known better");
        slot.set(Finding::Nothing);
        assert_eq!((slot.stranger(), slot.finding()), (None, Finding::Nothing));
    }

    #[test]
    fn every_mismatch_names_tls() {
        for finding in [Finding::SpeaksTls, Finding::NoTls("x".into()), Finding::TlsFailed("x".into())] {
            assert!(finding.sentence().is_some_and(|text| text.contains("TLS")));
        }
    }

    fn finding(reads: &[&[u8]]) -> Finding {
        let slot = Slot::default();
        let mut preface = Preface::new((), slot.clone());
        for read in reads {
            preface.look_at(read);
        }
        slot.finding()
    }
}
