//! A web server that tests tell what to answer.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream;
use http::{HeaderMap, Method, Request, Response, Version};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

/// A request as the server saw it.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    pub(super) version: Version,
    pub(super) at: tokio::time::Instant,
}

/// What the server answers.
pub(super) enum Reply {
    Whole(Response<Bytes>),
    /// The head, and then nothing more.
    HeadOnly(u16, &'static str),
    /// The head, and then 100 MB as fast as they are read.
    Large(u16),
    /// Nothing.
    Nothing,
}

pub(super) fn status(code: u16) -> Reply {
    Reply::Whole(Response::builder().status(code).body(Bytes::new()).unwrap())
}

pub(super) fn answer(code: u16, header: (&str, &str), body: &'static str) -> Reply {
    let response = Response::builder().status(code).header(header.0, header.1);
    Reply::Whole(response.body(Bytes::from_static(body.as_bytes())).unwrap())
}

type Handler = dyn Fn(usize, Seen) -> BoxFuture<'static, Reply> + Send + Sync;
type Body = BoxBody<Bytes, Infallible>;

#[derive(Default)]
pub(super) struct Counts {
    pub(super) seen: Mutex<Vec<Seen>>,
    pub(super) connections: AtomicUsize,
    /// Those that are open.
    pub(super) open: AtomicUsize,
    pub(super) in_flight: AtomicUsize,
    pub(super) in_flight_max: AtomicUsize,
    /// Bytes of large answers that were taken.
    pub(super) large_bytes: AtomicUsize,
}

/// Serves until it is dropped: then every connection is cut.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    pub(super) counts: Arc<Counts>,
    task: JoinHandle<()>,
}

impl Server {
    /// Answers each request as `handler` says, which gets its number, from 0.
    pub(super) async fn start<F>(handler: impl Fn(usize, Seen) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Reply> + Send + 'static,
    {
        Self::start_at("127.0.0.1:0".parse().unwrap(), None, handler).await
    }

    pub(super) async fn start_at<F>(
        address: SocketAddr,
        tls: Option<TlsAcceptor>,
        handler: impl Fn(usize, Seen) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Reply> + Send + 'static,
    {
        let handler: Arc<Handler> = Arc::new(move |nth, seen| Box::pin(handler(nth, seen)));
        let listener = TcpListener::bind(address).await.expect("the port is free");
        let address = listener.local_addr().unwrap();
        let counts = Arc::new(Counts::default());
        let shared = Arc::clone(&counts);
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (counts, handler, tls) = (Arc::clone(&shared), Arc::clone(&handler), tls.clone());
                counts.connections.fetch_add(1, Ordering::SeqCst);
                connections.spawn(async move {
                    let _open = Held::new(&counts.open);
                    match tls {
                        None => serve(stream, false, &counts, handler).await,
                        Some(tls) => {
                            let Ok(stream) = tls.accept(stream).await else { return };
                            let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                            serve(stream, is_http2, &counts, handler).await;
                        }
                    }
                });
            }
        });
        Self { address, counts, task }
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(super) fn seen(&self) -> Vec<Seen> {
        self.counts.seen.lock().clone()
    }

    /// Cuts every connection and frees the port.
    pub(super) async fn stop(mut self) {
        self.task.abort();
        let _ = (&mut self.task).await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Counts something for as long as it is there.
struct Held<'a>(&'a AtomicUsize);

impl<'a> Held<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn serve(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    is_http2: bool,
    counts: &Arc<Counts>,
    handler: Arc<Handler>,
) {
    let service = service_fn(|request: Request<Incoming>| {
        let (counts, handler) = (Arc::clone(counts), Arc::clone(&handler));
        async move {
            let _held = Held::new(&counts.in_flight);
            counts.in_flight_max.fetch_max(counts.in_flight.load(Ordering::SeqCst), Ordering::SeqCst);
            let (head, body) = request.into_parts();
            let Ok(body) = body.collect().await else { return std::future::pending().await };
            let seen = Seen {
                method: head.method,
                path: head.uri.path_and_query().unwrap().to_string(),
                headers: head.headers,
                body: body.to_bytes(),
                version: head.version,
                at: tokio::time::Instant::now(),
            };
            let nth = {
                let mut all = counts.seen.lock();
                all.push(seen.clone());
                all.len() - 1
            };
            Ok::<_, Infallible>(respond(handler(nth, seen).await, &counts).await)
        }
    });
    let io = TokioIo::new(stream);
    // Ends with an error when the client goes, which is its right.
    if is_http2 {
        let _ = http2::Builder::new(TokioExecutor::new()).serve_connection(io, service).await;
    } else {
        let _ = http1::Builder::new().serve_connection(io, service).await;
    }
}

