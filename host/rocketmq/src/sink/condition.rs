//! Whether a sink can send now, for people who look in.

use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_connector::{SinkMonitor, SinkStatus, SinkTrouble};
use tidegate_model::Instant;

/// Shared by a sink at work and whoever looks in.
#[derive(Debug)]
pub(super) struct Condition {
    name: Arc<str>,
    trouble: Mutex<Option<SinkTrouble>>,
}

impl Condition {
    pub(super) fn new(name: Arc<str>) -> Self {
        Self { name, trouble: Mutex::default() }
    }

    /// Nothing can be sent, the last failure being this.
    pub(super) fn fails(&self, now: Instant, detail: &str) {
        let mut trouble = self.trouble.lock();
        let since = trouble.as_ref().map_or(now, |trouble| trouble.since);
        *trouble = Some(SinkTrouble { since, detail: detail.into() });
    }

    /// It sends again.
    pub(super) fn works(&self) {
        *self.trouble.lock() = None;
    }
}

impl SinkMonitor for Condition {
    fn status(&self) -> SinkStatus {
        let trouble = self.trouble.lock().clone();
        SinkStatus { trouble, ..SinkStatus::silent(Arc::clone(&self.name)) }
    }
}
