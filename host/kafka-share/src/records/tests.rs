//! Batches made by hand, by the Java client, and by lies.

use std::error::Error;

use bytes::Bytes;

use super::*;

const LIMIT: usize = 1 << 20;

/// Two records of the offsets 5 and 7, written down from the layout; the checksum comes from another implementation.
const BY_HAND: &[u8] = &[
    0, 0, 0, 0, 0, 0, 0, 5, // base offset
    0, 0, 0, 0x48, // length
    0, 0, 0, 7, // leader epoch
    2, // magic
    0x78, 0x1b, 0x43, 0x4d, // checksum
    0, 0, // attributes
    0, 0, 0, 2, // last offset delta
    0, 0, 0, 0, 0, 0, 0x03, 0xe8, // base timestamp 1000
    0, 0, 0, 0, 0, 0, 0x03, 0xea, // max timestamp 1002
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, // producer id
    0xff, 0xff, // producer epoch
    0xff, 0xff, 0xff, 0xff, // base sequence
    0, 0, 0, 2, // count
    0x1e, 0, 0, 0, // 15 bytes, attributes, timestamp delta 0, offset delta 0
    2, b'k', 2, b'v', // key and value of one byte
    4, 2, b'h', 2, b'1', 2, b'h', 1, // two headers of one name, one without a value
    0x0c, 0, 4, 4, 1, 1, 0, // 6 bytes, deltas of 2, no key, no value, no header
];

type Fields = (i64, i64, Option<Vec<u8>>, Option<Vec<u8>>, Vec<(String, Option<Vec<u8>>)>);

fn fields(record: &Record) -> Fields {
    let headers = record.headers.iter();
    let headers = headers.map(|header| (header.key_text().into_owned(), header.value.map(<[u8]>::to_vec)));
    let bytes = |bytes: &Option<Bytes>| bytes.as_ref().map(|bytes| bytes.to_vec());
    (record.offset, record.timestamp_ms, bytes(&record.key), bytes(&record.value), headers.collect())
}

fn only(bytes: impl Into<Bytes>) -> Result<Batch, BatchError> {
    let mut batches = Batches::new(bytes.into());
    let first = batches.next().expect("a batch");
    assert!(batches.next().is_none());
    first
}

fn read(batch: &Batch) -> Vec<Result<Record, BatchError>> {
    batch.records(&mut Decompressor::new(LIMIT)).unwrap().collect()
}

fn good(batch: &Batch) -> Vec<Fields> {
    read(batch).iter().map(|record| fields(record.as_ref().unwrap())).collect()
}

/// Puts bytes into a batch and makes its checksum right again.
fn changed(batch: &[u8], at: usize, with: &[u8]) -> Vec<u8> {
    let mut batch = batch.to_vec();
    batch[at..at + with.len()].copy_from_slice(with);
    checked(batch)
}

fn checked(mut batch: Vec<u8>) -> Vec<u8> {
    let length = i32::try_from(batch.len() - layout::LEADER_EPOCH).unwrap();
    batch[layout::LENGTH..][..4].copy_from_slice(&length.to_be_bytes());
    let checksum = crc32c::crc32c(&batch[layout::ATTRIBUTES..]);
    batch[layout::CHECKSUM..][..4].copy_from_slice(&checksum.to_be_bytes());
    batch
}

/// A batch that says `count` records and has this payload.
fn crafted(attributes: u16, count: i32, payload: &[u8]) -> Vec<u8> {
    let mut batch = BY_HAND[..layout::RECORDS].to_vec();
    batch[layout::ATTRIBUTES..][..2].copy_from_slice(&attributes.to_be_bytes());
    batch[layout::COUNT..][..4].copy_from_slice(&count.to_be_bytes());
    batch.extend_from_slice(payload);
    checked(batch)
}

/// A batch of the base offset that says nothing but one word.
fn simple(base: i64) -> Vec<u8> {
    let mut batch = BatchBuilder::new(base);
    batch.push(&NewRecord { value: Some(b"word"), ..NewRecord::default() });
    batch.build().unwrap().to_vec()
}

