//! From records to deliveries.
//!
//! A message's id is `TOPICID-PARTITION-OFFSET`: the same at every delivery, and another one when a topic is made anew under
//! its name. A record's key is the message's only key when it is text, and else the property [`KEY_PROPERTY`]. Headers are
//! properties, in order, with duplicates; one without a value is empty. A record without a value (a tombstone) has an empty
//! body. The timestamp says when the message was born, or when the broker stored it, as the topic is set.
//!
//! What a record holds are slices of the whole answer that it came in, of up to 50 MiB. Messages wait in the host, are
//! deferred and renewed, and are counted by their own bytes, so all of that is copied: one small allocation for each
//! message, and the host's bounds are true.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tidegate_model::{Delivery, Handle, Instant, Message, Routing, Timestamp};

use super::handle::{Key, LeaseHandle};
use crate::records::{Record, TimestampType};
use crate::{Delivered, DeliveredBatch, Lease};

/// The property that has a record's key when that is not text.
pub(super) const KEY_PROPERTY: &str = "kafka.record-key";

/// What all deliveries of one member have in common.
pub(super) struct Origin<'a> {
    pub(super) life: u64,
    pub(super) member: usize,
    pub(super) routing: &'a Arc<Routing>,
    pub(super) received_at: Instant,
}

/// Records that may be handed out.
#[derive(Default)]
pub(super) struct Sorted {
    pub(super) records: Vec<Incoming>,
    /// Bytes of keys, values and headers, of all that came.
    pub(super) bytes: usize,
}

/// A record that may be handed out.
pub(super) struct Incoming {
    pub(super) message: Arc<Message>,
    pub(super) lease: Lease,
    /// How often the group got it, this time included.
    pub(super) attempt: u32,
    pub(super) expires_at: Instant,
    pub(super) lock: Duration,
}

/// A record at its limit: to be rejected without being handed out.
pub(super) struct Exhausted {
    pub(super) lease: Lease,
    pub(super) delivery_count: u32,
}

impl Sorted {
    /// Adds what a batch brought, but for records that come for this or a later delivery: those are returned.
    pub(super) fn take(&mut self, batch: &DeliveredBatch, limit: Option<u32>) -> Vec<Exhausted> {
        let mut exhausted = Vec::new();
        self.records.reserve(batch.records.len());
        for Delivered { record, delivery_count } in &batch.records {
            let count = u32::try_from(*delivery_count).unwrap_or(0).max(1);
            let lease = batch.lease(record.offset);
            self.bytes += record.size_bytes();
            if limit.is_some_and(|limit| limit <= count) {
                exhausted.push(Exhausted { lease, delivery_count: count });
                continue;
            }
            self.records.push(Incoming {
                message: Arc::new(message(batch, record)),
                lease,
                attempt: count,
                expires_at: batch.expires_at,
                lock: batch.lock,
            });
        }
        exhausted
    }
}

impl Origin<'_> {
    /// The delivery of a record that is held at its broker until it is settled.
    pub(super) fn deliver(&self, record: Incoming) -> Delivery {
        let Incoming { message, lease, attempt, expires_at, lock } = record;
        let handle =
            LeaseHandle { life: self.life, key: Key { member: self.member, lease }, ends: expires_at, lock };
        Delivery {
            message,
            order: None,
            attempt,
            received_at: self.received_at,
            lease: lock,
            expires_at,
            handle: Handle { routing: Arc::clone(self.routing), text: handle.encode().into() },
        }
    }
}

fn message(batch: &DeliveredBatch, record: &Record) -> Message {
    let id = format!("{}-{}", batch.partition, record.offset);
    let mut message = Message::new(Arc::clone(&batch.topic), id);
    let key = record.key.as_deref();
    let text = key.and_then(|key| std::str::from_utf8(key).ok());
    let raw_key = key.filter(|_| text.is_none());
    let value = record.value.as_deref().unwrap_or_default();
    let headers = || record.headers.iter().map(|header| header.value.unwrap_or_default());
    // All in one allocation, of which each part is a slice.
    let length = value.len() + headers().map(<[u8]>::len).sum::<usize>() + raw_key.map_or(0, <[u8]>::len);
    let mut buffer = BytesMut::with_capacity(length);
    for part in std::iter::once(value).chain(headers()).chain(raw_key) {
        buffer.extend_from_slice(part);
    }
    let mut rest = buffer.freeze();
    let mut next = |length: usize| -> Bytes { rest.split_to(length) };
    message.body = next(value.len());
    message.properties = record
        .headers
        .iter()
        .map(|header| (header.key_text().into(), next(header.value.unwrap_or_default().len())))
        .collect();
    if let Some(raw) = raw_key {
        message.properties.push((KEY_PROPERTY.into(), next(raw.len())));
    }
    message.keys = text.map(Into::into).into_iter().collect();
    let at = u64::try_from(record.timestamp_ms).ok().map(Timestamp::from_unix_millis);
    match record.timestamp_type {
        TimestampType::Create => message.born_at = at,
        TimestampType::LogAppend => message.stored_at = at,
    }
    message
}
