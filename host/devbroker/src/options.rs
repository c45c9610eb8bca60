//! What a broker is started with.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Everything a broker is started with. [`Options::new`] gives a small plaintext broker without topics.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the first proxy listens; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Further proxies, each in front of a further broker (`broker-b`, `broker-c`, …). All brokers are in every route.
    pub more_listeners: Vec<SocketAddr>,
    /// Whether every proxy reaches every broker.
    pub topology: Topology,
    /// The topics that exist.
    pub topics: Vec<Topic>,
    /// The groups that exist.
    pub groups: Vec<Group>,
    /// The server version whose behaviour is shown.
    pub profile: Profile,
    /// Users and what they may; without any, nobody is asked who they are.
    pub users: Vec<User>,
    /// A certificate, to serve TLS beside plaintext on the same port.
    pub tls: Option<Tls>,
    /// Delays of the real broker that a test may want shorter.
    pub timing: Timing,
    /// How much is kept.
    pub retention: Retention,
    /// Messages recorded for [`crate::Control::audit`]; 0 records none.
    pub audited_messages_max: usize,
    /// Requests kept for [`crate::Control::requests`], oldest out first; 0 keeps none.
    pub journal_max: usize,
    /// Seed of every random choice.
    pub seed: u64,
}

/// How proxies and brokers hang together.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Topology {
    /// Every proxy reaches every broker, as in the real proxy's cluster mode. A route says that each broker is behind
    /// all addresses that the client knows.
    #[default]
    Cluster,
    /// Each proxy reaches its own broker only, as in the real proxy's local mode, and routes say so: a lite
    /// subscription must be sent to every endpoint of the route.
    Local,
}

/// A topic.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Topic {
    /// Its name.
    pub name: Arc<str>,
    /// What it takes.
    pub kind: TopicKind,
    /// Queues on each broker; the real default is 8.
    pub queues: u32,
}

/// What a topic takes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TopicKind {
    /// Plain messages.
    Normal,
    /// Messages with a message group, in order within it.
    Fifo,
    /// Messages with a delivery time.
    Delay,
    /// Messages with a lite topic.
    Lite,
}

/// A consumer group.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Group {
    /// Its name.
    pub name: Arc<str>,
    /// `consumeMessageOrderly`: FIFO topics are consumed in order.
    pub orderly: bool,
    /// Deliveries before a message becomes a dead letter: the server's `retryMaxTimes` + 1.
    pub attempts_max: u32,
    /// `lite.bind.topic`: makes it a lite group.
    pub lite_bind_topic: Option<Arc<str>>,
    /// `lite.sub.wildcard`: an empty subscription stands for every lite topic.
    pub wildcard: bool,
    /// `lite.sub.client.max.event.cnt`: lite topics that wait at one client at most.
    pub events_max: usize,
    /// `lite.sub.client.quota`: lite topics one client may subscribe to by name.
    pub subscription_quota: u32,
}

/// The server version whose behaviour is shown.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Profile {
    /// Refuses the client type `LITE_SIMPLE_CONSUMER`.
    #[default]
    V5_5_0,
    /// Takes the client type `LITE_SIMPLE_CONSUMER`.
    V5_5_1,
}

/// A user and what they may do.
#[derive(Clone, Eq, PartialEq)]
pub struct User {
    /// Access key.
    pub access_key: String,
    /// Secret key.
    pub secret_key: String,
    /// May do everything.
    pub is_admin: bool,
    /// Topics this user may send to and receive from.
    pub topics: Vec<String>,
    /// Groups this user may consume with.
    pub groups: Vec<String>,
}

/// A server certificate.
#[derive(Clone)]
pub struct Tls {
    /// The chain as PEM.
    pub certificate_pem: String,
    /// The private key as PEM.
    pub key_pem: String,
}

