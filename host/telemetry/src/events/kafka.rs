//! Events of the connector for Kafka share groups: members, records received, records held back, settlements.
//!
//! `name` is the source's name in the configuration. Brokers, topics and texts of servers go to the log only.

use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

pub use super::settle::{SettleResult, Tally, tally};
use crate::metrics::{Name, Registry, words};
use crate::{Event, Metrics};

words!(HoldEnd);

/// The metric families that these events move.
#[derive(Debug)]
pub(crate) struct Families {
    members: Family<SourceLabel, Gauge>,
    partitions: Family<MemberLabels, Gauge>,
    troubles: Family<SourceLabel, Counter>,
    open_troubles: Family<SourceLabel, Gauge>,
    put_outs: Family<SourceLabel, Counter>,
    received_records: Family<SourceLabel, Counter>,
    received_bytes: Family<SourceLabel, Counter>,
    damaged_records: Family<SourceLabel, Counter>,
    duplicated_records: Family<SourceLabel, Counter>,
    limit_rejections: Family<SourceLabel, Counter>,
    settlements: Family<SettleLabels, Counter>,
    held_records: Family<SourceLabel, Gauge>,
    held_bytes: Family<SourceLabel, Gauge>,
    hold_ends: Family<HoldEndLabels, Counter>,
}

impl Families {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let families = Self {
            members: Family::default(),
            partitions: Family::default(),
            troubles: Family::default(),
            open_troubles: Family::default(),
            put_outs: Family::default(),
            received_records: Family::default(),
            received_bytes: Family::default(),
            damaged_records: Family::default(),
            duplicated_records: Family::default(),
            limit_rejections: Family::default(),
            settlements: Family::default(),
            held_records: Family::default(),
            held_bytes: Family::default(),
            hold_ends: Family::default(),
        };
        let area = registry.sub_registry_with_prefix("kafka_share");
        area.register("members", "Members of the share group in this host", families.members.clone());
        area.register("partitions", "Partitions assigned to a member", families.partitions.clone());
        area.register("troubles", "Troubles of members that began or changed", families.troubles.clone());
        area.register("open_troubles", "What is in the way of members now", families.open_troubles.clone());
        area.register(
            "put_outs",
            "Times that the group put a member out, which joins again",
            families.put_outs.clone(),
        );
        area.register("received_records", "Records received", families.received_records.clone());
        area.register(
            "received_bytes",
            "Bytes of keys, values and headers received",
            families.received_bytes.clone(),
        );
        area.register(
            "damaged_records",
            "Acquired records that cannot be read",
            families.damaged_records.clone(),
        );
        area.register(
            "duplicated_records",
            "Records that a broker gave twice in one answer, handed on once",
            families.duplicated_records.clone(),
        );
        area.register(
            "limit_rejections",
            "Records rejected because they were delivered as often as `delivery-count-limit` says",
            families.limit_rejections.clone(),
        );
        area.register("settlements", "Settlements, by verb and result", families.settlements.clone());
        area.register("held_records", "Deferred records whose locks are kept", families.held_records.clone());
        area.register("held_bytes", "Bytes of deferred records", families.held_bytes.clone());
        area.register("hold_ends", "Deferred records not held any more, by how", families.hold_ends.clone());
        families
    }
}

#[derive(Clone, Debug, Eq, Hash, PartialEq, EncodeLabelSet)]
struct SourceLabel {
    source: Name,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq, EncodeLabelSet)]
struct MemberLabels {
    source: Name,
    member: u64,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq, EncodeLabelSet)]
struct SettleLabels {
    source: Name,
    verb: &'static str,
    result: SettleResult,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq, EncodeLabelSet)]
struct HoldEndLabels {
    source: Name,
    end: HoldEnd,
}

/// How the holding of a deferred record ended.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum HoldEnd {
    /// It was due, and is decided about again.
    Due,
    /// It was given back to the broker: the hold's bounds, or locks that cannot be renewed.
    Released,
    /// Its lock was lost.
    LeaseGone,
}

fn label(name: &Arc<str>) -> SourceLabel {
    SourceLabel { source: Name::from(name) }
}

/// A source starts, with so many members.
#[derive(Clone, Debug)]
pub struct MembersStarted {
    /// Of the source.
    pub name: Arc<str>,
    /// The share group.
    pub group: Arc<str>,
    /// How many members.
    pub members: usize,
}

impl Event for MembersStarted {
    fn record(self, metrics: &Metrics) {
        let Self { name, group, members } = self;
        tracing::info!(source = %name, %group, members, "joining the share group");
        metrics.kafka.members.get_or_create(&label(&name)).set(i64::try_from(members).unwrap_or(i64::MAX));
    }
}

