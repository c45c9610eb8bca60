//! What is sent: each column's messages in order, many columns side by side.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail};
use parking_lot::Mutex;
use tidegate_connector::Clock;
use tidegate_rocketmq::{ClientOptions, Outgoing, Producer};
use tidegate_telemetry::Telemetry;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::ledger::Place;

/// Senders side by side, each with its own columns.
const SENDERS: u32 = 8;
/// How long one message is tried while brokers are down.
const PATIENCE: Duration = Duration::from_secs(180);

/// A message that the brokers have not said to have.
#[derive(Debug)]
pub(crate) struct Unsent {
    pub(crate) error: anyhow::Error,
    /// Whether they may have it all the same.
    pub(crate) may_be_stored: bool,
}

/// How messages get to the brokers.
pub(crate) trait Sender: Send + Sync + 'static {
    /// Sends the messages of some places; one result for each, in the same order.
    async fn send(&self, round: &[Place]) -> Vec<Result<(), Unsent>>;
}

/// What is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) columns: u32,
    pub(crate) per_column: u32,
    /// Messages of each column that are sent together: one, where their order counts.
    pub(crate) at_once: u32,
}

impl Shape {
    pub(crate) fn total(self) -> u64 {
        u64::from(self.columns) * u64::from(self.per_column)
    }
}

/// The senders.
#[derive(Debug)]
pub(crate) struct Load {
    /// Messages that the broker has taken.
    pub(crate) sent: Arc<AtomicU64>,
    /// What had to be sent again, how often: the broker may have stored it each time.
    again: Arc<Mutex<BTreeMap<Place, u64>>>,
    total: u64,
    is_over: Arc<AtomicBool>,
    tasks: JoinSet<anyhow::Result<()>>,
}

impl Load {
    pub(crate) fn start(sender: impl Sender, shape: Shape) -> Self {
        let (sent, again) = (Arc::<AtomicU64>::default(), Arc::<Mutex<BTreeMap<Place, u64>>>::default());
        let (sender, is_over) = (Arc::new(sender), Arc::<AtomicBool>::default());
        let runtime = Handle::current();
        let mut tasks = JoinSet::new();
        for nth in 0..SENDERS {
            let one = One {
                sender: Arc::clone(&sender),
                columns: (0..shape.columns).filter(|column| column % SENDERS == nth).collect(),
                sent: Arc::clone(&sent),
                again: Arc::clone(&again),
                is_over: Arc::clone(&is_over),
            };
            let runtime = runtime.clone();
            // On a thread of its own: what a sender waits for need not be able to change threads.
            tasks.spawn_blocking(move || runtime.block_on(one.send(shape)));
        }
        Self { sent, again, total: shape.total(), is_over, tasks }
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

impl Drop for Load {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// One sender with its columns.
struct One<S> {
    sender: Arc<S>,
    columns: Vec<u32>,
    sent: Arc<AtomicU64>,
    again: Arc<Mutex<BTreeMap<Place, u64>>>,
    is_over: Arc<AtomicBool>,
}

impl<S: Sender> One<S> {
    async fn send(self, shape: Shape) -> anyhow::Result<()> {
        let mut first = 0;
        while first < shape.per_column {
            let numbers = first..shape.per_column.min(first + shape.at_once);
            first = numbers.end;
            let of = |column: &u32| {
                let lite_topic = *column;
                numbers.clone().map(move |number| Place { lite_topic, number })
            };
            self.send_round(self.columns.iter().flat_map(of).collect()).await?;
        }
        Ok(())
    }

    /// Sends one round of messages, and the ones that failed again until all are taken: the next round must not
    /// overtake this one.
    async fn send_round(&self, mut round: Vec<Place>) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !round.is_empty() {
            let results = self.sender.send(&round).await;
            let mut last = None;
            let mut failed = Vec::new();
            for (place, result) in round.into_iter().zip(results) {
                match result {
                    Ok(()) => {
                        self.sent.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(Unsent { error, may_be_stored }) => {
                        failed.push(place);
                        if may_be_stored {
                            *self.again.lock().entry(place).or_insert(0) += 1;
                        }
                        last = Some(error);
                    }
                }
            }
            let Some(error) = last else { return Ok(()) };
            if Instant::now() > deadline || self.is_over.load(Ordering::Relaxed) {
                bail!("{} messages could not be sent: {error:#}", failed.len());
            }
            round = failed;
            sleep(Duration::from_millis(500)).await;
        }
        Ok(())
    }
}

/// What a RocketMQ message is for a place.
pub(crate) type Make = Box<dyn Fn(Place) -> Outgoing + Send + Sync>;

/// Sends to RocketMQ.
pub(crate) struct RocketMq {
    producer: Producer,
    make: Make,
}

impl RocketMq {
    pub(crate) async fn connect(options: ClientOptions, make: Make) -> anyhow::Result<Self> {
        let clock = Clock::start();
        // What fails is sent again here, where it is counted.
        let producer = Producer::connect(options, clock, Telemetry::default(), "audit".into()).await?;
        Ok(Self { producer: producer.with_attempts(1), make })
    }
}

impl Sender for RocketMq {
    async fn send(&self, round: &[Place]) -> Vec<Result<(), Unsent>> {
        let messages = round.iter().map(|place| (self.make)(*place)).collect();
        let results = self.producer.send_batch(messages).await.into_iter();
        let unsent = |error| Unsent { error: anyhow::Error::new(error), may_be_stored: true };
        results.map(|result| result.map(|_| ()).map_err(unsent)).collect()
    }
}
