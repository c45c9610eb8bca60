//! Setting a group to other offsets: first planned, then done.

use std::collections::BTreeMap;

use kafka_wire::{
    AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse,
    alter_share_group_offsets_request as request,
};

use super::ShareGroupAdmin;
use super::calls::{Patience, Trouble, complained};
use super::error::{DescribeError, MissingRight, OffsetsError, Operation, ResetError};
use super::positions::{EARLIEST, LATEST, PositionError, Positions};
use crate::{Complaint, ErrorCode};

/// Where to set a group to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Position {
    /// The first record kept.
    Earliest,
    /// What is written from now on.
    Latest,
    /// The first record from that time on, in milliseconds since the Unix epoch; what is written from now on where no
    /// record is that young.
    Time(u64),
}

/// What to set a group to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ResetTarget {
    /// One position in all partitions of these topics; of all topics that the group has offsets in when there are none.
    Position {
        /// Where.
        position: Position,
        /// In which topics.
        topics: Vec<Box<str>>,
    },
    /// An offset for each partition.
    Offsets(BTreeMap<(Box<str>, i32), i64>),
}

/// What a reset would do.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ResetPlan {
    /// To which group.
    pub group: Box<str>,
    /// In the order of topics and partitions.
    pub moves: Vec<Move>,
    /// Who is in the group now. Brokers refuse as long as there is anybody.
    pub members: Vec<Box<str>>,
}

/// One partition's part of it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Move {
    /// Which topic.
    pub topic: Box<str>,
    /// Which partition.
    pub partition: i32,
    /// Where the group stands now; `None` where it has never fetched.
    pub from: Option<i64>,
    /// Where it will stand.
    pub to: i64,
}

impl ShareGroupAdmin {
    /// What a reset would do; changes nothing. Takes the right Describe to the group and the topics.
    ///
    /// # Errors
    /// When offsets are not to be had, or there is nothing to set.
    pub async fn plan_reset(&mut self, group: &str, target: &ResetTarget) -> Result<ResetPlan, ResetError> {
        let mut patience = self.patience();
        let known = match self.offsets_within(group, None, &mut patience).await {
            Ok(known) => known,
            // A group that is not there yet can be told where to begin.
            Err(OffsetsError::NotFound { .. }) => Vec::new(),
            Err(error) => return Err(error.into()),
        };
        let is_at = known.iter().flat_map(|topic| {
            topic.partitions.iter().map(|of| ((topic.topic.clone(), of.partition), of.start))
        });
        let is_at: BTreeMap<_, _> = is_at.collect();
        let to: BTreeMap<(Box<str>, i32), i64> = match target {
            ResetTarget::Offsets(offsets) => {
                self.check_offsets(group, offsets, &mut patience).await?;
                offsets.clone()
            }
            ResetTarget::Position { position, topics } => {
                let topics = match &topics[..] {
                    [] => known.iter().map(|topic| topic.topic.clone()).collect(),
                    topics => topics.to_vec(),
                };
                if topics.is_empty() {
                    return Err(ResetError::NoTopics { group: group.into() });
                }
                let found = self.locate(&topics, *position, &mut patience).await;
                found.map_err(|error| failure(group, error))?
            }
        };
        let moves = to.into_iter().map(|((topic, partition), to)| {
            let from = is_at.get(&(topic.clone(), partition)).copied().flatten();
            Move { topic, partition, from, to }
        });
        let moves = moves.collect();
        let members = match self.describe_within(group, &mut patience).await {
            Ok(description) => description.members.iter().map(super::MemberDescription::name).collect(),
            Err(DescribeError::NotFound { .. } | DescribeError::TopicsDenied { .. }) => Vec::new(),
            Err(error) => return Err(error.into()),
        };
        Ok(ResetPlan { group: group.into(), moves, members })
    }

    /// Does what was planned. Takes the right Read to the group and the topics.
    ///
    /// # Errors
    /// When the broker refuses; somebody may have come into the group meanwhile. Partitions that came before the one that
    /// is complained about may have been set.
    pub async fn reset(&mut self, plan: &ResetPlan) -> Result<(), ResetError> {
        let mut patience = self.patience();
        let group = &*plan.group;
        let mut by_topic: BTreeMap<&str, Vec<(i32, i64)>> = BTreeMap::new();
        for one in &plan.moves {
            by_topic.entry(&one.topic).or_default().push((one.partition, one.to));
        }
        let mut request = AlterShareGroupOffsetsRequest::default();
        request.group_id = group.into();
        request.topics = by_topic
            .iter()
            .map(|(name, partitions)| {
                let mut topic = request::AlterShareGroupOffsetsRequestTopic::default();
                topic.topic_name = (*name).into();
                topic.partitions = partitions
                    .iter()
                    .map(|(number, to)| {
                        let mut partition = request::AlterShareGroupOffsetsRequestPartition::default();
                        (partition.partition_index, partition.start_offset) = (*number, *to);
                        partition
                    })
                    .collect();
                topic
            })
            .collect();
        let refused = match self.ask_coordinator(group, &request, &mut patience, |answer| read(&answer)).await
        {
            Ok(refused) => refused,
            Err(Trouble::Said { complaint, .. }) if complaint.code == ErrorCode::NON_EMPTY_GROUP => {
                let members = self.member_names(group, &mut patience).await;
                return Err(ResetError::NotEmpty { group: group.into(), members });
            }
            Err(trouble) => {
                return Err(ResetError::common(group, trouble).unwrap_or_else(|(complaint, _)| {
                    ResetError::Refused { group: group.into(), complaint }
                }));
            }
        };
        let Some((topic, number, complaint)) = refused else { return Ok(()) };
        let group = group.into();
        Err(match complaint.code {
            ErrorCode::TOPIC_AUTHORIZATION_FAILED => {
                ResetError::Denied { group, right: MissingRight::on_topic(Operation::Read, &topic) }
            }
            _ => ResetError::Place {
                group,
                place: format!("`{topic}:{number}`").into(),
                problem: complaint.to_string().into(),
                is_usage: false,
            },
        })
    }

