//! Kills the host and restarts the brokers under load, then audits the promises: every message delivered at least
//! once, none left unacknowledged, first deliveries in order within each lite topic.
//!
//! The brokers are real, the host is the program that users run, and its kills are SIGKILL at random moments.
#![forbid(unsafe_code)]

mod host;
mod ledger;
mod load;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Parser;
use parking_lot::Mutex;
use tidegate_test_brokers::{Cluster, ClusterOptions, GroupKind, Node, TopicType};
use tokio::time::{Instant, sleep};

use crate::host::{HostProcess, Setup};
use crate::ledger::{Ledger, Verdict};
use crate::load::Load;

const TOPIC: &str = "AuditMainTopic";
const GROUP: &str = "GID-audit";
/// The broker's retries must not turn a message into a dead letter because hosts were killed.
const RETRY_MAX: u32 = 1_000;

/// Kills the host and restarts real RocketMQ servers under load, and prints the audit.
#[derive(Debug, Parser)]
struct Args {
    /// Messages to send
    #[arg(long, default_value_t = 100_000)]
    messages: u32,
    /// Lite topics to spread them over
    #[arg(long, default_value_t = 200)]
    lite_topics: u32,
    /// Times that the host is killed
    #[arg(long, default_value_t = 10)]
    kills: u32,
    /// Times that the proxy is killed and started again
    #[arg(long, default_value_t = 1)]
    proxy_restarts: u32,
    /// Times that the broker is killed and started again
    #[arg(long, default_value_t = 1)]
    broker_restarts: u32,
    /// Body of each message, in bytes
    #[arg(long, default_value_t = 256)]
    body_bytes: usize,
    /// The host's program
    #[arg(long, default_value = "target/release/tidegate")]
    host: PathBuf,
    /// Where policies are
    #[arg(long, default_value = "policies")]
    policies: PathBuf,
    /// Seed of the moments of the kills; drawn when not given
    #[arg(long)]
    seed: Option<u64>,
    /// Give up when so long passes without a new message delivered
    #[arg(long, default_value_t = 180)]
    patience_seconds: u64,
    /// Print the audit as JSON
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error.into()),
    };
    match runtime.block_on(audit(&args)) {
        Ok(verdict) => {
            say(&args, &verdict);
            if verdict.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => fail(&error),
    }
}

#[allow(clippy::print_stdout, reason = "the audit is this program's data")]
fn say(args: &Args, verdict: &Verdict) {
    match serde_json::to_string(verdict) {
        Ok(json) if args.json => println!("{json}"),
        _ => println!("{verdict}"),
    }
}

#[allow(clippy::print_stderr, reason = "errors are this program's talk")]
fn fail(error: &anyhow::Error) -> ExitCode {
    eprintln!("error: {error:#}");
    ExitCode::FAILURE
}

#[allow(clippy::print_stderr, reason = "progress is this program's talk")]
fn progress(line: &str) {
    eprintln!("{line}");
}

/// What is done to the system while it works.
#[derive(Clone, Copy, Debug)]
enum Blow {
    KillHost,
    RestartProxy,
    RestartBroker,
}

