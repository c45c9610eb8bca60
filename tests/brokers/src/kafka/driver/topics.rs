//! Topics, their partitions, and who leads them.

use kafka_wire::{
    AlterPartitionReassignmentsRequest, CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest,
    ElectLeadersRequest, IncrementalAlterConfigsRequest, MetadataRequest,
    alter_partition_reassignments_request as reassign, create_partitions_request, create_topics_request,
    delete_topics_request, elect_leaders_request, incremental_alter_configs_request, metadata_request,
    metadata_response,
};
use kafka_wire_core::Uuid;

use super::{BROKER_TIMEOUT_MS, Driver, METADATA, code, only, settle, until};
use crate::kafka::connection::{CallError, accepted};
use crate::kafka::options::NodeId;

/// The resource type of a topic in requests about configuration.
const TOPIC_RESOURCE: i8 = 2;
/// What a metadata answer says where there is no leader.
const NO_LEADER: i32 = -1;

/// A topic to be made.
#[derive(Clone, Debug)]
pub struct NewTopic {
    /// Its name.
    pub name: String,
    /// How many.
    pub partitions: i32,
    /// One on each node unless given.
    pub replicas: Option<i16>,
    /// Settings other than the broker's, as `compression.type`.
    pub configuration: Vec<(String, String)>,
}

impl NewTopic {
    /// One with the broker's settings.
    #[must_use]
    pub fn new(name: &str, partitions: i32) -> Self {
        Self { name: name.into(), partitions, replicas: None, configuration: Vec::new() }
    }

    /// The same with one more setting.
    #[must_use]
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.configuration.push((name.into(), value.into()));
        self
    }
}

/// A topic as a broker knows it.
#[derive(Clone, Debug)]
pub struct Topic {
    /// Its name.
    pub name: String,
    /// Another one when a topic is deleted and made anew under the same name.
    pub id: Uuid,
    /// By their number.
    pub partitions: Vec<Partition>,
}

/// A partition as a broker knows it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Partition {
    /// From 0.
    pub index: i32,
    /// Who serves it, if anybody does at the moment.
    pub leader: Option<NodeId>,
    /// How often leaders have changed.
    pub leader_epoch: i32,
    /// Who has a copy, the preferred leader first.
    pub replicas: Vec<NodeId>,
    /// Whose copies are complete.
    pub in_sync: Vec<NodeId>,
}

impl Driver {
    /// Makes a topic with as many replicas as there are nodes, and waits until every partition has a leader.
    ///
    /// # Errors
    /// When the broker refuses, as with 36 where there is one.
    pub async fn create_topic(&self, name: &str, partitions: i32) -> Result<Topic, CallError> {
        self.create(&NewTopic::new(name, partitions)).await
    }

    /// [`create_topic`](Self::create_topic) with settings.
    ///
    /// # Errors
    /// When the broker refuses, as with 36 where there is one.
    pub async fn create(&self, new: &NewTopic) -> Result<Topic, CallError> {
        const VERSION: i16 = 7;
        let mut topic = create_topics_request::CreatableTopic::default();
        topic.name = new.name.as_str().into();
        topic.num_partitions = new.partitions;
        // -1: the broker's default, which is one on each node.
        topic.replication_factor = new.replicas.unwrap_or(-1);
        for (name, value) in &new.configuration {
            let mut setting = create_topics_request::CreatableTopicConfig::default();
            setting.name = name.as_str().into();
            setting.value = Some(value.as_str().into());
            topic.configs.push(setting);
        }
        let mut request = CreateTopicsRequest::default();
        request.topics = vec![topic];
        request.timeout_ms = BROKER_TIMEOUT_MS;
        let what = || format!("creating topic {}", new.name);
        settle(&what(), code::UNSETTLED_CONTROLLER, async || {
            let result = only(self.call_any(&request, VERSION).await?.topics, "CreateTopicsRequest")?;
            accepted(what, result.error_code, result.error_message.as_ref())
        })
        .await?;
        self.wait_for_partitions(&new.name, new.partitions).await
    }

    /// Deletes a topic and waits until it is gone from metadata.
    ///
    /// # Errors
    /// When there is none.
    pub async fn delete_topic(&self, name: &str) -> Result<(), CallError> {
        const VERSION: i16 = 6;
        let mut topic = delete_topics_request::DeleteTopicState::default();
        topic.name = Some(name.into());
        let mut request = DeleteTopicsRequest::default();
        request.topics = vec![topic];
        request.timeout_ms = BROKER_TIMEOUT_MS;
        let what = || format!("deleting topic {name}");
        let id = self.topic(name).await?.map(|topic| topic.id);
        let result = only(self.call_any(&request, VERSION).await?.responses, "DeleteTopicsRequest")?;
        accepted(what, result.error_code, result.error_message.as_ref())?;
        until(&what(), async || {
            let now = self.topic(name).await?.map(|topic| topic.id);
            Ok(if now.is_none() || now != id { Ok(()) } else { Err("it is still there".into()) })
        })
        .await
    }

