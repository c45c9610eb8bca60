//! What the API can change.

mod wanted;

use axum::body::Bytes;
use futures::stream::BoxStream;
use serde::Serialize;

use crate::view::{DrainView, FlowState, Inspect};

pub use wanted::{RecordingWanted, TapWanted, Verdict};

/// What operators can do to a running host. Called for each request on a thread that may block.
pub trait Operate: Inspect {
    /// Reads a policy's files now; with `dry_run` only says what would come of it. Blocks as long as compiling takes.
    ///
    /// # Errors
    /// When nobody could look at the files. That they were refused is no error.
    fn reload(&self, policy: &str, dry_run: bool) -> Result<ReloadView, OperateError>;

    /// Goes back to a policy's generation before.
    ///
    /// # Errors
    /// When there is no such policy, or nothing to go back to.
    fn roll_back(&self, policy: &str) -> Result<RollbackView, OperateError>;

    /// Stops asking a policy, or resumes.
    ///
    /// # Errors
    /// When there is no such policy.
    fn set_paused(&self, policy: &str, paused: bool) -> Result<PauseView, OperateError>;

    /// Begins a recording of a flow's decisions: the lines of the file, in pieces, as they come to be. Whoever drops it
    /// ends it.
    ///
    /// # Errors
    /// When there is no such flow, or others record it already.
    fn record(&self, flow: &str, wanted: RecordingWanted) -> Result<BoxStream<'static, Bytes>, OperateError>;

    /// Lets somebody look on at a flow: JSON lines, in pieces, as they come to be. Whoever drops it ends it.
    ///
    /// # Errors
    /// When there is no such flow, or too many look on already.
    fn tap(&self, flow: &str, wanted: TapWanted) -> Result<BoxStream<'static, Bytes>, OperateError>;

    /// Stops a flow's receiving, or lets it go on.
    ///
    /// # Errors
    /// When there is no such flow, or it is about to end or over.
    fn set_flow_paused(&self, flow: &str, paused: bool) -> Result<FlowChange, OperateError>;

    /// Ends a flow for good. Blocks until it is over, or for as long as an answer may take.
    ///
    /// # Errors
    /// When there is no such flow.
    fn drain_flow(&self, flow: &str) -> Result<FlowChange, OperateError>;
}

/// Why something could not be done. The sentences are for people.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum OperateError {
    /// There is no such policy or flow.
    #[error("{0}")]
    Unknown(String),
    /// The host is in no state for it.
    #[error("{0}")]
    Conflict(String),
    /// The host has too much else to do.
    #[error("{0}")]
    Busy(String),
}

/// What came of a reload.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ReloadView {
    /// The policy.
    pub policy: String,
    /// Whether nothing was to change.
    pub dry_run: bool,
    /// Whether the files passed every check.
    pub passed: bool,
    /// The number of the generation in force now, if there is one.
    pub generation: Option<u64>,
    /// Whether it is another one than before; of a dry run, whether it would be.
    pub changed: bool,
    /// Why the files were refused, in a sentence.
    pub error: Option<String>,
    /// Every check, in order.
    pub rungs: Vec<RungView>,
}

/// One check of a reload.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct RungView {
    /// Its name.
    pub rung: String,
    /// What came of it.
    pub outcome: RungOutcome,
    /// What there is to say about it, in a sentence.
    pub text: Option<String>,
    /// How long it took, in microseconds.
    pub took_us: u64,
}

/// What came of a check.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RungOutcome {
    /// All is well.
    Passed,
    /// It refused the files.
    Failed,
    /// It was not made: another check failed, or what it looks at is in force already.
    Skipped,
}

/// What came of a rollback.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct RollbackView {
    /// The policy.
    pub policy: String,
    /// The number of the generation in force now.
    pub generation: u64,
}

/// What came of pausing or resuming.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct PauseView {
    /// The policy.
    pub policy: String,
    /// Whether it is paused now.
    pub paused: bool,
    /// Whether that is another state than before.
    pub changed: bool,
}

/// What came of pausing, resuming or draining a flow.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct FlowChange {
    /// The flow.
    pub flow: String,
    /// Where it is in its life now.
    pub state: FlowState,
    /// Whether that was asked for the first time.
    pub changed: bool,
    /// Deliveries that it still holds; of one that is over, those that it could not finish.
    pub in_flight: usize,
    /// What became of what it held, once somebody has drained it.
    pub drain: Option<DrainView>,
}
