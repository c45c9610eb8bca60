//! Recordings of a flow's decisions: taken in on the flow's task, written down on the task of whoever asked for them.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tidegate_connector::Clock;
use tidegate_model::{Instant, Message, Standing, Timestamp};
use tidegate_policy::{Answer, End, EndCause, Header, Masking, Question, Recorded};
use tidegate_telemetry::Telemetry;
use tidegate_telemetry::events::flow::{RecordingBegan, RecordingEnded};
use tokio::sync::mpsc;

use super::tap::Onlooker;

/// Decisions that wait to be written down. Beyond them, and beyond the bytes, they are missed: a flow does not wait
/// for its recording.
const WAITING_MAX: usize = 16_384;
/// Bytes of the messages that wait to be written down.
const WAITING_BYTES_MAX: usize = 32 << 20;
/// What a decision takes beside its message, roughly.
const AROUND_BYTES: usize = 512;

/// Lines are given out together up to about this.
const CHUNK_BYTES: usize = 64 << 10;

/// What is to be recorded.
#[derive(Clone, Debug)]
pub struct RecordingOptions {
    /// The longest that it takes.
    pub length: Duration,
    /// The most decisions in it.
    pub count_max: u64,
    /// The part of all keys that is in it, 0 to 1. A key is in it with all its messages or not at all.
    pub sample: f64,
    /// What does not get into it.
    pub masking: Masking,
}

/// A recording under way: the lines of the file, in pieces.
#[derive(Debug)]
pub struct Recording {
    /// The first line, until it was given out.
    header: Option<Header>,
    seen: mpsc::Receiver<Seen>,
    backlog: Arc<Backlog>,
    clock: Clock,
    until: Instant,
    count_max: u64,
    recorded: u64,
    end: Option<End>,
    masking: Masking,
    flow: Arc<str>,
    source: Arc<str>,
    telemetry: Telemetry,
}

/// The end that looks on.
#[derive(Debug)]
struct Recorder {
    sender: mpsc::Sender<Seen>,
    backlog: Arc<Backlog>,
    sample: Sample,
    until: Instant,
    left: u64,
}

/// What both ends count.
#[derive(Debug, Default)]
struct Backlog {
    bytes: AtomicUsize,
    missed: AtomicU64,
}

/// Which keys are in it.
#[derive(Debug)]
struct Sample {
    hasher: RandomState,
    /// Keys with a hash below; all of them without.
    below: Option<u64>,
}

/// A decision, to be written down later: nothing of it is copied but references.
#[derive(Debug)]
struct Seen {
    message: Arc<Message>,
    key: Arc<str>,
    attempt: u32,
    age: Duration,
    waited: Duration,
    deferred: Duration,
    standing: Standing,
    wall: Timestamp,
    now: Instant,
    seed: u64,
    answer: Answer,
}

/// A recording of the decisions of `flow` from `source`, and the onlooker that feeds it.
pub(super) fn start(
    flow: &Arc<str>,
    source: &Arc<str>,
    header: Header,
    options: RecordingOptions,
    clock: Clock,
    telemetry: Telemetry,
) -> (Recording, Box<dyn Onlooker>) {
    let (sender, seen) = mpsc::channel(WAITING_MAX);
    let backlog = Arc::new(Backlog::default());
    let sample = Sample::new(options.sample);
    let until = clock.now() + options.length;
    let recorder = Recorder { sender, backlog: Arc::clone(&backlog), sample, until, left: options.count_max };
    telemetry.emit(RecordingBegan { flow, length: options.length, sample: options.sample });
    let recording = Recording {
        header: Some(header),
        seen,
        backlog,
        until,
        clock,
        count_max: options.count_max,
        recorded: 0,
        end: None,
        masking: options.masking,
        flow: Arc::clone(flow),
        source: Arc::clone(source),
        telemetry,
    };
    (recording, Box::new(recorder))
}

