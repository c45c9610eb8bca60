//! What is promised, against a store and a broker in memory that fail and forget at any moment.

use proptest::prelude::*;

use super::*;

const LEASE: Duration = Duration::from_secs(60);
const ALL: Capacity = Capacity { messages: usize::MAX, bytes: usize::MAX };

fn limits() -> Limits {
    Limits { records: 1_000, bytes: u64::MAX }
}

fn message(id: &str) -> Arc<Message> {
    Arc::new(Message::new("orders", id))
}

/// A ledger with these, written.
fn ledger(ids: &[&str]) -> Ledger {
    let mut ledger = Ledger::new(limits(), LEASE);
    for id in ids {
        let Admission::New(sequence) = ledger.admit(&message(id), 1) else { panic!("{id} is new") };
        ledger.handle_written([sequence]);
    }
    ledger
}

fn ids(taken: &[HandOut]) -> Vec<&str> {
    taken.iter().map(|hand_out| hand_out.message.id.as_str()).collect()
}

fn settle(ledger: &mut Ledger, now: Instant, hand_out: &HandOut, verb: &Verb) -> Effect {
    let which = (hand_out.sequence, hand_out.hand_out);
    ledger.settle(now, Timestamp::from_unix_millis(now.as_millis()), which, verb, &hand_out.message)
}

const fn at(seconds: u64) -> Instant {
    Instant::from_millis(seconds * 1_000)
}

#[test]
fn nothing_is_handed_out_before_it_is_written() {
    let mut ledger = Ledger::new(limits(), LEASE);
    let Admission::New(sequence) = ledger.admit(&message("a"), 1) else { panic!("it is new") };
    assert_eq!(ledger.admit(&message("a"), 1), Admission::Pending);
    assert!(ledger.take(at(0), ALL).is_empty());
    ledger.handle_written([sequence]);
    assert_eq!(ids(&ledger.take(at(0), ALL)), ["a"]);
    assert_eq!(ledger.admit(&message("a"), 2), Admission::Known);
    assert!(ledger.take(at(0), ALL).is_empty(), "it is out");
}

#[test]
fn what_is_given_up_comes_from_the_broker_again() {
    let mut ledger = Ledger::new(limits(), LEASE);
    let Admission::New(sequence) = ledger.admit(&message("a"), 1) else { panic!("it is new") };
    ledger.handle_given_up([sequence]);
    assert!(ledger.take_changes().removed.contains(&sequence), "it may have been written all the same");
    assert!(matches!(ledger.admit(&message("a"), 2), Admission::New(_)));
}

#[test]
fn a_settled_message_is_known_until_its_broker_confirms() {
    let mut ledger = ledger(&["a", "b"]);
    ledger.confirm(&"b".into());
    for hand_out in ledger.take(at(0), ALL) {
        assert_eq!(settle(&mut ledger, at(1), &hand_out, &Verb::Accept), Effect::Removes);
        assert_eq!(settle(&mut ledger, at(1), &hand_out, &Verb::Accept), Effect::Gone, "once");
    }
    let changes = ledger.take_changes();
    assert_eq!(changes.removed.len(), 2);
    ledger.handle_changed(&changes);
    assert_eq!((ledger.records(), ledger.bytes()), (0, 0));
    assert_eq!(ledger.admit(&message("a"), 2), Admission::Known);
    assert!(
        matches!(ledger.admit(&message("b"), 1), Admission::New(_)),
        "its broker would not give it again"
    );
    ledger.confirm(&"a".into());
    assert!(matches!(ledger.admit(&message("a"), 1), Admission::New(_)));
}

#[test]
fn a_removal_that_could_not_be_written_is_written_later_and_never_handed_out() {
    let mut ledger = ledger(&["a"]);
    let taken = ledger.take(at(0), ALL);
    settle(&mut ledger, at(1), &taken[0], &Verb::Reject { reason: "no".into() });
    let changes = ledger.take_changes();
    ledger.handle_not_changed(changes);
    ledger.tick(at(1_000));
    assert!(ledger.take(at(1_000), ALL).is_empty() && ledger.poll_load(ALL).is_empty());
    assert_eq!(ledger.take_changes().removed, [taken[0].sequence].into());
}

