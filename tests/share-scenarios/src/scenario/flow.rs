//! Records come, as they are, once.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use tidegate_kafka_share::Status;
use tidegate_test_brokers::kafka::Record;
use tokio::net::TcpListener;
use tokio::time::Instant;

use crate::play::{Play, numbered};
use crate::stage::Door;

/// With Kafka's own times, of which the assignment interval of a second counts.
const STOCK: &[(&str, &str)] = &[
    ("share.session.timeout.ms", "45000"),
    ("share.heartbeat.interval.ms", "5000"),
    ("share.assignment.interval.ms", "1000"),
];

/// A coordinator assigns a second after a join, and the client asks for it at once, not at the next regular heartbeat.
/// The best of some tries counts, since the machine may be busy.
pub(super) async fn the_first_record_comes_soon(play: Play) {
    const TRIES: usize = 4;
    let topic = play.topic("topic", 1).await;
    play.append(&topic, 0, 0..1).await;
    let mut times = Vec::new();
    for number in 0..TRIES {
        let group = play.group(&format!("group-{number}"), STOCK).await;
        let began = Instant::now();
        let member = play.member(&group, &topic);
        member.consume(1).await;
        times.push(began.elapsed());
        member.close().await;
    }
    let best = times.iter().min().copied().unwrap_or_default();
    assert!(best < Duration::from_secs(2), "the first record came after {times:?}");
}

pub(super) async fn ten_thousand_records_once(play: Play) {
    const BATCH: usize = 250;
    let count = 10_000;
    let (topic, group) = (play.topic("topic", 3).await, play.group("group", &[]).await);
    for (partition, first) in (0..3).cycle().zip((0..count).step_by(BATCH)) {
        play.append(&topic, partition, first..first + BATCH).await;
    }
    let member = play.member(&group, &topic);
    let got = member.consume(count).await;
    assert!(got.iter().all(|got| got.count == 1), "no record was handed out before");
    let numbers: BTreeSet<usize> = got.iter().map(crate::play::Got::number).collect();
    assert_eq!(numbers, (0..count).collect(), "every record once");
    play.until_done(&group, &topic).await;
    member.gets_nothing(Duration::from_millis(700)).await;
    let Status { is_joined, partitions, held, troubles, is_over } = member.status();
    assert_eq!((is_joined, partitions, held, troubles, is_over), (true, 3, 0, vec![], false));
    member.close().await;
    play.until_members(&group, 0).await;
}

pub(super) async fn records_come_as_they_were_written(play: Play) {
    let written_at = i64::try_from(play.clock().wall().as_unix_millis()).unwrap();
    let (topic, group) = (play.topic("topic", 1).await, play.group("group", &[]).await);
    let records = vec![
        Record::new("plain"),
        Record::new("").key("empty value"),
        Record { key: Some(Bytes::from_static(b"tombstone")), ..Record::default() },
        Record::new("empty key").key(""),
        Record::new("headers").header("b", "1").header("a", "2").header("b", "3").header("", "no name"),
        Record {
            headers: vec![("absent".into(), None), ("empty".into(), Some(Bytes::new()))],
            ..Record::new("h")
        },
        Record::new(vec![0xff, 0x00, 0xfe]).key(vec![0x80, 0x81]).header("\u{1f980}", vec![0xc3, 0x28]),
        Record::new(vec![b'x'; 200_000]),
    ];
    play.stage.append(&topic, 0, &records).await;
    let member = play.member(&group, &topic);
    let got = member.consume(records.len()).await;
    for ((offset, record), got) in (0_i64..).zip(&records).zip(&got) {
        assert_eq!(got.offset, offset);
        assert_eq!((&got.key, &got.value, &got.headers), (&record.key, &record.value, &record.headers));
        // The writer's clock is the same machine's, read at the same time.
        let age = got.timestamp_ms - written_at;
        assert!((-1_000..60_000).contains(&age), "a timestamp {age} ms after the scenario began");
        assert_eq!(&*got.topic, topic);
    }
    member.close().await;
}

