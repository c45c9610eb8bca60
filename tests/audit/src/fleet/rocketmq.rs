//! RocketMQ: one flow of lite topics and one of a normal topic, access keys, and a proxy that is killed.
//!
//! A lease does not depend on who took it: the other host settles at the brokers, with keys of its own.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use secrecy::SecretString;
use tidegate_process_tests::{Configuration, Consumed};
use tidegate_rocketmq::{ClientOptions, Endpoints, Fixed, Keys, Outgoing};
use tidegate_test_brokers::{Cluster, ClusterOptions, Credentials, GroupKind, Node, TopicType};

use super::brokers::{Brokers, LOGIN, Outfit, Victim};
use super::duplicates::Rules;
use super::secrets::{Secrets, control};
use super::witness::{Admissions, Admitted, Witness};
use crate::ledger::Place;
use crate::load::{self, Load, Shape};
use crate::progress;
use tidegate_process_tests::Random;

/// The broker's retries must not turn a message into a dead letter because workers were killed.
const RETRY_MAX: u32 = 1_000;
/// Messages of the normal topic: one column in so many.
const COLUMNS_PER_NORMAL: u32 = 5;
/// The brokers' users of the host that takes messages and of the one that settles.
const USERS: [&str; 2] = ["host-a", "host-b"];
/// The brokers' super user, which this program is.
const SUPER_USER: (&str, &str) = ("audit", "audit-0123456789abcdef");
/// How long a message may take to be sent: on a busy machine long enough that hardly one is sent twice.
const SEND_TIMEOUT: Duration = Duration::from_secs(60);
/// The lease of each message.
const LEASE: Duration = Duration::from_secs(15);
/// Past the end of a lease, until which everything that comes again has come: a broker hands a message of a normal topic out
/// again up to 2.5 s after its lease (measured), and the machine may be busy.
const AFTER_LEASE: Duration = Duration::from_secs(6);
/// The variable with the broker's key of the host that takes messages.
const KEY_VARIABLE: &str = "TIDEGATE_AUDIT_KEY";

/// What the run is like.
#[derive(Args, Debug)]
#[group(skip)]
pub(crate) struct Options {
    /// Lite topics to spread four fifths of the messages over; the rest goes to a normal topic
    #[arg(long, default_value_t = 160)]
    lite_topics: u32,
    /// Times that the proxy is killed and started again
    #[arg(long, default_value_t = 0)]
    proxy_restarts: u32,
    #[command(flatten)]
    common: super::Options,
}

/// Runs it.
pub(crate) async fn audit(options: &Options) -> anyhow::Result<super::Verdict> {
    let kills = options.proxy_restarts;
    super::audit(&options.common, kills, async |secrets| RocketMq::start(options, secrets).await).await
}

/// A cluster, and what is on it.
struct RocketMq {
    cluster: Cluster,
    topics: [String; 2],
    groups: [String; 2],
    /// Of the first host's policy and of the other's settler: metrics are labelled with it.
    counted: String,
    lite_columns: u32,
    shape: Shape,
}

impl RocketMq {
    async fn start(options: &Options, secrets: &Secrets) -> anyhow::Result<Self> {
        let lite_columns = options.lite_topics.max(1);
        let columns = lite_columns + lite_columns.div_ceil(COLUMNS_PER_NORMAL - 1);
        let shape = Shape { columns, per_column: options.common.messages.div_ceil(columns), at_once: 1 };
        progress(&format!("{} messages on {lite_columns} lite topics and a normal one", shape.total()));
        // Each with the control text in its name, which thus goes wherever they go.
        let control = control();
        let name = |what: &str| format!("{what}-{}", control.core());
        let topics = ["Lite", "Normal"].map(name);
        let groups = ["GID-lite", "GID-normal"].map(name);
        let cluster = cluster(&topics, &groups, secrets).await?;
        progress(&format!("cluster on {}, with access keys", cluster.endpoint()));
        Ok(Self { cluster, topics, groups, counted: name("counted"), lite_columns, shape })
    }
}

