//! Events of flows: what the lease book, the policies and the sinks did with deliveries.

mod onlookers;
mod rejecting;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Unit;

use crate::metrics::{Name, Registry, call_seconds, words};
use tidegate_model::DeliveryId;

use crate::{Event, Metrics};

pub use onlookers::{RecordingBegan, RecordingEnded, TapBegan, TapEnded};
pub use rejecting::{DeadLetterRefused, PausedByDeadLetters, Rejected};

words!(VerdictKind, Origin, SettleResult, Irregularity, UndecidedEnd, DeadLetterEnd, State);

/// The metric families that these events move.
#[derive(Debug)]
pub(crate) struct Families {
    received: Family<FlowLabel, Counter>,
    verdicts: Family<VerdictLabels, Counter>,
    shadow_verdicts: Family<ShadowLabels, Counter>,
    emitted: Family<FlowLabel, Counter>,
    settled: Family<SettledLabels, Counter>,
    endings: Family<EndingLabels, Counter>,
    undecided_endings: Family<UndecidedLabels, Counter>,
    dead_letters: Family<DeadLetterLabels, Counter>,
    dead_letter_pauses: Family<FlowLabel, Counter>,
    state: Family<StateLabels, Gauge>,
    receive_errors: Family<FlowLabel, Counter>,
    in_flight: Family<FlowLabel, Gauge>,
    in_flight_bytes: Family<FlowLabel, Gauge>,
    undecided: Family<FlowLabel, Gauge>,
    queued: Family<FlowLabel, Gauge>,
    keys: Family<FlowLabel, Gauge>,
    joined: Family<FlowLabel, Gauge>,
    decision_seconds: Family<FlowLabel, Histogram, fn() -> Histogram>,
    hold_seconds: Family<FlowLabel, Histogram, fn() -> Histogram>,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct FlowLabel {
    flow: Arc<str>,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct VerdictLabels {
    flow: Arc<str>,
    verdict: VerdictKind,
    origin: Origin,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct SettledLabels {
    flow: Arc<str>,
    verb: &'static str,
    result: SettleResult,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct ShadowLabels {
    flow: Arc<str>,
    policy: Name,
    live: &'static str,
    shadow: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct EndingLabels {
    flow: Arc<str>,
    cause: Irregularity,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct UndecidedLabels {
    flow: Arc<str>,
    cause: UndecidedEnd,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct DeadLetterLabels {
    flow: Arc<str>,
    result: DeadLetterEnd,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct StateLabels {
    flow: Arc<str>,
    state: State,
}

/// The kinds of verdict.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum VerdictKind {
    /// Handed to the sink.
    Deliver,
    /// Given back for a while.
    Defer,
    /// Dead-lettered.
    Reject,
    /// Settled without a sink.
    Discard,
}

/// Who decided.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Origin {
    /// The policy.
    Policy,
    /// The policy's `on-error`, since the policy could not.
    OnError,
    /// Nobody: the flow has no policy.
    None,
}

/// What came of a settlement.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum SettleResult {
    /// The broker took it.
    Done,
    /// The lease had run out.
    LeaseGone,
    /// The broker was in trouble.
    Broker,
    /// The broker refuses such a thing.
    Refused,
}

/// What can happen to a delivery beside the regular road.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Irregularity {
    /// Its lease ran out before it was emitted; it comes again.
    ExpiredQueued,
    /// Its lease ran out while the sink had it; its late report was answered so.
    ExpiredEmitted,
    /// It came a second time or later.
    Redelivered,
    /// It came again only because an earlier one of its ordered key did; the sink does not see it twice.
    Rerun,
    /// The same, and the sink sees it twice.
    Duplicate,
    /// It was dropped because an earlier one of its ordered key comes again.
    Dropped,
    /// A safety valve turned its deferral into something final, or shortened it.
    Valve,
    /// A policy that wants to know was not told how it ended, because too many ended at once.
    Unobserved,
    /// The state machine was used wrongly; a bug.
    Bug,
}

/// Why a delivery left without a decision. Its message is not lost by it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum UndecidedEnd {
    /// An earlier one of its ordered key comes again, and it with it.
    Dropped,
    /// Its lease ran out; it comes again.
    Expired,
    /// Its message was held already: it renewed that one's lease.
    Merged,
    /// The flow was draining; it was given back.
    Released,
}

/// What became of a rejected message.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum DeadLetterEnd {
    /// The dead-letter sink has it.
    Taken,
    /// It was left to the broker's own dead letters.
    Broker,
    /// It was dropped: there are dead letters nowhere.
    Dropped,
    /// The dead-letter sink did not take it now; it comes again.
    Refused,
    /// There were too many, so it was given back; it comes again.
    HeldBack,
}

/// Where a flow is in its life.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum State {
    /// Receiving, deciding, emitting, settling.
    Running,
    /// Not receiving until it is resumed.
    Paused,
    /// Finishing what workers hold.
    Draining,
    /// Over, as asked.
    Stopped,
    /// Over, since something went wrong.
    Failed,
}

impl State {
    const ALL: [Self; 5] = [Self::Running, Self::Paused, Self::Draining, Self::Stopped, Self::Failed];

