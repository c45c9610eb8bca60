//! Groups, to be listed and to be forgotten.

use std::time::Duration;

use kafka_wire::{
    DeleteGroupsRequest, DeleteGroupsResponse, ListGroupsRequest, ListGroupsResponse, delete_groups_response,
    list_groups_response,
};
use kafka_wire_core::StrBytes;

use super::Cluster;
use crate::error_code::NONE;
use crate::wire::message;

/// The type of all groups here, as the protocol writes it.
const SHARE: &str = "share";

impl Cluster {
    /// The groups that this node coordinates and the client may see.
    pub(super) fn list_groups(
        &mut self,
        now: Duration,
        node: i32,
        body: &ListGroupsRequest,
    ) -> ListGroupsResponse {
        let is_wanted = |filter: &[StrBytes], what: &str| {
            filter.is_empty() || filter.iter().any(|one| one.eq_ignore_ascii_case(what))
        };
        let mut groups = Vec::new();
        for id in self.groups.keys().cloned().collect::<Vec<String>>() {
            if self.denied_groups.contains(&id) || self.coordinator(&id) != node {
                continue;
            }
            let state = self.state_of(now, &id);
            if is_wanted(&body.types_filter, SHARE) && is_wanted(&body.states_filter, state) {
                groups.push(message!(list_groups_response::ListedGroup {
                    group_id: StrBytes::from(id.as_str()),
                    protocol_type: StrBytes::from(SHARE),
                    group_state: StrBytes::from(state),
                    group_type: StrBytes::from(SHARE),
                }));
            }
        }
        message!(ListGroupsResponse { groups: groups })
    }

    /// Forgets groups without members, with where they stood.
    pub(super) fn delete_groups(
        &mut self,
        now: Duration,
        node: i32,
        body: &DeleteGroupsRequest,
    ) -> DeleteGroupsResponse {
        let mut results = Vec::new();
        for id in &body.groups_names {
            self.state_of(now, id);
            let error_code = self.refuse_change(node, id);
            if error_code == NONE {
                self.groups.remove(id.as_str());
                self.shares.retain(|(of, ..), _| of != id.as_str());
            }
            results.push(message!(delete_groups_response::DeletableGroupResult {
                group_id: id.clone(),
                error_code: error_code,
            }));
        }
        message!(DeleteGroupsResponse { results: results })
    }

    /// A group's state, once silent members are put out.
    fn state_of(&mut self, now: Duration, id: &str) -> &'static str {
        let (options, bounds, known) = (self.group_options(id).clone(), self.bounds(), self.known());
        let Some(group) = self.groups.get_mut(id) else { return "Dead" };
        group.advance(now, &options, bounds, &known);
        group.state()
    }
}
