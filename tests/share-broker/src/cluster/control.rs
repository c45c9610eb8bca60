//! What tests do to a cluster: topics, records, groups' rules, faults, leaders, nodes.

use std::time::Duration;

use kafka_wire_core::Uuid;

use super::{Cluster, ConnectionId, ordered};
use crate::batch::{Batch, Record};
use crate::faults::Fault;
use crate::group::Group;
use crate::journal::Journal;
use crate::log::Log;
use crate::options::{Access, GroupOptions, Options};
use crate::session::{SessionKey, Sessions};
use crate::share::{ShareState, Tally};
use crate::topic::{Partition, Topic};

/// There is no such topic or partition.
#[derive(Debug, thiserror::Error)]
#[error("there is no partition {partition} of a topic {topic}")]
pub struct UnknownPartition {
    /// The topic's name.
    pub topic: String,
    /// The partition's number.
    pub partition: i32,
}

impl Cluster {
    /// How it was made.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The nodes that metadata names.
    pub fn nodes(&self) -> impl Iterator<Item = i32> {
        self.nodes.iter().filter(|(_, node)| node.listed).map(|(id, _)| *id)
    }

    /// Says where a node is reached.
    pub fn set_endpoint(&mut self, node: i32, host: &str, port: u16) {
        if let Some(node) = self.nodes.get_mut(&node) {
            host.clone_into(&mut node.host);
            node.port = port;
        }
    }

    /// Makes a topic, its partitions led by the nodes in turn. A topic of this name that exists is deleted first.
    pub fn create_topic(&mut self, name: &str, partitions: i32) -> Uuid {
        self.delete_topic(name);
        let mut id = [0; 16];
        id[..8].copy_from_slice(&self.random.next().to_be_bytes());
        id[8..].copy_from_slice(&self.random.next().to_be_bytes());
        let id = Uuid::from_bytes(id);
        let mut topic = Topic { id, partitions: Vec::new() };
        self.grow(&mut topic, partitions);
        self.topics.insert(name.to_owned(), topic);
        self.names.insert(id.to_bytes(), name.to_owned());
        id
    }

    /// Adds partitions to a topic, up to this number of them.
    pub fn grow_topic(&mut self, name: &str, partitions: i32) {
        if let Some(mut topic) = self.topics.remove(name) {
            self.grow(&mut topic, partitions);
            self.topics.insert(name.to_owned(), topic);
        }
    }

    fn grow(&self, topic: &mut Topic, partitions: i32) {
        let nodes: Vec<i32> = self.nodes().collect();
        for (_, leader) in (0..partitions).zip(nodes.iter().cycle()).skip(topic.partitions.len()) {
            topic.partitions.push(Partition { leader: *leader, leader_epoch: 0, log: Log::default() });
        }
    }

    /// Deletes a topic with all that groups know of it. Whether there was one.
    pub fn delete_topic(&mut self, name: &str) -> bool {
        let Some(topic) = self.topics.remove(name) else { return false };
        self.names.remove(topic.id.as_bytes());
        self.shares.retain(|(_, id, _), _| id != topic.id.as_bytes());
        for group in self.groups.values_mut() {
            group.forget_topic(topic.id);
        }
        true
    }

    /// A topic's id.
    #[must_use]
    pub fn topic_id(&self, name: &str) -> Option<Uuid> {
        self.topics.get(name).map(|topic| topic.id)
    }

    /// Writes records as one batch and gives the offset of the first. Fetches that wait for them are answered by the next
    /// [`Cluster::poll_answers`].
    ///
    /// # Errors
    /// There is no such partition.
    pub fn append(
        &mut self,
        topic: &str,
        partition: i32,
        records: impl IntoIterator<Item = Record>,
    ) -> Result<i64, UnknownPartition> {
        self.append_batches(topic, partition, [Batch::of(records)])
    }

    /// As [`Cluster::append`], batch by batch: sparse ones, markers, empty ones.
    ///
    /// # Errors
    /// There is no such partition.
    pub fn append_batches(
        &mut self,
        topic: &str,
        partition: i32,
        batches: impl IntoIterator<Item = Batch>,
    ) -> Result<i64, UnknownPartition> {
        self.write(topic, partition, |partition| partition.log.append(batches, partition.leader_epoch))
    }

    /// The same batch so many times. Its bytes are kept once, so millions of records cost next to nothing.
    ///
    /// # Errors
    /// There is no such partition.
    pub fn append_repeated(
        &mut self,
        topic: &str,
        partition: i32,
        batch: &Batch,
        times: usize,
    ) -> Result<i64, UnknownPartition> {
        self.write(topic, partition, |partition| {
            partition.log.append_repeated(batch, times, partition.leader_epoch)
        })
    }

