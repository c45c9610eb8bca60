//! Source and settler with implicit acknowledgement: records go to a spool first, are accepted at their brokers once they are
//! durable there, and are handed out and settled from it.
//!
//! A record that a broker gives again is recognized while it is in the spool, and accepted there without another copy. When
//! the spool cannot take records in time, their brokers keep them: they are given back, or their locks run out.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tidegate_connector::{ReceiveError, Settler, Source, Support};
use tidegate_model::{Capacity, Delivery, Handle, Instant, MessageId, SettleError, Settlement, Verb};
use tidegate_spool::{Admitted, Arrived, Place, Spool, Written};
use tokio_util::task::TaskTracker;

use super::incoming::Sorted;
use super::members::{Chosen, Members};
use super::settler::{Settled, outcomes, settle_error, tell};
use super::source::{ShareSource, WAIT};
use crate::{Acknowledge, AcknowledgeType, Closed, DeliveredBatch, Lease};

/// The most settlements of one call; they are one transaction of the spool.
const BATCH_MAX: usize = 2_000;
/// How long the acknowledgements under way are waited for when the source closes.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Receives into a spool, and from it.
#[derive(Debug)]
pub(super) struct SpooledSource {
    share: ShareSource,
    members: Arc<Members>,
    spool: Arc<Spool>,
    /// Acknowledgements of what is spooled: one for each receive that brought something, as long as the brokers take.
    acknowledging: TaskTracker,
}

/// Settles what was handed out from a spool.
#[derive(Debug)]
pub(super) struct SpooledSettler {
    members: Arc<Members>,
    spool: Arc<Spool>,
}

/// A record on its way into the spool.
struct Spooling {
    id: MessageId,
    lease: Lease,
    place: Place,
}

impl SpooledSource {
    pub(super) fn new(members: Arc<Members>, spool: Arc<Spool>) -> Self {
        let share = ShareSource::new(Arc::clone(&members));
        Self { share, members, spool, acknowledging: TaskTracker::new() }
    }

    /// Puts what came into the spool. Nobody needs to wait: it is written, and then accepted, whoever goes away.
    fn spool(&self, member: usize, batches: &[DeliveredBatch]) -> Option<Written> {
        let Sorted { records, .. } = self.share.sort(member, batches);
        let kept_until = batches.iter().map(|batch| batch.expires_at).min().unwrap_or(Instant::ZERO);
        if records.is_empty() {
            return None;
        }
        let (leases, arrived): (Vec<Lease>, Vec<Arrived>) = records
            .into_iter()
            .map(|record| (record.lease, Arrived { message: record.message, attempt: record.attempt }))
            .unzip();
        let ids: Vec<MessageId> = arrived.iter().map(|arrived| arrived.message.id.clone()).collect();
        let Admitted { places, written } = self.spool.admit(arrived, kept_until);
        let spooling =
            ids.into_iter().zip(leases).zip(places).map(|((id, lease), place)| Spooling { id, lease, place });
        let (members, spool) = (Arc::clone(&self.members), Arc::clone(&self.spool));
        let acknowledged = acknowledge(members, spool, member, spooling.collect(), written.clone());
        self.acknowledging.spawn(acknowledged);
        Some(written)
    }

    /// Waits until something may have changed, at most so long.
    async fn idle(&self, until: tokio::time::Instant, changed: impl Future<Output = ()>) {
        let due = self.spool.due_at().map(|due| self.members.clock.deadline(due));
        tokio::select! {
            () = changed => {}
            () = self.members.closing.cancelled() => {}
            () = tokio::time::sleep_until(due.map_or(until, |due| due.min(until))) => {}
        }
    }
}

