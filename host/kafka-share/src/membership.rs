//! A member's place in its group: join, heartbeat, assignment, leave (KIP-932, ShareGroupHeartbeat).
//!
//! Sans-io: gives heartbeats that are due, takes their answers. It knows no connection and no coordinator; who sends its
//! heartbeats tells it when one could not be sent or was not answered.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kafka_wire::{ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse, share_group_heartbeat_response};
use tidegate_connector::Backoff;
use tidegate_model::Instant;

use crate::{Complaint, ErrorCode, TopicId, TopicPartition};

/// Epoch of a heartbeat that joins.
const JOINING: i32 = 0;
/// Epoch of a heartbeat that leaves.
const LEAVING: i32 = -1;
/// How soon after joining the next heartbeat is due while there is no assignment. Coordinators assign about a second after a
/// join (`share.assignment.interval.ms`), and only the next heartbeat learns of it: at the regular five seconds the first
/// record came after 5.0 to 5.7 s, at 50 ms after 1.0 s (measured on 4.3.1).
const EAGER_INTERVAL: Duration = Duration::from_millis(50);
/// For how long after joining heartbeats are that eager. An assignment that has not come by then, waits for something else,
/// such as a topic that is not there yet.
const EAGER_FOR: Duration = Duration::from_secs(4);
/// The interval until a coordinator has told its own.
const INTERVAL_DEFAULT: Duration = Duration::from_secs(5);
/// The first and the longest wait after a failure, and after being put out.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));
/// Who was put out and has been in again for so long starts with short waits again.
const SETTLED_AFTER: Duration = Duration::from_secs(10);
/// Bounds of the interval that a coordinator may tell.
const INTERVAL_BOUNDS: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(60));

/// A member's place in its group.
#[derive(Debug)]
pub(crate) struct Membership {
    group: Arc<str>,
    member_id: Arc<str>,
    rack: Option<Arc<str>>,
    topics: BTreeSet<Arc<str>>,
    place: Place,
    /// The whole of what the member wants goes with the next heartbeat.
    is_full_due: bool,
    is_in_flight: bool,
    interval: Duration,
    due_at: Instant,
    joined_at: Option<Instant>,
    assignment: BTreeSet<TopicPartition>,
    failures: Backoff,
    expulsions: Backoff,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Place {
    /// Not in the group, and not on the way.
    Outside,
    Joining,
    Member {
        epoch: i32,
    },
    Leaving,
    /// The coordinator refuses this member for good.
    Refused,
}

/// What a heartbeat's answer led to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Outcome {
    /// Nothing changed.
    Unchanged,
    /// From now on these partitions, and no others.
    Assigned(BTreeSet<TopicPartition>),
    /// The coordinator must be looked for again.
    CoordinatorUnknown,
    /// The group has put the member out; it joins again by itself. Nothing is assigned meanwhile.
    PutOut(ErrorCode),
    /// The member has left.
    Left,
    /// The coordinator complains, and the member goes on trying.
    Complaint(Complaint),
    /// The coordinator refuses the member for good.
    Refused(Complaint),
}

impl Membership {
    /// `member_id` has 1 to 36 characters and is the member's alone. `seed` is for waits only.
    pub(crate) fn new(group: Arc<str>, member_id: Arc<str>, rack: Option<Arc<str>>, seed: u64) -> Self {
        Self {
            group,
            member_id,
            // An empty rack is refused; none is right.
            rack: rack.filter(|rack| !rack.is_empty()),
            topics: BTreeSet::new(),
            place: Place::Outside,
            is_full_due: true,
            is_in_flight: false,
            interval: INTERVAL_DEFAULT,
            due_at: Instant::ZERO,
            joined_at: None,
            assignment: BTreeSet::new(),
            failures: Backoff::new(BACKOFF.0, BACKOFF.1, seed),
            expulsions: Backoff::new(BACKOFF.0, BACKOFF.1, seed.rotate_left(32)),
        }
    }

