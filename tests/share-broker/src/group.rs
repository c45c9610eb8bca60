//! A share group at its coordinator: who is in it, and who has which partitions.

mod assignor;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kafka_wire_core::{StrBytes, Uuid};

use crate::error_code::{FENCED_MEMBER_EPOCH, GROUP_MAX_SIZE_REACHED, INVALID_REQUEST, UNKNOWN_MEMBER_ID};
use crate::options::GroupOptions;

/// The longest member id.
pub(crate) const MEMBER_ID_MAX: usize = 36;

/// Partitions by topic.
pub(crate) type Assignment = BTreeMap<[u8; 16], Vec<i32>>;

/// Topics that exist: id and number of partitions, by name.
pub(crate) type Known = BTreeMap<String, (Uuid, i32)>;

#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) epoch: i32,
    previous_epoch: i32,
    pub(crate) rack: Option<StrBytes>,
    pub(crate) client: Option<StrBytes>,
    pub(crate) topics: BTreeSet<String>,
    /// What it was told.
    pub(crate) assignment: Assignment,
    seen: Duration,
}

#[derive(Debug, Default)]
pub(crate) struct Group {
    pub(crate) epoch: i32,
    pub(crate) assignment_epoch: i32,
    assigned_at: Option<Duration>,
    pub(crate) members: BTreeMap<String, Member>,
    target: BTreeMap<String, Assignment>,
    /// Topics the group has share state for: since when, and for how many partitions at first.
    initialized: BTreeMap<[u8; 16], (Duration, i32)>,
    /// What there is to be assigned.
    assignable: Known,
}

/// A sign of life.
#[derive(Debug)]
pub(crate) struct Beat<'a> {
    pub(crate) member: &'a str,
    pub(crate) epoch: i32,
    pub(crate) rack: Option<StrBytes>,
    pub(crate) client: Option<StrBytes>,
    pub(crate) topics: Option<Vec<String>>,
}

/// What a member is told.
#[derive(Debug, PartialEq)]
pub(crate) struct Told {
    pub(crate) epoch: i32,
    pub(crate) assignment: Option<Assignment>,
}

/// A code and what it is about.
pub(crate) type Refused = (i16, Option<&'static str>);

/// The parts of a cluster's make that a group needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) size_max: usize,
    pub(crate) initialize_delay: Duration,
}

impl Group {
    pub(crate) fn founded() -> Self {
        // A group begins at 1, so that the first member learns epoch 2, as measured.
        Self { epoch: 1, assignment_epoch: 1, ..Self::default() }
    }

    /// Whether the group's share state of a topic was made.
    pub(crate) fn is_initialized(&self, topic: Uuid, now: Duration) -> bool {
        self.initialized.get(topic.as_bytes()).is_some_and(|(since, _)| *since <= now)
    }

    /// Whether a partition came after the group knew the topic. Such are read from their start, whatever the group says.
    pub(crate) fn was_added(&self, topic: Uuid, partition: i32) -> bool {
        self.initialized.get(topic.as_bytes()).is_some_and(|(_, at_first)| partition >= *at_first)
    }

    pub(crate) fn forget_topic(&mut self, topic: Uuid) {
        self.initialized.remove(topic.as_bytes());
    }

