//! A client that only settles: it makes itself known, so that leases may be changed, and asks for nothing.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_model::Instant;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::core::Core;
use crate::endpoints::Endpoints;
use crate::fault::CallError;
use crate::link::LinkError;
use crate::plan::CallKind;
use crate::profile::{Profile, Subscription};
use crate::session::Role;
use crate::sessions::{Seat, Sessions};
use crate::settler::{CALLS_IN_FLIGHT_MAX, SettlingClient};

/// Calls of one client at the same time, whoever makes them: two whole batches.
const CALLS_MAX: usize = 2 * CALLS_IN_FLIGHT_MAX;
/// An endpoint that could not be reached is left alone for so long: what waits for its turn fails at once, instead of
/// each after its own tries.
const REST: Duration = Duration::from_secs(1);
/// What the Settings name as the longest wait of receives that are never made: the server's own default.
const AWAIT: Duration = Duration::from_secs(20);

/// One settle-only client with one session.
#[derive(Debug)]
pub(super) struct Client {
    core: Arc<Core>,
    sessions: Arc<Sessions>,
    seat: Arc<Seat>,
    calls: Semaphore,
    resting: Mutex<Option<(Instant, CallError)>>,
}

impl Client {
    /// A client of the group and topic that the core's subject names.
    pub(super) fn start(core: Core, endpoints: &Endpoints, is_lite: bool) -> Result<Option<Self>, LinkError> {
        let core = Arc::new(core);
        let name = |name: &Option<Arc<str>>| name.clone().unwrap_or_default();
        let subscription = Subscription {
            topic: name(&core.subject.topic),
            group: name(&core.subject.group),
            await_duration: AWAIT,
        };
        let role = if is_lite { Role::LiteSettler } else { Role::SimpleConsumer };
        let sessions = Arc::new(Sessions::new(Arc::clone(&core), Profile::consumer(role, subscription)));
        let seat = sessions.ensure(endpoints)?;
        Ok(seat.map(|seat| Self {
            core,
            sessions,
            seat,
            calls: Semaphore::new(CALLS_MAX),
            resting: Mutex::default(),
        }))
    }

    pub(super) fn name(&self) -> Arc<str> {
        Arc::clone(&self.core.name)
    }

    /// Takes leave of the proxy and waits for the session's task.
    pub(super) async fn close(&self) {
        self.sessions.close().await;
    }

    fn rests(&self) -> Option<CallError> {
        let now = self.core.clock.now();
        self.resting.lock().as_ref().filter(|(until, _)| now < *until).map(|(_, error)| error.clone())
    }
}

impl SettlingClient for Client {
    fn core(&self) -> &Core {
        &self.core
    }

    /// The one there is, even when the user sends it elsewhere than the receipt says.
    fn seat(&self, _endpoint: &str) -> Option<Arc<Seat>> {
        Some(Arc::clone(&self.seat))
    }

    async fn ready(&self, seat: &Seat, patience: Duration) -> bool {
        self.sessions.ready(seat, patience).await
    }

    /// An acknowledgement needs no Settings, everything else does (measured).
    async fn begin(&self, seat: &Seat, kind: CallKind) -> Result<Option<SemaphorePermit<'_>>, CallError> {
        // Nobody closes it.
        let turn = self.calls.acquire().await.ok();
        if let Some(error) = self.rests() {
            return Err(error);
        }
        if kind != CallKind::Ack && !seat.view().ready {
            // When it does not become ready, the call's own answer says why.
            self.sessions.ready(seat, self.core.request_timeout).await;
        }
        Ok(turn)
    }

    fn handle_failed(&self, error: &CallError) {
        if error.reason().is_about_the_road() {
            *self.resting.lock() = Some((self.core.clock.now() + REST, error.clone()));
        }
    }
}
