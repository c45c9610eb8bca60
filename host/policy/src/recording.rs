//! Decisions on disk: what a policy was asked and what it answered, one JSON object a line, to be replayed later.
//!
//! The first line is a [`Header`], the last an [`End`], every other one a [`Recorded`]. Times and the beginning of the random numbers are
//! kept exactly, so that the same policy answers the same again. Bodies are cut at a length, what is masked is not in
//! the file at all.

mod end;
mod masking;

use std::io::{self, BufRead, Write};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tidegate_model::{BodyState, Instant, Message, MessageId, Standing, Timestamp, Verdict};

use crate::comparison::Kind;
use crate::question::Question;
use crate::status::Active;
use crate::throttle::Answer;

pub use end::{End, EndCause};
pub use masking::{MASKED, Masking, NoRandomness};

/// The version of the format.
const VERSION: u32 = 1;

/// The longest line that is read, in bytes: a body of 4 MiB and all around it.
const LINE_BYTES_MAX: u64 = 16 << 20;

/// The first line of a recording.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Header {
    /// The version of the format.
    pub tidegate_recording: u32,
    /// The flow.
    pub flow: String,
    /// Its throttle policy's name.
    pub policy: Option<String>,
    /// The generation of it that decided when the recording began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// Digest of that generation's component.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub component_sha256: Option<String>,
    /// Digest of that generation's rules file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules_sha256: Option<String>,
    /// When it began, in milliseconds since the Unix epoch.
    pub started_unix_ms: u64,
    /// The part of all keys that is in it, 0 to 1. A key is in it with all its messages or not at all.
    pub sample: f64,
    /// What is masked, for people.
    pub masked: Vec<String>,
}

/// One decision.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Recorded {
    source: String,
    message: RecordedMessage,
    key: Arc<str>,
    attempt: u32,
    age_ms: u64,
    waited_ms: u64,
    deferred_ms: u64,
    #[serde(with = "RecordedStanding")]
    standing: Standing,
    wall_ms: u64,
    now_ns: u64,
    seed: u64,
    answer: RecordedAnswer,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct RecordedMessage {
    topic: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lite_topic: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tag: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    keys: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    properties: Vec<(String, Text)>,
    body: Text,
    /// Its length before it was cut or masked.
    body_bytes: usize,
}

/// Bytes: as text where they are text that people read.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Text {
    Text(String),
    Base64(String),
}

/// How a [`Standing`] is written.
#[derive(Deserialize, Serialize)]
#[serde(remote = "Standing", rename_all = "kebab-case", deny_unknown_fields)]
struct RecordedStanding {
    key_in_flight: u32,
    flow_in_flight: u32,
    flow_budget: u32,
    flow_queued: u32,
    flow_emitted: u32,
    active_keys: u32,
    key_rate: f64,
    flow_rate: f64,
    flow_throughput: f64,
    key_share: f64,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct RecordedAnswer {
    /// What became of the message.
    verdict: RecordedKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    delay_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Why the policy could not answer, when `on-error` did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    on_error: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum RecordedKind {
    Deliver,
    Defer,
    Reject,
    Discard,
    Stop,
}

/// Why a recording cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The file.
    #[error("cannot read the recording")]
    Read(#[source] io::Error),
    /// It does not begin as one.
    #[error("this is no recording: its first line is not the header of one: {0}")]
    Header(String),
    /// It is of a version that this program does not know.
    #[error("this recording has version {0}, and this program reads version {VERSION}")]
    Version(u32),
    /// A line is not a decision.
    #[error("line {line} is no decision: {message}")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// What is wrong with it.
        message: String,
    },
}

impl Header {
    /// Of a recording that begins now.
    #[must_use]
    pub fn new(flow: &str, policy: Option<&str>, started: Timestamp, sample: f64, masking: &Masking) -> Self {
        Self {
            tidegate_recording: VERSION,
            flow: flow.to_owned(),
            policy: policy.map(str::to_owned),
            generation: None,
            component_sha256: None,
            rules_sha256: None,
            started_unix_ms: started.as_unix_millis(),
            sample,
            masked: masking.described(),
        }
    }

    /// Says which generation decides at the beginning.
    #[must_use]
    pub fn with_generation(mut self, active: &Active) -> Self {
        self.generation = Some(active.generation);
        self.component_sha256 = Some(active.component_sha256.to_string());
        self.rules_sha256 = active.rules_sha256.as_deref().map(str::to_owned);
        self
    }

    /// What is masked but bodies, of which [`Recorded::is_cut`] tells.
    pub fn masked_values(&self) -> impl Iterator<Item = &str> {
        self.masked.iter().map(String::as_str).filter(|what| !masking::is_about_bodies(what))
    }

