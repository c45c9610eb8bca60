//! The command line is a contract: what it says is checked in.

use tidegate_process_tests::run_to_end;

#[test]
fn help_of_every_command() {
    let directory = tempfile::tempdir().expect("directory");
    let mut text = String::new();
    for command in [
        &[][..],
        &["run"],
        &["check"],
        &["demo"],
        &["broker"],
        &["send"],
        &["options"],
        &["policy"],
        &["policy", "list"],
        &["policy", "check"],
        &["policy", "build"],
    ] {
        let arguments: Vec<&str> = command.iter().copied().chain(["--help"]).collect();
        let ended = run_to_end(directory.path(), &arguments);
        assert_eq!((ended.code, &*ended.stderr), (Some(0), ""));
        text.push_str(&format!("$ tidegate {}\n{}\n", arguments.join(" "), ended.stdout));
    }
    insta::assert_snapshot!(text);
}

#[test]
fn options_of_every_connector() {
    let directory = tempfile::tempdir().expect("directory");
    for connector in ["rocketmq-grpc", "stdout", "discard"] {
        let ended = run_to_end(directory.path(), &["options", connector]);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        insta::assert_snapshot!(format!("options-{connector}"), ended.stdout);
    }
    let ended = run_to_end(directory.path(), &["options", "rocketmq"]);
    assert_eq!(ended.code, Some(2));
    insta::assert_snapshot!(ended.stderr.trim_end(), @"error: there is no connector `rocketmq`, did you mean `rocketmq-grpc`? There are `rocketmq-grpc`, `stdout`, `discard`.");
}
