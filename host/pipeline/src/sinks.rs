//! The sinks that need no broker.

mod discard;
mod stdout;

pub use discard::{DISCARD, Discard};
pub use stdout::{STDOUT, Stdout};
