//! A message as a worker has it.

use std::fmt;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

/// One handing-out of a message, held under a lease.
#[derive(Clone)]
#[non_exhaustive]
pub struct Delivery {
    /// Settles the message, on any host of the fleet. A [`Worker`](crate::Worker) does that by itself, with the handler's
    /// verdict.
    pub receipt: String,
    /// The broker's name of the message.
    pub message_id: String,
    /// Where it was sent to.
    pub topic: String,
    /// The lite topic, for brokers that have them.
    pub lite_topic: Option<String>,
    /// What fairness is counted by.
    pub key: String,
    /// The body.
    pub body: Bytes,
    /// Properties or headers, in order. A name may be there more than once.
    pub properties: Vec<(String, Bytes)>,
    /// The message's tag.
    pub tag: Option<String>,
    /// The message's keys.
    pub message_keys: Vec<String>,
    /// Messages of one group are in order.
    pub message_group: Option<String>,
    /// From 1.
    pub attempt: u32,
    /// When it was sent, by the sender's clock.
    pub born_at: Option<SystemTime>,
    /// When the broker stored it, by the broker's clock.
    pub stored_at: Option<SystemTime>,
    /// What was left of the lease when the host sent it here.
    pub lease: Duration,
    /// Why the body cannot be trusted; `None` when it can.
    pub corrupted: Option<String>,
    /// Why and where the message was given up, when it is one of a flow's dead letters.
    pub dead_letter: Option<DeadLetter>,
    pub(crate) lost: CancellationToken,
}

/// The story of a message that a flow gave up.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct DeadLetter {
    /// The flow that gave it up.
    pub flow: String,
    /// The source that it came from.
    pub source: String,
    /// The policy that rejected it; `None` when a worker, a sink or a safety valve did.
    pub policy: Option<String>,
    /// In a few words.
    pub reason: String,
    /// How often it was handed out, as the host counts.
    pub attempts: u32,
    /// When the host first received the message, as far as it remembers.
    pub first_received_at: Option<SystemTime>,
    /// When it received the delivery that was given up.
    pub last_received_at: Option<SystemTime>,
}

impl Delivery {
    /// The first value of a property.
    #[must_use]
    pub fn property(&self, name: &str) -> Option<&[u8]> {
        self.properties.iter().find(|(key, _)| key == name).map(|(_, value)| &value[..])
    }

    /// Whether the lease has ended while the handler was at it: the message comes again, to whoever has room, and a
    /// verdict has no effect any more.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.lost.is_cancelled()
    }

    /// Resolves when the lease has ended, for handlers that can break off.
    pub async fn lost(&self) {
        self.lost.cancelled().await;
    }
}

/// Bodies and properties hold users' data: only their sizes are shown. A receipt settles the message: it is not shown.
impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery")
            .field("message_id", &self.message_id)
            .field("topic", &self.topic)
            .field("lite_topic", &self.lite_topic)
            .field("key", &self.key)
            .field("attempt", &self.attempt)
            .field("body_bytes", &self.body.len())
            .field("properties", &self.properties.len())
            .field("lease", &self.lease)
            .field("corrupted", &self.corrupted)
            .finish_non_exhaustive()
    }
}
