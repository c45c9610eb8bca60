//! Renewals in the book.

use tidegate_model::Renewal;

use super::*;

const AHEAD: Duration = Duration::from_secs(10);
const OPTIONS: RenewalOptions =
    RenewalOptions { ahead: AHEAD, renew_emitted: false, length_max: Duration::from_secs(3600) };

impl Rig {
    fn renewing(options: RenewalOptions) -> Self {
        let mut rig = Self::new(|_| {});
        rig.book.handle_renewal_options(rig.now, Some(options));
        rig
    }

    fn questions(&mut self) -> Vec<RenewalQuestion> {
        std::iter::from_fn(|| self.book.poll_renew(self.now)).collect()
    }

    /// Answers all questions there are with the same.
    fn answer_all(&mut self, answer: Renewal) -> usize {
        let questions = self.questions();
        for question in &questions {
            self.book.handle_renewal(self.now, question.about.id, answer);
        }
        questions.len()
    }

    /// Renews what is asked about; gives the settlements that are on their way.
    fn renew(&mut self, seconds: u64) -> Vec<Settlement> {
        self.answer_all(Renewal::Renew(Duration::from_secs(seconds)));
        self.settle()
    }

    fn land(&mut self, settlements: &[Settlement]) {
        for settlement in settlements {
            let text = format!("{}'", settlement.handle.text).into();
            let handle = Handle { text, ..settlement.handle.clone() };
            self.book.handle_settled(self.now, settlement.id, Ok(Some(handle)));
        }
    }

    fn fail(&mut self, settlement: &Settlement, fault: SettleFault) {
        let error = SettleError { verb: "renew", detail: "test".into(), fault };
        self.book.handle_settled(self.now, settlement.id, Err(error));
    }

    fn renewals(&self) -> Renewals {
        self.book.counts().renewals
    }
}

// === the question ===

#[test]
fn off_is_how_a_book_begins() {
    let mut rig = Rig::new(|_| {});
    rig.receive(&["a-1"]);
    rig.wait(59_000);
    assert!(rig.questions().is_empty());
    rig.wait(2_000);
    assert_eq!(rig.book.counts().in_flight, 0);
}

#[test]
fn the_question_comes_ahead_of_the_end_and_the_timeout_tells_when() {
    let mut rig = Rig::renewing(OPTIONS);
    rig.receive(&["a-1", "a-2"]);
    rig.decide(&[]);
    rig.book.poll_emit(rig.now).expect("a-1");
    assert!(rig.questions().is_empty());
    let mut questions = Vec::new();
    while questions.is_empty() {
        rig.now = rig.book.poll_timeout().expect("a time");
        rig.book.handle_timeout(rig.now);
        questions = rig.questions();
    }
    let at = rig.now;
    let late = at.saturating_since(Instant::ZERO + LEASE - AHEAD);
    assert!(at >= Instant::ZERO + LEASE - AHEAD && late < Duration::from_millis(20), "{at:?}");
    let [question] = &questions[..] else { panic!("frozen once emitted: {questions:?}") };
    assert_eq!(question.about.message.id.as_str(), "a-2");
    assert_eq!((&*question.about.key, question.about.attempt, question.renewals), ("a", 1, 0));
    assert_eq!((question.length, question.emitted, question.queue_position), (LEASE, false, 0));
    assert_eq!(question.about.waited, at.saturating_since(Instant::ZERO));
    assert_eq!(question.remaining, LEASE - question.about.waited);
    assert_eq!((question.about.standing.flow_queued, question.about.standing.flow_emitted), (1, 1));
    assert!(rig.questions().is_empty(), "asked once");
    rig.wait(60_000);
    assert_eq!(rig.book.counts().in_flight, 0, "a question without an answer keeps nothing");
}

#[test]
fn the_undecided_are_asked_about_as_well() {
    let mut rig = Rig::renewing(OPTIONS);
    rig.receive(&["a-1"]);
    rig.wait(51_000);
    let batch = rig.renew(60);
    rig.wait(20_000);
    rig.land(&batch);
    assert_eq!(rig.decide(&[("a-1", defer(5))]).len(), 1, "its lease goes on");
    assert_eq!(handles(&rig.settle()), ["a-1@1'"]);
}

