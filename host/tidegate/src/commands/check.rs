//! `tidegate check`: is a configuration right, and do the brokers agree?

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::anyhow;
use serde_json::{Value, json};
use tidegate_config::{Config, ReloadPlan, plan};
use tidegate_connector::Clock;
use tidegate_connector::check::{CheckOutcome, CheckReport, CheckStep};
use tidegate_handoff::{Description, Forwarder};
use tidegate_kafka_share::connector as kafka_share;
use tidegate_pipeline::{Identity, Preparation, Resolvers, SourceOptions, policy_specs};
use tidegate_rocketmq::TopicKind;
use tidegate_telemetry::Telemetry;

use super::{block_on, policy};
use crate::catalog;
use crate::cli::CheckArgs;
use crate::exit::Failure;
use crate::output::Output;

pub(crate) fn run(args: &CheckArgs, output: &Output) -> Result<(), Failure> {
    let (config, prepared) = catalog::ready(&args.config)?;
    let mut remarks: Vec<String> = config.warnings.iter().map(ToString::to_string).collect();
    remarks.extend_from_slice(prepared.remarks());
    remarks.extend(lite_without_dead_letter(&config, &prepared));

    let reload = match &args.against {
        Some(old) => Some(plan(&catalog::read(old)?, &config)),
        None => None,
    };
    let policies = policy::check_all(&policy_specs(&config))?;
    let brokers = if args.connect { block_on(ask_brokers(&config, &prepared))? } else { Vec::new() };

    if output.is_json() {
        let brokers: Vec<Value> = brokers
            .iter()
            .map(|asked| json!({ asked.role: asked.name, "steps": steps_json(&asked.report) }))
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
        for Asked { role, name, report } in &brokers {
            output.data(&format!("{role} {name}"));
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
    let unusable = |role| {
        let failed = brokers.iter().filter(|asked| asked.role == role && !asked.report.is_good());
        let names: Vec<_> = failed.map(|asked| format!("`{}`", asked.name)).collect();
        (!names.is_empty()).then(|| names.join(", "))
    };
    let sources = unusable(SOURCE).map(|names| format!("sources that cannot receive as configured: {names}"));
    let settlers =
        unusable(SETTLER).map(|names| format!("settlers that cannot settle as configured: {names}"));
    let peers = unusable(PEER).map(|names| format!("peers that nothing can be passed on to: {names}"));
    let told: Vec<_> = sources.into_iter().chain(settlers).chain(peers).collect();
    if !told.is_empty() {
        return Err(Failure::environment(anyhow!(told.join("; "))));
    }
    if !output.is_json() {
        output.data(&format!("{}: ok", args.config.display()));
    }
    Ok(())
}

const SOURCE: &str = "source";
const SETTLER: &str = "settler";
const PEER: &str = "peer";

/// What was found behind one section.
struct Asked {
    role: &'static str,
    name: Arc<str>,
    report: CheckReport,
}

async fn ask_brokers(config: &Config, prepared: &Preparation) -> Result<Vec<Asked>, Failure> {
    let (clock, telemetry) = (Clock::start(), Telemetry::default());
    let resolvers = Resolvers::start(config, clock, telemetry.clone()).await.map_err(Failure::environment)?;
    let mut all = Vec::new();
    for (name, options) in prepared.sources() {
        let mut options = options.clone();
        resolvers.resolve_source(&mut options).map_err(Failure::environment)?;
        let report = match &options {
            SourceOptions::RocketMq(options) => {
                tidegate_rocketmq::check(options, clock, telemetry.clone()).await
            }
            SourceOptions::KafkaShare(options) => {
                let renews = options.renewal_policy.is_some() || is_throttled(config, name);
                kafka_share::check(options, renews).await
            }
        };
        all.push(Asked { role: SOURCE, name: Arc::clone(name), report });
    }
    for (name, options) in prepared.settlers() {
        let mut options = options.clone();
        resolvers.resolve(&mut options).map_err(Failure::environment)?;
        let report = tidegate_rocketmq::check_client(&options, clock, telemetry.clone()).await;
        all.push(Asked { role: SETTLER, name: Arc::clone(name), report });
    }
    if !prepared.peers().is_empty() {
        all.extend(ask_peers(config, prepared, clock, telemetry).await?);
    }
    Ok(all)
}

/// Asks every peer which host it is, and finds out what cannot be meant.
async fn ask_peers(
    config: &Config,
    prepared: &Preparation,
    clock: Clock,
    telemetry: Telemetry,
) -> Result<Vec<Asked>, Failure> {
    let started = Forwarder::start(prepared.peers().to_vec(), clock, telemetry);
    let forwarder = started.map_err(|(peer, error)| {
        Failure::config(anyhow!(error).context(format!("peer `{peer}` cannot be used")))
    })?;
    let own = Identity::read_host_id(&config.host.state_dir);
    let mut seen: BTreeMap<String, Arc<str>> = BTreeMap::new();
    let mut all = Vec::new();
    for (name, described) in forwarder.describe_all().await {
        let mut report = CheckReport::default();
        match described {
            Err(problem) => report.fail("answer", problem),
            Ok(Description { host, version, flows }) => {
                report.good("answer", format!("host {host}, tidegate {version}"));
                match &*flows {
                    [] => report.warn("flows", "the token is for no flow that it serves"),
                    _ => report.good("flows", flows.join(", ")),
                }
                if own.as_deref() == Some(&*host) {
                    report
                        .warn("identity", "it is the host of this configuration: nothing is passed on to it");
                } else if let Some(first) = seen.get(&host) {
                    report.warn("identity", format!("it is the same host as the peer `{first}`"));
                }
                seen.entry(host).or_insert_with(|| Arc::clone(&name));
            }
        }
        all.push(Asked { role: PEER, name, report });
    }
    Ok(all)
}

/// Whether a policy may defer what a source brings: a deferred record's lock is renewed.
fn is_throttled(config: &Config, source: &str) -> bool {
    config.flows.values().any(|flow| &*flow.source == source && flow.throttle.is_some())
}

/// The server's own dead letters are of no use for lite topics, so a rejected message of such a flow is dropped.
fn lite_without_dead_letter(config: &Config, prepared: &Preparation) -> Vec<String> {
    let is_lite = |source: &str| {
        let options = prepared.sources().get(source).and_then(SourceOptions::rocketmq);
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
