//! One Store with one instance of a policy, and the entries into it.
//!
//! Every entry arms the deadline and empties the log first. After a failed entry the Store is poisoned (wasmtime
//! refuses every later call on it, also on a new instance), so the owner drops the whole.

use std::sync::Arc;
use std::time::Duration;

use tidegate_model::{Deferral, Instant, Renewal, Verdict};
use wasmtime::Store;

use crate::bindings::v1::{credentials, lifecycle, observer, renewal, throttle};
use crate::cause::{Cause, Failure};
use crate::deadline::thread_time;
use crate::engine::Engine;
use crate::grants::{Budget, Scrubber};
use crate::guest::{Call, CurrentLease, CurrentMessage, CurrentRecord, Guest, Moment};
use crate::log_tail::{Line, printable};
use crate::partitioner::OutgoingRecord;
use crate::prepared::{Entries, Linked};
use crate::renewal::LeaseFacts;
use crate::spec::Limits;
use crate::state::State;

/// Bytes of a reason that a policy gives; it reaches logs and dead letters.
const REASON_BYTES_MAX: usize = 256;

/// Bytes of a sentence that a policy says about itself or its rules; it reaches logs and terminals.
const SENTENCE_BYTES_MAX: usize = 1 << 10;

/// A live instance.
pub(crate) struct Instance {
    store: Store<Guest>,
    entries: Entries,
    /// Dropped with the Store: counts it.
    _counted: Arc<()>,
}

impl Instance {
    /// Makes a Store and an instance in it.
    pub(crate) fn start(
        engine: &Engine,
        linked: &Linked,
        limits: &Limits,
        state: &Arc<State>,
        moment: Moment,
    ) -> Result<Self, Failure> {
        // A limit beyond the pool's slots would show as a panic of the guest and not as what it is.
        let memory_bytes = limits.memory_bytes.min(engine.memory_bytes_max());
        let (state, access) = (Arc::clone(state), Arc::clone(linked.access()));
        let guest = Guest::new(memory_bytes, limits.log_bytes_per_call, state, access, moment);
        let mut store = Store::new(engine.wasm(), guest);
        store.limiter(|guest| &mut guest.limiter);
        store.set_hostcall_fuel(limits.hostcall_bytes);
        if engine.counts_fuel() {
            // Counted and not limited: that is what deadlines are for. The engine was set up to count.
            let _ = store.set_fuel(u64::MAX);
        }
        store.set_max_component_handles(limits.handles);
        store.epoch_deadline_callback(|mut store| store.data_mut().deadline.handle_expiry(thread_time()));
        arm(&mut store, limits.start_deadline);
        match linked.instantiate(&mut store) {
            Ok(entries) => Ok(Self { store, entries, _counted: engine.count_instance() }),
            Err(error) => Err(failure(&mut store, &error)),
        }
    }

    /// Asks the policy what it is.
    pub(crate) fn describe(&mut self, limits: &Limits) -> Result<lifecycle::Description, Failure> {
        let mut description = self.enter(limits.start_deadline, |entries, store| {
            entries.lifecycle.tidegate_policy_lifecycle().call_describe(store)
        })?;
        // It may have read what it was granted already.
        let scrubber = self.store.data().access.scrubber();
        let sentence = |text: &str| printable(&scrubber.scrub(text), SENTENCE_BYTES_MAX);
        description.name = scrubber.scrub(&description.name);
        description.version = scrubber.scrub(&description.version);
        description.summary = sentence(&description.summary);
        for parameter in &mut description.parameters {
            parameter.name = scrubber.scrub(&parameter.name);
            parameter.summary = sentence(&parameter.summary);
            parameter.default = parameter.default.take().map(|default| sentence(&default));
        }
        Ok(description)
    }

    /// Gives the policy its rules; the inner error is the policy's own refusal.
    pub(crate) fn configure(
        &mut self,
        limits: &Limits,
        rules: &str,
    ) -> Result<Result<(), lifecycle::ConfigError>, Failure> {
        let answer = self.enter(limits.start_deadline, |entries, store| {
            entries.lifecycle.tidegate_policy_lifecycle().call_configure(store, rules)
        })?;
        let scrubber = self.store.data().access.scrubber();
        Ok(answer.map_err(|error| lifecycle::ConfigError {
            key: printable(&scrubber.scrub(&error.key), REASON_BYTES_MAX),
            message: printable(&scrubber.scrub(&error.message), SENTENCE_BYTES_MAX),
        }))
    }