#[test]
fn the_position_in_the_queue_is_about_right() {
    let mut rig = Rig::renewing(OPTIONS);
    rig.receive(&["a-1", "a-2", "a-3", "b-1", "b-2", "c-1"]);
    rig.decide(&[]);
    rig.receive(&["d-1"]);
    rig.wait(51_000);
    let asked: Vec<_> =
        rig.questions().iter().map(|one| (one.about.message.id.to_string(), one.queue_position)).collect();
    let order = rig.emit();
    for (name, estimate) in asked {
        match names(&order).iter().position(|emitted| *emitted == name) {
            Some(truth) => assert!((truth..truth + 3).contains(&(estimate as usize)), "{name}: {estimate}"),
            None => assert_eq!((name.as_str(), estimate), ("d-1", 6)),
        }
    }
}

// === the answer ===

#[test]
fn a_renewed_delivery_is_emitted_with_its_newest_handle_and_end() {
    let mut rig = Rig::renewing(OPTIONS);
    rig.receive(&["a-1"]);
    rig.decide(&[]);
    rig.wait(51_000);
    let sent_at = rig.now;
    let batch = rig.renew(60);
    assert_eq!(batch[0].verb, Verb::Renew(Duration::from_secs(60)));
    assert!(rig.emit().is_empty(), "its handle may change any moment");
    rig.wait(2_000);
    rig.land(&batch);
    let emissions = rig.emit();
    assert_eq!(&*emissions[0].handle.text, "a-1@1'");
    assert_eq!(emissions[0].expires_at, sent_at + Duration::from_secs(60), "counted from the sending");
    rig.report(&emissions[0], Outcome::Accepted);
    let batch = rig.settle();
    assert_eq!(handles(&batch), ["a-1@1'"]);
    rig.answer(&batch);
    let renewals = Renewals { asked: 1, answered_renew: 1, sent: 1, done: 1, ..Renewals::default() };
    assert_eq!(rig.renewals(), renewals);
    assert_eq!(rig.book.counts().tracked_messages, 0, "what is accepted is forgotten");
    assert_eq!(rig.events(), []);
}

#[test]
fn an_answer_without_a_handle_leaves_the_old_one_in_force() {
    for handle in [None, Some(Handle { routing: Arc::new(Routing::default()), text: "".into() })] {
        let mut rig = Rig::renewing(OPTIONS);
        rig.receive(&["a-1"]);
        rig.decide(&[]);
        rig.wait(51_000);
        let batch = rig.renew(60);
        rig.book.handle_settled(rig.now, batch[0].id, Ok(handle));
        rig.wait(30_000);
        assert_eq!(&*rig.emit()[0].handle.text, "a-1@1");
    }
}

#[test]
fn a_missed_turn_is_the_next() {
    let mut rig = Rig::renewing(OPTIONS);
    rig.receive(&["a-1"]);
    rig.wait(20_000);
    rig.receive(&["a-2", "a-3"]);
    rig.decide(&[]);
    rig.wait(31_000);
    let batch = rig.renew(60);
    assert_eq!(told(&batch), ["renew a-1"]);
    let first = rig.book.poll_emit(rig.now).expect("another goes before it");
    assert_eq!(first.message.id.as_str(), "a-2");
    rig.land(&batch);
    assert_eq!(names(&rig.emit()), ["a-1", "a-3"]);
}

#[test]
fn release_gives_back_at_once_and_lapse_lets_it_run_out() {
    let mut rig = Rig::renewing(OPTIONS);
    rig.receive(&["a-1"]);
    rig.decide(&[]);
    rig.wait(51_000);
    rig.answer_all(Renewal::Release);
    let batch = rig.settle();
    assert_eq!(told(&batch), ["release a-1"]);
    rig.answer(&batch);

    rig.receive(&["b-1"]);
    rig.decide(&[]);
    rig.wait(51_000);
    assert_eq!(rig.answer_all(Renewal::Lapse), 1);
    rig.wait(5_000);
    assert_eq!(rig.questions().len(), 0, "not asked about again");
    rig.wait(5_000);
    assert_eq!(rig.book.counts().in_flight, 0);
    let renewals = rig.renewals();
    assert_eq!((renewals.asked, renewals.answered_release, renewals.answered_lapse), (2, 1, 1));
}

