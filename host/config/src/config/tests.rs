use std::time::Duration;

use tidegate_connector::options::Kind;

use proptest::prelude::*;

use super::*;
use crate::fixtures::{
    CATALOG, SMALLEST, config, etc, example_lines, example_with_everything, mistakes, smallest_with,
};
use crate::plan;
use crate::sections::{FLOW_TABLE, HOST_TABLE, KeyBy, LogLevel, OnError, PEER_TABLE, POLICY_TABLE, SECTIONS};

#[test]
fn the_smallest_configuration_has_every_default() {
    let config = config(SMALLEST);
    assert_eq!(config.host.policy_dir, etc("policies"));
    assert_eq!(config.host.state_dir, etc("state"));
    assert_eq!(config.host.admin_listen.to_string(), "127.0.0.1:9640");
    assert_eq!(config.host.drain_timeout, Duration::from_secs(30));
    assert_eq!(config.host.log_level, LogLevel::Info);
    assert_eq!(config.host.log_format, None);
    let flow = &config.flows["orders"];
    assert_eq!((&*flow.source, &*flow.sinks, &flow.throttle), ("orders", &["out".into()][..], &None));
    assert_eq!(flow.key, KeyBy::LiteTopic);
    assert_eq!(flow.valves.max_delivery_attempt, 16);
    assert_eq!(flow.valves.max_invisible_duration, Duration::from_secs(30 * 60));
    assert_eq!(flow.valves.max_total_deferral, Duration::from_secs(24 * 3600));
    assert_eq!(flow.valves.exhausted, Exhausted::Accept);
    assert_eq!((flow.queue_messages, flow.queue_bytes), (None, 64 << 20));
    let source = &config.sources["orders"];
    assert_eq!(&*source.connector, "rocketmq-grpc");
    assert_eq!(source.values.integer("rocketmq.source.max-message-num"), Some(32));
    assert_eq!(config.warnings, []);
}

#[test]
fn the_example_is_a_configuration_with_and_without_what_it_leaves_out() {
    for text in [EXAMPLE.to_owned(), example_with_everything()] {
        let config = config(&text);
        assert_eq!(config.warnings, []);
        assert_eq!(config.policies["fair"].component, etc("policies/fair-share.wasm"));
        assert_eq!(config.policies["fair"].on_error, OnError::Deliver);
    }
}

#[test]
fn the_example_has_every_key_and_the_true_defaults() {
    let everything = example_with_everything();
    let full = config(&everything);
    for (path, table) in [
        ("host", &HOST_TABLE),
        ("policies.fair", &POLICY_TABLE),
        ("flows.tenants", &FLOW_TABLE),
        ("peers.second", &PEER_TABLE),
    ] {
        for spec in table.options {
            let last = spec.key.rsplit('.').next().expect("a part");
            assert!(
                example_lines().any(|line| line.starts_with(&format!("{last} = "))),
                "{path}.{} is missing",
                spec.key
            );
        }
        let smallest = config(SMALLEST);
        let named = match path {
            "flows.tenants" => "flows.orders",
            other => other,
        };
        let Some(defaults) = smallest.written.get(named) else { continue };
        for spec in table.options {
            if let Some(default) = defaults.get(spec.key)
                && matches!(spec.default, tidegate_connector::options::Default::Value(_))
            {
                assert_eq!(full.written[path].get(spec.key), Some(default), "{path}.{}", spec.key);
            }
        }
    }
}

