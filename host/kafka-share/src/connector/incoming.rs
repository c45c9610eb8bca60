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

use bytes::{Bytes, BytesMut};
use tidegate_model::{Delivery, Handle, Instant, Message, Routing, Timestamp};

use super::handle::{Key, LeaseHandle};
use crate::records::{Record, TimestampType};
use crate::{Acknowledge, AcknowledgeType, Delivered, DeliveredBatch};

/// The property that has a record's key when that is not text.
pub(super) const KEY_PROPERTY: &str = "kafka.record-key";

/// What all deliveries of one member have in common.
pub(super) struct Origin<'a> {
    pub(super) life: u64,
    pub(super) member: usize,
    pub(super) routing: &'a Arc<Routing>,
    pub(super) received_at: Instant,
    /// Records that come for this or a later delivery are rejected.
    pub(super) delivery_count_limit: Option<u32>,
}

/// What came of one batch.
#[derive(Default)]
pub(super) struct Incoming {
    pub(super) deliveries: Vec<Delivery>,
    /// Records at their limit: to be rejected without being handed out, with their delivery counts.
    pub(super) exhausted: Vec<(Acknowledge, u32)>,
    /// Bytes of keys, values and headers.
    pub(super) bytes: usize,
}

impl Origin<'_> {
    /// Adds what a batch brought to `incoming`.
    pub(super) fn take(&self, batch: &DeliveredBatch, incoming: &mut Incoming) {
        incoming.deliveries.reserve(batch.records.len());
        for Delivered { record, delivery_count } in &batch.records {
            let count = u32::try_from(*delivery_count).unwrap_or(0).max(1);
            let lease = batch.lease(record.offset);
            incoming.bytes += record.size_bytes();
            if self.delivery_count_limit.is_some_and(|limit| limit <= count) {
                let reject = Acknowledge { lease, last: record.offset, kind: AcknowledgeType::Reject };
                incoming.exhausted.push((reject, count));
                continue;
            }
            let handle = LeaseHandle {
                life: self.life,
                key: Key { member: self.member, lease },
                ends: batch.expires_at,
                lock: batch.lock,
            };
            incoming.deliveries.push(Delivery {
                message: Arc::new(message(batch, record)),
                order: None,
                attempt: count,
                received_at: self.received_at,
                lease: batch.lock,
                expires_at: batch.expires_at,
                handle: Handle { routing: Arc::clone(self.routing), text: handle.encode().into() },
            });
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
