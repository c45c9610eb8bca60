//! For workers: subscribes to a flow of a tidegate host, handles its messages, settles them.
//!
//! A [`Worker`] takes messages of one flow and calls a handler with each, as many at a time as it has credits. What the
//! handler says is told to the host:
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use tidegate_client::{Delivery, Verdict, Worker};
//!
//! async fn handle(delivery: Delivery) -> Verdict {
//!     match &delivery.body[..] {
//!         b"" => Verdict::reject("it is empty"),
//!         b"not yet" => Verdict::defer(Duration::from_secs(30)),
//!         _ => Verdict::accept().with_cost(1.5),
//!     }
//! }
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! Worker::builder("http://127.0.0.1:9641", "tenants")
//!     .name("worker-1")
//!     .credits(16)
//!     .build()?
//!     .run_until(handle, async { tokio::signal::ctrl_c().await.unwrap_or_default() })
//!     .await?;
//! # Ok(())
//! # }
//! ```
//!
//! What a worker does by itself:
//! * A handler that panics releases its message: another worker gets it.
//! * It comes back after a break, with waits that grow; to the next of its addresses when it has several, and when a
//!   host says that it is about to end.
//! * What was finished during a break is settled by its receipt, at any of the addresses, as long as its lease lasts.
//! * With [`keep_leases`](WorkerBuilder::keep_leases) a lease is renewed while its handler runs.
//! * Told to stop, it takes nothing more, lets its handlers finish, settles, and leaves.
//!
//! All that happens is told to an [observer](WorkerBuilder::observer), for logs and metrics. Messages come at least once:
//! a handler may see one again whose settlement did not get through.
//!
//! A [`Client`] settles and renews by receipt, for those who carry receipts elsewhere.
#![forbid(unsafe_code)]

mod access;
mod backoff;
mod book;
mod client;
mod delivery;
mod event;
mod link;
mod roster;
mod settlement;
mod wire;
mod worker;

pub use access::{AccessError, Tls};
pub use client::{CallError, Client, ClientBuilder, FlowDescription, HostDescription, WorkerDescription};
pub use delivery::{DeadLetter, Delivery};
pub use event::Event;
pub use settlement::{Renewal, RenewalResult, Settlement, SettlementResult, Status, Verdict};
pub use worker::{RunError, Worker, WorkerBuilder};
