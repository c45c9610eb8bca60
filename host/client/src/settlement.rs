//! What is said of a message, and what comes back.

use std::fmt;
use std::time::Duration;

/// How the work on a message ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    pub(crate) outcome: Outcome,
    pub(crate) cost: Option<f64>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Outcome {
    Accept,
    Defer(Duration),
    Release,
    Reject(String),
}

impl Verdict {
    /// It is done: it never comes again.
    #[must_use]
    pub const fn accept() -> Self {
        Self::new(Outcome::Accept)
    }

    /// Not now: it comes again after `delay`. The host has the last word on how long that may be.
    #[must_use]
    pub const fn defer(delay: Duration) -> Self {
        Self::new(Outcome::Defer(delay))
    }

    /// Not by this worker: it comes again at once, to whoever has room.
    #[must_use]
    pub const fn release() -> Self {
        Self::new(Outcome::Release)
    }

    /// It can never be done: it goes to the dead letters, with the reason. Of that the host keeps 1024 bytes.
    #[must_use]
    pub fn reject(reason: impl Into<String>) -> Self {
        Self::new(Outcome::Reject(reason.into()))
    }

    /// What the work cost, in the unit that the workers of a flow agree on: from zero on, and finite. Without it the host
    /// counts the time that the message was out.
    #[must_use]
    pub fn with_cost(self, cost: f64) -> Self {
        Self { cost: Some(cost), ..self }
    }

    /// Its word: `accept`, `defer`, `release` or `reject`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self.outcome {
            Outcome::Accept => "accept",
            Outcome::Defer(_) => "defer",
            Outcome::Release => "release",
            Outcome::Reject(_) => "reject",
        }
    }

    const fn new(outcome: Outcome) -> Self {
        Self { outcome, cost: None }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A verdict on the message that a receipt is for.
#[derive(Clone, Debug, PartialEq)]
pub struct Settlement {
    /// The receipt, as [`Delivery::receipt`](crate::Delivery::receipt) or a renewal gave it.
    pub receipt: String,
    /// How the work ended.
    pub verdict: Verdict,
}

/// What became of a [`Settlement`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SettlementResult {
    /// The receipt, as given.
    pub receipt: String,
    /// Whether it took effect.
    pub status: Status,
    /// Why not, in a sentence; empty when it did.
    pub detail: String,
}

/// A wish to keep a lease for longer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Renewal {
    /// The receipt.
    pub receipt: String,
    /// How long from now.
    pub length: Duration,
}

/// What became of a [`Renewal`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RenewalResult {
    /// The receipt, as given.
    pub receipt: String,
    /// Whether it took effect.
    pub status: Status,
    /// Why not, in a sentence; empty when it did.
    pub detail: String,
    /// What to settle with from now on; `None` when it is still the receipt that was given.
    pub next_receipt: Option<String>,
    /// What is left of the lease.
    pub lease: Duration,
}

/// What a host says to a settlement or a renewal.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Status {
    /// The broker took it, now or at an earlier settlement of the same kind.
    Done,
    /// The lease had ended: the message comes again.
    Expired,
    /// It was settled otherwise before, or the host knows nothing of it any more.
    Unknown,
    /// The receipt, the rights or the request are not right. The same again will be refused again, at that host.
    Refused,
    /// The broker could not be told, or earlier messages of its ordered key are open: try again.
    RetryLater,
}

impl Status {
    /// Its word, for logs and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Expired => "expired",
            Self::Unknown => "unknown",
            Self::Refused => "refused",
            Self::RetryLater => "retry-later",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
