//! Which deliveries go into the next request, and when: the logic of the sink.
//!
//! Deliveries of one ordered key are never in two requests at the same time, and go in the order in which they came; a
//! batch may have several of them. Batches are as large as what waits: nothing waits to fill one. Whatever was taken
//! ends once: in a batch that is ended, or among those that are given back.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tidegate_connector::Backoff;
use tidegate_model::{DeliveryId, Emission, Instant};
use tidegate_telemetry::events::sink::ReleaseCause;

use super::target::Target;
use crate::parts::{Lateness, work_end};

/// How requests may be made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// Most at the same time.
    pub(super) concurrency: usize,
    /// Most deliveries of one.
    pub(super) batch_max: usize,
    /// A request with so many bytes of messages takes no more.
    pub(super) batch_bytes: usize,
    /// The first wait between tries, and the longest.
    pub(super) wait_first: Duration,
    pub(super) wait_max: Duration,
}

/// Everything that the sink has taken and that has not ended. The credits bound it.
#[derive(Debug)]
pub(super) struct Schedule {
    rules: Rules,
    /// Ordered keys of which something is here.
    lanes: HashMap<Arc<str>, Lane>,
    /// What can go at once, by target. A target is in `turns` as long as there is something for it.
    ready: HashMap<Arc<Target>, VecDeque<Slot>>,
    turns: VecDeque<Arc<Target>>,
    /// What is tried again, by when; the number tells those of one moment apart.
    retries: BTreeMap<(Instant, u64), Batch>,
    due: VecDeque<Batch>,
    /// Whether the next request is one that is tried again, if there is one: both kinds take turns.
    due_is_next: bool,
    in_flight: usize,
    draining: bool,
    /// The newest known end of the lease of each delivery that is here.
    leases: HashMap<DeliveryId, Instant>,
    seed: u64,
    released: Vec<(DeliveryId, ReleaseCause)>,
}

/// The deliveries of one request.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) emissions: Vec<Emission>,
    pub(super) target: Arc<Target>,
    backoff: Backoff,
    /// Not to be tried before.
    again_at: Instant,
}

/// What is here of one ordered key: behind what is in a batch, or else behind the lane's slot in `ready`.
#[derive(Debug, Default)]
struct Lane {
    waiting: VecDeque<Job>,
}

#[derive(Debug)]
struct Job {
    emission: Emission,
    target: Arc<Target>,
}

/// What can go at once.
#[derive(Debug)]
enum Slot {
    Single(Emission),
    /// The head of a lane of which nothing is in a batch.
    Lane(Arc<str>),
}

impl Batch {
    /// Failures so far.
    pub(super) const fn failures(&self) -> u32 {
        self.backoff.failures()
    }

    /// The wait after one more.
    pub(super) fn next_wait(&mut self) -> Duration {
        self.backoff.next_wait()
    }

    /// When work on all of it has become useless.
    pub(super) fn work_end(&self) -> Instant {
        self.emissions.iter().map(work_end).max().unwrap_or(Instant::ZERO)
    }

    fn orders(&self) -> HashSet<Arc<str>> {
        self.emissions.iter().filter_map(|emission| emission.order.clone()).collect()
    }
}

impl Schedule {
    pub(super) fn new(rules: Rules, seed: u64) -> Self {
        Self {
            rules,
            lanes: HashMap::new(),
            ready: HashMap::new(),
            turns: VecDeque::new(),
            retries: BTreeMap::new(),
            due: VecDeque::new(),
            due_is_next: false,
            in_flight: 0,
            draining: false,
            leases: HashMap::new(),
            seed,
            released: Vec::new(),
        }
    }

    // === inputs ===

    pub(super) fn handle_emission(&mut self, emission: Emission, target: Arc<Target>) {
        self.leases.insert(emission.id, emission.expires_at);
        let Some(order) = emission.order.clone() else {
            self.make_ready(target, Slot::Single(emission));
            return;
        };
        let is_new = !self.lanes.contains_key(&order);
        let lane = self.lanes.entry(Arc::clone(&order)).or_default();
        lane.waiting.push_back(Job { emission, target: Arc::clone(&target) });
        if is_new {
            self.make_ready(target, Slot::Lane(order));
        }
    }

    /// A batch has its end, whichever; the caller reports it.
    pub(super) fn handle_ended(&mut self, batch: &Batch) {
        self.in_flight = self.in_flight.saturating_sub(1);
        for emission in &batch.emissions {
            self.leases.remove(&emission.id);
        }
        self.free(batch.orders());
    }

    /// A batch failed and is tried again at `again_at`, or given back when nothing of it can be in time.
    pub(super) fn handle_failed(&mut self, mut batch: Batch, again_at: Instant) {
        self.in_flight = self.in_flight.saturating_sub(1);
        if self.draining {
            self.release(batch, ReleaseCause::Draining);
        } else {
            batch.again_at = again_at;
            self.wait(batch);
        }
    }

    /// A lease ends later than it was said.
    pub(super) fn handle_renewed(&mut self, id: DeliveryId, expires_at: Instant) {
        if let Some(known) = self.leases.get_mut(&id) {
            *known = expires_at.max(*known);
        }
    }

    /// From now on nothing is tried again.
    pub(super) fn handle_drain(&mut self) {
        self.draining = true;
        let retries = std::mem::take(&mut self.retries).into_values();
        for batch in retries.chain(std::mem::take(&mut self.due)) {
            self.release(batch, ReleaseCause::Draining);
        }
    }

    // === outputs ===

