//! The thread that loads policies: the only one that puts a generation into force.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::time::Duration;

use serde::Serialize;
use tidegate_model::Instant;

use crate::engine::Engine;
use crate::error::{LoadError, ReloadError};
use crate::files::{Files, Fingerprint};
use crate::generation::{Digests, Generation, Origin};
use crate::ladder::{Ladder, RungReport};
use crate::last_good::LastGood;
use crate::policy::Policy;
use crate::spec::PolicySpec;
use crate::watch::Watches;

/// Between two looks when nothing gives notice. A look costs two `stat` calls per policy.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Files must look the same for so long before they are read; a copy in progress changes its size faster.
const SETTLED_AFTER: Duration = Duration::from_millis(100);

/// A candidate that failed by the machine's fault is tried again after so long, doubling up to so long.
const RETRY_MIN: Duration = Duration::from_secs(5);
const RETRY_MAX: Duration = Duration::from_secs(300);

/// What the loader is told.
pub(crate) enum Command {
    /// Something may have changed on disk.
    Look,
    /// Somebody wants a policy to be read now, or only to know what would come of it.
    Reload { policy: Arc<str>, dry_run: bool, answer: SyncSender<Result<ReloadReport, ReloadError>> },
    /// A policy's configuration changed.
    Update { spec: Box<PolicySpec>, answer: SyncSender<Result<ReloadReport, ReloadError>> },
    /// The host shuts down.
    Stop,
}

/// What came of a reload that somebody asked for.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ReloadReport {
    /// The policy.
    pub policy: Arc<str>,
    /// The generation that runs now.
    pub generation: u64,
    /// Whether it is another one than before; of a dry run, whether it would be.
    pub changed: bool,
    /// Whether nothing was to change.
    pub dry_run: bool,
    /// The checks that were made.
    pub rungs: Vec<RungReport>,
}

/// The loader's own view of one policy.
struct Loaded {
    policy: Arc<Policy>,
    /// What was last read.
    seen: Fingerprint,
    /// Looks different from what was read, since then.
    unsettled: Option<(Fingerprint, Instant)>,
    retry: Option<(Instant, Duration)>,
    /// What runs on probation, to be kept when it has passed.
    on_probation: Option<OnProbation>,
}

struct OnProbation {
    generation: Arc<Generation>,
    files: Files,
    /// Whether it failed and the copy of what ran well was looked for.
    looked_back: bool,
}

/// The loader.
pub(crate) struct Loader {
    engine: Engine,
    policies: Vec<Loaded>,
    watches: Watches,
    last_good: Option<LastGood>,
    commands: Receiver<Command>,
}

impl Loader {
    pub(crate) fn new(
        engine: &Engine,
        policies: impl Iterator<Item = Arc<Policy>>,
        last_good: Option<LastGood>,
        commands: Receiver<Command>,
        wake: SyncSender<Command>,
    ) -> Self {
        let watches = Watches::new(engine.telemetry().clone(), move || match wake.try_send(Command::Look) {
            // A full queue means that the loader will look anyway.
            Ok(()) | Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {}
        });
        let policies = policies.map(Loaded::new).collect();
        Self { engine: engine.clone(), policies, watches, last_good, commands }
    }

    /// Loads every policy once; none stops another.
    pub(crate) fn load_all(&mut self) {
        self.refresh_watches();
        for loaded in &mut self.policies {
            // The reason is in the policy's status and in the log.
            if loaded.load(&self.engine, Why::Asked, &mut Ladder::default()).is_err()
                && let Some(last_good) = &self.last_good
            {
                loaded.load_last_good(&self.engine, last_good);
            }
        }
    }

    /// Follows the disk and the commands until it is told to stop.
    pub(crate) fn run(mut self) {
        loop {
            let unsettled = self.policies.iter().any(|loaded| loaded.unsettled.is_some());
            let wait = if unsettled { SETTLED_AFTER } else { LOOK_EVERY };
            match self.commands.recv_timeout(wait) {
                Ok(Command::Look) | Err(RecvTimeoutError::Timeout) => {}
                Ok(Command::Reload { policy, dry_run, answer }) => {
                    let report = if dry_run { self.try_out(&policy) } else { self.reload(&policy) };
                    // Whoever asked may have stopped waiting.
                    let _ = answer.send(report);
                }
                Ok(Command::Update { spec, answer }) => {
                    let _ = answer.send(self.update(*spec));
                }
                Ok(Command::Stop) | Err(RecvTimeoutError::Disconnected) => break,
            }
            self.look();
            for loaded in &self.policies {
                loaded.policy.flush();
            }
        }
        for loaded in &self.policies {
            loaded.policy.flush();
        }
    }

    fn look(&mut self) {
        self.refresh_watches();
        let now = self.engine.clock().now();
        for loaded in &mut self.policies {
            loaded.look(&self.engine, now);
            loaded.look_at_probation(&self.engine, now, self.last_good.as_ref());
            loaded.policy.tidy();
        }
    }

