//! Share groups.

use kafka_wire::describe_configs_request::DescribeConfigsResource;
use kafka_wire::{
    DeleteGroupsRequest, DescribeConfigsRequest, DescribeShareGroupOffsetsRequest, FindCoordinatorRequest,
    ShareGroupDescribeRequest, describe_share_group_offsets_request as offsets,
    share_group_describe_response::DescribedGroup,
};

use super::{Driver, code, only, settle, until};
use crate::kafka::connection::{CallError, accepted};
use crate::kafka::options::NodeId;

/// The resource type of a group in requests about configuration.
const GROUP_RESOURCE: i8 = 32;
/// What kind of coordinator a key belongs to.
const GROUP_KEY: i8 = 0;
const TRANSACTION_KEY: i8 = 1;

/// How far a share group has come in one partition.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ShareOffset {
    /// Which partition.
    pub partition: i32,
    /// The first record that is not done with; `None` where the group never took any.
    pub start: Option<i64>,
    /// Records that are not done with, as the coordinator counts them; `None` before the first settled record.
    pub lag: Option<i64>,
}

impl Driver {
    /// Changes settings of a share group (`share.auto.offset.reset`, `share.record.lock.duration.ms`), which need not
    /// exist, and waits until every running node knows of it: where a group begins is decided once, by its first fetch.
    ///
    /// # Errors
    /// When the broker refuses, as with 40 for a value outside its limits.
    pub async fn configure_group(&self, group: &str, settings: &[(&str, &str)]) -> Result<(), CallError> {
        self.configure(GROUP_RESOURCE, group, settings).await?;
        for node in self.nodes.keys().filter(|node| self.lives.is_running(**node)) {
            until(&format!("{node} knowing the settings of {group}"), async || {
                let known = match self.group_settings(*node, group).await {
                    Ok(known) => known,
                    // It may be ended meanwhile.
                    Err(error) if error.is_transport() => return Ok(Ok(())),
                    Err(error) => return Err(error),
                };
                let missing = settings
                    .iter()
                    .find(|(name, value)| !known.iter().any(|(known, is)| known == name && is == value));
                Ok(missing.map_or(Ok(()), |(name, value)| Err(format!("{name} is not {value} yet"))))
            })
            .await?;
        }
        Ok(())
    }

    /// A group's settings as one node knows them.
    async fn group_settings(&self, node: NodeId, group: &str) -> Result<Vec<(String, String)>, CallError> {
        const VERSION: i16 = 4;
        let mut resource = DescribeConfigsResource::default();
        resource.resource_type = GROUP_RESOURCE;
        resource.resource_name = group.into();
        resource.configuration_keys = None;
        let mut request = DescribeConfigsRequest::default();
        request.resources = vec![resource];
        let found = only(self.call(node, &request, VERSION).await?.results, "DescribeConfigsRequest")?;
        let what = || format!("settings of group {group}");
        accepted(what, found.error_code, found.error_message.as_ref())?;
        let text = |text: &str| text.to_owned();
        Ok(found
            .configs
            .iter()
            .map(|of| (text(&of.name), of.value.as_deref().map(text).unwrap_or_default()))
            .collect())
    }

    /// Who coordinates a group, as soon as somebody does: the first question on a fresh cluster makes a topic.
    ///
    /// # Errors
    /// When there is none for a minute.
    pub async fn coordinator(&self, group: &str) -> Result<NodeId, CallError> {
        self.find_coordinator(GROUP_KEY, group).await
    }

    pub(super) async fn transaction_coordinator(&self, id: &str) -> Result<NodeId, CallError> {
        self.find_coordinator(TRANSACTION_KEY, id).await
    }

    async fn find_coordinator(&self, key_type: i8, key: &str) -> Result<NodeId, CallError> {
        const VERSION: i16 = 6;
        let mut request = FindCoordinatorRequest::default();
        request.key_type = key_type;
        request.coordinator_keys = vec![key.into()];
        let what = || format!("finding the coordinator of {key}");
        settle(&what(), code::UNSETTLED_COORDINATOR, async || {
            let coordinators = self.call_any(&request, VERSION).await?.coordinators;
            let found = only(coordinators, "FindCoordinatorRequest")?;
            accepted(what, found.error_code, found.error_message.as_ref())?;
            Ok(NodeId(found.node_id))
        })
        .await
    }

    /// State, members and assignments of a share group.
    ///
    /// # Errors
    /// When there is none (69).
    pub async fn describe_group(&self, group: &str) -> Result<DescribedGroup, CallError> {
        const VERSION: i16 = 1;
        let mut request = ShareGroupDescribeRequest::default();
        request.group_ids = vec![group.into()];
        let what = || format!("describing group {group}");
        settle(&what(), code::UNSETTLED_COORDINATOR, async || {
            let coordinator = self.coordinator(group).await?;
            let groups = self.call(coordinator, &request, VERSION).await?.groups;
            let found = only(groups, "ShareGroupDescribeRequest")?;
            accepted(what, found.error_code, found.error_message.as_ref())?;
            Ok(found)
        })
        .await
    }

    /// How far a share group, which need not exist, has come in each partition of a topic.
    ///
    /// # Errors
    /// When the broker refuses.
    pub async fn share_offsets(&self, group: &str, topic: &str) -> Result<Vec<ShareOffset>, CallError> {
        const VERSION: i16 = 1;
        let partitions = self.topic(topic).await?.map(|topic| topic.partitions).unwrap_or_default();
        let mut of_topic = offsets::DescribeShareGroupOffsetsRequestTopic::default();
        of_topic.topic_name = topic.into();
        of_topic.partitions = partitions.iter().map(|partition| partition.index).collect();
        let mut of_group = offsets::DescribeShareGroupOffsetsRequestGroup::default();
        of_group.group_id = group.into();
        of_group.topics = Some(vec![of_topic]);
        let mut request = DescribeShareGroupOffsetsRequest::default();
        request.groups = vec![of_group];
        let what = || format!("offsets of group {group} in {topic}");
        settle(&what(), code::UNSETTLED_COORDINATOR, async || {
            let coordinator = self.coordinator(group).await?;
            let groups = self.call(coordinator, &request, VERSION).await?.groups;
            let found = only(groups, "DescribeShareGroupOffsetsRequest")?;
            accepted(what, found.error_code, found.error_message.as_ref())?;
            let mut offsets = Vec::new();
            for partition in found.topics.into_iter().flat_map(|topic| topic.partitions) {
                accepted(what, partition.error_code, partition.error_message.as_ref())?;
                let known = |number: i64| (number >= 0).then_some(number);
                offsets.push(ShareOffset {
                    partition: partition.partition_index,
                    start: known(partition.start_offset),
                    lag: known(partition.lag),
                });
            }
            offsets.sort_by_key(|offset| offset.partition);
            Ok(offsets)
        })
        .await
    }

    /// Deletes a group without members.
    ///
    /// # Errors
    /// When it has members (68) or is not there (69).
    pub async fn delete_group(&self, group: &str) -> Result<(), CallError> {
        const VERSION: i16 = 2;
        let mut request = DeleteGroupsRequest::default();
        request.groups_names = vec![group.into()];
        let what = || format!("deleting group {group}");
        settle(&what(), code::UNSETTLED_COORDINATOR, async || {
            let coordinator = self.coordinator(group).await?;
            let results = self.call(coordinator, &request, VERSION).await?.results;
            accepted(what, only(results, "DeleteGroupsRequest")?.error_code, None)
        })
        .await
    }
}
