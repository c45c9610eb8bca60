//! One broker's memory: topics, groups' progress and what is out. No clock, no socket: `now` is passed in.
//!
//! The shell calls the commands (`send`, `receive`, `ack`, `change`, …), then drains [`Store::poll_wake`] and asks
//! [`Store::poll_timeout`] when to call [`Store::handle_timeout`]. No command walks all messages or all lite topics,
//! except the registration of a new group or a changed subscription.

mod consume;
mod handle;
mod ledger;
mod log;
mod message;
mod ordered;
mod pool;
mod queue;
mod random;
mod time;
mod topic;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

pub use self::handle::{Handle, HandleError};
pub use self::ledger::{Audit, DeliveryRecord, MessageRecord};
pub use self::message::{Delay, MULTI_DISPATCH, NewMessage, Stored};
pub use self::ordered::Interest;
pub use self::time::Moment;

use self::ledger::Ledger;
use self::message::{Room, Usage, size};
use self::ordered::Rules;
use self::random::Random;
use self::topic::TopicState;
use crate::options::{Group, Retention, Timing, Topic, TopicKind};

/// Prefix of a group's dead-letter topic.
pub const DEAD_LETTER_PREFIX: &str = "%DLQ%";

/// What a store is made with.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// The broker's name; it stands in every handle.
    pub broker: Arc<str>,
    /// Delays.
    pub timing: Timing,
    /// Bounds.
    pub retention: Retention,
    /// Messages recorded for the audit.
    pub audited_messages_max: usize,
    /// Seed of every random choice.
    pub seed: u64,
}

/// One broker's memory.
#[derive(Debug)]
pub struct Store {
    options: StoreOptions,
    topics: Vec<TopicState>,
    names: HashMap<Arc<str>, usize>,
    /// When a topic has something to do, by topic. Stale entries are skipped.
    agenda: BinaryHeap<Reverse<(Duration, usize)>>,
    /// What may go, oldest ack first.
    evictable: VecDeque<Evictable>,
    usage: Arc<Usage>,
    sequence: u64,
    ledger: Ledger,
    random: Random,
    wakes: VecDeque<Wake>,
}

/// What may be let go: it is acked by every group that consumes it.
#[derive(Clone, Copy, Debug)]
enum Evictable {
    /// Everything of an ordered queue below an offset.
    Queue { topic: usize, queue: u32, below: u64 },
    /// One place of a main log.
    Place { topic: usize, place: u64 },
}

/// Someone has something to fetch.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Wake {
    /// The topic polled.
    pub topic: Arc<str>,
    /// The group that polls.
    pub group: Arc<str>,
    /// The client, where events go to one client; none where any receiver of the group will do.
    pub client: Option<Arc<str>>,
}

/// Where a sent message went.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Placed {
    /// Its place in the commit log.
    pub sequence: u64,
    /// Its offset in its queue.
    pub offset: u64,
}

/// Why a store took nothing.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SendError {
    /// The store holds as many un-acked messages as it may.
    #[error(
        "the development broker is full: {messages} messages, {bytes} bytes, none of them acked by all its groups; \
         consume and ack, or raise the broker's retention"
    )]
    Full {
        /// Messages held.
        messages: u64,
        /// Bytes held.
        bytes: u64,
    },
    /// There are as many lite topics as there may be.
    #[error("lite topic quota exceeded: {0}")]
    LiteTopics(usize),
    /// The topic is not known to this broker.
    #[error("topic {0} not exist")]
    UnknownTopic(Arc<str>),
}

/// How a receive asks.
#[derive(Clone, Debug)]
pub struct Ask<'a> {
    /// The topic.
    pub topic: &'a str,
    /// The group.
    pub group: &'a Group,
    /// The client id.
    pub client: &'a Arc<str>,
    /// Messages at most.
    pub count_max: u32,
    /// How long they stay hidden from others.
    pub invisible: Duration,
    /// Tags wanted; none takes all. Lite topics and ordered queues are not filtered, as measured.
    pub tags: Option<&'a HashSet<String>>,
}

