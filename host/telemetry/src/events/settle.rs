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

/// Settlements of one verb that ended alike.
#[derive(Clone, Copy, Debug)]
pub struct Tally<'a> {
    /// What was asked for.
    pub verb: &'static str,
    /// How it ended.
    pub result: SettleResult,
    /// How many of them.
    pub count: u64,
    /// What was said about the first of them that failed.
    pub error: Option<&'a SettleError>,
}

/// Adds up settlements by verb and result, in the order in which each came first. An outcome comes with how many had it.
pub fn tally<'a, T: 'a>(
    outcomes: impl Iterator<Item = (&'static str, &'a Result<T, SettleError>, u64)>,
) -> Vec<Tally<'a>> {
    let mut tallies: Vec<Tally<'a>> = Vec::new();
    for (verb, outcome, count) in outcomes {
        let result = SettleResult::of(outcome);
        match tallies.iter_mut().find(|tally| (tally.verb, tally.result) == (verb, result)) {
            Some(tally) => tally.count += count,
            None => tallies.push(Tally { verb, result, count, error: outcome.as_ref().err() }),
        }
    }
    tallies
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
