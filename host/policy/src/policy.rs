//! One policy of the host: what its callers and its loader share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use parking_lot::Mutex;
use tidegate_model::{Instant, Timestamp};
use tidegate_telemetry::events::policy as events;

use crate::breaker::{Breaker, Change};
use crate::cause::{Cause, Failure};
use crate::engine::Engine;
use crate::error::{LoadError, Rung};
use crate::gate::Gate;
use crate::ladder::{Candidate, Prepared, sentence};
use crate::log_tail::{Level, Line};
use crate::rules;
use crate::spec::{Limits, PolicySpec};
use crate::state::State;
use crate::verdict_kind::VerdictKind;

/// Lines a second that a policy may log.
const LOG_LINES_PER_SECOND: u32 = 20;

/// One immutable state of a policy: component, rules and limits. A reload makes another one.
pub(crate) struct Generation {
    /// From 1, counted per policy.
    pub(crate) number: u64,
    pub(crate) prepared: Arc<Prepared>,
    pub(crate) rules_json: Arc<str>,
    pub(crate) rules_sha256: Option<Arc<str>>,
    pub(crate) limits: Limits,
    pub(crate) since: Timestamp,
}

impl Generation {
    /// Whether its rules set anything.
    pub(crate) fn has_rules(&self) -> bool {
        &*self.rules_json != rules::NOTHING
    }

    /// What there is to say about it: rules that set nothing may not be what was meant.
    pub(crate) fn remark(&self) -> Option<&'static str> {
        let is_empty = self.rules_sha256.is_some() && !self.has_rules();
        is_empty.then_some(rules::SETS_NOTHING)
    }
}

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
}

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

/// Calls since the beginning.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) verdicts: [AtomicU64; VerdictKind::ALL.len()],
    pub(crate) failures: [AtomicU64; Cause::ALL.len()],
    pub(crate) instances_started: AtomicU64,
    pub(crate) applied: AtomicU64,
    pub(crate) rejected: AtomicU64,
}

