//! Sources of every kind, as flows use them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tidegate_connector::options::OptionError;
use tidegate_connector::{Clock, Settler, Source};
use tidegate_kafka_share::connector as kafka_share;
use tidegate_policy::PolicyHost;
use tidegate_telemetry::Telemetry;

use super::StartError;
use super::policies::resolve_client_keys;

/// Receives at one time of each member of a share group: while a flow works on what one brought, the next one's records are on
/// their way.
const RECEIVES_PER_MEMBER: usize = 2;

/// The typed options of a source.
#[derive(Clone, Debug)]
pub enum SourceOptions {
    /// Of `rocketmq-grpc`.
    RocketMq(Box<tidegate_rocketmq::SourceOptions>),
    /// Of `kafka-sharegroup`.
    KafkaShare(Box<kafka_share::SourceOptions>),
}

/// A running source and the settler of its deliveries.
pub(super) struct Connected {
    pub(super) source: Arc<dyn Source>,
    pub(super) settler: Arc<dyn Settler>,
}

impl SourceOptions {
    /// The typed options of a source; `None` when its connector is none.
    ///
    /// # Errors
    /// Every mistake that its option table alone cannot see.
    pub(super) fn of(source: &tidegate_config::Source) -> Result<Option<Self>, Vec<OptionError>> {
        Ok(Some(match &*source.connector {
            connector if connector == tidegate_rocketmq::TABLE.connector => {
                Self::RocketMq(Box::new(tidegate_rocketmq::SourceOptions::from_values(&source.values)?))
            }
            connector if connector == kafka_share::TABLE.connector => {
                Self::KafkaShare(Box::new(kafka_share::SourceOptions::from_values(&source.values)?))
            }
            _ => return Ok(None),
        }))
    }

    /// Those of a RocketMQ source, if it is one.
    #[must_use]
    pub fn rocketmq(&self) -> Option<&tidegate_rocketmq::SourceOptions> {
        match self {
            Self::RocketMq(options) => Some(options),
            Self::KafkaShare(_) => None,
        }
    }

    /// What is wrong with the files that they name, in sentences.
    #[must_use]
    pub fn check_files(&self) -> Vec<String> {
        let errors = match self {
            Self::RocketMq(options) => tidegate_rocketmq::check_tls_files(&options.client),
            Self::KafkaShare(options) => options.check_files(),
        };
        errors.iter().map(ToString::to_string).collect()
    }

    /// Receives at one time.
    pub(super) fn receive_workers(&self) -> usize {
        match self {
            Self::RocketMq(options) => options.fetch_concurrency,
            Self::KafkaShare(options) => options.parallelism * RECEIVES_PER_MEMBER,
        }
    }

    /// Messages that one receive may ask for.
    pub(super) fn receive_batch_max(&self) -> usize {
        match self {
            Self::RocketMq(options) => options.messages_max,
            Self::KafkaShare(options) => options.receive_records_max(),
        }
    }

    pub(super) fn renewal_policy(&self) -> Option<&Arc<str>> {
        match self {
            Self::RocketMq(options) => options.renewal_policy.as_ref(),
            Self::KafkaShare(options) => options.renewal_policy.as_ref(),
        }
    }

    pub(super) fn renewal_ahead_time(&self) -> Duration {
        match self {
            Self::RocketMq(options) => options.renewal_ahead_time,
            Self::KafkaShare(options) => options.renewal_ahead_time,
        }
    }

    /// Puts the resolver in place that they name. The configuration has been checked, so that it is there.
    pub(super) fn resolve_keys(&mut self, policies: &PolicyHost) -> Result<(), StartError> {
        match self {
            Self::RocketMq(options) => resolve_client_keys(policies, &mut options.client),
            Self::KafkaShare(options) => {
                if let Some(policy) = &options.credentials_resolver
                    && let Some(resolver) = policies.resolver(policy).map_err(StartError::Policies)?
                {
                    options.use_secrets(Arc::new(resolver));
                }
                Ok(())
            }
        }
    }

    /// Whether it keeps what it receives on this machine.
    pub(super) fn has_spool(&self) -> bool {
        matches!(self, Self::KafkaShare(options) if options.spool.is_some())
    }

    /// Starts the source. What it keeps on this machine is in the directory `spools`.
    pub(super) async fn connect(
        self,
        spools: &Path,
        clock: Clock,
        telemetry: Telemetry,
        name: Arc<str>,
    ) -> Result<Connected, StartError> {
        match self {
            Self::RocketMq(options) => {
                let connection = tidegate_rocketmq::connect(*options, clock, telemetry, name)
                    .await
                    .map_err(|error| StartError::Connect(Box::new(error)))?;
                Ok(Connected { source: connection.source, settler: connection.settler })
            }
            Self::KafkaShare(options) => {
                let link = kafka_share::connect(*options, spools, clock, telemetry, name)
                    .map_err(|error| StartError::ConnectShare(Box::new(error)))?;
                Ok(Connected { source: link.source, settler: link.settler })
            }
        }
    }
}
