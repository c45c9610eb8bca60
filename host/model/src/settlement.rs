//! What the broker is told, and what came of it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::{DeliveryId, Handle, Message};

/// One thing to tell the broker about one delivery.
#[derive(Clone, Debug)]
pub struct Settlement {
    /// Whose settlement this is; comes back with the result.
    pub id: DeliveryId,
    /// What to tell.
    pub verb: Verb,
    /// The delivery's message: brokers want its topic, lite topic and id beside the handle.
    pub message: Arc<Message>,
    /// The newest handle of the lease.
    pub handle: Handle,
    /// The attempt as the host counts it.
    pub attempt: u32,
}

/// The five words for settling a delivery.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Verb {
    /// Done, never hand it out again.
    Accept,
    /// Hand it out again after so long.
    Defer(Duration),
    /// Hand it out again as soon as may be.
    Release,
    /// Dead-letter it.
    Reject {
        /// In a few words.
        reason: Box<str>,
    },
    /// Keep it with us for so long from now.
    Renew(Duration),
}

impl Verb {
    /// The word used in logs, metrics and receipts.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::Defer(_) => "defer",
            Self::Release => "release",
            Self::Reject { .. } => "reject",
            Self::Renew(_) => "renew",
        }
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How a sink, or a worker behind it, ended with a delivery.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It is durable where it had to go.
    Accepted,
    /// Try again after a delay.
    Deferred {
        /// How long to wait.
        delay: Duration,
    },
    /// It could not be taken now; give it back at once.
    Released,
    /// It can never be taken.
    Rejected {
        /// In a few words.
        reason: Box<str>,
    },
    /// Done, and another host is asked to tell the broker so, by the receipt. This one tells it only when it has got the
    /// delivery anew since it gave the receipt out, which is about an older lease then.
    Elsewhere,
}

/// Why a settlement did not take effect.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{verb} failed: {detail}")]
pub struct SettleError {
    /// What was being told.
    pub verb: &'static str,
    /// What the broker or the network said.
    pub detail: Box<str>,
    /// Whose fault it is, which decides what happens next.
    pub fault: SettleFault,
}

/// Whose fault a failed settlement is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SettleFault {
    /// The lease had run out, or the handle is not known any more: the message comes again. Counted, never retried.
    LeaseGone,
    /// The broker or the road to it was in trouble and retries were used up: the lease runs out and the message
    /// comes again.
    Broker,
    /// We asked for something that the broker refuses. A bug or a wrong configuration.
    Refused,
}

impl SettleError {
    /// Whether sending the very same settlement again can help.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(self.fault, SettleFault::Broker)
    }
}
