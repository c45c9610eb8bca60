//! The promises of the dispatcher, by example and by random lives.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bytes::Bytes;
use proptest::prelude::*;
use tidegate_model::{Handle, Message, Routing, SettleError};

use super::*;

const OPTIONS: Options =
    Options { accepts_on_delivery: false, key_affinity: false, held_max: 100, owner_settles: |_| false };

fn emission(number: u64, key: &str, ordered: bool, bytes: usize) -> Emission {
    let mut message = Message::new("topic", format!("message-{number}"));
    message.body = Bytes::from(vec![0; bytes]);
    Emission {
        id: DeliveryId(number),
        message: Arc::new(message),
        key: key.into(),
        order: ordered.then(|| key.into()),
        attempt: 1,
        handle: Handle { routing: Arc::new(Routing::default()), text: format!("handle-{number}").into() },
        received_at: Instant::ZERO,
        expires_at: Instant::ZERO + Duration::from_secs(60),
        dead_letter: None,
    }
}

fn claim(number: u64) -> Claim {
    Claim {
        delivery: DeliveryId(number),
        message: format!("message-{number}").as_str().into(),
        handle: format!("handle-{number}").into(),
    }
}

fn credits(messages: usize) -> Credits {
    Credits { messages, bytes: None }
}

fn delivered(dispatcher: &mut Dispatcher) -> Vec<(WorkerId, u64)> {
    std::iter::from_fn(|| dispatcher.poll_delivery())
        .map(|(worker, emission)| (worker, emission.id.0))
        .collect()
}

fn answers(dispatcher: &mut Dispatcher) -> Vec<(u64, Answer)> {
    std::iter::from_fn(|| dispatcher.poll_answer()).map(|(ticket, answer)| (ticket.0, answer)).collect()
}

fn ended(dispatcher: &mut Dispatcher) -> Vec<(u64, Outcome)> {
    let reports = dispatcher.poll_reports().unwrap_or_default();
    reports.ended.into_iter().map(|report| (report.id.0, report.outcome)).collect()
}

fn settled(dispatcher: &mut Dispatcher, number: u64) {
    dispatcher.handle_notice(Notice::Settled { id: DeliveryId(number), result: Ok(()) });
}

#[test]
fn the_least_loaded_worker_is_next() {
    let mut dispatcher = Dispatcher::new(OPTIONS);
    let small = dispatcher.handle_join("small".into(), credits(2));
    let large = dispatcher.handle_join("large".into(), credits(4));
    assert_eq!(dispatcher.limit(), 6);
    dispatcher.handle_emissions((1..=6).map(|n| emission(n, "k", false, 10)).collect());
    let by = delivered(&mut dispatcher);
    assert_eq!(by.iter().filter(|(worker, _)| *worker == small).count(), 2);
    assert_eq!(by.iter().filter(|(worker, _)| *worker == large).count(), 4);
    assert!(by[..2].iter().any(|(worker, _)| *worker == small), "{by:?}");
    assert_eq!(dispatcher.limit(), 6, "nobody has room");
}

#[test]
fn a_settlement_is_done_when_the_broker_says_so_and_stays_done() {
    let mut dispatcher = Dispatcher::new(OPTIONS);
    dispatcher.handle_join("w".into(), credits(1));
    dispatcher.handle_emissions(vec![emission(1, "k", false, 10)]);
    dispatcher.handle_settlement(Ticket(1), &claim(1), Outcome::Accepted, Some(2.5));
    let reports = dispatcher.poll_reports().unwrap();
    assert_eq!(reports.ended[0].cost, Some(2.5));
    assert_eq!(answers(&mut dispatcher), []);
    // The same again, and another, while the broker is being told.
    dispatcher.handle_settlement(Ticket(2), &claim(1), Outcome::Accepted, None);
    dispatcher.handle_settlement(Ticket(3), &claim(1), Outcome::Released, None);
    settled(&mut dispatcher, 1);
    assert_eq!(
        answers(&mut dispatcher),
        [(3, Answer::Otherwise(Kind::Accept)), (1, Answer::Done), (2, Answer::Done)]
    );
    dispatcher.handle_settlement(Ticket(4), &claim(1), Outcome::Accepted, None);
    dispatcher.handle_settlement(Ticket(5), &claim(1), Outcome::Released, None);
    assert_eq!(answers(&mut dispatcher), [(4, Answer::Done), (5, Answer::Otherwise(Kind::Accept))]);
    assert!(dispatcher.poll_reports().is_none(), "told once");
}

