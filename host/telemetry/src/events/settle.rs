//! How settlements end, whatever the broker.

use tidegate_model::{SettleError, SettleFault};

use crate::metrics::words;

words!(SettleResult);

/// How a settlement ended.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum SettleResult {
    /// The broker took it.
    Ok,
    /// The lease had run out.
    LeaseGone,
    /// The broker or the road to it.
    Broker,
    /// It is refused.
    Refused,
}

impl SettleResult {
    /// How a settler's answer counts.
    #[must_use]
    pub const fn of<T>(result: &Result<T, SettleError>) -> Self {
        match result {
            Ok(_) => Self::Ok,
            Err(error) => match error.fault {
                SettleFault::LeaseGone => Self::LeaseGone,
                SettleFault::Broker => Self::Broker,
                SettleFault::Refused => Self::Refused,
            },
        }
    }
}
