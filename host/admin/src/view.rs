//! What the API shows.

use std::collections::BTreeMap;

use serde::Serialize;

/// Where the API gets what it shows. Called for each request on a thread that may block for a moment.
pub trait Inspect: Send + Sync + 'static {
    /// Every configured flow, by name.
    fn flows(&self) -> Vec<FlowView>;

    /// Every configured policy, by name.
    fn policies(&self) -> Vec<PolicyView>;
}

/// A flow at one moment.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct FlowView {
    /// Its name in the configuration.
    pub name: String,
    /// Its source's name.
    pub source: String,
    /// Its throttle policy's name, if it has one.
    pub throttle: Option<String>,
    /// Its sink's name.
    pub sink: String,
    /// Where it is in its life.
    pub state: FlowState,
    /// Whether its broker serves it: not until the source has joined, and not when the broker has been away for a
    /// while.
    pub joined: bool,
    /// What there is to say about it, in sentences: why it failed, what keeps the source from receiving.
    pub remarks: Vec<String>,
    /// Deliveries held.
    pub in_flight: usize,
    /// Bytes held.
    pub in_flight_bytes: usize,
    /// Deliveries that wait for their decision.
    pub undecided: usize,
    /// Accepted deliveries that wait for the sink.
    pub queued: usize,
    /// Deliveries with the sink.
    pub emitted: usize,
    /// Keys with something in flight or seen lately.
    pub active_keys: usize,
    /// Counted since the flow began.
    pub totals: FlowTotals,
}

/// Where a flow is in its life.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlowState {
    /// Receiving, deciding, emitting, settling.
    Running,
    /// Not receiving any more; finishing what workers hold, releasing the rest.
    Draining,
    /// Over, as asked.
    Stopped,
    /// Over, since something went wrong that it cannot mend.
    Failed,
}

/// Counts since a flow began. `received` is always the sum of the verdicts, of `undecided_endings` and of the flow's
/// `undecided`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct FlowTotals {
    /// Deliveries received.
    pub received: u64,
    /// Verdicts `deliver`.
    pub delivered: u64,
    /// Verdicts `defer`.
    pub deferred: u64,
    /// Verdicts `reject`.
    pub rejected: u64,
    /// Verdicts `discard`.
    pub discarded: u64,
    /// Deliveries that left without a decision.
    pub undecided_endings: UndecidedEndings,
    /// Decisions that `on-error` took, since the policy could not.
    pub on_error: u64,
    /// Deliveries handed to the sink.
    pub emitted: u64,
    /// Settlements `accept` that the broker took.
    pub accepted: u64,
    /// Settlements that did not take effect; those messages come again.
    pub settle_failures: u64,
    /// Deliveries whose lease ran out while the host held them; those messages come again.
    pub expired: u64,
    /// Deliveries that came a second time or later.
    pub redelivered: u64,
    /// Receives that failed.
    pub receive_errors: u64,
}

/// Deliveries that left without a decision, by why. All but the merged come again.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct UndecidedEndings {
    /// An earlier message of their ordered key comes again, and they with it.
    pub dropped: u64,
    /// Their lease ran out.
    pub expired: u64,
    /// Their message was held already; they renewed its lease.
    pub merged: u64,
    /// Given back to the broker by a drain.
    pub released: u64,
}

/// A policy at one moment. Its times are milliseconds since the Unix epoch.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct PolicyView {
    /// Its name in the configuration.
    pub name: String,
    /// Whether it decides.
    pub state: PolicyState,
    /// The component's file.
    pub component: String,
    /// The file of its rules, if it has one.
    pub rules: Option<String>,
    /// What becomes of a message when it cannot answer, as in the configuration.
    pub on_error: String,
    /// The generation in force.
    pub active: Option<Generation>,
    /// What there is to say about what is in force, in sentences.
    pub remarks: Vec<String>,
    /// Why what is on disk is not in force; `None` when it is.
    pub refused: Option<Refusal>,
    /// Why it is not asked for a while.
    pub breaker: Option<Breaker>,
    /// The last call that ended without an answer.
    pub last_failure: Option<CallFailure>,
    /// Decisions since the host started, by verdict.
    pub verdicts: BTreeMap<String, u64>,
    /// Messages since the host started that followed `on-error`, by cause.
    pub failures: BTreeMap<String, u64>,
    /// Candidates that came into force since the host started.
    pub reloads_applied: u64,
    /// Candidates that were refused since the host started.
    pub reloads_refused: u64,
}

