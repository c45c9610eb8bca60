//! A message as the store keeps it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;

/// The internal property that makes the real broker put a message into a lite queue too.
///
/// On a lite message the server writes it; on a normal message it is obeyed, whoever wrote it.
pub const MULTI_DISPATCH: &str = "INNER_MULTI_DISPATCH";

/// What a producer hands in.
#[derive(Clone, Debug, Default)]
pub struct NewMessage {
    /// The producer's id; comes back unchanged.
    pub id: Arc<str>,
    /// The body as it was on the wire.
    pub body: Bytes,
    /// Upper hexadecimal MD5 of the body.
    pub digest: Arc<str>,
    /// The producer's own properties.
    pub properties: BTreeMap<String, String>,
    /// Filter tag.
    pub tag: Option<Arc<str>>,
    /// Keys for lookups.
    pub keys: Vec<String>,
    /// Sub-topic of a LITE topic.
    pub lite_topic: Option<Arc<str>>,
    /// Ordering key of a FIFO topic.
    pub message_group: Option<Arc<str>>,
    /// When a DELAY message becomes visible: time from now, and the wall clock for its delivery.
    pub delay: Option<Delay>,
    /// When the producer made it, milliseconds since the Unix epoch.
    pub born_ms: u64,
    /// Where the producer made it.
    pub born_host: Arc<str>,
    /// The wire's encoding number of the body.
    pub encoding: i32,
    /// Carried, not read.
    pub trace_context: Option<String>,
    /// Carried, not read.
    pub priority: Option<i32>,
}

/// When a DELAY message becomes visible.
#[derive(Clone, Copy, Debug, Default)]
pub struct Delay {
    /// From the moment of the send.
    pub wait: Duration,
    /// The producer's wish, milliseconds since the Unix epoch.
    pub until_wall_ms: u64,
}

/// A stored message. Shared by every log and queue that lists it; the last one to let go frees its room.
#[derive(Debug)]
pub struct Stored {
    /// What the producer sent.
    pub message: NewMessage,
    /// The topic it was sent to.
    pub topic: Arc<str>,
    /// Place in the commit log; unique within a broker.
    pub sequence: u64,
    /// When it was stored, milliseconds since the Unix epoch.
    pub stored_ms: u64,
    /// How often it had been delivered before it came into this topic (dead letters keep their count).
    pub attempts_before: u32,
    /// What it takes in the store's bounds.
    pub(crate) _room: Room,
}

impl Stored {
    /// The lite queue named by the multi-dispatch property, as (parent topic, lite topic).
    #[must_use]
    pub fn dispatch_target(&self) -> Option<(&str, &str)> {
        let value = self.message.properties.get(MULTI_DISPATCH)?;
        let mut parts = value.strip_prefix("%LMQ%$")?.splitn(2, '$');
        Some((parts.next()?, parts.next()?)).filter(|(parent, lite)| !parent.is_empty() && !lite.is_empty())
    }
}

/// What the messages alive take: shared between the store and the messages themselves.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    messages: AtomicU64,
    bytes: AtomicU64,
}

impl Usage {
    /// Messages alive.
    pub(crate) fn messages(&self) -> u64 {
        self.messages.load(Ordering::Relaxed)
    }

    /// Bytes of bodies and properties alive.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// One message's share of [`Usage`], given back when the message is dropped.
#[derive(Debug)]
pub(crate) struct Room {
    usage: Arc<Usage>,
    bytes: u64,
}

impl Room {
    /// Takes room for `message`.
    pub(crate) fn take(usage: &Arc<Usage>, message: &NewMessage) -> Self {
        let bytes = u64::try_from(size(message)).unwrap_or(u64::MAX);
        usage.messages.fetch_add(1, Ordering::Relaxed);
        usage.bytes.fetch_add(bytes, Ordering::Relaxed);
        Self { usage: Arc::clone(usage), bytes }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.usage.messages.fetch_sub(1, Ordering::Relaxed);
        self.usage.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Body and property bytes.
pub(crate) fn size(message: &NewMessage) -> usize {
    let properties: usize = message.properties.iter().map(|(key, value)| key.len() + value.len()).sum();
    message.body.len() + properties
}