/// What telemetry was told already.
#[derive(Debug, Default)]
struct Flushed {
    verdicts: [u64; VerdictKind::ALL.len()],
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
        }
    }

    // === The callers' side ===

    /// Whether the breaker lets a call through.
    pub(crate) fn admit(&self, now: Instant) -> bool {
        self.calm.load(Ordering::Acquire) || self.breaker.lock().admit(now)
    }

    /// Reports a call that went well.
    pub(crate) fn succeeded(&self, now: Instant, kind: VerdictKind) {
        self.counts.verdicts[kind as usize].fetch_add(1, Ordering::Relaxed);
        if !self.calm.load(Ordering::Acquire) {
            self.with_breaker(|breaker| breaker.handle_success(now));
        }
    }

    /// Reports a call that failed.
    pub(crate) fn failed(&self, now: Instant, generation: &Generation, message_id: &str, failure: Failure) {
        self.count_failure(failure.cause);
        let (pass, more) = self.failure_gate.lock().pass(now);
        if pass {
            self.engine.telemetry().emit(events::Failed {
                policy: &self.name,
                cause: failure.cause.label(),
                reason: &failure.to_string(),
                frames: &failure.frames,
                message_id,
                generation: generation.number,
                more,
            });
        }
        let spent = failure.spent;
        self.trouble.lock().failure = Some((failure, self.engine.clock().wall()));
        self.with_breaker(|breaker| breaker.handle_failure(now, spent));
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
            let level = match line.level {
                Level::Debug => events::LogLevel::Debug,
                Level::Info => events::LogLevel::Info,
                Level::Warn => events::LogLevel::Warn,
                Level::Error => events::LogLevel::Error,
            };
            self.engine.telemetry().emit(events::Logged { policy: &self.name, level, text: &line.text });
        }
        if lost > 0 {
            self.engine.telemetry().emit(events::LogDropped { policy: &self.name, lines: lost });
        }
    }

    // === The loader's side ===

    /// Puts a candidate into force; answers its generation.
    pub(crate) fn swap(&self, candidate: Candidate, limits: Limits, took: Duration) -> u64 {
        let number = self.generation_number() + 1;
        let since = self.engine.clock().wall();
        let description = &candidate.prepared.description;
        let described = format!("{} {}", description.name, description.version);
        let generation = Arc::new(Generation {
            number,
            prepared: candidate.prepared,
            rules_json: candidate.rules_json,
            rules_sha256: candidate.rules_sha256,
            limits,
            since,
        });
        self.live.store(Some(Arc::clone(&generation)));
        self.with_breaker(Breaker::handle_swap);
        self.counts.applied.fetch_add(1, Ordering::Relaxed);
        self.succeeded_to_load(since);
        self.engine.telemetry().emit(events::Applied {
            policy: &self.name,
            generation: number,
            described: &described,
            component_sha256: &generation.prepared.sha256,
            rules_sha256: generation.rules_sha256.as_deref(),
            remark: generation.remark(),
            took,
            unix_seconds: unix_seconds(since),
        });
        number
    }

    /// What is on disk is what runs.
    pub(crate) fn unchanged(&self) {
        let wall = self.engine.clock().wall();
        let after_refusal = self.succeeded_to_load(wall);
        self.engine.telemetry().emit(events::Unchanged {
            policy: &self.name,
            generation: self.generation_number(),
            after_refusal,
            unix_seconds: unix_seconds(wall),
        });
    }

    /// What is on disk was refused.
    pub(crate) fn rejected(&self, error: &LoadError) {
        let reason = sentence(error);
        self.counts.rejected.fetch_add(1, Ordering::Relaxed);
        self.engine.telemetry().emit(events::Rejected {
            policy: &self.name,
            rung: error.rung().label(),
            cause: error.cause(),
            reason: &reason,
            generation: self.generation_number(),
        });
        let since = self.engine.clock().wall();
        self.trouble.lock().load =
            Some(LoadTrouble { rung: error.rung(), cause: error.cause(), reason, since });
    }

    /// Tells telemetry what was counted since the last time.
    pub(crate) fn flush(&self) {
        fn grown(counter: &AtomicU64, told: &mut u64) -> u64 {
            let count = counter.load(Ordering::Relaxed);
            count.saturating_sub(std::mem::replace(told, count))
        }
        let mut told = self.flushed.lock();
        let told = &mut *told;
        let mut verdicts = [("", 0); VerdictKind::ALL.len()];
        for (n, kind) in VerdictKind::ALL.into_iter().enumerate() {
            verdicts[n] = (kind.label(), grown(&self.counts.verdicts[n], &mut told.verdicts[n]));
        }
        let mut failures = [("", 0); Cause::ALL.len()];
        for (n, cause) in Cause::ALL.into_iter().enumerate() {
            failures[n] = (cause.label(), grown(&self.counts.failures[n], &mut told.failures[n]));
        }
        let evicted = self.state.sizes().evicted;
        self.engine.telemetry().emit(events::Calls {
            policy: &self.name,
            verdicts: &verdicts,
            failures: &failures,
            instances_started: grown(&self.counts.instances_started, &mut told.instances_started),
            state_evictions: evicted.saturating_sub(std::mem::replace(&mut told.evicted, evicted)),
        });
    }

    /// The number of what runs; 0 for nothing.
    pub(crate) fn generation_number(&self) -> u64 {
        self.live.load().as_ref().map_or(0, |generation| generation.number)
    }

    /// True when what was on disk before had been refused.
    fn succeeded_to_load(&self, wall: Timestamp) -> bool {
        let mut trouble = self.trouble.lock();
        trouble.last_success = Some(wall);
        trouble.load.take().is_some()
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

#[allow(clippy::cast_precision_loss, reason = "milliseconds since 1970 are below 2^53 for 285,000 years")]
fn unix_seconds(wall: Timestamp) -> f64 {
    wall.as_unix_millis() as f64 / 1e3
}
