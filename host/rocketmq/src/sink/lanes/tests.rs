use std::collections::VecDeque;

use proptest::prelude::*;
use tidegate_model::{DeliveryId, Timestamp};

use super::*;

#[test]
fn a_lane_sends_one_at_a_time_and_different_lanes_side_by_side() {
    let mut lanes = Lanes::new(7);
    for number in 0..6 {
        lanes.push(at(0), letter(number, &format!("tenant-{}", number % 2), "T"));
    }
    let first = lanes.poll_send(at(0)).expect("one");
    let second = lanes.poll_send(at(0)).expect("of the other lane");
    assert_eq!((ids(&first), ids(&second)), (vec![0], vec![1]));
    assert!(lanes.poll_send(at(0)).is_none());
    lanes.handle_sent(at(1), &second, vec![Fate::Sent]);
    assert_eq!(ids(&lanes.poll_send(at(1)).expect("the next of that lane")), [3]);
    assert_eq!(outcomes(&mut lanes), [(1, Outcome::Accepted)]);
}

#[test]
fn no_more_than_so_many_lanes_are_under_way() {
    let mut lanes = Lanes::new(7);
    for number in 0..CREDITS_ORDERED as u64 {
        lanes.push(at(0), letter(number, &format!("tenant-{number}"), "T"));
    }
    let mut under_way = Vec::new();
    while let Some(shipment) = lanes.poll_send(at(0)) {
        under_way.push(shipment);
    }
    assert_eq!(under_way.len(), LANES_IN_FLIGHT_MAX);
}

#[test]
fn normal_messages_go_in_batches_side_by_side() {
    let mut lanes = Lanes::new(7);
    for number in 0..CREDITS_UNORDERED as u64 {
        lanes.push(at(0), normal(number));
    }
    let mut sizes = Vec::new();
    while let Some(shipment) = lanes.poll_send(at(0)) {
        sizes.push(shipment.messages.len());
    }
    assert_eq!(sizes, [BATCH_MESSAGES_MAX; BATCHES_IN_FLIGHT_MAX]);
}

#[test]
fn what_fails_is_held_and_then_given_back_with_what_follows_it() {
    let mut lanes = Lanes::new(7);
    for number in 0..3 {
        lanes.push(at(0), letter(number, "tenant-1", "T"));
    }
    lanes.push(at(0), letter(3, "tenant-2", "T"));
    let shipment = lanes.poll_send(at(0)).expect("one");
    let other = lanes.poll_send(at(0)).expect("one");
    lanes.handle_sent(at(0), &other, vec![Fate::Sent]);
    lanes.handle_sent(at(10), &shipment, vec![failed(false)]);
    assert_eq!(outcomes(&mut lanes), [(3, Outcome::Accepted)], "the credits are kept");
    assert!(lanes.poll_send(at(10)).is_none());
    let due = lanes.poll_timeout(at(10)).expect("it waits");
    lanes.handle_timeout(due);
    let released = |id| (id, Outcome::Released);
    assert_eq!(outcomes(&mut lanes), [released(0), released(1), released(2)]);
    assert!(lanes.is_empty());
    assert_eq!(lanes.poll_change(), None, "others could be sent");
}

/// A quota keeps one lite topic out: it waits longer each time, and no other lane does.
#[test]
fn a_lane_that_fails_again_and_again_waits_longer_and_keeps_nobody_up() {
    let mut lanes = Lanes::new(7);
    let mut now = at(0);
    let mut waits = Vec::new();
    for round in 0..10 {
        let mut again = letter(round, "new", "T");
        again.ticket.message_id = "the same".into();
        lanes.push(now, again);
        lanes.push(now, letter(100 + round, "old", "T"));
        while let Some(shipment) = lanes.poll_send(now) {
            let fate = if shipment.lane.as_deref() == Some("new") { failed(false) } else { Fate::Sent };
            lanes.handle_sent(now, &shipment, vec![fate]);
        }
        let due = lanes.poll_timeout(now).expect("it waits");
        waits.push(due.saturating_since(now));
        lanes.handle_timeout(due);
        now = due + Duration::from_millis(1);
    }
    assert!(waits[1] > waits[0] && waits[9] > Duration::from_secs(7), "{waits:?}");
    assert!(waits[9] <= LANE_WAIT_MAX);
    let accepted = outcomes(&mut lanes)
        .iter()
        .filter(|(id, outcome)| *id >= 100 && *outcome == Outcome::Accepted)
        .count();
    assert_eq!(accepted, 10);
}