    /// Batches as another encoder wrote them, whatever they hold; nothing of them if their lengths do not add up.
    ///
    /// # Errors
    /// There is no such partition.
    pub fn append_encoded(
        &mut self,
        topic: &str,
        partition: i32,
        bytes: &[u8],
    ) -> Result<Option<i64>, UnknownPartition> {
        self.write(topic, partition, |partition| partition.log.append_encoded(bytes))
    }

    fn write<T>(
        &mut self,
        topic: &str,
        number: i32,
        write: impl FnOnce(&mut Partition) -> T,
    ) -> Result<T, UnknownPartition> {
        let unknown = || UnknownPartition { topic: topic.to_owned(), partition: number };
        let found = self.topics.get_mut(topic).ok_or_else(unknown)?;
        let id = found.id;
        let written = write(found.partition_mut(number).ok_or_else(unknown)?);
        self.wake(None, (id, number));
        Ok(written)
    }

    /// Removes what lies below an offset, as retention does.
    pub fn trim(&mut self, topic: &str, partition: i32, offset: i64) {
        if let Some(partition) = self.topics.get_mut(topic).and_then(|topic| topic.partition_mut(partition)) {
            partition.log.trim(offset);
        }
    }

    /// One past the last offset of a partition.
    #[must_use]
    pub fn log_end(&self, topic: &str, partition: i32) -> Option<i64> {
        self.topics.get(topic)?.partition(partition).map(|partition| partition.log.end())
    }

    /// Gives a group rules of its own; they hold from now on.
    pub fn configure_group(&mut self, group: &str, options: GroupOptions) {
        self.configurations.insert(group.to_owned(), options);
        self.configured.insert(group.to_owned(), super::configurations::NAMES.into());
    }

    /// Says what clients may do with a topic.
    pub fn set_topic_access(&mut self, topic: &str, access: Access) {
        self.access.insert(topic.to_owned(), access);
    }

    /// Says whether clients may take part in a group.
    pub fn set_group_access(&mut self, group: &str, allowed: bool) {
        if allowed {
            self.denied_groups.remove(group);
        } else {
            self.denied_groups.insert(group.to_owned());
        }
    }

    /// Makes another node lead a partition; -1 for none. What is acquired is so no more, and the sessions at the old
    /// leader know nothing of it.
    pub fn move_leader(&mut self, topic: &str, number: i32, node: i32) {
        let Some(found) = self.topics.get_mut(topic) else { return };
        let id = found.id.to_bytes();
        let Some(partition) = found.partition_mut(number) else { return };
        if partition.leader == node {
            return;
        }
        partition.leader = node;
        partition.leader_epoch += 1;
        for (key, share) in &mut self.shares {
            if key.1 == id && key.2 == number {
                // Deliveries were remembered in three of seven real moves.
                share.partition.take_over(self.random.coin());
                share.node = None;
            }
        }
    }

    /// The node that leads a partition.
    #[must_use]
    pub fn leader(&self, topic: &str, partition: i32) -> Option<i32> {
        self.topics.get(topic)?.partition(partition).map(|partition| partition.leader)
    }

    /// Makes another node a group's coordinator. What it knows of the group it takes along.
    pub fn move_coordinator(&mut self, group: &str, node: i32) {
        self.coordinators.insert(group.to_owned(), node);
    }

    /// Ends a node: its connections are cut, and it takes no more. Metadata and leadership stay as they are, as for the
    /// first seconds after a crash.
    pub fn stop_node(&mut self, now: Duration, node: i32) {
        if let Some(node) = self.nodes.get_mut(&node) {
            node.up = false;
        }
        for connection in self.connections_of(node) {
            self.drop_connection(now, connection);
        }
        // What a node holds in memory, nobody gives back: sessions and locks are gone with it.
        if let Some(node) = self.nodes.get_mut(&node) {
            node.sessions = Sessions::default();
        }
    }

    /// Stops a node as SIGSTOP would: its connections stay open, new ones are taken, and nothing is answered.
    pub fn freeze_node(&mut self, node: i32) {
        if let Some(node) = self.nodes.get_mut(&node) {
            node.frozen = true;
        }
    }

    /// Lets a frozen node go on with what it was asked meanwhile.
    pub fn thaw_node(&mut self, now: Duration, node: i32) {
        if let Some(node) = self.nodes.get_mut(&node) {
            node.frozen = false;
        }
        for (connection, request) in std::mem::take(&mut self.unread) {
            // Those of other frozen nodes are put back by this.
            let answers = self.handle_request(now, connection, request);
            if !answers.is_empty() {
                self.delayed.push((now, connection, answers));
            }
        }
    }

