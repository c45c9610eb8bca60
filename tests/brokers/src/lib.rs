//! Starts and stops the real brokers that the tests use.
//!
//! A [`rocketmq::Cluster`] is a RocketMQ 5.5.0 name server, brokers and proxies, a [`kafka::Cluster`] one Kafka node or
//! three: from their Maven artifacts, on free ports of the loopback interface, with heaps small enough for a laptop.
//! Nothing outlives the process that started it, however that process ends: a watchdog kills what is left. Dropping a
//! cluster does the same in order, and keeps the logs when the test is failing.
//!
//! This crate knows nothing of the host: it administers RocketMQ with its own Java library and Kafka over its
//! protocol, so that a test can ask the broker itself what was acknowledged.
#![forbid(unsafe_code)]

pub mod artifacts;
mod error;
pub mod kafka;
mod ports;
mod process;
mod processes;
pub mod rocketmq;
mod run_directory;
mod watchdog;

pub use error::ClusterError;
pub use process::Usage;
pub use rocketmq::{Cluster, ClusterOptions, Credentials, GroupKind, Node, Sizes, Tls, TopicType};
