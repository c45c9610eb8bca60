//! Policies without a host: made, built, inspected, asked, tested, measured and replayed by the program.

use std::path::PathBuf;

use serde_json::Value;
use tidegate_process_tests::{Ended, Home, run_to_end, run_with_input};

/// A directory with `NAME.wasm`, built from the repository's guests.
fn home_with(guests: &[&str]) -> Home {
    let home = Home::new();
    for name in guests {
        let module = guests_directory().join(format!("{}.wasm", name.replace('-', "_")));
        assert!(module.exists(), "the guests are built, as `cargo xtask guests` does: {}", module.display());
        let component = format!("{name}.wasm");
        let ended = run(&home, &["policy", "build", &module.to_string_lossy(), "--output", &component]);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    }
    home
}

fn guests_directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../guests/target/wasm32-unknown-unknown/release")
}

fn run(home: &Home, arguments: &[&str]) -> Ended {
    run_to_end(home.path(), arguments)
}

fn json(ended: &Ended) -> Value {
    serde_json::from_str(&ended.stdout)
        .unwrap_or_else(|_| panic!("no JSON: {}{}", ended.stdout, ended.stderr))
}

const BUSY: &str = r#"{"lite-topic": "tenant-7", "standing": {"key-in-flight": 600, "flow-in-flight": 1000,
    "flow-queued": 500, "flow-emitted": 32, "active-keys": 20, "key-rate": 300.0, "flow-rate": 400.0,
    "flow-throughput": 100.0, "key-share": 0.8}, "at": "5s"}"#;

