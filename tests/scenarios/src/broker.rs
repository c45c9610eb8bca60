//! What a scenario needs from a broker, whichever it is.

mod dev;
mod real;

use std::path::PathBuf;

use async_trait::async_trait;
pub use tidegate_rocketmq::TopicKind;

pub use self::dev::DevBroker;
pub use self::real::RealBroker;

/// The topic that the limited user of a guarded broker may use.
pub(crate) const GRANTED_TOPIC: &str = "granted-topic";
/// The group that the limited user of a guarded broker may use.
pub(crate) const GRANTED_GROUP: &str = "granted-group";
/// Another topic that it may use, for the scenario of keys that change.
pub(crate) const ROTATED_TOPIC: &str = "rotated-topic";
/// And its group.
pub(crate) const ROTATED_GROUP: &str = "rotated-group";

/// Lite topics that a narrow broker has room for.
pub(crate) const LITE_TOPICS_MAX: u8 = 2;

/// A RocketMQ cluster to run scenarios on.
///
/// Methods panic when the broker cannot do what was asked: a scenario that cannot go on has failed.
#[async_trait]
pub trait Broker: Send + Sync + 'static {
    /// Where clients connect: `host:port` of every proxy, with `;` between them.
    fn endpoint(&self) -> String;

    /// `host:port` of something that listens and is not a proxy: the name server.
    fn name_server(&self) -> String;

    /// What a client needs to be let in, on a [`Stand::Guarded`] broker.
    fn security(&self) -> Option<&Security>;

    /// Creates a topic.
    async fn create_topic(&self, name: &str, kind: TopicKind);

    /// Creates a consumer group whose messages are handed out `attempts_max` times before they are dead letters.
    async fn create_group(&self, name: &str, kind: GroupKind, attempts_max: u32);

    /// Messages below the main topic `topic` that the lite group `group` has not acknowledged, as the broker counts.
    async fn unacknowledged(&self, group: &str, topic: &str) -> u64;

    /// The clients that are subscribed to the lite topics below `topic` in `group`, where the broker tells.
    async fn subscribers(&self, group: &str, topic: &str) -> Option<usize>;

    /// Messages that the broker has given up on for `group`.
    async fn dead_letters(&self, group: &str) -> u64;

    /// Ends the proxy at once, as a crash would, and starts it again on the same port.
    async fn restart_proxy(&self);

    /// Ends the broker behind the proxy at once, as a crash would, and starts it again with what it had stored.
    async fn restart_broker(&self);

    /// Ends a member at once, as a crash would.
    async fn take_away(&self, member: Member);

    /// Freezes a proxy, as SIGSTOP would: its connections stay open, and nothing is answered.
    async fn freeze(&self, member: Member);

    /// Lets a frozen proxy go on.
    async fn thaw(&self, member: Member);

    /// Starts a member again that was taken away, on the same port, a broker with what it had stored.
    async fn bring_back(&self, member: Member);
}

/// A part of a cluster, counted from 0.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Member {
    /// A broker.
    Broker(u8),
    /// A proxy.
    Proxy(u8),
}

/// How a consumer group is served.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum GroupKind {
    /// No order.
    Normal,
    /// Ordered per message group of FIFO topics.
    Orderly,
    /// The lite topics below one main topic.
    Lite {
        /// The main topic.
        bind: String,
        /// Whether clients get all lite topics.
        wildcard: bool,
    },
}

impl GroupKind {
    /// A wildcard group of the main topic `bind`.
    pub fn wildcard(bind: &str) -> Self {
        Self::Lite { bind: bind.into(), wildcard: true }
    }
}

/// Which kind of broker a scenario needs.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Stand {
    /// Shared with other scenarios at the same time: each has its own topics and groups.
    Shared,
    /// Ours alone while the scenario runs, so that it can be killed.
    Restartable,
    /// Shared, with credentials and a certificate of our own.
    Guarded,
    /// Two brokers behind two proxies, started for the scenario and stopped at its end.
    Pair,
    /// Ours alone, with room for a few lite topics, started for the scenario and stopped at its end.
    Narrow,
}

/// Name and password of a user.
#[derive(Clone, Debug)]
pub struct Login {
    /// The access key.
    pub access_key: String,
    /// The secret key.
    pub secret_key: String,
}

/// How a guarded broker is entered.
#[derive(Debug)]
pub struct Security {
    /// A user who may do everything.
    pub admin: Login,
    /// A user who may use `GRANTED_TOPIC`, `ROTATED_TOPIC` and their groups, and nothing else.
    pub limited: Login,
    /// The certificate to trust.
    pub authority_pem: String,
    /// The same, as a file.
    pub authority_file: PathBuf,
    /// The server's chain.
    pub certificate_pem: String,
    /// The server's key, PKCS#8.
    pub key_pem: String,
    /// Removed with us.
    _directory: tempfile::TempDir,
}

impl Security {
    /// Makes an authority, a certificate for `localhost` and 127.0.0.1 signed by it, and names an administrator.
    pub fn generate() -> Self {
        use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

        let authority_key = KeyPair::generate().expect("a key for the authority");
        let mut authority = CertificateParams::new(Vec::new()).expect("no names are valid names");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority_certificate = authority.self_signed(&authority_key).expect("a self-signed authority");
        let issuer = Issuer::new(authority, authority_key);
        let key = KeyPair::generate().expect("a key for the server");
        let certificate = CertificateParams::new(vec!["localhost".into(), "127.0.0.1".into()])
            .expect("valid names")
            .signed_by(&key, &issuer)
            .expect("a signed certificate");

        let directory = tempfile::tempdir().expect("a temporary directory");
        let authority_file = directory.path().join("authority.pem");
        let authority_pem = authority_certificate.pem();
        std::fs::write(&authority_file, &authority_pem).expect("a file in our own directory");
        Self {
            admin: Login { access_key: "admin".into(), secret_key: "an-administrators-secret".into() },
            limited: Login { access_key: "alice".into(), secret_key: "the-secret-of-alice".into() },
            authority_pem,
            authority_file,
            certificate_pem: certificate.pem(),
            key_pem: key.serialize_pem(),
            _directory: directory,
        }
    }
}