#[test]
fn when_all_fails_one_try_at_a_time_is_made_until_one_works() {
    let mut lanes = Lanes::new(7);
    for number in 0..64 {
        lanes.push(at(0), letter(number, &format!("tenant-{number}"), "T"));
    }
    let mut under_way: VecDeque<_> = std::iter::from_fn(|| lanes.poll_send(at(0))).collect();
    assert_eq!(under_way.len(), 64);
    for (step, shipment) in under_way.drain(..).enumerate() {
        lanes.handle_sent(at(10 + step as u64), &shipment, vec![failed(true)]);
    }
    assert!(matches!(lanes.poll_change(), Some(Change::Held { failures: 1, .. })));
    assert_eq!(lanes.poll_change(), None, "64 at once are one failure");
    // Those come again, and wait.
    lanes.handle_timeout(at(1_000));
    assert_eq!(outcomes(&mut lanes).len(), 64);
    let mut now = at(1_001);
    for number in 0..64 {
        let mut again = letter(100 + number, &format!("tenant-{number}"), "T");
        again.ticket.message_id = format!("message-{number}").into();
        lanes.push(now, again);
    }
    for failures in 2..6 {
        let shipment = lanes.poll_send(now).expect("one try");
        assert!(lanes.poll_send(now).is_none(), "and no other beside it");
        lanes.handle_sent(now, &shipment, vec![failed(true)]);
        assert!(matches!(lanes.poll_change(), Some(Change::Held { failures: f, .. }) if f == failures));
        now = lanes.gate.until().expect("shut");
        assert!(lanes.poll_timeout(at(0)).is_some_and(|due| due <= now));
        lanes.handle_timeout(now);
    }
    let shipment = lanes.poll_send(now).expect("one try");
    lanes.handle_sent(now, &shipment, vec![Fate::Sent]);
    assert!(matches!(lanes.poll_change(), Some(Change::Resumed { .. })));
    let more = std::iter::from_fn(|| lanes.poll_send(now)).count();
    assert!(more > 32, "{more}: all others that do not wait for themselves");
}

#[test]
fn what_is_refused_says_why_and_the_next_goes_on() {
    let mut lanes = Lanes::new(7);
    lanes.push(at(0), letter(0, "tenant-1", "T"));
    lanes.push(at(0), letter(1, "tenant-1", "T"));
    let shipment = lanes.poll_send(at(0)).expect("one");
    let refused = Fate::Refused { code: "ILLEGAL_MESSAGE_TAG", detail: "no".into() };
    lanes.handle_sent(at(1), &shipment, vec![refused]);
    assert_eq!(outcomes(&mut lanes), [(0, Outcome::Rejected { reason: "no".into() })]);
    assert_eq!(ids(&lanes.poll_send(at(1)).expect("the next")), [1]);
}

#[test]
fn what_has_expired_is_not_sent_nor_what_follows_it_until_it_comes_again() {
    let mut lanes = Lanes::new(7);
    let mut old = letter(0, "tenant-1", "T");
    old.expires_at = Some(at(5_000));
    lanes.push(at(0), old);
    lanes.push(at(0), letter(1, "tenant-1", "T"));
    let mut again = letter(2, "tenant-1", "T");
    again.ticket.message_id = "message-0".into();
    lanes.push(at(5_100), again);
    assert_eq!(ids(&lanes.poll_send(at(6_000)).expect("what came again")), [2]);
    assert_eq!(outcomes(&mut lanes), [(0, Outcome::Released), (1, Outcome::Released)]);
}

#[test]
fn a_drain_gives_back_what_waits_and_sends_the_rest() {
    let mut lanes = Lanes::new(7);
    for (number, tenant) in [(0, "bad"), (1, "bad"), (2, "good"), (3, "good")] {
        lanes.push(at(0), letter(number, tenant, "T"));
    }
    let bad = lanes.poll_send(at(0)).expect("one");
    lanes.handle_sent(at(1), &bad, vec![failed(false)]);
    lanes.handle_drain(at(2));
    assert_eq!(outcomes(&mut lanes), [(0, Outcome::Released), (1, Outcome::Released)]);
    for expected in [2, 3] {
        let good = lanes.poll_send(at(3)).expect("one");
        assert_eq!(ids(&good), [expected]);
        lanes.handle_sent(at(3), &good, vec![Fate::Sent]);
    }
    assert!(lanes.is_empty() && lanes.poll_timeout(at(3)).is_none());
}

#[test]
fn a_drain_of_a_sink_that_cannot_send_ends_at_once() {
    let mut lanes = Lanes::new(7);
    for number in 0..6 {
        lanes.push(at(0), letter(number, &format!("tenant-{}", number % 3), "T"));
    }
    let under_way: Vec<_> = std::iter::from_fn(|| lanes.poll_send(at(0))).collect();
    lanes.handle_drain(at(1));
    for shipment in &under_way {
        lanes.handle_sent(at(2), shipment, vec![failed(true)]);
    }
    assert!(lanes.is_empty());
    assert!(outcomes(&mut lanes).iter().all(|(_, outcome)| *outcome == Outcome::Released));
    lanes.push(at(3), letter(9, "tenant-1", "T"));
    assert_eq!(outcomes(&mut lanes), [(9, Outcome::Released)]);
}

