//! Real clusters.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tidegate_share_broker::Service;
use tidegate_test_brokers::kafka::{
    Acl, CallError, Certificates, Cluster, ClusterOptions, Driver, Listener, Mechanism, NewTopic, NodeId,
    Operation, Record, Resource, Sasl, Version,
};

use super::{Door, NARROW, PLAIN_USER, SCRAM_256_USER, SCRAM_512_USER, Stage, Stand};

/// A real cluster.
pub(crate) struct RealStage {
    cluster: Cluster,
    driver: Driver,
    certificates: Option<Certificates>,
    version: Version,
    away: Mutex<BTreeMap<i32, Away>>,
}

#[derive(Clone, Copy)]
enum Away {
    Ended,
    Frozen,
}

/// How often a write is tried whose connection broke, as those to a node that was killed do.
const APPENDS_MAX: u32 = 3;

impl RealStage {
    pub(crate) async fn start(version: Version, stand: Stand) -> Self {
        let mut options = ClusterOptions { version, ..ClusterOptions::default() };
        let narrow = NARROW.to_string();
        match stand {
            Stand::One | Stand::Crash => {}
            Stand::Three => options.nodes = 3,
            Stand::Guarded => {
                options.sasl = Some(
                    Sasl::default()
                        .user(Mechanism::Plain, PLAIN_USER.0, PLAIN_USER.1)
                        .user(Mechanism::ScramSha256, SCRAM_256_USER.0, SCRAM_256_USER.1)
                        .user(Mechanism::ScramSha512, SCRAM_512_USER.0, SCRAM_512_USER.1),
                );
                options.tls = Some(Certificates::generate().expect("random numbers"));
                options.authorizer = true;
            }
            Stand::Narrow => {
                options = options
                    .property("group.share.max.size", &narrow)
                    .property("group.share.max.share.sessions", &narrow);
            }
            Stand::Without => options.features = vec![("share.version", 0)],
        }
        let certificates = options.tls.clone();
        let cluster = Cluster::start(options).await.expect("a real cluster");
        let driver = cluster.driver();
        Self { cluster, driver, certificates, version, away: Mutex::default() }
    }
}

fn right<'a>(user: &'a str, resource: Resource, name: &'a str) -> Acl<'a> {
    Acl { user, operation: Operation::Read, resource, name }
}

