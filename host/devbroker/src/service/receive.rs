//! ReceiveMessage: the proxy's checks, the long poll, the items of the answer.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tidegate_proto::rocketmq as wire;
use tidegate_proto::rocketmq::receive_message_response::Content;
use tidegate_proto::rocketmq::{Code, FilterType};
use tonic::{Request, Response, Status};

use super::answer::{null_pointer, ok, status};
use super::call::{Call, name};
use super::route::{message_type, unknown_topic};
use super::settle::{INVISIBLE_MAX, duration};
use super::{Items, Service};
use crate::faults::{Effect, Method};
use crate::hub::{Availability, Cell};
use crate::journal;
use crate::options::{Group, Topic, TopicKind};
use crate::store::{Ask, Delivered};

/// The shortest and the longest long poll; wishes are moved between them.
const POLLING_MIN: Duration = Duration::from_secs(5);
const POLLING_MAX: Duration = Duration::from_secs(20);

/// What is kept back of the caller's deadline, so that the answer arrives before it.
const DEADLINE_RESERVE: Duration = Duration::from_millis(200);

/// The shortest invisible time at receive.
const INVISIBLE_MIN: Duration = Duration::from_secs(10);

/// Messages of one receive at most.
const BATCH_MAX: i32 = 32;

/// A checked request.
struct Plan {
    topic: Topic,
    group: Arc<Group>,
    broker: String,
    count_max: u32,
    invisible: Duration,
    polling: Duration,
    tags: Option<HashSet<String>>,
}

impl Service {
    /// Serves one receive.
    pub(super) async fn receive(
        &self,
        request: Request<wire::ReceiveMessageRequest>,
    ) -> Result<Response<Items<wire::ReceiveMessageResponse>>, Status> {
        self.thawed().await?;
        let call = Call::new(self, Method::ReceiveMessage, &request);
        let request = request.into_inner();
        call.keep(|| kept(&request));
        match &call.fault {
            Some(Effect::Delay(wait)) => self.sleep(*wait).await?,
            Some(Effect::Grpc { code, message }) => return Err(Status::new((*code).into(), message.clone())),
            Some(Effect::CloseStream) => return Ok(Response::new(Box::pin(tokio_stream::empty()))),
            Some(Effect::Code { code, message }) => {
                return Ok(items(&call, status(*code, message.clone()), Vec::new()));
            }
            _ => {}
        }
        let plan = call.identify().and_then(|()| call.plan(&request));
        let (top, delivered) = match plan {
            Ok(plan) => self.poll(&call, &plan).await?,
            Err(refusal) => (refusal, Vec::new()),
        };
        if matches!(call.fault, Some(Effect::DropReply)) {
            self.cut.cancelled().await;
            return Err(Status::unavailable("the answer was dropped by an ordered fault"));
        }
        Ok(items(&call, top, delivered))
    }

