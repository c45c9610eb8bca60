//! The host in this process: configuration, connector, lease book and policies as the program has them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;
use tidegate_config::{Catalog, Connector};
use tidegate_connector::{Clock, Sink};
use tidegate_pipeline::{Extras, Host, Identity, Totals};
use tidegate_telemetry::Telemetry;

use crate::configuration::Configuration;
use crate::loopback::{GROUP, TOPIC};

const CONNECTORS: &[Connector<'static>] = &[
    Connector::source(&tidegate_rocketmq::TABLE),
    Connector::sink(&tidegate_sinks::DISCARD),
    Connector::sink(&tidegate_handoff::TABLE),
];
/// Nothing is left to do when the measurement is over.
const DRAIN_WITHIN: Duration = Duration::from_secs(5);

/// Where the flow's messages go.
pub(crate) enum To {
    /// Accepted at once.
    Discard,
    /// To workers, at an address of the system's choice.
    Workers,
    /// To a sink of the measurement's own.
    Sink(Box<dyn Sink>),
}

/// A host with one flow: fair-share, then a sink.
pub(crate) struct Embedded {
    host: Host,
    _directory: TempDir,
}

impl Embedded {
    pub(crate) async fn start(endpoint: &str, receives: usize, policies: &Path, to: To) -> Result<Self> {
        let (options, sink) = match to {
            To::Discard => (Configuration::DISCARD, None),
            To::Workers => ("connector = \"handoff\"\nlisten = \"127.0.0.1:0\"", None),
            To::Sink(sink) => (Configuration::DISCARD, Some(sink)),
        };
        let directory = tempfile::tempdir()?;
        let policies = policies
            .canonicalize()
            .with_context(|| format!("there are no policies in {}", policies.display()))?;
        let (component, rules) = Configuration::FAIR_SHARE;
        let configuration = Configuration {
            policies: &policies,
            state: &directory.path().join("state"),
            log_level: "warn",
            component,
            rules,
            endpoint,
            topic: TOPIC,
            topic_kind: "lite",
            group: GROUP,
            receives,
            key: "lite-topic",
            sink: options,
        };
        let file = directory.path().join("tidegate.toml");
        let catalog = Catalog { connectors: CONNECTORS };
        let config = tidegate_config::parse(&file.display().to_string(), &configuration.toml(), &catalog)?;
        let extras = Extras {
            sinks: sink
                .into_iter()
                .map(|sink| (Arc::from(Configuration::SINK), sink))
                .collect::<BTreeMap<_, _>>(),
            identity: Some(Identity::ephemeral()?),
            require_policies: true,
        };
        let host = Host::start(&config, Clock::start(), &Telemetry::default(), extras).await?;
        Ok(Self { host, _directory: directory })
    }

    pub(crate) fn totals(&self) -> Totals {
        self.host.flows().first().map(|flow| flow.totals).unwrap_or_default()
    }

    /// Where workers come to.
    pub(crate) fn worker_address(&self) -> Option<SocketAddr> {
        self.host.worker_addresses().map(|(_, address)| address).next()
    }

    pub(crate) async fn stop(self) -> Result<()> {
        let report = self.host.drain(DRAIN_WITHIN).await;
        ensure!(report.failed.is_empty() && report.unfinished.is_empty(), "the flow did not end: {report:?}");
        Ok(())
    }
}
