//! Record batches as Kafka writes them (magic 2), by an encoder of its own: what is under test must not have written
//! what it reads.

use bytes::{BufMut, Bytes, BytesMut};

/// Bytes before the records: base offset to the number of records.
pub const HEADER_BYTES: usize = 61;

/// Where the fields that are patched lie.
const LENGTH_AT: usize = 8;
const LEADER_EPOCH_AT: usize = 12;
const CRC_AT: usize = 17;
/// The checksum covers everything from here.
pub(crate) const ATTRIBUTES_AT: usize = 21;
const LAST_OFFSET_DELTA_AT: usize = 23;
const BASE_TIMESTAMP_AT: usize = 27;
const MAX_TIMESTAMP_AT: usize = 35;
/// The bits of the attributes' second byte that name a compression.
const CODEC_MASK: u8 = 7;

/// The attribute bits of a transaction's batch and of a marker.
const TRANSACTIONAL: i16 = 1 << 4;
const CONTROL: i16 = 1 << 5;

/// A record to write.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// Milliseconds since the Unix epoch.
    pub timestamp: i64,
    /// Its key, if any.
    pub key: Option<Bytes>,
    /// Its value; none is a tombstone.
    pub value: Option<Bytes>,
    /// Its headers in order; names may repeat.
    pub headers: Vec<(String, Option<Bytes>)>,
}

impl Record {
    /// A record of a value alone.
    #[must_use]
    pub fn new(value: impl Into<Bytes>) -> Self {
        Self { value: Some(value.into()), ..Self::default() }
    }

    /// The same record with a key.
    #[must_use]
    pub fn keyed(self, key: impl Into<Bytes>) -> Self {
        Self { key: Some(key.into()), ..self }
    }

    /// The same record with one header more.
    #[must_use]
    pub fn with_header(mut self, name: &str, value: impl Into<Bytes>) -> Self {
        self.headers.push((name.to_owned(), Some(value.into())));
        self
    }
}

/// A batch to write. What is not set is as a plain producer's.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    records: Vec<(i32, Record)>,
    last_offset_delta: Option<i32>,
    attributes: i16,
    payload: Option<(i16, i32, Bytes)>,
    first_timestamp: Option<i64>,
}

impl Batch {
    /// A batch of records one after the other.
    pub fn of(records: impl IntoIterator<Item = Record>) -> Self {
        Self { records: (0..).zip(records).collect(), ..Self::default() }
    }

    /// A batch of records at these offsets, counted from its base: what compaction leaves.
    pub fn sparse(records: impl IntoIterator<Item = (i32, Record)>, last_offset_delta: i32) -> Self {
        Self {
            records: records.into_iter().collect(),
            last_offset_delta: Some(last_offset_delta),
            ..Self::default()
        }
    }

    /// A batch that spans `offsets` offsets and holds no record any more.
    #[must_use]
    pub fn empty(offsets: i32) -> Self {
        Self::sparse([], offsets - 1)
    }

    /// A transaction's marker: one offset, and nothing for readers.
    #[must_use]
    pub fn marker(commit: bool) -> Self {
        let key = [0, 0, 0, u8::from(commit)];
        let record = Record::new(vec![0; 6]).keyed(key.to_vec());
        Self { attributes: TRANSACTIONAL | CONTROL, ..Self::of([record]) }
    }

    /// A batch whose records were compressed by the caller: the codec's number (1 gzip, 2 snappy, 3 lz4, 4 zstd), how many
    /// records, and the compressed form of what [`Batch::plain_records`] gives.
    #[must_use]
    pub fn compressed(codec: i16, records: i32, payload: Bytes) -> Self {
        Self { payload: Some((codec, records, payload)), ..Self::default() }
    }

    /// The same batch with this timestamp of its first record, from which those of its records count: for
    /// [`Batch::compressed`], which cannot see them.
    #[must_use]
    pub fn from_timestamp(self, timestamp: i64) -> Self {
        Self { first_timestamp: Some(timestamp), ..self }
    }

