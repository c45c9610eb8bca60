use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::access::Trouble;
use crate::roster::Roster;

const LEASE: Duration = Duration::from_secs(60);

fn delivery(receipt: &str) -> Delivery {
    wire::delivery(tidegate_proto::handoff::Delivery {
        receipt: receipt.to_owned(),
        message_id: format!("id-{receipt}"),
        body: vec![0; 100].into(),
        lease_ms: 60_000,
        attempt: 1,
        ..Default::default()
    })
}

fn result(receipt: &str, status: Status) -> SettlementResult {
    SettlementResult { receipt: receipt.to_owned(), status, detail: "told".to_owned() }
}

fn renewal(receipt: &str, status: Status, next: Option<&str>, lease: Duration) -> RenewalResult {
    RenewalResult {
        receipt: receipt.to_owned(),
        status,
        detail: String::new(),
        next_receipt: next.map(str::to_owned),
        lease,
    }
}

struct Bench {
    book: Book,
    roster: Roster,
    now: Instant,
}

impl Bench {
    fn new(addresses: usize, keep_leases: bool) -> Self {
        let now = Instant::now();
        let credits = Credits { messages: 4, bytes: Some(1000) };
        let mut book = Book::new(credits, keep_leases, addresses, Jitter::from_seed(3));
        book.handle_link(LinkId(1), 0);
        book.handle_opened(LinkId(1), false);
        Self { book, roster: Roster::new(addresses, now, Jitter::from_seed(4)), now }
    }

    fn take(&mut self, receipt: &str) -> Number {
        self.book.handle_delivery(self.now, LinkId(1), &delivery(receipt)).expect("there is room")
    }

    /// Takes one and has it accepted.
    fn accept(&mut self, receipt: &str) {
        let number = self.take(receipt);
        self.book.handle_verdict(self.now, number, Verdict::accept());
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.book.handle_time(self.now);
    }

    fn call(&mut self) -> Option<Call> {
        self.book.poll_call(self.now, &self.roster)
    }

    fn asked(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.book.poll_ask())
            .map(|(_, ask)| match ask {
                Ask::Settle(settlement) => format!("{} {}", settlement.verdict, settlement.receipt),
                Ask::Renew(renewal) => format!("renew {}", renewal.receipt),
            })
            .collect()
    }

    fn events(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.book.poll_event())
            .filter_map(|event| match event {
                Event::Settled { message_id, status, .. } => Some(format!("{message_id} {status}")),
                Event::Unsettled { message_id, .. } => Some(format!("{message_id} unsettled")),
                Event::Lost { message_id } => Some(format!("{message_id} lost")),
                _ => None,
            })
            .collect()
    }
}

#[test]
fn a_verdict_goes_out_on_the_stream_of_its_message() {
    let mut bench = Bench::new(1, false);
    bench.accept("a");
    assert_eq!(bench.asked(), ["accept a"]);
    assert!(bench.events().is_empty() && bench.call().is_none());
    bench.book.handle_settled(bench.now, Source::Link(LinkId(1)), result("a", Status::Done));
    assert_eq!(bench.events(), ["id-a done"]);
    assert!(bench.book.is_empty() && bench.book.due().is_none());
}

#[test]
fn a_broken_stream_leaves_its_settlements_to_calls() {
    let mut bench = Bench::new(2, false);
    bench.accept("a");
    let running = bench.take("b");
    assert_eq!(bench.asked(), ["accept a"]);
    bench.book.handle_link_lost(bench.now, LinkId(1));
    bench.pass(Duration::ZERO);
    let call = bench.call().expect("a call");
    assert!(matches!(&call.batch, Batch::Settle(batch) if batch.len() == 1 && batch[0].receipt == "a"));
    let gone = Trouble { is_refusal: false, detail: "gone".to_owned() };
    bench.book.handle_answers(bench.now, call, Err(gone));
    assert!(bench.call().is_none(), "not at once");
    bench.pass(FIRST_WAIT);
    bench.book.handle_verdict(bench.now, running, Verdict::accept());
    let call = bench.call().expect("both together");
    assert_eq!(call.numbers.len(), 2);
    let results = vec![result("a", Status::Done), result("b", Status::Expired)];
    bench.book.handle_answers(bench.now, call, Ok(Answers::Settle(results)));
    assert_eq!(bench.events(), ["id-a done", "id-b expired"]);
    assert!(bench.book.is_empty() && bench.book.links.is_empty());
}

#[test]
fn tries_end_with_the_lease() {
    let mut bench = Bench::new(1, false);
    bench.accept("a");
    bench.book.handle_link_lost(bench.now, LinkId(1));
    let begin = bench.now;
    let mut calls = 0;
    while let Some(due) = bench.book.due() {
        bench.now = due.max(bench.now);
        bench.book.handle_time(bench.now);
        if let Some(call) = bench.call() {
            calls += 1;
            let results = vec![result("a", Status::RetryLater)];
            bench.book.handle_answers(bench.now, call, Ok(Answers::Settle(results)));
        }
    }
    assert_eq!(bench.events(), ["id-a unsettled"]);
    assert!(calls > TRIES_MIN && bench.now <= begin + LEASE, "{calls} calls in {:?}", bench.now - begin);
}

