//! Workers in several languages, each a small program that a user would copy: `python`, `go`, `java`, `javascript`,
//! for Rust the example of `tidegate-client`, and `curl` for whatever has no gRPC. What they need is put below `target/workers` and kept between runs.
#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "only tests use this crate"
)]
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "what took how long is shown beside a failure, and with `--nocapture`"
)]

mod language;
mod worker;

pub use language::Language;
pub use worker::{Ready, Worker};
