use bytes::Bytes;
use proptest::prelude::*;
use tidegate_model::{BodyState, Deferral, Outcome, Routing, SettleFault, Verb};

use super::*;
use crate::{Exhausted, RenewalQuestion, RerunKind, RunEnd, Stage, Story, Valve, Wish};

mod renewal;
mod wish;

const LEASE: Duration = Duration::from_secs(60);

/// A book with hands.
struct Rig {
    now: Instant,
    book: LeaseBook,
    serial: u32,
}

impl Rig {
    fn new(change: impl FnOnce(&mut Options)) -> Self {
        let mut options = Options { seed: 7, ..Options::default() };
        change(&mut options);
        Self { now: Instant::ZERO, book: LeaseBook::new(options, Instant::ZERO), serial: 0 }
    }

    fn wait(&mut self, millis: u64) {
        self.now += Duration::from_millis(millis);
        self.book.handle_timeout(self.now);
    }

    /// `a:1` is message 1 of the ordered key `a`; `a-1` the same without order.
    fn delivery(&mut self, name: &str) -> (Delivery, Arc<str>) {
        let (key, ordered) = match (name.split_once(':'), name.split_once('-')) {
            (Some((key, _)), _) => (key, true),
            (None, Some((key, _))) => (key, false),
            (None, None) => panic!("{name} has no key"),
        };
        let key: Arc<str> = key.into();
        self.serial += 1;
        let message = Message {
            topic: "topic".into(),
            lite_topic: None,
            group: None,
            id: name.into(),
            tag: None,
            keys: Vec::new(),
            properties: Vec::new(),
            body: Bytes::from_static(&[0; 1000]),
            body_state: BodyState::Intact,
            born_at: None,
            stored_at: None,
        };
        let delivery = Delivery {
            message: Arc::new(message),
            order: ordered.then(|| Arc::clone(&key)),
            attempt: 1,
            received_at: self.now,
            lease: LEASE,
            expires_at: self.now + LEASE,
            handle: Handle {
                routing: Arc::new(Routing::default()),
                text: format!("{name}@{}", self.serial).into(),
            },
        };
        (delivery, key)
    }

    fn receive(&mut self, names: &[&str]) {
        let deliveries = names.iter().map(|name| self.delivery(name)).collect();
        self.take(deliveries);
    }

    fn take(&mut self, deliveries: Vec<(Delivery, Arc<str>)>) {
        let granted = self.book.poll_receive(self.now).expect("room");
        self.book.handle_received(self.now, granted, deliveries);
    }

    /// Decides on all that wait: as `verdicts` says by message, else to deliver.
    fn decide(&mut self, verdicts: &[(&str, Verdict)]) -> Vec<Decide> {
        let mut decides = Vec::new();
        while let Some(decide) = self.book.poll_decide(self.now) {
            let of_this = verdicts.iter().find(|(name, _)| *name == decide.message.id.as_str());
            let verdict = of_this.map_or(Verdict::Deliver, |(_, verdict)| verdict.clone());
            self.book.handle_verdict(self.now, decide.id, verdict);
            decides.push(decide);
        }
        decides
    }

    fn emit(&mut self) -> Vec<Emission> {
        std::iter::from_fn(|| self.book.poll_emit(self.now)).collect()
    }

    /// Receives, delivers and emits.
    fn start(&mut self, names: &[&str]) -> Vec<Emission> {
        self.receive(names);
        self.decide(&[]);
        self.emit()
    }

    fn report(&mut self, emission: &Emission, outcome: Outcome) -> Taken {
        self.book.handle_report(self.now, Report { id: emission.id, outcome, cost: None })
    }

    fn settle(&mut self) -> Vec<Settlement> {
        let mut batch = Vec::new();
        self.book.poll_settle_batch(self.now, 100, &mut batch);
        batch
    }

    fn answer(&mut self, settlements: &[Settlement]) {
        for settlement in settlements {
            self.book.handle_settled(self.now, settlement.id, Ok(None));
        }
    }

    fn events(&mut self) -> Vec<BookEvent> {
        std::iter::from_fn(|| self.book.poll_event()).collect()
    }
}

fn defer(seconds: u64) -> Verdict {
    Verdict::Defer(Deferral { delay: Duration::from_secs(seconds), reason: "test".into() })
}

fn names(emissions: &[Emission]) -> Vec<&str> {
    emissions.iter().map(|emission| emission.message.id.as_str()).collect()
}

fn told(settlements: &[Settlement]) -> Vec<String> {
    settlements.iter().map(|settlement| format!("{} {}", settlement.verb, settlement.message.id)).collect()
}

fn handles(settlements: &[Settlement]) -> Vec<&str> {
    settlements.iter().map(|settlement| &*settlement.handle.text).collect()
}

fn run_ended(cause: RunEnd, dropped: usize, overtaken: usize) -> BookEvent {
    BookEvent::RunEnded { order: "a".into(), cause, dropped, overtaken }
}

fn undone(emission: &Emission) -> BookEvent {
    BookEvent::Undone { id: emission.id, message: emission.message.id.clone() }
}

fn rerun(name: &str, kind: RerunKind) -> BookEvent {
    BookEvent::Rerun { message: name.into(), key: "a".into(), kind }
}

fn failure(fault: SettleFault) -> SettleError {
    SettleError { verb: "accept", detail: "test".into(), fault }
}

// === ordered keys ===

