//! The command line is a contract: what it says is checked in.

use tidegate_process_tests::{help_of, run_to_end};

#[test]
fn help_of_every_command() {
    insta::assert_snapshot!(help_of(&[
        &[],
        &["run"],
        &["check"],
        &["demo"],
        &["broker"],
        &["send"],
        &["options"],
        &["policy"],
        &["policy", "list"],
        &["policy", "new"],
        &["policy", "build"],
        &["policy", "check"],
        &["policy", "inspect"],
        &["policy", "run"],
        &["policy", "test"],
        &["policy", "bench"],
        &["policy", "replay"],
    ]));
}

#[test]
fn options_of_every_section_and_connector() {
    let directory = tempfile::tempdir().expect("directory");
    let ended = run_to_end(directory.path(), &["options"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    insta::assert_snapshot!("options", ended.stdout);
    let ended = run_to_end(directory.path(), &["--json", "options"]);
    let all: Vec<serde_json::Value> = serde_json::from_str(&ended.stdout).expect("JSON");
    assert_eq!(all.len(), 14);
    for place in &all {
        let name = place["section"].as_str().or(place["connector"].as_str()).expect("a name");
        let ended = run_to_end(directory.path(), &["options", name]);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        for option in place["options"].as_array().expect("options") {
            let key = option["key"].as_str().expect("a key");
            assert!(ended.stdout.lines().any(|line| line.split(' ').next() == Some(key)), "{name}: {key}");
        }
        insta::assert_snapshot!(format!("options-{name}"), ended.stdout);
        let ended = run_to_end(directory.path(), &["--json", "options", name]);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&ended.stdout).expect("JSON"), *place);
    }
    let ended = run_to_end(directory.path(), &["options", "rocketmq"]);
    assert_eq!(ended.code, Some(2));
    insta::assert_snapshot!(ended.stderr.trim_end(), @"error: there is no section or connector `rocketmq`, did you mean `rocketmq-grpc`? There are `host`, `policies`, `flows`, `peers`, `sources`, `sinks`, `settlers`, `rocketmq-grpc`, `kafka-sharegroup`, `handoff`, `http`, `file`, `stdout`, `discard`.");
}
