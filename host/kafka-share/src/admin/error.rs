//! Why an operation failed: what, which group, what to do. Each has an enum of its own; what kept a broker from answering
//! is its source.

use std::fmt;
use std::time::Duration;

use super::calls::Trouble;
use crate::{BootstrapError, BrokerId, CallError, Complaint, ErrorCode, Fault, OpenError};

/// What kept brokers from answering.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReachError {
    /// No server took a connection.
    #[error("{0}")]
    Bootstrap(BootstrapError),
    /// One broker took none.
    #[error("{0}")]
    Open(OpenError),
    /// A call was not answered.
    #[error("{0}")]
    Call(CallError),
    /// The cluster says that a broker is where nobody can be.
    #[error("the cluster gives an address of broker {broker} where nobody can listen")]
    Nowhere {
        /// Which.
        broker: BrokerId,
    },
    /// It was tried again until there was no time left.
    #[error("not done within {waited:?}; last in the way: {obstacle}")]
    Late {
        /// How long it went on.
        waited: Duration,
        /// What was in the way at the end.
        obstacle: Box<str>,
    },
}

impl From<BootstrapError> for ReachError {
    fn from(error: BootstrapError) -> Self {
        Self::Bootstrap(error)
    }
}

impl From<OpenError> for ReachError {
    fn from(error: OpenError) -> Self {
        Self::Open(error)
    }
}

impl From<CallError> for ReachError {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

impl ReachError {
    /// Whose fault it is.
    #[must_use]
    pub fn fault(&self) -> Fault {
        match self {
            Self::Bootstrap(error) => error.fault(),
            Self::Open(error) => error.fault(),
            Self::Call(error) => error.fault(),
            Self::Nowhere { .. } => Fault::Configuration,
            Self::Late { .. } => Fault::Network,
        }
    }

    /// Whether another try can help. That no server takes a connection is told at once: who asks by hand can ask again.
    pub(super) const fn is_retriable(&self) -> bool {
        match self {
            Self::Bootstrap(_) | Self::Late { .. } => false,
            Self::Open(error) => error.is_retriable(),
            Self::Call(error) => error.is_retriable(),
            // The cluster may say another one soon.
            Self::Nowhere { .. } => true,
        }
    }

    /// Whether the broker may have done what was asked, so that nobody knows.
    pub(super) const fn may_have_been_done(&self) -> bool {
        matches!(self, Self::Call(error) if error.may_have_been_done())
    }
}

/// What a right is for, in Kafka's words.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Operation {
    /// To take part, and to move offsets.
    Read,
    /// To see that it is there.
    Describe,
    /// To delete it, or where a group stands.
    Delete,
    /// To see its settings.
    DescribeConfigs,
    /// To change its settings.
    AlterConfigs,
}

/// What a right is to.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Resource {
    /// A group.
    Group(Box<str>),
    /// A topic.
    Topic(Box<str>),
    /// The cluster.
    Cluster,
}

/// A right that the client does not have.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct MissingRight {
    /// What for.
    pub operation: Operation,
    /// To what.
    pub resource: Resource,
}

impl MissingRight {
    pub(super) fn on_group(operation: Operation, group: &str) -> Self {
        Self { operation, resource: Resource::Group(group.into()) }
    }

    pub(super) fn on_topic(operation: Operation, topic: &str) -> Self {
        Self { operation, resource: Resource::Topic(topic.into()) }
    }
}

impl Operation {
    /// As `kafka-acls.sh` takes it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "Read",
            Self::Describe => "Describe",
            Self::Delete => "Delete",
            Self::DescribeConfigs => "DescribeConfigs",
            Self::AlterConfigs => "AlterConfigs",
        }
    }
}

impl fmt::Display for MissingRight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operation = self.operation.name();
        match &self.resource {
            Resource::Group(name) => write!(f, "the client lacks the right {operation} to group `{name}`")?,
            Resource::Topic(name) => write!(f, "the client lacks the right {operation} to topic `{name}`")?,
            Resource::Cluster => write!(f, "the client lacks the right {operation} to the cluster")?,
        }
        write!(f, "; grant it to its user, as with `kafka-acls.sh --add --operation {operation} ")?;
        match &self.resource {
            Resource::Group(name) => write!(f, "--group {name}`"),
            Resource::Topic(name) => write!(f, "--topic {name}`"),
            Resource::Cluster => f.write_str("--cluster`"),
        }
    }
}

