//! The thread that counts epochs, one a millisecond.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use wasmtime::EngineWeak;

use crate::deadline::TICK;

/// Ticks made up for at once after the thread stood still; more would stop guests that began only now.
const CATCH_UP_MAX: u64 = 3;

/// The running ticker; ends with its owner.
#[derive(Debug)]
pub(crate) struct Ticker {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    stop: Mutex<bool>,
    stopped: Condvar,
}

impl Ticker {
    /// Starts the thread. It holds the engine weakly, so that a leaked engine is the only one that keeps it alive.
    pub(crate) fn start(engine: EngineWeak) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let thread = std::thread::Builder::new().name("policy-ticker".into()).spawn({
            let shared = Arc::clone(&shared);
            move || run(&engine, &shared)
        })?;
        Ok(Self { shared, thread: Some(thread) })
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        *self.shared.stop.lock() = true;
        self.shared.stopped.notify_all();
        if let Some(thread) = self.thread.take() {
            // It only counts; there is nothing in it that panics.
            let _ = thread.join();
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "the ticker makes time, it is not told it")]
fn run(engine: &EngineWeak, shared: &Shared) {
    let mut next = Instant::now() + TICK;
    let mut stop = shared.stop.lock();
    while !*stop {
        shared.stopped.wait_until(&mut stop, next);
        let late = Instant::now().saturating_duration_since(next);
        if late.is_zero() && !*stop {
            continue;
        }
        let Some(engine) = engine.upgrade() else { return };
        let due = 1 + whole_ticks(late);
        for _ in 0..due.min(CATCH_UP_MAX) {
            engine.increment_epoch();
        }
        next += TICK * u32::try_from(due).unwrap_or(u32::MAX);
    }
}

fn whole_ticks(late: Duration) -> u64 {
    u64::try_from(late.as_nanos() / TICK.as_nanos()).unwrap_or(u64::MAX)
}