impl Recording {
    /// The next lines, whole ones with their ends; `None` after the last. Waits until there are any.
    pub async fn next_lines(&mut self) -> Option<Bytes> {
        let mut lines = Vec::new();
        if let Some(header) = self.header.take() {
            // Writing to memory has no way to fail, here and below.
            let _ = header.write(&mut lines);
            return Some(lines.into());
        }
        if self.end.is_some() {
            return None;
        }
        let end = loop {
            if self.recorded >= self.count_max {
                break EndCause::Count;
            }
            let next = match self.seen.try_recv() {
                Ok(seen) => Ok(seen),
                Err(_) if !lines.is_empty() => return Some(lines.into()),
                Err(_) => self.wait().await,
            };
            match next {
                Ok(seen) => self.write(&seen, &mut lines),
                Err(end) => break end,
            }
            if lines.len() >= CHUNK_BYTES {
                return Some(lines.into());
            }
        };
        self.seen.close();
        let missed = self.backlog.missed.load(Ordering::Relaxed);
        let end = self.end.insert(End { end, recorded: self.recorded, missed });
        let _ = end.write(&mut lines);
        Some(lines.into())
    }

    /// How it ended, once the last line was given out.
    #[must_use]
    pub const fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    async fn wait(&mut self) -> Result<Seen, EndCause> {
        let until = self.clock.deadline(self.until);
        match tokio::time::timeout_at(until, self.seen.recv()).await {
            Ok(Some(seen)) => Ok(seen),
            // Nobody looks on any more.
            Ok(None) if self.clock.now() >= self.until => Err(EndCause::Time),
            Ok(None) => Err(EndCause::Flow),
            Err(_elapsed) => Err(EndCause::Time),
        }
    }

    fn write(&mut self, seen: &Seen, lines: &mut Vec<u8>) {
        self.backlog.bytes.fetch_sub(bytes_of(&seen.message), Ordering::Relaxed);
        let question = seen.question(&self.source);
        let _ = Recorded::of(&question, &seen.answer, &self.masking).write(lines);
        self.recorded += 1;
    }
}

impl Onlooker for Recorder {
    fn see(&mut self, question: &Question<'_>, answer: &Answer) -> bool {
        if question.now >= self.until {
            return false;
        }
        if !self.sample.has(question.key) {
            return !self.is_done();
        }
        let bytes = bytes_of(question.message);
        let permit = match self.sender.try_reserve() {
            Ok(permit) if self.backlog.bytes.load(Ordering::Relaxed) + bytes <= WAITING_BYTES_MAX => permit,
            Err(mpsc::error::TrySendError::Closed(())) => return false,
            Ok(_) | Err(mpsc::error::TrySendError::Full(())) => {
                self.backlog.missed.fetch_add(1, Ordering::Relaxed);
                return true;
            }
        };
        self.backlog.bytes.fetch_add(bytes, Ordering::Relaxed);
        permit.send(Seen::of(question, answer));
        self.left = self.left.saturating_sub(1);
        !self.is_done()
    }

    fn is_done(&self) -> bool {
        self.left == 0 || self.sender.is_closed()
    }
}

impl Sample {
    fn new(part: f64) -> Self {
        // A float beyond the range of the integer becomes its end.
        let below = (part < 1.0).then_some((part * u64::MAX as f64) as u64);
        Self { hasher: RandomState::new(), below }
    }

    fn has(&self, key: &str) -> bool {
        self.below.is_none_or(|below| self.hasher.hash_one(key) < below)
    }
}

/// What it takes to keep a message until it is written down.
fn bytes_of(message: &Message) -> usize {
    AROUND_BYTES + message.size_bytes()
}

impl Seen {
    fn of(question: &Question<'_>, answer: &Answer) -> Self {
        Self {
            message: Arc::clone(question.message),
            key: Arc::clone(question.key),
            attempt: question.attempt,
            age: question.age,
            waited: question.waited,
            deferred: question.deferred,
            standing: question.standing,
            wall: question.wall,
            now: question.now,
            seed: question.seed,
            answer: answer.clone(),
        }
    }

    fn question<'a>(&'a self, source: &'a str) -> Question<'a> {
        Question {
            source,
            message: &self.message,
            key: &self.key,
            attempt: self.attempt,
            age: self.age,
            waited: self.waited,
            deferred: self.deferred,
            standing: self.standing,
            wall: self.wall,
            now: self.now,
            seed: self.seed,
        }
    }
}

/// Whoever ends it: whoever asked for it may have gone.
impl Drop for Recording {
    fn drop(&mut self) {
        let missed = self.backlog.missed.load(Ordering::Relaxed);
        self.telemetry.emit(RecordingEnded { flow: &self.flow, recorded: self.recorded, missed });
    }
}

#[cfg(test)]
mod tests;
