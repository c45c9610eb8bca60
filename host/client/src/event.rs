//! What a worker tells its observer.

use std::sync::Arc;
use std::time::Duration;

use crate::{Status, Verdict};

/// Something that happened to a worker, for logs and metrics.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// Messages come from a host now.
    Subscribed {
        /// The address that it was reached at.
        address: Arc<str>,
        /// The host's id.
        host: String,
    },
    /// No messages come from a host any more, or none can be had from it. The worker tries the next address.
    Unsubscribed {
        /// The address.
        address: Arc<str>,
        /// Why, in a sentence.
        detail: String,
    },
    /// A host is about to end: what it gave is finished and settled there, and new messages come from the next address.
    Draining {
        /// The address.
        address: Arc<str>,
    },
    /// A handler begins with a message.
    Begun {
        /// The message.
        message_id: Arc<str>,
        /// Its attempt, from 1.
        attempt: u32,
    },
    /// A handler panicked. Its message is released.
    Panicked {
        /// The message.
        message_id: Arc<str>,
        /// What the panic said.
        detail: String,
    },
    /// A lease ended before its handler did: the message comes again.
    Lost {
        /// The message.
        message_id: Arc<str>,
    },
    /// A host answered to a renewal.
    Renewed {
        /// The message.
        message_id: Arc<str>,
        /// Whether it took effect.
        status: Status,
        /// Why not, in a sentence; empty when it did.
        detail: String,
    },
    /// A host answered to a settlement, for good.
    Settled {
        /// The message.
        message_id: Arc<str>,
        /// What was to be told.
        verdict: Verdict,
        /// Whether it took effect.
        status: Status,
        /// Why not, in a sentence; empty when it did.
        detail: String,
        /// How long the handler had it.
        took: Duration,
    },
    /// A settlement did not get through while the lease lasted, or before the worker ended: the message comes again.
    Unsettled {
        /// The message.
        message_id: Arc<str>,
        /// What was to be told; `None` when the handler did not finish in time.
        verdict: Option<Verdict>,
        /// Why not, in a sentence.
        detail: String,
    },
}