pub(super) async fn every_compression_is_read(play: Play) {
    let codecs = ["none", "gzip", "snappy", "lz4", "zstd"];
    let group = play.group("group", &[]).await;
    let mut topics = Vec::new();
    for codec in codecs {
        let topic = play.own(codec);
        play.stage.create_compressed(&topic, 1, codec).await;
        // One batch that is worth compressing, larger than a block of snappy's framing, and a small one.
        let text = |number: usize| format!("{number} {}", "as before, ".repeat(40));
        let records: Vec<Record> = (0..500).map(|number| Record::new(text(number))).collect();
        play.stage.append(&topic, 0, &records).await;
        play.append(&topic, 0, 500..501).await;
        topics.push(topic);
    }
    let names: Vec<&str> = topics.iter().map(String::as_str).collect();
    let member = play.start(play.wants(&group, &names));
    let got = member.consume(501 * codecs.len()).await;
    for topic in &topics {
        let of: Vec<_> = got.iter().filter(|got| *got.topic == **topic).collect();
        assert_eq!(of.len(), 501, "{topic}");
        for (offset, got) in (0_i64..).zip(of) {
            assert_eq!(got.offset, offset, "{topic}");
            let number = got.text().split(' ').next().map(str::to_owned);
            assert_eq!(number, Some(offset.to_string()), "{topic}");
        }
        play.until_done(&group, topic).await;
    }
    assert_eq!(member.heard().count("Damaged"), 0, "{}", member.account());
    member.close().await;
}

/// Brokers send one batch whole, however little was asked for.
pub(super) async fn a_record_larger_than_a_fetch_comes(play: Play) {
    let (topic, group) = (play.topic("topic", 1).await, play.group("group", &[]).await);
    for _ in 0..3 {
        play.stage.append(&topic, 0, &[Record::new(vec![b'x'; 300_000])]).await;
    }
    let member = play.start(play.wants(&group, &[&topic]).fetching(|fetch| fetch.max_bytes = 1_000));
    let got = member.consume(3).await;
    assert_eq!(got.iter().map(|got| got.offset).collect::<Vec<_>>(), [0, 1, 2]);
    member.close().await;
}

/// Groups read what is not committed unless told otherwise, so aborted records come; markers never do, and the group is
/// done with them.
pub(super) async fn transactions_leave_no_trace(play: Play) {
    let (topic, group) = (play.topic("topic", 1).await, play.group("group", &[]).await);
    play.append(&topic, 0, 0..1).await;
    play.stage.transact(&topic, 0, &numbered(1..3), true).await;
    play.stage.transact(&topic, 0, &numbered(3..4), false).await;
    play.append(&topic, 0, 4..6).await;
    let member = play.member(&group, &topic);
    let got = member.consume(6).await;
    assert_eq!(got.iter().map(|got| got.number()).collect::<Vec<_>>(), (0..6).collect::<Vec<_>>());
    assert_eq!(got.last().map(|got| got.offset), Some(7), "two markers lie between");
    play.until_done(&group, &topic).await;
    // Only a marker at the end.
    play.stage.transact(&topic, 0, &numbered(6..7), true).await;
    member.consume(1).await;
    member.gets_nothing(Duration::from_millis(700)).await;
    play.until_done(&group, &topic).await;
    assert_eq!(member.heard().count("Damaged"), 0, "{}", member.account());
    member.close().await;
}

/// One port where nobody listens, one where somebody takes connections and never says a word, and a living broker.
pub(super) async fn dead_servers_among_living_ones(play: Play) {
    let (topic, group) = (play.topic("topic", 1).await, play.group("group", &[]).await);
    play.append(&topic, 0, 0..10).await;
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let mute = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let list = format!("{gone},{},{}", mute.local_addr().unwrap(), play.stage.bootstrap(Door::Plain));
    // Servers are tried in an order that the seed decides.
    for seed in 0..4 {
        let mut wants = play.wants(&group, &[&topic]).at(&list);
        wants.settings.member.seed = seed;
        let member = play.start(wants);
        let got = member.gather(10).await;
        let released = member.settle(&got, tidegate_kafka_share::AcknowledgeType::Release).await;
        assert!(crate::play::is_all_ok(&released), "{released:?}");
        member.close().await;
    }
}
