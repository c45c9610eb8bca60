//! Policies that decide about messages.

use crate::Message;
use crate::{Description, RuleError, Rules};

pub use crate::bindings::throttle::{Deferral, Verdict};

/// A policy that decides about each message before the sink sees it: now, later or never.
///
/// ```
/// use tidegate_guest::{Description, Message, RuleError, Rules, Throttle, Verdict};
///
/// /// Defers what a busy tenant sends, and refuses what is too large for the workers.
/// struct Guard {
///     limit: f64,
///     largest: u64,
/// }
///
/// impl Throttle for Guard {
///     fn describe() -> Description {
///         Description::of("guard", env!("CARGO_PKG_VERSION"), "Holds a busy key back.")
///             .number("limit", "Deliveries of one key a second.", Some(100.0))
///             .size("largest", "Larger messages are dead-lettered.", Some("1MiB"))
///     }
///
///     fn configure(rules: &mut Rules) -> Result<Self, RuleError> {
///         Ok(Self {
///             limit: rules.number("limit", 1.0..=1e6)?.unwrap_or(100.0),
///             largest: rules.size("largest")?.unwrap_or(1 << 20),
///         })
///     }
///
///     fn decide(&mut self, message: &Message) -> Verdict {
///         if u64::from(message.body_size()) > self.largest {
///             return Verdict::Reject("too large".into());
///         }
///         if message.standing().key_rate > self.limit {
///             return Verdict::defer(1_000, "busy");
///         }
///         Verdict::Deliver
///     }
/// }
///
/// tidegate_guest::throttle!(Guard);
/// # fn main() {}
/// ```
///
/// What a policy counts over calls belongs into the host's [`state`](crate::state); for holding a key to a rate there is
/// [`pace`](crate::pace).
pub trait Throttle: Sized + 'static {
    /// What the policy is and what its rules may set. The host refuses rules that do not fit it.
    fn describe() -> Description;

    /// Makes the policy from its rules. Every key is taken out of `rules`; those that are left are refused.
    ///
    /// # Errors
    /// When a rule makes no sense. The host then keeps what ran before.
    fn configure(rules: &mut Rules) -> Result<Self, RuleError>;

    /// Now, later or never.
    fn decide(&mut self, message: &Message) -> Verdict;
}

impl Verdict {
    /// Gives the message back to the broker for `delay` milliseconds.
    pub fn defer(delay: u64, reason: impl Into<String>) -> Self {
        Self::Defer(Deferral { delay, reason: reason.into() })
    }
}
