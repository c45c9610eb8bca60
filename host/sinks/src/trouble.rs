//! Whether a sink can do its work: said once when that ends, and once when it is so again, and to whoever looks in.

use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_connector::{Clock, SinkMonitor, SinkStatus, SinkTrouble};
use tidegate_telemetry::Telemetry;
use tidegate_telemetry::events::sink::{Began, Ended, TroubleBegan, TroubleEnded};

/// The state of one sink from its beginning to its end.
#[derive(Debug)]
pub(crate) struct Trouble {
    sink: Arc<str>,
    telemetry: Telemetry,
    clock: Clock,
    /// Failures in a row that make it trouble.
    patience: u32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    failures: u32,
    trouble: Option<SinkTrouble>,
}

impl Trouble {
    pub(crate) fn new(sink: Arc<str>, telemetry: Telemetry, clock: Clock, patience: u32) -> Self {
        telemetry.emit(Began { sink: &sink });
        Self { sink, telemetry, clock, patience, state: Mutex::default() }
    }

    /// Something did not work. `detail` is a sentence without the full stop.
    pub(crate) fn fails(&self, detail: &str) {
        let mut state = self.state.lock();
        state.failures = state.failures.saturating_add(1);
        if let Some(trouble) = &mut state.trouble {
            trouble.detail = detail.into();
        } else if state.failures >= self.patience {
            state.trouble = Some(SinkTrouble { since: self.clock.now(), detail: detail.into() });
            self.telemetry.emit(TroubleBegan { sink: &self.sink, detail });
        }
    }

    /// Something worked.
    pub(crate) fn works(&self) {
        let mut state = self.state.lock();
        state.failures = 0;
        if let Some(SinkTrouble { since, .. }) = state.trouble.take() {
            let lasted = self.clock.now().saturating_since(since);
            self.telemetry.emit(TroubleEnded { sink: &self.sink, lasted });
        }
    }
}

impl SinkMonitor for Trouble {
    fn status(&self) -> SinkStatus {
        let trouble = self.state.lock().trouble.clone();
        SinkStatus { trouble, ..SinkStatus::silent(Arc::clone(&self.sink)) }
    }
}

impl Drop for Trouble {
    fn drop(&mut self) {
        self.telemetry.emit(Ended { sink: &self.sink });
    }
}