fn sentences(error: &BatchError) -> String {
    let source = error.source().expect("a fault");
    let deeper = source.source().map(|deeper| format!(": {deeper}")).unwrap_or_default();
    format!("{error}: {source}{deeper}")
}

#[test]
fn a_batch_by_hand() {
    let batch = only(BY_HAND).unwrap();
    assert_eq!(batch.offsets(), OffsetRange::new(5, 7));
    assert_eq!((batch.record_count(), batch.leader_epoch(), batch.max_timestamp_ms()), (2, 7, 1002));
    assert_eq!((batch.producer_id(), batch.producer_epoch(), batch.base_sequence()), (-1, -1, -1));
    assert!(!batch.is_control() && !batch.is_transactional());
    assert_eq!((batch.compression(), batch.timestamp_type()), (Compression::None, TimestampType::Create));
    let headers = vec![("h".to_owned(), Some(b"1".to_vec())), ("h".to_owned(), None)];
    assert_eq!(
        good(&batch),
        [(5, 1000, Some(b"k".to_vec()), Some(b"v".to_vec()), headers), (7, 1002, None, None, vec![])],
    );
}

#[test]
fn the_builder_writes_the_same_bytes() {
    let mut batch = BatchBuilder::new(5).leader_epoch(7);
    let header = |value| Header { key: b"h", value };
    batch.push(&NewRecord {
        timestamp_ms: 1000,
        key: Some(b"k"),
        value: Some(b"v"),
        headers: &[header(Some(b"1")), header(None)],
    });
    batch.skip(1);
    assert_eq!(batch.next_offset(), 7);
    batch.push(&NewRecord { timestamp_ms: 1002, ..NewRecord::default() });
    assert_eq!(batch.build().unwrap(), BY_HAND);
}

/// Batches of `MemoryRecordsBuilder` of kafka-clients 4.4.0: base offset 1000, a producer, a transaction, a missing
/// offset, and a value that takes several blocks of each compression.
#[test]
fn batches_that_the_java_client_wrote() {
    let files: [&[u8]; 5] = [
        include_bytes!("tests/java-none.bin"),
        include_bytes!("tests/java-gzip.bin"),
        include_bytes!("tests/java-snappy.bin"),
        include_bytes!("tests/java-lz4.bin"),
        include_bytes!("tests/java-zstd.bin"),
    ];
    for (compression, file) in Compression::ALL.into_iter().zip(files) {
        let batch = only(file).unwrap();
        assert_eq!(batch.compression(), compression);
        assert_eq!(batch.offsets(), OffsetRange::new(1000, 1004));
        assert_eq!((batch.producer_id(), batch.producer_epoch(), batch.base_sequence()), (4000, 2, 7));
        assert!(batch.is_transactional() && !batch.is_control());
        assert_eq!(batch.max_timestamp_ms(), 1_700_000_000_008);
        let length = if compression == Compression::None { 10 } else { 100_000 };
        let big = (0..length).map(|index: u32| (index / 10 % 7 + 97) as u8).collect::<Vec<_>>();
        let one = Some(b"1".to_vec());
        let headers = [one.clone(), None, one].map(|value| ("h".to_owned(), value)).to_vec();
        assert_eq!(
            good(&batch),
            [
                (1000, 1_700_000_000_000, Some(b"key".to_vec()), Some(b"value".to_vec()), headers),
                (1001, 1_699_999_999_990, None, Some(vec![]), vec![]),
                (1003, 1_700_000_000_007, Some(vec![]), None, vec![(String::new(), Some(vec![]))]),
                (1004, 1_700_000_000_008, Some(b"big".to_vec()), Some(big), vec![]),
            ],
            "{compression}"
        );
    }
}

#[test]
fn snappy_as_one_raw_block_and_zstd_with_its_size() {
    let payload = &BY_HAND[layout::RECORDS..];
    let snappy = snap::raw::Encoder::new().compress_vec(payload).unwrap();
    let zstd = zstd::bulk::compress(payload, 3).unwrap();
    for (code, packed) in [(2, snappy), (4, zstd)] {
        let batch = only(crafted(code, 2, &packed)).unwrap();
        assert_eq!(good(&batch), good(&only(BY_HAND).unwrap()));
    }
}

