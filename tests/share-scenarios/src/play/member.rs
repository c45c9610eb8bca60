//! A member with a test's patience.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tidegate_kafka_share::{
    Acknowledge, AcknowledgeError, AcknowledgeType, DeliveredBatch, Event, Lease, Observer, ShareConsumer,
    Status,
};
use tokio::time::Instant;

use super::PATIENCE;

/// One record as it came.
#[derive(Clone, Debug)]
pub(crate) struct Got {
    pub(crate) topic: Arc<str>,
    pub(crate) partition: i32,
    pub(crate) offset: i64,
    pub(crate) key: Option<Bytes>,
    pub(crate) value: Option<Bytes>,
    pub(crate) headers: Vec<(String, Option<Bytes>)>,
    pub(crate) timestamp_ms: i64,
    pub(crate) count: i16,
    pub(crate) lease: Lease,
}

impl Got {
    /// Its value as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(self.value.as_deref().unwrap_or_default()).into_owned()
    }

    pub(crate) fn number(&self) -> usize {
        self.text().parse().expect("a number")
    }
}

/// What a member told, in order, each in a line.
#[derive(Default)]
pub(crate) struct Heard(Mutex<Vec<String>>);

impl Heard {
    /// How many lines hold this text.
    pub(crate) fn count(&self, text: &str) -> usize {
        self.0.lock().iter().filter(|line| line.contains(text)).count()
    }
}

impl Observer for Heard {
    fn observe(&self, event: &Event) {
        let mut line = String::new();
        let _ = match event {
            Event::TroubleBegan(trouble) => write!(line, "trouble: {trouble}"),
            Event::TroubleEnded(subject) => write!(line, "ended: {subject:?}"),
            event => write!(line, "{event:?}"),
        };
        self.0.lock().push(line);
    }
}

/// A member with a test's patience. Dropping it is its death: it takes no leave.
pub(crate) struct Member {
    consumer: ShareConsumer,
    heard: Arc<Heard>,
    pub(crate) name: String,
}

impl Member {
    pub(super) fn new(consumer: ShareConsumer, heard: Arc<Heard>, name: String) -> Self {
        Self { consumer, heard, name }
    }

    /// At most so many records, within `wait`.
    pub(crate) async fn receive(&self, records: usize, wait: Duration) -> Vec<Got> {
        let batches = self.consumer.receive(records, usize::MAX, wait).await.expect("not closed");
        batches.iter().flat_map(each).collect()
    }

    /// Exactly so many records.
    pub(crate) async fn gather(&self, count: usize) -> Vec<Got> {
        let deadline = Instant::now() + PATIENCE;
        let mut all = Vec::new();
        while all.len() < count {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{} of {count} records came; {}", all.len(), self.account());
            all.extend(self.receive(count - all.len(), left).await);
        }
        all
    }

    /// Exactly so many records, each accepted as it comes.
    pub(crate) async fn consume(&self, count: usize) -> Vec<Got> {
        let deadline = Instant::now() + PATIENCE;
        let mut all = Vec::new();
        while all.len() < count {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{} of {count} records came; {}", all.len(), self.account());
            let got = self.receive(count - all.len(), left).await;
            self.accept(&got).await;
            all.extend(got);
        }
        all
    }

    /// Whether records came within `wait`: none is expected.
    pub(crate) async fn gets_nothing(&self, wait: Duration) {
        let got = self.receive(1, wait).await;
        assert!(got.is_empty(), "nothing should come to {}: {got:?}", self.name);
    }

    pub(crate) async fn settle(
        &self,
        got: &[Got],
        kind: AcknowledgeType,
    ) -> Vec<Result<(), AcknowledgeError>> {
        self.say(got.iter().map(|got| (got, kind))).await
    }

    pub(crate) async fn say<'a>(
        &self,
        said: impl IntoIterator<Item = (&'a Got, AcknowledgeType)>,
    ) -> Vec<Result<(), AcknowledgeError>> {
        let acks = said
            .into_iter()
            .map(|(got, kind)| Acknowledge { lease: got.lease, last: got.offset, kind })
            .collect();
        self.consumer.acknowledge(acks).await
    }

    /// Accepts all, and it takes effect.
    pub(crate) async fn accept(&self, got: &[Got]) {
        let results = self.settle(got, AcknowledgeType::Accept).await;
        assert!(is_all_ok(&results), "{:?}; {}", first_error(&results), self.account());
    }

    pub(crate) fn status(&self) -> Status {
        self.consumer.status()
    }

    pub(crate) fn set_receiving(&self, receiving: bool) {
        self.consumer.set_receiving(receiving);
    }

    pub(crate) fn heard(&self) -> &Heard {
        &self.heard
    }

    /// Waits until it is in its group with so many partitions.
    pub(crate) async fn until_assigned(&self, partitions: usize) {
        self.until(&format!("it has {partitions} partitions"), |status| {
            status.is_joined && status.partitions == partitions
        })
        .await;
    }

    /// Waits until nothing is in its way.
    pub(crate) async fn until_well(&self) {
        self.until("nothing is in its way", |status| status.is_joined && status.troubles.is_empty()).await;
    }

    /// Waits until its status is as it should be.
    pub(crate) async fn until(&self, what: &str, mut is_so: impl FnMut(&Status) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_so(&self.status()) {
            assert!(Instant::now() < deadline, "not in time: {what}; {}", self.account());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until it has told a text so often.
    pub(crate) async fn until_told(&self, text: &str, times: usize) {
        let deadline = Instant::now() + PATIENCE;
        while self.heard.count(text) < times {
            assert!(Instant::now() < deadline, "`{text}` was not told; {}", self.account());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// All that it told, and how it is.
    pub(crate) fn account(&self) -> String {
        format!("{}: {:?}; told: {:#?}", self.name, self.status(), self.heard.0.lock())
    }

    pub(crate) async fn close(&self) {
        self.consumer.close().await;
    }
}

/// What records that came are numbered.
pub(crate) fn numbers(got: &[Got]) -> BTreeSet<usize> {
    got.iter().map(Got::number).collect()
}

pub(crate) fn is_all_ok(results: &[Result<(), AcknowledgeError>]) -> bool {
    results.iter().all(Result::is_ok)
}

fn first_error(results: &[Result<(), AcknowledgeError>]) -> Option<&AcknowledgeError> {
    results.iter().find_map(|result| result.as_ref().err())
}

fn each(batch: &DeliveredBatch) -> impl Iterator<Item = Got> {
    batch.records.iter().map(|delivered| {
        let record = &delivered.record;
        Got {
            topic: Arc::clone(&batch.topic),
            partition: batch.partition.partition,
            offset: record.offset,
            key: record.key.clone(),
            value: record.value.clone(),
            headers: record
                .headers
                .iter()
                .map(|header| (header.key_text().into_owned(), header.value.map(Bytes::copy_from_slice)))
                .collect(),
            timestamp_ms: record.timestamp_ms,
            count: delivered.delivery_count,
            lease: batch.lease(record.offset),
        }
    })
}