    /// Every check that a reload makes, changing nothing.
    fn try_out(&mut self, policy: &Arc<str>) -> Result<ReloadReport, ReloadError> {
        let engine = self.engine.clone();
        let loaded = self.find(policy)?;
        let spec = loaded.policy.spec.load_full();
        let live = loaded.policy.live.load_full();
        let mut ladder = Ladder::default();
        let tried = ladder.read(&spec).and_then(|files| {
            let prepared = live.as_ref().map(|live| &live.prepared);
            ladder.check(&engine, &spec, &files, prepared).map(|_| digests(&files))
        });
        let changes = tried.map(|found| live.is_none_or(|live| live.digests() != found));
        loaded.report(changes, true, ladder)
    }

    fn reload(&mut self, policy: &Arc<str>) -> Result<ReloadReport, ReloadError> {
        let engine = self.engine.clone();
        let loaded = self.find(policy)?;
        let mut ladder = Ladder::default();
        let loading = loaded.load(&engine, Why::Asked, &mut ladder);
        loaded.report(loading.map(|loading| loading == Loading::Applied), false, ladder)
    }

    /// The new configuration of a policy is tried with its files; limits come into force with them or not at all.
    fn update(&mut self, spec: PolicySpec) -> Result<ReloadReport, ReloadError> {
        let name = Arc::clone(&spec.name);
        let policy = Arc::clone(&self.find(&name)?.policy);
        let old = policy.spec.swap(Arc::new(spec));
        self.reload(&name).inspect_err(|_| policy.spec.store(old))
    }

    fn find(&mut self, policy: &str) -> Result<&mut Loaded, ReloadError> {
        let loaded = self.policies.iter_mut().find(|loaded| *loaded.policy.name == *policy);
        loaded.ok_or_else(|| ReloadError::Unknown(policy.to_owned()))
    }

    fn refresh_watches(&mut self) {
        let specs: Vec<_> = self.policies.iter().map(|loaded| loaded.policy.spec.load_full()).collect();
        self.watches.refresh(specs.iter().map(|spec| &**spec));
    }
}

/// Why files are read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Why {
    /// Somebody wants to know.
    Asked,
    /// They look different, or failed by the machine's fault.
    Changed,
}

/// What came of reading files that are not at fault.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Loading {
    /// A new generation is in force.
    Applied,
    /// They hold what runs.
    Unchanged,
    /// They hold what was refused before.
    StillRefused,
    /// They changed while they were read.
    Unsettled,
}

impl Loaded {
    fn new(policy: Arc<Policy>) -> Self {
        Self { policy, seen: Fingerprint::default(), unsettled: None, retry: None, on_probation: None }
    }

    /// What is told of a reload that somebody asked for; `changes` when it passed.
    fn report(
        &self,
        changes: Result<bool, LoadError>,
        dry_run: bool,
        ladder: Ladder,
    ) -> Result<ReloadReport, ReloadError> {
        let rungs = ladder.into_rungs();
        match changes {
            Ok(changed) => Ok(ReloadReport {
                policy: Arc::clone(&self.policy.name),
                generation: self.policy.generation_number(),
                changed,
                dry_run,
                rungs,
            }),
            Err(source) => Err(ReloadError::Rejected {
                policy: self.policy.name.to_string(),
                rungs,
                source: Box::new(source),
            }),
        }
    }

    /// Reads the files when they changed and have settled, or when a retry is due.
    fn look(&mut self, engine: &Engine, now: Instant) {
        let current = Fingerprint::of(&self.policy.spec.load());
        if current == self.seen {
            self.unsettled = None;
            if self.retry.is_none_or(|(at, _)| now < at) {
                return;
            }
        } else {
            match &self.unsettled {
                Some((before, since)) if *before == current => {
                    if now.saturating_since(*since) < SETTLED_AFTER {
                        return;
                    }
                }
                _ => {
                    self.unsettled = Some((current, now));
                    return;
                }
            }
        }
        // The reason is in the policy's status and in the log.
        let _ = self.load(engine, Why::Changed, &mut Ladder::default());
    }

    /// Reads the files and puts them into force if they pass; says what came of it.
    fn load(&mut self, engine: &Engine, why: Why, ladder: &mut Ladder) -> Result<Loading, LoadError> {
        let result = self.climb(engine, why, ladder);
        match &result {
            Ok(Loading::Applied) => self.handle_success(),
            Ok(Loading::Unchanged) => {
                self.handle_success();
                self.policy.set_refused(None);
                self.policy.unchanged();
            }
            Ok(Loading::StillRefused) => self.policy.still_refused(),
            Ok(Loading::Unsettled) => {}
            Err(error) => {
                self.handle_refusal(engine.clock().now(), error);
                self.policy.rejected(error);
            }
        }
        result
    }

