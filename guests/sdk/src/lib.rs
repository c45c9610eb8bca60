//! Write tidegate policies in Rust: a struct, a trait and one macro.
//!
//! ```
//! use tidegate_guest::{Description, Message, RuleError, Rules, Throttle, Verdict};
//!
//! struct BusinessHours {
//!     limit: f64,
//! }
//!
//! impl Throttle for BusinessHours {
//!     fn describe() -> Description {
//!         Description::of("business-hours", env!("CARGO_PKG_VERSION"), "Holds a busy key back.")
//!             .number("limit", "Deliveries of one key a second.", Some(100.0))
//!     }
//!
//!     fn configure(rules: &mut Rules) -> Result<Self, RuleError> {
//!         Ok(Self { limit: rules.number("limit", 1.0..=1e6)?.unwrap_or(100.0) })
//!     }
//!
//!     fn decide(&mut self, message: &Message) -> Verdict {
//!         if message.standing().key_rate > self.limit {
//!             return Verdict::defer(1_000, "busy");
//!         }
//!         Verdict::Deliver
//!     }
//! }
//!
//! tidegate_guest::throttle!(BusinessHours);
//! ```
//!
//! Build it for `wasm32-unknown-unknown` as a `cdylib`, with `-zstack-size=65536`, and make a component of it with
//! `tidegate policy build`.
//!
//! A policy's own fields are a cache: the host makes fresh instances whenever it likes, several at once, and drops
//! one that panicked. What must be remembered goes into the host's [`state`]. A panic ends the call, the message
//! follows the policy's `on-error`, and the panic's text is in the host's log.

#[doc(hidden)]
pub mod bindings;
mod describe;
#[doc(hidden)]
pub mod hosted;
mod json;
pub mod pace;
mod rules;
mod units;

pub use bindings::exports::tidegate::policy::throttle::{Deferral, Verdict};
pub use bindings::tidegate::policy::delivery::{Message, Standing};
pub use bindings::tidegate::policy::{clock, log, state};
pub use describe::Description;
pub use rules::{RuleError, Rules};

/// A policy that decides about each message before the sink sees it.
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
