//! Rate of the share-group client and of the whole host beside Java's client, librdkafka and krafka, on a real broker.
//!
//! Each run is a process of its own with a group of its own that reads the same records from the beginning and acknowledges
//! each explicitly. Runs alternate, after one that does not count: a broker that has just started is slower. The rate is
//! counted from the first record to the last acknowledgement, the time to the first record is shown apart, and processor
//! time and memory are the system's.

mod contestant;
mod host;
pub(crate) mod reader;
mod rivals;
mod talking;
mod traffic;

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use futures::StreamExt as _;
use tidegate_test_brokers::kafka::{Cluster, ClusterOptions, Listener, NewTopic, Pace, Record, Sizes};

use self::contestant::{CONTESTANTS, Contestant, RATIOS, Runner};
use self::host::Host;
use self::rivals::Rivals;
pub(crate) use self::traffic::Traffic;
use crate::table::{Row, Table};
use crate::watch::Measured;

const TOPIC: &str = "records";
const PARTITIONS: i32 = 3;
/// Records of a batch in the log, as producers with default settings make them under load.
const BATCH: usize = 15;
/// Batches under way at a time while the backlog is written.
const WRITERS: usize = 32;
/// The header that says whose record it is, and how many there are to be told apart.
const TENANT: &str = "tenant";
const TENANTS: usize = 64;

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Records of the backlog
    #[arg(long, default_value_t = 600_000)]
    records: usize,
    /// Value of each, in bytes
    #[arg(long, default_value_t = 1_000)]
    value_bytes: usize,
    /// Runs of each client
    #[arg(id = "share_rounds", long = "rounds", default_value_t = 5)]
    rounds: u32,
    /// Only these clients, and none that needs what is missing here
    #[arg(long, value_delimiter = ',')]
    only: Vec<Runner>,
}

/// What all runs have in common.
struct Bench {
    cluster: Cluster,
    rivals: Rivals,
    host: Option<Host>,
    records: usize,
}

/// What one run reads.
#[derive(Clone, Copy, Debug)]
struct Subject<'a> {
    bootstrap: &'a str,
    group: &'a str,
    records: usize,
}

#[allow(clippy::print_stdout, reason = "the table is what it is for")]
pub(crate) async fn run(args: &Args, host: &Path, policies: &Path) -> Result<()> {
    let is_wanted = |runner: Runner| args.only.is_empty() || args.only.contains(&runner);
    let contestants: Vec<&Contestant> = CONTESTANTS.iter().filter(|one| is_wanted(one.runner)).collect();
    let host = if is_wanted(Runner::Host) { Some(Host::prepare(host, policies)?) } else { None };
    let options = ClusterOptions { pace: Pace::Stock, sizes: Sizes::Lab, ..ClusterOptions::default() };
    let cluster = Cluster::start(options).await.context("starting a broker")?;
    let rivals = Rivals::prepare(&contestants)?;
    write(&cluster, args).await?;
    let bench = Bench { cluster, rivals, host, records: args.records };
    bench.run(&contestant::UNCOUNTED, "lab-uncounted").await.context("the run that does not count")?;
    let mut rows: Vec<Row> =
        contestants.iter().map(|one| Row { name: one.name.into(), runs: Vec::new() }).collect();
    for round in 0..args.rounds {
        for place in 0..contestants.len() {
            // A broker's code gets faster all the while, so that each round begins with another one.
            let index = (place + round as usize) % contestants.len();
            let (contestant, row) = (contestants[index], &mut rows[index]);
            let measured = bench
                .run(contestant, &format!("lab-{index}-{round}"))
                .await
                .with_context(|| format!("{} in round {round}", contestant.name))?;
            let traffic = measured.traffic.map_or_else(String::new, |traffic| format!(", {traffic}"));
            println!(
                "round {round}: {:<48} {:>7.0} records/s, first after {:.2} s{traffic}",
                contestant.name,
                measured.rate,
                measured.first_after.as_secs_f64()
            );
            row.runs.push(measured);
        }
    }
    let ratios = RATIOS.map(|(left, right)| (left.into(), right.into())).to_vec();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    println!(
        "\n{} records of {} bytes on {PARTITIONS} partitions, everything on one machine of {cores} cores:\n\n{}",
        args.records,
        args.value_bytes,
        Table { unit: "records", rows, ratios }
    );
    bench.cluster.stop().await;
    Ok(())
}

impl Bench {
    async fn run(&self, contestant: &Contestant, group: &str) -> Result<Measured> {
        // Where a group without this begins is the end of the topic.
        self.cluster.driver().configure_group(group, &[("share.auto.offset.reset", "earliest")]).await?;
        let bootstrap = self.cluster.bootstrap(Listener::Plaintext);
        let subject = Subject { bootstrap: &bootstrap, group, records: self.records };
        match &self.host {
            Some(host) if contestant.runner == Runner::Host => host.run(subject).await,
            _ => talking::run(self.rivals.command(contestant, subject)?, subject.records).await,
        }
    }
}

async fn write(cluster: &Cluster, args: &Args) -> Result<()> {
    cluster.driver().create(&NewTopic::new(TOPIC, PARTITIONS)).await?;
    ensure!(args.records > 0, "there must be records to read");
    let value = vec![b'x'; args.value_bytes];
    let records: Vec<Record> = (0..TENANTS * BATCH)
        .map(|number| Record::new(value.clone()).header(TENANT, format!("tenant-{}", number % TENANTS)))
        .collect();
    let (driver, records) = (cluster.driver(), &records[..]);
    let (driver, last) = (&driver, args.records.div_ceil(BATCH));
    let mut writing = futures::stream::iter((0..last).map(|batch| async move {
        let partition = i32::try_from(batch).unwrap_or(0) % PARTITIONS;
        let from = batch % TENANTS * BATCH;
        driver.produce(TOPIC, partition, &records[from..from + BATCH]).await
    }))
    .buffer_unordered(WRITERS);
    while let Some(written) = writing.next().await {
        written?;
    }
    Ok(())
}