#[test]
fn accepts_wait_for_their_predecessors_and_go_together() {
    let mut rig = Rig::new(|_| {});
    let emissions = rig.start(&["a:1", "a:2", "a:3", "a:4"]);
    assert_eq!(names(&emissions), ["a:1", "a:2", "a:3", "a:4"]);
    for late in [2, 1] {
        assert_eq!(rig.report(&emissions[late], Outcome::Accepted), Taken::Yes);
        assert!(rig.settle().is_empty());
    }
    rig.report(&emissions[0], Outcome::Accepted);
    let batch = rig.settle();
    assert_eq!(told(&batch), ["accept a:1", "accept a:2", "accept a:3"]);
    // One batch of a key at a time.
    rig.report(&emissions[3], Outcome::Accepted);
    rig.answer(&batch[..2]);
    assert!(rig.settle().is_empty());
    rig.answer(&batch[2..]);
    let batch = rig.settle();
    assert_eq!(told(&batch), ["accept a:4"]);
    rig.answer(&batch);
    assert_eq!(rig.events(), []);
    assert_eq!((rig.book.counts().in_flight, rig.book.counts().ordered_keys), (0, 0));
}

#[test]
fn what_is_settled_elsewhere_is_not_told_and_holds_nobody_up() {
    let mut rig = Rig::new(|_| {});
    let emissions = rig.start(&["a:1", "a:2", "a:3", "a:4"]);
    assert_eq!(rig.report(&emissions[1], Outcome::Elsewhere), Taken::Yes);
    assert_eq!(
        rig.report(&emissions[1], Outcome::Accepted),
        Taken::Unknown,
        "it is not this host's any more"
    );
    rig.report(&emissions[2], Outcome::Accepted);
    assert!(rig.settle().is_empty(), "the first is open");
    rig.report(&emissions[0], Outcome::Accepted);
    let first = rig.settle();
    assert_eq!(told(&first), ["accept a:1"]);
    rig.answer(&first);
    let third = rig.settle();
    assert_eq!(told(&third), ["accept a:3"]);
    rig.answer(&third);
    rig.report(&emissions[3], Outcome::Elsewhere);
    assert!(rig.settle().is_empty());
    assert_eq!((rig.book.counts().in_flight, rig.book.counts().ordered_keys), (0, 0));
    assert_eq!(rig.events(), []);
    // Its lease ends without anything having been told: the broker begins anew, and so does the book.
    rig.wait(60_000);
    let again = rig.start(&["a:4", "a:5"]);
    assert_eq!(names(&again), ["a:4", "a:5"]);
}

#[test]
fn what_came_anew_is_accepted_here_since_its_receipt_is_void_elsewhere() {
    let mut rig = Rig::new(|_| {});
    let emissions = rig.start(&["a:1", "a:2", "a:3"]);
    rig.report(&emissions[0], Outcome::Released);
    let batch = rig.settle();
    assert_eq!(told(&batch), ["release a:1"]);
    rig.answer(&batch);
    // The broker begins anew; workers are still at 2 and 3, with receipts of the leases before.
    let again = rig.start(&["a:1", "a:2", "a:3"]);
    assert_eq!(names(&again), ["a:1"]);
    rig.report(&emissions[2], Outcome::Elsewhere);
    rig.report(&emissions[1], Outcome::Elsewhere);
    rig.report(&again[0], Outcome::Accepted);
    let batch = rig.settle();
    assert_eq!(told(&batch), ["accept a:1", "accept a:2", "accept a:3"]);
    assert_eq!(handles(&batch), ["a:1@4", "a:2@5", "a:3@6"]);
    rig.answer(&batch);
    assert_eq!((rig.book.counts().in_flight, rig.book.counts().ordered_keys), (0, 0));
}

#[test]
fn what_comes_anew_while_it_waits_is_accepted_here() {
    let mut rig = Rig::new(|_| {});
    let emissions = rig.start(&["a-1"]);
    rig.report(&emissions[0], Outcome::Elsewhere);
    assert!(rig.start(&["a-1"]).is_empty(), "it is held");
    let batch = rig.settle();
    assert_eq!((told(&batch), handles(&batch)), (vec!["accept a-1".to_owned()], vec!["a-1@2"]));
}

#[test]
fn what_is_settled_elsewhere_comes_again_with_what_was_before_it() {
    let mut rig = Rig::new(|_| {});
    let emissions = rig.start(&["a:1", "a:2", "b-1"]);
    rig.report(&emissions[1], Outcome::Elsewhere);
    rig.report(&emissions[2], Outcome::Elsewhere);
    assert!(rig.settle().is_empty());
    rig.report(&emissions[0], Outcome::Released);
    let batch = rig.settle();
    assert_eq!(told(&batch), ["release a:1"]);
    rig.answer(&batch);
    assert_eq!(rig.book.counts().in_flight, 0);
    assert_eq!(names(&rig.start(&["a:1", "a:2"])), ["a:1", "a:2"]);
}

#[test]
fn keys_do_not_wait_for_each_other() {
    let mut rig = Rig::new(|_| {});
    let emissions = rig.start(&["a:1", "b:1", "a:2", "b:2"]);
    assert_eq!(names(&emissions), ["a:1", "b:1", "a:2", "b:2"]);
    rig.report(&emissions[3], Outcome::Accepted);
    rig.report(&emissions[1], Outcome::Accepted);
    assert_eq!(told(&rig.settle()), ["accept b:1", "accept b:2"]);
}

#[test]
fn only_accepts_share_a_batch() {
    let mut rig = Rig::new(|_| {});
    let emissions = rig.start(&["a:1", "a:2", "a:3"]);
    rig.report(&emissions[0], Outcome::Accepted);
    rig.report(&emissions[1], Outcome::Rejected { reason: "test".into() });
    rig.report(&emissions[2], Outcome::Accepted);
    for expected in ["accept a:1", "reject a:2", "accept a:3"] {
        let batch = rig.settle();
        assert_eq!(told(&batch), [expected]);
        rig.answer(&batch);
    }
    assert_eq!(rig.events(), []);
}

