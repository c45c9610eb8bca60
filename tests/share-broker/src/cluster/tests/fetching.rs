use super::*;
use crate::batch;
use crate::error_code::*;
use crate::options::Reset;

#[test]
fn new_records_wake_and_given_back_ones_do_not() {
    let mut bench = Bench::quick(1);
    let (one, two) = (bench.connect(1), bench.connect(1));
    bench.fetch(one, &FETCH);
    let other = Fetch { member: "b", wait: 5_000, ..FETCH };
    assert!(bench.try_fetch(two, &other).is_none());
    bench.now = ms(150);
    bench.acknowledge(one, "a", 1, &[(0, 0, 9, &[2])]);
    let (when, late) = bench.wait_for_fetch(ms(5_000));
    assert_eq!((when, acquired(&late).len()), (ms(5_000), 10), "only at the end of its own wait");
    assert!(bench.try_fetch(two, &Fetch { epoch: 1, partitions: &[], ..other }).is_none());
    bench.cluster.append(TOPIC, 0, [Record::new("new")]).expect("the topic exists");
    let (when, fresh) = bench.wait_for_fetch(ms(5_000));
    assert_eq!((when, acquired(&fresh)), (ms(5_000), vec![(0, 100, 100, 1)]));
}

#[test]
fn locks_that_run_out_wake() {
    let mut bench = Bench::quick(1);
    let (one, two) = (bench.connect(1), bench.connect(1));
    bench.fetch(one, &FETCH);
    bench.now = ms(29_000);
    assert!(bench.try_fetch(two, &Fetch { member: "b", wait: 5_000, ..FETCH }).is_none());
    let (when, freed) = bench.wait_for_fetch(ms(60_000));
    assert_eq!((when, acquired(&freed).len()), (ms(30_000), 1));
    assert_eq!(acquired(&freed)[0], (0, 0, 99, 2));
}

#[test]
fn bytes_are_soft_and_the_tail_is_cut() {
    let whole = Bench::quick(1).cluster_batch_length();
    for (max_bytes, records) in [(1, whole), (20_000, 20_000)] {
        let mut bench = Bench::quick(20);
        let connection = bench.connect(1);
        let answer = bench.fetch(connection, &Fetch { max_bytes, exact: false, ..FETCH });
        assert_eq!(acquired(&answer), [(0, 0, 99, 1)]);
        assert_eq!(answer.responses[0].partitions[0].records.len(), records);
    }
    let mut bench = Bench::quick(20);
    let connection = bench.connect(1);
    let nothing = bench.fetch(connection, &Fetch { max_bytes: 0, ..FETCH });
    assert_eq!((nothing.error_code, acquired(&nothing)), (0, vec![]));
    let exact = bench.fetch(connection, &Fetch { epoch: 1, partitions: &[], records: 10, ..FETCH });
    assert_eq!(acquired(&exact), [(0, 0, 9, 1)]);
    assert_eq!(exact.responses[0].partitions[0].records.len(), whole, "the whole log batch travels");
}

impl Bench {
    fn cluster_batch_length(mut self) -> usize {
        let connection = self.connect(1);
        let answer = self.fetch(connection, &FETCH);
        let records = &answer.responses[0].partitions[0].records;
        batch::measure(records).expect("a batch").0
    }
}

#[test]
fn a_group_that_nobody_heard_of_gets_an_error_for_each_partition() {
    let mut cluster = Cluster::new(Options::quick());
    let topic = cluster.create_topic(TOPIC, 1);
    let mut bench = Bench { cluster, now: Duration::ZERO, topic };
    let connection = bench.connect(1);
    for epoch in 0..3 {
        let answer = bench
            .fetch(connection, &Fetch { epoch, partitions: if epoch == 0 { &[0] } else { &[] }, ..FETCH });
        assert_eq!((answer.error_code, errors(&answer)), (0, vec![(0, UNKNOWN_SERVER_ERROR, 0)]));
    }
    bench.join("a");
    assert!(bench.try_fetch(connection, &Fetch { epoch: 3, partitions: &[], ..FETCH }).is_none());
}

