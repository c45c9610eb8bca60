//! The time from writing a policy's file to its first answer, and what calls notice of it.
//!
//! A policy host with its watcher in this process, as the program has it, without a compile cache: each file has
//! another digest, by the section at its end. One thread asks at a steady pace; it takes the time of each call,
//! and sees by the number of the generation when the new file decides. Calls are compared with those of the same run
//! while nothing was swapped. On a machine of few cores the compiler, which has one thread, takes part of the time that
//! the asking thread would have: what a call waits for a core is in its time.
#![allow(clippy::disallowed_methods, reason = "threads of its own measure here, and nothing else runs")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use hdrhistogram::Histogram;
use parking_lot::Mutex;
use tidegate_connector::Clock;
use tidegate_model::{Message, Standing};
use tidegate_policy::{
    Built, Engine, EngineOptions, Limits, PolicyHost, PolicySpec, Question, Throttle, seal_component,
};
use tidegate_telemetry::Telemetry;

/// What is promised from the end of writing to the first answer of a small policy.
const PROMISED: Duration = Duration::from_millis(200);
/// Between two calls.
const PACE: Duration = Duration::from_micros(100);
/// Calls that warm up.
const WARM_UP: Duration = Duration::from_secs(1);

/// Measures the time that a new file needs to be in force.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The component; the shipped `fair-share` when not given
    #[arg(long)]
    component: Option<PathBuf>,
    /// Its rules
    #[arg(long)]
    rules: Option<PathBuf>,
    /// Swaps
    #[arg(long, default_value_t = 20)]
    swaps: u32,
    /// Time between them, and for the quiet calls before in all
    #[arg(long, default_value_t = 1)]
    interval_seconds: u64,
}

/// What the asking thread has found.
#[derive(Debug)]
struct Calls {
    quiet: Histogram<u64>,
    swapping: Histogram<u64>,
}

#[allow(clippy::print_stdout, reason = "the table is what it is for")]
pub(crate) fn run(args: &Args, policies: &Path) -> Result<()> {
    let component = args.component.clone().unwrap_or_else(|| policies.join("fair-share.wasm"));
    let bytes = fs::read(&component).with_context(|| component.display().to_string())?;
    let directory = tempfile::tempdir()?;
    let live = directory.path().join("policy.wasm");
    write(&live, &variant(&bytes, 0)?)?;
    let engine = Engine::new(EngineOptions::new(Clock::start(), 2), Telemetry::default())?;
    let mut spec = PolicySpec::new("policy", &live);
    spec.limits = Limits { compile_timeout: Duration::from_secs(600), ..Limits::default() };
    spec.rules.clone_from(&args.rules);
    let host = PolicyHost::start(&engine, vec![spec], None)?;
    let generation = || host.status().first().and_then(|status| Some(status.active.as_ref()?.generation));
    ensure!(generation() == Some(1), "the policy does not load: {:?}", host.status());

    let (stop, swapping) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let throttle = host.throttle("policy").context("it is no throttle policy")?;
    let calls = Arc::new(Mutex::new(Calls { quiet: histogram()?, swapping: histogram()? }));
    let asking = {
        let (stop, swapping, calls) = (Arc::clone(&stop), Arc::clone(&swapping), Arc::clone(&calls));
        thread::spawn(move || ask(&throttle, &stop, &swapping, &calls))
    };
    let interval = Duration::from_secs(args.interval_seconds);
    thread::sleep(WARM_UP);
    *calls.lock() = Calls { quiet: histogram()?, swapping: histogram()? };
    let mut took = Vec::new();
    for number in 1..=args.swaps {
        thread::sleep(interval);
        swapping.store(true, Ordering::Relaxed);
        write(&live, &variant(&bytes, number)?)?;
        let written = Instant::now();
        while generation() != Some(u64::from(number) + 1) {
            if written.elapsed() > Duration::from_secs(900) {
                bail!("swap {number} does not come into force: {:?}", host.status());
            }
            thread::sleep(Duration::from_micros(500));
        }
        took.push(written.elapsed());
        swapping.store(false, Ordering::Relaxed);
    }
    stop.store(true, Ordering::Relaxed);
    asking.join().map_err(|_panic| anyhow::anyhow!("the asking thread failed"))?;

    took.sort();
    let median = took.get(took.len() / 2).copied().unwrap_or_default();
    let most = took.last().copied().unwrap_or_default();
    let calls = calls.lock();
    let (quiet, during) = (&calls.quiet, &calls.swapping);
    let ratio = |quantile| {
        let divisor = quiet.value_at_quantile(quantile).max(1) as f64;
        during.value_at_quantile(quantile) as f64 / divisor
    };
    println!(
        "{} of {} bytes, {} swaps, one call each {} µs; from the end of writing to being in force:\n\
         median {:.0} ms, most {:.0} ms ({} {} ms)\n\n\
         | calls | count | p50 µs | p99 µs | p99.9 µs | most µs |\n|---|---|---|---|---|---|\n{}\n{}\n\
         | ratio | | {:.2} | {:.2} | {:.2} | {:.2} |",
        component.display(),
        bytes.len(),
        args.swaps,
        PACE.as_micros(),
        median.as_secs_f64() * 1e3,
        most.as_secs_f64() * 1e3,
        if most < PROMISED { "under" } else { "NOT under" },
        PROMISED.as_millis(),
        row("quiet", quiet),
        row("while swapping", during),
        ratio(0.5),
        ratio(0.99),
        ratio(0.999),
        ratio(1.0),
    );
    Ok(())
}

