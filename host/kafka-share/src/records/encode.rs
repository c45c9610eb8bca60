//! Making a batch.

use std::io::{self, Write};

use bytes::Bytes;
use flate2::write::GzEncoder;
use lz4_flex::frame::FrameEncoder;

use super::compression::{Compression, SNAPPY_HEADER, SNAPPY_MAGIC};
use super::layout;
use super::record::Header;
use super::varint::{put, put_length};

/// Both versions in the header of the Java library's snappy framing.
const SNAPPY_VERSION: i32 = 1;
/// As much as the Java library puts in one snappy block.
const SNAPPY_BLOCK: usize = 32 * 1024;
/// What stands where a producer has no id, no epoch, and does not count.
const NO_PRODUCER: (i64, i16, i32) = (-1, -1, -1);

/// Makes one batch, record by record.
///
/// ```
/// use tidegate_kafka_share::records::{BatchBuilder, Compression, NewRecord};
///
/// let mut batch = BatchBuilder::new(100).compression(Compression::Lz4);
/// batch.push(&NewRecord { value: Some(b"first"), ..NewRecord::default() });
/// batch.push(&NewRecord { value: Some(b"second"), ..NewRecord::default() });
/// let bytes = batch.build()?;
/// # Ok::<(), tidegate_kafka_share::records::BuildError>(())
/// ```
#[derive(Clone, Debug)]
pub struct BatchBuilder {
    base_offset: i64,
    leader_epoch: i32,
    attributes: u16,
    compression: Compression,
    append_time_ms: Option<i64>,
    timestamps_ms: Option<Timestamps>,
    producer: (i64, i16, i32),
    /// How many offsets it covers so far.
    offsets: i64,
    count: i64,
    records: Vec<u8>,
    /// The record being written, kept for its memory.
    scratch: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Timestamps {
    base: i64,
    max: i64,
}

/// A record to write.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewRecord<'a> {
    /// In milliseconds since 1970.
    pub timestamp_ms: i64,
    /// Its key, if it has one.
    pub key: Option<&'a [u8]>,
    /// Its value; none is a tombstone.
    pub value: Option<&'a [u8]>,
    /// Its headers, in this order.
    pub headers: &'a [Header<'a>],
}

/// Why a batch cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// There is no batch without an offset.
    #[error("a batch covers at least one offset")]
    Empty,
    /// The format counts offsets, records and bytes in 31 bits.
    #[error("the batch has more offsets or bytes than one batch can have")]
    TooLarge,
    /// A compressor failed.
    #[error("cannot compress the batch with {compression}")]
    Compress {
        /// Which one.
        compression: Compression,
        /// What it says.
        source: io::Error,
    },
}

impl BatchBuilder {
    /// An empty batch whose first offset is this one.
    #[must_use]
    pub const fn new(base_offset: i64) -> Self {
        Self {
            base_offset,
            leader_epoch: 0,
            attributes: 0,
            compression: Compression::None,
            append_time_ms: None,
            timestamps_ms: None,
            producer: NO_PRODUCER,
            offsets: 0,
            count: 0,
            records: Vec::new(),
            scratch: Vec::new(),
        }
    }

