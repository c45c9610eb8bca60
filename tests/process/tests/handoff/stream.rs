//! A host's service for workers over gRPC: streams as workers have them, and calls that no worker would make.

use std::time::Duration;

use bytes::{Buf as _, BufMut as _};
use tidegate_process_tests::PATIENCE;
use tidegate_proto::handoff as proto;
use tidegate_proto::handoff::handoff_client::HandoffClient;
use tidegate_proto::handoff::settlement::Verdict;
use tidegate_proto::handoff::subscribe_request::Kind as Asked;
use tidegate_proto::handoff::subscribe_response::Kind as Said;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::{self, uri::PathAndQuery};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status, Streaming};

/// A connection of its own to the service at an address.
pub(crate) async fn connect(address: &str) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
    endpoint.connect().await.expect("the service is there")
}

/// What opens a stream of the flow `tenants`.
pub(crate) fn open(messages: u64) -> proto::Open {
    let credits = Some(proto::Credits { messages, bytes: 0 });
    proto::Open { flow: "tenants".to_owned(), worker: "test".to_owned(), credits }
}

/// One worker's stream.
pub(crate) struct Stream {
    requests: mpsc::Sender<proto::SubscribeRequest>,
    responses: Streaming<proto::SubscribeResponse>,
}

impl Stream {
    /// Opens one that has been answered.
    pub(crate) async fn open(channel: &Channel, open: proto::Open) -> Result<Self, Status> {
        Self::begin(channel, Asked::Open(open)).await?.opened().await
    }

    /// The same with a bearer token.
    pub(crate) async fn open_with(channel: &Channel, token: &str, open: proto::Open) -> Result<Self, Status> {
        Self::begin_with(channel, Some(token), Asked::Open(open)).await?.opened().await
    }

    /// Begins one with any request.
    pub(crate) async fn begin(channel: &Channel, first: Asked) -> Result<Self, Status> {
        Self::begin_with(channel, None, first).await
    }

    async fn begin_with(channel: &Channel, token: Option<&str>, first: Asked) -> Result<Self, Status> {
        let (requests, waiting) = mpsc::channel(64);
        requests.try_send(proto::SubscribeRequest { kind: Some(first) }).expect("there is room");
        let mut client = HandoffClient::new(channel.clone()).max_decoding_message_size(16 << 20);
        let mut request = Request::new(ReceiverStream::new(waiting));
        if let Some(token) = token {
            let value = format!("Bearer {token}").parse().expect("text");
            request.metadata_mut().insert("authorization", value);
        }
        let responses = client.subscribe(request).await?.into_inner();
        Ok(Self { requests, responses })
    }

    async fn opened(mut self) -> Result<Self, Status> {
        match self.next().await? {
            Some(Said::Opened(_)) => Ok(self),
            other => panic!("it is not opened: {other:?}"),
        }
    }

    /// Says something; false when the stream has ended.
    pub(crate) async fn say(&self, kind: Asked) -> bool {
        self.requests.send(proto::SubscribeRequest { kind: Some(kind) }).await.is_ok()
    }

    pub(crate) async fn settle(&self, settlements: Vec<proto::Settlement>) -> bool {
        self.say(Asked::Settle(proto::Settlements { settlements })).await
    }

    /// The next that the host says; `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Said>, Status> {
        let next = tokio::time::timeout(PATIENCE, self.responses.message()).await;
        Ok(next.expect("the host says something")?.and_then(|response| response.kind))
    }

    /// The next deliveries, with whatever else is said in between passed over.
    pub(crate) async fn deliveries(&mut self) -> Vec<proto::Delivery> {
        loop {
            match self.next().await.expect("the stream goes on") {
                Some(Said::Deliveries(proto::Deliveries { deliveries })) => return deliveries,
                Some(_) => {}
                None => panic!("the stream has ended"),
            }
        }
    }

    /// The next answers to settlements.
    pub(crate) async fn settled(&mut self) -> Vec<proto::SettleResult> {
        loop {
            match self.next().await.expect("the stream goes on") {
                Some(Said::Settled(proto::SettleResults { results })) => return results,
                Some(_) => {}
                None => panic!("the stream has ended"),
            }
        }
    }

    /// Whether nothing is delivered for a while.
    pub(crate) async fn is_quiet(&mut self) -> bool {
        tokio::time::timeout(Duration::from_secs(1), self.deliveries()).await.is_err()
    }
}

/// A settlement that accepts.
pub(crate) fn accept(receipt: &str) -> proto::Settlement {
    let verdict = Some(Verdict::Accept(proto::Accept {}));
    proto::Settlement { receipt: receipt.to_owned(), verdict, cost: None }
}

/// Settles past any stream.
pub(crate) async fn settle(
    channel: &Channel,
    settlements: Vec<proto::Settlement>,
) -> Result<Vec<proto::SettleResult>, Status> {
    let mut client = HandoffClient::new(channel.clone()).max_decoding_message_size(16 << 20);
    let settling = client.settle(proto::SettleRequest { settlements });
    let settled = tokio::time::timeout(PATIENCE, settling).await.expect("an answer");
    settled.map(|response| response.into_inner().results)
}

/// Sends messages of any bytes, and then nothing more without ending; gives how the call ends.
pub(crate) async fn send_bytes(channel: &Channel, method: &str, messages: Vec<Vec<u8>>) -> Status {
    let mut client = tonic::client::Grpc::new(channel.clone());
    client.ready().await.expect("the connection is there");
    let path = PathAndQuery::try_from(format!("/tidegate.v1.Handoff/{method}")).expect("a path");
    let (sender, waiting) = mpsc::channel(messages.len().max(1));
    for message in messages {
        sender.try_send(message).expect("there is room");
    }
    let calling = async {
        let mut answer = client.streaming(Request::new(ReceiverStream::new(waiting)), path, Bytes).await?;
        while answer.get_mut().message().await?.is_some() {}
        Ok::<_, Status>(())
    };
    let ended = tokio::time::timeout(PATIENCE, calling).await.expect("the call ends");
    drop(sender);
    ended.err().unwrap_or_else(|| Status::ok(""))
}

/// A call whose request says that it is longer than what comes of it.
pub(crate) async fn unfinished(channel: Channel, bytes: usize) -> Status {
    let mut frame = vec![0];
    frame.extend(u32::try_from(bytes + 1).expect("a length").to_be_bytes());
    frame.resize(bytes, 0);
    let (sender, body) = mpsc::channel::<bytes::Bytes>(1);
    sender.try_send(frame.into()).expect("there is room");
    let frames = tokio_stream::StreamExt::map(ReceiverStream::new(body), |bytes| {
        Ok::<_, Status>(hyper::body::Frame::data(bytes))
    });
    let request = http::Request::post("http://localhost/tidegate.v1.Handoff/Settle")
        .header("content-type", "application/grpc")
        .body(tonic::body::Body::new(http_body_util::StreamBody::new(frames)))
        .expect("a request");
    let mut channel = channel;
    std::future::poll_fn(|cx| tonic::codegen::Service::poll_ready(&mut channel, cx))
        .await
        .expect("connected");
    let answer = tonic::codegen::Service::call(&mut channel, request).await;
    drop(sender);
    match answer {
        Ok(response) => Status::from_header_map(response.headers()).expect("a status"),
        Err(error) => Status::unknown(error.to_string()),
    }
}

/// Messages as they are.
struct Bytes;

impl Codec for Bytes {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Bytes {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put_slice(&item);
        Ok(())
    }
}

impl Decoder for Bytes {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        let mut item = vec![0; from.remaining()];
        from.copy_to_slice(&mut item);
        Ok(Some(item))
    }
}
