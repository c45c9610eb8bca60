//! A client for Kafka share groups (KIP-932).
//!
//! A share group is a queue on a Kafka topic: its members acquire records for a while, any number of members per
//! partition, and settle each record on its own: accept, release, reject, or renew for longer.
//!
//! Logic is sans-io: it takes `now` and responses and gives requests, so that its rules are tested without a network.
//! A thin layer on tokio holds the sockets.
//!
//! It is no consumer-group client, no producer, and speaks the protocol of Kafka 4.2 and later only.
#![forbid(unsafe_code)]

mod error_code;
mod ids;
pub mod records;

pub use error_code::ErrorCode;
pub use ids::{AcknowledgeType, BrokerId, TopicId, TopicPartition};
