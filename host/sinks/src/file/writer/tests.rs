use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::path::Path;

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

const NOON: Timestamp = Timestamp::from_unix_millis(1_767_268_800_000);

fn later(millis: u64) -> Timestamp {
    Timestamp::from_unix_millis(NOON.as_unix_millis() + millis)
}

fn options(directory: &Path) -> FileOptions {
    FileOptions { rotate_size: 1 << 20, ..FileOptions::new(directory.join("out.jsonl")) }
}

/// A writer that has opened its file.
fn writer(options: FileOptions) -> Writer {
    let mut writer = Writer::new(options).unwrap();
    writer.tend(NOON).unwrap();
    writer
}

fn write(writer: &mut Writer, now: Timestamp, lines: &[&str]) -> Written {
    writer.write(now, lines, |line, out| {
        out.extend_from_slice(line.as_bytes());
        Ok::<_, String>(())
    })
}

fn write_well(writer: &mut Writer, now: Timestamp, lines: &[&str]) {
    let written = write(writer, now, lines);
    assert!(written.error.is_none(), "{written:?}");
    assert_eq!(written.durable, lines.len());
    assert_eq!(written.bytes, lines.iter().map(|line| line.len() as u64 + 1).sum::<u64>());
}

/// Names of all files but the lock, in alphabetical order; the one written to comes last.
fn names(directory: &Path) -> Vec<String> {
    let found = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = found.map(|name| name.into_string().unwrap()).collect();
    names.retain(|name| name != ".out.jsonl.lock");
    names.sort();
    names
}

/// Every line, in the order in which files sort.
fn lines(directory: &Path) -> Vec<String> {
    let all = names(directory).into_iter().map(|name| fs::read_to_string(directory.join(name)).unwrap());
    let all: String = all.collect();
    assert!(all.is_empty() || all.ends_with('\n'), "{all:?}");
    all.lines().map(str::to_owned).collect()
}

#[test]
fn a_full_file_is_set_aside_and_no_line_is_split() {
    let directory = TempDir::new().unwrap();
    let mut writer = writer(FileOptions { rotate_size: 1024, ..options(directory.path()) });
    let (long, longer) = ("a".repeat(600), "b".repeat(3_000));
    write_well(&mut writer, NOON, &[&long, "x", &long, &longer, "y"]);
    assert_eq!(
        names(directory.path()),
        [
            "out-20260101T120000.000Z.jsonl",
            "out-20260101T120000.001Z.jsonl",
            "out-20260101T120000.002Z.jsonl",
            "out.jsonl"
        ]
    );
    assert_eq!(lines(directory.path()), [&long, "x", &long, &longer, "y"]);
    let sizes = writer.take_notes().into_iter().map(|note| match note {
        Note::Rotated { bytes, .. } => bytes,
        note => panic!("{note:?}"),
    });
    assert_eq!(sizes.collect::<Vec<_>>(), [603, 601, 3_001]);
}

#[test]
fn names_sort_by_time_although_the_clock_was_set_back() {
    let directory = TempDir::new().unwrap();
    let mut writer = writer(FileOptions { rotate_size: 1024, ..options(directory.path()) });
    let long = "a".repeat(600);
    for (at, line) in [(0, "1"), (5_000, "2"), (1_000, "3"), (1_000, "4"), (9_000, "5")] {
        write_well(&mut writer, later(at), &[&format!("{line}{long}")]);
    }
    let firsts: Vec<_> = lines(directory.path()).into_iter().map(|line| line[..1].to_owned()).collect();
    assert_eq!(firsts, ["1", "2", "3", "4", "5"]);
}

#[test]
fn an_old_file_is_set_aside_and_an_empty_one_is_not() {
    let directory = TempDir::new().unwrap();
    let interval = Some(Duration::from_secs(60));
    let mut writer = writer(FileOptions { rotate_interval: interval, ..options(directory.path()) });
    writer.tend(later(3_600_000)).unwrap();
    assert_eq!(writer.rotation_due(), None);
    write_well(&mut writer, later(3_600_000), &["a"]);
    // It was begun when it was made, before there was a line in it.
    assert_eq!(writer.rotation_due(), Some(later(60_000)));
    writer.tend(later(3_600_000)).unwrap();
    assert_eq!(names(directory.path()), ["out-20260101T130000.000Z.jsonl", "out.jsonl"]);
    write_well(&mut writer, later(3_601_000), &["b"]);
    writer.tend(later(3_659_999)).unwrap();
    assert_eq!(names(directory.path()).len(), 2);
    write_well(&mut writer, later(3_660_000), &["c"]);
    assert_eq!(names(directory.path()).len(), 3);
    assert_eq!(lines(directory.path()), ["a", "b", "c"]);
}

