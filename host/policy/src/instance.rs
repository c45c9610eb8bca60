//! One Store with one instance of a policy, and the entries into it.
//!
//! Every entry arms the deadline and empties the log first. After a failed entry the Store is poisoned (wasmtime
//! refuses every later call on it, also on a new instance), so the owner drops the whole.

use std::sync::Arc;
use std::time::Duration;

use tidegate_model::{Deferral, Renewal, Verdict};
use wasmtime::Store;

use crate::bindings::v1::{credentials, lifecycle, observer, renewal, throttle};
use crate::cause::{Cause, Failure};
use crate::deadline::thread_time;
use crate::engine::Engine;
use crate::guest::{Call, CurrentLease, CurrentMessage, CurrentRecord, Guest, Lease, Moment, Record};
use crate::log_tail::{Line, printable};
use crate::prepared::{Entries, Linked};
use crate::spec::Limits;
use crate::state::State;

/// Bytes of a reason that a policy gives; it reaches logs and dead letters.
const REASON_BYTES_MAX: usize = 256;

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
        let guest = Guest::new(memory_bytes, limits.log_bytes_per_call, Arc::clone(state), moment);
        let mut store = Store::new(engine.wasm(), guest);
        store.limiter(|guest| &mut guest.limiter);
        store.set_hostcall_fuel(limits.hostcall_bytes);
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
        self.enter(limits.start_deadline, |entries, store| {
            entries.lifecycle.tidegate_policy_lifecycle().call_describe(store)
        })
    }

    /// Gives the policy its rules; the inner error is the policy's own refusal.
    pub(crate) fn configure(
        &mut self,
        limits: &Limits,
        rules: &str,
    ) -> Result<Result<(), lifecycle::ConfigError>, Failure> {
        self.enter(limits.start_deadline, |entries, store| {
            entries.lifecycle.tidegate_policy_lifecycle().call_configure(store, rules)
        })
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
        lease: Lease,
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

    /// Asks a resolver; the inner error is its own word.
    pub(crate) fn resolve(
        &mut self,
        deadline: Duration,
        moment: Moment,
        request: &credentials::Request,
    ) -> Result<Result<credentials::Resolved, credentials::Failure>, Failure> {
        self.store.data_mut().moment = moment;
        self.enter(deadline, |entries, store| match &entries.credentials {
            Some(credentials) => credentials.tidegate_policy_credentials().call_resolve(store, request),
            None => Err(wasmtime::Error::msg("it does not export `credentials`")),
        })
    }

    /// Asks a partitioner where a record goes.
    pub(crate) fn partition(
        &mut self,
        deadline: Duration,
        moment: Moment,
        record: Record,
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
        let log = &mut self.store.data_mut().log;
        (!log.is_empty()).then(|| log.take())
    }

    /// Bytes of memories and tables that it has now.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.store.data().limiter.used_bytes()
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
    let (lines, _) = guest.log.take();
    Failure::of(error, lines.into_iter().map(|line| line.text).collect(), spent)
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
