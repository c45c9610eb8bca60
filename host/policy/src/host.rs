//! All policies of the host: started once, asked by flows, looked at by the admin API.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;

use crate::engine::Engine;
use crate::error::{ReloadError, RollbackError};
use crate::last_good::LastGood;
use crate::loader::{Command, Loader, ReloadReport};
use crate::partitioner::Partitioner;
use crate::policy::Policy;
use crate::renewal::Renewing;
use crate::resolver::{PolicyAsker, Resolver};
use crate::spec::PolicySpec;
use crate::status::PolicyStatus;
use crate::throttle::Throttle;

/// Commands that wait for the loader; more means that it is busy compiling.
const COMMANDS_MAX: usize = 16;

/// How long a caller waits for a reload: the default compile timeout, and what else a loader may be about.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(150);

/// Stack of the loader's thread: guests run on it too.
const LOADER_STACK_BYTES: usize = 4 << 20;

/// The policies of one host.
pub struct PolicyHost {
    policies: BTreeMap<Arc<str>, Arc<Policy>>,
    /// Those that were asked for: each has a thread.
    resolvers: Mutex<BTreeMap<Arc<str>, Resolver>>,
    commands: SyncSender<Command>,
    loader: Mutex<Option<JoinHandle<()>>>,
}

/// Why policies cannot be loaded at all.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The system gave no thread.
    #[error("cannot start the thread that loads policies")]
    Thread(#[source] std::io::Error),
    /// Two policies have one name.
    #[error("the policy `{0}` is configured twice")]
    Twice(Arc<str>),
}

impl PolicyHost {
    /// Loads every policy and starts the thread that follows their files. Returns when each was tried once, which
    /// takes as long as compiling them; a broken or absent one never stops the others. `last_good` is a directory of
    /// the host's own in which copies of what ran well are kept, for a start with files that cannot be used.
    ///
    /// # Errors
    /// When the system gives no thread, or a name is there twice. Never for what is in a policy's files.
    pub fn start(
        engine: &Engine,
        specs: Vec<PolicySpec>,
        last_good: Option<PathBuf>,
    ) -> Result<Self, StartError> {
        let mut policies = BTreeMap::new();
        for spec in specs {
            let name = Arc::clone(&spec.name);
            let policy = Arc::new(Policy::new(engine.clone(), spec));
            if policies.insert(Arc::clone(&name), policy).is_some() {
                return Err(StartError::Twice(name));
            }
        }
        let (commands, inbox) = sync_channel(COMMANDS_MAX);
        let mut loader = Loader::new(
            engine,
            policies.values().cloned(),
            last_good.map(LastGood::new),
            inbox,
            commands.clone(),
        );
        let (ready, started) = sync_channel(1);
        let run = move || {
            loader.load_all();
            // The other side waits for it.
            let _ = ready.send(());
            loader.run();
        };
        let thread = std::thread::Builder::new()
            .name("policy-loader".into())
            .stack_size(LOADER_STACK_BYTES)
            .spawn(run)
            .map_err(StartError::Thread)?;
        // An error would mean that the loader panicked; its policies are then not loaded, as their status says.
        let _ = started.recv();
        Ok(Self { policies, resolvers: Mutex::default(), commands, loader: Mutex::new(Some(thread)) })
    }

    /// The throttle policy of that name.
    #[must_use]
    pub fn throttle(&self, name: &str) -> Option<Throttle> {
        self.policies.get(name).map(|policy| Throttle(Arc::clone(policy)))
    }

    /// The renewal policy of that name.
    #[must_use]
    pub fn renewing(&self, name: &str) -> Option<Renewing> {
        self.policies.get(name).map(|policy| Renewing(Arc::clone(policy)))
    }

    /// The partitioner of that name.
    #[must_use]
    pub fn partitioner(&self, name: &str) -> Option<Partitioner> {
        self.policies.get(name).map(|policy| Partitioner(Arc::clone(policy)))
    }

