//! The classification of statuses.

use tidegate_proto::rocketmq::Code;

use super::Method;
use crate::wire::Finding;

/// What a failed call means. Each asks for something else to be done.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Reason {
    /// No connection: refused, unknown name, no route, connect timeout.
    Unreachable,
    /// Connected, but the answer did not come in time.
    TimedOut,
    /// Whoever listens there does not speak HTTP/2.
    NotAProxy,
    /// The server wants TLS and we came without, or the other way round.
    TlsMismatch,
    /// The TLS handshake failed for another reason, such as a certificate that is not trusted.
    TlsFailed,
    /// Wrong keys, missing keys or missing rights.
    Access,
    /// The proxy does not know our Settings: it was restarted, or the session failed.
    SettingsUnknown,
    /// The server does not know the client type that we named.
    ClientTypeRefused,
    /// The server has no lite topics, or not enough of them.
    ServerTooOld,
    /// No such topic; after a good start, a gap in the proxy's cache (measured: windows of 20 s after broker trouble).
    TopicUnknown,
    /// No such group; after a good start, the same gap.
    GroupUnknown,
    /// The group lacks `lite.bind.topic`.
    GroupNotLite,
    /// The group is bound to another topic.
    GroupBoundElsewhere,
    /// The group is for lite topics, but is used for another kind.
    GroupIsLite,
    /// Too many subscriptions.
    SubscriptionQuota,
    /// Slow down.
    Throttled,
    /// Too many lite topics on the broker.
    LiteTopicQuota,
    /// The lease is over, or its handle is not known.
    HandleGone,
    /// A kind of message that the topic does not take.
    WrongMessageType,
    /// The body, or body and properties together, are larger than the server takes.
    TooLarge,
    /// The broker behind the proxy does not answer.
    BrokerDown,
    /// The server failed without saying anything that we know.
    ServerTrouble,
    /// Stored, but not flushed or copied as the broker promises.
    NotDurable,
    /// A request that the server refuses as such.
    Refused,
    /// An answer that makes no sense.
    Malformed,
}

impl Reason {
    /// Whether sending the same again, later, can help by itself.
    #[must_use]
    pub const fn is_retryable(self) -> bool {
        match self {
            Self::Unreachable
            | Self::TimedOut
            | Self::SettingsUnknown
            | Self::Throttled
            | Self::BrokerDown
            | Self::ServerTrouble
            | Self::NotDurable
            | Self::Malformed
            | Self::TopicUnknown
            | Self::GroupUnknown => true,
            Self::NotAProxy
            | Self::TlsMismatch
            | Self::TlsFailed
            | Self::Access
            | Self::ClientTypeRefused
            | Self::ServerTooOld
            | Self::GroupNotLite
            | Self::GroupBoundElsewhere
            | Self::GroupIsLite
            | Self::SubscriptionQuota
            | Self::LiteTopicQuota
            | Self::HandleGone
            | Self::WrongMessageType
            | Self::TooLarge
            | Self::Refused => false,
        }
    }

    /// Whether it says something about the road to the server, not about the server.
    pub(crate) const fn is_about_the_road(self) -> bool {
        matches!(
            self,
            Self::Unreachable | Self::TimedOut | Self::NotAProxy | Self::TlsMismatch | Self::TlsFailed
        )
    }

    /// Whether the subscription itself is wrong: passes when somebody changes topic, group or server.
    pub(crate) const fn is_about_the_subscription(self) -> bool {
        matches!(
            self,
            Self::TopicUnknown
                | Self::GroupUnknown
                | Self::GroupNotLite
                | Self::GroupBoundElsewhere
                | Self::GroupIsLite
                | Self::SubscriptionQuota
                | Self::WrongMessageType
                | Self::ServerTooOld
                | Self::ClientTypeRefused
        )
    }

    /// Whether a proxy also says so for some seconds after broker trouble.
    pub(crate) const fn may_be_a_negative_cache(self) -> bool {
        matches!(self, Self::TopicUnknown | Self::GroupUnknown)
    }

    /// Whether brokers may have lost the lite subscription, so that it has to be renewed soon.
    pub(crate) const fn is_broker_trouble(self) -> bool {
        matches!(
            self,
            Self::BrokerDown
                | Self::ServerTrouble
                | Self::TopicUnknown
                | Self::GroupUnknown
                | Self::Unreachable
                | Self::TimedOut
        )
    }
}

