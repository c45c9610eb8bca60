//! Settling by receipt, on any host of a fleet.

use async_trait::async_trait;
use tidegate_model::{Handle, Receipt, SettleError, Verb};

/// One thing to tell a broker about a delivery that this host may never have seen.
#[derive(Clone, Debug)]
pub struct SettleByReceipt {
    /// Whose receipt; its tag has been checked.
    pub receipt: Receipt,
    /// What to tell.
    pub verb: Verb,
}

/// Settles deliveries that other hosts took, or this one in an earlier life, without taking part in consumption.
#[async_trait]
pub trait ReceiptSettler: Send + Sync + 'static {
    /// Whether it knows how to reach the broker that a receipt names.
    fn serves(&self, receipt: &Receipt) -> bool;

    /// Settles a batch, retrying what can be retried within bounds. One result for each, in the same order; a renewed or
    /// deferred lease may come with a new handle. What it does not serve is refused.
    async fn settle(&self, batch: Vec<SettleByReceipt>) -> Vec<Result<Option<Handle>, SettleError>>;

    /// Ends it and joins its tasks. Bounded by the connector's request timeout.
    async fn close(&self);
}
