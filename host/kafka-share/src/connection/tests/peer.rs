//! The other side of a connection: real sockets and real TLS, saying whatever a test wants a broker to say.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{Bytes, BytesMut};
use kafka_wire::{
    ApiVersionsRequest, ApiVersionsResponse, KafkaMessage, MetadataRequest, RequestHeader,
    RequestResponsePair, ResponseHeader, SaslAuthenticateRequest, SaslAuthenticateResponse,
    SaslHandshakeRequest, SaslHandshakeResponse, ShareFetchRequest, api_versions_response,
    response_header_version_for,
};
use kafka_wire_core::{ApiVersion, DecodeLimits, Decoder, KafkaDecode, KafkaEncode, StrBytes};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use crate::connection::BrokerAddress;

pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// What Kafka 4.3 offers, as far as anything here is interested.
pub(super) const KAFKA_4_3: &[(i16, i16, i16)] =
    &[(3, 0, 13), (10, 0, 6), (17, 0, 1), (18, 0, 4), (36, 0, 2), (76, 1, 1), (78, 1, 2), (79, 1, 2)];

/// Somebody who listens. Ends when dropped.
pub(super) struct Broker {
    pub(super) address: BrokerAddress,
    accepted: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

/// One connection, from the broker's side.
pub(super) struct Peer {
    pub(super) stream: Box<dyn Stream>,
    /// Which one it is, from 0.
    pub(super) number: usize,
}

/// A request that came.
pub(super) struct Heard {
    pub(super) key: i16,
    pub(super) version: ApiVersion,
    pub(super) correlation: i32,
    pub(super) client_id: String,
    body: Decoder,
}

impl Broker {
    /// Listens, and does `serve` with each connection.
    pub(super) async fn start<F, Served>(serve: F) -> Self
    where
        F: Fn(Peer) -> Served + Send + 'static,
        Served: Future<Output = ()> + Send + 'static,
    {
        Self::start_inner(None, serve).await
    }

    /// The same with TLS.
    pub(super) async fn start_tls<F, Served>(acceptor: TlsAcceptor, serve: F) -> Self
    where
        F: Fn(Peer) -> Served + Send + 'static,
        Served: Future<Output = ()> + Send + 'static,
    {
        Self::start_inner(Some(acceptor), serve).await
    }

