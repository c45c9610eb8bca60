//! Events of the policy engine: loads, swaps, failures, calls.
//!
//! `policy` is its name in the configuration. What guests say, and digests, go to the log only.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Unit;

use crate::metrics::{Name, Registry, call_seconds, words};
use crate::{Event, Metrics};

words!(CompilationSource, ReloadResult);

/// The metric families that these events move.
#[derive(Debug)]
pub(crate) struct Families {
    allocator: Family<AllocatorLabel, Gauge>,
    compilations: Family<CompilationLabels, Counter>,
    calls: Family<CallLabels, Counter>,
    failures: Family<FailureLabels, Counter>,
    instances_started: Family<PolicyLabel, Counter>,
    state_evictions: Family<PolicyLabel, Counter>,
    log_lines: Family<LogLabels, Counter>,
    log_lines_dropped: Family<PolicyLabel, Counter>,
    call_seconds: Family<PolicyLabel, Histogram, fn() -> Histogram>,
    breaker_open: Family<PolicyLabel, Gauge>,
    reloads: Family<ReloadLabels, Counter>,
    last_reload_successful: Family<PolicyLabel, Gauge>,
    last_reload_success_timestamp: Family<PolicyLabel, Gauge<f64, AtomicU64>>,
    generation: Family<PolicyLabel, Gauge>,
    info: Family<InfoLabels, Gauge>,
    /// What `info` says of each policy, so that the next replaces it.
    told: Mutex<BTreeMap<Arc<str>, InfoLabels>>,
    paused: Family<PolicyLabel, Gauge>,
    poisoned: Family<PolicyLabel, Counter>,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct AllocatorLabel {
    allocator: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct CompilationLabels {
    source: CompilationSource,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum CompilationSource {
    Compiler,
    Cache,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct PolicyLabel {
    policy: Name,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct InfoLabels {
    policy: Name,
    generation: u64,
    component_sha256: String,
    version: String,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct CallLabels {
    policy: Name,
    verdict: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct FailureLabels {
    policy: Name,
    cause: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct LogLabels {
    policy: Name,
    level: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct ReloadLabels {
    policy: Name,
    result: ReloadResult,
    cause: &'static str,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum ReloadResult {
    Applied,
    Rejected,
    Unchanged,
    RolledBack,
}

impl Families {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let families = Self {
            allocator: Family::default(),
            compilations: Family::default(),
            calls: Family::default(),
            failures: Family::default(),
            instances_started: Family::default(),
            state_evictions: Family::default(),
            log_lines: Family::default(),
            log_lines_dropped: Family::default(),
            call_seconds: Family::new_with_constructor(call_seconds),
            breaker_open: Family::default(),
            reloads: Family::default(),
            last_reload_successful: Family::default(),
            last_reload_success_timestamp: Family::default(),
            generation: Family::default(),
            info: Family::default(),
            told: Mutex::default(),
            paused: Family::default(),
            poisoned: Family::default(),
        };
        families.register_calls(registry.sub_registry_with_prefix("policy"));
        families.register_reloads(registry.sub_registry_with_prefix("policy"));
        families
    }

    fn register_calls(&self, area: &mut Registry) {
        area.register("allocator", "1 for where instances get their memory from", self.allocator.clone());
        area.register(
            "compilations",
            "Components made ready to run: by the compiler, or from the cache of what it made earlier",
            self.compilations.clone(),
        );
        area.register("calls", "Decisions that a policy made, by verdict", self.calls.clone());
        area.register(
            "failures",
            "Messages that a policy did not decide and that followed its on-error, by cause",
            self.failures.clone(),
        );
        area.register(
            "instances_started",
            "Instances made: the first, after a failure, after a reload, after many uses",
            self.instances_started.clone(),
        );
        area.register(
            "state_evictions",
            "Buckets and counters that went to make room for others",
            self.state_evictions.clone(),
        );
        area.register("log_lines", "Lines that policies logged, by level", self.log_lines.clone());
        area.register(
            "log_lines_dropped",
            "Lines that policies logged beyond what the host takes",
            self.log_lines_dropped.clone(),
        );
        area.register_with_unit(
            "call",
            "Duration of a sample of the decisions",
            Unit::Seconds,
            self.call_seconds.clone(),
        );
        area.register(
            "breaker_open",
            "1 while a policy is not asked because it failed too often",
            self.breaker_open.clone(),
        );
    }

    fn register_reloads(&self, area: &mut Registry) {
        area.register("reloads", "Candidates looked at, by result and cause", self.reloads.clone());
        area.register(
            "last_reload_successful",
            "1 when what is on disk is what runs, 0 when it was rejected",
            self.last_reload_successful.clone(),
        );
        area.register_with_unit(
            "last_reload_success_timestamp",
            "Unix time of the last look at the disk that ended well",
            Unit::Seconds,
            self.last_reload_success_timestamp.clone(),
        );
        area.register(
            "generation",
            "Number of the generation that runs, 0 for none",
            self.generation.clone(),
        );
        area.register(
            "info",
            "1 for the generation that runs, with the digest of its component and the version it calls itself",
            self.info.clone(),
        );
        area.register("paused", "1 while an operator keeps a policy from being asked", self.paused.clone());
        area.register(
            "poisoned",
            "Messages that a policy failed on so often that it is not asked about them any more",
            self.poisoned.clone(),
        );
    }

    fn reload(&self, policy: &Arc<str>, result: ReloadResult, cause: &'static str) {
        self.reloads.get_or_create(&ReloadLabels { policy: policy.into(), result, cause }).inc();
        let failed = matches!(result, ReloadResult::Rejected | ReloadResult::RolledBack);
        let successful = i64::from(!failed);
        self.last_reload_successful.get_or_create(&label(policy)).set(successful);
    }

    fn runs(&self, policy: &Arc<str>, generation: u64, component_sha256: &str, version: &str) {
        let number = i64::try_from(generation).unwrap_or(i64::MAX);
        self.generation.get_or_create(&label(policy)).set(number);
        let labels = InfoLabels {
            policy: policy.into(),
            generation,
            component_sha256: component_sha256.to_owned(),
            // It is the policy's own word.
            version: version.chars().filter(|c| !c.is_control()).take(64).collect(),
        };
        let mut told = self.told.lock();
        if let Some(before) = told.insert(Arc::clone(policy), labels.clone()) {
            self.info.remove(&before);
        }
        self.info.get_or_create(&labels).set(1);
    }

    fn reload_succeeded_at(&self, policy: &Arc<str>, unix_seconds: f64) {
        self.last_reload_success_timestamp.get_or_create(&label(policy)).set(unix_seconds);
    }
}

fn label(policy: &Arc<str>) -> PolicyLabel {
    PolicyLabel { policy: policy.into() }
}

/// The pool of instances could not be reserved; instances come from the system.
#[derive(Debug)]
pub struct PoolUnavailable<'a> {
    /// Instances asked for.
    pub instances: u32,
    /// Bytes of each instance's memory.
    pub memory_bytes: u64,
    /// Why not.
    pub reason: &'a str,
}

impl Event for PoolUnavailable<'_> {
    fn record(self, _metrics: &Metrics) {
        tracing::warn!(
            instances = self.instances,
            memory_bytes = self.memory_bytes,
            reason = self.reason,
            "cannot reserve address space for the pool of policy instances; fresh instances come from the system, \
             which takes about twice as long. Raise the limit (`ulimit -v`), or configure smaller policies"
        );
    }
}

/// The engine is set up.
#[derive(Debug)]
pub struct EngineReady {
    /// Where instances get their memory from.
    pub allocator: &'static str,
}

impl Event for EngineReady {
    fn record(self, metrics: &Metrics) {
        metrics.policy.allocator.get_or_create(&AllocatorLabel { allocator: self.allocator }).set(1);
        tracing::debug!(allocator = self.allocator, "policy engine ready");
    }
}

/// A component is ready to run.
#[derive(Debug)]
pub struct Compiled<'a> {
    /// Digest of the component.
    pub component_sha256: &'a str,
    /// Whether it had been compiled earlier.
    pub from_cache: bool,
    /// Compiling, or loading.
    pub took: Duration,
}

impl Event for Compiled<'_> {
    fn record(self, metrics: &Metrics) {
        let source = if self.from_cache { CompilationSource::Cache } else { CompilationSource::Compiler };
        metrics.policy.compilations.get_or_create(&CompilationLabels { source }).inc();
        tracing::debug!(
            component_sha256 = self.component_sha256,
            from_cache = self.from_cache,
            took_ms = self.took.as_secs_f64() * 1e3,
            "component compiled"
        );
    }
}

/// What was compiled earlier cannot be used, or what was compiled now not be kept: it is compiled anew.
#[derive(Debug)]
pub struct CompileCacheTrouble<'a> {
    /// What is wrong with which file.
    pub reason: &'a str,
}

impl Event for CompileCacheTrouble<'_> {
    fn record(self, _metrics: &Metrics) {
        tracing::warn!("policies are compiled without the help of the compile cache: {}", self.reason);
    }
}

/// A candidate went into force.
#[derive(Debug)]
pub struct Applied<'a> {
    /// The policy.
    pub policy: &'a Arc<str>,
    /// Number of the new generation.
    pub generation: u64,
    /// What the policy calls itself, with its version.
    pub described: &'a str,
    /// The version alone.
    pub version: &'a str,
    /// Digest of the component.
    pub component_sha256: &'a str,
    /// Digest of the rules, if there are any.
    pub rules_sha256: Option<&'a str>,
    /// What there is to say about it.
    pub remark: Option<&'a str>,
    /// Whether it came from the policy's files, and not from the copy of what last ran well.
    pub from_files: bool,
    /// From the first read to the swap.
    pub took: Duration,
    /// Unix time.
    pub unix_seconds: f64,
}

impl Event for Applied<'_> {
    fn record(self, metrics: &Metrics) {
        if self.from_files {
            metrics.policy.reload(self.policy, ReloadResult::Applied, "none");
            metrics.policy.reload_succeeded_at(self.policy, self.unix_seconds);
        }
        metrics.policy.runs(self.policy, self.generation, self.component_sha256, self.version);
        tracing::info!(
            policy = %self.policy,
            generation = self.generation,
            described = self.described,
            component_sha256 = self.component_sha256,
            rules_sha256 = self.rules_sha256,
            took_ms = self.took.as_secs_f64() * 1e3,
            "policy in force"
        );
        if let Some(remark) = self.remark {
            tracing::warn!(policy = %self.policy, generation = self.generation, "{remark}");
        }
    }
}

