//! Brokers, topics, and who leads which partition.

use std::collections::BTreeMap;

use kafka_wire::{MetadataRequest, metadata_request};

use super::ShareGroupAdmin;
use super::calls::{Node, Patience, complained};
use super::error::{Operation, ReachError};
use crate::{BrokerAddress, BrokerId, Complaint};

/// The cluster as metadata has it.
#[derive(Debug)]
pub(super) struct Cluster {
    pub(super) nodes: Vec<Node>,
    pub(super) topics: BTreeMap<Box<str>, Result<Topic, Complaint>>,
}

/// A topic that is there.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Topic {
    /// By number; `None` for one without a leader.
    pub(super) leaders: BTreeMap<i32, Option<BrokerId>>,
    pub(super) rights: Rights,
}

/// What the client may do with something, as far as the broker tells.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Rights(i32);

impl Rights {
    /// What is said when nothing is said.
    const UNTOLD: i32 = i32::MIN;

    pub(super) const fn of(bits: i32) -> Self {
        Self(bits)
    }

    /// Whether the broker says that it may not.
    pub(super) const fn lacks(self, operation: Operation) -> bool {
        self.0 != Self::UNTOLD && self.0 & (1 << operation.bit()) == 0
    }
}

impl Operation {
    /// Kafka's number of it.
    const fn bit(self) -> u32 {
        match self {
            Self::Read => 3,
            Self::Delete => 6,
            Self::Describe => 8,
            Self::DescribeConfigs => 10,
            Self::AlterConfigs => 11,
        }
    }
}

impl Cluster {
    pub(super) fn node(&self, id: BrokerId) -> Option<&Node> {
        self.nodes.iter().find(|node| node.id == id)
    }
}

impl ShareGroupAdmin {
    /// The names of all topics that the client may see, without those that brokers keep for themselves, in order.
    ///
    /// # Errors
    /// No broker can be asked.
    pub async fn topics(&mut self) -> Result<Vec<Box<str>>, ReachError> {
        let mut request = MetadataRequest::default();
        request.topics = None;
        request.allow_auto_topic_creation = false;
        let patience = self.patience();
        let answer = self.ask_any(&request, &patience).await?;
        let seen = answer.topics.iter().filter(|topic| !topic.is_internal && topic.error_code == 0);
        let mut names: Vec<Box<str>> = seen.filter_map(|topic| Some(topic.name.as_deref()?.into())).collect();
        names.sort();
        Ok(names)
    }

    /// The cluster, and of its topics those that are named.
    pub(super) async fn cluster(
        &mut self,
        topics: impl IntoIterator<Item = &str>,
        patience: &Patience,
    ) -> Result<Cluster, ReachError> {
        let mut request = MetadataRequest::default();
        let named = topics.into_iter().map(|name| {
            let mut topic = metadata_request::MetadataRequestTopic::default();
            topic.name = Some(name.into());
            topic
        });
        request.topics = Some(named.collect());
        request.allow_auto_topic_creation = false;
        request.include_topic_authorized_operations = true;
        let answer = self.ask_any(&request, patience).await?;
        let nodes = answer.brokers.iter().map(|broker| Node {
            id: BrokerId(broker.node_id),
            address: BrokerAddress::advertised(&broker.host, broker.port),
        });
        let topics = answer.topics.iter().filter_map(|topic| {
            let name = topic.name.as_deref()?;
            let found = match complained(topic.error_code, None) {
                Some(complaint) => Err(complaint),
                None => Ok(Topic {
                    leaders: topic
                        .partitions
                        .iter()
                        .map(|of| (of.partition_index, (of.leader_id >= 0).then_some(BrokerId(of.leader_id))))
                        .collect(),
                    rights: Rights::of(topic.topic_authorized_operations),
                }),
            };
            Some((name.into(), found))
        });
        Ok(Cluster { nodes: nodes.collect(), topics: topics.collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_right_is_missing_only_when_the_broker_says_so() {
        assert!(!Rights::of(Rights::UNTOLD).lacks(Operation::Read));
        assert!(Rights::of(0).lacks(Operation::Read));
        assert!(!Rights::of(1 << 3).lacks(Operation::Read));
        assert!(Rights::of(1 << 3).lacks(Operation::Describe));
    }
}
