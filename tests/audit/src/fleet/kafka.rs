//! Kafka share groups: two topics with several partitions on three nodes that replicate to each other, logins, rights, and
//! nodes that are killed. One flow has `fair-share` by a header, the other `rate-rules`; locks are renewed.
//!
//! A lock is the acquiring member's alone: the other host has no login, and forwards what it is asked to settle to the
//! host that gave it out.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use tidegate_process_tests::Configuration;
use tidegate_test_brokers::kafka::{
    Acl, CallError, Cluster, ClusterOptions, Driver, Listener, Mechanism, NodeId, Operation, Record,
    Resource, Sasl,
};
use tokio::time::{Instant, sleep};

use super::brokers::{Brokers, LOGIN, Outfit, Victim};
use super::duplicates::Rules;
use super::secrets::{Secrets, control};
use super::witness::{Joined, Witness, metric};
use crate::ledger::Place;
use crate::load::{Load, Sender, Shape, Unsent};
use crate::progress;
use tidegate_process_tests::Random;

/// The brokers' user of the host that takes messages, and the name of its client.
const USER: &str = "host-a";
/// The name of the other host's token.
const PEER: &str = "host-b";
/// Of each topic: more than there are members, so that each has some, and dead ones take some with them.
const PARTITIONS: i32 = 6;
/// How long a record is locked.
const LOCK: Duration = Duration::from_secs(10);
/// Deliveries after which the broker archives a record, the most that it can be told: none may get there.
const DELIVERIES_MAX: u64 = 25;
/// How long a member may be silent: less, and a busy machine would put one out; more, and the partitions of a killed one
/// lie idle for longer.
const SESSION: Duration = Duration::from_secs(10);
/// Records of each column that are sent together.
const AT_ONCE: u32 = 10;
/// How long a killed node stays away at most, in milliseconds: on both sides of how long it takes until it is missed.
const NODE_AWAY_MAX: u64 = 5_000;
/// How long the copies of a partition may take to be complete again.
const COPY_PATIENCE: Duration = Duration::from_secs(90);
/// Where the brokers keep what groups have acknowledged.
const STATE_TOPIC: &str = "__share_group_state";
/// The variable with the login of the host that takes messages.
const LOGIN_VARIABLE: &str = "TIDEGATE_AUDIT_LOGIN";

/// What the run is like.
#[derive(Args, Debug)]
#[group(skip)]
pub(crate) struct Options {
    /// Tenants of each flow, over which the messages are spread; half of the first flow's are one
    #[arg(long, default_value_t = 20)]
    tenants: u32,
    /// Times that a node of the brokers is killed and started again
    #[arg(long, default_value_t = 2)]
    node_kills: u32,
    #[command(flatten)]
    common: super::Options,
}

/// Runs it.
pub(crate) async fn audit(options: &Options) -> anyhow::Result<super::Verdict> {
    let kills = options.node_kills;
    super::audit(&options.common, kills, async |secrets| Kafka::start(options, secrets).await).await
}

/// A cluster, and what is on it.
struct Kafka {
    cluster: Cluster,
    driver: Driver,
    layout: Layout,
    groups: [String; 2],
    /// Of the policies of the flows, and of that which renews.
    policies: [String; 3],
    /// Of the owner, at the host that settles.
    peer: String,
    shape: Shape,
    joined: Joined,
}

/// Where which records go.
#[derive(Clone, Debug)]
struct Layout {
    topics: [String; 2],
    /// Columns of each topic.
    tenants: u32,
}

impl Layout {
    /// The topic, by its number, and the partition that a column is in.
    fn home(&self, column: u32) -> (usize, i32) {
        let partition = column % PARTITIONS.unsigned_abs();
        (usize::from(column >= self.tenants), partition.cast_signed())
    }

    fn record(&self, place: Place) -> Record {
        let Place { lite_topic: column, number } = place;
        let record = Record::new(format!("{column}/{number}"));
        if column >= self.tenants {
            let tier = match column - self.tenants {
                0 | 1 => "gold",
                2 => "slow",
                _ => "silver",
            };
            record.header("tenant", format!("tenant-{column}")).header("tier", tier)
        } else if column % 2 == 0 {
            record.header("tenant", "flood")
        } else {
            record.header("tenant", format!("tenant-{column}"))
        }
    }
}

