//! `ack = "implicit"`: a Kafka cluster in memory behind real sockets, the program as users start it, and kills.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "in the helpers of a test, a failure is the test's failure"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::Value;
use tidegate_process_tests::{
    Configuration, Home, Program, eventually, eventually_asked, kill_again_and_again, run_to_end,
};
use tidegate_share_broker::{GroupOptions, Options, Record, Service, Tally};

const RUN: [&str; 3] = ["run", "--config", "tidegate.toml"];
const CHECK: [&str; 3] = ["check", "--config", "tidegate.toml"];
const PARTITIONS: i32 = 3;
const GROUP: &str = "fulfilment";
/// Nobody listens there.
const NOWHERE: &str = "connector = \"http\"\nurl = \"http://127.0.0.1:1/\"";

/// A cluster that forgets dead members soon, and never gives a record up.
async fn cluster() -> Service {
    let quick = Options::quick();
    let group = GroupOptions {
        session_timeout: Duration::from_millis(800),
        heartbeat_interval: Duration::from_millis(100),
        delivery_count_limit: 1_000,
        ..quick.group
    };
    let service = Service::start(Options { group, ..quick }).await.unwrap();
    service.with(|cluster, _| cluster.create_topic("orders", PARTITIONS));
    service
}

fn configure(home: &Home, servers: &str, sink: &str, more: &str) {
    let source = format!("topic = \"orders\"\nack = \"implicit\"\n{more}");
    let configuration = Configuration::new("drain-timeout = \"2s\"\nstate-dir = \"state\"")
        .share_source("orders", servers, GROUP, &source)
        .section("sinks.out", sink)
        .flow("orders", "orders", "out", "key = \"property:tenant\"");
    home.put(&configuration);
}

fn to_file() -> &'static str {
    "connector = \"file\"\npath = \"out.jsonl\""
}

fn append(service: &Service, numbers: std::ops::Range<u32>, bytes: usize) {
    for partition in 0..PARTITIONS {
        let mine = numbers.clone().filter(|number| number % 3 == u32::try_from(partition).unwrap());
        let record = |number| Record::new(format!("value-{number:06}{}", "x".repeat(bytes)));
        let records: Vec<_> = mine.map(record).collect();
        if !records.is_empty() {
            service.with(|cluster, _| cluster.append("orders", partition, records).unwrap());
        }
    }
}

fn tally(service: &Service) -> Tally {
    service.with(|cluster, _| cluster.tally(GROUP))
}

/// The numbers that are in a file, in its order. A kill may have cut a line short.
fn numbers(path: &Path) -> Vec<u32> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let number = |line: &str| {
        let line: Value = serde_json::from_str(line).ok()?;
        line["value"].as_str()?.strip_prefix("value-")?.get(..6)?.parse().ok()
    };
    text.lines().filter_map(number).collect()
}

