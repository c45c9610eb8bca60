//! Two hosts and workers in three languages: one host takes messages and hands them out, the other only settles.
//! Workers settle at either; workers, the first host and nodes of the brokers are killed at random moments. Every message must be
//! delivered at least once and none be left unacknowledged, nothing may come again without a cause (see `duplicates`), the settling
//! host may take nothing, and none of the run's secrets may show anywhere.
//!
//! What is the same on all brokers is here; `rocketmq` and `kafka` have the rest, behind `brokers`.
//!
//! What is not searched for secrets are the brokers' own files: what they write down is theirs.

mod brokers;
mod crew;
mod duplicates;
mod hosts;
mod journal;
mod judge;
pub(crate) mod kafka;
mod play;
pub(crate) mod rocketmq;
mod secrets;
mod verdict;
mod witness;

use std::path::PathBuf;
use std::process::Child;
use std::sync::Arc;

use clap::Args;
use parking_lot::Mutex;
use tidegate_process_tests::secrets::Haul;
use tokio::time::Instant;

use self::brokers::Brokers;
use self::crew::{WORKERS, Worker};
use self::hosts::Host;
use self::journal::Journal;
use self::secrets::Secrets;
use self::verdict::{Kills, Verdict};
use crate::load::Load;
use crate::progress;
use tidegate_process_tests::Random;

/// What the run is like, on whichever brokers.
#[derive(Args, Debug)]
#[group(skip)]
pub(crate) struct Options {
    /// Messages to send
    #[arg(long, default_value_t = 50_000)]
    messages: u32,
    /// Times that each worker is killed
    #[arg(long, default_value_t = 3)]
    worker_kills: u32,
    /// Times that the host that gives messages out is killed
    #[arg(long, default_value_t = 4)]
    host_kills: u32,
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

/// Runs it on the brokers that `start` starts, of which so many nodes are killed.
async fn audit<B: Brokers>(
    options: &Options,
    node_kills: u32,
    start: impl AsyncFnOnce(&Secrets) -> anyhow::Result<B>,
) -> anyhow::Result<Verdict> {
    let seed =
        options.seed.unwrap_or_else(|| u64::from(std::process::id()) << 20 | u64::from(options.messages));
    progress(&format!("seed {seed}"));
    let began = Instant::now();
    let secrets = Secrets::new(WORKERS);
    let brokers = start(&secrets).await?;
    let mut stage = Stage::set(options, seed, brokers, secrets).await?;
    stage.play(options, node_kills).await?;
    let verdict = stage.judge(options, seed, began).await?;
    if let (false, Some(keep)) = (verdict.holds(), &options.keep) {
        stage.keep(keep)?;
    }
    Ok(verdict)
}

/// Everything that runs.
struct Stage<B: Brokers> {
    // Dropped in this order: whoever uses the brokers ends before them.
    workers: Vec<Worker>,
    taker: Host,
    settler: Host,
    lookers: Vec<Child>,
    brokers: B,
    secrets: Secrets,
    journal: Arc<Mutex<Journal>>,
    load: Option<Load>,
    random: Random,
    host_back_at: Option<Instant>,
    node_back_at: Option<(Instant, B::Node)>,
    kills: Kills,
    /// What the host that takes messages counts of them, in the life in which it counted most.
    taken: [f64; 2],
    haul: Haul,
}

impl<B: Brokers> Stage<B> {
    async fn set(options: &Options, seed: u64, brokers: B, secrets: Secrets) -> anyhow::Result<Self> {
        let mut random = Random::new(seed);
        let mut taker = Host::new("host a", &options.host, B::FLOWS, &secrets)?;
        let mut settler = Host::new("host b", &options.host, B::FLOWS, &secrets)?;
        taker.fit_out(brokers.taker(taker.common("json"), &secrets), &options.policies)?;
        let outfit = brokers.settler(settler.common("text"), &secrets, &taker.address);
        settler.fit_out(outfit, &options.policies)?;
        settler.start().await?;
        taker.start().await?;
        let shape = brokers.shape();
        let journal = Arc::new(Mutex::new(Journal::new(shape.columns, shape.per_column)));
        let addresses = [&*taker.address, &settler.address];
        let mut workers = crew::workers(addresses, B::FLOWS, &secrets, options.credits).await;
        for (at, worker) in workers.iter_mut().enumerate() {
            worker.start(&journal, at < B::FLOWS.len(), &mut random)?;
        }
        progress(&format!(
            "{} workers take from {} and settle there or at {}",
            workers.len(),
            taker.name,
            settler.name
        ));
        let load = brokers.load().await?;
        Ok(Self {
            workers,
            taker,
            settler,
            lookers: Vec::new(),
            brokers,
            secrets,
            journal,
            load: Some(load),
            random,
            host_back_at: None,
            node_back_at: None,
            kills: Kills::default(),
            taken: [0.0; 2],
            haul: Haul::default(),
        })
    }
}