/// Delays of the real broker.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Timing {
    /// From a lite client's registration to the scan that shows it old backlog.
    pub backlog_scan_delay: Duration,
    /// From the moment no lite client had room for an event to the next try. Zero: as soon as one has room.
    pub full_scan_delay: Duration,
    /// How long after its invisible time a message of a normal group comes back.
    pub revive_lag: Duration,
    /// A lite client with events that does not poll for so long loses them, and is then passed over for as long.
    pub inactive_after: Duration,
    /// A lite subscription not renewed for so long ends.
    pub subscription_expires_after: Duration,
}

/// How much is kept. When a bound is reached the oldest acked messages go; without any, sends are refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Retention {
    /// Messages on each broker.
    pub messages_max: u64,
    /// Bytes of bodies and properties on each broker.
    pub bytes_max: u64,
    /// Lite topics on each broker. A real one takes as many as it can, unless `enableLmqQuota` is on.
    pub lite_topics_max: usize,
}

impl Options {
    /// A plaintext broker that behaves like 5.5.0 and has no topics yet.
    #[must_use]
    pub fn new(listen: SocketAddr) -> Self {
        Self {
            listen,
            more_listeners: Vec::new(),
            topology: Topology::Cluster,
            topics: Vec::new(),
            groups: Vec::new(),
            profile: Profile::V5_5_0,
            users: Vec::new(),
            tls: None,
            timing: Timing::brisk(),
            retention: Retention::default(),
            audited_messages_max: 200_000,
            journal_max: 4_096,
            seed: 0,
        }
    }
}

impl Topic {
    /// A topic with the real default of 8 queues.
    #[must_use]
    pub fn new(name: &str, kind: TopicKind) -> Self {
        Self { name: Arc::from(name), kind, queues: 8 }
    }
}

impl Group {
    /// A regular group with the server's defaults.
    #[must_use]
    pub fn regular(name: &str) -> Self {
        Self {
            name: Arc::from(name),
            orderly: false,
            // `retryMaxTimes` is 16 by default.
            attempts_max: 17,
            lite_bind_topic: None,
            wildcard: false,
            events_max: 400,
            subscription_quota: 2_000,
        }
    }

    /// A group that consumes FIFO topics in order.
    #[must_use]
    pub fn orderly(name: &str) -> Self {
        Self { orderly: true, ..Self::regular(name) }
    }

    /// A lite group bound to `topic`, with the wildcard attribute.
    #[must_use]
    pub fn lite(name: &str, topic: &str) -> Self {
        Self { lite_bind_topic: Some(Arc::from(topic)), wildcard: true, ..Self::regular(name) }
    }

    /// The same group with another number of attempts.
    #[must_use]
    pub fn with_attempts_max(self, attempts_max: u32) -> Self {
        Self { attempts_max: attempts_max.max(1), ..self }
    }
}

impl TopicKind {
    /// The server's word for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Normal => "NORMAL",
            Self::Fifo => "FIFO",
            Self::Delay => "DELAY",
            Self::Lite => "LITE",
        }
    }
}

impl Timing {
    /// For tests and demonstrations: old backlog at once, everything else as measured.
    #[must_use]
    pub fn brisk() -> Self {
        Self { backlog_scan_delay: Duration::ZERO, full_scan_delay: Duration::ZERO, ..Self::measured() }
    }

    /// As measured on 5.5.0: backlog after 12.7–14.7 s, a full client tried again after 10 s.
    #[must_use]
    pub fn measured() -> Self {
        Self {
            backlog_scan_delay: Duration::from_secs(13),
            full_scan_delay: Duration::from_secs(10),
            revive_lag: Duration::from_millis(2_050),
            inactive_after: Duration::from_secs(10),
            subscription_expires_after: Duration::from_secs(180),
        }
    }
}

impl Default for Retention {
    fn default() -> Self {
        Self { messages_max: 500_000, bytes_max: 512 << 20, lite_topics_max: 200_000 }
    }
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("User")
            .field("access_key", &self.access_key)
            .field("is_admin", &self.is_admin)
            .field("topics", &self.topics)
            .field("groups", &self.groups)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}
