//! `tidegate check`: is a configuration right, and do the brokers agree?

use std::sync::Arc;

use anyhow::anyhow;
use serde_json::{Value, json};
use tidegate_config::{Config, ReloadPlan, plan};
use tidegate_connector::Clock;
use tidegate_pipeline::{Resolvers, policy_specs, source_options};
use tidegate_rocketmq::{CheckOutcome, CheckReport, CheckStep, TopicKind};

use tidegate_telemetry::Telemetry;

use super::{block_on, policy};
use crate::catalog;
use crate::cli::CheckArgs;
use crate::exit::Failure;
use crate::output::Output;

pub(crate) fn run(args: &CheckArgs, output: &Output) -> Result<(), Failure> {
    let config = catalog::load(&args.config)?;
    catalog::check_tls_files(&args.config, &config)?;
    let mut remarks: Vec<String> = config.warnings.iter().map(ToString::to_string).collect();
    remarks.extend(lite_without_dead_letter(&config));

    let reload = match &args.against {
        Some(old) => Some(plan(&catalog::read(old)?, &config)),
        None => None,
    };
    let policies = policy::check_all(&policy_specs(&config))?;
    let brokers = if args.connect { block_on(ask_brokers(&config))? } else { Vec::new() };

    if output.is_json() {
        let brokers: Vec<Value> = brokers
            .iter()
            .map(|(name, report)| json!({ "source": name, "steps": steps_json(report) }))
            .collect();
        output.data(
            &json!({
                "config": args.config.display().to_string(),
                "remarks": remarks,
                "reload": reload,
                "policies": policies,
                "brokers": brokers,
            })
            .to_string(),
        );
    } else {
        for remark in &remarks {
            output.data(&format!("note: {remark}"));
        }
        if let Some(reload) = &reload {
            show_reload(reload, output);
        }
        for report in &policies {
            output.data(&format!("policy {}", report.policy));
            policy::show(report, output);
        }
        for (name, report) in &brokers {
            output.data(&format!("source {name}"));
            output.data(report.to_string().trim_end());
        }
    }

    let broken: Vec<&str> =
        policies.iter().filter(|report| !report.passed).map(|report| &*report.policy).collect();
    if !broken.is_empty() {
        let names = broken.join("`, `");
        return Err(Failure::config(anyhow!(
            "`{}` names policies that do not load: `{names}`",
            args.config.display()
        )));
    }
    let unreachable: Vec<&str> =
        brokers.iter().filter(|(_, report)| !report.is_good()).map(|(name, _)| &**name).collect();
    if !unreachable.is_empty() {
        let names = unreachable.join("`, `");
        return Err(Failure::environment(anyhow!("sources that cannot receive as configured: `{names}`")));
    }
    if !output.is_json() {
        output.data(&format!("{}: ok", args.config.display()));
    }
    Ok(())
}

async fn ask_brokers(config: &Config) -> Result<Vec<(Arc<str>, CheckReport)>, Failure> {
    let (clock, telemetry) = (Clock::start(), Telemetry::default());
    let resolvers = Resolvers::start(config, clock, telemetry.clone()).await.map_err(Failure::environment)?;
    let mut reports = Vec::new();
    for (name, source) in &config.sources {
        let options = resolvers.source_options(name, source).map_err(Failure::config)?;
        reports.push((Arc::clone(name), tidegate_rocketmq::check(&options, clock, telemetry.clone()).await));
    }
    Ok(reports)
}

/// The server's own dead letters are of no use for lite topics, so a rejected message of such a flow is dropped.
fn lite_without_dead_letter(config: &Config) -> Vec<String> {
    let is_lite = |source: &str| {
        let options = config.sources.get(source).and_then(|found| source_options(&source.into(), found).ok());
        options.is_some_and(|options| options.topic_kind == TopicKind::Lite)
    };
    let flows = config
        .flows
        .iter()
        .filter(|(_, flow)| flow.throttle.is_some() && flow.dead_letter.is_none() && is_lite(&flow.source));
    flows
        .map(|(name, _)| {
            format!(
                "flows.{name} has no `dead-letter` sink and reads lite topics: a message that its policy rejects is \
                 logged and dropped"
            )
        })
        .collect()
}

fn steps_json(report: &CheckReport) -> Vec<Value> {
    let step = |step: &CheckStep| {
        let outcome = match step.outcome {
            CheckOutcome::Good => "good",
            CheckOutcome::Warning => "warning",
            CheckOutcome::Failed => "failed",
        };
        json!({ "step": step.name, "outcome": outcome, "detail": step.detail })
    };
    report.steps.iter().map(step).collect()
}

fn show_reload(reload: &ReloadPlan, output: &Output) {
    if reload.is_empty() {
        output.data("reload: nothing has changed");
    }
    for change in &reload.live {
        output.data(&format!("reload: live       {change}"));
    }
    for change in &reload.restart {
        output.data(&format!("reload: restart    {change}"));
    }
}