#[test]
fn only_the_newest_are_kept_and_other_files_are_left_alone() {
    let directory = TempDir::new().unwrap();
    let foreign = ["out-.jsonl", "out-20260101T120000.000Z.json", "out-20261301T120000.000Z.jsonl", "other"];
    for name in foreign {
        fs::write(directory.path().join(name), "x").unwrap();
    }
    let mut writer = writer(FileOptions { rotate_size: 1024, keep: 2, ..options(directory.path()) });
    let long = "a".repeat(1_000);
    for at in 0..5 {
        write_well(&mut writer, later(at * 1_000), &[&long]);
    }
    let mut expected: BTreeSet<String> = foreign.map(str::to_owned).into();
    expected.extend(
        ["out-20260101T120003.000Z.jsonl", "out-20260101T120004.000Z.jsonl", "out.jsonl"].map(str::to_owned),
    );
    assert_eq!(names(directory.path()), expected.into_iter().collect::<Vec<_>>());
    let removed = |note: &&Note| matches!(note, Note::Removed { error: None, .. });
    assert_eq!(writer.take_notes().iter().filter(removed).count(), 2);
}

#[test]
fn a_line_that_was_cut_short_is_cut_off() {
    for (found, left, cut) in [
        ("", "", 0),
        ("whole\n", "whole\n", 0),
        ("whole\nhal", "whole\n", 3),
        ("hal", "", 3),
        ("whole\n\0\0\0", "whole\n", 3),
    ] {
        let directory = TempDir::new().unwrap();
        fs::write(directory.path().join("out.jsonl"), found).unwrap();
        let mut writer = writer(options(directory.path()));
        assert_eq!(fs::read_to_string(directory.path().join("out.jsonl")).unwrap(), left);
        let notes = writer.take_notes();
        let expected = Note::TailCut { file: writer.place.file().to_owned(), bytes: cut };
        assert_eq!(notes, if cut > 0 { vec![expected] } else { vec![] });
        write_well(&mut writer, NOON, &["next"]);
        assert_eq!(fs::read_to_string(directory.path().join("out.jsonl")).unwrap(), format!("{left}next\n"));
    }
    // The search goes back piece by piece.
    let directory = TempDir::new().unwrap();
    let long = format!("whole\n{}", "x".repeat(200_000));
    fs::write(directory.path().join("out.jsonl"), long).unwrap();
    writer(options(directory.path()));
    assert_eq!(fs::read_to_string(directory.path().join("out.jsonl")).unwrap(), "whole\n");
}

#[test]
fn a_second_writer_is_refused_until_the_first_is_gone() {
    let directory = TempDir::new().unwrap();
    let first = writer(options(directory.path()));
    let link = directory.path().join("link.jsonl");
    symlink(directory.path().join("out.jsonl"), &link).unwrap();
    for path in [directory.path().join("out.jsonl"), link] {
        let mut second = Writer::new(FileOptions::new(path)).unwrap();
        let error = second.tend(NOON).unwrap_err();
        assert!(matches!(error, FileError::Locked { .. }), "{error}");
        let sentence = error.to_string();
        assert!(sentence.contains("out.jsonl` is written by another sink or another process"), "{sentence}");
        assert!(error.is_mistake());
    }
    drop(first);
    writer(options(directory.path()));
}

#[test]
fn a_place_that_cannot_be_is_a_mistake() {
    let directory = TempDir::new().unwrap();
    fs::write(directory.path().join("file"), "").unwrap();
    fs::create_dir(directory.path().join("directory")).unwrap();
    for path in ["absent/out.jsonl", "file/out.jsonl", "directory"] {
        let opened = Writer::new(FileOptions::new(directory.path().join(path)))
            .and_then(|mut writer| writer.tend(NOON));
        let error = opened.unwrap_err();
        assert!(error.is_mistake(), "{error}");
    }
    let opened = Writer::new(FileOptions::new("/dev/full")).and_then(|mut writer| writer.tend(NOON));
    assert!(opened.unwrap_err().is_mistake());
}

#[test]
fn a_file_that_somebody_moved_is_begun_anew() {
    let directory = TempDir::new().unwrap();
    let mut writer = writer(options(directory.path()));
    write_well(&mut writer, NOON, &["a"]);
    fs::rename(directory.path().join("out.jsonl"), directory.path().join("out-0")).unwrap();
    write_well(&mut writer, NOON, &["b"]);
    assert_eq!(writer.take_notes(), [Note::MovedAway { file: writer.place.file().to_owned() }]);
    fs::remove_file(directory.path().join("out.jsonl")).unwrap();
    write_well(&mut writer, NOON, &["c"]);
    // Another way to make room for a new one.
    fs::write(directory.path().join("out.jsonl"), "").unwrap();
    write_well(&mut writer, NOON, &["d"]);
    assert_eq!(lines(directory.path()), ["a", "d"]);
}

