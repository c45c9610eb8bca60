//! What a call is about, and the advice that fits what went wrong with it.

use std::sync::Arc;

use super::{Method, Reason};
use crate::options::{OptionNames, TopicKind};

/// What a client's calls to one endpoint are about.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    /// As the user gave it.
    pub(crate) access_point: Arc<str>,
    /// The endpoint of the route that was called; `None` for calls to the access point itself.
    pub(crate) endpoint: Option<Arc<str>>,
    /// The topic, where there is one.
    pub(crate) topic: Option<Arc<str>>,
    /// The consumer group; `None` for producers.
    pub(crate) group: Option<Arc<str>>,
    /// The kind of topic that the user chose; `None` for producers.
    pub(crate) topic_kind: Option<TopicKind>,
    /// What the user's options are called.
    pub(crate) names: &'static OptionNames,
}

impl Subject {
    /// The same about calls to one endpoint of the route.
    pub(crate) fn at(&self, endpoint: &Arc<str>) -> Self {
        Self { endpoint: Some(Arc::clone(endpoint)), ..self.clone() }
    }

    /// The same about another topic.
    pub(crate) fn about(&self, topic: &Arc<str>) -> Self {
        Self { topic: Some(Arc::clone(topic)), ..self.clone() }
    }

    /// What the call was to do, to follow the word "cannot".
    pub(super) fn action(&self, method: Method) -> String {
        let topic = self.topic.as_deref().unwrap_or("(none)");
        let group = self.group.as_deref().unwrap_or("(none)");
        match method {
            Method::QueryRoute => format!("find the brokers of topic `{topic}`"),
            Method::Telemetry if self.group.is_some() => {
                format!("open a session for group `{group}` on topic `{topic}`")
            }
            Method::Telemetry => "open a session".to_owned(),
            Method::Heartbeat => "tell the server that this client lives".to_owned(),
            Method::SyncLiteSubscription => {
                format!("subscribe group `{group}` to the lite topics of `{topic}`")
            }
            Method::ReceiveMessage => format!("receive from topic `{topic}` as group `{group}`"),
            Method::AckMessage => "acknowledge a message".to_owned(),
            Method::ChangeInvisibleDuration => "change the lease of a message".to_owned(),
            Method::ForwardMessageToDeadLetterQueue => "dead-letter a message".to_owned(),
            Method::SendMessage => match &self.topic {
                Some(topic) => format!("send to topic `{topic}`"),
                // A producer's session is for every topic.
                None => "send".to_owned(),
            },
            Method::NotifyClientTermination => "take leave of the server".to_owned(),
        }
    }

    /// What to do about it, in the imperative.
    pub(super) fn advice(&self, method: Method, reason: Reason) -> Option<String> {
        let topic = self.topic.as_deref().unwrap_or("TOPIC");
        let group = self.group.as_deref().unwrap_or("GROUP");
        let OptionNames { endpoints, tls, tls_ca_file, access_key, secret_key, .. } = self.names;
        let lite = self.topic_kind == Some(TopicKind::Lite);
        Some(match reason {
            Reason::Unreachable => format!(
                "check that a RocketMQ proxy runs there and that `{endpoints}` names its gRPC port (8081 by default)"
            ),
            Reason::TimedOut if self.endpoint.is_none() => {
                let raise = self.names.request_timeout.map(|name| format!(", or raise `{name}`"));
                format!(
                    "check that `{endpoints}` names the gRPC port of a RocketMQ proxy (8081 by default){}",
                    raise.unwrap_or_default()
                )
            }
            Reason::NotAProxy => format!(
                "`{endpoints}` must name the proxy's gRPC port (8081 by default), not the name server's (9876) or a \
                 broker's; if the server wants TLS, turn it on with `{tls}`"
            ),
            Reason::TlsMismatch => format!("make `{tls}` fit the server"),
            Reason::TlsFailed => {
                let own = self.names.tls_cert_file.map(|name| {
                    format!(", and a certificate of our own as `{name}` if the server asks for one")
                });
                format!(
                    "give the CA that signed the server's certificate as `{tls_ca_file}`{}",
                    own.unwrap_or_default()
                )
            }
            Reason::Access => format!(
                "check `{access_key}` and `{secret_key}`, and that this user may {}",
                if self.group.is_some() {
                    format!("subscribe to topic `{topic}` with group `{group}` (action Sub on both)")
                } else {
                    format!("publish to topic `{topic}` (action Pub)")
                }
            ),
            Reason::ServerTooOld if lite => {
                "lite topics with a wildcard group need RocketMQ 5.5.0 or newer, with \
                the proxy in cluster mode"
                    .to_owned()
            }
            Reason::ClientTypeRefused => {
                "lite topics with a wildcard group need RocketMQ 5.5.0 or newer".to_owned()
            }
            Reason::TopicUnknown if lite => format!("create it: {}", create_topic(topic)),
            Reason::TopicUnknown => format!("create topic `{topic}`, or correct its name"),
            Reason::GroupUnknown | Reason::GroupNotLite if lite => {
                format!("make group `{group}` a lite group of topic `{topic}`: {}", bind_group(group, topic))
            }
            Reason::GroupBoundElsewhere => {
                format!("use another group, or bind it to topic `{topic}`: {}", bind_group(group, topic))
            }
            Reason::GroupIsLite => format!(
                "group `{group}` is for lite topics: set `rocketmq.source.topic-kind` to `lite`, or use another group"
            ),
            Reason::SubscriptionQuota => format!(
                "raise the group's quota: `mqadmin updateSubGroup -n NAMESERVER:9876 -c CLUSTER -g {group} \
                 --attributes \"+lite.sub.client.quota=5000\"`"
            ),
            Reason::LiteTopicQuota => {
                "raise `maxLmqConsumeQueueNum` of the broker, or use fewer lite topics".to_owned()
            }
            Reason::WrongMessageType => {
                "the kind of message must be the `message.type` of the topic".to_owned()
            }
            Reason::TooLarge => {
                "the server counts the body and all properties together, its own of some hundred bytes \
                included: send a smaller body, or raise the server's `maxMessageSize`"
                    .to_owned()
            }
            Reason::SettingsUnknown if method != Method::Heartbeat => "they are sent again".to_owned(),
            _ => return None,
        })
    }
}

/// The command that makes a group a wildcard group of a main topic.
pub(crate) fn bind_group(group: &str, topic: &str) -> String {
    format!(
        "`mqadmin updateSubGroup -n NAMESERVER:9876 -c CLUSTER -g {group} --attributes \
         \"+lite.bind.topic={topic},+lite.sub.wildcard=true\"`"
    )
}

fn create_topic(topic: &str) -> String {
    format!("`mqadmin updateTopic -n NAMESERVER:9876 -c CLUSTER -t {topic} -a +message.type=LITE`")
}