#[test]
fn a_deferred_one_comes_back_when_it_is_due_and_counts_no_attempt() {
    let mut ledger = ledger(&["a"]);
    let first = ledger.take(at(0), ALL).remove(0);
    settle(&mut ledger, at(1), &first, &Verb::Defer(Duration::from_secs(10)));
    let state = State { attempt: 1, due: Some(Timestamp::from_unix_millis(11_000)) };
    assert_eq!(ledger.take_changes().states, [(first.sequence, state)].into());
    assert_eq!(ledger.poll_timeout(), Some(at(11)));
    ledger.tick(at(10));
    assert!(ledger.poll_load(ALL).is_empty());
    ledger.tick(at(11));
    assert!(ledger.take(at(11), ALL).is_empty(), "it has to be read first");
    assert_eq!(ledger.poll_load(ALL), [first.sequence]);
    assert!(ledger.poll_load(ALL).is_empty(), "once");
    assert_eq!(ledger.take_changes().states[&first.sequence], State { attempt: 1, due: None });
    assert!(ledger.handle_loaded(first.sequence, Some(message("a"))));
    let second = ledger.take(at(11), ALL).remove(0);
    assert_eq!((second.attempt, second.hand_out), (1, 2));
    assert_eq!(settle(&mut ledger, at(12), &first, &Verb::Accept), Effect::Gone, "of the first hand-out");
    assert_eq!(settle(&mut ledger, at(12), &second, &Verb::Accept), Effect::Removes);
}

#[test]
fn a_lease_that_runs_out_hands_it_out_again_unless_it_was_renewed_or_is_done() {
    let mut ledger = ledger(&["a", "b", "c"]);
    let taken = ledger.take(at(0), ALL);
    assert_eq!(settle(&mut ledger, at(50), &taken[1], &Verb::Renew(LEASE)), Effect::Keeps);
    ledger.tick(at(60));
    assert_eq!(ledger.poll_load(ALL).len(), 2, "all but the renewed one");
    assert_eq!(
        settle(&mut ledger, at(61), &taken[0], &Verb::Accept),
        Effect::Removes,
        "late, and nobody else has it"
    );
    assert_eq!(settle(&mut ledger, at(61), &taken[2], &Verb::Release), Effect::Gone);
    assert!(ledger.handle_loaded(taken[0].sequence, Some(message("a"))));
    assert!(ledger.handle_loaded(taken[2].sequence, Some(message("c"))));
    assert_eq!(ids(&ledger.take(at(61), ALL)), ["c"]);
    assert_eq!(ledger.poll_timeout(), Some(at(110)));
}

#[test]
fn what_an_earlier_life_left_comes_first_in_its_order() {
    let found = |sequence, id: &str, due: Option<u64>| Found {
        sequence: Sequence(sequence),
        id: id.into(),
        bytes: 300,
        state: State { attempt: 1, due: due.map(Timestamp::from_unix_millis) },
    };
    let mut ledger = Ledger::new(limits(), LEASE);
    assert!(ledger.room().is_some());
    let wall = Timestamp::from_unix_millis(10_000);
    ledger.restore(
        at(0),
        wall,
        vec![found(3, "a", None), found(5, "b", Some(12_000)), found(9, "c", Some(4))],
        Sequence(20),
    );
    assert!(ledger.room().is_none(), "nothing new before them");
    let changes = ledger.take_changes();
    assert_eq!(
        changes.states,
        [(Sequence(3), State { attempt: 2, due: None })].into(),
        "it may have been handed out"
    );
    for sequence in ledger.poll_load(ALL) {
        ledger.handle_loaded(sequence, Some(message(if sequence.0 == 3 { "a" } else { "c" })));
    }
    let taken = ledger.take(at(0), ALL);
    assert_eq!(ids(&taken), ["a", "c"]);
    assert_eq!((taken[0].attempt, taken[1].attempt), (2, 1));
    assert!(ledger.room().is_some(), "the other is not due yet");
    assert_eq!(ledger.poll_timeout(), Some(at(2)));
    assert_eq!(ledger.admit(&message("b"), 1), Admission::Known);
    assert_eq!(ledger.admit(&message("d"), 1), Admission::New(Sequence(20)));
}

#[test]
fn a_due_time_far_ahead_is_no_reason_to_wait_for_ever() {
    let mut ledger = Ledger::new(limits(), LEASE);
    let state = State { attempt: 1, due: Some(Timestamp::from_unix_millis(u64::MAX)) };
    let found = Found { sequence: Sequence(1), id: "a".into(), bytes: 300, state };
    ledger.restore(at(0), Timestamp::from_unix_millis(1), vec![found], Sequence(2));
    assert_eq!(ledger.poll_timeout(), Some(at(0) + DUE_AHEAD_MAX));
}

