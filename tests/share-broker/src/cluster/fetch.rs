//! ShareFetch: acknowledgements, the session, and records, at once or after a while.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kafka_wire::{ShareFetchRequest, ShareFetchResponse, share_fetch_response};
use kafka_wire_core::{StrBytes, Uuid};

use super::acknowledge::{Said, Settled};
use super::membership::millis;
use super::{Cluster, Origin, Outcome, Share, ordered};
use crate::error_code::{
    GROUP_AUTHORIZATION_FAILED, INVALID_REQUEST, INVALID_SHARE_SESSION_EPOCH, NONE, NOT_LEADER_OR_FOLLOWER,
    SHARE_SESSION_LIMIT_REACHED, SHARE_SESSION_NOT_FOUND, TOPIC_AUTHORIZATION_FAILED, UNKNOWN_SERVER_ERROR,
    UNKNOWN_TOPIC_OR_PARTITION,
};
use crate::faults::Effect;
use crate::log::Read;
use crate::options::{Access, Reset};
use crate::session::{SessionKey, next_epoch};
use crate::share::{Acknowledgement, Acquired, Ask, Rules, SharePartition};
use crate::wire::message;

/// A session's epochs with a meaning of their own.
pub(super) const OPENS: i32 = 0;
pub(super) const CLOSES: i32 = -1;

/// A fetch that waits for records, for its time to be over, or for a place.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) origin: Origin,
    pub(super) key: SessionKey,
    pub(super) deadline: Duration,
    /// Something happened that it waits for.
    pub(super) woken: bool,
    pub(super) effect: Option<Effect>,
    epoch: i32,
    /// There was no place for its session.
    turned_away: bool,
    limits: Limits,
    settled: Vec<Settled>,
    errors: Vec<((Uuid, i32), i16)>,
}

#[derive(Clone, Copy, Debug)]
struct Limits {
    min_bytes: u64,
    max_bytes: usize,
    max_records: i64,
    batch_size: i64,
    exact: bool,
}

/// A partition's part of an answer.
#[derive(Debug, Default)]
struct Part {
    error: i16,
    records: Bytes,
    acquired: Vec<Acquired>,
}

impl Cluster {
    pub(super) fn share_fetch(
        &mut self,
        now: Duration,
        origin: Origin,
        body: &ShareFetchRequest,
        effect: Option<&Effect>,
    ) -> Outcome {
        let (Some(group), Some(member)) = (&body.group_id, &body.member_id) else {
            return refused(INVALID_REQUEST).into();
        };
        if self.denied_groups.contains(group.as_str()) {
            return refused(GROUP_AUTHORIZATION_FAILED).into();
        }
        let key: SessionKey = (group.to_string(), member.to_string());
        let asks_nothing =
            body.max_wait_ms == 0 && body.min_bytes == 0 && body.max_bytes == 0 && body.max_records == 0;
        if body.is_renew_ack && !asks_nothing {
            return refused(INVALID_REQUEST).into();
        }
        if !(0..=1).contains(&body.share_acquire_mode) {
            return refused(UNKNOWN_SERVER_ERROR).into();
        }
        let said = said(body);
        let deadline = now + Duration::from_millis(u64::try_from(body.max_wait_ms).unwrap_or(0));
        let mut pending = Pending {
            origin,
            key,
            deadline,
            woken: false,
            effect: effect.cloned(),
            epoch: body.share_session_epoch,
            turned_away: false,
            limits: limits(body),
            settled: Vec::new(),
            errors: Vec::new(),
        };
        match self.enter_session(origin, body, &pending.key, &said) {
            Ok(()) => {}
            Err(SHARE_SESSION_LIMIT_REACHED) => {
                pending.turned_away = true;
                self.pending.push(pending);
                return Outcome::Waits;
            }
            Err(code) => return refused(code).into(),
        }
        pending.settled = self.settle(now, origin.node, &pending.key, &said, body.is_renew_ack, effect);
        if body.share_session_epoch == CLOSES {
            self.leave_session(origin.node, &pending.key);
            return self.answer_fetch(&pending, &[]).into();
        }
        if body.max_records <= 0 || body.max_bytes <= 0 || body.is_renew_ack {
            return self.answer_fetch(&pending, &[]).into();
        }
        self.begin_fetch(now, pending, body.min_bytes <= 0)
    }

