//! What is remembered of a message between two of its deliveries.
//!
//! The broker's count of hand-outs cannot be trusted on lite topics (measured on 5.5.0: 1, then 2 for ever, then 1
//! again after a takeover), so the book counts itself. Only messages whose last delivery ended other than accepted or
//! rejected, or was renewed, are in the table, so on the regular road it is empty and costs nothing.

use std::collections::HashMap;
use std::time::Duration;

use slab::Slab;
use tidegate_model::{Instant, MessageId};

use crate::event::RerunKind;
use crate::list::{Link, Linked, List};

/// What is remembered of one message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Record {
    /// When the first of its deliveries was received.
    pub(crate) first_received_at: Instant,
    /// Deliveries that had their turn and ended in a deferral, a release, a failed settlement or a lease that ran
    /// out. Those dropped because of an earlier one of their ordered key do not count: else the tail behind a blocked
    /// head would reach the attempt valve without ever having been decided.
    pub(crate) ended: u32,
    /// Deferrals in sum.
    pub(crate) deferred: Duration,
    /// By how much renewals have kept it from running out, in sum.
    pub(crate) kept: Duration,
    /// How the host had it when it was dropped for an earlier one's sake.
    pub(crate) rerun: Option<RerunKind>,
}

impl Record {
    /// Of a message whose first delivery was received at `first`, and that nothing has happened to yet.
    pub(crate) const fn new(first: Instant) -> Self {
        Self {
            first_received_at: first,
            ended: 0,
            deferred: Duration::ZERO,
            kept: Duration::ZERO,
            rerun: None,
        }
    }
}

/// A bounded table of records by message id. The oldest goes first; every change makes a record new.
#[derive(Debug)]
pub(crate) struct Attempts {
    max: usize,
    // Never iterated over, so that its unseeded hasher cannot influence what the book does.
    index: HashMap<MessageId, u32>,
    nodes: Nodes,
    by_age: List<ByAge>,
}

#[derive(Debug)]
enum ByAge {}

#[derive(Debug, Default)]
struct Nodes(Slab<Node>);

#[derive(Debug)]
struct Node {
    message: MessageId,
    record: Record,
    link: Link,
}

impl Attempts {
    pub(crate) fn new(max: usize) -> Self {
        Self { max, index: HashMap::new(), nodes: Nodes::default(), by_age: List::default() }
    }

    pub(crate) fn len(&self) -> usize {
        self.by_age.len()
    }

    pub(crate) fn get(&self, message: &MessageId) -> Option<Record> {
        if self.by_age.is_empty() {
            return None;
        }
        self.index.get(message).map(|at| self.nodes.0[*at as usize].record)
    }

    /// Changes the record of `message`, whose first delivery was received at `first`. It is made when there is none; the
    /// first delivery that one tells of stays.
    pub(crate) fn change(&mut self, message: &MessageId, first: Instant, change: impl FnOnce(&mut Record)) {
        if self.max == 0 {
            return;
        }
        let at = match self.index.get(message) {
            Some(at) => {
                self.by_age.remove(&mut self.nodes, *at);
                *at
            }
            None => self.make(message, first),
        };
        self.by_age.push_back(&mut self.nodes, at);
        change(&mut self.nodes.0[at as usize].record);
    }

    pub(crate) fn remove(&mut self, message: &MessageId) {
        if self.by_age.is_empty() {
            return;
        }
        if let Some(at) = self.index.remove(message) {
            self.by_age.remove(&mut self.nodes, at);
            self.nodes.0.remove(at as usize);
        }
    }

    fn make(&mut self, message: &MessageId, first: Instant) -> u32 {
        if self.by_age.len() >= self.max
            && let Some(oldest) = self.by_age.pop_front(&mut self.nodes)
        {
            let node = self.nodes.0.remove(oldest as usize);
            self.index.remove(&node.message);
        }
        let node = Node { message: message.clone(), record: Record::new(first), link: Link::UNLINKED };
        let at = self.nodes.0.insert(node) as u32;
        self.index.insert(message.clone(), at);
        at
    }
}

impl Linked<ByAge> for Nodes {
    fn link(&self, at: u32) -> Link {
        self.0[at as usize].link
    }
    fn link_mut(&mut self, at: u32) -> &mut Link {
        &mut self.0[at as usize].link
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_changed_longest_ago_goes_first() {
        let mut attempts = Attempts::new(2);
        let [a, b, c] = ["a", "b", "c"].map(MessageId::from);
        for (second, message) in [&a, &b, &a, &c].into_iter().enumerate() {
            let now = Instant::from_millis(second as u64 * 1_000);
            attempts.change(message, now, |record| record.ended += 1);
        }
        assert_eq!(attempts.len(), 2);
        assert_eq!(attempts.get(&a).map(|record| record.ended), Some(2));
        assert_eq!(attempts.get(&a).map(|record| record.first_received_at), Some(Instant::ZERO));
        assert_eq!(attempts.get(&b), None);
        attempts.remove(&a);
        attempts.remove(&b);
        assert_eq!(attempts.get(&a), None);
        assert_eq!(attempts.get(&c).map(|record| record.ended), Some(1));
    }

    #[test]
    fn a_table_of_none_remembers_nothing() {
        let mut attempts = Attempts::new(0);
        attempts.change(&MessageId::from("a"), Instant::ZERO, |record| record.ended += 1);
        assert_eq!(attempts.len(), 0);
    }
}
