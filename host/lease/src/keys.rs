//! What fairness is counted by: facts about each key, in a bounded table.

use std::collections::HashMap;
use std::ops::{Index, IndexMut};
use std::sync::Arc;
use std::time::Duration;

use slab::Slab;
use tidegate_model::{Instant, Standing};

use crate::entry::InQueue;
use crate::list::{Link, Linked, List};
use crate::spacing;
use crate::window::Window;

/// How long a key counts as active after its last delivery ended, in seconds; the length of the rate's window.
const RATE_SECONDS: u64 = 10;
/// The length of the window over which work is shared out, in seconds.
const SHARE_SECONDS: u64 = 60;

/// One key.
#[derive(Debug)]
pub(crate) struct Key {
    pub(crate) name: Arc<str>,
    /// Accepted deliveries that could be emitted now.
    pub(crate) queue: List<InQueue>,
    /// Deliveries that the queue has been given, the numbers of those in it being the last of these.
    pub(crate) pushed: u64,
    /// What the key may spend before its turn ends, see [`Rounds`](crate::rounds::Rounds).
    pub(crate) deficit: u64,
    /// Shifts the moments at which its deferrals end, see [`spacing`].
    pub(crate) phase: u64,
    in_flight: u32,
    arrivals: Window<RATE_SECONDS>,
    work: Window<SHARE_SECONDS>,
    idle_since: Instant,
    /// Idle, and still counted as active.
    recent: bool,
    in_round: Link,
    by_idleness: Link,
}

/// The kind of list that the round of active keys is.
#[derive(Debug)]
pub(crate) enum InRound {}

/// The kind of list that idle keys are in.
#[derive(Debug)]
enum ByIdleness {}

/// The table of keys.
#[derive(Debug)]
pub(crate) struct Keys {
    max: usize,
    seed: u64,
    // Never iterated over, so that its unseeded hasher cannot influence what the book does.
    index: HashMap<Arc<str>, u32>,
    slots: Slots,
    /// Keys with nothing in flight, the longest idle first.
    idle: List<ByIdleness>,
    /// The longest idle of those that still count as active.
    oldest_recent: Option<u32>,
    recent: u32,
    flow_in_flight: u32,
    flow_arrivals: Window<RATE_SECONDS>,
    flow_finished: Window<RATE_SECONDS>,
    flow_work: Window<SHARE_SECONDS>,
}

/// The table's slots alone, so that lists through them can be changed while others are.
#[derive(Debug, Default)]
struct Slots(Slab<Key>);