#[test]
fn nothing_and_a_batch_without_records() {
    let mut batches = Batches::new(Bytes::new());
    assert_eq!((batches.ending(), batches.next_offset()), (None, None));
    assert!(batches.next().is_none());
    assert_eq!(batches.ending(), Some(Ending::Complete));

    // With any compression: the cleaner keeps the header alone.
    for code in 0..5 {
        let batch = only(crafted(code, 0, &[])).unwrap();
        assert_eq!(batch.offsets(), OffsetRange::new(5, 7));
        assert!(read(&batch).is_empty());
    }
    let mut empty = BatchBuilder::new(40).compression(Compression::Zstd);
    empty.skip(10);
    let batch = only(empty.build().unwrap()).unwrap();
    assert_eq!((batch.offsets(), batch.record_count()), (OffsetRange::new(40, 49), 0));
    assert!(read(&batch).is_empty());
    assert!(matches!(BatchBuilder::new(40).build(), Err(BuildError::Empty)));
}

#[test]
fn append_time_is_every_record_s_time() {
    let mut batch = BatchBuilder::new(0).log_append_time(5000);
    batch.push(&NewRecord { timestamp_ms: 10, ..NewRecord::default() });
    batch.push(&NewRecord { timestamp_ms: 20, ..NewRecord::default() });
    let batch = only(batch.build().unwrap()).unwrap();
    assert_eq!((batch.timestamp_type(), batch.max_timestamp_ms()), (TimestampType::LogAppend, 5000));
    assert!(good(&batch).iter().all(|record| record.1 == 5000));
}

#[test]
fn a_batch_of_markers_says_so() {
    let mut batch = BatchBuilder::new(0).control().transactional().producer(1, 0, -1);
    batch.push(&NewRecord { key: Some(&[0, 0, 0, 1]), ..NewRecord::default() });
    let batch = only(batch.build().unwrap()).unwrap();
    assert!(batch.is_control() && batch.is_transactional());
}

#[test]
fn records_are_slices_of_the_response_where_nothing_is_compressed() {
    let response = Bytes::from_static(BY_HAND);
    let record = read(&only(response.clone()).unwrap()).remove(0).unwrap();
    let range = response.as_ptr_range();
    for bytes in [record.key.unwrap(), record.value.unwrap()] {
        assert!(range.contains(&bytes.as_ptr()));
    }
}

#[test]
fn only_the_wanted_records() {
    let mut builder = BatchBuilder::new(100);
    for _ in 0..10 {
        builder.push(&NewRecord { value: Some(b"v"), ..NewRecord::default() });
        builder.skip(1);
    }
    let batch = only(builder.build().unwrap()).unwrap();
    let within = |ranges: &[(i64, i64)]| -> Vec<i64> {
        let wanted = ranges.iter().map(|&(first, last)| OffsetRange::new(first, last)).collect();
        let records = batch.records_within(&wanted, &mut Decompressor::new(LIMIT)).unwrap();
        records.map(|record| record.unwrap().offset).collect()
    };
    assert_eq!(within(&[(0, 50), (102, 105), (105, 105), (118, 500), (600, 700)]), [102, 104, 118]);
    assert_eq!(within(&[(101, 101)]), [] as [i64; 0]);
    assert_eq!(within(&[(0, 99), (120, 200)]), [] as [i64; 0]);
    assert_eq!(within(&[]), [] as [i64; 0]);
    assert_eq!(within(&[(0, i64::MAX)]).len(), 10);
}

#[test]
fn a_batch_without_a_wanted_record_is_not_decompressed() {
    let broken = only(crafted(4, 2, b"no zstd")).unwrap();
    let wanted = [OffsetRange::new(8, 20)].into_iter().collect();
    assert_eq!(broken.records_within(&wanted, &mut Decompressor::new(LIMIT)).unwrap().count(), 0);
    broken.records(&mut Decompressor::new(LIMIT)).unwrap_err();
}