/// A policy in one word.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyState {
    /// It decides, and what is on disk is in force.
    Active,
    /// It decides; what is on disk was refused, and the generation before goes on.
    Outdated,
    /// Its file has not appeared yet; its messages follow `on-error`.
    Absent,
    /// No candidate was accepted yet; its messages follow `on-error`.
    Failed,
    /// It failed too often and is not asked for a while; its messages follow `on-error`.
    Broken,
    /// An operator paused it; its messages follow `on-error`.
    Paused,
}

/// The generation in force.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Generation {
    /// Counts up with each swap, from 1.
    pub number: u64,
    /// When it came into force.
    pub since_unix_ms: u64,
    /// SHA-256 of the component, in hexadecimal.
    pub component_sha256: String,
    /// SHA-256 of the rules, in hexadecimal.
    pub rules_sha256: Option<String>,
    /// What the component calls itself.
    pub name: String,
    /// Its version.
    pub version: String,
    /// What it does.
    pub summary: String,
}

/// Why a candidate did not come into force.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Refusal {
    /// When.
    pub since_unix_ms: u64,
    /// The check that refused it, in a word.
    pub check: String,
    /// Why, in a sentence.
    pub reason: String,
}

/// Why a policy is not asked for a while.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Breaker {
    /// Since when.
    pub since_unix_ms: u64,
    /// What was too much.
    pub reason: String,
}

/// A call that ended without an answer.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct CallFailure {
    /// When.
    pub at_unix_ms: u64,
    /// What happened and what the policy last said, in a sentence.
    pub reason: String,
    /// The policy's functions on the stack, innermost first.
    pub frames: Vec<String>,
}

/// Whether every flow runs and is served by its broker.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Readiness {
    /// Whether every flow runs and is served by its broker.
    pub ready: bool,
    /// The flows that do not, or are not.
    pub reasons: Vec<Unready>,
}

/// A flow that does not run or is not served.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Unready {
    /// The flow.
    pub flow: String,
    /// Why not, in a sentence.
    pub reason: String,
}

/// What is running.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct VersionView {
    /// The host's version.
    pub version: &'static str,
    /// The processor that it was built for.
    pub arch: &'static str,
    /// The operating system that it was built for.
    pub os: &'static str,
}

impl Readiness {
    /// Of a host with these flows.
    #[must_use]
    pub fn of(flows: &[FlowView]) -> Self {
        let unready = |flow: &FlowView| {
            let reason = flow.unready()?;
            Some(Unready { flow: flow.name.clone(), reason })
        };
        let reasons: Vec<_> = flows.iter().filter_map(unready).collect();
        Self { ready: reasons.is_empty(), reasons }
    }
}

impl FlowView {
    /// Why it is not ready, in a sentence.
    fn unready(&self) -> Option<String> {
        let what = match self.state {
            FlowState::Running if self.joined => return None,
            FlowState::Running => "the flow is not served by its broker",
            FlowState::Draining => "the flow is draining",
            FlowState::Stopped => "the flow has stopped",
            FlowState::Failed => "the flow has failed",
        };
        let remarks = self.remarks.join("; ");
        Some(if remarks.is_empty() { what.to_owned() } else { format!("{what}: {remarks}") })
    }
}

impl VersionView {
    /// Of this build.
    #[must_use]
    pub const fn current() -> Self {
        Self { version: env!("CARGO_PKG_VERSION"), arch: std::env::consts::ARCH, os: std::env::consts::OS }
    }
}
