use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;
use tidegate_connector::options::{Raw, Side};
use tidegate_model::{DeliveryId, Message};

use super::*;
use crate::testing::{self, Flow, PATIENCE, eventually, metric, numbered, parts};

const IN_TROUBLE: &str = "tidegate_sink_in_trouble{sink=\"out\"}";

/// A sink that has the file for itself.
fn open(parts: SinkParts, options: FileOptions) -> Result<File, FileError> {
    let file = OpenFile::open(&parts.name, options, parts.clock, &parts.telemetry)?;
    Ok(file.sink(parts))
}

/// The message ids of all lines.
fn written(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap_or_default();
    assert!(text.is_empty() || text.ends_with('\n'), "half a line");
    let records = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("a whole record"));
    records.map(|record| record["metadata"]["message-id"].as_str().expect("an id").to_owned()).collect()
}

fn named(ids: impl IntoIterator<Item = u64>) -> Vec<String> {
    ids.into_iter().map(|id| format!("m{id}")).collect()
}

#[tokio::test]
async fn deliveries_are_written_and_accepted_in_order() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("out.jsonl");
    let parts = parts("out");
    let telemetry = parts.telemetry.clone();
    let sink = open(parts, FileOptions::new(&path)).unwrap();
    let mut flow = Flow::start(sink);
    flow.emit((0..100).map(|id| numbered(id, "hello")).collect());
    let reports = flow.reports(100).await;
    assert!(reports.iter().enumerate().all(|(at, report)| report.id == DeliveryId(at as u64)));
    assert!(reports.iter().all(|report| report.outcome == Outcome::Accepted));
    assert_eq!(written(&path), named(0..100));
    flow.end().await.unwrap();
    let bytes = fs::metadata(&path).unwrap().len();
    assert_eq!(metric(&telemetry, "tidegate_sink_written_lines_total{sink=\"out\"}"), 100);
    assert_eq!(metric(&telemetry, "tidegate_sink_written_bytes_total{sink=\"out\"}"), bytes);
    // The lock went with the sink.
    open(testing::parts("out"), FileOptions::new(&path)).unwrap();
}

#[tokio::test]
async fn a_second_sink_on_the_same_file_is_refused() {
    let directory = TempDir::new().unwrap();
    let options = FileOptions::new(directory.path().join("out.jsonl"));
    let _first = open(parts("one"), options.clone()).unwrap();
    let error = open(parts("two"), options).unwrap_err().to_string();
    assert!(error.contains("give each its own file"), "{error}");
}

/// Flows that name one sink.
#[tokio::test]
async fn two_flows_share_a_file() {
    const ROUNDS: u64 = 10;
    const EACH: u64 = 60;
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("out.jsonl");
    let (first, second) = (parts("out"), parts("out"));
    // Several files, so that both set the same one aside.
    let options = FileOptions { rotate_size: 16 << 10, ..FileOptions::new(&path) };
    let file = OpenFile::open(&first.name, options, first.clock, &first.telemetry).unwrap();
    let mut flows = [Flow::start(file.sink(first)), Flow::start(file.sink(second))];
    drop(file);
    for round in 0..ROUNDS {
        for (flow, parity) in flows.iter().zip(0..) {
            let numbers = (0..EACH).map(|number| (round * EACH + number) * 2 + parity);
            flow.emit(numbers.map(|id| numbered(id, "hello")).collect());
        }
        for flow in &mut flows {
            assert_eq!(flow.outcomes(60).await, vec![Outcome::Accepted; 60]);
        }
    }
    let mut names: Vec<_> =
        fs::read_dir(directory.path()).unwrap().map(|file| file.unwrap().path()).collect();
    names.retain(|name| name.extension().is_some_and(|extension| extension == "jsonl"));
    assert!(names.len() > 3, "{names:?}");
    let mut ids: Vec<u64> =
        names.iter().flat_map(|file| written(file)).map(|id| id[1..].parse().unwrap()).collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..2 * ROUNDS * EACH).collect::<Vec<_>>(), "each once, whole");
    let [one, other] = flows;
    one.end().await.unwrap();
    other.end().await.unwrap();
    // The lock went with the last of them.
    open(parts("out"), FileOptions::new(&path)).unwrap();
}

