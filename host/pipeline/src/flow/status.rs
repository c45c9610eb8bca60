//! How a flow is doing, for people and machines that look in.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tidegate_connector::SinkStatus;
use tidegate_lease::Undecided;
use tidegate_telemetry::events::flow::{DeadLetterEnd, State};

/// Where a flow is in its life.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FlowState {
    /// Receiving, deciding, emitting, settling.
    Running,
    /// Not receiving until it is resumed; what workers hold is finished, the rest was given back to the broker.
    Paused,
    /// Not receiving any more; finishing what workers hold, releasing the rest.
    Draining,
    /// Over, as asked.
    Stopped,
    /// Over, since the sink gave up or the policy's `on-error` says stop.
    Failed,
}

impl FlowState {
    /// The word for logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.metric().name()
    }

    /// The same for metrics.
    pub(super) const fn metric(self) -> State {
        match self {
            Self::Running => State::Running,
            Self::Paused => State::Paused,
            Self::Draining => State::Draining,
            Self::Stopped => State::Stopped,
            Self::Failed => State::Failed,
        }
    }

    /// Whether it has ended.
    pub(super) const fn is_over(self) -> bool {
        matches!(self, Self::Stopped | Self::Failed)
    }

    /// Whether it goes on, receiving or not.
    pub(super) const fn is_live(self) -> bool {
        matches!(self, Self::Running | Self::Paused)
    }
}

/// Why a flow is paused. Displayed as a sentence.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Pause {
    /// An operator paused it.
    Operator,
    /// It rejected too many messages.
    DeadLetters {
        /// How many it may reject
        burst: u32,
        /// within this time.
        window: Duration,
    },
}

impl fmt::Display for Pause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operator => f.write_str(
                "an operator paused it: it receives nothing until it is resumed or the host starts again; the host stays ready",
            ),
            Self::DeadLetters { burst, window } => write!(
                f,
                "it paused itself: more than {burst} messages were rejected within {window:?} (`dead-letter-burst`); those \
                 beyond are still at the broker, and `tidegate flow resume` goes on"
            ),
        }
    }
}

/// A flow at one moment.
#[derive(Clone, Debug)]
pub struct FlowStatus {
    /// Its name in the configuration.
    pub name: Arc<str>,
    /// Its source's name.
    pub source: Arc<str>,
    /// Its throttle policy's name, if it has one.
    pub throttle: Option<Arc<str>>,
    /// The name of the policy that is only compared with it.
    pub shadow: Option<Arc<str>>,
    /// Its sink's name, or its sinks' with commas.
    pub sink: Arc<str>,
    /// How each of its sinks is doing.
    pub sinks: Vec<SinkStatus>,
    /// How its dead-letter sink is doing, if it has one.
    pub dead_letter: Option<SinkStatus>,
    /// Where it is in its life.
    pub state: FlowState,
    /// Why it is paused, while it is.
    pub pause: Option<Pause>,
    /// What becomes of what it held, from when it was drained as asked. None when it ends because it has failed.
    pub drain: Option<Drain>,
    /// Whether its broker serves it: not before the source has joined, and not when it has been away for
    /// [`AWAY_GRACE`](crate::AWAY_GRACE).
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
    /// Keys with something in flight or seen within the last ten seconds.
    pub active_keys: usize,
    /// Counted since the flow began.
    pub totals: Totals,
}

/// Counts since a flow began.
///
/// `received` is always `delivered + deferred + rejected + discarded`, and what left without a decision
/// (`undecided_endings`), and what waits for one ([`FlowStatus::undecided`]).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Totals {
    /// Deliveries received.
    pub received: u64,
    /// Verdicts `deliver`, the policy's or `on-error`'s.
    pub delivered: u64,
    /// Verdicts `defer`.
    pub deferred: u64,
    /// Verdicts `reject`.
    pub rejected: u64,
    /// Verdicts `discard`.
    pub discarded: u64,
    /// Deliveries that left without a decision.
    pub undecided_endings: Undecided,
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
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct DeadLetterTotals {
    /// The dead-letter sink has them.
    pub taken: u64,
    /// They were left to the broker's own dead letters.
    pub broker: u64,
    /// They were dropped: there are dead letters nowhere.
    pub dropped: u64,
    /// The dead-letter sink did not take them then; they come again.
    pub refused: u64,
    /// They were too many, so they were given back; they come again.
    pub held_back: u64,
}

/// What became of what a drained flow held and of what still came.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Drain {
    /// Deliveries held when it began.
    pub held: usize,
    /// Acknowledged.
    pub accepted: u64,
    /// Put off by whoever worked on them, or given back by a sink that could not take them.
    pub deferred: u64,
    /// Given back to the broker; they come again at once, to whoever receives.
    pub released: u64,
    /// Dead letters.
    pub rejected: u64,
    /// Settlements that did not take effect and leases that ran out: these come again when their leases end.
    pub failed: u64,
}

impl DeadLetterTotals {
    pub(super) const fn count(&mut self, end: DeadLetterEnd) {
        *match end {
            DeadLetterEnd::Taken => &mut self.taken,
            DeadLetterEnd::Broker => &mut self.broker,
            DeadLetterEnd::Dropped => &mut self.dropped,
            DeadLetterEnd::Refused => &mut self.refused,
            DeadLetterEnd::HeldBack => &mut self.held_back,
        } += 1;
    }
}

impl Drain {
    /// Counts a settlement that the broker answered.
    pub(super) fn count(&mut self, verb: &str, took_effect: bool) {
        *match verb {
            "renew" => return,
            _ if !took_effect => &mut self.failed,
            "accept" => &mut self.accepted,
            "defer" => &mut self.deferred,
            "reject" => &mut self.rejected,
            _ => &mut self.released,
        } += 1;
    }
}