#[test]
fn a_policys_deferral_drops_the_tail_and_waits_for_what_is_before() {
    let mut rig = Rig::new(|_| {});
    rig.receive(&["a:1", "a:2", "a:3", "a:4"]);
    let decides = rig.decide(&[("a:2", defer(10))]);
    assert_eq!(decides.len(), 2, "the tail is not decided about");
    assert_eq!(rig.events(), [run_ended(RunEnd::Deferred, 2, 0)]);
    let emissions = rig.emit();
    assert_eq!(names(&emissions), ["a:1"]);
    rig.wait(4_000);
    rig.report(&emissions[0], Outcome::Accepted);
    let batch = rig.settle();
    assert_eq!(told(&batch), ["accept a:1"]);
    rig.wait(1_000);
    rig.answer(&batch);
    let batch = rig.settle();
    assert_eq!(batch[0].verb, Verb::Defer(Duration::from_secs(5)), "the wait does not lengthen it");
    rig.answer(&batch);
    assert_eq!(rig.book.counts().in_flight, 0);

    rig.receive(&["a:2", "a:3"]);
    let decides = rig.decide(&[]);
    let facts: Vec<_> = decides.iter().map(|decide| (decide.attempt, decide.deferred.as_secs())).collect();
    assert_eq!(facts, [(2, 5), (1, 0)], "the dropped tail had no attempt");
    let redelivered = BookEvent::Redelivered { message: "a:2".into(), key: "a".into(), attempt: 2 };
    assert_eq!(rig.events(), [redelivered, rerun("a:3", RerunKind::Dropped)]);
}

#[test]
fn a_workers_deferral_overtakes_what_is_emitted() {
    let mut rig = Rig::new(|_| {});
    let emissions = rig.start(&["a:1", "a:2", "a:3", "a:4"]);
    rig.report(&emissions[2], Outcome::Accepted);
    rig.report(&emissions[0], Outcome::Deferred { delay: Duration::from_secs(1) });
    assert_eq!(rig.events(), [undone(&emissions[2]), run_ended(RunEnd::Deferred, 1, 2)]);
    assert_eq!(rig.report(&emissions[1], Outcome::Accepted), Taken::Overtaken);
    assert_eq!(rig.report(&emissions[1], Outcome::Accepted), Taken::Unknown);
    let batch = rig.settle();
    assert_eq!(told(&batch), ["defer a:1"]);
    rig.answer(&batch);

    // Message 4 is still being worked on: its new lease goes to that work.
    let again = rig.start(&["a:1", "a:2", "a:3", "a:4"]);
    assert_eq!(names(&again), ["a:1", "a:2", "a:3"]);
    let kinds = [
        BookEvent::Redelivered { message: "a:1".into(), key: "a".into(), attempt: 2 },
        rerun("a:2", RerunKind::Duplicate),
        rerun("a:3", RerunKind::Duplicate),
        rerun("a:4", RerunKind::StillHeld),
    ];
    assert_eq!(rig.events(), kinds);
    assert_eq!(rig.report(&emissions[3], Outcome::Accepted), Taken::Yes);
    assert!(rig.settle().is_empty(), "it waits for its predecessors of the new run");
    for emission in &again {
        rig.report(emission, Outcome::Accepted);
    }
    assert_eq!(handles(&rig.settle()), ["a:1@5", "a:2@6", "a:3@7", "a:4@8"]);
}

#[test]
fn a_failed_settlement_ends_the_run() {
    let mut rig = Rig::new(|_| {});
    let emissions = rig.start(&["a:1", "a:2", "a:3"]);
    rig.report(&emissions[0], Outcome::Accepted);
    rig.report(&emissions[1], Outcome::Accepted);
    let batch = rig.settle();
    let error = failure(SettleFault::Broker);
    rig.book.handle_settled(rig.now, batch[0].id, Err(error.clone()));
    let failed = BookEvent::SettleFailed { message: "a:1".into(), key: "a".into(), error };
    assert_eq!(rig.events(), [failed, run_ended(RunEnd::SettleFailed, 0, 1)]);
    assert_eq!(rig.report(&emissions[2], Outcome::Accepted), Taken::Overtaken);
    rig.answer(&batch[1..]);
    assert_eq!(rig.book.counts().in_flight, 0);

    // The accept of message 2 was answered, and does not last.
    rig.receive(&["a:1", "a:2"]);
    assert_eq!(rig.events()[1], rerun("a:2", RerunKind::Duplicate));
}

#[test]
fn what_an_earlier_life_is_told_does_not_end_the_next() {
    let mut rig = Rig::new(|_| {});
    let emissions = rig.start(&["a:1", "a:2"]);
    rig.report(&emissions[0], Outcome::Accepted);
    let old = rig.settle();
    // The broker begins anew before it answers.
    let again = rig.start(&["a:1", "a:2", "a:3"]);
    assert_eq!(names(&again), ["a:1", "a:3"], "message 2 is being worked on");
    rig.book.handle_settled(rig.now, old[0].id, Err(failure(SettleFault::LeaseGone)));
    for emission in [&again[0], &emissions[1], &again[1]] {
        assert_eq!(rig.report(emission, Outcome::Accepted), Taken::Yes);
    }
    assert_eq!(handles(&rig.settle()), ["a:1@3", "a:2@4", "a:3@5"]);
}