impl RealStage {
    /// Where a partition ends. A leader that is new does not know it at once, and one that is gone is replaced within seconds.
    async fn end(&self, topic: &str, partition: i32) -> i64 {
        const OFFSET_NOT_AVAILABLE: i16 = 78;
        for _ in 0..100 {
            match self.driver.offsets(topic, partition).await {
                Ok(offsets) => return offsets.end,
                Err(CallError::Lost { .. } | CallError::Connect { .. }) => {}
                Err(error) if error.code() == Some(OFFSET_NOT_AVAILABLE) => {}
                Err(error) => panic!("asking for the end of {topic}-{partition}: {error}"),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("{topic}-{partition} has no end");
    }
}

#[async_trait(?Send)]
impl Stage for RealStage {
    fn bootstrap(&self, door: Door) -> String {
        self.cluster.bootstrap(match door {
            Door::Plain => Listener::Plaintext,
            Door::Sasl => Listener::SaslPlaintext,
            Door::SaslTls => Listener::SaslSsl,
            Door::Tls => Listener::Ssl,
        })
    }

    fn nodes(&self) -> Vec<i32> {
        self.cluster.nodes().map(|node| node.0).collect()
    }

    fn certificates(&self) -> Option<&Certificates> {
        self.certificates.as_ref()
    }

    fn version(&self) -> Option<Version> {
        Some(self.version)
    }

    fn service(&self) -> Option<&Service> {
        None
    }

    async fn create_compressed(&self, topic: &str, partitions: i32, compression: &str) {
        let mut new = NewTopic::new(topic, partitions);
        if compression != "none" {
            new = new.setting("compression.type", compression);
        }
        self.driver.create(&new).await.unwrap();
    }

    async fn delete_topic(&self, topic: &str) {
        self.driver.delete_topic(topic).await.unwrap();
    }

    async fn add_partitions(&self, topic: &str, total: i32) {
        self.driver.add_partitions(topic, total).await.unwrap();
    }

    async fn append(&self, topic: &str, partition: i32, records: &[Record]) {
        // A connection that breaks leaves open whether the records were written: the partition's end says it.
        let before = self.end(topic, partition).await;
        for _ in 0..APPENDS_MAX {
            match self.driver.produce(topic, partition, records).await {
                Ok(_) => return,
                Err(CallError::Lost { .. }) => {}
                Err(error) => panic!("writing to {topic}-{partition}: {error}"),
            }
            if self.end(topic, partition).await > before {
                return;
            }
        }
        panic!("the connection was lost {APPENDS_MAX} times while writing to {topic}-{partition}");
    }

    async fn transact(&self, topic: &str, partition: i32, records: &[Record], commits: bool) {
        let mut transaction = self.driver.transaction(topic).await.unwrap();
        transaction.produce(topic, partition, records).await.unwrap();
        if commits { transaction.commit().await } else { transaction.abort().await }.unwrap();
    }

    async fn configure_group(&self, group: &str, settings: &[(&str, &str)]) {
        self.driver.configure_group(group, settings).await.unwrap();
    }

    async fn lag(&self, group: &str, topic: &str) -> Option<i64> {
        let offsets = self.driver.share_offsets(group, topic).await.unwrap();
        offsets.iter().map(|offset| offset.lag).sum()
    }

    async fn members(&self, group: &str) -> usize {
        const GROUP_ID_NOT_FOUND: i16 = 69;
        match self.driver.describe_group(group).await {
            Ok(described) => described.members.len(),
            // Nobody was ever in it.
            Err(error) if error.code() == Some(GROUP_ID_NOT_FOUND) => 0,
            Err(error) => panic!("describing {group}: {error}"),
        }
    }

    async fn leader(&self, topic: &str, partition: i32) -> i32 {
        self.driver.leader(topic, partition).await.unwrap().0
    }

    async fn move_leader(&self, topic: &str, partition: i32, to: i32) {
        self.driver.move_leader(topic, partition, NodeId(to)).await.unwrap();
    }

    async fn coordinator(&self, group: &str) -> i32 {
        self.driver.coordinator(group).await.unwrap().0
    }

    async fn kill(&self, node: i32) {
        self.away.lock().insert(node, Away::Ended);
        self.cluster.kill(NodeId(node));
    }

    async fn terminate(&self, node: i32) {
        self.away.lock().insert(node, Away::Ended);
        self.cluster.terminate(NodeId(node)).await.unwrap();
    }

    async fn revive(&self, node: i32) {
        self.cluster.revive(NodeId(node)).await.unwrap();
        self.away.lock().remove(&node);
    }

    async fn freeze(&self, node: i32) {
        self.away.lock().insert(node, Away::Frozen);
        self.cluster.pause(NodeId(node)).unwrap();
    }

    async fn thaw(&self, node: i32) {
        self.cluster.resume(NodeId(node)).unwrap();
        self.away.lock().remove(&node);
    }

    async fn heal(&self) {
        let away = self.away.lock().clone();
        for (node, how) in away {
            match how {
                Away::Ended => self.revive(node).await,
                Away::Frozen => self.thaw(node).await,
            }
        }
    }

    async fn let_read(&self, user: &str, topic: &str, allowed: bool) {
        let acl = right(user, Resource::Topic, topic);
        if allowed {
            self.driver.allow(&[acl]).await.unwrap();
        } else {
            assert!(self.driver.withdraw(&acl).await.unwrap(), "{user} had no right to {topic}");
        }
    }

    async fn let_join(&self, user: &str, group: &str) {
        self.driver.allow(&[right(user, Resource::Group, group)]).await.unwrap();
    }
}