    /// The word for logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Draining => "draining",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
        }
    }
}

impl Families {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let families = Self {
            received: Family::default(),
            verdicts: Family::default(),
            shadow_verdicts: Family::default(),
            emitted: Family::default(),
            settled: Family::default(),
            endings: Family::default(),
            undecided_endings: Family::default(),
            dead_letters: Family::default(),
            dead_letter_pauses: Family::default(),
            state: Family::default(),
            receive_errors: Family::default(),
            in_flight: Family::default(),
            in_flight_bytes: Family::default(),
            undecided: Family::default(),
            queued: Family::default(),
            keys: Family::default(),
            joined: Family::default(),
            decision_seconds: Family::new_with_constructor(call_seconds),
            hold_seconds: Family::new_with_constructor(hold_histogram),
        };
        let registry = registry.sub_registry_with_prefix("flow");
        registry.register(
            "received",
            "Deliveries received: the sum of tidegate_flow_verdicts_total, \
             tidegate_flow_undecided_endings_total and tidegate_flow_undecided",
            families.received.clone(),
        );
        registry.register("verdicts", "Decisions by verdict and by who decided", families.verdicts.clone());
        registry.register(
            "shadow_verdicts",
            "Messages that a policy in shadow mode was asked about, by what was followed and what it said",
            families.shadow_verdicts.clone(),
        );
        registry.register("emitted", "Deliveries handed to the sink", families.emitted.clone());
        registry.register("settled", "Settlements by verb and result", families.settled.clone());
        registry.register(
            "irregularities",
            "Deliveries that left the regular road",
            families.endings.clone(),
        );
        registry.register(
            "undecided_endings",
            "Deliveries that left without a decision. All but the merged come again: dropped behind an earlier one of \
             their ordered key that comes again, expired, released by a drain",
            families.undecided_endings.clone(),
        );
        registry.register(
            "dead_letters",
            "Rejected messages by what became of them: taken by the dead-letter sink, left to the broker's own dead \
             letters, dropped for want of either; refused by the sink or held back because they came too fast, and then \
             they come again",
            families.dead_letters.clone(),
        );
        registry.register(
            "dead_letter_pauses",
            "Times that a flow paused itself because it rejected too many messages",
            families.dead_letter_pauses.clone(),
        );
        registry.register(
            "state",
            "1 for the state that the flow is in, 0 for the others",
            families.state.clone(),
        );
        registry.register("receive_errors", "Receives that failed", families.receive_errors.clone());
        registry.register("in_flight", "Deliveries held", families.in_flight.clone());
        registry.register_with_unit(
            "in_flight",
            "Memory held",
            Unit::Bytes,
            families.in_flight_bytes.clone(),
        );
        registry.register(
            "undecided",
            "Deliveries held that wait for their decision",
            families.undecided.clone(),
        );
        registry.register("queued", "Accepted deliveries waiting for the sink", families.queued.clone());
        registry.register("keys", "Active keys", families.keys.clone());
        registry.register(
            "joined",
            "1 while the flow's broker serves it, 0 before that and when it has been away for 10 s",
            families.joined.clone(),
        );
        registry.register_with_unit(
            "decision",
            "One decision",
            Unit::Seconds,
            families.decision_seconds.clone(),
        );
        registry.register_with_unit(
            "hold",
            "From receiving a delivery to handing it to the sink",
            Unit::Seconds,
            families.hold_seconds.clone(),
        );
        families
    }
}

