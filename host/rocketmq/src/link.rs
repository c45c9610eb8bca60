//! The connection to one endpoint: made when first needed, made anew when lost, watched from its first byte.

mod dial;

use std::sync::Arc;
use std::time::Duration;

use dial::Dialer;
use parking_lot::Mutex;
use rustls::ClientConfig;
use tidegate_proto::rocketmq::messaging_service_client::MessagingServiceClient;
use tonic::transport::{Channel, Endpoint, Uri};

use crate::endpoints::Endpoints;
use crate::wire::{Finding, Slot};

/// A client of the generated service.
pub(crate) type Client = MessagingServiceClient<Channel>;

/// Largest message that is decoded, in bytes. Items of a stream come one by one, each with a body of at most 4 MiB by
/// the broker's default; brokers can be set higher.
const DECODE_BYTES_MAX: usize = 64 << 20;
/// HTTP/2 windows, in bytes: a full answer of 32 messages of 64 KiB fits into one stream without a pause.
const STREAM_WINDOW_BYTES: u32 = 2 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;
/// Proxies send `too_many_pings` when pinged more often than every five minutes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(300);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(30);

/// The connection to one endpoint.
#[derive(Debug)]
pub(crate) struct Link {
    dialer: Dialer,
    slot: Slot,
    channel: Mutex<Channel>,
}

/// An address that cannot be written as a URI.
#[derive(Debug, thiserror::Error)]
#[error("`{endpoints}` cannot be used as an address")]
pub struct LinkError {
    endpoints: Box<str>,
    #[source]
    source: Box<dyn std::error::Error + Send + Sync>,
}

impl Link {
    /// A link to `endpoints` that connects when first used.
    pub(crate) fn open(endpoints: &Endpoints, tls: Option<Arc<ClientConfig>>) -> Result<Self, LinkError> {
        let slot = Slot::default();
        let dialer = Dialer::new(endpoints.clone(), tls, slot.clone());
        let channel = Mutex::new(channel(&dialer)?);
        Ok(Self { dialer, slot, channel })
    }

    /// A client for one call or stream.
    pub(crate) fn client(&self) -> Client {
        let channel = self.channel.lock().clone();
        Client::new(channel).max_decoding_message_size(DECODE_BYTES_MAX)
    }

    /// Leaves the present connection to the calls that still use it; later ones get a new one.
    pub(crate) fn rebuild(&self) {
        if let Ok(fresh) = channel(&self.dialer) {
            *self.channel.lock() = fresh;
        }
    }

    /// What the connection saw.
    pub(crate) fn finding(&self) -> Finding {
        self.slot.finding()
    }
}

fn channel(dialer: &Dialer) -> Result<Channel, LinkError> {
    let endpoints = dialer.endpoints();
    let wrong = |source| LinkError { endpoints: (**endpoints.text()).into(), source };
    let authority = &endpoints.addresses()[0];
    let scheme = if dialer.is_tls() { "https" } else { "http" };
    let origin: Uri = format!("{scheme}://{authority}").parse().map_err(|error| wrong(Box::new(error)))?;
    // The dialer does TLS by itself, so tonic must not see a URI that asks for it.
    let endpoint = Endpoint::from_shared(format!("http://{authority}"))
        .map_err(|error| wrong(Box::new(error)))?
        .origin(origin)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .keep_alive_while_idle(true);
    Ok(endpoint.connect_with_connector_lazy(dialer.clone()))
}
