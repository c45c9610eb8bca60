//! What a broker's answer does to a session.

use std::time::Duration;

use bytes::Bytes;
use kafka_wire::{
    ShareAcknowledgeResponse, ShareFetchResponse, share_acknowledge_response, share_fetch_response,
};
use tidegate_model::Instant;

use super::epoch::Epoch;
use super::{CARRIED_WITHIN, InFlight, Kind, SUSPENSION, Session};
use crate::acks::{Acquisition, Told};
use crate::{AcknowledgeError, BrokerId, Complaint, ErrorCode, TopicId, TopicPartition};

/// How much one fetch changes what is known about the size of records.
const SIZE_WEIGHT: f64 = 0.2;

/// What came of an answer.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    pub(crate) acquired: Vec<Acquired>,
    pub(crate) told: Vec<(TopicPartition, Told)>,
    /// Who leads, as the broker says.
    pub(crate) leaders: Vec<LeaderHint>,
    pub(crate) nodes: Vec<NodeAddress>,
    /// Metadata should be asked for: something is not where it was.
    pub(crate) is_metadata_old: bool,
    /// What the broker complains about, as a whole (`None`) or of one partition.
    pub(crate) complaints: Vec<(Option<TopicPartition>, Complaint)>,
    /// Offsets that one answer gave twice.
    pub(crate) duplicates: u64,
}

/// Records that were acquired.
#[derive(Debug)]
pub(crate) struct Acquired {
    pub(crate) partition: TopicPartition,
    pub(crate) acquisition: Acquisition,
    /// Offsets from first to last inclusive, with the delivery count, ascending and without overlaps.
    pub(crate) ranges: Vec<(i64, i64, i16)>,
    /// Batches, which may hold other offsets as well.
    pub(crate) records: Bytes,
    /// Until when the lock holds at least.
    pub(crate) expires_at: Instant,
    /// How long locks are.
    pub(crate) lock: Duration,
}

/// Who leads a partition, as a broker that does not says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct LeaderHint {
    pub(crate) partition: TopicPartition,
    pub(crate) leader: BrokerId,
    pub(crate) leader_epoch: i32,
}

/// Where a broker is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct NodeAddress {
    pub(crate) broker: BrokerId,
    pub(crate) host: Box<str>,
    pub(crate) port: u16,
}

/// A partition of an answer, of either kind.
struct Answered<'a> {
    partition: TopicPartition,
    code: ErrorCode,
    message: Option<&'a str>,
    leader: (i32, i32),
}

impl Session {
    /// The answer to a fetch. `acquisition` is new for each answer.
    pub(crate) fn handle_fetched(
        &mut self,
        now: Instant,
        response: ShareFetchResponse,
        acquisition: Acquisition,
    ) -> Effects {
        let mut effects = Effects::default();
        let Some(in_flight) = self.in_flight.take() else { return effects };
        self.throttle(now, response.throttle_time_ms);
        let lock = millis(response.acquisition_lock_timeout_ms);
        if !lock.is_zero() {
            self.lock = lock;
        }
        let renewed_until = in_flight.asked_at + lock;
        let code = ErrorCode(response.error_code);
        if !self.handle_top(now, &in_flight, code, response.error_message.as_deref(), &mut effects) {
            return effects;
        }
        effects.nodes = response.node_endpoints.iter().filter_map(fetch_node).collect();
        let mut answered = Vec::new();
        for topic in response.responses {
            let id = TopicId::from(topic.topic_id);
            for data in topic.partitions {
                let partition = TopicPartition { topic: id, partition: data.partition_index };
                let ack_code = ErrorCode(data.acknowledge_error_code);
                if in_flight.told.contains(&partition) {
                    answered.push(partition);
                    let message = data.acknowledge_error_message.as_deref();
                    self.tell(partition, ack_code, message, renewed_until, &mut effects);
                }
                self.handle_partition(
                    now,
                    &Answered {
                        partition,
                        code: ErrorCode(data.error_code),
                        message: data.error_message.as_deref(),
                        leader: (data.current_leader.leader_id, data.current_leader.leader_epoch),
                    },
                    &mut effects,
                );
                if !data.acquired_records.is_empty() {
                    self.acquire(now, &in_flight, partition, acquisition, lock, data, &mut effects);
                }
            }
        }
        self.handle_unanswered(&in_flight, &answered, renewed_until, &mut effects);
        self.pace(now, &in_flight, &effects);
        effects
    }