/// From 100 us to the longest usual lease.
fn hold_histogram() -> Histogram {
    Histogram::new([100e-6, 500e-6, 1e-3, 5e-3, 10e-3, 50e-3, 100e-3, 500e-3, 1.0, 5.0, 15.0, 60.0])
}

/// What a flow did since the last one of these. Counted in the flow's loop and emitted once per turn, so that the
/// road of a message has no look-up of metrics on it.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// Deliveries received.
    pub received: u64,
    /// Deliveries handed to the sink.
    pub emitted: u64,
    /// Decisions, by kind and origin.
    pub verdicts: Vec<(VerdictKind, Origin, u64)>,
    /// Verdicts of policies in shadow mode, by the policy, by what was followed and by what it said.
    pub shadow_verdicts: Vec<(Arc<str>, &'static str, &'static str, u64)>,
    /// Settlements, by verb and result.
    pub settled: Vec<(&'static str, SettleResult, u64)>,
    /// Deliveries that left the regular road.
    pub irregularities: Vec<(Irregularity, u64)>,
    /// Deliveries that left without a decision.
    pub undecided_endings: Vec<(UndecidedEnd, u64)>,
    /// Rejected messages, by what became of them.
    pub dead_letters: Vec<(DeadLetterEnd, u64)>,
    /// Times that single decisions took. A sample: at most a few per turn.
    pub decision_times: Vec<Duration>,
    /// Times that deliveries were held before emission. A sample likewise.
    pub hold_times: Vec<Duration>,
}

impl Progress {
    /// Adds one decision.
    pub fn verdict(&mut self, kind: VerdictKind, origin: Origin) {
        match self.verdicts.iter_mut().find(|(k, o, _)| *k == kind && *o == origin) {
            Some((_, _, count)) => *count += 1,
            None => self.verdicts.push((kind, origin, 1)),
        }
    }

    /// Adds one verdict of a policy in shadow mode.
    pub fn shadow_verdict(&mut self, policy: &Arc<str>, live: &'static str, shadow: &'static str) {
        let known =
            self.shadow_verdicts.iter_mut().find(|(p, l, s, _)| p == policy && *l == live && *s == shadow);
        match known {
            Some((_, _, _, count)) => *count += 1,
            None => self.shadow_verdicts.push((Arc::clone(policy), live, shadow, 1)),
        }
    }

    /// Adds one settlement.
    pub fn settlement(&mut self, verb: &'static str, result: SettleResult) {
        match self.settled.iter_mut().find(|(v, r, _)| *v == verb && *r == result) {
            Some((_, _, count)) => *count += 1,
            None => self.settled.push((verb, result, 1)),
        }
    }

    /// Adds one rejected message.
    pub fn dead_letter(&mut self, end: DeadLetterEnd) {
        match self.dead_letters.iter_mut().find(|(e, _)| *e == end) {
            Some((_, count)) => *count += 1,
            None => self.dead_letters.push((end, 1)),
        }
    }

    /// Adds `count` deliveries that left the regular road.
    pub fn irregularity(&mut self, cause: Irregularity, count: u64) {
        match self.irregularities.iter_mut().find(|(c, _)| *c == cause) {
            Some((_, total)) => *total += count,
            None => self.irregularities.push((cause, count)),
        }
    }
}

/// One turn of a flow's loop.
#[derive(Debug)]
pub struct Turned<'a> {
    /// The flow.
    pub flow: &'a Arc<str>,
    /// What it did. Emptied, its allocations kept.
    pub progress: &'a mut Progress,
    /// Deliveries held now.
    pub in_flight: usize,
    /// Bytes held now.
    pub in_flight_bytes: usize,
    /// Accepted deliveries that wait for the sink now.
    pub queued: usize,
    /// Deliveries that wait for their decision now.
    pub undecided: usize,
    /// Active keys now.
    pub keys: usize,
}