#[test]
fn a_new_beginning_is_seen_before_its_first_message_is_known() {
    let mut rig = Rig::new(|_| {});
    let emissions = rig.start(&["a:1", "a:2", "a:3"]);
    rig.report(&emissions[0], Outcome::Accepted);
    let batch = rig.settle();
    rig.answer(&batch);
    rig.report(&emissions[2], Outcome::Released);
    rig.events();
    // The accept of message 1 was answered and lost. Messages 2 and 3 must come after it, not before.
    rig.receive(&["a:1", "a:2", "a:3"]);
    assert_eq!(rig.events()[..2], [undone(&emissions[2]), run_ended(RunEnd::HandedOutAgain, 1, 1)]);
    rig.decide(&[]);
    assert_eq!(names(&rig.emit()), ["a:1", "a:3"]);
    assert_eq!(rig.report(&emissions[1], Outcome::Accepted), Taken::Yes);
    assert!(rig.settle().is_empty());
}

#[test]
fn what_comes_behind_a_pending_deferral_comes_again() {
    let mut rig = Rig::new(|_| {});
    rig.receive(&["a:1", "a:2"]);
    rig.decide(&[("a:2", defer(5))]);
    rig.receive(&["a:3"]);
    assert_eq!(rig.events(), [run_ended(RunEnd::Deferred, 1, 0)]);
    assert_eq!(rig.book.counts().in_flight, 2);
}

#[test]
fn work_is_not_taken_back_into_a_run_that_ends_in_a_deferral() {
    let mut rig = Rig::new(|_| {});
    let emissions = rig.start(&["a:1", "a:2", "a:3"]);
    rig.report(&emissions[0], Outcome::Released);
    let batch = rig.settle();
    rig.answer(&batch);
    assert_eq!(names(&rig.start(&["a:1", "a:2"])), ["a:1"]);
    rig.report(&emissions[1], Outcome::Released);
    rig.receive(&["a:3"]);
    assert_eq!(rig.report(&emissions[2], Outcome::Accepted), Taken::Overtaken);
}

#[test]
fn verdicts_out_of_order_do_not_change_the_order_of_emissions() {
    let mut rig = Rig::new(|_| {});
    rig.receive(&["a:1", "a:2", "a:3"]);
    let ids: Vec<_> = std::iter::from_fn(|| rig.book.poll_decide(rig.now)).map(|decide| decide.id).collect();
    rig.book.handle_verdict(rig.now, ids[2], Verdict::Deliver);
    rig.book.handle_verdict(rig.now, ids[1], Verdict::Discard { reason: "test".into() });
    assert!(rig.emit().is_empty());
    rig.book.handle_verdict(rig.now, ids[0], Verdict::Deliver);
    assert_eq!(names(&rig.emit()), ["a:1", "a:3"]);
    assert!(rig.settle().is_empty(), "the discarded one waits for its predecessor");
}

#[test]
fn a_verdict_on_a_dropped_delivery_is_not_a_bug() {
    let mut rig = Rig::new(|_| {});
    rig.receive(&["a:1", "a:2"]);
    let ids: Vec<_> = std::iter::from_fn(|| rig.book.poll_decide(rig.now)).map(|decide| decide.id).collect();
    rig.book.handle_verdict(rig.now, ids[0], defer(5));
    rig.book.handle_verdict(rig.now, ids[1], Verdict::Deliver);
    assert_eq!(rig.events(), [run_ended(RunEnd::Deferred, 1, 0)]);
    assert!(rig.emit().is_empty());
}

// === leases ===

#[test]
fn a_lease_that_ran_out_is_not_used() {
    let mut rig = Rig::new(|_| {});
    let emissions = rig.start(&["a:1", "b-1"]);
    rig.receive(&["c-1", "c-2"]);
    rig.book.poll_decide(rig.now).expect("c-1");
    // Before any timer fires.
    rig.now += LEASE;
    assert_eq!(rig.report(&emissions[0], Outcome::Accepted), Taken::LeaseExpired);
    assert_eq!(rig.report(&emissions[0], Outcome::Accepted), Taken::Unknown);
    assert!(rig.book.poll_decide(rig.now).is_none());
    assert!(rig.emit().is_empty());
    rig.wait(20);
    assert_eq!(rig.report(&emissions[1], Outcome::Accepted), Taken::LeaseExpired);
    assert!(rig.settle().is_empty());
    assert_eq!(rig.book.counts().in_flight, 0);
    let stages: Vec<_> = rig
        .events()
        .into_iter()
        .map(|event| match event {
            BookEvent::Expired { stage, .. } => stage,
            other => panic!("{other:?}"),
        })
        .collect();
    let mut expected = vec![Stage::Emitted, Stage::Undecided, Stage::Undecided, Stage::Emitted];
    expected.sort_by_key(|stage| *stage as u8);
    let mut sorted = stages;
    sorted.sort_by_key(|stage| *stage as u8);
    assert_eq!(sorted, expected);
}

#[test]
fn the_timeout_is_told_and_ends_leases() {
    let mut rig = Rig::new(|_| {});
    assert_eq!(rig.book.poll_timeout(), None);
    rig.receive(&["a:1"]);
    while let Some(at) = rig.book.poll_timeout() {
        assert!(at > rig.now, "no progress");
        rig.now = at;
        rig.book.handle_timeout(at);
    }
    assert_eq!(rig.book.counts().in_flight, 0);
    let late = rig.now.saturating_since(Instant::ZERO + LEASE);
    assert!(late < Duration::from_millis(20), "{late:?} late");
}

#[test]
fn work_that_is_lost_is_emitted_again() {
    let mut rig = Rig::new(|_| {});
    let lost = rig.start(&["a:1"]);
    // The key is begun anew again and again, each time before the lease ends.
    for _ in 0..3 {
        rig.wait(19_000);
        assert!(rig.start(&["a:1"]).is_empty(), "it is being worked on");
    }
    rig.wait(4_000);
    let again = rig.start(&["a:1"]);
    assert_eq!(names(&again), ["a:1"], "the lease that its worker was told of has ended");
    assert_eq!(rig.report(&lost[0], Outcome::Accepted), Taken::LeaseExpired);
    rig.report(&again[0], Outcome::Accepted);
    assert_eq!(handles(&rig.settle()), ["a:1@5"]);
}

