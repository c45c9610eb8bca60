//! `tidegate run` on a share group of a real Kafka: log in over TLS, a throttle policy by a header, several members.

use std::collections::BTreeSet;

use serde_json::Value;
use tidegate_process_tests::{Home, Program, eventually};
use tidegate_test_brokers::kafka::{
    Certificates, Cluster, ClusterOptions, Listener, Mechanism, Record, Sasl,
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
    home.write(
        "tidegate.toml",
        format!(
            r#"
[host]
admin-listen = "127.0.0.1:0"
drain-timeout = "10s"

[policies.fair]
component = "fair-share.wasm"
rules = "fair-share.toml"

[sources.orders]
connector = "kafka-sharegroup"
properties.bootstrap.servers = "{servers}"
properties.security.protocol = "SASL_SSL"
properties.sasl.mechanism = "SCRAM-SHA-512"
properties.sasl.jaas.config = "file:login"
properties.ssl.truststore.location = "ca.pem"
share-group-id = "fulfilment"
topic-pattern = "ord.*"
source.parallelism = 2

[sinks.out]
connector = "stdout"

[flows.orders]
source = "orders"
throttle = "fair"
key = "property:tenant"
sink = "out"
"#
        ),
    );
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
