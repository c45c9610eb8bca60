//! The policies of a configuration, as the engine wants them, and those that know credentials.

use std::path::PathBuf;
use std::sync::Arc;

use tidegate_config::Config;
use tidegate_connector::Clock;
use tidegate_connector::options::PolicyUse;
use tidegate_policy::{Engine, EngineOptions, Mode, OnError, PolicyHost, PolicySpec, Probation, World};
use tidegate_rocketmq::{AckClient, ClientOptions, Resolving};
use tidegate_telemetry::Telemetry;

use super::StartError;
use super::preparation::Preparation;
use super::source::SourceOptions;

/// The credential resolvers of a configuration, for those who talk to its brokers without running its flows. Nothing
/// is kept on disk for them.
#[derive(Debug)]
pub struct Resolvers(Arc<PolicyHost>);

impl Resolvers {
    /// Loads those that the configuration's sources name. One that does not load has no credentials for anybody, and
    /// says why when it is asked.
    ///
    /// # Errors
    /// When the engine or its loader does not start.
    pub async fn start(config: &Config, clock: Clock, telemetry: Telemetry) -> Result<Self, StartError> {
        let specs = policy_specs(config).into_iter();
        let specs: Vec<_> = specs.filter(|spec| spec.world == Some(World::CredentialResolver)).collect();
        let options = engine_options(&specs, clock);
        start_policy_host(specs, options, None, telemetry).await.map(Self)
    }

    /// Gives a client of a broker its keys, if it names a resolver.
    ///
    /// # Errors
    /// When a resolver's thread cannot be had.
    pub fn resolve(&self, client: &mut ClientOptions) -> Result<(), StartError> {
        resolve_client_keys(&self.0, client)
    }

    /// Gives a source its keys, if it names a resolver.
    ///
    /// # Errors
    /// When a resolver's thread cannot be had.
    pub fn resolve_source(&self, source: &mut SourceOptions) -> Result<(), StartError> {
        source.resolve_keys(&self.0)
    }

    /// Who can settle receipts, with keys from their resolvers.
    ///
    /// # Errors
    /// When a resolver's thread cannot be had.
    pub fn ack_clients(&self, prepared: &Preparation) -> Result<Vec<AckClient>, StartError> {
        let mut clients = prepared.ack_clients();
        for client in &mut clients {
            self.resolve(&mut client.client)?;
        }
        Ok(clients)
    }
}

/// The configuration has been checked, so that a resolver that a client of a broker names is there.
pub(super) fn resolve_client_keys(
    policies: &PolicyHost,
    client: &mut ClientOptions,
) -> Result<(), StartError> {
    if let Some(policy) = &client.credentials_resolver
        && let Some(resolver) = policies.resolver(policy).map_err(StartError::Policies)?
    {
        client.credentials = Arc::new(Resolving::new(Arc::new(resolver)));
    }
    Ok(())
}

pub(super) async fn start_policies(
    config: &Config,
    clock: Clock,
    telemetry: Telemetry,
) -> Result<Arc<PolicyHost>, StartError> {
    let specs = policy_specs(config);
    let state_dir = &config.host.state_dir;
    let options =
        EngineOptions { cache_dir: Some(state_dir.join("compiled")), ..engine_options(&specs, clock) };
    start_policy_host(specs, options, Some(state_dir.join("policies")), telemetry).await
}

/// Compiling takes its time, so it is kept off the runtime's threads.
async fn start_policy_host(
    specs: Vec<PolicySpec>,
    options: EngineOptions,
    last_good: Option<PathBuf>,
    telemetry: Telemetry,
) -> Result<Arc<PolicyHost>, StartError> {
    let started = tokio::task::spawn_blocking(move || {
        let engine = Engine::new(options, telemetry).map_err(StartError::Engine)?;
        PolicyHost::start(&engine, specs, last_good).map_err(StartError::Policies)
    });
    match started.await {
        Ok(started) => started.map(Arc::new),
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    }
}

/// An engine with room for these policies.
#[must_use]
pub fn engine_options(specs: &[PolicySpec], clock: Clock) -> EngineOptions {
    let options = EngineOptions::new(clock, clock.wall().as_unix_millis());
    let memory_bytes = specs.iter().map(|spec| spec.limits.memory_bytes).max().unwrap_or(0);
    EngineOptions { memory_bytes_max: options.memory_bytes_max.max(memory_bytes), ..options }
}

pub(super) fn update(policies: &PolicyHost, specs: Vec<PolicySpec>) {
    for spec in specs {
        // Refusals are kept in the status and logged by the policies themselves.
        let _ = policies.update(spec);
    }
}

/// The policies that a configuration uses, as the engine wants them. The others are not loaded: which policy a
/// flow uses does not change while a host runs.
#[must_use]
pub fn policy_specs(config: &Config) -> Vec<PolicySpec> {
    let spec = |(name, used_as): (&Arc<str>, &PolicyUse)| {
        let policy = config.policies.get(name)?;
        Some(policy_spec(name, policy, Some(world(*used_as))))
    };
    config.policy_uses.iter().filter_map(spec).collect()
}

/// One policy of a configuration, as the engine wants it. Without a world it is taken for what its component is.
#[must_use]
pub fn policy_spec(name: &Arc<str>, policy: &tidegate_config::Policy, world: Option<World>) -> PolicySpec {
    PolicySpec {
        name: Arc::clone(name),
        world,
        component: policy.component.clone(),
        rules: policy.rules.clone(),
        on_error: match policy.on_error {
            tidegate_config::OnError::Deliver => OnError::Deliver,
            tidegate_config::OnError::Defer(delay) => OnError::Defer(delay),
            tidegate_config::OnError::Stop => OnError::Stop,
        },
        limits: limits(&policy.limits),
        grants: grants(&policy.grants),
        sha256: policy.sha256.clone(),
        mode: match policy.mode {
            tidegate_config::Mode::Enforce => Mode::Enforce,
            tidegate_config::Mode::Shadow => Mode::Shadow,
        },
        probation: Probation { calls: policy.probation_calls, time: policy.probation_time },
        last_good: policy.last_good,
    }
}

const fn world(used_as: PolicyUse) -> World {
    match used_as {
        PolicyUse::Throttle => World::ThrottlePolicy,
        PolicyUse::Renewal => World::RenewalPolicy,
        PolicyUse::Credentials => World::CredentialResolver,
        PolicyUse::Partitioner => World::PartitionerPolicy,
    }
}

fn grants(grants: &tidegate_config::Grants) -> tidegate_policy::Grants {
    let directories = grants.directories.iter();
    tidegate_policy::Grants {
        env: grants.env.iter().map(|name| name.as_str().into()).collect(),
        directories: directories.map(|(name, path)| (name.as_str().into(), path.clone())).collect(),
        http: grants.http.clone(),
        http_ca_file: grants.http_ca_file.clone(),
    }
}

fn limits(limits: &tidegate_config::Limits) -> tidegate_policy::Limits {
    tidegate_policy::Limits {
        deadline: limits.deadline,
        start_deadline: limits.start_deadline,
        resolve_timeout: limits.resolve_timeout,
        memory_bytes: limits.memory_bytes,
        file_bytes_max: limits.file_bytes_max,
        rules_bytes_max: limits.rules_bytes_max,
        compile_timeout: limits.compile_timeout,
        log_bytes_per_call: limits.log_bytes_per_call,
        hostcall_bytes: limits.hostcall_bytes,
        handles: limits.handles,
        uses_max: limits.uses_max,
        state_entries_max: limits.state_entries_max,
    }
}
