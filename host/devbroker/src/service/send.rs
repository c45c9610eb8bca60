//! Sending and recalling.

use std::sync::Arc;
use std::time::Duration;

use md5::{Digest, Md5};
use tidegate_proto::rocketmq as wire;
use tidegate_proto::rocketmq::Code;

use super::answer::{Answer, named, ok, status};
use super::call::{Call, name};
use super::validate::{check_message, check_type};
use crate::hub::{Availability, Cell};
use crate::journal;
use crate::store::{Delay, NewMessage, Placed, SendError};

/// The longest delay the server takes by default.
const DELAY_MAX: Duration = Duration::from_secs(24 * 3_600);

impl Call<'_> {
    /// SendMessage: all messages of one request go to one topic of one broker. A single message's lite topic or message
    /// group decides which, as in the real proxy; which queue the client had in mind does not count there either.
    pub(super) fn send(&self, request: wire::SendMessageRequest) -> wire::SendMessageResponse {
        let topic = request.messages.first().map(|message| name(message.topic.as_ref()).to_owned());
        self.keep(|| journal::Call::SendMessage {
            topic: topic.clone().unwrap_or_default(),
            message_ids: request.messages.iter().map(id_of).collect(),
        });
        let Some(topic) = topic else {
            return wire::SendMessageResponse::refused(status(Code::MessageCorrupted, "no message to send"));
        };
        match self.store_all(&topic, request.messages) {
            Ok(entries) => wire::SendMessageResponse { status: Some(ok()), entries },
            Err(refusal) => wire::SendMessageResponse::refused(refusal),
        }
    }

    /// RecallMessage: takes back a DELAY message that is not visible yet.
    pub(super) fn recall(&self, request: &wire::RecallMessageRequest) -> wire::RecallMessageResponse {
        let topic = name(request.topic.as_ref());
        self.keep(|| journal::Call::Recall { topic: topic.to_owned() });
        if let Err(refusal) = self.authorize(Some(topic), None) {
            return wire::RecallMessageResponse::refused(refusal);
        }
        let Some((cell, sequence)) = self.parse_recall(&request.recall_handle) else {
            let refusal = status(Code::InvalidReceiptHandle, "the recall handle is not one of this broker");
            return wire::RecallMessageResponse::refused(refusal);
        };
        match cell.run(&self.hub.clock, |store, _| store.recall(topic, sequence)) {
            Some(id) => wire::RecallMessageResponse { status: Some(ok()), message_id: id.to_string() },
            None => wire::RecallMessageResponse::refused(named(Code::NotFound)),
        }
    }

    fn store_all(
        &self,
        topic: &str,
        messages: Vec<wire::Message>,
    ) -> Result<Vec<wire::SendResultEntry>, wire::Status> {
        self.authorize(Some(topic), None)?;
        let cell = self.hub.cell_for(self.proxy, sticky(&messages));
        let availability = self.reach(cell)?;
        let known = self.hub.catalog.topic(topic).filter(|_| availability == Availability::Up);
        for message in &messages {
            if name(message.topic.as_ref()) != topic {
                return Err(status(Code::MessageCorrupted, "topic in message is not same"));
            }
            check_message(message)?;
        }
        for message in &messages {
            check_type(known.as_ref().map(|topic| topic.kind), message)?;
        }
        let now_ms = self.hub.clock.now().wall_ms;
        let messages: Vec<NewMessage> =
            messages.into_iter().map(|message| new_message(message, now_ms)).collect::<Result<_, _>>()?;
        let ids: Vec<Arc<str>> = messages.iter().map(|message| Arc::clone(&message.id)).collect();
        let waits = messages[0].delay.is_some_and(|delay| !delay.wait.is_zero());
        let placed = cell.run(&self.hub.clock, |store, now| store.send(now, topic, messages));
        let placed = placed.map_err(|error| refusal(&error))?;
        Ok(placed.first().map(|first| entry(cell, &ids, waits, *first)).into_iter().collect())
    }

    fn parse_recall(&self, handle: &str) -> Option<(&Cell, u64)> {
        let (broker, sequence) = handle.split_once(' ')?;
        Some((self.hub.cell_named(self.proxy, broker)?, sequence.parse().ok()?))
    }
}

