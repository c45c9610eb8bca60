//! What is known of a group, its cluster and its topics: everything is asked for, and nothing is insisted on.

use std::collections::BTreeMap;

use kafka_wire::ShareGroupHeartbeatRequest;

use super::Expectation;
use crate::admin::calls::{Patience, Trouble, complained};
use crate::admin::configuration::GroupConfiguration;
use crate::admin::description::GroupDescription;
use crate::admin::error::{ConfigurationError, DescribeError, MissingRight, Operation, ReachError};
use crate::admin::positions::{EARLIEST, LATEST};
use crate::admin::topics::Topic;
use crate::admin::{ShareGroupAdmin, TopicOffsets};
use crate::{Complaint, ErrorCode, Fault, OpenProblem};

/// Kafka's topics for groups' places and for share groups' state.
const OFFSETS_TOPIC: &str = "__consumer_offsets";
const STATE_TOPIC: &str = "__share_group_state";

const OFFSETS_FACTOR: &str = "offsets.topic.replication.factor";
const STATE_FACTOR: &str = "share.coordinator.state.topic.replication.factor";
const SIZE_MAX: &str = "group.share.max.size";

/// A member id that nobody has: to leave under it changes nothing, and shows whether one could join.
const NOBODY: &str = "tidegate-diagnosis";
const LEAVE: i32 = -1;

/// What is known.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) expectation: Expectation,
    /// Why nothing else is known.
    pub(super) unreachable: Option<Unreachable>,
    /// The level of `share.version`.
    pub(super) share_version: Option<i16>,
    /// Whether the brokers know how to renew locks.
    pub(super) has_renewal: bool,
    pub(super) brokers: usize,
    pub(super) offsets_topic: Backing,
    pub(super) state_topic: Backing,
    /// The most members, if the broker tells.
    pub(super) size_max: Option<i64>,
    pub(super) membership: Membership,
    pub(super) description: Option<Result<GroupDescription, DescribeError>>,
    pub(super) settings: Option<Result<GroupConfiguration, ConfigurationError>>,
    /// Where the group stands; `None` when that is not known.
    pub(super) offsets: Option<Vec<TopicOffsets>>,
    pub(super) topics: BTreeMap<Box<str>, TopicFacts>,
}

#[derive(Debug)]
pub(super) struct Unreachable {
    pub(super) problem: Box<str>,
    pub(super) is_too_old: bool,
}

/// A topic of the cluster's own.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Backing {
    /// Whether it was made already.
    pub(super) exists: bool,
    /// The replicas that it is made with, if the broker tells.
    pub(super) replicas: Option<i64>,
}

/// Whether one could be a member.
#[derive(Debug)]
pub(super) enum Membership {
    /// As far as is known.
    Possible,
    /// A right is missing.
    Denied(MissingRight),
    /// The cluster has share groups switched off.
    SwitchedOff,
    /// The coordinator does not answer, or complains.
    Refused(Box<str>),
}

#[derive(Debug)]
pub(super) struct TopicFacts {
    /// What metadata says; `None` when it says nothing.
    pub(super) found: Option<Result<Topic, Complaint>>,
    /// First and next offset by partition, as far as they are known.
    pub(super) ends: BTreeMap<i32, (i64, i64)>,
}

impl Facts {
    pub(super) fn nothing(expectation: Expectation) -> Self {
        Self {
            expectation,
            unreachable: None,
            share_version: None,
            has_renewal: true,
            brokers: 0,
            offsets_topic: Backing::default(),
            state_topic: Backing::default(),
            size_max: None,
            membership: Membership::Possible,
            description: None,
            settings: None,
            offsets: None,
            topics: BTreeMap::new(),
        }
    }
}

impl ShareGroupAdmin {
    /// Asks for all of it. Each question has the time of an operation, and what one does not bring the others may.
    pub(super) async fn facts(&mut self, group: &str, expectation: &Expectation) -> Facts {
        let mut facts = Facts::nothing(expectation.clone());
        if let Err(error) = self.ask_cluster(&mut facts).await {
            facts.unreachable = Some(Unreachable::of(&error));
            return facts;
        }
        // Without a topic of its own no group has a coordinator, and to wait for one takes all the time there is.
        if facts.offsets_topic.is_impossible(facts.brokers) {
            return facts;
        }
        facts.membership = self.membership(group).await;
        if matches!(facts.membership, Membership::SwitchedOff) {
            return facts;
        }
        facts.settings = Some(self.configuration(group).await);
        if !matches!(facts.membership, Membership::Refused(_)) {
            facts.description = Some(self.describe(group).await);
            facts.offsets = self.offsets(group).await.ok();
        }
        let topics = facts.topics_meant();
        if let Err(error) = self.ask_topics(&topics, &mut facts).await {
            facts.unreachable = Some(Unreachable::of(&error));
        }
        facts
    }

    async fn ask_cluster(&mut self, facts: &mut Facts) -> Result<(), ReachError> {
        let patience = self.patience();
        let versions = self.versions(&patience).await?;
        facts.share_version = versions.feature("share.version");
        facts.has_renewal = versions.has_renewal();
        let cluster = self.cluster([OFFSETS_TOPIC, STATE_TOPIC], &patience).await?;
        facts.brokers = cluster.nodes.len();
        // Who may not see them is told that they are there no more than that they are not.
        let exists = |name: &str| {
            let complaint = cluster.topics.get(name).and_then(|found| found.as_ref().err());
            complaint.is_none_or(|complaint| complaint.code != ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)
        };
        (facts.offsets_topic.exists, facts.state_topic.exists) = (exists(OFFSETS_TOPIC), exists(STATE_TOPIC));
        if let Some(node) = cluster.nodes.first() {
            let names = [OFFSETS_FACTOR, STATE_FACTOR, SIZE_MAX];
            let [offsets, state, size] = self.broker_numbers(node, names, &patience).await;
            (facts.offsets_topic.replicas, facts.state_topic.replicas) = (offsets, state);
            facts.size_max = size;
        }
        Ok(())
    }

