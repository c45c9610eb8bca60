//! The whole of it: policies and flows, built from one configuration.

mod downstream;
mod files;
mod policies;
mod preparation;
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use tidegate_config::{Config, Exhausted, KeyBy, ReloadPlan};
use tidegate_connector::options::OptionError;
use tidegate_connector::{Clock, Sink};
use tidegate_lease::{RenewalOptions, Valves};
use tidegate_policy::{Comparison, EngineError, Header, PolicyHost, PolicyStatus, ReloadError, ReloadReport};
use tidegate_rocketmq::ConnectError;
use tidegate_telemetry::Telemetry;

use self::downstream::Downstream;
pub use self::files::open_files_max;
pub use self::policies::{Resolvers, engine_options, policy_spec, policy_specs};
use self::policies::{start_policies, update};
pub use self::preparation::{Mistake, Mistakes, Preparation};
pub use self::source::SourceOptions;
use crate::flow::{
    ControlError, Flow, FlowOptions, FlowParts, FlowState, FlowStatus, Recording, RecordingOptions, Tap,
    TapOptions, TooManyOnlookers,
};
use crate::identity::{Identity, IdentityError};
use crate::key::KeyRule;

/// Keys whose facts a flow keeps; about 200 bytes each.
const KEYS_MAX: usize = 100_000;
/// Messages whose attempts a flow remembers between deliveries; about 150 bytes each.
const TRACKED_MESSAGES_MAX: usize = 200_000;

/// Where sources keep what they receive, below the state directory.
const SPOOLS: &str = "spool";

/// How long the loader of policies may take to end.
const LOADER_GRACE: Duration = Duration::from_secs(2);

/// A running host.
#[derive(Debug)]
pub struct Host {
    policies: Arc<PolicyHost>,
    flows: Vec<Flow>,
    downstream: Downstream,
    clock: Clock,
    telemetry: Telemetry,
}

/// What an embedding program brings along.
#[derive(Default)]
pub struct Extras {
    /// Sinks that take the place of the configured ones, by name.
    pub sinks: BTreeMap<Arc<str>, Box<dyn Sink>>,
    /// Who this host is; read from the state directory when not given.
    pub identity: Option<Identity>,
    /// Whether to refuse to start when a policy is not loaded.
    pub require_policies: bool,
}

