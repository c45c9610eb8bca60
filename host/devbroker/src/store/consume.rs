//! The commands of consumers: receive, ack, change, forward to the dead-letter topic.

use std::sync::Arc;
use std::time::Duration;

use super::ledger::DeliveryRecord;
use super::ordered::{Effect, Take, Taken};
use super::pool::{Popped, Returned};
use super::time::{Moment, millis};
use super::{Acked, Ask, Delivered, Evictable, Handle, Store, Stored, Subject, Wake};
use crate::options::{Group, TopicKind};

/// How often one receive goes round when all it finds is moved to the dead-letter topic.
const DEAD_LETTER_ROUNDS: usize = 3;

/// How a group consumes a topic.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Mode {
    Lite,
    Fifo,
    Pool,
}

impl Store {
    /// Gives the messages that can be delivered now; none is no error.
    pub fn receive(&mut self, now: Moment, ask: &Ask<'_>) -> Vec<Delivered> {
        let Some(at) = self.names.get(ask.topic).copied() else { return Vec::new() };
        let mut delivered = Vec::new();
        for _ in 0..DEAD_LETTER_ROUNDS {
            let moved = match self.mode(at, ask.group) {
                Mode::Pool => self.receive_pool(now, at, ask, &mut delivered),
                Mode::Lite | Mode::Fifo => self.receive_ordered(now, at, ask, &mut delivered),
            };
            if !delivered.is_empty() || !moved {
                break;
            }
        }
        self.arm(at);
        for message in &delivered {
            let delivery = DeliveryRecord {
                at: now.since_start,
                group: Arc::clone(&ask.group.name),
                client: Arc::clone(ask.client),
                attempt: message.attempt,
            };
            self.ledger.delivered(message.stored.sequence, delivery);
        }
        delivered
    }

    /// Whom to wake when a receive of this kind would find something.
    #[must_use]
    pub fn wake_for(&self, ask: &Ask<'_>) -> Option<Wake> {
        let at = *self.names.get(ask.topic)?;
        let client = (self.mode(at, ask.group) == Mode::Lite).then(|| Arc::clone(ask.client));
        Some(Wake { topic: Arc::clone(&self.topics[at].name), group: Arc::clone(&ask.group.name), client })
    }

    /// Acks one delivery.
    pub fn ack(&mut self, now: Moment, subject: Subject<'_>) -> Acked {
        let Some((at, group)) = self.find(subject) else {
            // An unknown or foreign group is noticed on ordered deliveries only.
            return if subject.handle.ordered { Acked::Abnormal } else { Acked::Ok };
        };
        let acked = match self.ordered_queue(at, group, subject) {
            Line::Queue(queue) => self.ack_ordered(now, at, group, queue, subject.handle),
            Line::Nowhere => Acked::Ok,
            Line::Pool => self.ack_pool(at, group, subject.handle),
        };
        self.arm(at);
        acked
    }

    /// Changes when a delivery comes again; gives the new handle. A handle without power gets one too; one of an offset
    /// that was not delivered gets none.
    pub fn change(
        &mut self,
        now: Moment,
        subject: Subject<'_>,
        invisible: Duration,
        suspend: bool,
    ) -> Option<Handle> {
        let handle = subject.handle;
        let Some((at, group)) = self.find(subject) else { return Some(handle.extended(now, invisible)) };
        let answer = match self.ordered_queue(at, group, subject) {
            Line::Queue(queue) => {
                let delivery = (queue, handle.popped_ms, handle.offset);
                let effect = self.topics[at]
                    .ordered_parts(&group.name)
                    .map(|(ordered, queues)| ordered.change(now, queues, delivery, (invisible, suspend)));
                match effect {
                    Some(Effect::Abnormal) => None,
                    Some(Effect::Acked) => Some(handle.spent()),
                    _ => Some(handle.extended(now, invisible)),
                }
            }
            Line::Nowhere => Some(handle.extended(now, invisible)),
            Line::Pool => Some(self.change_pool(now, at, group, handle, invisible)),
        };
        self.arm(at);
        answer
    }

