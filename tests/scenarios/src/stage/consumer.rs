//! A consumer at the level of the connector: what arrives is settled by hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_connector::{Clock, ReceiveError, ReceiveFault, Settler, Source};
use tidegate_model::{Capacity, Delivery, DeliveryId, Handle, SettleError, Settlement, Verb};
use tidegate_rocketmq::{ConnectError, SourceOptions, connect};
use tidegate_telemetry::Telemetry;
use tokio::time::{Instant, sleep};

use super::PATIENCE;

/// The most that servers give at once.
const BATCH: usize = 32;
/// Far more than scenarios send.
const BYTES: usize = 64 << 20;
/// Between two tries while the broker is in trouble.
const RETRY_AFTER: Duration = Duration::from_millis(200);

/// One client of a group.
pub(crate) struct Consumer {
    source: Arc<dyn Source>,
    settler: Arc<dyn Settler>,
    settlements: AtomicU64,
}

impl Consumer {
    pub(crate) async fn connect(
        options: SourceOptions,
        clock: Clock,
        telemetry: Telemetry,
        name: &str,
    ) -> Result<Self, ConnectError> {
        let connection = connect(options, clock, telemetry, name.into()).await?;
        Ok(Self { source: connection.source, settler: connection.settler, settlements: AtomicU64::new(0) })
    }

    /// One receive. Trouble of the broker is an empty answer after a moment; anything else ends the scenario.
    pub(crate) async fn poll(&self) -> Vec<Delivery> {
        match self.receive(BATCH).await {
            Ok(deliveries) => deliveries,
            Err(error) if matches!(error.fault, ReceiveFault::Broker | ReceiveFault::Throttled) => {
                sleep(RETRY_AFTER).await;
                Vec::new()
            }
            Err(error) => panic!("receiving: {error}"),
        }
    }

    /// One receive of at most `messages`.
    pub(crate) async fn receive(&self, messages: usize) -> Result<Vec<Delivery>, ReceiveError> {
        self.source.receive(Capacity { messages, bytes: BYTES }).await
    }

    /// Waits for at least one.
    pub(crate) async fn take_some(&self) -> Vec<Delivery> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let batch = self.poll().await;
            if !batch.is_empty() {
                return batch;
            }
            assert!(
                Instant::now() < deadline,
                "nothing came within {PATIENCE:?} ({:?})",
                self.source.status()
            );
        }
    }

    /// Waits for exactly `count`, held all the while.
    pub(crate) async fn take(&self, count: usize) -> Vec<Delivery> {
        let deadline = Instant::now() + PATIENCE;
        let mut taken: Vec<Delivery> = Vec::new();
        while taken.len() < count {
            assert!(
                Instant::now() < deadline,
                "{} of {count} came within {PATIENCE:?}: {:?} ({:?})",
                taken.len(),
                super::bodies(&taken),
                self.source.status()
            );
            taken.extend(self.poll().await);
        }
        assert_eq!(taken.len(), count, "more than expected: {:?}", super::bodies(&taken));
        taken
    }

    /// Asserts that nothing comes for so long, to the next end of a poll.
    pub(crate) async fn silence(&self, at_least: Duration) {
        let end = Instant::now() + at_least;
        while Instant::now() < end {
            let batch = self.poll().await;
            assert!(batch.is_empty(), "unexpected: {:?}", super::bodies(&batch));
        }
    }

    /// Waits until receiving is refused for a reason that does not pass by itself.
    pub(crate) async fn refusal(&self) -> ReceiveError {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.receive(BATCH).await {
                Err(error) if matches!(error.fault, ReceiveFault::Access | ReceiveFault::Subscription) => {
                    return error;
                }
                Ok(batch) => assert!(batch.is_empty(), "unexpected: {:?}", super::bodies(&batch)),
                Err(_) => sleep(RETRY_AFTER).await,
            }
            assert!(Instant::now() < deadline, "not refused within {PATIENCE:?} ({:?})", self.status());
        }
    }

    /// Waits until receiving fails with a sentence that has all these words in it.
    pub(crate) async fn trouble(&self, words: &[&str]) {
        let deadline = Instant::now() + PATIENCE;
        let mut last = String::from("no trouble at all");
        while words.iter().any(|word| !last.contains(word)) {
            assert!(Instant::now() < deadline, "{words:?} not in the sentence: {last} ({:?})", self.status());
            match self.receive(BATCH).await {
                Err(error) => last = error.to_string(),
                Ok(batch) => assert!(batch.is_empty(), "unexpected: {:?}", super::bodies(&batch)),
            }
            sleep(RETRY_AFTER).await;
        }
    }

    /// What the source says about itself.
    pub(crate) fn status(&self) -> Option<String> {
        self.source.status()
    }

    /// Acknowledges, in order, in one batch.
    pub(crate) async fn accept(&self, deliveries: &[Delivery]) {
        if deliveries.is_empty() {
            return;
        }
        let batch = deliveries.iter().map(|delivery| self.settlement(Verb::Accept, delivery)).collect();
        for (result, delivery) in self.settler.settle(batch).await.into_iter().zip(deliveries) {
            if let Err(error) = result {
                panic!("accepting {:?}: {error}", delivery.message);
            }
        }
    }

    /// Puts one off.
    pub(crate) async fn defer(&self, delivery: &Delivery, delay: Duration) {
        if let Err(error) = self.settle(Verb::Defer(delay), delivery).await {
            panic!("deferring {:?}: {error}", delivery.message);
        }
    }

    /// Settles one, whatever comes of it.
    pub(crate) async fn settle(
        &self,
        verb: Verb,
        delivery: &Delivery,
    ) -> Result<Option<Handle>, SettleError> {
        let results = self.settler.settle(vec![self.settlement(verb, delivery)]).await;
        results.into_iter().next().expect("one result per settlement")
    }

    /// Takes leave of the broker.
    pub(crate) async fn close(self) {
        self.source.close().await;
    }

    fn settlement(&self, verb: Verb, delivery: &Delivery) -> Settlement {
        Settlement {
            id: DeliveryId(self.settlements.fetch_add(1, Ordering::Relaxed)),
            verb,
            message: Arc::clone(&delivery.message),
            handle: delivery.handle.clone(),
            attempt: delivery.attempt,
        }
    }
}
