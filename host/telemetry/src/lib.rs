//! Events that log and count together.
//!
//! Everything that happens is a struct in [`events`]; [`Telemetry::emit`] writes its log line and moves its metrics
//! in one step, so that the two never disagree and metric names live in this crate alone. Nobody else calls
//! `tracing` at `info` or above, or names a metric.
//!
//! Labels come from closed sets (verdicts, causes, faults) and from names in the configuration (flows, policies,
//! sources). Keys, topics and message ids are never labels.
#![forbid(unsafe_code)]

pub mod events;
mod logging;
mod metrics;

use std::sync::Arc;

pub use logging::{LogFormat, LogHandle, LoggingError, init_logging};
pub use metrics::Metrics;

/// The handle through which events are emitted. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Telemetry(Arc<Metrics>);

/// Something that happened.
pub trait Event {
    /// Moves the metrics and writes the log line.
    fn record(self, metrics: &Metrics);
}

impl Telemetry {
    /// Logs and counts an event.
    pub fn emit(&self, event: impl Event) {
        event.record(&self.0);
    }

    /// All metrics as OpenMetrics text.
    #[must_use]
    pub fn encode(&self) -> String {
        self.0.encode()
    }
}
