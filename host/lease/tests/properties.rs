//! Any calls in any order, wrong ones included: the book never panics, keeps its bounds and its sums, accepts nothing
//! that was not reported, and comes to an end.

// All of it is test code, which the lints cannot know of a file under `tests/`.
#[cfg(test)]
mod calls {
    use std::collections::HashSet;
    use std::sync::Arc;
    use std::time::Duration;

    use bytes::Bytes;
    use proptest::prelude::*;
    use proptest::sample::Index;
    use tidegate_lease::{Decide, LeaseBook, Options, RenewalOptions, RenewalQuestion, Taken, Valves, Wish};
    use tidegate_model::{
        BodyState, Capacity, Deferral, Delivery, DeliveryId, Emission, Handle, Instant, Message, Outcome,
        Renewal, Report, Routing, SettleError, SettleFault, Settlement, Verb, Verdict,
    };

    const BUDGET_MESSAGES: usize = 20;
    const TRACKED_MAX: usize = 7;

    #[derive(Clone, Debug)]
    enum Call {
        Grant,
        /// Ends the grant with messages by topic and number: few, so that they come again while they are held.
        Receive(Vec<(u8, u8)>),
        Decide,
        Verdict(Index, Verdict),
        Emit,
        Report(Index, Outcome, Option<f64>),
        Settle(u8),
        Answer(Index, bool),
        Advance(u64),
        /// A verdict, a report and a result for an id that may never have been.
        Garbage(u64),
        Valves(u32),
        Renewals(Option<(u64, bool, u64)>),
        Ask,
        Keep(Index, Renewal),
        Wish(Index, u64),
        Drain,
        Resume,
        Demand(usize),
    }

    fn renewal() -> impl Strategy<Value = Renewal> {
        prop_oneof![
            5 => delay().prop_map(Renewal::Renew),
            1 => Just(Renewal::Release),
            1 => Just(Renewal::Lapse),
        ]
    }

    fn delay() -> impl Strategy<Value = Duration> {
        prop_oneof![
            Just(Duration::ZERO),
            (0_u64..100_000).prop_map(Duration::from_millis),
            Just(Duration::MAX)
        ]
    }

    fn verdict() -> impl Strategy<Value = Verdict> {
        prop_oneof![
            5 => Just(Verdict::Deliver),
            2 => delay().prop_map(|delay| Verdict::Defer(Deferral { delay, reason: "property".into() })),
            1 => Just(Verdict::Reject { reason: "property".into() }),
            1 => Just(Verdict::Discard { reason: "property".into() }),
        ]
    }

    fn outcome() -> impl Strategy<Value = Outcome> {
        prop_oneof![
            5 => Just(Outcome::Accepted),
            2 => delay().prop_map(|delay| Outcome::Deferred { delay }),
            1 => Just(Outcome::Released),
            1 => Just(Outcome::Rejected { reason: "property".into() }),
        ]
    }

