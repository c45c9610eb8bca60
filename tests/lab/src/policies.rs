//! What a policy that fails costs: the program consumes equal messages from the development broker, with a healthy
//! policy and with ones that fail on every hundredth message, or on every one.
//!
//! Which messages a failing policy fails on is written in the messages: it works on those whose key has nine bytes and
//! fails on all others. So the number that must follow `on-error` is known, whatever comes twice or in another
//! order. A policy that loops takes its whole deadline each time; when that is more than a tenth of the flow's time its
//! breaker opens, and what comes until it closes follows `on-error` unasked: the cause `breaker`. Progress is what the broker has confirmed to the host; that nothing is lost is the broker's own audit.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;
use tidegate_test_guests::Guest;
use tokio::time::{Instant, sleep};

use crate::absolute;
use crate::configuration::Configuration;
use crate::loopback::{GROUP, Load, Loopback, TENANT, TOPIC, tenant};
use crate::program::Program;
use crate::watch::{Measured, watch};

/// One message in so many.
const BAD_EVERY: u64 = 100;
/// An ordered queue's last acknowledgements may be under way when the host has counted all.
const SETTLE_WITHIN: Duration = Duration::from_secs(10);
/// Receives in flight.
const RECEIVES: usize = 8;

/// How much.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The fixed rates, in messages a second
    #[arg(long, value_delimiter = ',', default_values_t = [1_000, 3_000])]
    rates: Vec<u64>,
    /// How long each run at a fixed rate takes
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Messages of each run that goes as fast as it can
    #[arg(long, default_value_t = 100_000)]
    flat_out_messages: u64,
    /// Lite topics that they are spread over
    #[arg(id = "policies_lite_topics", long = "lite-topics", default_value_t = 64)]
    lite_topics: u64,
    /// Body of each message, in bytes
    #[arg(id = "policies_body_bytes", long = "body-bytes", default_value_t = 1024)]
    body_bytes: usize,
    /// Runs of each policy at each rate
    #[arg(id = "policies_rounds", long = "rounds", default_value_t = 1)]
    rounds: u32,
}

/// A policy and how it fails.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Healthy,
    Trapping,
    Looping,
    Growing,
    AlwaysLooping,
}

impl Kind {
    const ALL: [Self; 5] = [Self::Healthy, Self::Trapping, Self::Looping, Self::Growing, Self::AlwaysLooping];

    const fn name(self) -> &'static str {
        match self {
            Self::Healthy => "fair-share, healthy",
            Self::Trapping => "traps on every hundredth message",
            Self::Looping => "loops for ever on every hundredth",
            Self::Growing => "eats memory on every hundredth",
            Self::AlwaysLooping => "loops for ever on every message",
        }
    }

    /// The file of its component, and of its rules.
    const fn files(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::Healthy => Configuration::FAIR_SHARE,
            Self::Trapping => ("trapping.wasm", None),
            Self::Looping | Self::AlwaysLooping => ("looping.wasm", None),
            Self::Growing => ("growing.wasm", None),
        }
    }

    /// What is its key: tenants have nine bytes but for every hundredth message, lite topics never.
    fn key(self) -> String {
        match self {
            Self::AlwaysLooping => "lite-topic".to_owned(),
            Self::Healthy | Self::Trapping | Self::Looping | Self::Growing => format!("property:{TENANT}"),
        }
    }

    /// Of so many messages, those that it fails on.
    const fn fails_on(self, messages: u64) -> u64 {
        match self {
            Self::Healthy => 0,
            Self::Trapping | Self::Looping | Self::Growing => messages / BAD_EVERY,
            Self::AlwaysLooping => messages,
        }
    }
}

/// One run.
struct Run {
    kind: Kind,
    measured: Measured,
    on_error: u64,
    causes: BTreeMap<String, u64>,
    redelivered: u64,
    deferred: u64,
    unacked: usize,
}

#[allow(clippy::print_stdout, reason = "the table is what it is for")]
pub(crate) async fn run(args: &Args, host: &Path, policies: &Path) -> Result<()> {
    let bench = Bench::prepare(host, policies)?;
    let load = |messages, rate| Load {
        messages,
        lite_topics: args.lite_topics,
        body_bytes: args.body_bytes,
        rate,
        tenant: with_strangers,
    };
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    println!(
        "messages of {} bytes on {} lite topics, the program and a development broker on one machine of {cores} cores",
        args.body_bytes, args.lite_topics
    );
    let fixed = args.rates.iter().map(|rate| load(rate * args.seconds, Some(*rate)));
    let flat_out = load(args.flat_out_messages, None);
    for load in fixed.chain([flat_out]) {
        let mut runs = Vec::new();
        for _ in 0..args.rounds {
            for kind in Kind::ALL {
                runs.push(bench.run(kind, &load).await.with_context(|| kind.name())?);
            }
        }
        let offered =
            load.rate.map_or_else(|| "flat out".to_owned(), |rate| format!("{rate} messages/s offered"));
        print!("\n{offered}, {} messages:\n\n{}", load.messages, table(&runs, load.messages));
    }
    Ok(())
}

