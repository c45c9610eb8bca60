//! A member's share session with one broker (KIP-932): which partitions it fetches there, what it holds, what it says.
//!
//! Sans-io. A broker takes one request of a session at a time and counts them, fetches and acknowledgements alike: 0 opens,
//! then 1, 2, 3, …, -1 closes. What it was not told when the connection breaks, it gives to others.

mod answer;
mod epoch;
mod request;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kafka_wire::{ShareAcknowledgeRequest, ShareFetchRequest};
use tidegate_connector::Backoff;
use tidegate_model::Instant;

pub(crate) use self::answer::{Acquired, Effects, LeaderHint, NodeAddress};
use self::epoch::Epoch;
use crate::acks::{Acknowledgement, Acks, Told};
use crate::{AcknowledgeError, FetchSettings, TopicPartition};

/// The first and the longest wait after a session that failed.
const FAILURE_BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));
/// The same after answers that came at once with nothing in them.
const FRUITLESS_BACKOFF: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));
/// How long after records came acknowledgements wait for the fetch that takes them along. Whoever got the records asks for more
/// within a fraction of it, and acknowledgements that go alone cost that fetch a round trip: half of all requests went for them
/// (measured on 4.3.1, with 2,000 records a fetch).
const CARRIED_WITHIN: Duration = Duration::from_millis(2);
/// How long a partition is left alone that the broker has an error for: metadata may know better by then.
const SUSPENSION: Duration = Duration::from_secs(1);

/// One broker's share session.
#[derive(Debug)]
pub(crate) struct Session {
    identity: Identity,
    settings: Arc<FetchSettings>,
    epoch: Epoch,
    /// What shall be fetched here.
    assigned: BTreeSet<TopicPartition>,
    /// Of these, what the broker had an error for, and until when it is left alone.
    suspended: BTreeMap<TopicPartition, Instant>,
    /// What the broker's session has.
    listed: BTreeSet<TopicPartition>,
    acks: BTreeMap<TopicPartition, Acks>,
    in_flight: Option<InFlight>,
    is_closing: bool,
    not_before: Instant,
    failures: Backoff,
    fruitless: Backoff,
    /// Whether the last fetch brought records: then acknowledgements travel with the next one, which comes back at once.
    is_flowing: bool,
    /// Until when acknowledgements wait for the next fetch.
    carried_until: Instant,
    /// Bytes that a record takes on the wire, as seen.
    record_bytes: f64,
    /// How long the group's locks are; zero until it is known.
    lock: Duration,
}

/// Who speaks.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) group: Arc<str>,
    pub(crate) member_id: Arc<str>,
}

/// How much a fetch may bring.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Allowance {
    pub(crate) records: usize,
    pub(crate) bytes: usize,
}

/// What a session sends.
#[derive(Clone, Debug)]
pub(crate) enum SessionRequest {
    Fetch(ShareFetchRequest),
    Acknowledge(ShareAcknowledgeRequest),
}

#[derive(Debug)]
struct InFlight {
    kind: Kind,
    asked_at: Instant,
    /// Partitions that something is said about.
    told: Vec<TopicPartition>,
    /// What the broker's session has once it has taken the request.
    listed: BTreeSet<TopicPartition>,
    max_wait: Duration,
    /// The most records that it may bring, as asked for.
    records: usize,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Fetch,
    Acknowledge,
    Close,
}

impl Session {
    /// `seed` is for waits only.
    pub(crate) fn new(identity: Identity, settings: Arc<FetchSettings>, seed: u64) -> Self {
        Self {
            identity,
            settings,
            epoch: Epoch::default(),
            assigned: BTreeSet::new(),
            suspended: BTreeMap::new(),
            listed: BTreeSet::new(),
            acks: BTreeMap::new(),
            in_flight: None,
            is_closing: false,
            not_before: Instant::ZERO,
            failures: Backoff::new(FAILURE_BACKOFF.0, FAILURE_BACKOFF.1, seed),
            fruitless: Backoff::new(FRUITLESS_BACKOFF.0, FRUITLESS_BACKOFF.1, seed.rotate_left(32)),
            is_flowing: false,
            carried_until: Instant::ZERO,
            record_bytes: 0.0,
            lock: Duration::ZERO,
        }
    }

