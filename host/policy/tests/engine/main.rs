//! The policy engine through its public API, with guests that misbehave.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test: what fails here is what it found")]
#![allow(clippy::disallowed_methods, reason = "waits for what happens on a real disk in real time")]
#![allow(unreachable_pub, reason = "a test has no public items")]

mod cache;
mod failures;
mod golden;
mod hostile;
mod ladder;
mod last_good;
mod poison;
mod probation;
mod reload;
mod rungs;
mod soak;
mod state;
mod support;
