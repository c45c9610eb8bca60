//! When leases end: a hierarchical timing wheel.
//!
//! Six levels of 64 slots; a slot of level 0 is one tick wide, of each further level 64 times as much. A deadline
//! sits at the level of the highest block of six bits in which its tick differs from the wheel's, and moves down as
//! that block is reached: insertion and removal take constant time, and each deadline moves five times at most. A
//! jump of the clock costs no more than the slots it passes that hold something.
//!
//! A deadline never fires early, and up to a tick late. The book compares exactly wherever a lease is about to be
//! used, so lateness only keeps a dead delivery in memory a little longer.

use tidegate_model::Instant;

use crate::list::{Linked, List};

/// A tick is 2^24 ns, about 16.8 ms: leases last ten seconds at least.
const TICK_BITS: u32 = 24;
/// Slots of a level, as a power of two: one bit each in a `u64`.
const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
/// Levels: 2^36 ticks are 36 years, more than a process lives.
const LEVELS: usize = 6;
/// The last tick that the wheel can tell apart.
const TICK_MAX: u64 = (1 << (SLOT_BITS * LEVELS as u32)) - 1;

/// The kind of list that a wheel's slots are.
#[derive(Debug)]
pub(crate) enum InWheel {}

/// Where a deadline is in the wheel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    due_tick: u64,
    place: Place,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Place {
    Nowhere,
    /// Reached, and about to be popped.
    Due,
    Slot(u16),
}

impl Timing {
    pub(crate) const NONE: Self = Self { due_tick: 0, place: Place::Nowhere };
}

/// A table whose slots can be in a wheel.
pub(crate) trait Timed: Linked<InWheel> {
    fn timing_mut(&mut self, at: u32) -> &mut Timing;
}

#[derive(Debug)]
pub(crate) struct Wheel {
    tick: u64,
    occupied: [u64; LEVELS],
    slots: Box<[List<InWheel>]>,
    due: List<InWheel>,
}

impl Wheel {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            tick: tick_before(now),
            occupied: [0; LEVELS],
            slots: (0..LEVELS * SLOTS).map(|_| List::default()).collect(),
            due: List::default(),
        }
    }

    /// Notes that `at` is due at `deadline`. It must not be in the wheel.
    pub(crate) fn insert(&mut self, table: &mut impl Timed, at: u32, deadline: Instant) {
        let due_tick = tick_after(deadline).clamp(self.tick + 1, TICK_MAX);
        table.timing_mut(at).due_tick = due_tick;
        self.place(table, at, due_tick);
    }

    /// Forgets `at`. Nothing happens when it is not in the wheel.
    pub(crate) fn remove(&mut self, table: &mut impl Timed, at: u32) {
        let timing = std::mem::replace(table.timing_mut(at), Timing::NONE);
        match timing.place {
            Place::Nowhere => {}
            Place::Due => self.due.remove(table, at),
            Place::Slot(slot) => {
                let list = &mut self.slots[usize::from(slot)];
                list.remove(table, at);
                if list.is_empty() {
                    self.occupied[usize::from(slot) / SLOTS] &= !(1 << (usize::from(slot) % SLOTS));
                }
            }
        }
    }

    /// The next one whose deadline has passed, taken out; `None` when there is none left.
    pub(crate) fn pop_due(&mut self, table: &mut impl Timed, now: Instant) -> Option<u32> {
        let target = tick_before(now);
        loop {
            if let Some(at) = self.due.pop_front(table) {
                *table.timing_mut(at) = Timing::NONE;
                return Some(at);
            }
            let Some((level, slot, start)) = self.next_slot().filter(|(_, _, start)| *start <= target) else {
                self.tick = self.tick.max(target);
                return None;
            };
            self.tick = start;
            self.occupied[level] &= !(1 << slot);
            while let Some(at) = self.slots[level * SLOTS + slot].pop_front(table) {
                let due_tick = table.timing_mut(at).due_tick;
                if due_tick <= start {
                    table.timing_mut(at).place = Place::Due;
                    self.due.push_back(table, at);
                } else {
                    self.place(table, at, due_tick);
                }
            }
        }
    }

    /// When to call [`pop_due`](Self::pop_due) next.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        if !self.due.is_empty() {
            return Some(Instant::from_nanos(self.tick << TICK_BITS));
        }
        self.next_slot().map(|(_, _, start)| Instant::from_nanos(start << TICK_BITS))
    }

    fn place(&mut self, table: &mut impl Timed, at: u32, due_tick: u64) {
        // The highest bit in which the two differ; the lowest level's bits are set so that it is never above them.
        let differing = (self.tick ^ due_tick) | (SLOTS as u64 - 1);
        let level = (differing.ilog2() / SLOT_BITS) as usize;
        let slot = (due_tick >> (SLOT_BITS * level as u32)) as usize % SLOTS;
        self.occupied[level] |= 1 << slot;
        let index = level * SLOTS + slot;
        table.timing_mut(at).place = Place::Slot(index as u16);
        self.slots[index].push_back(table, at);
    }

    /// The level, slot and first tick of what comes next. A lower level is always earlier: it holds what shares all
    /// higher bits with the present.
    fn next_slot(&self) -> Option<(usize, usize, u64)> {
        let level = self.occupied.iter().position(|slots| *slots != 0)?;
        // Slots at or before the present one of a level are empty: what they held has moved down.
        let slot = self.occupied[level].trailing_zeros();
        let shift = SLOT_BITS * level as u32;
        let above = self.tick >> (shift + SLOT_BITS) << (shift + SLOT_BITS);
        Some((level, slot as usize, above | u64::from(slot) << shift))
    }
}