#[test]
fn one_refusal_is_not_the_last_word() {
    let mut bench = Bench::new(2, false);
    bench.accept("a");
    bench.book.handle_settled(bench.now, Source::Link(LinkId(1)), result("a", Status::Refused));
    let call = bench.call().expect("elsewhere");
    assert_eq!(call.address, 1);
    let refusal = Trouble { is_refusal: true, detail: "never".to_owned() };
    bench.book.handle_answers(bench.now, call, Err(refusal));
    assert_eq!(bench.events(), ["id-a refused"]);
    assert!(bench.book.is_empty());
}

#[test]
fn an_answer_that_never_comes_is_not_waited_for() {
    let mut bench = Bench::new(1, false);
    bench.accept("a");
    bench.asked();
    bench.pass(ANSWER_MAX);
    bench.pass(FIRST_WAIT);
    // Its lease is long over, but a clock may be wrong.
    assert_eq!(bench.asked(), ["accept a"]);
    for _ in 0..TRIES_MIN {
        bench.pass(ANSWER_MAX);
        bench.pass(LONGEST_WAIT);
    }
    assert_eq!(bench.events(), ["id-a unsettled"]);
}

#[test]
fn leases_are_renewed_at_half_and_receipts_change() {
    let mut bench = Bench::new(1, true);
    let number = bench.take("a");
    assert_eq!(bench.book.due(), Some(bench.now + LEASE / 2));
    bench.pass(LEASE / 2);
    assert_eq!(bench.asked(), ["renew a"]);
    bench.book.handle_renewed(bench.now, renewal("a", Status::RetryLater, None, Duration::ZERO));
    bench.pass(RENEWAL_WAIT_MAX);
    assert_eq!(bench.asked(), ["renew a"]);
    bench.book.handle_renewed(bench.now, renewal("a", Status::Done, Some("a2"), LEASE));
    assert_eq!(bench.book.due(), Some(bench.now + LEASE / 2));
    bench.pass(LEASE / 2);
    assert_eq!(bench.asked(), ["renew a2"]);
    bench.book.handle_renewed(bench.now, renewal("a2", Status::Done, Some("a3"), LEASE));
    bench.book.handle_verdict(bench.now, number, Verdict::accept());
    assert_eq!(bench.asked(), ["accept a3"]);
    bench.book.handle_settled(bench.now, Source::Link(LinkId(1)), result("a3", Status::Done));
    assert_eq!(bench.events(), ["id-a done"]);
    assert!(bench.book.by_receipt.is_empty() && bench.book.agenda.is_empty());
}

#[test]
fn a_lost_lease_is_told_once() {
    let mut bench = Bench::new(1, true);
    let a = bench.take("a");
    let b = bench.take("b");
    bench.book.handle_expired("a");
    bench.book.handle_expired("a");
    assert_eq!(bench.events(), ["id-a lost"]);
    bench.pass(LEASE / 2);
    assert_eq!(bench.asked(), ["renew b"]);
    bench.book.handle_link_lost(bench.now, LinkId(1));
    // Nobody is there to tell it.
    bench.pass(LEASE / 2);
    assert_eq!(bench.events(), ["id-b lost"]);
    for number in [a, b] {
        bench.book.handle_verdict(bench.now, number, Verdict::accept());
    }
    bench.book.handle_end();
    assert_eq!(bench.events(), ["id-a unsettled", "id-b unsettled"]);
}

#[test]
fn credits_count_what_is_open_from_elsewhere() {
    let mut bench = Bench::new(2, false);
    let numbers = [bench.take("a"), bench.take("b")];
    bench.book.handle_draining(LinkId(1));
    assert_eq!(bench.book.handle_link(LinkId(2), 1), Credits { messages: 2, bytes: Some(800) });
    assert_eq!(bench.book.poll_credits(), None);
    bench.book.handle_verdict(bench.now, numbers[0], Verdict::accept());
    assert_eq!(bench.book.poll_credits(), Some((LinkId(2), Credits { messages: 3, bytes: Some(900) })));
    bench.book.handle_link_lost(bench.now, LinkId(1));
    bench.book.handle_verdict(bench.now, numbers[1], Verdict::accept());
    assert_eq!(bench.book.poll_credits(), Some((LinkId(2), Credits { messages: 4, bytes: Some(1000) })));
    assert_eq!(bench.book.poll_credits(), None);
    bench.book.handle_stop();
    assert_eq!(bench.book.poll_credits(), Some((LinkId(2), Credits { messages: 0, bytes: Some(1000) })));
}

#[test]
fn more_than_the_credits_goes_back() {
    let mut bench = Bench::new(1, false);
    for receipt in ["a", "b", "c", "d"] {
        bench.take(receipt);
    }
    assert_eq!(bench.book.handle_delivery(bench.now, LinkId(1), &delivery("e")), None);
    assert_eq!(bench.asked(), ["release e"]);
}

