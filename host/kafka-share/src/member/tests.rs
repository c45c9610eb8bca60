mod simulation;
mod world;

use tidegate_share_broker::{Access, Api, Batch, Effect, Fault, GroupOptions, Options, Record, Reset};

use self::world::{Behaviour, World, at_once, settings};
use super::*;
use crate::{AcknowledgeError, ErrorCode, TopicPattern};

const SECOND: Duration = Duration::from_secs(1);

fn slowly(delay: Duration) -> Behaviour {
    Box::new(move |_, _| (AcknowledgeType::Accept, delay))
}

#[test]
fn everything_is_delivered_once_and_accepted_with_few_requests() {
    let mut world = World::new(3);
    world.topic("t", 3);
    for partition in 0..3 {
        world.append("t", partition, 4_000);
    }
    world.join(settings("a", &["t"]), at_once());
    assert!(world.run_until_accepted(12_000, 20 * SECOND));
    assert_eq!(world.deliveries(), 12_000);
    let tally = world.cluster.tally("g");
    assert_eq!((tally.accepted, tally.released, tally.gaps), (12_000, 0, 0));
    let requests =
        world.cluster.journal().count(Api::ShareFetch) + world.cluster.journal().count(Api::ShareAcknowledge);
    assert!(requests < 200, "{requests} requests");
    assert!(tally.acknowledgement_batches < 100, "{} ranges", tally.acknowledgement_batches);
}

#[test]
fn the_first_record_comes_as_soon_as_the_assignment() {
    let options = Options::default();
    let group = GroupOptions { reset: Reset::Earliest, ..options.group };
    let mut world = World::with(Options { group, ..options });
    world.topic("t", 1);
    world.append("t", 0, 10);
    world.join(settings("a", &["t"]), at_once());
    assert!(world.run_until_accepted(10, 2 * SECOND), "not within two seconds");
}

#[test]
fn members_share_partitions_and_no_record_twice() {
    let mut world = World::new(3);
    world.topic("t", 6);
    for name in ["a", "b", "c"] {
        world.join(settings(name, &["t"]), slowly(Duration::from_millis(20)));
    }
    world.run(2 * SECOND);
    for partition in 0..6 {
        world.append("t", partition, 1_000);
    }
    assert!(world.run_until_accepted(6_000, 60 * SECOND));
    assert_eq!(world.deliveries(), 6_000);
    for player in &world.players {
        assert!(player.accepted.len() >= 1_000, "an unfair share of {}", player.accepted.len());
    }
}

#[test]
fn a_member_that_closes_gives_back_what_it_holds_and_says_what_it_has_to_say() {
    let mut world = World::new(1);
    world.topic("t", 1);
    world.append("t", 0, 100);
    let first = world.join(settings("a", &["t"]), slowly(1_000 * SECOND));
    assert!(world.run_until(10 * SECOND, |world| world.deliveries() == 100));
    let now = world.instant();
    world.players[first].member.close(now);
    world.run(SECOND);
    assert!(world.players[first].member.is_over());
    assert_eq!(world.cluster.members("g"), Vec::<String>::new());
    world.kill(first);
    let second = world.join(settings("b", &["t"]), at_once());
    assert!(world.run_until_accepted(100, 5 * SECOND));
    assert_eq!(world.players[second].accepted.len(), 100);
}

/// Its partitions go to others, and what it holds is its own to the end.
#[test]
fn a_member_that_rests_leaves_the_group_and_keeps_what_it_holds() {
    let mut world = World::new(1);
    world.topic("t", 2);
    let first = world.join(settings("a", &["t"]), slowly(5 * SECOND));
    let second = world.join(settings("b", &["t"]), at_once());
    let each_has_one = |world: &World| world.players.iter().all(|player| player.member.assigned() == 1);
    assert!(world.run_until(20 * SECOND, each_has_one));
    world.append("t", 0, 100);
    world.append("t", 1, 100);
    assert!(world.run_until(22 * SECOND, |world| world.deliveries() == 200));
    let now = world.instant();
    world.players[first].member.rest(now);
    assert!(world.players[first].member.is_joined(), "it is as it should be");
    world.run(SECOND);
    assert_eq!(world.cluster.members("g"), ["b"]);
    for partition in 0..2 {
        world.append("t", partition, 100);
    }
    assert!(world.run_until_accepted(400, 20 * SECOND), "{:?}", world.players[first].failed);
    assert_eq!(world.deliveries(), 400, "nothing came twice");
    assert_eq!((world.players[first].accepted.len(), world.players[second].accepted.len()), (100, 300));
    world.run(2 * SECOND);
    assert_eq!(world.cluster.sessions(1).len(), 1, "it has nothing to say any more");

    let now = world.instant();
    world.players[first].member.resume(now);
    assert!(world.run_until(60 * SECOND, each_has_one));
    world.append("t", 0, 100);
    world.append("t", 1, 100);
    assert!(world.run_until_accepted(600, 20 * SECOND));
    assert_eq!(world.players[first].accepted.len(), 200);
}

