//! What is sent: each lite topic's messages in order, many lite topics side by side.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail};
use parking_lot::Mutex;
use tidegate_connector::Clock;
use tidegate_rocketmq::{ClientOptions, Outgoing, Producer};
use tidegate_telemetry::Telemetry;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::ledger::Place;

/// Senders side by side, each with its own lite topics.
const SENDERS: u32 = 8;
/// How long one message is tried while brokers are down.
const PATIENCE: Duration = Duration::from_secs(180);

/// What is sent for a place.
pub(crate) type Make = Arc<dyn Fn(Place) -> Outgoing + Send + Sync>;

/// The senders.
#[derive(Debug)]
pub(crate) struct Load {
    /// Messages that the broker has taken.
    pub(crate) sent: Arc<AtomicU64>,
    /// What had to be sent again, how often: the broker may have stored it each time.
    again: Arc<Mutex<BTreeMap<Place, u64>>>,
    total: u64,
    tasks: JoinSet<anyhow::Result<()>>,
}

impl Load {
    pub(crate) async fn start(
        options: ClientOptions,
        lite_topics: u32,
        per_lite_topic: u32,
        make: Make,
    ) -> anyhow::Result<Self> {
        let clock = Clock::start();
        // What fails is sent again here, where it is counted.
        let producer = Producer::connect(options, clock, Telemetry::default(), "audit".into()).await?;
        let producer = producer.with_attempts(1);
        let (sent, again) = (Arc::<AtomicU64>::default(), Arc::<Mutex<BTreeMap<Place, u64>>>::default());
        let mut tasks = JoinSet::new();
        for sender in 0..SENDERS {
            let (producer, make) = (producer.clone(), Arc::clone(&make));
            let (sent, again) = (Arc::clone(&sent), Arc::clone(&again));
            let own: Vec<u32> =
                (0..lite_topics).filter(|lite_topic| lite_topic % SENDERS == sender).collect();
            tasks.spawn(async move {
                for number in 0..per_lite_topic {
                    let round: Vec<Place> =
                        own.iter().map(|lite_topic| Place { lite_topic: *lite_topic, number }).collect();
                    send_round(&producer, &*make, round, &sent, &again).await?;
                }
                Ok(())
            });
        }
        Ok(Self { sent, again, total: u64::from(lite_topics) * u64::from(per_lite_topic), tasks })
    }

    /// Whether everything has been sent.
    pub(crate) fn is_done(&self) -> bool {
        self.sent.load(Ordering::Relaxed) == self.total
    }

    /// What had to be sent again, and how often.
    pub(crate) fn again(&self) -> BTreeMap<Place, u64> {
        self.again.lock().clone()
    }

    /// Waits for the senders.
    pub(crate) async fn finish(mut self) -> anyhow::Result<()> {
        while let Some(sender) = self.tasks.join_next().await {
            sender.context("a sender panicked")??;
        }
        Ok(())
    }
}

/// Sends one message to each lite topic, and the ones that failed again until all are taken: the next round must not
/// overtake this one.
async fn send_round(
    producer: &Producer,
    make: &(dyn Fn(Place) -> Outgoing + Send + Sync),
    mut round: Vec<Place>,
    sent: &AtomicU64,
    again: &Mutex<BTreeMap<Place, u64>>,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let results = producer.send_batch(round.iter().map(|place| make(*place)).collect()).await;
        let mut error = None;
        let mut failed = Vec::new();
        for (place, result) in round.into_iter().zip(results) {
            match result {
                Ok(_) => {
                    sent.fetch_add(1, Ordering::Relaxed);
                }
                Err(e) => {
                    failed.push(place);
                    error = Some(e);
                }
            }
        }
        let Some(error) = error else { return Ok(()) };
        if Instant::now() > deadline {
            bail!("{} messages could not be sent: {:#}", failed.len(), anyhow::Error::new(error));
        }
        for place in &failed {
            *again.lock().entry(*place).or_insert(0) += 1;
        }
        round = failed;
        sleep(Duration::from_millis(500)).await;
    }
}