#[test]
fn without_order_the_newest_lease_counts_in_every_state() {
    let mut rig = Rig::new(|_| {});
    let emissions = rig.start(&["a-1", "a-2"]);
    rig.report(&emissions[1], Outcome::Accepted);
    rig.receive(&["a-3"]);
    rig.receive(&["a-1", "a-2", "a-3"]);
    rig.decide(&[]);
    let third = rig.emit();
    assert_eq!(names(&third), ["a-3"]);
    assert_eq!(&*third[0].handle.text, "a-3@6");
    rig.report(&emissions[0], Outcome::Accepted);
    assert_eq!(handles(&rig.settle()), ["a-2@5", "a-1@4"]);
    let reruns = ["a-1", "a-2", "a-3"].map(|name| rerun(name, RerunKind::StillHeld));
    assert_eq!(rig.events(), reruns);
}

#[test]
fn what_was_given_back_past_the_host_is_emitted_again_at_once() {
    let mut rig = Rig::new(|options| options.may_be_given_back = true);
    let old = rig.start(&["a-1", "b-1"]);
    rig.wait(1000);
    let new = rig.start(&["a-1"]);
    assert_eq!(names(&new), ["a-1"]);
    assert_eq!(new[0].attempt, 2);
    assert!(
        matches!(&rig.events()[..], [BookEvent::Expired { id, stage: Stage::Emitted, .. }, ..] if *id == old[0].id)
    );
    assert_eq!(rig.report(&old[0], Outcome::Accepted), Taken::LeaseExpired);
    assert_eq!(rig.report(&new[0], Outcome::Accepted), Taken::Yes);
    assert_eq!(rig.report(&old[1], Outcome::Accepted), Taken::Yes, "the other is not touched");
    assert_eq!(told(&rig.settle()), ["accept a-1", "accept b-1"]);
}

#[test]
fn of_an_ordered_key_all_that_is_out_is_emitted_again_in_order() {
    let mut rig = Rig::new(|options| options.may_be_given_back = true);
    let old = rig.start(&["a:1", "a:2", "a:3"]);
    // Whichever was given back, the broker begins with the first that is open.
    let new = rig.start(&["a:1", "a:2"]);
    assert_eq!(names(&new), ["a:1", "a:2"]);
    assert_eq!(rig.report(&old[1], Outcome::Accepted), Taken::LeaseExpired);
    assert_eq!(rig.report(&old[2], Outcome::Accepted), Taken::Overtaken);
    assert_eq!(names(&rig.start(&["a:3"])), ["a:3"]);
    assert_eq!(rig.report(&new[1], Outcome::Accepted), Taken::Yes);
    assert!(rig.settle().is_empty(), "the first is open");
    assert_eq!(rig.report(&new[0], Outcome::Accepted), Taken::Yes);
    assert_eq!(told(&rig.settle()), ["accept a:1", "accept a:2"]);
}

#[test]
fn what_comes_again_behind_an_earlier_one_of_its_key_is_still_worked_on() {
    let mut rig = Rig::new(|options| options.may_be_given_back = true);
    let emissions = rig.start(&["a:1", "a:2"]);
    assert_eq!(rig.report(&emissions[0], Outcome::Released), Taken::Yes);
    let released = rig.settle();
    rig.answer(&released);
    assert_eq!(names(&rig.start(&["a:1", "a:2"])), ["a:1"]);
    assert_eq!(rig.report(&emissions[1], Outcome::Accepted), Taken::Yes);
}

#[test]
fn what_is_open_follows_the_demand_and_nothing_is_dropped() {
    let mut rig = Rig::new(|options| options.budget_messages = 10);
    rig.book.handle_demand(3);
    let grant = |rig: &mut Rig| rig.book.poll_receive(rig.now).map(|granted| granted.messages);
    let emissions = rig.start(&["a-1", "a-2"]);
    let granted = rig.book.poll_receive(rig.now).expect("room for one");
    assert_eq!(granted.messages, 1);
    assert_eq!(grant(&mut rig), None, "what is asked for counts");
    rig.book.handle_received(rig.now, granted, Vec::new());
    rig.book.handle_demand(0);
    assert_eq!(grant(&mut rig), None);
    assert_eq!(rig.report(&emissions[0], Outcome::Accepted), Taken::Yes);
    assert_eq!(rig.report(&emissions[1], Outcome::Accepted), Taken::Yes);
    rig.book.handle_demand(1);
    assert_eq!(grant(&mut rig), Some(1), "what is being settled does not count");
    rig.book.handle_demand(usize::MAX);
    assert_eq!(grant(&mut rig), Some(7), "the budget goes on");
}

#[test]
fn an_older_lease_does_not_replace_a_newer() {
    let mut rig = Rig::new(|_| {});
    rig.now = Instant::from_millis(10);
    let old = rig.delivery("a:1");
    rig.now = Instant::from_millis(20);
    let emissions = rig.start(&["a:1"]);
    rig.take(vec![old]);
    rig.report(&emissions[0], Outcome::Accepted);
    assert_eq!(handles(&rig.settle()), ["a:1@2"]);
}