    /// Asks a throttle policy for a verdict.
    pub(crate) fn decide(
        &mut self,
        deadline: Duration,
        moment: Moment,
        call: Call,
    ) -> Result<Verdict, Failure> {
        let Some(throttle) = &self.entries.throttle else { return Err(another_world("throttle")) };
        arm(&mut self.store, deadline);
        let guest = self.store.data_mut();
        guest.moment = moment;
        guest.call = Some(call);
        let answer = throttle.tidegate_policy_throttle().call_decide(&mut self.store, CurrentMessage::lend());
        self.store.data_mut().call = None;
        answer.map(verdict).map_err(|error| failure(&mut self.store, &error))
    }

    /// Asks a renewal policy about a lease.
    pub(crate) fn renew(
        &mut self,
        deadline: Duration,
        moment: Moment,
        call: Call,
        lease: LeaseFacts,
    ) -> Result<Renewal, Failure> {
        let Some(renewal) = &self.entries.renewal else { return Err(another_world("renewal")) };
        arm(&mut self.store, deadline);
        let guest = self.store.data_mut();
        guest.moment = moment;
        guest.call = Some(call);
        guest.lease = Some(lease);
        let answer = renewal.tidegate_policy_renewal().call_decide(&mut self.store, CurrentLease::lend());
        let guest = self.store.data_mut();
        guest.call = None;
        guest.lease = None;
        match answer {
            Ok(renewal::Answer::Renew(millis)) => Ok(Renewal::Renew(Duration::from_millis(millis))),
            Ok(renewal::Answer::Release) => Ok(Renewal::Release),
            Ok(renewal::Answer::Lapse) => Ok(Renewal::Lapse),
            Err(error) => Err(failure(&mut self.store, &error)),
        }
    }

    /// Asks a resolver, which may make requests until `until`; the inner error is its own word.
    pub(crate) fn resolve(
        &mut self,
        deadline: Duration,
        until: Instant,
        moment: Moment,
        request: &credentials::Request,
    ) -> Result<Result<credentials::Resolved, credentials::Failure>, Failure> {
        let guest = self.store.data_mut();
        guest.moment = moment;
        guest.budget = Budget::until(until);
        let answer = self.enter(deadline, |entries, store| match &entries.credentials {
            Some(credentials) => credentials.tidegate_policy_credentials().call_resolve(store, request),
            None => Err(wasmtime::Error::msg("it does not export `credentials`")),
        });
        let guest = self.store.data_mut();
        guest.budget = Budget::default();
        let scrubber = guest.access.scrubber();
        Ok(match answer? {
            Ok(resolved) => {
                // Known before its log lines leave the host.
                learn(scrubber, &resolved.secret);
                Ok(resolved)
            }
            Err(failure) => Err(scrubbed(scrubber, failure)),
        })
    }

    /// Asks a partitioner where a record goes.
    pub(crate) fn partition(
        &mut self,
        deadline: Duration,
        moment: Moment,
        record: OutgoingRecord,
        partitions: u32,
    ) -> Result<u32, Failure> {
        let Some(partitioner) = &self.entries.partitioner else { return Err(another_world("partitioner")) };
        arm(&mut self.store, deadline);
        let guest = self.store.data_mut();
        guest.moment = moment;
        guest.record = Some(record);
        let view = partitioner.tidegate_policy_partitioner();
        let answer = view.call_partition(&mut self.store, CurrentRecord::lend(), partitions);
        self.store.data_mut().record = None;
        match answer {
            Ok(partition) if partition < partitions => Ok(partition),
            Ok(partition) => Err(Failure::new(
                Cause::Other,
                format!("it answered partition {partition} of {partitions}, which are counted from 0"),
            )),
            Err(error) => Err(failure(&mut self.store, &error)),
        }
    }

    /// Tells the policy how deliveries ended. Does nothing for a policy that does not want to know.
    pub(crate) fn observe(
        &mut self,
        deadline: Duration,
        moment: Moment,
        outcomes: &[observer::Outcome],
    ) -> Result<(), Failure> {
        self.store.data_mut().moment = moment;
        self.enter(deadline, |entries, store| match &entries.observer {
            Some(observer) => observer.tidegate_policy_observer().call_observe(store, outcomes),
            None => Ok(()),
        })
    }

