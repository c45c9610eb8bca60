//! Kafka brokers: one node, or three that replicate to each other, and a [`Driver`] for what a test does to them
//! beside the client under test.
//!
//! Every node is broker and controller, so that any single one of three can be killed and the other two go on.

mod certificates;
mod cluster;
mod configuration;
mod connection;
mod driver;
mod options;
mod record;
mod storage;

pub use certificates::{Certificates, Identity};
pub use cluster::Cluster;
pub use connection::{CallError, Connection};
pub use driver::{Acl, Driver, NewTopic, Operation, Partition, Resource, ShareOffset, Topic, Transaction};
pub use options::{
    ClusterOptions, Listener, Mechanism, NodeId, Pace, Sasl, Sizes, User, Version, unsecured_token,
};
pub use record::{Producer, Record, batch};
