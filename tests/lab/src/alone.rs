//! How fast the host is with a broker in memory: both in this process, joined by gRPC over the loopback interface, flat
//! out on a backlog. The broker's work is in the numbers; there is no way to have messages without it.

use std::convert::Infallible;
use std::path::Path;

use anyhow::{Result, ensure};

use crate::embedded::{Embedded, To};
use crate::loopback::{Load, Loopback, tenant};
use crate::watch::watch;

/// How much.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Messages in the backlog
    #[arg(id = "alone_messages", long = "messages", default_value_t = 300_000)]
    messages: u64,
    /// Lite topics that the backlog is spread over
    #[arg(id = "alone_lite_topics", long = "lite-topics", default_value_t = 64)]
    lite_topics: u64,
    /// Body of each message, in bytes
    #[arg(id = "alone_body_bytes", long = "body-bytes", default_value_t = 1024)]
    body_bytes: usize,
    /// Receives in flight
    #[arg(long, default_value_t = 8)]
    receives: usize,
}

#[allow(clippy::print_stdout, reason = "the table is what it is for")]
pub(crate) async fn run(args: &Args, policies: &Path) -> Result<()> {
    let load = Load {
        messages: args.messages,
        lite_topics: args.lite_topics,
        body_bytes: args.body_bytes,
        rate: None,
        tenant,
    };
    let loopback = Loopback::start(&load, false).await?;
    let sending = loopback.send(&load).await?;
    println!("backlog of {} messages sent in {:.1} s", args.messages, sending.as_secs_f64());
    let host = Embedded::start(&loopback.endpoint(), args.receives, policies, To::Discard).await?;
    let open = || async { Ok::<_, Infallible>(args.messages.saturating_sub(host.totals().accepted)) };
    let measured = watch(args.messages, std::process::id(), open).await?;
    let totals = host.totals();
    host.stop().await?;
    loopback.stop().await;
    ensure!(
        totals.accepted == args.messages && totals.on_error == 0,
        "the flow did not let the policy decide every message and acknowledge it: {totals:?}"
    );
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    println!(
        "host and development broker in one process, {cores} cores; {} messages of {} bytes on {} lite topics,\n\
         {} receives in flight, fair-share, discard:\n\n\
         | messages/s | CPU s per 1,000, broker's included | cores busy | deferred |\n|---|---|---|---|\n\
         | {:.0} | {:.4} | {:.2} | {} |",
        args.messages,
        args.body_bytes,
        args.lite_topics,
        args.receives,
        measured.rate,
        measured.cpu_per_thousand.as_secs_f64(),
        measured.rate * measured.cpu_per_thousand.as_secs_f64() / 1000.0,
        totals.deferred,
    );
    Ok(())
}
