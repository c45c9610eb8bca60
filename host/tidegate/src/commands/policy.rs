//! `tidegate policy`: load, check and build policies.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use serde_json::json;
use tidegate_connector::Clock;
use tidegate_pipeline::{engine_options, policy_specs};
use tidegate_policy::{CheckReport, Engine, PolicySpec, RungOutcome, encode_component};
use tidegate_telemetry::Telemetry;

use crate::catalog;
use crate::cli::{PolicyArgs, PolicyCommand};
use crate::exit::Failure;
use crate::output::Output;

pub(crate) fn run(args: &PolicyArgs, output: &Output) -> Result<(), Failure> {
    match &args.command {
        PolicyCommand::List { config } => list(config, output),
        PolicyCommand::Check { component, rules } => {
            let name = component.file_stem().unwrap_or_default().to_string_lossy();
            let spec = PolicySpec { rules: rules.clone(), ..PolicySpec::new(name, component.clone()) };
            check_one(&spec, output)
        }
        PolicyCommand::Build { core, output: to } => build(core, to, output),
    }
}

fn list(config: &Path, output: &Output) -> Result<(), Failure> {
    let config = catalog::read(config)?;
    let reports = check_all(&policy_specs(&config))?;
    let report_of = |name: &str| reports.iter().find(|report| *report.policy == *name);
    if output.is_json() {
        let list: Vec<_> = config
            .policies
            .iter()
            .map(|(name, policy)| {
                json!({ "name": name, "component": policy.component, "report": report_of(name) })
            })
            .collect();
        output.data(&json!(list).to_string());
    } else {
        let width = config.policies.keys().map(|name| name.len()).max().unwrap_or(0);
        for (name, policy) in &config.policies {
            let told =
                report_of(name).map_or_else(|| "no flow uses it, so it is not loaded".to_owned(), summary);
            output.data(&format!("{name:width$}  {}  {told}", policy.component.display()));
        }
    }
    if reports.iter().all(|report| report.passed) {
        Ok(())
    } else {
        Err(Failure::config(anyhow!("not every policy loads; `tidegate policy check FILE` says why")))
    }
}

fn check_one(spec: &PolicySpec, output: &Output) -> Result<(), Failure> {
    let reports = check_all(std::slice::from_ref(spec))?;
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

/// Puts policies through the ladder, each on its own.
pub(crate) fn check_all(specs: &[PolicySpec]) -> Result<Vec<CheckReport>, Failure> {
    let engine = Engine::new(engine_options(specs, Clock::start()), Telemetry::default());
    let engine = engine.map_err(Failure::environment)?;
    Ok(specs.iter().map(|spec| tidegate_policy::check(&engine, spec)).collect())
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

fn summary(report: &CheckReport) -> String {
    match (&report.description, report.failure()) {
        (_, Some(reason)) => format!("does not load: {reason}"),
        (Some(described), None) => format!("{} {}: {}", described.name, described.version, described.summary),
        (None, None) => "loads".to_owned(),
    }
}

fn build(core: &Path, to: &Path, output: &Output) -> Result<(), Failure> {
    let bytes = std::fs::read(core)
        .with_context(|| format!("cannot read `{}`", core.display()))
        .map_err(Failure::config)?;
    let component = encode_component(&bytes)
        .with_context(|| format!("`{}` cannot be made a component", core.display()))
        .map_err(Failure::config)?;
    // Written aside and renamed, so that a host that watches the file sees the old one or the new one.
    let aside = to.with_extension("wasm.new");
    std::fs::write(&aside, &component)
        .and_then(|()| std::fs::rename(&aside, to))
        .with_context(|| format!("cannot write `{}`", to.display()))
        .map_err(Failure::environment)?;
    let name: Arc<str> = to.display().to_string().into();
    if output.is_json() {
        output.data(&json!({ "component": name, "bytes": component.len() }).to_string());
    } else {
        output.data(&format!("{name}: {} bytes", component.len()));
    }
    Ok(())
}
