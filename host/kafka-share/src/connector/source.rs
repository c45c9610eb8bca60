//! The source: receives of several members as one.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tidegate_connector::{ReceiveError, ReceiveFault, Source};
use tidegate_model::{Capacity, Delivery};
use tidegate_telemetry::events::kafka as events;

use super::incoming::{Exhausted, Origin, Sorted};
use super::members::{Chosen, Members};
use crate::{Acknowledge, AcknowledgeType, Closed, DeliveredBatch};

/// Longest wait of one receive. A member fetches while somebody waits for it, so that with fewer receives than members each
/// has its turn within so long.
pub(super) const WAIT: Duration = Duration::from_secs(1);

/// Receives from one group as several members, however many workers ask.
#[derive(Debug)]
pub(super) struct ShareSource {
    members: Arc<Members>,
}

impl ShareSource {
    pub(super) const fn new(members: Arc<Members>) -> Self {
        Self { members }
    }

    /// Records that were deferred and are due now come before new ones.
    fn take_due(&self, capacity: Capacity) -> Vec<Delivery> {
        let members = &*self.members;
        let now = members.clock.now();
        let (taken, has_more) = members.keeper(|keeper| {
            let taken = keeper.take_due(now, capacity.messages, capacity.bytes);
            (taken, keeper.has_due())
        });
        if has_more {
            members.due.notify_one();
        }
        if !taken.is_empty() {
            // Counts are told, and their next moments are others.
            members.with_keeper(|_| ());
        }
        taken
    }

    /// What of records that came may be handed out; others are rejected.
    pub(super) fn sort(&self, member: usize, batches: &[DeliveredBatch]) -> Sorted {
        let members = &*self.members;
        let mut sorted = Sorted::default();
        let mut rejected = Vec::new();
        for batch in batches {
            for Exhausted { lease, delivery_count } in
                sorted.take(batch, members.options.delivery_count_limit)
            {
                members.telemetry.emit(events::LimitReached {
                    name: Arc::clone(&members.name),
                    topic: Arc::clone(&batch.topic),
                    partition: batch.partition.partition,
                    offset: lease.offset,
                    delivery_count,
                });
                rejected.push(Acknowledge { lease, last: lease.offset, kind: AcknowledgeType::Reject });
            }
        }
        members.telemetry.emit(events::Received {
            name: Arc::clone(&members.name),
            records: (sorted.records.len() + rejected.len()) as u64,
            bytes: sorted.bytes as u64,
        });
        if !rejected.is_empty() {
            members.reject(member, rejected.into_iter());
        }
        sorted
    }

    fn deliver(&self, member: usize, batches: &[DeliveredBatch]) -> Vec<Delivery> {
        let members = &*self.members;
        let received_at = members.clock.now();
        let origin = Origin { life: members.life, member, routing: &members.routing, received_at };
        let Sorted { records, .. } = self.sort(member, batches);
        records.into_iter().map(|record| origin.deliver(record)).collect()
    }

    /// Why there is no member left.
    pub(super) fn over(&self) -> ReceiveError {
        let trouble =
            self.members.consumers().find_map(|consumer| consumer.status().troubles.into_iter().next());
        let detail = match trouble {
            Some(trouble) => format!("the share group refuses every member: {trouble}"),
            None => "the source is closed".to_owned(),
        };
        ReceiveError { detail: detail.into(), fault: ReceiveFault::Subscription }
    }
}

#[async_trait]
impl Source for ShareSource {
    async fn receive(&self, capacity: Capacity) -> Result<Vec<Delivery>, ReceiveError> {
        if capacity.messages == 0 {
            return Ok(Vec::new());
        }
        let members = &*self.members;
        let until = tokio::time::Instant::now() + WAIT;
        // One member for all of a receive: whoever waits is where records go to.
        let mut chosen: Option<Chosen<'_>> = None;
        loop {
            let due = self.take_due(capacity);
            if !due.is_empty() {
                return Ok(due);
            }
            let enough = async {
                tokio::select! {
                    () = members.due.notified() => {}
                    () = members.closing.cancelled() => {}
                    () = tokio::time::sleep_until(until) => {}
                }
            };
            if members.keeper(|keeper| keeper.is_full()) {
                enough.await;
            } else {
                if chosen.is_none() {
                    chosen = members.choose();
                }
                let Some(chosen) = &chosen else { return Err(self.over()) };
                match chosen.consumer.receive_until(capacity.messages, capacity.bytes, enough).await {
                    Ok(batches) => {
                        let deliveries = self.deliver(chosen.at, &batches);
                        if !deliveries.is_empty() {
                            return Ok(deliveries);
                        }
                    }
                    Err(Closed) if members.closing.is_cancelled() => return Ok(Vec::new()),
                    Err(Closed) => return Err(self.over()),
                }
            }
            if members.closing.is_cancelled() || until <= tokio::time::Instant::now() {
                return Ok(Vec::new());
            }
        }
    }

    fn status(&self) -> Option<String> {
        let mut troubles: Vec<String> = Vec::new();
        let (mut joined, mut over) = (0, 0);
        for consumer in self.members.consumers() {
            let status = consumer.status();
            joined += usize::from(status.is_joined && !status.is_over);
            over += usize::from(status.is_over);
            if let Some(trouble) = status.troubles.first().map(ToString::to_string)
                && !troubles.contains(&trouble)
            {
                troubles.push(trouble);
            }
        }
        let all = self.members.options.parallelism;
        let group = &self.members.options.group;
        let some = if all == 1 { String::new() } else { format!("{} of {all} members: ", all - joined) };
        match troubles.first() {
            Some(trouble) => Some(if joined == all { trouble.clone() } else { format!("{some}{trouble}") }),
            None if over > 0 => Some(format!("{some}not in the share group `{group}` any more")),
            None if joined < all => Some(format!("{some}not in the share group `{group}` yet")),
            None => None,
        }
    }

    fn is_joined(&self) -> bool {
        self.members.consumers().any(|consumer| {
            let status = consumer.status();
            status.is_joined && !status.is_over
        })
    }

    /// Members leave the group, so that it gives their partitions to others; what is held, but not with the flow, is given back.
    fn set_receiving(&self, receiving: bool) {
        self.members.set_receiving(receiving);
    }

    async fn close(&self) {
        self.members.close().await;
    }
}
