//! Record batches whatever is in them: what was built is read, and what was not built is survived.

// All of it is test code, which the lints cannot know of a file under `tests/`.
#[cfg(test)]
mod records {
    use std::error::Error;

    use bytes::Bytes;
    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;
    use tidegate_kafka_share::records::{
        BatchBuilder, BatchError, Batches, Compression, Decompressor, Ending, Header, NewRecord, OffsetRange,
        OffsetRanges, Record,
    };

    const LIMIT: usize = 1 << 20;

    #[derive(Clone, Debug, PartialEq)]
    struct Owned {
        offset: i64,
        timestamp_ms: i64,
        key: Option<Vec<u8>>,
        value: Option<Vec<u8>>,
        headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    }

    impl From<Record> for Owned {
        fn from(record: Record) -> Self {
            let headers = record.headers.iter();
            Self {
                offset: record.offset,
                timestamp_ms: record.timestamp_ms,
                key: record.key.as_ref().map(|bytes| bytes.to_vec()),
                value: record.value.as_ref().map(|bytes| bytes.to_vec()),
                headers: headers.map(|one| (one.key.to_vec(), one.value.map(<[u8]>::to_vec))).collect(),
            }
        }
    }

    #[derive(Clone, Debug)]
    struct Plan {
        compression: Compression,
        base: i64,
        /// How many offsets are left out before each record.
        records: Vec<(u32, Owned)>,
        skipped_at_end: u32,
    }

