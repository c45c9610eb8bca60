//! A policy without a host: loaded once, asked in sequence, with state of its own. For trying policies out.

use std::sync::Arc;
use std::time::Duration;

use tidegate_model::Verdict;

use crate::check::{CheckReport, report};
use crate::comparison::{Comparison, Kind};
use crate::engine::Engine;
use crate::generation::Origin;
use crate::ladder::Ladder;
use crate::partitioner::Partitioner;
use crate::policy::Policy;
use crate::recording::Recorded;
use crate::renewal::Renewing;
use crate::spec::PolicySpec;
use crate::throttle::{Answer, Throttle};
use crate::world::World;

/// A policy that passed every check, and its empty state.
#[derive(Clone)]
pub struct Sandbox {
    policy: Arc<Policy>,
    world: World,
}

impl Sandbox {
    /// Puts the files of `spec` through every check, as a host does, and loads them. The report has every check; there
    /// is a sandbox when all passed.
    #[must_use]
    pub fn load(engine: &Engine, spec: &PolicySpec) -> (CheckReport, Option<Self>) {
        let mut ladder = Ladder::default();
        let files = ladder.read(spec);
        let candidate = files.as_ref().ok().and_then(|files| ladder.check(engine, spec, files, None).ok());
        let prepared = candidate.as_ref().map(|candidate| Arc::clone(&candidate.prepared));
        let report = report(spec, files.ok().as_ref(), prepared.as_deref(), ladder);
        let sandbox = candidate.zip(prepared).map(|(candidate, prepared)| {
            let policy = Policy::new(engine.clone(), spec.clone());
            // The first generation of a policy is never refused.
            let _ = policy.swap(candidate, spec, Origin::Files, Duration::ZERO);
            Self { policy: Arc::new(policy), world: prepared.world }
        });
        (report, sandbox)
    }

    /// What it is for.
    #[must_use]
    pub const fn world(&self) -> World {
        self.world
    }

    /// It, as a throttle policy.
    #[must_use]
    pub fn throttle(&self) -> Option<Throttle> {
        (self.world == World::ThrottlePolicy).then(|| Throttle(Arc::clone(&self.policy)))
    }

    /// It, as a renewal policy.
    #[must_use]
    pub fn renewing(&self) -> Option<Renewing> {
        (self.world == World::RenewalPolicy).then(|| Renewing(Arc::clone(&self.policy)))
    }

    /// It, as a partitioner.
    #[must_use]
    pub fn partitioner(&self) -> Option<Partitioner> {
        (self.world == World::PartitionerPolicy).then(|| Partitioner(Arc::clone(&self.policy)))
    }

    /// Asks it about recorded messages in their order, at the times and with the random numbers of the recording, and
    /// compares what it says with what was followed. Its state is empty at the beginning; `None` when it is no throttle
    /// policy.
    ///
    /// This is what a policy in shadow mode would have counted on the same traffic, when the recording has all of it.
    pub fn replay(&self, recording: impl IntoIterator<Item = Recorded>) -> Option<Comparison> {
        let mut caller = self.throttle()?.caller();
        let mut comparison = Comparison::default();
        for recorded in recording {
            let other = Kind::said(&recorded.with_question(|question| caller.decide(question)));
            recorded.with_question(|question| comparison.note(question, recorded.followed(), other));
        }
        Some(comparison)
    }
}

impl std::fmt::Debug for Sandbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sandbox").field("policy", &self.policy.name).field("world", &self.world).finish()
    }
}

/// A verdict for people, on one line.
#[must_use]
pub fn shown(answer: &Answer) -> String {
    let verdict = |verdict: &Verdict| match verdict {
        Verdict::Deliver => "deliver".to_owned(),
        Verdict::Defer(deferral) => format!(
            "defer {}: {}",
            tidegate_connector::units::format_duration(deferral.delay),
            deferral.reason
        ),
        Verdict::Reject { reason } => format!("reject: {reason}"),
        Verdict::Discard { reason } => format!("discard: {reason}"),
    };
    match answer {
        Answer::Verdict(said) => verdict(said),
        Answer::OnError { verdict: said, cause } => {
            format!("no answer ({cause}); on-error: {}", verdict(said))
        }
        Answer::Stop { cause } => format!("no answer ({cause}); on-error: stop"),
    }
}
