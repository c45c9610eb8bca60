//! Policies that place records.

use crate::Record;
use crate::{Description, RuleError, Rules};

/// A policy that chooses the partition of a record that a sink writes.
///
/// ```
/// use tidegate_guest::{Description, Partitioner, Record, RuleError, Rules};
///
/// /// The region that a header names has a partition of its own.
/// struct ByRegion {
///     header: String,
/// }
///
/// impl Partitioner for ByRegion {
///     fn describe() -> Description {
///         Description::of("by-region", env!("CARGO_PKG_VERSION"), "A partition for each region.")
///             .text("header", "The header that names the region.", Some("region"))
///     }
///
///     fn configure(rules: &mut Rules) -> Result<Self, RuleError> {
///         Ok(Self { header: rules.text("header")?.unwrap_or_else(|| "region".into()) })
///     }
///
///     fn partition(&mut self, record: &Record, partitions: u32) -> u32 {
///         let region = record.header(&self.header).unwrap_or_default();
///         let hash = region.bytes().fold(5_381_u32, |hash, byte| hash.wrapping_mul(33) ^ u32::from(byte));
///         hash % partitions
///     }
/// }
///
/// tidegate_guest::partitioner!(ByRegion);
/// # fn main() {}
/// ```
pub trait Partitioner: Sized + 'static {
    /// What the policy is and what its rules may set. The host refuses rules that do not fit it.
    fn describe() -> Description;

    /// Makes the policy from its rules. Every key is taken out of `rules`; those that are left are refused.
    ///
    /// # Errors
    /// When a rule makes no sense. The host then keeps what ran before.
    fn configure(rules: &mut Rules) -> Result<Self, RuleError>;

    /// A number below `partitions`, which is at least 1. The same record must get the same answer.
    fn partition(&mut self, record: &Record, partitions: u32) -> u32;
}
