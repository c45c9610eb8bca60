//! A topic's main log: every message of the topic in the order of arrival, for normal groups.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use super::message::Stored;

/// The messages of a topic by place.
#[derive(Debug, Default)]
pub(crate) struct Log {
    base: u64,
    slots: VecDeque<Slot>,
}

#[derive(Debug)]
struct Slot {
    message: Listed,
    /// Normal groups that acked it.
    acks: u32,
}

/// How the main log lists a message.
#[derive(Debug)]
enum Listed {
    /// The log keeps it.
    Kept(Arc<Stored>),
    /// An ordered queue keeps it; the log only knows of it.
    Known(Weak<Stored>),
    /// It is gone.
    Gone,
}

impl Log {
    /// The first place kept.
    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    /// One past the last place.
    pub(crate) fn end(&self) -> u64 {
        self.base + self.slots.len() as u64
    }

    /// Adds a message the log keeps.
    pub(crate) fn append(&mut self, stored: Arc<Stored>) -> u64 {
        self.push(Listed::Kept(stored))
    }

    /// Adds a message an ordered queue keeps. Each append clears up to two places nobody keeps any more, so that the
    /// list does not outgrow what is alive.
    pub(crate) fn append_known(&mut self, stored: &Arc<Stored>) -> u64 {
        for _ in 0..2 {
            if self.slots.front().is_some_and(|slot| slot.message.get().is_none()) {
                self.slots.pop_front();
                self.base += 1;
            }
        }
        self.push(Listed::Known(Arc::downgrade(stored)))
    }

    pub(crate) fn get(&self, place: u64) -> Option<Arc<Stored>> {
        self.slot(place).and_then(|slot| self.slots.get(slot)).and_then(|slot| slot.message.get())
    }

    /// Counts a group's ack of a place; gives how many groups have acked it.
    pub(crate) fn count_ack(&mut self, place: u64) -> u32 {
        let slot = self.slot(place);
        slot.and_then(|slot| self.slots.get_mut(slot)).map_or(0, |slot| {
            slot.acks = slot.acks.saturating_add(1);
            slot.acks
        })
    }

    /// Lets go of one place.
    pub(crate) fn remove(&mut self, place: u64) -> Option<Arc<Stored>> {
        let at = self.slot(place)?;
        let slot = self.slots.get_mut(at)?;
        let removed = slot.message.get();
        slot.message = Listed::Gone;
        while self.slots.front().is_some_and(|slot| matches!(slot.message, Listed::Gone)) {
            self.slots.pop_front();
            self.base += 1;
        }
        removed
    }

    fn push(&mut self, message: Listed) -> u64 {
        let place = self.end();
        self.slots.push_back(Slot { message, acks: 0 });
        place
    }

    fn slot(&self, place: u64) -> Option<usize> {
        usize::try_from(place.checked_sub(self.base)?).ok()
    }
}

impl Listed {
    fn get(&self) -> Option<Arc<Stored>> {
        match self {
            Self::Kept(stored) => Some(Arc::clone(stored)),
            Self::Known(stored) => stored.upgrade(),
            Self::Gone => None,
        }
    }
}
