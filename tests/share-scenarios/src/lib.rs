//! What a member of a Kafka share group relies on, as scenarios.
//!
//! One list of scenarios runs on the broker in memory and on real ones; where the two differ, the one in memory is wrong.
//! A scenario knows a cluster only as [`Stage`] and a member only as the client's public API. It waits for conditions with
//! deadlines, and asserts a time only where the client promises one.
//!
//! This crate is test code: it panics where a test would.
#![forbid(unsafe_code)]
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "a scenario that cannot go on has failed"
)]

mod play;
mod scenario;
mod stage;
mod stands;
mod suite;

pub use play::Play;
pub use scenario::{ALL, Scenario};
pub use stage::{Door, Stage, Stand};
pub use stands::{InMemory, Real, Side, Stands, Taken};
pub use suite::run;
