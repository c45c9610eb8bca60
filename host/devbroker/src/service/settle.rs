//! Ack, change of the invisible time, forwarding to the dead-letter topic.

use std::time::Duration;

use tidegate_proto::rocketmq as wire;
use tidegate_proto::rocketmq::Code;

use super::answer::{Answer, named, null_pointer, ok, status};
use super::call::{Call, name, parse_handle};
use crate::faults::Effect;
use crate::hub::Cell;
use crate::journal;
use crate::store::{Acked, Handle, Subject};

/// The longest invisible time, at receive and at change: 12 hours.
pub(super) const INVISIBLE_MAX: Duration = Duration::from_secs(12 * 3_600);

impl Call<'_> {
    /// AckMessage: each entry for itself, the top says whether they agree. Needs no settings.
    pub(super) fn ack(&self, request: wire::AckMessageRequest) -> wire::AckMessageResponse {
        let (topic, group) = (name(request.topic.as_ref()), name(request.group.as_ref()));
        self.keep(|| journal::Call::AckMessage {
            group: group.to_owned(),
            entries: request.entries.iter().map(kept_entry).collect(),
        });
        if let Err(refusal) = self.authorize(Some(topic), Some(group)) {
            return wire::AckMessageResponse::refused(refusal);
        }
        let entries: Vec<wire::AckMessageResultEntry> = request
            .entries
            .into_iter()
            .map(|entry| {
                let answer = self.ack_entry(topic, group, &entry);
                wire::AckMessageResultEntry {
                    status: Some(answer.err().unwrap_or_else(ok)),
                    message_id: entry.message_id,
                    receipt_handle: entry.receipt_handle,
                }
            })
            .collect();
        let mut codes: Vec<i32> =
            entries.iter().filter_map(|entry| entry.status.as_ref()).map(|status| status.code).collect();
        codes.sort_unstable();
        codes.dedup();
        let top = match codes.as_slice() {
            [] => status(Code::InternalServerError, "ack message result is empty"),
            [code] => Code::try_from(*code).map_or_else(|_| status(*code, ""), named),
            _ => named(Code::MultipleResults),
        };
        wire::AckMessageResponse { status: Some(top), entries }
    }

    /// ChangeInvisibleDuration: gives the new handle.
    pub(super) fn change(
        &self,
        request: &wire::ChangeInvisibleDurationRequest,
    ) -> wire::ChangeInvisibleDurationResponse {
        let invisible = request.invisible_duration.as_ref().map(duration);
        self.keep(|| journal::Call::ChangeInvisible {
            group: name(request.group.as_ref()).to_owned(),
            handle: request.receipt_handle.clone(),
            invisible,
            lite_topic: request.lite_topic.clone(),
            suspend: request.suspend,
        });
        match self.changed(request, invisible.unwrap_or_default()) {
            Ok(handle) => wire::ChangeInvisibleDurationResponse {
                status: Some(ok()),
                receipt_handle: self.shown(&handle),
            },
            Err(refusal) => wire::ChangeInvisibleDurationResponse::refused(refusal),
        }
    }

    /// ForwardMessageToDeadLetterQueue.
    pub(super) fn forward(
        &self,
        request: &wire::ForwardMessageToDeadLetterQueueRequest,
    ) -> wire::ForwardMessageToDeadLetterQueueResponse {
        self.keep(|| journal::Call::ForwardToDeadLetter {
            group: name(request.group.as_ref()).to_owned(),
            handle: request.receipt_handle.clone(),
            lite_topic: request.lite_topic.clone(),
        });
        let answer = match self.forwarded(request) {
            // The text of the broker's own answer: its code for success.
            Ok(()) => status(Code::Ok, "0"),
            Err(refusal) => refusal,
        };
        wire::ForwardMessageToDeadLetterQueueResponse { status: Some(answer) }
    }

    /// A handle as it goes out, with what an ordered fault does to it.
    pub(super) fn shown(&self, handle: &Handle) -> String {
        match &self.fault {
            Some(Effect::EmptyHandle) => String::new(),
            Some(Effect::StaleHandle) => {
                // The pop time of a delivery before this one; the end stays, so that the proxy lets it through.
                let popped_ms = handle.popped_ms.saturating_sub(1);
                Handle { popped_ms, invisible_ms: handle.invisible_ms + 1, ..handle.clone() }.to_string()
            }
            Some(Effect::ExpiredHandle) => Handle { invisible_ms: 0, ..handle.clone() }.to_string(),
            _ => handle.to_string(),
        }
    }

    fn ack_entry(&self, topic: &str, group: &str, entry: &wire::AckMessageEntry) -> Result<(), wire::Status> {
        let (handle, cell) = self.handle(&entry.receipt_handle)?;
        self.reach(cell)?;
        let group = self.hub.catalog.group(group);
        let lite_topic = entry.lite_topic.as_deref();
        let subject = Subject { topic, group: group.as_deref(), handle: &handle, lite_topic };
        match cell.run(&self.hub.clock, |store, now| store.ack(now, subject)) {
            Acked::Ok => Ok(()),
            Acked::Abnormal => Err(status(Code::InternalServerError, "ack failed: status is abnormal")),
        }
    }

    fn changed(
        &self,
        request: &wire::ChangeInvisibleDurationRequest,
        invisible: Duration,
    ) -> Result<Handle, wire::Status> {
        let (topic, group) = (name(request.topic.as_ref()), name(request.group.as_ref()));
        self.authorize(Some(topic), Some(group))?;
        if invisible > INVISIBLE_MAX {
            let text = format!("the invisibleTime is too large. max is {}", INVISIBLE_MAX.as_millis());
            return Err(status(Code::IllegalInvisibleTime, text));
        }
        if self.hub.proxies[self.proxy].settled(&self.client).is_none() {
            return Err(null_pointer("io.netty.channel.Channel.id()", "this.channel"));
        }
        let (handle, cell) = self.handle(&request.receipt_handle)?;
        self.reach(cell)?;
        let group = self.hub.catalog.group(group);
        let lite_topic = request.lite_topic.as_deref();
        let subject = Subject { topic, group: group.as_deref(), handle: &handle, lite_topic };
        let suspend = request.suspend.unwrap_or(false);
        let changed = cell.run(&self.hub.clock, |store, now| store.change(now, subject, invisible, suspend));
        changed.ok_or_else(|| {
            status(Code::InternalServerError, "changeInvisibleDuration failed: status is abnormal")
        })
    }

    fn forwarded(&self, request: &wire::ForwardMessageToDeadLetterQueueRequest) -> Result<(), wire::Status> {
        let (topic, group) = (name(request.topic.as_ref()), name(request.group.as_ref()));
        self.authorize(Some(topic), Some(group))?;
        let (handle, cell) = self.handle(&request.receipt_handle)?;
        self.reach(cell)?;
        let group = self.hub.catalog.group(group);
        let lite_topic = request.lite_topic.as_deref();
        let subject = Subject { topic, group: group.as_deref(), handle: &handle, lite_topic };
        match cell.run(&self.hub.clock, |store, now| store.forward_to_dead_letter(now, subject)) {
            Acked::Ok => Ok(()),
            Acked::Abnormal => Err(status(
                Code::InternalServerError,
                "forward to dead letter queue failed: status is abnormal",
            )),
        }
    }

    /// Reads a handle and finds its broker; the proxy judges its end without asking the broker.
    fn handle(&self, text: &str) -> Result<(Handle, &Cell), wire::Status> {
        let handle = parse_handle(text)?;
        if handle.is_expired(self.hub.clock.now()) {
            return Err(status(Code::InvalidReceiptHandle, "receipt handle is expired"));
        }
        let cell = self.hub.cell_named(self.proxy, &handle.broker).ok_or_else(|| {
            status(Code::InvalidReceiptHandle, format!("cannot find broker {}", handle.broker))
        })?;
        Ok((handle, cell))
    }
}

/// A wire duration; negative ones are zero.
pub(super) fn duration(duration: &prost_types::Duration) -> Duration {
    let seconds = u64::try_from(duration.seconds).unwrap_or(0);
    Duration::new(seconds, u32::try_from(duration.nanos).unwrap_or(0))
}

fn kept_entry(entry: &wire::AckMessageEntry) -> journal::AckEntry {
    journal::AckEntry {
        message_id: entry.message_id.clone(),
        handle: entry.receipt_handle.clone(),
        lite_topic: entry.lite_topic.clone(),
    }
}