/// One step of a worker's life, with numbers that are taken modulo what there is.
#[derive(Clone, Debug)]
enum Step {
    Deliver,
    Verdict(usize),
    Answer(usize, u8),
    Break,
    Drain,
    Call(u8),
    Pass(u16),
    Stop,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => Just(Step::Deliver),
        4 => any::<usize>().prop_map(Step::Verdict),
        4 => (any::<usize>(), any::<u8>()).prop_map(|(at, status)| Step::Answer(at, status)),
        1 => Just(Step::Break),
        1 => Just(Step::Drain),
        3 => any::<u8>().prop_map(Step::Call),
        3 => any::<u16>().prop_map(Step::Pass),
        1 => Just(Step::Stop),
    ];
    proptest::collection::vec(step, 0..120)
}

const STATUSES: [Status; 5] =
    [Status::Done, Status::Expired, Status::Unknown, Status::Refused, Status::RetryLater];

proptest! {
    #[test]
    fn whatever_happens_credits_hold_and_each_message_ends_once(steps in steps(), keep_leases: bool) {
        let mut bench = Bench::new(2, keep_leases);
        let (mut link, mut receipts) = (LinkId(1), 0);
        let mut running: Vec<Number> = Vec::new();
        let mut waiting: Vec<(LinkId, Ask)> = Vec::new();
        let mut ends: BTreeMap<String, usize> = BTreeMap::new();
        let mut stopped = false;
        for step in steps {
            match step {
                Step::Deliver => {
                    receipts += 1;
                    let one = delivery(&receipts.to_string());
                    running.extend(bench.book.handle_delivery(bench.now, link, &one));
                }
                Step::Verdict(at) if !running.is_empty() => {
                    let number = running.swap_remove(at % running.len());
                    bench.book.handle_verdict(bench.now, number, Verdict::accept());
                }
                Step::Answer(at, status) if !waiting.is_empty() => {
                    let (from, ask) = waiting.swap_remove(at % waiting.len());
                    let status = STATUSES[usize::from(status) % STATUSES.len()];
                    match ask {
                        Ask::Settle(Settlement { receipt, .. }) => {
                            bench.book.handle_settled(bench.now, Source::Link(from), result(&receipt, status));
                        }
                        Ask::Renew(Renewal { receipt, length }) => {
                            let next = format!("{receipt}+");
                            let answer = renewal(&receipt, status, Some(&next), length);
                            bench.book.handle_renewed(bench.now, answer);
                        }
                    }
                }
                Step::Break | Step::Drain if !stopped => {
                    if matches!(step, Step::Break) {
                        bench.book.handle_link_lost(bench.now, link);
                        waiting.retain(|(from, _)| *from != link);
                    } else {
                        bench.book.handle_draining(link);
                    }
                    link = LinkId(link.0 + 1);
                    bench.book.handle_link(link, usize::from(link.0.is_multiple_of(2)));
                }
                Step::Call(status) => {
                    if let Some(call) = bench.call() {
                        let status = STATUSES[usize::from(status) % STATUSES.len()];
                        let answers = match &call.batch {
                            Batch::Settle(batch) => Answers::Settle(
                                batch.iter().map(|one| result(&one.receipt, status)).collect(),
                            ),
                            Batch::Renew(batch) => Answers::Renew(
                                batch.iter().map(|one| renewal(&one.receipt, status, None, one.length)).collect(),
                            ),
                        };
                        bench.book.handle_answers(bench.now, call, Ok(answers));
                    }
                }
                Step::Pass(millis) => bench.pass(Duration::from_millis(millis.into())),
                Step::Stop => {
                    stopped = true;
                    bench.book.handle_stop();
                }
                _ => {}
            }
            waiting.extend(std::iter::from_fn(|| bench.book.poll_ask()));
            while bench.book.poll_credits().is_some() {}
            for event in bench.events() {
                if !event.ends_with("lost") {
                    *ends.entry(event.split(' ').next().unwrap().to_owned()).or_default() += 1;
                }
            }
            let book = &bench.book;
            prop_assert!(running.len() <= 4);
            prop_assert_eq!(running.len() as u64, book.running);
            prop_assert_eq!(book.running, book.links.values().map(|link| link.running).sum::<u64>());
            prop_assert_eq!(book.running_bytes, book.links.values().map(|link| link.running_bytes).sum::<u64>());
            prop_assert_eq!(book.open.len(), book.links.values().map(|link| link.open).sum::<usize>());
            prop_assert!(book.by_receipt.len() <= 2 * book.open.len());
            prop_assert!(book.agenda.len() <= book.open.len());
            // Whatever has been said is being told: somebody is asked, or will be.
            for open in book.open.values() {
                if matches!(open.state, State::Settling(_)) {
                    prop_assert!(open.due.is_some());
                }
            }
        }
        bench.book.handle_end();
        for event in bench.events() {
            *ends.entry(event.split(' ').next().unwrap().to_owned()).or_default() += 1;
        }
        prop_assert!(bench.book.is_empty() && bench.book.by_receipt.is_empty() && bench.book.agenda.is_empty());
        prop_assert_eq!(ends.len(), receipts);
        prop_assert!(ends.values().all(|count| *count == 1));
    }
}
