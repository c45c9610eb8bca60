//! `tidegate policy bench`: what a policy costs.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use serde_json::json;
use tidegate_connector::Clock;
use tidegate_model::Timestamp;
use tidegate_policy::{Answer as Said, Engine, PolicySpec, Recorded, RulesFrom, Sandbox, Workbench, World};

use super::answer::size;
use super::facts::{Facts, Moment};
use super::replay;
use super::run::{nanos, not_asked, read};
use super::subject::{patient, refused};
use super::{counting_engine, engine};
use crate::cli::BenchArgs;
use crate::exit::Failure;
use crate::output::Output;

/// How long a round is to take.
const ROUND: Duration = Duration::from_millis(50);

/// Calls of one round at least and at most.
const CALLS_MIN: u32 = 100;
const CALLS_MAX: u32 = 1_000_000;

/// Starts of an instance, of which the median counts.
const STARTS: usize = 21;

/// Messages whose fuel is counted.
const FUEL_MESSAGES_MAX: usize = 10_000;

/// Messages of a recording that are kept to be asked about in turn.
const RECORDED_MAX: usize = 100_000;

/// What is asked.
enum Questions {
    ByHand(Vec<Facts>),
    Recorded(Vec<Recorded>),
}

/// What was found. Times are medians.
struct Found {
    world: World,
    component_bytes: usize,
    compile: Duration,
    start: Duration,
    decision: Duration,
    fastest: Duration,
    slowest: Duration,
    calls: u64,
    failed: u64,
    memory_bytes: usize,
    fuel: Vec<u64>,
}

pub(super) fn run(args: &BenchArgs, output: &Output) -> Result<(), Failure> {
    let spec = patient(args.subject.spec()?);
    let questions = match (&args.message, &args.recording) {
        (Some(path), _) => Questions::ByHand(read(path)?),
        (None, Some(path)) => Questions::Recorded(recorded(path)?),
        (None, None) => Questions::ByHand(vec![Facts::sample()]),
    };
    if questions.is_empty() {
        return Err(Failure::config(anyhow!("there are no messages to ask about")));
    }
    let found = measure(&spec, &questions, args.rounds)?;
    if output.is_json() {
        output.data(&found.json().to_string());
    } else {
        found.show(output);
    }
    match found.failed {
        0 => Ok(()),
        failed => Err(Failure::runtime(anyhow!(
            "the policy failed on {failed} of {} calls, so the times say little",
            found.calls
        ))),
    }
}

fn recorded(path: &Path) -> Result<Vec<Recorded>, Failure> {
    let reader = replay::open(path)?.take(RECORDED_MAX);
    reader.collect::<Result<_, _>>().with_context(|| format!("`{}`", path.display())).map_err(Failure::config)
}

fn measure(spec: &PolicySpec, questions: &Questions, rounds: u32) -> Result<Found, Failure> {
    let engine = engine(std::slice::from_ref(spec))?;
    let workbench = Workbench::open(&engine, spec).map_err(|error| refused(&spec.component, error))?;
    let rules = spec.rules.as_deref().map_or(RulesFrom::Nowhere, RulesFrom::File);
    let mut probe = workbench.with_rules(rules).map_err(|error| refused(&spec.component, error))?;
    let starts: Result<Vec<_>, _> = (0..STARTS).map(|_| probe.start()).collect();
    let starts = starts.map_err(|failure| Failure::runtime(anyhow!("it does not start: {failure}")))?;
    drop(probe);
    let timed = time(&engine, spec, questions, rounds)?;
    let (fuel, memory_bytes) = fuel(spec, questions)?;
    Ok(Found {
        world: workbench.world(),
        component_bytes: workbench.component_bytes(),
        compile: workbench.compile_time(),
        start: median(&starts),
        decision: median(&timed.rounds),
        fastest: timed.rounds.iter().min().copied().unwrap_or_default(),
        slowest: timed.rounds.iter().max().copied().unwrap_or_default(),
        calls: timed.calls,
        failed: timed.failed,
        memory_bytes,
        fuel,
    })
}

/// One decision's time in each round.
#[derive(Default)]
struct Timed {
    rounds: Vec<Duration>,
    calls: u64,
    failed: u64,
}

/// Asks as a flow does, round after round.
fn time(engine: &Engine, spec: &PolicySpec, questions: &Questions, rounds: u32) -> Result<Timed, Failure> {
    let (report, sandbox) = Sandbox::load(engine, spec);
    let sandbox = sandbox.ok_or_else(|| {
        Failure::config(anyhow!("it does not load: {}", report.failure().unwrap_or("no reason is known")))
    })?;
    let mut ask = asking(&sandbox, questions)?;
    let mut timed = Timed::default();
    let mut n = 0;
    let mut calls = CALLS_MIN;
    // The first rounds find out how many calls fill one, and warm up.
    for round in 0..rounds + 3 {
        let began = instant();
        let mut failed = 0;
        for _ in 0..calls {
            failed += u64::from(!ask(n));
            n += 1;
        }
        let took = began.elapsed();
        if round < 3 {
            let fitting = f64::from(calls) * ROUND.as_secs_f64() / took.as_secs_f64().max(1e-9);
            calls = (fitting as u32).clamp(CALLS_MIN, CALLS_MAX);
        } else {
            timed.rounds.push(took / calls);
            timed.calls += u64::from(calls);
            timed.failed += failed;
        }
    }
    Ok(timed)
}