#[test]
fn one_message_is_asked_about() {
    let home = home_with(&["fair-share", "panicking", "steady"]);
    home.write("quiet.json", r#"{"lite-topic": "tenant-7"}"#);
    home.write("busy.json", format!("[{}]", vec![BUSY; 300].join(",")));
    let quiet = run(&home, &["policy", "run", "fair-share.wasm", "--message", "quiet.json"]);
    assert_eq!((quiet.code, quiet.stdout.lines().next()), (Some(0), Some("deliver")), "{}", quiet.stderr);
    // A noisy key is paced: some of its messages pass, the others are deferred.
    let ask = || {
        let ended = run(&home, &["--json", "policy", "run", "fair-share.wasm", "--message", "busy.json"]);
        let lines = ended.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON"));
        lines.collect::<Vec<Value>>()
    };
    let busy = ask();
    assert_eq!((busy.len(), &busy[0]["answer"]["verdict"]), (300, &"deliver".into()));
    let last = &busy[299];
    assert_eq!(last["answer"]["verdict"], "defer", "{last}");
    let delay = last["answer"]["delay-ms"].as_u64().expect("a delay");
    assert!((250..=5_000).contains(&delay), "{last}");
    assert!(last["memory-bytes"].as_u64() >= Some(65_536) && last["took-ns"].as_u64() > Some(0), "{last}");
    // The same questions have the same answers: nothing is left to chance.
    assert!(ask().iter().zip(&busy).all(|(again, before)| again["answer"] == before["answer"]));

    let arguments = ["policy", "run", "panicking.wasm", "--message", "-"];
    let failed = run_with_input(home.path(), &arguments, br#"{"properties": {"panic": "bad quota table"}}"#);
    assert_eq!(failed.code, Some(1), "{}", failed.stdout);
    assert!(
        failed.stdout.starts_with("error (panic): ") && failed.stdout.contains("bad quota table"),
        "{}",
        failed.stdout
    );

    let arguments = ["policy", "run", "steady.wasm", "--message", "-"];
    let renewed = run_with_input(home.path(), &arguments, br#"{"lease": {"length": "30s"}}"#);
    assert_eq!(renewed.stdout.lines().next(), Some("renew 30s"), "{}", renewed.stderr);
}

#[test]
fn mistakes_in_a_message_are_told_together() {
    let home = home_with(&["fair-share"]);
    home.write("m.json", r#"{"attemt": 2, "standing": {"key-rate": "fast"}}"#);
    let ended = run(&home, &["policy", "run", "fair-share.wasm", "--message", "m.json"]);
    assert_eq!(ended.code, Some(2));
    insta::assert_snapshot!(ended.stderr.trim_end(), @r#"
    error: `m.json` is no message:
    standing.key-rate: must be a number, not "fast"
    attemt: unknown key, did you mean `attempt`?
    "#);
    let ended = run(&home, &["policy", "run", "fair-share.wasm", "--message", "none.json"]);
    assert_eq!((ended.code, ended.stderr.contains("none.json")), (Some(2), true), "{}", ended.stderr);
}

#[test]
fn a_component_is_inspected() {
    let home = home_with(&["fair-share", "http-token", "rate-rules"]);
    let seen = json(&run(&home, &["--json", "policy", "inspect", "fair-share.wasm"]));
    assert_eq!((&seen["world"], &seen["contract"]), (&"throttle-policy".into(), &"1.0.0".into()), "{seen}");
    assert_eq!(seen["trailer"]["built"]["name"], "fair-share");
    assert_eq!(seen["description"]["parameters"][0]["name"], "share");
    assert_eq!(seen["sha256"].as_str().map(str::len), Some(64));
    let quick = json(&run(&home, &["--json", "policy", "inspect", "--quick", "fair-share.wasm"]));
    assert_eq!((&quick["sha256"], quick.get("description")), (&seen["sha256"], None));
    // What needs grants is described all the same.
    let resolver = json(&run(&home, &["--json", "policy", "inspect", "http-token.wasm"]));
    assert_eq!(
        (&resolver["world"], &resolver["description"]["name"]),
        (&"credential-resolver".into(), &"http-token".into())
    );
    assert!(
        resolver["grants-needed"].as_array().is_some_and(|needed| needed.contains(&"http".into())),
        "{resolver}"
    );
    let page = run(&home, &["policy", "inspect", "--markdown", "fair-share.wasm"]).stdout;
    assert!(
        page.starts_with("# fair-share ") && page.contains("| `max-delay` | duration | `\"5s\"` |"),
        "{page}"
    );

    home.write("page.wasm", "<html>");
    let ended = run(&home, &["policy", "inspect", "page.wasm"]);
    assert_eq!(ended.code, Some(2));
    assert!(
        ended.stderr.contains("page.wasm") && ended.stderr.contains("not WebAssembly"),
        "{}",
        ended.stderr
    );
}

#[test]
fn a_policy_of_the_configuration_is_checked_with_its_limits() {
    let home = home_with(&["fair-share"]);
    std::fs::rename(home.file("fair-share.wasm"), home.file("policies/fair-share.wasm")).expect("rename");
    let more = "throttle = \"fair\"\n[policies.fair]\ncomponent = \"fair-share.wasm\"\nlimits.file-size = \"1KiB\"\n";
    home.configure("127.0.0.1:1", more);
    let ended = run(&home, &["policy", "check", "--policy", "fair"]);
    assert_eq!(ended.code, Some(2), "{}", ended.stdout);
    assert!(ended.stdout.contains("limits.file-size"), "{}", ended.stdout);
    home.configure("127.0.0.1:1", &more.replace("1KiB", "1MiB"));
    let ended = run(&home, &["policy", "check", "--policy", "fair"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    let ended = run(&home, &["policy", "check", "--policy", "fare"]);
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains("did you mean `fair`?"), "{}", ended.stderr);
    // The file alone still does.
    assert_eq!(run(&home, &["policy", "check", "policies/fair-share.wasm"]).code, Some(0));
    assert_eq!(run(&home, &["policy", "check"]).code, Some(2));
}

const CASES: &str = r#"
rules = { rule = [{ lite-topic = "closed-*", reject = "gone" }, { rate = 5, burst = 2, delay = "100ms", jitter = 0 }] }

[[case]]
name = "a burst passes, then the rate holds"
facts = { lite-topic = "tenant-1" }

[[case.message]]
times = 2
expect = "deliver"

[[case.message]]
at = "10ms"
expect = "defer"
delay = "100ms..250ms"

[[case.message]]
at = "1s"
times = 3
expect = { deliver = 2, defer = 1 }

[[case]]
name = "who left is rejected"

[[case.message]]
lite-topic = "closed-7"
expect = "reject"
reason = "gone"

[[case]]
name = "a rate below zero is refused"
rules = { rule = [{ rate = 1 }, { rate = -1 }] }
rules-error = "rule[1].rate"
"#;

#[test]
fn cases_pass_and_fail_with_what_was_expected() {
    let home = home_with(&["rate-rules"]);
    home.write("rate-rules.test.toml", CASES);
    let ended = run(&home, &["policy", "test"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.ends_with("3 cases passed\n"), "{}", ended.stdout);
    // By the component, by the file, and from a directory of tests.
    let ended = run(&home, &["policy", "test", "rate-rules.wasm"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    std::fs::create_dir(home.file("tests")).expect("tests");
    std::fs::rename(home.file("rate-rules.test.toml"), home.file("tests/cases.toml")).expect("rename");
    assert_eq!(run(&home, &["policy", "test", "."]).code, Some(0));

    let wrong = CASES
        .replace("delay = \"100ms..250ms\"", "delay = \"1h..2h\"")
        .replace("rule[1].rate", "rule[0].rate");
    home.write("tests/cases.toml", wrong);
    let ended = run(&home, &["policy", "test", "tests/cases.toml"]);
    assert_eq!(ended.code, Some(1), "{}", ended.stdout);
    assert!(ended.stderr.contains("2 of 3 cases failed"), "{}", ended.stderr);
    assert!(
        ended.stdout.contains("message[1], at 10ms: expected defer 1h..2h, got defer "),
        "{}",
        ended.stdout
    );
    assert!(
        ended.stdout.contains("expected that the rules are refused for `rule[0].rate`"),
        "{}",
        ended.stdout
    );
    let ended = run(&home, &["--json", "policy", "test", "tests/cases.toml", "--only", "left"]);
    let list = json(&ended);
    assert_eq!(
        (ended.code, list.as_array().map(Vec::len), &list[0]["passed"]),
        (Some(0), Some(1), &true.into())
    );
}

#[test]
fn mistakes_in_cases_are_told_together() {
    let home = home_with(&["rate-rules"]);
    home.write("rate-rules.test.toml", "[[case]]\nname = \"x\"\n[[case.message]]\nexpcet = \"deliver\"\n[[case.message]]\nexpect = \"delivr\"\ndelay = \"soon\"\n");
    let ended = run(&home, &["policy", "test"]);
    assert_eq!(ended.code, Some(2));
    insta::assert_snapshot!(ended.stderr.trim_end());
    let empty = Home::new();
    let ended = run(&empty, &["policy", "test"]);
    assert_eq!((ended.code, ended.stderr.contains("has no test files")), (Some(2), true), "{}", ended.stderr);
}

#[test]
fn a_policy_is_measured() {
    let home = home_with(&["fair-share", "steady"]);
    let found = json(&run(&home, &["--json", "policy", "bench", "--rounds", "1", "fair-share.wasm"]));
    for key in ["decision-ns", "fuel", "memory-bytes", "start-ns", "compile-ns", "component-bytes", "calls"] {
        assert!(found[key].as_u64() > Some(0), "{key}: {found}");
    }
    assert_eq!(found["failed-calls"], 0);
    let renewal = json(&run(&home, &["--json", "policy", "bench", "--rounds", "1", "steady.wasm"]));
    assert_eq!(renewal["world"], "renewal-policy");
    let text = run(&home, &["policy", "bench", "--rounds", "1", "fair-share.wasm"]).stdout;
    assert!(text.contains("fuel") && text.contains("an instance"), "{text}");
}

/// A recording as a host writes it: fair-share has deferred whoever floods.
fn recording() -> String {
    let mut lines = vec![
        r#"{"tidegate-recording":1,"flow":"tenants","policy":"fair","started-unix-ms":1,"sample":1.0,"masked":[]}"#.to_owned(),
    ];
    for n in 0..100 {
        let (key, answer) = match n % 4 {
            0 => ("flood", r#"{"verdict":"defer","delay-ms":500,"reason":"noisy"}"#),
            _ => ("quiet", r#"{"verdict":"deliver"}"#),
        };
        lines.push(format!(
            r#"{{"source":"s","message":{{"topic":"t","lite-topic":"{key}","id":"message-{n}","body":{{"text":"x"}},"body-bytes":1}},"key":"{key}","attempt":1,"age-ms":1,"waited-ms":1,"deferred-ms":0,"standing":{{"key-in-flight":1,"flow-in-flight":2,"flow-budget":100,"flow-queued":0,"flow-emitted":0,"active-keys":2,"key-rate":1.0,"flow-rate":2.0,"flow-throughput":2.0,"key-share":0.5}},"wall-ms":1700000000000,"now-ns":{},"seed":{n},"answer":{answer}}}"#,
            n * 1_000_000,
        ));
    }
    lines.join("\n") + "\n"
}

#[test]
fn a_recording_is_replayed_against_a_candidate() {
    let home = home_with(&["rate-rules", "steady"]);
    home.write("recording.jsonl", recording());
    home.write("open.toml", "[[rule]]\ndeliver = true\n");
    let arguments =
        ["policy", "replay", "recording.jsonl", "--with", "rate-rules.wasm", "--rules", "open.toml"];
    let ended = run(&home, &arguments);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stdout.starts_with("100 messages, 25 verdicts differ\n"), "{}", ended.stdout);
    assert!(ended.stdout.contains("defer 500ms: noisy  ->  deliver"), "{}", ended.stdout);
    let all: Vec<&str> =
        ["--json"].into_iter().chain(arguments).chain(["--fail-on-difference", "--top", "3"]).collect();
    let ended = run(&home, &all);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    let found = json(&ended);
    assert_eq!((&found["messages"], &found["differing"]), (&100.into(), &25.into()));
    assert_eq!(
        found["pairs"],
        serde_json::json!([
            { "recorded": "deliver", "new": "deliver", "count": 75 },
            { "recorded": "defer", "new": "deliver", "count": 25 },
        ])
    );
    assert_eq!(found["keys"], serde_json::json!([{ "key": "flood", "differing": 25 }]));
    assert_eq!(
        (&found["first"][0]["id"], &found["last"][2]["id"]),
        (&"message-0".into(), &"message-96".into())
    );
    // Two buckets of two tokens: the rest is deferred, and one who floods no more than one who does not.
    home.write("tight.toml", "[[rule]]\nrate = 0.001\nburst = 2\n");
    let ended = run(
        &home,
        &[
            "--json",
            "policy",
            "replay",
            "recording.jsonl",
            "--with",
            "rate-rules.wasm",
            "--rules",
            "tight.toml",
        ],
    );
    let found = json(&ended);
    let count = |was: &str, is: &str| {
        let pairs = found["pairs"].as_array().expect("pairs").iter();
        pairs
            .clone()
            .find(|pair| pair["recorded"] == was && pair["new"] == is)
            .map_or(0, |pair| pair["count"].as_u64().unwrap_or(0))
    };
    assert_eq!((count("deliver", "deliver"), count("defer", "deliver")), (2, 2), "{found}");
    assert_eq!((count("deliver", "defer"), count("defer", "defer")), (73, 23), "{found}");

    let ended = run(&home, &["policy", "replay", "recording.jsonl", "--with", "steady.wasm"]);
    assert_eq!((ended.code, ended.stderr.contains("renewal-policy")), (Some(2), true), "{}", ended.stderr);
}

#[test]
fn a_recording_that_is_none_is_named_by_its_line() {
    let home = home_with(&["rate-rules"]);
    let whole = recording();
    let replay = |text: &str| {
        home.write("r.jsonl", text);
        run(&home, &["policy", "replay", "r.jsonl", "--with", "rate-rules.wasm"])
    };
    // The last line is cut: the host was killed.
    let ended = replay(&whole[..whole.len() - 20]);
    assert!(ended.stdout.starts_with("99 messages"), "{}{}", ended.stdout, ended.stderr);
    let ended = replay(&whole.replacen("\"attempt\":1", "\"attempt\":\"x\"", 1));
    assert_eq!(
        (ended.code, ended.stderr.contains("line 2 is no decision")),
        (Some(2), true),
        "{}",
        ended.stderr
    );
    let ended = replay("hello\n");
    assert_eq!((ended.code, ended.stderr.contains("no recording")), (Some(2), true), "{}", ended.stderr);
}

#[test]
fn a_new_policy_is_written_once() {
    let home = Home::new();
    for (language, file) in [("rust", "Cargo.toml"), ("js", "package.json"), ("python", "requirements.txt")] {
        let name = format!("my-{language}");
        let ended = run(&home, &["policy", "new", &name, "--lang", language]);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        assert!(
            home.file(&name).join(file).is_file() && home.file(&name).join("tests/policy.toml").is_file()
        );
        assert!(home.file(&name).join("wit/policy.wit").is_file());
        let again = run(&home, &["policy", "new", &name, "--lang", language]);
        assert_eq!(again.code, Some(2), "{}", again.stdout);
    }
    for bad in ["../out", "Upper", ""] {
        assert_eq!(run(&home, &["policy", "new", bad]).code, Some(2), "{bad}");
    }
    let ended = run(&home, &["policy", "new", "other", "--world", "throtle-policy"]);
    assert_eq!((ended.code, ended.stderr.contains("there is no world")), (Some(2), true), "{}", ended.stderr);
}

#[test]
fn a_directory_of_rust_is_built_and_its_cases_pass() {
    let home = Home::new();
    assert_eq!(run(&home, &["policy", "new", "mine"]).code, Some(0));
    let built = run(&home, &["policy", "build", "mine"]);
    assert_eq!(built.code, Some(0), "{}{}", built.stdout, built.stderr);
    assert!(built.stdout.starts_with("mine/mine.wasm: "), "{}", built.stdout);
    let tested = run(&home, &["policy", "test", "mine"]);
    assert_eq!(tested.code, Some(0), "{}{}", tested.stdout, tested.stderr);
    let seen = json(&run(&home, &["--json", "policy", "inspect", "mine/mine.wasm"]));
    assert_eq!(
        (&seen["trailer"]["built"]["name"], &seen["description"]["name"]),
        (&"mine".into(), &"mine".into())
    );
    // A mistake in the source is cargo's to tell, and the component stays as it was.
    let source = home.file("mine/src/lib.rs");
    let text = std::fs::read_to_string(&source).expect("source");
    std::fs::write(&source, text.replace("impl Throttle for Policy", "impl Throtle for Policy"))
        .expect("write");
    let broken = run(&home, &["policy", "build", "mine"]);
    assert_eq!(broken.code, Some(1), "{}", broken.stdout);
    assert!(broken.stderr.contains("Throtle"), "{}", broken.stderr);
    assert!(home.file("mine/mine.wasm").is_file());
}

#[test]
fn what_has_no_sources_is_not_built() {
    let home = Home::new();
    let ended = run(&home, &["policy", "build", "."]);
    assert_eq!((ended.code, ended.stderr.contains("policy new")), (Some(2), true), "{}", ended.stderr);
    home.write("core.wasm", "hello");
    let ended = run(&home, &["policy", "build", "core.wasm", "-o", "out.wasm"]);
    assert_eq!((ended.code, ended.stderr.contains("not WebAssembly")), (Some(2), true), "{}", ended.stderr);
    let ended = run(&home, &["policy", "build", "core.wasm"]);
    assert_eq!((ended.code, ended.stderr.contains("--output")), (Some(2), true), "{}", ended.stderr);
    assert!(!home.file("out.wasm").exists());
}