    /// Writes it as a line.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        write_line(self, to)
    }
}

impl Recorded {
    /// What a policy was asked and what it answered, without what is masked.
    #[must_use]
    pub fn of(question: &Question<'_>, answer: &Answer, masking: &Masking) -> Self {
        let message = &**question.message;
        let key = masking.key(question.key, message);
        let is_key = |text: &str| *text == **question.key;
        let name = |text: &str| if is_key(text) { key.to_string() } else { masking.name(text) };
        let shown = masking.body_shown(&message.body);
        let property = |name: &str, value: &[u8]| {
            if key != *question.key && *value == *question.key.as_bytes() {
                return Text::Text(key.to_string());
            }
            Text::of(&masking.property(name, value))
        };
        Self {
            source: question.source.to_owned(),
            message: RecordedMessage {
                topic: message.topic.to_string(),
                lite_topic: message.lite_topic.as_deref().map(name),
                group: message.group.as_deref().map(name),
                id: message.id.as_str().to_owned(),
                tag: message.tag.as_deref().map(str::to_owned),
                keys: message.keys.iter().map(|text| name(text)).collect(),
                properties: message
                    .properties
                    .iter()
                    .map(|(name, value)| (name.to_string(), property(name, value)))
                    .collect(),
                body: Text::of(shown),
                body_bytes: message.body.len(),
            },
            key: Arc::clone(&key),
            attempt: question.attempt,
            age_ms: millis(question.age),
            waited_ms: millis(question.waited),
            deferred_ms: millis(question.deferred),
            standing: question.standing,
            wall_ms: question.wall.as_unix_millis(),
            now_ns: question.now.as_nanos(),
            seed: question.seed,
            answer: RecordedAnswer::of(answer).with_key(question.key, &key),
        }
    }

    /// What fairness is counted by.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The broker's name of the message.
    #[must_use]
    pub fn message_id(&self) -> &str {
        &self.message.id
    }

    /// What became of the message.
    #[must_use]
    pub const fn followed(&self) -> Kind {
        match self.answer.verdict {
            RecordedKind::Deliver => Kind::Deliver,
            RecordedKind::Defer => Kind::Defer,
            RecordedKind::Reject => Kind::Reject,
            RecordedKind::Discard => Kind::Discard,
            RecordedKind::Stop => Kind::NoAnswer,
        }
    }

    /// By how long it was deferred, if it was.
    #[must_use]
    pub fn delay(&self) -> Option<Duration> {
        self.answer.delay_ms.map(Duration::from_millis)
    }

    /// Why it was not delivered, if the policy said so.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        self.answer.reason.as_deref()
    }

    /// Why the policy could not answer, when `on-error` did; as a [`Cause`](crate::Cause) is written.
    #[must_use]
    pub fn on_error(&self) -> Option<&str> {
        self.answer.on_error.as_deref()
    }

    /// Whether not all of the body is in the recording.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.message.body.len() < self.message.body_bytes
    }

    /// Asks again what was asked. A body that was cut or masked is filled up with zeros to its length.
    pub fn with_question<T>(&self, ask: impl FnOnce(&Question<'_>) -> T) -> T {
        let message = Arc::new(self.message.to_message());
        ask(&Question {
            source: &self.source,
            message: &message,
            key: &self.key,
            attempt: self.attempt,
            age: Duration::from_millis(self.age_ms),
            waited: Duration::from_millis(self.waited_ms),
            deferred: Duration::from_millis(self.deferred_ms),
            standing: self.standing,
            wall: Timestamp::from_unix_millis(self.wall_ms),
            now: Instant::from_nanos(self.now_ns),
            seed: self.seed,
        })
    }

    /// Writes it as a line.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        write_line(self, to)
    }
}

impl RecordedMessage {
    fn to_message(&self) -> Message {
        let mut body = self.body.bytes();
        // Nobody makes the host reserve more than a message can have.
        body.resize(self.body_bytes.clamp(body.len(), LINE_BYTES_MAX as usize), 0);
        Message {
            topic: self.topic.as_str().into(),
            lite_topic: self.lite_topic.as_deref().map(Into::into),
            group: self.group.as_deref().map(Into::into),
            id: MessageId::from(self.id.as_str()),
            tag: self.tag.as_deref().map(Into::into),
            keys: self.keys.iter().map(|key| key.as_str().into()).collect(),
            properties: self
                .properties
                .iter()
                .map(|(name, value)| (name.as_str().into(), Bytes::from(value.bytes())))
                .collect(),
            body: body.into(),
            body_state: BodyState::Intact,
            born_at: None,
            stored_at: None,
        }
    }
}

