//! What is there to be consumed: equal messages, sent once, read by every run from the beginning.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::StreamExt as _;
use tidegate_connector::Clock;
use tidegate_rocketmq::{ClientOptions, Endpoints, Outgoing, Producer};
use tidegate_telemetry::Telemetry;
use tidegate_test_brokers::{Cluster, TopicType};
use tokio::time::{Instant, sleep};

pub(crate) const LITE_TOPIC: &str = "lab-lite";
pub(crate) const NORMAL_TOPIC: &str = "lab-normal";
/// Enough to keep a broker busy.
const SENDS_IN_FLIGHT: usize = 64;
/// Longest that a broker may need to sort in what it has stored.
const SETTLE_WITHIN: Duration = Duration::from_secs(60);

/// Sent and stored.
#[derive(Debug)]
pub(crate) struct Backlogs {
    /// In each of the two topics.
    pub(crate) messages: u64,
    /// Messages a second while sending.
    pub(crate) send_rate: f64,
}

impl Backlogs {
    pub(crate) async fn send(
        cluster: &Cluster,
        messages: u64,
        lite_topics: u64,
        body_bytes: usize,
    ) -> Result<Self> {
        cluster.create_topic(LITE_TOPIC, TopicType::Lite).await?;
        cluster.create_topic(NORMAL_TOPIC, TopicType::Normal).await?;
        let options = ClientOptions::new(Endpoints::parse(&cluster.endpoint())?);
        let producer = Producer::connect(options, Clock::start(), Telemetry::default(), "lab".into()).await?;
        let body = vec![b'x'; body_bytes];
        let lite = (0..messages)
            .map(|number| Outgoing::lite(LITE_TOPIC, format!("lite-{}", number % lite_topics), body.clone()));
        let normal = (0..messages).map(|_| Outgoing::normal(NORMAL_TOPIC, body.clone()));

        let started = Instant::now();
        let mut sends = futures::stream::iter(lite.chain(normal))
            .map(|message| producer.send(message))
            .buffer_unordered(SENDS_IN_FLIGHT);
        while let Some(sent) = sends.next().await {
            sent.context("filling the backlog")?;
        }
        drop(sends);
        #[allow(clippy::cast_precision_loss, reason = "shown without decimals")]
        let send_rate = (2 * messages) as f64 / started.elapsed().as_secs_f64();
        producer.close().await;
        for topic in [LITE_TOPIC, NORMAL_TOPIC] {
            stored(cluster, topic, messages).await?;
        }
        Ok(Self { messages, send_rate })
    }
}

async fn stored(cluster: &Cluster, topic: &str, messages: u64) -> Result<()> {
    let deadline = Instant::now() + SETTLE_WITHIN;
    loop {
        let stored = cluster.stored(topic).await?;
        if stored == messages {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "topic {topic} holds {stored} of {messages} messages");
        sleep(Duration::from_millis(100)).await;
    }
}