impl Event for Turned<'_> {
    fn record(self, metrics: &Metrics) {
        let families = &metrics.flow;
        let label = FlowLabel { flow: Arc::clone(self.flow) };
        let progress = self.progress;
        add(&families.received, &label, std::mem::take(&mut progress.received));
        add(&families.emitted, &label, std::mem::take(&mut progress.emitted));
        for (verdict, origin, count) in progress.verdicts.drain(..) {
            let labels = VerdictLabels { flow: Arc::clone(self.flow), verdict, origin };
            families.verdicts.get_or_create(&labels).inc_by(count);
        }
        for (policy, live, shadow, count) in progress.shadow_verdicts.drain(..) {
            let labels = ShadowLabels { flow: Arc::clone(self.flow), policy: (&policy).into(), live, shadow };
            families.shadow_verdicts.get_or_create(&labels).inc_by(count);
        }
        for (verb, result, count) in progress.settled.drain(..) {
            let labels = SettledLabels { flow: Arc::clone(self.flow), verb, result };
            families.settled.get_or_create(&labels).inc_by(count);
        }
        for (cause, count) in progress.irregularities.drain(..) {
            let labels = EndingLabels { flow: Arc::clone(self.flow), cause };
            families.endings.get_or_create(&labels).inc_by(count);
        }
        for (cause, count) in progress.undecided_endings.drain(..) {
            let labels = UndecidedLabels { flow: Arc::clone(self.flow), cause };
            families.undecided_endings.get_or_create(&labels).inc_by(count);
        }
        for (result, count) in progress.dead_letters.drain(..) {
            let labels = DeadLetterLabels { flow: Arc::clone(self.flow), result };
            families.dead_letters.get_or_create(&labels).inc_by(count);
        }
        let decisions = families.decision_seconds.get_or_create(&label);
        for time in progress.decision_times.drain(..) {
            decisions.observe(time.as_secs_f64());
        }
        drop(decisions);
        let holds = families.hold_seconds.get_or_create(&label);
        for time in progress.hold_times.drain(..) {
            holds.observe(time.as_secs_f64());
        }
        drop(holds);
        set(&families.in_flight, &label, self.in_flight);
        set(&families.in_flight_bytes, &label, self.in_flight_bytes);
        set(&families.undecided, &label, self.undecided);
        set(&families.queued, &label, self.queued);
        set(&families.keys, &label, self.keys);
    }
}

fn add(family: &Family<FlowLabel, Counter<u64, AtomicU64>>, label: &FlowLabel, count: u64) {
    if count > 0 {
        family.get_or_create(label).inc_by(count);
    }
}

fn set(family: &Family<FlowLabel, Gauge>, label: &FlowLabel, value: usize) {
    family.get_or_create(label).set(i64::try_from(value).unwrap_or(i64::MAX));
}

/// A receive failed; the worker waits and asks again.
#[derive(Debug)]
pub struct ReceiveFailed<'a> {
    /// The flow.
    pub flow: &'a Arc<str>,
    /// One sentence.
    pub detail: &'a str,
    /// How many receives in a row have failed, this one included, over all workers of the flow.
    pub in_a_row: u32,
    /// How long the worker waits now.
    pub wait: Duration,
}

impl Event for ReceiveFailed<'_> {
    fn record(self, metrics: &Metrics) {
        metrics.flow.receive_errors.get_or_create(&FlowLabel { flow: Arc::clone(self.flow) }).inc();
        // A broker that stays away is one story: say it when it begins, then ever more rarely.
        if self.in_a_row == 1 || (self.in_a_row >= 16 && self.in_a_row.is_power_of_two()) {
            let wait_ms = u64::try_from(self.wait.as_millis()).unwrap_or(u64::MAX);
            tracing::warn!(flow = %self.flow, in_a_row = self.in_a_row, wait_ms, "cannot receive: {}", self.detail);
        } else {
            tracing::debug!(flow = %self.flow, in_a_row = self.in_a_row, "cannot receive: {}", self.detail);
        }
    }
}

/// A receive ended well again.
#[derive(Debug)]
pub struct ReceivesAgain<'a> {
    /// The flow.
    pub flow: &'a Arc<str>,
    /// How many had failed before it.
    pub failures: u32,
}