    /// Waits for messages until the poll ends.
    async fn poll(&self, call: &Call<'_>, plan: &Plan) -> Result<(wire::Status, Vec<Delivered>), Status> {
        let clock = &self.hub.clock;
        let deadline = clock.now().since_start + plan.polling;
        let _counted = self.hub.proxies[self.proxy].receiving();
        let ask = Ask {
            topic: &plan.topic.name,
            group: &plan.group,
            client: &call.client,
            count_max: plan.count_max,
            invisible: plan.invisible,
            tags: plan.tags.as_ref(),
        };
        // A broker name nobody has is no error: the poll stays empty.
        let cell = self.hub.cell_named(self.proxy, &plan.broker);
        let wake = cell.and_then(|cell| cell.run(clock, |store, _| store.wake_for(&ask)));
        let waiting = cell.zip(wake).map(|(cell, wake)| cell.wait(wake));
        loop {
            let mut advances = clock.advances();
            let notified = waiting.as_ref().map(|waiting| waiting.notified());
            self.thawed().await?;
            if let Some(found) = cell.and_then(|cell| self.look(call, cell, waiting.as_ref(), &ask)) {
                return Ok(found);
            }
            if clock.now().since_start >= deadline {
                return Ok((no_message(), Vec::new()));
            }
            let notified = async {
                match notified {
                    Some(notified) => notified.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.cut.cancelled() => return Err(Status::unavailable("the proxy is stopping")),
                () = notified => {}
                _ = advances.changed() => {}
                () = tokio::time::sleep_until(clock.deadline(deadline)) => {}
            }
        }
    }

    /// What can be answered now.
    fn look(
        &self,
        call: &Call<'_>,
        cell: &Cell,
        waiting: Option<&crate::hub::Waiting<'_>>,
        ask: &Ask<'_>,
    ) -> Option<(wire::Status, Vec<Delivered>)> {
        if waiting.is_some_and(|waiting| waiting.is_cut_off()) {
            return Some((call.cut_off(), Vec::new()));
        }
        match call.reach(cell) {
            Err(refusal) => return Some((refusal, Vec::new())),
            Ok(Availability::Unknown) => return Some((unknown_topic(ask.topic), Vec::new())),
            Ok(Availability::Up | Availability::Down) => {}
        }
        let delivered = cell.run(&self.hub.clock, |store, now| store.receive(now, ask));
        (!delivered.is_empty()).then(|| (ok(), delivered))
    }
}

impl Call<'_> {
    /// The proxy's checks, in its order.
    fn plan(&self, request: &wire::ReceiveMessageRequest) -> Result<Plan, wire::Status> {
        let queue = request.message_queue.as_ref();
        let topic = name(queue.and_then(|queue| queue.topic.as_ref()));
        let group = name(request.group.as_ref());
        self.authorize(Some(topic), Some(group))?;
        let Some(settled) = self.hub.proxies[self.proxy].settled(&self.client) else {
            return Err(null_pointer("apache.rocketmq.v2.Settings.getClientType()", "settings"));
        };
        let polling = self.polling(request.long_polling_timeout.as_ref().map(duration))?;
        let invisible = invisible(request.invisible_duration.as_ref().map(duration))?;
        let lite = is_lite_type(settled.client_type);
        let tags = tags(request.filter_expression.as_ref(), lite)?;
        let topic = self.topic(topic)?;
        if lite && topic.kind != TopicKind::Lite {
            let text = format!("the topic [{}] message type not match", topic.name);
            return Err(status(Code::InternalServerError, text));
        }
        Ok(Plan {
            topic,
            group: self.hub.catalog.group_or_new(group),
            broker: queue
                .and_then(|queue| queue.broker.as_ref())
                .map(|broker| broker.name.clone())
                .unwrap_or_default(),
            count_max: u32::try_from(request.batch_size.clamp(0, BATCH_MAX)).unwrap_or(0),
            invisible,
            polling,
            tags,
        })
    }

    /// How long to poll: the wish, moved into [5 s, 20 s], cut to the caller's deadline.
    fn polling(&self, wish: Option<Duration>) -> Result<Duration, wire::Status> {
        let Some(remaining) = self.remaining else {
            return Err(null_pointer("java.lang.Long.longValue()", "timeRemaining"));
        };
        let wish = wish.unwrap_or(remaining).clamp(POLLING_MIN, POLLING_MAX);
        if remaining < POLLING_MIN {
            let text =
                "The deadline time remaining is not enough for polling, please check network condition";
            return Err(status(Code::IllegalPollingTime, text));
        }
        Ok(wish.min(remaining.saturating_sub(DEADLINE_RESERVE)))
    }
}

/// Puts the answer's items in the proxy's order: status, messages, delivery time. Ordered faults change that.
fn items(
    call: &Call<'_>,
    top: wire::Status,
    delivered: Vec<Delivered>,
) -> Response<Items<wire::ReceiveMessageResponse>> {
    let now_ms = call.hub.clock.now().wall_ms;
    let kind = delivered.first().and_then(|first| call.hub.catalog.topic(&first.stored.topic));
    let kind = kind.map_or(TopicKind::Normal, |topic| topic.kind);
    let item = |content| wire::ReceiveMessageResponse { content: Some(content) };
    let mut list = Vec::with_capacity(delivered.len() + 2);
    list.push(item(Content::Status(top)));
    for message in delivered {
        list.push(item(Content::Message(told(call, message, kind))));
    }
    list.push(item(Content::DeliveryTimestamp(timestamp(now_ms))));
    let mut broken = None;
    match &call.fault {
        Some(Effect::ReverseItems) => list.reverse(),
        Some(Effect::OmitStatus) => {
            list.remove(0);
        }
        Some(Effect::CutAfter(messages)) => {
            list.truncate(1 + messages);
            broken = Some(Err(Status::unavailable("the stream was cut by an ordered fault")));
        }
        _ => {}
    }
    Response::new(Box::pin(tokio_stream::iter(list.into_iter().map(Ok).chain(broken))))
}

