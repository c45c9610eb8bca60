//! The `tidegate.v1` service: hands the messages of flows to workers and takes their settlements.
//!
//! [`Handoff`] is a server at one address, for any number of flows. Each flow gets its [`Handoff::sink`]; workers come
//! over gRPC streams or pull over HTTP, and settle by receipt: on this host, or on another of the fleet, which then goes
//! to the broker through a [`ReceiptSettler`](tidegate_connector::ReceiptSettler), or, where only the host that gave the
//! message out can settle it, to that one through a [`Forwarder`].
//!
//! What is decided is decided without I/O, in `dispatch`: who gets what, what it holds, how it is answered. Around it
//! stand the flow's task (`flow`), a mailbox for each stream (`mailbox`), the two protocols (`service`, `http`) and the
//! way of a settlement (`settle`).
//!
//! It knows no broker, and keeps nothing on disk: what workers hold is leased, and comes again.
#![forbid(unsafe_code)]

mod collect;
mod connection;
mod dispatch;
mod flow;
mod forward;
mod grpc;
mod http;
mod intake;
mod mailbox;
mod options;
mod rights;
mod server;
mod service;
mod settle;
mod tls;
mod wire;

pub use forward::{Description, Forwarded, Forwarder, PeerError, PeerOptions};
pub use http::OPENAPI;
pub use options::{ServiceOptions, TABLE, TlsFiles};
pub use rights::TokensError;
pub use server::{CONNECTIONS_MAX, FilesError, Handoff, Parts, StartError};
pub use tls::TlsError;
