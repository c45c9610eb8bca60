//! What a client's parts share: who it is, how it connects, where it reports.

use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use tidegate_connector::Clock;
use tidegate_proto::rocketmq as proto;
use tidegate_telemetry::Telemetry;

use crate::credentials::Purpose;
use crate::endpoints::Endpoints;
use crate::fault::Subject;
use crate::link::{Link, LinkError};
use crate::options::ClientOptions;
use crate::peer::Peer;
use crate::stamp::Stamp;
use crate::tls::{self, TlsError};

/// The unchanging parts of one client.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) name: Arc<str>,
    pub(crate) endpoints: Endpoints,
    pub(crate) namespace: Arc<str>,
    pub(crate) request_timeout: Duration,
    pub(crate) subject: Subject,
    pub(crate) stamp: Arc<Stamp>,
    pub(crate) clock: Clock,
    pub(crate) telemetry: Telemetry,
    tls: Option<Arc<ClientConfig>>,
}

/// Why a client could not be made. Everything here is wrong on this side of the network.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// TLS files or options.
    #[error("TLS for {endpoints} could not be set up")]
    Tls {
        /// The access point.
        endpoints: Endpoints,
        /// What is wrong.
        #[source]
        source: TlsError,
    },
    /// The access point.
    #[error("the access point could not be used")]
    Link(#[from] LinkError),
    /// The system's source of randomness.
    #[error("the system gives no random bytes for a client id: {0}")]
    Random(getrandom::Error),
}

impl Core {
    /// `subject` tells errors what the client is about, `purpose` whoever knows its keys what they are for.
    pub(crate) fn new(
        options: &ClientOptions,
        subject: Subject,
        purpose: Purpose,
        clock: Clock,
        telemetry: Telemetry,
        name: Arc<str>,
    ) -> Result<Self, SetupError> {
        let tls = load_tls(options)?;
        Self::with_tls(options, tls, subject, purpose, clock, telemetry, name)
    }

    /// The same with TLS files that have been read already.
    pub(crate) fn with_tls(
        options: &ClientOptions,
        tls: Option<Arc<ClientConfig>>,
        subject: Subject,
        purpose: Purpose,
        clock: Clock,
        telemetry: Telemetry,
        name: Arc<str>,
    ) -> Result<Self, SetupError> {
        let client_id = client_id(getrandom::u64().map_err(SetupError::Random)?);
        let stamp = Stamp::new(
            client_id.into(),
            &options.namespace,
            Arc::clone(&options.credentials),
            purpose,
            clock,
            getrandom::u64().map_err(SetupError::Random)?,
        );
        Ok(Self {
            name,
            endpoints: options.endpoints.clone(),
            namespace: Arc::clone(&options.namespace),
            request_timeout: options.request_timeout,
            subject,
            stamp: Arc::new(stamp),
            clock,
            telemetry,
            tls,
        })
    }

    /// The access point itself, where routes are asked for.
    pub(crate) fn access_point(&self) -> Result<Peer, LinkError> {
        Ok(Peer { subject: self.subject.clone(), ..self.peer(&self.endpoints)? })
    }

    /// An endpoint of a route.
    pub(crate) fn peer(&self, endpoints: &Endpoints) -> Result<Peer, LinkError> {
        Ok(Peer {
            endpoints: endpoints.clone(),
            subject: self.subject.at(endpoints.text()),
            link: Arc::new(Link::open(endpoints, self.tls.clone())?),
            stamp: Arc::clone(&self.stamp),
            request_timeout: self.request_timeout,
        })
    }

    pub(crate) fn resource(&self, name: &str) -> proto::Resource {
        proto::Resource { resource_namespace: self.namespace.as_ref().to_owned(), name: name.to_owned() }
    }

    /// A seed for jitter, different for every client.
    pub(crate) fn seed(&self) -> u64 {
        // FNV-1a over the client id, which is random.
        let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        self.stamp.client_id().bytes().fold(0xcbf2_9ce4_8422_2325, hash)
    }

    /// Longest wait for the server's Settings, after which a stream is given up.
    pub(crate) fn settings_wait(&self) -> Duration {
        const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
        CONNECT_TIMEOUT + self.request_timeout
    }
}

/// Reads the TLS files of a client.
pub(crate) fn load_tls(options: &ClientOptions) -> Result<Option<Arc<ClientConfig>>, SetupError> {
    tls::load(&options.tls, options.names)
        .map_err(|source| SetupError::Tls { endpoints: options.endpoints.clone(), source })
}

/// This machine's name, for people who look at the server's list of clients.
pub(crate) fn host_name() -> String {
    let from_kernel = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = from_kernel.or_else(|| std::env::var("HOSTNAME").ok());
    let name = name.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty());
    name.unwrap_or_else(|| "localhost".to_owned())
}

/// `host@process@index@number`: one per client, and never the same twice.
fn client_id(random: u64) -> String {
    format!("{}@{}@0@{random:x}", host_name(), std::process::id())
}
