//! The first connection to a cluster: to whichever of several servers takes it.

use std::fmt;

use super::address::{BootstrapServers, BrokerAddress};
use super::error::{Fault, OpenError};
use super::{Connection, Connector};

/// None of the servers can be used.
#[derive(Clone, Debug)]
pub struct BootstrapError {
    failures: Vec<OpenError>,
    untried: Vec<BrokerAddress>,
}

impl Connector {
    /// Opens a connection to one of `servers`, tried one after the other in an order that `seed` gives. Each try has the
    /// deadline of opening a connection. Credentials that one server refused are not shown to the others: brokers of a
    /// cluster know the same users, and some lock out who errs too often.
    ///
    /// # Errors
    /// When none of them can be used: with all that was tried.
    pub async fn open_any(
        &self,
        servers: &BootstrapServers,
        seed: u64,
    ) -> Result<Connection, BootstrapError> {
        let mut failures = Vec::new();
        let mut servers = servers.shuffled(seed).into_iter();
        for address in servers.by_ref() {
            match self.open(address).await {
                Ok(connection) => return Ok(connection),
                Err(error) => {
                    let is_final = error.fault() == Fault::Access;
                    failures.push(error);
                    if is_final {
                        break;
                    }
                }
            }
        }
        Err(BootstrapError { failures, untried: servers.cloned().collect() })
    }
}

impl BootstrapError {
    /// What was tried, in that order.
    #[must_use]
    pub fn failures(&self) -> &[OpenError] {
        &self.failures
    }

    /// Those that were not tried.
    #[must_use]
    pub fn untried(&self) -> &[BrokerAddress] {
        &self.untried
    }

    /// Whose fault it is: what somebody must change comes before what passes by itself.
    #[must_use]
    pub fn fault(&self) -> Fault {
        let faults = self.failures.iter().map(OpenError::fault);
        faults
            .max_by_key(|fault| match fault {
                Fault::Network => 0,
                Fault::Broker => 1,
                Fault::Configuration => 2,
                Fault::Access => 3,
            })
            .unwrap_or(Fault::Network)
    }

    /// Whether waiting alone can help.
    #[must_use]
    pub fn is_retriable(&self) -> bool {
        self.failures.iter().any(OpenError::is_retriable)
    }
}

impl fmt::Display for BootstrapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let ([only], []) = (&self.failures[..], &self.untried[..]) {
            return only.fmt(f);
        }
        let total = self.failures.len() + self.untried.len();
        write!(f, "none of the {total} bootstrap servers can be used")?;
        for (at, failure) in self.failures.iter().enumerate() {
            let mark = if at == 0 { ':' } else { ',' };
            write!(f, "{mark} ({}) {}: {}", at + 1, failure.address(), failure.reason())?;
        }
        if !self.untried.is_empty() {
            let untried: Vec<_> = self.untried.iter().map(ToString::to_string).collect();
            write!(f, "; not tried with these credentials: {}", untried.join(", "))?;
        }
        Ok(())
    }
}

impl std::error::Error for BootstrapError {}