/// A source has ended.
#[derive(Clone, Debug)]
pub struct MembersStopped {
    /// Of the source.
    pub name: Arc<str>,
}

impl Event for MembersStopped {
    fn record(self, metrics: &Metrics) {
        let Self { name } = self;
        tracing::debug!(source = %name, "left the share group");
        metrics.kafka.members.get_or_create(&label(&name)).set(0);
        metrics.kafka.held_records.get_or_create(&label(&name)).set(0);
        metrics.kafka.held_bytes.get_or_create(&label(&name)).set(0);
    }
}

/// A member has other partitions than before.
#[derive(Clone, Debug)]
pub struct Assigned {
    /// Of the source.
    pub name: Arc<str>,
    /// Which member of the source, from 0.
    pub member: usize,
    /// How many partitions.
    pub partitions: usize,
}

impl Event for Assigned {
    fn record(self, metrics: &Metrics) {
        let Self { name, member, partitions } = self;
        tracing::info!(source = %name, member, partitions, "partitions assigned");
        let labels = MemberLabels { source: Name::from(&name), member: member as u64 };
        let value = i64::try_from(partitions).unwrap_or(i64::MAX);
        metrics.kafka.partitions.get_or_create(&labels).set(value);
    }
}

/// Something is in a member's way.
#[derive(Clone, Debug)]
pub struct TroubleBegan {
    /// Of the source.
    pub name: Arc<str>,
    /// Which member of the source, from 0.
    pub member: usize,
    /// In one sentence.
    pub detail: String,
    /// Whether there was none about the same before: else it has only changed.
    pub is_new: bool,
}

impl Event for TroubleBegan {
    fn record(self, metrics: &Metrics) {
        let Self { name, member, detail, is_new } = self;
        tracing::warn!(source = %name, member, detail, "trouble with the share group, trying again");
        metrics.kafka.troubles.get_or_create(&label(&name)).inc();
        if is_new {
            metrics.kafka.open_troubles.get_or_create(&label(&name)).inc();
        }
    }
}

/// It is not in the way any more.
#[derive(Clone, Debug)]
pub struct TroubleEnded {
    /// Of the source.
    pub name: Arc<str>,
    /// Which member of the source, from 0.
    pub member: usize,
    /// What it was about.
    pub subject: String,
}

impl Event for TroubleEnded {
    fn record(self, metrics: &Metrics) {
        let Self { name, member, subject } = self;
        tracing::info!(source = %name, member, subject, "the trouble is over");
        metrics.kafka.open_troubles.get_or_create(&label(&name)).dec();
    }
}

/// The group put a member out; it joins again by itself.
#[derive(Clone, Debug)]
pub struct PutOut {
    /// Of the source.
    pub name: Arc<str>,
    /// Which member of the source, from 0.
    pub member: usize,
    /// What the coordinator said.
    pub cause: String,
}

impl Event for PutOut {
    fn record(self, metrics: &Metrics) {
        let Self { name, member, cause } = self;
        tracing::warn!(source = %name, member, cause, "the group put this member out; it joins again");
        metrics.kafka.put_outs.get_or_create(&label(&name)).inc();
    }
}

/// The coordinator refuses a member for good.
#[derive(Clone, Debug)]
pub struct MemberRefused {
    /// Of the source.
    pub name: Arc<str>,
    /// Which member of the source, from 0.
    pub member: usize,
    /// What the coordinator said.
    pub cause: String,
}

impl Event for MemberRefused {
    fn record(self, _metrics: &Metrics) {
        let Self { name, member, cause } = self;
        tracing::error!(
            source = %name,
            member,
            cause,
            "the group refuses this member for good: change the configuration and start again"
        );
    }
}

/// Records came.
#[derive(Clone, Debug)]
pub struct Received {
    /// Of the source.
    pub name: Arc<str>,
    /// How many.
    pub records: u64,
    /// Bytes of their keys, values and headers.
    pub bytes: u64,
}

impl Event for Received {
    fn record(self, metrics: &Metrics) {
        let Self { name, records, bytes } = self;
        metrics.kafka.received_records.get_or_create(&label(&name)).inc_by(records);
        metrics.kafka.received_bytes.get_or_create(&label(&name)).inc_by(bytes);
    }
}

/// Acquired records cannot be read.
#[derive(Clone, Debug)]
pub struct RecordsDamaged {
    /// Of the source.
    pub name: Arc<str>,
    /// Where: topic id and partition.
    pub partition: String,
    /// The first of them.
    pub first: i64,
    /// The last of them.
    pub last: i64,
    /// What is wrong, in one sentence.
    pub reason: Arc<str>,
    /// What the broker is told about them, in one word.
    pub verdict: &'static str,
}

