//! A running consumer: one client id, its route, its sessions, and what is known about how it is doing.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_model::{Instant, Routing};
use tidegate_proto::rocketmq as proto;
use tidegate_telemetry::events::rocketmq as events;
use tokio::time;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::core::{Core, SetupError};
use crate::endpoints::Endpoints;
use crate::fault::CallError;
use crate::health::{Health, Wildcard};
use crate::options::{SourceOptions, TopicKind};
use crate::peer::Peer;
use crate::profile::{Profile, Subscription};
use crate::route::{Ended, Next, Queue, Route};
use crate::session::Role;
use crate::sessions::{Note, Seat, Sessions};

/// A lite topic that nobody uses: a wildcard group refuses to add it, others add it and let it be taken away again.
pub(crate) const PROBE_LITE_TOPIC: &str = "tidegate-wildcard-probe";
/// What 5.5.0 answers when a single lite topic is added to a wildcard group.
const NOT_SUPPORTED: &str = "subscribe lite operation is not supported";
/// How often the route's task looks around when nothing else wakes it, and how often at most.
const ROUND_MAX: Duration = Duration::from_secs(5);
const ROUND_MIN: Duration = Duration::from_millis(100);

/// A running consumer.
#[derive(Debug)]
pub(crate) struct Consumer {
    pub(crate) core: Arc<Core>,
    pub(crate) options: SourceOptions,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) route: Mutex<Route>,
    pub(crate) health: Mutex<Health>,
    pub(crate) closing: CancellationToken,
    /// Sessions with endpoints that are not of our route, for settling alone.
    strangers: Arc<Sessions>,
    access_point: Peer,
    tasks: TaskTracker,
}

impl Consumer {
    /// Starts a consumer; it finds the cluster by itself, however long that takes.
    pub(crate) fn start(core: Core, options: SourceOptions) -> Result<Arc<Self>, SetupError> {
        let core = Arc::new(core);
        let subscription = Subscription {
            topic: Arc::clone(&options.topic),
            group: Arc::clone(&options.group),
            await_duration: options.await_duration,
        };
        let profile = Profile::consumer(role_of(options.topic_kind), subscription.clone());
        let settling =
            if options.topic_kind == TopicKind::Lite { Role::LiteSettler } else { Role::SimpleConsumer };
        let strangers = Sessions::new(Arc::clone(&core), Profile::consumer(settling, subscription));
        let consumer = Arc::new(Self {
            access_point: core.access_point()?,
            sessions: Arc::new(Sessions::new(Arc::clone(&core), profile)),
            route: Mutex::new(Route::new(core.clock.now(), core.seed())),
            health: Mutex::new(Health::new(Arc::clone(&options.topic), Arc::clone(&options.group))),
            closing: CancellationToken::new(),
            strangers: Arc::new(strangers),
            tasks: TaskTracker::new(),
            options,
            core,
        });
        consumer.tasks.spawn(Arc::clone(&consumer).keep_route());
        Ok(consumer)
    }

    /// Takes leave of the cluster and waits for every task.
    pub(crate) async fn close(&self) {
        self.closing.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        tokio::join!(self.sessions.close(), self.strangers.close());
    }

    /// Whom to receive from now; waits at most `patience` for somebody. `None` when the consumer is closing.
    pub(crate) async fn next_queue(
        &self,
        patience: Duration,
    ) -> Result<Option<Arc<Queue>>, Option<CallError>> {
        let mut changes = self.sessions.changes();
        let deadline = self.core.clock.now() + patience;
        loop {
            if self.closing.is_cancelled() {
                return Ok(None);
            }
            changes.borrow_and_update();
            let now = self.core.clock.now();
            let next = self.route.lock().begin(now, |endpoints| self.sessions.is_ready(endpoints));
            let until = match next {
                Next::Ask(queue) => return Ok(Some(queue)),
                Next::Wait(until) => until.min(deadline),
                Next::Nobody => deadline,
            };
            if now >= deadline {
                return Err(self.problem());
            }
            tokio::select! {
                () = self.closing.cancelled() => return Ok(None),
                // The sessions live as long as the consumer.
                _ = changes.changed() => {}
                () = time::sleep_until(self.core.clock.deadline(until)) => {}
            }
        }
    }

    /// A receive that [`next_queue`](Self::next_queue) began has ended.
    pub(crate) fn end_receive(&self, broker: &str, ended: Ended) {
        let now = self.core.clock.now();
        self.route.lock().end(now, broker, ended);
    }

    /// Why nothing can be received now, as far as that is known.
    pub(crate) fn problem(&self) -> Option<CallError> {
        let sessions = self.sessions.all();
        let of_session = sessions.iter().find_map(|seat| seat.view().problem.clone());
        of_session.or_else(|| self.route.lock().problem().cloned())
    }

