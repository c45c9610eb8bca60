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
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::Traffic;
use super::talking::{tell, tell_traffic};

/// Acknowledgements under way while more is received, in batches.
const SETTLING_MAX: usize = 4;
/// Receives at one time: while one batch is worked on the next is on its way.
const RECEIVES: usize = 2;
/// Of one receive.
const WAIT: Duration = Duration::from_secs(1);

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
    let received = Arc::new(watch::Sender::new(0));
    let mut receiving: JoinSet<Result<()>> = (0..RECEIVES)
        .map(|_| receive(consumer.clone(), Arc::clone(&received), args.records, args.max_records))
        .collect();
    while let Some(ended) = receiving.join_next().await {
        ended??;
    }
    tell("done");
    let traffic = *counter.0.lock();
    let records = *received.borrow() as u64;
    tell_traffic(Traffic { records, ..traffic })?;
    consumer.close().await;
    Ok(())
}

/// Receives and acknowledges until `records` were received, by whomever.
async fn receive(
    consumer: ShareConsumer,
    received: Arc<watch::Sender<usize>>,
    records: usize,
    max_records: usize,
) -> Result<()> {
    let mut settling: JoinSet<Result<()>> = JoinSet::new();
    let mut all = received.subscribe();
    loop {
        let batches = tokio::select! {
            biased;
            enough = all.wait_for(|count| *count >= records) => {
                enough?;
                break;
            }
            batches = consumer.receive(max_records, usize::MAX, WAIT) => batches?,
        };
        let count: usize = batches.iter().map(|batch| batch.records.len()).sum();
        if count == 0 {
            continue;
        }
        received.send_modify(|received| {
            if *received == 0 {
                tell("first");
            }
            *received += count;
        });
        let acks: Vec<Acknowledge> = batches
            .iter()
            .flat_map(|batch| batch.records.iter().map(|delivered| batch.lease(delivered.record.offset)))
            .map(|lease| Acknowledge { lease, last: lease.offset, kind: AcknowledgeType::Accept })
            .collect();
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
    Ok(())
}

async fn settled(settling: &mut JoinSet<Result<()>>) -> Result<()> {
    settling.join_next().await.transpose()?.transpose()?;
    Ok(())
}
