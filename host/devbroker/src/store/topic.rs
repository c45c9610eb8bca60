//! One topic: its main log, its ordered queues, and the progress of its groups.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::Wake;
use super::log::Log;
use super::message::Stored;
use super::ordered::{Interest, Ordered, Rules};
use super::pool::Pool;
use super::queue::Queue;
use super::random::Random;
use super::time::Moment;
use crate::options::{Group, Topic, TopicKind};

/// A topic of one broker.
#[derive(Debug)]
pub(crate) struct TopicState {
    pub(crate) name: Arc<str>,
    pub(crate) kind: TopicKind,
    /// Queues told to clients.
    pub(crate) queue_count: u32,
    pub(crate) log: Log,
    /// Lite topics, or the queues of a FIFO topic.
    pub(crate) queues: Vec<Queue>,
    lite_topics: HashMap<Arc<str>, u32>,
    pub(crate) pools: HashMap<Arc<str>, Pool>,
    pub(crate) ordered: HashMap<Arc<str>, Ordered>,
    delayed: BTreeMap<(Duration, u64), Arc<Stored>>,
    /// The earliest entry in the store's agenda.
    pub(crate) armed: Option<Duration>,
}

/// A lite group with the queues it consumes.
pub(crate) struct LiteGroup<'a> {
    group: &'a mut Ordered,
    queues: &'a [Queue],
}

impl TopicState {
    pub(crate) fn new(topic: &Topic) -> Self {
        let queue_count = topic.queues.max(1);
        let queues = match topic.kind {
            TopicKind::Fifo => (0..queue_count).map(|_| Queue::new(None)).collect(),
            TopicKind::Normal | TopicKind::Delay | TopicKind::Lite => Vec::new(),
        };
        Self {
            name: Arc::clone(&topic.name),
            kind: topic.kind,
            queue_count,
            log: Log::default(),
            queues,
            lite_topics: HashMap::new(),
            pools: HashMap::new(),
            ordered: HashMap::new(),
            delayed: BTreeMap::new(),
            armed: None,
        }
    }

    pub(crate) fn lite_topics(&self) -> usize {
        self.lite_topics.len()
    }

    pub(crate) fn has_lite_topic(&self, name: &str) -> bool {
        self.lite_topics.contains_key(name)
    }

    /// The number of a lite topic's queue.
    pub(crate) fn lite_queue(&self, name: &str) -> Option<u32> {
        self.lite_topics.get(name).copied()
    }

    /// Keeps a DELAY message until it is due. Gives an offset for the answer: it has none yet.
    pub(crate) fn delay(&mut self, now: Moment, wait: Duration, stored: Arc<Stored>) -> u64 {
        self.delayed.insert((now.since_start.saturating_add(wait), stored.sequence), stored);
        0
    }

    /// Takes a DELAY message back.
    pub(crate) fn recall(&mut self, sequence: u64) -> Option<Arc<Stored>> {
        let key = *self.delayed.keys().find(|(_, waiting)| *waiting == sequence)?;
        self.delayed.remove(&key)
    }

    /// Makes a message visible; gives its offset in its queue.
    pub(crate) fn show(&mut self, now: Moment, stored: Arc<Stored>, wakes: &mut VecDeque<Wake>) -> u64 {
        let offset = match self.kind {
            TopicKind::Lite => {
                self.log.append_known(&stored);
                let lite_topic = stored.message.lite_topic.clone().unwrap_or_default();
                self.show_in_lite(now, &lite_topic, stored, None, wakes)
            }
            TopicKind::Fifo => {
                self.log.append_known(&stored);
                let group = stored.message.message_group.as_deref().unwrap_or_default();
                let queue = queue_of(group, self.queue_count);
                let offset = self.queues[queue as usize].append(stored, None);
                self.tell_ordered(now, queue);
                offset
            }
            TopicKind::Normal | TopicKind::Delay => return self.show_in_log(stored, wakes),
        };
        self.wake_pools(wakes);
        offset
    }

    /// Puts a message into the main log alone; gives its offset in its queue.
    pub(crate) fn show_in_log(&mut self, stored: Arc<Stored>, wakes: &mut VecDeque<Wake>) -> u64 {
        let place = self.log.append(stored);
        self.wake_pools(wakes);
        place / u64::from(self.queue_count)
    }

    fn wake_pools(&self, wakes: &mut VecDeque<Wake>) {
        for group in self.pools.keys() {
            wakes.push_back(Wake { topic: Arc::clone(&self.name), group: Arc::clone(group), client: None });
        }
    }

    /// Puts a message into a lite topic's queue.
    pub(crate) fn show_in_lite(
        &mut self,
        now: Moment,
        lite_topic: &Arc<str>,
        stored: Arc<Stored>,
        shown_offset: Option<u64>,
        wakes: &mut VecDeque<Wake>,
    ) -> u64 {
        let queue = match self.lite_topics.get(lite_topic) {
            Some(queue) => *queue,
            None => {
                let queue = u32::try_from(self.queues.len()).unwrap_or(u32::MAX);
                self.queues.push(Queue::new(Some(Arc::clone(lite_topic))));
                self.lite_topics.insert(Arc::clone(lite_topic), queue);
                queue
            }
        };
        let offset = self.queues[queue as usize].append(stored, shown_offset);
        self.tell_ordered(now, queue);
        self.drain_wakes(wakes);
        offset
    }