/// What `tidegate options` lists is what the parser takes: every key listed is accepted, and changes what comes out of
/// the parser.
#[test]
fn every_key_listed_is_accepted_and_has_an_effect() {
    const BARE: &str = "[policies.p]\ncomponent = \"p.wasm\"\n[policies.q]\ncomponent = \"q.wasm\"\n[sinks.dead]\nconnector = \"stdout\"\n\
                        [sources.other]\nconnector = \"rocketmq-grpc\"\nrocketmq.client.endpoints = \"h:1\"\n\
                        rocketmq.source.main-topic = \"T\"\nrocketmq.source.consumer-group = \"G\"\n\
                        [peers.n]\nendpoint = \"https://n:1\"\ntls-cert-file = \"c\"\ntls-key-file = \"k\"\n[host]\n";
    let before = smallest_with("[sources.orders]", &format!("{BARE}[sources.orders]"));
    let parsed = config(&before);
    for table in SECTIONS.iter().map(|section| section.table) {
        let section = table.connector;
        let header = match section {
            "host" => "[host]",
            "policies" => "[policies.p]",
            "peers" => "[peers.n]",
            _ => "[flows.orders]",
        };
        for spec in table.options {
            // A value that is not the default, nor what the text has already.
            let value = match (section, spec.key, spec.kind) {
                ("flows", "source", _) => "\"other\"".to_owned(),
                ("flows", "throttle" | "shadow", _) => "\"p\"".to_owned(),
                ("flows", "sink" | "dead-letter", _) => "\"dead\"".to_owned(),
                ("flows", "sinks", _) => "[\"dead\", \"out\"]".to_owned(),
                ("flows", "key", _) => "\"record-key\"".to_owned(),
                ("policies", "on-error", _) => "\"stop\"".to_owned(),
                ("policies", "sha256", _) => format!("\"{}\"", "a".repeat(64)),
                ("peers", "endpoint", _) => "\"https://other:1\"".to_owned(),
                ("peers", "token", _) => "\"secret\"".to_owned(),
                ("host", "admin-listen", _) => "\"127.0.0.1:1\"".to_owned(),
                (_, _, Kind::Bool) => {
                    let default = spec.default == tidegate_connector::options::Default::Value("true");
                    (!default).to_string()
                }
                (_, _, Kind::Integer { min, .. }) => (min + 1).to_string(),
                (_, _, Kind::Duration { min_millis, .. }) => format!("\"{}ms\"", min_millis + 1),
                (_, _, Kind::Size { min, .. }) => format!("\"{}B\"", min + 1),
                (_, _, Kind::Choice(words)) => format!("\"{}\"", words.last().expect("a word")),
                ("policies", "grants.http", _) => "[\"https://vault.example\"]".to_owned(),
                (_, _, Kind::List) => "[\"A\"]".to_owned(),
                (_, _, Kind::Pairs) => "{ a = \"elsewhere\" }".to_owned(),
                (_, _, Kind::Path) => "\"elsewhere\"".to_owned(),
                (_, key, Kind::Text | Kind::PolicyName(_)) => panic!("`{section}.{key}` needs a value here"),
            };
            let line = format!("{} = {value}\n", spec.key);
            let mut lines: Vec<&str> = before.lines().collect();
            let at = lines.iter().position(|line| *line == header).expect("the section") + 1;
            lines.retain(|line| !line.starts_with(&format!("{} = ", spec.key)) || spec.key == "component");
            if spec.key == "component" {
                lines.remove(at);
            }
            if spec.key == "sinks" {
                lines.retain(|line| !line.starts_with("sink = "));
            }
            lines.insert(at, &line);
            let text = lines.join("\n");
            let changed = parse("/etc/tidegate/tidegate.toml", &text, &CATALOG).unwrap_or_else(|errors| {
                panic!("`{section}.{}` is listed and not accepted: {errors}", spec.key)
            });
            let same = parsed.host == changed.host
                && parsed.policies == changed.policies
                && parsed.peers == changed.peers
                && parsed.flows == changed.flows;
            assert!(!same, "`{section}.{}` is listed and has no effect", spec.key);
        }
    }
}

#[test]
fn every_key_of_the_hosts_own_has_a_comment_in_the_example() {
    let lines: Vec<_> = EXAMPLE.lines().collect();
    for pair in lines.windows(2) {
        let key = pair[1].strip_prefix('#').unwrap_or(pair[1]);
        let is_key = key.starts_with(|c: char| c.is_ascii_lowercase()) && key.contains(" = ");
        let is_connectors = key.starts_with("connector") || key.starts_with("rocketmq.");
        // Those that explain themselves stand beside the one that explains them.
        let is_plain = key.starts_with("sink = ");
        assert!(!is_key || is_connectors || is_plain || pair[0].starts_with("# "), "{}", pair[1]);
    }
}

