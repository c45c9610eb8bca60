//! Events of spools: what is written, what was found, damage, trouble and its end.
//!
//! `name` is the source's name in the configuration. Paths go to the log only.

use std::path::PathBuf;
use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use crate::metrics::{Name, Registry};
use crate::{Event, Metrics};

/// The metric families that these events move.
#[derive(Debug)]
pub(crate) struct Families {
    records: Family<SourceLabel, Gauge>,
    bytes: Family<SourceLabel, Gauge>,
    in_trouble: Family<SourceLabel, Gauge>,
    written_records: Family<SourceLabel, Counter>,
    written_bytes: Family<SourceLabel, Counter>,
    replayed_records: Family<SourceLabel, Counter>,
    recognized_records: Family<SourceLabel, Counter>,
    unreadable_records: Family<SourceLabel, Counter>,
    damages: Family<SourceLabel, Counter>,
    torn_writes: Family<SourceLabel, Counter>,
}

impl Families {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let families = Self {
            records: Family::default(),
            bytes: Family::default(),
            in_trouble: Family::default(),
            written_records: Family::default(),
            written_bytes: Family::default(),
            replayed_records: Family::default(),
            recognized_records: Family::default(),
            unreadable_records: Family::default(),
            damages: Family::default(),
            torn_writes: Family::default(),
        };
        let area = registry.sub_registry_with_prefix("spool");
        area.register("records", "Records in the spool, not settled yet", families.records.clone());
        area.register("bytes", "Bytes of records in the spool", families.bytes.clone());
        area.register(
            "in_trouble",
            "Whether the spool cannot be used now and is tried again, 0 or 1",
            families.in_trouble.clone(),
        );
        area.register(
            "written_records",
            "Records written to the spool and durable there",
            families.written_records.clone(),
        );
        area.register(
            "written_bytes",
            "Bytes written to the spool for those records",
            families.written_bytes.clone(),
        );
        area.register(
            "replayed_records",
            "Records that an earlier life of the host left in the spool",
            families.replayed_records.clone(),
        );
        area.register(
            "recognized_records",
            "Records that came again from the broker and were in the spool, or settled from it, already",
            families.recognized_records.clone(),
        );
        area.register(
            "unreadable_records",
            "Records in the spool that cannot be read any more",
            families.unreadable_records.clone(),
        );
        area.register(
            "damages",
            "Times that the spool's file was damaged and a new one was made of what can be read",
            families.damages.clone(),
        );
        area.register(
            "torn_writes",
            "Times that the last write to the spool was not whole when it was opened, by a crash or by damage",
            families.torn_writes.clone(),
        );
        families
    }
}

#[derive(Clone, Debug, Eq, Hash, PartialEq, EncodeLabelSet)]
struct SourceLabel {
    source: Name,
}

fn label(name: &Arc<str>) -> SourceLabel {
    SourceLabel { source: Name::from(name) }
}

/// A spool was opened for the first time in this life.
#[derive(Clone, Debug)]
pub struct Opened {
    /// Of the source.
    pub name: Arc<str>,
    /// The file.
    pub path: PathBuf,
    /// What an earlier life left in it.
    pub records: usize,
    /// Its bytes.
    pub bytes: u64,
}

impl Event for Opened {
    fn record(self, metrics: &Metrics) {
        let Self { name, path, records, bytes } = self;
        let path = path.display();
        if records == 0 {
            tracing::info!(source = %name, %path, "the spool is open and empty");
        } else {
            tracing::info!(
                source = %name,
                %path,
                records,
                bytes,
                "the spool is open: what is in it is handed out before anything new is received"
            );
        }
        metrics.spool.in_trouble.get_or_create(&label(&name)).set(0);
        metrics.spool.replayed_records.get_or_create(&label(&name)).inc_by(records as u64);
    }
}

/// A spool's file was damaged, and there is a new one.
#[derive(Clone, Debug)]
pub struct Damaged {
    /// Of the source.
    pub name: Arc<str>,
    /// What was wrong with it.
    pub reason: String,
    /// Where the damaged file is now.
    pub kept_as: PathBuf,
    /// Records that could be read.
    pub read: usize,
}

