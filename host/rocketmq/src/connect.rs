//! Starting a source with its settler.

use std::fmt;
use std::sync::Arc;

use tidegate_connector::{Clock, Settler, Source};
use tidegate_telemetry::Telemetry;
use tokio::time;

use crate::consumer::Consumer;
use crate::core::{Core, SetupError};
use crate::credentials::Purpose;
use crate::fault::{CallError, Subject};
use crate::options::{SourceOptions, Start};
use crate::settler::GrpcSettler;
use crate::source::GrpcSource;

/// A source and its settler, sharing one consumer. [`Source::close`] ends both.
#[derive(Clone)]
pub struct Connection {
    /// Where deliveries come from.
    pub source: Arc<dyn Source>,
    /// How they are settled.
    pub settler: Arc<dyn Settler>,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Something on this side of the network, such as a certificate file.
    #[error("source `{name}` cannot be set up")]
    Setup {
        /// The source's name in the configuration.
        name: Arc<str>,
        /// What is wrong.
        #[source]
        source: SetupError,
    },
    /// The cluster refused, or did not answer within the time that [`Start::Within`] gives.
    #[error("source `{name}` cannot be started")]
    Refused {
        /// The source's name in the configuration.
        name: Arc<str>,
        /// What the cluster said.
        #[source]
        source: CallError,
    },
    /// Nothing was heard from the cluster, good or bad, within the time that [`Start::Within`] gives.
    #[error("source `{name}` cannot be started: nothing was heard from the cluster behind {endpoints}")]
    Silent {
        /// The source's name in the configuration.
        name: Arc<str>,
        /// The access point.
        endpoints: crate::Endpoints,
    },
}

/// Starts a source. A cluster that does not answer is tried for ever, unless [`SourceOptions::start`] says otherwise.
///
/// # Errors
/// When something on this side is wrong; with [`Start::Within`] also when the cluster could not be reached in time.
pub async fn connect(
    options: SourceOptions,
    clock: Clock,
    telemetry: Telemetry,
    source_name: Arc<str>,
) -> Result<Connection, ConnectError> {
    let setup = |source| ConnectError::Setup { name: Arc::clone(&source_name), source };
    let start = options.start;
    let core = core(&options, clock, telemetry, Arc::clone(&source_name)).map_err(setup)?;
    let consumer = Consumer::start(core, options).map_err(setup)?;
    if let Start::Within(patience) = start
        && let Err(error) = wait_until_ready(&consumer, patience).await
    {
        consumer.close().await;
        return Err(match error {
            Some(source) => ConnectError::Refused { name: source_name, source },
            None => ConnectError::Silent { name: source_name, endpoints: consumer.core.endpoints.clone() },
        });
    }
    Ok(Connection {
        source: Arc::new(GrpcSource::new(Arc::clone(&consumer))),
        settler: Arc::new(GrpcSettler::new(consumer)),
    })
}

/// The core of a consumer.
pub(crate) fn core(
    options: &SourceOptions,
    clock: Clock,
    telemetry: Telemetry,
    name: Arc<str>,
) -> Result<Core, SetupError> {
    let subject = Subject {
        access_point: Arc::clone(options.client.endpoints.text()),
        endpoint: None,
        topic: Some(Arc::clone(&options.topic)),
        group: Some(Arc::clone(&options.group)),
        topic_kind: Some(options.topic_kind),
        names: options.client.names,
    };
    Core::new(&options.client, subject, Purpose::Consume, clock, telemetry, name)
}

async fn wait_until_ready(
    consumer: &Consumer,
    patience: std::time::Duration,
) -> Result<(), Option<CallError>> {
    let mut changes = consumer.sessions.changes();
    let waiting = async {
        loop {
            changes.borrow_and_update();
            let seats = consumer.sessions.all();
            let ready = seats.iter().any(|seat| {
                let view = seat.view();
                view.ready && (view.subscribed || !consumer.is_lite())
            });
            if ready || changes.changed().await.is_err() {
                return;
            }
        }
    };
    match time::timeout(patience, waiting).await {
        Ok(()) => Ok(()),
        Err(_) => Err(consumer.problem()),
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}
