//! Taps: a live sample of what a flow decides and how it ends, for whoever looks on. Shown on the flow's task, written
//! down on the task of whoever asked for it.

mod line;

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tidegate_connector::Clock;
use tidegate_model::{Instant, MessageId};
use tidegate_policy::{Answer, Kind, Masking, Outcome, Question};
use tidegate_telemetry::Telemetry;
use tidegate_telemetry::events::flow::{Origin, TapBegan, TapEnded};

use super::feed::{Bounds, Feed, Intake, Sample, Seen, bytes_of, feed};
use super::tap::Onlooker;

/// What waits to be taken in: a second of as much as is shown.
const WAITING_MAX: usize = 1_024;
/// Bytes of the messages that wait to be taken in.
const WAITING_BYTES_MAX: usize = 8 << 20;
/// Decisions shown in one second. More than anybody reads, and little beside what a busy flow decides: writing them
/// down takes time from the same processors.
const SHOWN_PER_SECOND_MAX: u32 = 1_000;
/// Shown deliveries whose ending is waited for; the oldest make room.
const OPEN_MAX: usize = 1_024;
/// What an ending takes, roughly.
const ENDING_BYTES: usize = 128;

/// Lines are given out together up to about this.
const CHUNK_BYTES: usize = 16 << 10;

/// What is to be shown.
#[derive(Clone, Debug)]
pub struct TapOptions {
    /// The longest that it takes.
    pub length: Duration,
    /// The most decisions that are shown.
    pub count_max: u64,
    /// The part of all keys that is shown, 0 to 1. A key is shown with all its messages or not at all.
    pub sample: f64,
    /// Only this key, or with `*` at its end all that begin so.
    pub key: Option<String>,
    /// Only these verdicts; all of them when there is none.
    pub verdicts: Vec<Kind>,
    /// What is not shown.
    pub masking: Masking,
}

/// A tap under way: JSON lines, in pieces.
#[derive(Debug)]
pub struct Tap {
    intake: Intake<Sight>,
    /// Endings that were shown.
    endings: u64,
    ended: bool,
    masking: Masking,
    flow: Arc<str>,
    source: Arc<str>,
    telemetry: Telemetry,
}

/// What was seen.
#[derive(Debug)]
enum Sight {
    /// A decision, and whose it is.
    Decision(Seen, Origin),
    /// How a delivery ended that was shown.
    Ending(Outcome),
}

/// The end that looks on.
#[derive(Debug)]
struct Watcher {
    feed: Feed<Sight>,
    sample: Sample,
    key: Option<String>,
    verdicts: Vec<Kind>,
    pace: Pace,
    open: Open,
}

/// How many were shown in this second.
#[derive(Debug, Default)]
struct Pace {
    since: Instant,
    shown: u32,
}

/// Deliveries that were shown and whose ending was not: by message and attempt, the oldest first.
#[derive(Debug, Default)]
struct Open {
    known: HashSet<(MessageId, u32)>,
    by_age: VecDeque<(MessageId, u32)>,
}

/// A tap of `flow`, which takes from `source`, and the onlooker that feeds it.
pub(super) fn start(
    flow: &Arc<str>,
    source: &Arc<str>,
    options: TapOptions,
    clock: Clock,
    telemetry: Telemetry,
) -> (Tap, Box<dyn Onlooker>) {
    let TapOptions { length, count_max, sample, key, verdicts, masking } = options;
    let bounds = Bounds { length, count_max, waiting_max: WAITING_MAX, waiting_bytes_max: WAITING_BYTES_MAX };
    let (feed, intake) = feed(bounds, clock);
    telemetry.emit(TapBegan { flow, length, sample });
    let tap = Tap {
        intake,
        endings: 0,
        ended: false,
        masking,
        flow: Arc::clone(flow),
        source: Arc::clone(source),
        telemetry,
    };
    let watcher = Watcher {
        feed,
        sample: Sample::new(sample),
        key,
        verdicts,
        pace: Pace::default(),
        open: Open::default(),
    };
    (tap, Box::new(watcher))
}

