//! How sinks are doing, for people who look in.

use std::fmt::Debug;
use std::sync::Arc;

use tidegate_model::Instant;

/// How one sink is doing.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SinkStatus {
    /// Its name in the configuration.
    pub name: Arc<str>,
    /// Workers connected now, of a sink that serves them.
    pub workers: Option<usize>,
    /// What keeps it from its work, while something does.
    pub trouble: Option<SinkTrouble>,
}

/// What keeps a sink from its work.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SinkTrouble {
    /// Since when.
    pub since: Instant,
    /// What went wrong last, a sentence without the full stop.
    pub detail: Box<str>,
}

/// Tells how a sink is doing that runs.
pub trait SinkMonitor: Debug + Send + Sync {
    /// Now. Asked from any thread, at any moment: it does no I/O and does not wait.
    fn status(&self) -> SinkStatus;
}

impl SinkStatus {
    /// Of a sink that has nothing to say about itself.
    #[must_use]
    pub const fn silent(name: Arc<str>) -> Self {
        Self { name, workers: None, trouble: None }
    }
}
