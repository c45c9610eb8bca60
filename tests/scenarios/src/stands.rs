//! Brokers that scenarios share, each started when the first scenario asks for it.

use std::ops::Deref;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::{Mutex, OnceCell, OwnedMutexGuard};

use crate::broker::{Broker, Stand};

/// Hands out the broker that a scenario needs.
#[async_trait]
pub trait Stands: Send + Sync + 'static {
    /// The broker of this kind; a [`Stand::Restartable`], [`Stand::Pair`] or [`Stand::Narrow`] belongs to the caller until dropped.
    async fn take(&self, stand: Stand) -> Taken;
}

/// A broker, and the right to do with it what its stand allows.
pub struct Taken {
    broker: Arc<dyn Broker>,
    _alone: Option<OwnedMutexGuard<()>>,
}

impl Deref for Taken {
    type Target = dyn Broker;

    fn deref(&self) -> &Self::Target {
        &*self.broker
    }
}

/// One broker of each kind, started by `start` at first use. Dropping it stops them. A [`Stand::Pair`] is as large as
/// all others together, and a [`Stand::Narrow`] is soon full: they are started for whoever takes them, one at a time, and
/// stopped when that one drops them.
pub struct OneOfEach<B, S> {
    start: S,
    shared: OnceCell<Arc<B>>,
    restartable: OnceCell<Arc<B>>,
    guarded: OnceCell<Arc<B>>,
    alone: Arc<Mutex<()>>,
    pair: Arc<Mutex<()>>,
    /// Two clusters that start at the same time on two cores take longer than one after the other.
    starting: Mutex<()>,
}

impl<B, S> OneOfEach<B, S> {
    /// Starts nothing yet.
    pub fn new(start: S) -> Self {
        Self {
            start,
            shared: OnceCell::new(),
            restartable: OnceCell::new(),
            guarded: OnceCell::new(),
            alone: Arc::default(),
            pair: Arc::default(),
            starting: Mutex::default(),
        }
    }
}

#[async_trait]
impl<B, S, F> Stands for OneOfEach<B, S>
where
    B: Broker,
    S: Fn(Stand) -> F + Send + Sync + 'static,
    F: Future<Output = B> + Send,
{
    async fn take(&self, stand: Stand) -> Taken {
        let alone = match stand {
            Stand::Restartable => Some(Arc::clone(&self.alone).lock_owned().await),
            Stand::Pair | Stand::Narrow => Some(Arc::clone(&self.pair).lock_owned().await),
            Stand::Shared | Stand::Guarded => None,
        };
        let start = || async {
            let _one_at_a_time = self.starting.lock().await;
            Arc::new((self.start)(stand).await)
        };
        let cell = match stand {
            Stand::Shared => &self.shared,
            Stand::Restartable => &self.restartable,
            Stand::Guarded => &self.guarded,
            Stand::Pair | Stand::Narrow => &OnceCell::new(),
        };
        let broker: Arc<dyn Broker> = Arc::<B>::clone(cell.get_or_init(start).await);
        Taken { broker, _alone: alone }
    }
}