    /// Whether one could be a member: asked by taking leave of a group that one is not in.
    async fn membership(&mut self, group: &str) -> Membership {
        let mut patience = self.patience();
        let mut request = ShareGroupHeartbeatRequest::default();
        request.group_id = group.into();
        request.member_id = NOBODY.into();
        request.member_epoch = LEAVE;
        let left = self
            .ask_coordinator(group, &request, &mut patience, |answer| {
                match complained(answer.error_code, answer.error_message.as_deref()) {
                    Some(complaint) => Err(complaint),
                    None => Ok(()),
                }
            })
            .await;
        match left {
            Ok(()) => Membership::Possible,
            Err(Trouble::Denied(right)) => Membership::Denied(right),
            Err(Trouble::Reach(error)) => Membership::Refused(
                format!("the coordinator of share group `{group}` cannot be asked: {error}").into(),
            ),
            Err(Trouble::Said { complaint, .. }) => match complaint.code {
                ErrorCode::UNKNOWN_MEMBER_ID => Membership::Possible,
                ErrorCode::GROUP_ID_NOT_FOUND if is_of_another_type(&complaint) => Membership::Refused(
                    format!("`{group}` cannot be a share group: {complaint}; choose another id").into(),
                ),
                ErrorCode::GROUP_ID_NOT_FOUND => Membership::Possible,
                ErrorCode::UNSUPPORTED_VERSION => Membership::SwitchedOff,
                ErrorCode::GROUP_AUTHORIZATION_FAILED => {
                    Membership::Denied(MissingRight::on_group(Operation::Read, group))
                }
                _ => Membership::Refused(
                    format!("the coordinator of share group `{group}` refuses members: {complaint}").into(),
                ),
            },
        }
    }

    async fn ask_topics(&mut self, topics: &[Box<str>], facts: &mut Facts) -> Result<(), ReachError> {
        let mut patience = self.patience();
        let cluster = self.cluster(topics.iter().map(|topic| &**topic), &patience).await?;
        for topic in topics {
            let found = cluster.topics.get(topic).cloned();
            let led: Vec<i32> = match &found {
                Some(Ok(found)) => {
                    let led = found.leaders.iter().filter(|(_, leader)| leader.is_some());
                    led.map(|(number, _)| *number).collect()
                }
                _ => Vec::new(),
            };
            let ends = self.ends(topic, led, &mut patience).await;
            facts.topics.insert(topic.clone(), TopicFacts { found, ends });
        }
        Ok(())
    }

    /// First and next offset of partitions; nothing when they are not to be had.
    async fn ends(
        &mut self,
        topic: &str,
        partitions: Vec<i32>,
        patience: &mut Patience,
    ) -> BTreeMap<i32, (i64, i64)> {
        let wanted = [(Box::from(topic), partitions)];
        let Ok(starts) = self.positions(&wanted, EARLIEST, patience).await else { return BTreeMap::new() };
        let Ok(ends) = self.positions(&wanted, LATEST, patience).await else { return BTreeMap::new() };
        let both = starts.into_iter().filter_map(|(place, start)| {
            let end = ends.get(&place).copied().flatten()?;
            Some((place.1, (start?, end)))
        });
        both.collect()
    }
}

/// The broker's words are all that tells a group of another type from one that is not there.
fn is_of_another_type(complaint: &Complaint) -> bool {
    complaint.message.as_deref().is_some_and(|message| message.contains("is not a share group"))
}

impl Backing {
    /// Whether it is not there and cannot be made.
    pub(super) fn is_impossible(self, brokers: usize) -> bool {
        let brokers = i64::try_from(brokers).unwrap_or(i64::MAX);
        !self.exists && self.replicas.is_some_and(|replicas| replicas > brokers)
    }
}

impl Unreachable {
    fn of(error: &ReachError) -> Self {
        let is_version = |problem: &OpenProblem| matches!(problem, OpenProblem::Version(_));
        let is_too_old = match error {
            ReachError::Bootstrap(error) => {
                error.failures().iter().any(|failure| is_version(failure.problem()))
            }
            ReachError::Open(error) => is_version(error.problem()),
            ReachError::Call(error) => error.fault() == Fault::Configuration,
            ReachError::Nowhere { .. } | ReachError::Late { .. } => false,
        };
        Self { problem: error.to_string().into(), is_too_old }
    }
}

impl Facts {
    /// The topics that were named; or those that members want, and those that the group stands in.
    fn topics_meant(&self) -> Vec<Box<str>> {
        if !self.expectation.topics.is_empty() {
            return self.expectation.topics.clone();
        }
        let wanted = self.description.iter().flatten().flat_map(GroupDescription::topics);
        let stood = self.offsets.iter().flatten().map(|topic| topic.topic.clone());
        let mut topics: Vec<_> = wanted.chain(stood).collect();
        topics.sort();
        topics.dedup();
        topics
    }
}
