//! How hosts are reached: addresses, TLS, the bearer token.

use std::error::Error as _;
use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tidegate_proto::handoff::handoff_client::HandoffClient;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request};

/// How long a host may take to accept a connection, its TLS handshake included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A connection on which nothing comes is asked, and is over when it does not answer: a host that vanished without a
/// word is noticed.
const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(10);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// The largest answer that is taken. Hosts keep what they send at one time near 1 MiB, but for a single message that is
/// larger; brokers take messages of a few MiB.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// What may be under way on a connection before it was read.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 4 << 20;
/// The largest PEM file that is read, in bytes.
const PEM_BYTES_MAX: u64 = 1 << 20;

/// Why hosts cannot be reached as it was wanted. Shows no secret.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AccessError {
    /// An address that is none.
    #[error("`{address}` is no address of a host, such as `http://127.0.0.1:9641`: {problem}")]
    Address {
        /// As given.
        address: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A token that cannot be sent.
    #[error("a bearer token has only visible ASCII characters")]
    Token,
    /// A file cannot be read.
    #[error("cannot read `{}`", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The certificates or keys cannot be used.
    #[error("TLS cannot be used with `{address}`: {problem}")]
    Tls {
        /// The address.
        address: String,
        /// Why not.
        problem: String,
    },
}

/// How a worker checks hosts, and what it shows them. For addresses that begin with `https://`; without more, hosts are
/// checked by the certificates that the system trusts.
#[derive(Clone, Debug, Default)]
pub struct Tls {
    ca_file: Option<PathBuf>,
    identity_files: Option<(PathBuf, PathBuf)>,
    server_name: Option<String>,
}

impl Tls {
    /// Checks hosts by the certificates that the system trusts.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// PEM file with the certificates that hosts' own must lead to, instead of the system's. Read once, at the start.
    #[must_use]
    pub fn ca_file(self, path: impl Into<PathBuf>) -> Self {
        Self { ca_file: Some(path.into()), ..self }
    }

    /// PEM files with the worker's own certificate chain and its private key, for hosts that ask for one. Read once, at
    /// the start.
    #[must_use]
    pub fn identity_files(self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        Self { identity_files: Some((certificate.into(), key.into())), ..self }
    }

    /// The name that hosts' certificates must have, when it is not the one in the address.
    #[must_use]
    pub fn server_name(self, name: impl Into<String>) -> Self {
        Self { server_name: Some(name.into()), ..self }
    }

    fn config(&self) -> Result<ClientTlsConfig, AccessError> {
        let mut config = match &self.ca_file {
            Some(path) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(path)?)),
            None => ClientTlsConfig::new().with_native_roots(),
        };
        if let Some((certificate, key)) = &self.identity_files {
            config = config.identity(Identity::from_pem(read(certificate)?, read(key)?));
        }
        Ok(match &self.server_name {
            Some(name) => config.domain_name(name),
            None => config,
        })
    }
}

/// What a builder was told about reaching hosts.
#[derive(Clone, Default)]
pub(crate) struct Access {
    pub(crate) token: Option<String>,
    pub(crate) tls: Option<Tls>,
}

/// One host's address, ready to be called.
pub(crate) struct Peer {
    pub(crate) address: Arc<str>,
    endpoint: Endpoint,
    authorization: Option<MetadataValue<Ascii>>,
    /// Made at the first call: that needs a runtime.
    channel: OnceLock<Channel>,
}