    /// The session with an endpoint of the route.
    pub(crate) fn seat(&self, endpoint: &str) -> Option<Arc<Seat>> {
        self.sessions.get(endpoint)
    }

    /// The session with an endpoint that a handle names. One that is not of our route (a delivery that another host
    /// received, or from before the route changed) gets a session that never subscribes.
    pub(crate) fn settling_seat(&self, endpoint: &str) -> Option<Arc<Seat>> {
        if let Some(seat) = self.sessions.get(endpoint).or_else(|| self.strangers.get(endpoint)) {
            return Some(seat);
        }
        let endpoints = Endpoints::parse(endpoint).ok()?;
        self.strangers.ensure(&endpoints).ok().flatten()
    }

    /// Waits until the session of a seat is ready, at most `patience`.
    pub(crate) async fn ready(&self, seat: &Seat, patience: Duration) -> bool {
        let (ours, strangers) = (self.sessions.ready(seat, patience), self.strangers.ready(seat, patience));
        tokio::select! {
            ready = ours => ready,
            ready = strangers => ready,
        }
    }

    pub(crate) const fn is_lite(&self) -> bool {
        matches!(self.options.topic_kind, TopicKind::Lite)
    }

    /// Asks for the route by its timers, and for the wildcard attribute when nothing comes.
    async fn keep_route(self: Arc<Self>) {
        while !self.closing.is_cancelled() {
            let now = self.core.clock.now();
            let is_due = self.route.lock().begin_query(now);
            if is_due {
                self.refresh_route().await;
            }
            if self.is_lite() {
                self.look_at_subscription(now).await;
            }
            let query_due = self.route.lock().query_due();
            let health_due = self.health.lock().poll_timeout();
            let now = self.core.clock.now();
            let due = [query_due, health_due].into_iter().flatten().fold(now + ROUND_MAX, Instant::min);
            let wake = due.max(now + ROUND_MIN);
            tokio::select! {
                () = self.closing.cancelled() => {}
                () = time::sleep_until(self.core.clock.deadline(wake)) => {}
            }
        }
    }

    async fn refresh_route(&self) {
        let topic = self.core.resource(&self.options.topic);
        let asking = self.access_point.query_route(topic, &self.core.endpoints);
        let result = tokio::select! {
            () = self.closing.cancelled() => return,
            result = asking => result,
        };
        let routing = |endpoints: &Endpoints| {
            Arc::new(Routing {
                endpoint: Arc::clone(endpoints.text()),
                namespace: Arc::clone(&self.core.namespace),
                group: Arc::clone(&self.options.group),
            })
        };
        let now = self.core.clock.now();
        let change = self.route.lock().handle_queues(now, result, routing);
        if let Some(change) = change {
            self.core.telemetry.emit(events::RouteChanged {
                name: Arc::clone(&self.core.name),
                topic: Arc::clone(&self.options.topic),
                brokers: change.brokers,
                endpoints: change.endpoints.len(),
            });
            // Endpoints of a route are host and port: they make an address.
            let _ = self.sessions.follow(&change.endpoints);
        }
        self.sessions.touch();
    }

    async fn look_at_subscription(&self, now: Instant) {
        let subscribed = self.sessions.all().into_iter().find(|seat| seat.view().subscribed);
        let Some(seat) = subscribed else { return };
        let (probe, refresh) = {
            let mut health = self.health.lock();
            health.handle_subscribed(now);
            (health.begin_probe(now), health.begin_refresh(now))
        };
        if refresh {
            self.sessions.all().iter().for_each(|seat| seat.note(Note::Idle));
        }
        if probe {
            let wildcard = probe_wildcard(&seat.peer, &self.core, self.sessions.profile()).await;
            self.health.lock().handle_probed(wildcard);
        }
    }
}

/// Finds out whether the group has the wildcard attribute: such a group refuses to add a single lite topic.
pub(crate) async fn probe_wildcard(peer: &Peer, core: &Core, profile: &Profile) -> Wildcard {
    let lite_topics = || vec![PROBE_LITE_TOPIC.to_owned()];
    let add = profile.sync(core, proto::LiteSubscriptionAction::PartialAdd, lite_topics());
    match peer.sync(add).await {
        Ok(()) => {
            let remove = profile.sync(core, proto::LiteSubscriptionAction::PartialRemove, lite_topics());
            // A lite topic that nobody sends to does no harm if it stays.
            let _ = peer.sync(remove).await;
            Wildcard::Missing
        }
        Err(error) if error.to_string().contains(NOT_SUPPORTED) => Wildcard::Present,
        Err(_) => Wildcard::Unknown,
    }
}

pub(crate) const fn role_of(kind: TopicKind) -> Role {
    match kind {
        TopicKind::Lite => Role::LiteConsumer,
        TopicKind::Normal | TopicKind::Fifo | TopicKind::Delay => Role::SimpleConsumer,
    }
}
