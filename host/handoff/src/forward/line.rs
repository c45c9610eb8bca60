//! The line to one peer: a connection that is made when it is needed, and calls on it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use secrecy::{ExposeSecret as _, SecretString};
use tidegate_connector::tls;
use tidegate_proto::handoff as proto;
use tidegate_proto::handoff::handoff_client::HandoffClient;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

use super::directory::{Failure, Fault};
use super::parcel::{self, Load};
use crate::settle::Kept;
use crate::wire;

/// The metadata of a call that was passed on: the id of the host that it is for. Such a call is never passed on again.
pub(crate) const FORWARDED_TO: &str = "tidegate-forwarded-to";

/// How long a connection may take, TLS included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// A connection on which nothing comes is asked, and is over when it does not answer.
const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(10);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(5);
/// The largest answer that is read: a thousand receipts of the longest kind, and a sentence to each.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// A peer as it is configured.
#[derive(Clone, Debug)]
pub struct PeerOptions {
    /// Its name in the configuration.
    pub name: Arc<str>,
    /// `http://HOST:PORT`, or `https://`.
    pub endpoint: Arc<str>,
    /// What lets this host in there.
    pub token: Option<SecretString>,
    /// How connections are encrypted; looked at with `https://` only.
    pub tls: tls::Client,
}

/// What the TLS keys of a peer are called.
const TLS_NAMES: tls::OptionNames =
    tls::OptionNames { trust: "tls-ca-file", certificates: "tls-cert-file", key: "tls-key-file" };

/// Why a peer cannot be used as configured.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// The endpoint is no address.
    #[error("`endpoint` cannot be read as an address: {problem}")]
    Endpoint {
        /// Why not.
        problem: Box<str>,
    },
    /// The token cannot stand in a request.
    #[error("`token` has characters that no bearer token has; it is one line of printable ASCII")]
    Token,
    /// The files.
    #[error(transparent)]
    Tls(#[from] tls::TlsError),
}

impl PeerOptions {
    /// Looks at what the options name on this machine; connects to nothing.
    #[must_use]
    pub fn check(&self) -> Vec<PeerError> {
        let mut errors: Vec<PeerError> = if self.has_tls() {
            self.tls.check(&TLS_NAMES).into_iter().map(Into::into).collect()
        } else {
            Vec::new()
        };
        errors.extend(self.authorization().err());
        errors.extend(self.address().err());
        errors
    }

    fn has_tls(&self) -> bool {
        self.endpoint.starts_with("https://")
    }

    fn authorization(&self) -> Result<Option<MetadataValue<Ascii>>, PeerError> {
        let Some(token) = &self.token else { return Ok(None) };
        let text = format!("Bearer {}", token.expose_secret());
        let mut value = MetadataValue::try_from(text).map_err(|_| PeerError::Token)?;
        value.set_sensitive(true);
        Ok(Some(value))
    }

    fn address(&self) -> Result<Address, PeerError> {
        let wrong = |problem: String| PeerError::Endpoint { problem: problem.into() };
        let uri: axum::http::Uri = self.endpoint.parse().map_err(|error| wrong(format!("{error}")))?;
        let (Some(host), Some(port)) = (uri.host(), uri.port_u16()) else {
            return Err(wrong("it names no machine and port".to_owned()));
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        Ok(Address { host: host.into(), port })
    }
}

#[derive(Clone, Debug)]
struct Address {
    host: Arc<str>,
    port: u16,
}

/// The line to one peer.
pub(super) struct Line {
    client: HandoffClient<Channel>,
    authorization: Option<MetadataValue<Ascii>>,
    /// Why the last connection did not come about.
    trouble: Arc<Mutex<Option<String>>>,
}

/// Why a call brought nothing.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum CallError {
    /// The peer cannot be asked.
    Failed(Failure),
    /// It is another host than it was.
    Stranger,
    /// It was asked and could not, for now.
    Busy(String),
}

/// What a peer says of itself.
#[derive(Clone, Debug)]
pub struct Description {
    /// Its host id.
    pub host: String,
    /// Its version.
    pub version: String,
    /// The flows that it serves and this host's token is for.
    pub flows: Vec<String>,
}

