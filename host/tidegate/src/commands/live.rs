//! `tidegate policy reload`, `rollback`, `pause`, `resume`, `status`, `diff` and `record`: the policies of a running host.

pub(super) mod ago;
mod diff;
pub(super) mod lines;
mod record;
mod status;
pub(super) mod table;

use anyhow::anyhow;
use serde_json::Value;
use tidegate_connector::Clock;

use super::block_on;
use crate::admin_client::{AdminClient, Answer, segment};
use crate::cli::{AdminArgs, LiveCommand};
use crate::exit::Failure;
use crate::output::Output;

pub(super) const RED: u8 = 31;
pub(super) const GREEN: u8 = 32;
pub(super) const YELLOW: u8 = 33;

pub(crate) fn run(command: &LiveCommand, output: &Output) -> Result<(), Failure> {
    match command {
        LiveCommand::Reload { name, dry_run, admin } => reload(name, *dry_run, admin, output),
        LiveCommand::Rollback { name, admin } => {
            let body = change(name, "rollback", admin)?.into_body()?;
            tell(&body, output, || format!("{name}: generation {} is in force", body["generation"]))
        }
        LiveCommand::Pause { name, admin } => {
            let body = change(name, "pause", admin)?.into_body()?;
            let already = if body["changed"] == true { "" } else { " already" };
            tell(&body, output, || format!("{name}: paused{already}; its messages follow its on-error"))
        }
        LiveCommand::Resume { name, admin } => {
            let body = change(name, "resume", admin)?.into_body()?;
            let told = if body["changed"] == true { "it decides again" } else { "it was not paused" };
            tell(&body, output, || format!("{name}: {told}"))
        }
        LiveCommand::Status { name: None, admin } => {
            let body = look("/api/policies", admin)?;
            if output.is_json() {
                output.data(&body.to_string());
            } else {
                status::show_all(&body, output);
            }
            Ok(())
        }
        LiveCommand::Status { name: Some(name), admin } => {
            let body = look(&format!("/api/policies/{}", segment(name)), admin)?;
            if output.is_json() {
                output.data(&body.to_string());
            } else {
                status::show_one(&body, Clock::start().wall(), output);
            }
            Ok(())
        }
        LiveCommand::Diff { flow, admin } => {
            let body = look(&format!("/api/flows/{}/comparisons", segment(flow)), admin)?;
            if output.is_json() {
                output.data(&body.to_string());
            } else {
                diff::show(&body, Clock::start().wall(), output);
            }
            Ok(())
        }
        LiveCommand::Record(args) => record::run(args, output),
    }
}

pub(super) fn look(path: &str, admin: &AdminArgs) -> Result<Value, Failure> {
    block_on(async { AdminClient::new(&admin.address).get(path).await })
}

fn change(policy: &str, action: &str, admin: &AdminArgs) -> Result<Answer, Failure> {
    let path = format!("/api/policies/{}/{action}", segment(policy));
    block_on(async { AdminClient::new(&admin.address).post(&path).await })
}

pub(super) fn tell(body: &Value, output: &Output, sentence: impl FnOnce() -> String) -> Result<(), Failure> {
    output.data(&if output.is_json() { body.to_string() } else { sentence() });
    Ok(())
}

fn reload(name: &str, dry_run: bool, admin: &AdminArgs, output: &Output) -> Result<(), Failure> {
    let action = if dry_run { "reload?dry-run=true" } else { "reload" };
    let answer = change(name, action, admin)?;
    let report = &answer.body;
    if !report["rungs"].is_array() {
        // Nobody looked at the files.
        return answer.into_body().map(|_| ());
    }
    if output.is_json() {
        output.data(&report.to_string());
    } else {
        show_rungs(report, output);
    }
    if report["passed"] != true {
        let error = report["error"].as_str().unwrap_or("it was not said why");
        let goes_on = match report["generation"].as_u64() {
            Some(number) => format!("generation {number} goes on"),
            None => "nothing is in force".to_owned(),
        };
        let what = if dry_run { "would be refused" } else { "was refused, and " };
        let goes_on = if dry_run { String::new() } else { goes_on };
        return Err(Failure::Config(anyhow!("`{name}` {what}{goes_on}: {error}")));
    }
    if !output.is_json() {
        let generation = &report["generation"];
        output.data(&match (report["changed"] == true, dry_run) {
            (true, true) => format!("{name}: would come into force"),
            (true, false) => format!("{name}: generation {generation} is in force"),
            (false, true) => format!("{name}: is in force already as generation {generation}"),
            (false, false) => format!("{name}: nothing has changed; generation {generation} goes on"),
        });
    }
    Ok(())
}

/// Writes a line for each check that was made.
fn show_rungs(report: &Value, output: &Output) {
    let (mut failed, mut skipped) = (false, 0);
    for rung in report["rungs"].as_array().into_iter().flatten() {
        let word = match rung["outcome"].as_str() {
            Some("passed") => output.paint(GREEN, "ok  "),
            Some("failed") => {
                failed = true;
                output.paint(RED, "FAIL")
            }
            _ => {
                skipped += u32::from(failed);
                continue;
            }
        };
        let name = text(&rung["rung"]);
        let millis =
            std::time::Duration::from_micros(rung["took-us"].as_u64().unwrap_or(0)).as_secs_f64() * 1e3;
        output.data(format!("  {word}  {name:<12} {millis:>8.2} ms  {}", text(&rung["text"])).trim_end());
    }
    if skipped > 0 {
        output.data(&format!("  the {skipped} further checks were not made"));
    }
}

/// A string of an answer; empty when it is none.
pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The counts of an answer that are not zero, as `name count, name count`.
fn counts(value: &Value) -> String {
    let counts = value.as_object().into_iter().flatten();
    let counts = counts.filter(|(_, count)| count.as_u64() != Some(0));
    counts.map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ")
}
