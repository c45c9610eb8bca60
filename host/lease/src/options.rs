//! What a lease book is told: its bounds and its safety valves.

use std::time::Duration;

/// A book's bounds.
#[derive(Clone, Debug)]
pub struct Options {
    /// Deliveries held at one time, those asked for and not yet here included.
    pub budget_messages: usize,
    /// Bytes held at one time, by [`Message::size_bytes`](tidegate_model::Message::size_bytes). A source that cannot
    /// bound a receive by bytes may go over by one batch per receive worker.
    pub budget_bytes: usize,
    /// Deliveries that one receive may ask for.
    pub receive_batch_max: usize,
    /// The limits that no policy can override.
    pub valves: Valves,
    /// Keys whose facts are kept. Idle ones go first, the longest idle before the others; a key with something in
    /// flight never goes, so at most `budget_messages` more are kept.
    pub keys_max: usize,
    /// Message ids whose attempts are remembered between two deliveries. The oldest go first; a forgotten one starts
    /// again at the broker's own count.
    pub tracked_messages_max: usize,
    /// Whether whoever works on an emission may give it back to the broker past this host, with a receipt. Then one that comes
    /// again while its lease goes on is emitted again at once.
    pub may_be_given_back: bool,
    /// Whether what is deferred stays with the source, which hands the same delivery out again. Then a policy's deferral is no
    /// attempt: nobody handed the message out, and nobody worked on it.
    pub keeps_deferred: bool,
    /// Seed of the only randomness there is: when the deferred deliveries of a key come back.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            budget_messages: 1024,
            budget_bytes: 256 * 1024 * 1024,
            receive_batch_max: 32,
            valves: Valves::default(),
            keys_max: 65_536,
            tracked_messages_max: 65_536,
            may_be_given_back: false,
            keeps_deferred: false,
            seed: 0,
        }
    }
}

/// The host's limits on deferrals: no policy can override them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Valves {
    /// From this attempt on a policy's `defer` is not followed any more.
    pub max_delivery_attempt: u32,
    /// The longest that one deferral may last; longer ones are cut.
    pub max_invisible_duration: Duration,
    /// The longest that the deferrals of one message may last in sum; the last one is cut, further ones are not
    /// followed any more. The time by which renewals keep one message from running out is bounded by the same, in a sum
    /// of its own: past it the message's lease is not renewed any more, whatever a policy says.
    pub max_total_deferral: Duration,
    /// What a deferral that is not followed becomes.
    pub exhausted: Exhausted,
}

impl Default for Valves {
    fn default() -> Self {
        Self {
            max_delivery_attempt: 16,
            max_invisible_duration: Duration::from_secs(30 * 60),
            max_total_deferral: Duration::from_secs(24 * 60 * 60),
            exhausted: Exhausted::Accept,
        }
    }
}

/// What a `defer` becomes at the attempt valve and at the total-deferral valve.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Exhausted {
    /// A policy's `defer` becomes `deliver`: the sink gets the message, and what the sink says settles it. A worker's
    /// own deferral stays a deferral, since only the worker can say that the work is done.
    #[default]
    Accept,
    /// A policy's or a worker's `defer` becomes `reject`: the message is dead-lettered.
    Reject,
}
