//! What happened to every message, for the audit. Bounded: past the bound only counts go on.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::message::Stored;

/// One delivery of one message.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DeliveryRecord {
    /// When, on the broker's monotonic clock.
    pub at: Duration,
    /// To which group.
    pub group: Arc<str>,
    /// To which client id.
    pub client: Arc<str>,
    /// The attempt number the client was told.
    pub attempt: u32,
}

/// What happened to one stored message.
#[derive(Clone, Debug)]
pub struct MessageRecord {
    /// The producer's id. A dead letter carries its original's.
    pub message_id: Arc<str>,
    /// Where it is stored.
    pub topic: Arc<str>,
    /// Its sub-topic, on a LITE topic.
    pub lite_topic: Option<Arc<str>>,
    /// Deliveries in order.
    pub deliveries: Vec<DeliveryRecord>,
    /// The groups that are done with it. On ordered queues that is when no earlier message is open either.
    pub acked_by: Vec<Arc<str>>,
    /// Whether a copy of it went to a dead-letter topic.
    pub dead_lettered: bool,
    /// The group whose deliveries made this dead-letter copy.
    pub copy_for: Option<Arc<str>>,
    /// Place of its first delivery among all first deliveries.
    first_delivery: u64,
    stored: Weak<Stored>,
}

/// What happened to the messages of a broker.
#[derive(Clone, Debug, Default)]
pub struct Audit {
    /// Messages stored, copies included.
    pub messages: Vec<MessageRecord>,
    /// Messages stored beyond the audit's bound: counted, not recorded.
    pub not_recorded: u64,
}

impl Audit {
    /// Messages no group has acked and no dead-letter topic took. Copies are left out.
    pub fn unacked(&self) -> impl Iterator<Item = &MessageRecord> {
        self.originals().filter(|record| record.acked_by.is_empty() && !record.dead_lettered)
    }

    /// Un-acked messages the broker no longer holds. There must be none.
    pub fn lost(&self) -> impl Iterator<Item = &MessageRecord> {
        self.unacked().filter(|record| record.stored.strong_count() == 0)
    }

    /// The message ids of each lite topic in the order of their first delivery.
    #[must_use]
    pub fn first_deliveries(&self) -> HashMap<Arc<str>, Vec<Arc<str>>> {
        let mut delivered: Vec<&MessageRecord> =
            self.originals().filter(|record| !record.deliveries.is_empty()).collect();
        delivered.sort_by_key(|record| record.first_delivery);
        let mut order: HashMap<Arc<str>, Vec<Arc<str>>> = HashMap::new();
        for record in delivered {
            if let Some(lite_topic) = &record.lite_topic {
                order.entry(Arc::clone(lite_topic)).or_default().push(Arc::clone(&record.message_id));
            }
        }
        order
    }

    /// Messages that were delivered more than once to one group.
    pub fn redelivered(&self) -> impl Iterator<Item = &MessageRecord> {
        self.originals().filter(|record| record.deliveries.len() > 1)
    }

    fn originals(&self) -> impl Iterator<Item = &MessageRecord> {
        self.messages.iter().filter(|record| record.copy_for.is_none())
    }

    /// Adds another broker's audit.
    pub(crate) fn extend(&mut self, other: Self) {
        self.messages.extend(other.messages);
        self.not_recorded += other.not_recorded;
    }
}

/// Keeps the records while messages come and go.
#[derive(Debug)]
pub(crate) struct Ledger {
    records: Vec<MessageRecord>,
    by_sequence: HashMap<u64, usize>,
    records_max: usize,
    not_recorded: u64,
    first_deliveries: u64,
}

impl Ledger {
    pub(crate) fn new(records_max: usize) -> Self {
        Self {
            records: Vec::new(),
            by_sequence: HashMap::new(),
            records_max,
            not_recorded: 0,
            first_deliveries: 0,
        }
    }

    pub(crate) fn stored(&mut self, stored: &Arc<Stored>, copy_for: Option<&Arc<str>>) {
        if self.records.len() >= self.records_max {
            self.not_recorded += 1;
            return;
        }
        self.by_sequence.insert(stored.sequence, self.records.len());
        self.records.push(MessageRecord {
            message_id: Arc::clone(&stored.message.id),
            topic: Arc::clone(&stored.topic),
            lite_topic: stored.message.lite_topic.clone(),
            deliveries: Vec::new(),
            acked_by: Vec::new(),
            dead_lettered: false,
            copy_for: copy_for.cloned(),
            first_delivery: 0,
            stored: Arc::downgrade(stored),
        });
    }

    pub(crate) fn delivered(&mut self, sequence: u64, delivery: DeliveryRecord) {
        let ordinal = self.first_deliveries;
        let Some(record) = self.record(sequence) else { return };
        // A message that nobody acks is delivered for ever; its record must not grow with it.
        if record.deliveries.len() >= DELIVERIES_MAX {
            return;
        }
        if record.deliveries.is_empty() {
            record.first_delivery = ordinal;
        }
        record.deliveries.push(delivery);
        self.first_deliveries += 1;
    }

    pub(crate) fn acked(&mut self, sequence: u64, group: &Arc<str>) {
        let Some(record) = self.record(sequence) else { return };
        if !record.acked_by.contains(group) {
            record.acked_by.push(Arc::clone(group));
        }
    }

    pub(crate) fn dead_lettered(&mut self, sequence: u64) {
        if let Some(record) = self.record(sequence) {
            record.dead_lettered = true;
        }
    }

    pub(crate) fn audit(&self) -> Audit {
        Audit { messages: self.records.clone(), not_recorded: self.not_recorded }
    }

    fn record(&mut self, sequence: u64) -> Option<&mut MessageRecord> {
        self.by_sequence.get(&sequence).and_then(|at| self.records.get_mut(*at))
    }
}

/// Deliveries recorded of one message: enough to see any loop, small enough to keep.
const DELIVERIES_MAX: usize = 1_000;
