//! An ordered queue: a lite topic, or one queue of a FIFO topic.

use std::collections::VecDeque;
use std::sync::Arc;

use super::message::Stored;

/// The messages of one ordered queue that are still kept, by offset.
#[derive(Debug)]
pub(crate) struct Queue {
    /// The lite topic's name; none for a queue of a FIFO topic.
    pub(crate) name: Option<Arc<str>>,
    base: u64,
    entries: VecDeque<Entry>,
}

/// One offset of an ordered queue.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) stored: Arc<Stored>,
    /// The offset written into handles. A copy that came in through the multi-dispatch property shows the offset it
    /// had elsewhere, which is why it cannot be acked by its handle.
    pub(crate) shown_offset: u64,
}

impl Queue {
    pub(crate) fn new(name: Option<Arc<str>>) -> Self {
        Self { name, base: 0, entries: VecDeque::new() }
    }

    /// The first offset kept.
    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    /// One past the last offset.
    pub(crate) fn end(&self) -> u64 {
        self.base + self.entries.len() as u64
    }

    /// Adds a message; without `shown_offset` it shows its real offset. Gives the real offset.
    pub(crate) fn append(&mut self, stored: Arc<Stored>, shown_offset: Option<u64>) -> u64 {
        let offset = self.end();
        self.entries.push_back(Entry { stored, shown_offset: shown_offset.unwrap_or(offset) });
        offset
    }

    pub(crate) fn get(&self, offset: u64) -> Option<&Entry> {
        let index = usize::try_from(offset.checked_sub(self.base)?).ok()?;
        self.entries.get(index)
    }

    /// Lets go of everything below `offset`.
    pub(crate) fn trim_to(&mut self, offset: u64) {
        while self.base < offset && self.entries.pop_front().is_some() {
            self.base += 1;
        }
        // A lite topic that is empty again should not keep the room of its worst day.
        if self.entries.is_empty() && self.entries.capacity() > 64 {
            self.entries.shrink_to(8);
        }
    }
}
