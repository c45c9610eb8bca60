//! A batch of settlements: planned, performed, told.

use std::sync::Arc;

use futures::StreamExt as _;
use tidegate_model::{Handle, SettleError, SettleFault, Settlement};
use tidegate_telemetry::Telemetry;
use tidegate_telemetry::events::rocketmq::{self as events, Tally, tally};

use super::calls::perform;
use super::client::SettlingClient;
use super::turns::Turns;
use crate::fault::CallError;
use crate::plan::{self, ENTRIES_MAX};

/// Calls of one batch at the same time. A change is about one message, so that a batch of deferrals or renewals is as
/// many calls.
pub(crate) const CALLS_IN_FLIGHT_MAX: usize = ENTRIES_MAX;

/// What came of one settlement, told to whoever wanted it.
pub(crate) type Settled = Result<Option<Handle>, SettleError>;

/// Settles a batch: one result for each, in the same order.
pub(crate) async fn settle(client: &impl SettlingClient, batch: &[Settlement]) -> Vec<Settled> {
    let mut results: Vec<Option<Settled>> = vec![None; batch.len()];
    settle_each(client, batch, None, |some| {
        some.into_iter().for_each(|(at, result)| results[at] = Some(result));
    })
    .await;
    // A plan leaves nothing out, which its property test holds it to.
    let unsent = |verb| SettleError { verb, detail: "it was not sent".into(), fault: SettleFault::Broker };
    let all = batch.iter().zip(results);
    all.map(|(settlement, result)| result.unwrap_or_else(|| Err(unsent(settlement.verb.name())))).collect()
}

/// Settles a batch, and tells the results of each call when they are there, by their places. With `turns` each call waits for
/// what came in before about its lite topics.
pub(crate) async fn settle_each(
    client: &impl SettlingClient,
    batch: &[Settlement],
    turns: Option<&Turns>,
    mut tell: impl FnMut(Vec<(usize, Settled)>),
) {
    for calls in plan::stages(batch) {
        let performing = calls.into_iter().map(async |call| {
            if let Some(turns) = turns {
                turns.wait(batch, &call.members).await;
            }
            let done = perform(client, batch, call).await;
            if let Some(turns) = turns {
                turns.end(batch, done.iter().map(|(at, _)| *at));
            }
            done
        });
        let mut performing = futures::stream::iter(performing).buffer_unordered(CALLS_IN_FLIGHT_MAX);
        while let Some(done) = performing.next().await {
            tell(done.into_iter().map(|(at, result)| (at, settled(&batch[at], result))).collect());
        }
    }
}

/// Counts and logs what came of a batch.
pub(crate) fn tell<'a>(
    telemetry: &Telemetry,
    name: &Arc<str>,
    outcomes: impl Iterator<Item = (&'static str, &'a Settled)>,
) {
    let told = outcomes.inspect(|(verb, result)| {
        if let Err(error) = result
            && error.fault != SettleFault::LeaseGone
        {
            let (name, verb, detail) = (Arc::clone(name), *verb, error.detail.to_string());
            telemetry.emit(events::SettleFailed { name, verb, detail });
        }
    });
    for Tally { verb, result, count, .. } in tally(told.map(|(verb, result)| (verb, result, 1))) {
        telemetry.emit(events::Settled { name: Arc::clone(name), verb, result, messages: count });
    }
}

fn settled(settlement: &Settlement, result: Result<Option<Handle>, CallError>) -> Settled {
    result.map_err(|error| SettleError {
        verb: settlement.verb.name(),
        detail: error.to_string().into(),
        fault: error.settle_fault(),
    })
}