/// Share groups were not listed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ListError {
    /// Nobody answered.
    #[error("the share groups of the cluster cannot be listed")]
    Reach(#[source] ReachError),
    /// A broker said no.
    #[error("broker {broker} does not list its share groups: {complaint}{}", advice(complaint))]
    Refused {
        /// Which.
        broker: BrokerId,
        /// What it said.
        complaint: Complaint,
    },
}

/// A group was not described.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DescribeError {
    /// Nobody answered.
    #[error("share group `{group}` cannot be described")]
    Reach {
        /// Which.
        group: Box<str>,
        /// What was in the way.
        #[source]
        reason: ReachError,
    },
    /// A right is missing.
    #[error("share group `{group}` cannot be described: {right}")]
    Denied {
        /// Which.
        group: Box<str>,
        /// The right.
        right: MissingRight,
    },
    /// A topic may not be seen.
    #[error(
        "share group `{group}` cannot be described: its members have topics that the client lacks the right Describe to; \
         grant it to its user, as with `kafka-acls.sh --add --operation Describe --topic NAME`"
    )]
    TopicsDenied {
        /// Which.
        group: Box<str>,
    },
    /// There is none.
    #[error("there is no share group `{group}`{}", words(complaint))]
    NotFound {
        /// Which.
        group: Box<str>,
        /// What the broker said.
        complaint: Complaint,
    },
    /// The broker said no.
    #[error("share group `{group}` cannot be described: {complaint}{}", advice(complaint))]
    Refused {
        /// Which.
        group: Box<str>,
        /// What it said.
        complaint: Complaint,
    },
}

/// Where a group stands was not found out.
#[derive(Clone, Debug, thiserror::Error)]
pub enum OffsetsError {
    /// Nobody answered.
    #[error("the offsets of share group `{group}` cannot be read")]
    Reach {
        /// Which.
        group: Box<str>,
        /// What was in the way.
        #[source]
        reason: ReachError,
    },
    /// A right is missing.
    #[error("the offsets of share group `{group}` cannot be read: {right}")]
    Denied {
        /// Which.
        group: Box<str>,
        /// The right.
        right: MissingRight,
    },
    /// There is none.
    #[error("there is no share group `{group}`{}", words(complaint))]
    NotFound {
        /// Which.
        group: Box<str>,
        /// What the broker said.
        complaint: Complaint,
    },
    /// The broker said no.
    #[error("the offsets of share group `{group}` cannot be read: {complaint}{}", advice(complaint))]
    Refused {
        /// Which.
        group: Box<str>,
        /// What it said.
        complaint: Complaint,
    },
}

/// A group was not set to other offsets.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ResetError {
    /// Nobody answered.
    #[error("share group `{group}` cannot be set to other offsets")]
    Reach {
        /// Which.
        group: Box<str>,
        /// What was in the way.
        #[source]
        reason: ReachError,
    },
    /// A right is missing.
    #[error("share group `{group}` cannot be set to other offsets: {right}")]
    Denied {
        /// Which.
        group: Box<str>,
        /// The right.
        right: MissingRight,
    },
    /// The group has members.
    #[error(
        "share group `{group}` cannot be set to other offsets while somebody is in it{}; stop its members first",
        who(members)
    )]
    NotEmpty {
        /// Which.
        group: Box<str>,
        /// Who, as far as the broker told.
        members: Vec<Box<str>>,
    },
    /// There is nothing that could be set.
    #[error("share group `{group}` has no offsets, and no topic was named: name those to set")]
    NoTopics {
        /// Which.
        group: Box<str>,
    },
    /// There is no such topic or partition, or no offset to be had for it.
    #[error("share group `{group}` cannot be set to other offsets of {place}: {problem}")]
    Place {
        /// Which group.
        group: Box<str>,
        /// The topic, or `topic:partition`.
        place: Box<str>,
        /// What is wrong with it.
        problem: Box<str>,
        /// Whether it is in what was asked for.
        is_usage: bool,
    },
    /// The broker said no.
    #[error("share group `{group}` cannot be set to other offsets: {complaint}{}", advice(complaint))]
    Refused {
        /// Which.
        group: Box<str>,
        /// What it said.
        complaint: Complaint,
    },
}

