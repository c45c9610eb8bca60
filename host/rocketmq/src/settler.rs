//! The settler: tells the broker what became of deliveries.

mod calls;

use std::sync::Arc;

use async_trait::async_trait;
use futures::StreamExt as _;
use tidegate_connector::{Settler, Support};
use tidegate_model::{Handle, SettleError, SettleFault, Settlement, Verb};
use tidegate_telemetry::events::rocketmq as events;

use crate::consumer::Consumer;
use crate::fault::CallError;
use crate::plan::{self, ENTRIES_MAX};
use calls::perform;

/// Calls of one batch at the same time. A change is about one message, so that a batch of deferrals or renewals is as
/// many calls.
const CALLS_IN_FLIGHT_MAX: usize = ENTRIES_MAX;

/// Settles deliveries of one consumer, and of others of its group.
#[derive(Debug)]
pub(crate) struct GrpcSettler {
    consumer: Arc<Consumer>,
}

/// What came of one settlement.
type Result<T = Option<Handle>, E = CallError> = std::result::Result<T, E>;

impl GrpcSettler {
    pub(crate) const fn new(consumer: Arc<Consumer>) -> Self {
        Self { consumer }
    }

    /// Counts and logs what came of a batch.
    fn tell(&self, batch: &[Settlement], results: &[std::result::Result<Option<Handle>, SettleError>]) {
        let core = &self.consumer.core;
        let mut counts: Vec<(&'static str, events::SettleResult, u64)> = Vec::new();
        for (settlement, result) in batch.iter().zip(results) {
            let (verb, result_kind) = (settlement.verb.name(), kind_of(result));
            match counts.iter_mut().find(|(v, r, _)| (*v, *r) == (verb, result_kind)) {
                Some((_, _, count)) => *count += 1,
                None => counts.push((verb, result_kind, 1)),
            }
            if let Err(error) = result
                && error.fault != SettleFault::LeaseGone
            {
                let (name, detail) = (Arc::clone(&core.name), error.detail.to_string());
                core.telemetry.emit(events::SettleFailed { name, verb, detail });
            }
        }
        for (verb, result, messages) in counts {
            core.telemetry.emit(events::Settled { name: Arc::clone(&core.name), verb, result, messages });
        }
    }
}

#[async_trait]
impl Settler for GrpcSettler {
    fn support(&self, verb: &Verb) -> Support {
        match verb {
            Verb::Reject { .. } if self.consumer.is_lite() => Support::Emulated,
            Verb::Accept | Verb::Defer(_) | Verb::Release | Verb::Reject { .. } | Verb::Renew(_) => {
                Support::Native
            }
        }
    }

    async fn settle(&self, batch: Vec<Settlement>) -> Vec<std::result::Result<Option<Handle>, SettleError>> {
        let mut results: Vec<Option<Result>> = Vec::new();
        results.resize_with(batch.len(), || None);
        for calls in plan::stages(&batch) {
            let performing = calls.into_iter().map(|call| perform(&self.consumer, &batch, call));
            let mut performing = futures::stream::iter(performing).buffer_unordered(CALLS_IN_FLIGHT_MAX);
            while let Some(done) = performing.next().await {
                for (at, result) in done {
                    results[at] = Some(result);
                }
            }
        }
        let results: Vec<_> =
            batch.iter().zip(results).map(|(settlement, result)| settled(settlement, result)).collect();
        self.tell(&batch, &results);
        results
    }

    fn batch_max(&self) -> usize {
        ENTRIES_MAX
    }
}

fn settled(
    settlement: &Settlement,
    result: Option<Result>,
) -> std::result::Result<Option<Handle>, SettleError> {
    let verb = settlement.verb.name();
    match result {
        Some(Ok(handle)) => Ok(handle),
        Some(Err(error)) => {
            Err(SettleError { verb, detail: error.to_string().into(), fault: error.settle_fault() })
        }
        // A plan leaves nothing out, which its property test holds it to.
        None => Err(SettleError { verb, detail: "it was not sent".into(), fault: SettleFault::Broker }),
    }
}

const fn kind_of(result: &std::result::Result<Option<Handle>, SettleError>) -> events::SettleResult {
    match result {
        Ok(_) => events::SettleResult::Ok,
        Err(error) => match error.fault {
            SettleFault::LeaseGone => events::SettleResult::LeaseGone,
            SettleFault::Broker => events::SettleResult::Broker,
            SettleFault::Refused => events::SettleResult::Refused,
        },
    }
}
