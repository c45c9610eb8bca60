//! Kafka's error codes, as far as a share group's member meets them.

use std::fmt;

/// An error code as a broker sent it; codes without a name are kept as they are.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct ErrorCode(pub i16);

macro_rules! codes {
    ($($(#[$doc:meta])* $constant:ident = $code:literal),+ $(,)?) => {
        impl ErrorCode {
            $($(#[$doc])* pub const $constant: Self = Self($code);)+

            /// Kafka's name of it, where this client has a use for one.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($code => Some(stringify!($constant)),)+
                    _ => None,
                }
            }
        }
    };
}

codes! {
    /// Something that the broker has no code for. On a share session: a topic of the session was deleted (measured on 4.3.1).
    UNKNOWN_SERVER_ERROR = -1,
    /// No error.
    NONE = 0,
    /// A record batch is damaged.
    CORRUPT_MESSAGE = 2,
    /// The partition does not exist, or its share partition is not loaded here.
    UNKNOWN_TOPIC_OR_PARTITION = 3,
    /// There is no leader at the moment.
    LEADER_NOT_AVAILABLE = 5,
    /// Another broker leads the partition.
    NOT_LEADER_OR_FOLLOWER = 6,
    /// The broker waited for others in vain.
    REQUEST_TIMED_OUT = 7,
    /// The coordinator is being loaded.
    COORDINATOR_LOAD_IN_PROGRESS = 14,
    /// There is no coordinator at the moment; on a partition: its state cannot be stored at the moment.
    COORDINATOR_NOT_AVAILABLE = 15,
    /// Another broker is the coordinator.
    NOT_COORDINATOR = 16,
    /// A topic's name cannot be one.
    INVALID_TOPIC_EXCEPTION = 17,
    /// A group id cannot be one.
    INVALID_GROUP_ID = 24,
    /// The member is not, or no longer, in the group.
    UNKNOWN_MEMBER_ID = 25,
    /// No right to the topic.
    TOPIC_AUTHORIZATION_FAILED = 29,
    /// No right to the group.
    GROUP_AUTHORIZATION_FAILED = 30,
    /// No right to the cluster.
    CLUSTER_AUTHORIZATION_FAILED = 31,
    /// The broker does not offer the SASL mechanism.
    UNSUPPORTED_SASL_MECHANISM = 33,
    /// A request came before its time, such as one before authentication.
    ILLEGAL_SASL_STATE = 34,
    /// The version is not known; as an answer of a share API: the cluster has share groups switched off.
    UNSUPPORTED_VERSION = 35,
    /// The topic exists already.
    TOPIC_ALREADY_EXISTS = 36,
    /// A configuration value is out of range.
    INVALID_CONFIG = 40,
    /// The request contradicts itself.
    INVALID_REQUEST = 42,
    /// The broker's disk.
    KAFKA_STORAGE_ERROR = 56,
    /// Wrong credentials.
    SASL_AUTHENTICATION_FAILED = 58,
    /// The group has members.
    NON_EMPTY_GROUP = 68,
    /// There is no such group.
    GROUP_ID_NOT_FOUND = 69,
    /// The client knows an older leader.
    FENCED_LEADER_EPOCH = 74,
    /// The broker knows an older leader.
    UNKNOWN_LEADER_EPOCH = 75,
    /// The group is full.
    GROUP_MAX_SIZE_REACHED = 81,
    /// There is no topic with this id.
    UNKNOWN_TOPIC_ID = 100,
    /// The member's epoch is not the group's.
    FENCED_MEMBER_EPOCH = 110,
    /// The record is not acquired by this member.
    INVALID_RECORD_STATE = 121,
    /// The broker has no share session of this member.
    SHARE_SESSION_NOT_FOUND = 122,
    /// The share session is at another epoch.
    INVALID_SHARE_SESSION_EPOCH = 123,
    /// The share state is at another epoch.
    FENCED_STATE_EPOCH = 124,
    /// The broker has as many share sessions as it may.
    SHARE_SESSION_LIMIT_REACHED = 133,
}

impl ErrorCode {
    /// Whether there is none.
    #[must_use]
    pub const fn is_ok(self) -> bool {
        self.0 == Self::NONE.0
    }

    /// Whether the broker says that it does not lead the partition, or not as this client thinks.
    #[must_use]
    pub const fn is_about_leader(self) -> bool {
        matches!(
            self,
            Self::NOT_LEADER_OR_FOLLOWER
                | Self::FENCED_LEADER_EPOCH
                | Self::UNKNOWN_LEADER_EPOCH
                | Self::LEADER_NOT_AVAILABLE
        )
    }

    /// Whether the share session must be opened anew.
    #[must_use]
    pub const fn is_about_session(self) -> bool {
        matches!(
            self,
            Self::SHARE_SESSION_NOT_FOUND
                | Self::INVALID_SHARE_SESSION_EPOCH
                | Self::SHARE_SESSION_LIMIT_REACHED
        )
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name} ({})", self.0),
            None => write!(f, "error {}", self.0),
        }
    }
}
