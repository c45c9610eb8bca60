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
//!
//! `unsafe_code` is denied and not forbidden, for one function: loading what the host itself compiled earlier (`cache`)
//! cannot be said otherwise.
#![deny(unsafe_code)]

mod answer_kind;
mod bindings;
mod breaker;
mod cache;
mod caller;
mod cause;
mod check;
mod comparison;
mod deadline;
mod engine;
mod error;
mod files;
mod gate;
mod generation;
mod grants;
mod guest;
mod host;
mod inspection;
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
mod question;
mod random;
mod recording;
mod renewal;
mod resolver;
mod rules;
mod sandbox;
mod section;
mod spec;
mod state;
mod status;
mod throttle;
mod ticker;
mod watch;
mod workbench;
mod world;

pub use cause::{Cause, Failure};
pub use check::{CheckReport, Described, DescribedParameter, check};
pub use comparison::{Comparison, DIFFERENCES_KEPT, Difference, Kind};
pub use engine::{Allocator, Engine, EngineError, EngineOptions};
pub use error::{LoadError, ReloadError, RollbackError, Rung};
pub use grants::Grants;
pub use host::{PolicyHost, StartError};
pub use inspection::{InspectError, Inspection, inspect};
pub use ladder::{RungOutcome, RungReport};
pub use loader::ReloadReport;
pub use outcome::{Ending, Outcome};
pub use partitioner::{OutgoingRecord, Partitioner, PartitionerCaller};
pub use question::Question;
pub use recording::{
    End, EndCause, Header, MASKED, Masking, NoRandomness, Recorded, RecordingError, RecordingReader,
};
pub use renewal::{LeaseFacts, RenewalCaller, Renewing};
pub use resolver::{FailureKind, Resolve, ResolveFailure, Resolved, Resolver};
pub use rules::{RuleError, RuleErrors};
pub use sandbox::{Replay, Sandbox};
pub use section::{Built, EncodeError, Trailer, encode_component, seal_component};
pub use spec::{Limits, Mode, OnError, PolicySpec, Probation};
pub use state::Sizes;
pub use status::{Active, BreakerStatus, CallCounts, LastError, LastFailure, PolicyState, PolicyStatus};
pub use throttle::{Answer, Throttle, ThrottleCaller};
pub use workbench::{LogLine, Probe, RulesFrom, Trace, Workbench};
pub use world::World;
