//! The settler: tells the broker what became of deliveries.

mod batch;
mod calls;
mod client;
mod turns;

use std::sync::Arc;

use async_trait::async_trait;
pub(crate) use batch::{CALLS_IN_FLIGHT_MAX, Settled, settle, settle_each, tell};
pub(crate) use client::SettlingClient;
use tidegate_connector::{Settler, Support};
use tidegate_model::{Settlement, Verb};
pub(crate) use turns::Lanes;

use crate::consumer::Consumer;
use crate::plan::ENTRIES_MAX;

/// Settles deliveries of one consumer, and of others of its group.
#[derive(Debug)]
pub(crate) struct GrpcSettler {
    consumer: Arc<Consumer>,
}

impl GrpcSettler {
    pub(crate) const fn new(consumer: Arc<Consumer>) -> Self {
        Self { consumer }
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

    async fn settle(&self, batch: Vec<Settlement>) -> Vec<Settled> {
        let results = settle(&*self.consumer, &batch).await;
        let outcomes = batch.iter().map(|settlement| settlement.verb.name()).zip(&results);
        tell(&self.consumer.core.telemetry, &self.consumer.core.name, outcomes);
        results
    }

    fn batch_max(&self) -> usize {
        ENTRIES_MAX
    }
}