    /// What the member wants from now on. With no topic it leaves.
    pub(crate) fn subscribe(&mut self, now: Instant, topics: BTreeSet<Arc<str>>) {
        if topics.is_empty() {
            return self.leave(now);
        }
        if topics == self.topics || self.place == Place::Refused {
            return;
        }
        self.topics = topics;
        self.is_full_due = true;
        self.due_at = now;
        if self.place == Place::Outside {
            self.join();
        }
    }

    /// Takes leave: the group gives the partitions to others at once instead of after the session timeout.
    pub(crate) fn leave(&mut self, now: Instant) {
        self.topics.clear();
        self.assignment.clear();
        self.due_at = now;
        self.place = match self.place {
            // A join that is under way may succeed.
            Place::Joining if !self.is_in_flight => Place::Outside,
            Place::Joining | Place::Member { .. } => Place::Leaving,
            place => place,
        };
    }

    /// Whether the group has the member.
    pub(crate) const fn is_member(&self) -> bool {
        matches!(self.place, Place::Member { .. })
    }

    /// Whether there is nothing more to send until somebody subscribes.
    pub(crate) const fn is_outside(&self) -> bool {
        matches!(self.place, Place::Outside | Place::Refused)
    }

    pub(crate) const fn assignment(&self) -> &BTreeSet<TopicPartition> {
        &self.assignment
    }

    /// When a heartbeat is due next; `None` while one is under way or none is wanted.
    pub(crate) fn due_at(&self) -> Option<Instant> {
        (!self.is_in_flight && !self.is_outside()).then_some(self.due_at)
    }

    /// A topic was made that may be wanted: an assignment may be near.
    pub(crate) fn handle_topics_changed(&mut self, now: Instant) {
        if self.is_member() && self.assignment.is_empty() {
            self.joined_at = Some(now);
            self.due_at = now;
        }
    }

    /// The heartbeat that is due, if any. It is owed [`Self::handle_response`] or [`Self::handle_failure`].
    pub(crate) fn poll(&mut self, now: Instant) -> Option<ShareGroupHeartbeatRequest> {
        if self.due_at().is_none_or(|due_at| due_at > now) {
            return None;
        }
        let mut request = ShareGroupHeartbeatRequest::default();
        request.group_id = (&*self.group).into();
        request.member_id = (&*self.member_id).into();
        request.member_epoch = match self.place {
            Place::Joining => JOINING,
            Place::Member { epoch } => epoch,
            Place::Leaving => LEAVING,
            Place::Outside | Place::Refused => return None,
        };
        if self.is_full_due && self.place != Place::Leaving {
            request.rack_id = self.rack.as_deref().map(Into::into);
            request.subscribed_topic_names =
                Some(self.topics.iter().map(|topic| (&**topic).into()).collect());
            self.is_full_due = false;
        }
        self.is_in_flight = true;
        Some(request)
    }

    /// The answer to the heartbeat under way.
    pub(crate) fn handle_response(
        &mut self,
        now: Instant,
        response: &ShareGroupHeartbeatResponse,
    ) -> Outcome {
        self.is_in_flight = false;
        let code = ErrorCode(response.error_code);
        if !code.is_ok() {
            return self.handle_error(now, code, response.error_message.as_deref());
        }
        self.failures.reset();
        if let Ok(millis) = u64::try_from(response.heartbeat_interval_ms)
            && millis > 0
        {
            self.interval = Duration::from_millis(millis).clamp(INTERVAL_BOUNDS.0, INTERVAL_BOUNDS.1);
        }
        match self.place {
            Place::Leaving if response.member_epoch == LEAVING => return self.left(now),
            // It joined after all while leaving: the leave goes out now.
            Place::Leaving => {
                self.due_at = now;
                return Outcome::Unchanged;
            }
            Place::Joining | Place::Member { .. } => {}
            Place::Outside | Place::Refused => return Outcome::Unchanged,
        }
        let joined_at = *self.joined_at.get_or_insert(now);
        if now.saturating_since(joined_at) > SETTLED_AFTER {
            self.expulsions.reset();
        }
        self.place = Place::Member { epoch: response.member_epoch };
        let throttle = Duration::from_millis(u64::try_from(response.throttle_time_ms).unwrap_or(0));
        let assigned = response.assignment.as_ref().map(partitions);
        let outcome = match assigned {
            Some(assigned) if assigned != self.assignment => {
                self.assignment.clone_from(&assigned);
                Outcome::Assigned(assigned)
            }
            _ => Outcome::Unchanged,
        };
        // An assignment is answered at once, which tells the coordinator that it is in force; so is told what was subscribed
        // to while this heartbeat was under way.
        let is_urgent = self.is_full_due || outcome != Outcome::Unchanged;
        let wait = if is_urgent { Duration::ZERO } else { self.pace(now) };
        self.due_at = now + wait.max(throttle);
        outcome
    }