    impl Plan {
        fn build(&self) -> (Bytes, Vec<Owned>, OffsetRange) {
            let mut batch = BatchBuilder::new(self.base).compression(self.compression);
            let mut wanted = Vec::new();
            for (skipped, record) in &self.records {
                batch.skip(*skipped);
                wanted.push(Owned { offset: batch.next_offset(), ..record.clone() });
                let headers: Vec<_> = record
                    .headers
                    .iter()
                    .map(|(key, value)| Header { key, value: value.as_deref() })
                    .collect();
                batch.push(&NewRecord {
                    timestamp_ms: record.timestamp_ms,
                    key: record.key.as_deref(),
                    value: record.value.as_deref(),
                    headers: &headers,
                });
            }
            batch.skip(self.skipped_at_end);
            let offsets = OffsetRange::new(self.base, batch.next_offset() - 1);
            (batch.build().unwrap(), wanted, offsets)
        }
    }

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            vec(any::<u8>(), 0..40),
            // Longer than a varint of one byte says, and worth compressing.
            (any::<u8>(), 0..3000_usize).prop_map(|(byte, length)| vec![byte; length]),
        ]
    }

    fn record() -> impl Strategy<Value = Owned> {
        let timestamp = prop_oneof![any::<i64>(), Just(-1), 1_700_000_000_000..1_700_000_001_000_i64];
        let headers = vec((vec(any::<u8>(), 0..6), option::of(bytes())), 0..4);
        (timestamp, option::of(bytes()), option::of(bytes()), headers).prop_map(
            |(timestamp_ms, key, value, headers)| Owned { offset: 0, timestamp_ms, key, value, headers },
        )
    }

    fn plan() -> impl Strategy<Value = Plan> {
        let compression = proptest::sample::select(&Compression::ALL[..]);
        let base = prop_oneof![0..1000_i64, Just(i64::MAX - 1_000_000)];
        (compression, base, vec((0..4_u32, record()), 0..8), 1..4_u32).prop_map(
            |(compression, base, records, skipped_at_end)| Plan {
                compression,
                base,
                records,
                skipped_at_end,
            },
        )
    }

    fn sound(error: &BatchError) {
        let mut sentence: Option<&dyn Error> = Some(error);
        while let Some(part) = sentence {
            assert!(!part.to_string().is_empty());
            sentence = part.source();
        }
        assert!(error.offsets.is_none_or(|offsets| !offsets.is_empty() && offsets.first >= 0), "{error:?}");
    }

    /// Walks everything, checks what must hold of any input, and tells how it ended.
    fn survive(input: &Bytes, limit: usize) -> (Vec<Owned>, Ending) {
        let mut read = Vec::new();
        let mut decompressor = Decompressor::new(limit);
        let mut batches = Batches::new(input.clone());
        for batch in batches.by_ref() {
            let batch = match batch {
                Ok(batch) => batch,
                Err(error) => {
                    sound(&error);
                    continue;
                }
            };
            let records = match batch.records(&mut decompressor) {
                Ok(records) => records,
                Err(error) => {
                    assert_eq!(error.offsets, Some(batch.offsets()));
                    sound(&error);
                    continue;
                }
            };
            let (mut bytes, mut next) = (0, batch.offsets().first);
            for record in records {
                match record {
                    Ok(record) => {
                        assert!(next <= record.offset && record.offset <= batch.offsets().last);
                        next = record.offset + 1;
                        let length = |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, Bytes::len);
                        bytes += length(&record.key) + length(&record.value);
                        assert_eq!(record.headers.iter().count(), record.headers.len());
                        read.push(Owned::from(record));
                    }
                    Err(error) => {
                        sound(&error);
                        let lost = error.offsets.expect("a batch that was opened knows its offsets");
                        assert!(next <= lost.first && lost.last <= batch.offsets().last);
                        next = lost.last + 1;
                    }
                }
            }
            let source = if batch.compression() == Compression::None { input.len() } else { limit };
            assert!(bytes <= source, "{bytes} bytes of {source}");
        }
        (read, batches.ending().expect("the end"))
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_was_built_is_read(plans in vec(plan(), 0..4)) {
            let mut input = Vec::new();
            let mut wanted = Vec::new();
            for plan in &plans {
                let (bytes, records, offsets) = plan.build();
                let batch = Batches::new(bytes.clone()).next().unwrap().unwrap();
                prop_assert_eq!(batch.offsets(), offsets);
                input.extend_from_slice(&bytes);
                wanted.extend(records);
            }
            prop_assert_eq!(survive(&input.into(), LIMIT), (wanted, Ending::Complete));
        }

        #[test]
        fn a_part_is_what_the_whole_has_there(plan in plan(), ranges in vec((0..40_i64, 0..6_i64), 0..4)) {
            let (bytes, records, _) = plan.build();
            let batch = Batches::new(bytes).next().unwrap().unwrap();
            let wanted: OffsetRanges = ranges
                .iter()
                .map(|(first, length)| OffsetRange::new(plan.base + first, plan.base + first + length))
                .collect();
            let part = batch.records_within(&wanted, &mut Decompressor::new(LIMIT)).unwrap();
            let part: Vec<_> = part.map(|record| Owned::from(record.unwrap())).collect();
            let records: Vec<_> =
                records.into_iter().filter(|record| wanted.contains(record.offset)).collect();
            prop_assert_eq!(part, records);
        }

        #[test]
        fn mutations_are_survived(
            plans in vec(plan(), 1..3),
            changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
            cut in option::of(any::<prop::sample::Index>()),
            repaired in any::<bool>(),
            limit in prop_oneof![Just(LIMIT), 0..5000_usize],
        ) {
            let mut input: Vec<u8> = plans.iter().flat_map(|plan| plan.build().0).collect();
            for (at, byte) in changes {
                let at = at.index(input.len());
                input[at] = byte;
            }
            if let Some(cut) = cut {
                input.truncate(cut.index(input.len()));
            }
            if repaired {
                repair(&mut input);
            }
            survive(&input.into(), limit);
        }

        #[test]
        fn any_bytes_are_survived(mut input in vec(any::<u8>(), 0..300), lengths in any::<bool>()) {
            if lengths && input.len() > 17 {
                // A length and a format that let it pass as a batch.
                let length = u32::try_from(input.len() - 12).unwrap();
                input[8..12].copy_from_slice(&length.to_be_bytes());
                input[16] = 2;
                repair(&mut input);
            }
            survive(&input.into(), LIMIT);
        }
    }

    proptest! {
        // Each case walks once for each byte.
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(32) })]

        #[test]
        fn cut_anywhere_the_whole_batches_are_read(first in plan(), second in plan()) {
            let (one, records, _) = first.build();
            let (two, more, _) = second.build();
            let input = Bytes::from([one.clone(), two].concat());
            let all: Vec<_> = records.iter().chain(&more).cloned().collect();
            for end in 0..=input.len() {
                let wanted = match end {
                    end if end == input.len() => (&all[..], Ending::Complete),
                    end if end > one.len() => (&all[..records.len()], Ending::Cut),
                    end if end == one.len() => (&all[..records.len()], Ending::Complete),
                    0 => (&[][..], Ending::Complete),
                    _ => (&[][..], Ending::Cut),
                };
                let (read, ending) = survive(&input.slice(..end), LIMIT);
                prop_assert_eq!((&read[..], ending), wanted);
            }
        }
    }

    /// Makes the checksums right again, so that what is behind them is tried.
    fn repair(input: &mut [u8]) {
        let mut at = 0;
        while let Some(head) = input.get(at..at + 21) {
            let length = i32::from_be_bytes(head[8..12].try_into().unwrap());
            let Ok(length) = usize::try_from(length) else { return };
            let Some(checked) = input.get(at + 21..at + 12 + length) else { return };
            let checksum = crc32c::crc32c(checked);
            input[at + 17..at + 21].copy_from_slice(&checksum.to_be_bytes());
            at += 12 + length;
        }
    }
}