/// The files were touched and are what runs.
#[derive(Debug)]
pub struct Unchanged<'a> {
    /// The policy.
    pub policy: &'a Arc<str>,
    /// Number of the generation that runs.
    pub generation: u64,
    /// Whether what they held before had been refused.
    pub after_refusal: bool,
    /// Unix time.
    pub unix_seconds: f64,
}

impl Event for Unchanged<'_> {
    fn record(self, metrics: &Metrics) {
        metrics.policy.reload(self.policy, ReloadResult::Unchanged, "none");
        metrics.policy.reload_succeeded_at(self.policy, self.unix_seconds);
        if self.after_refusal {
            tracing::info!(
                policy = %self.policy,
                generation = self.generation,
                "what was refused is gone: the policy's files hold what runs"
            );
        } else {
            tracing::debug!(policy = %self.policy, "policy files hold what runs");
        }
    }
}

/// A candidate was refused; what ran goes on.
#[derive(Debug)]
pub struct Rejected<'a> {
    /// The policy.
    pub policy: &'a Arc<str>,
    /// The check that refused it.
    pub rung: &'static str,
    /// Why, as a label.
    pub cause: &'static str,
    /// Why, as a sentence.
    pub reason: &'a str,
    /// Number of the generation that goes on; 0 when there is none and `on-error` holds.
    pub generation: u64,
}