/// A life in which records are accepted at the broker and go nowhere, ended by a kill.
async fn fill(service: &Service, home: &Home, count: u32) {
    configure(home, &service.bootstrap_servers(), NOWHERE, "");
    append(service, 0..count, 0);
    let program = Program::start(home.path(), &RUN);
    eventually("all accepted", || (tally(service).accepted == u64::from(count)).then_some(())).await;
    assert_eq!(program.metric("spool_records{source=\"orders\"}").await, u64::from(count));
    program.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_kills_at_random_points_lose_nothing() {
    const SEED: u64 = 0x7469_6465_6761_7465;
    println!("seed {SEED:#x}");
    let service = Arc::new(cluster().await);
    let home = Home::new();
    configure(&home, &service.bootstrap_servers(), to_file(), "source.parallelism = 2");
    // Records come all the time.
    let made = Arc::new(AtomicU64::new(0));
    let (to, counter) = (Arc::clone(&service), Arc::clone(&made));
    let making = tokio::spawn(async move {
        let mut next = 0;
        loop {
            append(&to, next..next + 9, 200);
            next += 9;
            counter.store(u64::from(next), Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    let out = home.file("out.jsonl");
    kill_again_and_again(&home, &RUN, &out, 50, SEED).await;
    making.abort();
    let _ = making.await;
    let made = u32::try_from(made.load(Ordering::Relaxed)).unwrap();
    let program = Program::start(home.path(), &RUN);
    eventually("everything is there", || {
        (numbers(&out).into_iter().collect::<BTreeSet<_>>().len() >= made as usize).then_some(())
    })
    .await;
    eventually("everything is accepted", || (tally(&service).accepted == u64::from(made)).then_some(()))
        .await;
    let ended = program.terminate().await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let numbers = numbers(&out);
    let distinct: BTreeSet<_> = numbers.iter().copied().collect();
    assert_eq!(distinct, (0..made).collect(), "each of them, and no other");
    println!("{made} records, {} lines", numbers.len());
    assert_eq!(tally(&service).exhausted, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_spooled_comes_before_anything_new_and_once() {
    let service = cluster().await;
    let home = Home::new();
    fill(&service, &home, 90).await;
    append(&service, 90..120, 0);
    configure(&home, &service.bootstrap_servers(), to_file(), "");
    let checked = run_to_end(home.path(), &CHECK);
    assert_eq!(checked.code, Some(0), "{}", checked.stderr);
    let program = Program::start(home.path(), &RUN);
    let out = home.file("out.jsonl");
    eventually("120 lines", || (numbers(&out).len() >= 120).then_some(())).await;
    let twin = run_to_end(home.path(), &RUN);
    assert_ne!(twin.code, Some(0));
    assert!(twin.stderr.contains("state-dir"), "one host at a time: {}", twin.stderr);
    eventually("all accepted", || (tally(&service).accepted == 120).then_some(())).await;
    assert_eq!(program.metric("spool_replayed_records_total{source=\"orders\"}").await, 90);
    let ended = program.terminate().await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let numbers = numbers(&out);
    assert_eq!(numbers.len(), 120, "each once");
    let (old, new) = numbers.split_at(90);
    assert!(old.iter().all(|number| *number < 90) && new.iter().all(|number| *number >= 90), "{numbers:?}");
    // Within a partition in the order of the log.
    let mut last: BTreeMap<u32, u32> = BTreeMap::new();
    for number in old {
        let before = last.insert(number % 3, *number);
        assert!(before.is_none_or(|before| before < *number), "{old:?}");
    }
    // Nothing is left for another life.
    let program = Program::start(home.path(), &RUN);
    program.wait_for_log("the spool is open and empty").await;
    program.terminate().await;
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_damaged_spool_what_can_be_read_is_handed_out() {
    for is_cut in [false, true] {
        let service = cluster().await;
        let home = Home::new();
        fill(&service, &home, 90).await;
        let path = home.file("state/spool/orders.redb");
        let mut bytes = std::fs::read(&path).unwrap();
        if is_cut {
            bytes.truncate(bytes.len() * 2 / 3);
        } else {
            // Every copy of one record.
            let victim = b"value-000042";
            let places: Vec<_> = bytes
                .windows(victim.len())
                .enumerate()
                .filter(|(_, at)| at == victim)
                .map(|(at, _)| at)
                .collect();
            assert!(!places.is_empty());
            places.into_iter().for_each(|at| bytes[at] ^= 0xff);
        }
        std::fs::write(&path, bytes).unwrap();
        append(&service, 90..120, 0);
        configure(&home, &service.bootstrap_servers(), to_file(), "");
        let program = Program::start(home.path(), &RUN);
        let out = home.file("out.jsonl");
        let is_new = |number: &u32| *number >= 90;
        eventually("all that is new", || {
            (numbers(&out).iter().filter(|n| is_new(n)).count() >= 30).then_some(())
        })
        .await;
        // Damage in what was written last looks like a write that a crash cut off.
        let (damaged, torn) = ("the spool's file was damaged", "the last write to the spool was not whole");
        let log = program.log();
        assert!(log.contains(damaged) || log.contains(torn), "{log}");
        let told = program.metric("spool_damages_total{source=\"orders\"}").await
            + program.metric("spool_torn_writes_total{source=\"orders\"}").await;
        assert_eq!(told, 1);
        let ended = program.terminate().await;
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        let numbers = numbers(&out);
        let old: BTreeSet<_> = numbers.iter().copied().filter(|number| !is_new(number)).collect();
        if !is_cut {
            assert_eq!(old, (0..90).filter(|number| *number != 42).collect(), "all but one");
        }
        let first_new = numbers.iter().position(is_new).unwrap();
        assert!(numbers[first_new..].iter().all(is_new), "what was spooled comes first: {numbers:?}");
        service.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_stops_receiving_until_there_is_room() {
    const RECORDS: u32 = 600;
    let service = cluster().await;
    let home = Home::new();
    let disk = home.file("disk");
    std::fs::create_dir(&disk).unwrap();
    let web = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = web.local_addr().unwrap();
    let sink = format!("connector = \"http\"\nurl = \"http://{address}/\"");
    configure(&home, &service.bootstrap_servers(), &sink, "properties.max.poll.records = 30");
    home.edit("sink = \"out\"", "sink = \"out\"\nqueue-messages = 1000");
    home.edit("state-dir = \"state\"", &format!("state-dir = \"{}\"", disk.join("state").display()));
    append(&service, 0..RECORDS, 10_000);
    let program = Program::start_on_a_small_disk(home.path(), &RUN, &disk, 3 << 10);
    program.wait_for_log("trouble with the spool").await;
    assert!(program.log().contains("No space left on device"), "{}", program.log());
    let stopped_at = tally(&service).accepted;
    assert!(0 < stopped_at && stopped_at < u64::from(RECORDS) / 2, "{stopped_at}");
    eventually_asked("the flow tells", async || {
        let flow = &program.get("/api/flows").await["flows"][0];
        flow["remarks"].to_string().contains("No space left on device").then_some(())
    })
    .await;
    eventually_asked("it is not ready", async || (program.ask("/readyz").await.0 == 503).then_some(())).await;
    assert_eq!(program.metric("spool_in_trouble{source=\"orders\"}").await, 1);
    assert_eq!(tally(&service).accepted, stopped_at, "nothing is taken that cannot be kept");

    program.make_room(&disk);
    program.wait_for_log("the spool can be used again").await;
    eventually("all accepted", || (tally(&service).accepted == u64::from(RECORDS)).then_some(())).await;
    let taken = serve(web);
    eventually("all are taken", || (taken.lock().len() >= RECORDS as usize).then_some(())).await;
    assert_eq!(*taken.lock(), (0..RECORDS).collect());
    let ended = program.terminate().await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(tally(&service).exhausted, 0);
    service.stop().await;
}

/// Takes every request there; gives the numbers in them.
fn serve(web: TcpListener) -> Arc<parking_lot::Mutex<BTreeSet<u32>>> {
    let taken = Arc::new(parking_lot::Mutex::new(BTreeSet::new()));
    let all = Arc::clone(&taken);
    std::thread::spawn(move || {
        for stream in web.incoming().map_while(Result::ok) {
            let all = Arc::clone(&all);
            std::thread::spawn(move || {
                let mut stream = BufReader::new(stream);
                loop {
                    let (mut length, mut line) = (0, String::new());
                    while stream.read_line(&mut line).is_ok_and(|read| read > 0) && !line.trim().is_empty() {
                        if let Some((name, value)) = line.split_once(':')
                            && name.eq_ignore_ascii_case("content-length")
                        {
                            length = value.trim().parse().unwrap();
                        }
                        line.clear();
                    }
                    let mut body = vec![0; length];
                    if length == 0 || stream.read_exact(&mut body).is_err() {
                        return;
                    }
                    let body = String::from_utf8_lossy(&body).into_owned();
                    let number = |at: usize| body.get(at + 6..at + 12)?.parse::<u32>().ok();
                    let found = body.match_indices("value-").filter_map(|(at, _)| number(at));
                    all.lock().extend(found);
                    if stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").is_err() {
                        return;
                    }
                }
            });
        }
    });
    taken
}

#[test]
fn options_without_an_effect_are_told() {
    let home = Home::new();
    configure(&home, "127.0.0.1:9092", to_file(), "defer-hold-records = 7");
    let ended = run_to_end(home.path(), &CHECK);
    assert_eq!(ended.code, Some(2), "{}", ended.stdout);
    assert!(
        ended.stderr.contains("defer-hold-records") && ended.stderr.contains("no effect"),
        "{}",
        ended.stderr
    );
    configure(&home, "127.0.0.1:9092", to_file(), "spool-bytes-max = \"1GiB\"");
    home.edit("ack = \"implicit\"", "");
    let ended = run_to_end(home.path(), &CHECK);
    assert!(ended.stderr.contains("which has no spool"), "{}", ended.stderr);
}
