//! RocketMQ 5.5.0: a name server, brokers and proxies.

mod admin;
mod cluster;
mod configuration;
mod gateway;

pub use cluster::{Cluster, ClusterOptions, GroupKind, TopicType};
pub use configuration::{Credentials, Node, Sizes, Tls};
