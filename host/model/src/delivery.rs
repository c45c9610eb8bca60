//! One handing-out of a message, and what its lease is held by.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::{Instant, Message};

/// The host's own name of a delivery, unique within one flow for the life of the process.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct DeliveryId(pub u64);

impl fmt::Display for DeliveryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// One handing-out of a message by the broker.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// What was handed out.
    pub message: Arc<Message>,
    /// The ordered key it belongs to: lite topic, message group, partition. `None` when order does not matter.
    /// Deliveries of one ordered key arrive in order and are settled in order.
    pub order: Option<Arc<str>>,
    /// The broker's own count of hand-outs, from 1. Not reliable on RocketMQ lite topics (measured on 5.5.0:
    /// 1, then 2 for ever, then 1 again after a takeover), so the lease book counts as well.
    pub attempt: u32,
    /// When the host had it in its hands.
    pub received_at: Instant,
    /// Length of the lease as asked for.
    pub lease: Duration,
    /// When the broker may hand the message to somebody else. Never later than the broker thinks.
    pub expires_at: Instant,
    /// What the broker wants back to settle it.
    pub handle: Handle,
}

/// Where a delivery came from: enough, with credentials, to reach the broker that can settle it. Holds no secret.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct Routing {
    /// Address that settlements go to, such as `10.0.0.5:8081`.
    pub endpoint: Arc<str>,
    /// The broker's namespace, empty when there is none.
    pub namespace: Arc<str>,
    /// The consumer group that holds the lease.
    pub group: Arc<str>,
}

/// The broker's token for one lease, opaque to everyone but the connector that made it.
#[derive(Clone, Eq, PartialEq)]
pub struct Handle {
    /// Where it can be settled. Shared by all deliveries of one endpoint.
    pub routing: Arc<Routing>,
    /// The broker's text, exactly as received. Long, and copied often: shared.
    pub text: Arc<str>,
}

/// Handles let their holder settle a message, so the text stays out of logs.
impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("routing", &self.routing).finish_non_exhaustive()
    }
}
