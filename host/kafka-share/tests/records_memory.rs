//! What a batch can make this side allocate, and that a record allocates nothing.

// All of it is test code, which the lints cannot know of a file under `tests/`.
#[cfg(test)]
mod memory {
    use std::alloc::System;

    use bytes::Bytes;
    use peakmem_alloc::{INSTRUMENTED_SYSTEM, PeakMemAlloc, PeakMemAllocTrait as _};
    use tidegate_kafka_share::records::{
        BatchBuilder, BatchFault, Batches, Compression, Decompressor, NewRecord, OffsetRange, OffsetRanges,
    };

    /// The system's allocator, counted. This file holds one test, so that no other one is counted along.
    #[global_allocator]
    static ALLOCATOR: &PeakMemAlloc<System> = &INSTRUMENTED_SYSTEM;

    /// What a bomb unpacks to.
    const BOMB: usize = 64 << 20;
    const LIMIT: usize = 1 << 20;
    /// The buffer, while it grows into another one, and what an lz4 frame of the largest blocks works in.
    const PEAK_MAX: usize = 2 * LIMIT + (17 << 20);

    #[test]
    fn memory_is_bounded_by_the_limit_and_records_allocate_nothing() {
        bombs();
        records_allocate_nothing();
    }

    fn bombs() {
        for compression in [Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd] {
            let bomb = {
                let mut batch = BatchBuilder::new(0).compression(compression);
                batch.push(&NewRecord { value: Some(&vec![0; BOMB]), ..NewRecord::default() });
                batch.build().unwrap()
            };
            let batch = Batches::new(bomb).next().unwrap().unwrap();
            ALLOCATOR.reset_peak_memory();
            let error = batch.records(&mut Decompressor::new(LIMIT)).unwrap_err();
            assert!(matches!(error.fault, BatchFault::TooLarge { limit: LIMIT }), "{error:?}");
            let grown = ALLOCATOR.get_peak_memory();
            assert!(grown <= PEAK_MAX, "{compression}: {grown} bytes");
        }
    }

    fn records_allocate_nothing() {
        const RECORDS: usize = 1000;
        let mut batch = BatchBuilder::new(0);
        for _ in 0..RECORDS {
            batch.push(&NewRecord { key: Some(b"key"), value: Some(&[7; 100]), ..NewRecord::default() });
        }
        // Shared, as the parts of a response are: the first clone of bytes that are not allocates.
        let response = batch.build().unwrap();
        let _shared: Bytes = response.clone();
        let wanted: OffsetRanges =
            [OffsetRange::new(10, 20), OffsetRange::new(500, 700)].into_iter().collect();
        let mut decompressor = Decompressor::new(LIMIT);
        ALLOCATOR.reset_peak_memory();
        let (mut all, mut some) = (0, 0);
        for batch in Batches::new(response) {
            let batch = batch.unwrap();
            all += batch.records(&mut decompressor).unwrap().flatten().count();
            some += batch.records_within(&wanted, &mut decompressor).unwrap().flatten().count();
        }
        assert_eq!(ALLOCATOR.get_peak_memory(), 0, "bytes above what there was");
        assert_eq!((all, some), (RECORDS, 212));
    }
}
