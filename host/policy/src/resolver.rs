//! Credentials from a policy: asked for in the background, at hand when a call needs them.
//!
//! A [`Resolver`] has a thread of its own, the only one that asks the policy, so neither a flow nor the runtime ever
//! waits in a guest. What the policy answered lies in a table; [`Resolver::current`] reads it and never waits.

mod ask;
mod table;

use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::{Condvar, Mutex, MutexGuard};
use tidegate_connector::Clock;
use tidegate_connector::secret::{Purpose, Secret, SecretError, SecretSource};
use tidegate_telemetry::{Telemetry, events};
use tokio::sync::watch;
use tokio::time;

pub(crate) use ask::PolicyAsker;
pub use table::{FailureKind, ResolveFailure, Resolved};
use table::{Key, Refusal, Table, Taken};

/// Stack of the thread: guests run on it.
const STACK_BYTES: usize = 4 << 20;

/// How often the thread looks whether another generation answers now, when nothing else wakes it.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Whoever answers. May take its time: it has a thread of its own.
pub trait Resolve: Send {
    /// Asks for the secret for an endpoint.
    ///
    /// # Errors
    /// When there is none. The text reaches logs and holds no secret.
    fn resolve(&mut self, endpoint: &str, purpose: Purpose) -> Result<Resolved, ResolveFailure>;

    /// A number that changes when it may answer otherwise than before, such as after a reload.
    fn generation(&self) -> u64 {
        0
    }
}

/// A credential resolver at work. Clones are handles to the same; it ends with the last of them.
#[derive(Clone)]
pub struct Resolver(Arc<Handle>);

struct Handle(Arc<Shared>);

struct Shared {
    policy: Arc<str>,
    table: Mutex<Table>,
    wake: Condvar,
    closing: AtomicBool,
    changes: watch::Sender<u64>,
    clock: Clock,
    telemetry: Telemetry,
}

impl Resolver {
    /// Starts the thread that asks. `seed` is for jitter.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(
        policy: Arc<str>,
        mut answering: Box<dyn Resolve>,
        seed: u64,
        clock: Clock,
        telemetry: Telemetry,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            table: Mutex::new(Table::new(Arc::clone(&policy), seed)),
            policy,
            wake: Condvar::new(),
            closing: AtomicBool::new(false),
            changes: watch::Sender::new(0),
            clock,
            telemetry,
        });
        let worker = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("policy-resolver".into())
            .stack_size(STACK_BYTES)
            .spawn(move || worker.work(&mut *answering))?;
        Ok(Self(Arc::new(Handle(shared))))
    }

    /// The policy's name.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.shared().policy
    }

    /// The secret that is at hand. Never waits; what is not there yet is asked for.
    ///
    /// # Errors
    /// When there is none: not yet, not any more, or because it was denied.
    pub fn current(&self, endpoint: &str, purpose: Purpose) -> Result<Arc<Secret>, SecretError> {
        let shared = self.shared();
        let mut table = shared.table.lock();
        let secret = table.look(shared.clock.now(), endpoint, purpose);
        drop(table);
        if secret.is_err() {
            shared.wake.notify_one();
        }
        secret
    }

    /// Waits for the first answer, at most `patience`.
    ///
    /// # Errors
    /// As [`current`](Self::current).
    pub async fn ensure(
        &self,
        endpoint: &str,
        purpose: Purpose,
        patience: Duration,
    ) -> Result<Arc<Secret>, SecretError> {
        match time::timeout(patience, self.first(endpoint, purpose)).await {
            Ok(secret) => secret,
            Err(_) => self.current(endpoint, purpose),
        }
    }

    /// What is missing, in one sentence; `None` when everything that was asked for is there.
    #[must_use]
    pub fn status(&self) -> Option<String> {
        let shared = self.shared();
        shared.table.lock().problem(shared.clock.now())
    }

    fn shared(&self) -> &Shared {
        &self.0.0
    }

    /// Waits until no answer for the endpoint is on its way.
    async fn answered(&self, changes: &mut watch::Receiver<u64>, endpoint: &str, purpose: Purpose) {
        let shared = self.shared();
        loop {
            changes.borrow_and_update();
            let now = shared.clock.now();
            if !shared.table.lock().is_pending(now, endpoint, purpose) {
                return;
            }
            shared.wake.notify_one();
            if changes.changed().await.is_err() {
                return;
            }
        }
    }
}

