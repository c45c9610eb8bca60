//! `tidegate policy test`: cases in TOML, asked of the component as it will run.

mod cases;
mod discover;
mod expectation;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::anyhow;
use serde_json::json;
use tidegate_model::{Instant, Timestamp};
use tidegate_policy::{Engine, LoadError, Probe, RuleError, RulesFrom, Workbench, World};

use self::cases::{Asked, Case, RulesSource, TestFile};
use super::engine;
use super::facts::Moment;
use super::run::not_asked;
use super::subject::{refused, tried};
use crate::cli::TestArgs;
use crate::exit::Failure;
use crate::output::Output;

/// The wall clock at the beginning of each case: some day in 2023.
const WALL_MS: u64 = 1_700_000_000_000;

pub(super) fn run(args: &TestArgs, output: &Output) -> Result<(), Failure> {
    let files = discover::find(&args.paths)?;
    // All files are read before the first case runs, so that mistakes in them come first.
    let files: Vec<TestFile> = files.iter().map(TestFile::read).collect::<Result<_, _>>()?;
    let mut bench = Bench { engine: engine(&[])?, open: BTreeMap::new() };
    let mut results = Vec::new();
    for file in &files {
        if !output.is_json() {
            output.data(&file.path.display().to_string());
        }
        for case in &file.cases {
            if args.only.as_ref().is_some_and(|only| !case.name.contains(only.as_str())) {
                continue;
            }
            let workbench = bench.open(&file.component)?;
            let differences = check(workbench, file, case)?;
            if !output.is_json() {
                show(case, &differences, output);
            }
            results.push((file, case, differences));
        }
    }
    if output.is_json() {
        let list = results.iter().map(|(file, case, differences)| {
            json!({
                "file": file.path, "component": file.component, "case": case.name,
                "passed": differences.is_empty(), "differences": differences,
            })
        });
        output.data(&json!(list.collect::<Vec<_>>()).to_string());
    }
    let failed = results.iter().filter(|(_, _, differences)| !differences.is_empty()).count();
    if failed > 0 {
        return Err(Failure::runtime(anyhow!("{failed} of {} cases failed", results.len())));
    }
    if !output.is_json() {
        output.data(&format!("{} cases passed", results.len()));
    }
    Ok(())
}

/// Components, each compiled once.
struct Bench {
    engine: Engine,
    open: BTreeMap<PathBuf, Workbench>,
}

impl Bench {
    fn open(&mut self, component: &PathBuf) -> Result<&Workbench, Failure> {
        if !self.open.contains_key(component) {
            let spec = tried(component);
            let workbench =
                Workbench::open(&self.engine, &spec).map_err(|error| refused(component, error))?;
            self.open.insert(component.clone(), workbench);
        }
        self.open.get(component).ok_or_else(|| Failure::runtime(anyhow!("it was not kept")))
    }
}

/// Runs a case; answers what was not as expected.
fn check(workbench: &Workbench, file: &TestFile, case: &Case) -> Result<Vec<String>, Failure> {
    let rules = match case.rules.as_ref().or(file.rules.as_ref()) {
        None => RulesFrom::Nowhere,
        Some(RulesSource::File(path)) => RulesFrom::File(path),
        Some(RulesSource::Table(text)) => RulesFrom::Text { file: &file.path, text },
    };
    match (workbench.with_rules(rules), &case.rules_error) {
        (Ok(mut probe), None) => {
            let mut differences = Vec::new();
            ask_all(workbench.world(), &mut probe, &case.messages, &mut differences)?;
            Ok(differences)
        }
        (Ok(_), Some(expected)) => Ok(vec![format!("expected that {expected}, but the rules were taken")]),
        (Err(LoadError::Rules(errors) | LoadError::Refused(errors)), expected) => Ok(match expected {
            Some(expected) if errors.0.iter().any(|error| expected.fits(error)) => Vec::new(),
            Some(expected) => vec![format!("expected that {expected}, but they are: {}", list(&errors.0))],
            None => vec![format!("the rules were refused: {}", list(&errors.0))],
        }),
        (Err(error), _) => Ok(vec![format!("the policy does not load: {:#}", anyhow::Error::new(error))]),
    }
}

/// What is wrong with rules, without the place in a file: they may stand in a table.
fn list(errors: &[RuleError]) -> String {
    let errors = errors.iter().map(|error| format!("`{}`: {}", error.key, error.message));
    errors.collect::<Vec<_>>().join("; ")
}

fn ask_all(
    world: World,
    probe: &mut Probe,
    messages: &[Asked],
    differences: &mut Vec<String>,
) -> Result<(), Failure> {
    let (mut at, mut seed) = (Duration::ZERO, 0);
    for (n, asked) in messages.iter().enumerate() {
        at = asked.facts.at.unwrap_or(at);
        let mut answers = Vec::new();
        for time in 0..asked.times {
            if time > 0 {
                at += asked.every;
            }
            seed += 1;
            let millis = u64::try_from(at.as_millis()).unwrap_or(u64::MAX);
            let moment = Moment {
                now: Instant::ZERO + at,
                wall: Timestamp::from_unix_millis(WALL_MS.saturating_add(millis)),
                seed,
            };
            let facts = asked.facts.clone().at(at);
            let trace = facts.ask(world, probe, &moment).ok_or_else(|| not_asked(world))?;
            answers.push((at, trace.answer));
        }
        differences.extend(asked.expect.differences(&format!("message[{n}]"), &answers));
    }
    Ok(())
}

fn show(case: &Case, differences: &[String], output: &Output) {
    const GREEN: u8 = 32;
    const RED: u8 = 31;
    let word = if differences.is_empty() { output.paint(GREEN, "ok  ") } else { output.paint(RED, "FAIL") };
    output.data(&format!("  {word}  {}", case.name));
    for difference in differences {
        output.data(&format!("        {difference}"));
    }
}
