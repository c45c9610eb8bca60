//! Everything around the book: time, the shell, the policy, the workers, the network.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;
use std::time::Duration;

use tidegate_lease::{BookEvent, Exhausted, LeaseBook, Options, RenewalOptions, Taken, Valve, Valves};
use tidegate_model::{
    Capacity, Deferral, Delivery, DeliveryId, Emission, Handle, Instant, Outcome, Renewal, Report,
    SettleError, SettleFault, Settlement, Verb, Verdict,
};

use crate::broker::{self, BODY_BYTES_MAX, Broker};
use crate::oracle::{Oracle, Seen};
use crate::random::Random;

/// How rough a seed's world is, in events per mille.
struct Weather {
    defers: u64,
    rejects: u64,
    worker_fails: u64,
    worker_slow: u64,
    worker_lost: u64,
    settle_fails: u64,
    reply_lost: u64,
    ack_lost: u64,
    receive_lost: u64,
    verdicts_late: u64,
    jumps: u64,
    answers_late: u64,
    lapses: u64,
    wishes: u64,
    elsewhere: u64,
    returns: u64,
}

pub(crate) struct World {
    seed: u64,
    now: Instant,
    /// When the book last looked at its timers.
    woken_at: Instant,
    options: Options,
    book: LeaseBook,
    broker: Broker,
    oracle: Oracle,
    weather: Weather,
    agenda: BinaryHeap<Reverse<(Instant, u64)>>,
    events: BTreeMap<u64, Event>,
    scheduled: u64,
    /// Which process of the host this is; what an earlier one waits for never comes.
    host: u64,
    batch: u64,
    workers: usize,
    receiving: usize,
    sink_room: usize,
    renewal: Option<RenewalOptions>,
    undecided: Vec<(DeliveryId, tidegate_model::MessageId, Verdict)>,
    to_produce: u64,
    kills: u64,
    restarts: u64,
    network: Random,
    policy: Random,
    labour: Random,
    haste: Random,
    fate: Random,
    /// Decides how many workers there are.
    market: Random,
}

