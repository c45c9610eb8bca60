//! What is asked of brokers, and what an answer says besides its content.

use std::time::Duration;

use kafka_wire::RequestResponsePair;

/// A request whose answer says how long the broker wants to be left alone.
pub trait Request: RequestResponsePair {
    /// How long, in milliseconds.
    fn throttle_time_ms(answer: &Self::Response) -> i32;
}

macro_rules! requests {
    ($($request:ident),+ $(,)?) => {
        $(impl Request for kafka_wire::$request {
            fn throttle_time_ms(answer: &Self::Response) -> i32 {
                answer.throttle_time_ms
            }
        })+
    };
}

// What members and group tools ask, and what it takes to prepare a cluster for them.
requests! {
    AlterShareGroupOffsetsRequest,
    CreateAclsRequest,
    CreateTopicsRequest,
    DeleteAclsRequest,
    DeleteGroupsRequest,
    DeleteRecordsRequest,
    DeleteShareGroupOffsetsRequest,
    DeleteTopicsRequest,
    DescribeClusterRequest,
    DescribeConfigsRequest,
    DescribeShareGroupOffsetsRequest,
    FindCoordinatorRequest,
    IncrementalAlterConfigsRequest,
    ListGroupsRequest,
    ListOffsetsRequest,
    MetadataRequest,
    ProduceRequest,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
    ShareGroupDescribeRequest,
    ShareGroupHeartbeatRequest,
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Answer<T> {
    /// What it says.
    pub body: T,
    /// The version of request and answer.
    pub version: i16,
    /// How long the broker wants no further request on this connection; it reads none until then, so whoever asks
    /// before waits, and its deadline runs. Zero as a rule.
    pub throttle: Duration,
    /// The request's size on the wire, in bytes.
    pub sent_bytes: usize,
    /// The answer's size on the wire, in bytes.
    pub bytes: usize,
}

impl<T> Answer<T> {
    pub(super) fn of<R: Request<Response = T>>(
        body: T,
        version: i16,
        sent_bytes: usize,
        bytes: usize,
    ) -> Self {
        let millis = u64::try_from(R::throttle_time_ms(&body)).unwrap_or_default();
        Self { body, version, throttle: Duration::from_millis(millis), sent_bytes, bytes }
    }
}