#[async_trait]
impl SecretSource for Resolver {
    fn current(&self, endpoint: &str, purpose: Purpose) -> Result<Arc<Secret>, SecretError> {
        Self::current(self, endpoint, purpose)
    }

    async fn first(&self, endpoint: &str, purpose: Purpose) -> Result<Arc<Secret>, SecretError> {
        let mut changes = self.shared().changes.subscribe();
        if let Ok(secret) = Self::current(self, endpoint, purpose) {
            return Ok(secret);
        }
        self.answered(&mut changes, endpoint, purpose).await;
        Self::current(self, endpoint, purpose)
    }

    async fn renew(&self, endpoint: &str, purpose: Purpose, refused: &Arc<Secret>) -> bool {
        let shared = self.shared();
        let mut changes = shared.changes.subscribe();
        let refusal = shared.table.lock().handle_refused(shared.clock.now(), endpoint, purpose, refused);
        match refusal {
            Refusal::Newer => true,
            Refusal::TooSoon => false,
            Refusal::Asking => {
                self.answered(&mut changes, endpoint, purpose).await;
                Self::current(self, endpoint, purpose).is_ok_and(|secret| !Arc::ptr_eq(&secret, refused))
            }
        }
    }
}

impl Shared {
    fn work(&self, answering: &mut dyn Resolve) {
        let mut generation = answering.generation();
        let mut table = self.table.lock();
        while !self.closing.load(Ordering::Acquire) {
            let now = self.clock.now();
            if generation != answering.generation() {
                generation = answering.generation();
                table.handle_change(now);
            }
            if let Some(key) = table.poll_ask(now) {
                self.ask(&mut table, answering, &key);
                continue;
            }
            let wait = table.poll_timeout().map_or(LOOK_EVERY, |at| at.saturating_since(now));
            let _ = self.wake.wait_for(&mut table, wait.min(LOOK_EVERY));
        }
    }

    fn ask(&self, table: &mut MutexGuard<'_, Table>, answering: &mut dyn Resolve, key: &Key) {
        let began = self.clock.now();
        let answer = MutexGuard::unlocked(table, || {
            let asking = AssertUnwindSafe(|| answering.resolve(&key.endpoint, key.purpose));
            catch_unwind(asking).unwrap_or_else(|_| {
                let detail = "the host failed while it asked".to_owned();
                Err(ResolveFailure { kind: FailureKind::Other, detail })
            })
        });
        let now = self.clock.now();
        let taken = table.handle_answer(now, key, answer.clone());
        let (usable, missing) = table.counts(now);
        MutexGuard::unlocked(table, || {
            self.tell(key, &answer, taken, now.saturating_since(began));
            self.telemetry.emit(events::resolver::Held { policy: &self.policy, usable, missing });
        });
        self.changes.send_modify(|count| *count = count.wrapping_add(1));
    }

    fn tell(&self, key: &Key, answer: &Result<Resolved, ResolveFailure>, taken: Taken, took: Duration) {
        let (policy, endpoint, purpose) = (&self.policy, &*key.endpoint, key.purpose.name());
        match (answer, taken) {
            (Ok(resolved), Taken::Held { is_new }) => self.telemetry.emit(events::resolver::Resolved {
                policy,
                endpoint,
                purpose,
                kind: resolved.secret.kind(),
                is_new,
                valid_for: resolved.valid_for,
                took,
            }),
            (answer, Taken::Failed { goes_on, again_in }) => {
                let (outcome, reason) = match answer {
                    Err(failure) => (failure.kind.label(), failure.detail.as_str()),
                    Ok(_) => ("other", "it gave credentials that have expired already"),
                };
                self.telemetry.emit(events::resolver::NotResolved {
                    policy,
                    endpoint,
                    purpose,
                    outcome,
                    reason,
                    goes_on,
                    again_in,
                });
            }
            (Ok(_), Taken::Forgotten) | (Err(_), Taken::Forgotten | Taken::Held { .. }) => {}
        }
    }
}

/// The thread sees it within a moment, or when the policy has answered.
impl Drop for Handle {
    fn drop(&mut self) {
        self.0.closing.store(true, Ordering::Release);
        self.0.wake.notify_one();
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolver").field("policy", self.name()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