impl Access {
    pub(crate) fn peer(&self, address: &str) -> Result<Peer, AccessError> {
        let problem = |problem: String| AccessError::Address { address: address.to_owned(), problem };
        let endpoint =
            Endpoint::from_shared(address.to_owned()).map_err(|_| problem("it cannot be read".to_owned()))?;
        let mut endpoint = endpoint
            .connect_timeout(CONNECT_TIMEOUT)
            .http2_keep_alive_interval(KEEP_ALIVE_EVERY)
            .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW);
        let uri = endpoint.uri();
        if uri.host().is_none_or(str::is_empty) {
            return Err(problem("it names no machine".to_owned()));
        }
        match (uri.scheme_str(), &self.tls) {
            (Some("http"), None) => {}
            (Some("http"), Some(_)) => {
                return Err(problem("with TLS it begins with `https://`".to_owned()));
            }
            (Some("https"), tls) => {
                let config = tls.clone().unwrap_or_default().config()?;
                endpoint = endpoint.tls_config(config).map_err(|error| AccessError::Tls {
                    address: address.to_owned(),
                    problem: with_causes(&error.to_string(), error.source()),
                })?;
            }
            _ => return Err(problem("it begins with `http://` or `https://`".to_owned())),
        }
        let authorization = self.token.as_ref().map(|token| {
            let value = MetadataValue::try_from(format!("Bearer {token}"));
            let mut value = value.map_err(|_| AccessError::Token)?;
            value.set_sensitive(true);
            Ok(value)
        });
        let authorization = authorization.transpose()?;
        Ok(Peer { address: address.into(), endpoint, authorization, channel: OnceLock::new() })
    }
}

impl Peer {
    /// Connects when something is asked of it. Needs a runtime.
    pub(crate) fn client(&self) -> HandoffClient<Channel> {
        let channel = self.channel.get_or_init(|| self.endpoint.connect_lazy());
        HandoffClient::new(channel.clone()).max_decoding_message_size(ANSWER_BYTES_MAX)
    }

    /// A request with what lets it in.
    pub(crate) fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(authorization) = &self.authorization {
            request.metadata_mut().insert("authorization", authorization.clone());
        }
        request
    }
}

/// Shows no token and no key.
impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer").field("address", &self.address).finish_non_exhaustive()
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("token", &self.token.is_some()).field("tls", &self.tls).finish()
    }
}

/// Why a host did not do what it was asked.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Trouble {
    /// Whether it would say the same to the same request.
    pub(crate) is_refusal: bool,
    /// In a sentence.
    pub(crate) detail: String,
}

impl From<tonic::Status> for Trouble {
    fn from(status: tonic::Status) -> Self {
        let is_refusal = matches!(
            status.code(),
            Code::Unauthenticated | Code::PermissionDenied | Code::InvalidArgument | Code::Unimplemented
        );
        Self { is_refusal, detail: with_causes(status.message(), status.source()) }
    }
}

/// What an error says, and what is behind it.
fn with_causes(text: &str, mut cause: Option<&(dyn std::error::Error + 'static)>) -> String {
    let mut told = if text.is_empty() { "the host gave no reason".to_owned() } else { text.to_owned() };
    while let Some(error) = cause {
        let text = error.to_string();
        if !told.contains(&text) {
            told.push_str(": ");
            told.push_str(&text);
        }
        cause = error.source();
    }
    told
}

fn read(path: &Path) -> Result<Vec<u8>, AccessError> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(PEM_BYTES_MAX).read_to_end(&mut bytes));
    read.map_err(|source| AccessError::File { path: path.to_owned(), source })?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(access: &Access, address: &str) -> String {
        match access.peer(address) {
            Ok(peer) => format!("{peer:?}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn mistakes_get_a_sentence() {
        let plain = Access::default();
        for (address, what) in [
            ("127.0.0.1:9641", "begins with `http://`"),
            ("http://", "no address"),
            ("ftp://host:1", "begins with `http://`"),
            ("", "no address"),
            ("http://a b", "cannot be read"),
        ] {
            assert!(told(&plain, address).contains(what), "{address}: {}", told(&plain, address));
        }
        let tls = Access { tls: Some(Tls::new()), ..Access::default() };
        assert!(told(&tls, "http://localhost:9641").contains("https://"));
        let missing = Access { tls: Some(Tls::new().ca_file("/nowhere/ca.pem")), ..Access::default() };
        assert!(told(&missing, "https://localhost:9641").contains("/nowhere/ca.pem"));
    }

    #[test]
    fn nothing_shows_a_token() {
        let access = Access { token: Some("hunter2-hunter2".to_owned()), ..Access::default() };
        let peer = access.peer("http://localhost:9641").unwrap();
        assert!(!format!("{access:?} {peer:?} {:?}", peer.request(())).contains("hunter2"));
        let odd = Access { token: Some("hunter2\n".to_owned()), ..Access::default() };
        assert_eq!(told(&odd, "http://localhost:9641"), AccessError::Token.to_string());
    }
}
