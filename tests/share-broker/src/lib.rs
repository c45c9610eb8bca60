//! A Kafka cluster in memory, as far as share groups (KIP-932) need one, for tests and fault injection.
//!
//! [`Cluster`] is sans-io: it takes `now`, frames or requests, and gives answers; its rules are those that were measured
//! on Kafka 4.3.1, and where the two differ, this one is wrong. [`Service`] puts it behind sockets, a listener for each
//! node.
//!
//! A test makes topics and records by calls, disturbs by [`Fault`]s and by moving leaders or stopping nodes, and sees what
//! was asked in the [`Journal`] and what became of records in [`ShareState`] and [`Tally`].
//!
//! ```
//! use std::time::Duration;
//! use tidegate_share_broker::{Api, Cluster, Effect, Fault, Options, Record, Request};
//!
//! let mut cluster = Cluster::new(Options { nodes: 3, ..Options::quick() });
//! cluster.create_topic("orders", 6);
//! cluster.append("orders", 0, [Record::new("one").with_header("tenant", "a")])?;
//! cluster.inject(Fault::new(Api::Metadata, Effect::NoLeader, 2));
//!
//! let connection = cluster.connect(1).expect("node 1 is up");
//! let request = Request::new(kafka_wire::MetadataRequest::default());
//! let answers = cluster.handle_request(Duration::ZERO, connection, request);
//! assert_eq!(answers.len(), 1);
//! assert!(cluster.journal().most_within(Duration::from_secs(1), &[Api::Metadata]) <= 10);
//! # Ok::<(), tidegate_share_broker::UnknownPartition>(())
//! ```
//!
//! It keeps nothing, replicates nothing, and knows neither producers' requests nor transactions.
#![forbid(unsafe_code)]

mod batch;
mod cluster;
pub mod error_code;
mod faults;
mod group;
mod journal;
mod log;
mod options;
mod random;
mod service;
mod session;
mod share;
mod topic;
mod wire;

pub use batch::{Batch, HEADER_BYTES, Record};
pub use cluster::{Answer, Cluster, ConnectionId, UnknownPartition};
pub use faults::{Effect, Fault};
pub use journal::{Entry, Journal};
pub use options::{Access, GroupOptions, Options, Reset};
pub use service::{Service, StartError};
pub use share::{RecordRun, RecordState, ShareState, Tally};
pub use wire::{Api, FrameError, Request, RequestBody, Response, ResponseBody};