/// A message on its way to a client.
#[derive(Clone, Debug)]
pub struct Delivered {
    /// The message.
    pub stored: Arc<Stored>,
    /// Its handle.
    pub handle: Handle,
    /// The attempt number told to the client.
    pub attempt: u32,
    /// The queue's number.
    pub queue: u32,
    /// The offset in the queue.
    pub offset: u64,
    /// How long it is hidden.
    pub invisible: Duration,
}

/// Which delivery a client speaks of.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The topic: for a lite message the parent.
    pub topic: &'a str,
    /// The group; none when there is no such group.
    pub group: Option<&'a Group>,
    /// The handle.
    pub handle: &'a Handle,
    /// The lite topic, when the client named one.
    pub lite_topic: Option<&'a str>,
}

/// What the broker made of an ack.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Acked {
    /// OK. Not a proof: a stale handle or a wrong lite topic is answered the same way and does nothing.
    Ok,
    /// "ack failed: status is abnormal".
    Abnormal,
}

impl Store {
    /// An empty broker.
    #[must_use]
    pub fn new(options: StoreOptions) -> Self {
        Self {
            ledger: Ledger::new(options.audited_messages_max),
            random: Random::seeded(options.seed),
            options,
            topics: Vec::new(),
            names: HashMap::new(),
            agenda: BinaryHeap::new(),
            evictable: VecDeque::new(),
            usage: Arc::default(),
            sequence: 0,
            wakes: VecDeque::new(),
        }
    }

    /// The broker's name.
    #[must_use]
    pub fn broker(&self) -> &Arc<str> {
        &self.options.broker
    }

    /// Makes a topic. An existing one stays as it is: a topic's kind cannot be changed.
    pub fn create_topic(&mut self, topic: &Topic) {
        self.topic_or_new(topic);
    }

    /// Whether the topic exists, made by hand or by a first dead letter.
    #[must_use]
    pub fn has_topic(&self, topic: &str) -> bool {
        self.names.contains_key(topic)
    }

    /// Stores messages of one topic, or none of them.
    ///
    /// Several messages sent together to a LITE topic are stored in the parent topic only and never show in their lite
    /// topics, though the sender is told OK: measured, a trap of 5.5.0.
    ///
    /// # Errors
    /// The broker is full, has too many lite topics, or does not know the topic.
    pub fn send(
        &mut self,
        now: Moment,
        topic: &str,
        messages: Vec<NewMessage>,
    ) -> Result<Vec<Placed>, SendError> {
        let at = *self.names.get(topic).ok_or_else(|| SendError::UnknownTopic(Arc::from(topic)))?;
        self.make_room(&messages)?;
        self.check_lite_topics(at, &messages)?;
        let alone = messages.len() == 1;
        let placed = messages.into_iter().map(|message| self.store(now, at, message, alone)).collect();
        self.arm(at);
        Ok(placed)
    }

    /// Recalls a DELAY message that is not visible yet. Gives its id.
    pub fn recall(&mut self, topic: &str, sequence: u64) -> Option<Arc<str>> {
        let at = *self.names.get(topic)?;
        let recalled = self.topics[at].recall(sequence)?;
        // Nobody will consume it: to the audit it is done.
        self.ledger.acked(sequence, &Arc::from(""));
        Some(Arc::clone(&recalled.message.id))
    }

    /// Registers a lite client, or changes or renews its registration.
    pub fn register(
        &mut self,
        now: Moment,
        topic: &str,
        group: &Group,
        client: &Arc<str>,
        interest: Interest,
    ) {
        let Some(at) = self.names.get(topic).copied() else { return };
        let rules = self.rules(group);
        let random = self.fork_random();
        self.topics[at].lite_group(now, group, rules, random).join(now, client, interest);
        self.arm(at);
    }

    /// What a lite client is registered for.
    #[must_use]
    pub fn registered(&self, topic: &str, group: &str, client: &str) -> Option<&Interest> {
        self.topics[*self.names.get(topic)?].ordered.get(group)?.interest(client)
    }

