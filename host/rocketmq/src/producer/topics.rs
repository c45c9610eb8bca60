//! Routes of the topics that a producer sends to, and endpoints that are better left alone.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_model::{Instant, Routing};
use tidegate_proto::rocketmq as proto;
use tokio::time;

use crate::core::Core;
use crate::endpoints::Endpoints;
use crate::fault::{CallError, Reason};
use crate::peer::Peer;
use crate::route::{Queue, queues_of};
use crate::sessions::Sessions;

/// A route older than this is asked for again.
const REFRESH_INTERVAL: Duration = Duration::from_secs(30);
/// Most topics whose routes are remembered; above it the oldest is forgotten.
const TOPICS_MAX: usize = 1_024;
/// Waits of a producer that is told to slow down, or whose broker is down: as servers propose in their Settings,
/// from 10 ms doubling to 1 s, begun a little later.
const RETRY_WAIT_FIRST: Duration = Duration::from_millis(20);
const RETRY_WAIT_MAX: Duration = Duration::from_secs(1);

pub(super) struct Topics {
    access_point: Peer,
    routes: Mutex<HashMap<Arc<str>, Arc<TopicRoute>>>,
    isolated: Mutex<HashMap<Arc<str>, Instant>>,
}

#[derive(Default)]
struct TopicRoute {
    known: Mutex<Option<Known>>,
    /// Held while the route is asked for, so that one asks and the others wait for it.
    asking: tokio::sync::Mutex<()>,
}

#[derive(Clone)]
struct Known {
    queues: Arc<[Arc<Queue>]>,
    since: Instant,
    /// Found wrong: asked for again at the next use, whatever its age.
    stale: bool,
}

impl Topics {
    pub(super) fn new(access_point: Peer) -> Self {
        Self { access_point, routes: Mutex::default(), isolated: Mutex::default() }
    }

    /// The writable queues of a topic. A route that grew old outlives a failure to ask again.
    pub(super) async fn queues(&self, core: &Core, topic: &Arc<str>) -> Result<Arc<[Arc<Queue>]>, CallError> {
        let route = self.route(topic);
        let known = route.known.lock().clone();
        let now = core.clock.now();
        match known {
            Some(known) if !known.stale && now.saturating_since(known.since) < REFRESH_INTERVAL => {
                Ok(known.queues)
            }
            // Whoever comes first asks; the others go on with what is known.
            Some(known) => match route.asking.try_lock() {
                Ok(_asking) => Ok(self.ask(core, topic, &route).await.unwrap_or(known.queues)),
                Err(_) => Ok(known.queues),
            },
            None => {
                let _asking = route.asking.lock().await;
                let known = route.known.lock().clone();
                match known {
                    Some(known) => Ok(known.queues),
                    None => self.ask(core, topic, &route).await,
                }
            }
        }
    }

    /// Leaves an endpoint alone until it answers a heartbeat.
    pub(super) fn isolate(&self, endpoints: &Endpoints, core: &Core) {
        self.isolated.lock().insert(Arc::clone(endpoints.text()), core.clock.now());
    }

    pub(super) fn is_isolated(&self, endpoints: &Endpoints, sessions: &Sessions) -> bool {
        let mut isolated = self.isolated.lock();
        let Some(since) = isolated.get(endpoints.text()).copied() else { return false };
        let heard_at = sessions.get(endpoints.text()).and_then(|seat| seat.view().heard_at);
        let is_back = heard_at.is_some_and(|at| at > since);
        if is_back {
            isolated.remove(endpoints.text());
        }
        !is_back
    }

    /// The server does not know the topic where the route says it is: the route is asked for again next time.
    pub(super) fn distrust(&self, message: &proto::Message) {
        let name = message.topic.as_ref().map(|topic| topic.name.as_str()).unwrap_or_default();
        if let Some(route) = self.routes.lock().get(name)
            && let Some(known) = route.known.lock().as_mut()
        {
            known.stale = true;
        }
    }

    /// A lost connection is tried elsewhere at once; a server that is busy or down gets time.
    pub(super) async fn wait_before_retry(&self, error: &CallError, attempt: u32) {
        if matches!(error.reason(), Reason::Unreachable | Reason::TimedOut | Reason::NotDurable) {
            return;
        }
        let wait = RETRY_WAIT_FIRST.saturating_mul(1 << attempt.min(10)).min(RETRY_WAIT_MAX);
        time::sleep(wait).await;
    }

    fn route(&self, topic: &Arc<str>) -> Arc<TopicRoute> {
        let mut routes = self.routes.lock();
        if let Some(route) = routes.get(topic) {
            return Arc::clone(route);
        }
        if routes.len() >= TOPICS_MAX {
            let age =
                |route: &TopicRoute| route.known.lock().as_ref().map_or(Instant::ZERO, |known| known.since);
            let oldest =
                routes.iter().min_by_key(|(_, route)| age(route)).map(|(topic, _)| Arc::clone(topic));
            oldest.and_then(|topic| routes.remove(&topic));
        }
        let route = Arc::new(TopicRoute::default());
        routes.insert(Arc::clone(topic), Arc::clone(&route));
        route
    }

    async fn ask(
        &self,
        core: &Core,
        topic: &Arc<str>,
        route: &TopicRoute,
    ) -> Result<Arc<[Arc<Queue>]>, CallError> {
        let peer = &self.access_point;
        let peer = Peer {
            endpoints: peer.endpoints.clone(),
            subject: peer.subject.about(topic),
            link: Arc::clone(&peer.link),
            stamp: Arc::clone(&peer.stamp),
            request_timeout: peer.request_timeout,
        };
        let answered = peer.query_route(core.resource(topic), &core.endpoints).await?;
        let routing = |endpoints: &Endpoints| {
            let (endpoint, namespace) = (Arc::clone(endpoints.text()), Arc::clone(&core.namespace));
            Arc::new(Routing { endpoint, namespace, group: Arc::from("") })
        };
        let writable =
            |permission| matches!(permission, proto::Permission::Write | proto::Permission::ReadWrite);
        let mut queues = queues_of(answered, writable, routing);
        queues.sort_by(|a, b| (&a.broker, a.message_queue.id).cmp(&(&b.broker, b.message_queue.id)));
        let queues: Arc<[Arc<Queue>]> = queues.into_iter().map(Arc::new).collect();
        *route.known.lock() =
            Some(Known { queues: Arc::clone(&queues), since: core.clock.now(), stale: false });
        Ok(queues)
    }
}
