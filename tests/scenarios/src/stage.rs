//! What a scenario plays on: a broker, and clients with a test's patience.

mod consumer;
mod graveyard;
mod hands;
mod producer;
mod program;

use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
use tidegate_connector::Clock;
use tidegate_model::Delivery;
use tidegate_rocketmq::{ClientOptions, Endpoints, Fixed, Keys, SourceOptions, Start, TopicKind, check};
use tidegate_telemetry::Telemetry;
use tokio::time::{Instant, sleep};

pub(crate) use consumer::Consumer;
pub(crate) use graveyard::{Graveyard, ORIGIN};
pub(crate) use hands::{Hands, bodies_of, body};
pub(crate) use producer::Producer;
pub(crate) use program::{Program, Setup};

use crate::broker::{GroupKind, Login, Security};
use crate::stands::Taken;

/// The shortest lease that servers grant, and what consumers of scenarios ask for unless told otherwise.
pub(crate) const LEASE: Duration = Duration::from_secs(10);
/// The shortest poll that servers grant, so that a scenario can look at its deadlines.
pub(crate) const POLL: Duration = Duration::from_secs(5);
/// Longest wait for anything that a scenario expects: three leases, and the 15 s after which a new client is shown an
/// old backlog, on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// Between two questions to the broker.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(50);
/// Attempts of a group where the number does not matter: the servers' own default.
pub(crate) const ATTEMPTS_MAX: u32 = 17;

/// One scenario's broker, and names that are its own.
pub struct Stage {
    pub(crate) broker: Taken,
    name: &'static str,
    clock: Clock,
    telemetry: Telemetry,
}

/// A topic and a group that consumes it.
#[derive(Clone, Debug)]
pub(crate) struct Subscription {
    pub(crate) topic: String,
    pub(crate) group: String,
    pub(crate) kind: TopicKind,
}

/// A main topic and its wildcard group.
pub(crate) type Lite = Subscription;

impl Stage {
    /// The stage of the scenario `name` on `broker`.
    pub fn new(broker: Taken, name: &'static str) -> Self {
        Self { broker, name, clock: Clock::start(), telemetry: Telemetry::default() }
    }

    /// A main topic with a wildcard group, new.
    pub(crate) async fn lite(&self) -> Lite {
        self.lite_named("").await
    }

    /// Another one, for scenarios that need several.
    pub(crate) async fn lite_named(&self, name: &str) -> Lite {
        let lite = Lite {
            topic: self.own(&format!("{name}topic")),
            group: self.own(&format!("{name}group")),
            kind: TopicKind::Lite,
        };
        self.create(&lite, GroupKind::wildcard(&lite.topic), ATTEMPTS_MAX).await;
        lite
    }

    /// A topic of another kind with its group, new.
    pub(crate) async fn plain(&self, kind: TopicKind, group: GroupKind, attempts_max: u32) -> Subscription {
        self.subscription(kind, group, attempts_max).await
    }

    /// A topic and a group of any kinds, whether they fit or not.
    pub(crate) async fn subscription(
        &self,
        kind: TopicKind,
        group: GroupKind,
        attempts_max: u32,
    ) -> Subscription {
        let subscription = Subscription { topic: self.own("topic"), group: self.own("group"), kind };
        self.create(&subscription, group, attempts_max).await;
        subscription
    }

    async fn create(&self, subscription: &Subscription, group: GroupKind, attempts_max: u32) {
        self.broker.create_topic(&subscription.topic, subscription.kind).await;
        self.broker.create_group(&subscription.group, group, attempts_max).await;
    }

    /// A name that no other scenario uses.
    pub(crate) fn own(&self, part: &str) -> String {
        format!("{}-{part}", self.name)
    }

    /// Whoever asks the broker's endpoint without credentials or TLS.
    pub(crate) fn client(&self) -> ClientOptions {
        self.client_at(&self.broker.endpoint())
    }

    /// The same, signed by a user.
    pub(crate) fn signed(&self, login: &Login) -> ClientOptions {
        let keys = Keys::new(login.access_key.as_str(), SecretString::from(login.secret_key.clone()));
        ClientOptions { credentials: Arc::new(Fixed::new(keys)), ..self.client() }
    }

    /// The same at another address.
    pub(crate) fn client_at(&self, endpoint: &str) -> ClientOptions {
        ClientOptions::new(Endpoints::parse(endpoint).expect("an endpoint"))
    }

    /// Options of a consumer of `subscription` with short times.
    pub(crate) fn source(&self, subscription: &Subscription) -> SourceOptions {
        SourceOptions {
            topic_kind: subscription.kind,
            await_duration: POLL,
            invisible_duration: LEASE,
            start: Start::Within(PATIENCE),
            ..SourceOptions::new(self.client(), subscription.topic.as_str(), subscription.group.as_str())
        }
    }