#[test]
fn what_is_not_wanted_is_not_looked_into() {
    // The first record's key goes past its end.
    let broken = changed(BY_HAND, layout::RECORDS + 4, &[0x7e]);
    let batch = only(broken).unwrap();
    let wanted = [OffsetRange::new(7, 7)].into_iter().collect();
    let records: Vec<_> = batch.records_within(&wanted, &mut Decompressor::new(LIMIT)).unwrap().collect();
    assert_eq!(records.len(), 1);
    assert_eq!(records[0].as_ref().unwrap().offset, 7);

    // Wanted, it is an error of its own offset, and the next record is read.
    let records = read(&batch);
    assert_eq!(records.len(), 2);
    let error = records[0].as_ref().unwrap_err();
    assert_eq!(error.offsets, Some(OffsetRange::new(5, 5)));
    assert_eq!(
        sentences(error),
        "cannot read offset 5: a record of the batch is malformed: the bytes end before it does"
    );
    assert_eq!(records[1].as_ref().unwrap().offset, 7);
}

#[test]
fn a_cut_end_is_told_and_no_error() {
    let bytes = [simple(10), simple(11)].concat();
    let whole = simple(10).len();
    for end in 0..bytes.len() {
        let mut batches = Batches::new(Bytes::copy_from_slice(&bytes[..end]));
        let read: Vec<_> = batches.by_ref().map(|batch| batch.unwrap().offsets().first).collect();
        let (wanted, next): (&[i64], _) = if end < whole { (&[], None) } else { (&[10], Some(11)) };
        assert_eq!((read.as_slice(), batches.next_offset()), (wanted, next), "{end}");
        let complete = end == 0 || end == whole;
        let ending = if complete { Ending::Complete } else { Ending::Cut };
        assert_eq!(batches.ending(), Some(ending), "{end}");
    }
}

#[test]
fn damage_stays_with_its_batch() {
    let mut damaged = simple(11);
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    let mut batches = Batches::new([simple(10), damaged, simple(12)].concat().into());
    assert_eq!(batches.next().unwrap().unwrap().offsets().first, 10);
    let error = batches.next().unwrap().unwrap_err();
    assert_eq!(error.offsets, Some(OffsetRange::new(11, 11)));
    assert!(matches!(error.fault, BatchFault::Checksum { .. }));
    assert!(sentences(&error).starts_with("cannot read offset 11: the batch's checksum is "), "{error}");
    assert_eq!(batches.next().unwrap().unwrap().offsets().first, 12);
    assert_eq!((batches.ending(), batches.next_offset()), (None, Some(13)));
}

#[test]
fn a_damaged_last_offset_does_not_reach_into_the_next_batch() {
    let mut damaged = simple(11);
    damaged[layout::LAST_DELTA] ^= 0x40;
    let mut batches = Batches::new([damaged.clone(), simple(15)].concat().into());
    assert_eq!(batches.next().unwrap().unwrap_err().offsets, Some(OffsetRange::new(11, 14)));
    // A negative one is no last offset at all.
    damaged[layout::LAST_DELTA] = 0x80;
    let mut batches = Batches::new([damaged.clone(), simple(15)].concat().into());
    assert_eq!(batches.next().unwrap().unwrap_err().offsets, Some(OffsetRange::new(11, 14)));
    assert_eq!(only(damaged).unwrap_err().offsets, None);
}

#[test]
fn lengths_that_cannot_be_end_the_walk() {
    for length in [i32::MIN, -1, 0, 4, 48] {
        let mut bad = simple(11);
        bad[layout::LENGTH..][..4].copy_from_slice(&length.to_be_bytes());
        let mut batches = Batches::new([simple(10), bad, simple(12)].concat().into());
        batches.next().unwrap().unwrap();
        let error = batches.next().unwrap().unwrap_err();
        assert_eq!(error.offsets, None);
        assert_eq!(
            sentences(&error),
            format!("cannot read a record batch: a batch cannot be {length} bytes long")
        );
        assert!(batches.next().is_none());
        assert_eq!((batches.ending(), batches.next_offset()), (Some(Ending::Lost), Some(11)));
    }
}

