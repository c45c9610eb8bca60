//! Trying a policy out by hand: one component with one set of rules after another, and of each call all that can be
//! known of it.
//!
//! A [`Sandbox`](crate::Sandbox) asks a policy as a flow does, breaker and all; a [`Probe`] enters an instance directly,
//! and tells the whole failure, the guest's own lines, and what the call took.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant as StdInstant};

use serde::Serialize;
use tidegate_connector::origin::Origin;
use tidegate_connector::secret::Purpose;
use tidegate_model::{Instant, Renewal, Timestamp, Verdict};

use crate::bindings::v1::credentials;
use crate::cause::Failure;
use crate::check::Described;
use crate::engine::Engine;
use crate::error::{LoadError, Rung};
use crate::files::{Files, Rules, sha256};
use crate::grants::Grants;
use crate::guest::Moment;
use crate::instance::Instance;
use crate::ladder::Ladder;
use crate::partitioner::OutgoingRecord;
use crate::prepared::Prepared;
use crate::question::Question;
use crate::random::SplitMix64;
use crate::renewal::LeaseFacts;
use crate::resolver::{ResolveFailure, Resolved};
use crate::spec::{Limits, PolicySpec};
use crate::state::{Sizes, State};
use crate::world::World;

/// State that a check may use; what it leaves there nobody sees.
const CHECK_STATE_ENTRIES: usize = 64;

/// A component that passed every check that does not depend on rules.
pub struct Workbench {
    engine: Engine,
    spec: PolicySpec,
    files: Files,
    prepared: Arc<Prepared>,
    compile_time: Duration,
}

/// Where rules come from.
#[derive(Clone, Copy, Debug)]
pub enum RulesFrom<'a> {
    /// There are none.
    Nowhere,
    /// A file on disk.
    File(&'a Path),
    /// A text, and the file that it stands in.
    Text {
        /// The file, for what is said about it.
        file: &'a Path,
        /// TOML.
        text: &'a str,
    },
}

/// A policy with rules, with an empty state of its own, and one instance at a time.
pub struct Probe {
    engine: Engine,
    prepared: Arc<Prepared>,
    rules_json: Arc<str>,
    limits: Limits,
    state: Arc<State>,
    instance: Option<Instance>,
}

/// One call, and all that can be known of it.
#[derive(Clone, Debug)]
pub struct Trace<T> {
    /// What the policy answered, or why it did not. After a failure the next call meets a fresh instance.
    pub answer: Result<T, Failure>,
    /// What it wrote to its log.
    pub log: Vec<LogLine>,
    /// Lines beyond those, which it may not write.
    pub log_dropped: u64,
    /// Wall time.
    pub took: Duration,
    /// What it executed, in wasmtime's fuel (about one for each instruction); `None` when the engine does not count.
    pub fuel: Option<u64>,
    /// Memory of the instance after the call.
    pub memory_bytes: usize,
}

/// A line of a policy's log.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct LogLine {
    /// `debug`, `info`, `warn` or `error`.
    pub level: &'static str,
    /// What it says.
    pub text: String,
}

impl Workbench {
    /// Puts the component of `spec` through every check that does not depend on rules. The rules of `spec` are not
    /// looked at.
    ///
    /// # Errors
    /// When it does not pass.
    pub fn open(engine: &Engine, spec: &PolicySpec) -> Result<Self, LoadError> {
        let spec = PolicySpec { rules: None, ..spec.clone() };
        let mut ladder = Ladder::default();
        let files = ladder.read(&spec)?;
        let state = Arc::new(State::new(CHECK_STATE_ENTRIES));
        let (prepared, _) = ladder.prepare(engine, &spec, &files, &state)?;
        let compiled = ladder.into_rungs().into_iter().find(|report| report.rung == Rung::Compile);
        let compile_time = compiled.map_or(Duration::ZERO, |report| report.took);
        Ok(Self { engine: engine.clone(), spec, files, prepared, compile_time })
    }

    /// The same for a look at a component whose grants nobody knows: it is granted something of every interface, and
    /// nothing that is there. It can be described, and reaches nothing.
    ///
    /// # Errors
    /// When it does not pass.
    pub fn look(engine: &Engine, spec: &PolicySpec) -> Result<Self, LoadError> {
        Self::open(engine, &PolicySpec { grants: in_name_only(), ..spec.clone() })
    }

    /// What it is for.
    #[must_use]
    pub fn world(&self) -> World {
        self.prepared.world
    }

    /// What it says about itself.
    #[must_use]
    pub fn described(&self) -> Described {
        Described::of(&self.prepared.description)
    }

    /// How long compiling it took.
    #[must_use]
    pub const fn compile_time(&self) -> Duration {
        self.compile_time
    }

    /// Bytes of the component's file.
    #[must_use]
    pub fn component_bytes(&self) -> usize {
        self.files.component.len()
    }

    /// Gives it rules, with every check that a host makes.
    ///
    /// # Errors
    /// When the rules are refused, or the policy does not pass its self-test with them.
    pub fn with_rules(&self, rules: RulesFrom<'_>) -> Result<Probe, LoadError> {
        let rules = match rules {
            RulesFrom::Nowhere => None,
            RulesFrom::File(file) => Some(Rules::read(file, self.spec.limits.rules_bytes_max)?),
            RulesFrom::Text { file, text } => {
                Some(Rules { file: file.to_owned(), text: text.to_owned(), sha256: sha256(text.as_bytes()) })
            }
        };
        let files = Files { rules, ..self.files.clone() };
        let mut ladder = Ladder::default();
        let candidate = ladder.check(&self.engine, &self.spec, &files, Some(&self.prepared))?;
        let limits = self.spec.limits;
        Ok(Probe {
            engine: self.engine.clone(),
            prepared: candidate.prepared,
            rules_json: candidate.rules_json,
            limits,
            state: Arc::new(State::new(limits.state_entries_max)),
            instance: None,
        })
    }
}

