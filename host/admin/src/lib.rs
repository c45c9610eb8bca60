//! The HTTP API for people and machines that look in, and for operators.
//!
//! What a [`Server`] shows comes through the trait [`Inspect`], and what it changes goes through [`Operate`], so that it
//! knows no other room of the host; its answers are the types of this crate, described in `openapi.json`, because the
//! API is a contract of its own. `GET` changes nothing, and `POST` is refused when a page of another site asks for it.
//! It has no authentication, and so listens on loopback addresses unless it is told otherwise.
#![forbid(unsafe_code)]

mod operate;
mod routes;
mod server;
mod view;

pub use operate::{
    FlowChange, Operate, OperateError, PauseView, RecordingWanted, ReloadView, RollbackView, RungOutcome,
    RungView, TapWanted, Verdict,
};
pub use routes::OPENAPI;
pub use server::{Bound, Options, Server, StartError};
pub use view::{
    Breaker, CallFailure, ComparisonView, DeadLetterTotals, DifferenceView, DrainView, FlowState, FlowTotals,
    FlowView, Generation, Inspect, Kept, KeyCount, Origin, PairCount, PausedBy, PolicyMode, PolicyState,
    PolicyView, Readiness, Refusal, SinkTrouble, SinkView, UndecidedEndings, Unready, VersionView,
};
