//! Several members, several groups.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Builder;
use tokio::time::{Instant, sleep};

use crate::play::{Got, PATIENCE, Play};

/// Where a record lies.
type Place = (i32, i64);

/// How often each record was handed out, with the highest delivery count that came along, and accepted.
#[derive(Default)]
struct Ledger(Mutex<BTreeMap<Place, Line>>);

#[derive(Clone, Copy, Default)]
struct Line {
    deliveries: i16,
    count_max: i16,
    accepted: usize,
}

impl Ledger {
    fn note_delivered(&self, got: &[Got]) {
        let mut lines = self.0.lock();
        for got in got {
            let line = lines.entry((got.partition, got.offset)).or_default();
            line.deliveries += 1;
            line.count_max = line.count_max.max(got.count);
        }
    }

    fn note_accepted<'a>(&self, got: impl Iterator<Item = &'a Got>) {
        let mut lines = self.0.lock();
        for got in got {
            lines.entry((got.partition, got.offset)).or_default().accepted += 1;
        }
    }

    fn accepted(&self) -> usize {
        self.0.lock().values().filter(|line| line.accepted > 0).count()
    }

    /// Every record was accepted once, and came more than once only where its count says so.
    fn check(&self, records: usize) {
        let lines = self.0.lock();
        assert_eq!(lines.len(), records);
        for (place, line) in lines.iter() {
            assert_eq!(line.accepted, 1, "{place:?} was accepted {} times", line.accepted);
            assert!(line.deliveries <= line.count_max, "{place:?} came unexplained: {}", line.deliveries);
        }
    }
}

pub(super) async fn two_members_in_a_storm(play: Play) {
    storm(&play, 2).await;
}

pub(super) async fn five_members_in_a_storm(play: Play) {
    storm(&play, 5).await;
}

/// Members join, work for a moment and leave, again and again, while records are written.
async fn storm(play: &Play, members: usize) {
    const RECORDS: usize = 6_000;
    const BATCH: usize = 50;
    let topic = play.topic("topic", 4).await;
    // Records that a leaving member gives back have used up a delivery.
    let group = play.group("group", &[("share.delivery.count.limit", "10")]).await;
    let ledger = Ledger::default();
    let writes = async {
        for (partition, first) in (0..4).cycle().zip((0..RECORDS).step_by(BATCH)) {
            play.append(&topic, partition, first..first + BATCH).await;
            sleep(Duration::from_millis(30)).await;
        }
    };
    let deadline = Instant::now() + PATIENCE * 2;
    let works = |slot: u64| {
        let (play, ledger, topic, group) = (&*play, &ledger, &topic, &group);
        async move {
            for round in 0_u64.. {
                let member = play.member(group, topic);
                // Of all lengths between 200 and 1,100 ms, so that they meet in every way.
                let stay = Duration::from_millis(200 + (slot * 370 + round * 230) % 900);
                let until = Instant::now() + stay;
                while Instant::now() < until {
                    let got = member.receive(100, Duration::from_millis(100)).await;
                    ledger.note_delivered(&got);
                    let results = member.settle(&got, tidegate_kafka_share::AcknowledgeType::Accept).await;
                    let is_accepted = |(got, result): (_, &Result<_, _>)| result.is_ok().then_some(got);
                    ledger.note_accepted(got.iter().zip(&results).filter_map(is_accepted));
                }
                member.close().await;
                if ledger.accepted() == RECORDS {
                    return;
                }
                assert!(Instant::now() < deadline, "{} accepted; {}", ledger.accepted(), member.account());
            }
        }
    };
    let (two, rest) = (async { tokio::join!(works(0), works(1)) }, async {
        if members > 2 {
            tokio::join!(works(2), works(3), works(4));
        }
    });
    tokio::join!(writes, two, rest);
    ledger.check(RECORDS);
    play.until_done(&group, &topic).await;
    play.until_members(&group, 0).await;
}

/// A process that dies takes no leave: the broker gives back what it held when its connection ends, and its partitions go to
/// the others when its session is over.
pub(super) async fn a_dead_members_records_come_to_the_others(play: Play) {
    let topic = play.topic("topic", 4).await;
    // Far more than the scenario takes: nothing may wait for a lock.
    let group = play.group("group", &[("share.record.lock.duration.ms", "60000")]).await;
    let process = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let mortal = {
        let _inside = process.enter();
        play.member(&group, &topic)
    };
    let survivor = play.member(&group, &topic);
    mortal.until_assigned(2).await;
    survivor.until_assigned(2).await;
    for partition in 0..4_usize {
        play.append(&topic, i32::try_from(partition).unwrap(), partition * 10..(partition + 1) * 10).await;
    }
    let held = mortal.gather(20).await;
    process.shutdown_background();
    // What was held, and more of the same partitions.
    let theirs: BTreeSet<i32> = held.iter().map(|got| got.partition).collect();
    for partition in theirs {
        play.append(&topic, partition, 40..45).await;
    }
    let got = survivor.consume(50).await;
    for got in &got {
        let was_held = held.iter().any(|held| (held.partition, held.offset) == (got.partition, got.offset));
        assert_eq!(got.count, if was_held { 2 } else { 1 }, "{got:?}");
    }
    survivor.until_assigned(4).await;
    play.until_done(&group, &topic).await;
    survivor.close().await;
    drop(mortal);
}

