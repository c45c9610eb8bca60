//! A partition's log: record batches, kept as bytes and served as slices of them.

use std::ops::Range;

use bytes::{Bytes, BytesMut};

use crate::batch::{self, Batch};

/// The records of one append lie together, up to about this much, so that reading them copies nothing.
const CHUNK_BYTES: usize = 16 << 20;

/// Batches by offset.
#[derive(Debug, Default)]
pub(crate) struct Log {
    start: i64,
    end: i64,
    bytes: u64,
    /// Bytes of batches removed from the front.
    removed: u64,
    places: Vec<Place>,
}

/// Where a batch lies.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) base: i64,
    pub(crate) last: i64,
    /// Bytes of the log before this batch.
    before: u64,
    chunk: Bytes,
    at: u32,
    length: u32,
    /// Many places share these bytes: the base offset is written when they are read.
    shared: bool,
}

impl Place {
    fn range(&self) -> Range<usize> {
        let at = self.at as usize;
        at..at + self.length as usize
    }

    pub(crate) fn length(&self) -> usize {
        self.length as usize
    }
}

/// What a read found.
#[derive(Debug)]
pub(crate) struct Read {
    /// Whole batches, and at most a part of one more.
    pub(crate) bytes: Bytes,
    /// The whole ones.
    pub(crate) batches: Vec<(i64, i64, usize)>,
}

impl Log {
    /// The first offset kept.
    pub(crate) fn start(&self) -> i64 {
        self.start
    }

    /// One past the last offset.
    pub(crate) fn end(&self) -> i64 {
        self.end
    }

    /// Adds batches, one after the other; gives the first offset.
    pub(crate) fn append(&mut self, batches: impl IntoIterator<Item = Batch>, leader_epoch: i32) -> i64 {
        let base = self.end;
        let mut chunk = BytesMut::new();
        let mut marks: Vec<(usize, usize, i64)> = Vec::new();
        let mut next = self.end;
        for batch in batches {
            let encoded = batch.encode(next, leader_epoch);
            let Some((length, last)) = batch::measure(&encoded) else { continue };
            if chunk.len() + length > CHUNK_BYTES {
                self.keep(&std::mem::take(&mut chunk).freeze(), std::mem::take(&mut marks), false);
            }
            marks.push((chunk.len(), length, last));
            chunk.extend_from_slice(&encoded);
            next += last + 1;
        }
        self.keep(&chunk.freeze(), marks, false);
        base
    }

    /// Adds the same batch so many times; the bytes are kept once.
    pub(crate) fn append_repeated(&mut self, batch: &Batch, times: usize, leader_epoch: i32) -> i64 {
        let base = self.end;
        let chunk = batch.encode(0, leader_epoch).freeze();
        if let Some((length, last)) = batch::measure(&chunk) {
            self.keep(&chunk, std::iter::repeat_n((0, length, last), times), true);
        }
        base
    }

    /// Adds batches as another encoder wrote them, whatever they hold, at new offsets; gives the first one, or nothing if
    /// the lengths in them do not add up.
    pub(crate) fn append_encoded(&mut self, bytes: &[u8]) -> Option<i64> {
        let base = self.end;
        let mut chunk = BytesMut::from(bytes);
        let mut marks = Vec::new();
        let (mut at, mut next) = (0, self.end);
        while at < chunk.len() {
            let (length, last) = batch::measure(&chunk[at..])?;
            batch::stamp(&mut chunk[at..], next);
            marks.push((at, length, last));
            at += length;
            next += last + 1;
        }
        self.keep(&chunk.freeze(), marks, false);
        Some(base)
    }

    fn keep(&mut self, chunk: &Bytes, marks: impl IntoIterator<Item = (usize, usize, i64)>, shared: bool) {
        for (at, length, last) in marks {
            let (Ok(at), Ok(length)) = (u32::try_from(at), u32::try_from(length)) else { continue };
            self.places.push(Place {
                base: self.end,
                last: self.end + last,
                before: self.removed + self.bytes,
                chunk: chunk.clone(),
                at,
                length,
                shared,
            });
            self.end += last + 1;
            self.bytes += u64::from(length);
        }
    }

    /// Removes what lies wholly below `offset`, as retention does.
    pub(crate) fn trim(&mut self, offset: i64) {
        self.start = offset.clamp(self.start, self.end);
        let gone = self.places.partition_point(|place| place.last < self.start);
        for place in self.places.drain(..gone) {
            self.bytes -= u64::from(place.length);
            self.removed += u64::from(place.length);
        }
    }

    /// Offset and time of the first record that is not older than `timestamp`. Of a compressed batch, the first record
    /// stands for those before it.
    pub(crate) fn at_time(&self, timestamp: i64) -> Option<(i64, i64)> {
        let bytes = |place: &Place| place.chunk.slice(place.range());
        let found = self.places.iter().find_map(|place| {
            let (delta, time) = batch::at_time(&bytes(place), timestamp)?;
            Some((place.base + delta, time))
        });
        found.filter(|(offset, _)| *offset >= self.start)
    }

