//! Policies, as the API shows them.

use std::collections::BTreeMap;

use serde::Serialize;

/// A policy at one moment. Its times are milliseconds since the Unix epoch.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct PolicyView {
    /// Its name in the configuration.
    pub name: String,
    /// What it is for, such as `throttle-policy`, once that is known.
    pub world: Option<String>,
    /// Whether it decides.
    pub state: PolicyState,
    /// Whether what it says is followed.
    pub mode: PolicyMode,
    /// The component's file.
    pub component: String,
    /// The file of its rules, if it has one.
    pub rules: Option<String>,
    /// What becomes of a message when it cannot answer, as in the configuration.
    pub on_error: String,
    /// The generation in force.
    pub active: Option<Generation>,
    /// The number of the generation that a rollback goes back to.
    pub previous_generation: Option<u64>,
    /// Generations that calls are still in, or that are kept to go back to.
    pub generations: usize,
    /// What there is to say about what is in force, in sentences.
    pub remarks: Vec<String>,
    /// Why what is on disk is not in force; `None` when it is.
    pub refused: Option<Refusal>,
    /// The last look at the disk that found nothing wrong.
    pub last_success_unix_ms: Option<u64>,
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
    /// Generations since the host started that were rolled back, by the host or by an operator.
    pub rollbacks: u64,
    /// Messages since the host started that it failed on so often that it is not asked about them any more.
    pub poisoned: u64,
    /// Instances since the host started.
    pub instances_started: u64,
    /// What the host keeps for it.
    pub kept: Kept,
}

/// What the host keeps for a policy.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Kept {
    /// Token buckets.
    pub buckets: usize,
    /// Counters.
    pub counters: usize,
    /// Entries that went to make room for others.
    pub evicted: u64,
}

/// Whether what a policy says is followed.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyMode {
    /// It is.
    Enforce,
    /// It is only compared with what is done.
    Shadow,
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
    /// Where it came from.
    pub origin: Origin,
    /// Whether its first calls are still being watched, and it is rolled back when too many of them fail.
    pub on_probation: bool,
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
    /// The SDK that it was built with, when its file says so.
    pub sdk: Option<String>,
}

/// Where a generation came from.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// The policy's files.
    Files,
    /// The copy of what last ran well: the files could not be used at the start.
    LastGood,
    /// A generation before it: the one after that was rolled back.
    Earlier,
}

/// Why a candidate did not come into force.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Refusal {
    /// When.
    pub since_unix_ms: u64,
    /// The check that refused it, in a word; `probation` and `asked` when it was in force and was rolled back.
    pub check: String,
    /// Why, in a word.
    pub cause: String,
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
    /// What happened, in a word.
    pub cause: String,
    /// What happened and what the policy last said, in a sentence.
    pub reason: String,
    /// The policy's last log lines before it happened, the last of them last.
    pub said: Vec<String>,
    /// The policy's functions on the stack, innermost first.
    pub frames: Vec<String>,
}
