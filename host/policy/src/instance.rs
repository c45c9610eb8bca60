//! One Store with one instance of a policy, and the entries into it.
//!
//! Every entry arms the deadline and empties the log first. After a failed entry the Store is poisoned (wasmtime
//! refuses every later call on it, also on a new instance), so the owner drops the whole.

use std::sync::Arc;
use std::time::Duration;

use tidegate_model::{Deferral, Verdict};
use wasmtime::Store;

use crate::bindings::exports::tidegate::policy::{lifecycle, throttle};
use crate::bindings::{ThrottlePolicy, ThrottlePolicyPre};
use crate::cause::{Cause, Failure};
use crate::deadline::thread_time;
use crate::engine::Engine;
use crate::guest::{Call, CurrentMessage, Guest, Moment};
use crate::log_tail::{Line, printable};
use crate::spec::Limits;
use crate::state::State;

/// Bytes of a reason that a policy gives; it reaches logs and dead letters.
const REASON_BYTES_MAX: usize = 256;

/// A live instance.
pub(crate) struct Instance {
    store: Store<Guest>,
    policy: ThrottlePolicy,
    /// Dropped with the Store: counts it.
    _counted: Arc<()>,
}

impl Instance {
    /// Makes a Store and an instance in it.
    pub(crate) fn start(
        engine: &Engine,
        component: &ThrottlePolicyPre<Guest>,
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
        match component.instantiate(&mut store) {
            Ok(policy) => Ok(Self { store, policy, _counted: engine.count_instance() }),
            Err(error) => Err(failure(&mut store, &error)),
        }
    }

    /// Asks the policy what it is.
    pub(crate) fn describe(&mut self, limits: &Limits) -> Result<lifecycle::Description, Failure> {
        arm(&mut self.store, limits.start_deadline);
        let answer = self.policy.tidegate_policy_lifecycle().call_describe(&mut self.store);
        answer.map_err(|error| failure(&mut self.store, &error))
    }

    /// Gives the policy its rules; the inner error is the policy's own refusal.
    pub(crate) fn configure(
        &mut self,
        limits: &Limits,
        rules: &str,
    ) -> Result<Result<(), lifecycle::ConfigError>, Failure> {
        arm(&mut self.store, limits.start_deadline);
        let answer = self.policy.tidegate_policy_lifecycle().call_configure(&mut self.store, rules);
        answer.map_err(|error| failure(&mut self.store, &error))
    }

    /// Asks for a verdict.
    pub(crate) fn decide(
        &mut self,
        deadline: Duration,
        moment: Moment,
        call: Call,
    ) -> Result<Verdict, Failure> {
        arm(&mut self.store, deadline);
        let guest = self.store.data_mut();
        guest.moment = moment;
        guest.call = Some(call);
        let answer =
            self.policy.tidegate_policy_throttle().call_decide(&mut self.store, CurrentMessage::lend());
        self.store.data_mut().call = None;
        answer.map(verdict).map_err(|error| failure(&mut self.store, &error))
    }

    /// Lines that the last entry wrote and how many more there were; `None` when it wrote nothing.
    pub(crate) fn take_log(&mut self) -> Option<(Vec<Line>, u64)> {
        let log = &mut self.store.data_mut().log;
        (!log.is_empty()).then(|| log.take())
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
