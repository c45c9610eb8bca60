//! A development broker, and tenants that send to it.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use tidegate_connector::Clock;
use tidegate_devbroker::{Broker, Group, Options, Topic, TopicKind, User};
use tidegate_rocketmq::{ClientOptions, Endpoints, Outgoing, Producer};
use tidegate_telemetry::Telemetry;

/// The main topic of all tests.
pub const TOPIC: &str = "LiteMainTopic";
/// The consumer group of all tests.
pub const GROUP: &str = "GID-lite";

/// Starts a development broker on a free port, with the topic and a wildcard group.
pub async fn start_broker() -> Broker {
    start_broker_at(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await
}

/// The same at an address that is free.
pub async fn start_broker_at(address: SocketAddr) -> Broker {
    start(Options { groups: vec![group(GROUP)], ..Options::new(address) }).await
}

/// A broker on a free port that gives a message up after so many deliveries.
pub async fn start_impatient_broker(attempts_max: u32) -> Broker {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let groups = vec![group(GROUP).with_attempts_max(attempts_max)];
    start(Options { groups, ..Options::new(address) }).await
}

/// A broker on a free port that lets in nobody but these, with the topic and these wildcard groups.
pub async fn start_guarded_broker(users: Vec<User>, groups: impl Iterator<Item = String>) -> Broker {
    let groups = groups.map(|name| group(&name)).collect();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    start(Options { groups, users, ..Options::new(address) }).await
}

/// A user that may do everything.
#[must_use]
pub fn admin(access_key: &str, secret_key: &str) -> User {
    User {
        access_key: access_key.to_owned(),
        secret_key: secret_key.to_owned(),
        is_admin: true,
        topics: Vec::new(),
        groups: Vec::new(),
    }
}

async fn start(options: Options) -> Broker {
    let topics = vec![Topic::new(TOPIC, TopicKind::Lite)];
    Broker::start(Options { topics, ..options }).await.expect("the broker starts")
}

fn group(name: &str) -> Group {
    Group { events_max: 5_000, ..Group::lite(name, TOPIC) }
}

/// Whoever sends.
#[derive(Clone)]
pub struct Tenants(Producer);

impl Tenants {
    /// Tenants of a broker.
    pub async fn of(broker: &Broker) -> Self {
        let endpoints = Endpoints::parse(&broker.address().to_string()).expect("an address");
        let options = ClientOptions::new(endpoints);
        let producer = Producer::connect(options, Clock::start(), Telemetry::default(), Arc::from("tests"));
        Self(producer.await.expect("a producer"))
    }

    /// Sends one message to a lite topic.
    pub async fn send(&self, lite_topic: &str, body: &str) {
        let message = Outgoing::lite(TOPIC, lite_topic, body.to_owned());
        self.0.send(message).await.expect("sent");
    }

    /// Sends many messages, each to its lite topic.
    pub async fn send_all(&self, messages: impl IntoIterator<Item = (String, String)>) {
        /// Messages of one batch: enough to be quick, few enough to be no burst.
        const BATCH: usize = 1_000;
        let mut messages = messages.into_iter().peekable();
        while messages.peek().is_some() {
            let batch = messages.by_ref().take(BATCH);
            let batch = batch.map(|(lite_topic, body)| Outgoing::lite(TOPIC, lite_topic, body)).collect();
            for sent in self.0.send_batch(batch).await {
                sent.expect("sent");
            }
        }
    }

    /// Takes leave of the broker.
    pub async fn close(self) {
        self.0.close().await;
    }
}

impl std::fmt::Debug for Tenants {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tenants")
    }
}
