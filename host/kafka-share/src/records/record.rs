//! Records, one after another.

use std::borrow::Cow;
use std::fmt;
use std::iter::FusedIterator;

use bytes::Bytes;

use super::batch::TimestampType;
use super::error::{BatchError, BatchFault, RecordFault};
use super::ranges::OffsetRange;
use super::varint::Reader;

/// One record.
///
/// Its bytes are slices of the response, or of the batch's decompressed buffer: as long as one of them lives, all of that
/// does. Copy what is kept for long.
#[derive(Clone, Debug)]
pub struct Record {
    /// Its place in the partition.
    pub offset: i64,
    /// In milliseconds since 1970; -1 when there is none.
    pub timestamp_ms: i64,
    /// Who set the timestamp.
    pub timestamp_type: TimestampType,
    /// Its key, if it has one.
    pub key: Option<Bytes>,
    /// Its value; none is a tombstone.
    pub value: Option<Bytes>,
    /// Its headers.
    pub headers: Headers,
}

/// A record's headers, as they were sent: in order, with duplicates.
#[derive(Clone, Default)]
pub struct Headers {
    /// Validated when the record was read.
    bytes: Bytes,
    count: usize,
}

/// One header.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Header<'a> {
    /// Its name: UTF-8 by the protocol, which brokers do not check.
    pub key: &'a [u8],
    /// Its value, if it has one.
    pub value: Option<&'a [u8]>,
}

impl<'a> Header<'a> {
    /// Its name as text, with replacement characters for what is not.
    #[must_use]
    pub fn key_text(&self) -> Cow<'a, str> {
        String::from_utf8_lossy(self.key)
    }
}

impl Record {
    /// Bytes of its key, value and headers.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        let length = |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, Bytes::len);
        length(&self.key) + length(&self.value) + self.headers.bytes.len()
    }
}

impl Headers {
    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// All of them, in the order they were sent in.
    pub fn iter(&self) -> impl Iterator<Item = Header<'_>> {
        let mut reader = Reader::new(&self.bytes);
        (0..self.count).map_while(move |_| read_header(&mut reader).ok())
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter().map(|header| (header.key_text(), header.value))).finish()
    }
}

/// A batch's records, in ascending order of offsets.
///
/// A record that cannot be read, or the rest of the batch behind one whose end is unknown, is an error with the offsets
/// that are lost by it; after one with a known end, the records go on.
#[derive(Debug)]
pub struct Records<'wanted> {
    payload: Bytes,
    /// How much of the payload is read.
    at: usize,
    /// How many records are left by the batch's header.
    left: u32,
    base_offset: i64,
    /// Offsets that are still ahead.
    ahead: OffsetRange,
    base_timestamp_ms: i64,
    append_time_ms: Option<i64>,
    /// Ascending and apart; those behind are dropped.
    wanted: &'wanted [OffsetRange],
}

impl<'wanted> Records<'wanted> {
    pub(super) const fn new(
        payload: Bytes,
        count: u32,
        offsets: OffsetRange,
        base_timestamp_ms: i64,
        append_time_ms: Option<i64>,
        wanted: &'wanted [OffsetRange],
    ) -> Self {
        Self {
            payload,
            at: 0,
            left: count,
            base_offset: offsets.first,
            ahead: offsets,
            base_timestamp_ms,
            append_time_ms,
            wanted,
        }
    }

    /// Steps to the next record; gives nothing if it is not wanted.
    fn step(&mut self) -> Result<Option<Record>, Flaw> {
        let rest = self.payload.get(self.at..).unwrap_or_default();
        let mut reader = Reader::new(rest);
        let length = reader.length().map_err(Flaw::Rest)?;
        let begin = reader.at();
        let body = reader.take(length).map_err(Flaw::Rest)?;
        let mut body = Reader::new(body);
        // A record's attributes have no meaning yet.
        body.take(1).map_err(Flaw::Rest)?;
        let timestamp_delta = body.varlong().map_err(Flaw::Rest)?;
        let offset_delta = body.varint().map_err(Flaw::Rest)?;
        let offset = self.base_offset.saturating_add(i64::from(offset_delta));
        if !self.ahead.contains(offset) {
            return Err(Flaw::Rest(RecordFault::Order));
        }
        let fields = self.at + begin;
        self.at = fields + length;
        self.left -= 1;
        self.ahead.first = offset.saturating_add(1);
        while let Some((range, others)) = self.wanted.split_first()
            && range.last < offset
        {
            self.wanted = others;
        }
        if !self.wanted.first().is_some_and(|range| range.contains(offset)) {
            return Ok(None);
        }
        // As the Java client does it, a sum that overflows wraps.
        let created = self.base_timestamp_ms.wrapping_add(timestamp_delta);
        let timestamp_ms = self.append_time_ms.unwrap_or(created);
        self.read(body, fields, offset, timestamp_ms).map(Some).map_err(|fault| Flaw::One(offset, fault))
    }

    /// Reads what follows the offset; `begin` is where `body` begins in the payload.
    fn read(
        &self,
        mut body: Reader<'_>,
        begin: usize,
        offset: i64,
        timestamp_ms: i64,
    ) -> Result<Record, RecordFault> {
        let slice = |bytes: &[u8], end: usize| self.payload.slice(begin + end - bytes.len()..begin + end);
        let key = body.nullable()?.map(|bytes| slice(bytes, body.at()));
        let value = body.nullable()?.map(|bytes| slice(bytes, body.at()));
        let count = body.length()?;
        let first = body.at();
        for _ in 0..count {
            read_header(&mut body)?;
        }
        if !body.is_at_end() {
            return Err(RecordFault::Surplus);
        }
        let bytes =
            if count == 0 { Bytes::new() } else { self.payload.slice(begin + first..begin + body.at()) };
        let timestamp_type = match self.append_time_ms {
            Some(_) => TimestampType::LogAppend,
            None => TimestampType::Create,
        };
        let headers = Headers { bytes, count };
        Ok(Record { offset, timestamp_ms, timestamp_type, key, value, headers })
    }

    fn end(&mut self) {
        self.wanted = &[];
        self.payload = Bytes::new();
    }
}

/// How far a malformed record's damage goes.
enum Flaw {
    /// Where the next record begins is unknown.
    Rest(RecordFault),
    /// Only the record at this offset.
    One(i64, RecordFault),
}

impl Iterator for Records<'_> {
    type Item = Result<Record, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            // Without offsets ahead nothing can be lost any more, whatever bytes are left.
            let done = self.wanted.last().is_none_or(|range| range.last < self.ahead.first);
            if done || self.ahead.is_empty() {
                self.end();
                return None;
            }
            if self.left == 0 {
                let offsets = Some(self.ahead);
                let surplus = self.at < self.payload.len();
                self.end();
                return surplus.then_some(Err(BatchError { offsets, fault: BatchFault::Surplus }));
            }
            let (offsets, fault) = match self.step() {
                Ok(None) => continue,
                Ok(Some(record)) => return Some(Ok(record)),
                Err(Flaw::One(offset, fault)) => (OffsetRange::new(offset, offset), fault),
                Err(Flaw::Rest(fault)) => {
                    self.end();
                    (self.ahead, fault)
                }
            };
            return Some(Err(BatchError { offsets: Some(offsets), fault: BatchFault::Record(fault) }));
        }
    }
}

impl FusedIterator for Records<'_> {}

fn read_header<'a>(reader: &mut Reader<'a>) -> Result<Header<'a>, RecordFault> {
    let length = reader.length()?;
    let key = reader.take(length)?;
    let value = reader.nullable()?;
    Ok(Header { key, value })
}
