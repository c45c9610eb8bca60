//! The lease book: one flow's deliveries in flight, sans-io.
//!
//! A [`LeaseBook`] takes what happened (`handle_*`) and answers what to do (`poll_*`): ask for more, decide, emit,
//! settle, renew. It keeps the promises of one flow: nothing is accepted before its sink said so, ordered keys are emitted
//! and settled in order, leases that ran out are never used, a flooding key delays the others by one round at most,
//! and everything is bounded.
//!
//! It does no I/O, reads no clock (`now` is passed in), uses no randomness but its seed, and knows no broker and no
//! policy. Two types matter: [`LeaseBook`] and [`Options`].
#![forbid(unsafe_code)]

mod attempts;
mod book;
mod entry;
mod event;
mod keys;
mod list;
mod options;
mod recent;
mod renewal;
mod rounds;
mod run;
mod spacing;
mod valves;
mod wheel;
mod window;

pub use book::{Counts, Decide, LeaseBook, Taken, Undecided};
pub use entry::Story;
pub use event::{BookEvent, RerunKind, RunEnd, Stage};
pub use options::{Exhausted, Options, Valves};
pub use renewal::{RenewalOptions, RenewalQuestion, Renewals, Wish};
pub use valves::Valve;