impl Event for Rejected<'_> {
    fn record(self, metrics: &Metrics) {
        metrics.policy.reload(self.policy, ReloadResult::Rejected, self.cause);
        let generation = i64::try_from(self.generation).unwrap_or(i64::MAX);
        metrics.policy.generation.get_or_create(&label(self.policy)).set(generation);
        let goes_on = match self.generation {
            0 => "no generation is loaded, so messages follow its on-error".to_owned(),
            generation => format!("generation {generation} goes on"),
        };
        // Whoever has not brought it yet need do nothing else than bring it.
        let awaited = if self.cause == "absent" { "; it is loaded as soon as it appears" } else { "" };
        tracing::warn!(
            policy = %self.policy,
            rung = self.rung,
            cause = self.cause,
            "policy not loaded: {}{awaited}; {goes_on}",
            self.reason
        );
    }
}

/// A generation was left for the one before it.
#[derive(Debug)]
pub struct RolledBack<'a> {
    /// The policy.
    pub policy: &'a Arc<str>,
    /// Number of the generation that was left.
    pub from: u64,
    /// Number of the generation that runs now.
    pub generation: u64,
    /// Number of the earlier generation that it is the same as; none of a copy from before the start.
    pub same_as: Option<u64>,
    /// Why, as a label.
    pub cause: &'static str,
    /// Why, as a sentence.
    pub reason: &'a str,
    /// What the policy calls its version.
    pub version: &'a str,
    /// Digest of the component that runs now.
    pub component_sha256: &'a str,
}