/// Some pass always, some have to wait for longer than a lock is, and some for a moment.
fn rate_rules() -> String {
    let slow = LOCK.as_secs() + 2;
    format!(
        "[[rule]]\nproperty.tier = \"gold\"\ndeliver = true\n\n\
         [[rule]]\nproperty.tier = \"slow\"\nrate = 50\nburst = 50\ndelay = \"{slow}s\"\nmax-delay = \"{slow}s\"\n\n\
         [[rule]]\nproperty.tenant = \"*\"\nrate = 50\nburst = 20\ndelay = \"250ms\"\nmax-delay = \"8s\"\n"
    )
}

impl Kafka {
    async fn start(options: &Options, secrets: &Secrets) -> anyhow::Result<Self> {
        let tenants = options.tenants.max(4);
        let columns = 2 * tenants;
        let per_column = options.common.messages.div_ceil(columns);
        let shape = Shape { columns, per_column, at_once: AT_ONCE };
        progress(&format!("{} records of {tenants} tenants in each of two topics", shape.total()));
        // Each with the control text in its name, which thus goes wherever they go.
        let control = control();
        let name = |what: &str| format!("{what}-{}", control.core());
        let layout = Layout { topics: ["shares", "rates"].map(name), tenants };
        let groups = ["group-shares", "group-rates"].map(name);
        let cluster = cluster(secrets).await?;
        let driver = cluster.driver();
        for (topic, group) in layout.topics.iter().zip(&groups) {
            driver.create_topic(topic, PARTITIONS).await?;
            let limit = DELIVERIES_MAX.to_string();
            let settings = [("share.auto.offset.reset", "earliest"), ("share.delivery.count.limit", &limit)];
            driver.configure_group(group, &settings).await?;
            let right = |resource, name| Acl { user: USER, operation: Operation::Read, resource, name };
            driver.allow(&[right(Resource::Topic, topic), right(Resource::Group, group)]).await?;
        }
        progress(&format!(
            "cluster on {}, with logins and rights",
            cluster.bootstrap(Listener::SaslPlaintext)
        ));
        Ok(Self {
            cluster,
            driver,
            layout,
            groups,
            policies: ["shares", "rates", "renewals"].map(name),
            peer: name("owner"),
            shape,
            joined: Joined::default(),
        })
    }

    /// The columns whose partition a node leads.
    async fn led_by(&self, node: NodeId) -> anyhow::Result<Vec<u32>> {
        let mut led: BTreeSet<(usize, i32)> = BTreeSet::new();
        for (at, topic) in self.layout.topics.iter().enumerate() {
            let topic = self.driver.topic(topic).await?.context("a topic is gone")?;
            let own = topic.partitions.iter().filter(|partition| partition.leader == Some(node));
            led.extend(own.map(|partition| (at, partition.index)));
        }
        Ok((0..self.shape.columns).filter(|column| led.contains(&self.layout.home(*column))).collect())
    }

    /// Waits until every copy of every partition is complete: until then the brokers cannot do without another node.
    async fn wait_for_copies(&self) -> anyhow::Result<()> {
        let nodes = self.cluster.nodes().count();
        let deadline = Instant::now() + COPY_PATIENCE;
        loop {
            let mut incomplete = 0;
            for topic in self.layout.topics.iter().map(String::as_str).chain([STATE_TOPIC]) {
                let topic = self.driver.topic(topic).await?.context("a topic is gone")?;
                let is_complete = |copies: usize, led: bool| copies == nodes && led;
                let partitions = topic.partitions.iter();
                incomplete += partitions
                    .filter(|partition| !is_complete(partition.in_sync.len(), partition.leader.is_some()))
                    .count();
            }
            if incomplete == 0 {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!(
                    "{incomplete} partitions have no complete copies {} s after a kill",
                    COPY_PATIENCE.as_secs()
                );
            }
            sleep(Duration::from_millis(100)).await;
        }
    }
}