    /// The credential resolver of that name: always the same one, so that whoever needs the same secret asks once.
    ///
    /// # Errors
    /// When the system gives no thread for it.
    pub fn resolver(&self, name: &str) -> Result<Option<Resolver>, StartError> {
        let Some(policy) = self.policies.get(name) else { return Ok(None) };
        let mut resolvers = self.resolvers.lock();
        if let Some(resolver) = resolvers.get(name) {
            return Ok(Some(resolver.clone()));
        }
        let engine = &policy.engine;
        let resolver = Resolver::start(
            Arc::clone(&policy.name),
            Box::new(PolicyAsker::new(policy)),
            engine.next_seed(),
            engine.clock(),
            engine.telemetry().clone(),
        )
        .map_err(StartError::Thread)?;
        resolvers.insert(Arc::clone(&policy.name), resolver.clone());
        Ok(Some(resolver))
    }

    /// All policies as they are now, by name.
    #[must_use]
    pub fn status(&self) -> Vec<PolicyStatus> {
        self.policies.values().map(|policy| PolicyStatus::of(policy)).collect()
    }

    /// Reads a policy's files now, without waiting for a notice. Blocks until they passed or were refused.
    ///
    /// # Errors
    /// When there is no such policy, when its files were refused (what ran goes on), or when the loader is busy.
    pub fn reload(&self, name: &str) -> Result<ReloadReport, ReloadError> {
        let policy = Arc::clone(&self.find(name)?.name);
        self.ask(|answer| Command::Reload { policy, dry_run: false, answer })
    }

    /// Puts a policy's files through every check of a reload and changes nothing.
    ///
    /// # Errors
    /// As [`PolicyHost::reload`].
    pub fn dry_run(&self, name: &str) -> Result<ReloadReport, ReloadError> {
        let policy = Arc::clone(&self.find(name)?.name);
        self.ask(|answer| Command::Reload { policy, dry_run: true, answer })
    }

    /// Goes back to the generation before; what is left is not loaded again before its files change. Answers the
    /// number of the generation that runs then.
    ///
    /// # Errors
    /// When there is no such policy, or nothing to go back to.
    pub fn roll_back(&self, name: &str) -> Result<u64, ReloadError> {
        let policy = self.find(name)?;
        policy
            .roll_back()
            .map_err(|source: RollbackError| ReloadError::NoRollback { policy: name.to_owned(), source })
    }

    /// Stops asking a policy, so that its messages follow `on-error`, or resumes. True when that changes something.
    ///
    /// # Errors
    /// When there is no such policy.
    pub fn set_paused(&self, name: &str, paused: bool) -> Result<bool, ReloadError> {
        Ok(self.find(name)?.set_paused(paused))
    }

    /// Gives a policy another configuration: files, limits, `on-error`. It comes into force as a whole or not at all.
    ///
    /// # Errors
    /// As [`PolicyHost::reload`]; the configuration is then the one before.
    pub fn update(&self, spec: PolicySpec) -> Result<ReloadReport, ReloadError> {
        self.ask(|answer| Command::Update { spec: Box::new(spec), answer })
    }

    /// Stops following files and joins the thread. Callers go on with what is loaded.
    pub fn shutdown(&self) {
        let Some(thread) = self.loader.lock().take() else { return };
        // When its queue is full it looks at the disk first; an error means that it has ended.
        let _ = self.commands.send(Command::Stop);
        let _ = thread.join();
    }

    fn find(&self, name: &str) -> Result<&Arc<Policy>, ReloadError> {
        self.policies.get(name).ok_or_else(|| ReloadError::Unknown(name.to_owned()))
    }

    fn ask(
        &self,
        command: impl FnOnce(SyncSender<Result<ReloadReport, ReloadError>>) -> Command,
    ) -> Result<ReloadReport, ReloadError> {
        let (answer, answered) = sync_channel(1);
        match self.commands.try_send(command(answer)) {
            Ok(()) => answered.recv_timeout(ANSWER_TIMEOUT).unwrap_or_else(|error| {
                Err(match error {
                    RecvTimeoutError::Timeout => ReloadError::Busy(ANSWER_TIMEOUT),
                    RecvTimeoutError::Disconnected => ReloadError::Ended,
                })
            }),
            Err(TrySendError::Full(_)) => Err(ReloadError::Crowded),
            Err(TrySendError::Disconnected(_)) => Err(ReloadError::Ended),
        }
    }
}

impl Drop for PolicyHost {
    fn drop(&mut self) {
        self.shutdown();
    }
}

impl std::fmt::Debug for PolicyHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PolicyHost").field("policies", &self.policies.keys()).finish_non_exhaustive()
    }
}
