//! The memory of deliveries that a worker has and has not settled: the program by itself, the broker and the worker here.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use tidegate_proto::handoff::subscribe_response;
use tidegate_test_brokers::Usage;
use tokio::time::{sleep, timeout};

use crate::absolute;
use crate::configuration::Configuration;
use crate::loopback::{GROUP, Load, Loopback, TOPIC, tenant};
use crate::program::Program;
use crate::subscription::Subscription;

/// Receives in flight.
const RECEIVES: usize = 4;
/// Far more than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);
/// After that what is freed has been given back, and what is under way has come.
const CALM: Duration = Duration::from_secs(3);

/// How much.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Deliveries that the worker holds in the end
    #[arg(long, default_value_t = 10_000)]
    held: u64,
    /// Deliveries that go through before, so that the host has what it needs to work
    #[arg(long, default_value_t = 20_000)]
    before: u64,
    /// Bodies of messages to try, in bytes
    #[arg(id = "outstanding_body_bytes", long = "body-bytes", value_delimiter = ',', default_values_t = [16, 1024])]
    body_bytes: Vec<usize>,
}

#[allow(clippy::print_stdout, reason = "the table is what it is for")]
pub(crate) async fn run(args: &Args, host: &Path, policies: &Path) -> Result<()> {
    let (host, policies) = (absolute(host)?, absolute(policies)?);
    println!(
        "| body, bytes | outstanding | memory before, MB | memory then, MB | grown, MB | of that bodies, MB |\n\
         |---|---|---|---|---|---|"
    );
    for body_bytes in &args.body_bytes {
        let (before, then) = measure(args, *body_bytes, &host, &policies).await?;
        let bodies = args.held * u64::try_from(*body_bytes)?;
        println!(
            "| {body_bytes} | {} | {:.1} | {:.1} | {:.1} | {:.1} |",
            args.held,
            megabytes(before),
            megabytes(then),
            megabytes(then.saturating_sub(before)),
            megabytes(bodies),
        );
    }
    Ok(())
}

/// Memory of the host without and with the deliveries that are held.
async fn measure(args: &Args, body_bytes: usize, host: &Path, policies: &Path) -> Result<(u64, u64)> {
    let load = |messages| Load {
        messages,
        // A broker hands out 32 of a lite topic before it waits for their settlement.
        lite_topics: args.held.div_ceil(16),
        body_bytes,
        rate: None,
        tenant,
    };
    let loopback = Loopback::start(&load(args.before + args.held), false).await?;
    let directory = tempfile::tempdir()?;
    let (component, rules) = Configuration::FAIR_SHARE;
    let sink = format!("connector = \"handoff\"\nlisten = \"127.0.0.1:0\"\nmax-held = {}", args.held);
    let configuration = Configuration {
        policies,
        state: &directory.path().join("state"),
        log_level: "info",
        component,
        rules,
        endpoint: &loopback.endpoint(),
        topic: TOPIC,
        topic_kind: "lite",
        group: GROUP,
        receives: RECEIVES,
        key: "lite-topic",
        sink: &sink,
    };
    let program = Program::start(host, directory.path(), &configuration.toml()).await?;
    let mut worker = Worker(Subscription::open(program.worker_address().await?, args.held).await?);
    loopback.send(&load(args.before)).await?;
    worker.settle(args.before).await?;
    sleep(CALM).await;
    let before = Usage::of(program.id())?.resident_bytes;
    loopback.send(&load(args.held)).await?;
    worker.hold(args.held).await?;
    sleep(CALM).await;
    let then = Usage::of(program.id())?.resident_bytes;
    drop((worker, program));
    loopback.stop().await;
    Ok((before, then))
}

/// A worker that settles or not, as it is told.
struct Worker(Subscription);

impl Worker {
    /// Settles so many, and waits for the answers.
    async fn settle(&mut self, count: u64) -> Result<()> {
        let mut settled = 0;
        while settled < count {
            match self.next().await? {
                subscribe_response::Kind::Deliveries(batch) => self.0.accept(batch).await?,
                subscribe_response::Kind::Settled(results) => settled += results.results.len() as u64,
                _ => {}
            }
        }
        Ok(())
    }

    /// Takes so many and keeps them.
    async fn hold(&mut self, count: u64) -> Result<()> {
        let mut held = 0;
        while held < count {
            if let subscribe_response::Kind::Deliveries(batch) = self.next().await? {
                held += batch.deliveries.len() as u64;
            }
        }
        ensure!(held == count, "{held} came, and no more than {count} should have");
        Ok(())
    }

    async fn next(&mut self) -> Result<subscribe_response::Kind> {
        let response = timeout(PATIENCE, self.0.responses.message()).await.context("nothing comes")??;
        match response.and_then(|response| response.kind) {
            Some(kind) => Ok(kind),
            None => bail!("the stream ended"),
        }
    }
}

fn megabytes(bytes: u64) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "shown with one decimal")]
    let bytes = bytes as f64;
    bytes / 1e6
}