#[test]
fn lanes_that_failed_are_remembered_within_bounds() {
    let mut lanes = Lanes::new(7);
    let mut now = at(0);
    for number in 0..20_000 {
        lanes.push(now, letter(number, &format!("tenant-{number}"), &number.to_string()));
        let shipment = lanes.poll_send(now).expect("one");
        lanes.handle_sent(now, &shipment, vec![failed(false)]);
        now += Duration::from_secs(1);
        lanes.handle_timeout(now);
    }
    assert!(lanes.lanes.len() <= LANES_MAX);
    assert!(lanes.is_empty() && lanes.timers.is_empty());
    lanes.push(now, letter(1, "works", "T"));
    let before = lanes.lanes.len();
    let shipment = lanes.poll_send(now).expect("one");
    lanes.handle_sent(now, &shipment, vec![Fate::Sent]);
    assert_eq!(lanes.lanes.len(), before - 1, "one that works is forgotten at once");
}

/// A flow as the sink sees it: it emits each key's messages in order, takes reports late and says later still that it
/// heard, has everything from a message on come again when that is given back or runs out, and ignores what is still said
/// about those.
struct Flow {
    keys: Vec<Key>,
    channel: VecDeque<InChannel>,
    reports: VecDeque<Report>,
    /// Heard, and being settled.
    settling: Vec<DeliveryId>,
    next_id: u64,
    unreported: usize,
}

enum InChannel {
    Letter(Box<Letter>),
    Heard(DeliveryId),
}

#[derive(Default)]
struct Key {
    next: usize,
    accepted: usize,
    emitted: Vec<Emitted>,
    /// What the target topic has, in its order.
    stored: Vec<usize>,
}

struct Emitted {
    id: DeliveryId,
    number: usize,
    expires_at: Instant,
    accepted: bool,
}

const MESSAGES: usize = 12;
const KEYS: usize = 4;
const LEASE: Duration = Duration::from_secs(8);

impl Flow {
    fn new() -> Self {
        Self {
            keys: (0..KEYS).map(|_| Key::default()).collect(),
            channel: VecDeque::new(),
            reports: VecDeque::new(),
            settling: Vec::new(),
            next_id: 0,
            unreported: 0,
        }
    }

    fn emit(&mut self, now: Instant, key: usize) {
        let number = self.keys[key].next;
        if number >= MESSAGES || self.unreported >= 10 {
            return;
        }
        self.next_id += 1;
        self.unreported += 1;
        let lane = if key < 2 { format!("own-{key}") } else { "shared".to_owned() };
        let mut letter = letter(self.next_id, &lane, &key.to_string());
        letter.ticket.message_id = format!("{key}-{number}").into();
        // Two of them in each millisecond.
        letter.ticket.stored_at = Some(Timestamp::from_unix_millis(number as u64 / 2));
        letter.expires_at = Some(now + LEASE);
        let id = letter.ticket.id;
        self.keys[key].emitted.push(Emitted { id, number, expires_at: now + LEASE, accepted: false });
        self.keys[key].next += 1;
        self.channel.push_back(InChannel::Letter(Box::new(letter)));
    }

    fn hear(&mut self) {
        let Some(report) = self.reports.pop_front() else { return };
        self.unreported -= 1;
        self.settling.push(report.id);
        for key in &mut self.keys {
            let Some(at) = key.emitted.iter().position(|emitted| emitted.id == report.id) else { continue };
            match report.outcome {
                Outcome::Accepted => key.emitted[at].accepted = true,
                _ => key.run_again(at),
            }
            while key.emitted.first().is_some_and(|first| first.accepted) {
                key.accepted = key.emitted.remove(0).number + 1;
            }
        }
    }

    fn settle(&mut self, pick: usize) {
        if !self.settling.is_empty() {
            let settled = self.settling.swap_remove(pick % self.settling.len());
            self.channel.push_back(InChannel::Heard(settled));
        }
    }

    fn expire(&mut self, now: Instant) {
        for key in &mut self.keys {
            let expired = |emitted: &Emitted| !emitted.accepted && emitted.expires_at <= now;
            if let Some(at) = key.emitted.iter().position(expired) {
                key.run_again(at);
            }
        }
    }

    fn is_done(&self) -> bool {
        self.keys.iter().all(|key| key.accepted == MESSAGES) && self.unreported == 0
    }
}

impl Key {
    fn run_again(&mut self, at: usize) {
        self.next = self.emitted[at].number;
        self.emitted.truncate(at);
    }