    /// Where a position is in each partition.
    async fn locate(
        &mut self,
        topics: &[Box<str>],
        position: Position,
        patience: &mut Patience,
    ) -> Result<BTreeMap<(Box<str>, i32), i64>, PositionError> {
        let partitions = self.partitions(topics, patience).await?;
        let time = match position {
            Position::Earliest => EARLIEST,
            Position::Latest => LATEST,
            Position::Time(millis) => i64::try_from(millis).unwrap_or(i64::MAX),
        };
        let found = self.positions(&partitions, time, patience).await?;
        let ends = if found.values().any(Option::is_none) {
            self.positions(&partitions, LATEST, patience).await?
        } else {
            Positions::new()
        };
        let offsets = found.into_iter().map(|(place, at)| {
            let at = at.or_else(|| ends.get(&place).copied().flatten()).unwrap_or_default();
            (place, at)
        });
        Ok(offsets.collect())
    }

    /// Offsets that do not exist: a broker would move them to the nearest end without a word.
    async fn check_offsets(
        &mut self,
        group: &str,
        offsets: &BTreeMap<(Box<str>, i32), i64>,
        patience: &mut Patience,
    ) -> Result<(), ResetError> {
        let mut wanted: BTreeMap<Box<str>, Vec<i32>> = BTreeMap::new();
        for (topic, number) in offsets.keys() {
            wanted.entry(topic.clone()).or_default().push(*number);
        }
        let topics: Vec<_> = wanted.keys().cloned().collect();
        let wrong = |error| failure(group, error);
        // Says which of topics and partitions are not there.
        self.partitions(&topics, patience).await.map_err(wrong)?;
        let wanted: Vec<_> = wanted.into_iter().collect();
        let starts = self.positions(&wanted, EARLIEST, patience).await.map_err(wrong)?;
        let ends = self.positions(&wanted, LATEST, patience).await.map_err(wrong)?;
        for (place, to) in offsets {
            let end = |of: &Positions| of.get(place).copied().flatten().unwrap_or_default();
            let (start, end) = (end(&starts), end(&ends));
            if *to < start || *to > end {
                return Err(ResetError::Place {
                    group: group.into(),
                    place: format!("`{}:{}`", place.0, place.1).into(),
                    problem: format!("{to} is not between {start}, its first offset, and {end}, its next")
                        .into(),
                    is_usage: true,
                });
            }
        }
        Ok(())
    }
}

/// The first complaint about a partition.
fn read(answer: &AlterShareGroupOffsetsResponse) -> Result<Option<(Box<str>, i32, Complaint)>, Complaint> {
    if let Some(complaint) = complained(answer.error_code, answer.error_message.as_deref()) {
        return Err(complaint);
    }
    let refused = answer.responses.iter().find_map(|topic| {
        topic.partitions.iter().find_map(|of| {
            let complaint = complained(of.error_code, of.error_message.as_deref())?;
            Some((Box::from(topic.topic_name.as_str()), of.partition_index, complaint))
        })
    });
    Ok(refused)
}

fn failure(group: &str, error: PositionError) -> ResetError {
    let group = group.into();
    match error {
        PositionError::Reach(reason) => ResetError::Reach { group, reason },
        PositionError::Denied(right) => ResetError::Denied { group, right },
        PositionError::Place { place, problem, is_usage } => {
            ResetError::Place { group, place, problem, is_usage }
        }
    }
}

/// A plan begins with what the group has.
impl From<OffsetsError> for ResetError {
    fn from(error: OffsetsError) -> Self {
        match error {
            OffsetsError::Reach { group, reason } => Self::Reach { group, reason },
            OffsetsError::Denied { group, right } => Self::Denied { group, right },
            OffsetsError::NotFound { group, complaint } | OffsetsError::Refused { group, complaint } => {
                Self::Refused { group, complaint }
            }
        }
    }
}

/// A plan ends with who is in the group.
impl From<DescribeError> for ResetError {
    fn from(error: DescribeError) -> Self {
        match error {
            DescribeError::Reach { group, reason } => Self::Reach { group, reason },
            DescribeError::Denied { group, right } => Self::Denied { group, right },
            DescribeError::NotFound { group, complaint } | DescribeError::Refused { group, complaint } => {
                Self::Refused { group, complaint }
            }
            DescribeError::TopicsDenied { group } => {
                Self::Denied { group, right: MissingRight::on_topic(Operation::Describe, "NAME") }
            }
        }
    }
}
