//! The demo's worker: one pair of hands, so much work per message. It is the bottleneck.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use hdrhistogram::Histogram;
use parking_lot::Mutex;
use tidegate_connector::{Clock, Inbox, Sink, SinkError};
use tidegate_model::{Emission, MessageId, Outcome, Report};

use super::load::HOT;

/// What the worker has seen, and how slow it is.
#[derive(Debug)]
pub(super) struct Workbench {
    clock: Clock,
    work_micros: AtomicU64,
    seen: Mutex<Seen>,
}

/// What came since the phase began.
#[derive(Debug)]
pub(super) struct Tally {
    /// From send to delivery of quiet tenants' messages, in milliseconds.
    pub(super) quiet_ms: Histogram<u64>,
    /// Messages of the hot tenant.
    pub(super) hot: u64,
}

#[derive(Debug)]
struct Seen {
    tally: Tally,
    ids: HashSet<MessageId>,
    repeated: u64,
}

impl Workbench {
    pub(super) fn new(clock: Clock, work: Duration) -> Result<Arc<Self>, hdrhistogram::CreationError> {
        let seen = Seen { tally: Tally::new()?, ids: HashSet::new(), repeated: 0 };
        let bench = Self { clock, work_micros: AtomicU64::new(0), seen: Mutex::new(seen) };
        bench.set_work(work);
        Ok(Arc::new(bench))
    }

    /// Changes how long one message takes.
    pub(super) fn set_work(&self, work: Duration) {
        let micros = u64::try_from(work.as_micros()).unwrap_or(u64::MAX);
        self.work_micros.store(micros, Ordering::Relaxed);
    }

    /// Ends a phase: what came in it.
    pub(super) fn take_tally(&self) -> Tally {
        let mut seen = self.seen.lock();
        let tally = Tally { quiet_ms: seen.tally.quiet_ms.clone(), hot: seen.tally.hot };
        seen.tally.quiet_ms.reset();
        seen.tally.hot = 0;
        tally
    }

    /// Different messages seen, and deliveries beyond a message's first.
    pub(super) fn totals(&self) -> (u64, u64) {
        let seen = self.seen.lock();
        (seen.ids.len() as u64, seen.repeated)
    }

    fn see(&self, emission: &Emission) {
        let waited = emission.message.born_at.map(|born| self.clock.wall().saturating_since(born));
        let mut seen = self.seen.lock();
        if !seen.ids.insert(emission.message.id.clone()) {
            seen.repeated += 1;
        }
        if &*emission.key == HOT {
            seen.tally.hot += 1;
        } else if let Some(waited) = waited {
            // The histogram's upper bound saturates, which is all that a very late message needs.
            seen.tally.quiet_ms.saturating_record(u64::try_from(waited.as_millis()).unwrap_or(u64::MAX));
        }
    }
}

impl Tally {
    /// One millisecond to ten minutes, in two digits.
    fn new() -> Result<Self, hdrhistogram::CreationError> {
        const LONGEST_MS: u64 = 600_000;
        Ok(Self { quiet_ms: Histogram::new_with_max(LONGEST_MS, 2)?, hot: 0 })
    }
}

/// The sink around the workbench.
#[derive(Debug)]
pub(super) struct Worker(pub(super) Arc<Workbench>);

#[async_trait]
impl Sink for Worker {
    /// One in hand, one within reach.
    fn credits(&self) -> usize {
        2
    }

    async fn run(self: Box<Self>, mut inbox: Inbox) -> Result<(), SinkError> {
        while let Some(batch) = inbox.next().await {
            for emission in batch {
                self.0.see(&emission);
                let work = Duration::from_micros(self.0.work_micros.load(Ordering::Relaxed));
                if !work.is_zero() {
                    tokio::time::sleep(work).await;
                }
                inbox.report(vec![Report { id: emission.id, outcome: Outcome::Accepted, cost: None }]).await;
            }
        }
        Ok(())
    }
}