/// A message as it goes to the client.
fn told(call: &Call<'_>, delivered: Delivered, kind: TopicKind) -> wire::Message {
    let handle = call.shown(&delivered.handle);
    let Delivered { stored, attempt, queue, offset, invisible, .. } = delivered;
    let message = &stored.message;
    let system = wire::SystemProperties {
        tag: message.tag.as_deref().map(str::to_owned),
        keys: message.keys.clone(),
        message_id: message.id.to_string(),
        body_digest: Some(wire::Digest {
            r#type: wire::DigestType::Md5.into(),
            checksum: message.digest.to_string(),
        }),
        body_encoding: message.encoding,
        message_type: message_type(kind).into(),
        born_timestamp: Some(timestamp(message.born_ms)),
        born_host: message.born_host.to_string(),
        store_timestamp: Some(timestamp(stored.stored_ms)),
        store_host: call.hub.proxies[call.proxy].address().to_string(),
        delivery_timestamp: message.delay.map(|delay| timestamp(delay.until_wall_ms)),
        receipt_handle: Some(handle),
        queue_id: i32::try_from(queue).unwrap_or(i32::MAX),
        queue_offset: Some(i64::try_from(offset).unwrap_or(i64::MAX)),
        invisible_duration: prost_types::Duration::try_from(invisible).ok(),
        delivery_attempt: Some(i32::try_from(attempt).unwrap_or(i32::MAX)),
        message_group: message.message_group.as_deref().map(str::to_owned),
        trace_context: message.trace_context.clone(),
        orphaned_transaction_recovery_duration: None,
        dead_letter_queue: None,
        lite_topic: message.lite_topic.as_deref().map(str::to_owned),
        priority: message.priority,
    };
    wire::Message {
        // A client is told the topic it asked for: a copy in a lite queue belongs to the parent topic.
        topic: Some(wire::Resource { resource_namespace: String::new(), name: stored.topic.to_string() }),
        user_properties: message.properties.iter().map(|(key, value)| (key.clone(), value.clone())).collect(),
        system_properties: Some(system),
        body: message.body.clone(),
    }
}

fn invisible(wish: Option<Duration>) -> Result<Duration, wire::Status> {
    let wish = wish.unwrap_or_default();
    let text = if wish < INVISIBLE_MIN {
        format!("the invisibleTime is too small. min is {}", INVISIBLE_MIN.as_millis())
    } else if wish > INVISIBLE_MAX {
        format!("the invisibleTime is too large. max is {}", INVISIBLE_MAX.as_millis())
    } else {
        return Ok(wish);
    };
    Err(status(Code::IllegalInvisibleTime, text))
}

/// The tags wanted. Lite receives are not filtered, and their filters are not looked at.
fn tags(
    filter: Option<&wire::FilterExpression>,
    is_lite: bool,
) -> Result<Option<HashSet<String>>, wire::Status> {
    let Some(filter) = filter.filter(|_| !is_lite) else { return Ok(None) };
    if filter.r#type == i32::from(FilterType::Sql) {
        let text = "the development broker does not evaluate SQL filters; use a tag filter, or a real broker";
        return Err(status(Code::IllegalFilterExpression, text));
    }
    if filter.expression.is_empty() || filter.expression == "*" {
        return Ok(None);
    }
    let tags = filter.expression.split("||").map(|tag| tag.trim().to_owned());
    Ok(Some(tags.filter(|tag| !tag.is_empty()).collect()))
}

/// Whether a settled client type is one of the two for lite topics.
pub(super) fn is_lite_type(client_type: i32) -> bool {
    client_type == i32::from(wire::ClientType::LitePushConsumer)
        || client_type == i32::from(wire::ClientType::LiteSimpleConsumer)
}

fn no_message() -> wire::Status {
    status(Code::MessageNotFound, "no new message")
}

fn timestamp(wall_ms: u64) -> prost_types::Timestamp {
    let seconds = i64::try_from(wall_ms / 1_000).unwrap_or(i64::MAX);
    let nanos = i32::try_from(wall_ms % 1_000).unwrap_or(0) * 1_000_000;
    prost_types::Timestamp { seconds, nanos }
}

fn kept(request: &wire::ReceiveMessageRequest) -> journal::Call {
    journal::Call::ReceiveMessage {
        group: name(request.group.as_ref()).to_owned(),
        batch_size: request.batch_size,
        invisible: request.invisible_duration.as_ref().map(duration),
        polling: request.long_polling_timeout.as_ref().map(duration),
        auto_renew: request.auto_renew,
    }
}
