//! Members of ours and of other clients in one group.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_kafka_share::AcknowledgeType::{Accept, Release, Renew};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::play::{Client, Does, Got, Line, Member, Play, is_all_ok, numbers as our_numbers};

const PARTITIONS: i32 = 8;
/// Records that every member takes at a time, so that they can be compared.
const AT_A_TIME: usize = 100;
const BATCH: usize = 20;
/// Records of which the members' shares are compared.
const COMPARED: usize = 4_000;
/// The most that are written while members come and go.
const UNRESTED_MAX: usize = 40_000;
const LOCK: Duration = Duration::from_secs(2);

pub(super) async fn members_of_ours_and_of_java_share_a_group(play: Play) {
    share(&play, [Client::Java; 3]).await;
}

pub(super) async fn members_of_ours_and_of_librdkafka_share_a_group(play: Play) {
    share(&play, [Client::Librdkafka; 3]).await;
}

pub(super) async fn members_of_three_clients_share_a_group(play: Play) {
    share(&play, [Client::Java, Client::Librdkafka, Client::Java]).await;
}

pub(super) async fn a_killed_java_members_records_come_to_ours(play: Play) {
    outlive(&play, Client::Java).await;
}

pub(super) async fn a_killed_librdkafka_members_records_come_to_ours(play: Play) {
    outlive(&play, Client::Librdkafka).await;
}

pub(super) async fn records_are_released_to_java_and_back(play: Play) {
    release(&play, Client::Java).await;
}

pub(super) async fn records_are_released_to_librdkafka_and_back(play: Play) {
    release(&play, Client::Librdkafka).await;
}

pub(super) async fn a_renewed_record_is_kept_from_java(play: Play) {
    renew(&play, Client::Java).await;
}

pub(super) async fn a_renewed_record_is_kept_from_librdkafka(play: Play) {
    renew(&play, Client::Librdkafka).await;
}

/// A member of ours that accepts until it is told to leave.
struct Ours {
    taken: Arc<Mutex<Vec<Got>>>,
    leave: watch::Sender<bool>,
    working: JoinHandle<()>,
}

impl Ours {
    fn start(member: Member) -> Self {
        let taken = Arc::<Mutex<Vec<Got>>>::default();
        let (leave, leaves) = watch::channel(false);
        let working = tokio::spawn(work(member, Arc::clone(&taken), leaves));
        Self { taken, leave, working }
    }

    async fn leave(self) -> Vec<Got> {
        let _ = self.leave.send(true);
        self.working.await.expect("a member works");
        self.taken.lock().clone()
    }
}

async fn work(member: Member, taken: Arc<Mutex<Vec<Got>>>, leaves: watch::Receiver<bool>) {
    while !*leaves.borrow() {
        let got = member.receive(AT_A_TIME, Duration::from_millis(100)).await;
        let results = member.settle(&got, Accept).await;
        let accepted = got.into_iter().zip(results).filter_map(|(got, result)| result.ok().map(|()| got));
        taken.lock().extend(accepted);
    }
    member.close().await;
}

/// How often each record was accepted.
#[derive(Default)]
struct Accepted(BTreeMap<(i32, i64), usize>);

impl Accepted {
    fn note_ours(&mut self, all: &[Got]) {
        for got in all {
            *self.0.entry((got.partition, got.offset)).or_default() += 1;
        }
    }

    fn note_theirs(&mut self, all: &[Line]) {
        for line in all.iter().filter(|line| line.what == "accepted") {
            *self.0.entry((line.partition, line.offset)).or_default() += 1;
        }
    }
}

/// Writes batches, partition after partition, until it is told to end or a bound is reached: how many records.
async fn write(play: &Play, topic: &str, from: usize, until: usize, ends: watch::Receiver<bool>) -> usize {
    let mut next = from;
    for partition in (0..PARTITIONS).cycle() {
        if next >= until || *ends.borrow() {
            break;
        }
        play.append(topic, partition, next..next + BATCH).await;
        next += BATCH;
        sleep(Duration::from_millis(5)).await;
    }
    next
}

/// Two members of each, at first undisturbed, and none may have less than a third of the mean; then others come and some of
/// each leave while records are written. Nobody is killed, so every record is accepted once.
async fn share(play: &Play, [one, other, third]: [Client; 3]) {
    let topic = play.topic("topic", PARTITIONS).await;
    // Records that a leaving member gives back have used up a delivery.
    let group = play.group("group", &[("share.delivery.count.limit", "10")]).await;
    let foreign = |client| play.foreign(client, Does::Accept, &group, &topic, AT_A_TIME);
    let (first, second) = (play.member(&group, &topic), play.member(&group, &topic));
    let theirs = [foreign(one).await, foreign(other).await];
    play.until_members(&group, 4).await;
    first.until_assigned(2).await;
    second.until_assigned(2).await;
    let ours = [Ours::start(first), Ours::start(second)];
    let (end, ends) = watch::channel(false);
    let written = write(play, &topic, 0, COMPARED, ends.clone()).await;
    play.until_done(&group, &topic).await;
    // The broker knows of an acceptance before the member says that it was confirmed.
    let theirs_now = || theirs.iter().map(|foreign| foreign.lines().len());
    let ours_now = || ours.iter().map(|ours| ours.taken.lock().len());
    crate::play::until("all confirmed", || ours_now().chain(theirs_now()).sum::<usize>() == written).await;
    let shares: Vec<usize> = ours_now().chain(theirs_now()).collect();
    let least = written / shares.len() / 3;
    assert!(shares.iter().all(|share| *share >= least), "ours first: {shares:?} of {written}");

    let mut accepted = Accepted::default();
    let [our_first, our_second] = ours;
    let [their_first, their_second] = theirs;
    let changes = async {
        let their_third = foreign(third).await;
        play.until_members(&group, 5).await;
        accepted.note_ours(&our_first.leave().await);
        sleep(Duration::from_millis(300)).await;
        let our_third = Ours::start(play.member(&group, &topic));
        accepted.note_theirs(&their_first.leave().await);
        play.until_members(&group, 4).await;
        sleep(Duration::from_millis(500)).await;
        accepted.note_theirs(&their_third.leave().await);
        let _ = end.send(true);
        our_third
    };
    let (written, our_third) = tokio::join!(write(play, &topic, written, UNRESTED_MAX, ends), changes);
    play.until_done(&group, &topic).await;
    accepted.note_ours(&our_second.leave().await);
    accepted.note_ours(&our_third.leave().await);
    accepted.note_theirs(&their_second.leave().await);
    assert_eq!(accepted.0.len(), written, "every record");
    let often: Vec<_> = accepted.0.iter().filter(|(_, times)| **times != 1).collect();
    assert!(often.is_empty(), "accepted more than once: {often:?}");
    play.until_members(&group, 0).await;
}

