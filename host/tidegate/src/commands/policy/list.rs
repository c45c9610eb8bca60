//! `tidegate policy list`: the policies of a configuration.

use std::path::Path;

use anyhow::anyhow;
use serde_json::json;
use tidegate_pipeline::policy_specs;
use tidegate_policy::CheckReport;

use super::check_all;
use crate::catalog;
use crate::exit::Failure;
use crate::output::Output;

pub(super) fn run(config: &Path, output: &Output) -> Result<(), Failure> {
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

fn summary(report: &CheckReport) -> String {
    match (&report.description, report.failure()) {
        (_, Some(reason)) => format!("does not load: {reason}"),
        (Some(described), None) => format!("{} {}: {}", described.name, described.version, described.summary),
        (None, None) => "loads".to_owned(),
    }
}
