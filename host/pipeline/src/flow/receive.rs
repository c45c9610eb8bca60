//! The receive workers of one flow: each asks the source for what it was granted, and waits when that fails.

use std::sync::Arc;
use std::time::Duration;

use tidegate_connector::{Backoff, ReceiveError, ReceiveFault, Source};
use tidegate_model::{Capacity, Delivery};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// First wait after a failed receive, and the longest.
const BACKOFF_FIRST: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// The longest while keys or rights are refused: these are put right at any moment, and who did that watches.
const REFUSED_BACKOFF_MAX: Duration = Duration::from_secs(5);
/// A poll that ends empty sooner than this was not a poll: the worker waits as if it had failed, so that a server
/// that answers at once is not asked in a hot loop.
const POLL_MIN: Duration = Duration::from_millis(50);

/// What workers tell the flow.
#[derive(Debug)]
pub(super) enum Arrival {
    /// A receive ended; the worker waits for its next grant.
    Received { worker: usize, granted: Capacity, deliveries: Vec<Delivery> },
    /// A receive failed; the worker waits `wait` before it is idle again.
    Failed { worker: usize, granted: Capacity, error: ReceiveError, wait: Duration },
    /// The worker has waited and wants a grant.
    Idle { worker: usize },
}

/// The workers and the flow's ends of their channels.
#[derive(Debug)]
pub(super) struct Workers {
    grants: Vec<mpsc::Sender<Capacity>>,
    /// What each worker was granted and has not answered yet.
    granted: Vec<Option<Capacity>>,
    idle: Vec<usize>,
    arrivals: mpsc::Receiver<Arrival>,
    tasks: JoinSet<()>,
}

impl Workers {
    /// Starts `count` workers, all idle.
    pub(super) fn start(source: &Arc<dyn Source>, count: usize, seed: u64) -> Self {
        // A worker has at most two messages under way: how its receive ended, and that it is idle again.
        let (arrival_sender, arrivals) = mpsc::channel(count * 2);
        let mut tasks = JoinSet::new();
        let grants = (0..count)
            .map(|worker| {
                let (grant_sender, grants) = mpsc::channel(1);
                let backoff = Backoff::new(BACKOFF_FIRST, BACKOFF_MAX, seed.wrapping_add(worker as u64));
                tasks.spawn(work(worker, Arc::clone(source), grants, arrival_sender.clone(), backoff));
                grant_sender
            })
            .collect();
        Self { grants, granted: vec![None; count], idle: (0..count).rev().collect(), arrivals, tasks }
    }

    /// Whether a worker waits for a grant.
    pub(super) fn has_idle(&self) -> bool {
        !self.idle.is_empty()
    }

    /// Sends an idle worker to receive.
    pub(super) fn grant(&mut self, capacity: Capacity) {
        if let Some(worker) = self.idle.pop() {
            // An idle worker's channel is empty; a worker that died leaves the grant unused, and with it the flow
            // one worker poorer, which its status shows.
            let _ = self.grants[worker].try_send(capacity);
            self.granted[worker] = Some(capacity);
        }
    }

    /// Marks a worker as waiting for a grant.
    pub(super) fn set_idle(&mut self, worker: usize) {
        self.granted[worker] = None;
        self.idle.push(worker);
    }

    /// Marks a worker's grant as answered while the worker waits.
    pub(super) fn set_waiting(&mut self, worker: usize) {
        self.granted[worker] = None;
    }

    /// What workers tell next.
    pub(super) async fn next(&mut self) -> Option<Arrival> {
        self.arrivals.recv().await
    }

    /// What workers have told already.
    pub(super) fn try_next(&mut self) -> Option<Arrival> {
        self.arrivals.try_recv().ok()
    }

    /// Stops receiving at once. Gives back what had arrived already, and the grants of receives that were broken off;
    /// what those were given comes again when its lease ends.
    pub(super) async fn stop(&mut self) -> (Vec<Arrival>, Vec<Capacity>) {
        self.grants.clear();
        self.tasks.shutdown().await;
        let mut arrivals = Vec::new();
        while let Ok(arrival) = self.arrivals.try_recv() {
            if let Arrival::Received { worker, .. } | Arrival::Failed { worker, .. } = &arrival {
                self.granted[*worker] = None;
            }
            arrivals.push(arrival);
        }
        self.idle.clear();
        (arrivals, self.granted.iter_mut().filter_map(Option::take).collect())
    }
}

async fn work(
    worker: usize,
    source: Arc<dyn Source>,
    mut grants: mpsc::Receiver<Capacity>,
    arrivals: mpsc::Sender<Arrival>,
    mut backoff: Backoff,
) {
    while let Some(granted) = grants.recv().await {
        let asked_at = tokio::time::Instant::now();
        let wait = match source.receive(granted).await {
            Ok(deliveries) if deliveries.is_empty() && asked_at.elapsed() < POLL_MIN => {
                let wait = backoff.next_wait();
                if arrivals.send(Arrival::Received { worker, granted, deliveries }).await.is_err() {
                    return;
                }
                // Already idle for the flow: a grant that comes now waits in the channel.
                tokio::time::sleep(wait).await;
                continue;
            }
            Ok(deliveries) => {
                backoff.reset();
                if arrivals.send(Arrival::Received { worker, granted, deliveries }).await.is_err() {
                    return;
                }
                continue;
            }
            Err(error) => {
                let most = match error.fault {
                    ReceiveFault::Access => REFUSED_BACKOFF_MAX,
                    ReceiveFault::Broker | ReceiveFault::Throttled | ReceiveFault::Subscription => {
                        BACKOFF_MAX
                    }
                };
                let wait = backoff.next_wait().min(most);
                let failed = Arrival::Failed { worker, granted, error, wait };
                if arrivals.send(failed).await.is_err() {
                    return;
                }
                wait
            }
        };
        tokio::time::sleep(wait).await;
        if arrivals.send(Arrival::Idle { worker }).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;

    use super::*;

    /// Fails in one way, for ever.
    struct Refusing(ReceiveFault);

    #[async_trait]
    impl Source for Refusing {
        async fn receive(&self, _: Capacity) -> Result<Vec<Delivery>, ReceiveError> {
            Err(ReceiveError { detail: "no".into(), fault: self.0 })
        }

        fn status(&self) -> Option<String> {
            None
        }

        fn is_joined(&self) -> bool {
            false
        }

        async fn close(&self) {}
    }

    /// The longest of the first waits after failures.
    async fn longest_wait(fault: ReceiveFault) -> Duration {
        let source: Arc<dyn Source> = Arc::new(Refusing(fault));
        let mut workers = Workers::start(&source, 1, 7);
        let (mut longest, mut failures) = (Duration::ZERO, 0);
        workers.grant(Capacity { messages: 1, bytes: 1 });
        while failures < 20 {
            match workers.next().await.expect("the worker lives") {
                Arrival::Failed { wait, .. } => {
                    (longest, failures) = (longest.max(wait), failures + 1);
                }
                Arrival::Idle { worker } => {
                    workers.set_idle(worker);
                    workers.grant(Capacity { messages: 1, bytes: 1 });
                }
                Arrival::Received { .. } => panic!("nothing is received"),
            }
        }
        workers.stop().await;
        longest
    }

    #[tokio::test]
    async fn keys_that_are_put_right_are_tried_soon() {
        tokio::time::pause();
        assert_eq!(longest_wait(ReceiveFault::Access).await, REFUSED_BACKOFF_MAX);
        assert!(longest_wait(ReceiveFault::Broker).await > REFUSED_BACKOFF_MAX, "nobody watches those");
    }
}