#[test]
fn what_a_worker_held_when_it_left_is_released() {
    let mut dispatcher = Dispatcher::new(OPTIONS);
    let worker = dispatcher.handle_join("w".into(), credits(3));
    dispatcher.handle_emissions((1..=3).map(|n| emission(n, "k", false, 10)).collect());
    dispatcher.handle_settlement(Ticket(1), &claim(2), Outcome::Accepted, None);
    dispatcher.handle_leave(worker);
    assert_eq!(
        ended(&mut dispatcher),
        [(2, Outcome::Accepted), (1, Outcome::Released), (3, Outcome::Released)]
    );
    // Its settlement is answered all the same.
    settled(&mut dispatcher, 2);
    assert_eq!(answers(&mut dispatcher), [(1, Answer::Done)]);
    // One that comes after it left is told what became of the message.
    dispatcher.handle_settlement(Ticket(2), &claim(1), Outcome::Accepted, None);
    assert_eq!(answers(&mut dispatcher), [(2, Answer::Otherwise(Kind::Release))]);
    assert_eq!(dispatcher.limit(), 0);
}

#[test]
fn a_lease_that_ends_is_told_and_its_place_is_free_when_the_worker_says_something() {
    let mut dispatcher = Dispatcher::new(OPTIONS);
    let worker = dispatcher.handle_join("w".into(), credits(1));
    dispatcher.handle_emissions(vec![emission(1, "k", false, 10)]);
    delivered(&mut dispatcher);
    dispatcher.handle_notice(Notice::Expired { id: DeliveryId(1) });
    assert_eq!(dispatcher.poll_lost().map(|(to, lost)| (to, lost.id)), Some((worker, DeliveryId(1))));
    assert_eq!(ended(&mut dispatcher), [(1, Outcome::Released)], "a report is owed");
    dispatcher.handle_notice(Notice::Void { id: DeliveryId(1), cause: VoidCause::LeaseExpired });
    assert_eq!(dispatcher.limit(), 0, "it is still at it");
    dispatcher.handle_settlement(Ticket(1), &claim(1), Outcome::Accepted, None);
    assert_eq!(answers(&mut dispatcher), [(1, Answer::Expired("the lease had ended"))]);
    assert_eq!(dispatcher.limit(), 1);
}

#[test]
fn what_is_settled_elsewhere_takes_no_place_and_is_not_released() {
    let mut dispatcher = Dispatcher::new(OPTIONS);
    let worker = dispatcher.handle_join("w".into(), credits(2));
    dispatcher.handle_emissions(vec![emission(1, "k", false, 10), emission(2, "k", false, 10)]);
    delivered(&mut dispatcher);
    assert_eq!(dispatcher.limit(), 2, "no room");
    dispatcher.handle_elsewhere(&Claim { handle: "another".into(), ..claim(1) });
    assert_eq!(ended(&mut dispatcher), []);
    dispatcher.handle_elsewhere(&claim(1));
    dispatcher.handle_elsewhere(&claim(1));
    assert_eq!(ended(&mut dispatcher), [(1, Outcome::Elsewhere)], "once");
    assert_eq!(dispatcher.limit(), 2, "one held, and room for one");
    // Whatever is said of it here is for the broker to answer.
    dispatcher.handle_settlement(Ticket(1), &claim(1), Outcome::Accepted, None);
    assert_eq!(answers(&mut dispatcher), [(1, Answer::NotHere)]);
    // What was settled here first stays so.
    dispatcher.handle_settlement(Ticket(2), &claim(2), Outcome::Accepted, None);
    dispatcher.handle_elsewhere(&claim(2));
    dispatcher.handle_leave(worker);
    assert_eq!(ended(&mut dispatcher), [(2, Outcome::Accepted)], "nothing is released");
    settled(&mut dispatcher, 2);
    assert_eq!(answers(&mut dispatcher), [(2, Answer::Done)]);
    assert_eq!(dispatcher.held(), 0);
}

