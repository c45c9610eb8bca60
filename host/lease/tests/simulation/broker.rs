//! A broker that behaves as RocketMQ 5.5.0 was measured to.
//!
//! A lite topic hands out one batch at a time. Redelivery restarts at the first message that is not acked and takes
//! everything after it, whether acked or held; an ack out of order counts only if the earlier ones follow before that;
//! an ack with a stale handle is answered OK and does nothing, with one whose time is over it is an error.
//! A normal topic hands out any message whose time has come.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tidegate_model::{
    Capacity, Delivery, Handle, Instant, Message, Routing, SettleError, SettleFault, Settlement, Verb,
};

use crate::random::Random;

/// Largest body in a simulation: four units of the round robin.
pub(crate) const BODY_BYTES_MAX: usize = 200_000;
static ZEROS: [u8; BODY_BYTES_MAX] = [0; BODY_BYTES_MAX];

/// How long a restart takes at least; receives and settlements are answered sooner.
const RESTART: Duration = Duration::from_secs(1);

pub(crate) struct Broker {
    pub(crate) topics: Vec<Topic>,
    lease: Duration,
    routing: Arc<Routing>,
    serial: u64,
    next_topic: usize,
    random: Random,
}

pub(crate) struct Topic {
    pub(crate) name: Arc<str>,
    pub(crate) key: Arc<str>,
    pub(crate) ordered: bool,
    pub(crate) messages: Vec<Stored>,
    /// Ordered: the first message that is not acked, and the end of the batch handed out.
    pub(crate) frontier: usize,
    handed_out: usize,
    /// Ordered: when all that is held comes again, if the last change was one that speaks for all of it.
    suspended_until: Option<Instant>,
}

pub(crate) struct Stored {
    pub(crate) message: Arc<Message>,
    pub(crate) acked: bool,
    pub(crate) dead_lettered: bool,
    pub(crate) deliveries: u32,
    /// The handle that counts; 0 = none.
    pub(crate) serial: u64,
    /// Renewals of that lease.
    generation: u64,
    lease_ends_at: Instant,
    visible_at: Instant,
}

/// How often the lease behind a handle was renewed.
pub(crate) fn generation(handle: &Handle) -> u64 {
    handle.text.rsplit('/').next().and_then(|part| part.parse().ok()).expect("a number")
}

/// A handle's text: topic, offset, serial, and behind them the renewals.
pub(crate) fn parse(handle: &Handle) -> (usize, usize, u64) {
    let mut parts = handle.text.split('/').map(|part| part.parse::<u64>().expect("a number"));
    let mut next = || parts.next().expect("three numbers");
    (next() as usize, next() as usize, next())
}

impl Broker {
    pub(crate) fn new(topics: Vec<(Arc<str>, Arc<str>, bool)>, lease: Duration, random: Random) -> Self {
        let topics = topics.into_iter().map(|(name, key, ordered)| Topic {
            name,
            key,
            ordered,
            messages: Vec::new(),
            frontier: 0,
            handed_out: 0,
            suspended_until: None,
        });
        let routing = Arc::new(Routing::default());
        Self { topics: topics.collect(), lease, routing, serial: 0, next_topic: 0, random }
    }

    pub(crate) fn produce(&mut self) {
        let index = self.random.below(self.topics.len() as u64) as usize;
        let large = self.random.chance(50);
        let body_bytes = self.random.below(if large { BODY_BYTES_MAX as u64 } else { 2000 }) as usize;
        let topic = &mut self.topics[index];
        let offset = topic.messages.len();
        topic.messages.push(Stored {
            message: Arc::new(Message {
                topic: Arc::clone(&topic.name),
                lite_topic: topic.ordered.then(|| Arc::clone(&topic.name)),
                group: None,
                id: format!("{index}-{offset}").into(),
                tag: None,
                keys: Vec::new(),
                properties: Vec::new(),
                body: Bytes::from_static(&ZEROS[..body_bytes]),
                body_state: tidegate_model::BodyState::Intact,
                born_at: None,
                stored_at: None,
            }),
            acked: false,
            dead_lettered: false,
            deliveries: 0,
            serial: 0,
            generation: 0,
            lease_ends_at: Instant::ZERO,
            visible_at: Instant::ZERO,
        });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.topics.iter().all(|topic| topic.messages.iter().all(|stored| stored.acked))
    }

    /// Hands out what fits.
    pub(crate) fn receive(&mut self, now: Instant, granted: Capacity) -> Vec<(Delivery, Arc<str>)> {
        let mut deliveries = Vec::new();
        let mut bytes_left = granted.bytes;
        for _ in 0..self.topics.len() {
            self.next_topic = (self.next_topic + 1) % self.topics.len();
            // A broker gives few of one topic now and then.
            let room = granted.messages - deliveries.len();
            let room = if self.random.chance(200) { room.min(2) } else { room };
            for offset in self.available(now, self.next_topic, room) {
                let size_bytes = self.topics[self.next_topic].messages[offset].message.size_bytes();
                if size_bytes > bytes_left && !deliveries.is_empty() {
                    break;
                }
                bytes_left = bytes_left.saturating_sub(size_bytes);
                deliveries.push(self.hand_out(now, self.next_topic, offset));
            }
        }
        deliveries
    }

