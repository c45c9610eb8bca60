//! A stream that carries requests one way and answers the other, in the same order.

use std::io;

use bytes::{BufMut as _, Bytes, BytesMut};
use kafka_wire::RequestResponsePair;
use kafka_wire_core::{ApiVersion, EncodeError, StrBytes};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::stream::Stream;
use crate::wire::{self, AnswerError, PREFIX_BYTES};

/// As much of an answer's length is believed before its bytes arrive: an answer up to it is read into one piece of memory,
/// a longer one makes it grow. Twice what a fetch asks for by default.
const ALLOCATED_AHEAD_BYTES: usize = 8 << 20;

/// Why no answer came.
#[derive(Debug)]
pub(super) enum ExchangeError {
    /// The server closed the connection.
    Closed,
    /// The connection broke.
    Broken(io::Error),
    /// TLS broke: by an alert, for instance.
    Tls(rustls::Error),
    /// What came cannot be an answer, by its first bytes.
    Strange([u8; PREFIX_BYTES], AnswerError),
    /// What came is none.
    Answer(AnswerError),
}

/// A request that is ready to be sent.
pub(super) struct Outgoing {
    frame: Bytes,
    version: ApiVersion,
    correlation: i32,
}

impl Outgoing {
    /// Its size on the wire.
    pub(super) fn bytes(&self) -> usize {
        self.frame.len()
    }
}

/// A request that was sent. The broker answers in the order in which it was asked.
pub(super) struct Awaited {
    version: ApiVersion,
    correlation: i32,
}

#[derive(Debug)]
pub(super) struct Channel {
    stream: Stream,
    client_id: StrBytes,
    next_correlation: i32,
}

impl Channel {
    pub(super) const fn new(stream: Stream, client_id: StrBytes) -> Self {
        Self { stream, client_id, next_correlation: 1 }
    }

    /// Writes a request down; nothing is sent.
    pub(super) fn encode<R: RequestResponsePair>(
        &mut self,
        request: &R,
        version: ApiVersion,
    ) -> Result<Outgoing, EncodeError> {
        let correlation = self.next_correlation;
        let frame = wire::encode(request, version, correlation, &self.client_id)?;
        self.next_correlation = correlation.checked_add(1).unwrap_or(1);
        Ok(Outgoing { frame, version, correlation })
    }

    /// Sends a request. One that was sent in part only makes the channel useless.
    pub(super) async fn send(&mut self, request: Outgoing) -> Result<Awaited, ExchangeError> {
        let Outgoing { frame, version, correlation } = request;
        self.stream.write_all(&frame).await?;
        self.stream.flush().await?;
        Ok(Awaited { version, correlation })
    }

    /// The answer to the request that was sent first of those that wait, and its size in bytes.
    pub(super) async fn receive<R: RequestResponsePair>(
        &mut self,
        awaited: Awaited,
        bytes_max: usize,
    ) -> Result<(R::Response, usize), ExchangeError> {
        let frame = self.frame(bytes_max).await?;
        let bytes = frame.len();
        let answer = wire::decode::<R>(frame, awaited.version, awaited.correlation)?;
        Ok((answer, bytes))
    }

    /// As [`receive`](Self::receive), for the one answer whose form depends on what it says.
    pub(super) async fn receive_versions(
        &mut self,
        awaited: Awaited,
        bytes_max: usize,
    ) -> Result<kafka_wire::ApiVersionsResponse, ExchangeError> {
        let frame = self.frame(bytes_max).await?;
        Ok(wire::decode_versions(frame, awaited.version, awaited.correlation)?)
    }

    /// Says that nothing more will be sent.
    pub(super) async fn shutdown(&mut self) -> io::Result<()> {
        self.stream.shutdown().await
    }

    async fn frame(&mut self, bytes_max: usize) -> Result<Bytes, ExchangeError> {
        let prefix = self.prefix().await?;
        let bytes =
            wire::frame_bytes(prefix, bytes_max).map_err(|error| ExchangeError::Strange(prefix, error))?;
        let mut frame = BytesMut::with_capacity(bytes.min(ALLOCATED_AHEAD_BYTES));
        while frame.len() < bytes {
            // A full buffer grows by doubling, so that growing costs no more than reading did; what follows the answer
            // is not read, whatever room there is.
            let missing = bytes - frame.len();
            let mut room = (&mut frame).limit(missing);
            if self.stream.read_buf(&mut room).await? == 0 {
                return Err(ExchangeError::Closed);
            }
        }
        Ok(frame.freeze())
    }

    async fn prefix(&mut self) -> Result<[u8; PREFIX_BYTES], ExchangeError> {
        let mut prefix = [0; PREFIX_BYTES];
        self.stream.read_exact(&mut prefix).await?;
        Ok(prefix)
    }
}

impl ExchangeError {
    pub(super) fn of(error: io::Error) -> Self {
        if let Some(tls) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            return Self::Tls(tls.clone());
        }
        match error.kind() {
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted => Self::Closed,
            _ => Self::Broken(error),
        }
    }
}

impl From<io::Error> for ExchangeError {
    fn from(error: io::Error) -> Self {
        Self::of(error)
    }
}

impl From<AnswerError> for ExchangeError {
    fn from(error: AnswerError) -> Self {
        Self::Answer(error)
    }
}
