//! What faults do to answers.

use bytes::{Bytes, BytesMut};
use kafka_wire::{
    AlterShareGroupOffsetsResponse, ApiVersionsResponse, CreateTopicsResponse, DeleteGroupsResponse,
    DeleteShareGroupOffsetsResponse, DescribeConfigsResponse, DescribeShareGroupOffsetsResponse,
    FindCoordinatorResponse, IncrementalAlterConfigsResponse, ListGroupsResponse, ListOffsetsRequest,
    ListOffsetsResponse, MetadataResponse, SaslAuthenticateResponse, SaslHandshakeResponse,
    ShareFetchResponse, ShareGroupDescribeResponse, ShareGroupHeartbeatResponse, create_topics_response,
    delete_groups_response, describe_configs_response, describe_share_group_offsets_response,
    find_coordinator_response, incremental_alter_configs_response, list_offsets_response, metadata_response,
    share_fetch_response, share_group_describe_response,
};

use super::membership::millis;
use super::{acknowledge, fetch};
use crate::batch::{self, ATTRIBUTES_AT, Batch};
use crate::error_code::{LEADER_NOT_AVAILABLE, NONE};
use crate::faults::Effect;
use crate::wire::{RequestBody, ResponseBody, message};

/// A compression that no release has.
const UNKNOWN_CODEC: u8 = 7;

/// The byte of a batch that is flipped: within the records, if it has any.
const FLIPPED_AT: usize = batch::HEADER_BYTES;

/// An answer that carries a code and nothing else.
pub(super) fn refuse(body: &RequestBody, code: i16) -> ResponseBody {
    match body {
        RequestBody::Metadata(body) => {
            let topics = body.topics.iter().flatten().map(|topic| {
                message!(metadata_response::MetadataResponseTopic {
                    error_code: code,
                    name: topic.name.clone(),
                    topic_id: topic.topic_id,
                })
            });
            message!(MetadataResponse { topics: topics.collect() }).into()
        }
        RequestBody::FindCoordinator(body) => {
            let coordinators = body.coordinator_keys.iter().map(|key| {
                message!(find_coordinator_response::Coordinator {
                    key: key.clone(),
                    error_code: code,
                    node_id: -1
                })
            });
            // The old form, for one group, has the code at the top, and the new one has no place for it there.
            let at_top = if body.coordinator_keys.is_empty() { code } else { NONE };
            message!(FindCoordinatorResponse { error_code: at_top, coordinators: coordinators.collect() })
                .into()
        }
        RequestBody::SaslHandshake(_) => message!(SaslHandshakeResponse { error_code: code }).into(),
        RequestBody::ApiVersions(_) => message!(ApiVersionsResponse { error_code: code }).into(),
        RequestBody::CreateTopics(body) => {
            let topics = body.topics.iter().map(|topic| {
                message!(create_topics_response::CreatableTopicResult {
                    name: topic.name.clone(),
                    error_code: code
                })
            });
            message!(CreateTopicsResponse { topics: topics.collect() }).into()
        }
        RequestBody::ListOffsets(body) => refuse_positions(body, code).into(),
        RequestBody::ListGroups(_) => message!(ListGroupsResponse { error_code: code }).into(),
        RequestBody::DeleteGroups(body) => {
            let results = body.groups_names.iter().map(|id| {
                message!(delete_groups_response::DeletableGroupResult {
                    group_id: id.clone(),
                    error_code: code
                })
            });
            message!(DeleteGroupsResponse { results: results.collect() }).into()
        }
        RequestBody::DescribeConfigs(body) => {
            let results = body.resources.iter().map(|resource| {
                message!(describe_configs_response::DescribeConfigsResult {
                    error_code: code,
                    resource_type: resource.resource_type,
                    resource_name: resource.resource_name.clone(),
                })
            });
            message!(DescribeConfigsResponse { results: results.collect() }).into()
        }
        RequestBody::IncrementalAlterConfigs(body) => {
            let responses = body.resources.iter().map(|resource| {
                message!(incremental_alter_configs_response::AlterConfigsResourceResponse {
                    error_code: code,
                    resource_type: resource.resource_type,
                    resource_name: resource.resource_name.clone(),
                })
            });
            message!(IncrementalAlterConfigsResponse { responses: responses.collect() }).into()
        }
        RequestBody::SaslAuthenticate(_) => message!(SaslAuthenticateResponse { error_code: code }).into(),
        RequestBody::ShareGroupHeartbeat(_) => {
            message!(ShareGroupHeartbeatResponse { error_code: code }).into()
        }
        RequestBody::ShareGroupDescribe(body) => {
            let groups = body.group_ids.iter().map(|id| {
                message!(share_group_describe_response::DescribedGroup {
                    group_id: id.clone(),
                    error_code: code
                })
            });
            message!(ShareGroupDescribeResponse { groups: groups.collect() }).into()
        }
        RequestBody::ShareFetch(_) => fetch::refused(code).into(),
        RequestBody::ShareAcknowledge(_) => acknowledge::refused(code).into(),
        RequestBody::DescribeShareGroupOffsets(body) => {
            let groups = body.groups.iter().map(|group| {
                message!(describe_share_group_offsets_response::DescribeShareGroupOffsetsResponseGroup {
                    group_id: group.group_id.clone(),
                    error_code: code,
                })
            });
            message!(DescribeShareGroupOffsetsResponse { groups: groups.collect() }).into()
        }
        RequestBody::AlterShareGroupOffsets(_) => {
            message!(AlterShareGroupOffsetsResponse { error_code: code }).into()
        }
        RequestBody::DeleteShareGroupOffsets(_) => {
            message!(DeleteShareGroupOffsetsResponse { error_code: code }).into()
        }
    }
}

