//! The service as clients see it, case by case as measured on 5.5.0, over real connections.
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test program: every line of it runs as a test"
)]

mod client;
mod codes;
mod dispatch;
mod faults;
mod lite;
mod normal;
mod restarts;
mod security;
