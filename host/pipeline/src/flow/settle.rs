//! Settlements on their way to the broker, a bounded number of batches at a time.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt as _;
use tidegate_connector::Settler;
use tidegate_model::{DeliveryId, Handle, MessageId, SettleError, SettleFault, Settlement, Verb};
use tokio::task::JoinSet;

/// Batches on their way at one time. Enough to keep a broker busy across a round trip; small enough that a slow
/// broker makes batches grow instead of their number.
const BATCHES_MAX: usize = 8;

/// What a rejection is called, see [`Verb::name`].
pub(super) const REJECT: &str = "reject";

/// A settlement, and what it stands for.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) settlement: Settlement,
    pub(super) meaning: Meaning,
}

/// What a settlement stands for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Meaning {
    /// What it says.
    Itself,
    /// A rejection whose message the dead-letter sink has: the broker is told that it is done.
    Burial,
    /// A rejection that has no effect: the message is given back and comes again.
    GivenBack {
        /// Why, in a few words.
        why: &'static str,
        /// Whether it was the dead-letter sink that did not take it.
        by_sink: bool,
    },
}

/// One settlement's result.
#[derive(Debug)]
pub(super) struct Settled {
    pub(super) id: DeliveryId,
    pub(super) message_id: MessageId,
    /// What was meant: a burial is a `reject`, whatever the broker was told.
    pub(super) verb: &'static str,
    pub(super) meaning: Meaning,
    pub(super) result: Result<Option<Handle>, SettleError>,
}

impl Told {
    pub(super) const fn itself(settlement: Settlement) -> Self {
        Self { settlement, meaning: Meaning::Itself }
    }

    /// Of a rejected delivery that the dead-letter sink has taken.
    pub(super) fn burial(settlement: Settlement) -> Self {
        Self { settlement: Settlement { verb: Verb::Accept, ..settlement }, meaning: Meaning::Burial }
    }

    const fn verb(&self) -> &'static str {
        match self.meaning {
            Meaning::Burial => REJECT,
            Meaning::Itself | Meaning::GivenBack { .. } => self.settlement.verb.name(),
        }
    }
}

/// The batches on their way.
pub(super) struct Settling {
    settler: Arc<dyn Settler>,
    batches: JoinSet<Vec<Settled>>,
}

impl Settling {
    pub(super) fn new(settler: Arc<dyn Settler>) -> Self {
        Self { settler, batches: JoinSet::new() }
    }

    /// Room in the next batch; zero while too many are on their way.
    pub(super) fn room(&self) -> usize {
        if self.batches.len() < BATCHES_MAX { self.settler.batch_max() } else { 0 }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.batches.is_empty()
    }

    pub(super) fn send(&mut self, batch: Vec<Told>) {
        let settler = Arc::clone(&self.settler);
        self.batches.spawn(async move {
            let names: Vec<_> = batch
                .iter()
                .map(|told| {
                    let Settlement { id, message, .. } = &told.settlement;
                    (*id, message.id.clone(), told.verb(), told.meaning)
                })
                .collect();
            let batch = batch.into_iter().map(|told| told.settlement).collect();
            // A panicking settler owes results all the same: the book would wait for them for ever.
            let settled = AssertUnwindSafe(settler.settle(batch)).catch_unwind().await;
            let mut results = settled.unwrap_or_default().into_iter();
            names
                .into_iter()
                .map(|(id, message_id, verb, meaning)| {
                    let result = results.next().unwrap_or_else(|| Err(unanswered(verb)));
                    Settled { id, message_id, verb, meaning, result }
                })
                .collect()
        });
    }

    /// The next batch that ended; waits for ever when none is on its way.
    pub(super) async fn next(&mut self) -> Vec<Settled> {
        match self.batches.join_next().await {
            Some(Ok(settled)) => settled,
            // Nothing in the task panics beside the settler, and nobody aborts it while the flow lives.
            Some(Err(_)) => Vec::new(),
            None => std::future::pending().await,
        }
    }

    pub(super) fn try_next(&mut self) -> Option<Vec<Settled>> {
        self.batches.try_join_next()?.ok()
    }
}

fn unanswered(verb: &'static str) -> SettleError {
    SettleError { verb, detail: "the connector gave no result for it".into(), fault: SettleFault::Broker }
}
