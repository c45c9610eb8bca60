//! `cargo xtask test`: runs the steps and reports.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::command::now;
use crate::results::Results;
use crate::steps::{self, COUNTED, LIMIT, Step};
use crate::{Failure, root, toolchain};

/// Lines of a failed step's log that are shown; the rest is in the file.
const SHOWN_LINES: usize = 300;
/// Steps and test binaries that are named as the slowest.
const SLOWEST: usize = 5;

/// Runs what `arguments` select.
pub(crate) fn test(arguments: &[String]) -> Result<(), Failure> {
    let options = Options::parse(arguments)?;
    let steps = options.select(steps::all(!options.quick))?;
    if options.list {
        for step in steps {
            println!("{:<8} {}", step.name, step.purpose);
        }
        return Ok(());
    }
    toolchain::check(!options.quick)?;
    let logs = logs()?;
    let mut report = Report::default();
    for step in &steps {
        report.add(step, run(step, &logs));
    }
    report.print();
    if report.is_good() { Ok(()) } else { Err(Failure::Shown) }
}

#[derive(Debug, Default, PartialEq)]
struct Options {
    quick: bool,
    list: bool,
    only: Vec<String>,
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Self, Failure> {
        let mut options = Self::default();
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            match argument.as_str() {
                "--quick" => options.quick = true,
                "--list" => options.list = true,
                "--only" => match rest.next() {
                    Some(step) => options.only.push(step.clone()),
                    None => return Err(Failure::Usage("`--only` wants the name of a step".into())),
                },
                other => {
                    return Err(Failure::Usage(format!(
                        "`test` knows --quick, --only STEP and --list, not `{other}`"
                    )));
                }
            }
        }
        Ok(options)
    }

    fn select(&self, steps: Vec<Step>) -> Result<Vec<Step>, Failure> {
        let names: Vec<&str> = steps.iter().map(|step| step.name).collect();
        if let Some(unknown) = self.only.iter().find(|name| !names.contains(&name.as_str())) {
            return Err(Failure::Usage(format!("there is no step `{unknown}`: {}", names.join(", "))));
        }
        let wanted = |step: &Step| {
            if self.only.is_empty() {
                !(self.quick && step.slow)
            } else {
                self.only.iter().any(|name| name == step.name)
            }
        };
        Ok(steps.into_iter().filter(wanted).collect())
    }
}

/// How one step ended.
#[derive(Debug)]
struct Ending {
    outcome: Outcome,
    took: Duration,
    results: Option<Results>,
}

#[derive(Debug, PartialEq)]
enum Outcome {
    Good,
    /// Passed over, for this reason.
    Skipped(&'static str),
    /// In one sentence; the log has been shown.
    Bad(String),
}

fn run(step: &Step, logs: &Path) -> Ending {
    let started = now();
    let path = logs.join(format!("{}.log", step.name));
    let outcome = match &step.unless_missing {
        Some((probe, reason)) if !probe.succeeds() => Outcome::Skipped(reason),
        _ => run_lines(step, &path).unwrap_or_else(|error| Outcome::Bad(format!("cannot run it: {error}"))),
    };
    let took = started.elapsed();
    let log = if outcome == Outcome::Good || matches!(outcome, Outcome::Bad(_)) {
        fs::read_to_string(&path).unwrap_or_default()
    } else {
        String::new()
    };
    match &outcome {
        Outcome::Good => println!("{:<8} ok      {:>7.1} s", step.name, took.as_secs_f64()),
        Outcome::Skipped(reason) => println!("{:<8} skipped: {reason}", step.name),
        Outcome::Bad(sentence) => {
            println!(
                "{:<8} FAILED  {:>7.1} s  {sentence}; {}:",
                step.name,
                took.as_secs_f64(),
                path.display()
            );
            show(&log);
        }
    }
    let results = (COUNTED.contains(&step.name) && !matches!(outcome, Outcome::Skipped(_)))
        .then(|| Results::parse(&log));
    Ending { outcome, took, results }
}

fn run_lines(step: &Step, log: &Path) -> io::Result<Outcome> {
    let mut log = File::create(log).and_then(|_| File::options().append(true).open(log))?;
    for line in &step.lines {
        match line.run_into(&mut log, LIMIT)? {
            Some(status) if status.success() => {}
            Some(status) => return Ok(Outcome::Bad(format!("`{line}` ended with {status}"))),
            None => {
                return Ok(Outcome::Bad(format!(
                    "`{line}` was still running after {} min",
                    LIMIT.as_secs() / 60
                )));
            }
        }
    }
    Ok(Outcome::Good)
}

fn show(log: &str) {
    let lines: Vec<&str> = log.lines().collect();
    let hidden = lines.len().saturating_sub(SHOWN_LINES);
    if hidden > 0 {
        println!("    | .. {hidden} lines before these");
    }
    for line in &lines[hidden..] {
        println!("    | {line}");
    }
}

#[derive(Debug, Default)]
struct Report {
    endings: Vec<(&'static str, Ending)>,
}

impl Report {
    fn add(&mut self, step: &Step, ending: Ending) {
        self.endings.push((step.name, ending));
    }