impl Brokers for RocketMq {
    const FLOWS: [&'static str; 2] = ["lite", "normal"];
    const QUIET: Duration = LEASE.saturating_add(AFTER_LEASE);
    const ATTEMPTS_MAX: u64 = RETRY_MAX as u64;
    const NODE_AWAY_MAX: u64 = 0;
    const TAKEN: [&'static str; 2] =
        ["tidegate_rocketmq_received_messages_total", "tidegate_flow_received_total"];
    type Node = Node;

    fn shape(&self) -> Shape {
        self.shape
    }

    fn rules(&self) -> Rules {
        Rules { lite_columns: self.lite_columns, lock: None }
    }

    fn names(&self) -> Vec<String> {
        vec![self.counted.clone()]
    }

    fn taker(&self, common: Configuration, secrets: &Secrets) -> Outfit {
        let policy = &self.counted;
        let mut configuration = common.policy(policy, "fair-share");
        for (at, flow) in Self::FLOWS.into_iter().enumerate() {
            let endpoint = self.cluster.endpoint();
            let consumed = Consumed { endpoint: &endpoint, topic: &self.topics[at], group: &self.groups[at] };
            let source = format!(
                "rocketmq.client.access-key = \"{user}\"\n\
                 rocketmq.client.secret-key = \"env:{KEY_VARIABLE}\"\n\
                 rocketmq.source.topic-kind = \"{flow}\"\n\
                 rocketmq.source.fetch-concurrency = 4\n\
                 rocketmq.source.await-duration = \"5s\"\n\
                 rocketmq.source.invisible-duration = \"{lease}s\"",
                user = USERS[0],
                lease = LEASE.as_secs(),
            );
            let more = format!("throttle = \"{policy}\"\nack = \"by-worker\"");
            configuration = configuration.source(flow, consumed, &source).flow(flow, flow, "workers", &more);
        }
        Outfit {
            policies: vec!["fair-share"],
            variables: vec![(KEY_VARIABLE, secrets.taker.text().to_owned())],
            ..Outfit::new(configuration)
        }
    }

    fn settler(&self, common: Configuration, secrets: &Secrets, _owner: &str) -> Outfit {
        let keys = format!(
            "rocketmq.client.access-key = \"{}\"\nrocketmq.client.secret-key = \"file:{LOGIN}\"",
            USERS[1]
        );
        let configuration = common.settler(&self.counted, &self.cluster.endpoint(), &keys);
        Outfit { login: Some(secrets.settler.text().to_owned()), ..Outfit::new(configuration) }
    }

    async fn load(&self) -> anyhow::Result<Load> {
        let keys = Keys::new(SUPER_USER.0, SecretString::from(SUPER_USER.1));
        let client = ClientOptions {
            credentials: Arc::new(Fixed::new(keys)),
            // What is sent again may be stored twice.
            request_timeout: SEND_TIMEOUT,
            ..ClientOptions::new(Endpoints::parse(&self.cluster.endpoint())?)
        };
        let [lite, normal]: [Arc<str>; 2] = self.topics.each_ref().map(|topic| topic.as_str().into());
        let lite_columns = self.lite_columns;
        let message = move |place: Place| {
            let Place { lite_topic, number } = place;
            let body = format!("{lite_topic}/{number}");
            if lite_topic < lite_columns {
                Outgoing::lite(Arc::clone(&lite), format!("lt-{lite_topic}"), body)
            } else {
                Outgoing::normal(Arc::clone(&normal), body)
            }
        };
        let sender = load::RocketMq::connect(client, Box::new(message)).await?;
        Ok(Load::start(sender, self.shape))
    }

    async fn choose(&mut self, _random: &mut Random) -> anyhow::Result<Victim<Node>> {
        Ok(Victim { node: Node::Proxy(0), name: "the proxy".to_owned(), columns: Vec::new() })
    }

    fn kill(&mut self, node: Node) {
        self.cluster.kill(node);
    }

    async fn revive(&mut self, node: Node) -> anyhow::Result<()> {
        Ok(self.cluster.revive(node).await?)
    }

    /// What a worker of the normal topic holds is not among it: that nothing came again past the end of every lease says that
    /// it was acknowledged.
    async fn lag(&self) -> anyhow::Result<u64> {
        let ([lite, normal], [lite_group, normal_group]) = (&self.topics, &self.groups);
        Ok(self.cluster.lite_lag(lite_group, lite).await? + self.cluster.lag(normal_group, normal).await?)
    }

    /// The proxies write down all that they let in.
    async fn look(&mut self, _metrics: &str) -> anyhow::Result<()> {
        Ok(())
    }

    fn witness(&self) -> anyhow::Result<Witness> {
        let mut admissions = Admissions::default();
        admissions.read(&fs::read_to_string(self.cluster.admissions(0))?);
        let [taker, settler] = USERS;
        let settlements = |user| {
            admissions.count(user, "AckMessageRequest")
                + admissions.count(user, "ChangeInvisibleDurationRequest")
        };
        Ok(Witness::Admitted(Admitted {
            receives_by_settler: admissions.count(settler, "ReceiveMessageRequest"),
            receives_by_taker: admissions.count(taker, "ReceiveMessageRequest"),
            settlements_by_settler: settlements(settler),
            settlements_by_taker: settlements(taker),
        }))
    }
}

async fn cluster(topics: &[String; 2], groups: &[String; 2], secrets: &Secrets) -> anyhow::Result<Cluster> {
    let credentials = Credentials { access_key: SUPER_USER.0.into(), secret_key: SUPER_USER.1.into() };
    let options =
        ClusterOptions { credentials: Some(credentials), admissions: true, ..ClusterOptions::default() };
    let cluster = Cluster::start(options).await.context("the cluster does not start")?;
    let ([lite, normal], [lite_group, normal_group]) = (topics, groups);
    cluster.create_topic(lite, TopicType::Lite).await?;
    cluster.create_topic(normal, TopicType::Normal).await?;
    cluster.create_group(lite_group, GroupKind::wildcard(lite), RETRY_MAX).await?;
    cluster.create_group(normal_group, GroupKind::Normal, RETRY_MAX).await?;
    let resources: Vec<String> = [("Topic", topics), ("Group", groups)]
        .iter()
        .flat_map(|(kind, names)| names.iter().map(move |name| format!("{kind}:{name}")))
        .collect();
    let resources: Vec<&str> = resources.iter().map(String::as_str).collect();
    for (user, secret) in USERS.into_iter().zip([&secrets.taker, &secrets.settler]) {
        cluster.create_user(user, secret.text()).await?;
        cluster.create_acl(user, &resources, &["Sub"]).await?;
    }
    Ok(cluster)
}
