//! Which share groups there are.

use kafka_wire::ListGroupsRequest;

use super::ShareGroupAdmin;
use super::calls::complained;
use super::error::ListError;
use crate::{BrokerId, ErrorCode};

/// Kafka's word for the type.
const SHARE: &str = "share";

/// A share group, as far as a list tells.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct ListedGroup {
    /// Its id.
    pub id: Box<str>,
    /// Kafka's word for its state: `Empty`, `Stable`.
    pub state: Box<str>,
    /// Its coordinator.
    pub coordinator: BrokerId,
}

impl ShareGroupAdmin {
    /// The share groups that the client may see (Describe to each, or to the cluster), in the order of their ids.
    ///
    /// # Errors
    /// When one broker cannot be asked: a list with a part missing would be taken for the whole.
    pub async fn list(&mut self) -> Result<Vec<ListedGroup>, ListError> {
        let mut patience = self.patience();
        let cluster = self.cluster([], &patience).await.map_err(ListError::Reach)?;
        let mut request = ListGroupsRequest::default();
        request.types_filter = vec![SHARE.into()];
        let mut groups = Vec::new();
        for node in &cluster.nodes {
            let answer = loop {
                let answer = match self.ask(node, &request, &patience).await {
                    Err(error) if error.is_retriable() => Err(error.to_string()),
                    Err(error) => return Err(ListError::Reach(error)),
                    Ok(answer) => match complained(answer.error_code, None) {
                        None => Ok(answer),
                        Some(complaint) if complaint.code == ErrorCode::COORDINATOR_LOAD_IN_PROGRESS => {
                            Err(complaint.to_string())
                        }
                        // A broker that is no coordinator of anything yet.
                        Some(complaint) if complaint.code == ErrorCode::COORDINATOR_NOT_AVAILABLE => {
                            let mut none = answer;
                            none.groups.clear();
                            Ok(none)
                        }
                        Some(complaint) => return Err(ListError::Refused { broker: node.id, complaint }),
                    },
                };
                match answer {
                    Ok(answer) => break answer,
                    Err(obstacle) => patience.pause(obstacle).await.map_err(ListError::Reach)?,
                }
            };
            groups.extend(answer.groups.iter().map(|group| ListedGroup {
                id: group.group_id.as_str().into(),
                state: group.group_state.as_str().into(),
                coordinator: node.id,
            }));
        }
        groups.sort();
        Ok(groups)
    }
}