impl Probe {
    /// Starts an instance now instead of at the first call; answers how long that took, `configure` included.
    ///
    /// # Errors
    /// When it fails.
    pub fn start(&mut self) -> Result<Duration, Failure> {
        let clock = self.engine.clock();
        let moment =
            Moment { wall: clock.wall(), now: clock.now(), random: SplitMix64::new(self.engine.next_seed()) };
        let began = instant();
        // The old one goes first: a pool that is full has no room for both.
        self.instance = None;
        self.instance = Some(self.fresh(moment)?);
        Ok(began.elapsed())
    }

    /// Asks a throttle policy.
    pub fn decide(&mut self, question: &Question<'_>) -> Trace<Verdict> {
        let call = question.call(question.source.into());
        self.enter(question.occasion().moment(), |instance, limits, moment| {
            instance.decide(limits.deadline, moment, call)
        })
    }

    /// Asks a renewal policy.
    pub fn renew(&mut self, question: &Question<'_>, facts: &LeaseFacts) -> Trace<Renewal> {
        let call = question.call(question.source.into());
        self.enter(question.occasion().moment(), |instance, limits, moment| {
            instance.renew(limits.deadline, moment, call, *facts)
        })
    }

    /// Asks a partitioner.
    pub fn partition(
        &mut self,
        now: Instant,
        wall: Timestamp,
        seed: u64,
        record: OutgoingRecord,
        partitions: u32,
    ) -> Trace<u32> {
        let moment = Moment { wall, now, random: SplitMix64::new(seed) };
        self.enter(moment, |instance, limits, moment| {
            instance.partition(limits.deadline, moment, record, partitions)
        })
    }

    /// Asks a credential resolver, with the time that its limits give it.
    pub fn resolve(&mut self, endpoint: &str, purpose: Purpose) -> Trace<Result<Resolved, ResolveFailure>> {
        let clock = self.engine.clock();
        let (now, wall) = (clock.now(), clock.wall());
        let moment = Moment { wall, now, random: SplitMix64::new(self.engine.next_seed()) };
        let request = credentials::Request { endpoint: endpoint.to_owned(), purpose: purpose.into() };
        self.enter(moment, |instance, limits, moment| {
            let until = now + limits.resolve_timeout;
            let answer = instance.resolve(limits.start_deadline, until, moment, &request)?;
            Ok(answer.map(Resolved::from).map_err(ResolveFailure::from))
        })
    }

    /// How full its state is.
    #[must_use]
    pub fn state_sizes(&self) -> Sizes {
        self.state.sizes()
    }

    fn enter<T>(
        &mut self,
        moment: Moment,
        entry: impl FnOnce(&mut Instance, &Limits, Moment) -> Result<T, Failure>,
    ) -> Trace<T> {
        let mut instance = match self.instance.take().map_or_else(|| self.fresh(moment.clone()), Ok) {
            Ok(instance) => instance,
            Err(failure) => return Trace::without_call(failure),
        };
        let fuel = instance.fuel_spent();
        let began = instant();
        let answer = entry(&mut instance, &self.limits, moment);
        let took = began.elapsed();
        let (lines, log_dropped) = instance.take_log().unwrap_or_default();
        let trace = Trace {
            log: lines
                .into_iter()
                .map(|line| LogLine { level: line.level.label(), text: line.text })
                .collect(),
            log_dropped,
            took,
            fuel: instance.fuel_spent().zip(fuel).map(|(after, before)| after - before),
            memory_bytes: instance.memory_bytes(),
            answer,
        };
        // The Store of one that failed is poisoned.
        self.instance = trace.answer.is_ok().then_some(instance);
        trace
    }

    fn fresh(&self, moment: Moment) -> Result<Instance, Failure> {
        let linked = &self.prepared.linked;
        let mut instance = Instance::start(&self.engine, linked, &self.limits, &self.state, moment)?;
        instance.configure(&self.limits, &self.rules_json)??;
        Ok(instance)
    }
}

impl<T> Trace<T> {
    const fn without_call(failure: Failure) -> Self {
        Self {
            answer: Err(failure),
            log: Vec::new(),
            log_dropped: 0,
            took: Duration::ZERO,
            fuel: None,
            memory_bytes: 0,
        }
    }
}

/// Grants of things that do not exist.
fn in_name_only() -> Grants {
    Grants {
        env: BTreeSet::from(["TIDEGATE_GRANTED_IN_NAME_ONLY".into()]),
        directories: BTreeMap::from([("none".into(), "/nonexistent".into())]),
        // Names that end so never lead anywhere.
        http: BTreeSet::from([Origin::new(true, "granted-in-name-only.invalid", 443)]),
        http_ca_file: None,
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "measures calls for those who try a policy out, decides nothing"
)]
fn instant() -> StdInstant {
    StdInstant::now()
}

impl std::fmt::Debug for Workbench {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Workbench").field("component", &self.spec.component).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Probe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Probe").field("world", &self.prepared.world).finish_non_exhaustive()
    }
}