    /// The lite clients registered in a group.
    #[must_use]
    pub fn registered_clients(&self, topic: &str, group: &str) -> Vec<Arc<str>> {
        let group = self.names.get(topic).and_then(|at| self.topics[*at].ordered.get(group));
        group.map(|group| group.clients().cloned().collect()).unwrap_or_default()
    }

    /// Ends a lite client's registration.
    pub fn unregister(&mut self, now: Moment, topic: &str, group: &str, client: &str) {
        let Some(at) = self.names.get(topic).copied() else { return };
        self.topics[at].leave(now, group, client);
        self.arm(at);
    }

    /// Loses what a killed broker loses: registrations and the record of what is out.
    pub fn forget_deliveries(&mut self, now: Moment) {
        for at in 0..self.topics.len() {
            self.topics[at].forget(now);
            self.arm(at);
        }
    }

    /// Does what time has made due.
    pub fn handle_timeout(&mut self, now: Moment) {
        while let Some(Reverse((due, at))) = self.agenda.peek().copied() {
            if due > now.since_start {
                break;
            }
            self.agenda.pop();
            if self.topics[at].armed == Some(due) {
                self.topics[at].armed = None;
            }
            for stored in self.topics[at].handle_timeout(now) {
                self.show(now, at, &stored, None);
            }
            self.arm(at);
        }
    }

