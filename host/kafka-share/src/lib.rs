//! A client for Kafka share groups (KIP-932).
//!
//! A share group is a queue on a Kafka topic: its members acquire records for a while, any number of members per
//! partition, and settle each record on its own: accept, release, reject, or renew for longer.
//!
//! Logic is sans-io: it takes `now` and responses and gives requests, so that its rules are tested without a network.
//! A thin layer on tokio holds the sockets.
//!
//! [`connector`] makes it a source of the host, with its options, settler and events.
//!
//! It is no consumer-group client, no producer, and speaks the protocol of Kafka 4.2 and later only.
#![forbid(unsafe_code)]

mod acknowledge_error;
mod acks;
pub mod admin;
mod complaint;
mod connection;
pub mod connector;
mod consumer;
mod error_code;
mod ids;
mod member;
mod membership;
mod metadata;
pub mod properties;
pub mod records;
mod sasl;
mod session;
mod settings;
mod sorted;
mod subscription;
mod wire;

pub use acknowledge_error::AcknowledgeError;
pub use complaint::Complaint;
pub use connection::{
    AddressError, Answer, BootstrapError, BootstrapServers, BrokerAddress, CallError, CallProblem,
    ClientOptions, Connection, Connector, Deadlines, Fault, OpenError, OpenProblem, OptionNames, Phase,
    Request, Sasl, Security, TlsFault, VersionError, Versions,
};
pub use consumer::{
    Acknowledge, Closed, ConsumerSettings, Exchange, ExchangeKind, Observer, ShareConsumer, Status,
};
pub use error_code::ErrorCode;
pub use ids::{AcknowledgeType, BrokerId, TopicId, TopicPartition};
pub use member::{Acknowledged, Delivered, DeliveredBatch, Event, Lease, MemberSettings, Subject, Trouble};
pub use sasl::{Extension, FixedSecret, Mechanism, SaslError, TokenFile};
pub use settings::{AcquireMode, FetchSettings};
pub use sorted::Damage;
pub use subscription::{Subscription, TopicPattern};
pub use wire::AnswerError;