    /// A normal group's progress; a new group begins at the first message kept.
    pub(crate) fn pool(&mut self, group: &Group, revive_lag: Duration) -> &mut Pool {
        let start = self.log.base();
        self.pools.entry(Arc::clone(&group.name)).or_insert_with(|| Pool::new(start, revive_lag))
    }

    /// A lite group's progress.
    pub(crate) fn lite_group(
        &mut self,
        now: Moment,
        group: &Group,
        rules: Rules,
        random: Random,
    ) -> LiteGroup<'_> {
        let queues = &self.queues;
        let ordered = self.ordered.entry(Arc::clone(&group.name)).or_insert_with(|| {
            let mut fresh = Ordered::dispatched(rules, random);
            fresh.learn(now, queues);
            fresh
        });
        ordered.set_events_max(rules.events_max);
        LiteGroup { group: ordered, queues }
    }

    /// An orderly group's progress on a FIFO topic.
    pub(crate) fn fifo_group(
        &mut self,
        now: Moment,
        group: &Group,
        random: Random,
    ) -> (&mut Ordered, &[Queue]) {
        let queues = &self.queues;
        let ordered = self.ordered.entry(Arc::clone(&group.name)).or_insert_with(|| {
            let mut fresh = Ordered::shared(random);
            fresh.learn(now, queues);
            fresh
        });
        (ordered, queues)
    }

    /// A group that consumes in order, with the queues it consumes.
    pub(crate) fn ordered_parts(&mut self, group: &str) -> Option<(&mut Ordered, &[Queue])> {
        Some((self.ordered.get_mut(group)?, &self.queues))
    }

    pub(crate) fn leave(&mut self, now: Moment, group: &str, client: &str) {
        if let Some((ordered, queues)) = self.ordered_parts(group) {
            ordered.leave(now, queues, client);
        }
    }

    pub(crate) fn forget(&mut self, now: Moment) {
        for ordered in self.ordered.values_mut() {
            ordered.forget(now, &self.queues);
        }
        for pool in self.pools.values_mut() {
            pool.forget();
        }
        self.armed = None;
    }

    /// Does what is due; gives the DELAY messages that become visible.
    pub(crate) fn handle_timeout(&mut self, now: Moment) -> Vec<Arc<Stored>> {
        for ordered in self.ordered.values_mut() {
            ordered.handle_timeout(now, &self.queues);
        }
        for pool in self.pools.values_mut() {
            pool.handle_timeout(now);
        }
        let mut due = Vec::new();
        while let Some(entry) = self.delayed.first_entry() {
            if entry.key().0 > now.since_start {
                break;
            }
            due.push(entry.remove());
        }
        due
    }

    /// When [`TopicState::handle_timeout`] has something to do.
    pub(crate) fn poll_timeout(&self) -> Option<Duration> {
        let ordered = self.ordered.values().filter_map(Ordered::poll_timeout);
        let pools = self.pools.values().filter_map(Pool::poll_timeout);
        let delayed = self.delayed.keys().next().map(|(due, _)| *due);
        ordered.chain(pools).chain(delayed).min()
    }

    /// Collects whom the groups woke.
    pub(crate) fn drain_wakes(&mut self, wakes: &mut VecDeque<Wake>) {
        for (group, ordered) in &mut self.ordered {
            for client in ordered.drain_wakes() {
                let client = (!client.is_empty()).then_some(client);
                wakes.push_back(Wake { topic: Arc::clone(&self.name), group: Arc::clone(group), client });
            }
        }
        for (group, pool) in &mut self.pools {
            if pool.take_wake() {
                wakes.push_back(Wake {
                    topic: Arc::clone(&self.name),
                    group: Arc::clone(group),
                    client: None,
                });
            }
        }
    }

    /// Lets go of an ordered queue's messages below an offset no group needs.
    pub(crate) fn trim_queue(&mut self, queue: u32, below: u64) {
        if let Some(queue) = self.queues.get_mut(queue as usize) {
            queue.trim_to(below);
        }
    }

    /// Lets go of one place of the main log. On a FIFO topic without orderly groups the queue keeps the message, so
    /// that has to go too.
    pub(crate) fn remove_place(&mut self, place: u64) {
        let Some(removed) = self.log.remove(place) else { return };
        if self.kind == TopicKind::Fifo && self.ordered.is_empty() {
            let group = removed.message.message_group.as_deref().unwrap_or_default();
            let queue = &mut self.queues[queue_of(group, self.queue_count) as usize];
            let below = queue.base() + 1;
            if queue.get(queue.base()).is_some_and(|first| first.stored.sequence <= removed.sequence) {
                queue.trim_to(below);
            }
        }
    }

    /// The offset below which no group needs a queue's messages.
    pub(crate) fn needed_from(&self, queue: u32) -> u64 {
        self.ordered.values().map(|group| group.committed(queue)).min().unwrap_or(0)
    }

    fn tell_ordered(&mut self, now: Moment, queue: u32) {
        for ordered in self.ordered.values_mut() {
            ordered.handle_appended(now, &self.queues, queue);
        }
    }
}

impl LiteGroup<'_> {
    pub(crate) fn join(&mut self, now: Moment, client: &Arc<str>, interest: Interest) {
        self.group.join(now, self.queues, client, interest);
    }
}

/// FNV-1a of the message group, so that a group always goes to the same queue.
fn queue_of(message_group: &str, queue_count: u32) -> u32 {
    let hash = message_group
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    hash % queue_count.max(1)
}
