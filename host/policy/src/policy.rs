//! One policy of the host: what its callers and its loader share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use parking_lot::Mutex;
use tidegate_model::{Instant, MessageId, Timestamp};
use tidegate_telemetry::events::policy as events;

use crate::answer_kind::AnswerKind;
use crate::breaker::{Breaker, Change};
use crate::caller::Slot;
use crate::cause::{Cause, Failure};
use crate::engine::Engine;
use crate::error::{LoadError, RollbackError, Rung};
use crate::gate::Gate;
use crate::generation::{Digests, Generation, Origin, Trial};
use crate::ladder::{Candidate, sentence};
use crate::last_good::Damage;
use crate::log_tail::Line;
use crate::poison::{self, Poison};
use crate::spec::PolicySpec;
use crate::state::State;

/// Lines a second that a policy may log.
const LOG_LINES_PER_SECOND: u32 = 20;

/// A policy.
pub(crate) struct Policy {
    pub(crate) name: Arc<str>,
    pub(crate) engine: Engine,
    pub(crate) spec: ArcSwap<PolicySpec>,
    /// What runs. Callers load it once per call.
    pub(crate) live: ArcSwapOption<Generation>,
    /// Outlives generations.
    pub(crate) state: Arc<State>,
    pub(crate) counts: Counts,
    pub(crate) trouble: Mutex<Trouble>,
    breaker: Mutex<Breaker>,
    /// Mirrors [`Breaker::is_calm`], so that a healthy policy's calls take no lock.
    calm: AtomicBool,
    log_gate: Mutex<Gate>,
    failure_gate: Mutex<Gate>,
    flushed: Mutex<Flushed>,
    poison: Poison,
    /// Held by an operator: it is not asked, and its messages follow `on-error`.
    paused: AtomicBool,
    succession: Mutex<Succession>,
    /// Where its callers keep their instances.
    slots: Mutex<Vec<Weak<Slot>>>,
}

/// Generations beside the one that runs.
#[derive(Default)]
struct Succession {
    /// What ran before, to go back to.
    previous: Option<Arc<Generation>>,
    /// All that may still be in use.
    alive: Vec<Weak<Generation>>,
    refused: Option<Refused>,
}

/// Contents that were refused or rolled back: not to be tried again before they change.
struct Refused {
    digests: Digests,
    /// Why, to be said again when they are found again after something else was on disk.
    trouble: Option<LoadTrouble>,
}

/// Generations that may live at once: the one that runs, the one before it, and one that a call is still in.
const GENERATIONS_MAX: usize = 3;

/// What went wrong last, for the status.
#[derive(Debug, Default)]
pub(crate) struct Trouble {
    /// Why what is on disk does not run.
    pub(crate) load: Option<LoadTrouble>,
    /// The last failed call.
    pub(crate) failure: Option<(Failure, Timestamp)>,
    /// Since when the breaker is open, and for what.
    pub(crate) breaker: Option<(&'static str, Timestamp)>,
    /// The last look at the disk that ended well.
    pub(crate) last_success: Option<Timestamp>,
}

/// Why what is on disk does not run.
#[derive(Clone, Debug)]
pub(crate) struct LoadTrouble {
    pub(crate) rung: Rung,
    pub(crate) cause: &'static str,
    pub(crate) reason: String,
    pub(crate) since: Timestamp,
}

/// Calls since the beginning, and what came of reloads. A reload is counted last: whoever sees the count finds its
/// reason in the status and its event in the metrics.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) answers: [AtomicU64; AnswerKind::ALL.len()],
    pub(crate) failures: [AtomicU64; Cause::ALL.len()],
    pub(crate) instances_started: AtomicU64,
    pub(crate) applied: AtomicU64,
    pub(crate) rejected: AtomicU64,
    pub(crate) rolled_back: AtomicU64,
    pub(crate) poisoned: AtomicU64,
}

/// What telemetry was told already.
#[derive(Debug, Default)]
struct Flushed {
    answers: [u64; AnswerKind::ALL.len()],
    failures: [u64; Cause::ALL.len()],
    instances_started: u64,
    evicted: u64,
}

