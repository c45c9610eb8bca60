//! Policies that decide about leases.

use crate::Lease;
use crate::{Description, RuleError, Rules};

pub use crate::bindings::renewal::Answer;

/// A policy that decides whether the lease of a delivery that waits in the host is kept.
///
/// It is asked a while before the lease ends. A lease that is not renewed makes the broker hand the message out again,
/// to this host or to another.
///
/// ```
/// use tidegate_guest::{Answer, Description, Lease, Renewal, RuleError, Rules};
///
/// /// Keeps what is soon its turn, and lets another host have the rest.
/// struct Near {
///     places: u32,
/// }
///
/// impl Renewal for Near {
///     fn describe() -> Description {
///         Description::of("near", env!("CARGO_PKG_VERSION"), "Keeps what is soon its turn.")
///             .integer("places", "Places from the front of the queue.", Some(100))
///     }
///
///     fn configure(rules: &mut Rules) -> Result<Self, RuleError> {
///         let places = rules.integer("places", 0..=i64::from(u32::MAX))?.unwrap_or(100);
///         Ok(Self { places: places as u32 })
///     }
///
///     fn decide(&mut self, lease: &Lease) -> Answer {
///         if lease.emitted() || lease.queue_position() <= self.places {
///             Answer::Renew(lease.length())
///         } else {
///             Answer::Release
///         }
///     }
/// }
///
/// tidegate_guest::renewal!(Near);
/// # fn main() {}
/// ```
pub trait Renewal: Sized + 'static {
    /// What the policy is and what its rules may set. The host refuses rules that do not fit it.
    fn describe() -> Description;

    /// Makes the policy from its rules. Every key is taken out of `rules`; those that are left are refused.
    ///
    /// # Errors
    /// When a rule makes no sense. The host then keeps what ran before.
    fn configure(rules: &mut Rules) -> Result<Self, RuleError>;

    /// Whether to keep the lease, and for how long.
    fn decide(&mut self, lease: &Lease) -> Answer;
}
