//! A dead-letter sink that publishes to an own topic, as a program that embeds the host would have it: the broker's own
//! dead letters are of no use for lite topics.

use async_trait::async_trait;
use tidegate_connector::{Clock, Inbox, Sink, SinkError};
use tidegate_model::{Emission, Outcome, Report};
use tidegate_rocketmq::{ClientOptions, Outgoing, Producer};
use tidegate_telemetry::Telemetry;

/// Publishes every message to one topic; a message is taken when the broker has it.
pub(crate) struct Graveyard {
    pub(crate) client: ClientOptions,
    pub(crate) topic: String,
}

/// The property that says where a message comes from.
pub(crate) const ORIGIN: &str = "lite-topic";

#[async_trait]
impl Sink for Graveyard {
    fn credits(&self) -> usize {
        16
    }

    async fn run(self: Box<Self>, mut inbox: Inbox) -> Result<(), SinkError> {
        let fail = |detail: String| SinkError { sink: "graveyard".into(), detail: detail.into() };
        let producer =
            Producer::connect(self.client, Clock::start(), Telemetry::default(), "graveyard".into())
                .await
                .map_err(|error| fail(error.to_string()))?;
        while let Some(batch) = inbox.next().await {
            let mut reports = Vec::with_capacity(batch.len());
            for emission in batch {
                let sent = producer.send(copy_of(&emission, &self.topic)).await;
                let outcome = if sent.is_ok() { Outcome::Accepted } else { Outcome::Released };
                reports.push(Report { id: emission.id, outcome, cost: None });
            }
            inbox.report(reports).await;
        }
        producer.close().await;
        Ok(())
    }
}

/// A copy with the properties that the message shows, which the broker's internal one is not among.
fn copy_of(emission: &Emission, topic: &str) -> Outgoing {
    let message = &emission.message;
    let mut copy = Outgoing::normal(topic, message.body.clone());
    if let Some(lite_topic) = &message.lite_topic {
        copy = copy.with_property(ORIGIN, &**lite_topic);
    }
    for (name, _) in &message.properties {
        if let Some(value) = message.property(name) {
            copy = copy.with_property(&**name, value);
        }
    }
    copy
}