#[test]
fn a_lease_that_ended_is_over_when_it_is_settled_elsewhere() {
    let mut dispatcher = Dispatcher::new(OPTIONS);
    dispatcher.handle_join("w".into(), credits(1));
    dispatcher.handle_emissions(vec![emission(1, "k", false, 10)]);
    delivered(&mut dispatcher);
    dispatcher.handle_notice(Notice::Expired { id: DeliveryId(1) });
    assert_eq!((ended(&mut dispatcher), dispatcher.limit()), (vec![(1, Outcome::Released)], 0));
    dispatcher.handle_elsewhere(&claim(1));
    assert_eq!((ended(&mut dispatcher), dispatcher.limit()), (Vec::new(), 1));
}

#[test]
fn a_delivery_of_an_earlier_life_is_not_mistaken() {
    let mut dispatcher = Dispatcher::new(OPTIONS);
    dispatcher.handle_join("w".into(), credits(1));
    dispatcher.handle_emissions(vec![emission(1, "k", false, 10)]);
    let stale = Claim { message: "another".into(), ..claim(1) };
    dispatcher.handle_settlement(Ticket(1), &stale, Outcome::Accepted, None);
    let stale = Claim { handle: "another".into(), ..claim(1) };
    dispatcher.handle_settlement(Ticket(2), &stale, Outcome::Accepted, None);
    assert_eq!(answers(&mut dispatcher), [(1, Answer::NotHere), (2, Answer::NotHere)]);
    assert!(dispatcher.poll_reports().is_none());
}

#[test]
fn accepted_on_delivery_once_it_is_written() {
    let options = Options { accepts_on_delivery: true, ..OPTIONS };
    let mut dispatcher = Dispatcher::new(options);
    let worker = dispatcher.handle_join("w".into(), credits(1));
    dispatcher.handle_emissions(vec![emission(1, "k", false, 10)]);
    assert!(dispatcher.poll_reports().is_none(), "not written yet");
    dispatcher.handle_written(DeliveryId(1));
    assert_eq!(ended(&mut dispatcher), [(1, Outcome::Accepted)]);
    assert_eq!(dispatcher.limit(), 0, "its place is taken until it says so");
    dispatcher.handle_settlement(Ticket(1), &claim(1), Outcome::Accepted, None);
    assert_eq!(answers(&mut dispatcher), [(1, Answer::Done)]);
    assert_eq!(dispatcher.limit(), 1);
    dispatcher.handle_emissions(vec![emission(2, "k", false, 10)]);
    dispatcher.handle_leave(worker);
    assert_eq!(ended(&mut dispatcher), [(2, Outcome::Released)], "what was not written comes again");
}

#[test]
fn a_key_stays_with_its_worker_while_it_holds_any_of_it() {
    let options = Options { key_affinity: true, ..OPTIONS };
    let mut dispatcher = Dispatcher::new(options);
    dispatcher.handle_join("a".into(), credits(2));
    dispatcher.handle_join("b".into(), credits(2));
    dispatcher.handle_emissions(vec![emission(1, "k", true, 10), emission(2, "k", true, 10)]);
    let home = delivered(&mut dispatcher)[0].0;
    dispatcher.handle_emissions(vec![emission(3, "k", true, 10), emission(4, "other", true, 10)]);
    let next = delivered(&mut dispatcher);
    assert_eq!(next.len(), 1, "{next:?}");
    assert!(next[0].0 != home && next[0].1 == 4, "{next:?}");
    dispatcher.handle_settlement(Ticket(1), &claim(1), Outcome::Accepted, None);
    assert_eq!(delivered(&mut dispatcher), [(home, 3)]);
}

#[test]
fn a_message_larger_than_all_credits_comes_alone() {
    let mut dispatcher = Dispatcher::new(OPTIONS);
    dispatcher.handle_join("w".into(), Credits { messages: 10, bytes: Some(1_000) });
    dispatcher.handle_emissions(vec![emission(1, "k", false, 5_000), emission(2, "k", false, 10)]);
    assert_eq!(delivered(&mut dispatcher).len(), 1);
    dispatcher.handle_settlement(Ticket(1), &claim(1), Outcome::Accepted, None);
    assert_eq!(delivered(&mut dispatcher).len(), 1);
}

