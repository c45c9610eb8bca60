//! Where a group stands.

use kafka_wire::{
    DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsResponse,
    describe_share_group_offsets_request as request,
};

use super::ShareGroupAdmin;
use super::calls::{Patience, complained, only};
use super::error::OffsetsError;
use crate::{Complaint, ErrorCode};

/// Where a group stands in one topic.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TopicOffsets {
    /// Its name.
    pub topic: Box<str>,
    /// In order.
    pub partitions: Vec<PartitionOffset>,
}

/// Where a group stands in one partition.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PartitionOffset {
    /// Which.
    pub partition: i32,
    /// The first record that is not done with, as the coordinator has stored it. `None` where the group has never fetched.
    /// Kafka 4.3.1 stores it with the settlement after the one that moved it (measured), so it may lie behind; the lag does
    /// not.
    pub start: Option<i64>,
    /// The leader's epoch that the offset is of, if it is known.
    pub leader_epoch: Option<i32>,
    /// Records that are not done with. `None` as long as the broker does not know: before the first record is settled, and
    /// always before Kafka 4.2.
    pub lag: Option<i64>,
    /// What the broker complains about in place of all this.
    pub complaint: Option<Complaint>,
}

impl ShareGroupAdmin {
    /// Where a group stands in all topics that it has ever fetched from. Takes the right Describe to the group; topics that
    /// the client may not see are left out.
    ///
    /// # Errors
    /// When there is no such group, or it cannot be seen.
    pub async fn offsets(&mut self, group: &str) -> Result<Vec<TopicOffsets>, OffsetsError> {
        let mut patience = self.patience();
        self.offsets_within(group, None, &mut patience).await
    }

    /// Of all topics that the group knows, or of these partitions.
    pub(super) async fn offsets_within(
        &mut self,
        group: &str,
        wanted: Option<&[(Box<str>, Vec<i32>)]>,
        patience: &mut Patience,
    ) -> Result<Vec<TopicOffsets>, OffsetsError> {
        let mut of_group = request::DescribeShareGroupOffsetsRequestGroup::default();
        of_group.group_id = group.into();
        of_group.topics = wanted.map(|topics| {
            let topics = topics.iter().map(|(name, partitions)| {
                let mut topic = request::DescribeShareGroupOffsetsRequestTopic::default();
                topic.topic_name = (&**name).into();
                topic.partitions.clone_from(partitions);
                topic
            });
            topics.collect()
        });
        let mut request = DescribeShareGroupOffsetsRequest::default();
        request.groups = vec![of_group];
        let answered = self.ask_coordinator(group, &request, patience, read).await;
        answered.map_err(|trouble| {
            OffsetsError::common(group, trouble).unwrap_or_else(|(complaint, _)| {
                let group = group.into();
                match complaint.code {
                    ErrorCode::GROUP_ID_NOT_FOUND => OffsetsError::NotFound { group, complaint },
                    _ => OffsetsError::Refused { group, complaint },
                }
            })
        })
    }
}

fn read(answer: DescribeShareGroupOffsetsResponse) -> Result<Vec<TopicOffsets>, Complaint> {
    let group = only(answer.groups)?;
    if let Some(complaint) = complained(group.error_code, group.error_message.as_deref()) {
        return Err(complaint);
    }
    // Brokers say -1 for what there is not.
    let known = |number: i64| (number >= 0).then_some(number);
    let topics = group.topics.iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|of| {
            let complaint = complained(of.error_code, of.error_message.as_deref());
            PartitionOffset {
                partition: of.partition_index,
                start: known(of.start_offset),
                leader_epoch: (of.leader_epoch >= 0 && of.start_offset >= 0).then_some(of.leader_epoch),
                lag: known(of.lag),
                complaint,
            }
        });
        let mut partitions: Vec<_> = partitions.collect();
        partitions.sort_by_key(|partition| partition.partition);
        TopicOffsets { topic: topic.topic_name.as_str().into(), partitions }
    });
    let mut topics: Vec<_> = topics.collect();
    topics.sort_by(|one, other| one.topic.cmp(&other.topic));
    Ok(topics)
}
