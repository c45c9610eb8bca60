//! Recordings of a flow's decisions: taken in on the flow's task, written down on the task of whoever asked for them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tidegate_connector::Clock;
use tidegate_policy::{Answer, End, Header, Masking, Question, Recorded};
use tidegate_telemetry::Telemetry;
use tidegate_telemetry::events::flow::{Origin, RecordingBegan, RecordingEnded};

use super::feed::{Bounds, Feed, Intake, Sample, Seen, bytes_of, feed};
use super::tap::Onlooker;

/// Decisions that wait to be written down: a few tenths of a second of a busy flow.
const WAITING_MAX: usize = 16_384;
/// Bytes of the messages that wait to be written down.
const WAITING_BYTES_MAX: usize = 32 << 20;

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
    intake: Intake<Seen>,
    end: Option<End>,
    masking: Masking,
    flow: Arc<str>,
    source: Arc<str>,
    telemetry: Telemetry,
}

/// The end that looks on.
#[derive(Debug)]
struct Recorder {
    feed: Feed<Seen>,
    sample: Sample,
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
    let RecordingOptions { length, count_max, sample, masking } = options;
    let bounds = Bounds { length, count_max, waiting_max: WAITING_MAX, waiting_bytes_max: WAITING_BYTES_MAX };
    let (feed, intake) = feed(bounds, clock);
    telemetry.emit(RecordingBegan { flow, length, sample });
    let recording = Recording {
        header: Some(header),
        intake,
        end: None,
        masking,
        flow: Arc::clone(flow),
        source: Arc::clone(source),
        telemetry,
    };
    (recording, Box::new(Recorder { feed, sample: Sample::new(sample) }))
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
            match self.intake.next(lines.is_empty()).await {
                None => return Some(lines.into()),
                Some(Ok(seen)) => self.write(&seen, &mut lines),
                Some(Err(end)) => break end,
            }
            if lines.len() >= CHUNK_BYTES {
                return Some(lines.into());
            }
        };
        self.intake.close();
        let (recorded, missed) = (self.intake.taken(), self.intake.missed());
        let end = self.end.insert(End { end, recorded, missed });
        let _ = end.write(&mut lines);
        Some(lines.into())
    }

    /// How it ended, once the last line was given out.
    #[must_use]
    pub const fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    fn write(&mut self, seen: &Seen, lines: &mut Vec<u8>) {
        self.intake.free(seen.bytes());
        let question = seen.question(&self.source);
        let _ = Recorded::of(&question, &seen.answer, &self.masking).write(lines);
        self.intake.note_taken();
    }
}

impl Onlooker for Recorder {
    fn see(&mut self, question: &Question<'_>, answer: &Answer, _origin: Origin) -> bool {
        if self.feed.is_over(question.now) {
            return false;
        }
        if self.sample.has(question.key) {
            self.feed.offer_decision(bytes_of(question.message), || Seen::of(question, answer));
        }
        !self.is_done()
    }

    fn is_done(&self) -> bool {
        self.feed.is_done()
    }
}

/// Whoever ends it: whoever asked for it may have gone.
impl Drop for Recording {
    fn drop(&mut self) {
        let (recorded, missed) = (self.intake.taken(), self.intake.missed());
        self.telemetry.emit(RecordingEnded { flow: &self.flow, recorded, missed });
    }
}

#[cfg(test)]
mod tests;
