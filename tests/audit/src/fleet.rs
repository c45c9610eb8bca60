//! Two hosts and workers in three languages: one host takes messages and hands them out, the other only settles.
//! Workers settle at either; workers and the first host are killed at random moments. Every message must be delivered at
//! least once and none be left unacknowledged, nothing may come again without a cause (see `duplicates`), the settling host may take
//! nothing, and none of the run's secrets may show anywhere.
//!
//! What is not searched for secrets are the brokers' own files: what they write down is theirs.

mod crew;
mod duplicates;
mod hosts;
mod journal;
mod judge;
mod play;
mod secrets;
mod verdict;
mod witness;

use std::path::PathBuf;
use std::process::Child;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use parking_lot::Mutex;
use secrecy::SecretString;
use tidegate_process_tests::secrets::Haul;
use tidegate_rocketmq::{ClientOptions, Endpoints, Fixed, Keys, Outgoing};
use tidegate_test_brokers::{Cluster, ClusterOptions, Credentials, GroupKind, TopicType};
use tokio::time::Instant;

use self::crew::{WORKERS, Worker};
use self::hosts::{Host, Surroundings};
use self::journal::Journal;
use self::secrets::{Secrets, control};
use self::verdict::{Kills, Verdict};
use crate::ledger::Place;
use crate::load::Load;
use crate::progress;
use crate::random::Random;

/// The broker's retries must not turn a message into a dead letter because workers were killed.
const RETRY_MAX: u32 = 1_000;
/// Messages of the normal topic: one column in so many.
const COLUMNS_PER_NORMAL: u32 = 5;
/// The brokers' users of the host that takes messages and of the one that settles.
const USERS: [&str; 2] = ["host-a", "host-b"];
/// The brokers' super user, which this program is.
const SUPER_USER: (&str, &str) = ("audit", "audit-0123456789abcdef");
/// How long a message may take to be sent: on a busy machine long enough that hardly one is sent twice.
const SEND_TIMEOUT: Duration = Duration::from_secs(60);

/// What the run is like.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Messages to send
    #[arg(long, default_value_t = 50_000)]
    messages: u32,
    /// Lite topics to spread four fifths of them over; the rest goes to a normal topic
    #[arg(long, default_value_t = 160)]
    lite_topics: u32,
    /// Times that each worker is killed
    #[arg(long, default_value_t = 3)]
    worker_kills: u32,
    /// Times that the host that gives messages out is killed
    #[arg(long, default_value_t = 4)]
    host_kills: u32,
    /// Times that the proxy is killed and started again
    #[arg(long, default_value_t = 0)]
    proxy_restarts: u32,
    /// Messages that each worker works on at one time
    #[arg(long, default_value_t = 32)]
    credits: u32,
    /// The host's program
    #[arg(long, default_value = "target/release/tidegate")]
    host: PathBuf,
    /// Where policies are
    #[arg(long, default_value = "policies")]
    policies: PathBuf,
    /// Seed of the moments of the kills; drawn when not given
    #[arg(long)]
    seed: Option<u64>,
    /// Give up when so long passes without anything new
    #[arg(long, default_value_t = 180)]
    patience_seconds: u64,
    /// Where to keep the hosts' logs and what workers said when a promise was broken
    #[arg(long)]
    keep: Option<PathBuf>,
}

/// Runs it.
pub(crate) async fn audit(options: &Options) -> anyhow::Result<Verdict> {
    let seed =
        options.seed.unwrap_or_else(|| u64::from(std::process::id()) << 20 | u64::from(options.messages));
    let began = Instant::now();
    let mut stage = Stage::set(options, seed).await?;
    stage.play(options).await?;
    let verdict = stage.judge(options, seed, began).await?;
    if let (false, Some(keep)) = (verdict.holds(), &options.keep) {
        stage.keep(keep)?;
    }
    Ok(verdict)
}

/// Everything that runs.
struct Stage {
    // Dropped in this order: whoever uses the brokers ends before them.
    workers: Vec<Worker>,
    taker: Host,
    settler: Host,
    lookers: Vec<Child>,
    cluster: Cluster,
    names: Names,
    lite_columns: u32,
    total: u64,
    secrets: Secrets,
    journal: Arc<Mutex<Journal>>,
    load: Option<Load>,
    random: Random,
    host_back_at: Option<Instant>,
    kills: Kills,
    haul: Haul,
}

/// Names, each with the control text in its name, which thus goes wherever they go.
struct Names {
    topics: [String; 2],
    groups: [String; 2],
    /// Of the first host's policy and of the other's settler.
    counted: String,
}

