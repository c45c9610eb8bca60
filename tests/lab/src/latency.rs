//! The time that the host adds to a message at half load.
//!
//! Measured for each message: from the moment that the broker hands it out for the first time, on the broker's own
//! clock as its audit has it, to the moment that the sink gets it. So it holds the broker's writing of the reply, the
//! loopback interface, the connector, the lease book, the policy and the channel to the sink; it does not hold the
//! sending, nor the time that a message waits in the broker, for its turn in a lite topic or for a receive. The two
//! clocks are one, read in one process; what is not known of their offset is printed and counts as latency.
//!
//! Producer, broker and host share the machine. Full load is what this arrangement does when the producer does not
//! hold back; half load is half of that, in steps of a millisecond.

use std::collections::HashMap;
use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use async_trait::async_trait;
use hdrhistogram::Histogram;
use parking_lot::Mutex;
use tidegate_connector::{Inbox, Sink, SinkError};
use tidegate_model::{Outcome, Report};
use tokio::time::Instant;

use crate::embedded::{Embedded, To};
use crate::loopback::{Load, Loopback, tenant};
use crate::watch::watch;
use crate::worker::Worker;

/// What is promised at half load.
const PROMISED_P99: Duration = Duration::from_millis(5);
/// The share of the messages, from the first on, that is not looked at: connections being made, caches filling.
const WARM_UP: usize = 10;
/// Emissions that are with the sink: as many as with `discard`.
const CREDITS: usize = 1024;

/// How much.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Messages of each run
    #[arg(id = "latency_messages", long = "messages", default_value_t = 200_000)]
    messages: u64,
    /// Lite topics that they are spread over
    #[arg(id = "latency_lite_topics", long = "lite-topics", default_value_t = 64)]
    lite_topics: u64,
    /// Body of each message, in bytes
    #[arg(id = "latency_body_bytes", long = "body-bytes", default_value_t = 1024)]
    body_bytes: usize,
    /// Receives in flight
    #[arg(id = "latency_receives", long = "receives", default_value_t = 8)]
    receives: usize,
}

#[allow(clippy::print_stdout, reason = "the table is what it is for")]
pub(crate) async fn run(args: &Args, policies: &Path) -> Result<()> {
    let load = |rate| Load {
        messages: args.messages,
        lite_topics: args.lite_topics,
        body_bytes: args.body_bytes,
        rate,
        tenant,
    };
    let (receives, end) = (args.receives, End::Sink);
    let full = measure(&load(None), receives, end, policies).await.context("at full load")?;
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rate is small and positive"
    )]
    let rate = (full.rate / 2.0) as u64;
    let half = measure(&load(Some(rate)), receives, end, policies).await.context("at half load")?;
    println!(
        "{} messages of {} bytes on {} lite topics, {} receives in flight, fair-share; from the broker's hand to the\n\
         sink, with producer, broker and host on one machine:\n\n\
         | load | messages/s | p50 ms | p99 ms | p99.9 ms | most ms |\n|---|---|---|---|---|---|\n\
         {}\n{}\n\nthe clocks' offset is known within {:.3} ms",
        args.messages,
        args.body_bytes,
        args.lite_topics,
        args.receives,
        full.row("full"),
        half.row("half"),
        milliseconds(full.clock_doubt.max(half.clock_doubt)),
    );
    let p99 = Duration::from_nanos(half.nanos.value_at_quantile(0.99));
    println!(
        "p99 at half load is {} {} ms",
        if p99 < PROMISED_P99 { "under" } else { "NOT under" },
        PROMISED_P99.as_millis()
    );
    Ok(())
}

/// Where a message's time ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    /// In the sink.
    Sink,
    /// At a worker with so many credits.
    Worker(u64),
}

/// One run.
pub(crate) struct Latency {
    pub(crate) rate: f64,
    pub(crate) nanos: Histogram<u64>,
    pub(crate) clock_doubt: Duration,
}

impl Latency {
    pub(crate) fn row(&self, name: &str) -> String {
        let quantile = |q| milliseconds(Duration::from_nanos(self.nanos.value_at_quantile(q)));
        format!(
            "| {name} | {:.0} | {:.2} | {:.2} | {:.2} | {:.2} |",
            self.rate,
            quantile(0.5),
            quantile(0.99),
            quantile(0.999),
            milliseconds(Duration::from_nanos(self.nanos.max())),
        )
    }
}

pub(crate) async fn measure(load: &Load, receives: usize, end: End, policies: &Path) -> Result<Latency> {
    let loopback = Loopback::start(load, true).await?;
    let seen = Arc::new(Seen::default());
    let to = match end {
        End::Sink => To::Sink(Box::new(Stopwatch(Arc::clone(&seen)))),
        End::Worker(_) => To::Workers,
    };
    let host = Embedded::start(&loopback.endpoint(), receives, policies, to).await?;
    let worker = match end {
        End::Sink => None,
        End::Worker(credits) => Some(Worker::start(&host, credits, Some(Arc::clone(&seen))).await?),
    };
    let open = || async { Ok::<_, Infallible>(load.messages.saturating_sub(host.totals().accepted)) };
    let watching = async { anyhow::Ok(watch(load.messages, std::process::id(), open).await?) };
    let (_, measured) = futures::try_join!(loopback.send(load), watching)?;
    if let Some(worker) = worker {
        worker.stop().await?;
    }
    host.stop().await?;

    let mut sunk: HashMap<Arc<str>, Instant> = seen.0.lock().drain(..).rev().collect();
    let audit = loopback.audit();
    let mut nanos = Histogram::<u64>::new(3)?;
    let warm_up = audit.messages.len() / WARM_UP;
    for record in audit.messages.iter().skip(warm_up) {
        let first = record.deliveries.first().context("a message was not handed out")?;
        let sunk = sunk.remove(&record.message_id).context("a message did not come to the sink")?;
        let added = sunk.saturating_duration_since(loopback.moment(first.at));
        nanos.record(u64::try_from(added.as_nanos())?)?;
    }
    let unacked = audit.unacked().count();
    ensure!(unacked == 0, "{unacked} messages are not acknowledged");
    let clock_doubt = loopback.began_within();
    loopback.stop().await;
    Ok(Latency { rate: measured.rate, nanos, clock_doubt })
}

pub(crate) fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// Which message came when, in order.
#[derive(Debug, Default)]
pub(crate) struct Seen(Mutex<Vec<(Arc<str>, Instant)>>);

impl Seen {
    pub(crate) fn extend(&self, messages: impl Iterator<Item = Arc<str>>) {
        let now = Instant::now();
        self.0.lock().extend(messages.map(|message| (message, now)));
    }
}

/// A sink that takes the time and reports at once.
struct Stopwatch(Arc<Seen>);

#[async_trait]
impl Sink for Stopwatch {
    fn credits(&self) -> usize {
        CREDITS
    }

    async fn run(self: Box<Self>, mut inbox: Inbox) -> Result<(), SinkError> {
        while let Some(batch) = inbox.next().await {
            self.0.extend(batch.iter().map(|emission| Arc::from(emission.message.id.as_str())));
            let accepted = |id| Report { id, outcome: Outcome::Accepted, cost: None };
            inbox.report(batch.iter().map(|emission| accepted(emission.id)).collect()).await;
        }
        Ok(())
    }
}
