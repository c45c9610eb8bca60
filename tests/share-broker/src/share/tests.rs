use super::*;
use crate::error_code::{INVALID_RECORD_STATE, INVALID_REQUEST};

const RULES: Rules =
    Rules { lock: Duration::from_secs(30), delivery_limit: 5, locks_max: 2_000, renew: true };
const START: Duration = Duration::ZERO;

/// A log of batches of 100 records.
fn log(batches: i64) -> Vec<(i64, i64, usize)> {
    (0..batches).map(|at| (at * 100, at * 100 + 99, 1_000)).collect()
}

struct Bench {
    partition: SharePartition,
    log: Vec<(i64, i64, usize)>,
    rules: Rules,
    now: Duration,
}

impl Bench {
    fn new(batches: i64) -> Self {
        Self { partition: SharePartition::starting_at(0), log: log(batches), rules: RULES, now: START }
    }

    fn ask(&mut self, member: &str, exact: bool, records_max: i64, batch_size: i64) -> Vec<(i64, i64, i16)> {
        let offset = self.partition.next_fetch();
        if !self.partition.can_acquire(&self.rules) {
            return Vec::new();
        }
        let read: Vec<_> = self.log.iter().copied().filter(|(_, last, _)| *last >= offset).collect();
        let ask = Ask { member: Arc::from(member), exact, batch_size, records_max, offset, now: self.now };
        let acquired = self.partition.acquire(&ask, &read, &self.rules);
        acquired.iter().map(|range| (range.first, range.last, range.delivery_count)).collect()
    }

    fn say(&mut self, member: &str, said: &[(i64, i64, &[i8])]) -> Result<(), i16> {
        self.say_renewing(member, said, false)
    }

    fn say_renewing(&mut self, member: &str, said: &[(i64, i64, &[i8])], renewing: bool) -> Result<(), i16> {
        let said: Vec<_> = said
            .iter()
            .map(|(first, last, types)| Acknowledgement { first: *first, last: *last, types: types.to_vec() })
            .collect();
        let answer = self.partition.acknowledge(member, &said, renewing, (self.now, &self.rules));
        answer.map_err(|refusal| refusal.code)
    }

    fn release_all(&mut self, member: &str, ranges: &[(i64, i64, i16)]) {
        let said: Vec<(i64, i64, &[i8])> =
            ranges.iter().map(|(first, last, _)| (*first, *last, &[2_i8][..])).collect();
        self.say(member, &said).expect("acquired by it");
    }
}

fn records(ranges: &[(i64, i64, i16)]) -> i64 {
    ranges.iter().map(|(first, last, _)| last - first + 1).sum()
}

#[test]
fn whole_log_batches_unless_the_limit_is_exact() {
    for (asked, got) in [(10, 100), (150, 200), (500, 500), (1_000, 1_000)] {
        assert_eq!(records(&Bench::new(20).ask("a", false, asked, asked)), got, "asked for {asked}");
        assert_eq!(records(&Bench::new(20).ask("a", true, asked, asked)), asked);
    }
    assert_eq!(Bench::new(20).ask("a", false, 300, 10), [(0, 99, 1), (100, 199, 1), (200, 299, 1)]);
    assert_eq!(Bench::new(20).ask("a", false, 300, 150), [(0, 199, 1), (200, 299, 1)]);
    assert_eq!(Bench::new(20).ask("a", true, 150, 10), [(0, 149, 1)]);
    assert_eq!(Bench::new(20).ask("a", false, 0, 10), []);
    assert_eq!(Bench::new(20).ask("a", false, -1, 10), []);
}

#[test]
fn an_exact_limit_leaves_the_rest_of_a_log_batch_to_others() {
    let mut bench = Bench::new(2);
    assert_eq!(bench.ask("a", true, 10, 10), [(0, 9, 1)]);
    let next = bench.ask("b", true, 5, 5);
    assert_eq!(next, (10..15).map(|offset| (offset, offset, 1)).collect::<Vec<_>>());
    assert_eq!(bench.say("a", &[(12, 12, &[1])]), Err(INVALID_RECORD_STATE), "another member's");
    assert_eq!(bench.say("a", &[(50, 60, &[1])]), Err(INVALID_RECORD_STATE), "fetched and not acquired");
    assert_eq!(bench.say("a", &[(5_000, 5_001, &[1])]), Err(INVALID_REQUEST), "past everything");
}

#[test]
fn no_more_records_than_locks() {
    let mut bench = Bench::new(40);
    let got: Vec<i64> = (0..5).map(|_| records(&bench.ask("a", false, 500, 500))).collect();
    assert_eq!(got, [500, 500, 500, 500, 0]);
    bench.say("a", &[(700, 709, &[2])]).expect("acquired");
    assert_eq!(
        records(&bench.ask("b", false, 500, 500)),
        10,
        "what was given back is to be had all the same"
    );
    bench.say("a", &[(0, 99, &[1])]).expect("acquired");
    assert_eq!(records(&bench.ask("a", false, 500, 500)), 100);
}

#[test]
fn poison_is_isolated_by_halves() {
    let mut bench = Bench::new(1);
    let mut got = Vec::new();
    for _ in 0..7 {
        let ranges = bench.ask("a", false, 500, 500);
        got.push(records(&ranges));
        bench.release_all("a", &ranges);
    }
    assert_eq!(got, [100, 100, 100, 50, 1, 1, 1]);
    assert_eq!(bench.partition.start(), 3, "three were delivered five times and are archived");
    assert_eq!(bench.partition.tally.exhausted, 3);
}

