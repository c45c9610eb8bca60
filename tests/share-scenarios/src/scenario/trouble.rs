//! What other clients had trouble with, as was reported in public: KAFKA and franz-go numbers are those reports.

use std::collections::BTreeSet;
use std::time::Duration;

use tidegate_kafka_share::AcknowledgeType::Accept;
use tidegate_kafka_share::admin::{AdminOptions, Position, ResetTarget, ShareGroupAdmin};
use tidegate_kafka_share::{AcquireMode, ClientOptions, Connector};
use tidegate_share_broker::{Api, Effect, Entry, Fault, RequestBody};
use tokio::time::Instant;

use crate::play::{Got, PATIENCE, Play, numbers, servers, until};
use crate::stage::Door;

/// For how long nothing comes that should not.
const NOTHING_FOR: Duration = Duration::from_millis(1_500);

/// KAFKA-20736: an old leader's session kept a partition that had moved. Here the leader moves to and fro while records are
/// held, and what is said about them is said before the session is let go.
pub(super) async fn an_old_leaders_session_is_let_go(play: Play) {
    let topic = play.topic("topic", 1).await;
    let group = play.group("group", &[("share.record.lock.duration.ms", "60000")]).await;
    let member = play.member(&group, &topic);
    for round in 0..4_usize {
        let old = play.stage.leader(&topic, 0).await;
        let new = *play.stage.nodes().iter().find(|node| **node != old).unwrap();
        play.append(&topic, 0, round * 10..round * 10 + 10).await;
        let held = member.gather(10).await;
        play.service().with(|cluster, _| cluster.journal_mut().clear());
        play.stage.move_leader(&topic, 0, new).await;
        let results = member.settle(&held, Accept).await;
        assert!(results.iter().all(Result::is_err), "its locks are gone: {results:?}");
        until("the old leader has no session of it", || {
            play.service().with(|cluster, _| cluster.sessions(old).is_empty())
        })
        .await;
        play.service().with(|cluster, _| {
            let at_old: Vec<&Entry> = cluster.journal().entries().filter(|entry| entry.node == old).collect();
            let said = at_old.iter().position(|entry| !acknowledged(entry).is_empty());
            let let_go = at_old.iter().position(|entry| entry.epoch() == Some(-1) || forgets(entry));
            assert!(said.is_some() && let_go.is_some() && said <= let_go, "{at_old:#?}");
        });
        assert_eq!(numbers(&member.consume(10).await), numbers(&held), "from the new leader");
    }
    play.until_done(&group, &topic).await;
    assert!(member.status().troubles.is_empty(), "{}", member.account());
    member.close().await;
}

fn forgets(entry: &Entry) -> bool {
    matches!(&entry.request.body, RequestBody::ShareFetch(body) if !body.forgotten_topics_data.is_empty())
}

/// The offsets that a request says something about, each with what.
fn acknowledged(entry: &Entry) -> Vec<(i64, i8)> {
    let mut all = Vec::new();
    let mut add = |first: i64, last: i64, types: &[i8]| {
        for (at, offset) in (first..=last).enumerate() {
            all.push((offset, if types.len() == 1 { types[0] } else { types[at] }));
        }
    };
    match &entry.request.body {
        RequestBody::ShareFetch(body) => {
            for batch in
                body.topics.iter().flat_map(|of| &of.partitions).flat_map(|of| &of.acknowledgement_batches)
            {
                add(batch.first_offset, batch.last_offset, &batch.acknowledge_types);
            }
        }
        RequestBody::ShareAcknowledge(body) => {
            for batch in
                body.topics.iter().flat_map(|of| &of.partitions).flat_map(|of| &of.acknowledgement_batches)
            {
                add(batch.first_offset, batch.last_offset, &batch.acknowledge_types);
            }
        }
        _ => {}
    }
    all
}

/// KAFKA-19972: who crashed again and again got the same records for ever. A death costs a delivery.
pub(super) async fn deaths_use_up_deliveries(play: Play) {
    let topic = play.topic("topic", 1).await;
    let settings = [("share.delivery.count.limit", "3"), ("share.record.lock.duration.ms", "60000")];
    let group = play.group("group", &settings).await;
    play.append(&topic, 0, 0..1).await;
    for count in 1..=3 {
        let mortal = play.member(&group, &topic);
        assert_eq!(mortal.gather(1).await[0].count, count);
        drop(mortal);
    }
    let last = play.member(&group, &topic);
    last.until("it has the partition", |status| status.partitions == 1).await;
    last.gets_nothing(NOTHING_FOR).await;
    play.until_done(&group, &topic).await;
    play.append(&topic, 0, 1..2).await;
    assert_eq!(last.consume(1).await[0].number(), 1, "what comes after it is not held up");
    last.close().await;
}

