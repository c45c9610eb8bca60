use std::collections::BTreeMap;

use super::*;
use crate::fixtures::{config, smallest_with};

/// An environment of a few variables; files are the real ones.
#[derive(Default)]
struct Variables(BTreeMap<&'static str, OsString>);

impl Environment for Variables {
    fn variable(&self, name: &str) -> Option<OsString> {
        self.0.get(name).cloned()
    }

    fn file(&self, path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
        ProcessEnvironment.file(path, bytes_max)
    }
}

/// The secret that `reference` leads to, or why it does not.
fn resolved(reference: &str, variables: &Variables) -> Result<String, String> {
    let keys = format!(
        "rocketmq.client.access-key = \"me\"\nrocketmq.client.secret-key = \"{reference}\"\n[sinks.out]"
    );
    let mut config = config(&smallest_with("[sinks.out]", &keys));
    config.resolve_secrets(variables).map_err(|errors| errors.to_string())?;
    let secret = config.sources["orders"].values.text("rocketmq.client.secret-key");
    assert!(!format!("{config:?}").contains(secret.expect("given")), "a secret in Debug");
    Ok(secret.expect("given").to_owned())
}

fn variables(name: &'static str, value: &str) -> Variables {
    Variables(BTreeMap::from([(name, value.into())]))
}

#[test]
fn from_a_variable_a_file_or_written_out() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("secret");
    std::fs::write(&file, "hunter2\r\n").expect("written");
    assert_eq!(resolved("env:MQ", &variables("MQ", "hunter2")), Ok("hunter2".into()));
    assert_eq!(resolved(&format!("file:{}", file.display()), &Variables::default()), Ok("hunter2".into()));
    assert_eq!(resolved("hunter2", &Variables::default()), Ok("hunter2".into()));
    assert_eq!(resolved("env:MQ", &variables("MQ", " two words \n\n")), Ok(" two words \n".into()));
}

#[test]
fn a_peers_token() {
    let mut config = config("[peers.a]\nendpoint = \"http://a:1\"\ntoken = \"env:PEER\"\n");
    let told = config.resolve_secrets(&Variables::default()).expect_err("it is not set").to_string();
    assert!(told.contains("`peers.a.token`"), "{told}");
    config.resolve_secrets(&variables("PEER", "hunter2")).expect("set");
    assert_eq!(config.peers["a"].values.text("token"), Some("hunter2"));
    assert!(!format!("{config:?}").contains("hunter2"), "a secret in Debug");
}

#[test]
fn each_of_several_under_names() {
    let keys = "rocketmq.client.extra = { a = \"env:MQ\", b = \"plain\" }\n[sinks.out]";
    let mut config = config(&smallest_with("[sinks.out]", keys));
    let told =
        config.resolve_secrets(&Variables::default()).expect_err("there is no such variable").to_string();
    assert!(told.contains("`sources.orders.rocketmq.client.extra.a`"), "{told}");
    config.resolve_secrets(&variables("MQ", "hunter2")).expect("it is there");
    let extra = config.sources["orders"].values.pairs("rocketmq.client.extra").expect("given");
    assert_eq!((extra["a"].as_str(), extra["b"].as_str()), ("hunter2", "plain"));
    let looked_up = |part| config.sources["orders"].values.is_looked_up("rocketmq.client.extra", part);
    assert!(looked_up("a") && !looked_up("b"));
    assert!(!format!("{config:?}").contains("hunter2"), "a secret in Debug");
}

#[test]
fn what_is_not_there_is_named() {
    const KEY: &str = "`sources.orders.rocketmq.client.secret-key`";
    let none = Variables::default();
    let told =
        |reference: &str, variables: &Variables| resolved(reference, variables).expect_err("nothing there");
    assert_eq!(told("env:MQ", &none), format!("{KEY} names the environment variable `MQ`, which is not set"));
    assert_eq!(
        told("env:A=B", &none),
        format!("{KEY} names the environment variable `A=B`, which is not set")
    );
    assert_eq!(
        told("env:", &none),
        format!("{KEY} begins with `env:` and goes no further; write `env:NAME` or `file:PATH`")
    );
    assert_eq!(
        told("env:MQ", &variables("MQ", "\n")),
        format!("{KEY} comes from the environment variable `MQ`, which is empty")
    );
    let missing = told("file:secrets/mq", &none);
    let named = format!("{KEY} names the file `/etc/tidegate/secrets/mq`, which cannot be read: ");
    assert!(missing.starts_with(&named), "{missing}");
}

#[test]
fn what_is_no_secret_is_not_told() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("secret");
    let reference = format!("file:{}", file.display());
    std::fs::write(&file, vec![b'x'; 70_000]).expect("written");
    let told = resolved(&reference, &Variables::default()).expect_err("too large");
    assert!(told.ends_with("which is larger than 65536 bytes"), "{told}");
    std::fs::write(&file, b"hunter2\xff").expect("written");
    let told = resolved(&reference, &Variables::default()).expect_err("not text");
    assert!(told.ends_with("which is not UTF-8 text") && !told.contains("hunter2"), "{told}");
}

#[test]
fn every_missing_secret_at_once_and_as_json() {
    let second = "[sources.more]\nconnector = \"rocketmq-grpc\"\nrocketmq.client.endpoints = \"a:1\"\n\
        rocketmq.source.main-topic = \"T\"\nrocketmq.source.consumer-group = \"G\"\n\
        rocketmq.client.access-key = \"me\"\nrocketmq.client.secret-key = \"env:B\"\n[sinks.out]";
    let first = "rocketmq.client.access-key = \"me\"\nrocketmq.client.secret-key = \"env:A\"\n";
    let mut config = config(&smallest_with("[sinks.out]", &format!("{first}{second}")));
    let errors = config.resolve_secrets(&Variables::default()).expect_err("none is set");
    let json = serde_json::to_value(&errors).expect("JSON");
    assert_eq!(
        json,
        serde_json::json!([
            {
                "key": "sources.more.rocketmq.client.secret-key",
                "message": "`sources.more.rocketmq.client.secret-key` names the environment variable `B`, which is not set",
            },
            {
                "key": "sources.orders.rocketmq.client.secret-key",
                "message": "`sources.orders.rocketmq.client.secret-key` names the environment variable `A`, which is not set",
            },
        ])
    );
}