/// A group did not forget topics.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DeleteOffsetsError {
    /// Nobody answered.
    #[error("the offsets of share group `{group}` cannot be deleted")]
    Reach {
        /// Which.
        group: Box<str>,
        /// What was in the way.
        #[source]
        reason: ReachError,
    },
    /// A right is missing.
    #[error("the offsets of share group `{group}` cannot be deleted: {right}")]
    Denied {
        /// Which.
        group: Box<str>,
        /// The right.
        right: MissingRight,
    },
    /// The group has members.
    #[error(
        "the offsets of share group `{group}` cannot be deleted while somebody is in it{}; stop its members first",
        who(members)
    )]
    NotEmpty {
        /// Which.
        group: Box<str>,
        /// Who, as far as the broker told.
        members: Vec<Box<str>>,
    },
    /// There is none.
    #[error("there is no share group `{group}`{}", words(complaint))]
    NotFound {
        /// Which.
        group: Box<str>,
        /// What the broker said.
        complaint: Complaint,
    },
    /// The broker said no for one topic; the others are done.
    #[error("the offsets of share group `{group}` in topic `{topic}` cannot be deleted: {complaint}")]
    Topic {
        /// Which group.
        group: Box<str>,
        /// Which topic.
        topic: Box<str>,
        /// What it said.
        complaint: Complaint,
    },
    /// The broker said no.
    #[error("the offsets of share group `{group}` cannot be deleted: {complaint}{}", advice(complaint))]
    Refused {
        /// Which.
        group: Box<str>,
        /// What it said.
        complaint: Complaint,
    },
}

/// A group was not deleted.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DeleteGroupError {
    /// Nobody answered.
    #[error("share group `{group}` cannot be deleted")]
    Reach {
        /// Which.
        group: Box<str>,
        /// What was in the way.
        #[source]
        reason: ReachError,
    },
    /// A right is missing.
    #[error("share group `{group}` cannot be deleted: {right}")]
    Denied {
        /// Which.
        group: Box<str>,
        /// The right.
        right: MissingRight,
    },
    /// The group has members.
    #[error(
        "share group `{group}` cannot be deleted while somebody is in it{}; stop its members first",
        who(members)
    )]
    NotEmpty {
        /// Which.
        group: Box<str>,
        /// Who, as far as the broker told.
        members: Vec<Box<str>>,
    },
    /// There is none.
    #[error("there is no share group `{group}`{}", words(complaint))]
    NotFound {
        /// Which.
        group: Box<str>,
        /// What the broker said.
        complaint: Complaint,
    },
    /// The broker said no.
    #[error("share group `{group}` cannot be deleted: {complaint}{}", advice(complaint))]
    Refused {
        /// Which.
        group: Box<str>,
        /// What it said.
        complaint: Complaint,
    },
}

/// How a group is configured was not found out.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ConfigurationError {
    /// Nobody answered.
    #[error("the settings of share group `{group}` cannot be read")]
    Reach {
        /// Which.
        group: Box<str>,
        /// What was in the way.
        #[source]
        reason: ReachError,
    },
    /// A right is missing.
    #[error("the settings of share group `{group}` cannot be read: {right}")]
    Denied {
        /// Which.
        group: Box<str>,
        /// The right.
        right: MissingRight,
    },
    /// The broker said no.
    #[error("the settings of share group `{group}` cannot be read: {complaint}{}", advice(complaint))]
    Refused {
        /// Which.
        group: Box<str>,
        /// What it said.
        complaint: Complaint,
    },
}

/// A group was not configured.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ConfigureError {
    /// Nobody answered.
    #[error("share group `{group}` cannot be configured")]
    Reach {
        /// Which.
        group: Box<str>,
        /// What was in the way.
        #[source]
        reason: ReachError,
    },
    /// A right is missing.
    #[error("share group `{group}` cannot be configured: {right}")]
    Denied {
        /// Which.
        group: Box<str>,
        /// The right.
        right: MissingRight,
    },
    /// The broker has no such setting, or takes no such value.
    #[error("share group `{group}` was not configured: {reason}")]
    Invalid {
        /// Which.
        group: Box<str>,
        /// What it said.
        reason: Box<str>,
    },
    /// The broker said no.
    #[error("share group `{group}` cannot be configured: {complaint}{}", advice(complaint))]
    Refused {
        /// Which.
        group: Box<str>,
        /// What it said.
        complaint: Complaint,
    },
}