    fn call() -> impl Strategy<Value = Call> {
        prop_oneof![
            4 => Just(Call::Grant),
            4 => prop::collection::vec((0_u8..4, 0_u8..6), 0..6).prop_map(Call::Receive),
            6 => Just(Call::Decide),
            6 => (any::<Index>(), verdict()).prop_map(|(index, verdict)| Call::Verdict(index, verdict)),
            6 => Just(Call::Emit),
            5 => (any::<Index>(), outcome(), any::<Option<f64>>())
                .prop_map(|(index, outcome, cost)| Call::Report(index, outcome, cost)),
            4 => (0_u8..4).prop_map(Call::Settle),
            4 => (any::<Index>(), any::<bool>()).prop_map(|(index, ok)| Call::Answer(index, ok)),
            2 => (0_u64..40_000).prop_map(Call::Advance),
            1 => any::<u64>().prop_map(Call::Garbage),
            1 => (0_u32..20).prop_map(Call::Valves),
            2 => any::<Option<(u64, bool, u64)>>().prop_map(|options| {
                Call::Renewals(options.map(|(ahead, too, length)| (ahead % 40_000, too, length % 90_000)))
            }),
            5 => Just(Call::Ask),
            5 => (any::<Index>(), renewal()).prop_map(|(index, answer)| Call::Keep(index, answer)),
            3 => (any::<Index>(), 0_u64..200_000).prop_map(|(index, length)| Call::Wish(index, length)),
            1 => prop::bool::weighted(0.1).prop_map(|drain| if drain { Call::Drain } else { Call::Grant }),
            1 => Just(Call::Resume),
            2 => (0_usize..2 * BUDGET_MESSAGES).prop_map(Call::Demand),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

        #[test]
        fn any_calls_in_any_order(calls in prop::collection::vec(call(), 1..150), given_back: bool) {
            let mut caller = Caller::new(given_back);
            for call in calls {
                caller.call(call);
                caller.check();
            }
            caller.end();
        }
    }

    struct Caller {
        now: Instant,
        book: LeaseBook,
        grants: Vec<Capacity>,
        decides: Vec<Decide>,
        emissions: Vec<Emission>,
        settlements: Vec<Settlement>,
        questions: Vec<RenewalQuestion>,
        may_be_accepted: HashSet<DeliveryId>,
        received: u64,
        decided: u64,
        open_max: usize,
    }

    impl Caller {
        fn new(given_back: bool) -> Self {
            let options = Options {
                budget_messages: BUDGET_MESSAGES,
                budget_bytes: 100_000,
                receive_batch_max: 8,
                valves: Valves::default(),
                keys_max: 2,
                tracked_messages_max: TRACKED_MAX,
                may_be_given_back: given_back,
                keeps_deferred: false,
                seed: 1,
            };
            Self {
                now: Instant::ZERO,
                book: LeaseBook::new(options, Instant::ZERO),
                grants: Vec::new(),
                decides: Vec::new(),
                emissions: Vec::new(),
                settlements: Vec::new(),
                questions: Vec::new(),
                may_be_accepted: HashSet::new(),
                received: 0,
                decided: 0,
                open_max: BUDGET_MESSAGES,
            }
        }

        fn call(&mut self, call: Call) {
            match call {
                Call::Grant => {
                    let before = self.open();
                    let granted = self.book.poll_receive(self.now);
                    assert_eq!(self.open() - before, granted.map_or(0, |granted| granted.messages));
                    assert!(granted.is_none() || self.open() <= self.open_max, "{:?}", self.book.counts());
                    self.grants.extend(granted);
                }
                Call::Demand(open_max) => {
                    let before = self.book.counts();
                    self.open_max = open_max;
                    self.book.handle_demand(open_max);
                    assert_eq!(self.book.counts(), before, "nothing that is held is dropped");
                }
                Call::Receive(names) => {
                    if let Some(granted) = self.grants.pop() {
                        let names = names.into_iter().take(granted.messages);
                        let deliveries: Vec<_> =
                            names.map(|(topic, number)| self.delivery(topic, number)).collect();
                        self.received += deliveries.len() as u64;
                        self.book.handle_received(self.now, granted, deliveries);
                    }
                }
                Call::Decide => {
                    let decide = self.book.poll_decide(self.now);
                    self.decided += u64::from(decide.is_some());
                    self.decides.extend(decide);
                }
                Call::Verdict(index, verdict) => {
                    if let Some(decide) = pick(&mut self.decides, index) {
                        if let Verdict::Discard { .. } = verdict {
                            self.may_be_accepted.insert(decide.id);
                        }
                        self.book.handle_verdict(self.now, decide.id, verdict);
                    }
                }
                Call::Emit => self.emissions.extend(self.book.poll_emit(self.now)),
                Call::Report(index, outcome, cost) => {
                    if let Some(emission) = pick(&mut self.emissions, index) {
                        self.report(emission.id, outcome, cost);
                    }
                }
                Call::Settle(room) => {
                    self.book.poll_settle_batch(self.now, usize::from(room), &mut self.settlements);
                }
                Call::Answer(index, ok) => {
                    if let Some(settlement) = pick(&mut self.settlements, index) {
                        self.answer(&settlement, ok);
                    }
                }
                Call::Advance(millis) => {
                    self.now += Duration::from_millis(millis);
                    self.book.handle_timeout(self.now);
                }
                Call::Garbage(id) => {
                    // Never issued: the sequence number is far ahead, or zero.
                    let id = DeliveryId(id & 0xff_ffff | if id & 1 == 0 { 0 } else { 1 << 60 });
                    self.book.handle_verdict(self.now, id, Verdict::Deliver);
                    self.book.handle_settled(self.now, id, Ok(None));
                    self.book.handle_renewal(self.now, id, Renewal::Release);
                    let wish = self.book.handle_renewal_wish(self.now, id, Duration::from_secs(60));
                    assert_eq!(wish, Wish::LeaseGone);
                    let report = Report { id, outcome: Outcome::Accepted, cost: None };
                    assert_eq!(self.book.handle_report(self.now, report), Taken::Unknown);
                }
                Call::Valves(max_delivery_attempt) => {
                    self.book.handle_valves(Valves { max_delivery_attempt, ..Valves::default() });
                }
                Call::Renewals(options) => {
                    let options = options.map(|(ahead, renew_emitted, length)| RenewalOptions {
                        ahead: Duration::from_millis(ahead),
                        renew_emitted,
                        length_max: Duration::from_millis(length),
                    });
                    self.book.handle_renewal_options(self.now, options);
                }
                Call::Ask => {
                    let question = self.book.poll_renew(self.now);
                    assert!(question.as_ref().is_none_or(|one| !one.remaining.is_zero()), "{question:?}");
                    self.questions.extend(question);
                }
                Call::Keep(index, answer) => {
                    if let Some(question) = pick(&mut self.questions, index) {
                        self.book.handle_renewal(self.now, question.about.id, answer);
                    }
                }
                Call::Wish(index, length) => {
                    if !self.emissions.is_empty() {
                        let id = self.emissions[index.index(self.emissions.len())].id;
                        let wish = self.book.handle_renewal_wish(self.now, id, Duration::from_millis(length));
                        if let Wish::Enough(until) = wish {
                            assert_eq!(self.book.lease_end(id), Some(until));
                        }
                    }
                }
                Call::Drain => self.book.handle_drain(self.now),
                Call::Resume => self.book.handle_resume(),
            }
        }

        /// What is asked for, and what is held and not being settled.
        fn open(&self) -> usize {
            let counts = self.book.counts();
            counts.granted.messages + counts.in_flight - counts.settling - counts.sent
        }

        fn report(&mut self, id: DeliveryId, outcome: Outcome, cost: Option<f64>) {
            let accepted = outcome == Outcome::Accepted;
            let taken = self.book.handle_report(self.now, Report { id, outcome, cost });
            if accepted && taken == Taken::Yes {
                self.may_be_accepted.insert(id);
            }
        }

        fn answer(&mut self, settlement: &Settlement, ok: bool) {
            if settlement.verb == Verb::Accept {
                assert!(
                    self.may_be_accepted.contains(&settlement.id),
                    "{}: nobody accepted it",
                    settlement.id
                );
            }
            let fault = SettleFault::Broker;
            let error = SettleError { verb: settlement.verb.name(), detail: "property".into(), fault };
            self.book.handle_settled(self.now, settlement.id, if ok { Ok(None) } else { Err(error) });
        }

        fn delivery(&self, topic: u8, number: u8) -> (Delivery, Arc<str>) {
            let name: Arc<str> = format!("topic-{topic}").into();
            let message = Message {
                topic: Arc::clone(&name),
                lite_topic: None,
                group: None,
                id: format!("{topic}-{number}").into(),
                tag: None,
                keys: Vec::new(),
                properties: Vec::new(),
                body: Bytes::from_static(&[0; 64]),
                body_state: BodyState::Intact,
                born_at: None,
                stored_at: None,
            };
            let lease = Duration::from_secs(30);
            let delivery = Delivery {
                message: Arc::new(message),
                order: topic.is_multiple_of(2).then(|| Arc::clone(&name)),
                attempt: 1,
                received_at: self.now,
                lease,
                expires_at: self.now + lease,
                handle: Handle { routing: Arc::new(Routing::default()), text: "handle".into() },
            };
            (delivery, name)
        }

        fn check(&self) {
            let counts = self.book.counts();
            assert!(counts.in_flight + counts.granted.messages <= BUDGET_MESSAGES, "{counts:?}");
            assert!(counts.tracked_messages <= TRACKED_MAX, "{counts:?}");
            assert!(counts.keys <= 2 + counts.in_flight, "{counts:?}");
            assert!(counts.ordered_keys <= counts.in_flight + counts.renewing, "{counts:?}");
            let renewals = counts.renewals;
            assert_eq!(renewals.sent, renewals.done + renewals.failed + counts.renewing as u64, "{counts:?}");
            let answered = renewals.answered_renew + renewals.answered_release + renewals.answered_lapse;
            assert_eq!(renewals.asked, answered + self.questions.len() as u64, "{counts:?}");
            let by_state = counts.received
                + counts.deciding
                + counts.queued
                + counts.emitted
                + counts.settling
                + counts.sent;
            assert_eq!(by_state, counts.in_flight, "{counts:?}");
            assert_eq!(counts.in_flight == 0, counts.in_flight_bytes == 0, "{counts:?}");
            let undecided = counts.undecided;
            let left = undecided.dropped + undecided.expired + undecided.merged + undecided.released;
            assert_eq!(self.received, self.decided + counts.received as u64 + left, "{counts:?}");
            let standing = self.book.standing(self.now, "topic-1");
            assert!((0.0..=1.0).contains(&standing.key_share), "{standing:?}");
            assert!(standing.key_in_flight <= standing.flow_in_flight, "{standing:?}");
            assert_eq!(standing.flow_in_flight as usize, counts.in_flight);
        }

        /// Drains, lets every lease end, answers every settlement: nothing may be left.
        fn end(mut self) {
            for granted in std::mem::take(&mut self.grants) {
                self.book.handle_received(self.now, granted, Vec::new());
            }
            self.book.handle_drain(self.now);
            // No lease lasts longer, renewed or not.
            self.now += Duration::from_secs(300);
            self.book.handle_timeout(self.now);
            loop {
                self.book.poll_settle_batch(self.now, 3, &mut self.settlements);
                let Some(settlement) = self.settlements.pop() else { break };
                self.answer(&settlement, true);
            }
            assert!(self.book.is_drained(), "{:?}", self.book.counts());
            self.check();
            assert_eq!(self.book.counts().ordered_keys, 0);
            assert_eq!(self.book.poll_emit(self.now).map(|emission| emission.id), None);
        }
    }

    fn pick<T>(from: &mut Vec<T>, index: Index) -> Option<T> {
        if from.is_empty() { None } else { Some(from.swap_remove(index.index(from.len()))) }
    }
}