    /// An acknowledgement was lost: the broker begins anew with a message that the target has already.
    fn lose_acknowledgement(&mut self) {
        if self.accepted > 0 && self.accepted < MESSAGES {
            self.accepted -= 1;
            self.next = self.accepted;
            self.emitted.clear();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    /// Whatever fails, however late things are heard of: nothing is lost, every emission has one report, one message of
    /// a lane is under way at a time, and the target has the messages of each key in order.
    #[test]
    fn nothing_is_lost_and_no_message_overtakes_another(
        steps in proptest::collection::vec((0u8..13, 0usize..64), 0..800),
    ) {
        let (mut flow, mut lanes) = (Flow::new(), Lanes::new(7));
        let mut under_way: Vec<Shipment> = Vec::new();
        let mut now = at(1);
        let mut reported = std::collections::HashSet::new();
        // After the random part everything works until all is done.
        let round = [(0, 0), (0, 1), (0, 2), (0, 3), (2, 0), (2, 0), (3, 0), (8, 0), (9, 0)];
        let calm = std::iter::repeat_n(round, 4_000).flatten();
        for (step, (action, pick)) in steps.iter().copied().chain(calm).enumerate() {
            now += Duration::from_millis(if step < steps.len() { 1 + 3 * pick as u64 } else { 20 });
            flow.expire(now);
            lanes.handle_timeout(now);
            match action {
                0 | 1 => flow.emit(now, pick % KEYS),
                2 | 12 => match flow.channel.pop_front() {
                    Some(InChannel::Letter(letter)) => lanes.push(now, *letter),
                    Some(InChannel::Heard(id)) => lanes.handle_heard(id),
                    None => {}
                },
                3..=7 if !under_way.is_empty() => {
                    let shipment = under_way.swap_remove(pick % under_way.len());
                    let fate = match action {
                        3 | 4 => Fate::Sent,
                        5 => failed(false),
                        _ => failed(true),
                    };
                    // An answer that is lost: stored, and nobody knows.
                    if fate == Fate::Sent || pick % 3 == 0 {
                        let ticket = &shipment.tickets[0];
                        let (key, number) = ticket.message_id.as_str().split_once('-').expect("ours");
                        let number = number.parse().expect("ours");
                        flow.keys[key.parse::<usize>().expect("ours")].stored.push(number);
                    }
                    lanes.handle_sent(now, &shipment, vec![fate]);
                }
                8 | 10 => flow.hear(),
                9 => flow.settle(pick),
                11 if pick == 0 => flow.keys[step % KEYS].lose_acknowledgement(),
                _ => {}
            }
            while let Some(shipment) = lanes.poll_send(now) {
                prop_assert!(under_way.iter().all(|other| other.lane != shipment.lane));
                under_way.push(shipment);
            }
            for report in lanes.take_reports() {
                prop_assert!(reported.insert(report.id), "reported twice: {report:?}");
                flow.reports.push_back(report);
            }
            if step >= steps.len() && flow.is_done() {
                break;
            }
        }
        let accepted: Vec<_> = flow.keys.iter().map(|key| key.accepted).collect();
        prop_assert!(flow.is_done(), "accepted {accepted:?}");
        prop_assert!(lanes.is_empty() && under_way.is_empty());
        for key in &flow.keys {
            let mut highest = 0;
            for number in &key.stored {
                prop_assert!(*number <= highest, "{:?}", key.stored);
                highest = highest.max(number + 1);
            }
            prop_assert_eq!(highest, MESSAGES);
        }
    }
}

fn letter(id: u64, lite_topic: &str, order: &str) -> Letter {
    let order = if order == "T" { lite_topic } else { order };
    let ticket = Ticket {
        id: DeliveryId(id),
        order: Some(order.into()),
        message_id: format!("message-{id}").into(),
        stored_at: None,
        arrival: 0,
    };
    let message = Outgoing::lite("T", lite_topic, "x");
    Letter { ticket, expires_at: Some(at(3_600_000_000)), message }
}

fn normal(id: u64) -> Letter {
    let letter = letter(id, "unused", "T");
    Letter { ticket: Ticket { order: None, ..letter.ticket }, message: Outgoing::normal("T", "x"), ..letter }
}

fn failed(concerns_all: bool) -> Fate {
    Fate::Failed { code: "INTERNAL_SERVER_ERROR", detail: "down".into(), concerns_all }
}

fn ids(shipment: &Shipment) -> Vec<u64> {
    shipment.tickets.iter().map(|ticket| ticket.id.0).collect()
}

fn outcomes(lanes: &mut Lanes) -> Vec<(u64, Outcome)> {
    lanes.take_reports().into_iter().map(|report| (report.id.0, report.outcome)).collect()
}

fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}
