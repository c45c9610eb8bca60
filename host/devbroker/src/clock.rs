//! The broker's clock: the runtime's, plus what was added by hand.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::watch;
use tokio::time::Instant;

use crate::store::Moment;

/// Follows the runtime's time, paused or not. [`Clock::advance`] makes everything due earlier without waiting.
#[derive(Debug)]
pub(crate) struct Clock {
    origin: Instant,
    wall_origin_ms: u64,
    added_nanos: AtomicU64,
    advances: watch::Sender<u64>,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self {
            origin: Instant::now(),
            wall_origin_ms: wall_ms(),
            added_nanos: AtomicU64::new(0),
            advances: watch::Sender::new(0),
        }
    }

    pub(crate) fn now(&self) -> Moment {
        let since_start = self.origin.elapsed() + self.added();
        let passed_ms = u64::try_from(since_start.as_millis()).unwrap_or(u64::MAX);
        Moment { since_start, wall_ms: self.wall_origin_ms.saturating_add(passed_ms) }
    }

    /// The runtime's instant at which the broker's clock shows `at`.
    pub(crate) fn deadline(&self, at: Duration) -> Instant {
        self.origin + at.saturating_sub(self.added())
    }

    /// Moves the clock forward.
    pub(crate) fn advance(&self, by: Duration) {
        self.added_nanos.fetch_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX), Ordering::SeqCst);
        self.advances.send_modify(|count| *count += 1);
    }

    /// Tells of every advance made after this call.
    pub(crate) fn advances(&self) -> watch::Receiver<u64> {
        self.advances.subscribe()
    }

    fn added(&self) -> Duration {
        Duration::from_nanos(self.added_nanos.load(Ordering::SeqCst))
    }
}

#[allow(clippy::disallowed_methods, reason = "the one place of this crate that reads the wall clock")]
fn wall_ms() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX)
}
