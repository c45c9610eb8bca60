//! Chance against members and a cluster, from a seed: what was accepted never comes again, all else comes until it is
//! accepted, and whatever was said has one result.

use std::collections::HashSet;
use std::time::Duration;

use tidegate_share_broker::{Access, Api, Effect, Fault, GroupOptions, Options};

use super::world::{Behaviour, World, settings};
use super::*;

const TOPICS: [&str; 2] = ["t", "u"];
const PARTITIONS: i32 = 3;
/// How long the world is in disorder.
const DISORDER: Duration = Duration::from_secs(40);
/// How long it may take to come to rest.
const REST: Duration = Duration::from_secs(900);

struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % bound
    }

    fn node(&mut self) -> i32 {
        i32::try_from(self.below(3)).unwrap() + 1
    }
}

fn behaviour(seed: u64) -> Behaviour {
    let mut chance = Chance(seed | 1);
    Box::new(move |_, count| {
        let delay = Duration::from_millis(chance.below(400));
        match chance.below(20) {
            // Longer than the lock.
            0 => (AcknowledgeType::Accept, Duration::from_secs(4)),
            1 | 2 if count < 3 => (AcknowledgeType::Release, delay),
            _ => (AcknowledgeType::Accept, delay),
        }
    })
}

fn fault(chance: &mut Chance) -> Fault {
    let apis = [
        Api::Metadata,
        Api::FindCoordinator,
        Api::ShareGroupHeartbeat,
        Api::ShareFetch,
        Api::ShareAcknowledge,
    ];
    let api = apis[usize::try_from(chance.below(5)).unwrap()];
    let codes = [-1, 3, 6, 15, 16, 25, 100, 110, 121, 122, 123];
    let code = codes[usize::try_from(chance.below(11)).unwrap()];
    let effect = match chance.below(10) {
        0 => Effect::Error(code),
        1 => Effect::PartitionError { code, partition: None },
        2 => Effect::AcknowledgeError(code),
        3 => Effect::Delay(Duration::from_millis(chance.below(3_000))),
        4 => Effect::Disconnect,
        5 => Effect::DisconnectAfter,
        6 => Effect::SilenceAfter,
        7 => Effect::OverlappingRanges,
        8 => Effect::Throttle(Duration::from_millis(300)),
        _ => Effect::NoRecords,
    };
    Fault::new(api, effect, u32::try_from(chance.below(4)).unwrap() + 1)
}

fn disturb(world: &mut World, chance: &mut Chance, joined: &mut u64) {
    let alive: Vec<usize> = (0..world.players.len()).filter(|index| world.players[*index].is_alive).collect();
    let pick = |chance: &mut Chance| alive.get(usize::try_from(chance.below(8)).unwrap()).copied();
    let topic = TOPICS[usize::try_from(chance.below(2)).unwrap()];
    let partition = i32::try_from(chance.below(3)).unwrap();
    let now = world.now;
    match chance.below(16) {
        0..=4 => world.append(topic, partition, 50),
        5 | 6 if alive.len() < 5 => {
            *joined += 1;
            let mut settings = settings(&format!("m{joined}"), &TOPICS);
            settings.seed = *joined;
            world.join(settings, behaviour(*joined));
        }
        7 => {
            if let Some(index) = pick(chance) {
                world.kill(index);
            }
        }
        8 => {
            let instant = world.instant();
            if let Some(index) = pick(chance) {
                world.players[index].member.close(instant);
            }
        }
        9 | 10 => world.cluster.move_leader(topic, partition, chance.node()),
        11 => world.cluster.move_coordinator("g", chance.node()),
        12 => {
            let node = chance.node();
            world.cluster.stop_node(now, node);
            world.cluster.fail_over(node);
            world.run(Duration::from_millis(chance.below(2_000)));
            world.cluster.start_node(node);
        }
        13 => world
            .cluster
            .set_topic_access(topic, if chance.below(2) == 0 { Access::Describe } else { Access::Read }),
        _ => world.cluster.inject(fault(chance)),
    }
}

fn simulate(seed: u64) {
    let mut chance = Chance(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let group = GroupOptions {
        record_lock_duration: Duration::from_secs(3),
        delivery_count_limit: 1_000,
        heartbeat_interval: Duration::from_secs(1),
        session_timeout: Duration::from_secs(6),
        ..Options::quick().group
    };
    let mut world = World::with(Options { nodes: 3, seed, group, ..Options::quick() });
    for topic in TOPICS {
        world.topic(topic, PARTITIONS);
    }
    let mut joined = 0;
    let until = world.now + DISORDER;
    while world.now < until {
        disturb(&mut world, &mut chance, &mut joined);
        world.run(Duration::from_millis(chance.below(500)));
    }
    world.cluster.clear_faults();
    for node in 1..=3 {
        world.cluster.start_node(node);
    }
    for topic in TOPICS {
        world.cluster.set_topic_access(topic, Access::Read);
        for partition in 0..PARTITIONS {
            if world.cluster.leader(topic, partition).is_some_and(|leader| leader < 0) {
                world.cluster.move_leader(topic, partition, 1);
            }
        }
    }
    world.join(settings("last", &TOPICS), behaviour(7));
    let is_at_rest = |world: &World| {
        TOPICS.iter().all(|topic| {
            (0..PARTITIONS).all(|partition| {
                let end = world.cluster.log_end(topic, partition).unwrap_or(0);
                end == 0 || world.cluster.share_state("g", topic, partition).is_some_and(|s| s.start == end)
            })
        })
    };
    let rests = world.run_until(world.now + REST, is_at_rest);
    if !rests {
        for topic in TOPICS {
            for partition in 0..PARTITIONS {
                let state = world.cluster.share_state("g", topic, partition);
                let leader = world.cluster.leader(topic, partition);
                let end = world.cluster.log_end(topic, partition);
                eprintln!("{topic}-{partition}, leader {leader:?}, end {end:?}: {state:?}");
            }
        }
        for player in world.players.iter().filter(|player| player.is_alive) {
            eprintln!("{:#?}", player.member);
        }
    }
    assert!(rests, "seed {seed}: not all was accepted");
    world.run(Duration::from_secs(20));
    for player in world.players.iter().filter(|player| player.is_alive) {
        assert_eq!(player.unanswered(), 0, "seed {seed}: something said has no result");
    }
    let delivered: HashSet<_> = world.players.iter().flat_map(|player| player.delivered.keys()).collect();
    let ends = TOPICS.iter().flat_map(|topic| (0..PARTITIONS).map(move |partition| (*topic, partition)));
    let written: i64 =
        ends.map(|(topic, partition)| world.cluster.log_end(topic, partition).unwrap_or(0)).sum();
    assert_eq!(i64::try_from(delivered.len()).unwrap(), written, "seed {seed}: not all was delivered");
    assert_eq!(world.came_after_acceptance, [], "seed {seed}: came again after it was accepted");
    assert_eq!(world.cluster.tally("g").exhausted, 0);
}

/// `SIMULATION_SEEDS=from..until` runs others than the usual ones.
#[test]
fn chance_loses_nothing_and_brings_nothing_back() {
    let given = std::env::var("SIMULATION_SEEDS").ok();
    let range = given.as_deref().and_then(|text| text.split_once(".."));
    let (from, until) =
        range.map_or((0, 60), |(from, until)| (from.parse().unwrap(), until.parse().unwrap()));
    for seed in from..until {
        simulate(seed);
    }
}
