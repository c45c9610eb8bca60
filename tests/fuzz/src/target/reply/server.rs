//! A gRPC server that is honest until a client receives, and then says exactly what it is told to.
//!
//! It speaks in bytes: what it answers to ReceiveMessage need not be a message of any kind.

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf as _, BufMut as _, Bytes};
use futures::stream::{self, BoxStream, StreamExt as _};
use parking_lot::Mutex;
use prost::Message as _;
use tidegate_proto::rocketmq::{
    Address, AddressScheme, Broker, Code, Endpoints, HeartbeatResponse, MessageQueue, MessageType,
    NotifyClientTerminationResponse, Permission, QueryRouteResponse, ReceiveMessageResponse, Resource,
    Settings, Status, Subscription, SyncLiteSubscriptionResponse, TelemetryCommand, settings,
    telemetry_command,
};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::server::{Grpc, NamedService, StreamingService};
use tonic::transport::Server;
use tonic::{Request, Response, Streaming};

use super::TOPIC;

pub(super) struct HostileServer {
    address: SocketAddr,
    answer: Arc<Mutex<Vec<u8>>>,
    task: JoinHandle<()>,
}

impl HostileServer {
    pub(super) async fn start() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let answer = Arc::new(Mutex::new(Vec::new()));
        let service = Service { address, answer: Arc::clone(&answer) };
        let serving =
            Server::builder().add_service(service).serve_with_incoming(TcpListenerStream::new(listener));
        let task = tokio::spawn(async move {
            // It ends with the runtime.
            let _ = serving.await;
        });
        Ok(Self { address, answer, task })
    }

    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// What the next receives get: framed stream items, see [`frame`].
    pub(super) fn answer_with(&self, bytes: &[u8]) {
        bytes.clone_into(&mut self.answer.lock());
    }
}

impl Drop for HostileServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Stream items as one piece of bytes that survives mutation: each behind two bytes of length.
pub(super) fn frame(items: &[ReceiveMessageResponse]) -> Vec<u8> {
    let mut framed = Vec::new();
    for item in items {
        let bytes = item.encode_to_vec();
        framed.put_u16(u16::try_from(bytes.len()).unwrap_or(u16::MAX));
        framed.extend_from_slice(&bytes);
    }
    framed
}

/// The items of a piece of bytes; a length that is too long takes what there is.
fn items(mut framed: Bytes) -> Vec<Bytes> {
    let mut items = Vec::new();
    while framed.remaining() >= 2 {
        let length = usize::from(framed.get_u16()).min(framed.remaining());
        items.push(framed.split_to(length));
    }
    items
}

/// The readable items of a piece of bytes.
pub(super) fn parse(framed: &[u8]) -> Vec<ReceiveMessageResponse> {
    let readable = |item| ReceiveMessageResponse::decode(item).ok();
    items(Bytes::copy_from_slice(framed)).into_iter().filter_map(readable).collect()
}

#[derive(Clone)]
struct Service {
    address: SocketAddr,
    answer: Arc<Mutex<Vec<u8>>>,
}

impl NamedService for Service {
    const NAME: &'static str = "apache.rocketmq.v2.MessagingService";
}

impl tower::Service<http::Request<Body>> for Service {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let method = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
        let answers = self.answers(&method);
        Box::pin(async move { Ok(Grpc::new(Raw).streaming(Answers(answers), request).await) })
    }
}

impl Service {
    fn answers(&self, method: &str) -> BoxStream<'static, Bytes> {
        let ok = Some(Status { code: Code::Ok.into(), message: String::new() });
        let one = |bytes: Vec<u8>| stream::iter([Bytes::from(bytes)]).boxed();
        match method {
            "QueryRoute" => {
                one(QueryRouteResponse { status: ok, message_queues: vec![self.queue()] }.encode_to_vec())
            }
            "Heartbeat" => one(HeartbeatResponse { status: ok }.encode_to_vec()),
            "SyncLiteSubscription" => one(SyncLiteSubscriptionResponse { status: ok }.encode_to_vec()),
            "NotifyClientTermination" => one(NotifyClientTerminationResponse { status: ok }.encode_to_vec()),
            // The stream stays open, as servers keep it.
            "Telemetry" => one(settings(ok).encode_to_vec()).chain(stream::pending()).boxed(),
            "ReceiveMessage" => stream::iter(items(Bytes::from(self.answer.lock().clone()))).boxed(),
            _ => stream::empty().boxed(),
        }
    }

    fn queue(&self) -> MessageQueue {
        let host = self.address.ip().to_string();
        let address = Address { host, port: self.address.port().into() };
        let endpoints = Endpoints { scheme: AddressScheme::IPv4.into(), addresses: vec![address] };
        MessageQueue {
            topic: Some(Resource { name: TOPIC.into(), ..Default::default() }),
            permission: Permission::ReadWrite.into(),
            broker: Some(Broker {
                name: "broker-0".into(),
                endpoints: Some(endpoints),
                ..Default::default()
            }),
            accept_message_types: vec![MessageType::Lite.into()],
            ..Default::default()
        }
    }
}

fn settings(status: Option<Status>) -> TelemetryCommand {
    let subscription = Subscription {
        fifo: Some(false),
        receive_batch_size: Some(32),
        long_polling_timeout: Some(prost_types::Duration { seconds: 20, nanos: 0 }),
        ..Default::default()
    };
    let settings =
        Settings { pub_sub: Some(settings::PubSub::Subscription(subscription)), ..Default::default() };
    TelemetryCommand { status, command: Some(telemetry_command::Command::Settings(settings)) }
}

/// Answers every call with these bytes.
struct Answers(BoxStream<'static, Bytes>);

impl StreamingService<Bytes> for Answers {
    type Response = Bytes;
    type ResponseStream = BoxStream<'static, Result<Bytes, tonic::Status>>;
    type Future = Ready<Result<Response<Self::ResponseStream>, tonic::Status>>;

    fn call(&mut self, _: Request<Streaming<Bytes>>) -> Self::Future {
        let answers = std::mem::replace(&mut self.0, stream::empty().boxed());
        ready(Ok(Response::new(answers.map(Ok).boxed())))
    }
}

/// A codec that leaves bytes as they are.
#[derive(Clone, Copy, Debug, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = tonic::Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), tonic::Status> {
        buffer.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = tonic::Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, tonic::Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn framing_round_trips_and_survives_cuts() {
        let answer = super::super::seeds::all().swap_remove(1);
        let framed = Bytes::from(frame(&answer));
        let decoded: Vec<_> = items(framed.clone())
            .into_iter()
            .map(|item| ReceiveMessageResponse::decode(item).unwrap())
            .collect();
        assert_eq!(decoded, answer);
        for length in 0..framed.len() {
            assert!(items(framed.slice(..length)).len() <= answer.len());
        }
    }
}
