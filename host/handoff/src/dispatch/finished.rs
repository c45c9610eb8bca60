//! How deliveries ended, so that a settlement that comes again gets the same answer.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use tidegate_model::{DeliveryId, Emission, MessageId, Outcome};

use super::{Answer, Claim};

/// Endings that are remembered, about 250 bytes each. A settlement that is older than so many others is answered by
/// the broker.
const REMEMBERED_MAX: usize = 32_768;

/// What a settlement said.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Kind {
    Accept,
    Defer,
    Release,
    Reject,
    Renew,
}

/// How a delivery ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum End {
    /// The broker took the settlement.
    Done,
    /// Its lease had ended.
    Expired,
    /// The broker was not reached: whoever asks again is sent there.
    Open,
    /// It was released since its worker left, and the broker has not answered.
    Pending,
}

#[derive(Debug, Default)]
pub(super) struct Finished {
    endings: HashMap<DeliveryId, Ending>,
    /// In the order of their ending; each once.
    order: VecDeque<DeliveryId>,
}

#[derive(Debug)]
struct Ending {
    message: MessageId,
    handle: Arc<str>,
    kind: Kind,
    end: End,
}

impl Finished {
    pub(super) fn insert(&mut self, emission: &Emission, kind: Kind, end: End) {
        if self.order.len() >= REMEMBERED_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.endings.remove(&oldest);
        }
        let (message, handle) = (emission.message.id.clone(), emission.handle.text.clone());
        if self.endings.insert(emission.id, Ending { message, handle, kind, end }).is_none() {
            self.order.push_back(emission.id);
        }
    }

    /// The broker answered to a release that nobody waits for.
    pub(super) fn conclude(&mut self, id: DeliveryId, answer: &Answer) {
        if let Some(ending) = self.endings.get_mut(&id)
            && ending.end == End::Pending
        {
            ending.end = if *answer == Answer::Done { End::Done } else { End::Expired };
        }
    }

    /// What a settlement of it is answered now; `None` when it is not known here, or is for the broker to say.
    pub(super) fn answer(&self, claim: &Claim, kind: Kind) -> Option<Answer> {
        let ending = self.endings.get(&claim.delivery)?;
        if ending.message != claim.message || ending.handle != claim.handle {
            return None;
        }
        match ending.end {
            End::Done if ending.kind == kind => Some(Answer::Done),
            End::Done | End::Pending => Some(Answer::Otherwise(ending.kind)),
            End::Expired => Some(Answer::Expired("the lease had ended")),
            End::Open => None,
        }
    }
}

impl Kind {
    pub(crate) const fn of(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Accepted | Outcome::Elsewhere => Self::Accept,
            Outcome::Deferred { .. } => Self::Defer,
            Outcome::Released => Self::Release,
            Outcome::Rejected { .. } => Self::Reject,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Accept => "accepted",
            Self::Defer => "deferred",
            Self::Release => "released",
            Self::Reject => "rejected",
            Self::Renew => "renewed",
        })
    }
}