impl Line {
    /// Connects to nothing yet.
    pub(super) fn new(options: &PeerOptions) -> Result<Self, PeerError> {
        let address = options.address()?;
        let tls = if options.has_tls() {
            let mut config = options.tls.config(&TLS_NAMES)?;
            config.alpn_protocols = vec![b"h2".to_vec()];
            Some(Arc::new(config))
        } else {
            None
        };
        let wrong = |problem: String| PeerError::Endpoint { problem: problem.into() };
        let origin = options.endpoint.parse().map_err(|error| wrong(format!("{error}")))?;
        let authority = options.endpoint.split_once("://").map_or(&*options.endpoint, |(_, rest)| rest);
        // The dialer does TLS by itself, so tonic must not see a URI that asks for it.
        let endpoint = Endpoint::from_shared(format!("http://{authority}"))
            .map_err(|error| wrong(error.to_string()))?
            .origin(origin)
            .http2_keep_alive_interval(KEEP_ALIVE_EVERY)
            .keep_alive_timeout(KEEP_ALIVE_TIMEOUT);
        let trouble = Arc::<Mutex<Option<String>>>::default();
        let seen = Arc::clone(&trouble);
        let dialer = tower::service_fn(move |_| {
            let (address, tls, seen) = (address.clone(), tls.clone(), Arc::clone(&seen));
            async move {
                let dialled = tokio::time::timeout(CONNECT_TIMEOUT, dial(&address, tls)).await;
                let late = || format!("no connection within {} s", CONNECT_TIMEOUT.as_secs());
                let dialled =
                    dialled.unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, late())));
                *seen.lock() = dialled.as_ref().err().map(ToString::to_string);
                dialled.map(TokioIo::new)
            }
        });
        let channel = endpoint.connect_with_connector_lazy(dialer);
        let client = HandoffClient::new(channel)
            .max_decoding_message_size(ANSWER_BYTES_MAX)
            .max_encoding_message_size(usize::MAX);
        Ok(Self { client, authorization: options.authorization()?, trouble })
    }

    /// Asks the peer which host it is.
    pub(super) async fn describe(&self, timeout: Duration) -> Result<Description, CallError> {
        let request = self.request(proto::DescribeRequest {}, timeout);
        let mut client = self.client.clone();
        let described = self.call(timeout, client.describe(request)).await?;
        Ok(Description {
            host: described.host,
            version: described.version,
            flows: described.flows.into_iter().map(|flow| flow.name).collect(),
        })
    }

    /// Passes on what one host is to do: one result for each, in order.
    pub(super) async fn pass_on(
        &self,
        owner: &str,
        load: &Load,
        timeout: Duration,
    ) -> Result<Vec<Kept>, CallError> {
        let mut client = self.client.clone();
        match load {
            Load::Settle(settlements) => {
                let request = proto::SettleRequest { settlements: settlements.clone() };
                let request = marked(owner, self.request(request, timeout))?;
                let answer = self.call(timeout, client.settle(request)).await?;
                Ok(parcel::settled(load, answer.results))
            }
            Load::Renew(renewals) => {
                let request = proto::RenewRequest { renewals: renewals.clone() };
                let request = marked(owner, self.request(request, timeout))?;
                let answer = self.call(timeout, client.renew(request)).await?;
                Ok(parcel::renewed(load, answer.results))
            }
        }
    }

    /// A request with what lets it in, and with its deadline, so that the other side answers in time.
    fn request<T>(&self, message: T, timeout: Duration) -> Request<T> {
        let mut request = Request::new(message);
        request.set_timeout(timeout);
        if let Some(authorization) = &self.authorization {
            request.metadata_mut().insert("authorization", authorization.clone());
        }
        request
    }

    async fn call<T>(
        &self,
        timeout: Duration,
        calling: impl Future<Output = Result<tonic::Response<T>, Status>>,
    ) -> Result<T, CallError> {
        match tokio::time::timeout(timeout, calling).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(self.classify(&status)),
            Err(_) => Err(CallError::Failed(Failure {
                fault: Fault::Away,
                problem: format!("no answer within {} ms", timeout.as_millis()),
            })),
        }
    }

    fn classify(&self, status: &Status) -> CallError {
        let said = || wire::in_short(status.message()).into_owned();
        let failed = |fault, problem| CallError::Failed(Failure { fault, problem });
        match status.code() {
            Code::FailedPrecondition => CallError::Stranger,
            Code::Unauthenticated | Code::PermissionDenied | Code::Unimplemented => {
                failed(Fault::Refuses, said())
            }
            Code::ResourceExhausted | Code::InvalidArgument | Code::Aborted => CallError::Busy(said()),
            // Most often that there is no connection, or none any more; the dialer knows best why.
            _ => failed(Fault::Away, self.trouble.lock().clone().unwrap_or_else(said)),
        }
    }
}

/// A request that only the host with this id takes.
fn marked<T>(owner: &str, mut request: Request<T>) -> Result<Request<T>, CallError> {
    // An id that no header can hold is nobody's.
    let owner = MetadataValue::try_from(owner).map_err(|_| CallError::Stranger)?;
    request.metadata_mut().insert(FORWARDED_TO, owner);
    Ok(request)
}

/// A connected stream of either kind.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

async fn dial(address: &Address, tls: Option<Arc<ClientConfig>>) -> io::Result<Box<dyn Stream>> {
    let stream = TcpStream::connect((&*address.host, address.port)).await?;
    // Without it small requests wait for the ones before; a socket that refuses it still works.
    let _ = stream.set_nodelay(true);
    let Some(config) = tls else { return Ok(Box::new(stream)) };
    let name = ServerName::try_from(address.host.to_string()).map_err(io::Error::other)?;
    let stream = TlsConnector::from(config).connect(name, stream).await;
    let stream = stream.map_err(|error| io::Error::new(error.kind(), format!("TLS: {error}")))?;
    Ok(Box::new(stream))
}