#[test]
fn messages_with_one_id_are_told_apart() {
    let mut rig = Rig::new(|_| {});
    // In one receive the broker does not repeat itself.
    let emissions = rig.start(&["a:same", "a:same"]);
    assert_eq!(emissions.len(), 2);
    // In another, the content tells.
    let (mut other, key) = rig.delivery("a:same");
    Arc::get_mut(&mut other.message).expect("not shared").body = Bytes::from_static(b"other");
    rig.take(vec![(other, key)]);
    rig.decide(&[]);
    let third = rig.emit();
    for emission in emissions.iter().chain(&third) {
        assert_eq!(rig.report(emission, Outcome::Accepted), Taken::Yes);
    }
    assert_eq!(handles(&rig.settle()), ["a:same@1", "a:same@2", "a:same@3"]);
}

#[test]
fn an_id_is_not_taken_for_that_of_a_later_delivery() {
    let mut rig = Rig::new(|_| {});
    let first = rig.start(&["a-1"]);
    rig.report(&first[0], Outcome::Accepted);
    let batch = rig.settle();
    rig.answer(&batch);
    let second = rig.start(&["a-2"]);
    assert_ne!(first[0].id, second[0].id);
    assert_eq!(rig.report(&first[0], Outcome::Accepted), Taken::Unknown);
    assert_eq!(rig.events(), []);
    rig.answer(&batch);
    let what = "a result for a settlement that was not on its way";
    assert_eq!(rig.events(), [BookEvent::Bug { what, id: Some(first[0].id) }]);
}

// === valves ===

#[test]
fn a_policy_cannot_defer_for_ever() {
    for exhausted in [Exhausted::Accept, Exhausted::Reject] {
        let mut rig = Rig::new(|options| {
            options.valves.max_delivery_attempt = 3;
            options.valves.exhausted = exhausted;
        });
        for _ in 0..2 {
            rig.receive(&["a:1"]);
            rig.decide(&[("a:1", defer(1))]);
            let batch = rig.settle();
            assert_eq!(told(&batch), ["defer a:1"]);
            rig.answer(&batch);
        }
        rig.receive(&["a:1"]);
        rig.events();
        rig.decide(&[("a:1", defer(1))]);
        let valve = BookEvent::Valve { message: "a:1".into(), key: "a".into(), valve: Valve::Attempts };
        assert_eq!(rig.events(), [valve]);
        match exhausted {
            Exhausted::Accept => assert_eq!(names(&rig.emit()), ["a:1"]),
            Exhausted::Reject => assert_eq!(told(&rig.settle()), ["reject a:1"]),
        }
    }
}

#[test]
fn what_a_source_keeps_costs_no_attempt_unless_somebody_worked_on_it() {
    let mut rig = Rig::new(|options| {
        options.keeps_deferred = true;
        options.valves.max_delivery_attempt = 2;
        options.valves.max_total_deferral = Duration::from_secs(3600);
    });
    for _ in 0..20 {
        rig.receive(&["a-1"]);
        assert_eq!(rig.decide(&[("a-1", defer(1))])[0].attempt, 1);
        let batch = rig.settle();
        assert_eq!(told(&batch), ["defer a-1"]);
        rig.answer(&batch);
    }
    assert!(rig.events().is_empty(), "nothing was handed out again");
    rig.receive(&["a-1"]);
    rig.decide(&[]);
    let emissions = rig.emit();
    rig.report(&emissions[0], Outcome::Deferred { delay: Duration::from_secs(1) });
    let batch = rig.settle();
    rig.answer(&batch);
    rig.receive(&["a-1"]);
    assert_eq!(rig.decide(&[])[0].attempt, 2, "a worker had it");
}

#[test]
fn a_deferral_is_cut_and_their_sum_is_bounded() {
    let mut rig = Rig::new(|options| {
        options.valves.max_invisible_duration = Duration::from_secs(10);
        options.valves.max_total_deferral = Duration::from_secs(15);
    });
    for expected in [10, 5] {
        rig.receive(&["a-1"]);
        rig.decide(&[("a-1", defer(3600))]);
        let batch = rig.settle();
        assert_eq!(batch[0].verb, Verb::Defer(Duration::from_secs(expected)), "no jitter past the valve");
        rig.answer(&batch);
    }
    rig.receive(&["a-1"]);
    rig.decide(&[("a-1", defer(1))]);
    assert_eq!(names(&rig.emit()), ["a-1"]);
}

#[test]
fn a_worker_that_defers_is_never_taken_for_done() {
    let mut rig = Rig::new(|options| options.valves.max_delivery_attempt = 1);
    let emissions = rig.start(&["a:1"]);
    rig.report(&emissions[0], Outcome::Deferred { delay: Duration::from_secs(3600) });
    assert_eq!(rig.settle()[0].verb, Verb::Defer(Duration::from_secs(1800)));
}

#[test]
fn valves_change_while_running() {
    let mut rig = Rig::new(|_| {});
    rig.receive(&["a:1"]);
    rig.book.handle_valves(Valves { max_delivery_attempt: 1, ..Valves::default() });
    rig.decide(&[("a:1", defer(1))]);
    assert_eq!(names(&rig.emit()), ["a:1"]);
}

#[test]
fn deferrals_of_one_key_come_back_together() {
    let mut rig = Rig::new(|_| {});
    let mut due = std::collections::BTreeSet::new();
    for message in 0..50 {
        let name = format!("a-{message}");
        rig.receive(&[&name]);
        rig.decide(&[(&name, defer(10))]);
        let batch = rig.settle();
        let Verb::Defer(delay) = batch[0].verb else { panic!("{:?}", batch[0].verb) };
        assert!((Duration::from_secs(10)..=Duration::from_secs(11)).contains(&delay), "{delay:?}");
        due.insert(rig.now + delay);
        rig.answer(&batch);
        rig.wait(10);
    }
    assert!(due.len() <= 2, "{due:?}");
}

// === budget, drain ===

