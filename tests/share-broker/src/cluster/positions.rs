//! The offsets of partitions: the first, the next, or by time.

use kafka_wire::{ListOffsetsRequest, ListOffsetsResponse, list_offsets_request, list_offsets_response};

use super::Cluster;
use crate::error_code::{
    INVALID_REQUEST, NONE, NOT_LEADER_OR_FOLLOWER, TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION,
};
use crate::options::Access;
use crate::wire::message;

/// What stands for a time: the next offset to be written, and the first one kept.
const LATEST: i64 = -1;
const EARLIEST: i64 = -2;

/// There is none.
const UNKNOWN: i64 = -1;

impl Cluster {
    pub(super) fn list_offsets(&self, node: i32, body: &ListOffsetsRequest) -> ListOffsetsResponse {
        let topics = body.topics.iter().map(|topic| {
            let partitions = topic.partitions.iter();
            message!(list_offsets_response::ListOffsetsTopicResponse {
                name: topic.name.clone(),
                partitions: partitions.map(|asked| self.list_offset(node, &topic.name, asked)).collect(),
            })
        });
        message!(ListOffsetsResponse { topics: topics.collect() })
    }

    fn list_offset(
        &self,
        node: i32,
        topic: &str,
        asked: &list_offsets_request::ListOffsetsPartition,
    ) -> list_offsets_response::ListOffsetsPartitionResponse {
        let number = asked.partition_index;
        let answer = |error_code, (offset, timestamp), leader_epoch| {
            message!(list_offsets_response::ListOffsetsPartitionResponse {
                partition_index: number,
                error_code: error_code,
                timestamp: timestamp,
                offset: offset,
                leader_epoch: leader_epoch,
            })
        };
        let refused = |code| answer(code, (UNKNOWN, UNKNOWN), -1);
        if self.access_to(topic) < Access::Describe {
            return refused(TOPIC_AUTHORIZATION_FAILED);
        }
        let Some(partition) = self.topics.get(topic).and_then(|topic| topic.partition(number)) else {
            return refused(UNKNOWN_TOPIC_OR_PARTITION);
        };
        if partition.leader != node {
            return refused(NOT_LEADER_OR_FOLLOWER);
        }
        let found = match asked.timestamp {
            LATEST => (partition.log.end(), UNKNOWN),
            EARLIEST => (partition.log.start(), UNKNOWN),
            time if time >= 0 => partition.log.at_time(time).unwrap_or((UNKNOWN, UNKNOWN)),
            _ => return refused(INVALID_REQUEST),
        };
        answer(NONE, found, partition.leader_epoch)
    }
}
