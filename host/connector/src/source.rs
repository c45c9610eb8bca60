//! The receiving side: where deliveries come from and how they are settled.

use async_trait::async_trait;
use tidegate_model::{Capacity, Delivery, Handle, SettleError, Settlement, Verb};

/// One consumer of one subscription. Several workers call [`Source::receive`] at the same time.
#[async_trait]
pub trait Source: Send + Sync + 'static {
    /// Waits for deliveries, at most `capacity` of them and at most the source's own poll time.
    ///
    /// An empty answer is normal: nothing came within the poll. Deliveries of one ordered key come in order within
    /// an answer, and a later answer has only later ones unless the broker hands out again.
    ///
    /// # Errors
    /// When the broker cannot be asked. The caller backs off as the error says and asks again; the source mends its
    /// own connection meanwhile.
    async fn receive(&self, capacity: Capacity) -> Result<Vec<Delivery>, ReceiveError>;

    /// How the source is doing, in one sentence for people, when there is something to say: not connected, no right
    /// to read, a subscription that the server accepts but never serves.
    fn status(&self) -> Option<String>;

    /// Whether the broker serves this consumer now: connected, known, subscribed, and the last receives did not fail.
    /// Without I/O. Moments in which a connection is made anew may show; who acts on it waits a while.
    fn is_joined(&self) -> bool;

    /// Whether anything is received from now on. While nothing is, a source steps back where the broker would otherwise
    /// keep messages for it that other consumers of its group could have; it stays known, so that what it has received can
    /// be settled. Does not wait.
    fn set_receiving(&self, receiving: bool) {
        let _ = receiving;
    }

    /// Takes leave of the broker so that others take over at once. Bounded by the connector's request timeout.
    async fn close(&self);
}

/// Tells the broker what became of deliveries.
#[async_trait]
pub trait Settler: Send + Sync + 'static {
    /// Which verbs the broker can do for this subscription.
    fn support(&self, verb: &Verb) -> Support;

    /// Settles a batch, retrying what can be retried within the connector's bounds. The answer has one result per
    /// settlement, in the same order; a renewed or deferred lease may come with a new handle.
    async fn settle(&self, batch: Vec<Settlement>) -> Vec<Result<Option<Handle>, SettleError>>;

    /// The most settlements that one call should carry.
    fn batch_max(&self) -> usize;

    /// Whether what is deferred stays with the source, which hands the very same delivery out again when it is due. Otherwise
    /// the broker does, and counts it.
    fn keeps_deferred(&self) -> bool {
        false
    }
}

/// How well a broker does one verb.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Support {
    /// The broker has it.
    Native,
    /// Done by other means with the same effect.
    Emulated,
    /// Cannot be done; a configuration that needs it is refused at start.
    Refused,
}

/// Why a source could not receive.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{detail}")]
pub struct ReceiveError {
    /// One sentence: what was asked of whom, what came back, and what to do about it.
    pub detail: Box<str>,
    /// Whose fault it is.
    pub fault: ReceiveFault,
}

/// Whose fault a failed receive is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ReceiveFault {
    /// The broker or the road to it: passes by itself.
    Broker,
    /// The server told us to slow down.
    Throttled,
    /// Wrong credentials or missing rights: passes when somebody changes them.
    Access,
    /// The subscription is wrong (topic, group, attributes): passes when somebody changes it.
    Subscription,
}

impl ReceiveError {
    /// Whether waiting alone can help.
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        matches!(self.fault, ReceiveFault::Broker | ReceiveFault::Throttled)
    }
}