    /// From now on these partitions are fetched here, and no others. What is held of others can still be acknowledged.
    pub(crate) fn assign(&mut self, partitions: BTreeSet<TopicPartition>) {
        if !self.is_closing {
            self.suspended.retain(|partition, _| partitions.contains(partition));
            self.assigned = partitions;
        }
    }

    /// The partition is led here for certain: an error that said otherwise is over.
    pub(crate) fn resume(&mut self, partition: TopicPartition) {
        self.suspended.remove(&partition);
    }

    /// Takes in what is to be said about held records.
    pub(crate) fn acknowledge(
        &mut self,
        partition: TopicPartition,
        ack: Acknowledgement,
        told: &mut Vec<Told>,
    ) {
        match self.acks.get_mut(&partition) {
            Some(acks) => acks.acknowledge(ack, told),
            None => told.push(Told {
                token: ack.token,
                first: ack.first,
                last: ack.last,
                kind: ack.kind,
                result: Err(AcknowledgeError::LeaseEnded),
            }),
        }
    }

    /// From now on nothing is fetched; what is waiting is said, and the rest given back.
    pub(crate) fn close(&mut self) {
        self.is_closing = true;
        self.assigned.clear();
    }

    /// Partitions that are fetched here and that the broker has nothing against.
    pub(crate) fn served(&self) -> impl Iterator<Item = &TopicPartition> {
        self.assigned.iter().filter(|partition| !self.suspended.contains_key(partition))
    }

    /// While closing: lets go of what cannot be said any more, since there is no session to say it in.
    pub(crate) fn give_up(&mut self) -> Vec<(TopicPartition, Told)> {
        let mut effects = Effects::default();
        if self.is_closing && !self.is_busy() && !self.epoch.is_open() {
            self.end(&AcknowledgeError::Closed, &mut effects);
        }
        effects.told
    }

    /// Records held.
    pub(crate) fn held(&self) -> usize {
        self.acks.values().map(Acks::held).sum()
    }

    /// Records that the fetch under way may bring.
    pub(crate) fn expected(&self) -> usize {
        self.in_flight.as_ref().map_or(0, |in_flight| in_flight.records)
    }

    /// Whether a request is under way.
    pub(crate) const fn is_busy(&self) -> bool {
        self.in_flight.is_some()
    }

    /// Whether a fetch could be sent now if there were an allowance.
    pub(crate) fn is_hungry(&self, now: Instant) -> bool {
        !self.is_busy() && !self.is_closing && self.not_before <= now && self.fetches(now)
    }

    /// Whether nothing is wanted of the broker and nothing owed to it.
    pub(crate) fn is_over(&self) -> bool {
        self.assigned.is_empty() && !self.is_busy() && !self.epoch.is_open() && self.is_quiet()
    }

    /// When something is due next without anything else happening.
    pub(crate) fn due_at(&self, now: Instant) -> Option<Instant> {
        if self.is_busy() {
            return None;
        }
        if self.not_before > now && (self.has_work() || self.fetches(now)) {
            return Some(self.not_before);
        }
        let resumed = self.suspended.values().min().copied();
        let expiring = self.acks.values().filter_map(Acks::next_deadline).min();
        let carried = self.may_be_carried(now).then_some(self.carried_until);
        [resumed, expiring, carried].into_iter().flatten().min()
    }

    /// Whether what is to be said waits for a fetch that takes it along. Not renewals, which cannot travel, nor what is left
    /// when there is nothing to fetch.
    fn may_be_carried(&self, now: Instant) -> bool {
        self.is_flowing && now < self.carried_until && self.is_waiting() && self.can_travel(now)
    }

    fn fetches(&self, now: Instant) -> bool {
        self.assigned.iter().any(|partition| !self.is_suspended(partition, now))
    }

    fn is_suspended(&self, partition: &TopicPartition, now: Instant) -> bool {
        self.suspended.get(partition).is_some_and(|until| *until > now)
    }

    /// Whether nothing is held and nothing to be said.
    fn is_quiet(&self) -> bool {
        self.acks.values().all(Acks::is_idle)
    }

    /// Whether a request is due even if no record is wanted.
    fn has_work(&self) -> bool {
        self.is_waiting() || (self.epoch.is_open() && self.listed.iter().any(|p| !self.assigned.contains(p)))
    }

    fn is_waiting(&self) -> bool {
        self.acks.values().any(Acks::is_waiting)
    }
}

#[cfg(test)]
mod tests;