    /// The heartbeat under way could not be sent, or had no answer.
    pub(crate) fn handle_failure(&mut self, now: Instant) -> Outcome {
        self.is_in_flight = false;
        self.is_full_due = true;
        if self.place == Place::Leaving {
            // Nobody to say goodbye to: the session timeout does it.
            return self.left(now);
        }
        self.due_at = now + self.failures.next_wait();
        Outcome::CoordinatorUnknown
    }

    fn handle_error(&mut self, now: Instant, code: ErrorCode, message: Option<&str>) -> Outcome {
        self.is_full_due = true;
        let complaint = Complaint::new(code, message);
        if self.place == Place::Leaving {
            return match code {
                ErrorCode::NOT_COORDINATOR
                | ErrorCode::COORDINATOR_NOT_AVAILABLE
                | ErrorCode::COORDINATOR_LOAD_IN_PROGRESS => {
                    self.due_at = now + self.failures.next_wait();
                    Outcome::CoordinatorUnknown
                }
                // Not known there any more: that is what leaving is for.
                _ => self.left(now),
            };
        }
        match code {
            ErrorCode::NOT_COORDINATOR | ErrorCode::COORDINATOR_NOT_AVAILABLE => {
                self.due_at = now + self.failures.next_wait();
                Outcome::CoordinatorUnknown
            }
            ErrorCode::UNKNOWN_MEMBER_ID | ErrorCode::FENCED_MEMBER_EPOCH | ErrorCode::GROUP_ID_NOT_FOUND => {
                self.join();
                self.assignment.clear();
                // At once the first time; who is put out again and again does not join in a loop.
                let is_first = self.expulsions.failures() == 0;
                let wait = self.expulsions.next_wait();
                self.due_at = if is_first { now } else { now + wait };
                Outcome::PutOut(code)
            }
            ErrorCode::INVALID_REQUEST | ErrorCode::INVALID_GROUP_ID => {
                self.place = Place::Refused;
                self.assignment.clear();
                Outcome::Refused(complaint)
            }
            // Rights come and go, groups become smaller, coordinators recover: the member stays and tries again.
            _ => {
                self.due_at = now + self.failures.next_wait();
                Outcome::Complaint(complaint)
            }
        }
    }

    const fn join(&mut self) {
        self.place = Place::Joining;
        self.joined_at = None;
        self.is_full_due = true;
    }

    fn left(&mut self, now: Instant) -> Outcome {
        self.place = Place::Outside;
        if !self.topics.is_empty() {
            // Somebody subscribed again while it was leaving.
            self.join();
            self.due_at = now;
        }
        Outcome::Left
    }

    /// The time until the next heartbeat when nothing happened.
    fn pace(&self, now: Instant) -> Duration {
        let is_eager = self.assignment.is_empty()
            && self.joined_at.is_some_and(|joined_at| now.saturating_since(joined_at) < EAGER_FOR);
        if is_eager { EAGER_INTERVAL.min(self.interval) } else { self.interval }
    }
}

fn partitions(assignment: &share_group_heartbeat_response::Assignment) -> BTreeSet<TopicPartition> {
    let topics = assignment.topic_partitions.iter();
    topics
        .flat_map(|topic| {
            let id = TopicId::from(topic.topic_id);
            topic.partitions.iter().map(move |partition| TopicPartition { topic: id, partition: *partition })
        })
        .collect()
}

#[cfg(test)]
mod tests;
