//! Where groups stand, to be seen and to be changed.

use kafka_wire::{
    AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse, DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse, DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsResponse,
    alter_share_group_offsets_response, delete_share_group_offsets_response,
    describe_share_group_offsets_request, describe_share_group_offsets_response,
};
use kafka_wire_core::{StrBytes, Uuid};

use super::{Cluster, Share, ordered};
use crate::error_code::{
    GROUP_AUTHORIZATION_FAILED, GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP, NONE, NOT_COORDINATOR,
    UNKNOWN_TOPIC_OR_PARTITION,
};
use crate::share::SharePartition;
use crate::wire::message;

/// What is said of a partition the group never fetched, and of a lag nobody knows.
const UNKNOWN: i64 = -1;

impl Cluster {
    pub(super) fn describe_offsets(
        &mut self,
        node: i32,
        body: &DescribeShareGroupOffsetsRequest,
        version: i16,
    ) -> DescribeShareGroupOffsetsResponse {
        let groups =
            body.groups.iter().map(|group| self.describe_group_offsets(node, group, version)).collect();
        message!(DescribeShareGroupOffsetsResponse { groups: groups })
    }

    fn describe_group_offsets(
        &mut self,
        node: i32,
        asked: &describe_share_group_offsets_request::DescribeShareGroupOffsetsRequestGroup,
        version: i16,
    ) -> describe_share_group_offsets_response::DescribeShareGroupOffsetsResponseGroup {
        let group = asked.group_id.as_str();
        let error_code = self.refuse_admin(node, group);
        let mut wanted: Vec<(String, Vec<i32>)> = Vec::new();
        match &asked.topics {
            _ if error_code != NONE => {}
            Some(topics) => {
                wanted = topics
                    .iter()
                    .map(|topic| (topic.topic_name.to_string(), topic.partitions.clone()))
                    .collect();
            }
            None => {
                for (_, topic, number) in self.shares.keys().filter(|(of, ..)| of == group) {
                    let Some((name, _)) = self.topic(Uuid::from_bytes(*topic)) else { continue };
                    match wanted.iter_mut().find(|(known, _)| known == name) {
                        Some((_, numbers)) => numbers.push(*number),
                        None => wanted.push((name.clone(), vec![*number])),
                    }
                }
            }
        }
        let topics =
            wanted.iter().map(|(name, numbers)| self.describe_topic_offsets(group, name, numbers, version));
        message!(describe_share_group_offsets_response::DescribeShareGroupOffsetsResponseGroup {
            group_id: asked.group_id.clone(),
            topics: topics.collect(),
            error_code: error_code,
        })
    }

    fn describe_topic_offsets(
        &self,
        group: &str,
        name: &str,
        numbers: &[i32],
        version: i16,
    ) -> describe_share_group_offsets_response::DescribeShareGroupOffsetsResponseTopic {
        let topic = self.topics.get(name);
        let topic_id = topic.map_or(Uuid::ZERO, |topic| topic.id);
        let partitions = numbers.iter().map(|number| {
            let partition = topic.and_then(|topic| topic.partition(*number));
            let share = self.shares.get(&ordered(&(group.to_owned(), topic_id, *number)));
            let mut data =
                message!(describe_share_group_offsets_response::DescribeShareGroupOffsetsResponsePartition {
                    partition_index: *number,
                    start_offset: share.map_or(UNKNOWN, |share| share.partition.stored()),
                    leader_epoch: partition.map_or(0, |partition| partition.leader_epoch),
                });
            if version >= 1 {
                data.lag = match (partition, share) {
                    (Some(partition), Some(share)) => {
                        partition.log.end() - share.partition.start() - share.partition.done_in_window()
                    }
                    _ => UNKNOWN,
                };
            }
            data
        });
        message!(describe_share_group_offsets_response::DescribeShareGroupOffsetsResponseTopic {
            topic_name: StrBytes::from(name),
            topic_id: topic_id,
            partitions: partitions.collect(),
        })
    }

    /// Why an administrator's call is refused.
    fn refuse_admin(&mut self, node: i32, group: &str) -> i16 {
        if self.denied_groups.contains(group) {
            GROUP_AUTHORIZATION_FAILED
        } else if self.coordinator(group) != node {
            NOT_COORDINATOR
        } else if !self.groups.contains_key(group) {
            GROUP_ID_NOT_FOUND
        } else {
            NONE
        }
    }

    pub(super) fn refuse_change(&mut self, node: i32, group: &str) -> i16 {
        match self.refuse_admin(node, group) {
            NONE if !self.members(group).is_empty() => NON_EMPTY_GROUP,
            code => code,
        }
    }

    pub(super) fn alter_offsets(
        &mut self,
        node: i32,
        body: &AlterShareGroupOffsetsRequest,
    ) -> AlterShareGroupOffsetsResponse {
        // A group that is not there yet is made: it can be told where to begin.
        let error_code = match self.refuse_change(node, &body.group_id) {
            GROUP_ID_NOT_FOUND => {
                self.group_or_new(&body.group_id);
                NONE
            }
            code => code,
        };
        let mut response = message!(AlterShareGroupOffsetsResponse { error_code: error_code });
        for asked in body.topics.iter().filter(|_| error_code == NONE) {
            let topic_id = self.topic_id(&asked.topic_name).unwrap_or(Uuid::ZERO);
            let mut partitions = Vec::new();
            for wanted in &asked.partitions {
                let number = wanted.partition_index;
                let log =
                    self.topics.get(asked.topic_name.as_str()).and_then(|topic| topic.partition(number));
                let code = match log.map(|partition| (partition.log.start(), partition.log.end())) {
                    None => UNKNOWN_TOPIC_OR_PARTITION,
                    Some((start, end)) => {
                        let offset = wanted.start_offset.clamp(start, end);
                        let share = Share { partition: SharePartition::starting_at(offset), node: None };
                        self.shares.insert(ordered(&(body.group_id.to_string(), topic_id, number)), share);
                        NONE
                    }
                };
                partitions.push(message!(
                    alter_share_group_offsets_response::AlterShareGroupOffsetsResponsePartition {
                        partition_index: number,
                        error_code: code,
                    }
                ));
            }
            response.responses.push(message!(
                alter_share_group_offsets_response::AlterShareGroupOffsetsResponseTopic {
                    topic_name: asked.topic_name.clone(),
                    topic_id: topic_id,
                    partitions: partitions,
                }
            ));
        }
        response
    }

    pub(super) fn delete_offsets(
        &mut self,
        node: i32,
        body: &DeleteShareGroupOffsetsRequest,
    ) -> DeleteShareGroupOffsetsResponse {
        let error_code = self.refuse_change(node, &body.group_id);
        let mut response = message!(DeleteShareGroupOffsetsResponse { error_code: error_code });
        for asked in body.topics.iter().filter(|_| error_code == NONE) {
            let id = self.topic_id(&asked.topic_name);
            if let Some(id) = id {
                let group = body.group_id.as_str();
                self.shares.retain(|(of, topic, _), _| of != group || topic != id.as_bytes());
                if let Some(group) = self.groups.get_mut(group) {
                    group.forget_topic(id);
                }
            }
            response.responses.push(message!(
                delete_share_group_offsets_response::DeleteShareGroupOffsetsResponseTopic {
                    topic_name: asked.topic_name.clone(),
                    topic_id: id.unwrap_or(Uuid::ZERO),
                    error_code: if id.is_some() { NONE } else { UNKNOWN_TOPIC_OR_PARTITION },
                }
            ));
        }
        response
    }
}
