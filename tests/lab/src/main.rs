//! Measures the host: beside the public Java client on a real broker, and by itself on the development broker.
//!
//! Without a subcommand: one cluster, one backlog of equal messages on lite topics and one on a normal topic; each run reads a backlog from
//! its beginning with a group of its own. Runs alternate, so that a machine that gets slower or faster does so for
//! all. Progress is counted at the broker, processor time and memory by the system, so that nobody measures itself.
//!
//! The subcommands each say what they measure.
#![forbid(unsafe_code)]

mod acks;
mod alone;
mod backlog;
mod configuration;
mod contestant;
mod embedded;
mod handoff;
mod latency;
mod loopback;
mod outstanding;
mod policies;
mod program;
mod reader;
mod share;
mod subscription;
mod swap;
mod table;
mod watch;
mod worker;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};
use tidegate_test_brokers::{Cluster, ClusterOptions, Sizes};

use crate::backlog::Backlogs;
use crate::contestant::{Bench, Contestant};
use crate::table::{Row, Table};

/// Measures the host beside the public Java client on a real RocketMQ broker, or as a subcommand says.
#[derive(Debug, Parser)]
struct Args {
    /// Messages in each backlog
    #[arg(long, default_value_t = 40_000)]
    messages: u64,
    /// Lite topics that one backlog is spread over
    #[arg(long, default_value_t = 64)]
    lite_topics: u64,
    /// Body of each message, in bytes
    #[arg(long, default_value_t = 1024)]
    body_bytes: usize,
    /// Runs of each client
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// The host's program
    #[arg(long, global = true, default_value = "target/release/tidegate")]
    host: PathBuf,
    /// Where the shipped policies are
    #[arg(long, global = true, default_value = "policies")]
    policies: PathBuf,
    #[command(subcommand)]
    task: Option<Task>,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Rate of the host with policies that trap, loop or eat memory, beside that with a healthy one
    Policies(policies::Args),
    /// Time that the host adds to a message at half load
    Latency(latency::Args),
    /// Rate of the host with a broker that is never the bottleneck for long: both in this process
    Alone(alone::Args),
    /// Rate and times of messages that a worker takes over the loopback interface, beside the sink `discard`
    Handoff(handoff::Args),
    /// Rate at which receipts are settled through the ack pool on a real broker, beside the settler of who took them
    Acks(acks::Args),
    /// Memory of deliveries that a worker holds
    Outstanding(outstanding::Args),
    /// Time from writing a policy's file to its first answer, and what calls notice of it
    Swap(swap::Args),
    /// Rate of the share-group client and of the host beside Java's client, librdkafka and krafka, on a real Kafka broker
    Share(share::Args),
    /// Reads a topic as a member of a share group and decides nothing. The lab starts it as one of the contestants
    #[command(hide = true)]
    ShareRead(share::reader::Args),
    /// Reads and acknowledges a lite backlog and decides nothing: what the broker gives at most. The lab starts it as
    /// one of the contestants
    #[command(hide = true)]
    Read(reader::Args),
}

/// As in the host, which some tasks run in this process.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    match &args.task {
        Some(Task::Policies(task)) => policies::run(task, &args.host, &args.policies).await,
        Some(Task::Latency(task)) => latency::run(task, &args.policies).await,
        Some(Task::Alone(task)) => alone::run(task, &args.policies).await,
        Some(Task::Handoff(task)) => handoff::run(task, &args.policies).await,
        Some(Task::Acks(task)) => acks::run(task).await,
        Some(Task::Outstanding(task)) => outstanding::run(task, &args.host, &args.policies).await,
        Some(Task::Swap(task)) => swap::run(task, &args.policies),
        Some(Task::Share(task)) => share::run(task, &args.host, &args.policies).await,
        Some(Task::ShareRead(read)) => share::reader::run(read).await,
        Some(Task::Read(read)) => reader::run(read).await,
        None => measure(&args).await,
    }
}

/// Where something is that building the host leaves behind.
fn absolute(path: &Path) -> Result<PathBuf> {
    path.canonicalize().with_context(|| {
        format!("{} is not there; build the host with `cargo build --release`", path.display())
    })
}

#[allow(clippy::print_stdout, reason = "the table is what it is for")]
async fn measure(args: &Args) -> Result<()> {
    let bench = Bench::prepare(args)?;
    let options = ClusterOptions { sizes: Sizes::Lab, ..ClusterOptions::default() };
    let cluster = Cluster::start(options).await.context("starting a cluster")?;
    let backlogs = Backlogs::send(&cluster, args.messages, args.lite_topics, args.body_bytes).await?;
    println!("backlogs of {} messages sent at {:.0} messages/s", args.messages, backlogs.send_rate);

    let mut rows: Vec<Row> =
        Contestant::ALL.iter().map(|one| Row { name: one.name().into(), runs: Vec::new() }).collect();
    for round in 0..args.rounds {
        for (contestant, row) in Contestant::ALL.iter().zip(&mut rows) {
            let measured = bench
                .run(*contestant, &cluster, &backlogs, round)
                .await
                .with_context(|| format!("{} in round {round}", contestant.name()))?;
            println!("round {round}: {:<44} {:>7.0} messages/s", contestant.name(), measured.rate);
            row.runs.push(measured);
        }
    }
    let ratios = Contestant::RATIOS.map(|(left, right)| (left.name().into(), right.name().into())).to_vec();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    println!(
        "\n{} messages of {} bytes, {} lite topics, everything on one machine of {cores} cores:\n\n{}",
        args.messages,
        args.body_bytes,
        args.lite_topics,
        Table { unit: "messages", rows, ratios }
    );
    cluster.stop().await;
    Ok(())
}