impl Event for RolledBack<'_> {
    fn record(self, metrics: &Metrics) {
        metrics.policy.reload(self.policy, ReloadResult::RolledBack, self.cause);
        metrics.policy.runs(self.policy, self.generation, self.component_sha256, self.version);
        tracing::warn!(
            policy = %self.policy,
            from = self.from,
            generation = self.generation,
            same_as = self.same_as,
            cause = self.cause,
            "policy rolled back: {}; what was left is not loaded again before its files change",
            self.reason
        );
    }
}

/// A generation has shown in its first calls that it can be left alone.
#[derive(Debug)]
pub struct Passed<'a> {
    /// The policy.
    pub policy: &'a Arc<str>,
    /// Number of the generation.
    pub generation: u64,
    /// Calls that were watched.
    pub calls: u32,
    /// Those that failed.
    pub failures: u32,
}

impl Event for Passed<'_> {
    fn record(self, _metrics: &Metrics) {
        tracing::info!(
            policy = %self.policy,
            generation = self.generation,
            calls = self.calls,
            failures = self.failures,
            "policy passed its probation"
        );
    }
}

/// The files of a policy could not be used at the start, and the copy of what last ran well was tried.
#[derive(Debug)]
pub struct LastGoodUsed<'a> {
    /// The policy.
    pub policy: &'a Arc<str>,
    /// Why its files could not be used.
    pub reason: &'a str,
    /// Number of the generation that runs now, if the copy could be used.
    pub generation: Option<u64>,
    /// Why it could not.
    pub trouble: Option<&'a str>,
}

impl Event for LastGoodUsed<'_> {
    fn record(self, _metrics: &Metrics) {
        match self.generation {
            Some(generation) => tracing::error!(
                policy = %self.policy,
                generation,
                "policy runs from the copy of what last ran well, because its files cannot be used: {}",
                self.reason
            ),
            None => tracing::error!(
                policy = %self.policy,
                "policy not loaded from the copy of what last ran well either: {}",
                self.trouble.unwrap_or("no reason is known")
            ),
        }
    }
}

