//! What the book knows of each stream and of each message.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Credits, LinkId};
use crate::Verdict;

/// A stream, as long as anything of it is open.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) address: usize,
    /// Whether a message is done when it was handed over.
    pub(super) on_delivery: bool,
    /// Whether it can be asked.
    pub(super) alive: bool,
    /// The credits that it was given last; `None` once nothing more comes from it.
    pub(super) told: Option<Credits>,
    pub(super) open: usize,
    pub(super) running: u64,
    pub(super) running_bytes: u64,
}

#[derive(Debug)]
pub(super) struct Open {
    pub(super) link: LinkId,
    /// What to settle with.
    pub(super) receipt: Arc<str>,
    /// What it came with, which is its name when its lease ends.
    pub(super) given: Arc<str>,
    pub(super) message_id: Arc<str>,
    pub(super) size_bytes: u64,
    pub(super) began_at: Instant,
    /// How long the lease was, and so for how long it is renewed.
    pub(super) lease: Duration,
    pub(super) ends_at: Instant,
    pub(super) lost: CancellationToken,
    pub(super) due: Option<Instant>,
    pub(super) state: State,
}

#[derive(Debug)]
pub(super) enum State {
    /// Its handler is at it.
    Running { renews: bool },
    /// Its handler has said how it ended.
    Settling(Settling),
}

#[derive(Debug)]
pub(super) struct Settling {
    pub(super) verdict: Verdict,
    pub(super) took: Duration,
    pub(super) tries: u32,
    /// Where an answer is to come from.
    pub(super) asked: Option<Asked>,
    /// Addresses that have refused.
    pub(super) refused: Vec<usize>,
    /// What was said last.
    pub(super) detail: String,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Asked {
    /// The stream that the message came from.
    Link,
    Call,
}