/// Tells the brokers about records once it is known what became of them.
async fn acknowledge(
    members: Arc<Members>,
    spool: Arc<Spool>,
    member: usize,
    records: Vec<Spooling>,
    mut written: Written,
) {
    let is_durable = written.durable().await.is_ok();
    let verdict = |record: &Spooling| match record.place {
        Place::New if is_durable => AcknowledgeType::Accept,
        Place::Known => AcknowledgeType::Accept,
        Place::New | Place::Pending => AcknowledgeType::Release,
    };
    let acks = ranges(&records, verdict);
    let Some(consumer) = members.consumer(member) else { return };
    let results = consumer.acknowledge(acks.iter().map(|(ack, _)| *ack).collect()).await;
    let accepted = acks
        .iter()
        .zip(&results)
        .filter(|((ack, _), result)| ack.kind == AcknowledgeType::Accept && result.is_ok())
        .flat_map(|((_, places), _)| &records[places.clone()]);
    spool.confirm(accepted.map(|record| &record.id));
    let told = acks.iter().zip(results).map(|((ack, places), result)| {
        let verb = if ack.kind == AcknowledgeType::Accept { Verb::Accept } else { Verb::Release };
        let result = result.map(|()| None).map_err(|error| settle_error(&verb, &error));
        (verb.name(), result, places.len() as u64)
    });
    let told: Vec<(&'static str, Settled, u64)> = told.collect();
    tell(&members, told.iter().map(|(verb, result, count)| (*verb, result, *count)));
}

/// What to say, neighbours in one, with the places of the records that each is about.
fn ranges(
    records: &[Spooling],
    verdict: impl Fn(&Spooling) -> AcknowledgeType,
) -> Vec<(Acknowledge, std::ops::Range<usize>)> {
    let mut ranges: Vec<(Acknowledge, std::ops::Range<usize>)> = Vec::new();
    for (at, record) in records.iter().enumerate() {
        let (lease, kind) = (record.lease, verdict(record));
        match ranges.last_mut() {
            Some((ack, places))
                if ack.kind == kind
                    && ack.lease == Lease { offset: ack.lease.offset, ..lease }
                    && ack.last + 1 == lease.offset =>
            {
                ack.last = lease.offset;
                places.end = at + 1;
            }
            _ => ranges.push((Acknowledge { lease, last: lease.offset, kind }, at..at + 1)),
        }
    }
    ranges
}

#[async_trait]
impl Source for SpooledSource {
    async fn receive(&self, capacity: Capacity) -> Result<Vec<Delivery>, ReceiveError> {
        if capacity.messages == 0 {
            return Ok(Vec::new());
        }
        let members = &*self.members;
        let until = tokio::time::Instant::now() + WAIT;
        let mut chosen: Option<Chosen<'_>> = None;
        // What this receive brought; it is waited for before more is asked for.
        let mut writing: Option<Written> = None;
        loop {
            // Made before it is looked, so that nothing is missed in between.
            let changed = self.spool.changed();
            let taken = self.spool.take(capacity);
            if !taken.is_empty() {
                return Ok(taken);
            }
            if let Some(written) = &mut writing {
                let written = async {
                    // Whatever came of it, it is looked again.
                    let _ = written.durable().await;
                };
                tokio::select! {
                    () = written => writing = None,
                    () = self.idle(until, changed) => {}
                }
            } else if let Some(room) = self.spool.room() {
                if chosen.is_none() {
                    chosen = members.choose();
                }
                let Some(chosen) = &chosen else { return Err(self.share.over()) };
                let messages = capacity.messages.min(room.messages);
                let bytes = capacity.bytes.min(room.bytes);
                match chosen.consumer.receive_until(messages, bytes, self.idle(until, changed)).await {
                    Ok(batches) => writing = self.spool(chosen.at, &batches),
                    Err(Closed) if members.closing.is_cancelled() => return Ok(Vec::new()),
                    Err(Closed) => return Err(self.share.over()),
                }
            } else {
                self.idle(until, changed).await;
            }
            if members.closing.is_cancelled() || until <= tokio::time::Instant::now() {
                return Ok(self.spool.take(capacity));
            }
        }
    }

    fn status(&self) -> Option<String> {
        self.spool.status().or_else(|| self.share.status())
    }

    fn is_joined(&self) -> bool {
        self.spool.is_well() && self.share.is_joined()
    }

    /// What is in the spool is this host's, and waits for the flow to go on.
    fn set_receiving(&self, receiving: bool) {
        self.share.set_receiving(receiving);
    }

    async fn close(&self) {
        self.members.closing.cancel();
        self.acknowledging.close();
        // What is durable is accepted; what is not in time is given back with all that the members hold.
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, self.acknowledging.wait()).await;
        self.share.close().await;
        self.spool.close().await;
        self.acknowledging.wait().await;
    }
}

#[async_trait]
impl Settler for SpooledSettler {
    fn support(&self, _: &Verb) -> Support {
        Support::Native
    }

    async fn settle(&self, batch: Vec<Settlement>) -> Vec<Result<Option<Handle>, SettleError>> {
        let results = self.spool.settle(&batch).await;
        tell(&self.members, outcomes(&batch, &results));
        results
    }

    fn batch_max(&self) -> usize {
        BATCH_MAX
    }

    fn keeps_deferred(&self) -> bool {
        true
    }
}

impl SpooledSettler {
    pub(super) const fn new(members: Arc<Members>, spool: Arc<Spool>) -> Self {
        Self { members, spool }
    }
}