/// What runs well could not be kept for a later start.
#[derive(Debug)]
pub struct LastGoodNotKept<'a> {
    /// The policy.
    pub policy: &'a Arc<str>,
    /// Why not.
    pub reason: &'a str,
}

impl Event for LastGoodNotKept<'_> {
    fn record(self, _metrics: &Metrics) {
        tracing::warn!(
            policy = %self.policy,
            "cannot keep a copy of the policy that runs well, for a start with broken files: {}",
            self.reason
        );
    }
}

/// An operator stopped or resumed a policy.
#[derive(Debug)]
pub struct Paused<'a> {
    /// The policy.
    pub policy: &'a Arc<str>,
    /// Which of both.
    pub paused: bool,
}

impl Event for Paused<'_> {
    fn record(self, metrics: &Metrics) {
        metrics.policy.paused.get_or_create(&label(self.policy)).set(i64::from(self.paused));
        if self.paused {
            tracing::warn!(policy = %self.policy, "policy paused, its messages follow on-error");
        } else {
            tracing::info!(policy = %self.policy, "policy resumed");
        }
    }
}

/// A policy failed so often on one message that it is not asked about it any more.
#[derive(Debug)]
pub struct Poisoned<'a> {
    /// The policy.
    pub policy: &'a Arc<str>,
    /// The broker's name of the message.
    pub message_id: &'a str,
    /// Number of the generation.
    pub generation: u64,
}

impl Event for Poisoned<'_> {
    fn record(self, metrics: &Metrics) {
        metrics.policy.poisoned.get_or_create(&label(self.policy)).inc();
        tracing::warn!(
            policy = %self.policy,
            message_id = self.message_id,
            generation = self.generation,
            "policy failed on this message each time it came: it follows on-error from now on without being asked"
        );
    }
}

/// Answers since the last such event. Counts only.
#[derive(Debug)]
pub struct Calls<'a> {
    /// The policy.
    pub policy: &'a Arc<str>,
    /// Answers by kind.
    pub answers: &'a [(&'static str, u64)],
    /// Failures by cause.
    pub failures: &'a [(&'static str, u64)],
    /// Instances made.
    pub instances_started: u64,
    /// Buckets and counters that made room for others.
    pub state_evictions: u64,
}

impl Event for Calls<'_> {
    fn record(self, metrics: &Metrics) {
        let families = &metrics.policy;
        for &(verdict, count) in self.answers.iter().filter(|(_, count)| *count > 0) {
            families.calls.get_or_create(&CallLabels { policy: self.policy.into(), verdict }).inc_by(count);
        }
        for &(cause, count) in self.failures.iter().filter(|(_, count)| *count > 0) {
            families
                .failures
                .get_or_create(&FailureLabels { policy: self.policy.into(), cause })
                .inc_by(count);
        }
        families.instances_started.get_or_create(&label(self.policy)).inc_by(self.instances_started);
        families.state_evictions.get_or_create(&label(self.policy)).inc_by(self.state_evictions);
    }
}

/// The duration of one decision. Counts only; one decision in some tens is timed.
#[derive(Debug)]
pub struct CallTimed<'a> {
    /// The policy.
    pub policy: &'a Arc<str>,
    /// Of the whole call, the host's part included.
    pub took: Duration,
}

impl Event for CallTimed<'_> {
    fn record(self, metrics: &Metrics) {
        metrics.policy.call_seconds.get_or_create(&label(self.policy)).observe(self.took.as_secs_f64());
    }
}

