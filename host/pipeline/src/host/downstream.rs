//! Where messages go after the decision, and what settles receipts: the sinks of a configuration, its services for
//! workers, and the ack pool behind them.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_config::{AckMode, Config, Sink as SinkConfig};
use tidegate_connector::options::OptionError;
use tidegate_connector::{Clock, ReceiptSettler, Sink};
use tidegate_handoff::{Handoff, ServiceOptions};
use tidegate_policy::PolicyHost;
use tidegate_rocketmq::{AckClient, AckPool, AckScope, ClientOptions, GrpcSink, SinkOptions};
use tidegate_sinks::{
    Discard, FanOut, FileError, FileOptions, Http, HttpOptions, OpenFile, SinkParts, Stdout,
};
use tidegate_telemetry::Telemetry;

use super::policies::resolve_client_keys;
use super::{Extras, StartError, source_options};
use crate::identity::Identity;

/// What flows emit to, apart from sinks of their own.
#[derive(Debug)]
pub(super) struct Downstream {
    identity: Identity,
    /// By the name of their sink.
    services: BTreeMap<Arc<str>, Handoff>,
    /// By the name of their sink: flows that name the same one share it.
    files: Mutex<BTreeMap<Arc<str>, OpenFile>>,
    settler: Option<Arc<AckPool>>,
    clock: Clock,
    telemetry: Telemetry,
}

impl Downstream {
    /// Starts the services of a configuration, also of sinks that no flow uses: they settle what other hosts gave out.
    pub(super) async fn start(
        config: &Config,
        identity: Identity,
        policies: &PolicyHost,
        clock: Clock,
        telemetry: &Telemetry,
    ) -> Result<Self, StartError> {
        let telemetry = telemetry.clone();
        let (services, files) = (BTreeMap::new(), Mutex::default());
        let mut downstream = Self { identity, services, files, settler: None, clock, telemetry };
        let handoffs = config.sinks.iter().filter(|(_, sink)| is_handoff(sink));
        let handoffs: Vec<_> = handoffs
            .map(|(name, sink)| Ok((name, service_options(name, sink)?)))
            .collect::<Result<_, StartError>>()?;
        if handoffs.is_empty() {
            return Ok(downstream);
        }
        downstream.settler = Some(Arc::new(start_settler(config, policies, clock, &downstream.telemetry)?));
        for (name, options) in handoffs {
            let settler = downstream.settler.clone();
            let service = Handoff::start(tidegate_handoff::Parts {
                name: Arc::clone(name),
                options,
                key: downstream.identity.receipt_key().clone(),
                host_id: Arc::clone(downstream.identity.host_id()),
                others: settler.map(|settler| settler as Arc<dyn ReceiptSettler>),
                clock,
                telemetry: downstream.telemetry.clone(),
            });
            match service.await {
                Ok(service) => {
                    downstream.services.insert(Arc::clone(name), service);
                }
                Err(error) => {
                    downstream.close().await;
                    return Err(StartError::Handoff(Box::new(error)));
                }
            }
        }
        Ok(downstream)
    }

    pub(super) fn has_services(&self) -> bool {
        !self.services.is_empty()
    }

    /// Where services listen, by the name of their sink.
    pub(super) fn addresses(&self) -> impl Iterator<Item = (&Arc<str>, std::net::SocketAddr)> {
        self.services.iter().map(|(name, service)| (name, service.address()))
    }

    /// The sink of a flow: one, or all of several at once.
    pub(super) async fn flow_sink(
        &self,
        config: &Config,
        flow: &Arc<str>,
        policies: &PolicyHost,
        extras: &mut Extras,
    ) -> Result<Box<dyn Sink>, StartError> {
        let mut sinks = Vec::new();
        for name in &config.flows[flow].sinks {
            sinks.push((Arc::clone(name), self.sink(config, flow, name, policies, extras).await?));
        }
        Ok(match sinks.len() {
            1 => sinks.swap_remove(0).1,
            _ => Box::new(FanOut::new(Arc::clone(flow), sinks)),
        })
    }