const fn tick_before(now: Instant) -> u64 {
    now.as_nanos() >> TICK_BITS
}

const fn tick_after(deadline: Instant) -> u64 {
    deadline.as_nanos().div_ceil(1 << TICK_BITS)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::list::Link;

    #[derive(Default)]
    struct Table {
        links: Vec<Link>,
        timings: Vec<Timing>,
    }

    impl Linked<InWheel> for Table {
        fn link(&self, at: u32) -> Link {
            self.links[at as usize]
        }
        fn link_mut(&mut self, at: u32) -> &mut Link {
            &mut self.links[at as usize]
        }
    }

    impl Timed for Table {
        fn timing_mut(&mut self, at: u32) -> &mut Timing {
            &mut self.timings[at as usize]
        }
    }

    impl Table {
        fn grow(&mut self) -> u32 {
            self.links.push(Link::UNLINKED);
            self.timings.push(Timing::NONE);
            self.links.len() as u32 - 1
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert { after_nanos: u64 },
        Remove(prop::sample::Index),
        Advance { nanos: u64 },
    }

    fn nanos() -> impl Strategy<Value = u64> {
        (0_u32..52, any::<u64>()).prop_map(|(bits, random)| random & ((1 << bits) - 1))
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => nanos().prop_map(|after_nanos| Step::Insert { after_nanos }),
            1 => any::<prop::sample::Index>().prop_map(Step::Remove),
            3 => nanos().prop_map(|nanos| Step::Advance { nanos }),
        ]
    }

    proptest! {
        /// Against a plain list: nothing early, nothing later than a tick, nothing lost, and the announced deadline
        /// is never after a real one by more than a tick.
        #[test]
        fn agrees_with_a_plain_list(start in nanos(), steps in prop::collection::vec(step(), 1..100)) {
            let mut now = Instant::from_nanos(start);
            let mut wheel = Wheel::new(now);
            let mut table = Table::default();
            let mut waiting: Vec<(u32, Instant)> = Vec::new();
            let tick = std::time::Duration::from_nanos(1 << TICK_BITS);
            for step in steps {
                match step {
                    Step::Insert { after_nanos } => {
                        let deadline = Instant::from_nanos(now.as_nanos() + after_nanos);
                        let at = table.grow();
                        wheel.insert(&mut table, at, deadline);
                        waiting.push((at, deadline));
                    }
                    Step::Remove(index) if !waiting.is_empty() => {
                        let (at, _) = waiting.swap_remove(index.index(waiting.len()));
                        wheel.remove(&mut table, at);
                        wheel.remove(&mut table, at);
                    }
                    Step::Remove(_) => {}
                    Step::Advance { nanos } => {
                        now = Instant::from_nanos(now.as_nanos() + nanos);
                        while let Some(at) = wheel.pop_due(&mut table, now) {
                            let index = waiting.iter().position(|(other, _)| *other == at);
                            prop_assert!(index.is_some(), "popped twice");
                            let (_, deadline) = waiting.swap_remove(index.unwrap_or_default());
                            prop_assert!(deadline <= now, "early");
                        }
                        prop_assert!(waiting.iter().all(|(_, deadline)| now < *deadline + tick + tick), "late");
                    }
                }
                let earliest = waiting.iter().map(|(_, deadline)| *deadline).min();
                match (wheel.next_deadline(), earliest) {
                    (None, None) => {}
                    (Some(next), Some(earliest)) => prop_assert!(next <= earliest.max(now) + tick + tick),
                    (next, earliest) => prop_assert!(false, "{next:?} against {earliest:?}"),
                }
            }
        }
    }
}