    pub(crate) fn state(&self) -> &'static str {
        if self.members.is_empty() { "Empty" } else { "Stable" }
    }

    /// Puts out silent members and looks at the topics anew.
    pub(crate) fn advance(&mut self, now: Duration, options: &GroupOptions, bounds: Bounds, known: &Known) {
        let before = self.members.len();
        self.members.retain(|_, member| member.seen + options.session_timeout > now);
        if self.members.len() < before {
            self.epoch += 1;
        }
        let mut assignable = Known::new();
        for (name, (id, partitions)) in known {
            if self.members.values().any(|member| member.topics.contains(name)) {
                let since = (now + bounds.initialize_delay, *partitions);
                self.initialized.entry(id.to_bytes()).or_insert(since);
                if self.is_initialized(*id, now) {
                    assignable.insert(name.clone(), (*id, *partitions));
                }
            }
        }
        if assignable != self.assignable {
            self.epoch += 1;
            self.assignable = assignable;
        }
        let due = self.assigned_at.is_none_or(|at| at + options.assignment_interval <= now);
        if self.assignment_epoch < self.epoch && due {
            self.assign(now);
        }
    }

    fn assign(&mut self, now: Duration) {
        self.target.clear();
        for (name, (id, partitions)) in &self.assignable {
            let members: Vec<&str> = self
                .members
                .iter()
                .filter(|(_, member)| member.topics.contains(name))
                .map(|(member, _)| member.as_str())
                .collect();
            for (member, partition) in assignor::assign(&members, *partitions) {
                let target = self.target.entry(member.to_owned()).or_default();
                target.entry(id.to_bytes()).or_default().push(partition);
            }
        }
        self.assigned_at = Some(now);
        self.assignment_epoch = self.epoch;
    }

    pub(crate) fn heartbeat(
        &mut self,
        beat: Beat<'_>,
        now: Duration,
        options: &GroupOptions,
        bounds: Bounds,
        known: &Known,
    ) -> Result<Told, Refused> {
        self.advance(now, options, bounds, known);
        if beat.epoch == -1 {
            self.members.remove(beat.member).ok_or((UNKNOWN_MEMBER_ID, None))?;
            self.epoch += 1;
            self.advance(now, options, bounds, known);
            return Ok(Told { epoch: -1, assignment: None });
        }
        let full = beat.epoch == 0 || beat.topics.is_some();
        if beat.epoch == 0 {
            self.join(&beat, now, bounds)?;
        } else {
            let member = self.members.get_mut(beat.member).ok_or((UNKNOWN_MEMBER_ID, None))?;
            if beat.epoch != member.epoch && beat.epoch != member.previous_epoch {
                return Err((FENCED_MEMBER_EPOCH, Some("The member's epoch is not the group's.")));
            }
            member.seen = now;
        }
        if let Some(topics) = beat.topics
            && let Some(member) = self.members.get_mut(beat.member)
        {
            let topics: BTreeSet<String> = topics.into_iter().collect();
            if member.topics != topics {
                member.topics = topics;
                if beat.epoch != 0 {
                    self.epoch += 1;
                }
            }
        }
        self.advance(now, options, bounds, known);
        let target = self.target.get(beat.member).cloned().unwrap_or_default();
        let epoch = self.assignment_epoch;
        let member = self.members.get_mut(beat.member).ok_or((UNKNOWN_MEMBER_ID, None))?;
        if member.epoch != epoch {
            member.previous_epoch = member.epoch;
            member.epoch = epoch;
        }
        let changed = member.assignment != target;
        member.assignment = target;
        Ok(Told { epoch, assignment: (full || changed).then(|| member.assignment.clone()) })
    }

    fn join(&mut self, beat: &Beat<'_>, now: Duration, bounds: Bounds) -> Result<(), Refused> {
        if beat.topics.as_ref().is_none_or(Vec::is_empty) {
            return Err((INVALID_REQUEST, Some("SubscribedTopicNames must be set in first request.")));
        }
        if let Some(member) = self.members.get_mut(beat.member) {
            member.seen = now;
            return Ok(());
        }
        if self.members.len() >= bounds.size_max {
            return Err((GROUP_MAX_SIZE_REACHED, Some("The share group has reached its maximum capacity.")));
        }
        self.epoch += 1;
        let member = Member {
            epoch: 0,
            previous_epoch: 0,
            rack: beat.rack.clone(),
            client: beat.client.clone(),
            topics: BTreeSet::new(),
            assignment: Assignment::new(),
            seen: now,
        };
        self.members.insert(beat.member.to_owned(), member);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
