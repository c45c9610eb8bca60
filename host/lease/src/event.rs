//! What happens beside the regular road, for telemetry.

use std::collections::VecDeque;
use std::sync::Arc;

use tidegate_model::{DeliveryId, MessageId, SettleError};

use crate::Valve;

/// Something that is worth counting or telling, and that nobody has to act on.
#[derive(Clone, Debug, PartialEq)]
pub enum BookEvent {
    /// A lease ran out before it was settled. The message comes again.
    Expired {
        /// The delivery.
        id: DeliveryId,
        /// The message.
        message: MessageId,
        /// Its key.
        key: Arc<str>,
        /// How far it had come.
        stage: Stage,
    },
    /// A reported outcome waited for its predecessors and is not told to the broker: an earlier delivery of its ordered
    /// key comes again, and this one with it. Counted with its run, as dropped.
    Undone {
        /// The delivery.
        id: DeliveryId,
        /// The message.
        message: MessageId,
    },
    /// A safety valve changed a deferral or a renewal.
    Valve {
        /// The message.
        message: MessageId,
        /// Its key.
        key: Arc<str>,
        /// Which one, and so what became of it.
        valve: Valve,
    },
    /// An ordered key's run ended early: the broker hands out again from the point of the break.
    RunEnded {
        /// The ordered key.
        order: Arc<str>,
        /// Why.
        cause: RunEnd,
        /// Later deliveries that were held and not emitted, or whose reported outcome was not yet on its way: dropped,
        /// they come again.
        dropped: usize,
        /// Later deliveries that a sink is working on: their outcome is not settled, they come again.
        overtaken: usize,
    },
    /// A message came again after a deferral, a release, a failed settlement or a lease that ran out.
    Redelivered {
        /// The message.
        message: MessageId,
        /// Its key.
        key: Arc<str>,
        /// The attempt as the host counts it.
        attempt: u32,
    },
    /// A message came again for no reason of its own, but because an earlier one of its ordered key did, or while
    /// the host still held it.
    Rerun {
        /// The message.
        message: MessageId,
        /// Its key.
        key: Arc<str>,
        /// What the host had done with it before.
        kind: RerunKind,
    },
    /// A settlement had no effect. The message comes again; after a renewal that failed, when its lease ends.
    SettleFailed {
        /// The message.
        message: MessageId,
        /// Its key.
        key: Arc<str>,
        /// What was said, and whose fault it is.
        error: SettleError,
    },
    /// The book was used wrongly, or is wrong itself. Nothing is lost by it: the call had no effect.
    Bug {
        /// What happened.
        what: &'static str,
        /// The delivery concerned, if it is about one.
        id: Option<DeliveryId>,
    },
}

/// How far a delivery had come when its lease ran out.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Stage {
    /// Not decided yet.
    Undecided,
    /// Accepted by the policy, waiting for the sink.
    Queued,
    /// With the sink.
    Emitted,
}

/// Why an ordered key's run ended.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum RunEnd {
    /// A policy or a worker deferred one, or it was given back.
    Deferred,
    /// A lease ran out.
    Expired,
    /// A settlement failed.
    SettleFailed,
    /// The broker handed the key out again while it was still held.
    HandedOutAgain,
}

/// What the host had done with a message that came again for no reason of its own.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum RerunKind {
    /// Held and dropped: a sink never saw it, or its outcome is unknown to the broker only.
    Dropped,
    /// Emitted: the sink sees a duplicate.
    Duplicate,
    /// A sink is working on it: the new lease replaces the old one, the sink sees nothing.
    StillHeld,
}

/// Events not yet looked at; bounded, since nobody has to look.
#[derive(Debug, Default)]
pub(crate) struct Events {
    waiting: VecDeque<BookEvent>,
    lost: u64,
}

/// Events kept for a caller that drains after every input: one input causes at most about as many as it has
/// deliveries.
const WAITING_MAX: usize = 4096;

impl Events {
    pub(crate) fn push(&mut self, event: BookEvent) {
        if self.waiting.len() < WAITING_MAX {
            self.waiting.push_back(event);
        } else {
            self.lost += 1;
        }
    }

    pub(crate) fn pop(&mut self) -> Option<BookEvent> {
        self.waiting.pop_front()
    }

    pub(crate) const fn lost(&self) -> u64 {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_counted() {
        let mut events = Events::default();
        for _ in 0..WAITING_MAX + 3 {
            events.push(BookEvent::Bug { what: "test", id: None });
        }
        assert_eq!(events.lost(), 3);
        assert_eq!(std::iter::from_fn(|| events.pop()).count(), WAITING_MAX);
    }
}
