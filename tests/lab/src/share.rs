//! Rate of the share-group client beside Java's, on a real broker.
//!
//! Each run is a process of its own with a group of its own that reads the same records from the beginning. Runs alternate.
//! Processes say when they began, had their first record and had the last one acknowledged; the rate is counted from the first
//! record, the time to it is shown apart, and processor time and memory are the system's.

pub(crate) mod reader;

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::StreamExt as _;
use tempfile::TempDir;
use tidegate_test_brokers::Usage;
use tidegate_test_brokers::kafka::{Cluster, ClusterOptions, Listener, NewTopic, Pace, Record, Sizes};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{ChildStdout, Command};
use tokio::time::{Instant, timeout};

use crate::table::{Row, Table};
use crate::watch::Measured;

const TOPIC: &str = "records";
const PARTITIONS: i32 = 3;
/// Records of a batch in the log, as producers with default settings make them under load.
const BATCH: usize = 15;
/// Batches under way at a time while the backlog is written.
const WRITERS: usize = 32;
/// A run that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(180);

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Records of the backlog
    #[arg(long, default_value_t = 300_000)]
    records: usize,
    /// Value of each, in bytes
    #[arg(long, default_value_t = 1_000)]
    value_bytes: usize,
    /// Runs of each client
    #[arg(long, default_value_t = 5)]
    rounds: u32,
}

struct Contestant {
    name: &'static str,
    /// Settings of Java's client; none for ours.
    java: Option<&'static [&'static str]>,
    ours: &'static [&'static str],
}

const JAVA: &str = "Java KafkaShareConsumer, explicit";
const JAVA_TUNED: &str = "Java, 2000 records, 4 MB a fetch";
const OURS: &str = "tidegate's client";
const OURS_SMALL: &str = "tidegate's client, 500 records a fetch";

const CONTESTANTS: [Contestant; 4] = [
    Contestant { name: JAVA, java: Some(&[]), ours: &[] },
    Contestant { name: OURS, java: None, ours: &[] },
    Contestant {
        name: JAVA_TUNED,
        java: Some(&["max.poll.records=2000", "fetch.max.bytes=4000000"]),
        ours: &[],
    },
    Contestant { name: OURS_SMALL, java: None, ours: &["--max-records", "500"] },
];

#[allow(clippy::print_stdout, reason = "the table is what it is for")]
pub(crate) async fn run(args: &Args) -> Result<()> {
    let options = ClusterOptions { pace: Pace::Stock, sizes: Sizes::Lab, ..ClusterOptions::default() };
    let cluster = Cluster::start(options).await.context("starting a broker")?;
    let java = JavaClient::compile(&cluster)?;
    write(&cluster, args).await?;
    let mut rows: Vec<Row> =
        CONTESTANTS.iter().map(|one| Row { name: one.name.into(), runs: Vec::new() }).collect();
    for round in 0..args.rounds {
        for (index, (contestant, row)) in CONTESTANTS.iter().zip(&mut rows).enumerate() {
            let group = format!("lab-{index}-{round}");
            cluster.driver().configure_group(&group, &[("share.auto.offset.reset", "earliest")]).await?;
            let measured = measure(contestant, &cluster, &java, &group, args.records)
                .await
                .with_context(|| format!("{} in round {round}", contestant.name))?;
            println!(
                "round {round}: {:<44} {:>7.0} records/s, first after {:.2} s",
                contestant.name,
                measured.rate,
                measured.first_after.as_secs_f64()
            );
            row.runs.push(measured);
        }
    }
    let ratios = [(OURS, JAVA), (OURS, JAVA_TUNED), (OURS_SMALL, JAVA)];
    let ratios = ratios.map(|(left, right)| (left.into(), right.into())).to_vec();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    println!(
        "\n{} records of {} bytes on {PARTITIONS} partitions, everything on one machine of {cores} cores:\n\n{}",
        args.records,
        args.value_bytes,
        Table { rows, ratios }
    );
    cluster.stop().await;
    Ok(())
}

