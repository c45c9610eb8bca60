//! One batch: what its header says, and the way to its records.

use bytes::Bytes;

use super::compression::{Compression, Decompressor};
use super::error::{BatchError, BatchFault};
use super::layout::{self, field};
use super::ranges::{OffsetRange, OffsetRanges};
use super::record::Records;

/// A batch of records whose checksum was right.
#[derive(Clone, Debug)]
pub struct Batch {
    offsets: OffsetRange,
    attributes: u16,
    compression: Compression,
    base_timestamp_ms: i64,
    max_timestamp_ms: i64,
    producer_id: i64,
    producer_epoch: i16,
    base_sequence: i32,
    leader_epoch: i32,
    count: u32,
    payload: Bytes,
}

/// Who set the timestamps of a batch.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TimestampType {
    /// The producer, each record its own.
    Create,
    /// The broker, one for all records, when the batch was appended.
    LogAppend,
}

static ALL: [OffsetRange; 1] = [OffsetRange::ALL];

impl Batch {
    /// From the bytes of the whole batch, which is at least as long as its header. `following` is where the next batch of
    /// the response begins: no error of this one reaches into it.
    pub(super) fn read(whole: &Bytes, following: Option<i64>) -> Result<Self, BatchError> {
        let base = i64::from_be_bytes(field(whole, layout::BASE_OFFSET));
        let last_delta = i32::from_be_bytes(field(whole, layout::LAST_DELTA));
        let last = (base >= 0 && last_delta >= 0).then(|| base.checked_add(i64::from(last_delta))).flatten();
        let error = |fault| BatchError { offsets: suspected(base, last, following), fault };

        let stated = u32::from_be_bytes(field(whole, layout::CHECKSUM));
        let computed = crc32c::crc32c(whole.get(layout::ATTRIBUTES..).unwrap_or_default());
        if stated != computed {
            return Err(error(BatchFault::Checksum { stated, computed }));
        }
        let Some(last) = last else {
            return Err(error(BatchFault::Offsets { base, last_delta }));
        };
        let attributes = u16::from_be_bytes(field(whole, layout::ATTRIBUTES));
        let code = attributes.to_be_bytes()[1] & layout::COMPRESSION_BITS;
        let compression =
            Compression::from_code(code).ok_or_else(|| error(BatchFault::Compression { code }))?;
        let count = i32::from_be_bytes(field(whole, layout::COUNT));
        let count = u32::try_from(count).map_err(|_| error(BatchFault::Count { count }))?;
        Ok(Self {
            offsets: OffsetRange::new(base, last),
            attributes,
            compression,
            base_timestamp_ms: i64::from_be_bytes(field(whole, layout::BASE_TIMESTAMP)),
            max_timestamp_ms: i64::from_be_bytes(field(whole, layout::MAX_TIMESTAMP)),
            producer_id: i64::from_be_bytes(field(whole, layout::PRODUCER_ID)),
            producer_epoch: i16::from_be_bytes(field(whole, layout::PRODUCER_EPOCH)),
            base_sequence: i32::from_be_bytes(field(whole, layout::BASE_SEQUENCE)),
            leader_epoch: i32::from_be_bytes(field(whole, layout::LEADER_EPOCH)),
            count,
            payload: whole.slice(layout::RECORDS..),
        })
    }

    /// Its records.
    ///
    /// # Errors
    ///
    /// If it cannot be decompressed, or not within the limit.
    pub fn records(&self, decompressor: &mut Decompressor) -> Result<Records<'static>, BatchError> {
        self.open(&ALL, decompressor)
    }

    /// Its records at the wanted offsets; others are stepped over without being looked into, and a batch that has none
    /// of them is not decompressed.
    ///
    /// # Errors
    ///
    /// As of [`records`](Self::records).
    pub fn records_within<'wanted>(
        &self,
        wanted: &'wanted OffsetRanges,
        decompressor: &mut Decompressor,
    ) -> Result<Records<'wanted>, BatchError> {
        self.open(wanted.as_slice(), decompressor)
    }

    fn open<'wanted>(
        &self,
        wanted: &'wanted [OffsetRange],
        decompressor: &mut Decompressor,
    ) -> Result<Records<'wanted>, BatchError> {
        let begin = wanted.partition_point(|range| range.last < self.offsets.first);
        let end = wanted.partition_point(|range| range.first <= self.offsets.last);
        let wanted = wanted.get(begin..end).unwrap_or_default();
        // The cleaner leaves a header alone, with whatever compression it had.
        let payload = if wanted.is_empty() || (self.count == 0 && self.payload.is_empty()) {
            Bytes::new()
        } else {
            decompressor
                .open(self.compression, &self.payload)
                .map_err(|fault| BatchError { offsets: Some(self.offsets), fault })?
        };
        let append_time_ms =
            (self.timestamp_type() == TimestampType::LogAppend).then_some(self.max_timestamp_ms);
        Ok(Records::new(payload, self.count, self.offsets, self.base_timestamp_ms, append_time_ms, wanted))
    }

    /// From its first to its last offset, also where records are missing at either end.
    #[must_use]
    pub const fn offsets(&self) -> OffsetRange {
        self.offsets
    }

    /// How many records it has by its header.
    #[must_use]
    pub const fn record_count(&self) -> u32 {
        self.count
    }

    /// Whether its records are a transaction's markers, which are no messages.
    #[must_use]
    pub const fn is_control(&self) -> bool {
        self.attributes & layout::CONTROL != 0
    }

    /// Whether it is part of a transaction.
    #[must_use]
    pub const fn is_transactional(&self) -> bool {
        self.attributes & layout::TRANSACTIONAL != 0
    }

    /// What its records are compressed by.
    #[must_use]
    pub const fn compression(&self) -> Compression {
        self.compression
    }

    /// Who set its timestamps.
    #[must_use]
    pub const fn timestamp_type(&self) -> TimestampType {
        if self.attributes & layout::LOG_APPEND_TIME == 0 {
            TimestampType::Create
        } else {
            TimestampType::LogAppend
        }
    }

    /// The latest timestamp, in milliseconds since 1970; -1 when there is none.
    #[must_use]
    pub const fn max_timestamp_ms(&self) -> i64 {
        self.max_timestamp_ms
    }

    /// The idempotent or transactional producer; -1 for any other.
    #[must_use]
    pub const fn producer_id(&self) -> i64 {
        self.producer_id
    }

    /// The producer's epoch; -1 when it has none.
    #[must_use]
    pub const fn producer_epoch(&self) -> i16 {
        self.producer_epoch
    }

    /// The producer's number of the first record; -1 when it does not count.
    #[must_use]
    pub const fn base_sequence(&self) -> i32 {
        self.base_sequence
    }

    /// The epoch of the leader that appended it.
    #[must_use]
    pub const fn leader_epoch(&self) -> i32 {
        self.leader_epoch
    }
}

/// What a batch that cannot be trusted may be about. Its first offset is all the broker's; its last one may be the very
/// number that is damaged, and then the next batch bounds it.
fn suspected(base: i64, last: Option<i64>, following: Option<i64>) -> Option<OffsetRange> {
    let before = following.filter(|following| *following > base).map(|following| following - 1);
    let last = match (last, before) {
        (Some(last), Some(before)) => last.min(before),
        (last, before) => last.or(before)?,
    };
    (base >= 0).then_some(OffsetRange::new(base, last))
}
