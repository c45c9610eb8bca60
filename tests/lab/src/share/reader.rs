//! A member of a share group that acknowledges what it gets and does nothing else.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use parking_lot::Mutex;
use tidegate_connector::Clock;
use tidegate_kafka_share::{
    Acknowledge, AcknowledgeType, BootstrapServers, ClientOptions, Connector, ConsumerSettings, Event,
    Exchange, FetchSettings, MemberSettings, Observer, ShareConsumer, Subscription,
};
use tokio::task::JoinSet;

use super::Traffic;
use super::talking::{tell, tell_traffic};

/// Acknowledgements under way while more is received, in batches.
const SETTLING_MAX: usize = 4;

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Brokers to ask first
    bootstrap: String,
    /// Topic to consume
    topic: String,
    /// Share group
    group: String,
    /// Records after which it ends
    records: usize,
    /// The most records of a fetch
    #[arg(long, default_value_t = FetchSettings::default().max_records)]
    max_records: usize,
}

/// Counts what goes over the wire.
#[derive(Default)]
struct Counter(Mutex<Traffic>);

impl Observer for Counter {
    fn observe(&self, _: &Event) {}

    fn exchanged(&self, exchange: &Exchange) {
        self.0.lock().add(exchange);
    }
}

/// Says on standard output when it began, had its first record, and had its last one acknowledged.
pub(crate) async fn run(args: &Args) -> Result<()> {
    let process = std::process::id();
    let subscription = Subscription::topics([args.topic.as_str()]);
    let member = MemberSettings {
        fetch: FetchSettings { max_records: args.max_records, ..FetchSettings::default() },
        ..MemberSettings::new(
            args.group.as_str(),
            format!("reader-{process}"),
            subscription,
            u64::from(process),
        )
    };
    let bootstrap = BootstrapServers::parse(&args.bootstrap).context("bootstrap servers")?;
    let settings = ConsumerSettings {
        held_records_max: args.max_records * 6,
        ..ConsumerSettings::new(member, bootstrap)
    };
    tell("began");
    let connector = Connector::new(ClientOptions::default())?;
    let counter = Arc::new(Counter::default());
    let observer: Arc<dyn Observer> = Arc::<Counter>::clone(&counter);
    let consumer = ShareConsumer::start(settings, connector, Clock::start(), observer);
    let mut received = 0;
    let mut settling: JoinSet<Result<()>> = JoinSet::new();
    while received < args.records {
        let batches = consumer.receive(args.max_records, usize::MAX, Duration::from_secs(1)).await?;
        let count: usize = batches.iter().map(|batch| batch.records.len()).sum();
        if received == 0 && count > 0 {
            tell("first");
        }
        received += count;
        let acks: Vec<Acknowledge> = batches
            .iter()
            .flat_map(|batch| batch.records.iter().map(|delivered| batch.lease(delivered.record.offset)))
            .map(|lease| Acknowledge { lease, last: lease.offset, kind: AcknowledgeType::Accept })
            .collect();
        if acks.is_empty() {
            continue;
        }
        let consumer = consumer.clone();
        settling.spawn(async move {
            let failed = consumer.acknowledge(acks).await.into_iter().find_map(Result::err);
            ensure!(failed.is_none(), "an acknowledgement failed: {failed:?}");
            Ok(())
        });
        while settling.len() > SETTLING_MAX {
            settled(&mut settling).await?;
        }
    }
    while !settling.is_empty() {
        settled(&mut settling).await?;
    }
    tell("done");
    let traffic = *counter.0.lock();
    tell_traffic(Traffic { records: received as u64, ..traffic })?;
    consumer.close().await;
    Ok(())
}

async fn settled(settling: &mut JoinSet<Result<()>>) -> Result<()> {
    settling.join_next().await.transpose()?.transpose()?;
    Ok(())
}
