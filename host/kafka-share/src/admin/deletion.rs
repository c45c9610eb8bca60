//! Deleting a group, or where it stands in topics.

use kafka_wire::{
    DeleteGroupsRequest, DeleteShareGroupOffsetsRequest, DeleteShareGroupOffsetsResponse,
    delete_share_group_offsets_request as request,
};

use super::ShareGroupAdmin;
use super::calls::{Trouble, complained, only};
use super::error::{DeleteGroupError, DeleteOffsetsError, MissingRight, Operation};
use crate::{Complaint, ErrorCode};

impl ShareGroupAdmin {
    /// Deletes a group with all that it knows. Takes the right Delete to the group, and that nobody is in it.
    ///
    /// # Errors
    /// When the broker refuses.
    pub async fn delete(&mut self, group: &str) -> Result<(), DeleteGroupError> {
        let mut patience = self.patience();
        let mut request = DeleteGroupsRequest::default();
        request.groups_names = vec![group.into()];
        let deleted = self
            .ask_coordinator(group, &request, &mut patience, |answer| {
                let result = only(answer.results)?;
                match complained(result.error_code, result.error_message.as_deref()) {
                    Some(complaint) => Err(complaint),
                    None => Ok(()),
                }
            })
            .await;
        let Err(trouble) = deleted else { return Ok(()) };
        let (complaint, is_repeat) = match DeleteGroupError::common(group, trouble) {
            Ok(error) => return Err(error),
            Err(own) => own,
        };
        let name = group.into();
        match complaint.code {
            // An earlier try, whose answer was lost, has done it.
            ErrorCode::GROUP_ID_NOT_FOUND if is_repeat => Ok(()),
            ErrorCode::GROUP_ID_NOT_FOUND => Err(DeleteGroupError::NotFound { group: name, complaint }),
            ErrorCode::NON_EMPTY_GROUP => {
                let members = self.member_names(group, &mut patience).await;
                Err(DeleteGroupError::NotEmpty { group: name, members })
            }
            _ => Err(DeleteGroupError::Refused { group: name, complaint }),
        }
    }

    /// Makes a group forget topics: it begins there anew, as its reset policy says. Takes the rights Delete to the group and
    /// Read to the topics, and that nobody is in the group.
    ///
    /// # Errors
    /// When the broker refuses.
    pub async fn delete_offsets(
        &mut self,
        group: &str,
        topics: &[Box<str>],
    ) -> Result<(), DeleteOffsetsError> {
        let mut patience = self.patience();
        let mut request = DeleteShareGroupOffsetsRequest::default();
        request.group_id = group.into();
        request.topics = topics
            .iter()
            .map(|name| {
                let mut topic = request::DeleteShareGroupOffsetsRequestTopic::default();
                topic.topic_name = (&**name).into();
                topic
            })
            .collect();
        let refused = match self.ask_coordinator(group, &request, &mut patience, |answer| read(&answer)).await
        {
            Ok(refused) => refused,
            Err(Trouble::Said { complaint, .. }) if complaint.code == ErrorCode::NON_EMPTY_GROUP => {
                let members = self.member_names(group, &mut patience).await;
                return Err(DeleteOffsetsError::NotEmpty { group: group.into(), members });
            }
            Err(trouble) => {
                return Err(DeleteOffsetsError::common(group, trouble).unwrap_or_else(|(complaint, _)| {
                    let group = group.into();
                    match complaint.code {
                        ErrorCode::GROUP_ID_NOT_FOUND => DeleteOffsetsError::NotFound { group, complaint },
                        _ => DeleteOffsetsError::Refused { group, complaint },
                    }
                }));
            }
        };
        let Some((topic, complaint)) = refused else { return Ok(()) };
        let group = group.into();
        Err(match complaint.code {
            ErrorCode::TOPIC_AUTHORIZATION_FAILED => {
                DeleteOffsetsError::Denied { group, right: MissingRight::on_topic(Operation::Read, &topic) }
            }
            _ => DeleteOffsetsError::Topic { group, topic, complaint },
        })
    }
}

/// The first complaint about a topic.
fn read(answer: &DeleteShareGroupOffsetsResponse) -> Result<Option<(Box<str>, Complaint)>, Complaint> {
    if let Some(complaint) = complained(answer.error_code, answer.error_message.as_deref()) {
        return Err(complaint);
    }
    let refused = answer.responses.iter().find_map(|topic| {
        let complaint = complained(topic.error_code, topic.error_message.as_deref())?;
        Some((Box::from(topic.topic_name.as_str()), complaint))
    });
    Ok(refused)
}
