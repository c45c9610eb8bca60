//! Group after group: each level reads a topic, writes to the next, and accepts after that.

use std::collections::HashSet;

use bytes::Bytes;
use std::time::Duration;
use tidegate_test_brokers::kafka::Record;
use tokio::sync::watch;

use crate::play::{Got, Member, Play};

const LEVELS: usize = 3;
const PARTITIONS: i32 = 3;
const BATCH: usize = 500;
const KEYS_IN_MEMORY: usize = 100_000;
const KEYS_OF_REAL: usize = 20_000;

/// No key is missing at the end, though members hand on what they have before they say so.
pub(super) async fn a_chain_of_three_groups_loses_no_key(play: Play) {
    let keys = if play.stage.service().is_some() { KEYS_IN_MEMORY } else { KEYS_OF_REAL };
    let (mut topics, mut groups) = (Vec::new(), Vec::new());
    for level in 0..=LEVELS {
        topics.push(play.topic(&format!("level-{level}"), PARTITIONS).await);
        groups
            .push(play.group(&format!("group-{level}"), &[("share.record.lock.duration.ms", "60000")]).await);
    }
    let writes = async {
        for (partition, first) in (0..PARTITIONS).cycle().zip((0..keys).step_by(BATCH)) {
            let key = |number: usize| Record::new("v").key(number.to_string());
            let records: Vec<Record> = (first..first + BATCH).map(key).collect();
            play.stage.append(&topics[0], partition, &records).await;
        }
    };
    let (done, is_done) = watch::channel(false);
    let member = |level: usize| play.member(&groups[level], &topics[level]);
    // Two members at every level.
    let movers: Vec<(usize, Member)> = (0..LEVELS * 2).map(|slot| (slot / 2, member(slot / 2))).collect();
    let mut moving = Vec::new();
    for (level, mover) in &movers {
        moving.push(hand_on(&play, mover, &topics[level + 1], is_done.clone()));
    }
    let [a, b, c, d, e, f] = <[_; LEVELS * 2]>::try_from(moving).ok().expect("two members at every level");
    let collects = async {
        let last = member(LEVELS);
        let mut seen: HashSet<Bytes> = HashSet::new();
        while seen.len() < keys {
            let got = last.receive(2_000, Duration::from_secs(30)).await;
            assert!(!got.is_empty(), "{} of {keys} keys came; {}", seen.len(), last.account());
            last.accept(&got).await;
            seen.extend(got.into_iter().filter_map(|got| got.key));
        }
        last.close().await;
        let _ = done.send(true);
    };
    tokio::join!(writes, a, b, c, d, e, f, collects);
    for (group, topic) in groups.iter().zip(&topics) {
        play.until_done(group, topic).await;
    }
}

/// Reads, writes to the next topic, and only then accepts.
async fn hand_on(play: &Play, member: &Member, to: &str, mut is_done: watch::Receiver<bool>) {
    let mut partition = 0;
    while !*is_done.borrow_and_update() {
        let got: Vec<Got> = member.receive(2_000, Duration::from_millis(300)).await;
        if got.is_empty() {
            continue;
        }
        let records: Vec<Record> = got
            .iter()
            .map(|got| Record { key: got.key.clone(), value: got.value.clone(), headers: Vec::new() })
            .collect();
        play.stage.append(to, partition, &records).await;
        partition = (partition + 1) % PARTITIONS;
        member.accept(&got).await;
    }
    member.close().await;
}