    fn enter_session(
        &mut self,
        origin: Origin,
        body: &ShareFetchRequest,
        key: &SessionKey,
        said: &[Said],
    ) -> Result<(), i16> {
        let sessions_max = self.options.sessions_max;
        let node = self.nodes.get_mut(&origin.node).ok_or(UNKNOWN_SERVER_ERROR)?;
        let named = body.topics.iter().flat_map(|topic| {
            topic.partitions.iter().map(|partition| (topic.topic_id, partition.partition_index))
        });
        let forgotten: Vec<(Uuid, i32)> = body
            .forgotten_topics_data
            .iter()
            .flat_map(|topic| topic.partitions.iter().map(|partition| (topic.topic_id, *partition)))
            .collect();
        match body.share_session_epoch {
            OPENS if !said.is_empty() => Err(INVALID_REQUEST),
            OPENS => node.sessions.open(key, origin.connection, named.collect(), sessions_max),
            CLOSES => node.sessions.get(key).map(drop).ok_or(SHARE_SESSION_NOT_FOUND),
            epoch => {
                let session = node.sessions.step(key, epoch)?;
                session.add(named);
                // What is added and forgotten at once is forgotten.
                session.forget(&forgotten);
                Ok(())
            }
        }
    }

    /// Closes a session; its member holds nothing of it any more.
    pub(super) fn leave_session(&mut self, node: i32, key: &SessionKey) {
        let closed = self.nodes.get_mut(&node).and_then(|node| node.sessions.close(key));
        if let Some(session) = closed {
            self.give_back(node, &key.0, &key.1, &session.partitions);
        }
    }

    fn begin_fetch(&mut self, now: Duration, mut pending: Pending, at_once: bool) -> Outcome {
        let partitions = self.rotated(&pending);
        let dead = partitions.iter().any(|(topic, _)| self.topic(*topic).is_none());
        for partition in &partitions {
            let code =
                self.judge(now, pending.origin.node, &pending.key.0, *partition, pending.effect.as_ref());
            if code != NONE {
                pending.errors.push((*partition, code));
            }
        }
        if dead {
            // The rest is acquired all the same, and nobody is told.
            drop(self.attempt(now, &pending, true));
            return refused(UNKNOWN_SERVER_ERROR).into();
        }
        let hopeless = !partitions.is_empty() && pending.errors.len() == partitions.len();
        match self.attempt(now, &pending, at_once || hopeless) {
            Some(parts) => self.answer_fetch(&pending, &parts).into(),
            None => {
                self.pending.push(pending);
                Outcome::Waits
            }
        }
    }

    /// Looks again, for the last time if `over`.
    pub(super) fn resume(
        &mut self,
        now: Duration,
        pending: &mut Pending,
        over: bool,
    ) -> Option<ShareFetchResponse> {
        if pending.turned_away {
            return over.then(|| refused(SHARE_SESSION_LIMIT_REACHED));
        }
        let parts = self.attempt(now, pending, over)?;
        let session = self.nodes.get(&pending.origin.node).and_then(|node| node.sessions.get(&pending.key));
        Some(match session {
            None => refused(SHARE_SESSION_NOT_FOUND),
            // Another request went on with the session meanwhile; what was acquired here waits for its lock.
            Some(session) if session.expected != next_epoch(pending.epoch) => {
                refused(INVALID_SHARE_SESSION_EPOCH)
            }
            Some(_) => self.answer_fetch(pending, &parts),
        })
    }

    /// The session's partitions, each time another one first.
    fn rotated(&self, pending: &Pending) -> Vec<(Uuid, i32)> {
        let session = self.nodes.get(&pending.origin.node).and_then(|node| node.sessions.get(&pending.key));
        let mut partitions = session.map_or_else(Vec::new, |session| session.partitions.clone());
        if !partitions.is_empty() {
            let by = usize::try_from(pending.epoch).unwrap_or(0) % partitions.len();
            partitions.rotate_left(by);
        }
        partitions
    }

    /// Why a partition cannot be fetched here.
    fn judge(
        &self,
        now: Duration,
        node: i32,
        group: &str,
        (topic, number): (Uuid, i32),
        effect: Option<&Effect>,
    ) -> i16 {
        if let Some(Effect::PartitionError { code, partition }) = effect
            && partition.is_none_or(|wanted| wanted == number)
        {
            return *code;
        }
        let Some((name, found)) = self.topic(topic) else { return UNKNOWN_TOPIC_OR_PARTITION };
        if self.access_to(name) < Access::Read {
            return TOPIC_AUTHORIZATION_FAILED;
        }
        let Some(partition) = found.partition(number) else { return UNKNOWN_TOPIC_OR_PARTITION };
        if partition.leader != node {
            return NOT_LEADER_OR_FOLLOWER;
        }
        // Before the group's first heartbeat, nobody has made its share state.
        let known = self.groups.get(group).is_some_and(|group| group.is_initialized(topic, now));
        if known { NONE } else { UNKNOWN_SERVER_ERROR }
    }

