//! Wrong input of every kind: one sentence that says what, where and what to do, and the right exit code.

use std::io::Read as _;
use std::net::TcpListener;

use tidegate_process_tests::{Ended, Home, run_to_end, start_broker};

fn check(home: &Home, arguments: &[&str]) -> Ended {
    let arguments: Vec<&str> =
        ["check", "--config", "tidegate.toml"].iter().chain(arguments).copied().collect();
    run_to_end(home.path(), &arguments)
}

#[test]
fn configurations() {
    let whole = |flow: &str, source: &str| {
        format!(
            "[sources.s]\nconnector = \"rocketmq-grpc\"\n{source}\n[sinks.o]\nconnector = \"stdout\"\n[flows.f]\n{flow}\n"
        )
    };
    let good_source = "rocketmq.client.endpoints = \"127.0.0.1:1\"\nrocketmq.source.main-topic = \"T\"\n\
                       rocketmq.source.consumer-group = \"G\"";
    let good_flow = "source = \"s\"\nsink = \"o\"";
    let cases = [
        ("not TOML", "[host\n".to_owned()),
        ("empty", String::new()),
        ("unknown key", whole(good_flow, &format!("{good_source}\nrocketmq.source.main-topc = \"T\""))),
        (
            "missing topic",
            whole(good_flow, "rocketmq.client.endpoints = \"h:1\"\nrocketmq.source.consumer-group = \"G\""),
        ),
        ("unknown sink", whole("source = \"s\"\nsink = \"oo\"", good_source)),
        ("unknown section", "[flow.f]\nsource = \"s\"\n".to_owned()),
        (
            "too short a lease",
            whole(good_flow, &format!("{good_source}\nrocketmq.source.invisible-duration = \"9s\"")),
        ),
        ("half a key pair", whole(good_flow, &format!("{good_source}\nrocketmq.client.access-key = \"a\""))),
        (
            "a resolver",
            whole(good_flow, &format!("{good_source}\nrocketmq.client.credentials-resolver = \"r\"")),
        ),
        ("a bad endpoint", whole(good_flow, &good_source.replace("127.0.0.1:1", "127.0.0.1"))),
        ("many at once", whole("source = \"x\"\nsinc = \"o\"", "rocketmq.source.await-duration = 20")),
    ];
    let mut text = String::new();
    for (name, config) in cases {
        let home = Home::new();
        home.write("tidegate.toml", config);
        let ended = check(&home, &[]);
        assert_eq!(ended.code, Some(2), "{name}: {}{}", ended.stdout, ended.stderr);
        text.push_str(&format!("--- {name}\n{}", ended.stderr));
    }
    insta::assert_snapshot!(text);
}

#[test]
fn a_missing_configuration() {
    let home = Home::new();
    let ended = check(&home, &[]);
    assert_eq!(ended.code, Some(2));
    insta::assert_snapshot!(ended.stderr.trim_end(), @"error: cannot read the configuration `tidegate.toml`: No such file or directory (os error 2)");
}

#[test]
fn a_secret_that_is_not_there_is_named_and_not_shown() {
    let home = Home::new();
    home.configure("127.0.0.1:1", "");
    let text = std::fs::read_to_string(home.file("tidegate.toml")).expect("config").replace(
        "[sinks.out]",
        "rocketmq.client.access-key = \"alice\"\nrocketmq.client.secret-key = \"env:TIDEGATE_TEST_NOT_SET\"\n[sinks.out]",
    );
    home.write("tidegate.toml", text);
    let ended = run_to_end(home.path(), &["run"]);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("TIDEGATE_TEST_NOT_SET") && ended.stderr.contains("secret-key"),
        "{}",
        ended.stderr
    );
}