#[test]
fn the_budget_is_shared_by_grants_and_deliveries() {
    let mut rig = Rig::new(|options| {
        options.budget_messages = 10;
        options.budget_bytes = 10_000;
        options.receive_batch_max = 4;
    });
    let first = rig.book.poll_receive(rig.now).expect("room");
    assert_eq!(first, Capacity { messages: 4, bytes: 4_000 });
    let second = rig.book.poll_receive(rig.now).expect("room");
    let third = rig.book.poll_receive(rig.now).expect("room");
    assert_eq!((second.messages, third), (4, Capacity { messages: 2, bytes: 2_000 }));
    assert_eq!(rig.book.poll_receive(rig.now), None);
    rig.book.handle_received(rig.now, second, Vec::new());
    assert_eq!(rig.book.poll_receive(rig.now), Some(second), "a grant that brought nothing is free again");
    let deliveries = (0..4).map(|number| rig.delivery(&format!("a-{number}"))).collect();
    rig.book.handle_received(rig.now, first, deliveries);
    assert_eq!(rig.book.poll_receive(rig.now), None);
    rig.book.handle_received(rig.now, second, Vec::new());
    rig.book.handle_received(rig.now, third, Vec::new());
    let bytes = rig.book.counts().in_flight_bytes;
    let capacity = Capacity { messages: 4, bytes: (10_000 - bytes).min(4_000) };
    assert_eq!(rig.book.poll_receive(rig.now), Some(capacity));
    assert_eq!(rig.events(), []);
}

#[test]
fn bytes_alone_can_exhaust_the_budget() {
    let mut rig = Rig::new(|options| options.budget_bytes = 2_000);
    rig.receive(&["a-1", "a-2"]);
    assert_eq!(rig.book.poll_receive(rig.now), None);
}

#[test]
fn a_drain_gives_back_what_is_not_emitted_and_finishes_the_rest() {
    let mut rig = Rig::new(|_| {});
    let emissions = rig.start(&["a:1", "b-1"]);
    rig.receive(&["a:2", "a:3", "b-2", "b-3"]);
    let open = rig.book.poll_receive(rig.now).expect("room");
    let undecided = rig.book.poll_decide(rig.now).expect("a:2");
    rig.book.handle_drain(rig.now);
    assert_eq!(rig.book.poll_receive(rig.now), None);
    rig.book.handle_verdict(rig.now, undecided.id, Verdict::Deliver);
    assert!(rig.emit().is_empty());
    let batch = rig.settle();
    assert_eq!(told(&batch), ["release b-2", "release b-3"]);
    rig.answer(&batch);
    let late = ["c:1", "c:2"].map(|name| rig.delivery(name)).into();
    rig.book.handle_received(rig.now, open, late);
    let batch = rig.settle();
    assert_eq!(told(&batch), ["release c:1"], "the second comes again with the first");
    rig.answer(&batch);
    for emission in &emissions {
        assert_eq!(rig.report(emission, Outcome::Accepted), Taken::Yes);
    }
    let batch = rig.settle();
    assert_eq!(told(&batch), ["accept a:1", "accept b-1"]);
    rig.answer(&batch);
    assert!(!rig.book.is_drained());
    let batch = rig.settle();
    assert_eq!(told(&batch), ["release a:2"]);
    rig.answer(&batch);
    assert!(rig.book.is_drained());
}

#[test]
fn after_a_drain_it_begins_again() {
    let mut rig = Rig::new(|_| {});
    rig.start(&["a:1"]);
    let granted = rig.book.poll_receive(rig.now).expect("room");
    rig.book.handle_drain(rig.now);
    assert_eq!(rig.book.poll_receive(rig.now), None);
    let late = ["a:2", "b-1"].map(|name| rig.delivery(name));
    rig.book.handle_received(rig.now, granted, late.into());
    assert!(rig.book.poll_decide(rig.now).is_none(), "what comes meanwhile goes back undecided");
    assert_eq!(told(&rig.settle()), ["release b-1"], "the ordered key waits for what is emitted");

    rig.book.handle_resume();
    let emissions = rig.start(&["c:1"]);
    assert_eq!(names(&emissions), ["c:1"]);
    assert!(!rig.book.is_drained());
    assert_eq!(rig.events(), []);
}

// === stories ===

/// Whatever a delivery ends in, the next one of its message knows when the first was received.
#[test]
fn the_first_reception_is_remembered() {
    let mut rig = Rig::new(|_| {});
    let deferred = rig.start(&["a-1"]);
    rig.report(&deferred[0], Outcome::Released);
    let batch = rig.settle();
    rig.answer(&batch);
    rig.wait(1_000);
    rig.start(&["a-1", "b:1", "b:2"]);
    // One lease runs out in the sink, and the other delivery of its key is dropped with it.
    rig.wait(LEASE.as_millis() as u64);
    rig.receive(&["a-1", "b:1", "b:2"]);
    let stories: Vec<_> = rig.decide(&[]).iter().map(|decide| rig.book.story(decide.id)).collect();
    let second = Instant::from_millis(1_000);
    let story = |first_received_at| Story {
        first_received_at,
        received_at: rig.now,
        expires_at: rig.now + LEASE,
        rejected_by_policy: false,
    };
    assert_eq!(stories, [Instant::ZERO, second, second].map(|first| Some(story(first))));
}

