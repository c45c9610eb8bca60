//! `tidegate policy run`: one question by hand, and all that is known of the answer.

use std::path::Path;
use std::time::Duration;

use anyhow::anyhow;
use serde_json::{Value, json};
use tidegate_connector::Clock;
use tidegate_policy::{PolicySpec, Trace, World};

use super::answer::{failed, json as answer_json, size};
use super::facts::{Facts, Moment};
use super::resolver;
use super::subject::{open, patient, read_text};
use crate::cli::RunPolicyArgs;
use crate::exit::Failure;
use crate::output::Output;

pub(super) fn run(args: &RunPolicyArgs, output: &Output) -> Result<(), Failure> {
    let spec = patient(args.subject.spec()?);
    match (&args.message, &args.endpoint) {
        (_, Some(endpoint)) => resolver::run(&spec, endpoint, args.purpose, output),
        (Some(message), None) => ask(&spec, message, output),
        // The arguments were checked for it.
        (None, None) => Err(Failure::config(anyhow!("there is nothing to ask"))),
    }
}

fn ask(spec: &PolicySpec, file: &Path, output: &Output) -> Result<(), Failure> {
    let messages = read(file)?;
    let (workbench, mut probe) = open(spec)?;
    let world = workbench.world();
    // The first call is then no slower than the others.
    let started =
        probe.start().map_err(|failure| Failure::runtime(anyhow!("it does not start: {failure}")))?;
    let clock = Clock::start();
    let (mut failures, several) = (0, messages.len() > 1);
    for facts in &messages {
        // Seeded, so that asking again gives the same answer.
        let moment = Moment { now: clock.now(), wall: clock.wall(), seed: 0 };
        let Some(trace) = facts.ask(world, &mut probe, &moment) else { return Err(not_asked(world)) };
        failures += usize::from(trace.answer.is_err());
        if output.is_json() {
            let mut line = json(&trace, answer_json(&trace.answer), started);
            line["id"] = facts.id().into();
            line["key"] = facts.key().into();
            output.data(&line.to_string());
        } else {
            if several {
                output.data(&format!("{} of {}", facts.id(), facts.key()));
            }
            show(&trace, ToString::to_string, output);
        }
    }
    match failures {
        0 => Ok(()),
        _ if !several => Err(Failure::runtime(anyhow!("the policy failed"))),
        n => Err(Failure::runtime(anyhow!("the policy failed on {n} of {} messages", messages.len()))),
    }
}

/// Reads messages from a file.
pub(super) fn read(file: &Path) -> Result<Vec<Facts>, Failure> {
    Facts::parse(&read_text(file)?)
        .map_err(|error| Failure::config(anyhow!("`{}` is no message:\n{error}", file.display())))
}

/// Policies that are asked about something else than messages.
pub(super) fn not_asked(world: World) -> Failure {
    Failure::config(anyhow!("it is a `{world}`, which is not asked about messages"))
}

/// A call as JSON.
#[allow(clippy::needless_pass_by_value, reason = "it goes into the value that comes out")]
pub(super) fn json<T>(trace: &Trace<T>, answer: Value, started: Duration) -> Value {
    json!({
        "answer": answer,
        "log": trace.log,
        "log-lines-dropped": trace.log_dropped,
        "took-ns": nanos(trace.took),
        "start-ns": nanos(started),
        "memory-bytes": trace.memory_bytes,
    })
}

pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A call for people.
pub(super) fn show<T>(trace: &Trace<T>, told: impl FnOnce(&T) -> String, output: &Output) {
    match &trace.answer {
        Ok(answer) => output.data(&told(answer)),
        Err(failure) => {
            output.data(&failed(failure));
            failure.said.iter().for_each(|line| output.data(&format!("  said     {line}")));
            failure.frames.iter().for_each(|frame| output.data(&format!("  in       {frame}")));
        }
    }
    for line in &trace.log {
        output.data(&format!("  {:<7}  {}", line.level, line.text));
    }
    if trace.log_dropped > 0 {
        output.data(&format!("  {} earlier lines of its log were dropped", trace.log_dropped));
    }
    let micros = trace.took.as_secs_f64() * 1e6;
    output.data(&format!("  {micros:.1} µs, {} of memory", size(trace.memory_bytes)));
}