    /// Brings a topic to `total` partitions and waits until each has a leader.
    ///
    /// # Errors
    /// When there is no such topic, or it has that many.
    pub async fn add_partitions(&self, name: &str, total: i32) -> Result<Topic, CallError> {
        const VERSION: i16 = 3;
        let mut topic = create_partitions_request::CreatePartitionsTopic::default();
        topic.name = name.into();
        topic.count = total;
        // Where they go is the controller's business.
        topic.assignments = None;
        let mut request = CreatePartitionsRequest::default();
        request.topics = vec![topic];
        request.timeout_ms = BROKER_TIMEOUT_MS;
        let result = only(self.call_any(&request, VERSION).await?.results, "CreatePartitionsRequest")?;
        let what = || format!("giving topic {name} {total} partitions");
        accepted(what, result.error_code, result.error_message.as_ref())?;
        self.wait_for_partitions(name, total).await
    }

    /// Changes settings of a topic.
    ///
    /// # Errors
    /// When the broker refuses, as with 40 for a bad setting.
    pub async fn configure_topic(&self, name: &str, settings: &[(&str, &str)]) -> Result<(), CallError> {
        self.configure(TOPIC_RESOURCE, name, settings).await
    }

    pub(super) async fn configure(
        &self,
        resource_type: i8,
        name: &str,
        settings: &[(&str, &str)],
    ) -> Result<(), CallError> {
        const VERSION: i16 = 1;
        let mut resource = incremental_alter_configs_request::AlterConfigsResource::default();
        resource.resource_type = resource_type;
        resource.resource_name = name.into();
        for (name, value) in settings {
            let mut setting = incremental_alter_configs_request::AlterableConfig::default();
            setting.name = (*name).into();
            setting.value = Some((*value).into());
            resource.configs.push(setting);
        }
        let mut request = IncrementalAlterConfigsRequest::default();
        request.resources = vec![resource];
        let what = || format!("configuring {name} with {settings:?}");
        settle(&what(), code::UNSETTLED_CONTROLLER, async || {
            let responses = self.call_any(&request, VERSION).await?.responses;
            let result = only(responses, "IncrementalAlterConfigsRequest")?;
            accepted(what, result.error_code, result.error_message.as_ref())
        })
        .await
    }

    /// A topic as the first node that answers knows it, or `None` when it knows none.
    ///
    /// # Errors
    /// When no node answers.
    pub async fn topic(&self, name: &str) -> Result<Option<Topic>, CallError> {
        let mut topic = metadata_request::MetadataRequestTopic::default();
        topic.name = Some(name.into());
        let mut request = MetadataRequest::default();
        request.topics = Some(vec![topic]);
        let topic = only(self.call_any(&request, METADATA).await?.topics, "MetadataRequest")?;
        if topic.error_code == code::UNKNOWN_TOPIC_OR_PARTITION {
            return Ok(None);
        }
        accepted(|| format!("metadata of topic {name}"), topic.error_code, None)?;
        let mut partitions: Vec<Partition> = topic.partitions.into_iter().map(Partition::from).collect();
        partitions.sort_by_key(|partition| partition.index);
        Ok(Some(Topic { name: name.into(), id: topic.topic_id, partitions }))
    }

    /// Who leads a partition, as soon as somebody does.
    ///
    /// # Errors
    /// When there is none for a minute.
    pub async fn leader(&self, topic: &str, partition: i32) -> Result<NodeId, CallError> {
        self.led(topic, partition).await.map(|(_, leader)| leader)
    }

    /// A topic's id and who leads one of its partitions, as soon as somebody does.
    pub(super) async fn led(&self, topic: &str, partition: i32) -> Result<(Uuid, NodeId), CallError> {
        self.wait_for_leader(topic, partition, "having a leader", |_| true).await
    }

    /// The leader of a partition, as soon as it is another than `old`.
    ///
    /// # Errors
    /// When there is none for a minute.
    pub async fn leader_after(&self, old: NodeId, topic: &str, partition: i32) -> Result<NodeId, CallError> {
        let wanted = |leader| leader != old;
        self.wait_for_leader(topic, partition, "having another leader", wanted)
            .await
            .map(|(_, leader)| leader)
    }

