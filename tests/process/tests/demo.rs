//! The first command of the README keeps its promises.

use serde_json::Value;
use tidegate_process_tests::run_to_end;

#[test]
fn the_demo_shows_the_effect_and_ends_well() {
    let directory = tempfile::tempdir().expect("directory");
    let ended = run_to_end(directory.path(), &["demo", "--phase", "5s", "--json"]);
    assert_eq!(ended.code, Some(0), "{}\n{}", ended.stdout, ended.stderr);
    let account: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    assert_eq!(account["lost"], 0);
    assert_eq!(account["sent"], account["acknowledged"]);
    assert_eq!(account["phases"].as_array().map(Vec::len), Some(3));
    assert!(account["deferred"].as_u64() > Some(0), "the policy held something back: {account}");
}