enum Event {
    Produce,
    Receive {
        host: u64,
        granted: Capacity,
    },
    Arrive {
        host: u64,
        granted: Capacity,
        deliveries: Vec<(Delivery, Arc<str>)>,
    },
    Settle {
        host: u64,
        batch: Vec<Settlement>,
    },
    Answer {
        host: u64,
        answers: Vec<(Settlement, Result<Option<Handle>, SettleError>)>,
    },
    Keep {
        host: u64,
        id: DeliveryId,
        answer: Renewal,
    },
    /// A worker needs more time.
    Wish {
        host: u64,
        emission: Box<Emission>,
        length: Duration,
    },
    /// Another host settles what a worker has.
    Elsewhere {
        settlement: Box<Settlement>,
    },
    /// The renewal options change.
    Reload,
    /// Workers come or go.
    Demand,
    Report {
        host: u64,
        emission: Box<Emission>,
        outcome: Outcome,
        first: bool,
    },
    Restart,
    Kill {
        drain: bool,
    },
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let mut fate = Random::new(seed, 1);
        let lease = fate.millis(10_000, 60_000);
        let one_key_per_topic = fate.chance(500);
        let topics = fate.between(1, 8);
        let topics = (0..topics).map(|topic| {
            let name: Arc<str> = format!("topic-{topic}").into();
            let key = if one_key_per_topic { Arc::clone(&name) } else { format!("key-{}", topic % 3).into() };
            (name, key, topic % 4 != 3)
        });
        let tracks_all = fate.chance(700);
        // A stream of its own as well.
        let mut market = Random::new(seed, 7);
        let options = Options {
            budget_messages: fate.between(1, 48) as usize,
            budget_bytes: fate.between(BODY_BYTES_MAX as u64, 4_000_000) as usize,
            receive_batch_max: fate.between(1, 32) as usize,
            valves: Valves {
                max_delivery_attempt: fate.between(2, 16) as u32,
                max_invisible_duration: fate.millis(1_000, 60_000),
                max_total_deferral: fate.millis(5_000, 300_000),
                exhausted: if fate.chance(500) { Exhausted::Accept } else { Exhausted::Reject },
            },
            keys_max: fate.between(1, 8) as usize,
            tracked_messages_max: if tracks_all { 10_000 } else { fate.between(0, 20) as usize },
            may_be_given_back: market.chance(500),
            keeps_deferred: false,
            seed,
        };
        let mut rough = |most: u64| if fate.chance(500) { 0 } else { fate.below(most + 1) };
        let weather = Weather {
            defers: rough(400),
            rejects: rough(80),
            worker_fails: rough(300),
            worker_slow: rough(200),
            worker_lost: rough(60),
            settle_fails: rough(200),
            reply_lost: rough(100),
            ack_lost: rough(50),
            receive_lost: rough(100),
            verdicts_late: rough(300),
            jumps: rough(10),
            answers_late: rough(300),
            lapses: rough(300),
            wishes: 0,
            elsewhere: 0,
            returns: if market.chance(500) { 0 } else { market.below(200) },
        };
        // A stream of its own, so that seeds go as they did before workers had wishes; every other one still does.
        let mut haste = Random::new(seed, 6);
        let weather = if seed % 2 == 1 {
            Weather { wishes: haste.below(400), elsewhere: haste.below(200), ..weather }
        } else {
            weather
        };
        let topics = topics.collect();
        let mut world = Self {
            seed,
            woken_at: Instant::ZERO,
            now: Instant::from_nanos(fate.below(1 << 50)),
            book: LeaseBook::new(options.clone(), Instant::ZERO),
            broker: Broker::new(topics, lease, Random::new(seed, 2)),
            oracle: Oracle::new(options.clone(), tracks_all),
            weather,
            agenda: BinaryHeap::new(),
            events: BTreeMap::new(),
            scheduled: 0,
            host: 0,
            batch: 0,
            workers: fate.between(1, 4) as usize,
            receiving: 0,
            sink_room: fate.between(1, 24) as usize,
            renewal: None,
            undecided: Vec::new(),
            to_produce: fate.between(20, 150),
            kills: fate.below(2),
            restarts: fate.below(3),
            network: Random::new(seed, 3),
            policy: Random::new(seed, 4),
            labour: Random::new(seed, 5),
            haste,
            fate,
            market,
            options,
        };
        world.begin_book();
        for _ in 0..world.fate.below(3) {
            let after = world.fate.millis(0, 120_000);
            world.schedule(after, Event::Reload);
        }
        world.schedule_demands();
        world.schedule(Duration::ZERO, Event::Produce);
        for _ in 0..world.restarts {
            let after = world.fate.millis(0, 120_000);
            world.schedule(after, Event::Restart);
        }
        for _ in 0..world.kills {
            let after = world.fate.millis(0, 120_000);
            let drain = world.fate.chance(500);
            world.schedule(after, Event::Kill { drain });
        }
        world
    }

    pub(crate) fn run(mut self) -> Seen {
        let mut calm_since = None;
        for _ in 0..200_000 {
            self.act();
            let counts = self.book.counts();
            let holds = counts.in_flight + counts.renewing > 0;
            if self.to_produce == 0 && self.broker.is_empty() && !holds {
                self.oracle.finished(&self.broker, &counts);
                return self.oracle.seen;
            }
            // Ten minutes after the last message it clears up, so that an end must come.
            if self.to_produce == 0 && calm_since.is_none() {
                calm_since = Some(self.now + Duration::from_secs(600));
            }
            if calm_since.is_some_and(|since| since <= self.now) {
                self.clear_up();
            }
            self.step();
        }
        panic!("not finished at {:?} with {:?}", self.now, self.book.counts());
    }

    fn clear_up(&mut self) {
        self.demand(self.options.budget_messages);
        self.weather = Weather {
            defers: 0,
            rejects: 0,
            worker_fails: 0,
            worker_slow: 0,
            worker_lost: 0,
            settle_fails: 0,
            reply_lost: 0,
            ack_lost: 0,
            receive_lost: 0,
            verdicts_late: 0,
            jumps: 0,
            answers_late: 0,
            // A policy that keeps for ever what no sink has room for would keep the simulation from its end.
            lapses: 1000,
            wishes: 0,
            elsewhere: 0,
            returns: 0,
        };
    }

    fn schedule(&mut self, after: Duration, event: Event) {
        self.scheduled += 1;
        self.agenda.push(Reverse((self.now + after, self.scheduled)));
        self.events.insert(self.scheduled, event);
    }

    /// Moves on to whatever comes next.
    fn step(&mut self) {
        if self.fate.chance(self.weather.jumps) {
            self.now += self.fate.millis(1_000, 120_000);
        }
        let next = self.agenda.peek().map(|Reverse((at, _))| *at);
        let timeout = self.book.poll_timeout();
        match (next, timeout) {
            (None, None) => panic!("nothing will ever happen again"),
            (next, Some(timeout)) if next.is_none_or(|next| timeout < next) => {
                self.now = self.now.max(timeout);
                self.book.handle_timeout(self.now);
                self.woken_at = self.now;
                let later = self.book.poll_timeout();
                assert!(later.is_none_or(|later| later > self.now), "a timeout that does not pass");
            }
            _ => {
                let Some(Reverse((at, number))) = self.agenda.pop() else { return };
                self.now = self.now.max(at);
                let event = self.events.remove(&number).expect("scheduled");
                self.handle(event);
            }
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Produce => self.produce(),
            Event::Restart => self.broker.restart(self.now),
            Event::Kill { drain: false } => self.kill(),
            Event::Kill { drain: true } => {
                self.book.handle_drain(self.now);
                self.oracle.draining();
                let after = self.fate.millis(0, 90_000);
                self.schedule(after, Event::Kill { drain: false });
            }
            Event::Receive { host, granted } => self.receive(host, granted),
            Event::Settle { host, batch } => self.settle(host, batch),
            Event::Arrive { host, granted, deliveries } if host == self.host => {
                self.receiving -= 1;
                for (delivery, _) in &deliveries {
                    self.oracle.received(self.now, delivery);
                }
                self.book.handle_received(self.now, granted, deliveries);
                self.woken_at = self.now;
            }
            Event::Answer { host, answers } if host == self.host => {
                for (settlement, result) in answers {
                    self.oracle.answered(self.now, &settlement, &result);
                    self.book.handle_settled(self.now, settlement.id, result);
                }
            }
            Event::Report { host, emission, outcome, first } if host == self.host => {
                self.sink_room += usize::from(first);
                let report = Report { id: emission.id, outcome: outcome.clone(), cost: None };
                let taken = self.book.handle_report(self.now, report);
                self.oracle.reported(self.now, &emission, &outcome, first, taken);
                if taken == Taken::Yes && outcome == Outcome::Elsewhere {
                    self.settle_elsewhere(&emission);
                }
                if first && self.labour.chance(20) {
                    let after = self.labour.millis(0, 20_000);
                    self.schedule(after, Event::Report { host, emission, outcome, first: false });
                }
            }
            Event::Keep { host, id, answer } if host == self.host => {
                self.oracle.told(self.now, id, self.renewal.as_ref());
                self.book.handle_renewal(self.now, id, answer);
            }
            Event::Wish { host, emission, length } if host == self.host => {
                let wish = self.book.handle_renewal_wish(self.now, emission.id, length);
                self.hear();
                self.oracle.wished(self.now, &emission, length, wish);
            }
            Event::Elsewhere { settlement } => {
                let (done, _) = self.broker.settle(self.now, &settlement);
                if done {
                    self.oracle.done(&settlement);
                }
            }
            Event::Reload => self.reload(),
            Event::Demand => {
                let nobody = self.market.chance(300);
                let open_max = if nobody { 0 } else { self.market.between(1, 48) as usize };
                self.demand(open_max);
                if nobody {
                    let after = self.market.millis(0, 120_000);
                    self.schedule(after, Event::Demand);
                }
            }
            Event::Arrive { .. }
            | Event::Answer { .. }
            | Event::Report { .. }
            | Event::Keep { .. }
            | Event::Wish { .. } => {}
        }
        self.oracle.bounds(&self.book.counts(), self.workers);
    }

    fn produce(&mut self) {
        if self.to_produce > 0 {
            self.to_produce -= 1;
            self.broker.produce();
            let pause = if self.fate.chance(300) { self.fate.millis(0, 3_000) } else { Duration::ZERO };
            self.schedule(pause, Event::Produce);
        }
    }

    /// The process dies; another begins with an empty book.
    fn kill(&mut self) {
        if self.book.is_drained() {
            assert_eq!(self.book.counts().in_flight, 0);
        }
        self.host += 1;
        self.receiving = 0;
        self.sink_room = self.fate.between(1, 24) as usize;
        self.undecided.clear();
        self.oracle.host_died();
        self.begin_book();
    }

    /// A new book, with or without renewal.
    fn begin_book(&mut self) {
        self.book = LeaseBook::new(self.options.clone(), self.now);
        self.oracle.demanded(self.options.budget_messages);
        self.reload();
    }

    fn schedule_demands(&mut self) {
        for _ in 0..self.market.below(4) {
            let after = self.market.millis(0, 120_000);
            self.schedule(after, Event::Demand);
        }
    }

    fn demand(&mut self, open_max: usize) {
        self.book.handle_demand(open_max);
        self.oracle.demanded(open_max);
    }

    fn reload(&mut self) {
        self.renewal = self.fate.chance(600).then(|| RenewalOptions {
            ahead: self.fate.millis(1_000, 30_000),
            renew_emitted: self.fate.chance(500),
            length_max: self.fate.millis(5_000, 120_000),
        });
        self.book.handle_renewal_options(self.now, self.renewal);
        self.oracle.reloaded(self.now);
    }

    /// Asks the renewal policy, which may take its time.
    fn renew(&mut self) {
        while let Some(question) = self.book.poll_renew(self.now) {
            let answer = if self.policy.chance(self.weather.lapses) {
                if self.policy.chance(500) { Renewal::Release } else { Renewal::Lapse }
            } else {
                Renewal::Renew(self.policy.millis(0, 90_000))
            };
            let options = self.renewal.expect("asked only when it is on");
            self.oracle.asked(self.now, &question, answer, &options);
            if self.policy.chance(self.weather.answers_late) {
                let after = self.policy.millis(0, 5_000);
                self.schedule(after, Event::Keep { host: self.host, id: question.about.id, answer });
            } else {
                self.oracle.told(self.now, question.about.id, self.renewal.as_ref());
                self.book.handle_renewal(self.now, question.about.id, answer);
            }
        }
        while let Some(event) = self.book.poll_event() {
            if let BookEvent::Valve { message, valve: Valve::TotalDeferral, .. } = &event {
                self.oracle.spent(message);
            }
            self.oracle.event(self.now, &event);
        }
        if self.woken_at == self.now {
            self.oracle.all_asked(self.now, self.renewal.as_ref());
        }
    }

    // === what the host does ===

    /// Does what the book asks, as a shell would.
    fn act(&mut self) {
        self.decide();
        self.hear();
        self.renew();
        while self.sink_room > 0
            && let Some(emission) = self.book.poll_emit(self.now)
        {
            self.oracle.emitted(self.now, &emission);
            self.sink_room -= 1;
            self.work(emission);
        }
        loop {
            let mut batch = Vec::new();
            let room = self.network.between(1, 8) as usize;
            self.book.poll_settle_batch(self.now, room, &mut batch);
            self.hear();
            if batch.is_empty() {
                break;
            }
            self.batch += 1;
            for settlement in &batch {
                self.oracle.sent(self.now, &self.broker, self.batch, settlement, self.renewal.as_ref());
            }
            let after = self.network.millis(0, 2_000);
            self.schedule(after, Event::Settle { host: self.host, batch });
        }
        self.oracle.all_sent(self.now, self.renewal.as_ref());
        while self.receiving < self.workers
            && let Some(granted) = self.book.poll_receive(self.now)
        {
            self.receiving += 1;
            self.oracle.granted(&self.book.counts());
            let after = self.network.millis(0, 10);
            self.schedule(after, Event::Receive { host: self.host, granted });
        }
        self.hear();
    }

    fn hear(&mut self) {
        while let Some(event) = self.book.poll_event() {
            self.oracle.event(self.now, &event);
        }
    }

    /// Asks the policy; now and then several at once, whose verdicts come in any order.
    fn decide(&mut self) {
        loop {
            let decide = self.book.poll_decide(self.now);
            let more = decide.is_some();
            if let Some(decide) = decide {
                self.oracle.decided(&decide);
                let verdict = self.verdict();
                self.undecided.push((decide.id, decide.message.id.clone(), verdict));
            }
            if more && self.policy.chance(self.weather.verdicts_late) {
                continue;
            }
            while !self.undecided.is_empty() {
                let index = self.policy.below(self.undecided.len() as u64) as usize;
                let (id, message, verdict) = self.undecided.swap_remove(index);
                self.oracle.verdict(id, &message, verdict.clone());
                self.book.handle_verdict(self.now, id, verdict);
            }
            if !more {
                return;
            }
        }
    }

    fn verdict(&mut self) -> Verdict {
        let reason: Box<str> = "simulated".into();
        if self.policy.chance(self.weather.defers) {
            let delay = self.policy.millis(0, 40_000);
            Verdict::Defer(Deferral { delay, reason })
        } else if self.policy.chance(self.weather.rejects) {
            if self.policy.chance(500) { Verdict::Reject { reason } } else { Verdict::Discard { reason } }
        } else {
            Verdict::Deliver
        }
    }

    fn work(&mut self, emission: Emission) {
        let slow = self.labour.chance(self.weather.worker_slow);
        let after = self.labour.millis(0, if slow { 90_000 } else { 3_000 });
        let outcome = if self.labour.chance(self.weather.worker_fails) {
            match self.labour.below(3) {
                0 => Outcome::Deferred { delay: self.labour.millis(0, 20_000) },
                1 => Outcome::Released,
                _ => Outcome::Rejected { reason: "simulated".into() },
            }
        } else if self.haste.chance(self.weather.elsewhere) {
            Outcome::Elsewhere
        } else {
            Outcome::Accepted
        };
        while self.haste.chance(self.weather.wishes) {
            let length = self.haste.millis(0, 90_000);
            // Now and then when it is done, or when nobody is there any more.
            let after = self.haste.millis(0, u64::try_from(after.as_millis()).unwrap_or(u64::MAX) + 1_000);
            let emission = Box::new(emission.clone());
            self.schedule(after, Event::Wish { host: self.host, emission, length });
        }
        if self.market.chance(self.weather.returns) {
            // It gives it back at the broker, and nobody tells the host.
            self.sink_room += 1;
            let delay = self.market.millis(0, 20_000);
            let verb = if self.market.chance(500) { Verb::Release } else { Verb::Defer(delay) };
            self.schedule(after, Event::Elsewhere { settlement: Box::new(settlement(&emission, verb)) });
        } else if self.labour.chance(self.weather.worker_lost) {
            // The worker died; its place is free again, and nobody ever reports.
            self.sink_room += 1;
        } else {
            let emission = Box::new(emission);
            self.schedule(after, Event::Report { host: self.host, emission, outcome, first: true });
        }
    }

    /// What a worker named as settled elsewhere is so soon, late, or never.
    fn settle_elsewhere(&mut self, emission: &Emission) {
        if self.haste.chance(self.weather.ack_lost) {
            return;
        }
        let settlement = Box::new(settlement(emission, Verb::Accept));
        let most = if self.haste.chance(self.weather.worker_slow) { 90_000 } else { 2_000 };
        let after = self.haste.millis(0, most);
        self.schedule(after, Event::Elsewhere { settlement });
    }

    // === what the broker and the network do ===

    fn receive(&mut self, host: u64, granted: Capacity) {
        let deliveries = self.broker.receive(self.now, granted);
        let poll = if deliveries.is_empty() { self.network.millis(100, 2_000) } else { Duration::ZERO };
        let after = poll + self.network.millis(0, 50);
        let lost = self.network.chance(self.weather.receive_lost);
        let deliveries = if lost { Vec::new() } else { deliveries };
        self.schedule(after, Event::Arrive { host, granted, deliveries });
    }

    fn settle(&mut self, host: u64, batch: Vec<Settlement>) {
        let mut answers = Vec::new();
        for settlement in batch {
            let failed = |fault| Err(broker::error(&settlement.verb, fault));
            let result = if self.network.chance(self.weather.settle_fails) {
                failed(SettleFault::Broker)
            } else if self.network.chance(self.weather.ack_lost) {
                Ok(None)
            } else {
                let (done, result) = self.broker.settle(self.now, &settlement);
                if done {
                    self.oracle.done(&settlement);
                }
                if self.network.chance(self.weather.reply_lost) {
                    failed(SettleFault::Broker)
                } else {
                    result
                }
            };
            answers.push((settlement, result));
        }
        let after = self.network.millis(0, 2_000);
        self.schedule(after, Event::Answer { host, answers });
    }
}

/// As somebody who has the emission's receipt tells it to the broker.
fn settlement(emission: &Emission, verb: Verb) -> Settlement {
    Settlement {
        id: emission.id,
        verb,
        message: Arc::clone(&emission.message),
        handle: emission.handle.clone(),
        attempt: emission.attempt,
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("at {:?} of seed {}: {:?}", self.now, self.seed, self.book.counts());
        }
    }
}
