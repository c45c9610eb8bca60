//! A consumer that acknowledges what it gets and does nothing else: the most that the broker gives through our own
//! connector.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use futures::future::join_all;
use tidegate_connector::Clock;
use tidegate_model::{Capacity, Delivery, DeliveryId, Settlement, Verb};
use tidegate_rocketmq::{ClientOptions, Connection, Endpoints, SourceOptions, Start, connect};
use tidegate_telemetry::Telemetry;
use tokio::time::sleep;

/// The most that a proxy gives, far below any bound in bytes.
const BATCH: Capacity = Capacity { messages: 32, bytes: 64 << 20 };
const PAUSE_AFTER_TROUBLE: Duration = Duration::from_millis(100);

/// What to read.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    endpoint: String,
    topic: String,
    group: String,
    /// Receives in flight
    #[arg(long)]
    receives: usize,
}

/// Reads until it is killed.
pub(crate) async fn run(args: &Args) -> Result<()> {
    let client = ClientOptions::new(Endpoints::parse(&args.endpoint)?);
    let options = SourceOptions {
        fetch_concurrency: args.receives,
        start: Start::Within(Duration::from_secs(30)),
        ..SourceOptions::new(client, args.topic.as_str(), args.group.as_str())
    };
    let connection = connect(options, Clock::start(), Telemetry::default(), "reader".into()).await?;
    let settled = AtomicU64::new(0);
    join_all((0..args.receives).map(|_| read(&connection, &settled))).await;
    Ok(())
}

/// A lite topic gives no more before what it gave is acknowledged, so that one batch after the other keeps its order.
async fn read(connection: &Connection, settled: &AtomicU64) {
    loop {
        match connection.source.receive(BATCH).await {
            Ok(deliveries) => {
                let batch: Vec<_> =
                    deliveries.into_iter().map(|delivery| accept(delivery, settled)).collect();
                if !batch.is_empty() {
                    connection.settler.settle(batch).await;
                }
            }
            Err(_) => sleep(PAUSE_AFTER_TROUBLE).await,
        }
    }
}

fn accept(delivery: Delivery, settled: &AtomicU64) -> Settlement {
    Settlement {
        id: DeliveryId(settled.fetch_add(1, Ordering::Relaxed)),
        verb: Verb::Accept,
        message: delivery.message,
        handle: delivery.handle,
        attempt: delivery.attempt,
    }
}
