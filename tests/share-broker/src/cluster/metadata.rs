//! Nodes, topics, coordinators, versions.

use std::time::Duration;

use kafka_wire::{
    ApiVersionsResponse, CreateTopicsRequest, CreateTopicsResponse, FindCoordinatorRequest,
    FindCoordinatorResponse, MetadataRequest, MetadataResponse, api_versions_response,
    create_topics_response, find_coordinator_response, metadata_response,
};
use kafka_wire_core::{StrBytes, Uuid};

use super::Cluster;
use crate::error_code::{
    COORDINATOR_NOT_AVAILABLE, GROUP_AUTHORIZATION_FAILED, INVALID_PARTITIONS, INVALID_REQUEST,
    INVALID_TOPIC_EXCEPTION, LEADER_NOT_AVAILABLE, NONE, TOPIC_ALREADY_EXISTS, TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION,
};
use crate::options::Access;
use crate::topic::Topic;
use crate::wire::{Api, message};

/// Kafka's kinds of coordinators: that of groups, and that of share state, which is for brokers.
const GROUP: i8 = 0;

/// The most partitions of a topic that a client may ask for.
const PARTITIONS_MAX: i32 = 10_000;

impl Cluster {
    pub(super) fn api_versions(&self) -> ApiVersionsResponse {
        let served = Api::ALL.iter().filter(|api| self.options.share_groups || api.key() < 76);
        let api_keys = served.map(|api| {
            let (min, max) = api.versions();
            message!(api_versions_response::ApiVersion {
                api_key: api.key(),
                min_version: min,
                max_version: max
            })
        });
        let mut response = message!(ApiVersionsResponse { api_keys: api_keys.collect() });
        if self.options.share_groups && self.options.share_version > 0 {
            let level = self.options.share_version;
            let name = StrBytes::from("share.version");
            response.finalized_features = vec![message!(api_versions_response::FinalizedFeatureKey {
                name: name.clone(),
                max_version_level: level,
                min_version_level: level,
            })];
            response.supported_features =
                vec![message!(api_versions_response::SupportedFeatureKey { name: name, max_version: 1 })];
            response.finalized_features_epoch = 1;
        }
        response
    }

    pub(super) fn metadata(&self, body: &MetadataRequest, version: i16) -> MetadataResponse {
        // Version 0 asks for all topics with an empty list.
        let all = body.topics.as_ref().is_none_or(|topics| version == 0 && topics.is_empty());
        let topics = if all {
            let visible = self.topics.iter().filter(|(name, _)| self.access_to(name) >= Access::Describe);
            visible.map(|(name, topic)| self.found(name, topic)).collect()
        } else {
            let asked = body.topics.iter().flatten();
            asked
                .map(|topic| match &topic.name {
                    Some(name) => self.topic_by_name(name),
                    None => self.topic_by_id(topic.topic_id),
                })
                .collect()
        };
        let mut topics: Vec<_> = topics;
        for topic in topics.iter_mut().filter(|_| body.include_topic_authorized_operations) {
            let access = topic.name.as_deref().map_or(Access::Nothing, |name| self.access_to(name));
            topic.topic_authorized_operations = operations(access);
        }
        let brokers = self.nodes.iter().filter(|(_, node)| node.listed).map(|(id, node)| {
            message!(metadata_response::MetadataResponseBroker {
                node_id: *id,
                host: StrBytes::from(node.host.as_str()),
                port: i32::from(node.port),
            })
        });
        message!(MetadataResponse {
            brokers: brokers.collect(),
            cluster_id: Some(StrBytes::from(self.options.cluster_id.as_str())),
            controller_id: self.nodes().next().unwrap_or(-1),
            topics: topics,
        })
    }

    fn topic_by_name(&self, name: &StrBytes) -> metadata_response::MetadataResponseTopic {
        let refused = |code| {
            message!(metadata_response::MetadataResponseTopic { error_code: code, name: Some(name.clone()) })
        };
        if self.access_to(name) < Access::Describe {
            return refused(TOPIC_AUTHORIZATION_FAILED);
        }
        match self.topics.get_key_value(name.as_str()) {
            Some((name, topic)) => self.found(name, topic),
            None => refused(UNKNOWN_TOPIC_OR_PARTITION),
        }
    }

    fn topic_by_id(&self, id: Uuid) -> metadata_response::MetadataResponseTopic {
        match self.topic(id) {
            Some((name, topic)) if self.access_to(name) >= Access::Describe => self.found(name, topic),
            // Who may not see a topic is not told that it exists.
            _ => message!(metadata_response::MetadataResponseTopic {
                error_code: UNKNOWN_TOPIC_ID,
                topic_id: id
            }),
        }
    }

