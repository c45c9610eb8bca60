//! Which deliveries beyond the first are explained, and by what.
//!
//! A delivery `d'` of a message is a duplicate when an earlier delivery of it was taken; let `d` be the latest of those.
//! It is explained when `d` was *lost*: its worker was not told that it is done, and before `d'` was taken
//!
//! * its worker was killed (the host releases at once what a dead worker held, or the broker does when its lease ends), or
//! * its lease ended, whoever had died or was slow, or
//! * the worker gave it back (a deferral or a release that was done).
//!
//! The death of a host explains nothing by itself: the lease must have ended, since workers settle at the other host.
//!
//! On a lite topic there is one more cause, which is the broker's way and not the host's: it hands a lite topic out in order, from
//! its first unacknowledged message on, and what comes after that again, done or not. So `d'` is also explained when an
//! earlier message of its lite topic was lost in this sense between `d` and `d'`: the newest delivery of it that anybody took
//! before that moment, not one that was done. And a message that nobody had in hand at the moment of a kill, since it was on its way
//! to a worker or back, is lost by that kill.
//!
//! Nor does it keep an acknowledgement while an earlier message of the lite topic is open. The host that gave messages out waits for
//! that; past it the order is the workers' affair, and these do not keep one. So `d'` is also explained when `d` was settled while
//! an earlier message of its lite topic was in hand and not done, and one of the two was settled past the owner; and when it comes behind
//! an earlier message that came again for that reason.
//!
//! And a message that its sender had to send again, since it was not told that the broker had it, may be there as often as it
//! was sent: so many deliveries of it, and no more, need no other explanation.
//!
//! On brokers where a lease is a lock of a connection, as those of Kafka's share groups, there is no order, and locks are lost with
//! more than time: with the host that took them, whose connections end with it, and with the node that leads the partition. Both
//! explain what was delivered under a lock from before, also when it came to a worker only after. And what was stored
//! twice has two ids there, and is two messages.
//!
//! Everything else is unexplained; above all a message of a normal topic that comes again after it was done, and one of a
//! lite topic of which nothing before it was lost.

use std::collections::BTreeMap;

use super::journal::{Delivery, Millis, Record, Way};
use crate::ledger::Place;

/// How much later than it happened the audit may learn of something: a delivery is told with what is left of its lease, and
/// is on its way to the worker's line for a while, on a machine that is busy.
const SLACK: Millis = 1_000;

/// Why a message came again.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Cause {
    /// Its worker was killed before it was told that it is done.
    WorkerKilled,
    /// Its lease ended after its host was killed, before it was done.
    HostKilled,
    /// Its lease ended before it was done.
    LeaseEnded,
    /// Its lock went with its host, which was killed.
    LockGoneWithHost,
    /// Its lock went with the node that led its partition, which was killed.
    LockGoneWithNode,
    /// Its worker gave it back.
    GivenBack,
    /// An earlier message of its lite topic was lost, and the broker began there.
    BehindALostOne,
    /// The same; the earlier one was with nobody when a worker or the host was killed.
    BehindOneUnderWay,
    /// It, or one before it, was settled past its owner before an earlier message of its lite topic was done.
    Overtook,
    /// It was sent again, and stored twice.
    SentAgain,
    /// None of these.
    Unexplained,
}

/// What the brokers hand out again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// Columns below are lite topics; the rest has no order.
    pub(crate) lite_columns: u32,
    /// How long a lock is, where it is a connection's and goes with that.
    pub(crate) lock: Option<Millis>,
}

impl Rules {
    /// Whether a kill may have kept from a delivery's worker that it is done.
    pub(crate) fn may_be_settled_unheard(self, record: &Record, delivery: &Delivery) -> bool {
        let worker_killed = record.lives[delivery.life.0].killed_at.is_some();
        worker_killed
            || self.lock.is_some_and(|lock| {
                let mut nodes = record.node_kills.iter().map(|kill| kill.at);
                let since = locked_at(delivery, lock);
                record.host_kills.iter().any(|at| *at >= since) || nodes.any(|at| at >= since)
            })
    }
}