#[test]
fn no_answer_makes_a_hot_loop() {
    for length in [Duration::ZERO, Duration::from_nanos(1), Duration::from_millis(1), AHEAD, LEASE * 1000] {
        let mut rig = Rig::renewing(RenewalOptions { length_max: AHEAD, ..OPTIONS });
        rig.receive(&["a-1"]);
        rig.decide(&[]);
        for _ in 0..100_000 {
            let Some(at) = rig.book.poll_timeout().filter(|at| *at < Instant::from_millis(600_000)) else {
                break;
            };
            assert!(at > rig.now, "no progress");
            rig.now = at;
            rig.book.handle_timeout(at);
            rig.answer_all(Renewal::Renew(length));
            let batch = rig.settle();
            rig.land(&batch);
        }
        let asked = rig.renewals().asked;
        assert!((1..=600).contains(&asked), "{asked} questions in ten minutes about {length:?}");
    }
}

#[test]
fn a_clock_that_jumps_past_the_end_ends_the_lease() {
    let mut rig = Rig::renewing(OPTIONS);
    rig.receive(&["a-1", "b-1", "c-1"]);
    rig.decide(&[]);
    rig.wait(51_000);
    let questions = rig.questions();
    rig.book.handle_renewal(rig.now, questions[0].about.id, Renewal::Renew(LEASE));
    let batch = rig.settle();
    rig.book.handle_renewal(rig.now, questions[1].about.id, Renewal::Renew(LEASE));
    rig.now += LEASE * 10;
    rig.book.handle_renewal(rig.now, questions[2].about.id, Renewal::Renew(LEASE));
    assert!(rig.settle().is_empty(), "what ended is not renewed");
    rig.wait(0);
    rig.land(&batch);
    assert!(rig.emit().is_empty());
    assert_eq!(rig.book.counts().in_flight, 0, "not even the one whose renewal was good");
}

#[test]
fn what_goes_on_while_a_question_is_out_overtakes_it() {
    let mut rig = Rig::renewing(OPTIONS);
    rig.receive(&["a-1", "b-1"]);
    rig.decide(&[]);
    rig.wait(51_000);
    let questions = rig.questions();
    let emissions = rig.emit();
    rig.report(&emissions[1], Outcome::Accepted);
    let batch = rig.settle();
    rig.answer(&batch);
    for question in &questions {
        rig.book.handle_renewal(rig.now, question.about.id, Renewal::Renew(LEASE));
    }
    assert!(rig.settle().is_empty());
    assert_eq!((rig.renewals().overtaken, rig.events()), (2, vec![]));
    rig.book.handle_renewal(rig.now, questions[0].about.id, Renewal::Lapse);
    let what = "an answer to a question about a lease that was not asked";
    assert_eq!(rig.events(), [BookEvent::Bug { what, id: Some(questions[0].about.id) }]);
}

// === the result ===

#[test]
fn a_failed_renewal_is_asked_about_once_more() {
    let mut rig = Rig::renewing(OPTIONS);
    rig.receive(&["a-1"]);
    rig.decide(&[]);
    for second in 0..3 {
        rig.wait(if second == 0 { 51_000 } else { 1_100 });
        let batch = rig.renew(60);
        assert_eq!(batch.len(), usize::from(second < 2));
        if let Some(renewal) = batch.first() {
            rig.fail(renewal, SettleFault::Broker);
        }
    }
    assert_eq!(names(&rig.emit()), ["a-1"], "its lease is as it was");
    assert_eq!((rig.renewals().failed, rig.events().len()), (2, 2));
}

#[test]
fn a_lease_that_is_gone_is_not_used() {
    let mut rig = Rig::renewing(OPTIONS);
    rig.receive(&["a:1", "a:2"]);
    rig.decide(&[]);
    rig.wait(51_000);
    let batch = rig.renew(60);
    rig.fail(&batch[0], SettleFault::LeaseGone);
    assert!(rig.emit().is_empty());
    rig.land(&batch[1..]);
    assert_eq!(rig.book.counts(), Counts { in_flight: 0, ..rig.book.counts() });
    assert_eq!(rig.book.counts().ordered_keys, 0);
}

#[test]
fn a_newer_delivery_wins_over_a_renewal_on_its_way() {
    let mut rig = Rig::renewing(OPTIONS);
    rig.receive(&["a-1"]);
    rig.decide(&[]);
    rig.wait(51_000);
    let batch = rig.renew(60);
    rig.receive(&["a-1"]);
    assert!(rig.emit().is_empty());
    rig.land(&batch);
    let emissions = rig.emit();
    assert_eq!((&*emissions[0].handle.text, emissions[0].expires_at), ("a-1@2", rig.now + LEASE));
}

