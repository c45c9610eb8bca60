//! What a session sends next.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kafka_wire::share_fetch_request::{FetchPartition, FetchTopic, ForgottenTopic};
use kafka_wire::{
    ShareAcknowledgeRequest, ShareFetchRequest, share_acknowledge_request, share_fetch_request,
};
use tidegate_model::Instant;

use super::epoch::CLOSING;
use super::{Allowance, InFlight, Kind, Session, SessionRequest};
use crate::acks::{Batch, Told};
use crate::{AcquireMode, TopicId, TopicPartition};

/// What is said in one request.
type Said = BTreeMap<TopicPartition, Vec<Batch>>;

/// A fetch that asks for no records: changes the session only, and comes back at once.
const NOTHING: Limits = Limits { records: 0, bytes: 0, wait: Duration::ZERO };

/// The part of a lock that a fetch may wait.
const WAIT_OF_LOCK: u32 = 8;

#[derive(Clone, Copy)]
struct Limits {
    records: i32,
    bytes: i32,
    wait: Duration,
}

impl Session {
    /// The next request, if one is due. An answer is owed: [`Self::handle_fetched`], [`Self::handle_acknowledged`] or
    /// [`Self::handle_lost`]. What turns out to be too late to be said has its result in `told`.
    pub(crate) fn poll(
        &mut self,
        now: Instant,
        allowance: Allowance,
        told: &mut Vec<(TopicPartition, Told)>,
    ) -> Option<SessionRequest> {
        if self.is_busy() || self.not_before > now {
            return None;
        }
        self.expire(now);
        if self.is_closing {
            return self.poll_close(now, told);
        }
        let wants_records = allowance.records > 0 && self.fetches(now);
        if !self.epoch.is_open() {
            // An opening fetch cannot carry acknowledgements; it only makes way for them.
            let opens = wants_records || self.is_waiting();
            let limits = if wants_records { self.limits(allowance) } else { NOTHING };
            return opens.then(|| self.fetch(now, limits, Said::new()));
        }
        if !wants_records && self.may_be_carried(now) {
            return None;
        }
        if self.is_waiting() {
            let travels = wants_records && self.is_flowing && self.can_travel(now);
            let said = self.take(now, told);
            if travels {
                let limits = self.limits(allowance);
                return Some(self.fetch(now, limits, said));
            }
            if !said.is_empty() {
                return Some(self.acknowledge_request(now, said));
            }
        }
        if wants_records {
            let limits = self.limits(allowance);
            return Some(self.fetch(now, limits, Said::new()));
        }
        if self.assigned.is_empty() && self.is_quiet() {
            return Some(self.close_request(now, Said::new()));
        }
        let has_left = self.listed.iter().any(|partition| !self.assigned.contains(partition));
        has_left.then(|| self.fetch(now, NOTHING, Said::new()))
    }

    fn expire(&mut self, now: Instant) {
        self.suspended.retain(|_, until| *until > now);
        self.acks.retain(|_, acks| {
            acks.expire(now);
            !acks.is_idle()
        });
    }

    fn poll_close(&mut self, now: Instant, told: &mut Vec<(TopicPartition, Told)>) -> Option<SessionRequest> {
        self.epoch.is_open().then(|| {
            let said = self.take(now, told);
            self.close_request(now, said)
        })
    }

    /// Whether all that is waiting may be carried by a fetch: renewals may not, and a partition that is only named for its
    /// acknowledgements would be fetched from then on.
    pub(super) fn can_travel(&self, now: Instant) -> bool {
        self.acks.iter().filter(|(_, acks)| acks.is_waiting()).all(|(partition, acks)| {
            !acks.has_renewal() && self.assigned.contains(partition) && !self.is_suspended(partition, now)
        })
    }

    fn take(&mut self, now: Instant, told: &mut Vec<(TopicPartition, Told)>) -> Said {
        let mut said = Said::new();
        let mut results = Vec::new();
        for (partition, acks) in self.acks.iter_mut().filter(|(_, acks)| acks.is_waiting()) {
            let batches = acks.take(now, &mut results);
            told.extend(results.drain(..).map(|result| (*partition, result)));
            if !batches.is_empty() {
                said.insert(*partition, batches);
            }
        }
        said
    }

    fn limits(&self, allowance: Allowance) -> Limits {
        let settings = &self.settings;
        let records = allowance.records.min(settings.max_records).max(1);
        // A broker walks through as many bytes as it may send before it cuts to the records that it may: at 50 MB a fetch of
        // 500 records cost 3 ms, at 2 MB 0.9 ms (measured on 4.3.1). Too few bytes cost round trips.
        const ROOM: f64 = 2.0;
        const BYTES_MIN: f64 = 65_536.0;
        let record_bytes = if self.record_bytes > 0.0 { self.record_bytes } else { 1_024.0 };
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let estimate = (record_bytes * ROOM * records as f64).max(BYTES_MIN);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
        let bytes = (estimate as usize).min(settings.max_bytes).min(allowance.bytes.max(1));
        let wait = if self.held() > 0 { settings.max_wait_while_held } else { settings.max_wait };
        // A lock is counted from the question, since nobody knows when within the wait it began: a long wait would use up a
        // short lock before anybody has the record.
        let wait = if self.lock.is_zero() { wait } else { wait.min(self.lock / WAIT_OF_LOCK) };
        Limits { records: saturated(records), bytes: saturated(bytes), wait }
    }