/// When a delivery was locked or its lock renewed for the last time, as early as it may have been.
fn locked_at(delivery: &Delivery, lock: Millis) -> Millis {
    delivery.lease_ends.min(delivery.took_at + lock).saturating_sub(lock + SLACK)
}

/// The duplicates of a run.
#[derive(Debug, Default)]
pub(crate) struct Duplicates {
    pub(crate) by_cause: BTreeMap<Cause, u64>,
    /// Of those without an explanation, the delivery before and the one that is too many.
    pub(crate) unexplained: Vec<(usize, usize)>,
}

/// Finds and explains the duplicates.
pub(crate) fn explain(record: &Record, rules: Rules) -> Duplicates {
    let mut by_place: BTreeMap<Place, Vec<usize>> = BTreeMap::new();
    for (at, delivery) in record.deliveries.iter().enumerate() {
        by_place.entry(delivery.place).or_default().push(at);
    }
    for deliveries in by_place.values_mut() {
        deliveries.sort_by_key(|at| (record.deliveries[*at].took_at, *at));
    }
    let kills: Vec<Millis> = {
        let workers = record.lives.iter().filter_map(|life| life.killed_at);
        workers.chain(record.host_kills.iter().copied()).collect()
    };
    let view = View { record, rules, by_place: &by_place, kills };
    let mut duplicates = Duplicates::default();
    for (place, deliveries) in &by_place {
        let mut copies = record.sent_again.get(place).copied().unwrap_or_default();
        for (nth, at) in deliveries.iter().enumerate().skip(1) {
            let again = &record.deliveries[*at];
            // The latest one; where ids tell copies apart, the latest of the same.
            let mut earlier = deliveries[..nth].iter().rev();
            let before = match rules.lock {
                None => earlier.next(),
                Some(_) => earlier.find(|before| record.deliveries[**before].message == again.message),
            };
            let cause = before
                .map_or(Cause::Unexplained, |before| view.cause(*place, &record.deliveries[*before], again));
            let is_copy =
                cause == Cause::Unexplained && copies > 0 && (rules.lock.is_none() || before.is_none());
            let cause = if is_copy { Cause::SentAgain } else { cause };
            copies -= u64::from(is_copy);
            *duplicates.by_cause.entry(cause).or_insert(0) += 1;
            if cause == Cause::Unexplained {
                duplicates.unexplained.push((*before.unwrap_or(&deliveries[nth - 1]), *at));
            }
        }
    }
    duplicates
}

struct View<'a> {
    record: &'a Record,
    rules: Rules,
    by_place: &'a BTreeMap<Place, Vec<usize>>,
    kills: Vec<Millis>,
}

