//! What RocketMQ does and the host relies on, as scenarios.
//!
//! One list of scenarios runs on the development broker and on real servers; where the two differ, the development
//! broker is wrong. A scenario knows a broker only as [`Broker`], a client only as the connector's public API and a host
//! only as the pipeline's. It waits for conditions with deadlines, never for a time in the hope that something has
//! happened by then.
//!
//! This crate is test code: it panics where a test would.
#![forbid(unsafe_code)]
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "a scenario that cannot go on has failed"
)]

mod broker;
mod scenario;
mod stage;
mod stands;
mod suite;

pub use broker::{Broker, DevBroker, GroupKind, Login, Member, RealBroker, Security, Stand, TopicKind};
pub use scenario::{ALL, Scenario};
pub use stage::Stage;
pub use stands::{OneOfEach, Stands, Taken};
pub use suite::run;
