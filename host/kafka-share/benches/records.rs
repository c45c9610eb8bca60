//! From a response's bytes to records: checksums, decompression, fields.

use std::hint::black_box;

use bytes::Bytes;
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};
use tidegate_kafka_share::records::{
    BatchBuilder, Batches, BuildError, Compression, Decompressor, Header, NewRecord, OffsetRange,
    OffsetRanges,
};

/// Records of one response, as a share fetch of the usual size gives.
const RECORDS: usize = 2000;
/// Bytes of a value.
const VALUE: usize = 1024;
/// Records of a batch that a producer with the Java client's default batch size of 16 KB sends.
const SMALL_BATCH: usize = 15;
const LIMIT: usize = 64 << 20;
const HEADERS: [Header<'static>; 3] = [
    Header { key: b"tenant", value: Some(b"tenant-000017") },
    Header { key: b"content-type", value: Some(b"application/json") },
    Header { key: b"trace", value: Some(b"4bf92f3577b34da6a3ce929d0e0e4736") },
];

criterion_group!(benches, plain, compressed);
criterion_main!(benches);

fn plain(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("plain");
    group.throughput(Throughput::Elements(RECORDS as u64));
    let all = [OffsetRange::ALL].into_iter().collect();
    for (name, batch, value, headers) in [
        ("1 KB, 15 a batch", SMALL_BATCH, VALUE, &HEADERS[..0]),
        ("1 KB, 500 a batch", 500, VALUE, &HEADERS[..0]),
        ("1 KB, 15 a batch, 3 headers", SMALL_BATCH, VALUE, &HEADERS[..]),
        ("100 B, 100 a batch", 100, 100, &HEADERS[..0]),
    ] {
        walk(&mut group, name, &response(Compression::None, batch, value, headers), &all);
    }
    let tenth: OffsetRanges =
        (0..RECORDS as i64).step_by(100).map(|first| OffsetRange::new(first, first + 9)).collect();
    let input = response(Compression::None, 500, VALUE, &HEADERS);
    walk(&mut group, "1 KB, 500 a batch, 3 headers, a tenth wanted", &input, &tenth);
    group.finish();
}

fn compressed(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("compressed");
    group.throughput(Throughput::Elements(RECORDS as u64));
    let all = [OffsetRange::ALL].into_iter().collect();
    for compression in [Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd] {
        for batch in [SMALL_BATCH, 500] {
            let input = response(compression, batch, VALUE, &[]);
            walk(&mut group, &format!("{compression}, 1 KB, {batch} a batch"), &input, &all);
        }
    }
    group.finish();
}

fn walk(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    input: &Result<Bytes, BuildError>,
    wanted: &OffsetRanges,
) {
    let Ok(input) = input else { return };
    let mut decompressor = Decompressor::new(LIMIT);
    group.bench_function(name, |bencher| {
        bencher.iter(|| {
            for batch in Batches::new(input.clone()).flatten() {
                for record in batch.records_within(wanted, &mut decompressor).into_iter().flatten() {
                    black_box(record.is_ok());
                    black_box(&record);
                }
            }
        });
    });
}

/// Values that compress to about a third, as JSON does.
fn response(
    compression: Compression,
    batch: usize,
    value: usize,
    headers: &[Header<'_>],
) -> Result<Bytes, BuildError> {
    let mut input = Vec::new();
    let mut state = 1_u64;
    let mut random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    for first in (0..RECORDS).step_by(batch) {
        let mut builder = BatchBuilder::new(first as i64).compression(compression);
        for index in first..(first + batch).min(RECORDS) {
            let mut text = String::with_capacity(value + 64);
            while text.len() < value {
                text.push_str(&format!("{{\"order\":{},\"amount\":{}}},", random(), random() % 1000));
            }
            builder.push(&NewRecord {
                timestamp_ms: 1_700_000_000_000 + index as i64,
                key: Some(format!("key-{index}").as_bytes()),
                value: text.as_bytes().get(..value),
                headers,
            });
        }
        input.extend_from_slice(&builder.build()?);
    }
    Ok(input.into())
}