#[test]
fn closing_does_not_wait_for_a_cluster_that_is_gone() {
    let mut world = World::new(1);
    world.topic("t", 1);
    world.append("t", 0, 100);
    let first = world.join(settings("a", &["t"]), slowly(5 * SECOND));
    assert!(world.run_until(10 * SECOND, |world| world.deliveries() == 100));
    let now = world.now;
    world.cluster.stop_node(now, 1);
    let now = world.instant();
    world.players[first].member.close(now);
    world.run(30 * SECOND);
    assert!(world.players[first].member.is_over());
    assert_eq!(world.players[first].unanswered(), 0);
}

#[test]
fn records_of_a_member_that_was_killed_go_to_others() {
    let mut world = World::new(1);
    world.topic("t", 2);
    world.append("t", 0, 100);
    world.append("t", 1, 100);
    let first = world.join(settings("a", &["t"]), slowly(1_000 * SECOND));
    assert!(world.run_until(10 * SECOND, |world| world.deliveries() == 200));
    world.kill(first);
    world.join(settings("b", &["t"]), at_once());
    assert!(world.run_until_accepted(200, 60 * SECOND));
}

#[test]
fn the_new_leader_is_asked_and_the_old_one_is_let_go() {
    let mut world = World::new(2);
    world.topic("t", 1);
    world.append("t", 0, 100);
    world.join(settings("a", &["t"]), slowly(Duration::from_millis(300)));
    assert!(world.run_until(10 * SECOND, |world| world.deliveries() >= 100));
    for round in 0..6 {
        let node = 1 + (round + 1) % 2;
        world.cluster.move_leader("t", 0, node);
        world.append("t", 0, 100);
        let goal = 100 * (usize::try_from(round).unwrap() + 2);
        assert!(world.run_until_accepted(goal, 20 * SECOND), "round {round}");
        world.run(2 * SECOND);
        let old = 3 - node;
        let left = world.cluster.session_partitions(old, "g", "a").unwrap_or_default();
        assert_eq!(left, [], "the old leader still has the partition");
    }
    assert_eq!(world.accepted().len(), 700);
}

#[test]
fn a_node_that_dies_is_replaced_and_nothing_is_lost() {
    let mut world = World::new(3);
    world.topic("t", 6);
    let group = GroupOptions { record_lock_duration: 15 * SECOND, ..Options::quick().group };
    world.cluster.configure_group("g", group);
    world.join(settings("a", &["t"]), slowly(Duration::from_millis(50)));
    world.join(settings("b", &["t"]), slowly(Duration::from_millis(50)));
    for round in 0..4 {
        for partition in 0..6 {
            world.append("t", partition, 500);
        }
        world.run(Duration::from_millis(400));
        let node = 1 + round % 3;
        let now = world.now;
        world.cluster.stop_node(now, node);
        world.run(3 * SECOND);
        world.cluster.fail_over(node);
        world.run(5 * SECOND);
        world.cluster.start_node(node);
        world.run(SECOND);
    }
    assert!(world.run_until_accepted(12_000, 120 * SECOND), "{}", world.accepted().len());
    for player in &world.players {
        assert_eq!(player.unanswered(), 0);
    }
}

#[test]
fn the_coordinator_moves_and_members_follow() {
    let mut world = World::new(3);
    world.topic("t", 3);
    world.join(settings("a", &["t"]), at_once());
    world.run(3 * SECOND);
    for node in [1, 2, 3, 1] {
        world.cluster.move_coordinator("g", node);
        world.append("t", 0, 100);
        world.run(20 * SECOND);
        assert!(world.players[0].member.is_joined(), "after a move to {node}");
    }
    assert_eq!(world.accepted().len(), 400);
}

