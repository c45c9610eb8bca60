//! Why an acknowledgement had no effect.

use crate::ErrorCode;

/// Why a broker does not know what it was to be told about a record. The record comes again, unless its delivery limit is
/// reached.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum AcknowledgeError {
    /// The record's lock had run out, the record was settled already, or another member has it by now.
    #[error("the record's lock is over, or it was settled before")]
    LeaseEnded,
    /// Another renewal of it is under way.
    #[error("it is being renewed already")]
    RenewalUnderWay,
    /// The connection that the record was acquired on broke: the broker gives out anew what it was not told about.
    #[error("the connection to the broker was lost, and the record's lock with it")]
    ConnectionLost,
    /// Another broker leads the partition now, and the locks of the former leader are gone.
    #[error("the partition has another leader, and the record's lock is gone ({code})")]
    LeaderMoved {
        /// What the broker said.
        code: ErrorCode,
    },
    /// The topic was deleted.
    #[error("the topic is gone ({code})")]
    TopicGone {
        /// What the broker said.
        code: ErrorCode,
    },
    /// No right to the group or the topic.
    #[error("no right to acknowledge: {code}{}", text(message))]
    Access {
        /// What the broker said.
        code: ErrorCode,
        /// In its words.
        message: Option<Box<str>>,
    },
    /// Locks cannot be renewed: the group's `share.renew.acknowledge.enable` is off, or the broker is older than 4.2.
    #[error("this group's locks cannot be renewed")]
    NotRenewable,
    /// The broker could not store it, and repeating did not help.
    #[error("the broker could not take it: {code}{}", text(message))]
    Broker {
        /// What the broker said.
        code: ErrorCode,
        /// In its words.
        message: Option<Box<str>>,
    },
    /// The broker says that the request is wrong.
    #[error("the broker refused it: {code}{}", text(message))]
    Refused {
        /// What the broker said.
        code: ErrorCode,
        /// In its words.
        message: Option<Box<str>>,
    },
    /// The member is closed.
    #[error("the member has left")]
    Closed,
}

impl AcknowledgeError {
    /// What a broker's answer for one partition means, once repeating it was of no use.
    pub(crate) fn of(code: ErrorCode, message: Option<&str>) -> Self {
        let words = || message.map(Into::into);
        match code {
            // Kafka has one code for both; only the words differ (measured on 4.3.1).
            ErrorCode::INVALID_RECORD_STATE if message.is_some_and(|text| text.contains("not enabled")) => {
                Self::NotRenewable
            }
            ErrorCode::INVALID_RECORD_STATE => Self::LeaseEnded,
            ErrorCode::UNKNOWN_TOPIC_ID => Self::TopicGone { code },
            // A share partition that is not loaded here: its former leader says so (measured on 4.3.1).
            ErrorCode::UNKNOWN_TOPIC_OR_PARTITION => Self::LeaderMoved { code },
            code if code.is_about_leader() => Self::LeaderMoved { code },
            ErrorCode::TOPIC_AUTHORIZATION_FAILED | ErrorCode::GROUP_AUTHORIZATION_FAILED => {
                Self::Access { code, message: words() }
            }
            ErrorCode::INVALID_REQUEST | ErrorCode::UNSUPPORTED_VERSION => {
                Self::Refused { code, message: words() }
            }
            _ => Self::Broker { code, message: words() },
        }
    }

    /// Whether the record's lock is gone, so that nothing more can be said about this delivery.
    #[must_use]
    pub const fn is_lease_gone(&self) -> bool {
        !matches!(self, Self::RenewalUnderWay | Self::NotRenewable)
    }
}

fn text(message: &Option<Box<str>>) -> String {
    message.as_deref().map(|message| format!(", {message}")).unwrap_or_default()
}
