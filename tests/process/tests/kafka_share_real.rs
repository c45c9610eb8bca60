//! `tidegate run` on a share group of a real Kafka: log in over TLS, a throttle policy by a header, several members. And
//! `tidegate check --connect`, which says why nothing would arrive.

use std::collections::BTreeSet;

use serde_json::Value;
use tidegate_process_tests::{Configuration, Ended, Home, Program, eventually, run_to_end};
use tidegate_test_brokers::kafka::{
    Acl, Certificates, Cluster, ClusterOptions, Listener, Mechanism, Operation, Record, Resource, Sasl,
};

const RUN: [&str; 3] = ["run", "--config", "tidegate.toml"];

#[tokio::test(flavor = "multi_thread")]
async fn a_flow_on_a_real_share_group() {
    let certificates = Certificates::generate().unwrap();
    let cluster = Cluster::start(ClusterOptions {
        sasl: Some(Sasl::default().user(Mechanism::ScramSha512, "alice", "wonderland")),
        tls: Some(certificates.clone()),
        ..ClusterOptions::default()
    })
    .await
    .unwrap();
    let driver = cluster.driver();
    driver.create_topic("orders", 3).await.unwrap();
    driver.configure_group("fulfilment", &[("share.auto.offset.reset", "earliest")]).await.unwrap();
    for partition in 0..3 {
        let tenant = format!("tenant-{partition}");
        let record = |number| Record::new(format!("{tenant} {number}")).header("tenant", tenant.clone());
        let records: Vec<Record> = (0..100).map(record).collect();
        driver.produce("orders", partition, &records).await.unwrap();
    }
    let home = Home::new();
    home.install("fair-share");
    home.write("ca.pem", &certificates.authority);
    let login = "org.apache.kafka.common.security.scram.ScramLoginModule required username=\"alice\" \
                 password=\"wonderland\";";
    home.write("login", login);
    let servers = cluster.bootstrap(Listener::SaslSsl);
    let source = "properties.security.protocol = \"SASL_SSL\"\n\
                  properties.sasl.mechanism = \"SCRAM-SHA-512\"\n\
                  properties.sasl.jaas.config = \"file:login\"\n\
                  properties.ssl.truststore.location = \"ca.pem\"\n\
                  topic-pattern = \"ord.*\"\n\
                  source.parallelism = 2";
    let configuration = Configuration::new("drain-timeout = \"10s\"")
        .policy("fair", "fair-share")
        .share_source("orders", &servers, "fulfilment", source)
        .sink("out", "stdout", "")
        .flow("orders", "orders", "out", "throttle = \"fair\"\nkey = \"property:tenant\"");
    home.put(&configuration);
    let program = Program::start(home.path(), &RUN);
    eventually("300 lines", || (program.lines().len() >= 300).then_some(())).await;
    let line: Value = serde_json::from_str(&program.lines()[0]).unwrap();
    assert_eq!(line["metadata"]["key"], line["metadata"]["properties"]["tenant"], "{line}");
    let group = driver.describe_group("fulfilment").await.unwrap();
    assert_eq!(group.members.len(), 2, "{group:?}");
    let ended = program.terminate().await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let values = ended.values();
    assert_eq!((values.len(), values.iter().collect::<BTreeSet<_>>().len()), (300, 300), "{}", ended.stderr);
    // All accepted: nothing is left for whoever comes next.
    let offsets = driver.share_offsets("fulfilment", "orders").await.unwrap();
    assert_eq!(offsets.iter().filter_map(|offset| offset.lag).sum::<i64>(), 0, "{offsets:?}");
    assert!(!ended.stderr.contains("wonder"), "{}", ended.stderr);
    cluster.stop().await;
}

/// Checks a source of the group `fulfilment` on the topic `orders`, with a flow whose policy may defer.
fn check(servers: &str, login: &str) -> Ended {
    let home = Home::new();
    home.install("fair-share");
    let configuration = Configuration::new("")
        .policy("fair", "fair-share")
        .share_source("orders", servers, "fulfilment", &format!("topic = \"orders\"\n{login}"))
        .sink("out", "stdout", "")
        .flow("orders", "orders", "out", "throttle = \"fair\"");
    home.put(&configuration);
    run_to_end(home.path(), &["check", "--config", "tidegate.toml", "--connect"])
}