impl Policy {
    pub(crate) fn new(engine: Engine, spec: PolicySpec) -> Self {
        Self {
            name: Arc::clone(&spec.name),
            engine,
            state: Arc::new(State::new(spec.limits.state_entries_max)),
            spec: ArcSwap::from_pointee(spec),
            live: ArcSwapOption::empty(),
            counts: Counts::default(),
            trouble: Mutex::default(),
            breaker: Mutex::new(Breaker::new()),
            calm: AtomicBool::new(true),
            log_gate: Mutex::new(Gate::new(LOG_LINES_PER_SECOND)),
            failure_gate: Mutex::new(Gate::new(1)),
            flushed: Mutex::default(),
            poison: Poison::new(),
            paused: AtomicBool::new(false),
            succession: Mutex::default(),
            slots: Mutex::default(),
        }
    }

    // === The callers' side ===

    /// Whether a call may be made; else why not.
    pub(crate) fn admit(&self, now: Instant, message: Option<&MessageId>) -> Result<(), Cause> {
        if self.is_paused() {
            return Err(Cause::Paused);
        }
        if message.is_some_and(|message| self.poison.holds(message)) {
            return Err(Cause::Poison);
        }
        let admitted = self.calm.load(Ordering::Acquire) || self.breaker.lock().admit(now);
        if admitted { Ok(()) } else { Err(Cause::Breaker) }
    }

    /// Reports a call that went well.
    pub(crate) fn succeeded(&self, now: Instant, generation: &Generation, kind: AnswerKind) {
        self.counts.answers[kind as usize].fetch_add(1, Ordering::Relaxed);
        generation.trial.handle_success();
        if !self.calm.load(Ordering::Acquire) {
            self.with_breaker(|breaker| breaker.handle_success(now));
        }
    }

    /// Reports a call that failed.
    pub(crate) fn failed(
        &self,
        now: Instant,
        generation: &Generation,
        message: Option<&MessageId>,
        failure: Failure,
    ) {
        self.count_failure(failure.cause);
        let reason = failure.to_string();
        let (pass, more) = self.failure_gate.lock().pass(now);
        if pass {
            self.engine.telemetry().emit(events::Failed {
                policy: &self.name,
                cause: failure.cause.label(),
                reason: &reason,
                frames: &failure.frames,
                message_id: message.map_or("", MessageId::as_str),
                generation: generation.number,
                more,
            });
        }
        let times = message.map(|message| self.poison.handle_failure(message));
        if let Some(message) = message
            && times == Some(poison::FAILURES_MAX)
        {
            self.counts.poisoned.fetch_add(1, Ordering::Relaxed);
            self.engine.telemetry().emit(events::Poisoned {
                policy: &self.name,
                message_id: message.as_str(),
                generation: generation.number,
            });
        }
        let spent = failure.spent;
        self.trouble.lock().failure = Some((failure, self.engine.clock().wall()));
        // A message that comes again says no more about the generation than it did the first time.
        let is_news = times.is_none_or(|times| times == 1);
        if is_news && generation.trial.handle_failure() && self.roll_back_failing(generation, &reason) {
            return;
        }
        self.with_breaker(|breaker| breaker.handle_failure(now, spent));
    }

    /// Makes a caller's instance known.
    pub(crate) fn register(&self, slot: &Arc<Slot>) {
        let mut slots = self.slots.lock();
        slots.retain(|slot| slot.strong_count() > 0);
        slots.push(Arc::downgrade(slot));
    }

