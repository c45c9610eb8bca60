//! A group as its coordinator sees it.

use kafka_wire::share_group_describe_response::{DescribedGroup, Member};
use kafka_wire::{ShareGroupDescribeRequest, ShareGroupDescribeResponse};

use super::ShareGroupAdmin;
use super::calls::{Patience, Trouble, complained, only};
use super::error::DescribeError;
use super::topics::Rights;
use crate::{Complaint, ErrorCode, TopicId};

/// A share group.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct GroupDescription {
    /// Its id.
    pub id: Box<str>,
    /// Kafka's word for its state: `Empty`, `Stable`, `Dead`.
    pub state: Box<str>,
    /// Counts what happened to the group: members, topics, partitions.
    pub epoch: i32,
    /// The epoch that the assignment is of.
    pub assignment_epoch: i32,
    /// Who assigns partitions to members.
    pub assignor: Box<str>,
    /// Who is in it.
    pub members: Vec<MemberDescription>,
    pub(super) rights: Rights,
}

/// A member of a share group.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MemberDescription {
    /// Its id, which it chose itself.
    pub id: Box<str>,
    /// What its client calls itself.
    pub client_id: Box<str>,
    /// Where it is connected from.
    pub client_host: Box<str>,
    /// Where it stands, if it told.
    pub rack: Option<Box<str>>,
    /// How far it has followed the group.
    pub epoch: i32,
    /// What it wants to fetch from.
    pub topics: Vec<Box<str>>,
    /// What it was told to fetch from.
    pub assignment: Vec<AssignedTopic>,
}

/// Partitions of one topic.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AssignedTopic {
    /// Its name; its id for one that has no name any more.
    pub topic: Box<str>,
    /// In order.
    pub partitions: Vec<i32>,
}

impl ShareGroupAdmin {
    /// A group with its members. Takes the right Describe to the group and to all topics of its members.
    ///
    /// # Errors
    /// When there is none, or it cannot be seen.
    pub async fn describe(&mut self, group: &str) -> Result<GroupDescription, DescribeError> {
        let mut patience = self.patience();
        self.describe_within(group, &mut patience).await
    }

    pub(super) async fn describe_within(
        &mut self,
        group: &str,
        patience: &mut Patience,
    ) -> Result<GroupDescription, DescribeError> {
        let mut request = ShareGroupDescribeRequest::default();
        request.group_ids = vec![group.into()];
        request.include_authorized_operations = true;
        let described = self.ask_coordinator(group, &request, patience, read).await;
        described.map_err(|trouble| failure(group, trouble))
    }

    /// Who is in a group, as far as that can be found out: for errors, which say so as an aside.
    pub(super) async fn member_names(&mut self, group: &str, patience: &mut Patience) -> Vec<Box<str>> {
        match self.describe_within(group, patience).await {
            Ok(description) => description.members.iter().map(MemberDescription::name).collect(),
            Err(_) => Vec::new(),
        }
    }
}

fn failure(group: &str, trouble: Trouble) -> DescribeError {
    DescribeError::common(group, trouble).unwrap_or_else(|(complaint, _)| {
        let group = group.into();
        match complaint.code {
            ErrorCode::GROUP_ID_NOT_FOUND => DescribeError::NotFound { group, complaint },
            ErrorCode::TOPIC_AUTHORIZATION_FAILED => DescribeError::TopicsDenied { group },
            _ => DescribeError::Refused { group, complaint },
        }
    })
}

fn read(answer: ShareGroupDescribeResponse) -> Result<GroupDescription, Complaint> {
    let group = only(answer.groups)?;
    match complained(group.error_code, group.error_message.as_deref()) {
        Some(complaint) => Err(complaint),
        None => Ok(GroupDescription::of(&group)),
    }
}

impl GroupDescription {
    fn of(group: &DescribedGroup) -> Self {
        let mut members: Vec<_> = group.members.iter().map(MemberDescription::of).collect();
        members.sort_by(|one, other| one.id.cmp(&other.id));
        Self {
            id: group.group_id.as_str().into(),
            state: group.group_state.as_str().into(),
            epoch: group.group_epoch,
            assignment_epoch: group.assignment_epoch,
            assignor: group.assignor_name.as_str().into(),
            members,
            rights: Rights::of(group.authorized_operations),
        }
    }

    /// The topics that its members want, each once.
    #[must_use]
    pub fn topics(&self) -> Vec<Box<str>> {
        let mut topics: Vec<_> =
            self.members.iter().flat_map(|member| member.topics.iter().cloned()).collect();
        topics.sort();
        topics.dedup();
        topics
    }
}

impl MemberDescription {
    fn of(member: &Member) -> Self {
        let text = |text: &str| Box::from(text);
        let mut topics: Vec<_> = member.subscribed_topic_names.iter().map(|name| text(name)).collect();
        topics.sort();
        let mut assignment: Vec<_> = member
            .assignment
            .topic_partitions
            .iter()
            .map(|of| {
                let mut partitions = of.partitions.clone();
                partitions.sort_unstable();
                let topic = match of.topic_name.as_str() {
                    "" => TopicId::from(of.topic_id).to_string().into(),
                    name => name.into(),
                };
                AssignedTopic { topic, partitions }
            })
            .collect();
        assignment.sort_by(|one, other| one.topic.cmp(&other.topic));
        Self {
            id: text(&member.member_id),
            client_id: text(&member.client_id),
            // Java writes addresses with a slash before them.
            client_host: text(member.client_host.trim_start_matches('/')),
            rack: member.rack_id.as_deref().map(text),
            epoch: member.member_epoch,
            topics,
            assignment,
        }
    }

    /// Enough to find it: its id, and who and where it is.
    #[must_use]
    pub fn name(&self) -> Box<str> {
        format!("`{}` of client `{}` at {}", self.id, self.client_id, self.client_host).into()
    }
}