async fn respond(reply: Reply, counts: &Arc<Counts>) -> Response<Body> {
    const LARGE_BYTES: usize = 100_000_000;
    const PIECE: &[u8] = &[b'x'; 50_000];
    match reply {
        Reply::Whole(response) => response.map(|body| Full::new(body).boxed()),
        Reply::Nothing => std::future::pending().await,
        Reply::HeadOnly(code, beginning) => {
            let first = Ok(Frame::data(Bytes::from_static(beginning.as_bytes())));
            let body = stream::StreamExt::chain(stream::iter([first]), stream::pending());
            Response::builder().status(code).body(StreamBody::new(body).boxed()).unwrap()
        }
        Reply::Large(code) => {
            let counts = Arc::clone(counts);
            let pieces = (0..LARGE_BYTES / PIECE.len()).map(move |_| {
                counts.large_bytes.fetch_add(PIECE.len(), Ordering::SeqCst);
                Ok(Frame::data(Bytes::from_static(PIECE)))
            });
            let body = StreamBody::new(stream::iter(pieces)).boxed();
            Response::builder().status(code).header("content-length", LARGE_BYTES).body(body).unwrap()
        }
    }
}

/// A server that says the same bytes on every connection, again and again if it should, whatever is asked.
pub(super) async fn babbler(bytes: &'static [u8], forever: bool) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let task = tokio::spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            connections.spawn(async move {
                let mut request = [0; 1024];
                let _ = stream.read(&mut request).await;
                while stream.write_all(bytes).await.is_ok() && forever {}
                tokio::time::sleep(Duration::from_millis(50)).await;
            });
        }
    });
    (address, task)
}

/// Stands between client and server, and can let connections go silent without ending them.
pub(super) struct Road {
    pub(super) address: SocketAddr,
    /// Connections before this one are silent.
    pub(super) silent_below: Arc<AtomicUsize>,
    pub(super) count: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Road {
    pub(super) async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (silent_below, count) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (silent, number) = (Arc::clone(&silent_below), Arc::clone(&count));
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let nth = number.fetch_add(1, Ordering::SeqCst);
                let silent = Arc::clone(&silent);
                connections.spawn(async move {
                    let server = TcpStream::connect(server).await.unwrap();
                    let ((from_client, to_client), (from_server, to_server)) =
                        (client.into_split(), server.into_split());
                    let is_silent = || silent.load(Ordering::SeqCst) > nth;
                    tokio::join!(
                        carry(from_client, to_server, is_silent),
                        carry(from_server, to_client, is_silent)
                    );
                });
            }
        });
        Self { address, silent_below, count, task }
    }
}

impl Drop for Road {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn carry(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    is_silent: impl Fn() -> bool,
) {
    let mut buffer = [0; 4096];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        if is_silent() {
            // What comes is lost, and neither side is told.
            std::future::pending::<()>().await;
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}

/// A certificate authority of the test's own, and a server's certificate from it.
pub(super) struct Pki {
    pub(super) ca_pem: String,
    certificate: rustls::pki_types::CertificateDer<'static>,
    key: Vec<u8>,
}

impl Pki {
    pub(super) fn new() -> Self {
        let mut authority = CertificateParams::new(Vec::<String>::new()).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let names = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
        let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
        Self { ca_pem: issuer.pem(), certificate: certificate.der().clone(), key: key.serialize_der() }
    }

    pub(super) fn acceptor(&self, protocols: &[&str]) -> TlsAcceptor {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder =
            ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let key = PrivateKeyDer::try_from(self.key.clone()).unwrap();
        let mut config =
            builder.with_no_client_auth().with_single_cert(vec![self.certificate.clone()], key).unwrap();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        TlsAcceptor::from(Arc::new(config))
    }
}