    /// Copies a delivery to the group's dead-letter topic and acks it. Without the lite topic a lite message is copied
    /// but not acked, as measured.
    pub fn forward_to_dead_letter(&mut self, now: Moment, subject: Subject<'_>) -> Acked {
        let Some((at, group)) = self.find(subject) else { return Acked::Abnormal };
        let handle = subject.handle;
        let original = match self.ordered_queue(at, group, subject) {
            Line::Queue(queue) => self.ordered_message(at, queue, handle),
            Line::Nowhere => self.by_sequence_in_queues(at, handle),
            Line::Pool => self.topics[at].log.get(handle.start),
        };
        let attempts = original.as_ref().map_or(1, |original| self.attempt_of(at, group, original));
        let acked = self.ack(now, subject);
        if let Some(original) = original {
            self.dead_letter(now, &group.name, &original, attempts, handle.offset);
        }
        self.arm(at);
        acked
    }

    fn mode(&self, at: usize, group: &Group) -> Mode {
        let topic = &self.topics[at];
        match topic.kind {
            TopicKind::Lite if group.lite_bind_topic.as_ref() == Some(&topic.name) => Mode::Lite,
            TopicKind::Fifo if group.orderly => Mode::Fifo,
            TopicKind::Lite | TopicKind::Fifo | TopicKind::Normal | TopicKind::Delay => Mode::Pool,
        }
    }

    fn receive_ordered(&mut self, now: Moment, at: usize, ask: &Ask<'_>, to: &mut Vec<Delivered>) -> bool {
        let random = self.fork_random();
        let topic = &mut self.topics[at];
        if topic.kind == TopicKind::Fifo {
            topic.fifo_group(now, ask.group, random);
        }
        let Some((ordered, queues)) = topic.ordered_parts(&ask.group.name) else { return false };
        let take = Take { count_max: ask.count_max, invisible: ask.invisible, holder: ask.client };
        let taken = ordered.take(now, queues, ask.client, take);
        let mut moved = false;
        for batch in taken {
            if batch.attempt > ask.group.attempts_max {
                self.bury(now, at, ask.group, &batch);
                moved = true;
            } else {
                self.deliver_ordered(at, ask, batch, to);
            }
        }
        moved
    }

    fn deliver_ordered(&self, at: usize, ask: &Ask<'_>, batch: Taken, to: &mut Vec<Delivered>) {
        let Taken { queue, attempt, popped_ms, entries } = batch;
        let queue_shown = if self.topics[at].kind == TopicKind::Fifo { queue } else { 0 };
        to.extend(entries.into_iter().map(|entry| Delivered {
            handle: Handle {
                start: 0,
                popped_ms,
                invisible_ms: millis(ask.invisible),
                ordered: true,
                kind: 0,
                broker: Arc::clone(&self.options.broker),
                queue: queue_shown,
                offset: entry.shown_offset,
                sequence: entry.stored.sequence,
            },
            stored: entry.stored,
            attempt,
            queue: queue_shown,
            offset: entry.shown_offset,
            invisible: ask.invisible,
        }));
    }

    /// Moves a batch past its last attempt to the dead-letter topic and acks it by the offsets its handles would show:
    /// for a copy that is not its real offset, so the copy stays.
    fn bury(&mut self, now: Moment, at: usize, group: &Group, batch: &Taken) {
        for entry in &batch.entries {
            self.dead_letter(now, &group.name, &entry.stored, batch.attempt, entry.shown_offset);
            self.ack_offset(now, at, group, batch.queue, batch.popped_ms, entry.shown_offset);
        }
    }

