//! The one place where the host reads a clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tidegate_model::{Instant, Timestamp};

/// The process's clock. Clones agree: all count from the same beginning. Follows tokio's paused time in tests.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: tokio::time::Instant,
    started: Timestamp,
}

impl Clock {
    /// A clock that begins now. One per process.
    #[must_use]
    pub fn start() -> Self {
        Self { origin: tokio::time::Instant::now(), started: wall() }
    }

    /// The monotonic reading.
    #[must_use]
    pub fn now(&self) -> Instant {
        let elapsed = self.origin.elapsed();
        Instant::ZERO + elapsed
    }

    /// The wall clock. Zero on a machine whose clock stands before 1970.
    #[must_use]
    pub fn wall(&self) -> Timestamp {
        wall()
    }

    /// What the wall clock says at a reading of the monotonic one, or said then: by how the two stood when the process
    /// started, so that one reading always gives the same time, whatever is done to the wall clock meanwhile.
    #[must_use]
    pub fn wall_at(&self, at: Instant) -> Timestamp {
        let since_start = u64::try_from(at.saturating_since(Instant::ZERO).as_millis()).unwrap_or(u64::MAX);
        Timestamp::from_unix_millis(self.started.as_unix_millis().saturating_add(since_start))
    }

    /// The runtime's own instant for a reading, to sleep until.
    #[must_use]
    pub fn deadline(&self, at: Instant) -> tokio::time::Instant {
        self.origin + at.saturating_since(Instant::ZERO)
    }
}

#[allow(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
fn wall() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    Timestamp::from_unix_millis(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX))
}