    fn fetch(&mut self, now: Instant, limits: Limits, said: Said) -> SessionRequest {
        let mut listed: BTreeSet<TopicPartition> =
            self.assigned.iter().filter(|partition| !self.is_suspended(partition, now)).copied().collect();
        if !self.epoch.is_open() && listed.is_empty() {
            // A session is opened with something in it.
            listed.extend(self.acks.keys());
        }
        let added = listed.difference(&self.listed).copied();
        let named: BTreeSet<TopicPartition> = added.chain(said.keys().copied()).collect();
        let forgotten: Vec<TopicPartition> = self.listed.difference(&listed).copied().collect();

        let mut request = ShareFetchRequest::default();
        request.group_id = Some((&*self.identity.group).into());
        request.member_id = Some((&*self.identity.member_id).into());
        request.share_session_epoch = self.epoch.code();
        request.max_wait_ms = i32::try_from(limits.wait.as_millis()).unwrap_or(i32::MAX);
        request.min_bytes = if limits.records > 0 { 1 } else { 0 };
        request.max_bytes = limits.bytes;
        request.max_records = limits.records;
        request.batch_size = limits.records;
        request.share_acquire_mode = match self.settings.acquire_mode {
            AcquireMode::BatchOptimized => 0,
            AcquireMode::RecordLimit => 1,
        };
        request.topics = by_topic(named)
            .map(|(id, partitions)| {
                let mut topic = FetchTopic::default();
                topic.topic_id = id.into();
                topic.partitions = partitions.iter().map(|partition| fetched(*partition, &said)).collect();
                topic
            })
            .collect();
        request.forgotten_topics_data = by_topic(forgotten)
            .map(|(id, partitions)| {
                let mut topic = ForgottenTopic::default();
                topic.topic_id = id.into();
                topic.partitions = partitions.iter().map(|partition| partition.partition).collect();
                topic
            })
            .collect();
        self.in_flight = Some(InFlight {
            kind: Kind::Fetch,
            asked_at: now,
            told: said.into_keys().collect(),
            listed,
            max_wait: limits.wait,
            records: usize::try_from(limits.records).unwrap_or(0),
        });
        SessionRequest::Fetch(request)
    }

    fn acknowledge_request(&mut self, now: Instant, said: Said) -> SessionRequest {
        let request = self.acknowledging(self.epoch.code(), &said);
        self.start(now, Kind::Acknowledge, said);
        SessionRequest::Acknowledge(request)
    }

    /// Ends the session: what is held and not said anything about is given back by the broker.
    fn close_request(&mut self, now: Instant, said: Said) -> SessionRequest {
        let request = self.acknowledging(CLOSING, &said);
        self.start(now, Kind::Close, said);
        SessionRequest::Acknowledge(request)
    }

    fn acknowledging(&self, epoch: i32, said: &Said) -> ShareAcknowledgeRequest {
        let mut request = ShareAcknowledgeRequest::default();
        request.group_id = Some((&*self.identity.group).into());
        request.member_id = Some((&*self.identity.member_id).into());
        request.share_session_epoch = epoch;
        let renews = |batch: &Batch| batch.types.contains(&crate::AcknowledgeType::Renew.code());
        request.is_renew_ack = said.values().flatten().any(renews);
        request.topics = by_topic(said.keys().copied())
            .map(|(id, partitions)| {
                let mut topic = share_acknowledge_request::AcknowledgeTopic::default();
                topic.topic_id = id.into();
                topic.partitions =
                    partitions.iter().map(|partition| acknowledged(*partition, said)).collect();
                topic
            })
            .collect();
        request
    }

    fn start(&mut self, now: Instant, kind: Kind, said: Said) {
        self.in_flight = Some(InFlight {
            kind,
            asked_at: now,
            told: said.into_keys().collect(),
            listed: self.listed.clone(),
            max_wait: Duration::ZERO,
            records: 0,
        });
    }
}

fn fetched(partition: TopicPartition, said: &Said) -> FetchPartition {
    let mut fetched = FetchPartition::default();
    fetched.partition_index = partition.partition;
    let batches = said.get(&partition).into_iter().flatten();
    fetched.acknowledgement_batches = batches
        .map(|batch| {
            let mut written = share_fetch_request::AcknowledgementBatch::default();
            written.first_offset = batch.first;
            written.last_offset = batch.last;
            written.acknowledge_types.clone_from(&batch.types);
            written
        })
        .collect();
    fetched
}

fn acknowledged(partition: TopicPartition, said: &Said) -> share_acknowledge_request::AcknowledgePartition {
    let mut acknowledged = share_acknowledge_request::AcknowledgePartition::default();
    acknowledged.partition_index = partition.partition;
    let batches = said.get(&partition).into_iter().flatten();
    acknowledged.acknowledgement_batches = batches
        .map(|batch| {
            let mut written = share_acknowledge_request::AcknowledgementBatch::default();
            written.first_offset = batch.first;
            written.last_offset = batch.last;
            written.acknowledge_types.clone_from(&batch.types);
            written
        })
        .collect();
    acknowledged
}

/// Groups what is sorted by topic.
fn by_topic(
    partitions: impl IntoIterator<Item = TopicPartition>,
) -> impl Iterator<Item = (TopicId, Vec<TopicPartition>)> {
    let mut topics: BTreeMap<TopicId, Vec<TopicPartition>> = BTreeMap::new();
    for partition in partitions {
        topics.entry(partition.topic).or_default().push(partition);
    }
    topics.into_iter()
}

fn saturated(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}
