//! Statuses, and answers that carry nothing but one.

use tidegate_proto::rocketmq as wire;
use tidegate_proto::rocketmq::Code;

/// A status with a text.
pub(super) fn status(code: impl Into<i32>, message: impl Into<String>) -> wire::Status {
    wire::Status { code: code.into(), message: message.into() }
}

/// The status whose text is its own name, as the real proxy writes it at the top of most answers.
pub(super) fn named(code: Code) -> wire::Status {
    status(code, code.as_str_name())
}

/// OK.
pub(super) fn ok() -> wire::Status {
    named(Code::Ok)
}

/// What Java says of an unset reference.
pub(super) fn null_pointer(call: &str, reference: &str) -> wire::Status {
    status(
        Code::InternalServerError,
        format!("Cannot invoke \"{call}\" because \"{reference}\" is null. NullPointerException"),
    )
}

/// A kind of answer that can carry a refusal.
pub(super) trait Answer {
    /// The answer that carries only `status`.
    fn refused(status: wire::Status) -> Self;
}

macro_rules! answers {
    ($($name:ident),+ $(,)?) => {
        $(impl Answer for wire::$name {
            #[allow(clippy::needless_update, reason = "some answers have no other field")]
            fn refused(status: wire::Status) -> Self {
                Self { status: Some(status), ..Self::default() }
            }
        })+
    };
}

answers!(
    QueryRouteResponse,
    HeartbeatResponse,
    SendMessageResponse,
    QueryAssignmentResponse,
    AckMessageResponse,
    ForwardMessageToDeadLetterQueueResponse,
    NotifyClientTerminationResponse,
    ChangeInvisibleDurationResponse,
    RecallMessageResponse,
    SyncLiteSubscriptionResponse,
);