    /// Forgets who holds what: everything not acked can be had again when it is back.
    pub(crate) fn restart(&mut self, now: Instant) {
        for topic in &mut self.topics {
            topic.suspended_until = None;
        }
        for stored in self.topics.iter_mut().flat_map(|topic| &mut topic.messages) {
            stored.visible_at = now + RESTART;
            if self.random.chance(500) {
                stored.deliveries = 0;
            }
        }
    }

    /// Tells the broker. True in the first place when the message is done by it.
    pub(crate) fn settle(
        &mut self,
        now: Instant,
        settlement: &Settlement,
    ) -> (bool, Result<Option<Handle>, SettleError>) {
        let (index, offset, serial) = parse(&settlement.handle);
        let topic = &mut self.topics[index];
        let stored = &mut topic.messages[offset];
        if let Verb::Reject { .. } = settlement.verb {
            stored.dead_lettered = true;
        }
        // Without order a renewal makes the handle before it powerless.
        if stored.serial != serial || (!topic.ordered && stored.generation != generation(&settlement.handle))
        {
            return (false, Ok(None));
        }
        if stored.lease_ends_at <= now {
            return (false, Err(error(&settlement.verb, SettleFault::LeaseGone)));
        }
        match settlement.verb {
            Verb::Accept | Verb::Reject { .. } => {
                stored.acked = true;
                while topic.messages.get(topic.frontier).is_some_and(|stored| stored.acked) {
                    topic.frontier += 1;
                }
                (true, Ok(None))
            }
            Verb::Defer(delay) => {
                stored.visible_at = now + delay;
                topic.suspended_until = Some(now + delay);
                (false, Ok(None))
            }
            Verb::Release => {
                stored.visible_at = now;
                topic.suspended_until = Some(now);
                (false, Ok(None))
            }
            Verb::Renew(length) => {
                stored.lease_ends_at = now + length;
                stored.visible_at = now + length;
                topic.suspended_until = None;
                // Under pressure it answers without a handle: the old one stays good.
                if self.random.chance(100) {
                    return (false, Ok(None));
                }
                stored.generation += 1;
                let text = format!("{index}/{offset}/{serial}/{}", stored.generation).into();
                (false, Ok(Some(Handle { text, ..settlement.handle.clone() })))
            }
        }
    }

    fn available(&mut self, now: Instant, topic: usize, room: usize) -> Vec<usize> {
        let topic = &mut self.topics[topic];
        if !topic.ordered {
            let visible = |stored: &Stored| !stored.acked && stored.visible_at <= now;
            return (0..topic.messages.len()).filter(|at| visible(&topic.messages[*at])).take(room).collect();
        }
        if topic.frontier < topic.handed_out {
            // It comes again when the last of the leases held on it ends.
            let held = &topic.messages[topic.frontier..topic.handed_out];
            let last = held.iter().filter(|stored| !stored.acked).map(|stored| stored.visible_at).max();
            if topic.suspended_until.or(last).is_some_and(|due| now < due) {
                return Vec::new();
            }
            topic.suspended_until = None;
            for stored in &mut topic.messages[topic.frontier..] {
                stored.acked = false;
                stored.serial = 0;
            }
        }
        let end = topic.messages.len().min(topic.frontier + room);
        (topic.frontier..end).collect()
    }

    fn hand_out(&mut self, now: Instant, index: usize, offset: usize) -> (Delivery, Arc<str>) {
        self.serial += 1;
        let topic = &mut self.topics[index];
        topic.handed_out = offset + 1;
        let stored = &mut topic.messages[offset];
        stored.serial = self.serial;
        stored.generation = 0;
        stored.lease_ends_at = now + self.lease;
        stored.visible_at = stored.lease_ends_at;
        stored.deliveries += 1;
        let delivery = Delivery {
            message: Arc::clone(&stored.message),
            order: topic.ordered.then(|| Arc::clone(&topic.name)),
            attempt: if topic.ordered { stored.deliveries.min(2) } else { stored.deliveries },
            received_at: now,
            lease: self.lease,
            expires_at: stored.lease_ends_at,
            handle: Handle {
                routing: Arc::clone(&self.routing),
                text: format!("{index}/{offset}/{}/0", self.serial).into(),
            },
        };
        (delivery, Arc::clone(&topic.key))
    }
}

pub(crate) fn error(verb: &Verb, fault: SettleFault) -> SettleError {
    SettleError { verb: verb.name(), detail: "simulated".into(), fault }
}