    fn is_good(&self) -> bool {
        self.endings.iter().all(|(_, ending)| !matches!(ending.outcome, Outcome::Bad(_)))
            && self.results().all(|results| results.failed == 0)
    }

    fn results(&self) -> impl Iterator<Item = &Results> {
        self.endings.iter().filter_map(|(_, ending)| ending.results.as_ref())
    }

    /// Ends with the line that counts, alone: continuous integration looks for it.
    fn print(&self) {
        let mut times: Vec<(String, f64)> = self
            .endings
            .iter()
            .map(|(name, ending)| ((*name).to_owned(), ending.took.as_secs_f64()))
            .chain(self.results().flat_map(|results| results.binaries.iter().cloned()))
            .collect();
        times.sort_by(|left, right| right.1.total_cmp(&left.1));
        println!("\nslowest:");
        for (name, seconds) in times.iter().take(SLOWEST) {
            println!("  {seconds:>7.1} s  {name}");
        }
        for line in self.results().flat_map(|results| &results.details) {
            println!("    | {line}");
        }
        for failure in self.results().flat_map(|results| &results.failures) {
            println!("failed test: {failure}");
        }
        for (name, ending) in &self.endings {
            if let Outcome::Bad(sentence) = &ending.outcome {
                println!("failed step: {name}: {sentence}");
            }
        }
        let passed: u64 = self.results().map(|results| results.passed).sum();
        let failed: u64 = self.results().map(|results| results.failed).sum();
        println!("\n{passed} passed, {failed} failed");
    }
}

fn logs() -> Result<PathBuf, Failure> {
    let directory = root().join("target/xtask");
    fs::create_dir_all(&directory)
        .map_err(|error| Failure::Environment(format!("cannot create {}: {error}", directory.display())))?;
    Ok(directory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::program;
    use crate::steps::TESTS;

    fn options(arguments: &[&str]) -> Result<Options, Failure> {
        Options::parse(&arguments.iter().map(|argument| (*argument).to_owned()).collect::<Vec<_>>())
    }

    fn names(arguments: &[&str]) -> Vec<&'static str> {
        let options = options(arguments).unwrap();
        options.select(steps::all(true)).unwrap().iter().map(|step| step.name).collect()
    }

    #[test]
    fn quick_leaves_out_the_slow_ones() {
        assert!(names(&[]).contains(&"fuzz"));
        assert!(!names(&["--quick"]).contains(&"fuzz"));
        assert_eq!(names(&["--only", "fmt", "--only", "doc"]), ["fmt", "doc"]);
    }

    #[test]
    fn mistakes_are_named() {
        assert!(matches!(options(&["--fast"]), Err(Failure::Usage(sentence)) if sentence.contains("--fast")));
        assert!(matches!(options(&["--only"]), Err(Failure::Usage(_))));
        let unknown = options(&["--only", "tset"]).unwrap().select(steps::all(true));
        assert!(
            matches!(unknown, Err(Failure::Usage(sentence)) if sentence.contains("tset") && sentence.contains(TESTS))
        );
    }

    fn step(script: &str) -> Step {
        Step {
            name: TESTS,
            purpose: "",
            lines: vec![program("sh").with(&["-c", script])],
            slow: false,
            unless_missing: None,
        }
    }

    /// Runs one step that stands for the tests and says whether the whole is good, and what was counted.
    fn report(name: &str, step: &Step) -> (bool, u64, u64) {
        let logs = std::env::temp_dir().join(format!("tidegate-suite-{}-{name}", std::process::id()));
        fs::create_dir_all(&logs).unwrap();
        let mut report = Report::default();
        report.add(step, run(step, &logs));
        fs::remove_dir_all(logs).unwrap();
        let results = report.results().next();
        (
            report.is_good(),
            results.map_or(0, |results| results.passed),
            results.map_or(0, |results| results.failed),
        )
    }

    #[test]
    fn a_step_is_good_only_when_its_command_and_its_tests_are() {
        let good = step("echo 'test result: ok. 3 passed; 0 failed; 0 ignored'");
        assert_eq!(report("good", &good), (true, 3, 0));
        let failing = step("echo 'test result: FAILED. 3 passed; 1 failed; 0 ignored'; exit 101");
        assert_eq!(report("failing", &failing), (false, 3, 1));
        let broken = step("echo 'error: could not compile'; exit 101");
        assert_eq!(report("broken", &broken), (false, 0, 0));
        let unfinished = step("echo 'test result: FAILED. 3 passed; 1 failed; 0 ignored'");
        assert_eq!(report("unfinished", &unfinished), (false, 3, 1));
    }

    #[test]
    fn a_step_without_its_tool_is_passed_over_aloud() {
        let unless_missing = Some((program("false"), "no tool"));
        let skipped = Step { unless_missing, ..step("exit 1") };
        let ending = run(&skipped, Path::new("/nowhere"));
        assert_eq!(ending.outcome, Outcome::Skipped("no tool"));
    }
}