    /// A connected consumer.
    pub(crate) async fn consumer(&self, subscription: &Subscription) -> Consumer {
        self.consumer_with(subscription, |_| {}).await
    }

    /// A connected consumer with other options.
    pub(crate) async fn consumer_with(
        &self,
        subscription: &Subscription,
        change: impl FnOnce(&mut SourceOptions),
    ) -> Consumer {
        let mut options = self.source(subscription);
        change(&mut options);
        Consumer::connect(options, self.clock, self.telemetry.clone(), self.name)
            .await
            .unwrap_or_else(|error| panic!("a consumer connects: {error}"))
    }

    /// A consumer of a group's dead letters. Waits for the first one: the broker makes the topic with it, and a proxy
    /// that is asked too early remembers the "no" for a while.
    pub(crate) async fn dead_letters(&self, subscription: &Subscription) -> Consumer {
        self.until("the broker gives a message up", || async {
            self.broker.dead_letters(&subscription.group).await > 0
        })
        .await;
        let dead = Subscription {
            topic: format!("%DLQ%{}", subscription.group),
            group: self.own("undertaker"),
            kind: TopicKind::Normal,
        };
        self.broker.create_group(&dead.group, GroupKind::Normal, ATTEMPTS_MAX).await;
        self.consumer(&dead).await
    }

    /// A dead-letter sink that publishes to a topic of its own, and who reads that topic.
    pub(crate) async fn graveyard(&self) -> (Graveyard, Subscription) {
        let graves =
            Subscription { topic: self.own("graves"), group: self.own("visitors"), kind: TopicKind::Normal };
        self.create(&graves, GroupKind::Normal, ATTEMPTS_MAX).await;
        (Graveyard { client: self.client(), topic: graves.topic.clone() }, graves)
    }

    /// Sends bodies `0`, `1`, … to one lite topic and waits until the broker has them in its queues, so that one
    /// receive gets them all.
    pub(crate) async fn send_numbered(
        &self,
        producer: &Producer,
        lite: &Lite,
        lite_topic: &str,
        count: usize,
    ) {
        for number in 0..count {
            producer.send_lite(&lite.topic, lite_topic, &number.to_string()).await;
        }
        self.all_queued(lite, count as u64).await;
    }

    /// Waits until the broker counts so many messages in its queues that nobody has acknowledged.
    pub(crate) async fn all_queued(&self, lite: &Lite, count: u64) {
        self.until("all messages are in their queues", || async {
            self.broker.unacknowledged(&lite.group, &lite.topic).await == count
        })
        .await;
    }

    /// A producer without credentials or TLS.
    pub(crate) async fn producer(&self) -> Producer {
        self.producer_with(self.client()).await
    }

    /// A producer with these options.
    pub(crate) async fn producer_with(&self, options: ClientOptions) -> Producer {
        Producer::connect(options, self.clock, self.telemetry.clone()).await
    }

    /// How a guarded broker is entered.
    pub(crate) fn security(&self) -> &Security {
        self.broker.security().expect("the scenario asked for a guarded broker")
    }

    /// What the connector's check says about a subscription, one line a step.
    pub(crate) async fn check(&self, subscription: &Subscription) -> String {
        let report = check(&self.source(subscription), self.clock, self.telemetry.clone()).await;
        let lines =
            report.steps.iter().map(|step| format!("{}: {:?}: {}", step.name, step.outcome, step.detail));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Waits until the broker counts nothing as open: every acknowledgement has taken effect.
    pub(crate) async fn all_acknowledged(&self, lite: &Lite) {
        self.until("every message is acknowledged", || async {
            self.broker.unacknowledged(&lite.group, &lite.topic).await == 0
        })
        .await;
    }

    /// Waits until so many clients are subscribed, where the broker tells.
    pub(crate) async fn subscribers(&self, lite: &Lite, count: usize) {
        self.until(&format!("{count} clients are subscribed"), || async {
            self.broker
                .subscribers(&lite.group, &lite.topic)
                .await
                .is_none_or(|subscribed| subscribed == count)
        })
        .await;
    }

    /// Waits until something holds, at most [`PATIENCE`].
    pub(crate) async fn until<F: Future<Output = bool>>(&self, what: &str, mut holds: impl FnMut() -> F) {
        let deadline = Instant::now() + PATIENCE;
        while !holds().await {
            assert!(Instant::now() < deadline, "waited {PATIENCE:?} in vain until {what}");
            sleep(LOOK_AGAIN_AFTER).await;
        }
    }
}

/// Bodies as text, in order.
pub(crate) fn bodies(deliveries: &[Delivery]) -> Vec<&str> {
    deliveries
        .iter()
        .map(|delivery| std::str::from_utf8(&delivery.message.body).expect("scenarios send text"))
        .collect()
}
