//! The lines of a tap, as JSON. A contract: scripts read them.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidegate_policy::{Answer, EndCause, Ending as Word, Masking, Outcome, Question, Recorded};
use tidegate_telemetry::events::flow::Origin;

/// A decision.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Decision {
    at_unix_ms: u64,
    verdict: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Whose decision it is: `policy`, `on-error` or `none`.
    origin: &'static str,
    /// Why `on-error` decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    on_error: Option<String>,
    key: String,
    attempt: u32,
    waited_ms: u64,
    #[serde(flatten)]
    message: Message,
}

/// How a delivery ended that was shown.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Ending<'a> {
    ended: &'static str,
    message_id: &'a str,
    attempt: u32,
    /// For how long the sink had it.
    spent_ms: u64,
}

/// The last line.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct End {
    /// Why it ended.
    pub(super) end: EndCause,
    /// Decisions shown.
    pub(super) shown: u64,
    /// Decisions that should have been and were not: they came too fast.
    pub(super) missed: u64,
    /// Endings shown.
    pub(super) endings: u64,
}

/// A message as recordings have it, masked and cut as they are.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Message {
    #[serde(rename(deserialize = "id", serialize = "message-id"))]
    message_id: String,
    topic: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lite_topic: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tag: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    keys: Vec<String>,
    #[serde(default)]
    properties: Vec<(String, Value)>,
    body: Value,
    body_bytes: u64,
}

/// The parts of a recorded decision that are shown.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Shown {
    message: Message,
    key: String,
    attempt: u32,
    waited_ms: u64,
    wall_ms: u64,
    answer: ShownAnswer,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct ShownAnswer {
    verdict: String,
    #[serde(default)]
    delay_ms: Option<u64>,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    on_error: Option<String>,
}

impl Decision {
    /// Written down by way of a recording, so that what is masked there is masked here. `None` never happens: the two
    /// know the same fields.
    pub(super) fn of(
        question: &Question<'_>,
        answer: &Answer,
        origin: Origin,
        masking: &Masking,
    ) -> Option<Self> {
        let recorded = serde_json::to_value(Recorded::of(question, answer, masking)).ok()?;
        let Shown { message, key, attempt, waited_ms, wall_ms, answer } =
            serde_json::from_value(recorded).ok()?;
        let ShownAnswer { verdict, delay_ms, reason, on_error } = answer;
        Some(Self {
            at_unix_ms: wall_ms,
            verdict,
            delay_ms,
            reason,
            origin: match origin {
                Origin::Policy => "policy",
                Origin::OnError => "on-error",
                Origin::None => "none",
            },
            on_error,
            key,
            attempt,
            waited_ms,
            message,
        })
    }
}

impl<'a> Ending<'a> {
    pub(super) fn of(outcome: &'a Outcome) -> Self {
        Self {
            ended: match outcome.ending {
                Word::Accepted => "accepted",
                Word::Deferred => "deferred",
                Word::Rejected => "rejected",
                Word::Released => "released",
                Word::Expired => "expired",
            },
            message_id: outcome.id.as_str(),
            attempt: outcome.attempt,
            spent_ms: u64::try_from(outcome.spent.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

/// Adds a line.
pub(super) fn write(line: &impl Serialize, lines: &mut Vec<u8>) {
    // Writing to memory has no way to fail, and the lines have nothing that JSON cannot say.
    if serde_json::to_writer(&mut *lines, line).is_ok() {
        lines.push(b'\n');
    }
}