/// KAFKA-19767 and KAFKA-19929: with an exact number asked for, every leader was asked for all of it, and locks ran out in a
/// buffer. What one member was not given, another one has at once.
pub(super) async fn the_record_limit_holds_over_all_leaders(play: Play) {
    let (topic, group) = (play.topic("topic", 3).await, play.group("group", &[]).await);
    for (partition, node) in (0..3).zip(play.stage.nodes()) {
        play.lead(&topic, partition, node).await;
        let first = usize::try_from(partition).unwrap() * 100;
        play.append(&topic, partition, first..first + 100).await;
    }
    let limited = play
        .start(play.wants(&group, &[&topic]).fetching(|fetch| fetch.acquire_mode = AcquireMode::RecordLimit));
    limited.until_assigned(3).await;
    let got = limited.gather(5).await;
    limited.until("it holds what was asked for, and no more", |status| status.held == 5).await;
    let other = play.member(&group, &topic);
    // Its share of the partitions may be one of three: the other's go to it when it has left.
    limited.accept(&got).await;
    limited.close().await;
    let rest = other.consume(295).await;
    assert!(rest.iter().all(|got| got.count == 1), "nobody had them before");
    assert!(numbers(&got).is_disjoint(&numbers(&rest)));
    play.until_done(&group, &topic).await;
    other.close().await;
}

/// KAFKA-19789: a broker listed an offset in two ranges, and the second was said to be a gap. The first counts, and nothing is
/// said twice.
pub(super) async fn overlapping_ranges_are_taken_once(play: Play) {
    let (topic, group) = (play.topic("topic", 1).await, play.group("group", &[]).await);
    let fault = Fault::new(Api::ShareFetch, Effect::OverlappingRanges, 1_000);
    play.service().with(|cluster, _| cluster.inject(fault));
    for batch in 0..6 {
        play.append(&topic, 0, batch * 10..(batch + 1) * 10).await;
    }
    let member = play.member(&group, &topic);
    let got = member.consume(60).await;
    assert_eq!((got.len(), numbers(&got)), (60, (0..60).collect()));
    play.until_done(&group, &topic).await;
    member.gets_nothing(NOTHING_FOR).await;
    assert!(member.heard().count("Duplicated") > 0, "{}", member.account());
    play.service().with(|cluster, _| {
        let mut said: Vec<(i64, i8)> = cluster.journal().entries().flat_map(acknowledged).collect();
        said.sort_unstable();
        let accepted: Vec<(i64, i8)> = (0..60).map(|offset| (offset, 1)).collect();
        assert_eq!(said, accepted, "each is accepted once, and none is said to be a gap");
    });
    member.close().await;
}

/// franz-go 754bc349: a partition that was named only for an acknowledgement stayed in the session, and its records came to a
/// member that did not want them, again and again.
pub(super) async fn a_partition_that_went_to_another_is_not_fetched(play: Play) {
    let topic = play.topic("topic", 2).await;
    let group = play.group("group", &[("share.record.lock.duration.ms", "60000")]).await;
    let first = play.member(&group, &topic);
    first.until_assigned(2).await;
    play.append(&topic, 0, 0..10).await;
    play.append(&topic, 1, 10..20).await;
    let held = first.gather(20).await;
    let second = play.member(&group, &topic);
    first.until_assigned(1).await;
    second.until_assigned(1).await;
    // Of both partitions, while the one that is still its own is fetched from.
    let (_, ()) = tokio::join!(first.gets_nothing(NOTHING_FOR), first.accept(&held));
    play.append(&topic, 0, 20..30).await;
    play.append(&topic, 1, 30..40).await;
    let (one, other) = tokio::join!(first.consume(10), second.consume(10));
    let partitions = |got: &[Got]| got.iter().map(|got| got.partition).collect::<BTreeSet<_>>();
    assert_eq!((partitions(&one).len(), partitions(&other).len()), (1, 1), "{one:?} {other:?}");
    assert!(partitions(&one).is_disjoint(&partitions(&other)));
    assert!(one.iter().chain(&other).all(|got| got.count == 1), "{one:?} {other:?}");
    if let Some(service) = play.stage.service() {
        let node = play.stage.leader(&topic, 0).await;
        let kept = service.with(|cluster, _| cluster.session_partitions(node, &group, &first.name));
        assert_eq!(kept.map(|kept| kept.len()), Some(1), "the session has no more than what is assigned");
    }
    play.until_done(&group, &topic).await;
    first.close().await;
    second.close().await;
}

