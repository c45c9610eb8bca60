//! Requests and answers, and how they lie in frames.

use bytes::{Bytes, BytesMut};
use kafka_wire::{
    AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse, ApiVersionsRequest, ApiVersionsResponse,
    CreateTopicsRequest, CreateTopicsResponse, DeleteGroupsRequest, DeleteGroupsResponse,
    DeleteShareGroupOffsetsRequest, DeleteShareGroupOffsetsResponse, DescribeConfigsRequest,
    DescribeConfigsResponse, DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsResponse,
    FindCoordinatorRequest, FindCoordinatorResponse, IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse, KafkaMessage, ListGroupsRequest, ListGroupsResponse, ListOffsetsRequest,
    ListOffsetsResponse, MetadataRequest, MetadataResponse, RequestHeader, ResponseHeader,
    SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest, SaslHandshakeResponse,
    ShareAcknowledgeRequest, ShareAcknowledgeResponse, ShareFetchRequest, ShareFetchResponse,
    ShareGroupDescribeRequest, ShareGroupDescribeResponse, ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse, request_header_version, response_header_version,
};
use kafka_wire_core::{
    ApiKey, ApiVersion, DecodeError, DecodeLimits, Decoder, EncodeError, KafkaDecode, KafkaEncode, StrBytes,
};

/// Makes a message of kafka-wire, whose structs cannot be written as literals elsewhere.
macro_rules! message {
    ($type:ty { $($field:ident: $value:expr),* $(,)? }) => {{
        let mut message = <$type>::default();
        $(message.$field = $value;)*
        message
    }};
}
pub(crate) use message;

