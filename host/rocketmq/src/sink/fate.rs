//! What became of one message that was to be sent, and what that means for it and for others.

use tidegate_proto::rocketmq::Code;

use crate::fault::{CallError, Reason};
use crate::producer::{SendError, Sent};

/// The code of what we refuse by ourselves.
pub(super) const INVALID: &str = "INVALID";
/// The code of a failure without an answer.
pub(super) const NO_ANSWER: &str = "NO_ANSWER";

/// What became of a message.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Fate {
    /// The broker has stored it.
    Sent,
    /// It can never be sent as it is.
    Refused { code: &'static str, detail: String },
    /// It could not be sent now.
    Failed {
        code: &'static str,
        detail: String,
        /// Whether others are likely to fail as well, not only those of its lane.
        concerns_all: bool,
    },
}

impl Fate {
    pub(super) fn of(result: &Result<Sent, SendError>) -> Self {
        match result {
            Ok(_) => Self::Sent,
            Err(error @ SendError::Invalid { .. }) => {
                Self::Refused { code: INVALID, detail: error.to_string() }
            }
            // Whoever configured the sink chose the topic: no message is to blame.
            Err(error @ SendError::WrongKind { .. }) => {
                let code = Code::MessagePropertyConflictWithType.as_str_name();
                Self::Failed { code, detail: error.to_string(), concerns_all: true }
            }
            Err(SendError::Failed { source, attempts, .. }) => Self::of_call(source, *attempts),
        }
    }

    /// Whether a server refused it, perhaps for another message of its request.
    pub(super) fn is_by_server(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if *code != INVALID)
    }

    fn of_call(error: &CallError, attempts: u32) -> Self {
        let code = error.code_name().unwrap_or(NO_ANSWER);
        if is_about_the_message(error) {
            return Self::Refused { code, detail: error.to_string() };
        }
        let concerns_all =
            !matches!(error.reason(), Reason::LiteTopicQuota | Reason::Refused | Reason::Malformed);
        let after = if attempts > 1 { format!(" after {attempts} attempts") } else { String::new() };
        Self::Failed { code, detail: format!("{error}{after}"), concerns_all }
    }
}

/// Whether the server finds fault with the message itself. Of a code that is not known the message is not blamed: given
/// back it may be sent one day, rejected it is gone.
fn is_about_the_message(error: &CallError) -> bool {
    let code = error.code().and_then(|code| Code::try_from(code).ok());
    error.reason() == Reason::TooLarge
        || matches!(
            code,
            Some(
                Code::IllegalMessageTag
                    | Code::IllegalMessageKey
                    | Code::IllegalMessageGroup
                    | Code::IllegalMessagePropertyKey
                    | Code::IllegalDeliveryTime
                    | Code::IllegalLiteTopic
                    | Code::MessageCorrupted
                    | Code::PayloadTooLarge
                    | Code::MessageBodyEmpty
            )
        )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::fault::{Method, Subject};
    use crate::options::OptionNames;
    use crate::outgoing::InvalidMessage;

    #[test]
    fn what_the_message_is_to_blame_for_is_refused_by_name() {
        for (code, name) in [
            (40_004, "ILLEGAL_MESSAGE_TAG"),
            (40_007, "ILLEGAL_MESSAGE_PROPERTY_KEY"),
            (40_020, "ILLEGAL_LITE_TOPIC"),
            (41_301, "MESSAGE_BODY_TOO_LARGE"),
            (43_101, "MESSAGE_PROPERTIES_TOO_LARGE"),
        ] {
            let fate = answered(code, "no");
            assert!(fate.is_by_server());
            let Fate::Refused { code, detail } = fate else { panic!("{code}") };
            assert_eq!(code, name);
            assert!(detail.contains(name), "{detail}");
        }
        let invalid = SendError::Invalid { topic: "T".into(), problem: InvalidMessage::EmptyBody };
        let fate = Fate::of(&Err(invalid));
        assert!(matches!(fate, Fate::Refused { code: INVALID, .. }) && !fate.is_by_server());
    }

    #[test]
    fn a_quota_concerns_its_lite_topic_and_a_broker_that_is_down_concerns_all() {
        for (code, text, name, all) in [
            (42_901, "too many", "LITE_TOPIC_QUOTA_EXCEEDED", false),
            (40_000, "odd", "BAD_REQUEST", false),
            (42_900, "slow down", "TOO_MANY_REQUESTS", true),
            (40_100, "no", "UNAUTHORIZED", true),
            (40_402, "gone", "TOPIC_NOT_FOUND", true),
            (50_001, "RemotingConnectException", "INTERNAL_SERVER_ERROR", true),
        ] {
            let fate = answered(code, text);
            let Fate::Failed { code, detail, concerns_all } = fate else { panic!("{code}") };
            assert_eq!((code, concerns_all), (name, all));
            assert!(detail.contains(name) && detail.ends_with("after 3 attempts"), "{detail}");
        }
    }

    #[test]
    fn a_failure_without_an_answer_has_a_code_of_its_own() {
        let error = CallError::other(&subject(), Method::SendMessage, Reason::Unreachable, "refused");
        let fate = failed(error);
        assert!(matches!(fate, Fate::Failed { code: NO_ANSWER, concerns_all: true, .. }), "{fate:?}");
    }

    fn answered(code: i32, text: &str) -> Fate {
        failed(CallError::answered(&subject(), Method::SendMessage, code, text))
    }

    fn failed(source: CallError) -> Fate {
        Fate::of(&Err(SendError::Failed { topic: "T".into(), attempts: 3, source }))
    }

    fn subject() -> Subject {
        Subject {
            access_point: "a:1".into(),
            endpoint: Some("a:1".into()),
            topic: Some(Arc::from("T")),
            group: None,
            topic_kind: None,
            names: &OptionNames::KEYS,
        }
    }
}
