//! What policies would have said: verdicts of shadows, beside those that were followed.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_model::Verdict;
use tidegate_policy::{Answer, Question};

use super::decider::Decided;

/// Differences that are kept, the newest of them.
pub const DIFFERENCES_KEPT: usize = 100;

/// A verdict without its details, as comparisons count it.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
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

/// What was found by comparing one shadow with what was followed.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Comparison {
    /// Messages that both decided about.
    pub compared: u64,
    /// How often by what was followed and what the shadow said, agreement included.
    pub pairs: BTreeMap<(Kind, Kind), u64>,
    /// The last messages on which they differed, the newest last.
    pub differences: VecDeque<Difference>,
}

/// A message on which a shadow differed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Difference {
    /// When, in milliseconds since the Unix epoch.
    pub at_unix_ms: u64,
    /// The broker's name of the message.
    pub message_id: Box<str>,
    /// What fairness is counted by.
    pub key: Arc<str>,
    /// What was followed.
    pub live: Kind,
    /// What the shadow said.
    pub shadow: Kind,
}

/// The comparisons of one flow, by the shadow's name. Shared by the flow's task, which writes, and its status.
#[derive(Clone, Debug, Default)]
pub(super) struct Shadows(Arc<Mutex<BTreeMap<Arc<str>, Comparison>>>);

impl Shadows {
    pub(super) fn note(&self, policy: &Arc<str>, question: &Question<'_>, live: Kind, shadow: Kind) {
        let mut shadows = self.0.lock();
        let comparison = match shadows.get_mut(policy) {
            Some(comparison) => comparison,
            None => shadows.entry(Arc::clone(policy)).or_default(),
        };
        comparison.compared += 1;
        *comparison.pairs.entry((live, shadow)).or_default() += 1;
        if live == shadow {
            return;
        }
        if comparison.differences.len() >= DIFFERENCES_KEPT {
            comparison.differences.pop_front();
        }
        comparison.differences.push_back(Difference {
            at_unix_ms: question.wall.as_unix_millis(),
            message_id: question.message.id.as_str().into(),
            key: Arc::clone(question.key),
            live,
            shadow,
        });
    }

    pub(super) fn all(&self) -> BTreeMap<Arc<str>, Comparison> {
        self.0.lock().clone()
    }
}

impl Comparison {
    /// Messages on which the shadow differed.
    #[must_use]
    pub fn differing(&self) -> u64 {
        self.pairs.iter().filter(|((live, shadow), _)| live != shadow).map(|(_, count)| count).sum()
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

    pub(super) const fn of_verdict(verdict: &Verdict) -> Self {
        match verdict {
            Verdict::Deliver => Self::Deliver,
            Verdict::Defer(_) => Self::Defer,
            Verdict::Reject { .. } => Self::Reject,
            Verdict::Discard { .. } => Self::Discard,
        }
    }

    pub(super) const fn of_decided(decided: &Decided) -> Self {
        if decided.stop.is_some() { Self::NoAnswer } else { Self::of_verdict(&decided.verdict) }
    }

    pub(super) const fn of_answer(answer: &Answer) -> Self {
        match answer {
            Answer::Verdict(verdict) => Self::of_verdict(verdict),
            Answer::OnError { .. } | Answer::Stop { .. } => Self::NoAnswer,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidegate_model::{BodyState, Instant, Message, MessageId, Standing, Timestamp};

    use super::*;

    fn note(shadows: &Shadows, n: u64, live: Kind, shadow: Kind) {
        let message = Arc::new(Message {
            topic: "orders".into(),
            lite_topic: None,
            group: None,
            id: MessageId::from(format!("message-{n}")),
            tag: None,
            keys: vec![],
            properties: vec![],
            body: "".into(),
            body_state: BodyState::Intact,
            born_at: None,
            stored_at: None,
        });
        let question = Question {
            source: "orders",
            message: &message,
            key: &"tenant".into(),
            attempt: 1,
            age: Duration::ZERO,
            waited: Duration::ZERO,
            deferred: Duration::ZERO,
            standing: Standing::default(),
            wall: Timestamp::from_unix_millis(n),
            now: Instant::ZERO,
            seed: n,
        };
        shadows.note(&"new".into(), &question, live, shadow);
    }

    #[test]
    fn pairs_are_counted_and_the_newest_differences_kept() {
        let shadows = Shadows::default();
        note(&shadows, 0, Kind::Deliver, Kind::Deliver);
        for n in 1..=150 {
            note(&shadows, n, Kind::Deliver, Kind::Defer);
        }
        let all = shadows.all();
        let comparison = &all["new"];
        assert_eq!((comparison.compared, comparison.differing()), (151, 150));
        assert_eq!(comparison.pairs[&(Kind::Deliver, Kind::Defer)], 150);
        assert_eq!(comparison.differences.len(), DIFFERENCES_KEPT);
        assert_eq!(&*comparison.differences[0].message_id, "message-51");
    }
}