    /// The batch's records as they lie in it uncompressed.
    #[must_use]
    pub fn plain_records(&self) -> Bytes {
        let first = self.records.first().map_or(0, |(_, record)| record.timestamp);
        let mut payload = BytesMut::new();
        let mut body = BytesMut::new();
        for (delta, record) in &self.records {
            body.clear();
            put_record(&mut body, *delta, record.timestamp - first, record);
            put_varint(&mut payload, count(body.len()));
            payload.extend_from_slice(&body);
        }
        payload.freeze()
    }

    /// The batch at its place in a log.
    #[must_use]
    pub fn encode(&self, base_offset: i64, leader_epoch: i32) -> BytesMut {
        let (codec, records, payload) =
            self.payload.clone().unwrap_or_else(|| (0, fit(self.records.len()), self.plain_records()));
        let written = || self.records.first().map_or(0, |(_, record)| record.timestamp);
        let first = self.first_timestamp.unwrap_or_else(written);
        let newest = self.records.iter().map(|(_, record)| record.timestamp).max().unwrap_or(first);
        let last_offset_delta = self
            .last_offset_delta
            .unwrap_or_else(|| self.records.last().map_or(records - 1, |(delta, _)| *delta).max(0));
        let mut batch = BytesMut::with_capacity(HEADER_BYTES + payload.len());
        batch.put_i64(base_offset);
        batch.put_i32(fit(HEADER_BYTES - LEADER_EPOCH_AT + payload.len()));
        batch.put_i32(leader_epoch);
        batch.put_i8(2);
        batch.put_u32(0);
        batch.put_i16(self.attributes | codec);
        batch.put_i32(last_offset_delta);
        batch.put_i64(first);
        batch.put_i64(newest);
        // Producer id, its epoch and the base sequence: none.
        batch.put_i64(-1);
        batch.put_i16(-1);
        batch.put_i32(-1);
        batch.put_i32(records);
        batch.extend_from_slice(&payload);
        seal(&mut batch);
        batch
    }
}

/// Writes the checksum of a batch whose other bytes are final.
pub(crate) fn seal(batch: &mut [u8]) {
    let crc = crc32c::crc32c(batch.get(ATTRIBUTES_AT..).unwrap_or_default());
    if let Some(field) = batch.get_mut(CRC_AT..ATTRIBUTES_AT) {
        field.copy_from_slice(&crc.to_be_bytes());
    }
}

/// Gives a batch another place in a log; the checksum does not cover it.
pub(crate) fn stamp(batch: &mut [u8], base_offset: i64) {
    if let Some(field) = batch.get_mut(..LENGTH_AT) {
        field.copy_from_slice(&base_offset.to_be_bytes());
    }
}

/// The length of the batch that begins these bytes, and its last offset counted from its base.
pub(crate) fn measure(bytes: &[u8]) -> Option<(usize, i64)> {
    let length = i32::from_be_bytes(*bytes.get(LENGTH_AT..)?.first_chunk()?);
    let last = i32::from_be_bytes(*bytes.get(LAST_OFFSET_DELTA_AT..)?.first_chunk()?);
    let whole = LEADER_EPOCH_AT + usize::try_from(length).ok()?;
    (whole >= HEADER_BYTES && whole <= bytes.len()).then_some((whole, i64::from(last)))
}

/// The first record of a batch that is not older than `timestamp`: its offset counted from the batch's, and its time.
pub(crate) fn at_time(batch: &[u8], timestamp: i64) -> Option<(i64, i64)> {
    let number = |at: usize| Some(i64::from_be_bytes(*batch.get(at..)?.first_chunk()?));
    let (first, newest) = (number(BASE_TIMESTAMP_AT)?, number(MAX_TIMESTAMP_AT)?);
    if newest < timestamp {
        return None;
    }
    let is_plain = batch.get(ATTRIBUTES_AT + 1)? & CODEC_MASK == 0;
    let mut rest = batch.get(HEADER_BYTES..)?;
    while is_plain && !rest.is_empty() {
        let length = usize::try_from(take_varint(&mut rest)?).ok()?;
        let mut record = rest.get(1..length)?;
        rest = rest.get(length..)?;
        let time = first + take_varint(&mut record)?;
        if time >= timestamp {
            return Some((take_varint(&mut record)?, time));
        }
    }
    Some((0, newest))
}

