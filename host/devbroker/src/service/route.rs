//! Routes and assignments.

use tidegate_proto::rocketmq as wire;
use tidegate_proto::rocketmq::Code;

use super::answer::{Answer, ok, status};
use super::call::{Call, name};
use crate::faults::Effect;
use crate::hub::Availability;
use crate::journal;
use crate::options::{Topic, TopicKind, Topology};
use crate::store::DEAD_LETTER_PREFIX;

impl Call<'_> {
    /// QueryRoute: where a topic's queues are, by the host name the client used to get here.
    pub(super) fn query_route(&self, request: &wire::QueryRouteRequest) -> wire::QueryRouteResponse {
        let topic = name(request.topic.as_ref());
        self.keep(|| journal::Call::QueryRoute { topic: topic.to_owned() });
        if let Err(refusal) = self.authorize(Some(topic), None) {
            return wire::QueryRouteResponse::refused(refusal);
        }
        match self.route(topic, request.endpoints.as_ref()) {
            Ok(message_queues) => wire::QueryRouteResponse { status: Some(ok()), message_queues },
            Err(refusal) => wire::QueryRouteResponse::refused(refusal),
        }
    }

    /// QueryAssignment: every readable queue.
    pub(super) fn query_assignment(
        &self,
        request: &wire::QueryAssignmentRequest,
    ) -> wire::QueryAssignmentResponse {
        let (topic, group) = (name(request.topic.as_ref()), name(request.group.as_ref()));
        self.keep(|| journal::Call::QueryAssignment { topic: topic.to_owned(), group: group.to_owned() });
        let route = self
            .authorize(Some(topic), Some(group))
            .and_then(|()| self.route(topic, request.endpoints.as_ref()));
        match route {
            Ok(queues) => {
                let assignments =
                    queues.into_iter().map(|queue| wire::Assignment { message_queue: Some(queue) });
                wire::QueryAssignmentResponse { status: Some(ok()), assignments: assignments.collect() }
            }
            Err(refusal) => wire::QueryAssignmentResponse::refused(refusal),
        }
    }

    /// The topic, unless it is unknown or the proxy believes so for a while after a broker restart.
    pub(super) fn topic(&self, name: &str) -> Result<Topic, wire::Status> {
        let now = self.hub.clock.now();
        let unknown =
            self.hub.cells_of(self.proxy).all(|cell| cell.availability(now) == Availability::Unknown);
        let topic = self.hub.catalog.topic(name).map(|topic| (*topic).clone());
        let topic = topic.or_else(|| self.dead_letter_topic(name));
        topic.filter(|_| !unknown).ok_or_else(|| unknown_topic(name))
    }

    /// A dead-letter topic exists from the first dead letter on.
    fn dead_letter_topic(&self, name: &str) -> Option<Topic> {
        let exists = name.starts_with(DEAD_LETTER_PREFIX)
            && self.hub.cells.iter().any(|cell| cell.run(&self.hub.clock, |store, _| store.has_topic(name)));
        exists.then(|| Topic { queues: 1, ..Topic::new(name, TopicKind::Normal) })
    }

    fn route(
        &self,
        topic_name: &str,
        asked: Option<&wire::Endpoints>,
    ) -> Result<Vec<wire::MessageQueue>, wire::Status> {
        let topic = self.topic(topic_name)?;
        let accepts = match self.fault {
            Some(Effect::UnknownKinds) => wire::MessageType::Unspecified,
            _ => message_type(topic.kind),
        };
        let now = self.hub.clock.now();
        let mut queues = Vec::new();
        for (at, cell) in self.hub.cells.iter().enumerate() {
            if cell.availability(now) == Availability::Unknown {
                continue;
            }
            let endpoints = match self.hub.topology {
                Topology::Cluster => self.own_endpoints(asked),
                Topology::Local => endpoints(asked, self.hub.proxies[at].address()),
            };
            for id in 0..topic.queues.max(1) {
                queues.push(wire::MessageQueue {
                    topic: Some(wire::Resource {
                        resource_namespace: String::new(),
                        name: topic_name.to_owned(),
                    }),
                    id: i32::try_from(id).unwrap_or(i32::MAX),
                    permission: wire::Permission::ReadWrite.into(),
                    broker: Some(wire::Broker {
                        name: cell.name().to_string(),
                        id: 0,
                        endpoints: Some(endpoints.clone()),
                    }),
                    accept_message_types: vec![accepts.into()],
                });
            }
        }
        Ok(queues)
    }

    /// Where the proxy says every broker is: behind the addresses that the client used. It cannot know the ports of the
    /// others, so a port that is none of a proxy's is its own, as in the real proxy's cluster mode.
    fn own_endpoints(&self, asked: Option<&wire::Endpoints>) -> wire::Endpoints {
        let own = self.hub.proxies[self.proxy].address();
        let mut endpoints = endpoints(asked, own);
        let Some(asked) = asked.filter(|asked| asked.addresses.len() > 1) else { return endpoints };
        let is_ours = |port| self.hub.proxies.iter().any(|proxy| i32::from(proxy.address().port()) == port);
        endpoints.addresses.clone_from(&asked.addresses);
        for address in &mut endpoints.addresses {
            if !is_ours(address.port) {
                address.port = i32::from(own.port());
            }
        }
        endpoints
    }
}

/// What the proxy says of a topic its name server does not know.
pub(super) fn unknown_topic(name: &str) -> wire::Status {
    let text = format!(
        "CODE: 17  DESC: No topic route info in name server for the topic: {name}\n\
         For more information, please visit the url, https://rocketmq.apache.org/docs/bestPractice/06FAQ"
    );
    status(Code::TopicNotFound, text)
}

/// The wire's name of what a topic takes.
pub(super) fn message_type(kind: TopicKind) -> wire::MessageType {
    match kind {
        TopicKind::Normal => wire::MessageType::Normal,
        TopicKind::Fifo => wire::MessageType::Fifo,
        TopicKind::Delay => wire::MessageType::Delay,
        TopicKind::Lite => wire::MessageType::Lite,
    }
}

/// The host of the request with a proxy's port.
fn endpoints(asked: Option<&wire::Endpoints>, address: std::net::SocketAddr) -> wire::Endpoints {
    let host = asked.and_then(|endpoints| endpoints.addresses.first()).map(|address| address.host.clone());
    let own_scheme =
        if address.is_ipv4() { wire::AddressScheme::IPv4 } else { wire::AddressScheme::IPv6 }.into();
    let (scheme, host) = match (asked, host) {
        (Some(asked), Some(host)) if !host.is_empty() => (asked.scheme, host),
        _ => (own_scheme, address.ip().to_string()),
    };
    let port = i32::from(address.port());
    wire::Endpoints { scheme, addresses: vec![wire::Address { host, port }] }
}
