//! The answer stream of one receive, collected without I/O.
//!
//! Items come in any order: the Java proxy sends status, messages, delivery time; others begin with the delivery
//! time and end with the status. A message that has arrived is leased to us whatever comes after it, so messages are
//! never thrown away for a bad end.

use tidegate_model::Instant;
use tidegate_proto::rocketmq::{self as proto, Code, receive_message_response::Content};

/// Collects one answer.
#[derive(Debug, Default)]
pub(crate) struct Collector {
    messages: Vec<proto::Message>,
    status: Option<proto::Status>,
    first_item_at: Option<Instant>,
}

/// Most messages of one answer, well above what any proxy gives (32): a bound against a server gone mad.
pub(crate) const ANSWER_MESSAGES_MAX: usize = 4_096;

/// How the stream ended.
#[derive(Debug)]
pub(crate) enum End<E> {
    /// With trailers.
    Complete,
    /// It broke.
    Broken(E),
}

/// A collected answer.
#[derive(Debug)]
pub(crate) struct Collected {
    /// In the order in which they came.
    pub(crate) messages: Vec<proto::Message>,
    /// When the first item came.
    pub(crate) first_item_at: Instant,
}

/// Why an answer without messages is an error.
#[derive(Debug)]
pub(crate) enum Failure<E> {
    /// The server's status.
    Status(proto::Status),
    /// The stream ended without a status.
    NoStatus,
    /// The stream broke.
    Broken(E),
}

impl Collector {
    pub(crate) fn with_capacity(messages: usize) -> Self {
        Self { messages: Vec::with_capacity(messages.min(ANSWER_MESSAGES_MAX)), ..Self::default() }
    }

    /// Takes an item. False when nothing more is taken.
    pub(crate) fn handle_item(&mut self, now: Instant, item: proto::ReceiveMessageResponse) -> bool {
        self.first_item_at.get_or_insert(now);
        match item.content {
            Some(Content::Message(message)) => self.messages.push(message),
            Some(Content::Status(status)) => self.status = Some(status),
            Some(Content::DeliveryTimestamp(_)) | None => {}
        }
        self.messages.len() < ANSWER_MESSAGES_MAX
    }

    /// The whole answer. "Nothing came within the poll" is an empty one.
    pub(crate) fn finish<E>(self, now: Instant, end: End<E>) -> Result<Collected, Failure<E>> {
        let first_item_at = self.first_item_at.unwrap_or(now);
        if !self.messages.is_empty() {
            return Ok(Collected { messages: self.messages, first_item_at });
        }
        match (self.status, end) {
            (Some(status), _) if matches!(status.code(), Code::Ok | Code::MessageNotFound) => {
                Ok(Collected { messages: Vec::new(), first_item_at })
            }
            (Some(status), _) => Err(Failure::Status(status)),
            (None, End::Broken(error)) => Err(Failure::Broken(error)),
            (None, End::Complete) => Err(Failure::NoStatus),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::SizeRange;

    use super::*;

    #[test]
    fn an_answer_without_status_is_an_error() {
        let collector = Collector::default();
        assert!(matches!(collector.finish(at(1), End::<()>::Complete), Err(Failure::NoStatus)));
    }

    #[test]
    fn nothing_found_is_an_empty_answer() {
        let collected = collect(vec![status(Code::MessageNotFound), time()], End::Complete).expect("empty");
        assert!(collected.messages.is_empty());
    }

    #[test]
    fn what_reached_us_before_the_stream_broke_is_ours() {
        let collected = collect(vec![status(Code::Ok), message(1)], End::Broken(())).expect("one");
        assert_eq!(collected.messages.len(), 1);
        let collected =
            collect(vec![message(1), status(Code::InternalServerError)], End::Complete).expect("one");
        assert_eq!(collected.messages.len(), 1);
        assert!(matches!(collect(vec![time()], End::Broken(())), Err(Failure::Broken(()))));
    }

    #[test]
    fn an_error_status_keeps_its_code() {
        let items = vec![time(), status(Code::TooManyRequests)];
        let Err(Failure::Status(status)) = collect(items, End::Complete) else { panic!("no status") };
        assert_eq!(status.code(), Code::TooManyRequests);
    }

    #[test]
    fn a_server_gone_mad_is_cut_off() {
        let mut collector = Collector::default();
        let taken = (0..10_000).take_while(|_| collector.handle_item(at(1), message(1))).count();
        assert_eq!(taken, ANSWER_MESSAGES_MAX - 1);
    }

    proptest! {
        /// Status first, status last or in between: the same messages in the same order.
        #[test]
        fn any_order_of_items_gives_the_same_answer(
            ids in proptest::collection::vec(0..1_000_i32, SizeRange::from(1..40)), status_at: usize, time_at: usize,
        ) {
            let mut items: Vec<_> = ids.iter().map(|id| message(*id)).collect();
            items.insert(status_at % (items.len() + 1), status(Code::Ok));
            items.insert(time_at % (items.len() + 1), time());
            let collected = collect(items, End::Complete).expect("messages");
            let got: Vec<_> = collected
                .messages
                .iter()
                .map(|message| message.system_properties.as_ref().expect("some").queue_id)
                .collect();
            prop_assert_eq!(got, ids);
        }
    }

    fn collect(items: Vec<proto::ReceiveMessageResponse>, end: End<()>) -> Result<Collected, Failure<()>> {
        let mut collector = Collector::default();
        for item in items {
            collector.handle_item(at(1), item);
        }
        collector.finish(at(2), end)
    }

    fn message(queue_id: i32) -> proto::ReceiveMessageResponse {
        let system_properties = Some(proto::SystemProperties { queue_id, ..Default::default() });
        item(Content::Message(proto::Message { system_properties, ..Default::default() }))
    }

    fn status(code: Code) -> proto::ReceiveMessageResponse {
        item(Content::Status(proto::Status { code: code.into(), message: String::new() }))
    }

    fn time() -> proto::ReceiveMessageResponse {
        item(Content::DeliveryTimestamp(prost_types::Timestamp::default()))
    }

    fn item(content: Content) -> proto::ReceiveMessageResponse {
        proto::ReceiveMessageResponse { content: Some(content) }
    }

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }
}