#[test]
fn old_and_unknown_formats_are_stepped_over() {
    // Offset 20, then 14 bytes: checksum, magic, attributes, no key, no value.
    let old = |magic: u8, attributes: u8, timestamp: &[u8]| {
        let size = 14 + u8::try_from(timestamp.len()).unwrap();
        let head = [0, 0, 0, 0, 0, 0, 0, 20, 0, 0, 0, size, 1, 2, 3, 4, magic, attributes];
        [&head, timestamp, &[0xff; 8]].concat()
    };
    let unknown = {
        let mut batch = simple(20);
        batch[layout::MAGIC] = 3;
        batch
    };
    let cases = [
        (old(0, 0, &[]), 0, Some(OffsetRange::new(20, 20))),
        (old(1, 0, &[0; 8]), 1, Some(OffsetRange::new(20, 20))),
        // Compressed: all that came since the batch before.
        (old(0, 1, &[]), 0, Some(OffsetRange::new(11, 20))),
        (old(1, 3, &[0; 8]), 1, Some(OffsetRange::new(11, 20))),
        (unknown, 3, None),
    ];
    for (bytes, magic, offsets) in cases {
        let mut batches = Batches::new([simple(10), bytes, simple(21)].concat().into());
        batches.next().unwrap().unwrap();
        let error = batches.next().unwrap().unwrap_err();
        assert_eq!(error.offsets, offsets);
        assert!(matches!(error.fault, BatchFault::Format { magic: found } if found == magic), "{error:?}");
        assert_eq!(batches.next().unwrap().unwrap().offsets().first, 21);
        assert!(batches.next().is_none());
        assert_eq!(batches.ending(), Some(Ending::Complete));
    }
}

#[test]
fn headers_that_cannot_be_are_errors_of_their_batch() {
    let here = "cannot read offsets 5 to 7";
    let cases = [
        (crafted(5, 2, &[]), format!("{here}: the batch's compression 5 is unknown")),
        (crafted(0, -1, &[]), format!("{here}: the batch cannot have -1 records")),
        (
            changed(BY_HAND, layout::LAST_DELTA, &(-1_i32).to_be_bytes()),
            // The next batch bounds what its own header does not.
            format!("{here}: the batch cannot begin at offset 5 and end -1 later"),
        ),
        (
            changed(BY_HAND, layout::BASE_OFFSET, &(-5_i64).to_be_bytes()),
            "cannot read a record batch: the batch cannot begin at offset -5 and end 2 later".to_owned(),
        ),
        (
            changed(BY_HAND, layout::BASE_OFFSET, &(i64::MAX - 1).to_be_bytes()),
            format!(
                "cannot read a record batch: the batch cannot begin at offset {} and end 2 later",
                i64::MAX - 1
            ),
        ),
    ];
    for (bytes, wanted) in cases {
        let mut batches = Batches::new([bytes, simple(8)].concat().into());
        let error = batches.next().unwrap().unwrap_err();
        assert_eq!(sentences(&error), wanted);
        assert_eq!(batches.next().unwrap().unwrap().offsets().first, 8);
    }
}

#[test]
fn records_that_cannot_be_lose_the_rest_of_their_batch() {
    let first = &BY_HAND[layout::RECORDS..layout::RECORDS + 16];
    let malformed = "a record of the batch is malformed";
    let cases: [(i32, &[u8], String); 8] = [
        // Fewer records than it says, then more bytes than its records.
        (2, &[], format!("cannot read offsets 6 to 7: {malformed}: the bytes end before it does")),
        (
            1,
            &[0x0c, 0, 4, 4, 1, 1, 0],
            "cannot read offsets 6 to 7: the batch has more bytes than its records".into(),
        ),
        // A record's length: too much, below zero, too long a number.
        (2, &[0x7e, 0], format!("cannot read offsets 6 to 7: {malformed}: the bytes end before it does")),
        (2, &[0x03, 0], format!("cannot read offsets 6 to 7: {malformed}: a length in it is -2")),
        (2, &[0xff; 6], format!("cannot read offsets 6 to 7: {malformed}: a number in it is too long")),
        // Its offset: that of the record before, or outside the batch.
        (
            2,
            &[0x0c, 0, 4, 0, 1, 1, 0],
            format!("cannot read offsets 6 to 7: {malformed}: its offset is out of order"),
        ),
        (
            2,
            &[0x0c, 0, 4, 6, 1, 1, 0],
            format!("cannot read offsets 6 to 7: {malformed}: its offset is out of order"),
        ),
        // A byte behind its fields is an error of this one record.
        (
            2,
            &[0x0e, 0, 4, 4, 1, 1, 0, 9],
            format!("cannot read offset 7: {malformed}: it is longer than its fields"),
        ),
    ];
    for (count, second, wanted) in cases {
        let batch = only(crafted(0, count, &[first, second].concat())).unwrap();
        let records = read(&batch);
        assert_eq!(records.len(), 2, "{wanted}");
        assert_eq!(records[0].as_ref().unwrap().offset, 5);
        assert_eq!(sentences(records[1].as_ref().unwrap_err()), wanted);
    }
}