#[test]
fn a_bad_batch_spoils_its_partition_and_nothing_of_it_is_done() {
    let mut bench = Bench::new(2);
    bench.ask("a", true, 20, 20);
    assert_eq!(bench.say("a", &[(10, 12, &[1]), (90, 92, &[1])]), Err(INVALID_RECORD_STATE));
    assert_eq!(
        bench.say("a", &[(10, 14, &[1]), (14, 16, &[1])]),
        Err(INVALID_RECORD_STATE),
        "overlapping by one"
    );
    assert_eq!(bench.say("a", &[(13, 14, &[1]), (10, 12, &[1])]), Err(INVALID_REQUEST), "descending");
    assert_eq!(bench.say("a", &[(10, 12, &[1, 2])]), Err(INVALID_REQUEST), "two types for three");
    assert_eq!(bench.say("a", &[(10, 12, &[9])]), Err(INVALID_REQUEST));
    assert_eq!(bench.partition.tally.accepted, 0);
    assert_eq!(bench.say("a", &[(10, 12, &[1, 0, 3])]), Ok(()), "all still acquired");
    let tally = bench.partition.tally;
    assert_eq!((tally.accepted, tally.gaps, tally.rejected), (1, 1, 1));
    assert_eq!(bench.say("b", &[(0, 0, &[1])]), Err(INVALID_RECORD_STATE), "not the owner");
}

#[test]
fn what_lies_below_the_start_is_accepted_in_silence() {
    let mut bench = Bench::new(1);
    bench.ask("a", true, 10, 10);
    assert_eq!(bench.say("a", &[(0, 4, &[1]), (5, 9, &[2])]), Ok(()));
    assert_eq!(bench.partition.start(), 5);
    assert_eq!(bench.say("a", &[(0, 4, &[1])]), Ok(()), "said twice");
    assert_eq!(bench.say("a", &[(4, 5, &[1])]), Err(INVALID_RECORD_STATE));
    let mut fresh = Bench::new(1);
    assert_eq!(fresh.say("a", &[(0, 0, &[1])]), Err(INVALID_RECORD_STATE), "nothing was ever fetched");
}

#[test]
fn locks_run_out_and_are_renewed_in_full() {
    let mut bench = Bench::new(1);
    bench.ask("a", true, 5, 5);
    bench.now = Duration::from_secs(20);
    assert_eq!(
        bench.say("a", &[(0, 1, &[4])]),
        Err(INVALID_REQUEST),
        "the request does not say that it renews"
    );
    assert_eq!(bench.say_renewing("a", &[(0, 1, &[4]), (2, 2, &[1])], true), Ok(()));
    bench.now = Duration::from_secs(30);
    assert!(bench.partition.handle_timeout(bench.now, &bench.rules));
    assert_eq!(bench.partition.poll_timeout(), Some(Duration::from_secs(50)));
    assert_eq!(bench.ask("b", true, 2, 2), [(3, 3, 2), (4, 4, 2)]);
    assert_eq!(bench.say("a", &[(3, 3, &[1])]), Err(INVALID_RECORD_STATE), "held by another");
    bench.now = Duration::from_secs(50);
    assert!(bench.partition.handle_timeout(bench.now, &bench.rules));
    assert_eq!(bench.say_renewing("a", &[(0, 0, &[4])], true), Err(INVALID_RECORD_STATE), "too late");
    bench.rules.renew = false;
    assert_eq!(bench.say_renewing("b", &[(3, 3, &[4])], true), Err(INVALID_RECORD_STATE), "switched off");
    assert_eq!(bench.say("b", &[(3, 4, &[1])]), Ok(()));
}

#[test]
fn a_member_that_leaves_gives_back_and_the_attempt_counts() {
    let mut bench = Bench::new(1);
    for attempt in 1..=5 {
        assert_eq!(bench.ask("a", true, 1, 1), [(0, 0, attempt)]);
        bench.partition.release_member("a", &bench.rules);
    }
    assert_eq!(bench.ask("a", true, 1, 1), [(1, 1, 1)], "the first is archived");
}

#[test]
fn another_leader_knows_what_was_settled_and_nothing_of_locks() {
    for forget in [false, true] {
        let mut bench = Bench::new(1);
        bench.ask("a", true, 10, 10);
        bench.say("a", &[(0, 2, &[1])]).expect("acquired");
        bench.partition.take_over(forget);
        assert_eq!(bench.partition.poll_timeout(), None);
        let again = bench.ask("b", true, 1, 1);
        assert_eq!(again, [(3, 3, if forget { 1 } else { 2 })]);
    }
}

#[test]
fn retention_takes_what_was_in_flight() {
    let mut bench = Bench::new(3);
    bench.ask("a", false, 200, 200);
    bench.partition.trim(150);
    assert_eq!(bench.partition.start(), 150);
    assert_eq!(bench.say("a", &[(0, 199, &[1])]), Ok(()));
    assert_eq!(bench.partition.start(), 200);
    bench.partition.trim(250);
    assert_eq!((bench.partition.start(), bench.partition.next_fetch()), (250, 250));
}
