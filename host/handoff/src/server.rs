//! The server: its address, its connections, the flows that it serves.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::{Router, middleware};
use hyper::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use parking_lot::Mutex;
use tidegate_connector::{Clock, ReceiptSettler, Sink};
use tidegate_model::{ReceiptIssuer, ReceiptKey, Routing};
use tidegate_proto::handoff::DESCRIPTORS;
use tidegate_proto::handoff::handoff_server::HandoffServer;
use tidegate_telemetry::Telemetry;
use tidegate_telemetry::events::handoff as events;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::service::Routes;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;
use tower::ServiceExt as _;

use crate::connection::{Impatient, Patience};
use crate::dispatch;
use crate::flow::FlowHandle;
use crate::forward::Forwarder;
use crate::grpc;
use crate::http;
use crate::intake::Intake;
use crate::options::ServiceOptions;
use crate::rights::{Rights, TokensError};
use crate::service::Service;
use crate::settle::SettleRouter;
use crate::tls::{self, TlsError};

/// Connections of one service at one time; more wait.
pub const CONNECTIONS_MAX: usize = 1024;
/// Streams of one connection.
const STREAMS_MAX: u32 = 256;
/// How long a TLS handshake, and the head of an HTTP/1 request, may take.
const GREETING_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the other end of a connection may say nothing at first, and take nothing of what is sent to it later.
const PATIENCE: Patience = Patience { greeting: GREETING_TIMEOUT, taking: Duration::from_secs(30) };
/// A connection on which nothing comes is asked, and is over when it does not answer: its workers are gone.
const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(10);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// The largest gRPC request: as large as the twin's.
const REQUEST_BYTES_MAX: usize = http::BODY_BYTES_MAX;
/// What may be under way to one worker before it has read it.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 4 << 20;
/// How often the file of tokens is looked at.
const TOKENS_EVERY: Duration = Duration::from_secs(2);
/// After a failed accept, most often for want of file handles.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long connections have to end by themselves once the service is closed.
const CLOSE_GRACE: Duration = Duration::from_secs(2);

/// What a service is made of.
pub struct Parts {
    /// The sink's name in the configuration.
    pub name: Arc<str>,
    /// What the user chose.
    pub options: ServiceOptions,
    /// The fleet's key.
    pub key: ReceiptKey,
    /// The host's id.
    pub host_id: Arc<str>,
    /// Who settles what other hosts gave out, if anybody can.
    pub others: Option<Arc<dyn ReceiptSettler>>,
    /// Who passes on what only the host that gave it out can settle.
    pub forwarder: Arc<Forwarder>,
    /// Whether only the host that gave a message out can settle it.
    pub owner_settles: fn(&Routing) -> bool,
    /// The process's clock.
    pub clock: Clock,
    /// Where events go.
    pub telemetry: Telemetry,
}

/// Why the service could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address cannot be had.
    #[error("sink `{name}` cannot listen on {address}; choose another `listen`")]
    Bind {
        /// The sink's name.
        name: Arc<str>,
        /// The address.
        address: SocketAddr,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// A file of certificates or keys.
    #[error("sink `{name}` cannot use TLS")]
    Tls {
        /// The sink's name.
        name: Arc<str>,
        /// What is wrong.
        #[source]
        source: TlsError,
    },
    /// The file of tokens.
    #[error("sink `{name}` cannot let anybody in")]
    Tokens {
        /// The sink's name.
        name: Arc<str>,
        /// What is wrong.
        #[source]
        source: TokensError,
    },
    /// The protocol's own description.
    #[error("sink `{name}` cannot describe its protocol: {detail}")]
    Reflection {
        /// The sink's name.
        name: Arc<str>,
        /// Why not.
        detail: Box<str>,
    },
}

impl StartError {
    /// Whether the configuration is at fault, rather than the surroundings.
    #[must_use]
    pub const fn is_config(&self) -> bool {
        matches!(self, Self::Tls { .. } | Self::Tokens { .. })
    }
}

/// A running service. Closing it ends its connections; dropping it does so without grace.
#[derive(Debug)]
pub struct Handoff {
    name: Arc<str>,
    address: SocketAddr,
    options: ServiceOptions,
    owner_settles: fn(&Routing) -> bool,
    key: ReceiptKey,
    host_id: Arc<str>,
    registry: Arc<Registry>,
    health: HealthReporter,
    clock: Clock,
    telemetry: Telemetry,
    closing: CancellationToken,
    tasks: TaskTracker,
}

/// The flows that are served.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    flows: Mutex<BTreeMap<Arc<str>, FlowHandle>>,
    /// Flows that were served and have ended; as many as were configured at most.
    ended: Mutex<BTreeSet<Arc<str>>>,
}

impl Registry {
    pub(crate) fn find(&self, flow: &str) -> Option<FlowHandle> {
        self.flows.lock().get(flow).cloned()
    }

