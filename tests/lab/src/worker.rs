//! A worker that does nothing but settle.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use tidegate_proto::handoff::{Status, subscribe_response};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::embedded::Embedded;
use crate::latency::Seen;
use crate::subscription::Subscription;

const STOP_WITHIN: Duration = Duration::from_secs(10);

/// Accepts all that it gets, each response's messages with one request.
pub(crate) struct Worker {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<()>>,
}

impl Worker {
    /// Subscribes. What it gets is noted in `seen` first.
    pub(crate) async fn start(host: &Embedded, credits: u64, seen: Option<Arc<Seen>>) -> Result<Self> {
        let address = host.worker_address().context("the host has no service for workers")?;
        let subscription = Subscription::open(address, credits).await?;
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(work(subscription, seen, stopped));
        Ok(Self { stop, task })
    }

    pub(crate) async fn stop(self) -> Result<()> {
        // It may have failed already: the task says why.
        let _ = self.stop.send(());
        timeout(STOP_WITHIN, self.task).await.context("the worker does not stop")??
    }
}

async fn work(
    mut subscription: Subscription,
    seen: Option<Arc<Seen>>,
    mut stopped: oneshot::Receiver<()>,
) -> Result<()> {
    loop {
        let response = tokio::select! {
            _ = &mut stopped => return Ok(()),
            response = subscription.responses.message() => response.context("the stream failed")?,
        };
        match response.and_then(|response| response.kind) {
            Some(subscribe_response::Kind::Deliveries(batch)) => {
                if let Some(seen) = &seen {
                    let ids = batch.deliveries.iter().map(|delivery| Arc::from(&*delivery.message_id));
                    seen.extend(ids);
                }
                subscription.accept(batch).await?;
            }
            Some(subscribe_response::Kind::Settled(results)) => {
                for result in results.results {
                    ensure!(result.status() == Status::Done, "a settlement is not done: {result:?}");
                }
            }
            Some(subscribe_response::Kind::Opened(_) | subscribe_response::Kind::Alive(_)) => {}
            other => bail!("a worker that settles at once is told {other:?}"),
        }
    }
}
