//! The whole life of a message in the book: received, decided, emitted, reported, settled.
//!
//! Making the deliveries and dropping what comes out is not measured; both are the connectors' work.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use tidegate_lease::{LeaseBook, Options};
use tidegate_model::{
    BodyState, Delivery, Emission, Handle, Instant, Message, Outcome, Report, Routing, Settlement, Verdict,
};

/// Deliveries of one receive, as RocketMQ gives at most.
const RECEIVE: usize = 32;
/// Messages in one measured round.
const ROUND: usize = 1024;

criterion_group!(benches, lives, many_held);
criterion_main!(benches);

fn lives(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("life");
    group.throughput(Throughput::Elements(ROUND as u64));
    for keys in [1, 10_000] {
        for ordered in [false, true] {
            let name = format!("{keys} keys, {}", if ordered { "ordered" } else { "no order" });
            let mut world = World::new(keys, ordered, RECEIVE, ROUND);
            group.bench_function(name, |bencher| {
                let mut source = world.source.clone();
                bencher.iter_batched(|| source.next(ROUND), |round| world.live(round), BatchSize::SmallInput);
            });
        }
    }
    group.finish();
}

/// A million messages held at one time: received until all are there, then decided, emitted and settled.
fn many_held(criterion: &mut Criterion) {
    const HELD: usize = 1_000_000;
    let mut group = criterion.benchmark_group("a million held");
    group.throughput(Throughput::Elements(HELD as u64));
    group.sample_size(10);
    for ordered in [false, true] {
        let name = format!("10000 keys, {}", if ordered { "ordered" } else { "no order" });
        let mut world = World::new(10_000, ordered, HELD, HELD);
        group.bench_function(name, |bencher| {
            let mut source = world.source.clone();
            bencher.iter_batched(|| source.next(HELD), |round| world.live(round), BatchSize::PerIteration);
        });
    }
    group.finish();
}

struct World {
    book: LeaseBook,
    source: Source,
    receive: usize,
    now: Instant,
}

#[derive(Clone)]
struct Source {
    keys: Vec<Arc<str>>,
    ordered: bool,
    routing: Arc<Routing>,
    made: usize,
}

type Out = (Vec<Emission>, Vec<Settlement>);

impl World {
    fn new(keys: usize, ordered: bool, receive: usize, budget_messages: usize) -> Self {
        let options = Options {
            budget_messages,
            budget_bytes: usize::MAX,
            receive_batch_max: receive,
            ..Options::default()
        };
        let source = Source {
            keys: (0..keys).map(|key| format!("tenant-{key:05}").into()).collect(),
            ordered,
            routing: Arc::new(Routing::default()),
            made: 0,
        };
        Self { book: LeaseBook::new(options, Instant::ZERO), source, receive, now: Instant::ZERO }
    }

    fn live(&mut self, mut round: Vec<(Delivery, Arc<str>)>) -> Out {
        let (mut emissions, mut settlements) =
            (Vec::with_capacity(round.len()), Vec::with_capacity(round.len()));
        while !round.is_empty() {
            self.now += Duration::from_micros(20);
            let rest = round.split_off(self.receive.min(round.len()));
            let granted = self.book.poll_receive(self.now).unwrap_or_default();
            self.book.handle_received(self.now, granted, std::mem::replace(&mut round, rest));
            while let Some(decide) = self.book.poll_decide(self.now) {
                let id = decide.id;
                black_box(decide);
                self.book.handle_verdict(self.now, id, Verdict::Deliver);
            }
            let first = emissions.len();
            while let Some(emission) = self.book.poll_emit(self.now) {
                emissions.push(emission);
            }
            for emission in &emissions[first..] {
                let report = Report { id: emission.id, outcome: Outcome::Accepted, cost: None };
                black_box(self.book.handle_report(self.now, report));
            }
            loop {
                let first = settlements.len();
                self.book.poll_settle_batch(self.now, RECEIVE, &mut settlements);
                if settlements.len() == first {
                    break;
                }
                for settlement in &settlements[first..] {
                    self.book.handle_settled(self.now, settlement.id, Ok(None));
                }
            }
        }
        assert_eq!(self.book.poll_event(), None);
        assert_eq!(self.book.counts().in_flight, 0);
        (emissions, settlements)
    }
}

impl Source {
    /// Messages of a kilobyte, each for another key.
    fn next(&mut self, count: usize) -> Vec<(Delivery, Arc<str>)> {
        let body = Bytes::from(vec![0; 1024]);
        (0..count)
            .map(|_| {
                self.made += 1;
                let key = Arc::clone(&self.keys[self.made.wrapping_mul(7919) % self.keys.len()]);
                let message = Message {
                    topic: Arc::clone(&self.keys[0]),
                    lite_topic: Some(Arc::clone(&key)),
                    group: None,
                    id: format!("01C7A1F0A35D2B{:018}", self.made).into(),
                    tag: None,
                    keys: Vec::new(),
                    properties: Vec::new(),
                    body: body.clone(),
                    body_state: BodyState::Intact,
                    born_at: None,
                    stored_at: None,
                };
                let delivery = Delivery {
                    message: Arc::new(message),
                    order: self.ordered.then(|| Arc::clone(&key)),
                    attempt: 1,
                    received_at: Instant::ZERO,
                    lease: Duration::from_secs(60),
                    expires_at: Instant::from_millis(1_000_000_000),
                    handle: Handle {
                        routing: Arc::clone(&self.routing),
                        text: format!("{:0128}", self.made).into(),
                    },
                };
                (delivery, key)
            })
            .collect()
    }
}
