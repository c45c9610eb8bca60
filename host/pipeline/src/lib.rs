//! Builds flows from the configuration, runs them and drains them.
//!
//! A flow is a source, a throttle policy and a sink around one lease book. What is decided is decided in
//! `tidegate-lease` and in the policy; this crate only carries: it feeds the book what happens, does what the book
//! asks, and owns every task it starts. [`Host`] is the whole of it, [`Flow`] one lane.
#![forbid(unsafe_code)]

mod flow;
mod host;
mod identity;
mod key;

pub use flow::{
    AWAY_GRACE, ControlError, DeadLetterTotals, Drain, Flow, FlowOptions, FlowParts, FlowState, FlowStatus,
    Pause, Recording, RecordingOptions, Tap, TapOptions, TooManyOnlookers, Totals,
};
pub use host::{
    DrainReport, Extras, Host, Mistake, Mistakes, Preparation, Resolvers, SourceOptions, StartError,
    engine_options, open_files_max, policy_spec, policy_specs,
};
pub use identity::{Identity, IdentityError, KeyError};
pub use key::KeyRule;