#[test]
fn peers_are_checked_all_at_once() {
    let told = mistakes(&format!(
        "{SMALLEST}\n[peers.a]\nendpoint = \"10.0.0.7:9641\"\n[peers.b]\ntokn = \"x\"\n\
         [peers.c]\nendpoint = \"http://c:1\"\ntls-ca-file = \"ca.pem\"\n\
         [peers.d]\nendpoint = \"https://d:1\"\ntls-cert-file = \"d.pem\"\n"
    ));
    for said in [
        "`peers.a.endpoint` begins with `http://` or `https://`",
        "`peers.b.endpoint` is required",
        "`peers.b.tokn` is not a known key; did you mean `token`?",
        "`peers.c.tls-ca-file` has no effect without TLS",
        "`peers.d.tls-key-file` is missing",
    ] {
        assert!(told.contains(said), "{said}: {told}");
    }
    assert_eq!(told.lines().count(), 5, "{told}");
}

#[test]
fn a_host_may_do_nothing_but_pass_on() {
    let config = config("[peers.a]\nendpoint = \"https://a:1\"\ntls-ca-file = \"ca.pem\"\n");
    assert_eq!(config.peers["a"].values.text("tls-ca-file"), Some("/etc/tidegate/ca.pem"));
}

#[test]
fn paths_count_from_the_file() {
    let text = smallest_with(
        "[sinks.out]",
        "rocketmq.client.tls-ca-file = \"ca.pem\"\n[policies.p]\ncomponent = \"/abs/p.wasm\"\nrules = \"p.toml\"\n\
         [host]\npolicy-dir = \"components\"\n[sinks.out]",
    );
    let config = config(&text);
    assert_eq!(config.policies["p"].component, Path::new("/abs/p.wasm"));
    assert_eq!(config.policies["p"].rules, Some(etc("components/p.toml")));
    let ca_file = config.sources["orders"].values.text("rocketmq.client.tls-ca-file");
    assert_eq!(ca_file, Some("/etc/tidegate/ca.pem"));
}

#[test]
fn a_connectors_keys_may_be_dotted_quoted_or_in_tables() {
    let in_tables = r#"
        [sources.orders]
        connector = "rocketmq-grpc"
        "rocketmq.client.endpoints" = "127.0.0.1:8081"
        [sources.orders.rocketmq.source]
        main-topic = "Orders"
        consumer-group = "GID-orders"
        [sinks]
        out = { connector = "stdout" }
        [flows]
        orders = { source = "orders", sink = "out" }
    "#;
    assert!(plan(&config(SMALLEST), &config(in_tables)).is_empty());
}

#[test]
fn a_table_of_commented_keys_is_nothing() {
    let text = "[policies.p]\ncomponent = \"p.wasm\"\n[policies.p.limits]\n# deadline = \"1ms\"\n[sinks.out]";
    let config = config(&smallest_with("[sinks.out]", text));
    assert_eq!(config.policies["p"].limits.deadline, Duration::from_millis(5));
    let unknown = smallest_with("[sinks.out]", "[sources.orders.rocketmq.sauce]\n[sinks.out]");
    assert_eq!(mistakes(&unknown), "tidegate.toml:8:26: `sources.orders.rocketmq.sauce` is not a known key");
}

#[test]
fn what_nothing_uses_is_a_warning() {
    let unused =
        "[policies.idle]\ncomponent = \"idle.wasm\"\n[sinks.spare]\nconnector = \"stdout\"\n[flows.orders]";
    let config = config(&smallest_with("[flows.orders]", unused));
    let warnings: Vec<_> = config.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        [
            "/etc/tidegate/tidegate.toml:11:11: `policies.idle` is not used by any flow and will not be started",
            "/etc/tidegate/tidegate.toml:13:8: `sinks.spare` is not used by any flow and will not be started",
        ]
    );
}

