//! What a failed call means: whose fault it is, what to do, and the sentence that says so.
//!
//! Servers answer with a status in the body, with a gRPC status, or not at all. [`reason`] sorts all three into one
//! [`Reason`]; a [`CallError`] adds where it happened and the advice.

mod reason;
mod subject;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use reason::Reason;
pub(crate) use reason::{of_grpc, of_status};
pub(crate) use subject::{Subject, bind_group};
use tidegate_connector::ReceiveFault;
use tidegate_model::SettleFault;
use tidegate_proto::rocketmq as proto;

use crate::wire::Finding;

/// One call that failed. Its text is one sentence: what was tried, where, what came back, what to do.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("cannot {action}: {said}{advice} (access point {access_point}{})", route_endpoint(endpoint.as_deref()))]
pub struct CallError {
    method: Method,
    reason: Reason,
    code: Option<i32>,
    action: Box<str>,
    said: Box<str>,
    advice: Box<str>,
    access_point: Arc<str>,
    endpoint: Option<Arc<str>>,
}

/// The calls of the protocol.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[allow(missing_docs, reason = "the protocol's own names")]
pub enum Method {
    QueryRoute,
    Telemetry,
    Heartbeat,
    SyncLiteSubscription,
    ReceiveMessage,
    AckMessage,
    ChangeInvisibleDuration,
    ForwardMessageToDeadLetterQueue,
    SendMessage,
    NotifyClientTermination,
}

impl CallError {
    /// A status in the body of an answer.
    pub(crate) fn answered(subject: &Subject, method: Method, code: i32, text: &str) -> Self {
        let name =
            proto::Code::try_from(code).map(|code| format!(" {}", code.as_str_name())).unwrap_or_default();
        let said = format!("the server answered {code}{name} `{}`", brief(text));
        Self::new(subject, method, of_status(method, code, text), Some(code), said)
    }

    /// A gRPC status, explained by what the connection saw, if it saw something.
    pub(crate) fn failed(
        subject: &Subject,
        method: Method,
        status: &tonic::Status,
        finding: &Finding,
    ) -> Self {
        let reason = of_grpc(status.code(), status.message(), finding);
        let said = match finding.sentence() {
            Some(found) if reason.is_about_the_road() => found,
            _ if reason == Reason::TimedOut => "no answer within the deadline".to_owned(),
            _ => {
                let cause = root_cause(status);
                format!("the call failed with {:?} `{}`", status.code(), brief(&cause))
            }
        };
        Self::new(subject, method, reason, None, said)
    }

    /// Nothing came within `deadline`.
    pub(crate) fn timed_out(
        subject: &Subject,
        method: Method,
        deadline: Duration,
        finding: &Finding,
    ) -> Self {
        let reason = finding.reason().unwrap_or(Reason::TimedOut);
        let said = finding.sentence().unwrap_or_else(|| format!("no answer within {deadline:?}"));
        Self::new(subject, method, reason, None, said)
    }

    /// Something else, in words.
    pub(crate) fn other(subject: &Subject, method: Method, reason: Reason, said: impl Into<String>) -> Self {
        Self::new(subject, method, reason, None, said.into())
    }

    /// Which call it was.
    #[must_use]
    pub const fn method(&self) -> Method {
        self.method
    }

    /// What it means.
    #[must_use]
    pub const fn reason(&self) -> Reason {
        self.reason
    }

    /// The status code of the answer, when there was an answer.
    #[must_use]
    pub const fn code(&self) -> Option<i32> {
        self.code
    }

    /// The protocol's name of that code, such as `LITE_TOPIC_QUOTA_EXCEEDED`, when it is known.
    #[must_use]
    pub fn code_name(&self) -> Option<&'static str> {
        proto::Code::try_from(self.code?).ok().map(|code| code.as_str_name())
    }

    /// Whose fault a failed receive is. `started` tells whether the subscription has worked before: then a server
    /// that does not know its topic or group any more is in trouble, not misconfigured.
    pub(crate) const fn receive_fault(&self, started: bool) -> ReceiveFault {
        match self.reason {
            Reason::Throttled => ReceiveFault::Throttled,
            Reason::Access => ReceiveFault::Access,
            Reason::TopicUnknown | Reason::GroupUnknown if started => ReceiveFault::Broker,
            reason if reason.is_about_the_subscription() => ReceiveFault::Subscription,
            Reason::Refused => ReceiveFault::Subscription,
            _ => ReceiveFault::Broker,
        }
    }

    /// Whose fault a failed settlement is.
    pub(crate) const fn settle_fault(&self) -> SettleFault {
        match self.reason {
            Reason::HandleGone => SettleFault::LeaseGone,
            Reason::Refused | Reason::Access => SettleFault::Refused,
            reason if reason.is_about_the_subscription() && !reason.may_be_a_negative_cache() => {
                SettleFault::Refused
            }
            _ => SettleFault::Broker,
        }
    }

    fn new(subject: &Subject, method: Method, reason: Reason, code: Option<i32>, said: String) -> Self {
        let advice = subject.advice(method, reason).map(|advice| format!("; {advice}")).unwrap_or_default();
        Self {
            method,
            reason,
            code,
            action: subject.action(method).into(),
            said: said.into(),
            advice: advice.into(),
            access_point: Arc::clone(&subject.access_point),
            endpoint: subject.endpoint.clone(),
        }
    }
}

impl Method {
    /// The protocol's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::QueryRoute => "QueryRoute",
            Self::Telemetry => "Telemetry",
            Self::Heartbeat => "Heartbeat",
            Self::SyncLiteSubscription => "SyncLiteSubscription",
            Self::ReceiveMessage => "ReceiveMessage",
            Self::AckMessage => "AckMessage",
            Self::ChangeInvisibleDuration => "ChangeInvisibleDuration",
            Self::ForwardMessageToDeadLetterQueue => "ForwardMessageToDeadLetterQueue",
            Self::SendMessage => "SendMessage",
            Self::NotifyClientTermination => "NotifyClientTermination",
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

fn route_endpoint(endpoint: Option<&str>) -> String {
    endpoint.map(|endpoint| format!(", route endpoint {endpoint}")).unwrap_or_default()
}

/// Servers put whole Java stack traces into statuses: the first line, and not all of that, is enough for a sentence.
fn brief(text: &str) -> String {
    const CHARS_MAX: usize = 240;
    let line = text.lines().next().unwrap_or_default().trim();
    let mut brief: String = line.chars().take(CHARS_MAX).collect();
    if brief.len() < line.len() {
        brief.push_str("...");
    }
    brief
}

/// The innermost cause says most: the outer ones are `transport error` and the like.
fn root_cause(status: &tonic::Status) -> String {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = std::error::Error::source(status);
    let mut text = status.message().to_owned();
    while let Some(error) = cause {
        text = error.to_string();
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests;
