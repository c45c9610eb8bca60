//! The development broker, in this process.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use async_trait::async_trait;
use tidegate_devbroker::{
    self as devbroker, Broker as Server, Control, Group, Options, Timing, Tls, Topic, User,
};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::{
    Broker, GRANTED_GROUP, GRANTED_TOPIC, GroupKind, LITE_TOPICS_MAX, Login, Member, ROTATED_GROUP,
    ROTATED_TOPIC, Security, Stand, TopicKind,
};

/// How long a restarted server is away, and how long the proxies then deny a restarted broker's topics: far less
/// than the real ones, which take seconds to start and 20 s to forget.
const AWAY: Duration = Duration::from_secs(1);
const DENIED: Duration = Duration::from_secs(3);

/// A development broker, or a cluster of two.
#[derive(Debug)]
pub struct DevBroker {
    server: Server,
    control: Control,
    security: Option<Security>,
    name_server: NameServer,
}

/// Hangs up on everything that is not its own protocol, which a real name server does when it reads an impossible
/// frame length in an HTTP/2 greeting.
#[derive(Debug)]
struct NameServer {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl DevBroker {
    /// Starts one for this kind of scenario, with the real broker's delays.
    pub async fn start(stand: Stand) -> Self {
        let security = (stand == Stand::Guarded).then(Security::generate);
        let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let mut options = Options { timing: Timing::measured(), ..Options::new(any_port) };
        if stand == Stand::Pair {
            options.more_listeners = vec![any_port];
        }
        if stand == Stand::Narrow {
            options.retention.lite_topics_max = LITE_TOPICS_MAX.into();
        }
        if let Some(security) = &security {
            options.users = vec![admin(&security.admin), limited(&security.limited)];
            options.tls = Some(Tls {
                certificate_pem: security.certificate_pem.clone(),
                key_pem: security.key_pem.clone(),
            });
        }
        let server = Server::start(options).await.unwrap_or_else(|error| panic!("{error}"));
        let control = server.control();
        let name_server = NameServer::start(any_port).await;
        Self { server, control, security, name_server }
    }
}

impl NameServer {
    async fn start(any_port: SocketAddr) -> Self {
        let listener = TcpListener::bind(any_port).await.expect("a free port");
        let address = listener.local_addr().expect("a bound listener has an address");
        let task = tokio::spawn(async move {
            while let Ok((mut connection, _)) = listener.accept().await {
                // Hangs up whether or not there was a greeting.
                let _ = connection.read_exact(&mut [0; 4]).await;
            }
        });
        Self { address, task }
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[async_trait]
impl Broker for DevBroker {
    fn endpoint(&self) -> String {
        let addresses = self.server.addresses().iter().map(ToString::to_string);
        addresses.collect::<Vec<_>>().join(";")
    }

    fn name_server(&self) -> String {
        self.name_server.address.to_string()
    }

    fn security(&self) -> Option<&Security> {
        self.security.as_ref()
    }

    async fn create_topic(&self, name: &str, kind: TopicKind) {
        let kind = match kind {
            TopicKind::Lite => devbroker::TopicKind::Lite,
            TopicKind::Normal => devbroker::TopicKind::Normal,
            TopicKind::Fifo => devbroker::TopicKind::Fifo,
            TopicKind::Delay => devbroker::TopicKind::Delay,
        };
        self.control.create_topic(&Topic::new(name, kind));
    }

    async fn create_group(&self, name: &str, kind: GroupKind, attempts_max: u32) {
        let group = match kind {
            GroupKind::Normal => Group::regular(name),
            GroupKind::Orderly => Group::orderly(name),
            GroupKind::Lite { bind, wildcard } => {
                // As many waiting lite topics as the real cluster's groups of the scenarios have.
                Group { wildcard, events_max: 5_000, ..Group::lite(name, &bind) }
            }
        };
        self.control.create_group(group.with_attempts_max(attempts_max));
    }

    async fn unacknowledged(&self, group: &str, topic: &str) -> u64 {
        let audit = self.control.audit();
        assert_eq!(audit.not_recorded, 0, "more messages than the audit records");
        let open = |record: &&devbroker::MessageRecord| {
            &*record.topic == topic && !record.acked_by.iter().any(|acked_by| &**acked_by == group)
        };
        audit.messages.iter().filter(open).count() as u64
    }

    async fn subscribers(&self, group: &str, topic: &str) -> Option<usize> {
        Some(self.control.lite_clients(topic, group).len())
    }

    async fn dead_letters(&self, group: &str) -> u64 {
        let audit = self.control.audit();
        audit.messages.iter().filter(|record| record.copy_for.as_deref() == Some(group)).count() as u64
    }

    async fn restart_proxy(&self) {
        self.control.restart_proxy(AWAY).await;
    }

    async fn restart_broker(&self) {
        self.control.restart_broker(AWAY, DENIED);
    }

    async fn take_away(&self, member: Member) {
        match member {
            Member::Broker(index) => self.control.stop_broker_at(index.into()),
            Member::Proxy(index) => self.control.stop_proxy_at(index.into()).await,
        }
    }

    async fn freeze(&self, member: Member) {
        self.control.freeze_proxy_at(proxy(member));
    }

    async fn thaw(&self, member: Member) {
        self.control.thaw_proxy_at(proxy(member));
    }

    async fn bring_back(&self, member: Member) {
        match member {
            Member::Broker(index) => self.control.start_broker_at(index.into(), DENIED),
            Member::Proxy(index) => self.control.start_proxy_at(index.into()).await,
        }
    }
}

/// No scenario freezes a broker: its proxy would answer for it, after a time of its own.
fn proxy(member: Member) -> usize {
    match member {
        Member::Proxy(index) => index.into(),
        Member::Broker(_) => panic!("only proxies are frozen here"),
    }
}

fn admin(login: &Login) -> User {
    User { is_admin: true, ..user(login) }
}

fn limited(login: &Login) -> User {
    User {
        topics: vec![GRANTED_TOPIC.into(), ROTATED_TOPIC.into()],
        groups: vec![GRANTED_GROUP.into(), ROTATED_GROUP.into()],
        ..user(login)
    }
}

fn user(Login { access_key, secret_key }: &Login) -> User {
    User {
        access_key: access_key.clone(),
        secret_key: secret_key.clone(),
        is_admin: false,
        topics: Vec::new(),
        groups: Vec::new(),
    }
}
