//! The topics and groups that exist.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::options::{Group, Topic};

/// What an administrator made. The stores hold topics too; the catalog holds their kinds and the groups.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    topics: RwLock<HashMap<Arc<str>, Arc<Topic>>>,
    groups: RwLock<HashMap<Arc<str>, Arc<Group>>>,
}

impl Catalog {
    /// Makes a topic, unless there is one of that name: a topic's kind cannot be changed.
    pub(crate) fn create_topic(&self, topic: Topic) {
        self.topics.write().entry(Arc::clone(&topic.name)).or_insert_with(|| Arc::new(topic));
    }

    /// Makes a group or replaces the one of that name.
    pub(crate) fn create_group(&self, group: Group) {
        self.groups.write().insert(Arc::clone(&group.name), Arc::new(group));
    }

    pub(crate) fn topic(&self, name: &str) -> Option<Arc<Topic>> {
        self.topics.read().get(name).cloned()
    }

    pub(crate) fn group(&self, name: &str) -> Option<Arc<Group>> {
        self.groups.read().get(name).cloned()
    }

    /// The group, made as a regular one if there is none: what the server does for simple consumers.
    pub(crate) fn group_or_new(&self, name: &str) -> Arc<Group> {
        if let Some(group) = self.group(name) {
            return group;
        }
        let mut groups = self.groups.write();
        Arc::clone(groups.entry(Arc::from(name)).or_insert_with(|| Arc::new(Group::regular(name))))
    }
}