    /// Makes `to`, which has to have a copy, the leader of a partition, and waits until metadata says so.
    ///
    /// # Errors
    /// When the cluster refuses, or `to` does not catch up within a minute.
    pub async fn move_leader(&self, topic: &str, partition: i32, to: NodeId) -> Result<(), CallError> {
        self.prefer_leader(topic, partition, to).await?;
        let what = format!("electing {to} for {topic}-{partition}");
        let unsettled = [code::UNSETTLED_CONTROLLER, &[code::PREFERRED_LEADER_NOT_AVAILABLE]].concat();
        settle(&what, &unsettled, async || self.elect_preferred(topic, partition, &what).await).await?;
        self.wait_for_leader(topic, partition, "having moved", |leader| leader == to).await.map(drop)
    }

    async fn prefer_leader(&self, topic: &str, partition: i32, to: NodeId) -> Result<(), CallError> {
        const VERSION: i16 = 0;
        let what = || format!("preferring {to} for {topic}-{partition}");
        let mut order = vec![to.0];
        let known = self.topic(topic).await?;
        let replicas =
            known.iter().flat_map(|topic| &topic.partitions).find(|found| found.index == partition);
        order.extend(
            replicas.iter().flat_map(|found| &found.replicas).map(|node| node.0).filter(|id| *id != to.0),
        );
        let mut of_partition = reassign::ReassignablePartition::default();
        of_partition.partition_index = partition;
        of_partition.replicas = Some(order);
        let mut of_topic = reassign::ReassignableTopic::default();
        of_topic.name = topic.into();
        of_topic.partitions = vec![of_partition];
        let mut request = AlterPartitionReassignmentsRequest::default();
        request.timeout_ms = BROKER_TIMEOUT_MS;
        request.topics = vec![of_topic];
        let response = self.call_any(&request, VERSION).await?;
        accepted(what, response.error_code, response.error_message.as_ref())?;
        let of_topic = only(response.responses, "AlterPartitionReassignmentsRequest")?;
        let result = only(of_topic.partitions, "AlterPartitionReassignmentsRequest")?;
        accepted(what, result.error_code, result.error_message.as_ref())
    }

    async fn elect_preferred(&self, topic: &str, partition: i32, what: &str) -> Result<(), CallError> {
        const VERSION: i16 = 2;
        let mut wanted = elect_leaders_request::TopicPartitions::default();
        wanted.topic = topic.into();
        wanted.partitions = vec![partition];
        let mut request = ElectLeadersRequest::default();
        request.topic_partitions = Some(vec![wanted]);
        request.timeout_ms = BROKER_TIMEOUT_MS;
        let response = self.call_any(&request, VERSION).await?;
        accepted(|| what.to_owned(), response.error_code, None)?;
        let of_topic = only(response.replica_election_results, "ElectLeadersRequest")?;
        let result = only(of_topic.partition_result, "ElectLeadersRequest")?;
        if result.error_code == code::ELECTION_NOT_NEEDED {
            return Ok(());
        }
        accepted(|| what.to_owned(), result.error_code, result.error_message.as_ref())
    }

    async fn wait_for_partitions(&self, name: &str, count: i32) -> Result<Topic, CallError> {
        until(&format!("topic {name} having leaders"), async || {
            let Some(topic) = self.topic(name).await? else { return Ok(Err("it is not there".into())) };
            let led = topic.partitions.iter().filter(|partition| partition.leader.is_some()).count();
            Ok(if usize::try_from(count) == Ok(led) { Ok(topic) } else { Err(format!("{led} of {count}")) })
        })
        .await
    }

    async fn wait_for_leader(
        &self,
        topic: &str,
        partition: i32,
        what: &str,
        wanted: impl Fn(NodeId) -> bool,
    ) -> Result<(Uuid, NodeId), CallError> {
        until(&format!("{topic}-{partition} {what}"), async || {
            let Some(known) = self.topic(topic).await? else {
                return Ok(Err("there is no such topic".into()));
            };
            let found = known.partitions.iter().find(|found| found.index == partition);
            Ok(match found.and_then(|found| found.leader) {
                Some(leader) if wanted(leader) => Ok((known.id, leader)),
                _ => Err(format!("{found:?}")),
            })
        })
        .await
    }
}

impl From<metadata_response::MetadataResponsePartition> for Partition {
    fn from(partition: metadata_response::MetadataResponsePartition) -> Self {
        let nodes = |ids: Vec<i32>| ids.into_iter().map(NodeId).collect();
        Self {
            index: partition.partition_index,
            leader: (partition.leader_id != NO_LEADER).then_some(NodeId(partition.leader_id)),
            leader_epoch: partition.leader_epoch,
            replicas: nodes(partition.replica_nodes),
            in_sync: nodes(partition.isr_nodes),
        }
    }
}