    /// The answer to acknowledgements that were sent alone, or to the end of the session.
    pub(crate) fn handle_acknowledged(
        &mut self,
        now: Instant,
        response: &ShareAcknowledgeResponse,
    ) -> Effects {
        let mut effects = Effects::default();
        let Some(in_flight) = self.in_flight.take() else { return effects };
        self.throttle(now, response.throttle_time_ms);
        let renewed_until = in_flight.asked_at + millis(response.acquisition_lock_timeout_ms);
        let code = ErrorCode(response.error_code);
        let is_heard =
            self.handle_top(now, &in_flight, code, response.error_message.as_deref(), &mut effects);
        if is_heard {
            effects.nodes = response.node_endpoints.iter().filter_map(acknowledge_node).collect();
            let mut answered = Vec::new();
            for topic in &response.responses {
                let id = TopicId::from(topic.topic_id);
                for data in &topic.partitions {
                    let partition = TopicPartition { topic: id, partition: data.partition_index };
                    let (code, message) = (ErrorCode(data.error_code), data.error_message.as_deref());
                    answered.push(partition);
                    self.tell(partition, code, message, renewed_until, &mut effects);
                    if code.is_about_leader() {
                        let leader = (data.current_leader.leader_id, data.current_leader.leader_epoch);
                        hint(partition, leader, &mut effects);
                    }
                }
            }
            self.handle_unanswered(&in_flight, &answered, renewed_until, &mut effects);
        }
        if in_flight.kind == Kind::Close {
            self.end(&AcknowledgeError::Closed, &mut effects);
        }
        effects
    }

    /// The connection broke: the broker has closed the session and released what it was not told about.
    pub(crate) fn handle_lost(&mut self, now: Instant) -> Effects {
        let mut effects = Effects::default();
        self.in_flight = None;
        self.end(&AcknowledgeError::ConnectionLost, &mut effects);
        self.not_before = now + self.failures.next_wait();
        effects
    }

    /// The answer as a whole. False when its partitions do not count.
    fn handle_top(
        &mut self,
        now: Instant,
        in_flight: &InFlight,
        code: ErrorCode,
        message: Option<&str>,
        effects: &mut Effects,
    ) -> bool {
        if code.is_ok() {
            self.failures.reset();
            self.advance(in_flight);
            return true;
        }
        let is_first = self.failures.failures() == 0;
        let wait = self.failures.next_wait();
        if code == ErrorCode::UNKNOWN_SERVER_ERROR {
            // What a session with a deleted topic in it answers, for all its topics, until the topic is forgotten. The request
            // counts (measured on 4.3.1).
            self.advance(in_flight);
            effects.is_metadata_old = true;
        } else {
            self.epoch = Epoch::Closed;
            self.listed.clear();
        }
        let is_session_lost =
            matches!(code, ErrorCode::SHARE_SESSION_NOT_FOUND | ErrorCode::INVALID_SHARE_SESSION_EPOCH);
        // A session that is gone is opened anew at once; one that goes again and again is not.
        self.not_before = self.not_before.max(if is_session_lost && is_first { now } else { now + wait });
        if !(is_session_lost && is_first) {
            effects.complaints.push((None, Complaint::new(code, message)));
        }
        for partition in &in_flight.told {
            let Some(acks) = self.acks.get_mut(partition) else { continue };
            let mut results = Vec::new();
            acks.handle_unheard(code, &mut results);
            effects.told.extend(results.into_iter().map(|told| (*partition, told)));
        }
        false
    }

    fn advance(&mut self, in_flight: &InFlight) {
        if in_flight.kind != Kind::Close {
            self.epoch.advance();
            self.listed.clone_from(&in_flight.listed);
        }
    }

    fn handle_partition(&mut self, now: Instant, answered: &Answered<'_>, effects: &mut Effects) {
        let partition = answered.partition;
        if answered.code.is_ok() {
            return;
        }
        effects.complaints.push((Some(partition), Complaint::new(answered.code, answered.message)));
        // It is forgotten meanwhile: with an error in it every fetch comes back at once.
        self.suspended.insert(partition, now + SUSPENSION);
        if answered.code.is_about_leader() {
            hint(partition, answered.leader, effects);
        }
        if !matches!(
            answered.code,
            ErrorCode::TOPIC_AUTHORIZATION_FAILED | ErrorCode::COORDINATOR_NOT_AVAILABLE
        ) {
            effects.is_metadata_old = true;
        }
    }