#[test]
fn policies_that_are_none() {
    let home = Home::new();
    home.install("fair-share");
    let component = std::fs::read(home.file("policies/fair-share.wasm")).expect("shipped");
    home.write("half.wasm", &component[..component.len() / 2]);
    home.write("core.wasm", b"\0asm\x01\0\0\0");
    home.write("text.wasm", "hello");
    home.write("empty.wasm", "");
    home.write("bad-rules.toml", "share = 2.0\n");
    home.write("unknown-key.toml", "shares = 0.2\n");
    home.write("not-toml.toml", "share = \n");
    for (component, rules) in [
        ("half.wasm", None),
        ("core.wasm", None),
        ("text.wasm", None),
        ("empty.wasm", None),
        ("absent.wasm", None),
        ("policies/fair-share.wasm", Some("bad-rules.toml")),
        ("policies/fair-share.wasm", Some("unknown-key.toml")),
        ("policies/fair-share.wasm", Some("not-toml.toml")),
    ] {
        let mut arguments = vec!["policy", "check", component];
        arguments.extend(rules.iter().flat_map(|rules| ["--rules", rules]));
        let ended = run_to_end(home.path(), &arguments);
        assert_eq!(ended.code, Some(2), "{arguments:?}: {}{}", ended.stdout, ended.stderr);
        let failed: Vec<&str> = ended.stdout.lines().filter(|line| line.contains("FAIL")).collect();
        assert_eq!(failed.len(), 1, "{arguments:?}: one rung says why: {}", ended.stdout);
        let skipped = ended.stdout.lines().filter(|line| line.contains("skip")).count();
        assert_eq!(skipped, 0, "{arguments:?}: {}", ended.stdout);
        assert!(
            !ended.stdout.contains("appears"),
            "{arguments:?}: a check waits for nothing: {}",
            ended.stdout
        );
        let named = rules.unwrap_or(component);
        assert!(failed[0].contains(named), "{arguments:?}: the sentence names the file: {}", failed[0]);
    }
}