fn refuse_positions(body: &ListOffsetsRequest, code: i16) -> ListOffsetsResponse {
    let topics = body.topics.iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|partition| {
            message!(list_offsets_response::ListOffsetsPartitionResponse {
                partition_index: partition.partition_index,
                error_code: code,
                timestamp: -1,
                offset: -1,
            })
        });
        message!(list_offsets_response::ListOffsetsTopicResponse {
            name: topic.name.clone(),
            partitions: partitions.collect(),
        })
    });
    message!(ListOffsetsResponse { topics: topics.collect() })
}

/// Changes an answer that was made in earnest.
pub(super) fn spoil(body: &mut ResponseBody, effect: &Effect) {
    match (body, effect) {
        (body, Effect::Throttle(by)) => throttle(body, millis(*by)),
        (ResponseBody::ShareGroupHeartbeat(body), Effect::ErrorAfter(code)) => {
            *body = message!(ShareGroupHeartbeatResponse { error_code: *code });
        }
        (ResponseBody::ShareFetch(body), Effect::ErrorAfter(code)) => *body = fetch::refused(*code),
        (ResponseBody::ShareAcknowledge(body), Effect::ErrorAfter(code)) => {
            *body = acknowledge::refused(*code);
        }
        (ResponseBody::Metadata(body), Effect::NoLeader) => {
            for partition in body.topics.iter_mut().flat_map(|topic| &mut topic.partitions) {
                partition.leader_id = -1;
                partition.error_code = LEADER_NOT_AVAILABLE;
            }
        }
        (ResponseBody::ShareFetch(body), effect) => {
            for partition in partitions(body).filter(|partition| !partition.acquired_records.is_empty()) {
                spoil_records(partition, effect);
            }
        }
        _ => {}
    }
}

fn partitions(
    body: &mut ShareFetchResponse,
) -> impl Iterator<Item = &mut share_fetch_response::PartitionData> {
    body.responses.iter_mut().flat_map(|topic| &mut topic.partitions)
}

fn spoil_records(partition: &mut share_fetch_response::PartitionData, effect: &Effect) {
    let records = &mut partition.records;
    match effect {
        Effect::OverlappingRanges => {
            let again = partition.acquired_records.clone();
            let last = again.last().map_or(0, |range| range.last_offset);
            for mut range in again {
                range.last_offset = (range.last_offset + 1).min(last);
                partition.acquired_records.push(range);
            }
        }
        Effect::NoRecords => *records = Bytes::new(),
        Effect::EmptyBatch => {
            let first = partition.acquired_records.first().map_or(0, |range| range.first_offset);
            let mut bytes = Batch::empty(1).encode(first, 0);
            bytes.extend_from_slice(records);
            *records = bytes.freeze();
        }
        Effect::CorruptRecords => {
            *records = changed(records, |bytes| {
                if let Some(byte) = bytes.get_mut(FLIPPED_AT) {
                    *byte ^= 0x55;
                }
            });
        }
        Effect::UnknownCompression => {
            *records = changed(records, |bytes| {
                if let (Some((length, _)), Some(attributes)) =
                    (batch::measure(bytes), bytes.get_mut(ATTRIBUTES_AT + 1))
                {
                    *attributes |= UNKNOWN_CODEC;
                    batch::seal(&mut bytes[..length]);
                }
            });
        }
        Effect::CutTail(by) => *records = records.slice(..records.len().saturating_sub(*by)),
        _ => {}
    }
}

fn changed(records: &Bytes, change: impl FnOnce(&mut BytesMut)) -> Bytes {
    let mut bytes = BytesMut::from(&records[..]);
    change(&mut bytes);
    bytes.freeze()
}

fn throttle(body: &mut ResponseBody, by: i32) {
    match body {
        ResponseBody::Metadata(body) => body.throttle_time_ms = by,
        ResponseBody::FindCoordinator(body) => body.throttle_time_ms = by,
        ResponseBody::ApiVersions(body) => body.throttle_time_ms = by,
        ResponseBody::CreateTopics(body) => body.throttle_time_ms = by,
        ResponseBody::ListOffsets(body) => body.throttle_time_ms = by,
        ResponseBody::ListGroups(body) => body.throttle_time_ms = by,
        ResponseBody::DeleteGroups(body) => body.throttle_time_ms = by,
        ResponseBody::DescribeConfigs(body) => body.throttle_time_ms = by,
        ResponseBody::IncrementalAlterConfigs(body) => body.throttle_time_ms = by,
        ResponseBody::ShareGroupHeartbeat(body) => body.throttle_time_ms = by,
        ResponseBody::ShareGroupDescribe(body) => body.throttle_time_ms = by,
        ResponseBody::ShareFetch(body) => body.throttle_time_ms = by,
        ResponseBody::ShareAcknowledge(body) => body.throttle_time_ms = by,
        ResponseBody::DescribeShareGroupOffsets(body) => body.throttle_time_ms = by,
        ResponseBody::AlterShareGroupOffsets(body) => body.throttle_time_ms = by,
        ResponseBody::DeleteShareGroupOffsets(body) => body.throttle_time_ms = by,
        ResponseBody::SaslHandshake(_) | ResponseBody::SaslAuthenticate(_) => {}
    }
}