impl Names {
    fn new() -> Self {
        let control = control();
        let name = |what: &str| format!("{what}-{}", control.core());
        Self {
            topics: ["Lite", "Normal"].map(name),
            groups: ["GID-lite", "GID-normal"].map(name),
            counted: name("counted"),
        }
    }
}

impl Stage {
    async fn set(options: &Options, seed: u64) -> anyhow::Result<Self> {
        let lite_columns = options.lite_topics.max(1);
        let columns = lite_columns + lite_columns.div_ceil(COLUMNS_PER_NORMAL - 1);
        let per_column = options.messages.div_ceil(columns);
        let total = u64::from(columns) * u64::from(per_column);
        progress(&format!("seed {seed}, {total} messages on {lite_columns} lite topics and a normal one"));
        let mut random = Random::new(seed);
        let secrets = Secrets::new(WORKERS);
        let names = Names::new();
        let cluster = cluster(&names, &secrets).await?;
        let endpoint = cluster.endpoint();
        progress(&format!("cluster on {endpoint}, with access keys"));

        let around = Surroundings {
            endpoint: &endpoint,
            topics: names.topics.each_ref().map(String::as_str),
            groups: names.groups.each_ref().map(String::as_str),
            users: USERS,
            name_of_what_counts: &names.counted,
        };
        let mut taker = Host::taker(&options.host, &options.policies, &around, &secrets)?;
        let mut settler = Host::settler(&options.host, &around, &secrets)?;
        settler.start().await?;
        taker.start().await?;
        let journal = Arc::new(Mutex::new(Journal::new(columns, per_column)));
        let mut workers = crew::workers([&taker.address, &settler.address], &secrets, options.credits).await;
        let flows = hosts::FLOWS.len();
        for (at, worker) in workers.iter_mut().enumerate() {
            worker.start(&journal, at < flows, &mut random)?;
        }
        progress(&format!(
            "{} workers take from {} and settle there or at {}",
            workers.len(),
            taker.name,
            settler.name
        ));

        let keys = Keys::new(SUPER_USER.0, SecretString::from(SUPER_USER.1));
        let client = ClientOptions {
            credentials: Arc::new(Fixed::new(keys)),
            // What is sent again may be stored twice.
            request_timeout: SEND_TIMEOUT,
            ..ClientOptions::new(Endpoints::parse(&endpoint)?)
        };
        let [lite, normal]: [Arc<str>; 2] = names.topics.each_ref().map(|topic| topic.as_str().into());
        let message = move |place: Place| {
            let Place { lite_topic, number } = place;
            let body = format!("{lite_topic}/{number}");
            if lite_topic < lite_columns {
                Outgoing::lite(Arc::clone(&lite), format!("lt-{lite_topic}"), body)
            } else {
                Outgoing::normal(Arc::clone(&normal), body)
            }
        };
        let load = Load::start(client, columns, per_column, Arc::new(message)).await?;
        Ok(Self {
            workers,
            taker,
            settler,
            lookers: Vec::new(),
            cluster,
            names,
            lite_columns,
            total,
            secrets,
            journal,
            load: Some(load),
            random,
            host_back_at: None,
            kills: Kills::default(),
            haul: Haul::default(),
        })
    }
}

async fn cluster(names: &Names, secrets: &Secrets) -> anyhow::Result<Cluster> {
    let credentials = Credentials { access_key: SUPER_USER.0.into(), secret_key: SUPER_USER.1.into() };
    let options =
        ClusterOptions { credentials: Some(credentials), admissions: true, ..ClusterOptions::default() };
    let cluster = Cluster::start(options).await.context("the cluster does not start")?;
    let [lite, normal] = &names.topics;
    let [lite_group, normal_group] = &names.groups;
    cluster.create_topic(lite, TopicType::Lite).await?;
    cluster.create_topic(normal, TopicType::Normal).await?;
    cluster.create_group(lite_group, GroupKind::wildcard(lite), RETRY_MAX).await?;
    cluster.create_group(normal_group, GroupKind::Normal, RETRY_MAX).await?;
    let resources: Vec<String> = [("Topic", &names.topics), ("Group", &names.groups)]
        .iter()
        .flat_map(|(kind, names)| names.iter().map(move |name| format!("{kind}:{name}")))
        .collect();
    let resources: Vec<&str> = resources.iter().map(String::as_str).collect();
    for (user, secret) in USERS.into_iter().zip([&secrets.taker, &secrets.settler]) {
        cluster.create_user(user, secret.text()).await?;
        cluster.create_acl(user, &resources, &["Sub"]).await?;
    }
    Ok(cluster)
}
