//! What is known about each policy, for the admin API and `tidegate policy list`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde::Serialize;

use crate::answer_kind::AnswerKind;
use crate::cause::{Cause, Failure};
use crate::error::Rung;
use crate::generation::{Generation, Origin};
use crate::policy::Policy;
use crate::state::Sizes;
use crate::world::World;

/// One policy as it is now. Times are milliseconds since the Unix epoch.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct PolicyStatus {
    /// Its name in the configuration.
    pub name: Arc<str>,
    /// What it is for, once that is known.
    pub world: Option<World>,
    /// In one word.
    pub state: PolicyState,
    /// `enforce`, or `shadow` when its verdicts are counted and not followed.
    pub mode: &'static str,
    /// The component's file.
    pub component: PathBuf,
    /// The rules' file.
    pub rules: Option<PathBuf>,
    /// What becomes of a message that it could not decide, as in the configuration.
    pub on_error: String,
    /// What runs.
    pub active: Option<Active>,
    /// Number of the generation that a rollback goes back to.
    pub previous_generation: Option<u64>,
    /// Generations that are in use or kept to go back to.
    pub generations: usize,
    /// What there is to say about it, in sentences.
    pub remarks: Vec<String>,
    /// Why what is on disk does not run; `None` when it does.
    pub last_error: Option<LastError>,
    /// The last look at the disk that ended well.
    pub last_success: Option<u64>,
    /// Why and since when it is not asked.
    pub breaker: Option<BreakerStatus>,
    /// The last failed call.
    pub last_failure: Option<LastFailure>,
    /// Calls since the host began.
    pub counts: CallCounts,
    /// Buckets and counters that the host keeps for it.
    pub kept: Sizes,
}

/// A policy in one word.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyState {
    /// It decides, and what is on disk is what runs.
    Active,
    /// It decides; what is on disk was refused and the generation before goes on.
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

/// The generation that runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Active {
    /// Its number, from 1.
    pub generation: u64,
    /// Where it came from: `files`, `last-good` when the files could not be used at the start, `earlier` after a
    /// rollback.
    pub origin: &'static str,
    /// Whether its first calls are still being watched.
    pub on_probation: bool,
    /// When it came into force.
    pub since: u64,
    /// Digest of the component.
    pub component_sha256: Arc<str>,
    /// Digest of the rules' file.
    pub rules_sha256: Option<Arc<str>>,
    /// What the policy calls itself.
    pub name: String,
    /// Its version.
    pub version: String,
    /// What it does.
    pub summary: String,
    /// The SDK that it was built with, when its file says so.
    pub sdk: Option<String>,
}

/// Why a candidate was refused.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct LastError {
    /// The check that refused it.
    pub rung: Rung,
    /// Why, as a label.
    pub cause: &'static str,
    /// Why, as a sentence.
    pub reason: String,
    /// When.
    pub since: u64,
}

/// A policy that is not asked.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct BreakerStatus {
    /// What was too much.
    pub reason: &'static str,
    /// When it was last found so.
    pub since: u64,
}

/// A failed call.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct LastFailure {
    /// When.
    pub at: u64,
    /// What happened.
    #[serde(flatten)]
    pub failure: Failure,
}

/// Calls since the host began.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct CallCounts {
    /// Decisions, by verdict.
    pub verdicts: BTreeMap<&'static str, u64>,
    /// Messages that followed `on-error`, by cause.
    pub failures: BTreeMap<&'static str, u64>,
    /// Instances made.
    pub instances_started: u64,
    /// Candidates that came into force.
    pub reloads_applied: u64,
    /// Candidates that were refused.
    pub reloads_rejected: u64,
    /// Generations that were rolled back, by the host or an operator.
    pub rollbacks: u64,
    /// Messages that the policy failed on so often that it is not asked about them any more.
    pub poisoned: u64,
}

impl PolicyStatus {
    pub(crate) fn of(policy: &Policy) -> Self {
        let live = policy.live.load_full();
        let trouble = policy.trouble.lock();
        let spec = policy.spec.load();
        let world = spec.world.or_else(|| live.as_deref().map(|live| live.prepared.world));
        let state = match (&live, &trouble.load) {
            (None, Some(load)) if load.cause == "absent" => PolicyState::Absent,
            (None, _) => PolicyState::Failed,
            (Some(_), _) if policy.is_paused() => PolicyState::Paused,
            (Some(_), _) if trouble.breaker.is_some() => PolicyState::Broken,
            (Some(_), Some(_)) => PolicyState::Outdated,
            (Some(_), None) => PolicyState::Active,
        };
        Self {
            name: Arc::clone(&policy.name),
            world,
            state,
            mode: if spec.mode.is_shadow() { "shadow" } else { "enforce" },
            component: spec.component.clone(),
            rules: spec.rules.clone(),
            on_error: spec.on_error.to_string(),
            active: live.as_deref().map(Active::of),
            previous_generation: policy.previous_generation(),
            generations: policy.generations(),
            remarks: live.as_deref().map(remarks).unwrap_or_default(),
            last_error: trouble.load.clone().map(|load| LastError {
                rung: load.rung,
                cause: load.cause,
                reason: load.reason,
                since: load.since.as_unix_millis(),
            }),
            last_success: trouble.last_success.map(|at| at.as_unix_millis()),
            breaker: trouble
                .breaker
                .map(|(reason, since)| BreakerStatus { reason, since: since.as_unix_millis() }),
            last_failure: trouble
                .failure
                .clone()
                .map(|(failure, at)| LastFailure { at: at.as_unix_millis(), failure }),
            counts: CallCounts::of(policy, world),
            kept: policy.state.sizes(),
        }
    }
}

fn remarks(generation: &Generation) -> Vec<String> {
    let last_good = (generation.origin == Origin::LastGood)
        .then_some("its files could not be used at the start, so a copy of what last ran well runs");
    generation.remark().into_iter().chain(last_good).map(str::to_owned).collect()
}

impl Active {
    fn of(generation: &Generation) -> Self {
        let prepared = &generation.prepared;
        let built = prepared.trailer.as_ref().and_then(|trailer| trailer.built.as_ref());
        Self {
            generation: generation.number,
            origin: match generation.origin {
                Origin::Files => "files",
                Origin::LastGood => "last-good",
                Origin::Earlier => "earlier",
            },
            on_probation: !generation.trial.is_over(),
            since: generation.since.as_unix_millis(),
            component_sha256: Arc::clone(&prepared.sha256),
            rules_sha256: generation.rules_sha256.clone(),
            name: prepared.description.name.clone(),
            version: prepared.description.version.clone(),
            summary: prepared.description.summary.clone(),
            sdk: built.map(|built| built.sdk.clone()),
        }
    }
}

impl CallCounts {
    fn of(policy: &Policy, world: Option<World>) -> Self {
        let counts = &policy.counts;
        let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        Self {
            verdicts: AnswerKind::ALL
                .iter()
                .filter(|kind| world.is_none_or(|world| kind.belongs_to(world)))
                .map(|&kind| (kind.label(), load(&counts.answers[kind as usize])))
                .collect(),
            failures: Cause::ALL
                .iter()
                .map(|&cause| (cause.label(), load(&counts.failures[cause as usize])))
                .collect(),
            instances_started: load(&counts.instances_started),
            reloads_applied: load(&counts.applied),
            reloads_rejected: load(&counts.rejected),
            rollbacks: load(&counts.rolled_back),
            poisoned: load(&counts.poisoned),
        }
    }
}