fn numbers<'a>(all: impl IntoIterator<Item = &'a Line>) -> BTreeSet<usize> {
    all.into_iter().map(|line| line.number).collect()
}

/// What a process held that gets SIGKILL comes to us, as another delivery; the lock would run for a minute.
async fn outlive(play: &Play, client: Client) {
    let topic = play.topic("topic", 1).await;
    let group = play.group("group", &[("share.record.lock.duration.ms", "60000")]).await;
    play.append(&topic, 0, 0..10).await;
    let mortal = play.foreign(client, Does::Hold, &group, &topic, AT_A_TIME).await;
    let held = mortal.gather("held", 10).await;
    assert!(held.iter().all(|line| line.count == 1), "{held:?}");
    let ours = play.member(&group, &topic);
    ours.until_assigned(1).await;
    ours.gets_nothing(Duration::from_millis(700)).await;
    mortal.kill().await;
    let got = ours.consume(10).await;
    assert_eq!(our_numbers(&got), numbers(&held));
    assert!(got.iter().all(|got| got.count == 2), "{got:?}");
    play.until_done(&group, &topic).await;
    ours.close().await;
}

/// What one gives back comes to the other, as another delivery, in both directions.
async fn release(play: &Play, client: Client) {
    let topic = play.topic("topic", 1).await;
    let group = play.group("group", &[("share.record.lock.duration.ms", "60000")]).await;
    play.append(&topic, 0, 0..10).await;
    let ours = play.member(&group, &topic);
    let got = ours.gather(10).await;
    let accepts = play.foreign(client, Does::Accept, &group, &topic, AT_A_TIME).await;
    play.until_members(&group, 2).await;
    assert!(is_all_ok(&ours.settle(&got, Release).await), "{}", ours.account());
    let accepted = accepts.gather("accepted", 10).await;
    assert_eq!(numbers(&accepted), our_numbers(&got));
    assert!(accepted.iter().all(|line| line.count == 2), "{accepted:?}");
    play.until_done(&group, &topic).await;
    accepts.leave().await;

    play.append(&topic, 0, 10..20).await;
    let releases = play.foreign(client, Does::Release, &group, &topic, AT_A_TIME).await;
    let released = releases.gather("released", 10).await;
    assert!(released.iter().all(|line| line.count == 1), "{released:?}");
    // Java's client may have fetched them again by itself, which nobody sees until it leaves.
    releases.leave().await;
    let got = ours.consume(10).await;
    assert_eq!(our_numbers(&got), numbers(&released));
    assert!(got.iter().all(|got| got.count >= 2), "{got:?}");
    play.until_done(&group, &topic).await;
    ours.close().await;
}

/// While we renew, another client asks for more than three lock durations in vain; what we give up at last, it gets.
async fn renew(play: &Play, client: Client) {
    let topic = play.topic("topic", 1).await;
    let lock = LOCK.as_millis().to_string();
    let group = play.group("group", &[("share.record.lock.duration.ms", &lock)]).await;
    play.append(&topic, 0, 0..10).await;
    let ours = play.member(&group, &topic);
    let got = ours.gather(10).await;
    let (end, ends) = watch::channel(false);
    let renews = async {
        while !*ends.borrow() {
            let results = ours.settle(&got, Renew).await;
            assert!(is_all_ok(&results), "{results:?}; {}", ours.account());
            sleep(LOCK / 4).await;
        }
    };
    let asks = async {
        let asks = play.foreign(client, Does::Accept, &group, &topic, AT_A_TIME).await;
        play.until_members(&group, 2).await;
        // What nobody holds it gets, so it does ask.
        play.append(&topic, 0, 10..11).await;
        asks.gather("accepted", 1).await;
        sleep(LOCK * 7 / 2).await;
        let _ = end.send(true);
        asks
    };
    let (asks, ()) = tokio::join!(asks, renews);
    assert_eq!(numbers(&asks.lines()), BTreeSet::from([10]), "it got what was renewed");
    let (kept, given_up) = got.split_at(5);
    ours.accept(kept).await;
    assert!(is_all_ok(&ours.settle(given_up, Release).await), "{}", ours.account());
    let all = asks.gather("accepted", 6).await;
    assert_eq!(numbers(&all[1..]), our_numbers(given_up));
    play.until_done(&group, &topic).await;
    asks.leave().await;
    ours.close().await;
}
