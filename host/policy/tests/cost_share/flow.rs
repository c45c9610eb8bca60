//! A flow in simulated time: a broker, the real lease book, workers of a fixed number, and a policy between them.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tidegate_lease::{LeaseBook, Options, Taken};
use tidegate_model::{
    BodyState, Delivery, DeliveryId, Handle, Instant, Message, MessageId, Outcome as Reported, Report,
    Routing, Settlement, Timestamp, Verb, Verdict,
};
use tidegate_policy::{Answer, Ending, Outcome, Question, ThrottleCaller};

/// One step of the simulation, in milliseconds.
const STEP: u64 = 5;
/// Between two batches of outcomes, in milliseconds, and how many are in one at most: as the contract says.
const TOLD_EVERY: u64 = 250;
const BATCH_MAX: usize = 256;
/// Messages of an ordered tenant that are out at one time.
const ORDERED_BATCH: usize = 32;
/// Longer than any work.
const LEASE: Duration = Duration::from_secs(3_600);

/// Somebody who sends messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tenant {
    pub(crate) name: &'static str,
    /// Messages a second.
    pub(crate) rate: f64,
    /// Messages that it sends at once, to begin with.
    pub(crate) backlog: u32,
    /// When that is, in seconds.
    pub(crate) begins: u64,
    /// Seconds of a worker that a message takes, a half more or less.
    pub(crate) work: f64,
    /// Whether its messages are handled in order, as those of a lite topic.
    pub(crate) is_ordered: bool,
}

/// What is simulated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan<'a> {
    pub(crate) tenants: &'a [Tenant],
    pub(crate) workers: usize,
    /// Tokens that workers report for each second; none, and they report nothing.
    pub(crate) tokens_per_second: Option<f64>,
    /// Seconds; what happens in the first of them is not counted.
    pub(crate) warm_up: u64,
    pub(crate) counted: u64,
}

/// What became of one tenant's messages.
#[derive(Clone, Debug, Default)]
pub(crate) struct Served {
    /// Seconds of workers that it had.
    pub(crate) work: f64,
    pub(crate) messages: u64,
    pub(crate) deferrals: u64,
    /// Milliseconds from the sending of a message to its worker.
    waits: Vec<u64>,
}

/// What became of all.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) tenants: HashMap<&'static str, Served>,
    /// Seconds of workers that were there.
    pub(crate) capacity: f64,
}

impl Record {
    pub(crate) fn work(&self) -> f64 {
        self.tenants.values().map(|served| served.work).sum()
    }

    /// A tenant's part of the work.
    pub(crate) fn share(&self, tenant: &str) -> f64 {
        self.tenants[tenant].work / self.work()
    }
}

impl Served {
    /// Milliseconds that all but one in a hundred waited at most.
    pub(crate) fn p99(&self) -> u64 {
        let mut waits = self.waits.clone();
        waits.sort_unstable();
        waits.get(waits.len() * 99 / 100).copied().unwrap_or(0)
    }
}

/// Runs a plan, with a policy or with none.
pub(crate) fn run(plan: &Plan<'_>, policy: Option<ThrottleCaller>) -> Record {
    let mut flow = Flow {
        plan: *plan,
        now: 0,
        book: LeaseBook::new(Options { budget_messages: 500, ..Options::default() }, Instant::ZERO),
        policy,
        broker: Broker::new(plan.tenants),
        emitted: HashMap::new(),
        working: BinaryHeap::new(),
        outcomes: Vec::new(),
        random: 1,
        served: plan.tenants.iter().map(|tenant| (tenant.name, Served::default())).collect(),
    };
    let end = (plan.warm_up + plan.counted) * 1_000;
    while flow.now < end {
        flow.now += STEP;
        flow.step();
    }
    let capacity = (plan.workers as u64 * plan.counted) as f64;
    Record { tenants: flow.served, capacity }
}

