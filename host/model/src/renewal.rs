//! What a renewal policy answers.

use std::time::Duration;

/// What becomes of the lease of a delivery that waits in the host.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Renewal {
    /// It is kept for so long from now.
    Renew(Duration),
    /// The delivery goes back to the broker at once.
    Release,
    /// It runs out; the broker hands the message out again then.
    Lapse,
}

impl Renewal {
    /// The word used in logs and metrics.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Renew(_) => "renew",
            Self::Release => "release",
            Self::Lapse => "lapse",
        }
    }
}
