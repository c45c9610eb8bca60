//! What the demo records tells two rule files apart as a policy in shadow mode does.

#![allow(clippy::expect_used, reason = "in the helpers of a test, a failure is the test's failure")]

use std::path::Path;

use serde_json::{Value, json};
use tidegate_process_tests::{Home, run_to_end, shipped_policies};

/// What replaying the demo's recording before the shipped policy with these rules finds.
fn replay(home: &Home, rules: &Path) -> Value {
    let component = shipped_policies().join("fair-share.wasm");
    let arguments =
        ["policy", "replay", "demo.jsonl", "--with", text(&component), "--rules", text(rules), "--json"];
    let ended = run_to_end(home.path(), &arguments);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    serde_json::from_str(&ended.stdout).expect("JSON")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of plain characters")
}

/// Pairs of verdicts as a replay and as the demo tells them: what was done, what would be, how often.
fn pairs(told: &Value, done: &str, would_be: &str) -> Vec<(Value, Value, Value)> {
    let pairs = told["pairs"].as_array().expect("pairs");
    pairs.iter().map(|pair| (pair[done].clone(), pair[would_be].clone(), pair["count"].clone())).collect()
}

#[test]
fn a_recording_of_the_demo_tells_two_rule_files_apart_as_a_shadow_does() {
    let home = Home::new();
    let shipped = shipped_policies().join("fair-share.toml");
    let rules = std::fs::read_to_string(&shipped).expect("the shipped rules");
    let harsher = rules.replace("min-in-flight = 10", "min-in-flight = 1");
    let harsher = harsher.replace("min-queued = 10", "min-queued = 0");
    home.write("harsher.toml", harsher);

    // The effect needs longer phases, and has a test of its own.
    let arguments = ["demo", "--phase", "2s", "--json", "--record", "demo.jsonl", "--shadow", "harsher.toml"];
    let ended = run_to_end(home.path(), &arguments);
    let account: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{ended:?}"));
    assert_eq!(account["lost"], 0);
    let recording = &account["recording"];
    assert_eq!((&recording["end"], &recording["missed"]), (&json!("flow"), &json!(0)), "{account}");
    let again = replay(&home, &home.file("harsher.toml"));
    assert_eq!(again["messages"], recording["recorded"]);
    assert_eq!(again["messages"], account["shadow"]["compared"]);
    assert_eq!(again["differing"], account["shadow"]["differing"]);
    assert!(again["differing"].as_u64() > Some(0), "a shadow that never differs shows nothing: {again}");
    assert_eq!(pairs(&again, "recorded", "new"), pairs(&account["shadow"], "live", "shadow"));

    // The other rules, on the same recording.
    let with_shipped = replay(&home, &shipped);
    assert_eq!(with_shipped["messages"], again["messages"]);
    let deferred = |found: &Value| -> u64 {
        let pairs = pairs(found, "recorded", "new").into_iter();
        pairs.filter(|(_, new, _)| new == "defer").filter_map(|(.., count)| count.as_u64()).sum()
    };
    assert!(
        deferred(&again) > deferred(&with_shipped),
        "one in flight is less than ten: {} and {}",
        again["pairs"],
        with_shipped["pairs"]
    );

    let twice = run_to_end(home.path(), &arguments);
    assert_eq!(twice.code, Some(3));
    assert!(twice.stderr.contains("`demo.jsonl` cannot be written"), "{}", twice.stderr);
    assert_eq!(replay(&home, &shipped), with_shipped, "the recording is still whole");
}

#[test]
fn rules_that_are_wrong_are_told_before_the_demo_plays() {
    let home = Home::new();
    home.write("wrong.toml", "min-in-flight = \"many\"\n");
    let ended = run_to_end(home.path(), &["demo", "--shadow", "wrong.toml"]);
    assert_eq!(ended.code, Some(2));
    assert!(
        ended.stderr.contains("wrong.toml") && ended.stderr.contains("min-in-flight"),
        "{}",
        ended.stderr
    );
    assert!(!ended.stderr.contains("trial.toml"), "{}", ended.stderr);
    assert!(ended.stdout.is_empty(), "{}", ended.stdout);
}
