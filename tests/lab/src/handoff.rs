//! How fast messages go to one worker over the loopback interface, each settled by its receipt, and what that adds to
//! their time: beside the same host with the sink `discard`, or one that only takes the time.
//!
//! Development broker, producer, host and worker are in this process and share its cores. Flat out it is a backlog; the
//! times are taken at half the rate of that, from the broker's hand to the worker's, as in `latency`.

use std::convert::Infallible;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use crate::embedded::{Embedded, To};
use crate::latency::{self, End, milliseconds};
use crate::loopback::{Load, Loopback, tenant};
use crate::watch::{Measured, watch};
use crate::worker::Worker;

/// How much.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Messages of each run
    #[arg(id = "handoff_messages", long = "messages", default_value_t = 300_000)]
    messages: u64,
    /// Lite topics that they are spread over
    #[arg(id = "handoff_lite_topics", long = "lite-topics", default_value_t = 64)]
    lite_topics: u64,
    /// Body of each message, in bytes
    #[arg(id = "handoff_body_bytes", long = "body-bytes", default_value_t = 1024)]
    body_bytes: usize,
    /// Receives in flight
    #[arg(id = "handoff_receives", long = "receives", default_value_t = 8)]
    receives: usize,
    /// Messages that the worker may hold
    #[arg(long, default_value_t = 2_000)]
    credits: u64,
    /// Runs of each, flat out
    #[arg(id = "handoff_rounds", long = "rounds", default_value_t = 3)]
    rounds: u32,
    /// Do without the times
    #[arg(long)]
    flat_out_only: bool,
}

#[allow(clippy::print_stdout, reason = "the table is what it is for")]
pub(crate) async fn run(args: &Args, policies: &Path) -> Result<()> {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    println!(
        "development broker, host and worker in one process, {cores} cores; {} messages of {} bytes on {} lite topics,\n\
         {} receives in flight, fair-share; a worker with {} credits:\n\n\
         | flat out | messages/s | CPU s per 1,000, all included | to discard |\n|---|---|---|---|",
        args.messages, args.body_bytes, args.lite_topics, args.receives, args.credits,
    );
    let mut slowest = f64::INFINITY;
    for _ in 0..args.rounds.max(1) {
        let discard = flat_out(args, To::Discard, policies).await.context("with discard")?;
        let handed = flat_out(args, To::Workers, policies).await.context("with a worker")?;
        slowest = slowest.min(handed.rate);
        for (name, measured) in [("discard", &discard), ("worker", &handed)] {
            println!(
                "| {name} | {:.0} | {:.4} | {:.2} |",
                measured.rate,
                measured.cpu_per_thousand.as_secs_f64(),
                measured.rate / discard.rate,
            );
        }
    }
    if args.flat_out_only {
        return Ok(());
    }
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rate is small and positive"
    )]
    let rate = (slowest / 2.0) as u64;
    let load = load(args, Some(rate));
    let sink = latency::measure(&load, args.receives, End::Sink, policies).await.context("to a sink")?;
    let worker = latency::measure(&load, args.receives, End::Worker(args.credits), policies).await;
    let worker = worker.context("to a worker")?;
    println!(
        "\n| at half | messages/s | p50 ms | p99 ms | p99.9 ms | most ms |\n|---|---|---|---|---|---|\n{}\n{}\n\n\
         the clocks' offset is known within {:.3} ms",
        sink.row("to a sink"),
        worker.row("to the worker"),
        milliseconds(sink.clock_doubt.max(worker.clock_doubt)),
    );
    Ok(())
}

async fn flat_out(args: &Args, to: To, policies: &Path) -> Result<Measured> {
    let load = load(args, None);
    let has_worker = matches!(to, To::Workers);
    let loopback = Loopback::start(&load, false).await?;
    loopback.send(&load).await?;
    let host = Embedded::start(&loopback.endpoint(), args.receives, policies, to).await?;
    let worker = if has_worker { Some(Worker::start(&host, args.credits, None).await?) } else { None };
    let open = || async { Ok::<_, Infallible>(args.messages.saturating_sub(host.totals().accepted)) };
    let measured = watch(args.messages, std::process::id(), open).await?;
    let totals = host.totals();
    if let Some(worker) = worker {
        worker.stop().await?;
    }
    host.stop().await?;
    loopback.stop().await;
    ensure!(totals.accepted == args.messages, "not every message was accepted once: {totals:?}");
    Ok(measured)
}

fn load(args: &Args, rate: Option<u64>) -> Load {
    Load { messages: args.messages, lite_topics: args.lite_topics, body_bytes: args.body_bytes, rate, tenant }
}