async fn audit(args: &Args) -> anyhow::Result<Verdict> {
    let per_lite_topic = args.messages / args.lite_topics;
    let total = u64::from(per_lite_topic) * u64::from(args.lite_topics);
    let seed = args.seed.unwrap_or_else(|| u64::from(std::process::id()) << 20 | u64::from(args.messages));
    progress(&format!("seed {seed}, {total} messages on {} lite topics", args.lite_topics));

    let cluster = Cluster::start(ClusterOptions::default()).await.context("the cluster does not start")?;
    cluster.create_topic(TOPIC, TopicType::Lite).await?;
    cluster.create_group(GROUP, GroupKind::wildcard(TOPIC), RETRY_MAX).await?;
    progress(&format!("cluster on {}", cluster.endpoint()));

    let setup = Setup::new(&args.host, &args.policies, &cluster.endpoint(), TOPIC, GROUP)?;
    let ledger = Arc::new(Mutex::new(Ledger::new(args.lite_topics, per_lite_topic)));
    let mut host = HostProcess::start(&setup, Arc::clone(&ledger))?;
    let load =
        Load::start(&cluster.endpoint(), TOPIC, args.lite_topics, per_lite_topic, args.body_bytes).await?;

    let mut blows = Blows::plan(args, total, seed);
    let mut last_progress = (0, Instant::now());
    loop {
        sleep(Duration::from_millis(20)).await;
        let delivered = ledger.lock().delivered();
        if delivered > last_progress.0 {
            last_progress = (delivered, Instant::now());
        } else if last_progress.1.elapsed() > Duration::from_secs(args.patience_seconds) {
            progress(&format!("nothing new for {} s, giving up", args.patience_seconds));
            break;
        }
        if let Some(status) = host.has_ended()? {
            bail!("the host ended by itself with {status}; its log: {}", setup.log_path().display());
        }
        while let Some(blow) = blows.due(delivered) {
            progress(&format!(
                "{delivered:>7} delivered, {} sent: {blow:?}",
                load.sent.load(Ordering::Relaxed)
            ));
            match blow {
                Blow::KillHost => {
                    host.kill()?;
                    host = HostProcess::start(&setup, Arc::clone(&ledger))?;
                }
                Blow::RestartProxy => {
                    cluster.kill(Node::Proxy(0));
                    cluster.revive(Node::Proxy(0)).await?;
                }
                Blow::RestartBroker => {
                    cluster.kill(Node::Broker(0));
                    cluster.revive(Node::Broker(0)).await?;
                }
            }
        }
        if delivered == total && load.is_done() {
            break;
        }
    }
    load.finish().await?;
    let unacked = wait_until_acknowledged(&cluster, args).await?;
    host.terminate().context("the host does not end well")?;
    let ledger = ledger.lock();
    for place in ledger.missing(10) {
        progress(&format!("never delivered: {place:?}"));
    }
    let verdict = ledger.verdict(unacked);
    if !verdict.holds() {
        progress(&format!(
            "logs are kept in {} and {}",
            setup.keep().display(),
            cluster.directory().display()
        ));
    }
    Ok(verdict)
}

/// What the brokers still count as unacknowledged once nothing changes any more.
async fn wait_until_acknowledged(cluster: &Cluster, args: &Args) -> anyhow::Result<u64> {
    let deadline = Instant::now() + Duration::from_secs(args.patience_seconds);
    loop {
        let lag = cluster.lite_lag(GROUP, TOPIC).await?;
        if lag == 0 || Instant::now() > deadline {
            return Ok(lag);
        }
        sleep(Duration::from_millis(500)).await;
    }
}

/// The blows and the numbers of deliveries after which they fall, the last first.
struct Blows(Vec<(u64, Blow)>);

impl Blows {
    /// Each falls at a random moment of its own stretch of the run, so that they are spread and never foreseen.
    fn plan(args: &Args, total: u64, seed: u64) -> Self {
        let mut random = seed | 1;
        let mut next = move |below: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % below.max(1)
        };
        let kinds = [
            (Blow::KillHost, args.kills),
            (Blow::RestartProxy, args.proxy_restarts),
            (Blow::RestartBroker, args.broker_restarts),
        ];
        let mut blows: Vec<(u64, Blow)> = Vec::new();
        for (blow, count) in kinds {
            for at in 0..u64::from(count) {
                let stretch = total / u64::from(count);
                blows.push((at * stretch + next(stretch), blow));
            }
        }
        blows.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
        Self(blows)
    }

    fn due(&mut self, delivered: u64) -> Option<Blow> {
        let (at, _) = self.0.last()?;
        if *at > delivered {
            return None;
        }
        self.0.pop().map(|(_, blow)| blow)
    }
}