/// How to ask the n-th question, over and over; false when there was no answer.
fn asking<'a>(
    sandbox: &Sandbox,
    questions: &'a Questions,
) -> Result<Box<dyn FnMut(usize) -> bool + 'a>, Failure> {
    let clock = Clock::start();
    let moment =
        move |n: usize| Moment { now: clock.now(), wall: Timestamp::from_unix_millis(0), seed: n as u64 };
    match questions {
        Questions::Recorded(recorded) => {
            let mut caller = sandbox.throttle().ok_or_else(|| not_asked(sandbox.world()))?.caller();
            Ok(Box::new(move |n| {
                let answer = recorded[n % recorded.len()].with_question(|question| caller.decide(question));
                matches!(answer, Said::Verdict(_))
            }))
        }
        Questions::ByHand(facts) => {
            if let Some(throttle) = sandbox.throttle() {
                let mut caller = throttle.caller();
                Ok(Box::new(move |n| {
                    let question = facts[n % facts.len()].question(&moment(n));
                    matches!(caller.decide(&question), Said::Verdict(_))
                }))
            } else if let Some(renewing) = sandbox.renewing() {
                let mut caller = renewing.caller();
                Ok(Box::new(move |n| {
                    let facts = &facts[n % facts.len()];
                    caller.decide(&facts.question(&moment(n)), facts.lease());
                    // A renewal policy that fails lets the lease run out, which is an answer as well.
                    true
                }))
            } else if let Some(partitioner) = sandbox.partitioner() {
                let mut caller = partitioner.caller();
                Ok(Box::new(move |n| {
                    let (facts, moment) = (&facts[n % facts.len()], moment(n));
                    let record = facts.record();
                    caller.partition(moment.now, moment.wall, moment.seed, record, facts.partitions()).is_ok()
                }))
            } else {
                Err(not_asked(sandbox.world()))
            }
        }
    }
}

/// What decisions execute, in order, and the memory of an instance after them.
fn fuel(spec: &PolicySpec, questions: &Questions) -> Result<(Vec<u64>, usize), Failure> {
    let engine = counting_engine(std::slice::from_ref(spec))?;
    let workbench = Workbench::open(&engine, spec).map_err(|error| refused(&spec.component, error))?;
    let rules = spec.rules.as_deref().map_or(RulesFrom::Nowhere, RulesFrom::File);
    let mut probe = workbench.with_rules(rules).map_err(|error| refused(&spec.component, error))?;
    let (mut fuel, mut memory_bytes) = (Vec::new(), 0);
    let mut note = |spent: Option<u64>, memory: usize| {
        fuel.extend(spent);
        memory_bytes = memory_bytes.max(memory);
    };
    match questions {
        Questions::Recorded(recorded) => {
            for recorded in recorded.iter().take(FUEL_MESSAGES_MAX) {
                let trace = recorded.with_question(|question| probe.decide(question));
                note(trace.fuel, trace.memory_bytes);
            }
        }
        Questions::ByHand(facts) => {
            let clock = Clock::start();
            for facts in facts.iter().take(FUEL_MESSAGES_MAX) {
                let moment = Moment { now: clock.now(), wall: clock.wall(), seed: 0 };
                // The first call may do more than those after it: caches, first growth.
                for _ in 0..3 {
                    let trace = facts
                        .ask(workbench.world(), &mut probe, &moment)
                        .ok_or_else(|| not_asked(workbench.world()))?;
                    note(trace.fuel, trace.memory_bytes);
                }
            }
        }
    }
    fuel.sort_unstable();
    Ok((fuel, memory_bytes))
}

impl Questions {
    fn is_empty(&self) -> bool {
        match self {
            Self::ByHand(facts) => facts.is_empty(),
            Self::Recorded(recorded) => recorded.is_empty(),
        }
    }
}

impl Found {
    fn fuel_median(&self) -> u64 {
        self.fuel.get(self.fuel.len() / 2).copied().unwrap_or(0)
    }

    fn json(&self) -> serde_json::Value {
        json!({
            "world": self.world,
            "decision-ns": nanos(self.decision),
            "decision-ns-fastest-round": nanos(self.fastest),
            "decision-ns-slowest-round": nanos(self.slowest),
            "calls": self.calls,
            "failed-calls": self.failed,
            "fuel": self.fuel_median(),
            "fuel-max": self.fuel.last(),
            "memory-bytes": self.memory_bytes,
            "start-ns": nanos(self.start),
            "compile-ns": nanos(self.compile),
            "component-bytes": self.component_bytes,
        })
    }

    fn show(&self, output: &Output) {
        let row = |name: &str, value: String| output.data(&format!("{name:<10}  {value}"));
        let (fastest, slowest) = (nanos(self.fastest), nanos(self.slowest));
        row("decision", format!("{} ns (rounds from {fastest} to {slowest})", nanos(self.decision)));
        let max = self.fuel.last().copied().unwrap_or(0);
        row("fuel", format!("{} (at most {max})", self.fuel_median()));
        row("memory", format!("{} an instance", size(self.memory_bytes)));
        row("start", format!("{:.1} µs an instance", self.start.as_secs_f64() * 1e6));
        row("compile", format!("{:.1} ms", self.compile.as_secs_f64() * 1e3));
        row("component", size(self.component_bytes));
    }
}

fn median(durations: &[Duration]) -> Duration {
    let mut sorted = durations.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

#[allow(clippy::disallowed_methods, reason = "measuring is what this command is for")]
fn instant() -> Instant {
    Instant::now()
}