    pub(super) fn find_coordinator(
        &mut self,
        now: Duration,
        body: &FindCoordinatorRequest,
        version: i16,
    ) -> FindCoordinatorResponse {
        if version >= 4 {
            let keys = body.coordinator_keys.iter();
            let coordinators = keys.map(|key| self.coordinator_answer(now, key, body.key_type)).collect();
            return message!(FindCoordinatorResponse { coordinators: coordinators });
        }
        let one = self.coordinator_answer(now, &body.key, body.key_type);
        message!(FindCoordinatorResponse {
            error_code: one.error_code,
            node_id: one.node_id,
            host: one.host,
            port: one.port,
        })
    }

    fn coordinator_answer(
        &mut self,
        now: Duration,
        key: &StrBytes,
        kind: i8,
    ) -> find_coordinator_response::Coordinator {
        let refused = |code| {
            message!(find_coordinator_response::Coordinator {
                key: key.clone(),
                error_code: code,
                node_id: -1,
                port: -1,
            })
        };
        if kind != GROUP {
            return refused(INVALID_REQUEST);
        }
        if self.denied_groups.contains(key.as_str()) {
            return refused(GROUP_AUTHORIZATION_FAILED);
        }
        let from = *self.coordinators_from.get_or_insert(now + self.options.coordinator_delay);
        if from > now {
            return refused(COORDINATOR_NOT_AVAILABLE);
        }
        let node_id = self.coordinator(key);
        match self.nodes.get(&node_id) {
            Some(node) => message!(find_coordinator_response::Coordinator {
                key: key.clone(),
                node_id: node_id,
                host: StrBytes::from(node.host.as_str()),
                port: i32::from(node.port),
                error_code: NONE,
            }),
            None => refused(COORDINATOR_NOT_AVAILABLE),
        }
    }

    /// The node that coordinates a group.
    pub fn coordinator(&mut self, group: &str) -> i32 {
        let nodes: Vec<i32> = self.nodes().collect();
        let sum =
            group.bytes().fold(0_usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(usize::from(byte)));
        let first = nodes.get(sum % nodes.len().max(1)).copied().unwrap_or(-1);
        *self.coordinators.entry(group.to_owned()).or_insert(first)
    }

    pub(super) fn create_topics(&mut self, body: &CreateTopicsRequest) -> CreateTopicsResponse {
        let mut topics = Vec::new();
        for topic in &body.topics {
            let partitions = if topic.num_partitions == -1 { 1 } else { topic.num_partitions };
            let error_code = if topic.name.is_empty() || topic.name.len() > 249 {
                INVALID_TOPIC_EXCEPTION
            } else if self.topics.contains_key(topic.name.as_str()) {
                TOPIC_ALREADY_EXISTS
            } else if !(1..=PARTITIONS_MAX).contains(&partitions) {
                INVALID_PARTITIONS
            } else {
                NONE
            };
            let mut result = message!(create_topics_response::CreatableTopicResult {
                name: topic.name.clone(),
                error_code: error_code,
            });
            if error_code == NONE {
                if !body.validate_only {
                    result.topic_id = self.create_topic(&topic.name, partitions);
                }
                result.num_partitions = partitions;
                result.replication_factor = 1;
            }
            topics.push(result);
        }
        message!(CreateTopicsResponse { topics: topics })
    }
}

impl Cluster {
    /// A topic as metadata shows it. A leader that is not there is none.
    fn found(&self, name: &str, topic: &Topic) -> metadata_response::MetadataResponseTopic {
        let partitions = (0..).zip(&topic.partitions).map(|(index, partition)| {
            let is_there = self.nodes.get(&partition.leader).is_some_and(|node| node.listed);
            message!(metadata_response::MetadataResponsePartition {
                error_code: if is_there { NONE } else { LEADER_NOT_AVAILABLE },
                partition_index: index,
                leader_id: if is_there { partition.leader } else { -1 },
                leader_epoch: partition.leader_epoch,
                replica_nodes: vec![partition.leader],
                isr_nodes: vec![partition.leader],
            })
        });
        message!(metadata_response::MetadataResponseTopic {
            name: Some(StrBytes::from(name)),
            topic_id: topic.id,
            partitions: partitions.collect(),
        })
    }
}

/// The bits of what a client may do, by the numbers of Kafka's operations.
fn operations(access: Access) -> i32 {
    const READ: i32 = 1 << 3;
    const DESCRIBE: i32 = 1 << 8;
    match access {
        Access::Nothing => 0,
        Access::Describe => DESCRIBE,
        Access::Read => READ | DESCRIBE,
    }
}
