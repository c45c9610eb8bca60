//! A bounded table that forgets what was not touched longest.

use std::collections::HashMap;

/// Marks the end of the list.
const NONE: u32 = u32::MAX;

/// At most `capacity` entries under 64-bit keys. Holds no more memory than its entries ever needed.
#[derive(Debug)]
pub(crate) struct Lru<V> {
    capacity: u32,
    index: HashMap<u64, u32>,
    slots: Vec<Slot<V>>,
    /// Touched last and longest ago.
    newest: u32,
    oldest: u32,
}

#[derive(Debug)]
struct Slot<V> {
    key: u64,
    value: V,
    newer: u32,
    older: u32,
}

impl<V> Lru<V> {
    /// An empty table; it holds at least one entry.
    pub(crate) fn new(capacity: usize) -> Self {
        let capacity = u32::try_from(capacity).unwrap_or(NONE - 1).clamp(1, NONE - 1);
        Self { capacity, index: HashMap::new(), slots: Vec::new(), newest: NONE, oldest: NONE }
    }

    /// Entries held.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The value of `key`, now the newest, made by `make` when there is none. The flag tells that the oldest entry
    /// had to go for it.
    pub(crate) fn touch(&mut self, key: u64, make: impl FnOnce() -> V) -> (&mut V, bool) {
        let (at, evicted) = match self.index.get(&key) {
            Some(&at) => {
                self.unlink(at);
                (at, false)
            }
            None => self.place(key, make()),
        };
        self.link_newest(at);
        (&mut self.slots[at as usize].value, evicted)
    }

    /// The value of `key` without touching it.
    pub(crate) fn peek(&self, key: u64) -> Option<&V> {
        let at = *self.index.get(&key)?;
        self.slots.get(at as usize).map(|slot| &slot.value)
    }

    /// Puts a new entry into an unlinked slot: a fresh one, or that of the oldest entry.
    fn place(&mut self, key: u64, value: V) -> (u32, bool) {
        let slot = Slot { key, value, newer: NONE, older: NONE };
        let len = u32::try_from(self.slots.len()).unwrap_or(NONE);
        let (at, evicted) = if len < self.capacity {
            self.slots.push(slot);
            (len, false)
        } else {
            let at = self.oldest;
            self.unlink(at);
            self.index.remove(&self.slots[at as usize].key);
            self.slots[at as usize] = slot;
            (at, true)
        };
        self.index.insert(key, at);
        (at, evicted)
    }

    fn unlink(&mut self, at: u32) {
        let (newer, older) = (self.slots[at as usize].newer, self.slots[at as usize].older);
        match newer {
            NONE => self.newest = older,
            _ => self.slots[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            _ => self.slots[older as usize].newer = newer,
        }
    }

    fn link_newest(&mut self, at: u32) {
        let older = self.newest;
        let slot = &mut self.slots[at as usize];
        slot.newer = NONE;
        slot.older = older;
        match older {
            NONE => self.oldest = at,
            _ => self.slots[older as usize].newer = at,
        }
        self.newest = at;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_entry_touched_longest_ago_goes_first() {
        let mut table = Lru::new(2);
        table.touch(1, || 'a');
        table.touch(2, || 'b');
        table.touch(1, || 'x');
        assert_eq!(table.touch(3, || 'c'), (&mut 'c', true));
        assert_eq!((table.peek(1), table.peek(2), table.peek(3)), (Some(&'a'), None, Some(&'c')));
    }

    proptest! {
        /// The table against a list kept in order of touching.
        #[test]
        fn it_is_a_list_in_order_of_touching(capacity in 1_usize..6, keys in prop::collection::vec(0_u64..9, 0..200)) {
            let mut table = Lru::new(capacity);
            let mut list: Vec<(u64, usize)> = Vec::new();
            for (step, key) in keys.into_iter().enumerate() {
                let known = list.iter().position(|(k, _)| *k == key);
                let entry = known.map_or((key, step), |at| list.remove(at));
                let full = known.is_none() && list.len() == capacity;
                if full {
                    list.remove(0);
                }
                list.push(entry);
                let (value, evicted) = table.touch(key, || step);
                prop_assert_eq!((*value, evicted), (entry.1, full));
                prop_assert_eq!(table.len(), list.len());
                for key in 0..9 {
                    let expected = list.iter().find(|(k, _)| *k == key).map(|(_, v)| v);
                    prop_assert_eq!(table.peek(key), expected);
                }
            }
        }
    }
}
