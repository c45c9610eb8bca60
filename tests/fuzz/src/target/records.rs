//! Record batches of Kafka.

use std::error::Error;
use std::io;

use bytes::Bytes;
use tidegate_kafka_share::records::{
    Batch, BatchBuilder, BatchError, Batches, Compression, Decompressor, Header, NewRecord, OffsetRange,
    OffsetRanges,
};

use super::Target;
use crate::mutate;
use crate::random::Random;

/// Most that one batch may unpack to.
const LIMIT: usize = 1 << 20;
/// Where a batch's length and checksum are, and where the bytes begin that they are about.
const LENGTH: usize = 8;
const LENGTH_COUNTS_FROM: usize = 12;
const CHECKSUM: usize = 17;
const CHECKED_FROM: usize = 21;

pub(super) struct Records {
    decompressor: Decompressor,
    wanted: OffsetRanges,
}

impl Records {
    pub(super) fn new() -> Self {
        let wanted = [(0, 1), (3, 3), (100, 102)].map(|(first, last)| OffsetRange::new(first, last));
        Self { decompressor: Decompressor::new(LIMIT), wanted: wanted.into_iter().collect() }
    }
}

impl Target for Records {
    fn name(&self) -> &'static str {
        "records"
    }

    fn seeds(&self) -> io::Result<Vec<Vec<u8>>> {
        let mut seeds = Vec::new();
        for compression in Compression::ALL {
            let small = seed(BatchBuilder::new(0).compression(compression), b"value")?;
            let large = BatchBuilder::new(100).compression(compression).log_append_time(7);
            let large = seed(large, &[b'v'; 2000])?;
            seeds.push([small.as_slice(), &large].concat());
            seeds.push(small);
        }
        let mut empty = BatchBuilder::new(5).control().transactional().producer(9, 1, -1);
        empty.skip(3);
        seeds.push(empty.build().map_err(io::Error::other)?.to_vec());
        Ok(seeds)
    }

    /// Half of the time with the lengths and checksums of the batches made right again, so that what is behind them is
    /// under fire too.
    fn mutate(&self, random: &mut Random, seed: &[u8], other: &[u8]) -> Vec<u8> {
        let mut input = seed.to_vec();
        mutate::bytes(random, &mut input, other);
        if random.once_in(2) {
            repair(&mut input);
        }
        input
    }

    /// Whatever the bytes are, the walk ends; offsets ascend within their batch, errors say what they are about, nothing
    /// is larger than it may be, and the wanted records are those of all that are wanted.
    fn run(&mut self, input: &[u8]) {
        let mut batches = Batches::new(Bytes::copy_from_slice(input));
        for batch in batches.by_ref() {
            match batch {
                Ok(batch) => self.check(&batch, input.len()),
                Err(error) => check_error(&error),
            }
        }
        assert!(batches.ending().is_some(), "a walk without an end");
    }
}

impl Records {
    fn check(&mut self, batch: &Batch, input: usize) {
        let records = match batch.records(&mut self.decompressor) {
            Ok(records) => records,
            Err(error) => {
                assert_eq!(error.offsets, Some(batch.offsets()), "not the batch's offsets");
                return check_error(&error);
            }
        };
        let (mut next, mut bytes, mut found, mut good) = (batch.offsets().first, 0, Vec::new(), true);
        for record in records {
            let covered = match &record {
                Ok(record) => OffsetRange::new(record.offset, record.offset),
                Err(error) => {
                    check_error(error);
                    error.offsets.unwrap_or(OffsetRange::ALL)
                }
            };
            assert!(next <= covered.first && covered.last <= batch.offsets().last, "{covered} out of order");
            next = covered.last.saturating_add(1);
            good &= record.is_ok();
            let Ok(record) = record else { continue };
            bytes += record.key.map_or(0, |key| key.len()) + record.value.map_or(0, |value| value.len());
            assert_eq!(record.headers.iter().count(), record.headers.len(), "headers that cannot be read");
            if self.wanted.contains(record.offset) {
                found.push(record.offset);
            }
        }
        let source = if batch.compression() == Compression::None { input } else { LIMIT };
        assert!(bytes <= source, "{bytes} bytes out of {source}");
        if good && let Ok(part) = batch.records_within(&self.wanted, &mut self.decompressor) {
            let part: Vec<i64> = part.flatten().map(|record| record.offset).collect();
            assert_eq!(part, found, "other records where only those were wanted");
        }
    }
}

fn check_error(error: &BatchError) {
    assert!(error.source().is_some_and(|fault| !fault.to_string().is_empty()), "an error without a sentence");
    assert!(error.offsets.is_none_or(|offsets| offsets.first >= 0 && !offsets.is_empty()), "{error:?}");
}

fn seed(mut batch: BatchBuilder, value: &[u8]) -> io::Result<Vec<u8>> {
    let headers = [Header { key: b"name", value: Some(b"one") }, Header { key: b"name", value: None }];
    batch.push(&NewRecord {
        timestamp_ms: 1_700_000_000_000,
        key: Some(b"key"),
        value: Some(value),
        headers: &headers,
    });
    batch.push(&NewRecord { timestamp_ms: 1_700_000_000_001, ..NewRecord::default() });
    batch.skip(1);
    batch.push(&NewRecord { key: Some(b""), value: Some(value), ..NewRecord::default() });
    Ok(batch.build().map_err(io::Error::other)?.to_vec())
}

/// Sets the checksums of the batches that can be walked, and the length of one that reaches past the end.
fn repair(input: &mut [u8]) {
    let mut begin = 0;
    while let Some(batch) = input.get_mut(begin..)
        && batch.len() >= CHECKED_FROM
    {
        let stated = batch[LENGTH..].first_chunk().map_or(0, |length| i32::from_be_bytes(*length));
        let longest = batch.len() - LENGTH_COUNTS_FROM;
        let mut length = usize::try_from(stated).unwrap_or(longest);
        if length > longest {
            length = longest;
            let fitting = i32::try_from(longest).unwrap_or(i32::MAX);
            batch[LENGTH..LENGTH_COUNTS_FROM].copy_from_slice(&fitting.to_be_bytes());
        }
        let end = LENGTH_COUNTS_FROM + length;
        if let Some(checked) = batch.get(CHECKED_FROM..end) {
            let checksum = crc32c::crc32c(checked);
            batch[CHECKSUM..CHECKED_FROM].copy_from_slice(&checksum.to_be_bytes());
        }
        begin += end;
    }
}
