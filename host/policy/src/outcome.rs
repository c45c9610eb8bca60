//! How deliveries ended, for policies that want to know.

use std::sync::Arc;
use std::time::Duration;

use tidegate_model::{Instant, MessageId, Timestamp};

use crate::answer_kind::AnswerKind;
use crate::bindings::v1::observer;
use crate::caller::{Caller, Occasion};

/// How one delivery ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// What fairness is counted by.
    pub key: Arc<str>,
    /// The message.
    pub id: MessageId,
    /// In one word.
    pub ending: Ending,
    /// The attempt that ended.
    pub attempt: u32,
    /// For how long the sink had it; nothing when it never had.
    pub spent: Duration,
    /// What the work cost: as the worker reported it, else the seconds that the sink had it.
    pub cost: f64,
}

/// How a delivery ended, in one word.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ending {
    /// The sink took it, or the policy discarded it.
    Accepted,
    /// Given back to the broker for a while.
    Deferred,
    /// Dead-lettered.
    Rejected,
    /// Given back to the broker at once.
    Released,
    /// Its lease ran out.
    Expired,
}

impl Caller {
    /// Tells the policy, if its generation wants to know.
    pub(crate) fn observe(&mut self, now: Instant, wall: Timestamp, outcomes: &[Outcome]) {
        if outcomes.is_empty() || !self.policy().observes() {
            return;
        }
        let outcomes: Vec<_> = outcomes.iter().map(Outcome::to_wit).collect();
        let occasion = Occasion { now, wall, seed: wall.as_unix_millis(), message: None };
        // A failure is counted and logged; nothing follows from it for any message.
        let _ = self.call(
            &occasion,
            |()| AnswerKind::Observed,
            |instance, limits, moment| instance.observe(limits.deadline, moment, &outcomes),
        );
    }
}

impl Outcome {
    fn to_wit(&self) -> observer::Outcome {
        observer::Outcome {
            key: self.key.as_ref().to_owned(),
            id: self.id.as_str().to_owned(),
            ending: match self.ending {
                Ending::Accepted => observer::Ending::Accepted,
                Ending::Deferred => observer::Ending::Deferred,
                Ending::Rejected => observer::Ending::Rejected,
                Ending::Released => observer::Ending::Released,
                Ending::Expired => observer::Ending::Expired,
            },
            attempt: self.attempt,
            spent: u64::try_from(self.spent.as_millis()).unwrap_or(u64::MAX),
            cost: self.cost,
        }
    }
}