#[test]
fn bytes_behind_the_last_offset_lose_nothing() {
    let payload = [&BY_HAND[layout::RECORDS..], &[1, 2, 3]].concat();
    assert_eq!(good(&only(crafted(0, 2, &payload)).unwrap()).len(), 2);
    assert_eq!(good(&only(crafted(0, i32::MAX, &payload)).unwrap()).len(), 2);
}

#[test]
fn what_is_not_compressed_as_it_says_is_an_error_of_the_batch() {
    for code in 1..5 {
        let compression = Compression::from_code(code).unwrap();
        let batch = only(crafted(u16::from(code), 2, b"this is nothing that a compressor made")).unwrap();
        let error = batch.records(&mut Decompressor::new(LIMIT)).unwrap_err();
        assert_eq!(error.offsets, Some(OffsetRange::new(5, 7)));
        let wanted = format!("cannot read offsets 5 to 7: cannot decompress the batch from {compression}: ");
        assert!(sentences(&error).starts_with(&wanted), "{}", sentences(&error));
    }
}

#[test]
fn a_snappy_block_cannot_claim_more_than_its_bytes_could_give() {
    // 200 MB by its own word.
    let batch = only(crafted(2, 2, &[0x80, 0x84, 0xaf, 0x5f, 0, 0])).unwrap();
    let error = batch.records(&mut Decompressor::new(usize::MAX)).unwrap_err();
    assert!(sentences(&error).contains("too short for its length"), "{}", sentences(&error));
}

#[test]
fn the_limit_is_exact() {
    for compression in &Compression::ALL[1..] {
        let mut builder = BatchBuilder::new(0).compression(*compression);
        builder.push(&NewRecord { value: Some(&[7; 70_000]), ..NewRecord::default() });
        let plain = builder.clone().compression(Compression::None).build().unwrap().len() - layout::RECORDS;
        let batch = only(builder.build().unwrap()).unwrap();
        let mut decompressor = Decompressor::new(plain);
        assert_eq!(batch.records(&mut decompressor).unwrap().count(), 1, "{compression}");
        let error = batch.records(&mut Decompressor::new(plain - 1)).unwrap_err();
        assert!(matches!(error.fault, BatchFault::TooLarge { limit } if limit == plain - 1), "{error:?}");
        assert_eq!(
            sentences(&error),
            format!("cannot read offset 0: the batch is more than {} bytes when decompressed", plain - 1)
        );
        // A decompressor survives what it refused.
        assert_eq!(batch.records(&mut decompressor).unwrap().count(), 1, "{compression}");
    }
}

#[test]
fn a_decompressor_survives_damage() {
    let mut decompressor = Decompressor::new(LIMIT);
    for compression in Compression::ALL {
        let mut builder = BatchBuilder::new(0).compression(compression);
        builder.push(&NewRecord { value: Some(&[7; 1000]), ..NewRecord::default() });
        let bytes = builder.build().unwrap();
        let cut = only(checked(bytes[..bytes.len() - 5].to_vec())).unwrap();
        let read = cut.records(&mut decompressor).and_then(|records| records.collect::<Result<Vec<_>, _>>());
        assert_eq!(read.unwrap_err().offsets, Some(OffsetRange::new(0, 0)), "{compression}");
        let whole = only(bytes).unwrap();
        assert_eq!(whole.records(&mut decompressor).unwrap().count(), 1, "{compression}");
    }
}