/// Each error of an operation on a group is made of what is in the way of all of them.
macro_rules! of_group {
    ($($error:ident: $operation:ident),+ $(,)?) => {
        $(impl $error {
            /// What is in the way of any operation; `Err` gives back what is only of this one.
            pub(super) fn common(group: &str, trouble: Trouble) -> Result<Self, (Complaint, bool)> {
                let group = group.into();
                match trouble {
                    Trouble::Reach(reason) => Ok(Self::Reach { group, reason }),
                    Trouble::Denied(right) => Ok(Self::Denied { group, right }),
                    Trouble::Said { complaint, .. }
                        if complaint.code == ErrorCode::GROUP_AUTHORIZATION_FAILED =>
                    {
                        let right = MissingRight::on_group(Operation::$operation, &group);
                        Ok(Self::Denied { group, right })
                    }
                    Trouble::Said { complaint, is_repeat } => Err((complaint, is_repeat)),
                }
            }
        })+
    };
}

of_group! {
    DescribeError: Describe,
    OffsetsError: Describe,
    ResetError: Read,
    DeleteOffsetsError: Delete,
    DeleteGroupError: Delete,
    ConfigurationError: DescribeConfigs,
    ConfigureError: AlterConfigs,
}

macro_rules! faults {
    ($($error:ident($usage:pat)),+ $(,)?) => {
        $(impl $error {
            /// Whose fault it is.
            #[must_use]
            pub fn fault(&self) -> Fault {
                match self {
                    Self::Reach { reason, .. } => reason.fault(),
                    Self::Denied { .. } => Fault::Access,
                    $usage => Fault::Configuration,
                    _ => Fault::Broker,
                }
            }
        })+
    };
}

faults! {
    OffsetsError(Self::NotFound { .. }),
    ResetError(Self::NoTopics { .. } | Self::Place { is_usage: true, .. }),
    DeleteOffsetsError(Self::NotFound { .. }),
    DeleteGroupError(Self::NotFound { .. }),
    ConfigureError(Self::Invalid { .. }),
}

impl ListError {
    /// Whose fault it is.
    #[must_use]
    pub fn fault(&self) -> Fault {
        match self {
            Self::Reach(reason) => reason.fault(),
            Self::Refused { .. } => Fault::Broker,
        }
    }
}

impl DescribeError {
    /// Whose fault it is.
    #[must_use]
    pub fn fault(&self) -> Fault {
        match self {
            Self::Reach { reason, .. } => reason.fault(),
            Self::Denied { .. } | Self::TopicsDenied { .. } => Fault::Access,
            Self::NotFound { .. } => Fault::Configuration,
            Self::Refused { .. } => Fault::Broker,
        }
    }
}

impl ConfigurationError {
    /// Whose fault it is.
    #[must_use]
    pub fn fault(&self) -> Fault {
        match self {
            Self::Reach { reason, .. } => reason.fault(),
            Self::Denied { .. } => Fault::Access,
            Self::Refused { .. } => Fault::Broker,
        }
    }
}

/// What to do about what a broker said, where that is known.
fn advice(complaint: &Complaint) -> &'static str {
    match complaint.code {
        ErrorCode::UNSUPPORTED_VERSION => {
            "; the cluster has share groups switched off: `kafka-features.sh upgrade --feature share.version=1` switches \
             them on"
        }
        _ => "",
    }
}

/// The broker's own words, to follow a sentence.
fn words(complaint: &Complaint) -> String {
    complaint.message.as_deref().map(|message| format!(" (the broker says: {message})")).unwrap_or_default()
}

/// Most members that a sentence names.
const NAMED_MAX: usize = 5;

fn who(members: &[Box<str>]) -> String {
    if members.is_empty() {
        return String::new();
    }
    let named: Vec<_> = members.iter().take(NAMED_MAX).map(|member| &**member).collect();
    let more = match members.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(" ({}{more})", named.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_right_is_for_is_told_with_how_to_give_it() {
        let right = MissingRight::on_group(Operation::Delete, "g");
        assert_eq!(
            right.to_string(),
            "the client lacks the right Delete to group `g`; grant it to its user, as with `kafka-acls.sh --add \
             --operation Delete --group g`"
        );
    }

    #[test]
    fn members_are_named_up_to_a_number() {
        let members: Vec<Box<str>> = (1..=7).map(|n| format!("m{n}").into()).collect();
        let error = DeleteGroupError::NotEmpty { group: "g".into(), members };
        assert_eq!(
            error.to_string(),
            "share group `g` cannot be deleted while somebody is in it (m1, m2, m3, m4, m5 and 2 more); stop its \
             members first"
        );
        let error = DeleteGroupError::NotEmpty { group: "g".into(), members: Vec::new() };
        assert!(error.to_string().contains("in it; stop"), "{error}");
    }
}