// === limits ===

#[test]
fn a_newer_lease_ends_while_a_renewal_of_the_older_is_on_its_way() {
    let mut rig = Rig::renewing(RenewalOptions { renew_emitted: true, ..OPTIONS });
    rig.receive(&["a-1"]);
    rig.decide(&[]);
    let emissions = rig.emit();
    rig.wait(51_000);
    let batch = rig.renew(600);
    assert_eq!(batch.len(), 1);
    rig.receive(&["a-1"]);
    rig.now += LEASE * 2;
    assert_eq!(rig.report(&emissions[0], Outcome::Accepted), Taken::LeaseExpired);
    rig.land(&batch);
    assert_eq!(rig.book.counts().in_flight, 0);
}

#[test]
fn a_renewal_that_is_not_worth_it_costs_no_turn() {
    let mut rig = Rig::renewing(OPTIONS);
    rig.receive(&["a-1"]);
    rig.decide(&[]);
    rig.wait(51_000);
    rig.answer_all(Renewal::Renew(Duration::from_secs(1)));
    assert_eq!(names(&rig.emit()), ["a-1"]);
    assert!(rig.settle().is_empty());
}

/// A renewal that failed is asked about again a second later, but not when it is not due any more.
#[test]
fn what_is_not_due_any_more_by_new_options_is_not_asked_about() {
    let mut rig = Rig::renewing(OPTIONS);
    rig.receive(&["a-1", "b-1"]);
    rig.wait(51_000);
    let batch = rig.renew(60);
    let late = RenewalOptions { ahead: Duration::from_secs(3), ..OPTIONS };
    rig.book.handle_renewal_options(rig.now, Some(late));
    rig.fail(&batch[0], SettleFault::Broker);
    rig.wait(4_000);
    assert!(rig.questions().is_empty(), "five seconds before its end");
    rig.wait(2_100);
    let asked: Vec<_> = rig.questions().iter().map(|one| one.about.message.id.to_string()).collect();
    assert_eq!(asked, [batch[0].message.id.as_str()], "the other one is still on its way");
}

/// What was sent to give a key back would be undone by a renewal that arrives after it.
#[test]
fn nothing_is_renewed_while_its_key_is_given_back() {
    let mut rig = Rig::renewing(RenewalOptions { ahead: LEASE * 2, ..OPTIONS });
    rig.receive(&["a:1"]);
    rig.decide(&[("a:1", defer(5))]);
    let batch = rig.settle();
    rig.receive(&["a:2"]);
    rig.wait(100);
    assert!(rig.renew(600).is_empty());
    rig.answer(&batch);
    rig.wait(1_100);
    assert_eq!(rig.renew(600).len(), 1);
}

#[test]
fn no_policy_keeps_a_message_for_ever() {
    let mut rig = Rig::renewing(RenewalOptions { length_max: Duration::from_secs(100), ..OPTIONS });
    let valves = Valves { max_total_deferral: Duration::from_secs(250), ..Valves::default() };
    rig.book.handle_valves(valves);
    // Over several deliveries: what was kept is remembered.
    for expected_end in [60 + 250, 310 + 60] {
        rig.receive(&["a-1"]);
        rig.decide(&[]);
        while rig.book.counts().in_flight > 0 {
            rig.wait(500);
            let batch = rig.renew(100_000);
            rig.land(&batch);
        }
        let end = rig.now.as_millis() / 1000;
        assert!((expected_end - 3..=expected_end + 1).contains(&end), "ended at {end} s");
    }
    let valve = |valve| BookEvent::Valve { message: "a-1".into(), key: "a".into(), valve };
    let events = rig.events();
    assert!(events.contains(&valve(Valve::Length)) && events.contains(&valve(Valve::TotalDeferral)));
    assert!(rig.renewals().limited >= 2);
}