#[test]
fn groups_begin_where_they_are_told_to() {
    for (reset, first) in [(Reset::Latest, 100), (Reset::Earliest, 0)] {
        let mut options = Options::quick();
        options.group.reset = reset;
        let mut bench = Bench::new(options, 1);
        let connection = bench.connect(1);
        bench.try_fetch(connection, &Fetch { wait: 0, records: 1, ..FETCH });
        bench.wait_until(ms(1));
        bench.cluster.append(TOPIC, 0, [Record::new("late")]).expect("the topic exists");
        let answer = bench.fetch(connection, &Fetch { epoch: -1, ..FETCH });
        assert_eq!(answer.error_code, 0);
        let answer = bench.fetch(connection, &Fetch { records: 1, ..FETCH });
        assert_eq!(acquired(&answer)[0].1, first);
    }
}

#[test]
fn a_deleted_topic_poisons_the_session_until_it_is_forgotten() {
    let mut bench = Bench::quick(1);
    let other = bench.cluster.create_topic("u", 1);
    bench.cluster.append("u", 0, (0..4).map(|_| Record::new("u"))).expect("the topic exists");
    let dead = std::mem::replace(&mut bench.topic, other);
    let coordinator = bench.connect(1);
    bench.heartbeat(coordinator, "a", 0, Some(&[TOPIC, "u"]));
    let connection = bench.connect(1);
    let one = Fetch { records: 1, ..FETCH };
    assert_eq!(acquired(&bench.fetch(connection, &one)).len(), 1);
    bench.topic = dead;
    let added = Fetch { epoch: 1, ..one.clone() };
    bench.fetch(connection, &added);
    assert!(bench.cluster.delete_topic(TOPIC));
    for epoch in 2..4 {
        let answer = bench.fetch(connection, &Fetch { epoch, partitions: &[], ..one });
        assert_eq!((answer.error_code, answer.responses.len()), (UNKNOWN_SERVER_ERROR, 0));
    }
    assert_eq!(settled(&bench.acknowledge(connection, "a", 4, &[(0, 0, 0, &[1])])), [(0, UNKNOWN_TOPIC_ID)]);
    let cured = bench.fetch(connection, &Fetch { epoch: 5, partitions: &[], forget: &[0], ..one });
    assert_eq!(cured.error_code, 0);
    assert_eq!(acquired(&cured)[0].1, 3, "records of the healthy topic were acquired behind the error");
    assert_ne!(bench.cluster.create_topic(TOPIC, 1), dead, "it comes back under another id");
}

#[test]
fn rights_withdrawn_and_given_back() {
    let mut bench = Bench::quick(1);
    let (connection, coordinator) = (bench.connect(1), bench.connect(1));
    bench.fetch(connection, &Fetch { records: 1, ..FETCH });
    bench.cluster.set_topic_access(TOPIC, Access::Describe);
    let refused = bench.fetch(connection, &Fetch { epoch: 1, partitions: &[], ..FETCH });
    assert_eq!(errors(&refused), [(0, TOPIC_AUTHORIZATION_FAILED, 0)]);
    assert_eq!(bench.heartbeat(coordinator, "a", 3, None).error_code, 0, "assigned, and not allowed to read");
    bench.cluster.set_topic_access(TOPIC, Access::Nothing);
    let named = bench.heartbeat(coordinator, "a", 3, Some(&[TOPIC]));
    assert_eq!(named.error_code, TOPIC_AUTHORIZATION_FAILED);
    assert_eq!(bench.heartbeat(coordinator, "a", 3, None).error_code, 0);
    bench.cluster.set_topic_access(TOPIC, Access::Read);
    bench.cluster.set_group_access(GROUP, false);
    assert_eq!(bench.heartbeat(coordinator, "a", 3, None).error_code, GROUP_AUTHORIZATION_FAILED);
    let refused = bench.fetch(connection, &Fetch { epoch: 2, partitions: &[], ..FETCH });
    assert_eq!(refused.error_code, GROUP_AUTHORIZATION_FAILED);
    bench.cluster.set_group_access(GROUP, true);
    assert_eq!(bench.fetch(connection, &Fetch { epoch: 2, partitions: &[], ..FETCH }).error_code, 0);
}

