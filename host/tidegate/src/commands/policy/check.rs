//! `tidegate policy check`: one policy through every check, as `run` would load it.

use anyhow::anyhow;
use serde_json::json;
use tidegate_policy::{CheckReport, RungOutcome};

use super::check_all;
use crate::cli::Subject;
use crate::exit::Failure;
use crate::output::Output;

pub(super) fn run(subject: &Subject, output: &Output) -> Result<(), Failure> {
    let spec = subject.spec()?;
    let reports = check_all(std::slice::from_ref(&spec))?;
    let Some(report) = reports.first() else { return Ok(()) };
    if output.is_json() {
        output.data(&json!(report).to_string());
    } else {
        show(report, output);
    }
    if report.passed {
        Ok(())
    } else {
        Err(Failure::config(anyhow!("`{}` does not load", spec.component.display())))
    }
}

/// Writes a line for each rung.
pub(crate) fn show(report: &CheckReport, output: &Output) {
    const GREEN: u8 = 32;
    const RED: u8 = 31;
    let mut skipped = 0;
    for rung in &report.rungs {
        let (word, text) = match &rung.outcome {
            RungOutcome::Passed => (output.paint(GREEN, "ok  "), ""),
            RungOutcome::Noted(note) => (output.paint(GREEN, "ok  "), note.as_str()),
            RungOutcome::Failed(reason) => (output.paint(RED, "FAIL"), reason.as_str()),
            RungOutcome::Skipped => {
                skipped += 1;
                continue;
            }
        };
        let millis = rung.took.as_secs_f64() * 1_000.0;
        output.data(format!("  {word}  {:<12} {millis:>8.2} ms  {text}", rung.rung.label()).trim_end());
    }
    if skipped > 0 {
        output.data(&format!("  the {skipped} further checks were not made"));
    }
    if let Some(described) = &report.description {
        output.data(&format!("  {} {}: {}", described.name, described.version, described.summary));
    }
}