    fn receive_pool(&mut self, now: Moment, at: usize, ask: &Ask<'_>, to: &mut Vec<Delivered>) -> bool {
        let lag = self.options.timing.revive_lag;
        let mut moved = false;
        while (to.len() as u64) < u64::from(ask.count_max) {
            let topic = &mut self.topics[at];
            let returned = topic.pool(ask.group, lag).next_returned();
            if let Some(returned) = returned {
                if returned.attempt > ask.group.attempts_max {
                    self.bury_returned(now, at, ask.group, &returned);
                    moved = true;
                    continue;
                }
                let popped = self.topics[at].pool(ask.group, lag).hand_out(now, returned, ask.invisible);
                to.push(self.delivered_from_pool(at, popped, ask.invisible));
                continue;
            }
            let end = topic.log.end();
            let base = topic.log.base();
            let pool = topic.pool(ask.group, lag);
            pool.next = pool.next.max(base);
            if pool.next >= end {
                break;
            }
            let place = pool.next;
            pool.next += 1;
            let Some(stored) = topic.log.get(place) else { continue };
            if !wants(ask, &stored) {
                self.done_with_place(at, &ask.group.name, place, &stored);
                continue;
            }
            let first = Returned { stored, place, attempt: 1 };
            let popped = self.topics[at].pool(ask.group, lag).hand_out(now, first, ask.invisible);
            to.push(self.delivered_from_pool(at, popped, ask.invisible));
        }
        moved
    }

    fn delivered_from_pool(&self, at: usize, popped: Popped, invisible: Duration) -> Delivered {
        let Popped { stored, place, attempt, popped_ms, retry_offset } = popped;
        let queues = u64::from(self.topics[at].queue_count);
        let (queue, offset) = match retry_offset {
            Some(offset) => (0, offset),
            None => (u32::try_from(place % queues).unwrap_or(0), place / queues),
        };
        let handle = Handle {
            start: place,
            popped_ms,
            invisible_ms: millis(invisible),
            ordered: false,
            kind: u8::from(retry_offset.is_some()),
            broker: Arc::clone(&self.options.broker),
            queue,
            offset,
            sequence: stored.sequence,
        };
        let attempt = attempt.saturating_add(stored.attempts_before);
        Delivered { stored, handle, attempt, queue, offset, invisible }
    }

    fn bury_returned(&mut self, now: Moment, at: usize, group: &Group, returned: &Returned) {
        let offset = returned.place / u64::from(self.topics[at].queue_count);
        self.dead_letter(now, &group.name, &returned.stored, returned.attempt, offset);
        self.done_with_place(at, &group.name, returned.place, &returned.stored);
    }

    fn ack_ordered(&mut self, now: Moment, at: usize, group: &Group, queue: u32, handle: &Handle) -> Acked {
        match self.ack_offset(now, at, group, queue, handle.popped_ms, handle.offset) {
            Effect::Abnormal => Acked::Abnormal,
            Effect::Done | Effect::None | Effect::Acked => Acked::Ok,
        }
    }

    fn ack_offset(
        &mut self,
        now: Moment,
        at: usize,
        group: &Group,
        queue: u32,
        popped_ms: u64,
        offset: u64,
    ) -> Effect {
        let topic = &mut self.topics[at];
        let Some((ordered, queues)) = topic.ordered_parts(&group.name) else { return Effect::None };
        let before = ordered.committed(queue);
        let effect = ordered.ack(now, queues, queue, popped_ms, offset);
        let after = ordered.committed(queue);
        for offset in before..after {
            if let Some(entry) = topic.queues[queue as usize].get(offset) {
                self.ledger.acked(entry.stored.sequence, &group.name);
            }
        }
        if after > before {
            let below = self.topics[at].needed_from(queue);
            if below > self.topics[at].queues[queue as usize].base() {
                self.evictable.push_back(Evictable::Queue { topic: at, queue, below });
            }
        }
        effect
    }

    fn ack_pool(&mut self, at: usize, group: &Group, handle: &Handle) -> Acked {
        let topic = &mut self.topics[at];
        let Some(pool) = topic.pools.get_mut(&group.name) else { return Acked::Ok };
        // A dead letter that was a lite message is listed in two places under one offset; the real broker then finds
        // its own records abnormal (12 of 12 acks).
        let poisoned = topic
            .log
            .get(handle.start)
            .is_some_and(|stored| topic.kind == TopicKind::Normal && is_lite_dead_letter(&stored));
        if poisoned {
            return Acked::Abnormal;
        }
        let queues = u64::from(topic.queue_count);
        let place = handle.offset.saturating_mul(queues).saturating_add(u64::from(handle.queue));
        if handle.start >= topic.log.end() || (handle.kind == 0 && place >= topic.log.end()) {
            return Acked::Abnormal;
        }
        if let Some(done) = pool.ack(handle.sequence, handle.popped_ms) {
            self.done_with_place(at, &group.name, done.place, &done.stored);
        }
        Acked::Ok
    }

