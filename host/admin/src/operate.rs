//! What the API can change.

use serde::Serialize;

use crate::view::Inspect;

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