    /// Acquires what can be had; nothing if it is not enough, unless `force`.
    fn attempt(&mut self, now: Duration, pending: &Pending, force: bool) -> Option<Vec<((Uuid, i32), Part)>> {
        let (node, limits) = (pending.origin.node, pending.limits);
        let options = self.group_options(&pending.key.0);
        let (rules, reset) = (options.rules(), options.reset);
        let usable: Vec<(Uuid, i32)> = self
            .rotated(pending)
            .into_iter()
            .filter(|partition| !pending.errors.iter().any(|(bad, _)| bad == partition))
            .filter(|partition| self.judge(now, node, &pending.key.0, *partition, None) == NONE)
            .collect();
        let mut readable = 0;
        let mut open = Vec::new();
        for partition in usable {
            let Some((share, log)) = self.load(node, &pending.key.0, partition, reset) else { continue };
            if share.can_acquire(&rules) {
                readable += log.bytes_from(share.next_fetch());
                open.push(partition);
            }
        }
        if !force && readable < limits.min_bytes.max(1) {
            return None;
        }
        let parts = self.acquire(now, pending, &open, &rules);
        let nothing = parts.iter().all(|(_, part)| part.acquired.is_empty());
        (force || !nothing).then_some(parts)
    }

    fn acquire(
        &mut self,
        now: Duration,
        pending: &Pending,
        open: &[(Uuid, i32)],
        rules: &Rules,
    ) -> Vec<((Uuid, i32), Part)> {
        let (node, limits) = (pending.origin.node, pending.limits);
        let each = limits.max_bytes / open.len().max(1);
        let (mut records_left, mut bytes_left) = (limits.max_records, limits.max_bytes);
        let mut parts = Vec::new();
        for partition in open {
            let Some((share, log)) = self.load(node, &pending.key.0, *partition, Reset::Earliest) else {
                continue;
            };
            let offset = share.next_fetch();
            let first = bytes_left == limits.max_bytes;
            let read = log.read(offset, each.min(bytes_left), first);
            let ask = Ask {
                member: Arc::from(pending.key.1.as_str()),
                exact: limits.exact,
                batch_size: limits.batch_size,
                records_max: records_left,
                offset,
                now,
            };
            let acquired = share.acquire(&ask, &read.batches, rules);
            records_left -= acquired.iter().map(Acquired::length).sum::<i64>();
            bytes_left = bytes_left.saturating_sub(read.bytes.len());
            let records = if acquired.is_empty() { Bytes::new() } else { slice(&read, &acquired) };
            parts.push((*partition, Part { error: NONE, records, acquired }));
        }
        parts
    }

    /// A share partition at its leader, loaded if it was not.
    fn load(
        &mut self,
        node: i32,
        group: &str,
        (topic, number): (Uuid, i32),
        reset: Reset,
    ) -> Option<(&mut SharePartition, &crate::log::Log)> {
        let log = &self.topics.get(self.names.get(topic.as_bytes())?)?.partition(number)?.log;
        let added = self.groups.get(group).is_some_and(|group| group.was_added(topic, number));
        let share = self.shares.entry(ordered(&(group.to_owned(), topic, number))).or_insert_with(|| {
            let offset = if reset == Reset::Latest && !added { log.end() } else { log.start() };
            Share { partition: SharePartition::starting_at(offset), node: None }
        });
        share.node = Some(node);
        share.partition.trim(log.start());
        Some((&mut share.partition, log))
    }

