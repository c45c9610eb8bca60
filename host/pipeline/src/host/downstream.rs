//! Where messages go after the decision, and what settles receipts: the sinks of a configuration, its services for
//! workers, and the ack pool behind them.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_config::{AckMode, Config};
use tidegate_connector::{Clock, ReceiptSettler, Sink};
use tidegate_handoff::{Forwarder, Handoff};
use tidegate_kafka_share::connector::only_owner_settles;
use tidegate_policy::PolicyHost;
use tidegate_rocketmq::{AckPool, GrpcSink};
use tidegate_sinks::{Discard, FanOut, FileError, FileOptions, Http, OpenFile, SinkParts, Stdout};
use tidegate_telemetry::Telemetry;

use super::policies::resolve_client_keys;
use super::preparation::{Preparation, Prepared};
use super::{Extras, StartError};
use crate::identity::Identity;

/// What flows emit to, apart from sinks of their own.
#[derive(Debug)]
pub(super) struct Downstream {
    prepared: Preparation,
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
        prepared: Preparation,
        identity: Identity,
        policies: &PolicyHost,
        clock: Clock,
        telemetry: &Telemetry,
    ) -> Result<Self, StartError> {
        let telemetry = telemetry.clone();
        let (services, files) = (BTreeMap::new(), Mutex::default());
        let handoffs: Vec<_> = prepared
            .sinks
            .iter()
            .filter_map(|(name, sink)| match sink {
                Prepared::Handoff(options) => Some((Arc::clone(name), options.clone())),
                _ => None,
            })
            .collect();
        let mut downstream = Self { prepared, identity, services, files, settler: None, clock, telemetry };
        if handoffs.is_empty() {
            return Ok(downstream);
        }
        downstream.settler = Some(Arc::new(downstream.start_settler(policies)?));
        let forwarder = downstream.start_forwarder()?;
        for (name, options) in handoffs {
            let settler = downstream.settler.clone();
            let service = Handoff::start(tidegate_handoff::Parts {
                name: Arc::clone(&name),
                options,
                key: downstream.identity.receipt_key().clone(),
                host_id: Arc::clone(downstream.identity.host_id()),
                others: settler.map(|settler| settler as Arc<dyn ReceiptSettler>),
                forwarder: Arc::clone(&forwarder),
                owner_settles: only_owner_settles,
                clock,
                telemetry: downstream.telemetry.clone(),
            });
            match service.await {
                Ok(service) => {
                    downstream.services.insert(name, service);
                }
                Err(error) => {
                    downstream.close().await;
                    return Err(StartError::Handoff(Box::new(error)));
                }
            }
        }
        Ok(downstream)
    }

    /// The pool for everything that the configuration knows how to reach.
    fn start_settler(&self, policies: &PolicyHost) -> Result<AckPool, StartError> {
        let mut clients = self.prepared.ack_clients();
        for client in &mut clients {
            resolve_client_keys(policies, &mut client.client)?;
        }
        AckPool::start(clients, self.clock, self.telemetry.clone())
            .map_err(|error| StartError::Settler(Box::new(error)))
    }

    /// Who passes receipts on to other hosts. It connects when there is something to pass on, and ends with the services.
    fn start_forwarder(&self) -> Result<Arc<Forwarder>, StartError> {
        let forwarder = Forwarder::start(self.prepared.peers.clone(), self.clock, self.telemetry.clone());
        let failed = |(peer, source)| StartError::Peer { peer, source: Box::new(source) };
        forwarder.map(Arc::new).map_err(failed)
    }

    /// What the configuration comes to.
    pub(super) const fn prepared(&self) -> &Preparation {
        &self.prepared
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
        let parts = || SinkParts {
            name: Arc::clone(name),
            source: Arc::clone(&config.flows[flow].source),
            issuer: self.identity.issuer(flow),
            clock: self.clock,
            telemetry: self.telemetry.clone(),
        };
        let opened = |error: Box<dyn std::error::Error + Send + Sync>| StartError::Sink {
            sink: Arc::clone(name),
            source: error,
        };
        // The configuration has been checked: what a flow names is there.
        Ok(match &self.prepared.sinks[name] {
            Prepared::Stdout => {
                let SinkParts { name, source, issuer, clock, .. } = parts();
                Box::new(Stdout::new(name, source, issuer, clock))
            }
            Prepared::Discard => Box::new(Discard),
            Prepared::File(file) => {
                let file = self.file(name, file.clone()).map_err(|error| opened(error.into()))?;
                Box::new(file.sink(parts()))
            }
            Prepared::Http(http) => {
                Box::new(Http::open(parts(), http).map_err(|error| opened(error.into()))?)
            }
            Prepared::RocketMq(options) => {
                let mut grpc = (**options).clone();
                resolve_client_keys(policies, &mut grpc.client)?;
                let sink = GrpcSink::connect(grpc, self.clock, self.telemetry.clone(), Arc::clone(name));
                Box::new(sink.await.map_err(|error| opened(error.into()))?)
            }
            // Each of them has its service, or nothing was started.
            Prepared::Handoff(_) => {
                self.services[name].sink(flow, config.flows[flow].ack == AckMode::OnDelivery)
            }
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