#[test]
fn a_peer_that_is_no_proxy() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("port");
    let address = listener.local_addr().expect("address").to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut stream = stream;
            // A name server reads a length that makes no sense to it, and hangs up.
            let mut head = [0; 4];
            let _ = stream.read(&mut head);
        }
    });
    let home = Home::new();
    home.configure(&address, "");
    let ended = check(&home, &["--connect"]);
    assert_eq!(ended.code, Some(3), "{}{}", ended.stdout, ended.stderr);
    assert!(
        ended.stdout.contains(&address) && ended.stdout.contains("8081"),
        "hints at the proxy: {}",
        ended.stdout
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_broker_does_not_have() {
    let broker = start_broker().await;
    let home = Home::new();
    home.configure(&broker.address().to_string(), "");
    let good = tokio::task::block_in_place(|| check(&home, &["--connect"]));
    assert_eq!(good.code, Some(0), "{}{}", good.stdout, good.stderr);

    let config = std::fs::read_to_string(home.file("tidegate.toml")).expect("config");
    for (from, to, says) in [
        ("\"LiteMainTopic\"", "\"NoSuchTopic\"", "NoSuchTopic"),
        ("\"GID-lite\"", "\"GID-none\"", "GID-none"),
    ] {
        home.write("tidegate.toml", config.replace(from, to));
        let ended = tokio::task::block_in_place(|| check(&home, &["--connect"]));
        assert_eq!(ended.code, Some(3), "{}{}", ended.stdout, ended.stderr);
        assert!(ended.stdout.contains(says), "{}", ended.stdout);
    }
    broker.stop().await;
}

/// A full disk behind standard output. A reader that has gone away, as `head` does, is no failure.
#[test]
fn output_that_cannot_be_written() {
    let home = Home::new();
    home.configure("127.0.0.1:1", "");
    home.install("fair-share");
    let policy = ["policy", "check", "policies/fair-share.wasm"];
    for arguments in
        [&["options"][..], &["options", "stdout"], &["check"], &policy, &["--json", "options"], &["--help"]]
    {
        let run = |stdout: &str| {
            let program = tidegate_process_tests::program_path();
            let command = format!("'{}' {} {stdout}", program.display(), arguments.join(" "));
            let shell = ["-c", &format!("{{ {command}; }} 2>told; echo ${{PIPESTATUS[0]}}")];
            let output = std::process::Command::new("bash").args(shell).current_dir(home.path()).output();
            let code = String::from_utf8(output.expect("bash").stdout).expect("text");
            (code.trim().to_owned(), std::fs::read_to_string(home.file("told")).expect("told"))
        };
        let (code, told) = run(">/dev/full");
        assert_eq!(code, "3", "{arguments:?}: {told}");
        assert!(told.contains("standard output cannot be written: No space left"), "{arguments:?}: {told}");
        let (code, told) = run("| true");
        assert_eq!((&*code, &*told), ("0", ""), "{arguments:?}");
    }
}

#[test]
fn places_where_a_broker_cannot_listen() {
    let home = Home::new();
    let taken = TcpListener::bind("127.0.0.1:0").expect("port");
    let taken = taken.local_addr().expect("address").to_string();
    for (address, code, says) in [
        (&*taken, 3, "another program uses the port"),
        // TEST-NET-1, which no machine has.
        ("192.0.2.1:8081", 3, "this machine does not have that address"),
        ("localhost", 2, "must be an IP address and a port"),
        ("127.0.0.1:99999", 2, "must be an IP address and a port"),
    ] {
        let ended = run_to_end(home.path(), &["broker", "--listen", address]);
        assert_eq!(ended.code, Some(code), "{address}: {}", ended.stderr);
        let told = ended.stderr.contains("--listen") && ended.stderr.contains(address);
        assert!(told && ended.stderr.contains(says), "{address}: {}", ended.stderr);
    }
}

#[test]
fn files_for_tls_that_cannot_be_used() {
    let home = Home::new();
    home.configure("127.0.0.1:1", "");
    let text = std::fs::read_to_string(home.file("tidegate.toml")).expect("config").replace(
        "[sinks.out]",
        "rocketmq.client.tls-enabled = true\nrocketmq.client.tls-ca-file = \"ca.pem\"\n\
         rocketmq.client.tls-cert-file = \"own.pem\"\nrocketmq.client.tls-key-file = \"own.key\"\n[sinks.out]",
    );
    home.write("tidegate.toml", text);
    home.write("own.pem", "hello");
    home.write("own.key", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    let ended = check(&home, &[]);
    assert_eq!(ended.code, Some(2), "{}{}", ended.stdout, ended.stderr);
    let run = run_to_end(home.path(), &["run"]);
    assert_eq!((run.code, &run.stderr), (Some(2), &ended.stderr), "nothing is joined before that");
    insta::assert_snapshot!(ended.stderr.trim_end(), @r"
    error: `tidegate.toml` cannot be used as it is:
    sources.tenants: `rocketmq.client.tls-ca-file` names `ca.pem`, which cannot be read: No such file or directory (os error 2); give a PEM file that is there
    sources.tenants: `rocketmq.client.tls-cert-file` names `own.pem`, which holds nothing in PEM; give a PEM file with certificates (`-----BEGIN CERTIFICATE-----`)
    sources.tenants: `rocketmq.client.tls-key-file` names `own.key`, which holds certificates; give a PEM file with one unencrypted private key (`-----BEGIN PRIVATE KEY-----`)
    ");
}

/// What `run` would find on this machine, `check` finds as well, and all of it together with what is wrong in the text.
#[test]
fn everything_that_a_host_cannot_start_with() {
    let home = Home::new();
    let more = r#"
ack = "on-delivery"

[sinks.file]
connector = "file"
path = "missing/out.jsonl"

[sinks.copy]
connector = "file"
path = "out.jsonl"

[sinks.original]
connector = "file"
path = "./out.jsonl"

[sinks.workers]
connector = "handoff"
listen = "127.0.0.1:19641"
tokens-file = "tokens.toml"

[sinks.others]
connector = "handoff"
listen = "0.0.0.0:19641"
tls-cert-file = "own.pem"
tls-key-file = "own.key"
tokens-file = "none.toml"
"#;
    home.configure("127.0.0.1:1", more);
    home.write("tokens.toml", "[tokens.ops]\ntoken = \"0123456789abcdef\"\nflows = [\"tennants\"]\n");
    home.write("fleet.key", "0123");
    let keyed = |text: String| text.replace("[host]", "[host]\nreceipt-key-file = \"fleet.key\"");
    let config = keyed(std::fs::read_to_string(home.file("tidegate.toml")).expect("config"));
    home.write("tidegate.toml", &config);
    let ended = check(&home, &[]);
    assert_eq!(ended.code, Some(2), "{}{}", ended.stdout, ended.stderr);
    let run = run_to_end(home.path(), &["run"]);
    assert_eq!((run.code, &run.stderr), (Some(2), &ended.stderr));
    insta::assert_snapshot!(ended.stderr.trim_end(), @r#"
    error: `tidegate.toml` cannot be used as it is:
    host: the key file `fleet.key` has 4 hexadecimal digits, and must hold 64; make it once for all hosts of a fleet: `openssl rand -hex 32 > fleet.key`
    sinks.file: the directory `missing` of `missing/out.jsonl` cannot be used: No such file or directory (os error 2); the host does not make it
    sinks.others: `tls-cert-file` names `own.pem`, which cannot be read: No such file or directory (os error 2)
    sinks.others: cannot read the tokens in `none.toml`: No such file or directory (os error 2)
    sinks.original: writes to `./out.jsonl`, as `sinks.copy` does; give each its own file, or name one sink in several flows
    sinks.workers: `listen` is 127.0.0.1:19641, and `sinks.others.listen` is 0.0.0.0:19641: one address cannot be listened on twice; give each a port of its own
    flows.tenants: `ack = "on-delivery"` is for flows with a `handoff` sink, and this one has none: what other sinks take is done when they have it; leave `ack` out
    "#);
    assert!(!home.file("state").exists(), "nothing is made");

    home.write("tidegate.toml", config.replace("ack = ", "akc = "));
    let both = check(&home, &[]);
    assert!(both.stderr.contains("`flows.tenants.akc` is not a known key"), "{}", both.stderr);
    assert!(
        both.stderr.contains("missing") && both.stderr.contains("openssl rand -hex 32"),
        "{}",
        both.stderr
    );
    let json = run_to_end(home.path(), &["--json", "check"]);
    let json: serde_json::Value = serde_json::from_str(&json.stderr).expect("JSON");
    let keys: Vec<_> = json["errors"].as_array().expect("errors").iter().map(|error| &error["key"]).collect();
    assert!(
        keys.iter().any(|key| **key == "sinks.file") && keys.iter().any(|key| **key == "flows.tenants.akc"),
        "{json}"
    );
}

/// A flow that a token is for may be another host's, so that it is odd and not wrong.
#[test]
fn tokens_for_flows_that_are_not_there() {
    let home = Home::new();
    home.configure(
        "127.0.0.1:1",
        "\n[sinks.workers]\nconnector = \"handoff\"\ntokens-file = \"tokens.toml\"\n",
    );
    home.write("tokens.toml", "[tokens.ops]\ntoken = \"0123456789abcdef\"\nflows = [\"tennants\"]\n");
    let ended = check(&home, &[]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    let noted = ended.stdout.lines().find(|line| line.starts_with("note: sinks.workers:")).expect("a note");
    assert!(noted.contains("`ops`") && noted.contains("did you mean `tenants`?"), "{noted}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_only_settles() {
    let broker = start_broker().await;
    let home = Home::new();
    let settler = |endpoint: &str| {
        format!(
            "[host]\nadmin-listen = \"127.0.0.1:0\"\n[settlers.others]\nconnector = \"rocketmq-grpc\"\n\
             rocketmq.client.endpoints = \"{endpoint}\"\n"
        )
    };
    let address = broker.address().to_string();
    home.write("tidegate.toml", settler(&address));
    let ended = check(&home, &[]);
    assert_eq!(ended.code, Some(2), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stderr.contains("connector = \"handoff\""), "{}", ended.stderr);
    let run = run_to_end(home.path(), &["run"]);
    assert_eq!((run.code, &run.stderr), (Some(2), &ended.stderr));

    let service = "[sinks.workers]\nconnector = \"handoff\"\nlisten = \"127.0.0.1:0\"\n";
    home.write("tidegate.toml", settler(&address) + service);
    let ended = tokio::task::block_in_place(|| check(&home, &["--connect"]));
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("settler others\nreach      ok"), "{}", ended.stdout);
    broker.stop().await;

    home.write("tidegate.toml", settler("127.0.0.1:1") + service);
    let ended = tokio::task::block_in_place(|| check(&home, &["--connect"]));
    assert_eq!(ended.code, Some(3), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stderr.contains("settlers that cannot settle as configured: `others`"), "{}", ended.stderr);
}

/// Thousands of policies that no flow uses cost nothing: they are named and not loaded.
#[test]
fn policies_that_no_flow_uses() {
    let home = Home::new();
    home.install("fair-share");
    let unused = "\n[policies.spare]\ncomponent = \"absent.wasm\"\n";
    home.configure(
        "127.0.0.1:1",
        &format!("throttle = \"fair\"\n[policies.fair]\ncomponent = \"fair-share.wasm\"\n{unused}"),
    );
    let ended = check(&home, &[]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert!(
        ended.stdout.contains("policy fair") && !ended.stdout.contains("policy spare"),
        "{}",
        ended.stdout
    );
    assert!(ended.stdout.lines().any(|line| line.starts_with("note:") && line.contains("policies.spare")));
    let listed = run_to_end(home.path(), &["policy", "list"]);
    assert_eq!(listed.code, Some(0), "{}{}", listed.stdout, listed.stderr);
    assert!(listed.stdout.contains("no flow uses it, so it is not loaded"), "{}", listed.stdout);
}

/// All mistakes of a rules file are told together and in its order, the host's and the policy's.
#[test]
fn every_mistake_in_a_rules_file() {
    let home = Home::new();
    home.install("rate-rules");
    let check = |rules: &str| {
        home.write("rules.toml", rules);
        let arguments = ["policy", "check", "policies/rate-rules.wasm", "--rules", "rules.toml"];
        let ended = run_to_end(home.path(), &arguments);
        assert_eq!(ended.code, Some(2), "{}{}", ended.stdout, ended.stderr);
        let failed = ended.stdout.lines().find(|line| line.contains("FAIL")).expect("a failure").to_owned();
        let told = failed.split("rules.toml:").skip(1).map(|part| {
            let (line, rest) = part.split_once(": `").expect("a key");
            format!("{line} {}", rest.split_once('`').expect("a key").0)
        });
        told.collect::<Vec<_>>()
    };
    let rules = "[[rule]]\nzone = 1\nrate = 5\narea = 2\n\n[[rule]]\nrate = \"x\"\n\n[[rule]]\nrate = 5\nper = \"all\"\n";
    assert_eq!(check(rules), ["2 rule[0].zone", "4 rule[0].area", "7 rule[1].rate", "11 rule[2].per"]);
    let rules = format!("ruls = 1\nalso = 2\n{rules}");
    assert_eq!(
        check(&rules),
        ["1 ruls", "2 also", "4 rule[0].zone", "6 rule[0].area", "9 rule[1].rate", "13 rule[2].per"]
    );
}