    /// When [`Store::handle_timeout`] has something to do.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Duration> {
        self.agenda.peek().map(|Reverse((due, _))| *due)
    }

    /// The next receiver to wake; drained until none after every command.
    pub fn poll_wake(&mut self) -> Option<Wake> {
        self.wakes.pop_front()
    }

    /// What happened to every message.
    #[must_use]
    pub fn audit(&self) -> Audit {
        self.ledger.audit()
    }

    /// Messages and bytes held.
    #[must_use]
    pub fn held(&self) -> (u64, u64) {
        (self.usage.messages(), self.usage.bytes())
    }

    fn topic_or_new(&mut self, topic: &Topic) -> usize {
        if let Some(at) = self.names.get(&topic.name) {
            return *at;
        }
        let at = self.topics.len();
        self.topics.push(TopicState::new(topic));
        self.names.insert(Arc::clone(&topic.name), at);
        at
    }

    /// Takes a message in: a DELAY message waits, others are shown at once.
    fn store(&mut self, now: Moment, at: usize, mut message: NewMessage, alone: bool) -> Placed {
        let topic = &self.topics[at];
        if let (TopicKind::Lite, Some(lite_topic)) = (topic.kind, &message.lite_topic) {
            let target = format!("%LMQ%${}${lite_topic}", topic.name);
            message.properties.insert(MULTI_DISPATCH.to_owned(), target);
        }
        let wait = message.delay.map(|delay| delay.wait).filter(|wait| !wait.is_zero());
        let stored = self.keep(now, at, message, 0);
        self.ledger.stored(&stored, None);
        let sequence = stored.sequence;
        if !alone && self.topics[at].kind == TopicKind::Lite {
            let offset = self.topics[at].show_in_log(stored, &mut self.wakes);
            return Placed { sequence, offset };
        }
        let offset = match wait {
            Some(wait) => self.topics[at].delay(now, wait, stored),
            None => self.show(now, at, &stored, None),
        };
        Placed { sequence, offset }
    }

    fn keep(&mut self, now: Moment, at: usize, message: NewMessage, attempts_before: u32) -> Arc<Stored> {
        self.sequence += 1;
        Arc::new(Stored {
            _room: Room::take(&self.usage, &message),
            message,
            topic: Arc::clone(&self.topics[at].name),
            sequence: self.sequence,
            stored_ms: now.wall_ms,
            attempts_before,
        })
    }

    /// Makes a message visible to the groups of its topic, and in the lite queue its properties name.
    fn show(&mut self, now: Moment, at: usize, stored: &Arc<Stored>, shown_offset: Option<u64>) -> u64 {
        let topic = &mut self.topics[at];
        let offset = topic.show(now, Arc::clone(stored), &mut self.wakes);
        if topic.kind == TopicKind::Lite {
            return offset;
        }
        let target = stored.dispatch_target();
        if let Some((parent, lite_topic)) = target
            && let Some(parent) = self.names.get(parent).copied()
            && self.topics[parent].kind == TopicKind::Lite
        {
            let lite_topic: Arc<str> = Arc::from(lite_topic);
            let shown_offset = shown_offset.unwrap_or(offset);
            let target = &mut self.topics[parent];
            target.show_in_lite(now, &lite_topic, Arc::clone(stored), Some(shown_offset), &mut self.wakes);
            self.arm(parent);
        }
        offset
    }

    /// Puts a copy into the group's dead-letter topic. The copy keeps every property, so that a lite message comes
    /// back into its lite topic too, under its old offset: the trap of 5.5.0.
    fn dead_letter(&mut self, now: Moment, group: &Arc<str>, original: &Stored, attempts: u32, shown: u64) {
        let name: Arc<str> = Arc::from(format!("{DEAD_LETTER_PREFIX}{group}"));
        let at = self.topic_or_new(&Topic { name, kind: TopicKind::Normal, queues: 1 });
        let copy = self.keep(now, at, original.message.clone(), attempts);
        self.ledger.stored(&copy, Some(group));
        self.ledger.dead_lettered(original.sequence);
        self.show(now, at, &copy, Some(shown));
        self.arm(at);
    }

    fn make_room(&mut self, messages: &[NewMessage]) -> Result<(), SendError> {
        let bytes: u64 = messages.iter().map(|message| size(message) as u64).sum();
        let count = messages.len() as u64;
        let bounds = self.options.retention;
        while self.usage.messages() + count > bounds.messages_max
            || self.usage.bytes() + bytes > bounds.bytes_max
        {
            match self.evictable.pop_front() {
                Some(Evictable::Queue { topic, queue, below }) => self.topics[topic].trim_queue(queue, below),
                Some(Evictable::Place { topic, place }) => self.topics[topic].remove_place(place),
                None => {
                    let (messages, bytes) = self.held();
                    return Err(SendError::Full { messages, bytes });
                }
            }
        }
        Ok(())
    }

    fn check_lite_topics(&self, at: usize, messages: &[NewMessage]) -> Result<(), SendError> {
        let topic = &self.topics[at];
        let fresh = messages
            .iter()
            .filter_map(|message| message.lite_topic.as_ref())
            .filter(|name| !topic.has_lite_topic(name))
            .count();
        let lite_topics_max = self.options.retention.lite_topics_max;
        // Of the whole broker, as the real one counts.
        let known = || self.topics.iter().map(TopicState::lite_topics).sum::<usize>();
        if fresh > 0 && known() + fresh > lite_topics_max {
            return Err(SendError::LiteTopics(lite_topics_max));
        }
        Ok(())
    }

    /// Notes when a topic has something to do next, and collects whom its groups woke.
    fn arm(&mut self, at: usize) {
        let topic = &mut self.topics[at];
        topic.drain_wakes(&mut self.wakes);
        if let Some(due) = topic.poll_timeout()
            && topic.armed.is_none_or(|armed| due < armed)
        {
            topic.armed = Some(due);
            self.agenda.push(Reverse((due, at)));
        }
    }

    fn rules(&self, group: &Group) -> Rules {
        let timing = self.options.timing;
        Rules {
            events_max: group.events_max,
            backlog_scan_delay: timing.backlog_scan_delay,
            full_scan_delay: timing.full_scan_delay,
            inactive_after: timing.inactive_after,
            // Measured beside the 10 s of a client with events: a long poll of 30 s plus 5 s.
            silent_after: timing.inactive_after.saturating_mul(7) / 2,
            blocked_for: timing.inactive_after,
            registration_expires_after: timing.subscription_expires_after,
        }
    }

    fn fork_random(&mut self) -> Random {
        Random::seeded(self.random.next())
    }
}

#[cfg(test)]
mod tests;
