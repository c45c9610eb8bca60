//! What settling needs of a client, whether it takes part in consumption or only settles.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::SemaphorePermit;

use crate::consumer::Consumer;
use crate::core::Core;
use crate::fault::CallError;
use crate::plan::CallKind;
use crate::sessions::Seat;

/// A client that can settle.
pub(crate) trait SettlingClient: Send + Sync {
    fn core(&self) -> &Core;

    /// The session through which deliveries from an endpoint are settled; `None` when the endpoint is none.
    fn seat(&self, endpoint: &str) -> Option<Arc<Seat>>;

    /// Waits until the session of a seat is ready, at most `patience`.
    fn ready(&self, seat: &Seat, patience: Duration) -> impl Future<Output = bool> + Send;

    /// Waits for a call's turn, which lasts as long as the permit.
    ///
    /// # Errors
    /// When the call would be in vain.
    fn begin(
        &self,
        _seat: &Seat,
        _kind: CallKind,
    ) -> impl Future<Output = Result<Option<SemaphorePermit<'_>>, CallError>> + Send {
        async { Ok(None) }
    }

    /// A call failed, and all its tries.
    fn handle_failed(&self, _error: &CallError) {}

    /// A lite topic is deferred.
    fn handle_deferred(&self, _lite_topic: &Arc<str>) {}
}

impl SettlingClient for Consumer {
    fn core(&self) -> &Core {
        &self.core
    }

    fn seat(&self, endpoint: &str) -> Option<Arc<Seat>> {
        self.settling_seat(endpoint)
    }

    fn ready(&self, seat: &Seat, patience: Duration) -> impl Future<Output = bool> + Send {
        Self::ready(self, seat, patience)
    }

    fn handle_deferred(&self, lite_topic: &Arc<str>) {
        self.health.lock().handle_deferred(lite_topic);
    }
}
