//! A member of a share group that acknowledges what it gets and does nothing else.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tidegate_connector::Clock;
use tidegate_kafka_share::{
    Acknowledge, AcknowledgeType, BootstrapServers, ClientOptions, Connector, ConsumerSettings, Event,
    FetchSettings, MemberSettings, Observer, ShareConsumer, Subscription,
};
use tokio::task::JoinSet;

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

struct Nobody;

impl Observer for Nobody {
    fn observe(&self, _: &Event) {}
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
    let consumer = ShareConsumer::start(settings, connector, Clock::start(), Arc::new(Nobody));
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
    consumer.close().await;
    Ok(())
}

async fn settled(settling: &mut JoinSet<Result<()>>) -> Result<()> {
    settling.join_next().await.transpose()?.transpose()?;
    Ok(())
}

#[allow(clippy::print_stdout, reason = "its parent reads it")]
fn tell(what: &str) {
    println!("{what}");
}