#[test]
fn a_rejection_is_the_policys_or_not() {
    let rejection = || Verdict::Reject { reason: "test".into() };
    let valves = Valves { max_delivery_attempt: 1, exhausted: Exhausted::Reject, ..Valves::default() };
    let mut rig = Rig::new(|options| options.valves = valves);
    rig.receive(&["a-1", "b-1", "c-1"]);
    rig.decide(&[("a-1", rejection()), ("b-1", defer(1))]);
    let emissions = rig.emit();
    rig.report(&emissions[0], Outcome::Rejected { reason: "test".into() });
    let batch = rig.settle();
    assert_eq!(told(&batch), ["reject a-1", "reject b-1", "reject c-1"]);
    let by_policy = |settlement: &Settlement| rig.book.story(settlement.id).map(|s| s.rejected_by_policy);
    assert_eq!(batch.iter().map(by_policy).collect::<Vec<_>>(), [Some(true), Some(false), Some(false)]);
    rig.answer(&batch);
    assert_eq!(rig.book.story(batch[0].id), None, "it is over");
}

// === fairness ===

#[test]
fn bytes_are_shared_not_messages() {
    let mut rig = Rig::new(|_| {});
    let mut deliveries = Vec::new();
    for number in 0..8 {
        let (mut large, key) = rig.delivery(&format!("large-{number}"));
        // Four units each.
        Arc::get_mut(&mut large.message).expect("not shared").body = Bytes::from(vec![0; 200_000]);
        deliveries.push((large, key));
        deliveries.push(rig.delivery(&format!("small-{number}")));
    }
    rig.take(deliveries);
    rig.decide(&[]);
    let order = rig.emit();
    let first_eight = names(&order[..8]).iter().filter(|name| name.starts_with("small")).count();
    assert!((6..=7).contains(&first_eight), "{:?}", names(&order));
}

proptest! {
    /// Whatever the others hold, a key is served once every round.
    #[test]
    fn a_backlog_delays_another_key_by_one_round(backlogs in prop::collection::vec(1_usize..12, 1..6)) {
        let mut rig = Rig::new(|_| {});
        let mut others = Vec::new();
        for (key, backlog) in backlogs.iter().enumerate() {
            let order = if key % 2 == 0 { ':' } else { '-' };
            others.extend((0..*backlog).map(|number| format!("{key}{order}{number}")));
        }
        let others: Vec<&str> = others.iter().map(String::as_str).collect();
        rig.receive(&others);
        rig.decide(&[]);
        let first = rig.book.poll_emit(rig.now);
        prop_assert!(first.is_some());
        rig.receive(&["quiet:1"]);
        rig.decide(&[]);
        let order = rig.emit();
        let waited = names(&order).iter().position(|name| *name == "quiet:1");
        prop_assert!(waited.is_some_and(|waited| waited <= backlogs.len()), "{:?}", names(&order));
        // Ordered keys kept their order.
        for key in (0..backlogs.len()).step_by(2) {
            let prefix = format!("{key}:");
            let numbers: Vec<usize> = first
                .iter()
                .chain(&order)
                .filter_map(|emission| emission.message.id.as_str().strip_prefix(&prefix)?.parse().ok())
                .collect();
            prop_assert!(numbers.is_sorted(), "{numbers:?}");
        }
    }
}

#[test]
fn standing_tells_what_a_key_does() {
    let mut rig = Rig::new(|_| {});
    let emissions = rig.start(&["a-1", "a-2", "a-3", "b-1"]);
    rig.wait(1_000);
    let cost = |emission: &Emission, cost| Report { id: emission.id, outcome: Outcome::Accepted, cost };
    for emission in &emissions {
        let of_b = &*emission.key == "b";
        rig.book.handle_report(rig.now, cost(emission, of_b.then_some(9.0)));
    }
    let a = rig.book.standing(rig.now, "a");
    assert_eq!((a.key_in_flight, a.flow_in_flight, a.active_keys), (3, 4, 2));
    assert!((a.key_rate - 0.3).abs() < 1e-9 && (a.flow_rate - 0.4).abs() < 1e-9, "{a:?}");
    assert!((a.key_share - 0.25).abs() < 1e-9, "three seconds against a cost of nine: {a:?}");
    let batch = rig.settle();
    rig.answer(&batch);
    rig.wait(10_000);
    let unknown = rig.book.standing(rig.now, "never seen");
    assert_eq!((unknown.key_in_flight, unknown.active_keys), (0, 0));
}

#[test]
fn standing_tells_what_the_flow_does() {
    let mut rig = Rig::new(|options| options.budget_messages = 50);
    let emissions = rig.start(&["a-1", "a-2", "b-1", "b-2", "c:1", "c:2"]);
    rig.receive(&["d-1", "d-2", "d-3"]);
    rig.decide(&[]);
    let before = rig.book.standing(rig.now, "a");
    assert_eq!((before.flow_budget, before.flow_queued, before.flow_emitted), (50, 3, 6));
    assert_eq!(before.flow_throughput, 0.0, "nothing is finished yet");
    for (at, outcome) in [
        (0, Outcome::Accepted),
        (1, Outcome::Released),
        (2, Outcome::Rejected { reason: "test".into() }),
        (3, Outcome::Deferred { delay: Duration::ZERO }),
        // Its successor is overtaken, and the sink did finish it.
        (4, Outcome::Released),
        (5, Outcome::Accepted),
    ] {
        rig.report(&emissions[at], outcome);
    }
    let after = rig.book.standing(rig.now, "never seen");
    assert_eq!((after.flow_queued, after.flow_emitted), (3, 0));
    assert!((after.flow_throughput - 0.2).abs() < 1e-9, "{after:?}");
    rig.receive(&["a-3"]);
    let decide = rig.book.poll_decide(rig.now).expect("a-3");
    assert_eq!(decide.standing.flow_budget, 50);
    assert!((decide.standing.flow_throughput - 0.2).abs() < 1e-9, "{:?}", decide.standing);
    rig.wait(20_000);
    assert_eq!(rig.book.standing(rig.now, "a").flow_throughput, 0.0);
}