    fn answer_fetch(&self, pending: &Pending, parts: &[((Uuid, i32), Part)]) -> ShareFetchResponse {
        let mut response = message!(ShareFetchResponse {
            acquisition_lock_timeout_ms: millis(self.group_options(&pending.key.0).record_lock_duration),
        });
        let mut listed: Vec<(Uuid, i32)> = Vec::new();
        if pending.epoch == OPENS {
            listed.extend(self.rotated(pending));
        }
        listed.extend(pending.errors.iter().map(|(partition, _)| *partition));
        listed.extend(
            parts.iter().filter(|(_, part)| !part.acquired.is_empty()).map(|(partition, _)| *partition),
        );
        listed.extend(pending.settled.iter().map(|settled| settled.partition));
        for (at, partition) in listed.iter().enumerate() {
            if listed[..at].contains(partition) {
                continue;
            }
            let data = self.partition_data(*partition, pending, parts, &mut response);
            let topic = response.responses.iter_mut().find(|topic| topic.topic_id == partition.0);
            match topic {
                Some(topic) => topic.partitions.push(data),
                None => {
                    response.responses.push(message!(share_fetch_response::ShareFetchableTopicResponse {
                        topic_id: partition.0,
                        partitions: vec![data],
                    }));
                }
            }
        }
        response
    }

    fn partition_data(
        &self,
        partition: (Uuid, i32),
        pending: &Pending,
        parts: &[((Uuid, i32), Part)],
        response: &mut ShareFetchResponse,
    ) -> share_fetch_response::PartitionData {
        let mut data = message!(share_fetch_response::PartitionData { partition_index: partition.1 });
        if let Some((_, code)) = pending.errors.iter().find(|(bad, _)| *bad == partition) {
            data.error_code = *code;
        }
        if let Some((_, part)) = parts.iter().find(|(of, _)| *of == partition) {
            data.error_code = part.error;
            data.records = part.records.clone();
            data.acquired_records = part.acquired.iter().map(range).collect();
        }
        if let Some(settled) = pending.settled.iter().find(|settled| settled.partition == partition) {
            data.acknowledge_error_code = settled.code;
            data.acknowledge_error_message = settled.text.map(StrBytes::from);
        }
        if data.error_code == NOT_LEADER_OR_FOLLOWER
            && let Some(leader) = self.topic(partition.0).and_then(|(_, topic)| topic.partition(partition.1))
        {
            data.current_leader = message!(share_fetch_response::LeaderIdAndEpoch {
                leader_id: leader.leader,
                leader_epoch: leader.leader_epoch,
            });
            let named = response.node_endpoints.iter().any(|node| node.node_id == leader.leader);
            if let Some(node) = self.nodes.get(&leader.leader).filter(|_| !named) {
                response.node_endpoints.push(message!(share_fetch_response::NodeEndpoint {
                    node_id: leader.leader,
                    host: StrBytes::from(node.host.as_str()),
                    port: i32::from(node.port),
                }));
            }
        }
        data
    }
}

/// An answer of a code alone.
pub(super) fn refused(code: i16) -> ShareFetchResponse {
    message!(ShareFetchResponse { error_code: code })
}

fn range(acquired: &Acquired) -> share_fetch_response::AcquiredRecords {
    message!(share_fetch_response::AcquiredRecords {
        first_offset: acquired.first,
        last_offset: acquired.last,
        delivery_count: acquired.delivery_count,
    })
}

fn limits(body: &ShareFetchRequest) -> Limits {
    Limits {
        min_bytes: u64::try_from(body.min_bytes).unwrap_or(0),
        max_bytes: usize::try_from(body.max_bytes).unwrap_or(0),
        max_records: i64::from(body.max_records),
        batch_size: i64::from(body.batch_size),
        exact: body.share_acquire_mode == 1,
    }
}

fn said(body: &ShareFetchRequest) -> Vec<Said> {
    let mut said = Vec::new();
    for topic in &body.topics {
        for partition in
            topic.partitions.iter().filter(|partition| !partition.acknowledgement_batches.is_empty())
        {
            let batches = partition.acknowledgement_batches.iter().map(|batch| Acknowledgement {
                first: batch.first_offset,
                last: batch.last_offset,
                types: batch.acknowledge_types.clone(),
            });
            said.push(Said {
                partition: (topic.topic_id, partition.partition_index),
                batches: batches.collect(),
            });
        }
    }
    said
}

/// The log batches from the first to the last record acquired. A single batch travels as it was read, with the cut one
/// behind it.
fn slice(read: &Read, acquired: &[Acquired]) -> Bytes {
    let (Some(first), Some(last)) = (acquired.first(), acquired.last()) else { return Bytes::new() };
    if read.batches.len() == 1 {
        return read.bytes.clone();
    }
    let (mut from, mut until, mut at) = (0, 0, 0);
    for (base, end, length) in &read.batches {
        if *end < first.first {
            from = at + length;
        }
        at += length;
        if *base <= last.last {
            until = at;
        }
    }
    read.bytes.slice(from.min(until)..until)
}
