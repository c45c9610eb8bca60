//! Two policies beside each other on the same messages: one that was followed, and one that was only asked.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde::Serialize;
use tidegate_model::Verdict;

use crate::question::Question;
use crate::throttle::Answer;

/// Differences that are kept, the newest of them.
pub const DIFFERENCES_KEPT: usize = 100;

/// Keys whose differences are counted; those of further keys are counted together.
const KEYS_MAX: usize = 1_000;

/// A verdict without its details.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Hand it to the sink.
    Deliver,
    /// Give it back to the broker for a while.
    Defer,
    /// Dead-letter it.
    Reject,
    /// Settle it as done.
    Discard,
    /// The policy could not say.
    NoAnswer,
}

/// What was found.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Comparison {
    /// Messages that both decided about.
    pub compared: u64,
    /// How often by what was followed and what the other said, agreement included.
    pub pairs: BTreeMap<(Kind, Kind), u64>,
    /// Messages on which they differed, by key. Of so many keys at most; the rest is in `further_keys`.
    pub by_key: BTreeMap<Arc<str>, u64>,
    /// Messages of further keys on which they differed.
    pub further_keys: u64,
    /// The last messages on which they differed, the newest last.
    pub differences: VecDeque<Difference>,
}

/// A message on which two policies differed.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Difference {
    /// When, in milliseconds since the Unix epoch.
    pub at_unix_ms: u64,
    /// The broker's name of the message.
    pub message_id: Box<str>,
    /// What fairness is counted by.
    pub key: Arc<str>,
    /// What was followed.
    pub live: Kind,
    /// What the other said.
    pub other: Kind,
}

impl Comparison {
    /// Adds one message.
    pub fn note(&mut self, question: &Question<'_>, live: Kind, other: Kind) {
        self.compared += 1;
        *self.pairs.entry((live, other)).or_default() += 1;
        if live == other {
            return;
        }
        if let Some(count) = self.by_key.get_mut(question.key) {
            *count += 1;
        } else if self.by_key.len() < KEYS_MAX {
            self.by_key.insert(Arc::clone(question.key), 1);
        } else {
            self.further_keys += 1;
        }
        if self.differences.len() >= DIFFERENCES_KEPT {
            self.differences.pop_front();
        }
        self.differences.push_back(Difference {
            at_unix_ms: question.wall.as_unix_millis(),
            message_id: question.message.id.as_str().into(),
            key: Arc::clone(question.key),
            live,
            other,
        });
    }

    /// Messages on which they differed.
    #[must_use]
    pub fn differing(&self) -> u64 {
        self.pairs.iter().filter(|((live, other), _)| live != other).map(|(_, count)| count).sum()
    }
}

impl Kind {
    /// The word for people and metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Deliver => "deliver",
            Self::Defer => "defer",
            Self::Reject => "reject",
            Self::Discard => "discard",
            Self::NoAnswer => "no-answer",
        }
    }

    /// That of a verdict.
    #[must_use]
    pub const fn of_verdict(verdict: &Verdict) -> Self {
        match verdict {
            Verdict::Deliver => Self::Deliver,
            Verdict::Defer(_) => Self::Defer,
            Verdict::Reject { .. } => Self::Reject,
            Verdict::Discard { .. } => Self::Discard,
        }
    }

    /// What a policy itself said.
    #[must_use]
    pub const fn said(answer: &Answer) -> Self {
        match answer {
            Answer::Verdict(verdict) => Self::of_verdict(verdict),
            Answer::OnError { .. } | Answer::Stop { .. } => Self::NoAnswer,
        }
    }

    /// What became of a message by that answer: what `on-error` says, when the policy could not.
    #[must_use]
    pub const fn followed(answer: &Answer) -> Self {
        match answer {
            Answer::Verdict(verdict) | Answer::OnError { verdict, .. } => Self::of_verdict(verdict),
            Answer::Stop { .. } => Self::NoAnswer,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidegate_model::{Instant, Message, Standing, Timestamp};

    use super::*;

    fn note(comparison: &mut Comparison, n: u64, live: Kind, other: Kind) {
        let message = Arc::new(Message::new("orders", format!("message-{n}")));
        let question = Question {
            source: "orders",
            message: &message,
            key: &format!("tenant-{}", n % 2_000).into(),
            attempt: 1,
            age: Duration::ZERO,
            waited: Duration::ZERO,
            deferred: Duration::ZERO,
            standing: Standing::default(),
            wall: Timestamp::from_unix_millis(n),
            now: Instant::ZERO,
            seed: n,
        };
        comparison.note(&question, live, other);
    }

    #[test]
    fn pairs_and_keys_are_counted_and_the_newest_differences_kept() {
        let mut comparison = Comparison::default();
        note(&mut comparison, 0, Kind::Deliver, Kind::Deliver);
        for n in 1..=4_000 {
            note(&mut comparison, n, Kind::Deliver, Kind::Defer);
        }
        assert_eq!((comparison.compared, comparison.differing()), (4_001, 4_000));
        assert_eq!(comparison.pairs[&(Kind::Deliver, Kind::Defer)], 4_000);
        assert_eq!((comparison.by_key.len(), comparison.further_keys), (KEYS_MAX, 2_000));
        assert_eq!(comparison.differences.len(), DIFFERENCES_KEPT);
        assert_eq!(&*comparison.differences[0].message_id, "message-3901");
    }
}
