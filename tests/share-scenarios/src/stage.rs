//! What a scenario needs from a cluster, whichever it is.

mod memory;
mod real;

use async_trait::async_trait;
use tidegate_share_broker::Service;
use tidegate_test_brokers::kafka::{Certificates, Record, Version};

pub(crate) use self::memory::MemoryStage;
pub(crate) use self::real::RealStage;

/// The users of a [`Stand::Guarded`] cluster and their passwords, with PLAIN and with both kinds of SCRAM.
pub(crate) const PLAIN_USER: (&str, &str) = ("alice", "the-secret-of-alice");
pub(crate) const SCRAM_256_USER: (&str, &str) = ("carol", "the-secret-of-carol");
pub(crate) const SCRAM_512_USER: (&str, &str) = ("dave", "the-secret-of-dave");
/// Who a token is about.
pub(crate) const TOKEN_USER: &str = "erin";
/// Who the client certificate of [`Certificates`] is.
pub(crate) const CERTIFICATE_USER: &str = "CN=client";

/// The most members of a group, and the most share sessions, at a [`Stand::Narrow`] cluster.
pub(crate) const NARROW: usize = 3;

/// A Kafka cluster to run scenarios on.
///
/// Its futures stay on the thread of their scenario. Methods panic when the cluster cannot do what was asked: a scenario that cannot go on has failed.
#[async_trait(?Send)]
pub trait Stage: Send + Sync + 'static {
    /// Where clients connect, as a list of bootstrap servers.
    fn bootstrap(&self, door: Door) -> String;

    /// Its nodes.
    fn nodes(&self) -> Vec<i32>;

    /// What clients need for TLS, where there is a door with it.
    fn certificates(&self) -> Option<&Certificates>;

    /// Which release it is, when it is real.
    fn version(&self) -> Option<Version>;

    /// The cluster itself, when it is in memory: for faults and for what was asked.
    fn service(&self) -> Option<&Service>;

    /// Makes a topic whose batches are stored compressed: `none`, `gzip`, `snappy`, `lz4` or `zstd`.
    async fn create_compressed(&self, topic: &str, partitions: i32, compression: &str);

    /// Deletes a topic.
    async fn delete_topic(&self, topic: &str);

    /// Brings a topic to so many partitions.
    async fn add_partitions(&self, topic: &str, total: i32);

    /// Appends one batch.
    async fn append(&self, topic: &str, partition: i32, records: &[Record]);

    /// Appends one batch in a transaction of its own, which is then committed or aborted.
    async fn transact(&self, topic: &str, partition: i32, records: &[Record], commits: bool);

    /// Changes settings of a group by Kafka's names of them.
    async fn configure_group(&self, group: &str, settings: &[(&str, &str)]);

    /// Records of a topic that a group is not done with; `None` where the coordinator does not know.
    async fn lag(&self, group: &str, topic: &str) -> Option<i64>;

    /// Members of a group.
    async fn members(&self, group: &str) -> usize;

    /// Who leads a partition.
    async fn leader(&self, topic: &str, partition: i32) -> i32;

    /// Makes another node lead a partition.
    async fn move_leader(&self, topic: &str, partition: i32, to: i32);

    /// Who coordinates a group.
    async fn coordinator(&self, group: &str) -> i32;

    /// Ends a node at once, as a crash would. The others take over within seconds.
    async fn kill(&self, node: i32);

    /// Ends a node in order.
    async fn terminate(&self, node: i32);

    /// Starts a node again at its old address with what it had stored.
    async fn revive(&self, node: i32);

    /// Freezes a node: its connections stay open, and nothing is answered.
    async fn freeze(&self, node: i32);

    /// Lets a frozen node go on.
    async fn thaw(&self, node: i32);

    /// Brings back every node that is ended or frozen.
    async fn heal(&self);

    /// Lets a user read a topic, or not any more.
    async fn let_read(&self, user: &str, topic: &str, allowed: bool);

    /// Lets a user take part in a group.
    async fn let_join(&self, user: &str, group: &str);
}

/// How a client comes in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Door {
    /// Neither encrypted nor authenticated.
    Plain,
    /// Authenticated by SASL.
    Sasl,
    /// Authenticated by SASL, encrypted.
    SaslTls,
    /// Encrypted, with a client certificate demanded.
    Tls,
}

/// Which kind of cluster a scenario needs.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Stand {
    /// One node, shared with other scenarios at the same time: each has its own topics and groups.
    One,
    /// One node, ours alone while the scenario runs, so that it can be killed.
    Crash,
    /// Three nodes, ours alone while the scenario runs.
    Three,
    /// One node, shared, with users, rights and certificates.
    Guarded,
    /// One node, ours alone, with room for `NARROW` members and sessions.
    Narrow,
    /// One node that has share groups switched off.
    Without,
}