#[test]
fn a_coordinator_that_was_hard_to_find_leaves_no_trouble() {
    let mut world = World::new(3);
    world.topic("t", 1);
    world.join(settings("a", &["t"]), at_once());
    world.run(3 * SECOND);
    world.cluster.inject(Fault::new(Api::FindCoordinator, Effect::Disconnect, 2));
    let node = 1 + world.cluster.coordinator("g") % 3;
    world.cluster.move_coordinator("g", node);
    world.run(10 * SECOND);
    assert_eq!(world.cluster.faults_pending(), 0);
    assert_eq!(world.players[0].member.troubles().count(), 0);
    assert!(world.players[0].member.is_joined());
}

#[test]
fn a_member_that_was_forgotten_joins_again() {
    let mut world = World::new(1);
    world.topic("t", 1);
    world.join(settings("a", &["t"]), at_once());
    world.run(3 * SECOND);
    // A machine that slept.
    world.now += 100 * SECOND;
    world.append("t", 0, 100);
    assert!(world.run_until_accepted(100, 20 * SECOND));
    assert!(world.players[0].is_put_out());
}

#[test]
fn a_topic_that_is_deleted_and_made_anew_goes_on_and_others_were_never_held_up() {
    let mut world = World::new(1);
    world.topic("t", 1);
    world.topic("u", 1);
    world.join(settings("a", &["t", "u"]), at_once());
    world.append("t", 0, 100);
    assert!(world.run_until_accepted(100, 10 * SECOND));
    world.cluster.delete_topic("t");
    world.append("u", 0, 100);
    assert!(world.run_until_accepted(200, 10 * SECOND), "the other topic is held up");
    let most = world.cluster.journal().most_within(SECOND, &[]);
    assert!(most < 120, "{most} requests in a second");
    world.run(5 * SECOND);
    assert_eq!(world.players[0].troubles_begun("does not exist"), 1);
    world.topic("t", 1);
    world.append("t", 0, 100);
    assert!(world.run_until_accepted(300, 20 * SECOND), "the new topic is not fetched from");
    assert_eq!(world.players[0].member.troubles().count(), 0);
}

#[test]
fn a_deleted_topic_is_told_though_nothing_is_fetched() {
    let mut world = World::new(1);
    world.topic("t", 1);
    world.join(settings("a", &["t"]), at_once());
    world.players[0].appetite = 0;
    world.run(3 * SECOND);
    world.cluster.delete_topic("t");
    world.run(15 * SECOND);
    assert_eq!(world.players[0].troubles_begun("does not exist"), 1);
}

#[test]
fn a_broker_that_leads_nothing_any_more_is_no_trouble() {
    let mut world = World::new(2);
    world.topic("t", 2);
    world.join(settings("a", &["t"]), at_once());
    world.append("t", 1, 100);
    assert!(world.run_until_accepted(100, 10 * SECOND));
    let now = world.now;
    world.cluster.stop_node(now, 2);
    world.run(2 * SECOND);
    assert!(world.players[0].troubles_begun("broker 2") > 0);
    world.cluster.fail_over(2);
    world.append("t", 1, 100);
    assert!(world.run_until_accepted(200, 20 * SECOND));
    world.run(5 * SECOND);
    assert_eq!(world.players[0].member.troubles().count(), 0);
}

#[test]
fn what_is_held_at_a_broker_that_is_gone_has_a_result() {
    let mut world = World::new(2);
    world.topic("t", 2);
    let group = GroupOptions { record_lock_duration: 60 * SECOND, ..Options::quick().group };
    world.cluster.configure_group("g", group);
    world.append("t", 1, 100);
    let mut settings = settings("a", &["t"]);
    settings.metadata_max_age = 2 * SECOND;
    world.join(settings, slowly(20 * SECOND));
    // Nothing more is asked of the broker, so that no call says that it is gone.
    world.players[0].appetite = 100;
    assert!(world.run_until(10 * SECOND, |world| world.deliveries() == 100));
    world.cluster.fail_over(2);
    world.run(25 * SECOND);
    assert_eq!(world.players[0].unanswered(), 0);
    assert!(world.run_until_accepted(100, 40 * SECOND));
}

