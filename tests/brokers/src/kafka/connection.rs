//! One connection to one broker, one request at a time.

use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kafka_wire::{
    KafkaMessage, OutboundFrameLimits, RequestResponsePair, ResponseHeader, encode_request,
    response_header_version_for,
};
use kafka_wire_core::{ApiVersion, DecodeError, DecodeLimits, Decoder, EncodeError, KafkaDecode, StrBytes};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// A call's own limit where the caller gives none; brokers wait 10 s at most for anything that the driver asks.
const CALL_TIMEOUT: Duration = Duration::from_secs(15);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Kafka's own limit of a request is 100 MB.
const FRAME_MAX: usize = 100 << 20;
const CLIENT_ID: &str = "tidegate-tests";

/// Why a broker could not be asked, or what it refused.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// Every node was stopped or frozen by the test.
    #[error("no node is running")]
    NoNode,
    /// No connection.
    #[error("cannot connect to {address}")]
    Connect {
        /// Of the broker.
        address: String,
        /// What the system said.
        source: io::Error,
    },
    /// The connection ended before the answer had come; whether the request was carried out is not known.
    #[error("the connection ended before the answer to {request}")]
    Lost {
        /// The request's name in Kafka's protocol.
        request: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// No answer, or none that settles it, in time.
    #[error("{what} took more than {} s", waited.as_secs())]
    Late {
        /// What was waited for, and what was last seen.
        what: String,
        /// For how long.
        waited: Duration,
    },
    /// The request cannot be written in the version asked for.
    #[error("cannot encode {request}")]
    Encode {
        /// The request's name in Kafka's protocol.
        request: &'static str,
        /// Why.
        source: Box<EncodeError>,
    },
    /// The answer is not what the protocol says.
    #[error("cannot decode the answer to {request}")]
    Decode {
        /// The request's name in Kafka's protocol.
        request: &'static str,
        /// Why.
        source: Box<DecodeError>,
    },
    /// The answer is to another request.
    #[error("the answer to {request} has another request's number")]
    Correlation {
        /// The request's name in Kafka's protocol.
        request: &'static str,
    },
    /// The broker answered with an error.
    #[error("{request} was refused with error {code}: {message}")]
    Refused {
        /// What was asked.
        request: String,
        /// Kafka's error code.
        code: i16,
        /// The broker's words, empty where it has none.
        message: String,
    },
}

impl CallError {
    /// Kafka's error code, if the broker sent one.
    #[must_use]
    pub fn code(&self) -> Option<i16> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// Whether another connection, or another broker, may do better.
    pub(crate) fn is_transport(&self) -> bool {
        matches!(self, Self::Connect { .. } | Self::Lost { .. } | Self::Late { .. })
    }
}

/// A connection that speaks Kafka's protocol over any stream.
#[derive(Debug)]
pub struct Connection<S = TcpStream> {
    stream: S,
    sent: i32,
}

impl Connection {
    /// Connects to `host:port`.
    ///
    /// # Errors
    /// When nobody listens there.
    pub async fn open(address: &str) -> Result<Self, CallError> {
        let failure = |source| CallError::Connect { address: address.into(), source };
        let stream = timeout(CONNECT_TIMEOUT, TcpStream::connect(address))
            .await
            .map_err(|_| failure(io::ErrorKind::TimedOut.into()))?
            .map_err(failure)?;
        stream.set_nodelay(true).map_err(failure)?;
        Ok(Self::over(stream))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Speaks over a stream that is connected, as one with TLS.
    pub fn over(stream: S) -> Self {
        Self { stream, sent: 0 }
    }

    /// Sends one request and waits 15 s at most for its answer, which may itself hold error codes. After an error the
    /// connection is of no further use.
    ///
    /// # Errors
    /// When there is no answer, or none that can be read.
    pub async fn call<R: RequestResponsePair>(
        &mut self,
        request: &R,
        version: i16,
    ) -> Result<R::Response, CallError> {
        self.call_within(request, version, CALL_TIMEOUT).await
    }

    /// [`call`](Self::call) with another limit.
    ///
    /// # Errors
    /// When there is no answer, or none that can be read.
    pub async fn call_within<R: RequestResponsePair>(
        &mut self,
        request: &R,
        version: i16,
        limit: Duration,
    ) -> Result<R::Response, CallError> {
        let name = <R as KafkaMessage>::NAME;
        let encode = |source| CallError::Encode { request: name, source: Box::new(source) };
        let decode = |source| CallError::Decode { request: name, source: Box::new(source) };
        let version = ApiVersion::new(version);
        self.sent = self.sent.wrapping_add(1);
        let mut frame = BytesMut::new();
        let limits = OutboundFrameLimits::new(FRAME_MAX);
        encode_request(&mut frame, self.sent, Some(CLIENT_ID.into()), request, version, limits)
            .map_err(encode)?;
        let answer = timeout(limit, self.exchange(&frame))
            .await
            .map_err(|_| CallError::Late { what: format!("the answer to {name}"), waited: limit })?
            .map_err(|source| CallError::Lost { request: name, source })?;

        let header_version = response_header_version_for::<R>(version).map_err(encode)?;
        let mut decoder = Decoder::new(answer, DecodeLimits::default()).map_err(decode)?;
        let header = ResponseHeader::decode(&mut decoder, ApiVersion::new(header_version)).map_err(decode)?;
        if header.correlation_id != self.sent {
            return Err(CallError::Correlation { request: name });
        }
        let response = R::Response::decode(&mut decoder, version).map_err(decode)?;
        decoder.finish().map_err(decode)?;
        Ok(response)
    }

    async fn exchange(&mut self, frame: &[u8]) -> io::Result<Bytes> {
        self.stream.write_all(frame).await?;
        self.stream.flush().await?;
        let length = usize::try_from(self.stream.read_i32().await?)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "a frame of negative length"))?;
        if length > FRAME_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a frame beyond the limit"));
        }
        let mut answer = vec![0; length];
        self.stream.read_exact(&mut answer).await?;
        Ok(answer.into())
    }
}

/// Fails with what a response says of a request.
pub(crate) fn accepted(
    request: impl FnOnce() -> String,
    code: i16,
    message: Option<&StrBytes>,
) -> Result<(), CallError> {
    if code == 0 {
        return Ok(());
    }
    let message = message.map(|message| message.as_str().to_owned()).unwrap_or_default();
    Err(CallError::Refused { request: request(), code, message })
}