    /// The next request to make.
    pub(super) fn poll_start(&mut self, now: Instant) -> Option<Batch> {
        while let Some(((at, _), _)) = self.retries.first_key_value()
            && *at <= now
            && let Some((_, batch)) = self.retries.pop_first()
        {
            self.come_back(batch, now);
        }
        while self.in_flight < self.rules.concurrency {
            let (due, fresh) = (!self.due.is_empty(), !self.turns.is_empty());
            let mut batch = match (due, fresh) {
                (false, false) => return None,
                (true, _) if self.due_is_next || !fresh => self.due.pop_front()?,
                _ => self.gather()?,
            };
            self.due_is_next = !self.due_is_next;
            self.learn_leases(&mut batch);
            self.drop_late(&mut batch, now);
            if !batch.emissions.is_empty() {
                self.in_flight += 1;
                return Some(batch);
            }
        }
        None
    }

    /// When [`poll_start`](Self::poll_start) may give more although nothing else has happened.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.retries.first_key_value().map(|((at, _), _)| *at)
    }

    /// What is given back since the last time.
    pub(super) fn take_released(&mut self) -> Vec<(DeliveryId, ReleaseCause)> {
        std::mem::take(&mut self.released)
    }

    // === inside ===

    fn make_ready(&mut self, target: Arc<Target>, slot: Slot) {
        let slots = self.ready.entry(Arc::clone(&target)).or_default();
        if slots.is_empty() {
            self.turns.push_back(target);
        }
        slots.push_back(slot);
    }

    /// A new batch for the target whose turn it is.
    fn gather(&mut self) -> Option<Batch> {
        let target = self.turns.pop_front()?;
        let mut slots = self.ready.remove(&target)?;
        let (mut emissions, mut bytes) = (Vec::new(), 0);
        while emissions.len() < self.rules.batch_max && bytes < self.rules.batch_bytes {
            match slots.pop_front() {
                None => break,
                Some(Slot::Single(emission)) => {
                    bytes += emission.message.size_bytes();
                    emissions.push(emission);
                }
                Some(Slot::Lane(order)) => {
                    let Some(lane) = self.lanes.get_mut(&order) else { continue };
                    while emissions.len() < self.rules.batch_max
                        && bytes < self.rules.batch_bytes
                        && let Some(job) = lane.waiting.pop_front_if(|job| job.target == target)
                    {
                        bytes += job.emission.message.size_bytes();
                        emissions.push(job.emission);
                    }
                }
            }
        }
        if !slots.is_empty() {
            self.ready.insert(Arc::clone(&target), slots);
            self.turns.push_back(Arc::clone(&target));
        }
        let seed = self.next_number();
        let backoff = Backoff::new(self.rules.wait_first, self.rules.wait_max, seed);
        Some(Batch { emissions, target, backoff, again_at: Instant::ZERO })
    }

    /// Puts a batch where it waits for its time, or for the end of its leases: given back before, it would come again at
    /// once, to a server that is in trouble.
    fn wait(&mut self, mut batch: Batch) {
        self.learn_leases(&mut batch);
        let at = batch.again_at.min(batch.work_end());
        let number = self.next_number();
        self.retries.insert((at, number), batch);
    }

    /// Takes a batch that has waited: to be tried again, or, when its leases were renewed meanwhile, to wait on.
    fn come_back(&mut self, mut batch: Batch, now: Instant) {
        self.learn_leases(&mut batch);
        if batch.again_at > now && batch.work_end() > now {
            self.wait(batch);
        } else {
            self.due.push_back(batch);
        }
    }

    fn learn_leases(&self, batch: &mut Batch) {
        for emission in &mut batch.emissions {
            if let Some(expires_at) = self.leases.get(&emission.id) {
                emission.expires_at = *expires_at;
            }
        }
    }

    /// Takes out of a batch what comes again in any case.
    fn drop_late(&mut self, batch: &mut Batch, now: Instant) {
        let before = batch.orders();
        let mut lateness = Lateness::new(now);
        batch.emissions.retain(|emission| match lateness.of(emission) {
            None => true,
            Some(cause) => {
                self.leases.remove(&emission.id);
                self.released.push((emission.id, cause));
                false
            }
        });
        self.overtake(&lateness.into_overtaken());
        let after = batch.orders();
        self.free(before.difference(&after).cloned());
    }

    fn release(&mut self, batch: Batch, cause: ReleaseCause) {
        let orders = batch.orders();
        for emission in batch.emissions {
            self.leases.remove(&emission.id);
            self.released.push((emission.id, cause));
        }
        self.overtake(&orders);
        self.free(orders);
    }

    /// Gives back what waits behind something of these keys that was given back: it comes again with it.
    fn overtake(&mut self, orders: &HashSet<Arc<str>>) {
        for order in orders {
            let Some(lane) = self.lanes.get_mut(order) else { continue };
            for job in std::mem::take(&mut lane.waiting) {
                self.leases.remove(&job.emission.id);
                self.released.push((job.emission.id, ReleaseCause::Overtaken));
            }
        }
    }

    /// Nothing of these keys is in a batch any more.
    fn free(&mut self, orders: impl IntoIterator<Item = Arc<str>>) {
        for order in orders {
            let Some(lane) = self.lanes.get_mut(&order) else { continue };
            match lane.waiting.front().map(|job| Arc::clone(&job.target)) {
                Some(target) => self.make_ready(target, Slot::Lane(order)),
                None => {
                    self.lanes.remove(&order);
                }
            }
        }
    }

    fn next_number(&mut self) -> u64 {
        self.seed = self.seed.wrapping_add(1);
        self.seed
    }
}

#[cfg(test)]
mod tests;
