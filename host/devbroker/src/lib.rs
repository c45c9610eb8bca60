//! An in-memory RocketMQ 5 broker with lite topics, for demonstrations, for playing and for tests.
//!
//! It serves the v2 gRPC protocol as the proxy of RocketMQ 5.5.0 does, codes, texts and traps included, as far as they
//! were measured on a running cluster; where the two differ, this one is wrong. It is not a broker to keep messages in:
//! nothing outlives the process, and what is kept is bounded ([`Retention`]).
//!
//! Start one with [`Broker::start`]; see and disturb it through [`Control`]: faults to order, a clock to move, an audit of
//! every message.
#![forbid(unsafe_code)]

mod auth;
mod broker;
mod clock;
mod control;
mod faults;
mod hub;
mod journal;
mod listener;
mod options;
mod service;
mod store;

pub use broker::{Broker, StartError};
pub use control::{ClientCommand, Control};
pub use faults::{Effect, Fault, Method};
pub use journal::{AckEntry, Call, Seen, SettledClient, Stats};
pub use listener::TlsError;
pub use options::{Group, Options, Profile, Retention, Timing, Tls, Topic, TopicKind, Topology, User};
pub use store::{Audit, DeliveryRecord, MessageRecord};

// The memory of one broker on its own, without clock and sockets, for simulations.
pub use store::{
    Acked, Ask, DEAD_LETTER_PREFIX, Delay, Delivered, Handle, HandleError, Interest, MULTI_DISPATCH, Moment,
    NewMessage, Placed, SendError, Store, StoreOptions, Stored, Subject, Wake,
};
