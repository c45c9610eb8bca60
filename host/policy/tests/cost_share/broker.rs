//! A broker in simulated time, as far as a flow can tell: it hands out, again after a deferral, and in order where that is
//! asked for.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

use tidegate_model::{BodyState, Message, MessageId, Settlement, Verb};

use crate::flow::{STEP, Tenant};

/// Messages of an ordered tenant that are out at one time.
const ORDERED_BATCH: usize = 32;

/// Ids are `TENANT:NUMBER`.
pub(crate) fn tenant_of(id: &MessageId) -> usize {
    id.as_str().split(':').next().and_then(|tenant| tenant.parse().ok()).expect("an id of ours")
}

/// A broker: one queue in order of time, and a queue of its own for each ordered tenant.
pub(crate) struct Broker {
    sent: Vec<u64>,
    senders: Vec<Sender>,
    /// By when it may be handed out: time, number, tenant, attempt.
    ready: BinaryHeap<Reverse<(u64, u64, usize, u32)>>,
    /// Where handing out goes on.
    turn: usize,
}

struct Sender {
    tenant: Tenant,
    /// Messages due and not sent.
    due: f64,
    /// Numbers and attempts of an ordered tenant's messages that are not accepted yet.
    queue: VecDeque<(u64, u32)>,
    /// How many of them are handed out.
    handed: usize,
    /// None is before this.
    blocked_until: u64,
}

impl Broker {
    pub(crate) fn new(tenants: &[Tenant]) -> Self {
        let senders = tenants.iter().map(|tenant| Sender {
            tenant: *tenant,
            due: f64::from(tenant.backlog),
            queue: VecDeque::new(),
            handed: 0,
            blocked_until: 0,
        });
        Self { sent: Vec::new(), senders: senders.collect(), ready: BinaryHeap::new(), turn: 0 }
    }

    pub(crate) fn send(&mut self, tenants: &[Tenant], now: u64) {
        let begun = |(_, tenant): &(usize, &Tenant)| now > tenant.begins * 1_000;
        for (n, tenant) in tenants.iter().enumerate().filter(begun) {
            self.senders[n].due += tenant.rate * STEP as f64 / 1_000.0;
            while self.senders[n].due >= 1.0 {
                self.senders[n].due -= 1.0;
                let number = self.sent.len() as u64;
                self.sent.push(now);
                if tenant.is_ordered {
                    self.senders[n].queue.push_back((number, 1));
                } else {
                    self.ready.push(Reverse((now, number, n, 1)));
                }
            }
        }
    }

    /// At most so many: whether they are ordered, the tenant's name, the message, the attempt.
    pub(crate) fn hand_out(&mut self, most: usize, now: u64) -> Vec<(bool, &'static str, Arc<Message>, u32)> {
        let mut handed = Vec::new();
        while handed.len() < most
            && let Some(Reverse((at, number, tenant, attempt))) = self.ready.peek().copied()
            && at <= now
        {
            self.ready.pop();
            let name = self.senders[tenant].tenant.name;
            handed.push((false, name, message(tenant, number, None), attempt));
        }
        // Of an ordered tenant a batch, and no more before that is settled; one tenant after the other.
        for _ in 0..self.senders.len() {
            self.turn = (self.turn + 1) % self.senders.len();
            let (turn, room) = (self.turn, most - handed.len());
            let sender = &mut self.senders[turn];
            if sender.handed == 0 && sender.blocked_until <= now {
                let batch = sender.queue.iter().take(room.min(ORDERED_BATCH));
                let name = sender.tenant.name;
                handed.extend(
                    batch.map(|(number, attempt)| (true, name, message(turn, *number, Some(name)), *attempt)),
                );
                sender.handed = sender.queue.len().min(room).min(ORDERED_BATCH);
            }
        }
        handed
    }

    pub(crate) fn settle(&mut self, settlement: &Settlement, now: u64) {
        let tenant = tenant_of(&settlement.message.id);
        let number = number_of(&settlement.message.id);
        let sender = &mut self.senders[tenant];
        let delay = match &settlement.verb {
            Verb::Accept => None,
            Verb::Defer(delay) => Some(u64::try_from(delay.as_millis()).expect("a delay")),
            other => panic!("{other:?}"),
        };
        match (sender.tenant.is_ordered, delay) {
            (false, None) => {}
            (false, Some(delay)) => {
                self.ready.push(Reverse((now + delay, number, tenant, settlement.attempt + 1)));
            }
            (true, None) => {
                assert_eq!(sender.queue.pop_front().map(|(number, _)| number), Some(number), "in order");
                sender.handed -= 1;
            }
            (true, Some(delay)) => {
                let first = sender.queue.front_mut().expect("it is not accepted");
                assert_eq!(first.0, number, "in order");
                first.1 = settlement.attempt + 1;
                sender.handed = 0;
                sender.blocked_until = now + delay;
            }
        }
    }

    pub(crate) fn sent_at(&self, id: &MessageId) -> u64 {
        self.sent[usize::try_from(number_of(id)).expect("a number")]
    }
}

pub(crate) fn number_of(id: &MessageId) -> u64 {
    id.as_str().split(':').nth(1).and_then(|number| number.parse().ok()).expect("an id of ours")
}

fn message(tenant: usize, number: u64, lite_topic: Option<&str>) -> Arc<Message> {
    Arc::new(Message {
        topic: "tenants".into(),
        lite_topic: lite_topic.map(Arc::from),
        group: None,
        id: MessageId::from(format!("{tenant}:{number}")),
        tag: None,
        keys: vec![],
        properties: vec![],
        body: vec![7; 64].into(),
        body_state: BodyState::Intact,
        born_at: None,
        stored_at: None,
    })
}
