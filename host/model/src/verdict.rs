//! What a throttle policy answers, and the facts it may look at.

use std::time::Duration;

/// A throttle policy's answer for one delivery.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// Hand it to the sink.
    Deliver,
    /// Give it back to the broker for a while.
    Defer(Deferral),
    /// It can never be handled: dead-letter it, for this reason.
    Reject {
        /// In a few words; reaches logs and dead letters.
        reason: Box<str>,
    },
    /// Nobody wants it: settle it as accepted without handing it to the sink.
    Discard {
        /// In a few words; reaches logs.
        reason: Box<str>,
    },
}

/// How long to wait and why.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Deferral {
    /// From now until the broker may hand it out again.
    pub delay: Duration,
    /// In a few words; reaches logs and metrics exemplars.
    pub reason: Box<str>,
}

/// One key's place among all keys of its flow, at the time of the decision.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Standing {
    /// Deliveries of this key that the host holds (received and not yet settled), this one included.
    pub key_in_flight: u32,
    /// The same over all keys.
    pub flow_in_flight: u32,
    /// Deliveries that the host may hold for the flow.
    pub flow_budget: u32,
    /// Accepted deliveries of all keys that wait for the sink: nobody is slowed down by anybody while there are none.
    pub flow_queued: u32,
    /// Deliveries of all keys that the sink is working on.
    pub flow_emitted: u32,
    /// Keys with at least one delivery in flight, or seen within the last ten seconds.
    pub active_keys: u32,
    /// Deliveries a second of this key over the last ten seconds.
    pub key_rate: f64,
    /// The same over all keys.
    pub flow_rate: f64,
    /// Deliveries of all keys that the sink finished, a second, over the last ten seconds.
    pub flow_throughput: f64,
    /// This key's share of the work time (or reported cost) of the last minute, 0 to 1.
    pub key_share: f64,
}
