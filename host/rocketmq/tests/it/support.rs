//! A broker, a consumer and a producer for one test.

use std::sync::Arc;
use std::time::Duration;

use tidegate_connector::{Clock, Settler, Source};
use tidegate_devbroker::{Broker, Control, Group, Options, Topic, TopicKind as Kind};
use tidegate_model::{
    Capacity, Delivery, DeliveryId, Handle, Receipt, SettleError, Settlement, Timestamp, Verb,
};
use tidegate_rocketmq::{
    ClientOptions, Connection, Endpoints, Outgoing, Producer, SourceOptions, TopicKind, connect,
};
use tidegate_telemetry::Telemetry;

/// Far more than anything here takes, so that a test that hangs ends.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
pub(crate) const ALL: Capacity = Capacity { messages: 32, bytes: usize::MAX };

/// A running broker with topics of every kind, and what is connected to it.
pub(crate) struct Stage {
    pub(crate) broker: Broker,
    pub(crate) control: Control,
    pub(crate) telemetry: Telemetry,
    pub(crate) clock: Clock,
}

/// A consumer of a stage.
pub(crate) struct Consumer {
    pub(crate) source: Arc<dyn Source>,
    pub(crate) settler: Arc<dyn Settler>,
}

/// A broker with a lite topic `T` (group `G`), a normal `N`, a FIFO `F` (orderly group `GF`) and a delay topic `D`.
pub(crate) fn options() -> Options {
    let mut options = Options::new(([127, 0, 0, 1], 0).into());
    options.topics = vec![
        Topic::new("T", Kind::Lite),
        Topic::new("N", Kind::Normal),
        Topic::new("F", Kind::Fifo),
        Topic::new("D", Kind::Delay),
    ];
    options.groups = vec![
        Group::lite("G", "T"),
        Group::regular("GN"),
        Group::orderly("GF"),
        Group::regular("GD"),
        Group::lite("elsewhere", "U"),
        Group { wildcard: false, ..Group::lite("narrow", "T") },
    ];
    options
}

impl Stage {
    pub(crate) async fn start() -> Self {
        Self::with(options()).await
    }

    pub(crate) async fn with(options: Options) -> Self {
        let broker = Broker::start(options).await.expect("a free port");
        let control = broker.control();
        Self { broker, control, telemetry: Telemetry::default(), clock: Clock::start() }
    }

    pub(crate) fn client(&self) -> ClientOptions {
        client(&self.broker.address().to_string())
    }

    /// Options of the lite consumer.
    pub(crate) fn lite(&self) -> SourceOptions {
        let mut options = SourceOptions::new(self.client(), "T", "G");
        options.await_duration = Duration::from_secs(5);
        options
    }

    pub(crate) fn of(&self, topic: &str, group: &str, topic_kind: TopicKind) -> SourceOptions {
        SourceOptions { topic: topic.into(), group: group.into(), topic_kind, ..self.lite() }
    }

    pub(crate) async fn consumer(&self, options: SourceOptions) -> Consumer {
        let Connection { source, settler } =
            connect(options, self.clock, self.telemetry.clone(), Arc::from("test")).await.expect("set up");
        Consumer { source, settler }
    }

    pub(crate) async fn producer(&self) -> Producer {
        Producer::connect(self.client(), self.clock, self.telemetry.clone(), Arc::from("sender"))
            .await
            .expect("set up")
    }

    /// Sends `count` messages to lite topic `lite_topic`, with their numbers as bodies.
    pub(crate) async fn send_lite(&self, lite_topic: &str, count: usize) {
        let producer = self.producer().await;
        let messages = (0..count).map(|n| Outgoing::lite("T", lite_topic, n.to_string())).collect();
        for result in producer.send_batch(messages).await {
            result.expect("sent");
        }
        producer.close().await;
    }
}

impl Consumer {
    /// Receives until `count` messages are there, passing over errors.
    pub(crate) async fn receive(&self, count: usize) -> Vec<Delivery> {
        let receiving = async {
            let mut deliveries = Vec::new();
            while deliveries.len() < count {
                match self.source.receive(ALL).await {
                    Ok(more) => deliveries.extend(more),
                    Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
                }
            }
            deliveries
        };
        let waiting = tokio::time::timeout(PATIENCE, receiving).await;
        waiting.unwrap_or_else(|_| panic!("fewer than {count} messages; status: {:?}", self.source.status()))
    }

    pub(crate) async fn settle(
        &self,
        deliveries: &[Delivery],
        verb: Verb,
    ) -> Vec<Result<Option<Handle>, SettleError>> {
        let batch = deliveries.iter().map(|delivery| settlement(delivery, verb.clone())).collect();
        self.settler.settle(batch).await
    }

    pub(crate) async fn settle_one(
        &self,
        delivery: &Delivery,
        verb: Verb,
    ) -> Result<Option<Handle>, SettleError> {
        self.settler.settle(vec![settlement(delivery, verb)]).await.remove(0)
    }

    /// Waits until there is nothing to say.
    pub(crate) async fn status_is_clear(&self) {
        eventually(|| self.source.status().is_none().then_some(())).await;
    }

    /// Waits until `status` says what `matches` looks for.
    pub(crate) async fn status(&self, matches: impl Fn(&str) -> bool) -> String {
        eventually(|| self.source.status().filter(|status| matches(status))).await
    }
}

pub(crate) fn settlement(delivery: &Delivery, verb: Verb) -> Settlement {
    Settlement {
        id: DeliveryId(1),
        verb,
        message: Arc::clone(&delivery.message),
        handle: delivery.handle.clone(),
        attempt: delivery.attempt,
    }
}

/// What a worker would hold of a delivery.
pub(crate) fn receipt(delivery: &Delivery) -> Receipt {
    Receipt {
        routing: (*delivery.handle.routing).clone(),
        topic: Arc::clone(&delivery.message.topic),
        lite_topic: delivery.message.lite_topic.clone(),
        message_id: delivery.message.id.clone(),
        handle: delivery.handle.text.clone(),
        attempt: delivery.attempt,
        owner: "host-1".into(),
        flow: "tenants".into(),
        delivery: DeliveryId(1),
        expires_at: Timestamp::from_unix_millis(0),
    }
}

pub(crate) fn client(address: &str) -> ClientOptions {
    ClientOptions::new(Endpoints::parse(address).expect("an address"))
}

pub(crate) fn bodies(deliveries: &[Delivery]) -> Vec<String> {
    let body = |delivery: &Delivery| String::from_utf8_lossy(&delivery.message.body).into_owned();
    deliveries.iter().map(body).collect()
}

/// Looks again and again until there is something.
pub(crate) async fn eventually<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let looking = async {
        loop {
            if let Some(found) = look() {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, looking).await.expect("it never happened")
}