impl Event for Damaged {
    fn record(self, metrics: &Metrics) {
        let Self { name, reason, kept_as, read } = self;
        tracing::error!(
            source = %name,
            reason,
            kept_as = %kept_as.display(),
            records = read,
            "the spool's file was damaged: what can be read is in a new one and is handed out, some of it perhaps for the \
             second time; what cannot be read is lost"
        );
        metrics.spool.damages.get_or_create(&label(&name)).inc();
    }
}

/// The last write to a spool was not whole when it was opened.
#[derive(Clone, Debug)]
pub struct Torn {
    /// Of the source.
    pub name: Arc<str>,
    /// Records of it that were put back.
    pub restored: usize,
    /// Records of it of which nothing can be read.
    pub missing: u64,
}

impl Event for Torn {
    fn record(self, metrics: &Metrics) {
        let Self { name, restored, missing } = self;
        tracing::warn!(
            source = %name,
            restored,
            missing,
            "the last write to the spool was not whole: what of it can be read was put back; what cannot comes again from the \
             broker if a crash cut the write off, and is lost if the file was damaged later"
        );
        metrics.spool.torn_writes.get_or_create(&label(&name)).inc();
    }
}

/// Records in a spool cannot be read any more.
#[derive(Clone, Debug)]
pub struct Unreadable {
    /// Of the source.
    pub name: Arc<str>,
    /// How many.
    pub records: usize,
}

impl Event for Unreadable {
    fn record(self, metrics: &Metrics) {
        let Self { name, records } = self;
        tracing::error!(source = %name, records, "records in the spool cannot be read and are lost");
        metrics.spool.unreadable_records.get_or_create(&label(&name)).inc_by(records as u64);
    }
}

/// A spool cannot be used now.
#[derive(Clone, Debug)]
pub struct TroubleBegan {
    /// Of the source.
    pub name: Arc<str>,
    /// In one sentence.
    pub detail: Arc<str>,
    /// Whether all was well before: else the trouble is another one now.
    pub is_new: bool,
}

impl Event for TroubleBegan {
    fn record(self, metrics: &Metrics) {
        let Self { name, detail, is_new } = self;
        tracing::error!(
            source = %name,
            %detail,
            is_new,
            "trouble with the spool: nothing is received until it can be used, and what is in it is kept"
        );
        metrics.spool.in_trouble.get_or_create(&label(&name)).set(1);
    }
}

/// A spool can be used again.
#[derive(Clone, Debug)]
pub struct TroubleEnded {
    /// Of the source.
    pub name: Arc<str>,
}

impl Event for TroubleEnded {
    fn record(self, metrics: &Metrics) {
        let Self { name } = self;
        tracing::info!(source = %name, "the spool can be used again");
        metrics.spool.in_trouble.get_or_create(&label(&name)).set(0);
    }
}

/// Records are durable in a spool.
#[derive(Clone, Debug)]
pub struct Written {
    /// Of the source.
    pub name: Arc<str>,
    /// How many.
    pub records: usize,
    /// What was written for them.
    pub bytes: usize,
}

impl Event for Written {
    fn record(self, metrics: &Metrics) {
        let Self { name, records, bytes } = self;
        metrics.spool.written_records.get_or_create(&label(&name)).inc_by(records as u64);
        metrics.spool.written_bytes.get_or_create(&label(&name)).inc_by(bytes as u64);
    }
}

/// Records came again that the spool knows.
#[derive(Clone, Debug)]
pub struct Recognized {
    /// Of the source.
    pub name: Arc<str>,
    /// How many.
    pub records: u64,
}

impl Event for Recognized {
    fn record(self, metrics: &Metrics) {
        let Self { name, records } = self;
        tracing::debug!(source = %name, records, "came again and is in the spool, or settled, already");
        metrics.spool.recognized_records.get_or_create(&label(&name)).inc_by(records);
    }
}

/// So much is in a spool now.
#[derive(Clone, Debug)]
pub struct Amount {
    /// Of the source.
    pub name: Arc<str>,
    /// Records.
    pub records: usize,
    /// Their bytes.
    pub bytes: u64,
}

impl Event for Amount {
    fn record(self, metrics: &Metrics) {
        let Self { name, records, bytes } = self;
        metrics.spool.records.get_or_create(&label(&name)).set(i64::try_from(records).unwrap_or(i64::MAX));
        metrics.spool.bytes.get_or_create(&label(&name)).set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }
}