#[test]
fn renewals_on_their_way_are_bounded() {
    let mut rig = Rig::renewing(OPTIONS);
    for round in 0..10 {
        let names: Vec<String> = (0..30).map(|number| format!("{round}:{number}")).collect();
        rig.receive(&names.iter().map(String::as_str).collect::<Vec<_>>());
    }
    rig.decide(&[]);
    rig.wait(51_000);
    assert_eq!(rig.answer_all(Renewal::Renew(LEASE)), 10, "one for each ordered key");
    let mut renewed = 0;
    loop {
        let batch = rig.settle();
        if batch.is_empty() {
            break;
        }
        assert!(batch.len() <= 64 && rig.book.counts().renewing <= 64);
        renewed += batch.len();
        rig.land(&batch);
    }
    assert_eq!(renewed, 300, "one for each delivery");
    for name in 0..200 {
        rig.receive(&[&format!("k{name}-1")]);
    }
    rig.decide(&[]);
    rig.wait(51_000);
    assert_eq!(rig.questions().len(), 64);
}

// === ordered keys ===

#[test]
fn one_answer_speaks_for_an_ordered_key() {
    let mut rig = Rig::renewing(OPTIONS);
    rig.receive(&["a:1", "a:2", "a:3"]);
    rig.decide(&[]);
    let first = rig.book.poll_emit(rig.now).expect("a:1");
    rig.wait(51_000);
    let questions = rig.questions();
    assert_eq!(questions.len(), 1);
    assert_eq!(questions[0].about.message.id.as_str(), "a:2", "the first that is not frozen");
    rig.book.handle_renewal(rig.now, questions[0].about.id, Renewal::Renew(LEASE));
    rig.report(&first, Outcome::Accepted);
    let batch = rig.settle();
    assert_eq!(told(&batch), ["renew a:2", "renew a:3", "accept a:1"]);
    rig.answer(&batch[2..]);
    rig.land(&batch[..2]);
    let emissions = rig.emit();
    assert_eq!(names(&emissions), ["a:2", "a:3"]);
    for emission in emissions.iter().rev() {
        rig.report(emission, Outcome::Accepted);
    }
    assert_eq!(handles(&rig.settle()), ["a:2@2'", "a:3@3'"]);
    assert_eq!(rig.events(), []);
}

#[test]
fn the_answer_counts_for_the_rest_when_the_first_was_emitted() {
    let mut rig = Rig::renewing(OPTIONS);
    rig.receive(&["a:1", "a:2"]);
    rig.decide(&[]);
    rig.wait(51_000);
    let questions = rig.questions();
    rig.book.poll_emit(rig.now).expect("a:1");
    rig.book.handle_renewal(rig.now, questions[0].about.id, Renewal::Renew(LEASE));
    assert_eq!(told(&rig.settle()), ["renew a:2"]);
}

#[test]
fn release_of_an_ordered_key_gives_back_the_first_and_lapse_is_for_all() {
    let mut rig = Rig::renewing(OPTIONS);
    rig.receive(&["a:1", "a:2", "b:1", "b:2"]);
    rig.decide(&[]);
    rig.wait(51_000);
    let questions = rig.questions();
    assert_eq!(questions.len(), 2);
    rig.book.handle_renewal(rig.now, questions[0].about.id, Renewal::Release);
    rig.book.handle_renewal(rig.now, questions[1].about.id, Renewal::Lapse);
    assert_eq!(told(&rig.settle()), ["release a:1"]);
    assert_eq!(rig.events(), [run_ended(RunEnd::Deferred, 1, 0)]);
    rig.wait(5_000);
    assert!(rig.questions().is_empty());
}

#[test]
fn nothing_is_given_back_while_its_key_is_renewed() {
    let mut rig = Rig::renewing(OPTIONS);
    rig.receive(&["a:1", "a:2"]);
    rig.decide(&[]);
    let first = rig.book.poll_emit(rig.now).expect("a:1");
    rig.wait(51_000);
    let renewals = rig.renew(60);
    assert_eq!(told(&renewals), ["renew a:2"]);
    rig.report(&first, Outcome::Deferred { delay: Duration::from_secs(5) });
    assert!(rig.settle().is_empty(), "a renewal that comes later would undo it");
    rig.land(&renewals);
    assert_eq!(told(&rig.settle()), ["defer a:1"]);
}

