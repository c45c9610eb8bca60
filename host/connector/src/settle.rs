//! Settling by receipt, on any host of a fleet.

use async_trait::async_trait;
use parking_lot::Mutex;
use tidegate_model::{Handle, Receipt, SettleError, SettleFault, Verb};

/// One thing to tell a broker about a delivery that this host may never have seen.
#[derive(Clone, Debug)]
pub struct SettleByReceipt {
    /// Whose receipt; its tag has been checked.
    pub receipt: Receipt,
    /// What to tell.
    pub verb: Verb,
}

/// What came of one settlement by receipt; a renewed or deferred lease may come with a new handle.
pub type SettledByReceipt = Result<Option<Handle>, SettleError>;

/// Is told results by their places in the batch, some at a time.
pub type TellSettled<'a> = dyn Fn(Vec<(usize, SettledByReceipt)>) + Send + Sync + 'a;

/// Settles deliveries that other hosts took, or this one in an earlier life, without taking part in consumption.
#[async_trait]
pub trait ReceiptSettler: Send + Sync + 'static {
    /// Whether it knows how to reach the broker that a receipt names.
    fn serves(&self, receipt: &Receipt) -> bool;

    /// Settles a batch, retrying what can be retried within bounds, and tells each result once when it is there: one that
    /// takes long keeps no other from being told. What it does not serve is refused. Whoever drops this early leaves open
    /// whether the broker was told of the rest.
    async fn settle_each(&self, batch: Vec<SettleByReceipt>, tell: &TellSettled<'_>);

    /// The same for whoever wants all results, in the order of the batch.
    async fn settle(&self, batch: Vec<SettleByReceipt>) -> Vec<SettledByReceipt> {
        let verbs: Vec<_> = batch.iter().map(|one| one.verb.name()).collect();
        let results: Mutex<Vec<Option<SettledByReceipt>>> = Mutex::new(vec![None; batch.len()]);
        let tell = |some: Vec<(usize, SettledByReceipt)>| {
            let mut results = results.lock();
            some.into_iter().for_each(|(at, result)| results[at] = Some(result));
        };
        self.settle_each(batch, &tell).await;
        let unsent =
            |verb| SettleError { verb, detail: "it was not sent".into(), fault: SettleFault::Broker };
        let all = results.into_inner().into_iter().zip(verbs);
        all.map(|(result, verb)| result.unwrap_or_else(|| Err(unsent(verb)))).collect()
    }

    /// Ends it and joins its tasks. Bounded by the connector's request timeout.
    async fn close(&self);
}
