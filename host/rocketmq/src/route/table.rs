//! From a route as answered to the queues that are worth asking.

use std::sync::Arc;

use tidegate_model::Routing;
use tidegate_proto::rocketmq as proto;

use crate::endpoints::Endpoints;

/// The broker id of a master.
const MASTER: i32 = 0;
/// Most queues of a route that are looked at.
const QUEUES_MAX: usize = 16_384;

/// One broker's queue.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Queue {
    /// The broker's name.
    pub(crate) broker: Arc<str>,
    /// Where it is reached.
    pub(crate) endpoints: Endpoints,
    /// What its deliveries' handles are settled by.
    pub(crate) routing: Arc<Routing>,
    /// As the server wants it back.
    pub(crate) message_queue: proto::MessageQueue,
}

impl Queue {
    /// Whether it takes messages of a kind. A server that lists no kinds takes all; one that names the kind of none does
    /// not know the topic yet, which passes: after a broker's restart a proxy says so for seconds (measured).
    pub(crate) fn accepts(&self, kind: proto::MessageType) -> bool {
        let accepted = &self.message_queue.accept_message_types;
        let has = |kind: proto::MessageType| accepted.contains(&i32::from(kind));
        accepted.is_empty() || has(kind) || has(proto::MessageType::Unspecified)
    }
}

/// The queues of masters with the permission that `may` asks for, in the order of the route.
pub(crate) fn queues_of(
    queues: Vec<proto::MessageQueue>,
    may: fn(proto::Permission) -> bool,
    routing: impl Fn(&Endpoints) -> Arc<Routing>,
) -> Vec<Queue> {
    let queues = queues.into_iter().take(QUEUES_MAX);
    queues.filter(|queue| may(queue.permission())).filter_map(|queue| of(queue, &routing)).collect()
}

/// One readable queue per master, by name, and every endpoint behind which a readable broker is.
pub(super) fn readable_masters(
    queues: Vec<proto::MessageQueue>,
    routing: impl Fn(&Endpoints) -> Arc<Routing>,
) -> (Vec<Queue>, Vec<Endpoints>) {
    let readable = |permission| matches!(permission, proto::Permission::Read | proto::Permission::ReadWrite);
    let mut masters: Vec<Queue> = Vec::new();
    for queue in queues_of(queues, readable, routing) {
        if !masters.iter().any(|known| known.broker == queue.broker) {
            masters.push(queue);
        }
    }
    masters.sort_by(|a, b| a.broker.cmp(&b.broker));
    let mut endpoints: Vec<Endpoints> = masters.iter().map(|queue| queue.endpoints.clone()).collect();
    endpoints.sort_by(|a, b| a.text().cmp(b.text()));
    endpoints.dedup();
    (masters, endpoints)
}

fn of(message_queue: proto::MessageQueue, routing: impl Fn(&Endpoints) -> Arc<Routing>) -> Option<Queue> {
    let broker = message_queue.broker.as_ref().filter(|broker| broker.id == MASTER)?;
    let endpoints = Endpoints::from_proto(broker.endpoints.as_ref()?)?;
    let name = Arc::from(broker.name.as_str());
    Some(Queue { broker: name, routing: routing(&endpoints), endpoints, message_queue })
}
