//! `tidegate kafka group describe`: a group's state, settings and members, and what keeps records away.

use serde_json::{Value, json};
use tidegate_connector::units::format_duration;
use tidegate_kafka_share::admin::{
    AssignedTopic, Cause, DescribeError, Expectation, Finding, GroupConfiguration, GroupDescription,
    MemberDescription, Severity, ShareGroupAdmin,
};

use super::{failure, kept_away, or_dash, show, with_admin};
use crate::cli::DescribeArgs;
use crate::commands::live::{GREEN, RED, YELLOW};
use crate::exit::Failure;
use crate::output::{Output, talk};

/// What is known of a group.
struct Known {
    /// `None` for a group that is not there, or that only a diagnosis is wanted of.
    description: Option<GroupDescription>,
    settings: Option<GroupConfiguration>,
    /// What could not be found out.
    unknown: Vec<String>,
    findings: Option<Vec<Finding>>,
}

pub(super) async fn run(args: &DescribeArgs, output: &Output) -> Result<(), Failure> {
    let group = args.group.as_str();
    let known = with_admin(&args.cluster, async |admin: &mut ShareGroupAdmin| ask(args, admin).await).await?;
    let blocks =
        known.findings.iter().flatten().filter(|finding| finding.severity == Severity::Blocks).count();
    if output.is_json() {
        output.data(&known.json(group).to_string());
    } else {
        known.show(group, output);
    }
    if blocks > 0 { Err(kept_away(group, blocks)) } else { Ok(()) }
}

async fn ask(args: &DescribeArgs, admin: &mut ShareGroupAdmin) -> Result<Known, Failure> {
    let group = args.group.as_str();
    let mut known = Known { description: None, settings: None, unknown: Vec::new(), findings: None };
    if args.explain {
        let expectation = Expectation {
            topics: args.topics.iter().map(|topic| topic.as_str().into()).collect(),
            renews_locks: args.renews,
        };
        let findings = admin.diagnose(group, &expectation).await;
        let is_hopeless = findings.iter().any(|finding| {
            matches!(
                finding.cause,
                Cause::Unreachable { .. }
                    | Cause::TooOld { .. }
                    | Cause::ShareVersionOff
                    | Cause::OffsetsTopicReplication { .. }
            )
        });
        known.findings = Some(findings);
        if is_hopeless {
            return Ok(known);
        }
    }
    match admin.describe(group).await {
        Ok(description) => known.description = Some(description),
        Err(error) if args.explain => {
            // The findings say it as well, with what to do.
            if !matches!(error, DescribeError::Denied { .. }) {
                known.unknown.push(format!("{:#}", anyhow::Error::new(error)));
            }
        }
        Err(error) => return Err(failure(error.fault(), error)),
    }
    match admin.configuration(group).await {
        Ok(settings) => known.settings = Some(settings),
        Err(error) => known.unknown.push(format!("{:#}", anyhow::Error::new(error))),
    }
    Ok(known)
}

impl Known {
    fn show(&self, group: &str, output: &Output) {
        if let Some(description) = &self.description {
            let state = match &*description.state {
                "Stable" => output.paint(GREEN, "Stable"),
                state => output.paint(YELLOW, state),
            };
            output.data(&format!(
                "{group}: {state}, epoch {}, assigned at epoch {} by {}",
                description.epoch, description.assignment_epoch, description.assignor
            ));
        }
        if let Some(settings) = &self.settings {
            show(&facts(settings), output);
        }
        if let Some(description) = &self.description {
            if description.members.is_empty() {
                output.data("nobody is in it");
            } else {
                let head = ["MEMBER", "CLIENT", "HOST", "RACK", "EPOCH", "TOPICS", "ASSIGNMENT"];
                let mut rows = vec![head.map(str::to_owned).to_vec()];
                rows.extend(description.members.iter().map(row));
                show(&rows, output);
            }
        }
        for unknown in &self.unknown {
            talk(unknown);
        }
        let Some(findings) = &self.findings else { return };
        if findings.is_empty() {
            output.data("nothing keeps records away");
        }
        for finding in findings {
            let word = format!("{:<7}", finding.severity.name());
            let word = match finding.severity {
                Severity::Blocks => output.paint(RED, &word),
                Severity::Warning => output.paint(YELLOW, &word),
                Severity::Note => word,
            };
            output.data(&format!("{word}  {}", finding.cause));
        }
    }

    fn json(&self, group: &str) -> Value {
        let findings = self.findings.as_ref().map(|findings| {
            let findings = findings.iter().map(|finding| {
                json!({
                    "severity": finding.severity.name(),
                    "cause": finding.cause.name(),
                    "text": finding.cause.to_string(),
                })
            });
            findings.collect::<Vec<Value>>()
        });
        let description = self.description.as_ref();
        let settings = self.settings.as_ref();
        json!({
            "group": group,
            "state": description.map(|group| &group.state),
            "epoch": description.map(|group| group.epoch),
            "assignment-epoch": description.map(|group| group.assignment_epoch),
            "assignor": description.map(|group| &group.assignor),
            "members": description.map(|group| group.members.iter().map(member_json).collect::<Vec<Value>>()),
            "settings": settings.map(|settings| json!({
                "delivery-count-limit": settings.delivery_count_limit(),
                "record-lock-duration-ms": settings.record_lock_duration().map(|lock| lock.as_millis()),
                "renews-locks": settings.renews_locks(),
                "reset-policy": settings.reset_policy(),
                "isolation-level": settings.isolation_level(),
            })),
            "unknown": self.unknown,
            "findings": findings,
        })
    }
}

fn facts(settings: &GroupConfiguration) -> Vec<Vec<String>> {
    let renewal = settings.renews_locks().map(|renews| if renews { "on" } else { "off" });
    let fact = |name: &str, value: String| vec![format!("  {name}"), value];
    vec![
        fact("delivery-count limit", or_dash(settings.delivery_count_limit())),
        fact("lock duration", or_dash(settings.record_lock_duration().map(format_duration))),
        fact("lock renewal", or_dash(renewal)),
        fact("reset policy", or_dash(settings.reset_policy())),
        fact("isolation level", or_dash(settings.isolation_level())),
    ]
}

fn row(member: &MemberDescription) -> Vec<String> {
    let assignment: Vec<_> = member.assignment.iter().map(assigned).collect();
    vec![
        member.id.to_string(),
        member.client_id.to_string(),
        member.client_host.to_string(),
        or_dash(member.rack.as_deref()),
        member.epoch.to_string(),
        member.topics.join(","),
        if assignment.is_empty() { "-".to_owned() } else { assignment.join(" ") },
    ]
}

/// `topic:0,1,2`.
fn assigned(of: &AssignedTopic) -> String {
    let partitions: Vec<_> = of.partitions.iter().map(ToString::to_string).collect();
    format!("{}:{}", of.topic, partitions.join(","))
}

fn member_json(member: &MemberDescription) -> Value {
    let assignment = member.assignment.iter();
    let assignment: Vec<Value> =
        assignment.map(|of| json!({ "topic": of.topic, "partitions": of.partitions })).collect();
    json!({
        "member": member.id,
        "client-id": member.client_id,
        "host": member.client_host,
        "rack": member.rack,
        "epoch": member.epoch,
        "topics": member.topics,
        "assignment": assignment,
    })
}
