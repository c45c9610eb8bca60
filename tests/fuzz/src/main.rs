//! Throws mutated inputs at every decoder of untrusted bytes.
//!
//! Mutations are blind to coverage but know the formats: bytes for binary ones, lines and words for texts, pieces of
//! one seed in another. Everything follows from a seed, which is printed. It runs on the stable compiler, in the same
//! build as everything else, so that it costs seconds and is run at every change.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool talks to its user")]

mod mutate;
mod random;
mod target;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const HELP: &str = "\
Usage: cargo xtask fuzz [--seconds N] [--seed S] [--target NAME] [--replay FILE]

  --seconds N    how long each target is under fire (default 10)
  --seed S       plays the inputs of an earlier run again (default: another one each time)
  --target NAME  only this one
  --replay FILE  runs one saved input on the target given
";

fn main() -> ExitCode {
    match Options::parse(std::env::args().skip(1)).and_then(|options| run(&options)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(sentence) => {
            eprintln!("error: {sentence}");
            ExitCode::from(2)
        }
    }
}

struct Options {
    limit: Duration,
    seed: u64,
    target: Option<String>,
    replay: Option<PathBuf>,
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options =
            Self { limit: Duration::from_secs(10), seed: fresh_seed(), target: None, replay: None };
        while let Some(argument) = arguments.next() {
            if argument == "--help" {
                return Err(HELP.into());
            }
            let value = arguments.next().ok_or_else(|| format!("`{argument}` wants a value\n\n{HELP}"))?;
            let number = || value.parse().map_err(|_| format!("`{argument}` wants a number, not `{value}`"));
            match argument.as_str() {
                "--seconds" => options.limit = Duration::from_secs(number()?),
                "--seed" => options.seed = number()?,
                "--target" => options.target = Some(value),
                "--replay" => options.replay = Some(value.into()),
                _ => return Err(format!("there is no option `{argument}`\n\n{HELP}")),
            }
        }
        Ok(options)
    }
}

/// True when every target survived.
fn run(options: &Options) -> Result<bool, String> {
    let mut targets = target::all().map_err(|error| error.to_string())?;
    let names: Vec<&str> = targets.iter().map(|target| target.name()).collect();
    if let Some(wanted) = &options.target {
        let known = format!("there is no target `{wanted}`: {}", names.join(", "));
        targets.retain(|target| target.name() == wanted);
        if targets.is_empty() {
            return Err(known);
        }
    }
    if let Some(path) = &options.replay {
        let [target] = targets.as_mut_slice() else { return Err("`--replay` wants a `--target`".into()) };
        let input = fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        let ended = target::try_one(&mut **target, &input);
        println!("{}: {}", target.name(), ended.as_ref().err().map_or("survived", String::as_str));
        return Ok(ended.is_ok());
    }
    println!("seed {}", options.seed);
    let mut good = true;
    for target in &mut targets {
        let ended =
            target::fire(&mut **target, options.seed, options.limit).map_err(|error| error.to_string())?;
        match ended {
            Ok(count) => println!("{:<10} survived {count} inputs", target.name()),
            Err(finding) => {
                good = false;
                println!("{:<10} BROKEN by {}: {}", target.name(), finding.saved.display(), finding.reason);
            }
        }
    }
    Ok(good)
}

#[allow(clippy::disallowed_methods, reason = "the only randomness, printed so that it can be given back")]
fn fresh_seed() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| u64::from(time.subsec_nanos()) ^ time.as_secs())
}