    /// Bytes from the batch with this offset to the end.
    pub(crate) fn bytes_from(&self, offset: i64) -> u64 {
        let before = self.places.get(self.position(offset)).map(|place| place.before);
        before.map_or(0, |before| self.removed + self.bytes - before)
    }

    /// Reads from the batch with this offset on: what fits into `bytes_max`, with a cut batch at its end; at least one
    /// whole batch if `one_at_least`.
    pub(crate) fn read(&self, offset: i64, bytes_max: usize, one_at_least: bool) -> Read {
        let from = self.position(offset);
        let mut length = 0;
        let mut batches = Vec::new();
        for place in &self.places[from..] {
            if length + place.length() > bytes_max && !(one_at_least && batches.is_empty()) {
                break;
            }
            length += place.length();
            batches.push((place.base, place.last, place.length()));
        }
        let until = from + batches.len();
        let tail = if batches.is_empty() { 0 } else { bytes_max.saturating_sub(length) };
        Read { bytes: self.gather(from..until, tail), batches }
    }

    fn gather(&self, places: Range<usize>, tail: usize) -> Bytes {
        let whole = &self.places[places.clone()];
        let Some(first) = whole.first() else { return Bytes::new() };
        let cut = self.places.get(places.end).filter(|_| tail > 0);
        let together = whole.iter().chain(cut).zip(whole.iter().chain(cut).skip(1)).all(|(one, next)| {
            one.chunk.as_ptr() == next.chunk.as_ptr() && one.range().end == next.range().start
        });
        if together && !first.shared {
            let end = whole.last().map_or(0, |last| last.range().end);
            let tail = cut.map_or(0, |cut| cut.length().min(tail));
            return first.chunk.slice(first.range().start..end + tail);
        }
        let mut bytes = BytesMut::with_capacity(whole.iter().map(Place::length).sum::<usize>() + tail);
        for place in whole.iter().chain(cut) {
            let at = bytes.len();
            bytes.extend_from_slice(&place.chunk[place.range()]);
            if place.shared {
                batch::stamp(&mut bytes[at..], place.base);
            }
        }
        if let Some(cut) = cut {
            bytes.truncate(bytes.len() - cut.length() + cut.length().min(tail));
        }
        bytes.freeze()
    }

    fn position(&self, offset: i64) -> usize {
        self.places.partition_point(|place| place.last < offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Record;

    fn batch(records: usize) -> Batch {
        Batch::of((0..records).map(|number| Record::new(format!("value {number}"))))
    }

    #[test]
    fn reads_are_slices_cut_at_the_limit() {
        let mut log = Log::default();
        assert_eq!(log.append([batch(10), batch(10), batch(10)], 0), 0);
        let one = log.read(5, 1, true);
        assert_eq!(one.batches, [(0, 9, one.bytes.len())]);
        assert!(log.read(5, 1, false).batches.is_empty());
        let cut = log.read(12, one.bytes.len() + 20, true);
        assert_eq!(cut.batches.len(), 1);
        assert_eq!(cut.batches[0].0, 10);
        assert_eq!(cut.bytes.len(), one.bytes.len() + 20);
        assert_eq!(log.bytes_from(15), 2 * one.bytes.len() as u64);
        assert_eq!(log.bytes_from(30), 0);
    }

    #[test]
    fn the_same_bytes_serve_many_offsets() {
        let mut log = Log::default();
        log.append_repeated(&batch(10), 1_000_000, 4);
        assert_eq!(log.end(), 10_000_000);
        let read = log.read(9_999_985, 1 << 20, true);
        assert_eq!(read.batches.iter().map(|(base, ..)| *base).collect::<Vec<_>>(), [9_999_980, 9_999_990]);
        let (length, last) = batch::measure(&read.bytes).expect("a whole batch");
        assert_eq!(last, 9);
        assert_eq!(read.bytes[..8], 9_999_980_i64.to_be_bytes());
        assert_eq!(read.bytes[length..length + 8], 9_999_990_i64.to_be_bytes());
    }

    #[test]
    fn what_others_encoded_gets_new_offsets() {
        let mut log = Log::default();
        log.append([batch(3)], 0);
        let foreign = batch(4).encode(77, 0);
        assert_eq!(log.append_encoded(&foreign), Some(3));
        assert_eq!(log.append_encoded(&foreign[..40]), None);
        assert_eq!(log.end(), 7);
        let read = log.read(0, 1 << 20, true);
        assert_eq!(
            read.batches.iter().map(|(base, last, _)| (*base, *last)).collect::<Vec<_>>(),
            [(0, 2), (3, 6)]
        );
        log.trim(4);
        assert_eq!((log.start(), log.read(0, 1 << 20, true).batches[0].0), (4, 3));
    }
}