    pub(crate) fn all(&self) -> BTreeMap<Arc<str>, FlowHandle> {
        self.flows.lock().clone()
    }

    /// Whether a flow was served here and is over.
    pub(crate) fn has_ended(&self, flow: &str) -> bool {
        self.ended.lock().contains(flow)
    }

    pub(crate) fn remove(&self, flow: &str) {
        if let Some((name, _)) = self.flows.lock().remove_entry(flow) {
            self.ended.lock().insert(name);
        }
    }

    fn insert(&self, flow: Arc<str>, handle: FlowHandle) {
        self.flows.lock().insert(flow, handle);
    }
}

impl Handoff {
    /// Reads the files, binds the address and begins to serve; flows come with [`sink`](Self::sink).
    ///
    /// # Errors
    /// When a file cannot be used or the address cannot be had.
    pub async fn start(parts: Parts) -> Result<Self, StartError> {
        let Parts { name, options, key, host_id, others, forwarder, owner_settles, clock, telemetry } = parts;
        let tls = options.tls.as_ref().map(tls::acceptor).transpose();
        let tls = tls.map_err(|source| StartError::Tls { name: Arc::clone(&name), source })?;
        let rights = options.tokens_file.as_deref().map(Rights::load).transpose();
        let rights = rights.map_err(|source| StartError::Tokens { name: Arc::clone(&name), source })?;
        let (has_tokens, has_client_ca) =
            (rights.is_some(), options.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some()));
        let bind = |source| StartError::Bind { name: Arc::clone(&name), address: options.listen, source };
        let listener = TcpListener::bind(options.listen).await.map_err(bind)?;
        let address = listener.local_addr().map_err(bind)?;
        let registry = Arc::<Registry>::default();
        let (closing, tasks) = (CancellationToken::new(), TaskTracker::new());
        let router = SettleRouter {
            key: key.clone(),
            host_id: Arc::clone(&host_id),
            registry: Arc::clone(&registry),
            others,
            forwarder,
            owner_settles,
            clock,
            telemetry: telemetry.clone(),
        };
        let rights = rights.unwrap_or_default();
        if let Some(path) = options.tokens_file.clone() {
            let following =
                follow_tokens(rights.clone(), path, Arc::clone(&name), telemetry.clone(), closing.clone());
            tasks.spawn(following);
        }
        let service = Service {
            rights,
            registry: Arc::clone(&registry),
            router,
            clock,
            telemetry: telemetry.clone(),
            closing: closing.clone(),
            tasks: tasks.clone(),
        };
        let (health, health_service) = tonic_health::server::health_reporter();
        health.set_service_status("tidegate.v1.Handoff", ServingStatus::Serving).await;
        let reflection = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(DESCRIPTORS)
            .build_v1()
            .map_err(|error| StartError::Reflection {
                name: Arc::clone(&name),
                detail: error.to_string().into(),
            })?;
        let grpc = HandoffServer::new(service.clone())
            .max_decoding_message_size(REQUEST_BYTES_MAX)
            .max_encoding_message_size(usize::MAX);
        let routes = Routes::new(grpc).add_service(health_service).add_service(reflection);
        let unguarded = !has_tokens && !has_client_ca;
        let router = routes
            .into_axum_router()
            .layer(middleware::from_fn_with_state(service.clone(), grpc::gate))
            .merge(http::router(service, unguarded))
            .fallback(http::unknown_path)
            .layer(middleware::from_fn_with_state(unguarded, http::only_machines));
        telemetry.emit(events::Listening {
            sink: &name,
            address,
            tls: tls.is_some(),
            guard: match (has_tokens, has_client_ca) {
                (true, true) => "tokens and certificates",
                (true, false) => "tokens",
                (false, true) => "certificates",
                (false, false) => "everybody on this machine",
            },
            exposed: has_tokens && tls.is_none() && !address.ip().is_loopback(),
        });
        let accepting = accept(listener, router, tls, closing.clone(), tasks.clone(), telemetry.clone());
        tasks.spawn(accepting);
        Ok(Self {
            name,
            address,
            options,
            owner_settles,
            key,
            host_id,
            registry,
            health,
            clock,
            telemetry,
            closing,
            tasks,
        })
    }

    /// Where it listens, with the port that was really taken.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The sink of one flow, whose workers find it from now on.
    #[must_use]
    pub fn sink(&self, flow: &Arc<str>, accepts_on_delivery: bool) -> Box<dyn Sink> {
        let options = dispatch::Options {
            accepts_on_delivery,
            key_affinity: self.options.key_affinity,
            held_max: self.options.held_max,
            owner_settles: self.owner_settles,
        };
        let issuer =
            ReceiptIssuer { key: self.key.clone(), owner: Arc::clone(&self.host_id), flow: Arc::clone(flow) };
        let (handle, sink) = FlowHandle::new(
            Arc::clone(&self.name),
            options,
            issuer,
            Arc::clone(&self.registry),
            self.clock,
            self.telemetry.clone(),
        );
        self.registry.insert(Arc::clone(flow), handle);
        Box::new(sink)
    }

    /// Ends every stream and connection, and waits for them. Settlements under way are answered.
    pub async fn close(&self) {
        self.health.set_service_status("tidegate.v1.Handoff", ServingStatus::NotServing).await;
        self.closing.cancel();
        self.tasks.close();
        // What does not end by itself is a connection whose other end does not answer; it ends with the process.
        let _ = tokio::time::timeout(CLOSE_GRACE, self.tasks.wait()).await;
    }
}

