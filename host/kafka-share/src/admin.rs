//! Share groups seen from outside: listed, described, set to other offsets, configured, deleted, and found out about.
//!
//! [`ShareGroupAdmin`] asks as few brokers as it needs, one request after the other, each operation within a deadline of
//! its own. A coordinator that is only beginning, or has moved (14, 15, 16), is looked for again until then. It always
//! asks for the *group's* coordinator: that of share state is the brokers' own affair.

mod calls;
mod configuration;
mod deletion;
mod description;
mod diagnosis;
mod error;
mod listing;
mod offsets;
mod positions;
mod reset;
mod topics;

use std::collections::HashMap;
use std::time::Duration;

pub use configuration::{GroupConfiguration, GroupSetting, SettingChange, SettingSource};
pub use description::{AssignedTopic, GroupDescription, MemberDescription};
pub use diagnosis::{Cause, Expectation, Finding, Severity};
pub use error::{
    ConfigurationError, ConfigureError, DeleteGroupError, DeleteOffsetsError, DescribeError, ListError,
    MissingRight, OffsetsError, Operation, ReachError, ResetError, Resource,
};
pub use listing::ListedGroup;
pub use offsets::{PartitionOffset, TopicOffsets};
pub use reset::{Move, Position, ResetPlan, ResetTarget};

use crate::{BootstrapServers, BrokerId, Connection, Connector};

/// How long an administrator waits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct AdminOptions {
    /// For one operation as a whole, with all that is tried again. On a fresh cluster the first question after a group
    /// makes a topic, which took 2.3 s when measured.
    pub timeout: Duration,
    /// For one answer.
    pub request_timeout: Duration,
}

impl Default for AdminOptions {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(30), request_timeout: Duration::from_secs(10) }
    }
}

/// Looks at share groups and changes them. Needs no group of its own and joins none.
#[derive(Debug)]
pub struct ShareGroupAdmin {
    connector: Connector,
    bootstrap: BootstrapServers,
    options: AdminOptions,
    /// Of the order in which servers are tried.
    seed: u64,
    /// To whichever of the bootstrap servers took it.
    any: Option<Connection>,
    brokers: HashMap<BrokerId, Connection>,
}

impl ShareGroupAdmin {
    /// Opens no connection yet. `seed` gives the order in which servers are tried.
    #[must_use]
    pub fn new(connector: Connector, bootstrap: BootstrapServers, options: AdminOptions, seed: u64) -> Self {
        Self { connector, bootstrap, options, seed, any: None, brokers: HashMap::new() }
    }

    /// Takes leave of all brokers. To drop it ends the connections as well, without a word.
    pub async fn close(self) {
        for connection in self.any.into_iter().chain(self.brokers.into_values()) {
            connection.close().await;
        }
    }
}

/// An error with its sources.
pub(crate) fn told(error: &dyn std::error::Error) -> Box<str> {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text.into()
}