/// The reverse of [`put_varint`].
#[allow(clippy::cast_possible_wrap, reason = "that is what zigzag is about")]
fn take_varint(bytes: &mut &[u8]) -> Option<i64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(((value >> 1) as i64) ^ -((value & 1) as i64));
        }
    }
    None
}

fn put_record(body: &mut BytesMut, offset_delta: i32, timestamp_delta: i64, record: &Record) {
    body.put_i8(0);
    put_varint(body, timestamp_delta);
    put_varint(body, i64::from(offset_delta));
    put_optional(body, record.key.as_ref());
    put_optional(body, record.value.as_ref());
    put_varint(body, count(record.headers.len()));
    for (name, value) in &record.headers {
        put_varint(body, count(name.len()));
        body.extend_from_slice(name.as_bytes());
        put_optional(body, value.as_ref());
    }
}

fn put_optional(body: &mut BytesMut, bytes: Option<&Bytes>) {
    match bytes {
        None => put_varint(body, -1),
        Some(bytes) => {
            put_varint(body, count(bytes.len()));
            body.extend_from_slice(bytes);
        }
    }
}

/// Zigzag, then seven bits a byte, the lowest first.
#[allow(clippy::cast_sign_loss, reason = "zigzag makes it positive")]
fn put_varint(body: &mut BytesMut, value: i64) {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    while rest >= 0x80 {
        body.put_u8((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    body.put_u8(rest as u8);
}

fn count(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}

fn fit(length: usize) -> i32 {
    i32::try_from(length).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes were written by hand after Kafka's record format.
    #[test]
    fn a_batch_of_one_record_byte_by_byte() {
        let record = Record { timestamp: 1_000, ..Record::new("v") }.keyed("k").with_header("h", "1");
        let batch = Batch::of([record]).encode(7, 3);
        assert_eq!(&batch[..8], 7_i64.to_be_bytes());
        assert_eq!(&batch[8..12], (49_i32 + 13).to_be_bytes());
        assert_eq!(&batch[12..17], [0, 0, 0, 3, 2]);
        assert_eq!(&batch[21..27], [0, 0, 0, 0, 0, 0]);
        assert_eq!(&batch[57..61], [0, 0, 0, 1]);
        assert_eq!(&batch[61..], [24, 0, 0, 0, 2, b'k', 2, b'v', 2, 2, b'h', 2, b'1']);
        assert_eq!(
            u32::from_be_bytes([batch[17], batch[18], batch[19], batch[20]]),
            crc32c::crc32c(&batch[21..])
        );
        assert_eq!(measure(&batch), Some((batch.len(), 0)));
    }

    #[test]
    fn what_compaction_leaves_keeps_its_offsets() {
        let batch = Batch::sparse([(2, Record::new("c")), (5, Record::new("f"))], 9).encode(100, 0);
        assert_eq!(measure(&batch), Some((batch.len(), 9)));
        assert_eq!(measure(&Batch::empty(10).encode(0, 0)), Some((HEADER_BYTES, 9)));
        assert_eq!(measure(&batch[..batch.len() - 1]), None);
    }

    #[test]
    fn records_are_found_by_their_time() {
        let at = |timestamp| Record { timestamp, ..Record::new("v") };
        let batch = Batch::of([at(1_000), at(900), at(2_000)]).encode(7, 0);
        let found = [0, 950, 1_001, 2_000, 2_001].map(|time| at_time(&batch, time));
        assert_eq!(found, [Some((0, 1_000)), Some((0, 1_000)), Some((2, 2_000)), Some((2, 2_000)), None]);
    }

    #[test]
    fn numbers_take_seven_bits_a_byte() {
        let mut bytes = BytesMut::new();
        put_varint(&mut bytes, 300);
        put_varint(&mut bytes, -1);
        put_varint(&mut bytes, 0);
        assert_eq!(&bytes[..], [0xd8, 0x04, 1, 0]);
        let mut rest = &bytes[..];
        let back: Vec<_> = std::iter::from_fn(|| take_varint(&mut rest)).collect();
        assert_eq!(back, [300, -1, 0]);
    }
}
