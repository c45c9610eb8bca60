//! Time as the store sees it: passed in, never read.

use std::time::Duration;

/// One reading of the broker's two clocks.
///
/// Deadlines count on the monotonic reading. Receipt handles carry the wall clock, because they travel through clients
/// as text and a proxy judges them without any other knowledge.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Moment {
    /// Time since the broker was made; never goes back.
    pub since_start: Duration,
    /// Milliseconds since the Unix epoch.
    pub wall_ms: u64,
}

/// `duration` in whole milliseconds, as the protocol writes it.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