    #[expect(clippy::too_many_arguments, reason = "one answer's parts")]
    fn acquire(
        &mut self,
        now: Instant,
        in_flight: &InFlight,
        partition: TopicPartition,
        acquisition: Acquisition,
        lock: Duration,
        data: share_fetch_response::PartitionData,
        effects: &mut Effects,
    ) {
        let acks = self.acks.entry(partition).or_default();
        let (mut ranges, mut named, mut fresh) = (Vec::new(), 0, 0);
        for range in data.acquired_records {
            let Some(length) = length(range.first_offset, range.last_offset) else { continue };
            named += length;
            // The lock began when the broker acquired, which was between the question and the answer.
            for (first, last) in acks.acquire(range.first_offset, range.last_offset, acquisition, now + lock)
            {
                fresh += (last - first + 1).unsigned_abs();
                ranges.push((first, last, range.delivery_count));
            }
        }
        ranges.sort_unstable_by_key(|(first, _, _)| *first);
        effects.duplicates += named - fresh;
        if fresh > 0 {
            #[expect(clippy::cast_precision_loss, reason = "an estimate")]
            let size = data.records.len() as f64 / fresh as f64;
            self.record_bytes = if self.record_bytes > 0.0 {
                self.record_bytes.mul_add(1.0 - SIZE_WEIGHT, size * SIZE_WEIGHT)
            } else {
                size
            };
            effects.acquired.push(Acquired {
                partition,
                acquisition,
                ranges,
                records: data.records,
                expires_at: in_flight.asked_at + lock,
                lock,
            });
        }
    }

    /// A broker that says nothing about a partition that it was told about has not taken it.
    fn handle_unanswered(
        &mut self,
        in_flight: &InFlight,
        answered: &[TopicPartition],
        renewed_until: Instant,
        effects: &mut Effects,
    ) {
        for partition in in_flight.told.iter().filter(|partition| !answered.contains(partition)) {
            self.tell(*partition, ErrorCode::UNKNOWN_SERVER_ERROR, None, renewed_until, effects);
        }
    }

    fn tell(
        &mut self,
        partition: TopicPartition,
        code: ErrorCode,
        message: Option<&str>,
        renewed_until: Instant,
        effects: &mut Effects,
    ) {
        let Some(acks) = self.acks.get_mut(&partition) else { return };
        let mut results = Vec::new();
        acks.handle_answer(code, message, renewed_until, &mut results);
        effects.told.extend(results.into_iter().map(|told| (partition, told)));
        // Who leads it, or that it is gone, no fetch need say: perhaps nobody wants records at the moment.
        effects.is_metadata_old |=
            matches!(code, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION | ErrorCode::UNKNOWN_TOPIC_ID);
    }

    /// Waits a little before the next fetch when this one came back at once and empty.
    fn pace(&mut self, now: Instant, in_flight: &InFlight, effects: &Effects) {
        if in_flight.records == 0 {
            return;
        }
        self.is_flowing = !effects.acquired.is_empty();
        self.carried_until = now + CARRIED_WITHIN;
        let is_early = now.saturating_since(in_flight.asked_at) < in_flight.max_wait / 2;
        if self.is_flowing || !is_early {
            self.fruitless.reset();
        } else {
            self.not_before = self.not_before.max(now + self.fruitless.next_wait());
        }
    }

    fn throttle(&mut self, now: Instant, throttle_ms: i32) {
        self.not_before = self.not_before.max(now + millis(throttle_ms));
    }

    /// There is no session any more, and nothing is held by it.
    pub(super) fn end(&mut self, error: &AcknowledgeError, effects: &mut Effects) {
        self.epoch = Epoch::Closed;
        self.listed.clear();
        self.is_flowing = false;
        for (partition, mut acks) in std::mem::take(&mut self.acks) {
            let mut results = Vec::new();
            acks.handle_lost(error, &mut results);
            effects.told.extend(results.into_iter().map(|told| (partition, told)));
        }
    }
}

/// The most offsets that one acquired range can have: brokers let a group hold at most 10,000 of a partition, so a longer one
/// is a broken answer, which must not cost memory.
const RANGE_MAX: u64 = 100_000;

fn length(first: i64, last: i64) -> Option<u64> {
    let length = last.checked_sub(first)?.checked_add(1)?;
    u64::try_from(length).ok().filter(|length| (1..=RANGE_MAX).contains(length))
}

fn hint(partition: TopicPartition, (leader, leader_epoch): (i32, i32), effects: &mut Effects) {
    effects.is_metadata_old = true;
    if leader >= 0 {
        effects.leaders.push(LeaderHint { partition, leader: BrokerId(leader), leader_epoch });
    }
}

fn fetch_node(node: &share_fetch_response::NodeEndpoint) -> Option<NodeAddress> {
    NodeAddress::new(node.node_id, &node.host, node.port)
}

fn acknowledge_node(node: &share_acknowledge_response::NodeEndpoint) -> Option<NodeAddress> {
    NodeAddress::new(node.node_id, &node.host, node.port)
}

impl NodeAddress {
    /// `None` when it cannot be one.
    pub(crate) fn new(broker: i32, host: &str, port: i32) -> Option<Self> {
        let port = u16::try_from(port).ok().filter(|port| *port > 0)?;
        (broker >= 0 && !host.is_empty()).then(|| Self { broker: BrokerId(broker), host: host.into(), port })
    }
}

fn millis(count: i32) -> Duration {
    Duration::from_millis(u64::try_from(count).unwrap_or(0))
}