    /// Lines that the last entry wrote and how many more there were; `None` when it wrote nothing.
    pub(crate) fn take_log(&mut self) -> Option<(Vec<Line>, u64)> {
        let guest = self.store.data_mut();
        (!guest.log.is_empty()).then(|| {
            let (mut lines, dropped) = guest.log.take();
            scrub(guest.access.scrubber(), &mut lines);
            (lines, dropped)
        })
    }

    /// Bytes of memories and tables that it has now.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.store.data().limiter.used_bytes()
    }

    /// What it has executed since its start, in wasmtime's fuel (about one for each instruction); `None` when the
    /// engine does not count.
    pub(crate) fn fuel_spent(&self) -> Option<u64> {
        self.store.get_fuel().ok().map(|left| u64::MAX - left)
    }

    fn enter<T>(
        &mut self,
        deadline: Duration,
        call: impl FnOnce(&Entries, &mut Store<Guest>) -> wasmtime::Result<T>,
    ) -> Result<T, Failure> {
        arm(&mut self.store, deadline);
        call(&self.entries, &mut self.store).map_err(|error| failure(&mut self.store, &error))
    }
}

fn arm(store: &mut Store<Guest>, deadline: Duration) {
    let guest = store.data_mut();
    guest.log.begin();
    let ticks = guest.deadline.arm(deadline);
    store.set_epoch_deadline(ticks);
}

fn failure(store: &mut Store<Guest>, error: &wasmtime::Error) -> Failure {
    let guest = store.data_mut();
    let spent = guest.deadline.spent(thread_time());
    let (mut lines, _) = guest.log.take();
    scrub(guest.access.scrubber(), &mut lines);
    Failure::of(error, lines.into_iter().map(|line| line.text).collect(), spent)
}

/// Takes out of lines what the policy was given.
fn scrub(scrubber: &Scrubber, lines: &mut [Line]) {
    for line in lines {
        line.text = scrubber.scrub(&line.text);
    }
}

fn learn(scrubber: &Scrubber, secret: &credentials::Secret) {
    match secret {
        credentials::Secret::None => {}
        credentials::Secret::AccessKey(keys) => {
            scrubber.learn(&keys.secret);
            scrubber.learn(keys.session_token.as_deref().unwrap_or_default());
        }
        credentials::Secret::Login(login) => scrubber.learn(&login.password),
        credentials::Secret::Bearer(token) => scrubber.learn(token),
        credentials::Secret::Identity(identity) => scrubber.learn(&identity.private_key),
    }
}

/// Its own word, fit for a log.
fn scrubbed(scrubber: &Scrubber, failure: credentials::Failure) -> credentials::Failure {
    let clean = |text: String| printable(&scrubber.scrub(&text), REASON_BYTES_MAX);
    match failure {
        credentials::Failure::Unavailable(text) => credentials::Failure::Unavailable(clean(text)),
        credentials::Failure::Denied(text) => credentials::Failure::Denied(clean(text)),
        credentials::Failure::Other(text) => credentials::Failure::Other(clean(text)),
    }
}

/// The ladder lets only components of the right world through.
fn another_world(export: &str) -> Failure {
    Failure::new(Cause::Type, format!("it does not export `{export}`"))
}

fn verdict(answer: throttle::Verdict) -> Verdict {
    let reason = |text: String| printable(&text, REASON_BYTES_MAX).into_boxed_str();
    match answer {
        throttle::Verdict::Deliver => Verdict::Deliver,
        throttle::Verdict::Defer(deferral) => Verdict::Defer(Deferral {
            delay: Duration::from_millis(deferral.delay),
            reason: reason(deferral.reason),
        }),
        throttle::Verdict::Reject(text) => Verdict::Reject { reason: reason(text) },
        throttle::Verdict::Discard(text) => Verdict::Discard { reason: reason(text) },
    }
}

impl From<lifecycle::ConfigError> for Failure {
    fn from(error: lifecycle::ConfigError) -> Self {
        Self::new(Cause::Other, format!("{}: {}", error.key, error.message))
    }
}
