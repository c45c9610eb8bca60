//! A producer for scenarios: text in, a failure is the scenario's.

use std::time::Duration;

use tidegate_connector::Clock;
use tidegate_model::Timestamp;
use tidegate_rocketmq::{ClientOptions, Outgoing};
use tidegate_telemetry::Telemetry;
use tokio::time::{Instant, sleep};

/// Between two tries while the broker is in trouble.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// Sends what a scenario needs.
pub(crate) struct Producer {
    producer: tidegate_rocketmq::Producer,
    clock: Clock,
}

impl Producer {
    pub(crate) async fn connect(options: ClientOptions, clock: Clock, telemetry: Telemetry) -> Self {
        let producer = tidegate_rocketmq::Producer::connect(options, clock, telemetry, "scenario".into())
            .await
            .expect("a producer can be set up");
        Self { producer, clock }
    }

    pub(crate) async fn send_lite(&self, topic: &str, lite_topic: &str, body: &str) {
        self.send(Outgoing::lite(topic, lite_topic, body.to_owned())).await;
    }

    /// With properties; the refusal as text.
    pub(crate) async fn send_lite_with(
        &self,
        topic: &str,
        lite_topic: &str,
        body: &str,
        properties: &[(&str, &str)],
    ) -> Result<(), String> {
        let mut message = Outgoing::lite(topic, lite_topic, body.to_owned());
        for (name, value) in properties {
            message = message.with_property(*name, *value);
        }
        self.producer.send(message).await.map(drop).map_err(|error| error.to_string())
    }

    /// Tries until it is taken: for brokers in trouble.
    pub(crate) async fn send_lite_until(&self, topic: &str, lite_topic: &str, body: &str, deadline: Instant) {
        loop {
            match self.producer.send(Outgoing::lite(topic, lite_topic, body.to_owned())).await {
                Ok(_) => return,
                Err(error) => {
                    assert!(error.is_retryable(), "a broker in trouble is no reason to give up: {error:?}");
                    assert!(Instant::now() < deadline, "not sent in time: {error:?}");
                    sleep(RETRY_AFTER).await;
                }
            }
        }
    }

    pub(crate) async fn send_normal(&self, topic: &str, body: &str) {
        self.send(Outgoing::normal(topic, body.to_owned())).await;
    }

    pub(crate) async fn send_fifo(&self, topic: &str, group: &str, body: &str) {
        self.send(Outgoing::fifo(topic, group, body.to_owned())).await;
    }

    pub(crate) async fn send_delayed(&self, topic: &str, delay: Duration, body: &str) {
        let delay_millis = u64::try_from(delay.as_millis()).expect("a short delay");
        let at = Timestamp::from_unix_millis(self.clock.wall().as_unix_millis() + delay_millis);
        self.send(Outgoing::delay(topic, at, body.to_owned())).await;
    }

    /// Sends a message of any kind.
    pub(crate) async fn send(&self, message: Outgoing) {
        if let Err(error) = self.producer.send(message).await {
            panic!("sending: {error:?}");
        }
    }
}