    /// One sink, as a flow uses it.
    pub(super) async fn sink(
        &self,
        config: &Config,
        flow: &Arc<str>,
        name: &Arc<str>,
        policies: &PolicyHost,
        extras: &mut Extras,
    ) -> Result<Box<dyn Sink>, StartError> {
        if let Some(sink) = extras.sinks.remove(name) {
            return Ok(sink);
        }
        if let Some(service) = self.services.get(name) {
            return Ok(service.sink(flow, config.flows[flow].ack == AckMode::OnDelivery));
        }
        let sink = &config.sinks[name];
        let parts = || SinkParts {
            name: Arc::clone(name),
            source: Arc::clone(&config.flows[flow].source),
            issuer: self.identity.issuer(flow),
            clock: self.clock,
            telemetry: self.telemetry.clone(),
        };
        let options = |errors| StartError::SinkOptions { sink: Arc::clone(name), errors };
        let opened = |error: Box<dyn std::error::Error + Send + Sync>| StartError::Sink {
            sink: Arc::clone(name),
            source: error,
        };
        Ok(match &*sink.connector {
            "stdout" => {
                let SinkParts { name, source, issuer, clock, .. } = parts();
                Box::new(Stdout::new(name, source, issuer, clock))
            }
            "discard" => Box::new(Discard),
            "file" => {
                let file = FileOptions::from_values(&sink.values).map_err(options)?;
                Box::new(self.file(name, file).map_err(|error| opened(error.into()))?.sink(parts()))
            }
            "http" => {
                let http = HttpOptions::from_values(&sink.values).map_err(options)?;
                Box::new(Http::open(parts(), &http).map_err(|error| opened(error.into()))?)
            }
            _ if *sink.connector == *tidegate_rocketmq::TABLE.connector => {
                let mut grpc = SinkOptions::from_values(&sink.values).map_err(options)?;
                resolve_client_keys(policies, &mut grpc.client)?;
                let sink = GrpcSink::connect(grpc, self.clock, self.telemetry.clone(), Arc::clone(name));
                Box::new(sink.await.map_err(|error| opened(error.into()))?)
            }
            _ => return Err(StartError::Connector { connector: Arc::clone(&sink.connector), role: "sink" }),
        })
    }

    /// The file of a sink, opened by the first flow that names it.
    fn file(&self, sink: &Arc<str>, options: FileOptions) -> Result<OpenFile, FileError> {
        let mut files = self.files.lock();
        if let Some(file) = files.get(sink) {
            return Ok(file.clone());
        }
        let file = OpenFile::open(sink, options, self.clock, &self.telemetry)?;
        files.insert(Arc::clone(sink), file.clone());
        Ok(file)
    }

    /// Ends the services and the pool. Flows have ended before.
    pub(super) async fn close(&self) {
        self.files.lock().clear();
        futures::future::join_all(self.services.values().map(Handoff::close)).await;
        if let Some(settler) = &self.settler {
            settler.close().await;
        }
    }
}

/// The options of a sink that hands off.
///
/// # Errors
/// Every mistake that its table alone cannot see.
fn service_options(name: &Arc<str>, sink: &SinkConfig) -> Result<ServiceOptions, StartError> {
    ServiceOptions::from_values(&sink.values)
        .map_err(|errors: Vec<OptionError>| StartError::SinkOptions { sink: Arc::clone(name), errors })
}

fn is_handoff(sink: &SinkConfig) -> bool {
    *sink.connector == *tidegate_handoff::TABLE.connector
}

/// The pool for everything that a configuration knows how to reach.
fn start_settler(
    config: &Config,
    policies: &PolicyHost,
    clock: Clock,
    telemetry: &Telemetry,
) -> Result<AckPool, StartError> {
    let mut clients = ack_clients(config)?;
    for client in &mut clients {
        resolve_client_keys(policies, &mut client.client)?;
    }
    AckPool::start(clients, clock, telemetry.clone()).map_err(|error| StartError::Settler(Box::new(error)))
}

/// Who can settle receipts: the configured settlers for all of their namespaces, and each source for its own group.
/// Keys of resolvers are not in it yet.
///
/// # Errors
/// Every mistake that option tables alone cannot see.
pub fn ack_clients(config: &Config) -> Result<Vec<AckClient>, StartError> {
    let mut clients = Vec::new();
    for (name, settler) in &config.settlers {
        if *settler.connector != *tidegate_rocketmq::TABLE.connector {
            let connector = Arc::clone(&settler.connector);
            return Err(StartError::Connector { connector, role: "settler" });
        }
        let client = ClientOptions::from_values(&settler.values)
            .map_err(|errors| StartError::SettlerOptions { settler: Arc::clone(name), errors })?;
        let (name, scope) = (Arc::clone(name), AckScope::Namespace);
        clients.push(AckClient { name, client, scope, endpoint: None });
    }
    for (name, source) in &config.sources {
        let options = source_options(name, source)?;
        let group = (Arc::clone(&options.client.namespace), Arc::clone(&options.group));
        clients.push(AckClient {
            name: Arc::clone(name),
            client: options.client,
            scope: AckScope::Groups(vec![group]),
            endpoint: None,
        });
    }
    Ok(clients)
}
