//! Policies that are told how deliveries ended.

pub use crate::bindings::observer::{Ending, Outcome};

/// A throttle or renewal policy that wants to know how deliveries ended. Optional: `throttle!(Policy, observer)`.
///
/// ```
/// use tidegate_guest::{Description, Ending, Message, Observer, Outcome, RuleError, Rules, Throttle, Verdict, state};
///
/// /// Gives tenants whose messages fail a rest.
/// struct Rest {
///     failures: i64,
///     pause: u64,
/// }
///
/// impl Throttle for Rest {
///     fn describe() -> Description {
///         Description::of("rest", env!("CARGO_PKG_VERSION"), "Rests a key after failures.")
///             .integer("failures", "So many in a row begin a rest.", Some(5))
///             .duration("pause", "How long it rests.", Some("30s"))
///     }
///
///     fn configure(rules: &mut Rules) -> Result<Self, RuleError> {
///         Ok(Self {
///             failures: rules.integer("failures", 1..=1_000_000)?.unwrap_or(5),
///             pause: rules.duration("pause")?.unwrap_or(30_000),
///         })
///     }
///
///     fn decide(&mut self, message: &Message) -> Verdict {
///         if state::get("failures", &message.key()) >= self.failures {
///             return Verdict::defer(self.pause, "its last messages failed");
///         }
///         Verdict::Deliver
///     }
/// }
///
/// impl Observer for Rest {
///     fn observe(&mut self, outcomes: &[Outcome]) {
///         for Outcome { key, ending, .. } in outcomes {
///             // The counter forgets itself after the pause, and the key is tried again.
///             let failures = state::get("failures", key);
///             match ending {
///                 Ending::Rejected | Ending::Expired => state::add("failures", key, 1, self.pause),
///                 Ending::Accepted if failures > 0 => state::add("failures", key, -failures, self.pause),
///                 _ => failures,
///             };
///         }
///     }
/// }
///
/// tidegate_guest::throttle!(Rest, observer);
/// # fn main() {}
/// ```
pub trait Observer {
    /// Told in batches, in the order of their ending. A notice and not a record: a busy host may leave some out.
    fn observe(&mut self, outcomes: &[Outcome]);
}