#[test]
fn leaders_move_and_locks_are_lost() {
    let mut bench = Bench::new(Options { nodes: 3, ..Options::quick() }, 1);
    let (old, new) = (bench.connect(1), bench.connect(2));
    let elsewhere = bench.fetch(new, &FETCH);
    assert_eq!(errors(&elsewhere), [(0, NOT_LEADER_OR_FOLLOWER, 0)]);
    assert_eq!(elsewhere.responses[0].partitions[0].current_leader.leader_id, 1);
    assert_eq!(elsewhere.node_endpoints[0].node_id, 1);
    assert_eq!(
        settled(&bench.acknowledge(new, "a", 1, &[(0, 0, 0, &[1])])),
        [(0, UNKNOWN_TOPIC_OR_PARTITION)]
    );
    bench.acknowledge(new, "a", -1, &[]);

    bench.fetch(old, &Fetch { records: 10, ..FETCH });
    assert_eq!(settled(&bench.acknowledge(old, "a", 1, &[(0, 0, 2, &[1])])), [(0, 0)]);
    let waiting = Fetch { epoch: 2, partitions: &[], min_bytes: 1_000_000, wait: 4_000, ..FETCH };
    assert!(bench.try_fetch(old, &waiting).is_none());
    bench.cluster.move_leader(TOPIC, 0, 2);
    let (when, late) = bench.wait_for_fetch(ms(4_000));
    assert_eq!(
        (when, late.error_code, late.responses.len()),
        (ms(4_000), 0, 0),
        "the old leader's fetch just ends"
    );
    assert_eq!(
        settled(&bench.acknowledge(old, "a", 3, &[(0, 3, 4, &[1])])),
        [(0, UNKNOWN_TOPIC_OR_PARTITION)]
    );
    let moved = bench.fetch(old, &Fetch { epoch: 4, partitions: &[], ..FETCH });
    assert_eq!(errors(&moved), [(0, NOT_LEADER_OR_FOLLOWER, 0)]);
    let leader = &moved.responses[0].partitions[0].current_leader;
    assert_eq!((leader.leader_id, leader.leader_epoch), (2, 1));
    assert_eq!(bench.acknowledge(new, "a", 1, &[]).error_code, SHARE_SESSION_NOT_FOUND);
    let again = acquired(&bench.fetch(new, &Fetch { records: 1, ..FETCH }));
    assert_eq!(again[0].1, 3, "what was accepted stays so");
    assert!((1..=2).contains(&again[0].3));
}

#[test]
fn millions_of_records_are_served_and_accepted() {
    let mut bench = Bench::quick(10_000);
    let connection = bench.connect(1);
    let mut said: Vec<(i32, i64, i64, i16)> = Vec::new();
    let mut total = 0;
    for epoch in 0.. {
        let riding: Vec<Said<'_>> =
            said.iter().map(|(at, first, last, _)| (*at, *first, *last, &[1_i8][..])).collect();
        let fetch = Fetch {
            epoch,
            partitions: if epoch == 0 { &[0] } else { &[] },
            said: &riding,
            records: 2_000,
            exact: false,
            max_bytes: 1 << 20,
            ..FETCH
        };
        let Some(answer) = bench.try_fetch(connection, &fetch) else { break };
        said = acquired(&answer);
        total += said.iter().map(|(_, first, last, _)| last - first + 1).sum::<i64>();
    }
    assert_eq!(total, 1_000_000);
    assert_eq!(bench.cluster.tally(GROUP).accepted, 1_000_000);
}