#[tokio::test]
async fn an_old_file_is_set_aside_although_nothing_comes() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("out.jsonl");
    let parts = parts("out");
    let telemetry = parts.telemetry.clone();
    let options = FileOptions { rotate_interval: Some(Duration::from_secs(1)), ..FileOptions::new(&path) };
    let mut flow = Flow::start(open(parts, options).unwrap());
    flow.emit(vec![numbered(1, "hello")]);
    flow.reports(1).await;
    let rotations = || metric(&telemetry, "tidegate_sink_rotations_total{sink=\"out\"}");
    eventually("the file is set aside", || rotations() == 1).await;
    assert_eq!(fs::metadata(&path).unwrap().len(), 0);
    flow.end().await.unwrap();
}

#[tokio::test]
async fn a_directory_that_is_gone_is_waited_for() {
    let directory = TempDir::new().unwrap();
    let (here, away) = (directory.path().join("here"), directory.path().join("away"));
    fs::create_dir(&here).unwrap();
    let parts = parts("out");
    let telemetry = parts.telemetry.clone();
    let mut flow = Flow::start(open(parts, FileOptions::new(here.join("out.jsonl"))).unwrap());
    assert_eq!(metric(&telemetry, IN_TROUBLE), 0);
    fs::rename(&here, &away).unwrap();
    flow.emit(vec![numbered(1, "a"), numbered(2, "b")]);
    eventually("trouble is told", || metric(&telemetry, IN_TROUBLE) == 1).await;
    // More comes meanwhile, and is held as well.
    flow.emit(vec![numbered(3, "c")]);
    flow.is_silent_for(Duration::from_millis(500)).await;
    fs::rename(&away, &here).unwrap();
    assert_eq!(flow.outcomes(3).await, vec![Outcome::Accepted; 3]);
    assert_eq!(written(&here.join("out.jsonl")), named(1..=3));
    assert_eq!(metric(&telemetry, IN_TROUBLE), 0);
    assert!(metric(&telemetry, "tidegate_sink_retries_total{sink=\"out\"}") > 0);
    flow.end().await.unwrap();
}

#[tokio::test]
async fn what_comes_again_anyway_is_given_back() {
    let directory = TempDir::new().unwrap();
    let (here, away) = (directory.path().join("here"), directory.path().join("away"));
    fs::create_dir(&here).unwrap();
    let parts = parts("out");
    let (telemetry, clock) = (parts.telemetry.clone(), parts.clock);
    let mut flow = Flow::start(open(parts, FileOptions::new(here.join("out.jsonl"))).unwrap());
    fs::rename(&here, &away).unwrap();
    let order = Some(Arc::from("a"));
    let short = Emission {
        expires_at: clock.now() + Duration::from_millis(300),
        order: order.clone(),
        ..numbered(1, "")
    };
    let behind = Emission { order, ..numbered(2, "") };
    let dead = Emission {
        expires_at: clock.now(),
        received_at: clock.now(),
        dead_letter: Some(Arc::new(testing::dead_letter())),
        ..numbered(3, "")
    };
    flow.emit(vec![short, behind, numbered(4, ""), dead]);
    let mut early = flow.reports(2).await;
    early.sort_by_key(|report| report.id);
    assert!(early.iter().all(|report| report.outcome == Outcome::Released), "{early:?}");
    assert_eq!(early.iter().map(|report| report.id.0).collect::<Vec<_>>(), [1, 2]);
    fs::rename(&away, &here).unwrap();
    assert_eq!(flow.outcomes(2).await, vec![Outcome::Accepted; 2]);
    assert_eq!(written(&here.join("out.jsonl")), named([4, 3]));
    let released = |cause| {
        metric(&telemetry, &format!("tidegate_sink_released_total{{sink=\"out\",cause=\"{cause}\"}}"))
    };
    assert_eq!((released("lease_over"), released("overtaken")), (1, 1));
    flow.end().await.unwrap();
}

