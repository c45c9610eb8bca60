//! Rejected deliveries on their way to the flow's dead-letter sink, and from there back to be settled.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use tidegate_connector::Sink;
use tidegate_model::{DeliveryId, Emission, Instant, Outcome, Report, Settlement};

use super::sink::{SinkNews, SinkPort};
use crate::key::KeyRule;

/// The dead-letter sink of a flow and what is under way to it. Everything here is still held by the lease book, so
/// its budget bounds it.
#[derive(Debug)]
pub(super) struct DeadLetters {
    sink: SinkPort,
    waiting: VecDeque<Settlement>,
    with_sink: HashMap<DeliveryId, Settlement>,
    taken: VecDeque<Settlement>,
}

impl DeadLetters {
    pub(super) fn start(sink: Box<dyn Sink>) -> Self {
        Self {
            sink: SinkPort::start(sink),
            waiting: VecDeque::new(),
            with_sink: HashMap::new(),
            taken: VecDeque::new(),
        }
    }

    /// Queues a rejected delivery.
    pub(super) fn push(&mut self, settlement: Settlement) {
        self.waiting.push_back(settlement);
    }

    /// Gives the sink what it has room for.
    pub(super) fn emit(&mut self, now: Instant, rule: &KeyRule) {
        let room = self.sink.room().min(self.waiting.len());
        if room == 0 {
            return;
        }
        let mut batch = Vec::with_capacity(room);
        for settlement in self.waiting.drain(..room) {
            batch.push(Emission {
                id: settlement.id,
                message: Arc::clone(&settlement.message),
                key: rule.key_of(&settlement.message),
                order: None,
                attempt: settlement.attempt,
                handle: settlement.handle.clone(),
                received_at: now,
                expires_at: now,
            });
            self.with_sink.insert(settlement.id, settlement);
        }
        self.sink.send(batch);
    }

    /// What the sink says next.
    pub(super) async fn next(&mut self) -> SinkNews {
        self.sink.next().await
    }

    /// Takes the sink's reports; gives back the deliveries that it did not take.
    pub(super) fn handle_reports(&mut self, reports: Vec<Report>) -> Vec<Settlement> {
        let mut refused = Vec::new();
        for Report { id, outcome, .. } in reports {
            let Some(settlement) = self.with_sink.remove(&id) else { continue };
            if outcome == Outcome::Accepted {
                self.taken.push_back(settlement);
            } else {
                refused.push(settlement);
            }
        }
        refused
    }

    /// The next delivery that the sink has taken and the broker must be told of.
    pub(super) fn poll_settle(&mut self) -> Option<Settlement> {
        self.taken.pop_front()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.sink.has_ended()
            || (self.waiting.is_empty() && self.with_sink.is_empty() && self.taken.is_empty())
    }

    pub(super) async fn close(&mut self) {
        self.sink.close().await;
    }
}