#[test]
fn a_topic_that_comes_later_is_fetched_from() {
    let mut world = World::new(1);
    world.join(settings("a", &["t"]), at_once());
    world.run(20 * SECOND);
    assert_eq!(world.players[0].troubles_begun("does not exist"), 1);
    world.topic("t", 1);
    world.append("t", 0, 10);
    assert!(world.run_until_accepted(10, 10 * SECOND));
}

#[test]
fn partitions_that_are_added_are_fetched_from() {
    let mut world = World::new(1);
    world.topic("t", 1);
    world.join(settings("a", &["t"]), at_once());
    world.run(3 * SECOND);
    world.cluster.grow_topic("t", 3);
    world.append("t", 2, 10);
    assert!(world.run_until_accepted(10, 400 * SECOND));
}

#[test]
fn a_pattern_finds_topics_also_later_ones() {
    let mut world = World::new(1);
    world.topic("orders-a", 1);
    world.topic("other", 1);
    world.append("orders-a", 0, 10);
    world.append("other", 0, 10);
    let pattern = TopicPattern::new("orders-.*", |name| name.starts_with("orders-"));
    let mut all = settings("a", &[]);
    all.subscription = Subscription::Pattern(pattern);
    all.metadata_max_age = 10 * SECOND;
    world.join(all, at_once());
    assert!(world.run_until_accepted(10, 10 * SECOND));
    world.topic("orders-b", 1);
    world.append("orders-b", 0, 10);
    assert!(world.run_until_accepted(20, 30 * SECOND));
    assert_eq!(world.deliveries(), 20);
}

#[test]
fn a_topic_that_is_meant_no_more_is_no_trouble() {
    let mut world = World::new(1);
    world.topic("t-1", 1);
    world.topic("t-2", 1);
    let pattern = TopicPattern::new("t-.*", |name: &str| name.starts_with("t-"));
    let mut settings = settings("a", &[]);
    settings.subscription = Subscription::Pattern(pattern);
    let player = world.join(settings, at_once());
    let both = |world: &World| world.players[player].member.assigned() == 2;
    assert!(world.run_until(20 * SECOND, both));
    // A fetch hears of the deletion before metadata does.
    let gone = Effect::PartitionError { code: ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.0, partition: None };
    world.cluster.inject(Fault::new(Api::ShareFetch, gone, 2));
    assert!(world.run_until(30 * SECOND, |world| world.players[player].member.troubles().count() > 0));
    world.cluster.delete_topic("t-1");
    world.append("t-2", 0, 100);
    world.run(20 * SECOND);
    let troubles: Vec<_> = world.players[player].member.troubles().collect();
    assert!(troubles.is_empty(), "{troubles:?}");
    assert_eq!(world.accepted().len(), 100);
}

#[test]
fn a_right_that_is_taken_is_told_each_time() {
    let mut world = World::new(1);
    world.topic("t", 1);
    world.join(settings("a", &["t"]), at_once());
    world.run(3 * SECOND);
    for round in 1..=3 {
        world.cluster.set_topic_access("t", Access::Describe);
        world.run(10 * SECOND);
        assert_eq!(world.players[0].troubles_begun("no right to read"), round);
        world.cluster.set_topic_access("t", Access::Read);
        world.append("t", 0, 10);
        assert!(world.run_until_accepted(10 * round, 10 * SECOND));
        assert_eq!(world.players[0].member.troubles().count(), 0);
    }
    let most = world.cluster.journal().most_within(SECOND, &[Api::ShareFetch]);
    assert!(most < 60, "{most} fetches in a second");
}

#[test]
fn a_group_without_a_right_is_told_and_tried_again() {
    let mut world = World::new(1);
    world.topic("t", 1);
    world.append("t", 0, 10);
    world.cluster.set_group_access("g", false);
    world.join(settings("a", &["t"]), at_once());
    world.run(10 * SECOND);
    assert!(world.players[0].troubles_begun("READ on the group") >= 1);
    assert!(!world.players[0].member.is_joined());
    world.cluster.set_group_access("g", true);
    assert!(world.run_until_accepted(10, 20 * SECOND));
}