    /// Whether a node is frozen.
    #[must_use]
    pub fn is_frozen(&self, node: i32) -> bool {
        self.nodes.get(&node).is_some_and(|node| node.frozen)
    }

    /// The cluster notices that a node is gone: the others lead and coordinate in its place, and it is named no more.
    pub fn fail_over(&mut self, node: i32) {
        if let Some(node) = self.nodes.get_mut(&node) {
            node.listed = false;
        }
        let Some(heir) = self.nodes().next() else { return };
        let led = self.topics.iter().flat_map(|(name, topic)| {
            let numbered = (0..).zip(&topic.partitions);
            numbered.filter(|(_, of)| of.leader == node).map(|(number, _)| (name.clone(), number))
        });
        for (topic, number) in led.collect::<Vec<(String, i32)>>() {
            self.move_leader(&topic, number, heir);
        }
        for coordinator in self.coordinators.values_mut().filter(|coordinator| **coordinator == node) {
            *coordinator = heir;
        }
    }

    /// A node takes connections again.
    pub fn start_node(&mut self, node: i32) {
        if let Some(node) = self.nodes.get_mut(&node) {
            node.up = true;
            node.listed = true;
        }
    }

    /// Whether a node takes connections.
    #[must_use]
    pub fn is_up(&self, node: i32) -> bool {
        self.nodes.get(&node).is_some_and(|node| node.up)
    }

    /// Cuts a connection; [`Cluster::poll_answers`] says so.
    pub fn drop_connection(&mut self, now: Duration, connection: ConnectionId) {
        self.disconnect(now, connection);
        self.delayed.push((now, connection, vec![super::Answer::Disconnect]));
    }

    /// The connections of a node.
    #[must_use]
    pub fn connections_of(&self, node: i32) -> Vec<ConnectionId> {
        self.connections.iter().filter(|(_, connection)| connection.node == node).map(|(id, _)| *id).collect()
    }

    /// Orders a fault.
    pub fn inject(&mut self, fault: Fault) {
        self.faults.add(fault);
    }

    /// Takes back all faults that have not happened.
    pub fn clear_faults(&mut self) {
        self.faults.clear();
    }

    /// How many faults have not happened.
    #[must_use]
    pub fn faults_pending(&self) -> u32 {
        self.faults.pending()
    }

    /// What was asked.
    #[must_use]
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// What was asked, to be cleared.
    pub fn journal_mut(&mut self) -> &mut Journal {
        &mut self.journal
    }

    /// Puts out the members of a group that have been silent for too long, as the next heartbeat or description would.
    pub fn expire_members(&mut self, now: Duration, name: &str) {
        let (options, bounds, known) = (self.group_options(name).clone(), self.bounds(), self.known());
        if let Some(group) = self.groups.get_mut(name) {
            group.advance(now, &options, bounds, &known);
        }
    }

    /// The members of a group now.
    #[must_use]
    pub fn members(&self, group: &str) -> Vec<String> {
        self.groups.get(group).map_or_else(Vec::new, |group| group.members.keys().cloned().collect())
    }

    /// The share sessions at a node: group and member.
    #[must_use]
    pub fn sessions(&self, node: i32) -> Vec<SessionKey> {
        let mut keys: Vec<SessionKey> =
            self.nodes.get(&node).map_or_else(Vec::new, |node| node.sessions.keys().cloned().collect());
        keys.sort();
        keys
    }

    /// The partitions in a member's share session at a node.
    #[must_use]
    pub fn session_partitions(&self, node: i32, group: &str, member: &str) -> Option<Vec<(Uuid, i32)>> {
        let session = self.nodes.get(&node)?.sessions.get(&(group.to_owned(), member.to_owned()))?;
        Some(session.partitions.clone())
    }

    /// Fetches that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.pending.len()
    }

    /// A partition as a group sees it; none before the first fetch.
    #[must_use]
    pub fn share_state(&self, group: &str, topic: &str, partition: i32) -> Option<ShareState> {
        let id = self.topic_id(topic)?;
        self.shares.get(&ordered(&(group.to_owned(), id, partition))).map(|share| share.partition.state())
    }

    /// What happened to a group's records so far, all partitions together.
    #[must_use]
    pub fn tally(&self, group: &str) -> Tally {
        let shares = self.shares.iter().filter(|((of, ..), _)| of == group);
        shares
            .map(|(_, share)| share.partition.state().tally)
            .fold(Tally::default(), |sum, tally| sum + tally)
    }

    pub(super) fn group_or_new(&mut self, name: &str) -> &mut Group {
        self.groups.entry(name.to_owned()).or_insert_with(Group::founded)
    }
}