impl Drop for Handoff {
    fn drop(&mut self) {
        self.closing.cancel();
    }
}

/// Reads the file of tokens again and again: a token that others have learnt must not need a restart to be withdrawn.
async fn follow_tokens(
    rights: Rights,
    path: PathBuf,
    sink: Arc<str>,
    telemetry: Telemetry,
    closing: CancellationToken,
) {
    let following = async {
        let mut told: Option<String> = None;
        loop {
            tokio::time::sleep(TOKENS_EVERY).await;
            let (again, path) = (rights.clone(), path.clone());
            // A panic there is a bug, and leaves everything as it was.
            let Ok(read) = tokio::task::spawn_blocking(move || again.refresh(&path)).await else { return };
            let problem = read.as_ref().err().map(ToString::to_string);
            match &problem {
                Some(problem) if told.as_ref() != Some(problem) => {
                    telemetry.emit(events::TokensUnusable { sink: &sink, problem });
                }
                _ => {}
            }
            told = problem;
            if let Ok(Some(tokens)) = read {
                telemetry.emit(events::TokensChanged { sink: &sink, tokens });
            }
        }
    };
    tokio::select! {
        () = following => {}
        () = closing.cancelled() => {}
    }
}

async fn accept(
    listener: TcpListener,
    router: Router,
    tls: Option<TlsAcceptor>,
    closing: CancellationToken,
    tasks: TaskTracker,
    telemetry: Telemetry,
) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let next = async {
            let permit = Arc::clone(&permits).acquire_owned().await;
            (permit, listener.accept().await)
        };
        let (permit, accepted) = tokio::select! {
            next = next => next,
            () = closing.cancelled() => return,
        };
        let Ok((stream, peer)) = accepted else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let (router, tls, closing) = (router.clone(), tls.clone(), closing.clone());
        let telemetry = telemetry.clone();
        tasks.spawn(async move {
            // Without it small answers wait for the ones before; a socket that refuses it still works.
            let _ = stream.set_nodelay(true);
            match tls {
                None => serve(stream, router, closing).await,
                Some(tls) => match greet(stream, &tls).await {
                    Ok(stream) => serve(stream, router, closing).await,
                    Err(detail) => {
                        let caller = &*peer.to_string();
                        telemetry.emit(events::Refused { cause: "tls", detail: &detail, caller });
                    }
                },
            }
            drop(permit);
        });
    }
}

/// A TLS handshake; or why there was none.
async fn greet(stream: TcpStream, tls: &TlsAcceptor) -> Result<TlsStream<TcpStream>, String> {
    match tokio::time::timeout(GREETING_TIMEOUT, tls.accept(stream)).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no handshake within {} s", GREETING_TIMEOUT.as_secs())),
    }
}

/// One connection. How it ends is the client's affair.
async fn serve<S>(stream: S, router: Router, closing: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(GREETING_TIMEOUT);
    builder
        .http2()
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(STREAMS_MAX)
        .keep_alive_interval(KEEP_ALIVE_EVERY)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT);
    let stream = Impatient::new(stream, PATIENCE);
    let intake = Intake::new();
    let watched = intake.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let router = router.clone();
        intake.clone().count(request, async |request| router.oneshot(request).await)
    });
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return,
        () = watched.untaken() => return,
        () = closing.cancelled() => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = tokio::time::timeout(CLOSE_GRACE, connection).await;
}

impl ServiceOptions {
    /// Looks at the files that the options name: gives every one that cannot be used.
    #[must_use]
    pub fn check_files(&self) -> Vec<FilesError> {
        let tls = self.tls.as_ref().and_then(|files| tls::acceptor(files).err());
        let tokens = self.tokens_file.as_ref().and_then(|path| Rights::load(path).err());
        tls.map(FilesError::Tls).into_iter().chain(tokens.map(FilesError::Tokens)).collect()
    }

    /// The flows that tokens are for, each with the token's name; those of a file that cannot be used are none.
    #[must_use]
    pub fn flows_of_tokens(&self) -> Vec<(Arc<str>, String)> {
        let rights = self.tokens_file.as_ref().and_then(|path| Rights::load(path).ok());
        rights.map(|rights| rights.flows()).unwrap_or_default()
    }
}

/// A file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// A certificate or key.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The tokens.
    #[error(transparent)]
    Tokens(#[from] TokensError),
}
