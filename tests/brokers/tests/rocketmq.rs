//! The launcher itself, on the largest cluster it can start.
#![allow(clippy::unwrap_used, reason = "in the helpers of a test, a failure is the test's failure")]

use std::net::TcpStream;
use std::time::Duration;

use tidegate_test_brokers::{Cluster, ClusterOptions, Credentials, GroupKind, Node, Tls, TopicType};

const RETRY_MAX: u32 = 16;

fn options() -> ClusterOptions {
    let certificate = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    ClusterOptions {
        brokers: 2,
        proxies: 2,
        credentials: Some(Credentials { access_key: "admin".into(), secret_key: "admin-secret".into() }),
        tls: Some(Tls { certificate: certificate.cert.pem(), key: certificate.signing_key.serialize_pem() }),
        ..ClusterOptions::default()
    }
}

#[tokio::test]
async fn a_cluster_lives_and_leaves_nothing_behind() {
    let cluster = Cluster::start(options()).await.unwrap();

    for kind in [TopicType::Lite, TopicType::Normal, TopicType::Fifo, TopicType::Delay] {
        cluster.create_topic(&format!("topic-{kind:?}"), kind).await.unwrap();
    }
    cluster.create_group("lite", GroupKind::wildcard("topic-Lite"), RETRY_MAX).await.unwrap();
    cluster.create_group("orderly", GroupKind::Orderly, RETRY_MAX).await.unwrap();
    assert_eq!(cluster.lite_lag("lite", "topic-Lite").await.unwrap(), 0);
    assert_eq!(cluster.lag("orderly", "topic-Fifo").await.unwrap(), 0);
    assert_eq!(cluster.stored("topic-Normal").await.unwrap(), 0);
    assert_eq!(cluster.stored("tidegate-ready").await.unwrap(), 2, "each proxy was tried with one message");

    cluster.create_user("alice", "alice-secret").await.unwrap();
    cluster.create_acl("alice", &["Topic:topic-Lite", "Group:lite"], &["Pub", "Sub"]).await.unwrap();
    let refusal = cluster.create_group("bad/name", GroupKind::Normal, RETRY_MAX).await.unwrap_err();
    assert!(refusal.to_string().contains("bad/name"), "{refusal}");

    let proxy = cluster.address(Node::Proxy(1));
    cluster.kill(Node::Proxy(1));
    TcpStream::connect(&proxy).expect_err("a killed proxy listens no more");
    cluster.usage(Node::Proxy(1)).expect_err("and has no memory");
    cluster.revive(Node::Proxy(1)).await.unwrap();
    TcpStream::connect(&proxy).expect("and listens on the same port again");

    cluster.pause(Node::Broker(1)).unwrap();
    // A thread that computes at this moment stops at its next tick.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let before = cluster.usage(Node::Broker(1)).unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let after = cluster.usage(Node::Broker(1)).unwrap();
    assert_eq!(before.cpu, after.cpu, "a frozen process computes nothing");
    cluster.resume(Node::Broker(1)).unwrap();
    cluster.create_topic("after-freeze", TopicType::Normal).await.unwrap();

    let directory = cluster.directory().to_owned();
    let addresses = [Node::NameServer, Node::Broker(0), Node::Broker(1), Node::Proxy(0), Node::Proxy(1)]
        .map(|node| cluster.address(node));
    cluster.stop().await;
    for address in addresses {
        TcpStream::connect(&address).expect_err("a stopped cluster listens nowhere");
    }
    assert!(!directory.exists(), "{} is still there", directory.display());
}
