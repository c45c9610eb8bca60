//! The worker against the hand-off service, with a broker in memory behind it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "in the helpers of a test, a failure is the test's failure"
)]

mod breaks;
mod calls;
mod guards;
mod leases;
mod road;
mod support;
