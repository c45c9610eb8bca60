//! A policy without a host: loaded once, asked in sequence, with state of its own. For trying policies out.

use std::sync::Arc;
use std::time::Duration;

use crate::check::{CheckReport, climb};
use crate::comparison::{Comparison, Kind};
use crate::engine::Engine;
use crate::generation::Origin;
use crate::partitioner::Partitioner;
use crate::policy::Policy;
use crate::recording::Recorded;
use crate::renewal::Renewing;
use crate::spec::PolicySpec;
use crate::throttle::{Answer, Throttle, ThrottleCaller};
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
        let (report, candidate) = climb(engine, spec);
        let sandbox = candidate.map(|candidate| {
            let world = candidate.prepared.world;
            let policy = Policy::new(engine.clone(), spec.clone());
            // The first generation of a policy is never refused.
            let _ = policy.swap(candidate, spec, Origin::Files, Duration::ZERO);
            Self { policy: Arc::new(policy), world }
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

    /// A way to ask it about recorded messages; `None` when it is no throttle policy. Its state is empty at the
    /// beginning.
    #[must_use]
    pub fn replay(&self) -> Option<Replay> {
        Some(Replay { caller: self.throttle()?.caller(), comparison: Comparison::default() })
    }
}

/// A policy that is asked about recorded messages in their order, at the times and with the random numbers of the
/// recording, beside what was followed.
///
/// It counts what a policy in shadow mode would have counted on the same traffic, when the recording has all of it.
#[derive(Debug)]
pub struct Replay {
    caller: ThrottleCaller,
    comparison: Comparison,
}

impl Replay {
    /// Asks about the next one.
    pub fn ask(&mut self, recorded: &Recorded) -> Answer {
        recorded.with_question(|question| {
            let answer = self.caller.decide(question);
            self.comparison.note(question, recorded.followed(), Kind::said(&answer));
            answer
        })
    }

    /// What was found so far.
    #[must_use]
    pub const fn comparison(&self) -> &Comparison {
        &self.comparison
    }
}

impl std::fmt::Debug for Sandbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sandbox").field("policy", &self.policy.name).field("world", &self.world).finish()
    }
}