impl Event for RecordsDamaged {
    fn record(self, metrics: &Metrics) {
        let Self { name, partition, first, last, reason, verdict } = self;
        tracing::error!(
            source = %name,
            partition,
            first,
            last,
            %reason,
            verdict,
            "records that cannot be read"
        );
        let count = u64::try_from(last.saturating_sub(first).saturating_add(1)).unwrap_or(1);
        metrics.kafka.damaged_records.get_or_create(&label(&name)).inc_by(count);
    }
}

/// A broker gave records twice in one answer.
#[derive(Clone, Debug)]
pub struct RecordsDuplicated {
    /// Of the source.
    pub name: Arc<str>,
    /// How many.
    pub records: u64,
}

impl Event for RecordsDuplicated {
    fn record(self, metrics: &Metrics) {
        let Self { name, records } = self;
        tracing::warn!(source = %name, records, "a broker gave the same records twice; they are handed on once");
        metrics.kafka.duplicated_records.get_or_create(&label(&name)).inc_by(records);
    }
}

/// A record was delivered as often as may be, and is rejected.
#[derive(Clone, Debug)]
pub struct LimitReached {
    /// Of the source.
    pub name: Arc<str>,
    /// Its topic.
    pub topic: Arc<str>,
    /// Its partition.
    pub partition: i32,
    /// Its offset.
    pub offset: i64,
    /// How often it was delivered, this time included.
    pub delivery_count: u32,
}

impl Event for LimitReached {
    fn record(self, metrics: &Metrics) {
        let Self { name, topic, partition, offset, delivery_count } = self;
        tracing::warn!(
            source = %name,
            %topic,
            partition,
            offset,
            delivery_count,
            "rejected without being handed out: it reached `delivery-count-limit`"
        );
        metrics.kafka.limit_rejections.get_or_create(&label(&name)).inc();
    }
}

/// Settlements of one verb ended one way.
#[derive(Clone, Debug)]
pub struct Settled {
    /// Of the source.
    pub name: Arc<str>,
    /// Which of the five.
    pub verb: &'static str,
    /// How they ended.
    pub result: SettleResult,
    /// How many.
    pub records: u64,
    /// What was said about the first that failed; empty when none did.
    pub detail: String,
}

impl Event for Settled {
    fn record(self, metrics: &Metrics) {
        let Self { name, verb, result, records, detail } = self;
        match result {
            SettleResult::Ok => {}
            SettleResult::LeaseGone => {
                tracing::warn!(
                    source = %name,
                    verb,
                    records,
                    detail,
                    "the lock was gone before it was settled: the broker hands these records out again"
                );
            }
            SettleResult::Broker | SettleResult::Refused => {
                tracing::warn!(source = %name, verb, records, detail, "settlement failed");
            }
        }
        let labels = SettleLabels { source: Name::from(&name), verb, result };
        metrics.kafka.settlements.get_or_create(&labels).inc_by(records);
    }
}

/// So many deferred records are held now.
#[derive(Clone, Debug)]
pub struct Held {
    /// Of the source.
    pub name: Arc<str>,
    /// How many.
    pub records: usize,
    /// Their bytes.
    pub bytes: usize,
}

impl Event for Held {
    fn record(self, metrics: &Metrics) {
        let Self { name, records, bytes } = self;
        let value = |number| i64::try_from(number).unwrap_or(i64::MAX);
        metrics.kafka.held_records.get_or_create(&label(&name)).set(value(records));
        metrics.kafka.held_bytes.get_or_create(&label(&name)).set(value(bytes));
    }
}

/// Deferred records are not held any more.
#[derive(Clone, Debug)]
pub struct HoldEnded {
    /// Of the source.
    pub name: Arc<str>,
    /// How it ended.
    pub end: HoldEnd,
    /// How many.
    pub records: u64,
}

impl Event for HoldEnded {
    fn record(self, metrics: &Metrics) {
        let Self { name, end, records } = self;
        match end {
            HoldEnd::Due => {}
            HoldEnd::Released => tracing::info!(
                source = %name,
                records,
                "deferred records were given back before they were due: they come again, and the delivery counts"
            ),
            HoldEnd::LeaseGone => tracing::warn!(
                source = %name,
                records,
                "locks of deferred records were lost: the broker hands these records out again"
            ),
        }
        let labels = HoldEndLabels { source: Name::from(&name), end };
        metrics.kafka.hold_ends.get_or_create(&labels).inc_by(records);
    }
}
