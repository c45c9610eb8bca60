//! A real RocketMQ cluster.

use async_trait::async_trait;
use tidegate_test_brokers::{
    self as brokers, Cluster, ClusterOptions, Credentials, Node, Sizes, Tls, TopicType,
};

use super::{
    Broker, GRANTED_GROUP, GRANTED_TOPIC, GroupKind, LITE_TOPICS_MAX, Login, Member, ROTATED_GROUP,
    ROTATED_TOPIC, Security, Stand, TopicKind,
};

/// One name server, one broker, one proxy; or two of the latter.
#[derive(Debug)]
pub struct RealBroker {
    cluster: Cluster,
    security: Option<Security>,
}

impl RealBroker {
    /// Starts a cluster for this kind of scenario.
    pub async fn start(stand: Stand) -> Self {
        let security = (stand == Stand::Guarded).then(Security::generate);
        let (members, sizes) = match stand {
            Stand::Pair => (2, Sizes::Tiny),
            Stand::Narrow => (1, Sizes::Tiny),
            Stand::Shared | Stand::Restartable | Stand::Guarded => (1, Sizes::Small),
        };
        // The quota is off unless somebody turns it on.
        let quota =
            || vec!["enableLmqQuota=true".to_owned(), format!("maxLmqConsumeQueueNum={LITE_TOPICS_MAX}")];
        let options = ClusterOptions {
            brokers: members,
            proxies: members,
            sizes,
            broker_conf: if stand == Stand::Narrow { quota() } else { Vec::new() },
            credentials: security.as_ref().map(|security| Credentials {
                access_key: security.admin.access_key.clone(),
                secret_key: security.admin.secret_key.clone(),
            }),
            tls: security.as_ref().map(|security| Tls {
                certificate: security.certificate_pem.clone(),
                key: security.key_pem.clone(),
            }),
            ..ClusterOptions::default()
        };
        let cluster = Cluster::start(options).await.unwrap_or_else(|error| panic!("{error}"));
        let broker = Self { cluster, security };
        if let Some(security) = &broker.security {
            broker.create_limited_user(&security.limited).await;
        }
        broker
    }

    async fn create_limited_user(&self, Login { access_key, secret_key }: &Login) {
        let resources = [
            format!("Topic:{GRANTED_TOPIC}"),
            format!("Group:{GRANTED_GROUP}"),
            format!("Topic:{ROTATED_TOPIC}"),
            format!("Group:{ROTATED_GROUP}"),
        ];
        let resources: Vec<&str> = resources.iter().map(String::as_str).collect();
        self.cluster.create_user(access_key, secret_key).await.expect("the broker creates a user");
        self.cluster
            .create_acl(access_key, &resources, &["Pub", "Sub"])
            .await
            .expect("the broker gives a user rights");
    }
}

#[async_trait]
impl Broker for RealBroker {
    fn endpoint(&self) -> String {
        self.cluster.endpoints()
    }

    fn name_server(&self) -> String {
        self.cluster.address(Node::NameServer)
    }

    fn security(&self) -> Option<&Security> {
        self.security.as_ref()
    }

    async fn create_topic(&self, name: &str, kind: TopicKind) {
        let kind = match kind {
            TopicKind::Lite => TopicType::Lite,
            TopicKind::Normal => TopicType::Normal,
            TopicKind::Fifo => TopicType::Fifo,
            TopicKind::Delay => TopicType::Delay,
        };
        self.cluster.create_topic(name, kind).await.expect("the broker creates a topic");
    }

    async fn create_group(&self, name: &str, kind: GroupKind, attempts_max: u32) {
        let kind = match kind {
            GroupKind::Normal => brokers::GroupKind::Normal,
            GroupKind::Orderly => brokers::GroupKind::Orderly,
            GroupKind::Lite { bind, wildcard: true } => brokers::GroupKind::wildcard(bind),
            GroupKind::Lite { bind, wildcard } => {
                brokers::GroupKind::Lite { bind, wildcard, max_event_count: None }
            }
        };
        let retry_max = attempts_max.saturating_sub(1);
        self.cluster.create_group(name, kind, retry_max).await.expect("the broker creates a group");
    }

    async fn unacknowledged(&self, group: &str, topic: &str) -> u64 {
        self.cluster.lite_lag(group, topic).await.expect("the broker counts")
    }

    async fn subscribers(&self, _group: &str, _topic: &str) -> Option<usize> {
        // Nobody asks its brokers that.
        None
    }

    async fn dead_letters(&self, group: &str) -> u64 {
        self.cluster.stored(&format!("%DLQ%{group}")).await.expect("the broker counts")
    }

    async fn restart_proxy(&self) {
        self.take_away(Member::Proxy(0)).await;
        self.bring_back(Member::Proxy(0)).await;
    }

    async fn restart_broker(&self) {
        self.take_away(Member::Broker(0)).await;
        self.bring_back(Member::Broker(0)).await;
    }

    async fn take_away(&self, member: Member) {
        self.cluster.kill(node(member));
    }

    async fn freeze(&self, member: Member) {
        self.cluster.pause(node(member)).unwrap_or_else(|error| panic!("{error}"));
    }

    async fn thaw(&self, member: Member) {
        self.cluster.resume(node(member)).unwrap_or_else(|error| panic!("{error}"));
    }

    async fn bring_back(&self, member: Member) {
        self.cluster.revive(node(member)).await.unwrap_or_else(|error| panic!("{member:?} again: {error}"));
    }
}

const fn node(member: Member) -> Node {
    match member {
        Member::Broker(index) => Node::Broker(index),
        Member::Proxy(index) => Node::Proxy(index),
    }
}
