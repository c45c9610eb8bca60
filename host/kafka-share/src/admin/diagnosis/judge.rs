//! What follows from what is known.

use super::facts::{Facts, Membership, TopicFacts};
use super::{Cause, Finding, Severity};
use crate::ErrorCode;
use crate::admin::configuration::GroupConfiguration;
use crate::admin::error::{ConfigurationError, DescribeError, MissingRight, Operation};
use crate::admin::told;
use crate::admin::topics::Topic;

/// Everything that keeps records away, as it is found.
pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    let mut findings = Findings(Vec::new());
    cluster(facts, &mut findings);
    group(facts, &mut findings);
    for (name, topic) in &facts.topics {
        of_topic(facts, name, topic, &mut findings);
    }
    settings(facts, &mut findings);
    findings.0
}

struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, severity: Severity, cause: Cause) {
        let finding = Finding { severity, cause };
        // One right may be missed in two places.
        if !self.0.contains(&finding) {
            self.0.push(finding);
        }
    }
}

fn cluster(facts: &Facts, findings: &mut Findings) {
    if let Some(unreachable) = &facts.unreachable {
        let problem = unreachable.problem.clone();
        let cause =
            if unreachable.is_too_old { Cause::TooOld { problem } } else { Cause::Unreachable { problem } };
        findings.add(Severity::Blocks, cause);
        return;
    }
    // Brokers that say nothing of the feature are asked by what they answer members.
    if facts.share_version == Some(0) || matches!(facts.membership, Membership::SwitchedOff) {
        findings.add(Severity::Blocks, Cause::ShareVersionOff);
    }
    let brokers = facts.brokers;
    if facts.offsets_topic.is_impossible(brokers) {
        let wanted = facts.offsets_topic.replicas.unwrap_or_default();
        findings.add(Severity::Blocks, Cause::OffsetsTopicReplication { wanted, brokers });
    }
    if facts.state_topic.is_impossible(brokers) {
        let wanted = facts.state_topic.replicas.unwrap_or_default();
        findings.add(Severity::Blocks, Cause::StateTopicReplication { wanted, brokers });
    }
}

fn group(facts: &Facts, findings: &mut Findings) {
    match &facts.membership {
        Membership::Denied(right) => findings.add(Severity::Blocks, Cause::Denied(right.clone())),
        Membership::Refused(problem) => {
            findings.add(Severity::Blocks, Cause::GroupUnseen { problem: problem.clone() });
        }
        Membership::Possible | Membership::SwitchedOff => {}
    }
    match &facts.description {
        None => {}
        Some(Ok(description)) => {
            let members = description.members.len();
            if description.rights.lacks(Operation::Read) {
                let right = MissingRight::on_group(Operation::Read, &description.id);
                findings.add(Severity::Blocks, Cause::Denied(right));
            }
            if let Some(limit) = facts.size_max
                && i64::try_from(members).is_ok_and(|members| members >= limit)
            {
                findings.add(Severity::Blocks, Cause::GroupFull { members, limit });
            }
            if members == 0 {
                findings.add(Severity::Note, Cause::NobodyThere);
            }
        }
        Some(Err(DescribeError::NotFound { .. })) => findings.add(Severity::Note, Cause::NobodyThere),
        // A member needs to see the group as well: brokers ask for it before they name the coordinator.
        Some(Err(DescribeError::Denied { right, .. })) => {
            findings.add(Severity::Blocks, Cause::Denied(right.clone()));
        }
        Some(Err(error)) => {
            findings.add(Severity::Warning, Cause::GroupUnseen { problem: told(error) });
        }
    }
    let is_known = matches!(facts.description, Some(Ok(_) | Err(DescribeError::NotFound { .. })));
    if is_known && facts.topics.is_empty() {
        findings.add(Severity::Note, Cause::NoTopics);
    }
    let partitions: Vec<_> =
        facts.offsets.iter().flatten().flat_map(|topic| topic.partitions.iter()).collect();
    if !partitions.is_empty() && partitions.iter().all(|partition| partition.lag == Some(0)) {
        findings.add(Severity::Note, Cause::NothingLeft);
    }
}

fn of_topic(facts: &Facts, name: &str, topic: &TopicFacts, findings: &mut Findings) {
    let boxed = || Box::from(name);
    match &topic.found {
        None => findings.add(Severity::Blocks, Cause::TopicMissing { topic: boxed() }),
        Some(Err(complaint)) => {
            let cause = match complaint.code {
                ErrorCode::UNKNOWN_TOPIC_OR_PARTITION => Cause::TopicMissing { topic: boxed() },
                ErrorCode::TOPIC_AUTHORIZATION_FAILED => {
                    Cause::Denied(MissingRight::on_topic(Operation::Describe, name))
                }
                _ => Cause::TopicRefused { topic: boxed(), problem: complaint.to_string().into() },
            };
            findings.add(Severity::Blocks, cause);
        }
        Some(Ok(found)) => {
            if found.rights.lacks(Operation::Read) {
                findings.add(Severity::Blocks, Cause::Denied(MissingRight::on_topic(Operation::Read, name)));
            }
            leaders(name, found, findings);
            older_records(facts, name, topic, findings);
        }
    }
}

fn leaders(name: &str, found: &Topic, findings: &mut Findings) {
    let leaderless = found.leaders.iter().filter(|(_, leader)| leader.is_none());
    let partitions: Vec<i32> = leaderless.map(|(number, _)| *number).collect();
    let total = found.leaders.len();
    if !partitions.is_empty() {
        let severity = if partitions.len() == total { Severity::Blocks } else { Severity::Warning };
        findings.add(severity, Cause::NoLeader { topic: name.into(), partitions, total });
    }
}

/// Where the group has never fetched, its policy decides, and `latest` passes over what is there.
fn older_records(facts: &Facts, name: &str, topic: &TopicFacts, findings: &mut Findings) {
    let Some(Ok(settings)) = &facts.settings else { return };
    let Some(policy @ "latest") = settings.reset_policy() else { return };
    let stood = facts.offsets.iter().flatten().find(|offsets| &*offsets.topic == name);
    // A partition that the topic got later is read from its start, whatever the policy says: so a topic that the group
    // stands in anywhere has nothing to pass over.
    if stood.is_some_and(|stood| stood.partitions.iter().any(|partition| partition.start.is_some())) {
        return;
    }
    let records: i64 = topic.ends.values().map(|(start, end)| end.saturating_sub(*start)).sum();
    if records > 0 {
        let policy = policy.into();
        findings.add(Severity::Warning, Cause::SkipsOlderRecords { topic: name.into(), records, policy });
    }
}

fn settings(facts: &Facts, findings: &mut Findings) {
    if facts.unreachable.is_none() && facts.expectation.renews_locks && !facts.has_renewal {
        findings.add(Severity::Warning, Cause::RenewUnknown);
    }
    match &facts.settings {
        None => {}
        Some(Ok(settings)) => renewal(facts, settings, findings),
        Some(Err(ConfigurationError::Denied { right, .. })) => {
            findings.add(Severity::Note, Cause::SettingsUnseen { problem: right.to_string().into() });
        }
        Some(Err(error)) => {
            findings.add(Severity::Note, Cause::SettingsUnseen { problem: told(error) });
        }
    }
}

fn renewal(facts: &Facts, settings: &GroupConfiguration, findings: &mut Findings) {
    if facts.expectation.renews_locks && facts.has_renewal && settings.renews_locks() == Some(false) {
        let lock = settings.record_lock_duration();
        findings.add(Severity::Warning, Cause::RenewDisabled { lock });
    }
}

#[cfg(test)]
mod tests;
