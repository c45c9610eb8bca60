//! Records and the batches that brokers store them in.
//!
//! The layout is that of Kafka's record batch of magic 2, uncompressed. A topic with the configuration
//! `compression.type` has its broker compress what it gets, so that every codec can be had without an encoder here.

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::{BufMut as _, Bytes, BytesMut};

/// Where the bytes that the checksum covers begin.
const CHECKED_FROM: usize = 21;
/// Where the part of a batch that its length counts begins.
const COUNTED_FROM: usize = 12;
const MAGIC: i8 = 2;
const TRANSACTIONAL: i16 = 1 << 4;

/// One record.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Record {
    /// Absent is not the same as empty.
    pub key: Option<Bytes>,
    /// Absent is not the same as empty.
    pub value: Option<Bytes>,
    /// In their order; names may repeat and values may be absent.
    pub headers: Vec<(String, Option<Bytes>)>,
}

impl Record {
    /// One with a value and nothing else.
    #[must_use]
    pub fn new(value: impl Into<Bytes>) -> Self {
        Self { value: Some(value.into()), ..Self::default() }
    }

    /// The same with a key.
    #[must_use]
    pub fn key(mut self, key: impl Into<Bytes>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// The same with one more header.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl Into<Bytes>) -> Self {
        self.headers.push((name.to_owned(), Some(value.into())));
        self
    }
}

/// Who sends a batch.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Producer {
    /// As the transaction coordinator gave it.
    pub id: i64,
    /// As the transaction coordinator gave it.
    pub epoch: i16,
    /// Of the batch's first record, counted for each partition from 0.
    pub sequence: i32,
    /// Whether the batch is part of a transaction.
    pub transactional: bool,
}

impl Producer {
    /// Nobody in particular: the broker does not tell one batch from its repetition.
    pub const ANONYMOUS: Self = Self { id: -1, epoch: -1, sequence: -1, transactional: false };
}

/// One batch with all `records`, made now.
///
/// # Panics
/// With more records or bytes than the format can count (2³¹).
#[must_use]
pub fn batch(records: &[Record], producer: Producer) -> Bytes {
    batch_at(records, producer, wall_ms())
}

#[allow(clippy::disallowed_methods, reason = "brokers remove records that are old by the wall clock")]
fn wall_ms() -> i64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX)
}

fn batch_at(records: &[Record], producer: Producer, timestamp_ms: i64) -> Bytes {
    let count = count(records.len());
    let mut batch = BytesMut::new();
    batch.put_i64(0); // base offset: the broker's to give
    batch.put_i32(0); // length, below
    batch.put_i32(-1); // leader epoch: the broker's
    batch.put_i8(MAGIC);
    batch.put_u32(0); // checksum, below
    batch.put_i16(if producer.transactional { TRANSACTIONAL } else { 0 });
    batch.put_i32(count - 1); // offset of the last record from the base
    batch.put_i64(timestamp_ms);
    batch.put_i64(timestamp_ms);
    batch.put_i64(producer.id);
    batch.put_i16(producer.epoch);
    batch.put_i32(producer.sequence);
    batch.put_i32(count);
    let mut body = BytesMut::new();
    for (offset, record) in (0_i64..).zip(records) {
        body.clear();
        body.put_i8(0); // attributes: none defined
        put_varint(&mut body, 0); // timestamp from the batch's
        put_varint(&mut body, offset);
        put_optional(&mut body, record.key.as_deref());
        put_optional(&mut body, record.value.as_deref());
        put_varint(&mut body, self::count(record.headers.len()).into());
        for (name, value) in &record.headers {
            put_optional(&mut body, Some(name.as_bytes()));
            put_optional(&mut body, value.as_deref());
        }
        put_varint(&mut batch, self::count(body.len()).into());
        batch.extend_from_slice(&body);
    }
    let length = self::count(batch.len() - COUNTED_FROM);
    batch[8..COUNTED_FROM].copy_from_slice(&length.to_be_bytes());
    let checksum = crc32c::crc32c(&batch[CHECKED_FROM..]);
    batch[CHECKED_FROM - 4..CHECKED_FROM].copy_from_slice(&checksum.to_be_bytes());
    batch.freeze()
}

#[allow(clippy::expect_used, reason = "said of the function that tests call")]
fn count(count: usize) -> i32 {
    i32::try_from(count).expect("a batch counts in 31 bits")
}

fn put_optional(into: &mut BytesMut, bytes: Option<&[u8]>) {
    match bytes {
        None => put_varint(into, -1),
        Some(bytes) => {
            put_varint(into, count(bytes.len()).into());
            into.extend_from_slice(bytes);
        }
    }
}

/// Zigzag, then seven bits a byte, the lowest first.
fn put_varint(into: &mut BytesMut, value: i64) {
    let mut rest = ((value << 1) ^ (value >> 63)).cast_unsigned();
    while rest >= 0x80 {
        into.put_u8((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    into.put_u8(rest as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_any_length() {
        let cases: [(i64, &[u8]); 8] = [
            (0, &[0]),
            (-1, &[1]),
            (1, &[2]),
            (63, &[0x7e]),
            (64, &[0x80, 0x01]),
            (-65, &[0x81, 0x01]),
            (300, &[0xd8, 0x04]),
            (i64::MIN, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]),
        ];
        for (value, expected) in cases {
            let mut bytes = BytesMut::new();
            put_varint(&mut bytes, value);
            assert_eq!(bytes.as_ref(), expected, "{value}");
        }
    }

    #[test]
    fn a_batch_byte_by_byte() {
        let record = Record { headers: vec![("h".into(), None)], ..Record::new("v").key("k") };
        let producer = Producer { id: 7, epoch: 1, sequence: 5, transactional: true };
        let bytes = batch_at(&[record], producer, 0x0102);
        let (head, rest) = bytes.split_at(CHECKED_FROM - 4);
        #[rustfmt::skip]
        assert_eq!(head, [0, 0, 0, 0, 0, 0, 0, 0,  0, 0, 0, 61,  255, 255, 255, 255,  2]);
        let (checksum, covered) = rest.split_at(4);
        assert_eq!(checksum, crc32c::crc32c(covered).to_be_bytes());
        #[rustfmt::skip]
        let expected = [
            0, 0x10,  0, 0, 0, 0,  0, 0, 0, 0, 0, 0, 1, 2,  0, 0, 0, 0, 0, 0, 1, 2,
            0, 0, 0, 0, 0, 0, 0, 7,  0, 1,  0, 0, 0, 5,  0, 0, 0, 1,
            22,  0, 0, 0,  2, b'k',  2, b'v',  2,  2, b'h', 1,
        ];
        assert_eq!(covered, expected);
        assert_eq!(bytes.len(), COUNTED_FROM + 61);
    }
}
