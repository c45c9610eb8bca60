//! The RocketMQ 5 gRPC connector: client, source, settler, producer.
//!
//! [`connect`] starts a consumer of lite, normal, FIFO or delay topics and gives its [`Connection`]: a source and the
//! settler of its deliveries. [`AckPool`] settles by receipt what any host took. [`Producer`] sends, and [`GrpcSink`]
//! makes a sink of it. [`check`] looks at a cluster step by step, for people. [`TABLE`] has the
//! options that users write.
//!
//! What is decided is decided without I/O: `session` (one proxy's Settings, heartbeats, subscription), `route` (whom to
//! ask next), `collect` (answer streams), `plan` (which calls settle a batch), `choice` (which queue a message is tried
//! on), `health` (what to tell people), `fault` (what a failure means). Around them stands a thin shell of tasks, all
//! owned and joined: `link` and `wire` (connections), `peer` (calls), `sessions`, `consumer`, `source`, `settler`,
//! `pool`, `producer`, `sink`.
//!
//! It is not a general client: no push consumer, no transactions, no pull, no admin calls. No type of the wire
//! protocol crosses this crate's public API.
#![forbid(unsafe_code)]

mod body;
mod check;
mod choice;
mod collect;
mod connect;
mod consumer;
mod core;
mod credentials;
mod endpoints;
mod fault;
mod health;
mod incoming;
mod intern;
mod link;
mod message_id;
mod names;
mod options;
mod outgoing;
mod peer;
mod plan;
mod pool;
mod producer;
mod profile;
mod route;
mod session;
mod sessions;
mod settler;
mod signature;
mod sink;
mod source;
mod stamp;
mod tls;
mod wire;

pub use check::{check, check_client};
pub use connect::{ConnectError, Connection, connect};
pub use core::SetupError;
pub use credentials::{Anonymous, Credentials, CredentialsError, Fixed, Keys, Purpose, Resolving};
pub use endpoints::{Address, Endpoints, EndpointsError};
pub use fault::{CallError, Method, Reason};
pub use link::LinkError;
pub use names::NameError;
pub use options::{
    ClientOptions, IdentityFiles, OptionNames, SinkOptions, SourceOptions, Start, TABLE, Tls, TopicKind,
    Trust,
};
pub use outgoing::{InvalidMessage, Outgoing};
pub use pool::{AckClient, AckPool, AckPoolError, AckScope};
pub use producer::{Producer, SendError, Sent};
pub use sink::GrpcSink;
pub use tls::{TlsError, TlsFile, check_tls_files};
