//! Heartbeats and descriptions of groups.

use std::time::Duration;

use kafka_wire::{
    ShareGroupDescribeRequest, ShareGroupDescribeResponse, ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse, share_group_describe_response, share_group_heartbeat_response,
};
use kafka_wire_core::{StrBytes, Uuid};

use super::Cluster;
use crate::error_code::{
    GROUP_AUTHORIZATION_FAILED, GROUP_ID_NOT_FOUND, INVALID_REQUEST, NOT_COORDINATOR,
    TOPIC_AUTHORIZATION_FAILED,
};
use crate::group::{Assignment, Beat, Group, MEMBER_ID_MAX};
use crate::options::Access;
use crate::wire::message;

/// The bits of read, delete, describe, and describe and alter configurations, by the numbers of Kafka's operations: who may
/// do anything with a group here may do all.
const ALL_OF_A_GROUP: i32 = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11;

impl Cluster {
    pub(super) fn heartbeat(
        &mut self,
        now: Duration,
        node: i32,
        body: &ShareGroupHeartbeatRequest,
        client: Option<StrBytes>,
    ) -> ShareGroupHeartbeatResponse {
        if let Some((code, text)) = self.refuse_heartbeat(node, body) {
            return refused(code, text.as_deref());
        }
        let topics = body.subscribed_topic_names.as_ref();
        let beat = Beat {
            member: &body.member_id,
            epoch: body.member_epoch,
            rack: body.rack_id.clone(),
            client,
            topics: topics.map(|names| names.iter().map(ToString::to_string).collect()),
        };
        let options = self.group_options(&body.group_id).clone();
        let (bounds, known) = (self.bounds(), self.known());
        let existed = self.groups.contains_key(body.group_id.as_str());
        let told = self.group_or_new(&body.group_id).heartbeat(beat, now, &options, bounds, &known);
        match told {
            Ok(told) => message!(ShareGroupHeartbeatResponse {
                member_id: Some(body.member_id.clone()),
                member_epoch: told.epoch,
                heartbeat_interval_ms: millis(options.heartbeat_interval),
                assignment: told.assignment.as_ref().map(assignment),
            }),
            Err((code, text)) => {
                if !existed {
                    self.groups.remove(body.group_id.as_str());
                }
                refused(code, text)
            }
        }
    }

    fn refuse_heartbeat(
        &mut self,
        node: i32,
        body: &ShareGroupHeartbeatRequest,
    ) -> Option<(i16, Option<String>)> {
        let names = body.subscribed_topic_names.iter().flatten();
        if body.group_id.is_empty()
            || body.member_id.is_empty()
            || body.member_id.len() > MEMBER_ID_MAX
            || body.member_epoch < -1
            || body.rack_id.as_ref().is_some_and(|rack| rack.is_empty())
        {
            return Some((INVALID_REQUEST, None));
        }
        if self.denied_groups.contains(body.group_id.as_str()) {
            return Some((GROUP_AUTHORIZATION_FAILED, None));
        }
        if self.coordinator(&body.group_id) != node {
            return Some((NOT_COORDINATOR, None));
        }
        // Only the topics that the request names are looked at: a member that says nothing of them goes on.
        if names.into_iter().any(|name| self.access_to(name) < Access::Describe) {
            return Some((TOPIC_AUTHORIZATION_FAILED, None));
        }
        if body.member_epoch != 0 && !self.groups.contains_key(body.group_id.as_str()) {
            return Some((GROUP_ID_NOT_FOUND, Some(format!("Share group {} not found.", body.group_id))));
        }
        None
    }

    pub(super) fn describe(
        &mut self,
        now: Duration,
        node: i32,
        body: &ShareGroupDescribeRequest,
    ) -> ShareGroupDescribeResponse {
        let describe = |id| {
            let mut group = self.describe_group(now, node, id);
            if body.include_authorized_operations && group.error_code == 0 {
                group.authorized_operations = ALL_OF_A_GROUP;
            }
            group
        };
        let groups = body.group_ids.iter().map(describe).collect();
        message!(ShareGroupDescribeResponse { groups: groups })
    }

    fn describe_group(
        &mut self,
        now: Duration,
        node: i32,
        id: &StrBytes,
    ) -> share_group_describe_response::DescribedGroup {
        let (options, bounds, known) = (self.group_options(id).clone(), self.bounds(), self.known());
        let refused = |code, state: &str| {
            message!(share_group_describe_response::DescribedGroup {
                error_code: code,
                group_id: id.clone(),
                group_state: StrBytes::from(state),
            })
        };
        if self.denied_groups.contains(id.as_str()) {
            return refused(GROUP_AUTHORIZATION_FAILED, "");
        }
        if self.coordinator(id) != node {
            return refused(NOT_COORDINATOR, "");
        }
        let Some(group) = self.groups.get_mut(id.as_str()) else {
            return refused(GROUP_ID_NOT_FOUND, "Dead");
        };
        group.advance(now, &options, bounds, &known);
        let Some(group) = self.groups.get(id.as_str()) else { return refused(GROUP_ID_NOT_FOUND, "Dead") };
        message!(share_group_describe_response::DescribedGroup {
            group_id: id.clone(),
            group_state: StrBytes::from(group.state()),
            group_epoch: group.epoch,
            assignment_epoch: group.assignment_epoch,
            assignor_name: StrBytes::from("simple"),
            members: self.describe_members(group),
        })
    }

    fn describe_members(&self, group: &Group) -> Vec<share_group_describe_response::Member> {
        let member = |(id, member): (&String, &crate::group::Member)| {
            let topic_partitions = member.assignment.iter().map(|(topic, partitions)| {
                let topic_id = Uuid::from_bytes(*topic);
                let name = self.topic(topic_id).map_or("", |(name, _)| name);
                message!(share_group_describe_response::TopicPartitions {
                    topic_id: topic_id,
                    topic_name: StrBytes::from(name),
                    partitions: partitions.clone(),
                })
            });
            message!(share_group_describe_response::Member {
                member_id: StrBytes::from(id.as_str()),
                rack_id: member.rack.clone(),
                member_epoch: member.epoch,
                client_id: member.client.clone().unwrap_or_default(),
                client_host: StrBytes::from("/127.0.0.1"),
                subscribed_topic_names: member
                    .topics
                    .iter()
                    .map(|name| StrBytes::from(name.as_str()))
                    .collect(),
                assignment: message!(share_group_describe_response::Assignment {
                    topic_partitions: topic_partitions.collect(),
                }),
            })
        };
        group.members.iter().map(member).collect()
    }
}

fn refused(code: i16, text: Option<&str>) -> ShareGroupHeartbeatResponse {
    message!(ShareGroupHeartbeatResponse { error_code: code, error_message: text.map(StrBytes::from) })
}

fn assignment(assignment: &Assignment) -> share_group_heartbeat_response::Assignment {
    let topic_partitions = assignment.iter().map(|(topic, partitions)| {
        message!(share_group_heartbeat_response::TopicPartitions {
            topic_id: Uuid::from_bytes(*topic),
            partitions: partitions.clone(),
        })
    });
    message!(share_group_heartbeat_response::Assignment { topic_partitions: topic_partitions.collect() })
}

/// Whole milliseconds, as the protocol writes them.
pub(super) fn millis(duration: Duration) -> i32 {
    i32::try_from(duration.as_millis()).unwrap_or(i32::MAX)
}