/// One entry, however many messages: several are one batch to the real broker, and their ids come joined.
fn entry(cell: &Cell, ids: &[Arc<str>], waits: bool, placed: Placed) -> wire::SendResultEntry {
    let recall_handle = if waits { format!("{} {}", cell.name(), placed.sequence) } else { String::new() };
    wire::SendResultEntry {
        status: Some(ok()),
        message_id: ids.join(","),
        transaction_id: ids.first().map(|id| id.to_string()).unwrap_or_default(),
        offset: i64::try_from(placed.offset).unwrap_or(i64::MAX),
        recall_handle,
    }
}

fn refusal(error: &SendError) -> wire::Status {
    let code = match error {
        SendError::Full { .. } => Code::TooManyRequests,
        SendError::LiteTopics(_) => Code::LiteTopicQuotaExceeded,
        SendError::UnknownTopic(_) => Code::TopicNotFound,
    };
    status(code, error.to_string())
}

/// What a request's message must stay together with.
fn sticky(messages: &[wire::Message]) -> Option<&str> {
    let [message] = messages else { return None };
    let system = message.system_properties.as_ref()?;
    let group = system.message_group.as_deref().filter(|name| !name.is_empty());
    group.or_else(|| system.lite_topic.as_deref().filter(|name| !name.is_empty()))
}

fn id_of(message: &wire::Message) -> String {
    message.system_properties.as_ref().map(|system| system.message_id.clone()).unwrap_or_default()
}

fn new_message(message: wire::Message, now_ms: u64) -> Result<NewMessage, wire::Status> {
    let system = message.system_properties.unwrap_or_default();
    let delay = match system.delivery_timestamp {
        Some(at) => Some(delay(&at, now_ms)?),
        None => None,
    };
    Ok(NewMessage {
        id: Arc::from(system.message_id),
        digest: Arc::from(md5_hex(&message.body)),
        body: message.body,
        properties: message.user_properties.into_iter().collect(),
        tag: system.tag.map(Arc::from),
        keys: system.keys,
        lite_topic: system.lite_topic.filter(|name| !name.is_empty()).map(Arc::from),
        message_group: system.message_group.map(Arc::from),
        delay,
        born_ms: system.born_timestamp.map_or(now_ms, |at| wall_ms(&at)),
        born_host: Arc::from(system.born_host),
        encoding: system.body_encoding,
        trace_context: system.trace_context,
        priority: system.priority,
    })
}

fn delay(at: &prost_types::Timestamp, now_ms: u64) -> Result<Delay, wire::Status> {
    let until_wall_ms = wall_ms(at);
    let wait = Duration::from_millis(until_wall_ms.saturating_sub(now_ms));
    if wait > DELAY_MAX {
        let text = format!("the max delay time of message is too large, max is {}", DELAY_MAX.as_millis());
        return Err(status(Code::IllegalDeliveryTime, text));
    }
    Ok(Delay { wait, until_wall_ms })
}

fn wall_ms(at: &prost_types::Timestamp) -> u64 {
    let seconds = u64::try_from(at.seconds).unwrap_or(0);
    let millis = u64::try_from(at.nanos).unwrap_or(0) / 1_000_000;
    seconds.saturating_mul(1_000).saturating_add(millis)
}

/// The digest the server writes: MD5 in upper-case hexadecimal.
fn md5_hex(body: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let digest = Md5::digest(body);
    let digits = digest.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_is_upper_hexadecimal_md5() {
        assert_eq!(md5_hex(b"hello rocketmq"), "98062D04DAC784C63CEEB3CDB2B1FE4A");
    }
}