impl Event for ReceivesAgain<'_> {
    fn record(self, _metrics: &Metrics) {
        tracing::info!(flow = %self.flow, failures = self.failures, "receives again");
    }
}

/// A flow's state changed.
#[derive(Debug)]
pub struct StateChanged<'a> {
    /// The flow.
    pub flow: &'a Arc<str>,
    /// What it is now.
    pub state: State,
    /// Why, when there is something to say.
    pub reason: Option<&'a str>,
}

impl Event for StateChanged<'_> {
    fn record(self, metrics: &Metrics) {
        for state in State::ALL {
            let labels = StateLabels { flow: Arc::clone(self.flow), state };
            metrics.flow.state.get_or_create(&labels).set(i64::from(state == self.state));
        }
        match self.reason {
            Some(reason) => tracing::warn!(flow = %self.flow, "flow {}: {reason}", self.state.name()),
            None => tracing::info!(flow = %self.flow, "flow {}", self.state.name()),
        }
    }
}

/// A flow that is to end waits for what its sink has.
#[derive(Debug)]
pub struct WaitsForSink<'a> {
    /// The flow.
    pub flow: &'a Arc<str>,
    /// Deliveries that the sink has and has not reported.
    pub deliveries: usize,
    /// The longest that it waits.
    pub at_most: Duration,
}

impl Event for WaitsForSink<'_> {
    fn record(self, _: &Metrics) {
        tracing::info!(
            flow = %self.flow,
            deliveries = self.deliveries,
            "flow draining: waits for what its sink or its workers have not settled, until their leases end, at most {:?}",
            self.at_most
        );
    }
}

/// Whether a flow's broker serves it. Emitted when the flow begins and at each change.
#[derive(Debug)]
pub struct Joined<'a> {
    /// The flow.
    pub flow: &'a Arc<str>,
    /// What is the case now.
    pub state: JoinState<'a>,
}

/// Whether a flow's broker serves it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum JoinState<'a> {
    /// Not yet.
    Joining,
    /// It does, for the first time.
    Joined,
    /// It has not for a while, although it did before.
    Away {
        /// What is known about it.
        remark: Option<&'a str>,
    },
    /// It does again.
    Back,
    /// The flow has ended.
    Left,
}

impl Event for Joined<'_> {
    fn record(self, metrics: &Metrics) {
        let joined = matches!(self.state, JoinState::Joined | JoinState::Back);
        let label = FlowLabel { flow: Arc::clone(self.flow) };
        set(&metrics.flow.joined, &label, usize::from(joined));
        match self.state {
            JoinState::Joining | JoinState::Left => {}
            JoinState::Joined => tracing::info!(flow = %self.flow, "joined the broker"),
            JoinState::Away { remark } => {
                let remark = remark.unwrap_or("no reason is known");
                tracing::warn!(flow = %self.flow, "not served by the broker any more, so not ready: {remark}");
            }
            JoinState::Back => tracing::info!(flow = %self.flow, "served by the broker again"),
        }
    }
}

/// A settlement did not take effect.
#[derive(Debug)]
pub struct SettleFailed<'a> {
    /// The flow.
    pub flow: &'a Arc<str>,
    /// The broker's name of the message.
    pub message_id: &'a str,
    /// What was said.
    pub detail: &'a str,
    /// Whether the lease had simply run out.
    pub lease_gone: bool,
}

impl Event for SettleFailed<'_> {
    fn record(self, _metrics: &Metrics) {
        if self.lease_gone {
            tracing::debug!(flow = %self.flow, id = self.message_id, "{}", self.detail);
        } else {
            tracing::warn!(flow = %self.flow, id = self.message_id, "{}", self.detail);
        }
    }
}

/// The lease book was used wrongly, or is wrong itself.
#[derive(Debug)]
pub struct BookBug<'a> {
    /// The flow.
    pub flow: &'a Arc<str>,
    /// What happened.
    pub what: &'static str,
    /// The delivery concerned, if it is about one.
    pub id: Option<DeliveryId>,
}

impl Event for BookBug<'_> {
    fn record(self, _metrics: &Metrics) {
        let id = self.id.map(|id| id.0);
        tracing::error!(flow = %self.flow, delivery = id, "bug in the lease book, please report it: {}", self.what);
    }
}
