//! The settler: tells brokers what became of records, through the members that acquired them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::join_all;
use tidegate_connector::{Settler, Support};
use tidegate_model::{Delivery, Handle, Instant, SettleError, SettleFault, Settlement, Verb};
use tidegate_telemetry::events::kafka::{self as events, Tally, tally};

use super::handle::LeaseHandle;
use super::keeper::Lock;
use super::members::Members;
use crate::{Acknowledge, AcknowledgeError, AcknowledgeType};

/// The most settlements of one call. A request has them in ranges, so that many cost little.
const BATCH_MAX: usize = 2_000;

pub(super) type Settled = Result<Option<Handle>, SettleError>;

/// Settles deliveries of one source.
#[derive(Debug)]
pub(super) struct ShareSettler {
    members: Arc<Members>,
}

/// What one member has to say.
#[derive(Default)]
struct Saying {
    acks: Vec<Acknowledge>,
    /// Which settlements they are, with what their handles say.
    places: Vec<(usize, LeaseHandle)>,
}

impl ShareSettler {
    pub(super) const fn new(members: Arc<Members>) -> Self {
        Self { members }
    }

    /// What a handle says, if this source made it.
    fn open(&self, settlement: &Settlement) -> Result<LeaseHandle, SettleError> {
        let fail = |fault, detail: &str| {
            Err(SettleError { verb: settlement.verb.name(), detail: detail.into(), fault })
        };
        match LeaseHandle::parse(&settlement.handle.text) {
            None => fail(SettleFault::Refused, "this is no handle of a Kafka share group"),
            Some(handle) if handle.life != self.members.life => {
                fail(SettleFault::LeaseGone, "the member that had the record's lock is gone")
            }
            Some(handle) => Ok(handle),
        }
    }

    /// Holds a record back until it is due.
    fn defer(&self, now: Instant, handle: &LeaseHandle, settlement: &Settlement, delay: Duration) -> Settled {
        let lock = Lock { ends: handle.ends, length: handle.lock };
        let delivery = Delivery {
            message: Arc::clone(&settlement.message),
            order: None,
            attempt: settlement.attempt,
            received_at: now,
            lease: handle.lock,
            expires_at: handle.ends,
            handle: settlement.handle.clone(),
        };
        let is_held =
            self.members.with_keeper(|keeper| keeper.defer(now, handle.key, lock, delivery, now + delay));
        if is_held {
            return Ok(None);
        }
        let detail = AcknowledgeError::LeaseEnded.to_string().into();
        Err(SettleError { verb: settlement.verb.name(), detail, fault: SettleFault::LeaseGone })
    }

    /// A renewal that took effect: for longer than a lock is, it is renewed again.
    fn keep(&self, now: Instant, sent_at: Instant, handle: &LeaseHandle, length: Duration) {
        let ends = (sent_at + handle.lock).max(handle.ends);
        let lock = Lock { ends, length: handle.lock };
        self.members.with_keeper(|keeper| keeper.keep(now, handle.key, lock, sent_at + length));
    }
}

#[async_trait]
impl Settler for ShareSettler {
    fn support(&self, verb: &Verb) -> Support {
        match verb {
            Verb::Accept | Verb::Release | Verb::Reject { .. } | Verb::Renew(_) => Support::Native,
            Verb::Defer(_) => Support::Emulated,
        }
    }

    async fn settle(&self, batch: Vec<Settlement>) -> Vec<Settled> {
        let sent_at = self.members.clock.now();
        let mut results: Vec<Option<Settled>> = vec![None; batch.len()];
        let mut sayings: BTreeMap<usize, Saying> = BTreeMap::new();
        for (at, settlement) in batch.iter().enumerate() {
            let handle = match self.open(settlement) {
                Ok(handle) => handle,
                Err(error) => {
                    results[at] = Some(Err(error));
                    continue;
                }
            };
            let kind = match &settlement.verb {
                Verb::Accept => AcknowledgeType::Accept,
                Verb::Release => AcknowledgeType::Release,
                Verb::Reject { .. } => AcknowledgeType::Reject,
                Verb::Renew(_) => AcknowledgeType::Renew,
                Verb::Defer(delay) => {
                    results[at] = Some(self.defer(sent_at, &handle, settlement, *delay));
                    continue;
                }
            };
            if kind != AcknowledgeType::Renew {
                self.members.keeper(|keeper| keeper.forget(&handle.key));
            }
            let lease = handle.key.lease;
            let saying = sayings.entry(handle.key.member).or_default();
            saying.acks.push(Acknowledge { lease, last: lease.offset, kind });
            saying.places.push((at, handle));
        }
        let saying = sayings.into_iter().map(|(member, Saying { acks, places })| async move {
            let told = match self.members.consumer(member) {
                Some(consumer) => consumer.acknowledge(acks).await,
                None => vec![Err(AcknowledgeError::Closed); acks.len()],
            };
            (places, told)
        });
        for (places, told) in join_all(saying).await {
            let now = self.members.clock.now();
            for ((at, handle), result) in places.into_iter().zip(told) {
                let verb = &batch[at].verb;
                if let (Ok(()), Verb::Renew(length)) = (&result, verb) {
                    self.keep(now, sent_at, &handle, *length);
                }
                results[at] = Some(result.map(|()| None).map_err(|error| settle_error(verb, &error)));
            }
        }
        let unsent = |verb: &Verb| settle_error(verb, &AcknowledgeError::Closed);
        let results: Vec<Settled> = results
            .into_iter()
            .zip(&batch)
            .map(|(result, settlement)| result.unwrap_or_else(|| Err(unsent(&settlement.verb))))
            .collect();
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

pub(super) fn settle_error(verb: &Verb, error: &AcknowledgeError) -> SettleError {
    let fault = match error {
        AcknowledgeError::LeaseEnded
        | AcknowledgeError::ConnectionLost
        | AcknowledgeError::LeaderMoved { .. }
        | AcknowledgeError::TopicGone { .. }
        | AcknowledgeError::Closed => SettleFault::LeaseGone,
        AcknowledgeError::RenewalUnderWay
        | AcknowledgeError::Access { .. }
        | AcknowledgeError::Broker { .. } => SettleFault::Broker,
        AcknowledgeError::NotRenewable | AcknowledgeError::Refused { .. } => SettleFault::Refused,
    };
    SettleError { verb: verb.name(), detail: error.to_string().into(), fault }
}

/// What became of each of a batch.
pub(super) fn outcomes<'a>(
    batch: &'a [Settlement],
    results: &'a [Settled],
) -> impl Iterator<Item = (&'static str, &'a Settled, u64)> {
    batch.iter().zip(results).map(|(settlement, result)| (settlement.verb.name(), result, 1))
}

/// Tells how settlements ended.
pub(super) fn tell<'a>(members: &Members, outcomes: impl Iterator<Item = (&'static str, &'a Settled, u64)>) {
    for Tally { verb, result, count, error } in tally(outcomes) {
        let (name, detail) =
            (Arc::clone(&members.name), error.map(|error| error.detail.to_string()).unwrap_or_default());
        members.telemetry.emit(events::Settled { name, verb, result, records: count, detail });
    }
}
