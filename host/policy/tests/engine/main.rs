//! The policy engine through its public API, with guests that misbehave.
#![allow(clippy::unwrap_used, reason = "a test: what fails here is what it found")]
#![allow(clippy::disallowed_methods, reason = "waits for what happens on a real disk in real time")]
#![allow(unreachable_pub, reason = "a test has no public items")]

mod failures;
mod ladder;
mod reload;
mod state;
mod support;
