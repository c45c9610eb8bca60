//! What passes between the rooms of a flow: room to receive, emissions, reports.

use std::sync::Arc;

use crate::{DeliveryId, Handle, Instant, Message, Outcome, Timestamp};

/// How much a source may ask for now. Zero messages means: do not ask at all.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Capacity {
    /// Messages.
    pub messages: usize,
    /// Bytes of bodies and properties, after decompression. A broker that cannot be asked for bytes may go over
    /// by one batch.
    pub bytes: usize,
}

/// One accepted delivery on its way to a sink.
#[derive(Clone, Debug)]
pub struct Emission {
    /// Comes back with the outcome.
    pub id: DeliveryId,
    /// What to hand over.
    pub message: Arc<Message>,
    /// What fairness is counted by.
    pub key: Arc<str>,
    /// The ordered key, if order matters: such emissions come in order and a sink keeps that order.
    pub order: Option<Arc<str>>,
    /// The attempt as the host counts it, from 1.
    pub attempt: u32,
    /// The lease's handle, for receipts.
    pub handle: Handle,
    /// When the host had it in its hands.
    pub received_at: Instant,
    /// When the lease ends.
    pub expires_at: Instant,
    /// Set on its way to a dead-letter sink: why it was given up.
    pub dead_letter: Option<Arc<DeadLetter>>,
}

/// Why a delivery was given up, for whoever looks at dead letters later. The message itself goes beside it unchanged.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DeadLetter {
    /// The flow that gave it up.
    pub flow: Arc<str>,
    /// The source that it came from.
    pub source: Arc<str>,
    /// The policy that rejected it; `None` when a worker, a sink or a safety valve did.
    pub policy: Option<Arc<str>>,
    /// In a few words.
    pub reason: Box<str>,
    /// When this host first received the message, as far as it remembers.
    pub first_received_at: Timestamp,
    /// When it received the delivery that was given up.
    pub last_received_at: Timestamp,
}

/// What became of one emission.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Whose outcome it is.
    pub id: DeliveryId,
    /// How it ended.
    pub outcome: Outcome,
    /// What the work cost, in whatever unit the workers use; `None` lets the host count time.
    pub cost: Option<f64>,
}