#[test]
fn renewals_wait_for_the_flow() {
    let mut dispatcher = Dispatcher::new(OPTIONS);
    dispatcher.handle_join("w".into(), credits(1));
    dispatcher.handle_emissions(vec![emission(1, "k", false, 10)]);
    dispatcher.handle_renewal(Ticket(1), &claim(1), Duration::from_secs(30));
    dispatcher.handle_renewal(Ticket(2), &claim(1), Duration::from_secs(30));
    let wishes = dispatcher.poll_reports().unwrap().renewals;
    assert_eq!(wishes, [RenewalWish { id: DeliveryId(1), length: Duration::from_secs(30) }]);
    let until = Instant::ZERO + Duration::from_secs(90);
    dispatcher.handle_notice(Notice::Renewed { id: DeliveryId(1), result: Ok(until) });
    let renewed: Vec<_> = std::iter::from_fn(|| dispatcher.poll_renewed()).collect();
    assert_eq!(renewed, [(Ticket(1), RenewalAnswer::Until(until)), (Ticket(2), RenewalAnswer::Until(until))]);
}

#[derive(Clone, Debug)]
enum Step {
    Join { credits: usize, bytes: Option<usize> },
    Credits { worker: usize, credits: usize },
    Leave { worker: usize },
    Detach { worker: usize },
    Emit { count: usize, key: u8 },
    Settle { pick: usize, kind: u8 },
    Elsewhere { pick: usize },
    Renew { pick: usize },
    Answer { pick: usize, how: u8 },
    Expire { pick: usize },
    Written { pick: usize },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (0_usize..6, proptest::option::of(1_usize..400)).prop_map(|(credits, bytes)| Step::Join { credits, bytes }),
        1 => (0_usize..9, 0_usize..8).prop_map(|(worker, credits)| Step::Credits { worker, credits }),
        1 => (0_usize..9).prop_map(|worker| Step::Leave { worker }),
        1 => (0_usize..9).prop_map(|worker| Step::Detach { worker }),
        6 => (1_usize..8, 0_u8..4).prop_map(|(count, key)| Step::Emit { count, key }),
        6 => (0_usize..50, 0_u8..4).prop_map(|(pick, kind)| Step::Settle { pick, kind }),
        2 => (0_usize..50).prop_map(|pick| Step::Elsewhere { pick }),
        1 => (0_usize..50).prop_map(|pick| Step::Renew { pick }),
        5 => (0_usize..50, 0_u8..5).prop_map(|(pick, how)| Step::Answer { pick, how }),
        1 => (0_usize..50).prop_map(|pick| Step::Expire { pick }),
        2 => (0_usize..50).prop_map(|pick| Step::Written { pick }),
    ]
}

/// The flow and the workers around a dispatcher, and what they saw.
struct World {
    dispatcher: Dispatcher,
    options: Options,
    workers: Vec<WorkerId>,
    credits: HashMap<WorkerId, Credits>,
    emitted: u64,
    /// Emissions that were not reported.
    open: BTreeSet<u64>,
    /// Reports that the broker has not answered.
    unanswered: Vec<(u64, Kind)>,
    /// What the broker took.
    taken: HashMap<u64, Kind>,
    /// Which worker got which, and which of them it may still count.
    got: BTreeMap<u64, WorkerId>,
    holds: HashMap<WorkerId, BTreeSet<u64>>,
    sizes: HashMap<u64, usize>,
    tickets: u64,
    asked: HashMap<u64, (u64, Kind)>,
    renewals: BTreeSet<u64>,
    last_of_key: HashMap<u8, u64>,
    keys: HashMap<u64, u8>,
}

