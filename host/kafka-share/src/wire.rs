//! Frames and headers around the protocol's messages, sans-io.
//!
//! Every message is preceded by its length; every request carries a correlation id, which its answer repeats. Which
//! header goes with which version is kafka-wire's knowledge.

use bytes::{Bytes, BytesMut};
use kafka_wire::{
    ApiVersionsRequest, ApiVersionsResponse, OutboundFrameLimits, RequestResponsePair, ResponseHeader,
    encode_request, response_header_version_for,
};
use kafka_wire_core::{ApiVersion, DecodeError, DecodeLimits, Decoder, EncodeError, KafkaDecode, StrBytes};

use crate::error_code::ErrorCode;

/// Length of a frame's length, in bytes.
pub(crate) const PREFIX_BYTES: usize = 4;
/// The largest request that is sent, in bytes: brokers take no more (`socket.request.max.bytes`) unless told to.
const REQUEST_BYTES_MAX: usize = 100 << 20;
/// The most entries that one array of an answer may have. None of a share group's is near it: a broker has fewer partitions.
const ARRAY_ENTRIES_MAX: usize = 1_000_000;

/// Why bytes are not the answer that was waited for.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum AnswerError {
    /// A length below zero.
    #[error("the answer's length is {0}")]
    NegativeLength(i32),
    /// Longer than allowed.
    #[error("the answer has {bytes} bytes, and {limit} are allowed")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The longest that is allowed.
        limit: usize,
    },
    /// The answer to something else: from here on nothing on the connection can be trusted.
    #[error("the answer is to request {found}, not to {expected}")]
    Correlation {
        /// What was asked.
        expected: i32,
        /// What was answered.
        found: i32,
    },
    /// Bytes that make no answer of the agreed version.
    #[error("the answer is malformed: {0}")]
    Malformed(DecodeError),
    /// There is no such version.
    #[error("version {0} is none that this client has")]
    Version(i16),
}

/// A request as one frame.
///
/// # Errors
/// When the request says something that this version cannot say, or is too large.
pub(crate) fn encode<R: RequestResponsePair>(
    request: &R,
    version: ApiVersion,
    correlation: i32,
    client_id: &StrBytes,
) -> Result<Bytes, EncodeError> {
    let mut frame = BytesMut::new();
    let limits = OutboundFrameLimits::new(REQUEST_BYTES_MAX);
    encode_request(&mut frame, correlation, Some(client_id.clone()), request, version, limits)?;
    Ok(frame.freeze())
}

/// How many bytes follow the length `prefix`.
///
/// # Errors
/// When that is less than nothing, or more than `limit`: before anything is allocated.
pub(crate) fn frame_bytes(prefix: [u8; PREFIX_BYTES], limit: usize) -> Result<usize, AnswerError> {
    let length = i32::from_be_bytes(prefix);
    let bytes = usize::try_from(length).map_err(|_| AnswerError::NegativeLength(length))?;
    if bytes > limit { Err(AnswerError::TooLong { bytes, limit }) } else { Ok(bytes) }
}

/// The answer to `R` in a frame, without its length. Texts and records of the answer are slices of the frame, and keep
/// it in memory.
///
/// # Errors
/// When it is another answer, or none.
pub(crate) fn decode<R: RequestResponsePair>(
    frame: Bytes,
    version: ApiVersion,
    correlation: i32,
) -> Result<R::Response, AnswerError> {
    let mut decoder = headed::<R>(frame, version, correlation)?;
    let answer = R::Response::decode(&mut decoder, version).map_err(AnswerError::Malformed)?;
    decoder.finish().map_err(AnswerError::Malformed)?;
    Ok(answer)
}

/// The answer to the question for versions. A broker that does not know the version of the question answers in version 0.
///
/// # Errors
/// When it is another answer, or none.
pub(crate) fn decode_versions(
    frame: Bytes,
    version: ApiVersion,
    correlation: i32,
) -> Result<ApiVersionsResponse, AnswerError> {
    let mut decoder = headed::<ApiVersionsRequest>(frame, version, correlation)?;
    // The code comes first in all versions.
    let code = decoder.clone().read_i16().map_err(AnswerError::Malformed)?;
    let is_refused = ErrorCode(code) == ErrorCode::UNSUPPORTED_VERSION;
    let written_as = if is_refused { ApiVersion::new(0) } else { version };
    let answer = ApiVersionsResponse::decode(&mut decoder, written_as);
    match answer {
        // The oldest brokers send the code and nothing that can be read.
        Err(_) if is_refused => {
            let mut empty = ApiVersionsResponse::default();
            empty.error_code = code;
            Ok(empty)
        }
        answer => answer.map_err(AnswerError::Malformed),
    }
}

/// A decoder that stands behind the header.
fn headed<R: RequestResponsePair>(
    frame: Bytes,
    version: ApiVersion,
    correlation: i32,
) -> Result<Decoder, AnswerError> {
    let header_version =
        response_header_version_for::<R>(version).map_err(|_| AnswerError::Version(version.value()))?;
    // The frame has passed its limit already. One field of it may be nearly all of it: records.
    let mut limits = DecodeLimits::default();
    limits.max_frame_bytes = usize::MAX;
    limits.max_bytes_bytes = usize::MAX;
    limits.max_array_elements = ARRAY_ENTRIES_MAX;
    let mut decoder = Decoder::new(frame, limits).map_err(AnswerError::Malformed)?;
    let header = ResponseHeader::decode(&mut decoder, ApiVersion::new(header_version))
        .map_err(AnswerError::Malformed)?;
    let found = header.correlation_id;
    if found == correlation {
        Ok(decoder)
    } else {
        Err(AnswerError::Correlation { expected: correlation, found })
    }
}

#[cfg(test)]
mod tests;