/// A policy failed on a message. Counted by [`Calls`]; emitted for one failure a second and policy.
#[derive(Debug)]
pub struct Failed<'a> {
    /// The policy.
    pub policy: &'a Arc<str>,
    /// Why, as a label.
    pub cause: &'static str,
    /// Why, as a sentence with the guest's last word.
    pub reason: &'a str,
    /// The guest's functions, innermost first.
    pub frames: &'a [String],
    /// The broker's name of the message.
    pub message_id: &'a str,
    /// Number of the generation.
    pub generation: u64,
    /// Failures since the last such event that were not logged.
    pub more: u64,
}

impl Event for Failed<'_> {
    fn record(self, _metrics: &Metrics) {
        tracing::warn!(
            policy = %self.policy,
            cause = self.cause,
            generation = self.generation,
            message_id = self.message_id,
            frames = ?self.frames,
            more = self.more,
            "policy failed, the message follows on-error: {}",
            self.reason
        );
    }
}

/// A policy failed so often that it is not asked for a while.
#[derive(Debug)]
pub struct BreakerOpened<'a> {
    /// The policy.
    pub policy: &'a Arc<str>,
    /// What was too much.
    pub reason: &'static str,
    /// Until it is tried again.
    pub pause: Duration,
}

impl Event for BreakerOpened<'_> {
    fn record(self, metrics: &Metrics) {
        metrics.policy.breaker_open.get_or_create(&label(self.policy)).set(1);
        tracing::warn!(
            policy = %self.policy,
            reason = self.reason,
            pause_s = self.pause.as_secs_f64(),
            "policy is not asked for a while, its messages follow on-error"
        );
    }
}

/// A policy is asked again.
#[derive(Debug)]
pub struct BreakerClosed<'a> {
    /// The policy.
    pub policy: &'a Arc<str>,
}

impl Event for BreakerClosed<'_> {
    fn record(self, metrics: &Metrics) {
        metrics.policy.breaker_open.get_or_create(&label(self.policy)).set(0);
        tracing::info!(policy = %self.policy, "policy is asked again");
    }
}

/// A line from a policy.
#[derive(Debug)]
pub struct Logged<'a> {
    /// The policy.
    pub policy: &'a Arc<str>,
    /// How urgent.
    pub level: LogLevel,
    /// One line without control characters.
    pub text: &'a str,
}

/// How urgent a policy's line is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LogLevel {
    /// For the policy's author.
    Debug,
    /// Worth knowing.
    Info,
    /// Worth looking at.
    Warn,
    /// Something is broken.
    Error,
}

impl LogLevel {
    /// The word, as policies write it.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }
}

impl Event for Logged<'_> {
    fn record(self, metrics: &Metrics) {
        let labels = LogLabels { policy: self.policy.into(), level: self.level.label() };
        metrics.policy.log_lines.get_or_create(&labels).inc();
        match self.level {
            LogLevel::Debug => tracing::debug!(policy = %self.policy, "{}", self.text),
            LogLevel::Info => tracing::info!(policy = %self.policy, "{}", self.text),
            LogLevel::Warn => tracing::warn!(policy = %self.policy, "{}", self.text),
            LogLevel::Error => tracing::error!(policy = %self.policy, "{}", self.text),
        }
    }
}

/// Lines of a policy that the host did not take. Counts only.
#[derive(Debug)]
pub struct LogDropped<'a> {
    /// The policy.
    pub policy: &'a Arc<str>,
    /// How many.
    pub lines: u64,
}

impl Event for LogDropped<'_> {
    fn record(self, metrics: &Metrics) {
        metrics.policy.log_lines_dropped.get_or_create(&label(self.policy)).inc_by(self.lines);
    }
}

/// Files of policies cannot be watched; they are looked at once a second all the same.
#[derive(Debug)]
pub struct WatchUnavailable<'a> {
    /// The directory.
    pub directory: &'a str,
    /// Why not.
    pub reason: &'a str,
}

impl Event for WatchUnavailable<'_> {
    fn record(self, _metrics: &Metrics) {
        tracing::debug!(
            directory = self.directory,
            reason = self.reason,
            "no notices of changed files from this directory; it is looked at once a second"
        );
    }
}