/// Why a host did not start. Nothing runs then.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The engine.
    #[error("the policy engine does not start")]
    Engine(#[source] EngineError),
    /// The loader of policies.
    #[error("policies cannot be loaded")]
    Policies(#[source] tidegate_policy::StartError),
    /// The state directory.
    #[error("the host has no identity")]
    Identity(#[source] IdentityError),
    /// The configuration, or what it names on this machine.
    #[error(transparent)]
    Preparation(Mistakes),
    /// A source cannot be used at all.
    #[error(transparent)]
    Connect(Box<ConnectError>),
    /// A source of a Kafka share group cannot be used at all.
    #[error(transparent)]
    ConnectShare(Box<tidegate_kafka_share::connector::ConnectError>),
    /// A sink cannot be used at all.
    #[error("sink `{sink}` cannot be used")]
    Sink {
        /// The sink.
        sink: Arc<str>,
        /// Why not.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The service for workers.
    #[error(transparent)]
    Handoff(Box<tidegate_handoff::StartError>),
    /// What settles receipts.
    #[error(transparent)]
    Settler(Box<tidegate_rocketmq::AckPoolError>),
    /// A peer cannot be used at all.
    #[error("peer `{peer}` cannot be used")]
    Peer {
        /// The peer.
        peer: Arc<str>,
        /// Why not.
        #[source]
        source: Box<tidegate_handoff::PeerError>,
    },
    /// A policy that must be loaded is not.
    #[error("policy `{policy}` is not loaded: {reason}")]
    Policy {
        /// The policy.
        policy: String,
        /// Why not.
        reason: String,
    },
}

impl StartError {
    /// Whether the configuration is at fault, rather than the surroundings.
    #[must_use]
    pub const fn is_config(&self) -> bool {
        match self {
            Self::Preparation(_) | Self::Policy { .. } | Self::Settler(_) | Self::Peer { .. } => true,
            Self::Identity(error) => error.is_config(),
            Self::Handoff(error) => error.is_config(),
            _ => false,
        }
    }
}

/// How a drain went.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct DrainReport {
    /// Flows that could not finish in time; what they held comes again when its leases end.
    pub unfinished: Vec<Arc<str>>,
    /// Deliveries that they still held.
    pub left_behind: usize,
    /// Flows that had failed before.
    pub failed: Vec<Arc<str>>,
}

impl Host {
    /// Loads the policies and starts the flows of a configuration whose secrets are resolved. A policy that cannot be
    /// loaded stops nothing: its flows follow its `on-error` until it can.
    ///
    /// # Errors
    /// When a flow cannot be built. A broker that is out of reach is no such reason: it is tried for ever, and the
    /// flow's status tells.
    pub async fn start(
        config: &Config,
        clock: Clock,
        telemetry: &Telemetry,
        mut extras: Extras,
    ) -> Result<Self, StartError> {
        let prepared = Preparation::beside(config, &extras).map_err(StartError::Preparation)?;
        let identity = match extras.identity.take() {
            Some(identity) => identity,
            None => Identity::load(&config.host.state_dir, config.host.receipt_key_file.as_deref())
                .map_err(StartError::Identity)?,
        };
        let policies = start_policies(config, clock, telemetry.clone()).await?;
        let downstream = Downstream::start(prepared, identity, &policies, clock, telemetry).await?;
        let mut host = Self { policies, flows: Vec::new(), downstream, clock, telemetry: telemetry.clone() };
        if extras.require_policies {
            host.require_policies()?;
        }
        for name in config.flows.keys() {
            let flow = host.build_flow(config, name, &mut extras).await;
            match flow {
                Ok(flow) => host.flows.push(flow),
                Err(error) => {
                    host.drain(Duration::ZERO).await;
                    return Err(error);
                }
            }
        }
        Ok(host)
    }

    /// Names the first policy that is not loaded, and why.
    fn require_policies(&self) -> Result<(), StartError> {
        for status in self.policies.status() {
            if status.active.is_none() {
                let reason =
                    status.last_error.map_or_else(|| "no reason is known".to_owned(), |error| error.reason);
                return Err(StartError::Policy { policy: status.name.to_string(), reason });
            }
        }
        Ok(())
    }

    /// How the flows are doing, in the order of their names.
    #[must_use]
    pub fn flows(&self) -> Vec<FlowStatus> {
        self.flows.iter().map(Flow::status).collect()
    }

    /// How the policies are doing.
    #[must_use]
    pub fn policies(&self) -> Vec<PolicyStatus> {
        self.policies.status()
    }

    /// What policies in shadow mode would have said about a flow's messages; `None` when there is no such flow.
    #[must_use]
    pub fn comparisons(&self, flow: &str) -> Option<BTreeMap<Arc<str>, Comparison>> {
        self.flow(flow).map(Flow::comparisons)
    }

    /// Begins a recording of a flow's decisions; `None` when there is no such flow.
    #[must_use]
    pub fn record(
        &self,
        flow: &str,
        options: RecordingOptions,
    ) -> Option<Result<Recording, TooManyOnlookers>> {
        let flow = self.flow(flow)?;
        let throttle = flow.status().throttle;
        let started = self.clock.wall();
        let mut header =
            Header::new(flow.name(), throttle.as_deref(), started, options.sample, &options.masking);
        let policies = self.policies();
        let policy = policies.iter().find(|policy| throttle.as_ref() == Some(&policy.name));
        if let Some(active) = policy.and_then(|policy| policy.active.as_ref()) {
            header = header.with_generation(active);
        }
        Some(flow.record(header, options, self.clock, self.telemetry.clone()))
    }

    /// Lets somebody look on at what a flow decides; `None` when there is no such flow.
    #[must_use]
    pub fn tap(&self, flow: &str, options: TapOptions) -> Option<Result<Tap, TooManyOnlookers>> {
        Some(self.flow(flow)?.tap(options, self.clock, self.telemetry.clone()))
    }

    /// Pauses a flow, as [`Flow::pause`]; `None` when there is no such flow.
    pub async fn pause_flow(&self, flow: &str) -> Option<Result<bool, ControlError>> {
        Some(self.flow(flow)?.pause().await)
    }

    /// Lets a paused flow go on, as [`Flow::resume`]; `None` when there is no such flow.
    pub async fn resume_flow(&self, flow: &str) -> Option<Result<bool, ControlError>> {
        Some(self.flow(flow)?.resume().await)
    }

    /// Ends one flow for good, within the time that the host gives a drain, and waits for that no longer than `wait`. True
    /// when it was not ending or over before; `None` when there is no such flow. What came of it is in its status.
    pub async fn drain_flow(&self, flow: &str, wait: Duration) -> Option<bool> {
        Some(self.flow(flow)?.drain_by_operator(wait).await)
    }

    /// The clock that its instants are of.
    #[must_use]
    pub const fn clock(&self) -> Clock {
        self.clock
    }

    fn flow(&self, name: &str) -> Option<&Flow> {
        self.flows.iter().find(|flow| **flow.name() == *name)
    }

    /// Where workers are served, by the name of the sink.
    pub fn worker_addresses(&self) -> impl Iterator<Item = (&Arc<str>, std::net::SocketAddr)> {
        self.downstream.addresses()
    }

    /// Ends all recordings and taps, so that whoever takes them in has all of them before the host goes.
    pub fn end_recordings(&self) {
        self.flows.iter().for_each(Flow::end_recordings);
    }

    /// Reads a policy's files now. Blocks until they passed or were refused.
    ///
    /// # Errors
    /// As [`PolicyHost::reload`].
    pub fn reload_policy(&self, policy: &str, dry_run: bool) -> Result<ReloadReport, ReloadError> {
        if dry_run { self.policies.dry_run(policy) } else { self.policies.reload(policy) }
    }

    /// Goes back to a policy's generation before; answers the number of the one that runs then.
    ///
    /// # Errors
    /// As [`PolicyHost::roll_back`].
    pub fn roll_back_policy(&self, policy: &str) -> Result<u64, ReloadError> {
        self.policies.roll_back(policy)
    }

    /// Stops or resumes asking a policy; true when that changes something.
    ///
    /// # Errors
    /// As [`PolicyHost::set_paused`].
    pub fn pause_policy(&self, policy: &str, paused: bool) -> Result<bool, ReloadError> {
        self.policies.set_paused(policy, paused)
    }

    /// Resolves when every flow has failed. One that fails leaves the others alone; its status and the readiness of
    /// the host tell. While one runs, or was drained by an operator, there is a host to ask.
    pub async fn ended(&self) {
        if self.flows.is_empty() && self.downstream.has_services() {
            // It settles what others give out, until it is told to stop.
            return std::future::pending().await;
        }
        join_all(self.flows.iter().map(Flow::ended)).await;
    }

    /// Applies what a new configuration changes live: flow valves and policies. What needs a restart is left alone.
    pub async fn apply(&self, config: &Config, plan: &ReloadPlan) {
        for name in plan.flows() {
            let flow = self.flows.iter().find(|flow| **flow.name() == *name);
            if let (Some(flow), Some(new)) = (flow, config.flows.get(&name)) {
                flow.set_valves(valves(&new.valves)).await;
            }
        }
        let changed: BTreeSet<Arc<str>> = plan.policies();
        let specs = policy_specs(config).into_iter().filter(|spec| changed.contains(&spec.name)).collect();
        let policies = Arc::clone(&self.policies);
        // Waits for compilers. What was refused is in the policy's status and in the log.
        let _ = tokio::task::spawn_blocking(move || update(&policies, specs)).await;
    }

    /// Drains all flows side by side and ends the policies.
    pub async fn drain(&self, deadline: Duration) -> DrainReport {
        let ends = join_all(self.flows.iter().map(|flow| flow.drain(deadline))).await;
        self.downstream.close().await;
        let policies = Arc::clone(&self.policies);
        // The loader's thread may be in a call to a file system that does not answer; the process need not wait for it.
        let shutdown = tokio::task::spawn_blocking(move || policies.shutdown());
        let _ = tokio::time::timeout(LOADER_GRACE, shutdown).await;
        let mut report = DrainReport::default();
        for (flow, in_time) in self.flows.iter().zip(ends) {
            let status = flow.status();
            if status.state == FlowState::Failed {
                report.failed.push(status.name);
            } else if !in_time {
                report.left_behind += status.in_flight;
                report.unfinished.push(status.name);
            }
        }
        report
    }

    async fn build_flow(
        &self,
        config: &Config,
        name: &Arc<str>,
        extras: &mut Extras,
    ) -> Result<Flow, StartError> {
        let (clock, telemetry) = (self.clock, &self.telemetry);
        // The configuration has been checked: what a flow names is there.
        let flow = &config.flows[name];
        let mut source_options = self.downstream.prepared().sources[&flow.source].clone();
        source_options.resolve_keys(&self.policies)?;
        let workers = source_options.receive_workers();
        let batch_max = source_options.receive_batch_max();
        let renewal_policy = source_options.renewal_policy().cloned();
        let renewal = RenewalOptions {
            ahead: source_options.renewal_ahead_time(),
            renew_emitted: flow.renew_emitted,
            length_max: flow.valves.max_invisible_duration,
        };
        let sink = self.downstream.flow_sink(config, name, &self.policies, extras).await?;
        let dead_letter = match &flow.dead_letter {
            Some(sink) => Some(self.downstream.sink(config, name, sink, &self.policies, extras).await?),
            None => None,
        };
        let spools = config.host.state_dir.join(SPOOLS);
        let connection =
            source_options.connect(&spools, clock, telemetry.clone(), Arc::clone(&flow.source)).await?;
        let queue_messages = flow.queue_messages.unwrap_or(batch_max * workers);
        let options = FlowOptions {
            name: Arc::clone(name),
            source_name: Arc::clone(&flow.source),
            sink_names: flow.sinks.clone(),
            dead_letter_name: flow.dead_letter.clone(),
            throttle_name: flow.throttle.clone(),
            shadow_name: flow.shadow.clone(),
            key_rule: key_rule(&flow.key),
            receive_workers: workers,
            renewal,
            dead_letter_burst: flow.dead_letter_burst,
            dead_letter_window: flow.dead_letter_window,
            drain_timeout: config.host.drain_timeout,
            book: tidegate_lease::Options {
                // What waits is bounded by the queue, what the sink works on by its credits.
                budget_messages: queue_messages + sink.credits(),
                budget_bytes: flow.queue_bytes,
                receive_batch_max: batch_max,
                valves: valves(&flow.valves),
                keys_max: KEYS_MAX,
                tracked_messages_max: TRACKED_MESSAGES_MAX,
                may_be_given_back: sink.hands_out_receipts(),
                keeps_deferred: connection.settler.keeps_deferred(),
                seed: clock.wall().as_unix_millis(),
            },
        };
        let parts = FlowParts {
            source: connection.source,
            settler: connection.settler,
            throttle: flow.throttle.as_ref().and_then(|policy| self.policies.throttle(policy)),
            renewing: renewal_policy.and_then(|policy| self.policies.renewing(&policy)),
            shadow: flow.shadow.as_ref().and_then(|policy| self.policies.throttle(policy)),
            sink,
            dead_letter,
        };
        Ok(Flow::start(options, parts, clock, telemetry.clone()))
    }
}

const fn valves(valves: &tidegate_config::Valves) -> Valves {
    Valves {
        max_delivery_attempt: valves.max_delivery_attempt,
        max_invisible_duration: valves.max_invisible_duration,
        max_total_deferral: valves.max_total_deferral,
        exhausted: match valves.exhausted {
            Exhausted::Accept => tidegate_lease::Exhausted::Accept,
            Exhausted::Reject => tidegate_lease::Exhausted::Reject,
        },
    }
}

fn key_rule(key: &KeyBy) -> KeyRule {
    match key {
        KeyBy::LiteTopic => KeyRule::LiteTopic,
        KeyBy::Property(name) => KeyRule::Property((**name).into()),
        KeyBy::RecordKey => KeyRule::RecordKey,
    }
}

fn list(errors: &[OptionError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