    fn change_pool(
        &mut self,
        now: Moment,
        at: usize,
        group: &Group,
        handle: &Handle,
        invisible: Duration,
    ) -> Handle {
        let lag = self.options.timing.revive_lag;
        let known = self.topics[at].log.get(handle.start);
        let pool = self.topics[at].pool(group, lag);
        let renewed =
            pool.change(now, handle.sequence, handle.popped_ms, invisible).or_else(|| match known {
                Some(stored) if stored.sequence == handle.sequence => {
                    pool.revive(now, (stored, handle.start), handle.popped_ms, invisible)
                }
                _ => None,
            });
        match renewed {
            Some(popped_ms) => Handle { popped_ms, invisible_ms: millis(invisible), ..handle.clone() },
            None => handle.extended(now, invisible),
        }
    }

    /// Counts a group as done with a place of the main log; when all are, it may go.
    fn done_with_place(&mut self, at: usize, group: &Arc<str>, place: u64, stored: &Stored) {
        self.ledger.acked(stored.sequence, group);
        let topic = &mut self.topics[at];
        let pools = u32::try_from(topic.pools.len()).unwrap_or(u32::MAX);
        if topic.log.count_ack(place) >= pools {
            self.evictable.push_back(Evictable::Place { topic: at, place });
        }
    }

    fn find<'a>(&self, subject: Subject<'a>) -> Option<(usize, &'a Group)> {
        let at = *self.names.get(subject.topic)?;
        let group = subject.group?;
        let foreign_lite = group.lite_bind_topic.is_some()
            && self.topics[at].kind == TopicKind::Lite
            && group.lite_bind_topic.as_ref() != Some(&self.topics[at].name);
        (!foreign_lite).then_some((at, group))
    }

    fn ordered_queue(&self, at: usize, group: &Group, subject: Subject<'_>) -> Line {
        let topic = &self.topics[at];
        if !subject.handle.ordered {
            return Line::Pool;
        }
        match self.mode(at, group) {
            Mode::Lite => {
                let queue = subject.lite_topic.and_then(|name| topic.lite_queue(name));
                queue.map_or(Line::Nowhere, Line::Queue)
            }
            Mode::Fifo if subject.handle.queue < topic.queue_count => Line::Queue(subject.handle.queue),
            Mode::Fifo | Mode::Pool => Line::Nowhere,
        }
    }

    fn ordered_message(&self, at: usize, queue: u32, handle: &Handle) -> Option<Arc<Stored>> {
        let entry = self.topics[at].queues.get(queue as usize)?.get(handle.offset)?;
        Some(Arc::clone(&entry.stored))
    }

    /// Finds a lite message by its place in the commit log alone. Only for a client that left the lite topic out: it
    /// walks the lite topics.
    fn by_sequence_in_queues(&self, at: usize, handle: &Handle) -> Option<Arc<Stored>> {
        let queues = self.topics[at].queues.iter();
        let entry = queues
            .filter_map(|queue| queue.get(handle.offset))
            .find(|entry| entry.stored.sequence == handle.sequence)?;
        Some(Arc::clone(&entry.stored))
    }

    /// How often a message had been delivered when it is forwarded by hand.
    fn attempt_of(&self, at: usize, group: &Group, original: &Stored) -> u32 {
        let pool = self.topics[at].pools.get(&group.name);
        pool.and_then(|pool| pool.attempt(original.sequence)).unwrap_or(1)
    }
}

/// Which of a group's structures a handle belongs to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Line {
    /// This ordered queue.
    Queue(u32),
    /// An ordered handle without a queue to go with it: answered with OK, does nothing.
    Nowhere,
    /// The normal way.
    Pool,
}

fn wants(ask: &Ask<'_>, stored: &Stored) -> bool {
    ask.tags.is_none_or(|tags| stored.message.tag.as_ref().is_some_and(|tag| tags.contains(&**tag)))
}

fn is_lite_dead_letter(stored: &Stored) -> bool {
    stored.topic.starts_with(super::DEAD_LETTER_PREFIX) && stored.dispatch_target().is_some()
}
