//! One host, killed at random moments under load, and brokers that are restarted: every message delivered at least
//! once, none left unacknowledged, first deliveries in order within each lite topic.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use parking_lot::Mutex;
use tidegate_rocketmq::{ClientOptions, Endpoints, Outgoing};
use tidegate_test_brokers::{Cluster, ClusterOptions, GroupKind, Node, TopicType};
use tokio::time::{Instant, sleep};

use crate::blows::Blows;
use crate::host::{HostProcess, Setup};
use crate::ledger::{Ledger, Place, Verdict, body};
use crate::load::{Load, RocketMq, Shape};
use crate::progress;
use tidegate_process_tests::Random;

const TOPIC: &str = "AuditMainTopic";
const GROUP: &str = "GID-audit";
/// The broker's retries must not turn a message into a dead letter because hosts were killed.
const RETRY_MAX: u32 = 1_000;

/// What the run is like.
#[derive(Args, Debug)]
pub(crate) struct Options {
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
}

/// What is done to the system while it works.
#[derive(Clone, Copy, Debug)]
enum Blow {
    KillHost,
    RestartProxy,
    RestartBroker,
}

/// Runs it.
pub(crate) async fn audit(args: &Options) -> anyhow::Result<Verdict> {
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
    let bytes = args.body_bytes;
    let message =
        move |place: Place| Outgoing::lite(TOPIC, format!("lt-{}", place.lite_topic), body(place, bytes));
    let options = ClientOptions::new(Endpoints::parse(&cluster.endpoint())?);
    let shape = Shape { columns: args.lite_topics, per_column: per_lite_topic, at_once: 1 };
    let load = Load::start(RocketMq::connect(options, Box::new(message)).await?, shape);

    let kinds = [
        (Blow::KillHost, args.kills),
        (Blow::RestartProxy, args.proxy_restarts),
        (Blow::RestartBroker, args.broker_restarts),
    ];
    let mut blows = Blows::plan(&kinds, total, &mut Random::new(seed));
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
async fn wait_until_acknowledged(cluster: &Cluster, args: &Options) -> anyhow::Result<u64> {
    let deadline = Instant::now() + Duration::from_secs(args.patience_seconds);
    loop {
        let lag = cluster.lite_lag(GROUP, TOPIC).await?;
        if lag == 0 || Instant::now() > deadline {
            return Ok(lag);
        }
        sleep(Duration::from_millis(500)).await;
    }
}