#[test]
fn limits_shut_the_door_and_settling_opens_it() {
    let mut ledger = ledger(&["a"]);
    ledger.limits = Limits { records: 2, bytes: u64::MAX };
    assert_eq!(ledger.room().map(|room| room.messages), Some(1));
    let Admission::New(sequence) = ledger.admit(&message("b"), 1) else { panic!("it is new") };
    assert!(ledger.room().is_none() && ledger.is_full(), "what is being written counts");
    ledger.handle_written([sequence]);
    let taken = ledger.take(at(0), Capacity { messages: 1, bytes: 1 });
    assert_eq!(taken.len(), 1, "one at least");
    settle(&mut ledger, at(0), &taken[0], &Verb::Accept);
    assert!(ledger.room().is_none(), "it is not durable yet that it is gone");
    let changes = ledger.take_changes();
    ledger.handle_changed(&changes);
    assert!(ledger.room().is_some());
    ledger.limits = Limits { records: 10, bytes: ledger.bytes() };
    assert!(ledger.room().is_none());
}

#[test]
fn what_cannot_be_read_is_given_up_and_what_nobody_knows_is_removed() {
    let mut ledger = ledger(&["a"]);
    let first = ledger.take(at(0), ALL).remove(0);
    ledger.tick(at(60));
    assert_eq!(ledger.poll_load(ALL), [first.sequence]);
    assert!(!ledger.handle_loaded(first.sequence, None));
    assert_eq!((ledger.records(), ledger.room().is_some()), (0, true));
    let state = State { attempt: 1, due: None };
    ledger.handle_reopened(&[Found { sequence: Sequence(77), id: "z".into(), bytes: 1, state }]);
    assert_eq!(ledger.take_changes().removed, [first.sequence, Sequence(77)].into());
}

/// One thing that happens.
#[derive(Clone, Debug)]
enum Step {
    /// The broker hands out a message, perhaps one that it handed out before.
    Arrive(u8),
    /// The store writes everything there is, or fails; a failure may still have written.
    Write {
        fails: bool,
        all_the_same: bool,
    },
    Take(usize),
    Settle {
        which: prop::sample::Index,
        verb: u8,
    },
    Confirm(u8),
    Pass(u64),
    Crash,
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..24_u8).prop_map(Step::Arrive),
        6 => (prop::bool::weighted(0.2), any::<bool>())
            .prop_map(|(fails, all_the_same)| Step::Write { fails, all_the_same }),
        6 => (1..6_usize).prop_map(Step::Take),
        8 => (any::<prop::sample::Index>(), 0..10_u8).prop_map(|(which, verb)| Step::Settle { which, verb }),
        1 => (0..24_u8).prop_map(Step::Confirm),
        3 => (1..40_u64).prop_map(Step::Pass),
        1 => Just(Step::Crash),
    ]
}

/// A ledger with a store in memory, and what is known of each message.
struct World {
    ledger: Ledger,
    now: Instant,
    store: BTreeMap<Sequence, (Arc<Message>, State)>,
    next: Sequence,
    writing: Vec<(Sequence, Arc<Message>)>,
    out: Vec<HandOut>,
    /// Messages that a broker was told are done, and that are not.
    owed: HashSet<MessageId>,
    /// Accepted in this life, and not come from the broker anew since.
    done: HashSet<MessageId>,
}

impl World {
    fn new() -> Self {
        Self {
            ledger: Ledger::new(limits(), LEASE),
            now: at(0),
            store: BTreeMap::new(),
            next: Sequence(1),
            writing: Vec::new(),
            out: Vec::new(),
            owed: HashSet::new(),
            done: HashSet::new(),
        }
    }

    fn wall(&self) -> Timestamp {
        Timestamp::from_unix_millis(1_000_000 + self.now.as_millis())
    }