impl Text {
    fn of(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            // A text of control characters would be six times as long in JSON.
            Ok(text) if bytes.iter().filter(|byte| byte.is_ascii_control()).count() * 16 <= bytes.len() => {
                Self::Text(text.to_owned())
            }
            _ => Self::Base64(STANDARD.encode(bytes)),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Base64(_) => self.bytes().len(),
        }
    }

    /// Base64 that is none stands for nothing: the file was written by hand.
    fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Text(text) => text.clone().into_bytes(),
            Self::Base64(text) => STANDARD.decode(text).unwrap_or_default(),
        }
    }
}

impl RecordedAnswer {
    fn of(answer: &Answer) -> Self {
        let verdict = match answer {
            Answer::Verdict(verdict) | Answer::OnError { verdict, .. } => verdict,
            Answer::Stop { cause } => {
                let on_error = Some(cause.label().to_owned());
                return Self { verdict: RecordedKind::Stop, delay_ms: None, reason: None, on_error };
            }
        };
        let on_error = match answer {
            Answer::OnError { cause, .. } => Some(cause.label().to_owned()),
            _ => None,
        };
        let (verdict, delay, reason) = match verdict {
            Verdict::Deliver => (RecordedKind::Deliver, None, None),
            Verdict::Defer(deferral) => (RecordedKind::Defer, Some(deferral.delay), Some(&deferral.reason)),
            Verdict::Reject { reason } => (RecordedKind::Reject, None, Some(reason)),
            Verdict::Discard { reason } => (RecordedKind::Discard, None, Some(reason)),
        };
        Self { verdict, delay_ms: delay.map(millis), reason: reason.map(ToString::to_string), on_error }
    }

    /// A reason may name the key.
    fn with_key(mut self, key: &str, shown: &str) -> Self {
        if key != shown && !key.is_empty() {
            self.reason = self.reason.map(|reason| reason.replace(key, shown));
        }
        self
    }
}

/// Reads a recording line by line. A last line that was cut, as of a recording that was broken off, ends it.
#[derive(Debug)]
pub struct RecordingReader<R> {
    lines: R,
    line: usize,
    /// What the file begins with.
    header: Header,
    /// What it ended with.
    end: Option<End>,
}

impl<R: BufRead> RecordingReader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// When it cannot be read, or is none.
    pub fn new(mut lines: R) -> Result<Self, RecordingError> {
        let line = read_line(&mut lines).map_err(RecordingError::Read)?;
        let header: Header =
            serde_json::from_slice(&line).map_err(|error| RecordingError::Header(error.to_string()))?;
        if header.tidegate_recording != VERSION {
            return Err(RecordingError::Version(header.tidegate_recording));
        }
        Ok(Self { lines, line: 1, header, end: None })
    }

    /// What the file begins with.
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// What the file ended with, once all of it was read; `None` of a recording that was broken off.
    pub const fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }
}

impl<R: BufRead> Iterator for RecordingReader<R> {
    type Item = Result<Recorded, RecordingError>;

    fn next(&mut self) -> Option<Self::Item> {
        let line = match read_line(&mut self.lines) {
            Ok(line) => line,
            Err(error) => return Some(Err(RecordingError::Read(error))),
        };
        self.line += 1;
        if line.is_empty() {
            return None;
        }
        if self.end.is_some() {
            let message = "it comes after the end of the recording".to_owned();
            return Some(Err(RecordingError::Line { line: self.line, message }));
        }
        if line.starts_with(end::BEGINNING)
            && let Ok(end) = serde_json::from_slice(&line)
        {
            self.end = Some(end);
            return self.next();
        }
        match serde_json::from_slice(&line) {
            Ok(recorded) => Some(Ok(recorded)),
            // Written in one go: without its end it is one that was broken off.
            Err(_) if line.last() != Some(&b'\n') => None,
            Err(error) => Some(Err(RecordingError::Line { line: self.line, message: error.to_string() })),
        }
    }
}

/// A line with its end; nothing at the end of the file.
fn read_line(lines: &mut impl BufRead) -> io::Result<Vec<u8>> {
    use io::Read as _;
    let mut line = Vec::new();
    lines.take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
    if line.len() as u64 >= LINE_BYTES_MAX {
        return Err(io::Error::other(format!("a line has more than {LINE_BYTES_MAX} bytes")));
    }
    Ok(line)
}

fn write_line(value: &impl Serialize, to: &mut impl Write) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    to.write_all(&line)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