/// What is written to a file that was taken away meanwhile does not count.
#[test]
fn a_file_that_is_taken_away_while_it_is_written_to_does_not_count() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("out.jsonl");
    let mut writer = writer(options(directory.path()));
    let written = writer.write(NOON, &["a", "b"], |line, out| {
        if *line == "b" && path.exists() && fs::metadata(&path).unwrap().len() == 0 {
            // Between the opening and the writing, but only the first time.
            fs::remove_file(&path).unwrap();
        }
        out.extend_from_slice(line.as_bytes());
        Ok::<_, String>(())
    });
    // The second try meets the new file, which is empty as well, so it is taken away once more.
    assert_eq!((written.durable, written.bytes), (0, 0));
    assert!(matches!(written.error, Some(FileError::Moved { .. })), "{written:?}");
    write_well(&mut writer, NOON, &["a", "c"]);
    assert_eq!(lines(directory.path()), ["a", "c"]);
}

#[test]
fn a_directory_that_is_gone_is_waited_for() {
    let directory = TempDir::new().unwrap();
    let (here, away) = (directory.path().join("here"), directory.path().join("away"));
    fs::create_dir(&here).unwrap();
    let mut writer = writer(options(&here));
    write_well(&mut writer, NOON, &["a"]);
    fs::rename(&here, &away).unwrap();
    for _ in 0..3 {
        let written = write(&mut writer, NOON, &["b"]);
        assert_eq!(written.durable, 0);
        assert!(written.error.is_some());
    }
    fs::rename(&away, &here).unwrap();
    write_well(&mut writer, NOON, &["b"]);
    assert_eq!(lines(&here), ["a", "b"]);
    fs::remove_dir_all(&here).unwrap();
    assert!(write(&mut writer, NOON, &["c"]).error.is_some());
    fs::create_dir(&here).unwrap();
    write_well(&mut writer, NOON, &["c"]);
    assert_eq!(lines(&here), ["c"]);
    // The lock is that of the new directory.
    assert!(Writer::new(options(&here)).unwrap().tend(NOON).is_err());
}

#[test]
fn what_makes_no_line_is_refused_and_the_rest_is_written() {
    let directory = TempDir::new().unwrap();
    let mut writer = writer(options(directory.path()));
    let written = writer.write(NOON, &["a", "bad", "b"], |line, out| {
        out.extend_from_slice(line.as_bytes());
        if *line == "bad" { Err("it is bad") } else { Ok(()) }
    });
    assert_eq!((written.durable, written.bytes), (3, 4));
    assert_eq!(written.refused, [(1, "it is bad".to_owned())]);
    assert_eq!(lines(directory.path()), ["a", "b"]);
}

/// One thing that happens to a file.
#[derive(Clone, Debug)]
enum Step {
    Write(Vec<usize>),
    /// The host dies after it wrote so many bytes of something that was never accepted, and begins anew.
    Crash(usize),
    Restart,
    Later(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => prop::collection::vec(0..1_500_usize, 0..6).prop_map(Step::Write),
        1 => (0..3_000_usize).prop_map(Step::Crash),
        1 => Just(Step::Restart),
        1 => (0..100_000_u64).prop_map(Step::Later),
    ];
    prop::collection::vec(step, 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn every_durable_line_is_there_once_and_in_order(steps in steps(), fsync: bool, interval: bool) {
        let directory = TempDir::new().unwrap();
        let interval = interval.then_some(Duration::from_secs(30));
        let options = FileOptions { rotate_size: 2_048, rotate_interval: interval, fsync, ..options(directory.path()) };
        let mut writer = writer(options.clone());
        let (mut now, mut expected) = (NOON, Vec::new());
        for step in steps {
            match step {
                Step::Write(lengths) => {
                    let batch: Vec<_> = lengths.iter().enumerate()
                        .map(|(at, length)| format!("{}:{}", expected.len() + at, "x".repeat(*length))).collect();
                    let batch_refs: Vec<&str> = batch.iter().map(String::as_str).collect();
                    write_well(&mut writer, now, &batch_refs);
                    expected.extend(batch);
                }
                Step::Crash(length) => {
                    drop(writer);
                    let mut file = OpenOptions::new().append(true).open(directory.path().join("out.jsonl")).unwrap();
                    file.write_all("y".repeat(length).as_bytes()).unwrap();
                    writer = self::writer(options.clone());
                }
                Step::Restart => {
                    drop(writer);
                    writer = self::writer(options.clone());
                }
                Step::Later(millis) => now = Timestamp::from_unix_millis(now.as_unix_millis() + millis),
            }
        }
        prop_assert_eq!(lines(directory.path()), expected);
        for name in names(directory.path()) {
            let content = fs::read_to_string(directory.path().join(&name)).unwrap();
            let is_single = content.lines().count() == 1;
            prop_assert!(content.len() <= 2_048 || is_single, "{}: {} bytes", name, content.len());
            prop_assert!(!content.is_empty() || name == "out.jsonl", "{}", name);
        }
    }
}