impl View<'_> {
    fn cause(&self, place: Place, before: &Delivery, again: &Delivery) -> Cause {
        if let Some((_, cause)) = self.losses(before).find(|(at, _)| *at <= again.took_at) {
            let host_kills = &self.record.host_kills;
            let while_held = |at: &&Millis| (before.took_at..=again.took_at).contains(at);
            return match cause {
                Cause::LeaseEnded if host_kills.iter().any(|at| while_held(&at)) => Cause::HostKilled,
                cause => cause,
            };
        }
        if place.lite_topic >= self.rules.lite_columns {
            return Cause::Unexplained;
        }
        let window = before.took_at.saturating_sub(SLACK)..=again.took_at;
        let earlier = || (0..place.number).map(|number| Place { number, ..place });
        if earlier().any(|earlier| self.was_lost(earlier, &window)) {
            return Cause::BehindALostOne;
        }
        let kills = self.kills.iter().filter(|at| window.contains(at));
        if kills.into_iter().any(|at| earlier().any(|earlier| self.was_under_way(earlier, *at))) {
            return Cause::BehindOneUnderWay;
        }
        if self.overtook(before) || earlier().any(|earlier| self.comes_again(earlier, &window)) {
            return Cause::Overtook;
        }
        Cause::Unexplained
    }

    /// Whether a delivery of a lite topic may have been acknowledged at the broker while an earlier message was in somebody's hands,
    /// and the host that gave them out could not wait for that.
    fn overtook(&self, delivery: &Delivery) -> bool {
        let (Some(settled_at), Some(confirmed_at)) = (delivery.settled_at, delivery.confirmed_at) else {
            return false;
        };
        let is_past = |of: &Delivery| self.record.lives[of.life.0].way == Way::Other;
        (0..delivery.place.number).any(|number| {
            let newest = self.newest(Place { number, ..delivery.place }, confirmed_at);
            newest.map(|at| &self.record.deliveries[at]).is_some_and(|earlier| {
                let is_open = earlier.confirmed_at.is_none_or(|done| done >= settled_at);
                is_open && (is_past(delivery) || is_past(earlier))
            })
        })
    }

    /// Whether a message that overtook an earlier one comes again in a window.
    fn comes_again(&self, place: Place, window: &std::ops::RangeInclusive<Millis>) -> bool {
        let Some(deliveries) = self.by_place.get(&place) else { return false };
        deliveries.windows(2).any(|pair| {
            let (before, again) = (&self.record.deliveries[pair[0]], &self.record.deliveries[pair[1]]);
            // It is taken before what comes behind it, or beside it.
            let is_now = *window.start() <= again.took_at && again.took_at <= window.end() + SLACK;
            is_now && self.overtook(before)
        })
    }

    /// When and how a delivery was lost, if it was; the end of its lease as early as it may have been.
    fn losses(&self, delivery: &Delivery) -> impl Iterator<Item = (Millis, Cause)> {
        let undone_at = |at: Millis| delivery.confirmed_at.is_none_or(|done| done > at);
        let killed = self.record.lives[delivery.life.0].killed_at;
        let killed = killed.filter(|_| delivery.confirmed_at.is_none()).map(|at| (at, Cause::WorkerKilled));
        let given_back = delivery.given_back_at.map(|at| (at, Cause::GivenBack));
        let lease_end = delivery.lease_ends.saturating_sub(SLACK);
        let ended = undone_at(lease_end).then_some((lease_end, Cause::LeaseEnded));
        let with_connection = self.rules.lock.into_iter().flat_map(move |lock| {
            let since = locked_at(delivery, lock);
            let column = delivery.place.lite_topic;
            let hosts = self.record.host_kills.iter().map(|at| (*at, Cause::LockGoneWithHost));
            let led = self.record.node_kills.iter().filter(move |kill| kill.columns.contains(&column));
            let nodes = led.map(|kill| (kill.at, Cause::LockGoneWithNode));
            hosts.chain(nodes).filter(move |(at, _)| since <= *at && undone_at(*at))
        });
        [killed, given_back].into_iter().flatten().chain(with_connection).chain(ended)
    }

    /// Whether a message was lost at some moment of a window, with the newest delivery that there was at that moment.
    fn was_lost(&self, place: Place, window: &std::ops::RangeInclusive<Millis>) -> bool {
        let Some(deliveries) = self.by_place.get(&place) else { return false };
        deliveries.iter().any(|at| {
            self.losses(&self.record.deliveries[*at])
                .any(|(lost_at, _)| window.contains(&lost_at) && self.newest(place, lost_at) == Some(*at))
        })
    }

    /// Whether a message was with nobody at a moment: never taken, or lost and not yet taken again.
    fn was_under_way(&self, place: Place, moment: Millis) -> bool {
        self.newest(place, moment).is_none_or(|at| {
            let mut losses = self.losses(&self.record.deliveries[at]);
            losses.any(|(lost_at, _)| lost_at <= moment)
        })
    }

    /// The last delivery of a message that was taken by a moment.
    fn newest(&self, place: Place, moment: Millis) -> Option<usize> {
        let deliveries = self.by_place.get(&place)?;
        deliveries.iter().rev().find(|at| self.record.deliveries[**at].took_at <= moment).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::super::journal::{Life, LifeId, NodeKill};
    use super::*;

    const LEASE: Millis = 15_000;
    /// From a settlement to its answer.
    const TRIP: Millis = 5;

    /// A run of two workers; columns 0 and 1 are lite topics, 2 is not.
    #[derive(Default)]
    struct Run(Record);

    impl Run {
        fn new() -> Self {
            let life = |worker: &str| Life { worker: worker.into(), way: Way::Other, killed_at: None };
            Self(Record { lives: vec![life("go"), life("python")], ..Record::default() })
        }

        fn killed(mut self, life: usize, at: Millis) -> Self {
            self.0.lives[life].killed_at = Some(at);
            self
        }

        fn host_killed(mut self, at: Millis) -> Self {
            self.0.host_kills.push(at);
            self
        }

        fn took(mut self, column: u32, number: u32, life: usize, at: Millis, done: Option<Millis>) -> Self {
            self.0.deliveries.push(Delivery {
                place: Place { lite_topic: column, number },
                message: "m".into(),
                life: LifeId(life),
                took_at: at,
                lease_ends: at + LEASE,
                settled_at: done.map(|done| done.saturating_sub(TRIP)),
                confirmed_at: done,
                given_back_at: None,
            });
            self
        }

        fn at_its_owner(mut self, life: usize) -> Self {
            self.0.lives[life].way = Way::Owner;
            self
        }

        fn causes(&self) -> Vec<(Cause, u64)> {
            explain(&self.0, Rules { lite_columns: 2, lock: None }).by_cause.into_iter().collect()
        }

        fn node_killed(mut self, at: Millis, columns: &[u32]) -> Self {
            self.0.node_kills.push(NodeKill { at, columns: columns.iter().copied().collect() });
            self
        }

        /// The same where leases are locks of a connection.
        fn causes_with_locks(&self) -> Vec<(Cause, u64)> {
            explain(&self.0, Rules { lite_columns: 0, lock: Some(LEASE) }).by_cause.into_iter().collect()
        }
    }

    #[test]
    fn nothing_twice_needs_no_explanation() {
        assert_eq!(Run::new().took(0, 0, 0, 5, Some(9)).took(0, 1, 0, 6, None).causes(), []);
    }

    #[test]
    fn a_delivery_that_was_lost_explains_the_next_one() {
        let killed = Run::new().killed(0, 50).took(2, 0, 0, 10, None).took(2, 0, 1, 80, Some(99));
        assert_eq!(killed.causes(), [(Cause::WorkerKilled, 1)]);
        let ended = Run::new().took(2, 0, 0, 10, None).took(2, 0, 1, 15_100, Some(15_200));
        assert_eq!(ended.causes(), [(Cause::LeaseEnded, 1)]);
        let host = ended.host_killed(4_000);
        assert_eq!(host.causes(), [(Cause::HostKilled, 1)]);
        let mut back = Run::new().took(2, 0, 0, 10, None).took(2, 0, 1, 80, Some(99));
        back.0.deliveries[0].given_back_at = Some(60);
        assert_eq!(back.causes(), [(Cause::GivenBack, 1)]);
    }

    #[test]
    fn what_was_done_or_still_leased_does_not() {
        let unexplained = [(Cause::Unexplained, 1)];
        // Done, and its worker killed later.
        let done = Run::new().killed(0, 50).took(2, 0, 0, 10, Some(20)).took(2, 0, 1, 80, Some(99));
        assert_eq!(done.causes(), unexplained);
        // The host killed, and the lease not over.
        let host = Run::new().host_killed(50).took(2, 0, 0, 10, None).took(2, 0, 1, 9_000, Some(9_999));
        assert_eq!(host.causes(), unexplained);
        // Done, and the lease over.
        let late = Run::new().host_killed(50).took(2, 0, 0, 10, Some(90)).took(2, 0, 1, 16_000, Some(16_100));
        assert_eq!(late.causes(), unexplained);
        // Another worker killed.
        let other = Run::new().killed(1, 50).took(2, 0, 0, 10, None).took(2, 0, 0, 80, Some(99));
        assert_eq!(other.causes(), unexplained);
        // Killed before it took anything, or after the message had come again.
        let later = Run::new().killed(0, 500).took(2, 0, 0, 10, None).took(2, 0, 1, 80, Some(99));
        assert_eq!(later.causes(), unexplained);
        let mut run = Run::new().took(2, 0, 0, 10, Some(20)).took(2, 0, 1, 80, Some(99));
        run = run.took(2, 0, 1, 16_000, Some(16_001));
        assert_eq!(run.causes(), [(Cause::Unexplained, 2)]);
    }

    #[test]
    fn a_lite_topic_is_begun_anew_behind_what_was_lost_in_it() {
        // 0 is lost with its worker; 1, done by another, comes again behind it.
        let run = |column| {
            let run = Run::new().killed(0, 500).took(column, 0, 0, 100, None);
            let run = run.took(column, 1, 1, 110, Some(200)).took(column, 0, 1, 600, Some(700));
            run.took(column, 1, 1, 610, Some(710))
        };
        assert_eq!(run(0).causes(), [(Cause::WorkerKilled, 1), (Cause::BehindALostOne, 1)]);
        assert_eq!(run(2).causes(), [(Cause::WorkerKilled, 1), (Cause::Unexplained, 1)]);
        // Only what comes behind it.
        let before = Run::new().killed(0, 500).took(0, 1, 0, 100, None).took(0, 0, 1, 90, Some(95));
        let before = before.took(0, 0, 1, 610, Some(700)).took(0, 1, 1, 620, Some(700));
        assert_eq!(before.causes(), [(Cause::WorkerKilled, 1), (Cause::Unexplained, 1)]);
        // Only in the same lite topic.
        let other = Run::new().killed(0, 500).took(1, 0, 0, 100, None).took(1, 0, 1, 600, Some(700));
        let other = other.took(0, 0, 1, 105, Some(190)).took(0, 1, 1, 110, Some(200));
        let other = other.took(0, 1, 1, 610, Some(710));
        assert_eq!(other.causes(), [(Cause::WorkerKilled, 1), (Cause::Unexplained, 1)]);
    }

    #[test]
    fn a_loss_counts_once_and_in_its_time() {
        // 0 is lost and done again before 1 is taken: that explains nothing of 1.
        let run = Run::new().killed(0, 500).took(0, 0, 0, 100, None).took(0, 0, 1, 600, Some(700));
        let run = run.took(0, 1, 1, 9_000, Some(9_100)).took(0, 1, 1, 30_000, Some(30_100));
        assert_eq!(run.causes(), [(Cause::WorkerKilled, 1), (Cause::Unexplained, 1)]);
        // 0 was done when its worker was killed.
        let run = Run::new().killed(0, 500).took(0, 0, 0, 100, Some(150));
        let run = run.took(0, 1, 1, 110, Some(200)).took(0, 1, 1, 600, Some(700));
        assert_eq!(run.causes(), [(Cause::Unexplained, 1)]);
    }

    #[test]
    fn what_was_settled_before_an_earlier_one_comes_again_with_what_is_behind_it() {
        // 1 is done before 0, and 2 after both: both come again.
        let run = |column, settled| {
            let run = Run::new().took(column, 0, 0, 100, Some(220)).took(column, 1, 1, 105, Some(settled));
            let run = run.took(column, 2, 1, 230, Some(240)).took(column, 1, 1, 250, Some(260));
            run.took(column, 2, 0, 255, Some(270))
        };
        assert_eq!(run(0, 150).causes(), [(Cause::Overtook, 2)]);
        assert_eq!(run(0, 224).causes(), [(Cause::Overtook, 2)], "they were under way at the same time");
        assert_eq!(run(0, 229).causes(), [(Cause::Unexplained, 2)], "0 was done before 1 was settled");
        assert_eq!(run(2, 150).causes(), [(Cause::Unexplained, 2)], "there is no order");
        let at_owner = run(0, 150).at_its_owner(0).at_its_owner(1);
        assert_eq!(at_owner.causes(), [(Cause::Unexplained, 2)], "the owner waits");
        // It overtook one and did not come again: that explains nothing behind it.
        let run = Run::new().took(0, 0, 0, 100, Some(220)).took(0, 1, 1, 105, Some(150));
        let run = run.took(0, 2, 1, 230, Some(240)).took(0, 2, 0, 255, Some(270));
        assert_eq!(run.causes(), [(Cause::Unexplained, 1)]);
    }

    #[test]
    fn what_was_sent_twice_may_come_twice_and_no_more() {
        let mut run = Run::new().took(2, 0, 0, 10, Some(20)).took(2, 0, 1, 30, Some(40));
        run = run.took(2, 0, 1, 50, Some(60));
        run.0.sent_again.insert(Place { lite_topic: 2, number: 0 }, 1);
        assert_eq!(run.causes(), [(Cause::SentAgain, 1), (Cause::Unexplained, 1)]);
    }

    #[test]
    fn what_was_on_its_way_at_a_kill_is_lost_by_it() {
        // 0 was on its way to the worker that was killed.
        let run = Run::new().killed(0, 500).took(0, 1, 1, 110, Some(200));
        let run = run.took(0, 0, 1, 600, Some(700)).took(0, 1, 1, 610, Some(710));
        assert_eq!(run.causes(), [(Cause::BehindOneUnderWay, 1)]);
        // Nothing was killed between the two.
        let run = Run::new().killed(0, 5_000).took(0, 1, 1, 110, Some(200));
        let run = run.took(0, 0, 1, 600, Some(700)).took(0, 1, 1, 610, Some(710));
        assert_eq!(run.causes(), [(Cause::Unexplained, 1)]);
    }

    #[test]
    fn a_lock_goes_with_its_host_and_with_the_node_that_led() {
        let run = || Run::new().took(0, 0, 0, 1_000, None).took(0, 0, 1, 5_000, Some(5_100));
        assert_eq!(run().causes_with_locks(), [(Cause::Unexplained, 1)]);
        let host = run().host_killed(3_000);
        assert_eq!(host.causes_with_locks(), [(Cause::LockGoneWithHost, 1)]);
        let node = run().node_killed(3_000, &[0]);
        assert_eq!(node.causes_with_locks(), [(Cause::LockGoneWithNode, 1)]);
        let other = run().node_killed(3_000, &[1]);
        assert_eq!(other.causes_with_locks(), [(Cause::Unexplained, 1)]);
        let after = run().host_killed(5_500);
        assert_eq!(after.causes_with_locks(), [(Cause::Unexplained, 1)]);
    }

    #[test]
    fn a_kill_explains_nothing_that_was_done_before_it_or_locked_after() {
        let done = Run::new().host_killed(3_000).took(0, 0, 0, 1_000, Some(1_100));
        let done = done.took(0, 0, 1, 5_000, Some(5_100));
        assert_eq!(done.causes_with_locks(), [(Cause::Unexplained, 1)]);
        let later = Run::new().host_killed(3_000).took(0, 0, 0, 4_100, None);
        let later = later.took(0, 0, 1, 5_000, Some(5_100));
        assert_eq!(later.causes_with_locks(), [(Cause::Unexplained, 1)]);
        // It was locked before the node died, and came to the worker after.
        let mut late = Run::new().node_killed(3_000, &[0]).took(0, 0, 0, 4_100, None);
        late.0.deliveries[0].lease_ends = 2_500 + LEASE;
        let late = late.took(0, 0, 1, 5_000, Some(5_100));
        assert_eq!(late.causes_with_locks(), [(Cause::LockGoneWithNode, 1)]);
    }

    #[test]
    fn what_was_stored_twice_has_two_ids_where_brokers_give_them() {
        let mut run = Run::new().took(0, 0, 0, 10, Some(20)).took(0, 0, 1, 30, Some(40));
        run = run.took(0, 0, 1, 50, Some(60));
        run.0.deliveries[1].message = "copy".into();
        run.0.sent_again.insert(Place { lite_topic: 0, number: 0 }, 2);
        // The third is the first one's again, however often it was sent.
        assert_eq!(run.causes_with_locks(), [(Cause::SentAgain, 1), (Cause::Unexplained, 1)]);
    }

    #[test]
    fn what_is_done_may_be_unheard_of_after_a_kill() {
        let run = Run::new().took(0, 0, 0, 20_000, None);
        let unheard = |run: &Run, lock| {
            let rules = Rules { lite_columns: 0, lock };
            rules.may_be_settled_unheard(&run.0, &run.0.deliveries[0])
        };
        assert!(!unheard(&run, Some(LEASE)));
        let run = run.host_killed(18_000);
        assert!(!unheard(&run, Some(LEASE)), "killed before it was locked");
        let run = run.host_killed(20_500);
        assert!(unheard(&run, Some(LEASE)));
        assert!(!unheard(&run, None), "the broker answers, whatever became of the host");
        assert!(unheard(&run.killed(0, 21_000), None));
    }
}