/// franz-go 19f7dbb2: administration was sent to the coordinator of share state, which is the brokers' own affair.
pub(super) async fn administration_asks_the_groups_coordinators(play: Play) {
    let topic = play.topic("topic", 2).await;
    play.append(&topic, 0, 0..3).await;
    let connector = Connector::new(ClientOptions::default()).unwrap();
    let bootstrap = servers(&play.stage.bootstrap(Door::Plain));
    let mut admin = ShareGroupAdmin::new(connector, bootstrap, AdminOptions::default(), 1);
    // Their coordinators are on all nodes.
    for number in 0..6 {
        let group = play.group(&format!("group-{number}"), &[]).await;
        let member = play.member(&group, &topic);
        member.consume(3).await;
        member.close().await;
        play.until_members(&group, 0).await;
        assert!(admin.describe(&group).await.unwrap().members.is_empty());
        assert!(!admin.offsets(&group).await.unwrap().is_empty());
        let target =
            ResetTarget::Position { position: Position::Earliest, topics: vec![topic.as_str().into()] };
        let plan = admin.plan_reset(&group, &target).await.unwrap();
        admin.reset(&plan).await.unwrap();
        let again = play.member(&group, &topic);
        assert_eq!(again.consume(3).await.len(), 3, "it begins anew");
        again.close().await;
        play.until_members(&group, 0).await;
        admin.delete_offsets(&group, &[topic.as_str().into()]).await.unwrap();
        admin.delete(&group).await.unwrap();
    }
    admin.close().await;
    if let Some(service) = play.stage.service() {
        service.with(|cluster, _| {
            let found = cluster.journal().of(Api::FindCoordinator);
            let types: BTreeSet<i8> = found
                .filter_map(|entry| match &entry.request.body {
                    RequestBody::FindCoordinator(body) => Some(body.key_type),
                    _ => None,
                })
                .collect();
            assert_eq!(types, BTreeSet::from([0]));
        });
    }
}

/// franz-go v1.21.4: a close while a leader moved lost what was being said. Each has its result, and what failed comes again.
pub(super) async fn a_close_while_a_leader_moves_answers_everything(play: Play) {
    let topic = play.topic("topic", 2).await;
    let group = play.group("group", &[("share.record.lock.duration.ms", "60000")]).await;
    let nodes = play.stage.nodes();
    for (partition, node) in [(0, nodes[0]), (1, nodes[1])] {
        play.lead(&topic, partition, node).await;
    }
    play.append(&topic, 0, 0..20).await;
    play.append(&topic, 1, 20..40).await;
    let member = play.member(&group, &topic);
    let held = member.gather(40).await;
    play.stage.move_leader(&topic, 0, nodes[1]).await;
    let (results, ()) = tokio::join!(member.settle(&held, Accept), member.close());
    assert_eq!(results.len(), 40);
    let pairs = || held.iter().zip(&results);
    let accepted: BTreeSet<usize> =
        pairs().filter(|(_, result)| result.is_ok()).map(|(got, _)| got.number()).collect();
    assert!((20..40).all(|number| accepted.contains(&number)), "its leader was there: {results:?}");
    let other = play.member(&group, &topic);
    let mut came = BTreeSet::new();
    let deadline = Instant::now() + PATIENCE;
    while play.stage.lag(&group, &topic).await != Some(0) {
        let got = other.receive(100, Duration::from_millis(300)).await;
        other.accept(&got).await;
        came.extend(numbers(&got));
        assert!(Instant::now() < deadline, "{}", other.account());
    }
    assert!(came.is_disjoint(&accepted), "{came:?} came though accepted");
    assert_eq!(came.union(&accepted).count(), 40, "none is lost");
    other.close().await;
}