/// Each thing in the way is told with what to do, and none of it any more once that is done.
#[tokio::test(flavor = "multi_thread")]
async fn check_explains_what_a_group_and_its_rights_keep_away() {
    const LOGIN: &str = r#"
properties.security.protocol = "SASL_PLAINTEXT"
properties.sasl.mechanism = "PLAIN"
properties.sasl.jaas.config = "org.apache.kafka.common.security.plain.PlainLoginModule required username=ann password='s3cret';"
"#;
    let sasl = Sasl::default().user(Mechanism::Plain, "ann", "s3cret");
    let options = ClusterOptions { sasl: Some(sasl), authorizer: true, ..ClusterOptions::default() };
    let cluster = Cluster::start(options).await.unwrap();
    let driver = cluster.driver();
    driver.create_topic("orders", 1).await.unwrap();
    driver.produce("orders", 0, &[Record::new("1"), Record::new("2")]).await.unwrap();
    driver.configure_group("fulfilment", &[("share.renew.acknowledge.enable", "false")]).await.unwrap();
    let servers = cluster.bootstrap(Listener::SaslPlaintext);
    let look = || check(&servers, LOGIN);
    let allow = async |operation, resource, name| {
        driver.allow(&[Acl { user: "ann", operation, resource, name }]).await.unwrap();
    };

    let ended = look();
    assert_eq!(ended.code, Some(3), "{ended:?}");
    let denied = |ended: &Ended, what: &str| {
        ended.stdout.lines().any(|line| line.starts_with("denied") && line.contains(what))
    };
    assert!(denied(&ended, "to group `fulfilment`"), "{}", ended.stdout);
    assert!(!format!("{ended:?}").contains("s3cret"), "{ended:?}");

    allow(Operation::Read, Resource::Group, "fulfilment").await;
    allow(Operation::Describe, Resource::Topic, "orders").await;
    allow(Operation::DescribeConfigs, Resource::Group, "fulfilment").await;
    // Rights are in force within moments.
    let ended = eventually("only the right to the topic is missing", || {
        let ended = look();
        (!denied(&ended, "to group `fulfilment`") && denied(&ended, "to topic `orders`")).then_some(ended)
    })
    .await;
    assert_eq!(ended.code, Some(3), "{ended:?}");

    allow(Operation::Read, Resource::Topic, "orders").await;
    let ended = eventually("every right", || {
        let ended = look();
        (ended.code == Some(0)).then_some(ended)
    })
    .await;
    for line in [
        "warning  the group begins in topic `orders` with what is written after its first fetch \
         (`share.auto.offset.reset` is latest): 2 records",
        "warning  locks cannot be renewed: the group has `share.renew.acknowledge.enable` off",
    ] {
        assert!(ended.stdout.contains(line), "{line}: {}", ended.stdout);
    }
    let settings = [("share.renew.acknowledge.enable", "true"), ("share.auto.offset.reset", "earliest")];
    driver.configure_group("fulfilment", &settings).await.unwrap();
    let said = "nothing keeps records away from `fulfilment`";
    eventually("nothing in the way", || look().stdout.contains(said).then_some(())).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn check_explains_what_a_cluster_keeps_away() {
    let off = ClusterOptions { features: vec![("share.version", 0)], ..ClusterOptions::default() };
    let lonely = ClusterOptions::default().property("share.coordinator.state.topic.replication.factor", "3");
    for (options, said) in [
        (off, "failed   the cluster has share groups switched off; `kafka-features.sh upgrade"),
        (lonely, "failed   the state of share groups cannot be stored: `share.coordinator.state.topic.repl"),
    ] {
        let cluster = Cluster::start(options).await.unwrap();
        cluster.driver().create_topic("orders", 1).await.unwrap();
        let ended = check(&cluster.bootstrap(Listener::Plaintext), "");
        assert_eq!(ended.code, Some(3), "{ended:?}");
        assert!(ended.stdout.contains(said), "{said}: {}", ended.stdout);
        cluster.stop().await;
    }
}
