//! What can happen, by area. Each area has its events and the metric families that they move.

pub mod flow;
pub mod handoff;
pub mod host;
pub mod kafka;
pub mod peer;
pub mod policy;
pub mod resolver;
pub mod rocketmq;
mod settle;
pub mod sink;
pub mod spool;
