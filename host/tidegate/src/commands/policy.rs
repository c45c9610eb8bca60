//! `tidegate policy`: make, build, check, try and compare policies.

mod answer;
mod bench;
mod build;
mod check;
mod contract;
mod facts;
mod fields;
mod inspect;
mod list;
mod new;
mod replay;
mod resolver;
mod run;
mod subject;
mod test;

use tidegate_connector::Clock;
use tidegate_pipeline::engine_options;
use tidegate_policy::{CheckReport, Engine, EngineOptions, PolicySpec};
use tidegate_telemetry::Telemetry;

use crate::cli::{PolicyArgs, PolicyCommand};
use crate::exit::Failure;
use crate::output::Output;

pub(crate) use check::show;

pub(crate) fn run(args: &PolicyArgs, output: &Output) -> Result<(), Failure> {
    match &args.command {
        PolicyCommand::List { config } => list::run(config, output),
        PolicyCommand::New(args) => new::run(args, output),
        PolicyCommand::Build(args) => build::run(args, output),
        PolicyCommand::Check(subject) => check::run(subject, output),
        PolicyCommand::Inspect(args) => inspect::run(args, output),
        PolicyCommand::Run(args) => run::run(args, output),
        PolicyCommand::Test(args) => test::run(args, output),
        PolicyCommand::Bench(args) => bench::run(args, output),
        PolicyCommand::Replay(args) => replay::run(args, output),
        PolicyCommand::Live(command) => super::live::run(command, output),
    }
}

/// Puts policies through the ladder, each on its own.
pub(crate) fn check_all(specs: &[PolicySpec]) -> Result<Vec<CheckReport>, Failure> {
    let engine = engine(specs)?;
    Ok(specs.iter().map(|spec| tidegate_policy::check(&engine, spec)).collect())
}

/// An engine with room for these policies.
fn engine(specs: &[PolicySpec]) -> Result<Engine, Failure> {
    make(engine_options(specs, Clock::start()))
}

/// An engine that counts what policies execute.
fn counting_engine(specs: &[PolicySpec]) -> Result<Engine, Failure> {
    make(EngineOptions { counts_fuel: true, ..engine_options(specs, Clock::start()) })
}

fn make(options: EngineOptions) -> Result<Engine, Failure> {
    Engine::new(options, Telemetry::default()).map_err(Failure::environment)
}
