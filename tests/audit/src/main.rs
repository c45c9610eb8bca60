//! Kills hosts and workers and restarts real brokers under load, then audits the promises.
//!
//! Three runs: `host`, the default, is about one host and its brokers; `workers` about two hosts and the workers that
//! settle at either; `share` is the same on Kafka share groups. The brokers are real, the host is the program that users run,
//! and kills are SIGKILL at random moments.
#![forbid(unsafe_code)]

mod blows;
mod fleet;
mod host;
mod ledger;
mod load;
mod process;
mod single;

use std::fmt::Display;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use serde::Serialize;

/// Kills hosts, workers and real brokers under load, and prints the audit.
#[derive(Debug, Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    run: Option<Run>,
    #[command(flatten)]
    host: single::Options,
    /// Print the audit as JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Run {
    /// One host that is killed, and brokers that are restarted (what is done without a name)
    Host(single::Options),
    /// Two hosts and workers in three languages: workers and one host are killed, the other settles
    Workers(fleet::rocketmq::Options),
    /// The same on Kafka share groups; nodes of the brokers are killed, too
    Share(fleet::kafka::Options),
}

fn main() -> ExitCode {
    let Arguments { run, host, json } = Arguments::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error.into()),
    };
    match run.unwrap_or(Run::Host(host)) {
        Run::Host(options) => match runtime.block_on(single::audit(&options)) {
            Ok(verdict) => end(&verdict, verdict.holds(), json),
            Err(error) => fail(&error),
        },
        Run::Workers(options) => match runtime.block_on(fleet::rocketmq::audit(&options)) {
            Ok(verdict) => end(&verdict, verdict.holds(), json),
            Err(error) => fail(&error),
        },
        Run::Share(options) => match runtime.block_on(fleet::kafka::audit(&options)) {
            Ok(verdict) => end(&verdict, verdict.holds(), json),
            Err(error) => fail(&error),
        },
    }
}

#[allow(clippy::print_stdout, reason = "the audit is this program's data")]
fn end(verdict: &(impl Display + Serialize), holds: bool, json: bool) -> ExitCode {
    match serde_json::to_string(verdict) {
        Ok(text) if json => println!("{text}"),
        _ => println!("{verdict}"),
    }
    if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[allow(clippy::print_stderr, reason = "errors are this program's talk")]
fn fail(error: &anyhow::Error) -> ExitCode {
    eprintln!("error: {error:#}");
    ExitCode::FAILURE
}

#[allow(clippy::print_stderr, reason = "progress is this program's talk")]
fn progress(line: &str) {
    eprintln!("{line}");
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Arguments::command().debug_assert();
    }
}
