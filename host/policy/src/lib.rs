//! The policy engine: WebAssembly components that decide, what they may use, and how they are replaced while they run.
//!
//! A [`PolicyHost`] loads the policies of the configuration and follows their files. A flow takes a [`Throttle`] by
//! name, makes a [`ThrottleCaller`] of it and asks it a [`Question`] about each message; the [`Answer`] is the
//! policy's verdict, or what the policy's `on-error` says when it could not decide.
//!
//! What a policy cannot do: run past its deadline, use more memory than it may, see another policy's state, reach a
//! file, a network or a clock. A file that is not a whole and working component never comes into force, and says why.
//!
//! This crate knows no broker, does not interpret verdicts, and lets no trap out. It blocks the calling thread for
//! the length of a decision and is not async.
#![forbid(unsafe_code)]

mod answer_kind;
mod bindings;
mod breaker;
mod caller;
mod cause;
mod check;
mod deadline;
mod engine;
mod error;
mod files;
mod gate;
mod generation;
mod guest;
mod host;
mod instance;
mod ladder;
mod last_good;
mod limiter;
mod loader;
mod log_tail;
mod lru;
mod outcome;
mod partitioner;
mod poison;
mod policy;
mod prepared;
mod random;
mod renewal;
mod rules;
mod section;
mod spec;
mod state;
mod status;
mod throttle;
mod ticker;
mod watch;
mod world;

pub use cause::{Cause, Failure};
pub use check::{CheckReport, Described, DescribedParameter, check};
pub use engine::{Allocator, Engine, EngineError, EngineOptions};
pub use error::{LoadError, ReloadError, RollbackError, Rung};
pub use host::{PolicyHost, StartError};
pub use ladder::{RungOutcome, RungReport};
pub use loader::ReloadReport;
pub use outcome::{Ending, Outcome};
pub use partitioner::{OutgoingRecord, Partitioner, PartitionerCaller};
pub use renewal::{LeaseFacts, RenewalCaller, Renewing};
pub use rules::{RuleError, RuleErrors};
pub use section::{Built, EncodeError, Trailer, encode_component};
pub use spec::{Limits, Mode, OnError, PolicySpec, Probation};
pub use state::Sizes;
pub use status::{Active, BreakerStatus, CallCounts, LastError, LastFailure, PolicyState, PolicyStatus};
pub use throttle::{Answer, Question, Throttle, ThrottleCaller};
pub use world::World;