    async fn start_inner<F, Served>(acceptor: Option<TlsAcceptor>, serve: F) -> Self
    where
        F: Fn(Peer) -> Served + Send + 'static,
        Served: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let accepted = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&accepted);
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((tcp, _)) = listener.accept().await {
                let number = counter.fetch_add(1, Ordering::Relaxed);
                let stream: Box<dyn Stream> = match &acceptor {
                    None => Box::new(tcp),
                    // A client that does not go through with it is no business of the other ones.
                    Some(acceptor) => match acceptor.accept(tcp).await {
                        Ok(stream) => Box::new(stream),
                        Err(_) => continue,
                    },
                };
                connections.spawn(serve(Peer { stream, number }));
            }
        });
        let address = BrokerAddress::parse(&format!("127.0.0.1:{port}")).unwrap();
        Self { address, accepted, task }
    }

    /// A broker that greets as 4.3 does, and then does `serve`.
    pub(super) async fn greeting<F, Served>(serve: F) -> Self
    where
        F: Fn(Peer) -> Served + Clone + Send + Sync + 'static,
        Served: Future<Output = ()> + Send + 'static,
    {
        Self::start(move |mut peer| {
            let serve = serve.clone();
            async move {
                peer.greet(KAFKA_4_3).await;
                serve(peer).await;
            }
        })
        .await
    }

    /// Connections so far.
    pub(super) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Peer {
    /// The next request; `None` when the client has gone.
    pub(super) async fn hear(&mut self) -> Option<Heard> {
        let bytes = self.stream.read_u32().await.ok()?;
        let mut frame = vec![0; usize::try_from(bytes).unwrap()];
        self.stream.read_exact(&mut frame).await.ok()?;
        let key = i16::from_be_bytes([frame[0], frame[1]]);
        let version = ApiVersion::new(i16::from_be_bytes([frame[2], frame[3]]));
        let is_flexible = match key {
            3 => MetadataRequest::is_flexible(version),
            17 => SaslHandshakeRequest::is_flexible(version),
            18 => ApiVersionsRequest::is_flexible(version),
            36 => SaslAuthenticateRequest::is_flexible(version),
            78 => ShareFetchRequest::is_flexible(version),
            other => panic!("unexpected key {other}"),
        };
        let mut body = Decoder::new(Bytes::from(frame), DecodeLimits::default()).unwrap();
        let header_version = ApiVersion::new(if is_flexible { 2 } else { 1 });
        let header = RequestHeader::decode(&mut body, header_version).unwrap();
        let client_id = header.client_id.map(StrBytes::into_string).unwrap_or_default();
        Some(Heard { key, version, correlation: header.correlation_id, client_id, body })
    }

    /// The next request, which is there.
    pub(super) async fn must_hear(&mut self) -> Heard {
        self.hear().await.expect("a request")
    }

    pub(super) async fn answer<R: RequestResponsePair>(&mut self, heard: &Heard, body: &R::Response) {
        let frame = answer_frame::<R>(heard.version, heard.correlation, body);
        self.say(&frame).await;
    }

    pub(super) async fn say(&mut self, bytes: &[u8]) {
        // The client may have gone.
        let _ = self.stream.write_all(bytes).await;
        let _ = self.stream.flush().await;
    }

    /// Answers the question for versions.
    pub(super) async fn greet(&mut self, offered: &[(i16, i16, i16)]) {
        let heard = self.must_hear().await;
        assert_eq!(heard.key, 18);
        self.answer::<ApiVersionsRequest>(&heard, &offer(offered)).await;
    }

    /// Agrees on whatever mechanism is asked for, and gives its name.
    pub(super) async fn agree(&mut self) -> String {
        let heard = self.must_hear().await;
        let request: SaslHandshakeRequest = heard.body();
        let mut answer = SaslHandshakeResponse::default();
        answer.mechanisms = vec![request.mechanism.clone()];
        self.answer::<SaslHandshakeRequest>(&heard, &answer).await;
        request.mechanism.into_string()
    }

    /// The next message of an exchange.
    pub(super) async fn hear_sasl(&mut self) -> (Heard, String) {
        let heard = self.must_hear().await;
        let request: SaslAuthenticateRequest = heard.body();
        (heard, String::from_utf8(request.auth_bytes.to_vec()).unwrap())
    }

    pub(super) async fn answer_sasl(&mut self, heard: &Heard, text: &str, lifetime_ms: i64) {
        let mut answer = SaslAuthenticateResponse::default();
        answer.auth_bytes = Bytes::copy_from_slice(text.as_bytes());
        answer.session_lifetime_ms = lifetime_ms;
        self.answer::<SaslAuthenticateRequest>(heard, &answer).await;
    }

    pub(super) async fn deny_sasl(&mut self, heard: &Heard, text: &str) {
        let mut answer = SaslAuthenticateResponse::default();
        answer.error_code = 58;
        answer.error_message = Some(StrBytes::from(text));
        self.answer::<SaslAuthenticateRequest>(heard, &answer).await;
    }

    /// Answers every question for metadata until the client goes.
    pub(super) async fn serve_metadata(&mut self) {
        while let Some(heard) = self.hear().await {
            assert_eq!(heard.key, 3);
            self.answer::<MetadataRequest>(&heard, &Default::default()).await;
        }
    }
}

impl Heard {
    pub(super) fn body<M: KafkaMessage>(&self) -> M {
        let mut body = self.body.clone();
        let message = M::decode(&mut body, self.version).unwrap();
        body.finish().unwrap();
        message
    }
}

/// A whole answer with its length.
pub(super) fn answer_frame<R: RequestResponsePair>(
    version: ApiVersion,
    correlation: i32,
    body: &R::Response,
) -> Bytes {
    let header_version = ApiVersion::new(response_header_version_for::<R>(version).unwrap());
    let mut header = ResponseHeader::default();
    header.correlation_id = correlation;
    let mut frame = BytesMut::from(&[0; 4][..]);
    header.encode_into(&mut frame, header_version).unwrap();
    body.encode_into(&mut frame, version).unwrap();
    let bytes = u32::try_from(frame.len() - 4).unwrap();
    frame[..4].copy_from_slice(&bytes.to_be_bytes());
    frame.freeze()
}

pub(super) fn offer(offered: &[(i16, i16, i16)]) -> ApiVersionsResponse {
    let mut answer = ApiVersionsResponse::default();
    answer.api_keys = offered
        .iter()
        .map(|(key, min, max)| {
            let mut range = api_versions_response::ApiVersion::default();
            (range.api_key, range.min_version, range.max_version) = (*key, *min, *max);
            range
        })
        .collect();
    answer
}
