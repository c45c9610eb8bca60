//! What a client tells every proxy about itself: its Settings, and the bodies of its heartbeats.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_proto::rocketmq::{self as proto, settings::PubSub};

use crate::core::{Core, host_name};
use crate::session::{ClientKind, Role};
use crate::stamp::CLIENT_VERSION;

/// What is told.
#[derive(Debug)]
pub(crate) struct Profile {
    role: Role,
    subscription: Option<Subscription>,
    /// Topics that a producer has sent to. Grows with the topics in use, which the producer bounds.
    published: Mutex<BTreeSet<Arc<str>>>,
}

/// What a consumer subscribes to.
#[derive(Clone, Debug)]
pub(crate) struct Subscription {
    pub(crate) topic: Arc<str>,
    pub(crate) group: Arc<str>,
    pub(crate) await_duration: Duration,
}

impl Profile {
    pub(crate) fn consumer(role: Role, subscription: Subscription) -> Self {
        Self { role, subscription: Some(subscription), published: Mutex::default() }
    }

    pub(crate) fn producer() -> Self {
        Self { role: Role::Producer, subscription: None, published: Mutex::default() }
    }

    pub(crate) const fn role(&self) -> Role {
        self.role
    }

    /// Adds a topic that is sent to. True when it is new.
    pub(crate) fn publish(&self, topic: &Arc<str>) -> bool {
        self.published.lock().insert(Arc::clone(topic))
    }

    /// The Settings of a client of this kind.
    pub(crate) fn settings(&self, core: &Core, kind: ClientKind) -> proto::TelemetryCommand {
        let pub_sub = match &self.subscription {
            Some(subscription) => PubSub::Subscription(proto::Subscription {
                group: Some(core.resource(&subscription.group)),
                subscriptions: vec![proto::SubscriptionEntry {
                    topic: Some(core.resource(&subscription.topic)),
                    expression: Some(everything()),
                }],
                long_polling_timeout: Some(duration(subscription.await_duration)),
                ..Default::default()
            }),
            None => PubSub::Publishing(proto::Publishing {
                topics: self.published.lock().iter().map(|topic| core.resource(topic)).collect(),
                validate_message_type: true,
                ..Default::default()
            }),
        };
        let settings = proto::Settings {
            client_type: Some(kind.to_proto().into()),
            access_point: Some(core.endpoints.to_proto()),
            backoff_policy: self.subscription.is_none().then(attempts_without_wait),
            request_timeout: Some(duration(core.request_timeout)),
            pub_sub: Some(pub_sub),
            user_agent: Some(proto::Ua {
                language: proto::Language::Rust.into(),
                version: CLIENT_VERSION.to_owned(),
                platform: std::env::consts::OS.to_owned(),
                hostname: host_name(),
            }),
            ..Default::default()
        };
        proto::TelemetryCommand {
            command: Some(proto::telemetry_command::Command::Settings(settings)),
            ..Default::default()
        }
    }

    pub(crate) fn heartbeat(&self, core: &Core, kind: ClientKind) -> proto::HeartbeatRequest {
        proto::HeartbeatRequest { group: self.group(core), client_type: kind.to_proto().into() }
    }

    pub(crate) fn termination(&self, core: &Core) -> proto::NotifyClientTerminationRequest {
        proto::NotifyClientTerminationRequest { group: self.group(core) }
    }

    /// The wildcard subscription: everything below the main topic is what an empty set says for a wildcard group.
    pub(crate) fn sync(
        &self,
        core: &Core,
        action: proto::LiteSubscriptionAction,
        lite_topics: Vec<String>,
    ) -> proto::SyncLiteSubscriptionRequest {
        proto::SyncLiteSubscriptionRequest {
            action: action.into(),
            topic: self.subscription.as_ref().map(|subscription| core.resource(&subscription.topic)),
            group: self.group(core),
            lite_topic_set: lite_topics,
            ..Default::default()
        }
    }

    fn group(&self, core: &Core) -> Option<proto::Resource> {
        self.subscription.as_ref().map(|subscription| core.resource(&subscription.group))
    }
}

/// The filter that lets everything pass.
pub(crate) fn everything() -> proto::FilterExpression {
    proto::FilterExpression { r#type: proto::FilterType::Tag.into(), expression: "*".to_owned() }
}

pub(crate) fn duration(duration: Duration) -> prost_types::Duration {
    prost_types::Duration {
        seconds: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(duration.subsec_nanos()).unwrap_or(0),
    }
}

/// What a producer proposes: three attempts, one after the other.
fn attempts_without_wait() -> proto::RetryPolicy {
    let zero = Some(duration(Duration::ZERO));
    proto::RetryPolicy {
        max_attempts: 3,
        strategy: Some(proto::retry_policy::Strategy::ExponentialBackoff(proto::ExponentialBackoff {
            initial: zero,
            max: zero,
            multiplier: 1.0,
        })),
    }
}
