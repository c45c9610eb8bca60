//! How a flow is doing, for people and machines that look in.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tidegate_lease::Undecided;
use tidegate_telemetry::events::flow::State;

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
    /// Its sink's name.
    pub sink: Arc<str>,
    /// Where it is in its life.
    pub state: FlowState,
    /// Why it is paused, while it is.
    pub pause: Option<Pause>,
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
}
