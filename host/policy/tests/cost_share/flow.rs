//! A flow in simulated time: a broker, the real lease book, workers of a fixed number, and a policy between them.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tidegate_lease::{LeaseBook, Options, Taken};
use tidegate_model::{
    Delivery, DeliveryId, Handle, Instant, MessageId, Outcome as Reported, Report, Routing, Timestamp,
    Verdict,
};
use tidegate_policy::{Answer, Ending, Outcome, Question, ThrottleCaller};

use crate::broker::{Broker, number_of, tenant_of};

/// One step of the simulation, in milliseconds.
pub(crate) const STEP: u64 = 10;
/// Between two batches of outcomes, in milliseconds, and how many are in one at most: as the contract says.
const TOLD_EVERY: u64 = 250;
const BATCH_MAX: usize = 256;
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
    /// Of all that is left to chance. How long a message takes depends on this and on the message, and not on who is done
    /// before it.
    pub(crate) seed: u64,
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
    /// Deliveries of the message that had most of them before a worker had it.
    pub(crate) most_attempts: u32,
    /// When the last message was done, in milliseconds.
    pub(crate) last_done: u64,
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
        random: plan.seed,
        served: plan.tenants.iter().map(|tenant| (tenant.name, Served::default())).collect(),
    };
    let end = (plan.warm_up + plan.counted) * 1_000;
    while flow.now < end {
        flow.now += STEP;
        flow.step();
    }
    flow.count_what_is_not_done();
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
            self.count_work(tenant, began);
            let served = self.served.get_mut(self.plan.tenants[tenant].name).expect("a tenant");
            served.last_done = self.now;
            served.messages += u64::from(self.now > self.plan.warm_up * 1_000);
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

    /// Counts the work on a message that began then, as far as it fell into the time that is counted.
    fn count_work(&mut self, tenant: usize, began: u64) {
        let worked = self.now.saturating_sub(began.max(self.plan.warm_up * 1_000));
        self.served.get_mut(self.plan.tenants[tenant].name).expect("a tenant").work +=
            worked as f64 / 1_000.0;
    }

    /// What workers have at the end is work too, or who is busy with long messages would look idle.
    fn count_what_is_not_done(&mut self) {
        for Work { tenant, began, .. } in std::mem::take(&mut self.emitted).into_values() {
            self.count_work(tenant, began);
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
            let chance = mix(self.plan.seed ^ number_of(&emission.message.id).wrapping_mul(GOLDEN));
            let takes = work * (0.5 + chance as f64 / u64::MAX as f64);
            self.working.push(Reverse((self.now + (takes * 1_000.0) as u64, emission.id)));
            let sent = self.broker.sent_at(&emission.message.id);
            let served = self.served.get_mut(name).expect("a tenant");
            if self.now > self.plan.warm_up * 1_000 {
                served.waits.push(self.now - sent);
            }
            served.most_attempts = served.most_attempts.max(emission.attempt);
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
        self.random = self.random.wrapping_add(GOLDEN);
        mix(self.random)
    }
}

/// SplitMix64 is a counter that goes up by this, mixed.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

fn mix(number: u64) -> u64 {
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn wall(millis: u64) -> Timestamp {
    Timestamp::from_unix_millis(1_700_000_000_000 + millis)
}
