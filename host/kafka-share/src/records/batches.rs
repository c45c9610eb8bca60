//! From a response to its batches.

use bytes::Bytes;

use super::batch::Batch;
use super::error::{BatchError, BatchFault};
use super::layout::{self, field};
use super::ranges::OffsetRange;

/// The batches of a response, in its order.
///
/// Every batch that it gives has passed its checksum.
#[derive(Debug)]
pub struct Batches {
    rest: Bytes,
    next_offset: Option<i64>,
    ending: Option<Ending>,
}

/// How the bytes of a response ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ending {
    /// With a batch, or there were none.
    Complete,
    /// Within a batch, as is usual where the response was full. The broker sends the batch again.
    Cut,
    /// With a batch whose length cannot be right, so that nothing behind it could be read.
    Lost,
}

impl Batches {
    /// Walks the `Records` bytes of one partition.
    #[must_use]
    pub const fn new(records: Bytes) -> Self {
        Self { rest: records, next_offset: None, ending: None }
    }

    /// How the bytes ended; `None` as long as the end has not been reached.
    #[must_use]
    pub const fn ending(&self) -> Option<Ending> {
        self.ending
    }

    /// The offset after the last batch so far, be it good or not; `None` before the first one. When the walk ended with
    /// [`Ending::Cut`] or [`Ending::Lost`], offsets from here on have not been seen.
    #[must_use]
    pub const fn next_offset(&self) -> Option<i64> {
        self.next_offset
    }

    fn end(&mut self, ending: Ending) {
        self.rest = Bytes::new();
        self.ending = Some(ending);
    }

    fn pass(&mut self, last: i64) {
        let next = last.saturating_add(1);
        self.next_offset = Some(self.next_offset.map_or(next, |known| known.max(next)));
    }

    /// A message or message set of the formats 0 and 1.
    fn old(&self, whole: &[u8], magic: i8) -> BatchError {
        let last = i64::from_be_bytes(field(whole, layout::BASE_OFFSET));
        let compressed =
            whole.get(layout::OLD_ATTRIBUTES).is_some_and(|bits| bits & layout::COMPRESSION_BITS != 0);
        // A compressed set bears the offset of its last message, and nothing outside it tells the first: it is after
        // all that came before.
        let first = if compressed { self.next_offset.unwrap_or(0) } else { last };
        let offsets = OffsetRange::new(first, last);
        let offsets = (last >= 0 && !offsets.is_empty()).then_some(offsets);
        BatchError { offsets, fault: BatchFault::Format { magic } }
    }
}

impl Iterator for Batches {
    type Item = Result<Batch, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ending.is_some() {
            return None;
        }
        if self.rest.is_empty() {
            self.end(Ending::Complete);
            return None;
        }
        if self.rest.len() < layout::LEADER_EPOCH {
            self.end(Ending::Cut);
            return None;
        }
        let length = i32::from_be_bytes(field(&self.rest, layout::LENGTH));
        let bytes = usize::try_from(length).unwrap_or(0).saturating_add(layout::LEADER_EPOCH);
        if bytes <= layout::MAGIC {
            self.end(Ending::Lost);
            return Some(Err(BatchError { offsets: None, fault: BatchFault::Length { length } }));
        }
        if bytes > self.rest.len() {
            self.end(Ending::Cut);
            return None;
        }
        let whole = self.rest.split_to(bytes);
        let magic = i8::from_be_bytes(field(&whole, layout::MAGIC));
        let read = match magic {
            layout::MAGIC_READ if bytes < layout::RECORDS => {
                self.end(Ending::Lost);
                Err(BatchError { offsets: None, fault: BatchFault::Length { length } })
            }
            layout::MAGIC_READ => Batch::read(&whole, following(&self.rest)),
            0 | 1 => Err(self.old(&whole, magic)),
            _ => Err(BatchError { offsets: None, fault: BatchFault::Format { magic } }),
        };
        let offsets = match &read {
            Ok(batch) => Some(batch.offsets()),
            Err(error) => error.offsets,
        };
        if let Some(offsets) = offsets {
            self.pass(offsets.last);
        }
        Some(read)
    }
}

/// Where the next batch begins, if as much of it is there.
fn following(rest: &[u8]) -> Option<i64> {
    (rest.len() >= layout::LENGTH).then(|| i64::from_be_bytes(field(rest, layout::BASE_OFFSET)))
}
