//! The HTTP API for people and machines that look in.
//!
//! A [`Server`] answers `GET` only and changes nothing. What it shows comes through the trait [`Inspect`], so that it
//! knows no other room of the host; its answers are the types of this crate, described in `openapi.json`, because the
//! API is a contract of its own. It has no authentication, and so listens on loopback addresses unless it is told
//! otherwise.
#![forbid(unsafe_code)]

mod routes;
mod server;
mod view;

pub use routes::OPENAPI;
pub use server::{Bound, Options, Server, StartError};
pub use view::{
    Breaker, CallFailure, FlowState, FlowTotals, FlowView, Generation, Inspect, PolicyState, PolicyView,
    Readiness, Refusal, UndecidedEndings, Unready, VersionView,
};
