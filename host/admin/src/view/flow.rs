//! Flows, as the API shows them.

use serde::Serialize;

/// A flow at one moment.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct FlowView {
    /// Its name in the configuration.
    pub name: String,
    /// Its source's name.
    pub source: String,
    /// Its throttle policy's name, if it has one.
    pub throttle: Option<String>,
    /// The name of the policy that is only compared with it, if there is one.
    pub shadow: Option<String>,
    /// Its sink's name, or its sinks' with commas.
    pub sink: String,
    /// How each of its sinks is doing.
    pub sinks: Vec<SinkView>,
    /// How its dead-letter sink is doing, if it has one.
    pub dead_letter: Option<SinkView>,
    /// Where it is in its life.
    pub state: FlowState,
    /// Who paused it, while it is paused.
    pub paused_by: Option<PausedBy>,
    /// What becomes of what it held, from when somebody drained it.
    pub drain: Option<DrainView>,
    /// Whether its broker serves it: not until the source has joined, and not when the broker has been away for a
    /// while.
    pub joined: bool,
    /// What there is to say about it, in sentences: why it failed, what keeps the source from receiving.
    pub remarks: Vec<String>,
    /// Deliveries held.
    pub in_flight: usize,
    /// Bytes held.
    pub in_flight_bytes: usize,
    /// Deliveries that wait for their decision.
    pub undecided: usize,
    /// Accepted deliveries that wait for the sink.
    pub queued: usize,
    /// Deliveries with the sink.
    pub emitted: usize,
    /// Deliveries whose outcome is known, until the broker has answered to it.
    pub settling: usize,
    /// Keys with something in flight or seen lately.
    pub active_keys: usize,
    /// Counted since the flow began.
    pub totals: FlowTotals,
}

/// A sink of a flow at one moment.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct SinkView {
    /// Its name in the configuration.
    pub name: String,
    /// Workers connected, of a sink that serves them.
    pub workers: Option<usize>,
    /// What keeps it from its work, while something does.
    pub trouble: Option<SinkTrouble>,
}

/// What keeps a sink from its work.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct SinkTrouble {
    /// Since when, in Unix time.
    pub since_unix_ms: u64,
    /// What went wrong last, in a sentence.
    pub reason: String,
}

/// What became of what a drained flow held and of what still came.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct DrainView {
    /// Deliveries held when it began.
    pub held: usize,
    /// Acknowledged.
    pub accepted: u64,
    /// Put off for a while.
    pub deferred: u64,
    /// Given back to the broker.
    pub released: u64,
    /// Rejected.
    pub rejected: u64,
    /// Not settled, or their lease ran out: they come again when their leases end.
    pub failed: u64,
}

/// Where a flow is in its life.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlowState {
    /// Receiving, deciding, emitting, settling.
    Running,
    /// Not receiving until it is resumed.
    Paused,
    /// Not receiving any more; finishing what workers hold, releasing the rest.
    Draining,
    /// Over, as asked.
    Stopped,
    /// Over, since something went wrong that it cannot mend.
    Failed,
}

/// Who paused a flow.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PausedBy {
    /// An operator.
    Operator,
    /// Itself: it rejected too many messages.
    DeadLetters,
}

/// Counts since a flow began. `received` is always the sum of the verdicts, of `undecided_endings` and of the flow's
/// `undecided`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct FlowTotals {
    /// Deliveries received.
    pub received: u64,
    /// Verdicts `deliver`.
    pub delivered: u64,
    /// Verdicts `defer`.
    pub deferred: u64,
    /// Verdicts `reject`.
    pub rejected: u64,
    /// Verdicts `discard`.
    pub discarded: u64,
    /// Deliveries that left without a decision.
    pub undecided_endings: UndecidedEndings,
    /// Decisions that `on-error` took, since the policy could not.
    pub on_error: u64,
    /// Deliveries handed to the sink.
    pub emitted: u64,
    /// Settlements `accept` that the broker took.
    pub accepted: u64,
    /// Settlements that did not take effect; those messages come again.
    pub settle_failures: u64,
    /// Deliveries whose lease ran out while the host held them; those messages come again.
    pub expired: u64,
    /// Deliveries that came a second time or later.
    pub redelivered: u64,
    /// Receives that failed.
    pub receive_errors: u64,
    /// What became of rejected messages, those that workers rejected included.
    pub dead_letters: DeadLetterTotals,
}

/// What became of rejected messages. Those of the first three kinds do not come again.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct DeadLetterTotals {
    /// The dead-letter sink has them.
    pub taken: u64,
    /// They were left to the broker's own dead letters.
    pub broker: u64,
    /// They were dropped: there are dead letters nowhere.
    pub dropped: u64,
    /// The dead-letter sink did not take them then.
    pub refused: u64,
    /// They were too many, so they were given back.
    pub held_back: u64,
}

/// Deliveries that left without a decision, by why. All but the merged come again.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct UndecidedEndings {
    /// An earlier message of their ordered key comes again, and they with it.
    pub dropped: u64,
    /// Their lease ran out.
    pub expired: u64,
    /// Their message was held already; they renewed its lease.
    pub merged: u64,
    /// Given back to the broker by a drain.
    pub released: u64,
}

impl FlowView {
    /// Why it is not ready, in a sentence. What an operator has paused or drained is as it should be.
    pub(super) fn unready(&self) -> Option<String> {
        let what = match self.state {
            FlowState::Running if self.joined => return None,
            FlowState::Paused if self.paused_by != Some(PausedBy::DeadLetters) => return None,
            FlowState::Draining | FlowState::Stopped if self.drain.is_some() => return None,
            FlowState::Paused => "the flow is paused",
            FlowState::Running => "the flow is not served by its broker",
            FlowState::Draining => "the flow is draining",
            FlowState::Stopped => "the flow has stopped",
            FlowState::Failed => "the flow has failed",
        };
        let remarks = self.remarks.join("; ");
        Some(if remarks.is_empty() { what.to_owned() } else { format!("{what}: {remarks}") })
    }
}