    /// Whether the generation that runs wants to know how deliveries ended.
    pub(crate) fn observes(&self) -> bool {
        self.live.load().as_ref().is_some_and(|live| live.prepared.linked.observes())
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Relaxed)
    }

    pub(crate) fn count_failure(&self, cause: Cause) {
        self.counts.failures[cause as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Passes a guest's lines on, as many as a second may have.
    pub(crate) fn log(&self, now: Instant, lines: Vec<Line>, dropped: u64) {
        let mut lost = dropped;
        for line in lines {
            if !self.log_gate.lock().pass(now).0 {
                lost += 1;
                continue;
            }
            let Line { level, text } = &line;
            self.engine.telemetry().emit(events::Logged { policy: &self.name, level: *level, text });
        }
        if lost > 0 {
            self.engine.telemetry().emit(events::LogDropped { policy: &self.name, lines: lost });
        }
    }

    // === The loader's side ===

    /// Puts a candidate into force; answers its generation.
    ///
    /// # Errors
    /// When too many generations are still in use.
    pub(crate) fn swap(
        &self,
        candidate: Candidate,
        spec: &PolicySpec,
        origin: Origin,
        took: Duration,
    ) -> Result<u64, LoadError> {
        self.tidy();
        let mut succession = self.succession.lock();
        let alive = succession.alive_after_swap();
        if alive > GENERATIONS_MAX {
            return Err(LoadError::Draining { generations: alive - 1 });
        }
        let number = self.generation_number() + 1;
        let since = self.engine.clock().wall();
        let described =
            format!("{} {}", candidate.prepared.description.name, candidate.prepared.description.version);
        // What ran well before needs no trial.
        let trial = match origin {
            Origin::Files => Trial::new(spec.probation, self.engine.clock().now()),
            Origin::LastGood | Origin::Earlier => Trial::passed(),
        };
        let generation = Arc::new(Generation::new(number, candidate, spec.limits, since, origin, trial));
        succession.previous = self.put_in_force(&generation, &mut succession.alive);
        succession.refused = None;
        drop(succession);
        self.begin_anew();
        self.engine.telemetry().emit(events::Applied {
            policy: &self.name,
            generation: number,
            described: &described,
            version: &generation.prepared.description.version,
            component_sha256: &generation.prepared.sha256,
            rules_sha256: generation.rules_sha256.as_deref(),
            remark: generation.remark(),
            from_files: origin == Origin::Files,
            took,
            unix_seconds: unix_seconds(since),
        });
        if origin == Origin::Files {
            self.succeeded_to_load(since);
        }
        self.counts.applied.fetch_add(1, Ordering::Relaxed);
        Ok(number)
    }

    /// Goes back to the generation before because the operator wants it. Answers the number of the one that runs
    /// then. What was left is not loaded again before its files change.
    pub(crate) fn roll_back(&self) -> Result<u64, RollbackError> {
        let live = self.live.load_full().ok_or(RollbackError::Nothing)?;
        let reason = format!("generation {} was rolled back by an operator", live.number);
        self.go_back(live.number, Rung::Asked, "asked", reason, None).ok_or(RollbackError::NoEarlier)
    }

    /// Goes back to the generation before because the one that runs failed in its probation. False when there is
    /// none, or another one runs already.
    fn roll_back_failing(&self, failing: &Generation, reason: &str) -> bool {
        let reason = failed_probation(failing, reason);
        self.go_back(failing.number, Rung::Probation, "rolled-back", reason, None).is_some()
    }

    /// Goes to what ran well before the start, because the first generation since then failed in its probation.
    pub(crate) fn leave_failing(&self, failing: &Generation, candidate: Candidate, spec: &PolicySpec) {
        // Before all numbers: it is none of this start's.
        let (since, trial) = (failing.since, Trial::passed());
        let ran_well = Generation::new(0, candidate, spec.limits, since, Origin::LastGood, trial);
        let last = self.trouble.lock().failure.as_ref().map(|(failure, _)| failure.to_string());
        let reason = failed_probation(failing, last.as_deref().unwrap_or("no reason is known"));
        // Another one runs already otherwise.
        let _ = self.go_back(failing.number, Rung::Probation, "rolled-back", reason, Some(ran_well));
    }

    /// Leaves `from` for the generation before it, or without one for `other`.
    fn go_back(
        &self,
        from: u64,
        rung: Rung,
        cause: &'static str,
        reason: String,
        other: Option<Generation>,
    ) -> Option<u64> {
        let mut succession = self.succession.lock();
        // Another caller may have been faster.
        let live = self.live.load_full().filter(|live| live.number == from)?;
        let earlier = succession.previous.take().or_else(|| other.map(Arc::new))?;
        live.trial.end();
        let since = self.engine.clock().wall();
        let generation = Arc::new(Generation {
            number: from + 1,
            prepared: Arc::clone(&earlier.prepared),
            rules_json: Arc::clone(&earlier.rules_json),
            rules_sha256: earlier.rules_sha256.clone(),
            limits: earlier.limits,
            since,
            // A copy stays one.
            origin: if earlier.origin == Origin::LastGood { Origin::LastGood } else { Origin::Earlier },
            trial: Trial::passed(),
        });
        self.put_in_force(&generation, &mut succession.alive);
        let trouble = LoadTrouble { rung, cause, reason, since };
        succession.refused = Some(Refused { digests: live.digests(), trouble: Some(trouble.clone()) });
        drop(succession);
        self.begin_anew();
        self.engine.telemetry().emit(events::RolledBack {
            policy: &self.name,
            from,
            generation: generation.number,
            same_as: Some(earlier.number).filter(|number| *number > 0),
            cause,
            reason: &trouble.reason,
            version: &generation.prepared.description.version,
            component_sha256: &generation.prepared.sha256,
        });
        self.trouble.lock().load = Some(trouble);
        self.counts.rolled_back.fetch_add(1, Ordering::Relaxed);
        Some(generation.number)
    }

    /// Lets calls from now on go to `generation`; answers what ran before.
    fn put_in_force(
        &self,
        generation: &Arc<Generation>,
        alive: &mut Vec<Weak<Generation>>,
    ) -> Option<Arc<Generation>> {
        alive.retain(|generation| generation.strong_count() > 0);
        alive.push(Arc::downgrade(generation));
        self.live.swap(Some(Arc::clone(generation)))
    }

    /// Another generation came into force: what is known of calls says nothing about it. Not to be called with the
    /// succession locked, for that is what a status asks for when it has locked what this may change.
    fn begin_anew(&self) {
        self.poison.forget();
        self.with_breaker(Breaker::handle_swap);
    }

    /// Takes back instances of generations that do not run any more from callers that do not ask just now.
    pub(crate) fn tidy(&self) {
        let number = self.generation_number();
        for slot in self.slots.lock().iter().filter_map(Weak::upgrade) {
            // Whoever is in a call replaces its instance at its next.
            if let Some(mut slot) = slot.try_lock()
                && slot.as_ref().is_some_and(|live| live.generation.number != number)
            {
                *slot = None;
            }
        }
    }

    /// Generations that are in use or kept.
    pub(crate) fn generations(&self) -> usize {
        self.succession.lock().alive()
    }

    /// Number of the generation that a rollback goes back to.
    pub(crate) fn previous_generation(&self) -> Option<u64> {
        self.succession.lock().previous.as_ref().map(|previous| previous.number)
    }

    /// Remembers contents that are not to be tried again before they change.
    pub(crate) fn set_refused(&self, digests: Option<Digests>) {
        self.succession.lock().refused = digests.map(|digests| Refused { digests, trouble: None });
    }

    pub(crate) fn is_refused(&self, digests: &Digests) -> bool {
        self.succession.lock().refused.as_ref().is_some_and(|refused| refused.digests == *digests)
    }

    /// What is on disk is what was refused before: the reason is what it was then, whatever was on disk meanwhile.
    pub(crate) fn still_refused(&self) {
        let known = self.succession.lock().refused.as_ref().and_then(|refused| refused.trouble.clone());
        if let Some(known) = known {
            self.trouble.lock().load = Some(known);
        }
    }

    /// Stops or resumes asking the policy; true when that changes something.
    pub(crate) fn set_paused(&self, paused: bool) -> bool {
        let changed = self.paused.swap(paused, Ordering::Relaxed) != paused;
        if changed {
            self.engine.telemetry().emit(events::Paused { policy: &self.name, paused });
        }
        changed
    }

    /// What is on disk is what runs.
    pub(crate) fn unchanged(&self) {
        let wall = self.engine.clock().wall();
        let after_refusal = self.trouble.lock().load.is_some();
        self.engine.telemetry().emit(events::Unchanged {
            policy: &self.name,
            generation: self.generation_number(),
            after_refusal,
            unix_seconds: unix_seconds(wall),
        });
        self.succeeded_to_load(wall);
    }

    /// What is on disk was refused.
    pub(crate) fn rejected(&self, error: &LoadError) {
        let reason = sentence(error);
        let since = self.engine.clock().wall();
        let trouble = LoadTrouble { rung: error.rung(), cause: error.cause(), reason: reason.clone(), since };
        if let Some(refused) = &mut self.succession.lock().refused {
            // Else it was refused for something that it still is.
            refused.trouble.get_or_insert_with(|| trouble.clone());
        }
        self.trouble.lock().load = Some(trouble);
        self.engine.telemetry().emit(events::Rejected {
            policy: &self.name,
            rung: error.rung().label(),
            cause: error.cause(),
            reason: &reason,
            generation: self.generation_number(),
        });
        self.counts.rejected.fetch_add(1, Ordering::Relaxed);
    }

    /// A generation has shown that it can be left alone.
    pub(crate) fn passed(&self, generation: &Generation) {
        self.engine.telemetry().emit(events::Passed {
            policy: &self.name,
            generation: generation.number,
            calls: generation.trial.calls(),
            failures: generation.trial.failures(),
        });
    }

    /// What came of falling back on the copy of what last ran well.
    pub(crate) fn used_last_good(&self, swapped: &Result<u64, LoadError>) {
        let reason = self.trouble.lock().load.as_ref().map(|load| load.reason.clone()).unwrap_or_default();
        self.engine.telemetry().emit(events::LastGoodUsed {
            policy: &self.name,
            reason: &reason,
            generation: swapped.as_ref().ok().copied(),
            trouble: swapped.as_ref().err().map(sentence).as_deref(),
        });
    }

    /// The copy of what last ran well cannot be used.
    pub(crate) fn found_damaged(&self, damage: &Damage) {
        self.engine.telemetry().emit(events::LastGoodUsed {
            policy: &self.name,
            reason: "",
            generation: None,
            trouble: Some(&damage.to_string()),
        });
    }

    /// Tells telemetry what was counted since the last time.
    pub(crate) fn flush(&self) {
        fn grown(counter: &AtomicU64, told: &mut u64) -> u64 {
            let count = counter.load(Ordering::Relaxed);
            count.saturating_sub(std::mem::replace(told, count))
        }
        let mut told = self.flushed.lock();
        let told = &mut *told;
        let mut answers = [("", 0); AnswerKind::ALL.len()];
        for (n, kind) in AnswerKind::ALL.into_iter().enumerate() {
            answers[n] = (kind.label(), grown(&self.counts.answers[n], &mut told.answers[n]));
        }
        let mut failures = [("", 0); Cause::ALL.len()];
        for (n, cause) in Cause::ALL.into_iter().enumerate() {
            failures[n] = (cause.label(), grown(&self.counts.failures[n], &mut told.failures[n]));
        }
        let evicted = self.state.sizes().evicted;
        self.engine.telemetry().emit(events::Calls {
            policy: &self.name,
            answers: &answers,
            failures: &failures,
            instances_started: grown(&self.counts.instances_started, &mut told.instances_started),
            state_evictions: evicted.saturating_sub(std::mem::replace(&mut told.evicted, evicted)),
        });
    }

    /// The number of what runs; 0 for nothing.
    pub(crate) fn generation_number(&self) -> u64 {
        self.live.load().as_ref().map_or(0, |generation| generation.number)
    }

    fn succeeded_to_load(&self, wall: Timestamp) {
        let mut trouble = self.trouble.lock();
        trouble.last_success = Some(wall);
        trouble.load = None;
    }

    fn with_breaker(&self, handle: impl FnOnce(&mut Breaker) -> Option<Change>) {
        let mut breaker = self.breaker.lock();
        let change = handle(&mut breaker);
        self.calm.store(breaker.is_calm(), Ordering::Release);
        drop(breaker);
        match change {
            None => {}
            Some(Change::Opened { pause, reason }) => {
                self.trouble.lock().breaker = Some((reason, self.engine.clock().wall()));
                self.engine.telemetry().emit(events::BreakerOpened { policy: &self.name, reason, pause });
            }
            Some(Change::Closed) => {
                self.trouble.lock().breaker = None;
                self.engine.telemetry().emit(events::BreakerClosed { policy: &self.name });
            }
        }
    }
}

impl Succession {
    /// Generations that would live after one more came into force: it, what runs now, and those that a call is in.
    fn alive_after_swap(&self) -> usize {
        let previous = self.previous.as_ref();
        let unused = previous.is_some_and(|previous| Arc::strong_count(previous) == 1);
        1 + self.alive() - usize::from(unused)
    }

    fn alive(&self) -> usize {
        self.alive.iter().filter(|generation| generation.strong_count() > 0).count()
    }
}

fn failed_probation(failing: &Generation, last: &str) -> String {
    let (number, failures, calls) = (failing.number, failing.trial.failures(), failing.trial.calls());
    format!("generation {number} failed on {failures} of its first {calls} calls, the last time: {last}")
}

#[allow(clippy::cast_precision_loss, reason = "milliseconds since 1970 are below 2^53 for 285,000 years")]
fn unix_seconds(wall: Timestamp) -> f64 {
    wall.as_unix_millis() as f64 / 1e3
}