#[test]
fn released_records_come_again_and_rejected_ones_do_not() {
    let mut world = World::new(1);
    world.topic("t", 1);
    world.append("t", 0, 100);
    let behaviour: Behaviour = Box::new(|lease, count| {
        let kind = match (lease.offset % 3, count) {
            (0, 1) => AcknowledgeType::Release,
            (1, _) => AcknowledgeType::Reject,
            _ => AcknowledgeType::Accept,
        };
        (kind, Duration::ZERO)
    });
    world.join(settings("a", &["t"]), behaviour);
    assert!(world.run_until_accepted(67, 20 * SECOND), "{}", world.accepted().len());
    world.run(5 * SECOND);
    let tally = world.cluster.tally("g");
    assert_eq!((tally.released, tally.rejected, tally.accepted), (34, 33, 67));
}

#[test]
fn renewed_records_stay_for_many_lock_durations() {
    let mut world = World::new(1);
    world.topic("t", 1);
    world.append("t", 0, 10);
    let group = GroupOptions { record_lock_duration: 2 * SECOND, ..Options::quick().group };
    world.cluster.configure_group("g", group);
    let player = world.join(settings("a", &["t"]), slowly(19 * SECOND));
    assert!(world.run_until(10 * SECOND, |world| world.deliveries() == 10));
    for second in 1..19 {
        for offset in 0..10 {
            let Some(Event::Delivered(batch)) =
                world.players[player].events.iter().find(|event| matches!(event, Event::Delivered(_)))
            else {
                panic!()
            };
            let lease = batch.lease(offset);
            let at = world.now;
            world.players[player].plan(at, lease, AcknowledgeType::Renew);
        }
        world.run(SECOND);
        assert_eq!(world.deliveries(), 10, "after {second} s");
    }
    assert!(world.run_until_accepted(10, 5 * SECOND));
    assert_eq!(world.players[player].failed, []);
}

#[test]
fn renewals_that_the_group_does_not_allow_are_told_and_harm_nothing() {
    let mut world = World::new(1);
    world.topic("t", 1);
    world.append("t", 0, 10);
    let group = GroupOptions { renew_acknowledge: false, ..Options::quick().group };
    world.cluster.configure_group("g", group);
    let behaviour: Behaviour = Box::new(|lease, _| {
        let kind = if lease.offset < 5 { AcknowledgeType::Renew } else { AcknowledgeType::Accept };
        (kind, Duration::ZERO)
    });
    let player = world.join(settings("a", &["t"]), behaviour);
    assert!(world.run_until_accepted(5, 10 * SECOND));
    world.run(5 * SECOND);
    assert_eq!(world.players[player].failed, vec![AcknowledgeError::NotRenewable; 5]);
}

#[test]
fn an_acknowledgement_after_the_lock_says_so_and_its_neighbours_are_not_undone() {
    let mut world = World::new(1);
    world.topic("t", 1);
    world.append("t", 0, 100);
    let group = GroupOptions { record_lock_duration: 2 * SECOND, ..Options::quick().group };
    world.cluster.configure_group("g", group);
    let behaviour: Behaviour = Box::new(|lease, count| {
        let is_slow = lease.offset == 50 && count == 1;
        (AcknowledgeType::Accept, if is_slow { 3 * SECOND } else { SECOND })
    });
    let player = world.join(settings("a", &["t"]), behaviour);
    assert!(world.run_until_accepted(100, 20 * SECOND));
    world.run(5 * SECOND);
    assert_eq!(world.players[player].failed, [AcknowledgeError::LeaseEnded]);
    assert_eq!(world.deliveries(), 101);
}

#[test]
fn markers_of_transactions_and_cleaned_offsets_are_passed_over() {
    let mut world = World::new(1);
    world.topic("t", 1);
    let record = || Record::new("x");
    world
        .cluster
        .append_batches(
            "t",
            0,
            [
                Batch::of([record(), record()]),
                Batch::marker(true),
                Batch::sparse([(1, record()), (4, record())], 5),
                Batch::empty(3),
                Batch::of([record()]),
            ],
        )
        .unwrap();
    world.join(settings("a", &["t"]), at_once());
    assert!(world.run_until_accepted(5, 10 * SECOND));
    world.run(SECOND);
    let tally = world.cluster.tally("g");
    assert_eq!((tally.accepted, tally.gaps), (5, 8));
    assert_eq!(world.cluster.share_state("g", "t", 0).unwrap().start, 13);
}

