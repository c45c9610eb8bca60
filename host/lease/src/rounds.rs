//! Who is emitted next: deficit round robin over keys (Shreedhar and Varghese, 1995), with message cost in place of
//! packet length.
//!
//! Keys with something to emit stand in a round. Whoever is at the front gets one unit to spend; when that and what it
//! saved pays for its first delivery, that one is emitted. Either way the key goes to the end of the round. So a
//! backlog of one key delays another by one turn of each key at most, and a key with large bodies gets as many bytes
//! as one with small bodies, not as many messages.
//!
//! Differences from the original: a turn emits at most one delivery, which follows from a quantum as small as the
//! smallest cost; and a key that is alone does not have to save. Turns without an emission are bounded by the bytes
//! held: each stands for 64 KiB of a body that waits.

use crate::entry::{Entries, Entry, Place};
use crate::keys::{InRound, Keys};
use crate::list::List;

/// Every key's income per round, in units.
const QUANTUM: u64 = 1;
/// Bytes of body that cost as much as a message does by itself: handing over a message costs about as much as copying
/// so many bytes.
const BYTES_PER_UNIT: u64 = 65_536;

/// The round of keys that have something to emit.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    active: List<InRound>,
}

impl Rounds {
    /// Puts an accepted delivery at the end of its key's queue.
    pub(crate) fn push(&mut self, keys: &mut Keys, entries: &mut Entries, at: u32) {
        let key = self.enter(keys, entries, at);
        entries[at].ticket = keys[key].pushed;
        keys[key].pushed += 1;
        keys[key].queue.push_back(entries, at);
    }

    /// Puts a delivery that missed its turn before all others of its key.
    pub(crate) fn push_front(&mut self, keys: &mut Keys, entries: &mut Entries, at: u32) {
        let key = self.enter(keys, entries, at);
        entries[at].ticket = 0;
        keys[key].queue.push_front(entries, at);
    }

    /// About how many are emitted before this one, which waits in its key's queue. By the numbers that its key's queue
    /// gave out it has at most so many of its own key before it, and of each other key about as many.
    pub(crate) fn ahead_of(&self, keys: &Keys, entries: &Entries, at: u32) -> usize {
        let key = entries[at].key;
        let Some(front) = keys[key].queue.front() else { return 0 };
        let own = if front == at {
            0
        } else {
            let behind = keys[key].pushed.saturating_sub(entries[at].ticket + 1);
            (keys[key].queue.len() - 1).saturating_sub(usize::try_from(behind).unwrap_or(usize::MAX)).max(1)
        };
        let before_its_turn = if self.active.front() == Some(key) { 0 } else { self.active.len() - 1 };
        own.saturating_mul(self.active.len()).saturating_add(before_its_turn)
    }

    /// Takes a delivery out of its key's queue.
    pub(crate) fn remove(&mut self, keys: &mut Keys, entries: &mut Entries, at: u32) {
        let key = entries[at].key;
        entries[at].place = Place::Nowhere;
        keys[key].queue.remove(entries, at);
        if keys[key].queue.is_empty() {
            keys[key].deficit = 0;
            self.active.remove(keys, key);
        }
    }

    /// Takes out the delivery whose turn it is.
    pub(crate) fn pop(&mut self, keys: &mut Keys, entries: &mut Entries) -> Option<u32> {
        loop {
            let key = self.active.front()?;
            let at = keys[key].queue.front()?;
            let alone = self.active.len() == 1;
            let balance = keys[key].deficit + QUANTUM;
            let cost = cost(&entries[at]);
            if alone || balance >= cost {
                keys[key].deficit = 0;
                self.remove(keys, entries, at);
                if !alone && !keys[key].queue.is_empty() {
                    self.send_back(keys, key);
                }
                return Some(at);
            }
            keys[key].deficit = balance;
            self.send_back(keys, key);
        }
    }

    /// Notes that a delivery enters its key's queue; gives the key.
    fn enter(&mut self, keys: &mut Keys, entries: &mut Entries, at: u32) -> u32 {
        let key = entries[at].key;
        entries[at].place = Place::Key;
        if keys[key].queue.is_empty() {
            self.active.push_back(keys, key);
        }
        key
    }

    fn send_back(&mut self, keys: &mut Keys, key: u32) {
        self.active.remove(keys, key);
        self.active.push_back(keys, key);
    }
}

/// What emitting it costs, in units.
fn cost(entry: &Entry) -> u64 {
    1 + entry.message.body.len() as u64 / BYTES_PER_UNIT
}