pub(super) async fn members_share_fairly(play: Play) {
    let (topic, group) = (play.topic("topic", 4).await, play.group("group", &[]).await);
    let first = play.member(&group, &topic);
    first.until_assigned(4).await;
    let second = play.member(&group, &topic);
    first.until_assigned(2).await;
    second.until_assigned(2).await;
    for partition in 0..4 {
        play.append(&topic, partition, 0..100).await;
    }
    let (one, other) = tokio::join!(first.consume(200), second.consume(200));
    let partitions = |got: &[Got]| got.iter().map(|got| got.partition).collect::<BTreeSet<_>>();
    assert!(partitions(&one).is_disjoint(&partitions(&other)));
    // More members than partitions: a partition has several, and each of them has some.
    let third = play.member(&group, &topic);
    let more = [play.member(&group, &topic), play.member(&group, &topic)];
    play.until_members(&group, 5).await;
    for member in [&first, &second, &third, &more[0], &more[1]] {
        member.until("everybody has a partition", |status| status.partitions > 0).await;
    }
    for member in [first, second, third].iter().chain(&more) {
        member.close().await;
    }
    play.until_done(&group, &topic).await;
}

/// The rest of a lock would be a minute. The best of some tries counts, since the machine may be busy.
pub(super) async fn a_leaving_member_gives_back_at_once(play: Play) {
    let topic = play.topic("topic", 1).await;
    let group = play.group("group", &[("share.record.lock.duration.ms", "60000")]).await;
    let mut times = Vec::new();
    for _ in 0..4 {
        play.append(&topic, 0, 0..10).await;
        let leaving = play.member(&group, &topic);
        let held = leaving.gather(10).await;
        let staying = play.member(&group, &topic);
        staying.until_assigned(1).await;
        let mut left_at = None;
        let (got, ()) = tokio::join!(staying.consume(10), async {
            // Meanwhile the other one waits for records.
            sleep(Duration::from_millis(300)).await;
            leaving.close().await;
            left_at = Some(Instant::now());
        });
        times.push(left_at.unwrap().elapsed());
        assert!(got.iter().all(|got| got.count == 2), "{got:?}");
        assert_eq!(got.len(), held.len());
        staying.close().await;
    }
    let best = times.iter().min().copied().unwrap_or_default();
    assert!(best < Duration::from_secs(1), "the records came {times:?} after the close");
}

/// It leaves the group, and settles what it holds from outside.
pub(super) async fn a_resting_members_partitions_go_to_others(play: Play) {
    let topic = play.topic("topic", 4).await;
    let group = play.group("group", &[("share.record.lock.duration.ms", "60000")]).await;
    let (resting, other) = (play.member(&group, &topic), play.member(&group, &topic));
    resting.until_assigned(2).await;
    other.until_assigned(2).await;
    for partition in 0..4 {
        play.append(&topic, partition, 0..10).await;
    }
    let held = resting.gather(10).await;
    resting.set_receiving(false);
    other.until_assigned(4).await;
    for partition in 0..4 {
        play.append(&topic, partition, 10..15).await;
    }
    // Ten of the first forty are held; ten of its two partitions may have lain ready.
    let got = other.consume(50).await;
    assert!(got.iter().all(|got| got.count <= 2), "{got:?}");
    resting.accept(&held).await;
    play.until_done(&group, &topic).await;
    resting.set_receiving(true);
    resting.until_assigned(2).await;
    other.until_assigned(2).await;
    for partition in 0..4 {
        play.append(&topic, partition, 15..20).await;
    }
    tokio::join!(resting.consume(10), other.consume(10));
    play.until_done(&group, &topic).await;
    resting.close().await;
    other.close().await;
}

pub(super) async fn two_groups_have_all_each(play: Play) {
    let topic = play.topic("topic", 2).await;
    let groups = [play.group("one", &[]).await, play.group("other", &[]).await];
    play.append(&topic, 0, 0..200).await;
    play.append(&topic, 1, 200..400).await;
    let members = groups.clone().map(|group| Arc::new(play.member(&group, &topic)));
    let (one, other) = tokio::join!(members[0].consume(400), members[1].consume(400));
    for got in [one, other] {
        assert_eq!(got.iter().map(Got::number).collect::<BTreeSet<_>>(), (0..400).collect());
    }
    for (member, group) in members.iter().zip(&groups) {
        play.until_done(group, &topic).await;
        member.close().await;
    }
}