fn ask(throttle: &Throttle, stop: &AtomicBool, swapping: &AtomicBool, calls: &Mutex<Calls>) {
    let mut caller = throttle.caller();
    let clock = Clock::start();
    let message = message();
    let key = Arc::from("tenant-17");
    let mut seed = 0;
    while !stop.load(Ordering::Relaxed) {
        let question = Question {
            source: "tenants",
            message: &message,
            key: &key,
            attempt: 1,
            age: Duration::from_millis(20),
            waited: Duration::from_millis(1),
            deferred: Duration::ZERO,
            standing: Standing::default(),
            wall: clock.wall(),
            now: clock.now(),
            seed,
        };
        seed += 1;
        let began = Instant::now();
        std::hint::black_box(caller.decide(&question));
        let nanos = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let mut calls = calls.lock();
        let of = if swapping.load(Ordering::Relaxed) { &mut calls.swapping } else { &mut calls.quiet };
        of.saturating_record(nanos);
        drop(calls);
        thread::sleep(PACE);
    }
}

fn message() -> Arc<Message> {
    Arc::new(Message {
        lite_topic: Some("tenant-17".into()),
        body: vec![7; 1_024].into(),
        ..Message::new("tenants", "01A2B3C4D5E6F708")
    })
}

/// The same component with another digest: the section at its end says something else.
fn variant(component: &[u8], number: u32) -> Result<Vec<u8>> {
    let built = Built { name: "variant".into(), version: number.to_string(), sdk: String::new() };
    Ok(seal_component(component, Some(built))?)
}

/// As careful people do: written aside and renamed.
fn write(file: &Path, bytes: &[u8]) -> Result<()> {
    let aside = file.with_extension("new");
    fs::write(&aside, bytes)?;
    fs::rename(aside, file).context("renaming")
}

fn histogram() -> Result<Histogram<u64>> {
    Ok(Histogram::new_with_bounds(1, 60_000_000_000, 3)?)
}

fn row(name: &str, calls: &Histogram<u64>) -> String {
    let micros = |nanos: u64| nanos as f64 / 1e3;
    format!(
        "| {name} | {} | {:.2} | {:.2} | {:.2} | {:.2} |",
        calls.len(),
        micros(calls.value_at_quantile(0.5)),
        micros(calls.value_at_quantile(0.99)),
        micros(calls.value_at_quantile(0.999)),
        micros(calls.max()),
    )
}
