//! The project's own tasks: `cargo xtask help` lists them.
//!
//! Standard library only, so that this builds in a second or two on a fresh machine. It decides what to run and in which order, and
//! shows what came of it; it knows nothing of what the commands do.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool talks to its user")]

mod command;
mod guests;
mod results;
mod steps;
mod suite;
mod toolchain;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const HELP: &str = "\
Usage: cargo xtask TASK

Tasks:
  test [--quick] [--only STEP].. [--list]
            checks and tests everything, real brokers included; --quick leaves out what is slow
            (real brokers, the README's policies, fuzzing), --only runs single steps, --list names them
  guests    builds the guests and encodes the shipped policies anew into policies/
  lab [..]  measures the host beside the public Java client on a real broker (`lab --help`)
  audit [host|workers|share] [..]
            kills a host and restarts real brokers under load and counts, or kills workers in three languages and the host
            that serves them, while another settles, on RocketMQ or on Kafka share groups (`audit --help`)
  fuzz [..] throws mutated inputs at every decoder (`fuzz --help`)
  brokers   fetches the real brokers' jars, which the tests otherwise do at their first use
  help      this text
";

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let task = arguments.next().unwrap_or_else(|| "help".into());
    let rest: Vec<String> = arguments.collect();
    let outcome = match task.as_str() {
        "test" => suite::test(&rest),
        "guests" => guests::build_and_encode(&rest),
        "lab" => beside_the_host("tidegate-lab", &rest),
        "audit" => beside_the_host("tidegate-audit", &rest),
        "fuzz" => command::cargo(&["run", "-q", "-p", "tidegate-fuzz", "--"]).with(&rest).run(),
        "brokers" => {
            command::cargo(&["run", "-q", "-p", "tidegate-test-brokers", "--example", "fetch"]).run()
        }
        "help" | "--help" | "-h" => {
            print!("{HELP}");
            Ok(())
        }
        other => Err(Failure::Usage(format!("there is no task `{other}`\n\n{HELP}"))),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Usage(sentence)) => {
            eprintln!("error: {sentence}");
            ExitCode::from(2)
        }
        Err(Failure::Environment(sentence)) => {
            eprintln!("error: {sentence}");
            ExitCode::from(3)
        }
        Err(Failure::Shown) => ExitCode::FAILURE,
    }
}

/// Runs a program that starts the host's: both as users have them, optimised.
fn beside_the_host(package: &str, arguments: &[String]) -> Result<(), Failure> {
    command::cargo(&["build", "--release"]).run()?;
    command::cargo(&["run", "--release", "-q", "-p", package, "--"]).with(arguments).run()
}

/// How a task ends when not well.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It was called wrongly.
    Usage(String),
    /// Something it needs is missing or cannot be used.
    Environment(String),
    /// What failed has been shown.
    Shown,
}

/// The repository's root.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}