async fn write(cluster: &Cluster, args: &Args) -> Result<()> {
    cluster.driver().create(&NewTopic::new(TOPIC, PARTITIONS)).await?;
    let records: Vec<Record> = (0..BATCH).map(|_| Record::new(vec![b'x'; args.value_bytes])).collect();
    let batches = args.records.div_ceil(BATCH);
    let (driver, records) = (cluster.driver(), &records[..]);
    let driver = &driver;
    let mut writing = futures::stream::iter((0..batches).map(|batch| async move {
        let partition = i32::try_from(batch).unwrap_or(0) % PARTITIONS;
        driver.produce(TOPIC, partition, records).await
    }))
    .buffer_unordered(WRITERS);
    while let Some(written) = writing.next().await {
        written?;
    }
    Ok(())
}

/// Java's client, compiled, so that no compiler runs beside it.
struct JavaClient {
    class_path: String,
    _classes: TempDir,
}

impl JavaClient {
    fn compile(cluster: &Cluster) -> Result<Self> {
        let classes = tempfile::tempdir()?;
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("java/ShareConsumerBench.java");
        let libraries = cluster.class_path().argument();
        let status = std::process::Command::new("javac")
            .args(["-cp", &libraries, "-d"])
            .args([classes.path(), source.as_path()])
            .status()
            .context("starting javac, which comes with Java 17")?;
        ensure!(status.success(), "the Java client does not compile");
        let class_path = format!("{}:{libraries}", classes.path().display());
        Ok(Self { class_path, _classes: classes })
    }
}

async fn measure(
    contestant: &Contestant,
    cluster: &Cluster,
    java: &JavaClient,
    group: &str,
    records: usize,
) -> Result<Measured> {
    let bootstrap = cluster.bootstrap(Listener::Plaintext);
    let subject = [bootstrap.as_str(), TOPIC, group, &records.to_string()];
    let mut command = match contestant.java {
        Some(settings) => {
            let mut command = Command::new("java");
            command.args(["-cp", &java.class_path, "ShareConsumerBench"]).args(subject).args(settings);
            command
        }
        None => {
            let program: PathBuf = std::env::current_exe()?;
            let mut command = Command::new(program);
            command.arg("share-read").args(subject).args(contestant.ours);
            command
        }
    };
    let log = tempfile::NamedTempFile::new()?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log.reopen()?)
        .kill_on_drop(true)
        .spawn()
        .context("starting it")?;
    let process = child.id().context("it has ended already")?;
    let mut lines = BufReader::new(child.stdout.take().context("its output")?).lines();
    let result = watch(&mut lines, process, records).await;
    child.kill().await?;
    result.with_context(|| std::fs::read_to_string(log.path()).unwrap_or_default())
}

async fn watch(lines: &mut Lines<BufReader<ChildStdout>>, process: u32, records: usize) -> Result<Measured> {
    let began = heard(lines, "began").await?;
    let first = heard(lines, "first").await?;
    let before = Usage::of(process)?;
    let done = heard(lines, "done").await?;
    let after = Usage::of(process)?;
    #[expect(clippy::cast_precision_loss, reason = "counts of records are far below 2^52")]
    let count = records as f64;
    Ok(Measured {
        first_after: first - began,
        rate: count / (done - first).as_secs_f64(),
        cpu_per_thousand: after.cpu.saturating_sub(before.cpu).div_f64(count / 1_000.0),
        resident_peak_bytes: after.resident_peak_bytes,
    })
}

async fn heard(lines: &mut Lines<BufReader<ChildStdout>>, what: &str) -> Result<Instant> {
    let waiting = async {
        while let Some(line) = lines.next_line().await? {
            if line == what {
                return Ok(Instant::now());
            }
        }
        anyhow::bail!("it ended before it said `{what}`")
    };
    timeout(PATIENCE, waiting).await.with_context(|| format!("waiting for `{what}`"))?
}