    /// Compresses the records, with the compression's default level.
    #[must_use]
    pub const fn compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }

    /// Gives all records the time at which a broker appended them, in milliseconds since 1970.
    #[must_use]
    pub const fn log_append_time(mut self, time_ms: i64) -> Self {
        self.append_time_ms = Some(time_ms);
        self
    }

    /// Makes it a batch of an idempotent producer; `sequence` is its number of the first record.
    #[must_use]
    pub const fn producer(mut self, id: i64, epoch: i16, sequence: i32) -> Self {
        self.producer = (id, epoch, sequence);
        self
    }

    /// Makes it part of a transaction.
    #[must_use]
    pub const fn transactional(mut self) -> Self {
        self.attributes |= layout::TRANSACTIONAL;
        self
    }

    /// Makes it a batch of markers.
    #[must_use]
    pub const fn control(mut self) -> Self {
        self.attributes |= layout::CONTROL;
        self
    }

    /// Sets the epoch of the leader that appends it.
    #[must_use]
    pub const fn leader_epoch(mut self, epoch: i32) -> Self {
        self.leader_epoch = epoch;
        self
    }

    /// The offset that the next record gets.
    #[must_use]
    pub const fn next_offset(&self) -> i64 {
        self.base_offset.saturating_add(self.offsets)
    }

    /// Adds a record.
    pub fn push(&mut self, record: &NewRecord<'_>) {
        let timestamps = self
            .timestamps_ms
            .get_or_insert(Timestamps { base: record.timestamp_ms, max: record.timestamp_ms });
        timestamps.max = timestamps.max.max(record.timestamp_ms);
        let body = &mut self.scratch;
        body.clear();
        body.push(0);
        put(body, record.timestamp_ms.wrapping_sub(timestamps.base));
        put(body, self.offsets);
        put_nullable(body, record.key);
        put_nullable(body, record.value);
        put_length(body, record.headers.len());
        for header in record.headers {
            put_length(body, header.key.len());
            body.extend_from_slice(header.key);
            put_nullable(body, header.value);
        }
        put_length(&mut self.records, body.len());
        self.records.extend_from_slice(body);
        self.offsets += 1;
        self.count += 1;
    }

    /// Leaves out so many offsets, as the cleaner of a compacted topic does.
    pub fn skip(&mut self, offsets: u32) {
        self.offsets += i64::from(offsets);
    }

    /// The batch as a broker sends it.
    ///
    /// # Errors
    ///
    /// If it has no offset, or more than the format can say.
    pub fn build(self) -> Result<Bytes, BuildError> {
        if self.offsets == 0 {
            return Err(BuildError::Empty);
        }
        let last_delta = i32::try_from(self.offsets - 1).map_err(|_| BuildError::TooLarge)?;
        let count = i32::try_from(self.count).map_err(|_| BuildError::TooLarge)?;
        // A batch without records is a header and nothing else.
        let compression = if count == 0 { Compression::None } else { self.compression };
        let packed = compress(compression, self.records)
            .map_err(|source| BuildError::Compress { compression, source })?;
        let length = layout::RECORDS - layout::LEADER_EPOCH + packed.len();
        let length = i32::try_from(length).map_err(|_| BuildError::TooLarge)?;

        let append = if self.append_time_ms.is_some() { layout::LOG_APPEND_TIME } else { 0 };
        let attributes = self.attributes | append | u16::from(compression.code());
        let created = self.timestamps_ms.unwrap_or(Timestamps { base: -1, max: -1 });
        let (producer_id, producer_epoch, base_sequence) = self.producer;
        let mut checked = Vec::with_capacity(layout::RECORDS - layout::ATTRIBUTES + packed.len());
        checked.extend_from_slice(&attributes.to_be_bytes());
        checked.extend_from_slice(&last_delta.to_be_bytes());
        checked.extend_from_slice(&created.base.to_be_bytes());
        checked.extend_from_slice(&self.append_time_ms.unwrap_or(created.max).to_be_bytes());
        checked.extend_from_slice(&producer_id.to_be_bytes());
        checked.extend_from_slice(&producer_epoch.to_be_bytes());
        checked.extend_from_slice(&base_sequence.to_be_bytes());
        checked.extend_from_slice(&count.to_be_bytes());
        checked.extend_from_slice(&packed);

        let mut batch = Vec::with_capacity(layout::RECORDS + packed.len());
        batch.extend_from_slice(&self.base_offset.to_be_bytes());
        batch.extend_from_slice(&length.to_be_bytes());
        batch.extend_from_slice(&self.leader_epoch.to_be_bytes());
        batch.extend_from_slice(&layout::MAGIC_READ.to_be_bytes());
        batch.extend_from_slice(&crc32c::crc32c(&checked).to_be_bytes());
        batch.extend_from_slice(&checked);
        Ok(batch.into())
    }
}

fn put_nullable(into: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        Some(bytes) => {
            put_length(into, bytes.len());
            into.extend_from_slice(bytes);
        }
        None => put(into, -1),
    }
}

fn compress(compression: Compression, records: Vec<u8>) -> io::Result<Vec<u8>> {
    match compression {
        Compression::None => Ok(records),
        Compression::Gzip => {
            let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(&records)?;
            encoder.finish()
        }
        Compression::Snappy => snappy(&records),
        Compression::Lz4 => {
            let mut encoder = FrameEncoder::new(Vec::new());
            encoder.write_all(&records)?;
            Ok(encoder.finish()?)
        }
        Compression::Zstd => zstd::bulk::compress(&records, zstd::DEFAULT_COMPRESSION_LEVEL),
    }
}

fn snappy(records: &[u8]) -> io::Result<Vec<u8>> {
    let mut packed = Vec::with_capacity(SNAPPY_HEADER);
    packed.extend_from_slice(&SNAPPY_MAGIC);
    packed.extend_from_slice(&SNAPPY_VERSION.to_be_bytes());
    packed.extend_from_slice(&SNAPPY_VERSION.to_be_bytes());
    let mut encoder = snap::raw::Encoder::new();
    for block in records.chunks(SNAPPY_BLOCK) {
        let block = encoder.compress_vec(block)?;
        // A block is at most a sixth longer than the 32 KB it is made of.
        packed.extend_from_slice(&i32::try_from(block.len()).unwrap_or(i32::MAX).to_be_bytes());
        packed.extend_from_slice(&block);
    }
    Ok(packed)
}