#[test]
fn a_renewed_tail_does_not_keep_the_broker_from_handing_out_a_lost_head() {
    let mut rig = Rig::renewing(OPTIONS);
    rig.receive(&["a:1", "a:2", "a:3"]);
    rig.decide(&[]);
    rig.book.poll_emit(rig.now).expect("a:1, whose worker is lost");
    rig.wait(51_000);
    let batch = rig.renew(600);
    rig.land(&batch);
    rig.wait(9_100);
    assert!(rig.events().contains(&run_ended(RunEnd::Expired, 2, 0)));
    let batch = rig.settle();
    assert_eq!((told(&batch), handles(&batch)), (vec!["release a:2".into()], vec!["a:2@2'"]));
    rig.answer(&batch);
    assert_eq!(rig.book.counts().in_flight, 0);
    rig.receive(&["a:1", "a:2", "a:3"]);
    let attempts: Vec<u32> = rig.decide(&[]).iter().map(|decide| decide.attempt).collect();
    assert_eq!(attempts, [2, 1, 1], "only the head had its turn");
}

// === emitted ones ===

#[test]
fn an_emitted_delivery_is_renewed_behind_the_same_id() {
    let mut rig = Rig::renewing(RenewalOptions { renew_emitted: true, ..OPTIONS });
    let emissions = rig.start(&["a:1", "b-1"]);
    for _ in 0..3 {
        rig.wait(51_000);
        let questions = rig.questions();
        assert!(questions.iter().all(|one| one.emitted && one.queue_position == 0), "{questions:?}");
        for question in &questions {
            rig.book.handle_renewal(rig.now, question.about.id, Renewal::Renew(LEASE));
        }
        let batch = rig.settle();
        assert_eq!(batch.len(), 2);
        rig.land(&batch);
    }
    rig.wait(51_000);
    let batch = rig.renew(60);
    for emission in &emissions {
        assert_eq!(rig.report(emission, Outcome::Accepted), Taken::Yes);
    }
    assert!(rig.settle().is_empty(), "which handle counts is not known yet");
    rig.wait(20_000);
    rig.land(&batch);
    assert_eq!(handles(&rig.settle()), ["a:1@1''''", "b-1@2''''"]);
    assert_eq!(rig.events(), []);
}

#[test]
fn an_emitted_one_cannot_be_taken_from_its_sink() {
    let mut rig = Rig::renewing(RenewalOptions { renew_emitted: true, ..OPTIONS });
    let emissions = rig.start(&["a-1"]);
    rig.wait(51_000);
    assert_eq!(rig.answer_all(Renewal::Release), 1);
    assert!(rig.settle().is_empty());
    rig.wait(2_000);
    assert!(rig.questions().is_empty());
    assert_eq!(rig.report(&emissions[0], Outcome::Accepted), Taken::Yes);
}

#[test]
fn a_drain_renews_only_what_a_sink_has() {
    let mut rig = Rig::renewing(RenewalOptions { renew_emitted: true, ..OPTIONS });
    rig.receive(&["a-1", "b-1"]);
    rig.decide(&[]);
    let emission = rig.book.poll_emit(rig.now).expect("a-1");
    rig.wait(51_000);
    let batch = rig.renew(60);
    assert_eq!(batch.len(), 2);
    rig.book.handle_drain(rig.now);
    assert!(rig.settle().is_empty());
    rig.land(&batch);
    let released = rig.settle();
    assert_eq!((told(&released), handles(&released)), (vec!["release b-1".into()], vec!["b-1@2'"]));
    rig.answer(&released);
    rig.wait(51_000);
    let batch = rig.renew(60);
    assert_eq!(told(&batch), ["renew a-1"]);
    rig.land(&batch);
    rig.report(&emission, Outcome::Accepted);
    let batch = rig.settle();
    rig.answer(&batch);
    assert!(rig.book.is_drained());
}

// === live changes ===

#[test]
fn it_is_turned_on_and_off_while_running() {
    let mut rig = Rig::new(|_| {});
    rig.receive(&["a-1", "b-1"]);
    rig.decide(&[]);
    rig.wait(55_000);
    rig.book.handle_renewal_options(rig.now, Some(OPTIONS));
    rig.wait(20);
    let questions = rig.questions();
    assert_eq!(questions.len(), 2);
    rig.book.handle_renewal(rig.now, questions[0].about.id, Renewal::Renew(LEASE));
    assert!(rig.book.poll_emit(rig.now).is_some_and(|one| one.message.id.as_str() == "b-1"));
    rig.book.handle_renewal_options(rig.now, None);
    rig.book.handle_renewal(rig.now, questions[1].about.id, Renewal::Renew(LEASE));
    assert!(rig.settle().is_empty());
    assert_eq!(names(&rig.emit()), ["a-1"], "with the lease that it has");
    assert_eq!(rig.events(), []);
}
