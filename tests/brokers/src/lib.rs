//! Starts and stops the real brokers that the tests use.
//!
//! A [`Cluster`] is a RocketMQ 5.5.0 name server, brokers and proxies from their Maven artifacts, on free ports of
//! the loopback interface, with heaps small enough for a laptop. Nothing outlives the process that started it, however that process
//! ends: a watchdog kills what is left. Dropping a cluster does the same in order, and keeps the logs
//! when the test is failing.
//!
//! This crate knows nothing of the host: it administers the brokers with their own Java library, so that a test can
//! ask the broker itself what was acknowledged.
#![forbid(unsafe_code)]

mod admin;
pub mod artifacts;
mod cluster;
mod configuration;
mod error;
mod gateway;
mod ports;
mod process;
mod run_directory;
mod watchdog;

pub use cluster::{Cluster, ClusterOptions, GroupKind, TopicType};
pub use configuration::{Credentials, Node, Sizes, Tls};
pub use error::ClusterError;
pub use process::Usage;