/// Every hundredth message is of a tenant with another length of name.
fn with_strangers(number: u64) -> String {
    if number % BAD_EVERY == BAD_EVERY - 1 { "stranger".to_owned() } else { tenant(number) }
}

/// The program and a directory of policies.
struct Bench {
    host: PathBuf,
    directory: TempDir,
}

impl Bench {
    fn prepare(host: &Path, policies: &Path) -> Result<Self> {
        let bench = Self { host: absolute(host)?, directory: tempfile::tempdir()? };
        let to = bench.policies();
        fs::create_dir(&to)?;
        for file in ["fair-share.wasm", "fair-share.toml"] {
            let from = policies.join(file);
            fs::copy(&from, to.join(file)).with_context(|| format!("copying {}", from.display()))?;
        }
        fs::write(to.join("trapping.wasm"), Guest::trapping_on_messages().component())?;
        fs::write(to.join("looping.wasm"), Guest::looping_on_messages().component())?;
        fs::write(to.join("growing.wasm"), Guest::growing_on_messages().component())?;
        Ok(bench)
    }

    fn policies(&self) -> PathBuf {
        self.directory.path().join("policies")
    }

    /// One run, with a broker of its own. With a rate the host is there first, without one the backlog is.
    async fn run(&self, kind: Kind, load: &Load) -> Result<Run> {
        let loopback = Loopback::start(load, true).await?;
        if load.rate.is_none() {
            loopback.send(load).await?;
        }
        let configuration = self.configuration(kind, &loopback.endpoint());
        let program = Program::start(&self.host, self.directory.path(), &configuration).await?;
        let open = || async { anyhow::Ok(load.messages.saturating_sub(program.totals().await?.accepted)) };
        let watching = async { anyhow::Ok(watch(load.messages, program.id(), open).await?) };
        let sending = async {
            if load.rate.is_some() {
                loopback.send(load).await?;
            }
            anyhow::Ok(())
        };
        let ((), measured) = futures::try_join!(sending, watching)?;

        let deadline = Instant::now() + SETTLE_WITHIN;
        let mut audit = loopback.audit();
        while audit.unacked().next().is_some() && Instant::now() < deadline {
            sleep(Duration::from_millis(100)).await;
            audit = loopback.audit();
        }
        ensure!(audit.not_recorded == 0, "the broker did not record every message");
        let totals = program.totals().await?;
        let run = Run {
            kind,
            measured,
            on_error: totals.on_error,
            causes: program.failures().await?,
            redelivered: totals.redelivered,
            deferred: totals.deferred,
            unacked: audit.unacked().count(),
        };
        drop(program);
        loopback.stop().await;
        Ok(run)
    }

    fn configuration(&self, kind: Kind, endpoint: &str) -> String {
        let (component, rules) = kind.files();
        let configuration = Configuration {
            policies: &self.policies(),
            state: &self.directory.path().join("state"),
            // The program's admin address is read from its log.
            log_level: "info",
            component,
            rules,
            endpoint,
            topic: TOPIC,
            topic_kind: "lite",
            group: GROUP,
            receives: RECEIVES,
            key: &kind.key(),
            sink: Configuration::DISCARD,
        };
        configuration.toml()
    }
}

/// Markdown, so that it can be put into a document as it is. A policy's runs are shown one by one, each beside the
/// healthy run of its round.
fn table(runs: &[Run], messages: u64) -> String {
    let mut text = String::from(
        "| policy | messages/s | to healthy | CPU s per 1,000 | fails on | followed on-error | deferred | \
         redelivered | not acknowledged |\n|---|---|---|---|---|---|---|---|---|\n",
    );
    let mut healthy = f64::NAN;
    for run in runs {
        if run.kind == Kind::Healthy {
            healthy = run.measured.rate;
        }
        let causes: Vec<String> =
            run.causes.iter().map(|(cause, count)| format!("{cause} {count}")).collect();
        let causes = if causes.is_empty() { String::new() } else { format!(" ({})", causes.join(", ")) };
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "| {} | {:.0} | {:.2} | {:.3} | {} | {}{causes} | {} | {} | {} |",
            run.kind.name(),
            run.measured.rate,
            run.measured.rate / healthy,
            run.measured.cpu_per_thousand.as_secs_f64(),
            run.kind.fails_on(messages),
            run.on_error,
            run.deferred,
            run.redelivered,
            run.unacked,
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loopback::lite_topic;

    #[test]
    fn every_hundredth_key_is_of_another_length() {
        let odd = (0..1_000).filter(|number| with_strangers(*number).len() != 9).count();
        assert_eq!(odd as u64, Kind::Looping.fails_on(1_000));
        assert!((0..1_000).all(|number| lite_topic(number).len() != 9));
    }
}