impl World {
    fn new(options: Options) -> Self {
        Self {
            dispatcher: Dispatcher::new(options),
            options,
            workers: Vec::new(),
            credits: HashMap::new(),
            emitted: 0,
            open: BTreeSet::new(),
            unanswered: Vec::new(),
            taken: HashMap::new(),
            got: BTreeMap::new(),
            holds: HashMap::new(),
            sizes: HashMap::new(),
            tickets: 0,
            asked: HashMap::new(),
            renewals: BTreeSet::new(),
            last_of_key: HashMap::new(),
            keys: HashMap::new(),
        }
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Join { credits: messages, bytes } => {
                let credits = Credits { messages, bytes };
                let worker = self.dispatcher.handle_join("w".into(), credits);
                self.workers.push(worker);
                self.credits.insert(worker, credits);
            }
            Step::Credits { worker, credits } => {
                if let Some(worker) = self.workers.get(worker).copied() {
                    let credits = Credits { messages: credits, ..self.credits[&worker] };
                    self.credits.insert(worker, credits);
                    self.dispatcher.handle_credits(worker, credits);
                }
            }
            Step::Leave { worker } => {
                if worker < self.workers.len() {
                    let worker = self.workers.swap_remove(worker);
                    self.holds.remove(&worker);
                    self.dispatcher.handle_leave(worker);
                }
            }
            Step::Detach { worker } => {
                if worker < self.workers.len() {
                    let worker = self.workers.swap_remove(worker);
                    self.holds.remove(&worker);
                    self.dispatcher.handle_detach(worker);
                }
            }
            Step::Emit { count, key } => {
                let room = self.dispatcher.limit().saturating_sub(self.open.len());
                let mut batch = Vec::new();
                for _ in 0..count.min(room) {
                    self.emitted += 1;
                    let number = self.emitted;
                    let size = (number as usize * 37) % 300;
                    let emission = emission(number, &format!("key-{key}"), true, size);
                    self.sizes.insert(number, emission.message.size_bytes());
                    self.keys.insert(number, key);
                    self.open.insert(number);
                    batch.push(emission);
                }
                if !batch.is_empty() {
                    self.dispatcher.handle_emissions(batch);
                }
            }
            Step::Settle { pick, kind } => {
                let Some(number) = self.pick_got(pick) else { return };
                let outcome = match kind {
                    0 => Outcome::Accepted,
                    1 => Outcome::Deferred { delay: Duration::from_secs(1) },
                    2 => Outcome::Released,
                    _ => Outcome::Rejected { reason: "no".into() },
                };
                self.tickets += 1;
                self.asked.insert(self.tickets, (number, Kind::of(&outcome)));
                self.let_go(number);
                self.dispatcher.handle_settlement(Ticket(self.tickets), &claim(number), outcome, None);
            }
            Step::Elsewhere { pick } => {
                let Some(number) = self.pick_got(pick) else { return };
                self.let_go(number);
                self.dispatcher.handle_elsewhere(&claim(number));
            }
            Step::Renew { pick } => {
                let Some(number) = self.pick_got(pick) else { return };
                self.tickets += 1;
                self.renewals.insert(self.tickets);
                self.dispatcher.handle_renewal(Ticket(self.tickets), &claim(number), Duration::from_secs(9));
            }
            Step::Answer { pick, how } => {
                if self.unanswered.is_empty() {
                    return;
                }
                let (number, kind) = self.unanswered.swap_remove(pick % self.unanswered.len());
                self.answer(number, kind, how);
            }
            Step::Expire { pick } => {
                let open: Vec<u64> = self.open.iter().copied().collect();
                if !open.is_empty() {
                    let id = DeliveryId(open[pick % open.len()]);
                    self.dispatcher.handle_notice(Notice::Expired { id });
                }
            }
            Step::Written { pick } => {
                if let Some(number) = self.pick_got(pick) {
                    self.dispatcher.handle_written(DeliveryId(number));
                }
            }
        }
        self.look();
    }

    fn answer(&mut self, number: u64, kind: Kind, how: u8) {
        let id = DeliveryId(number);
        let fault = |fault| Err(SettleError { verb: "accept", detail: "no".into(), fault });
        let notice = match how {
            0 => Notice::Void { id, cause: VoidCause::LeaseExpired },
            1 => Notice::Settled { id, result: fault(SettleFault::LeaseGone) },
            2 => Notice::Settled { id, result: fault(SettleFault::Broker) },
            _ => {
                self.taken.insert(number, kind);
                Notice::Settled { id, result: Ok(()) }
            }
        };
        self.dispatcher.handle_notice(notice);
    }

    fn pick_got(&self, pick: usize) -> Option<u64> {
        let got: Vec<u64> = self.got.keys().copied().collect();
        (!got.is_empty()).then(|| got[pick % got.len()])
    }

    fn let_go(&mut self, number: u64) {
        for holds in self.holds.values_mut() {
            holds.remove(&number);
        }
    }

    /// Drains what came out and checks it.
    fn look(&mut self) {
        while let Some((worker, emission)) = self.dispatcher.poll_delivery() {
            let number = emission.id.0;
            assert!(self.got.insert(number, worker).is_none(), "{number} was handed out twice");
            assert!(self.open.contains(&number), "{number} was reported before it was handed out");
            let key = self.keys[&number];
            let last = self.last_of_key.insert(key, number);
            assert!(last.is_none_or(|last| last < number), "{number} after {last:?}");
            let Some(credits) = self.credits.get(&worker) else { panic!("nobody's") };
            if self.workers.contains(&worker) {
                let holds = self.holds.entry(worker).or_default();
                assert!(holds.len() < credits.messages.max(1), "{holds:?} of {credits:?}");
                let bytes: usize = holds.iter().map(|held| self.sizes[held]).sum();
                let fits = credits.bytes.is_none_or(|max| bytes + self.sizes[&number] <= max);
                assert!(fits || holds.is_empty(), "{bytes} of {credits:?}");
                holds.insert(number);
            }
        }
        while let Some((worker, lost)) = self.dispatcher.poll_lost() {
            assert_eq!(self.got.get(&lost.id.0), Some(&worker));
        }
        if let Some(reports) = self.dispatcher.poll_reports() {
            for report in reports.ended {
                assert!(self.open.remove(&report.id.0), "{} was reported twice", report.id);
                // The broker is not told, and so has no answer.
                if report.outcome != Outcome::Elsewhere {
                    self.unanswered.push((report.id.0, Kind::of(&report.outcome)));
                }
            }
        }
        while let Some((ticket, answer)) = self.dispatcher.poll_answer() {
            let (number, kind) = self.asked.remove(&ticket.0).expect("an answer to nobody");
            if answer == Answer::Done {
                let accepted = self.options.accepts_on_delivery && kind == Kind::Accept;
                assert!(accepted || self.taken.get(&number) == Some(&kind), "{number} was not {kind}");
            }
        }
        while let Some((ticket, _)) = self.dispatcher.poll_renewed() {
            assert!(self.renewals.remove(&ticket.0), "an answer to nobody");
        }
        assert!(self.dispatcher.limit() <= self.options.held_max.max(self.open.len()));
    }

    /// Everybody leaves, and the broker answers to all.
    fn end(mut self) {
        self.dispatcher.handle_notice(Notice::Draining);
        for worker in std::mem::take(&mut self.workers) {
            self.dispatcher.handle_leave(worker);
        }
        self.look();
        // What was pulled and never settled runs out.
        for number in self.open.clone() {
            self.dispatcher.handle_notice(Notice::Expired { id: DeliveryId(number) });
        }
        self.look();
        for (number, kind) in std::mem::take(&mut self.unanswered) {
            self.answer(number, kind, 3);
        }
        self.look();
        assert_eq!(self.open, BTreeSet::new(), "never reported");
        assert!(self.asked.is_empty(), "never answered: {:?}", self.asked);
        assert!(self.renewals.is_empty(), "never answered: {:?}", self.renewals);
        assert_eq!(self.dispatcher.held(), 0);
        assert_eq!(self.dispatcher.limit(), 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn any_life_keeps_the_promises(
        steps in proptest::collection::vec(step(), 1..120),
        accepts_on_delivery: bool,
        key_affinity: bool,
    ) {
        let mut world = World::new(Options { accepts_on_delivery, key_affinity, held_max: 20, owner_settles: |_| false });
        for step in steps {
            world.take(&step);
        }
        world.end();
    }
}
