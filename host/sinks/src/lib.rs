//! Where accepted deliveries go, apart from brokers and workers: [`Stdout`], [`File`], [`Http`], [`Discard`], and
//! several at once with [`FanOut`].
//!
//! Each sink has its option table beside it. A sink decides nothing about the messages: it takes what the flow emits and
//! reports how that ended. What it cannot deliver now it holds and tries again while the lease lives; its credits bound
//! what it holds, so that the flow stops receiving meanwhile.
#![forbid(unsafe_code)]

mod discard;
mod fan_out;
mod file;
mod http;
mod parts;
mod record;
mod stdout;
#[cfg(test)]
mod testing;
mod trouble;

pub use discard::{DISCARD, Discard};
pub use fan_out::FanOut;
pub use file::{FILE, File, FileError, FileOptions, OpenFile};
pub use http::{BodyFormat, HTTP, Http, HttpError, HttpMethod, HttpOptions};
pub use parts::SinkParts;
pub use stdout::{STDOUT, Stdout};
