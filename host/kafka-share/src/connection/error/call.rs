//! Why a call failed.

use std::time::Duration;

use kafka_wire_core::EncodeError;

use super::{Fault, OpenError};
use crate::connection::address::BrokerAddress;
use crate::connection::versions::VersionError;
use crate::wire::AnswerError;

/// A call failed. Its text is one sentence: what was asked, where, what happened, what to do.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{api} to {address} failed: {problem}")]
pub struct CallError {
    address: BrokerAddress,
    api: &'static str,
    problem: CallProblem,
}

/// What kept a call from being answered.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CallProblem {
    /// The connection had ended before: by an error, or because a call was given up before its answer came.
    #[error("the connection had ended: {0}")]
    Ended(Box<str>),
    /// The broker and this client have no version in common.
    #[error("{0}")]
    Version(VersionError),
    /// The request says something that its version cannot say.
    #[error("the request cannot be written: {0}")]
    Request(EncodeError),
    /// The connection had to prove itself anew, and did not.
    #[error("authentication had to be renewed: {}", .0.reason())]
    Authentication(Box<OpenError>),
    /// No answer came in time.
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    /// The server closed the connection.
    #[error("the server closed the connection{}", .advice.as_deref().unwrap_or_default())]
    Closed {
        /// What that may mean.
        advice: Option<Box<str>>,
    },
    /// The connection broke.
    #[error("the connection broke ({0})")]
    Broken(Box<str>),
    /// The answer cannot be used.
    #[error("{0}")]
    Answer(AnswerError),
}

impl CallError {
    pub(in crate::connection) const fn new(
        address: BrokerAddress,
        api: &'static str,
        problem: CallProblem,
    ) -> Self {
        Self { address, api, problem }
    }

    /// Whom was asked.
    #[must_use]
    pub const fn address(&self) -> &BrokerAddress {
        &self.address
    }

    /// What was asked.
    #[must_use]
    pub const fn api(&self) -> &'static str {
        self.api
    }

    /// What happened.
    #[must_use]
    pub const fn problem(&self) -> &CallProblem {
        &self.problem
    }

    /// Whether the broker may have done what was asked, so that nobody knows.
    #[must_use]
    pub const fn may_have_been_done(&self) -> bool {
        match self.problem {
            CallProblem::Ended(_)
            | CallProblem::Version(_)
            | CallProblem::Request(_)
            | CallProblem::Authentication(_) => false,
            CallProblem::TimedOut(_)
            | CallProblem::Closed { .. }
            | CallProblem::Broken(_)
            | CallProblem::Answer(_) => true,
        }
    }

    /// Whether the connection is as it was before, because nothing was sent on it.
    #[must_use]
    pub const fn leaves_the_connection(&self) -> bool {
        matches!(self.problem, CallProblem::Version(_) | CallProblem::Request(_))
    }

    /// Whose fault it is.
    #[must_use]
    pub const fn fault(&self) -> Fault {
        match &self.problem {
            CallProblem::Ended(_)
            | CallProblem::TimedOut(_)
            | CallProblem::Closed { .. }
            | CallProblem::Broken(_) => Fault::Network,
            CallProblem::Version(_) | CallProblem::Request(_) => Fault::Configuration,
            CallProblem::Authentication(error) => error.fault(),
            CallProblem::Answer(_) => Fault::Broker,
        }
    }

    /// Whether the same on a new connection can help.
    #[must_use]
    pub const fn is_retriable(&self) -> bool {
        match &self.problem {
            CallProblem::Version(_) | CallProblem::Request(_) => false,
            CallProblem::Authentication(error) => error.is_retriable(),
            _ => true,
        }
    }
}