impl Brokers for Kafka {
    const FLOWS: [&'static str; 2] = ["shares", "rates"];
    /// Once the brokers count nothing as open, nothing can come.
    const QUIET: Duration = Duration::ZERO;
    const ATTEMPTS_MAX: u64 = DELIVERIES_MAX;
    const NODE_AWAY_MAX: u64 = NODE_AWAY_MAX;
    const TAKEN: [&'static str; 2] =
        ["tidegate_kafka_share_received_records_total", "tidegate_flow_received_total"];
    type Node = NodeId;

    fn shape(&self) -> Shape {
        self.shape
    }

    fn rules(&self) -> Rules {
        let lock = u64::try_from(LOCK.as_millis()).unwrap_or(u64::MAX);
        Rules { lite_columns: 0, lock: Some(lock) }
    }

    fn names(&self) -> Vec<String> {
        self.policies.to_vec()
    }

    fn taker(&self, common: Configuration, secrets: &Secrets) -> Outfit {
        let [shares, rates, renewals] = &self.policies;
        let mut configuration =
            common.policy(shares, "fair-share").policy(rates, "rate-rules").policy(renewals, "steady");
        for (at, flow) in Self::FLOWS.into_iter().enumerate() {
            let source = format!(
                "properties.security.protocol = \"SASL_PLAINTEXT\"\n\
                 properties.sasl.mechanism = \"SCRAM-SHA-512\"\n\
                 properties.sasl.jaas.config = \"env:{LOGIN_VARIABLE}\"\n\
                 properties.client.id = \"{USER}\"\n\
                 topic = \"{topic}\"\n\
                 source.parallelism = 2\n\
                 renewal-policy = \"{renewals}\"\n\
                 renewal-ahead-time = \"{ahead}s\"",
                topic = self.layout.topics[at],
                // Early, so that what waits for a moment is renewed.
                ahead = LOCK.as_secs() - 1,
            );
            let more = format!(
                "throttle = \"{}\"\nkey = \"property:tenant\"\nack = \"by-worker\"\nrenew-emitted = true",
                self.policies[at]
            );
            let servers = self.cluster.bootstrap(Listener::SaslPlaintext);
            configuration = configuration
                .share_source(flow, &servers, &self.groups[at], &source)
                .flow(flow, flow, "workers", &more);
        }
        let login = format!(
            "org.apache.kafka.common.security.scram.ScramLoginModule required username=\"{USER}\" password=\"{}\";",
            secrets.taker.text()
        );
        let flows = Self::FLOWS.map(|flow| format!("\"{flow}\"")).join(", ");
        Outfit {
            policies: vec!["fair-share", "rate-rules", "steady"],
            rules: vec![("rate-rules", rate_rules())],
            variables: vec![(LOGIN_VARIABLE, login)],
            tokens: format!("[tokens.{PEER}]\ntoken = \"{}\"\nflows = [{flows}]\n", secrets.settler.text()),
            ..Outfit::new(configuration)
        }
    }

    fn settler(&self, common: Configuration, secrets: &Secrets, owner: &str) -> Outfit {
        let peer = format!("endpoint = \"http://{owner}\"\ntoken = \"file:{LOGIN}\"");
        let configuration = common.section(&format!("peers.{}", self.peer), &peer);
        Outfit { login: Some(secrets.settler.text().to_owned()), ..Outfit::new(configuration) }
    }

    async fn load(&self) -> anyhow::Result<Load> {
        let records = Records { driver: self.cluster.driver(), layout: self.layout.clone() };
        Ok(Load::start(records, self.shape))
    }

    async fn choose(&mut self, random: &mut Random) -> anyhow::Result<Victim<NodeId>> {
        self.wait_for_copies().await?;
        let nodes: Vec<NodeId> = self.cluster.nodes().collect();
        let nth = usize::try_from(random.below(nodes.len() as u64))?;
        let node = nodes[nth];
        Ok(Victim { node, name: node.to_string(), columns: self.led_by(node).await? })
    }

    fn kill(&mut self, node: NodeId) {
        self.cluster.kill(node);
    }

    async fn revive(&mut self, node: NodeId) -> anyhow::Result<()> {
        Ok(self.cluster.revive(node).await?)
    }

    async fn lag(&self) -> anyhow::Result<u64> {
        let mut open = 0;
        for (topic, group) in self.layout.topics.iter().zip(&self.groups) {
            let offsets = self.driver.share_offsets(group, topic).await?;
            for partition in 0..PARTITIONS {
                let known = offsets.iter().find(|offset| offset.partition == partition);
                // The start that is kept is moved by the next acknowledgement only; what is done behind it is not in the lag.
                let lag = match known.and_then(|offset| offset.lag) {
                    Some(lag) => lag,
                    None => {
                        let start = known.and_then(|offset| offset.start).unwrap_or_default();
                        self.driver.offsets(topic, partition).await?.end - start
                    }
                };
                open += u64::try_from(lag)?;
            }
        }
        Ok(open)
    }

    async fn look(&mut self, metrics: &str) -> anyhow::Result<()> {
        let count = |name: &str, labels: &[&str]| metric(metrics, name, labels).unwrap_or_default() as u64;
        let Joined { came_due, renewed, passed_on, .. } = &mut self.joined;
        *passed_on = (*passed_on).max(count("tidegate_peer_received_total", &[]));
        *came_due = (*came_due).max(count("tidegate_kafka_share_hold_ends_total", &["end=\"due\""]));
        let renewals = ["verb=\"renew\"", "result=\"ok\""];
        *renewed = (*renewed).max(count("tidegate_kafka_share_settlements_total", &renewals));
        for group in &self.groups {
            for member in self.driver.describe_group(group).await?.members {
                let is_takers = member.client_id.as_str() == USER;
                let seen = if is_takers { &mut self.joined.of_taker } else { &mut self.joined.of_others };
                seen.insert(member.member_id.as_str().to_owned());
            }
        }
        Ok(())
    }

    fn witness(&self) -> anyhow::Result<Witness> {
        Ok(Witness::Joined(self.joined.clone()))
    }
}

async fn cluster(secrets: &Secrets) -> anyhow::Result<Cluster> {
    let millis = |duration: Duration| duration.as_millis().to_string();
    let options = ClusterOptions {
        nodes: 3,
        sasl: Some(Sasl::default().user(Mechanism::ScramSha512, USER, secrets.taker.text())),
        authorizer: true,
        ..ClusterOptions::default()
    };
    let options = options
        .property("group.share.record.lock.duration.ms", &millis(LOCK))
        .property("group.share.session.timeout.ms", &millis(SESSION))
        .property("group.share.max.delivery.count.limit", &DELIVERIES_MAX.to_string());
    Cluster::start(options).await.context("the cluster does not start")
}

/// Sends records, those of one partition together.
struct Records {
    driver: Driver,
    layout: Layout,
}

impl Sender for Records {
    async fn send(&self, round: &[Place]) -> Vec<Result<(), Unsent>> {
        let homes: Vec<(usize, i32)> = round.iter().map(|place| self.layout.home(place.lite_topic)).collect();
        let mut results: Vec<Result<(), Unsent>> = round.iter().map(|_| Ok(())).collect();
        for home in homes.iter().collect::<BTreeSet<_>>() {
            let own = || (0..round.len()).filter(|at| homes[*at] == *home);
            let records: Vec<Record> = own().map(|at| self.layout.record(round[at])).collect();
            let topic = &self.layout.topics[home.0];
            if let Err(error) = self.driver.produce(topic, home.1, &records).await {
                let may_be_stored = !matches!(error, CallError::Connect { .. } | CallError::NoNode);
                for at in own() {
                    let error = anyhow::anyhow!("{topic}-{}: {error}", home.1);
                    results[at] = Err(Unsent { error, may_be_stored });
                }
            }
        }
        results
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_first_flow_is_one_tenant_and_the_second_has_all_tiers() {
        let layout = Layout { topics: ["a", "b"].map(String::from), tenants: 6 };
        let header = |column: u32, name: &str| {
            let record = layout.record(Place { lite_topic: column, number: 0 });
            let found = record.headers.into_iter().find(|(key, _)| key == name);
            found.and_then(|(_, value)| String::from_utf8(value?.to_vec()).ok())
        };
        let first: Vec<_> = (0..6).filter_map(|column| header(column, "tenant")).collect();
        assert_eq!(first.iter().filter(|tenant| *tenant == "flood").count(), 3);
        assert_eq!(first.iter().collect::<BTreeSet<_>>().len(), 4);
        let tiers: BTreeSet<_> = (6..12).filter_map(|column| header(column, "tier")).collect();
        assert_eq!(tiers.into_iter().collect::<Vec<_>>(), ["gold", "silver", "slow"]);
        assert_eq!([0, 5, 6, 11].map(|column| layout.home(column)), [(0, 0), (0, 5), (1, 0), (1, 5)]);
    }
}