    fn climb(&mut self, engine: &Engine, why: Why, ladder: &mut Ladder) -> Result<Loading, LoadError> {
        let spec = self.policy.spec.load_full();
        let began = engine.clock().now();
        self.unsettled = None;
        self.seen = Fingerprint::of(&spec);
        let files = ladder.read(&spec)?;
        if why == Why::Changed && Fingerprint::of(&spec) != self.seen {
            self.seen = Fingerprint::default();
            return Ok(Loading::Unsettled);
        }
        let digests = digests(&files);
        let live = self.policy.live.load_full();
        let runs = live.as_deref().is_some_and(|live| {
            live.prepared.sha256 == digests.0
                && live.rules_sha256 == digests.1
                && live.limits == spec.limits
                && spec.world.is_none_or(|world| world == live.prepared.world)
                && *live.prepared.linked.grants() == spec.grants
                && live.origin != Origin::LastGood
                && spec.sha256.as_deref().is_none_or(|pinned| pinned.eq_ignore_ascii_case(&digests.0))
        });
        if runs {
            return Ok(Loading::Unchanged);
        }
        if why == Why::Changed && self.policy.is_refused(&digests) {
            return Ok(Loading::StillRefused);
        }
        let has_rules = live.as_deref().is_some_and(Generation::has_rules);
        if let Some(path) = files.blank_rules().filter(|_| has_rules) {
            self.policy.set_refused(Some(digests));
            return Err(LoadError::RulesBlank { path: path.to_owned() });
        }
        let prepared = live.as_ref().map(|live| &live.prepared);
        let swapped = ladder.check(engine, &spec, &files, prepared).and_then(|candidate| {
            let took = engine.clock().now().saturating_since(began);
            self.policy.swap(candidate, &spec, Origin::Files, took)
        });
        match swapped {
            Ok(_) => {
                let live = self.policy.live.load_full();
                self.on_probation =
                    live.map(|generation| OnProbation { generation, files, looked_back: false });
                Ok(Loading::Applied)
            }
            Err(error) => {
                self.policy.set_refused((!error.is_transient()).then_some(digests));
                Err(error)
            }
        }
    }

    /// Puts the copy of what last ran well into force, because the files cannot be used.
    fn load_last_good(&mut self, engine: &Engine, last_good: &LastGood) {
        let spec = self.policy.spec.load_full();
        let began = engine.clock().now();
        let Some(files) = self.kept(&spec, last_good) else { return };
        // Through every check again: limits, or the host, may be others than when it ran.
        let swapped = Ladder::default().check(engine, &spec, &files, None).and_then(|candidate| {
            let took = engine.clock().now().saturating_since(began);
            self.policy.swap(candidate, &spec, Origin::LastGood, took)
        });
        self.policy.used_last_good(&swapped);
    }

    /// What failed is the first to run since the start, and so had nothing to go back to: files that had been rolled
    /// back before a restart, for one. Goes back to the copy of what ran well, if it is another.
    fn leave_for_last_good(&self, engine: &Engine, failing: &Generation, last_good: &LastGood) {
        let spec = self.policy.spec.load_full();
        let kept = self.kept(&spec, last_good);
        let Some(files) = kept.filter(|files| digests(files) != failing.digests()) else { return };
        match Ladder::default().check(engine, &spec, &files, None) {
            Ok(candidate) => self.policy.leave_failing(failing, candidate, &spec),
            Err(error) => self.policy.used_last_good(&Err(error)),
        }
    }

    /// The copy of what last ran well, if there is one and it is wanted. Says so when it is damaged.
    fn kept(&self, spec: &PolicySpec, last_good: &LastGood) -> Option<Files> {
        if !spec.last_good {
            return None;
        }
        last_good.load(&self.policy.name).unwrap_or_else(|damage| {
            self.policy.found_damaged(&damage);
            None
        })
    }

    /// Ends a probation whose time has come, and keeps a copy of what passed.
    fn look_at_probation(&mut self, engine: &Engine, now: Instant, last_good: Option<&LastGood>) {
        let Some(OnProbation { generation, looked_back, .. }) = &mut self.on_probation else { return };
        if self.policy.generation_number() != generation.number {
            // It was rolled back, or another one took its place.
            self.on_probation = None;
            return;
        }
        if generation.trial.is_failing()
            && !std::mem::replace(looked_back, true)
            && let Some(last_good) = last_good
        {
            let failing = Arc::clone(generation);
            return self.leave_for_last_good(engine, &failing, last_good);
        }
        if !generation.trial.handle_time(now) && !generation.trial.is_over() {
            return;
        }
        let Some(OnProbation { generation, files, .. }) = self.on_probation.take() else { return };
        self.policy.passed(&generation);
        let keeps = self.policy.spec.load().last_good;
        if let Some(last_good) = last_good.filter(|_| keeps)
            && let Err(error) = last_good.save(&self.policy.name, &files)
        {
            engine.telemetry().emit(tidegate_telemetry::events::policy::LastGoodNotKept {
                policy: &self.policy.name,
                reason: &error.to_string(),
            });
        }
    }

    fn handle_success(&mut self) {
        self.retry = None;
    }

    fn handle_refusal(&mut self, now: Instant, error: &LoadError) {
        self.retry = error.is_transient().then(|| {
            let pause = self.retry.map_or(RETRY_MIN, |(_, pause)| (pause * 2).min(RETRY_MAX));
            (now + pause, pause)
        });
    }
}

fn digests(files: &Files) -> Digests {
    (Arc::clone(&files.component_sha256), files.rules_sha256().cloned())
}
