//! The demo's tenants: twenty quiet ones and one that floods.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_rocketmq::{Outgoing, Producer};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

/// The property that names a message's tenant.
pub(super) const TENANT: &str = "tenant";
/// The tenant that floods.
pub(super) const HOT: &str = "hot";
/// Tenants that do not.
pub(super) const QUIET_TENANTS: usize = 20;
/// Each quiet tenant sends one message so often.
const QUIET_EVERY: Duration = Duration::from_millis(500);
/// The hot tenant's sessions, a lite topic each: many more than the host holds at one time, or their order alone would
/// keep the flood at bay.
const HOT_SESSIONS: u64 = 3_000;
/// The hot tenant sends so many messages so often: 350 a second.
const HOT_BURST: u64 = 35;
const HOT_EVERY: Duration = Duration::from_millis(100);

/// What the tenants send.
#[derive(Debug)]
pub(super) struct Load {
    sent: Arc<AtomicU64>,
    failed: Arc<AtomicU64>,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl Load {
    pub(super) fn start(producer: &Producer, topic: &Arc<str>) -> Self {
        let mut load = Self {
            sent: Arc::default(),
            failed: Arc::default(),
            stop: CancellationToken::new(),
            tasks: JoinSet::new(),
        };
        for tenant in 1..=QUIET_TENANTS {
            let name: Arc<str> = format!("quiet-{tenant:02}").into();
            let topic = Arc::clone(topic);
            // Spread over the interval, so that quiet tenants are no flood together.
            let offset = QUIET_EVERY * u32::try_from(tenant).unwrap_or(0) / 20;
            load.spawn(producer, offset, QUIET_EVERY, move |_| vec![message(&topic, &name, &name)]);
        }
        let topic = Arc::clone(topic);
        load.spawn(producer, Duration::ZERO, HOT_EVERY, move |tick| {
            let session = |at: u64| format!("hot-{:03}", (tick * HOT_BURST + at) % HOT_SESSIONS);
            (0..HOT_BURST).map(|at| message(&topic, HOT, &session(at))).collect()
        });
        load
    }

    /// Messages that the broker has taken.
    pub(super) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Messages that the broker has refused.
    pub(super) fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// Ends the tenants' day.
    pub(super) async fn stop(&mut self) {
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
    }

    fn spawn(
        &mut self,
        producer: &Producer,
        offset: Duration,
        every: Duration,
        make: impl Fn(u64) -> Vec<Outgoing> + Send + 'static,
    ) {
        let (producer, stop) = (producer.clone(), self.stop.clone());
        let (sent, failed) = (Arc::clone(&self.sent), Arc::clone(&self.failed));
        self.tasks.spawn(async move {
            tokio::time::sleep(offset).await;
            let mut ticks = interval(every);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            for tick in 0.. {
                tokio::select! {
                    () = stop.cancelled() => return,
                    _ = ticks.tick() => {}
                }
                for result in producer.send_batch(make(tick)).await {
                    let counter = if result.is_ok() { &sent } else { &failed };
                    counter.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    }
}

fn message(topic: &Arc<str>, tenant: &str, lite_topic: &str) -> Outgoing {
    Outgoing::lite(Arc::clone(topic), lite_topic, format!("work for {tenant}")).with_property(TENANT, tenant)
}