#[test]
fn in_record_limit_mode_no_more_is_acquired_than_was_asked_for() {
    let mut world = World::new(3);
    world.topic("t", 3);
    for partition in 0..3 {
        world.append("t", partition, 100);
    }
    let mut limited = settings("a", &["t"]);
    limited.fetch.acquire_mode = AcquireMode::RecordLimit;
    let player = world.join(limited, slowly(10 * SECOND));
    world.players[player].appetite = 5;
    let first = world.run_until(10 * SECOND, |world| world.deliveries() > 0);
    assert!(first);
    assert!(world.deliveries() <= 5, "{} at once", world.deliveries());
}

/// Every fault in turn, while records flow: none is lost, nothing is asked in a loop, and each acknowledgement has its one
/// result.
#[test]
fn faults_pass_without_loss_and_without_a_loop() {
    let codes = [-1, 3, 5, 6, 7, 14, 15, 16, 25, 29, 30, 42, 56, 69, 74, 100, 110, 121, 122, 123, 133, 999];
    let mut effects: Vec<Effect> = codes.into_iter().map(Effect::Error).collect();
    effects.extend(codes.into_iter().map(|code| Effect::PartitionError { code, partition: Some(0) }));
    effects.extend(codes.into_iter().map(Effect::AcknowledgeError));
    effects.extend([
        Effect::Delay(2 * SECOND),
        Effect::Disconnect,
        Effect::DisconnectAfter,
        Effect::Silence,
        Effect::SilenceAfter,
        Effect::Twice,
        Effect::OverlappingRanges,
        Effect::NoRecords,
        Effect::EmptyBatch,
        Effect::CutTail(40),
        Effect::NoLeader,
        Effect::Throttle(SECOND),
        Effect::Garbage("x".into()),
    ]);
    let apis = [
        Api::Metadata,
        Api::FindCoordinator,
        Api::ShareGroupHeartbeat,
        Api::ShareFetch,
        Api::ShareAcknowledge,
    ];
    for api in apis {
        for effect in &effects {
            // A coordinator that calls a request wrong is believed, once and for all.
            if api == Api::ShareGroupHeartbeat && *effect == Effect::Error(42) {
                continue;
            }
            faulty(api, effect);
        }
    }
}

fn faulty(api: Api, effect: &Effect) {
    let mut world = World::new(2);
    world.topic("t", 4);
    let group =
        GroupOptions { record_lock_duration: 5 * SECOND, delivery_count_limit: 10, ..Options::quick().group };
    world.cluster.configure_group("g", group);
    world.cluster.inject(Fault::new(api, effect.clone(), 3).after(1));
    world.join(settings("a", &["t"]), slowly(Duration::from_millis(30)));
    world.join(settings("b", &["t"]), slowly(Duration::from_millis(10)));
    for partition in 0..4 {
        world.append("t", partition, 100);
    }
    world.run(2 * SECOND);
    for partition in 0..4 {
        world.append("t", partition, 100);
    }
    // By the broker's word: an answer that was lost leaves the member in doubt.
    let state = |world: &World, partition| world.cluster.share_state("g", "t", partition);
    let is_done = world.run_until(world.now + 300 * SECOND, |world| {
        (0..4).all(|partition| state(world, partition).is_some_and(|state| state.start == 200))
    });
    let states: Vec<_> = (0..4).map(|partition| state(&world, partition)).collect();
    assert!(is_done, "{api:?} {effect:?}: {states:?}");
    let delivered: std::collections::HashSet<_> =
        world.players.iter().flat_map(|player| player.delivered.keys()).collect();
    assert_eq!(delivered.len(), 800, "{api:?} {effect:?}: some were never delivered");
    world.run(20 * SECOND);
    for player in &world.players {
        assert_eq!(player.unanswered(), 0, "{api:?} {effect:?}");
    }
    let most = world.cluster.journal().most_within(SECOND, &[]);
    assert!(most < 400, "{api:?} {effect:?}: {most} requests in a second");
}