impl Keys {
    pub(crate) fn new(max: usize, seed: u64) -> Self {
        Self {
            max,
            seed,
            index: HashMap::new(),
            slots: Slots::default(),
            idle: List::default(),
            oldest_recent: None,
            recent: 0,
            flow_in_flight: 0,
            flow_arrivals: Window::default(),
            flow_finished: Window::default(),
            flow_work: Window::default(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.0.len()
    }

    /// Counts a delivery of the key `name` in; gives the key's slot.
    pub(crate) fn begin(&mut self, now: Instant, name: Arc<str>) -> u32 {
        let at = match self.index.get(&name) {
            Some(at) => *at,
            None => self.make(now, name),
        };
        let key = &mut self.slots.0[at as usize];
        key.arrivals.add(now, 1.0);
        key.in_flight += 1;
        if key.in_flight == 1 {
            self.leave_idle(at);
        }
        self.flow_arrivals.add(now, 1.0);
        self.flow_in_flight += 1;
        at
    }

    /// Counts a delivery of the key out.
    pub(crate) fn end(&mut self, now: Instant, at: u32) {
        self.flow_in_flight -= 1;
        let key = &mut self.slots.0[at as usize];
        key.in_flight -= 1;
        if key.in_flight == 0 {
            self.enter_idle(now, at);
            self.evict();
        }
    }

    /// Notes work done for the key: reported cost or seconds.
    pub(crate) fn add_work(&mut self, now: Instant, at: u32, amount: f64) {
        // A worker's number is not ours to trust.
        if amount.is_finite() && amount > 0.0 {
            self.slots.0[at as usize].work.add(now, amount);
            self.flow_work.add(now, amount);
        }
    }

    /// Counts a delivery that the sink finished, whatever the broker makes of it.
    pub(crate) fn add_finished(&mut self, now: Instant) {
        self.flow_finished.add(now, 1.0);
    }

    /// Lets idle keys stop counting as active.
    pub(crate) fn age(&mut self, now: Instant) {
        while let Some(at) = self.oldest_recent
            && now.saturating_since(self.slots.0[at as usize].idle_since) >= Duration::from_secs(RATE_SECONDS)
        {
            self.slots.0[at as usize].recent = false;
            self.oldest_recent = List::next(&self.slots, at);
            self.recent -= 1;
        }
    }

    /// How the key stands, by its slot.
    pub(crate) fn standing_at(&self, now: Instant, at: u32) -> Standing {
        let key = &self.slots.0[at as usize];
        let total = self.flow_work.sum(now);
        Standing {
            key_in_flight: key.in_flight,
            key_rate: key.arrivals.rate_per_second(now),
            key_share: if total > 0.0 { (key.work.sum(now) / total).min(1.0) } else { 0.0 },
            ..self.flow_standing(now)
        }
    }

    /// How the key stands, by its name. A key that is not in the table has the flow's facts and zeros.
    pub(crate) fn standing(&self, now: Instant, name: &str) -> Standing {
        match self.index.get(name) {
            Some(at) => self.standing_at(now, *at),
            None => self.flow_standing(now),
        }
    }

    /// Keys with something in flight now or within the last ten seconds, as of the last call of [`age`](Self::age).
    pub(crate) fn active(&self) -> u32 {
        (self.len() - self.idle.len()) as u32 + self.recent
    }

    fn flow_standing(&self, now: Instant) -> Standing {
        Standing {
            flow_in_flight: self.flow_in_flight,
            active_keys: self.active(),
            flow_rate: self.flow_arrivals.rate_per_second(now),
            flow_throughput: self.throughput(now),
            ..Standing::default()
        }
    }

    /// Deliveries of all keys that sinks finish in a second, over the last ten.
    pub(crate) fn throughput(&self, now: Instant) -> f64 {
        self.flow_finished.rate_per_second(now)
    }

    /// Makes the key, as one that just became idle.
    fn make(&mut self, now: Instant, name: Arc<str>) -> u32 {
        let at = self.slots.0.insert(Key {
            queue: List::default(),
            pushed: 0,
            deficit: 0,
            phase: spacing::phase(self.seed, &name),
            in_flight: 0,
            arrivals: Window::default(),
            work: Window::default(),
            idle_since: now,
            recent: false,
            in_round: Link::UNLINKED,
            by_idleness: Link::UNLINKED,
            name: Arc::clone(&name),
        }) as u32;
        self.index.insert(name, at);
        // Make room first, so that the new one itself is not the longest idle.
        self.evict();
        self.enter_idle(now, at);
        at
    }

    fn enter_idle(&mut self, now: Instant, at: u32) {
        let key = &mut self.slots.0[at as usize];
        key.idle_since = now;
        key.recent = true;
        self.idle.push_back(&mut self.slots, at);
        self.recent += 1;
        self.oldest_recent.get_or_insert(at);
    }

    fn leave_idle(&mut self, at: u32) {
        let key = &mut self.slots.0[at as usize];
        if std::mem::take(&mut key.recent) {
            self.recent -= 1;
        }
        if self.oldest_recent == Some(at) {
            self.oldest_recent = List::next(&self.slots, at);
        }
        self.idle.remove(&mut self.slots, at);
    }

    /// Drops the longest idle keys until the table is within its bound, or none is idle.
    fn evict(&mut self) {
        while self.slots.0.len() > self.max
            && let Some(at) = self.idle.front()
        {
            self.leave_idle(at);
            let key = self.slots.0.remove(at as usize);
            self.index.remove(&key.name);
        }
    }
}

impl Index<u32> for Keys {
    type Output = Key;
    fn index(&self, at: u32) -> &Key {
        &self.slots.0[at as usize]
    }
}

impl IndexMut<u32> for Keys {
    fn index_mut(&mut self, at: u32) -> &mut Key {
        &mut self.slots.0[at as usize]
    }
}

impl Linked<InRound> for Keys {
    fn link(&self, at: u32) -> Link {
        self[at].in_round
    }
    fn link_mut(&mut self, at: u32) -> &mut Link {
        &mut self[at].in_round
    }
}

impl Linked<ByIdleness> for Slots {
    fn link(&self, at: u32) -> Link {
        self.0[at as usize].by_idleness
    }
    fn link_mut(&mut self, at: u32) -> &mut Link {
        &mut self.0[at as usize].by_idleness
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(max: usize) -> Keys {
        Keys::new(max, 0)
    }

    fn pass(keys: &mut Keys, millis: u64, name: &str) {
        let now = Instant::from_millis(millis);
        let at = keys.begin(now, name.into());
        keys.end(now, at);
    }

    #[test]
    fn the_longest_idle_key_goes_first() {
        let mut keys = keys(2);
        for name in ["a", "b", "a", "c"] {
            pass(&mut keys, 1, name);
        }
        let kept = ["a", "b", "c"].map(|name| keys.standing(Instant::from_millis(1), name).key_rate > 0.0);
        assert_eq!(kept, [true, false, true]);
    }

    #[test]
    fn a_busy_key_never_goes() {
        let mut keys = keys(1);
        let busy = ["a", "b", "c"].map(|name| keys.begin(Instant::ZERO, name.into()));
        assert_eq!(keys.len(), 3, "more than the bound only by what is in flight");
        for at in busy {
            keys.end(Instant::ZERO, at);
        }
        assert_eq!(keys.len(), 1);
        assert!(keys.standing(Instant::ZERO, "c").key_rate > 0.0);
    }

    #[test]
    fn a_key_is_active_for_ten_seconds_after_its_last_delivery() {
        let mut keys = keys(10);
        pass(&mut keys, 0, "a");
        pass(&mut keys, 5_000, "b");
        let busy = keys.begin(Instant::ZERO, "busy".into());
        for (millis, active) in [(9_999, 3), (10_000, 2), (14_999, 2), (15_000, 1), (100_000, 1)] {
            keys.age(Instant::from_millis(millis));
            assert_eq!(keys.active(), active, "at {millis} ms");
        }
        pass(&mut keys, 100_000, "a");
        assert_eq!(keys.active(), 2);
        keys.end(Instant::from_millis(100_000), busy);
        keys.age(Instant::from_millis(110_000));
        assert_eq!(keys.active(), 0);
    }

    #[test]
    fn nonsense_costs_are_not_counted() {
        let mut keys = keys(10);
        let at = keys.begin(Instant::ZERO, "a".into());
        for amount in [f64::NAN, f64::INFINITY, -1.0] {
            keys.add_work(Instant::ZERO, at, amount);
        }
        assert_eq!(keys.standing_at(Instant::ZERO, at).key_share, 0.0);
    }
}