struct Flow<'a> {
    plan: Plan<'a>,
    /// Milliseconds.
    now: u64,
    book: LeaseBook,
    policy: Option<ThrottleCaller>,
    broker: Broker,
    /// What workers have.
    emitted: HashMap<DeliveryId, Work>,
    /// When they are done.
    working: BinaryHeap<Reverse<(u64, DeliveryId)>>,
    outcomes: Vec<Outcome>,
    random: u64,
    served: HashMap<&'static str, Served>,
}

struct Work {
    tenant: usize,
    message: MessageId,
    attempt: u32,
    began: u64,
}

impl Flow<'_> {
    fn step(&mut self) {
        if std::env::var("DBG").is_ok() && self.policy.is_some() && self.now % 2000 == 0 {
            println!(
                "B {} busy {} q {} inflight {}",
                self.now,
                self.working.len(),
                self.book.counts().queued,
                self.book.counts().in_flight
            );
        }
        let now = Instant::from_millis(self.now);
        self.broker.send(self.plan.tenants, self.now);
        self.finish(now);
        self.book.handle_timeout(now);
        self.receive(now);
        self.decide(now);
        self.emit(now);
        self.settle(now);
        if self.now.is_multiple_of(TOLD_EVERY)
            && let Some(policy) = &mut self.policy
        {
            for batch in self.outcomes.chunks(BATCH_MAX) {
                policy.observe(now, wall(self.now), batch);
            }
            self.outcomes.clear();
        }
        while self.book.poll_event().is_some() {}
    }

    fn finish(&mut self, now: Instant) {
        while let Some(Reverse((end, id))) = self.working.peek().copied()
            && end <= self.now
        {
            self.working.pop();
            let Work { tenant, message, attempt, began } = self.emitted.remove(&id).expect("emitted");
            let spent = Duration::from_millis(self.now - began);
            let cost = self.plan.tokens_per_second.map(|tokens| tokens * spent.as_secs_f64());
            let taken = self.book.handle_report(now, Report { id, outcome: Reported::Accepted, cost });
            let served = self.served.get_mut(self.plan.tenants[tenant].name).expect("a tenant");
            if self.now > self.plan.warm_up * 1_000 {
                // What began before is counted in part.
                served.work += (self.now - began.max(self.plan.warm_up * 1_000)) as f64 / 1_000.0;
                served.messages += 1;
            }
            self.outcomes.push(Outcome {
                key: self.plan.tenants[tenant].name.into(),
                id: message,
                ending: if taken == Taken::Yes { Ending::Accepted } else { Ending::Expired },
                attempt,
                spent,
                cost: cost.unwrap_or(spent.as_secs_f64()),
            });
        }
    }

    fn receive(&mut self, now: Instant) {
        while let Some(grant) = self.book.poll_receive(now) {
            let handed = self.broker.hand_out(grant.messages, self.now);
            let none = handed.is_empty();
            let deliveries = handed.into_iter().map(|(tenant, name, message, attempt)| {
                let delivery = Delivery {
                    message,
                    order: tenant.then(|| name.into()),
                    attempt,
                    received_at: now,
                    lease: LEASE,
                    expires_at: now + LEASE,
                    handle: Handle { routing: Arc::new(Routing::default()), text: "".into() },
                };
                (delivery, Arc::from(name))
            });
            self.book.handle_received(now, grant, deliveries.collect());
            if none {
                return;
            }
            // As a flow does: what was received is decided before more is asked for.
            self.decide(now);
            self.settle(now);
        }
    }

    fn decide(&mut self, now: Instant) {
        while let Some(decide) = self.book.poll_decide(now) {
            let seed = self.draw();
            let verdict = self.policy.as_mut().map_or(Verdict::Deliver, |policy| {
                let answer = policy.decide(&Question {
                    source: "tenants",
                    message: &decide.message,
                    key: &decide.key,
                    attempt: decide.attempt,
                    age: Duration::ZERO,
                    waited: decide.waited,
                    deferred: decide.deferred,
                    standing: decide.standing,
                    wall: wall(self.now),
                    now,
                    seed,
                });
                let Answer::Verdict(verdict) = answer else { panic!("{answer:?}") };
                verdict
            });
            if std::env::var("DBG").is_ok() && self.policy.is_some() && &*decide.key == "hot" {
                let d = match &verdict {
                    Verdict::Defer(d) => format!("{:?} {}", d.delay, d.reason),
                    o => format!("{o:?}"),
                };
                println!(
                    "D {} {} att {} def {:?} q {} e {} kin {} fin {} n {} thr {:.1} -> {d}",
                    self.now,
                    decide.message.id.as_str(),
                    decide.attempt,
                    decide.deferred,
                    decide.standing.flow_queued,
                    decide.standing.flow_emitted,
                    decide.standing.key_in_flight,
                    decide.standing.flow_in_flight,
                    decide.standing.active_keys,
                    decide.standing.flow_throughput
                );
            }
            if let Verdict::Defer(_) = verdict {
                if self.now > self.plan.warm_up * 1_000 {
                    self.served.get_mut(&*decide.key).expect("a tenant").deferrals += 1;
                }
                self.outcomes.push(Outcome {
                    key: Arc::clone(&decide.key),
                    id: decide.message.id.clone(),
                    ending: Ending::Deferred,
                    attempt: decide.attempt,
                    spent: Duration::ZERO,
                    cost: 0.0,
                });
            }
            self.book.handle_verdict(now, decide.id, verdict);
        }
    }

    fn emit(&mut self, now: Instant) {
        while self.working.len() < self.plan.workers
            && let Some(emission) = self.book.poll_emit(now)
        {
            let tenant = tenant_of(&emission.message.id);
            let Tenant { name, work, .. } = self.plan.tenants[tenant];
            let takes = work * (0.5 + self.draw() as f64 / u64::MAX as f64);
            self.working.push(Reverse((self.now + (takes * 1_000.0) as u64, emission.id)));
            let sent = self.broker.sent_at(&emission.message.id);
            if self.now > self.plan.warm_up * 1_000 {
                self.served.get_mut(name).expect("a tenant").waits.push(self.now - sent);
            }
            let message = emission.message.id.clone();
            self.emitted
                .insert(emission.id, Work { tenant, message, attempt: emission.attempt, began: self.now });
        }
    }

    fn settle(&mut self, now: Instant) {
        while let Some(settlement) = self.book.poll_settle(now) {
            self.broker.settle(&settlement, self.now);
            self.book.handle_settled(now, settlement.id, Ok(None));
        }
    }

    fn draw(&mut self) -> u64 {
        // SplitMix64.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

fn wall(millis: u64) -> Timestamp {
    Timestamp::from_unix_millis(1_700_000_000_000 + millis)
}

/// Ids are `TENANT:NUMBER`.
fn tenant_of(id: &MessageId) -> usize {
    id.as_str().split(':').next().and_then(|tenant| tenant.parse().ok()).expect("an id of ours")
}

/// A broker: one queue in order of time, and a queue of its own for each ordered tenant.
struct Broker {
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
    fn new(tenants: &[Tenant]) -> Self {
        let senders = tenants.iter().map(|tenant| Sender {
            tenant: *tenant,
            due: f64::from(tenant.backlog),
            queue: VecDeque::new(),
            handed: 0,
            blocked_until: 0,
        });
        Self { sent: Vec::new(), senders: senders.collect(), ready: BinaryHeap::new(), turn: 0 }
    }

    fn send(&mut self, tenants: &[Tenant], now: u64) {
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
    fn hand_out(&mut self, most: usize, now: u64) -> Vec<(bool, &'static str, Arc<Message>, u32)> {
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

    fn settle(&mut self, settlement: &Settlement, now: u64) {
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

    fn sent_at(&self, id: &MessageId) -> u64 {
        self.sent[usize::try_from(number_of(id)).expect("a number")]
    }
}

fn number_of(id: &MessageId) -> u64 {
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