#[test]
fn rejecting_without_dead_letters_is_a_warning() {
    let config = config(&smallest_with("sink = \"out\"", "sink = \"out\"\nexhausted = \"reject\""));
    let warnings: Vec<_> = config.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        [
            "/etc/tidegate/tidegate.toml:14:13: `flows.orders.exhausted` rejects messages after their last attempt, and \
          the flow has no `dead-letter` sink: where the broker keeps no dead letters of its own, as on lite topics, \
          they are dropped"
        ]
    );
}

#[test]
fn every_mistake_at_once() {
    insta::assert_snapshot!(mistakes(include_str!("../../testdata/every-mistake.toml")));
}

#[test]
fn mistakes_as_json() {
    let text = smallest_with("sink = \"out\"", "sink = \"ouut\"");
    let errors = parse("tidegate.toml", &text, &CATALOG).expect_err("no such sink");
    insta::assert_snapshot!(serde_json::to_string_pretty(&errors).expect("JSON"));
}

#[test]
fn names_that_lead_nowhere() {
    let text = smallest_with(
        "source = \"orders\"\nsink = \"out\"",
        "source = \"order\"\nsink = \"kafka\"\nthrottle = \"fair\"",
    );
    insta::assert_snapshot!(mistakes(&text));
}

#[test]
fn one_source_feeds_one_flow() {
    let text = format!("{SMALLEST}[flows.again]\nsource = \"orders\"\nsink = \"out\"\n");
    assert_eq!(
        mistakes(&text),
        "tidegate.toml:15:10: `flows.again.source` names the source `orders`, which already feeds the flow `orders`; \
         give each flow its own source"
    );
}

#[test]
fn connectors_in_the_wrong_place() {
    let text = r#"
        [sources.a]
        connector = "stdout"
        [sources.b]
        connector = "rocketmq-grcp"
        [sources.c]
        [sources.d]
        connector = 4
        [sources.e]
        connector = "rocketmq-grpc"
        rocketmq.client.endpoints = "127.0.0.1:8081"
        rocketmq.source.main-topic = "T"
        rocketmq.source.consumer-group = "G"
        rocketmq.sink.topic = "T"
        [sinks.f]
        connector = "rocketmq-grpc"
    "#;
    insta::assert_snapshot!(mistakes(text));
}

#[test]
fn keys_that_this_version_cannot_follow() {
    let keys = "rocketmq.source.renewal-policy = \"renew\"\nrocketmq.source.renewal-ahead-time = \"20s\"\n[sinks.out]";
    insta::assert_snapshot!(mistakes(&smallest_with("[sinks.out]", keys)));
}

#[test]
fn a_connector_has_the_last_word_on_its_values() {
    let text = smallest_with("[sinks.out]", "rocketmq.client.access-key = \"me\"\n[sinks.out]");
    insta::assert_snapshot!(mistakes(&text));
}

