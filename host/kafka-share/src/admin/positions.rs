//! The offsets of partitions: the first, the next, or by time.

use std::collections::BTreeMap;

use kafka_wire::{ListOffsetsRequest, list_offsets_request as request};

use super::ShareGroupAdmin;
use super::calls::Patience;
use super::error::{MissingRight, Operation, ReachError};
use crate::{BrokerId, ErrorCode};

/// A client, not a replica.
const NO_REPLICA: i32 = -1;
/// No leader's epoch is insisted on.
const ANY_EPOCH: i32 = -1;

/// What stands for a time in requests.
pub(super) const LATEST: i64 = -1;
pub(super) const EARLIEST: i64 = -2;

/// A partition's offset that was asked for; `None` when no record is that young.
pub(super) type Positions = BTreeMap<(Box<str>, i32), Option<i64>>;

/// Why an offset is not to be had.
#[derive(Debug)]
pub(super) enum PositionError {
    Reach(ReachError),
    Denied(MissingRight),
    /// There is no such topic or partition, or something that the broker complains about.
    Place {
        place: Box<str>,
        problem: Box<str>,
        is_usage: bool,
    },
}

impl From<ReachError> for PositionError {
    fn from(error: ReachError) -> Self {
        Self::Reach(error)
    }
}

impl ShareGroupAdmin {
    /// All partitions of topics.
    pub(super) async fn partitions(
        &mut self,
        topics: &[Box<str>],
        patience: &Patience,
    ) -> Result<Vec<(Box<str>, Vec<i32>)>, PositionError> {
        let cluster = self.cluster(topics.iter().map(|topic| &**topic), patience).await?;
        let partitions = topics.iter().map(|topic| match cluster.topics.get(topic) {
            Some(Ok(found)) => Ok((topic.clone(), found.leaders.keys().copied().collect())),
            Some(Err(complaint)) if complaint.code == ErrorCode::TOPIC_AUTHORIZATION_FAILED => {
                Err(PositionError::Denied(MissingRight::on_topic(Operation::Describe, topic)))
            }
            Some(Err(complaint)) if complaint.code == ErrorCode::UNKNOWN_TOPIC_OR_PARTITION => {
                Err(PositionError::absent(topic))
            }
            Some(Err(complaint)) => Err(PositionError::Place {
                place: format!("topic `{topic}`").into(),
                problem: complaint.to_string().into(),
                is_usage: false,
            }),
            None => Err(PositionError::absent(topic)),
        });
        partitions.collect()
    }

    /// The offset of each partition at `time`, or what stands for a time. Leaders that have moved are looked for again.
    pub(super) async fn positions(
        &mut self,
        wanted: &[(Box<str>, Vec<i32>)],
        time: i64,
        patience: &mut Patience,
    ) -> Result<Positions, PositionError> {
        let mut found = Positions::new();
        loop {
            let cluster = self.cluster(wanted.iter().map(|(topic, _)| &**topic), patience).await?;
            let mut by_leader: BTreeMap<BrokerId, BTreeMap<&str, Vec<i32>>> = BTreeMap::new();
            let mut obstacle = None;
            let open = wanted
                .iter()
                .flat_map(|(topic, numbers)| numbers.iter().map(move |number| (topic, *number)))
                .filter(|(topic, number)| !found.contains_key(&((*topic).clone(), *number)));
            for (topic, number) in open {
                let known = cluster.topics.get(topic).and_then(|known| known.as_ref().ok());
                match known.and_then(|known| known.leaders.get(&number)).copied() {
                    Some(Some(leader)) => {
                        by_leader.entry(leader).or_default().entry(topic).or_default().push(number);
                    }
                    Some(None) => obstacle = Some(format!("`{topic}:{number}` has no leader")),
                    None => return Err(PositionError::absent_partition(topic, number)),
                }
            }
            for (leader, topics) in by_leader {
                let Some(node) = cluster.node(leader) else {
                    obstacle = Some(format!("broker {leader} leads and is not there"));
                    continue;
                };
                match self.ask(node, &asking(&topics, time), patience).await {
                    Ok(answer) => {
                        for topic in &answer.topics {
                            for of in &topic.partitions {
                                let place = (Box::from(topic.name.as_str()), of.partition_index);
                                match ErrorCode(of.error_code) {
                                    ErrorCode::NONE => {
                                        found.insert(place, (of.offset >= 0).then_some(of.offset));
                                    }
                                    ErrorCode::TOPIC_AUTHORIZATION_FAILED => {
                                        let right = MissingRight::on_topic(Operation::Describe, &place.0);
                                        return Err(PositionError::Denied(right));
                                    }
                                    code if is_about_place(code) => {
                                        obstacle = Some(format!("`{}:{}`: {code}", place.0, place.1));
                                    }
                                    code => {
                                        return Err(PositionError::Place {
                                            place: format!("`{}:{}`", place.0, place.1).into(),
                                            problem: code.to_string().into(),
                                            is_usage: false,
                                        });
                                    }
                                }
                            }
                        }
                    }
                    Err(error) if error.is_retriable() => obstacle = Some(error.to_string()),
                    Err(error) => return Err(error.into()),
                }
            }
            let count: usize = wanted.iter().map(|(_, numbers)| numbers.len()).sum();
            if found.len() >= count {
                return Ok(found);
            }
            let obstacle = obstacle.unwrap_or_else(|| "an answer left partitions out".to_owned());
            patience.pause(obstacle).await?;
        }
    }
}

/// Whether another broker may know better.
const fn is_about_place(code: ErrorCode) -> bool {
    code.is_about_leader()
        || matches!(
            code,
            ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
                | ErrorCode::KAFKA_STORAGE_ERROR
                | ErrorCode::REQUEST_TIMED_OUT
        )
}

fn asking(topics: &BTreeMap<&str, Vec<i32>>, time: i64) -> ListOffsetsRequest {
    let mut asking = ListOffsetsRequest::default();
    asking.replica_id = NO_REPLICA;
    asking.topics = topics
        .iter()
        .map(|(name, numbers)| {
            let mut topic = request::ListOffsetsTopic::default();
            topic.name = (*name).into();
            topic.partitions = numbers
                .iter()
                .map(|number| {
                    let mut partition = request::ListOffsetsPartition::default();
                    partition.partition_index = *number;
                    partition.current_leader_epoch = ANY_EPOCH;
                    partition.timestamp = time;
                    partition
                })
                .collect();
            topic
        })
        .collect();
    asking
}

impl PositionError {
    fn absent(topic: &str) -> Self {
        Self::Place {
            place: format!("topic `{topic}`").into(),
            problem: "there is no such topic, or the client may not see it".into(),
            is_usage: true,
        }
    }

    pub(super) fn absent_partition(topic: &str, number: i32) -> Self {
        Self::Place {
            place: format!("`{topic}:{number}`").into(),
            problem: "there is no such partition".into(),
            is_usage: true,
        }
    }
}