    fn apply(&mut self, step: &Step) {
        match step {
            Step::Arrive(id) => {
                if self.ledger.room().is_none() {
                    return;
                }
                let message = message(&format!("m{id}"));
                match self.ledger.admit(&message, 1) {
                    Admission::New(sequence) => {
                        self.done.remove(&message.id);
                        self.writing.push((sequence, message));
                    }
                    Admission::Known | Admission::Pending => {}
                }
            }
            Step::Write { fails, all_the_same } => self.write(*fails, *all_the_same),
            Step::Take(count) => {
                self.ledger.tick(self.now);
                let capacity = Capacity { messages: *count, bytes: usize::MAX };
                for sequence in self.ledger.poll_load(capacity) {
                    let found = self.store.get(&sequence).map(|(message, _)| Arc::clone(message));
                    assert!(self.ledger.handle_loaded(sequence, found), "{sequence:?} is in the store");
                }
                let taken = self.ledger.take(self.now, capacity);
                assert!(taken.is_sorted_by_key(|hand_out| hand_out.sequence));
                for hand_out in &taken {
                    let id = &hand_out.message.id;
                    assert!(!self.done.contains(id), "{id} is done");
                    let earlier = self.out.iter().filter(|other| other.message.id == *id);
                    for earlier in earlier {
                        assert!(earlier.expires_at <= self.now, "{id} is out");
                        assert!(earlier.attempt < hand_out.attempt, "{id} counts");
                    }
                }
                self.out.retain(|out| taken.iter().all(|other| other.message.id != out.message.id));
                self.out.extend(taken);
            }
            Step::Settle { which, verb } => {
                if self.out.is_empty() {
                    return;
                }
                let at = which.index(self.out.len());
                let verb = match verb {
                    0..=4 => Verb::Accept,
                    5 => Verb::Release,
                    6 => Verb::Renew(LEASE),
                    7 => Verb::Defer(Duration::ZERO),
                    _ => Verb::Defer(Duration::from_secs(20)),
                };
                let hand_out = self.out[at].clone();
                let which = (hand_out.sequence, hand_out.hand_out);
                let effect = self.ledger.settle(self.now, self.wall(), which, &verb, &hand_out.message);
                match (&verb, effect) {
                    (Verb::Renew(_), Effect::Keeps) => self.out[at].expires_at = self.now + LEASE,
                    (_, Effect::Keeps) => {
                        self.out.remove(at);
                    }
                    (_, Effect::Removes) => {
                        self.owed.remove(&hand_out.message.id);
                        self.done.insert(hand_out.message.id.clone());
                        self.out.remove(at);
                    }
                    (_, Effect::Gone) => {
                        assert!(hand_out.expires_at <= self.now, "{} was out", hand_out.message.id);
                    }
                }
            }
            Step::Confirm(id) => {
                let id = MessageId::from(format!("m{id}"));
                // Of what is durable or settled: that is when a broker is told.
                if !self.writing.iter().any(|(_, message)| message.id == id) {
                    self.ledger.confirm(&id);
                }
            }
            Step::Pass(seconds) => self.now += Duration::from_secs(*seconds),
            Step::Crash => self.crash(),
        }
    }

    fn write(&mut self, fails: bool, all_the_same: bool) {
        let changes = self.ledger.take_changes();
        if !fails || all_the_same {
            for (sequence, message) in &self.writing {
                let state = State { attempt: 1, due: None };
                self.store.insert(*sequence, (Arc::clone(message), state));
                self.next = self.ledger.next();
            }
            for (sequence, state) in &changes.states {
                if let Some((_, stored)) = self.store.get_mut(sequence) {
                    *stored = *state;
                }
            }
            for sequence in &changes.removed {
                self.store.remove(sequence);
            }
        }
        if fails {
            self.ledger.handle_not_changed(changes);
            let found: Vec<_> = self.found();
            self.ledger.handle_reopened(&found);
        } else {
            self.ledger.handle_changed(&changes);
            self.ledger.handle_written(self.writing.iter().map(|(sequence, _)| *sequence));
            self.owed.extend(self.writing.drain(..).map(|(_, message)| message.id.clone()));
        }
    }

    fn found(&self) -> Vec<Found> {
        let found = |(sequence, (message, state)): (&Sequence, &(Arc<Message>, State))| Found {
            sequence: *sequence,
            id: message.id.clone(),
            bytes: message.size_bytes(),
            state: *state,
        };
        self.store.iter().map(found).collect()
    }

    fn crash(&mut self) {
        let wall = self.wall();
        self.ledger = Ledger::new(limits(), LEASE);
        self.ledger.restore(self.now, wall, self.found(), self.next);
        self.writing.clear();
        self.out.clear();
        self.done.clear();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    /// Whatever happens: nothing that a broker was told is done is lost, and nothing is handed out twice at a time.
    #[test]
    fn nothing_is_lost_and_nothing_is_out_twice(steps in prop::collection::vec(steps(), 1..200)) {
        let mut world = World::new();
        steps.iter().for_each(|step| world.apply(step));
        world.crash();
        world.now += Duration::from_secs(1_000);
        let mut left = world.owed.clone();
        world.apply(&Step::Take(usize::MAX));
        for hand_out in &world.out {
            left.remove(&hand_out.message.id);
        }
        prop_assert!(left.is_empty(), "lost: {left:?}");
        prop_assert_eq!(world.out.len(), world.ledger.records() - world.ledger.changes.removed.len());
    }
}