#[tokio::test]
async fn a_lease_that_is_renewed_is_held_for_longer() {
    let directory = TempDir::new().unwrap();
    let (here, away) = (directory.path().join("here"), directory.path().join("away"));
    fs::create_dir(&here).unwrap();
    let parts = parts("out");
    let (telemetry, clock) = (parts.telemetry.clone(), parts.clock);
    let mut flow = Flow::start(open(parts, FileOptions::new(here.join("out.jsonl"))).unwrap());
    fs::rename(&here, &away).unwrap();
    let short = |id| Emission { expires_at: clock.now() + Duration::from_secs(2), ..numbered(id, "") };
    flow.emit(vec![short(1), short(2)]);
    eventually("trouble is told", || metric(&telemetry, IN_TROUBLE) == 1).await;
    let renewed = clock.now() + Duration::from_secs(3_600);
    flow.outbox.notify(vec![Notice::Renewed { id: DeliveryId(2), result: Ok(renewed) }]).unwrap();
    let first = flow.reports(1).await;
    assert_eq!((first[0].id, &first[0].outcome), (DeliveryId(1), &Outcome::Released));
    fs::rename(&away, &here).unwrap();
    assert_eq!(flow.outcomes(1).await, [Outcome::Accepted]);
    assert_eq!(written(&here.join("out.jsonl")), named([2]));
    flow.end().await.unwrap();
}

#[tokio::test]
async fn nobody_waits_for_a_disk_when_the_flow_ends() {
    for by_notice in [true, false] {
        let directory = TempDir::new().unwrap();
        let (here, away) = (directory.path().join("here"), directory.path().join("away"));
        fs::create_dir(&here).unwrap();
        let parts = parts("out");
        let telemetry = parts.telemetry.clone();
        let mut flow = Flow::start(open(parts, FileOptions::new(here.join("out.jsonl"))).unwrap());
        fs::rename(&here, &away).unwrap();
        flow.emit(vec![numbered(1, "a"), numbered(2, "b")]);
        eventually("trouble is told", || metric(&telemetry, IN_TROUBLE) == 1).await;
        if by_notice {
            flow.drain();
        } else {
            flow.outbox.end_inbox();
        }
        assert_eq!(flow.outcomes(2).await, vec![Outcome::Released; 2]);
        flow.end().await.unwrap();
        // What has ended is not in trouble.
        assert_eq!(metric(&telemetry, IN_TROUBLE), 0);
    }
}

/// Fills a disk, or what stands for one, and says how to make room.
async fn fill_and_make_room(path: PathBuf, make_room: impl FnOnce()) {
    let parts = parts("out");
    let telemetry = parts.telemetry.clone();
    let mut flow = Flow::start(open(parts, FileOptions::new(&path)).unwrap());
    let mut accepted = 0_u64;
    let mut sent = 0_u64;
    // Bodies of a size that no page and no limit is a multiple of, so that a write ends within a line.
    while metric(&telemetry, IN_TROUBLE) == 0 {
        assert!(sent < 10_000, "the disk is never full");
        flow.emit((sent..sent + 7).map(|id| numbered(id, vec![b'x'; 1_237])).collect());
        sent += 7;
        let until = tokio::time::Instant::now() + PATIENCE;
        while accepted < sent && metric(&telemetry, IN_TROUBLE) == 0 {
            let said = tokio::time::timeout(Duration::from_millis(50), flow.outbox.reports()).await;
            let ended = said.ok().flatten().unwrap_or_default().ended;
            assert!(ended.iter().all(|report| report.outcome == Outcome::Accepted), "{ended:?}");
            accepted += ended.len() as u64;
            assert!(tokio::time::Instant::now() < until, "neither accepted nor in trouble");
        }
    }
    assert!(accepted < sent);
    flow.is_silent_for(Duration::from_millis(700)).await;
    // Exactly what was accepted, and no part of a line behind it.
    assert_eq!(written(&path), named(0..accepted));
    make_room();
    let rest = usize::try_from(sent - accepted).unwrap();
    assert_eq!(flow.outcomes(rest).await, vec![Outcome::Accepted; rest]);
    assert_eq!(written(&path), named(0..sent));
    assert_eq!(metric(&telemetry, IN_TROUBLE), 0);
    flow.end().await.unwrap();
}