impl Tap {
    /// The next lines, whole ones with their ends; `None` after the last, which says how it ended. Waits until there are
    /// any.
    pub async fn next_lines(&mut self) -> Option<Bytes> {
        if self.ended {
            return None;
        }
        let mut lines = Vec::new();
        let end = loop {
            match self.intake.next(lines.is_empty()).await {
                None => return Some(lines.into()),
                Some(Ok(sight)) => self.write(&sight, &mut lines),
                Some(Err(end)) => break end,
            }
            if lines.len() >= CHUNK_BYTES {
                return Some(lines.into());
            }
        };
        self.intake.close();
        self.ended = true;
        let end = line::End {
            end,
            shown: self.intake.taken(),
            missed: self.intake.missed(),
            endings: self.endings,
        };
        line::write(&end, &mut lines);
        Some(lines.into())
    }

    fn write(&mut self, sight: &Sight, lines: &mut Vec<u8>) {
        match sight {
            Sight::Decision(seen, origin) => {
                self.intake.free(seen.bytes());
                self.intake.note_taken();
                let question = seen.question(&self.source);
                if let Some(shown) = line::Decision::of(&question, &seen.answer, *origin, &self.masking) {
                    line::write(&shown, lines);
                }
            }
            Sight::Ending(outcome) => {
                self.intake.free(ENDING_BYTES);
                self.endings += 1;
                line::write(&line::Ending::of(outcome), lines);
            }
        }
    }
}

impl Watcher {
    fn wants(&self, key: &str, verdict: Kind) -> bool {
        let is_key = self.key.as_ref().is_none_or(|wanted| match wanted.strip_suffix('*') {
            Some(beginning) => key.starts_with(beginning),
            None => key == wanted,
        });
        is_key && (self.verdicts.is_empty() || self.verdicts.contains(&verdict)) && self.sample.has(key)
    }
}

impl Onlooker for Watcher {
    fn see(&mut self, question: &Question<'_>, answer: &Answer, origin: Origin) -> bool {
        if self.feed.is_over(question.now) {
            return false;
        }
        let verdict = Kind::followed(answer);
        if self.wants(question.key, verdict) {
            let bytes = bytes_of(question.message);
            if !self.pace.has_room(question.now) {
                self.feed.miss();
            } else if self.feed.offer_decision(bytes, || Sight::Decision(Seen::of(question, answer), origin))
                && verdict == Kind::Deliver
            {
                self.open.insert(question.message.id.clone(), question.attempt);
            }
        }
        !self.is_done()
    }

    fn is_done(&self) -> bool {
        self.feed.is_done()
    }

    fn wants_endings(&self) -> bool {
        true
    }

    fn see_endings(&mut self, endings: &[Outcome]) {
        for outcome in endings {
            if self.open.remove(&outcome.id, outcome.attempt) {
                // It is told when there is room for it; the last line says how many were.
                self.feed.offer(ENDING_BYTES, || Sight::Ending(outcome.clone()));
            }
        }
    }
}

impl Pace {
    fn has_room(&mut self, now: Instant) -> bool {
        if now.saturating_since(self.since) >= Duration::from_secs(1) {
            *self = Self { since: now, shown: 0 };
        }
        self.shown += 1;
        self.shown <= SHOWN_PER_SECOND_MAX
    }
}

impl Open {
    fn insert(&mut self, id: MessageId, attempt: u32) {
        if self.by_age.len() >= OPEN_MAX
            && let Some(oldest) = self.by_age.pop_front()
        {
            self.known.remove(&oldest);
        }
        if self.known.insert((id.clone(), attempt)) {
            self.by_age.push_back((id, attempt));
        }
    }

    /// True when it was there.
    fn remove(&mut self, id: &MessageId, attempt: u32) -> bool {
        let found = self.known.remove(&(id.clone(), attempt));
        if self.known.is_empty() {
            self.by_age.clear();
        }
        found
    }
}

/// Whoever ends it: whoever asked for it may have gone.
impl Drop for Tap {
    fn drop(&mut self) {
        let (shown, missed) = (self.intake.taken(), self.intake.missed());
        self.telemetry.emit(TapEnded { flow: &self.flow, shown, missed });
    }
}

#[cfg(test)]
mod tests;