macro_rules! apis {
    ($($(#[$doc:meta])* $name:ident = $key:literal, $min:literal..=$max:literal, $request:ident => $response:ident;)+) => {
        /// What this broker can be asked.
        #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
        pub enum Api {
            $($(#[$doc])* $name,)+
        }

        impl Api {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// Kafka's number of it.
            #[must_use]
            pub const fn key(self) -> i16 {
                match self { $(Self::$name => $key,)+ }
            }

            /// The lowest and the highest version served, as Kafka 4.3.1 does.
            #[must_use]
            pub const fn versions(self) -> (i16, i16) {
                match self { $(Self::$name => ($min, $max),)+ }
            }

            /// By Kafka's number.
            #[must_use]
            pub const fn from_key(key: i16) -> Option<Self> {
                match key { $($key => Some(Self::$name),)+ _ => None }
            }

            fn is_flexible(self, version: i16) -> bool {
                let version = ApiVersion::new(version);
                match self { $(Self::$name => $request::is_flexible(version),)+ }
            }
        }

        /// A request's body.
        #[derive(Clone, Debug, PartialEq)]
        #[allow(missing_docs, reason = "named as in Api")]
        pub enum RequestBody {
            $($name($request),)+
        }

        impl RequestBody {
            /// Which call it is.
            #[must_use]
            pub const fn api(&self) -> Api {
                match self { $(Self::$name(_) => Api::$name,)+ }
            }

            fn decode(api: Api, decoder: &mut Decoder, version: ApiVersion) -> Result<Self, DecodeError> {
                match api { $(Api::$name => $request::decode(decoder, version).map(Self::$name),)+ }
            }
        }

        $(impl From<$request> for RequestBody {
            fn from(body: $request) -> Self {
                Self::$name(body)
            }
        })+

        /// An answer's body.
        #[derive(Clone, Debug, PartialEq)]
        #[allow(missing_docs, reason = "named as in Api")]
        pub enum ResponseBody {
            $($name($response),)+
        }

        impl ResponseBody {
            /// Of which call it is.
            #[must_use]
            pub const fn api(&self) -> Api {
                match self { $(Self::$name(_) => Api::$name,)+ }
            }

            fn encode_into(&self, buffer: &mut BytesMut, version: ApiVersion) -> Result<usize, EncodeError> {
                match self { $(Self::$name(body) => body.encode_into(buffer, version),)+ }
            }
        }

        $(impl From<$response> for ResponseBody {
            fn from(body: $response) -> Self {
                Self::$name(body)
            }
        }

        impl TryFrom<ResponseBody> for $response {
            type Error = ResponseBody;

            fn try_from(body: ResponseBody) -> Result<Self, ResponseBody> {
                match body {
                    ResponseBody::$name(body) => Ok(body),
                    other => Err(other),
                }
            }
        })+
    };
}

apis! {
    /// The offsets of partitions: the first, the next, or by time.
    ListOffsets = 2, 1..=11, ListOffsetsRequest => ListOffsetsResponse;
    /// Nodes, topics, partitions and their leaders.
    Metadata = 3, 0..=13, MetadataRequest => MetadataResponse;
    /// Which node coordinates a group.
    FindCoordinator = 10, 0..=6, FindCoordinatorRequest => FindCoordinatorResponse;
    /// The groups that a node coordinates.
    ListGroups = 16, 0..=5, ListGroupsRequest => ListGroupsResponse;
    /// The choice of a SASL mechanism.
    SaslHandshake = 17, 0..=1, SaslHandshakeRequest => SaslHandshakeResponse;
    /// What this broker can be asked.
    ApiVersions = 18, 0..=4, ApiVersionsRequest => ApiVersionsResponse;
    /// Topics to make.
    CreateTopics = 19, 2..=7, CreateTopicsRequest => CreateTopicsResponse;
    /// How groups and nodes are configured.
    DescribeConfigs = 32, 1..=4, DescribeConfigsRequest => DescribeConfigsResponse;
    /// A SASL exchange's step.
    SaslAuthenticate = 36, 0..=2, SaslAuthenticateRequest => SaslAuthenticateResponse;
    /// Groups to be forgotten.
    DeleteGroups = 42, 0..=2, DeleteGroupsRequest => DeleteGroupsResponse;
    /// How groups shall be configured.
    IncrementalAlterConfigs = 44, 0..=1, IncrementalAlterConfigsRequest => IncrementalAlterConfigsResponse;
    /// A member's sign of life.
    ShareGroupHeartbeat = 76, 1..=1, ShareGroupHeartbeatRequest => ShareGroupHeartbeatResponse;
    /// A group's members.
    ShareGroupDescribe = 77, 1..=1, ShareGroupDescribeRequest => ShareGroupDescribeResponse;
    /// Records, and acknowledgements beside.
    ShareFetch = 78, 1..=2, ShareFetchRequest => ShareFetchResponse;
    /// Acknowledgements alone.
    ShareAcknowledge = 79, 1..=2, ShareAcknowledgeRequest => ShareAcknowledgeResponse;
    /// Where a group stands.
    DescribeShareGroupOffsets = 90, 0..=1, DescribeShareGroupOffsetsRequest => DescribeShareGroupOffsetsResponse;
    /// Where a group shall stand.
    AlterShareGroupOffsets = 91, 0..=0, AlterShareGroupOffsetsRequest => AlterShareGroupOffsetsResponse;
    /// A group shall forget topics.
    DeleteShareGroupOffsets = 92, 0..=0, DeleteShareGroupOffsetsRequest => DeleteShareGroupOffsetsResponse;
}

/// A request as it came in.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// In which version.
    pub version: i16,
    /// The client's number for it.
    pub correlation_id: i32,
    /// What the client calls itself.
    pub client_id: Option<StrBytes>,
    /// What it asks.
    pub body: RequestBody,
}

impl Request {
    /// A request of the highest version served.
    #[must_use]
    pub fn new(body: impl Into<RequestBody>) -> Self {
        let body = body.into();
        Self { version: body.api().versions().1, correlation_id: 0, client_id: None, body }
    }

    /// The same request in another version.
    #[must_use]
    pub fn in_version(self, version: i16) -> Self {
        Self { version, ..self }
    }

    /// The same request under a number.
    #[must_use]
    pub fn numbered(self, correlation_id: i32) -> Self {
        Self { correlation_id, ..self }
    }

    /// From a frame without its length.
    ///
    /// # Errors
    /// The broker does not serve the request; Kafka closes the connection then. One exception: an ApiVersions request in
    /// an unknown version gives [`FrameError::ApiVersionsVersion`], which has an answer.
    pub fn decode(frame: Bytes) -> Result<Self, FrameError> {
        let head = frame.first_chunk::<8>().ok_or(FrameError::Short)?;
        let key = i16::from_be_bytes([head[0], head[1]]);
        let version = i16::from_be_bytes([head[2], head[3]]);
        let correlation_id = i32::from_be_bytes([head[4], head[5], head[6], head[7]]);
        let api = Api::from_key(key).ok_or(FrameError::UnknownApi { key })?;
        let (min, max) = api.versions();
        if version < min || version > max {
            return Err(match api {
                Api::ApiVersions => FrameError::ApiVersionsVersion { correlation_id },
                _ => FrameError::UnknownVersion { api, version },
            });
        }
        let flexible = api.is_flexible(version);
        let mut decoder = Decoder::new(frame, DecodeLimits::default())?;
        let header = RequestHeader::decode(&mut decoder, ApiVersion::new(request_header_version(flexible)))?;
        let body = RequestBody::decode(api, &mut decoder, ApiVersion::new(version))?;
        decoder.finish()?;
        Ok(Self { version, correlation_id, client_id: header.client_id, body })
    }
}

/// Why a frame is no request.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// Shorter than a header.
    #[error("a frame shorter than a request's header")]
    Short,
    /// A call that this broker does not serve.
    #[error("no API with key {key}")]
    UnknownApi {
        /// Its number.
        key: i16,
    },
    /// A version that this broker does not serve.
    #[error("{api:?} is not served in version {version}")]
    UnknownVersion {
        /// The call.
        api: Api,
        /// The version.
        version: i16,
    },
    /// ApiVersions in a version to come.
    #[error("ApiVersions is not served in this version")]
    ApiVersionsVersion {
        /// The client's number for it.
        correlation_id: i32,
    },
    /// The bytes make no message.
    #[error("the request cannot be decoded")]
    Decode(#[from] DecodeError),
}

/// An answer under its number.
#[derive(Clone, Debug, PartialEq)]
pub struct Response {
    /// In which version.
    pub version: i16,
    /// The client's number for the request.
    pub correlation_id: i32,
    /// What is answered.
    pub body: ResponseBody,
}

impl Response {
    /// As a frame, its length first.
    ///
    /// # Errors
    /// The version cannot say what the body says.
    pub fn encode(&self) -> Result<BytesMut, EncodeError> {
        let api = self.body.api();
        let header_version = response_header_version(
            ApiKey::new(api.key()),
            ApiVersion::new(self.version),
            api.is_flexible(self.version),
        );
        let header = message!(ResponseHeader { correlation_id: self.correlation_id });
        let mut frame = BytesMut::from(&[0_u8; 4][..]);
        header.encode_into(&mut frame, ApiVersion::new(header_version))?;
        self.body.encode_into(&mut frame, ApiVersion::new(self.version))?;
        let length =
            u32::try_from(frame.len() - 4).map_err(|_| EncodeError::FrameTooLarge { bytes: frame.len() })?;
        frame[..4].copy_from_slice(&length.to_be_bytes());
        Ok(frame)
    }
}