/// A file that may not become larger stands for a full disk: the system writes a part of a line and then refuses. The limit
/// is one of the process, so the test runs once more in a process of its own.
#[tokio::test]
async fn a_full_disk_is_waited_for() {
    const MARK: &str = "TIDEGATE_TEST_LIMITED_FILES";
    if let Some(directory) = std::env::var_os(MARK) {
        let make_room = || {
            let limit = ["--pid", &std::process::id().to_string(), "--fsize=unlimited"].map(str::to_owned);
            let lifted = Command::new("prlimit").args(limit).status();
            assert!(lifted.expect("`prlimit` of util-linux").success());
        };
        return fill_and_make_room(PathBuf::from(directory).join("out.jsonl"), make_room).await;
    }
    let directory = TempDir::new().unwrap();
    let output = Command::new("sh")
        // Without the trap the first write above the limit ends the process.
        .args(["-c", "trap '' XFSZ; ulimit -S -f 100; exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "file::tests::a_full_disk_is_waited_for", "--nocapture"])
        .env(MARK, directory.path())
        .output()
        .unwrap();
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

/// The same with a disk that is really full, where one can be made: that takes root. The test above stands for it elsewhere.
#[tokio::test]
async fn a_full_file_system_is_waited_for() {
    let directory = TempDir::new().unwrap();
    let disk = directory.path().join("disk");
    fs::create_dir(&disk).unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=256k", "none"]).arg(&disk).output();
    if !mounted.as_ref().is_ok_and(|output| output.status.success()) {
        println!("no file system can be made here, `a_full_disk_is_waited_for` stands for it: {mounted:?}");
        return;
    }
    let _mount = Mount(&disk);
    fs::write(disk.join("ballast"), vec![0; 100_000]).unwrap();
    fill_and_make_room(disk.join("out.jsonl"), || fs::remove_file(disk.join("ballast")).unwrap()).await;
}

struct Mount<'a>(&'a Path);

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

#[test]
fn options_are_read() {
    let read = |pairs: &[(&str, &str)]| {
        let raw: BTreeMap<_, _> =
            pairs.iter().map(|(key, text)| ((*key).to_owned(), Raw::Text((*text).to_owned()))).collect();
        FileOptions::from_values(&FILE.read(Side::Sink, &raw).unwrap())
    };
    assert_eq!(read(&[("path", "out.jsonl")]), Ok(FileOptions::new("out.jsonl")));
    let all = [
        ("path", "a/out"),
        ("rotate-size", "1MiB"),
        ("rotate-interval", "1h"),
        ("keep", "3"),
        ("fsync", "false"),
    ];
    let expected = FileOptions {
        path: "a/out".into(),
        rotate_size: 1 << 20,
        rotate_interval: Some(Duration::from_secs(3_600)),
        keep: 3,
        fsync: false,
    };
    assert_eq!(read(&all), Ok(expected));
    for path in ["", "/", "a/", ".."] {
        assert_eq!(read(&[("path", path)]).unwrap_err()[0].key(), "path", "{path}");
    }
}

#[tokio::test]
async fn a_dead_letter_has_its_reason() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("out.jsonl");
    let mut flow = Flow::start(open(parts("out"), FileOptions::new(&path)).unwrap());
    let dead = Emission {
        dead_letter: Some(Arc::new(testing::dead_letter())),
        ..testing::emission(1, Message::new("t", "m1"))
    };
    flow.emit(vec![dead]);
    assert_eq!(flow.outcomes(1).await, [Outcome::Accepted]);
    let record: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(record["dead-letter"]["reason"], "tenant is blocked");
    flow.end().await.unwrap();
}
