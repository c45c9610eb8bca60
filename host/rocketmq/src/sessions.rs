//! The sessions of one client: one task per endpoint of its routes, each owning one [`Session`].

mod task;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tidegate_model::Instant;
use tokio::sync::{mpsc, watch};
use tokio::time;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::core::Core;
use crate::endpoints::Endpoints;
use crate::fault::CallError;
use crate::link::LinkError;
use crate::peer::Peer;
use crate::profile::Profile;

/// Notes to one session that may wait; more say nothing new.
const NOTES_MAX: usize = 32;
/// Most endpoints of one client. A route has one per proxy; settlements of other hosts' deliveries may add some.
const SESSIONS_MAX: usize = 256;

/// One client's sessions.
#[derive(Debug)]
pub(crate) struct Sessions {
    core: Arc<Core>,
    profile: Arc<Profile>,
    table: ArcSwap<HashMap<Arc<str>, Arc<Seat>>>,
    /// Serialises changes of the table.
    changing: Mutex<()>,
    changes: watch::Sender<u64>,
    /// Whether the client receives; otherwise it is not subscribed either.
    receiving: watch::Sender<bool>,
    tasks: TaskTracker,
    closing: CancellationToken,
}

/// One session from outside its task.
#[derive(Debug)]
pub(crate) struct Seat {
    pub(crate) peer: Arc<Peer>,
    view: ArcSwap<View>,
    notes: mpsc::Sender<Note>,
    closing: CancellationToken,
}

/// A session as it was after its last step.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) ready: bool,
    pub(crate) subscribed: bool,
    pub(crate) problem: Option<CallError>,
    /// From the server's Settings.
    pub(crate) attempts_max: Option<i32>,
    pub(crate) body_bytes_max: Option<usize>,
    /// When the server last answered a heartbeat with OK.
    pub(crate) heard_at: Option<Instant>,
}

/// What others tell a session.
#[derive(Debug)]
pub(crate) enum Note {
    CallFailed(CallError),
    RouteChanged,
    Idle,
    PublishesMore,
}

impl Sessions {
    pub(crate) fn new(core: Arc<Core>, profile: Profile) -> Self {
        Self {
            core,
            profile: Arc::new(profile),
            table: ArcSwap::default(),
            changing: Mutex::new(()),
            changes: watch::Sender::new(0),
            receiving: watch::Sender::new(true),
            tasks: TaskTracker::new(),
            closing: CancellationToken::new(),
        }
    }

    pub(crate) fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Tells of changes of any session. Subscribe before looking.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Makes waiting callers look again.
    pub(crate) fn touch(&self) {
        self.changes.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Whether the client receives from now on, over these sessions and those to come.
    pub(crate) fn set_receiving(&self, receiving: bool) {
        self.receiving.send_replace(receiving);
    }

    pub(crate) fn is_receiving(&self) -> bool {
        *self.receiving.borrow()
    }

    pub(crate) fn is_ready(&self, endpoints: &Endpoints) -> bool {
        self.table.load().get(endpoints.text()).is_some_and(|seat| seat.view.load().ready)
    }

    pub(crate) fn get(&self, endpoint: &str) -> Option<Arc<Seat>> {
        self.table.load().get(endpoint).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Seat>> {
        self.table.load().values().cloned().collect()
    }

    /// Starts sessions with the endpoints of a route, ends those with endpoints that left it, and tells the others.
    pub(crate) fn follow(self: &Arc<Self>, endpoints: &[Endpoints]) -> Result<(), LinkError> {
        let _changing = self.changing.lock();
        let mut table = HashMap::clone(&self.table.load());
        table.retain(|text, seat| {
            let stays = endpoints.iter().any(|endpoints| endpoints.text() == text);
            if stays {
                seat.note(Note::RouteChanged);
            } else {
                seat.closing.cancel();
            }
            stays
        });
        for endpoints in endpoints {
            self.add(&mut table, endpoints)?;
        }
        self.table.store(Arc::new(table));
        Ok(())
    }

    /// The session with an endpoint, started if there is none.
    pub(crate) fn ensure(self: &Arc<Self>, endpoints: &Endpoints) -> Result<Option<Arc<Seat>>, LinkError> {
        if let Some(seat) = self.get(endpoints.text()) {
            return Ok(Some(seat));
        }
        let _changing = self.changing.lock();
        let mut table = HashMap::clone(&self.table.load());
        self.add(&mut table, endpoints)?;
        let seat = table.get(endpoints.text()).cloned();
        self.table.store(Arc::new(table));
        Ok(seat)
    }

    /// Waits until the session with an endpoint is ready, at most `patience`.
    pub(crate) async fn ready(&self, seat: &Seat, patience: Duration) -> bool {
        let mut changes = self.changes();
        let waiting = async {
            while !seat.view.load().ready {
                if changes.changed().await.is_err() {
                    return false;
                }
            }
            true
        };
        time::timeout(patience, waiting).await.unwrap_or(false)
    }

    /// Takes leave of every proxy, and waits for the tasks to end.
    pub(crate) async fn close(&self) {
        self.closing.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        self.touch();
    }

    fn add(
        self: &Arc<Self>,
        table: &mut HashMap<Arc<str>, Arc<Seat>>,
        endpoints: &Endpoints,
    ) -> Result<(), LinkError> {
        if table.contains_key(endpoints.text()) || table.len() >= SESSIONS_MAX || self.closing.is_cancelled()
        {
            return Ok(());
        }
        let (notes, inbox) = mpsc::channel(NOTES_MAX);
        let seat = Arc::new(Seat {
            peer: Arc::new(self.core.peer(endpoints)?),
            view: ArcSwap::from_pointee(View::before_the_first_step()),
            notes,
            closing: self.closing.child_token(),
        });
        table.insert(Arc::clone(endpoints.text()), Arc::clone(&seat));
        let (core, profile) = (Arc::clone(&self.core), Arc::clone(&self.profile));
        let receiving = self.receiving.subscribe();
        self.tasks.spawn(task::run(core, profile, seat, inbox, receiving, self.changes.clone()));
        Ok(())
    }
}

/// Dropping the sessions without closing them still ends their tasks.
impl Drop for Sessions {
    fn drop(&mut self) {
        self.closing.cancel();
    }
}

impl Seat {
    pub(crate) fn view(&self) -> Arc<View> {
        self.view.load_full()
    }

    /// Tells the session something. When it is behind, it has been told enough.
    pub(crate) fn note(&self, note: Note) {
        let _ = self.notes.try_send(note);
    }
}

impl View {
    const fn before_the_first_step() -> Self {
        Self {
            ready: false,
            subscribed: false,
            problem: None,
            attempts_max: None,
            body_bytes_max: None,
            heard_at: None,
        }
    }
}
