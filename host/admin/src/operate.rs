//! What the API can change.

use std::time::Duration;

use axum::body::Bytes;
use futures::stream::BoxStream;
use serde::{Deserialize, Deserializer, Serialize};

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

    /// Begins a recording of a flow's decisions: the lines of the file, in pieces, as they come to be. Whoever drops it
    /// ends it.
    ///
    /// # Errors
    /// When there is no such flow, or others record it already.
    fn record(&self, flow: &str, wanted: RecordingWanted) -> Result<BoxStream<'static, Bytes>, OperateError>;
}

/// What is to be recorded.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct RecordingWanted {
    /// The longest that it takes: above zero and at most [`Self::LENGTH_MAX`].
    #[serde(rename = "length-ms", with = "recording_length")]
    pub length: Duration,
    /// The most decisions in it; as many as there are when not given.
    pub count: Option<u64>,
    /// The part of all keys that is in it, above 0 and at most 1.
    #[serde(deserialize_with = "part")]
    pub sample: f64,
    /// Names of properties whose values are masked; `*` at the end of one stands for any ending.
    pub mask: Vec<String>,
    /// Whether keys, lite topics and groups become hashes.
    pub mask_keys: bool,
    /// Bytes of a body that are recorded; 0 for none.
    pub body_bytes: usize,
}

impl RecordingWanted {
    /// Longer ones are asked for in pieces.
    pub const LENGTH_MAX: Duration = Duration::from_secs(60 * 60);

    /// Whether a recording may take so long, which is counted in milliseconds.
    #[must_use]
    pub fn takes(length: Duration) -> bool {
        (Duration::from_millis(1)..=Self::LENGTH_MAX).contains(&length)
    }

    /// Whether that is a part of all keys to record.
    #[must_use]
    pub fn samples(part: f64) -> bool {
        part > 0.0 && part <= 1.0
    }
}

impl Default for RecordingWanted {
    fn default() -> Self {
        Self {
            length: Duration::from_secs(60),
            count: None,
            sample: 1.0,
            mask: Vec::new(),
            mask_keys: false,
            body_bytes: 4 << 10,
        }
    }
}

mod recording_length {
    use std::time::Duration;

    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};

    use super::RecordingWanted;

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        let length = Duration::from_millis(u64::deserialize(from)?);
        if RecordingWanted::takes(length) {
            return Ok(length);
        }
        let max = RecordingWanted::LENGTH_MAX.as_millis();
        Err(D::Error::custom(format!("`length-ms` must be above 0 and at most {max}")))
    }

    pub(super) fn serialize<S: Serializer>(length: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(u64::try_from(length.as_millis()).unwrap_or(u64::MAX))
    }
}

fn part<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    let part = f64::deserialize(from)?;
    if RecordingWanted::samples(part) {
        Ok(part)
    } else {
        Err(serde::de::Error::custom("`sample` must be above 0 and at most 1"))
    }
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