/// What a status in the body of an answer means.
pub(crate) fn of_status(method: Method, code: i32, text: &str) -> Reason {
    if let Some(reason) = of_text(text) {
        return reason;
    }
    let Ok(code) = Code::try_from(code) else { return of_hundred(code) };
    match code {
        Code::Unauthorized | Code::Forbidden | Code::PaymentRequired => Reason::Access,
        Code::TooManyRequests => Reason::Throttled,
        Code::LiteTopicQuotaExceeded => Reason::LiteTopicQuota,
        Code::LiteSubscriptionQuotaExceeded => Reason::SubscriptionQuota,
        Code::InvalidReceiptHandle => Reason::HandleGone,
        Code::UnrecognizedClientType => Reason::SettingsUnknown,
        Code::TopicNotFound => Reason::TopicUnknown,
        Code::IllegalTopic if method == Method::SyncLiteSubscription => Reason::GroupBoundElsewhere,
        Code::ConsumerGroupNotFound | Code::IllegalConsumerGroup => Reason::GroupUnknown,
        Code::MessagePropertyConflictWithType => Reason::WrongMessageType,
        Code::MessageBodyTooLarge | Code::MessagePropertiesTooLarge => Reason::TooLarge,
        Code::HaNotAvailable | Code::MasterPersistenceTimeout | Code::SlavePersistenceTimeout => {
            Reason::NotDurable
        }
        Code::RequestTimeout | Code::ProxyTimeout => Reason::BrokerDown,
        Code::VersionUnsupported | Code::NotImplemented | Code::Unsupported => Reason::ServerTooOld,
        Code::InternalError | Code::InternalServerError => Reason::ServerTrouble,
        Code::Unspecified | Code::MultipleResults => Reason::Malformed,
        other => of_hundred(other.into()),
    }
}

/// What a gRPC status means, given what the connection saw.
pub(crate) fn of_grpc(code: tonic::Code, text: &str, finding: &Finding) -> Reason {
    if let Some(reason) = of_text(text) {
        return reason;
    }
    match code {
        tonic::Code::Unavailable | tonic::Code::Unknown => finding.reason().unwrap_or(Reason::Unreachable),
        tonic::Code::DeadlineExceeded | tonic::Code::Cancelled => {
            finding.reason().unwrap_or(Reason::TimedOut)
        }
        tonic::Code::Unimplemented => Reason::ServerTooOld,
        tonic::Code::Unauthenticated | tonic::Code::PermissionDenied => Reason::Access,
        tonic::Code::ResourceExhausted => Reason::Throttled,
        tonic::Code::InvalidArgument | tonic::Code::FailedPrecondition | tonic::Code::OutOfRange => {
            Reason::Refused
        }
        _ => finding.reason().unwrap_or(Reason::ServerTrouble),
    }
}

/// Several causes share one code, above all 50001 and gRPC INTERNAL: the texts of 5.5.0 tell them apart.
fn of_text(text: &str) -> Option<Reason> {
    const TEXTS: [(&str, Reason); 16] = [
        ("Client type is not consumer", Reason::ClientTypeRefused),
        ("regular group cannot use LITE mode", Reason::GroupNotLite),
        ("is expected to bind topic null", Reason::GroupNotLite),
        ("is expected to bind topic", Reason::GroupBoundElsewhere),
        ("lite group must use LITE mode", Reason::GroupIsLite),
        ("cannot find client settings", Reason::SettingsUnknown),
        ("\"settings\" is null", Reason::SettingsUnknown),
        ("\"this.channel\" is null", Reason::SettingsUnknown),
        ("expected type is UNSPECIFIED", Reason::TopicUnknown),
        ("message type not match", Reason::WrongMessageType),
        ("msg body or properties length not matched", Reason::TooLarge),
        ("RemotingSendRequestException", Reason::BrokerDown),
        ("RemotingConnectException", Reason::BrokerDown),
        ("RemotingTimeoutException", Reason::BrokerDown),
        ("Parse failed, dataList size", Reason::Refused),
        ("status is abnormal", Reason::Refused),
    ];
    TEXTS.iter().find(|(part, _)| text.contains(part)).map(|(_, reason)| *reason)
}

/// Codes that are not known go by their class.
const fn of_hundred(code: i32) -> Reason {
    match code / 100 {
        401 | 403 => Reason::Access,
        429 => Reason::Throttled,
        400..=499 => Reason::Refused,
        500..=599 => Reason::ServerTrouble,
        _ => Reason::Malformed,
    }
}