#[test]
fn not_toml() {
    let cases = [
        "flows",
        "[flows.a",
        "a = [[[",
        "[host]\nlog-level = info\n",
        "x = \"\u{0}\"",
        "[host]\n[host]\nlog-levle = \"info\"\n",
    ];
    let told: Vec<_> = cases.iter().map(|text| format!("{text:?}\n{}\n", mistakes(text))).collect();
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn nothing_in_it() {
    let cases = ["", "  \n# only a comment\n", "[host]\n", "[flows]\n"];
    let told: Vec<_> = cases.iter().map(|text| format!("{text:?}\n{}\n", mistakes(text))).collect();
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn the_wrong_shape() {
    let cases = [
        "[[flows]]\nsource = 1\n",
        "host = 3\nsinks = true\n",
        "[sources]\na = \"rocketmq-grpc\"\n",
        "[flows.\"a b\"]\n[flows.\"\"]\n",
        "[flow.a]\n[kafka]\n",
    ];
    let told: Vec<_> = cases.iter().map(|text| format!("{text:?}\n{}\n", mistakes(text))).collect();
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn an_admin_api_for_everyone_has_to_be_wished_for() {
    let open = format!("[host]\nadmin-listen = \"0.0.0.0:9640\"\n{SMALLEST}");
    assert_eq!(
        mistakes(&open),
        "tidegate.toml:2:16: `host.admin-listen` is 0.0.0.0:9640, which other machines can reach, and the admin API \
         has no authentication; use a loopback address such as 127.0.0.1, or allow it with `admin-allow-remote = true`"
    );
    let wished = format!("[host]\nadmin-listen = \"[::]:9640\"\nadmin-allow-remote = true\n{SMALLEST}");
    assert!(config(&wished).host.admin_allow_remote);
}

#[test]
fn secrets_stay_out_of_mistakes_and_debug() {
    let wrong_kind = smallest_with("[sinks.out]", "rocketmq.client.secret-key = 73313\n[sinks.out]");
    let told = mistakes(&wrong_kind);
    assert!(told.contains("`sources.orders.rocketmq.client.secret-key` must be text"), "{told}");
    assert!(!told.contains("73313"), "{told}");
    let given = "rocketmq.client.access-key = \"me\"\nrocketmq.client.secret-key = \"hunter2\"\n[sinks.out]";
    let config = config(&smallest_with("[sinks.out]", given));
    assert!(!format!("{config:?}").contains("hunter2"));
}

#[test]
fn a_file_of_something_else_is_told_briefly() {
    let text = (0..5_000).map(|at| format!("host.k{at} = {at}\n")).collect::<String>();
    let told = mistakes(&text);
    assert_eq!(told.lines().count(), 201);
    assert!(told.ends_with("and 4800 more mistakes"), "{}", told.lines().last().expect("a line"));
}

#[test]
fn files_that_are_no_configuration() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("tidegate.toml");
    let told = |path: &Path| load(path, &CATALOG).expect_err("not valid").to_string();
    assert!(told(&path).starts_with("cannot read the configuration `/"));
    std::fs::write(&path, b"[host]\nlog-level = \"\xff\"\n").expect("written");
    assert!(told(&path).ends_with("is not UTF-8: line 2 has a byte that is no text"), "{}", told(&path));
    std::fs::write(&path, vec![b'#'; 2 << 20]).expect("written");
    assert!(told(&path).ends_with("is larger than 1048576 bytes"), "{}", told(&path));
    std::fs::write(&path, SMALLEST).expect("written");
    let config = load(&path, &CATALOG).expect("valid");
    assert_eq!(config.host.state_dir, dir.path().join("state"));
}

/// What has to hold for every text: no panic, every mistake at a place that exists, a valid text the same twice.
fn check_any(text: &str) {
    match parse("tidegate.toml", text, &CATALOG) {
        Ok(config) => {
            let again = parse("tidegate.toml", text, &CATALOG).expect("valid a moment ago");
            assert!(plan(&config, &again).is_empty());
        }
        Err(errors) => {
            let lines: Vec<_> = text.split('\n').collect();
            assert!(errors.len() > 0);
            for error in errors.iter() {
                let line = lines.get(error.place.line - 1).expect("the line is there");
                assert!(error.place.column <= line.chars().count() + 1, "{error} in {line:?}");
            }
        }
    }
}

proptest! {
    #[test]
    fn no_text_panics(text in any::<String>()) {
        check_any(&text);
    }

    #[test]
    fn no_text_of_the_language_panics(text in "([\\[\\]{}.=,#\"'\\n a-c0-9_-]|flows|sources|connector|host|\u{e9}){0,60}") {
        check_any(&text);
    }

    #[test]
    fn no_alteration_of_a_valid_configuration_panics(
        edits in proptest::collection::vec((any::<proptest::sample::Index>(), 0..24usize, "[\\[\\]{}.=\"'\\n a-z0-9#-]{0,6}"), 1..6),
    ) {
        let mut text = example_with_everything();
        for (at, cut, put) in edits {
            // The example is ASCII, and so is what is put in: every offset is a boundary.
            let at = at.index(text.len());
            let end = (at + cut).min(text.len());
            text.replace_range(at..end, &put);
        }
        check_any(&text);
    }
}
