//! The source: receives of one consumer.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tidegate_connector::{ReceiveError, ReceiveFault, Source};
use tidegate_model::{Capacity, Delivery, Instant, Timestamp};
use tidegate_proto::rocketmq as proto;
use tidegate_telemetry::events::rocketmq as events;

use crate::collect::Collected;
use crate::consumer::Consumer;
use crate::fault::{CallError, Reason};
use crate::health::Arrival;
use crate::incoming::{Batch, Incoming, corruption, lease_end};
use crate::profile::{duration, everything};
use crate::route::{Ended, POLL_MIN, Queue};
use crate::sessions::{Note, View};

/// Receives from one topic as one consumer, however many workers ask.
#[derive(Debug)]
pub(crate) struct GrpcSource {
    consumer: Arc<Consumer>,
    incoming: Incoming,
}

/// A receive in flight: also one whose future is dropped gives its place at the broker back.
struct InFlight<'a> {
    consumer: &'a Consumer,
    queue: &'a Queue,
    ended: Ended,
}

impl GrpcSource {
    pub(crate) fn new(consumer: Arc<Consumer>) -> Self {
        let incoming = Incoming::new(Arc::clone(&consumer.options.topic), consumer.options.topic_kind);
        Self { consumer, incoming }
    }

    async fn receive_from(&self, queue: &Queue, capacity: Capacity) -> Result<Vec<Delivery>, CallError> {
        let consumer = &*self.consumer;
        let clock = &consumer.core.clock;
        let mut in_flight = InFlight { consumer, queue, ended: Ended::Empty { after: Duration::MAX } };
        let Some(seat) = consumer.seat(queue.endpoints.text()) else {
            // The endpoint left the route a moment ago.
            return Ok(Vec::new());
        };
        let (request, deadline) = self.request(queue, capacity);
        let (asked_at, asked_wall) = (clock.now(), clock.wall());
        let receiving = seat.peer.receive(request, deadline, || clock.now());
        let result = tokio::select! {
            () = consumer.closing.cancelled() => return Ok(Vec::new()),
            result = receiving => result,
        };
        match result {
            Ok(collected) => {
                let after = clock.now().saturating_since(asked_at);
                in_flight.ended =
                    if collected.messages.is_empty() { Ended::Empty { after } } else { Ended::Messages };
                Ok(self.deliver(queue, collected, asked_at, asked_wall))
            }
            Err(error) => {
                in_flight.ended =
                    if error.reason() == Reason::Access { Ended::Refused } else { Ended::Failed };
                seat.note(Note::CallFailed(error.clone()));
                Err(error)
            }
        }
    }

    fn request(&self, queue: &Queue, capacity: Capacity) -> (proto::ReceiveMessageRequest, Duration) {
        let consumer = &*self.consumer;
        let options = &consumer.options;
        let messages = capacity.messages.min(options.messages_max);
        let poll = consumer.route.lock().poll_duration(options.await_duration, options.fetch_concurrency);
        let request = proto::ReceiveMessageRequest {
            group: Some(consumer.core.resource(&options.group)),
            message_queue: Some(queue.message_queue.clone()),
            filter_expression: Some(everything()),
            batch_size: i32::try_from(messages).unwrap_or(i32::MAX),
            invisible_duration: Some(duration(options.invisible_duration)),
            // The proxy's own renewal loses lite topics; the host renews by itself.
            auto_renew: false,
            long_polling_timeout: Some(duration(poll)),
            attempt_id: None,
        };
        // Proxies lengthen a short poll, and refuse one that does not fit into the deadline.
        (request, poll.max(POLL_MIN) + consumer.core.request_timeout)
    }

    fn deliver(
        &self,
        queue: &Queue,
        collected: Collected,
        asked_at: Instant,
        asked_wall: Timestamp,
    ) -> Vec<Delivery> {
        let Collected { messages, first_item_at } = collected;
        let core = &self.consumer.core;
        let lease = self.consumer.options.invisible_duration;
        let batch = Batch {
            routing: &queue.routing,
            received_at: core.clock.now(),
            lease,
            expires_at: lease_end(asked_at, first_item_at, lease),
        };
        let deliveries = self.incoming.deliveries(&batch, messages);
        let mut bytes = 0;
        for delivery in &deliveries {
            bytes += delivery.message.body.len();
            if let Some(reason) = corruption(delivery) {
                core.telemetry.emit(events::BodyCorrupted {
                    name: Arc::clone(&core.name),
                    message_id: delivery.message.id.to_string(),
                    reason: reason.to_owned(),
                });
            }
        }
        core.telemetry.emit(events::Received {
            name: Arc::clone(&core.name),
            messages: u64::try_from(deliveries.len()).unwrap_or(u64::MAX),
            bytes: u64::try_from(bytes).unwrap_or(u64::MAX),
        });
        let mut health = self.consumer.health.lock();
        health.handle_received(batch.received_at, deliveries.len());
        let waited = first_item_at.saturating_since(asked_at);
        health.handle_arrivals(
            first_item_at,
            waited,
            deliveries.iter().filter_map(|delivery| arrival(delivery, asked_wall)),
        );
        drop(health);
        deliveries
    }

    fn fail(&self, error: &CallError) -> ReceiveError {
        let core = &self.consumer.core;
        let fault = {
            let mut health = self.consumer.health.lock();
            health.handle_failed(error.clone());
            error.receive_fault(health.has_worked())
        };
        let detail = error.to_string();
        core.telemetry.emit(events::ReceiveFailed {
            name: Arc::clone(&core.name),
            result: result_of(fault),
            detail: detail.clone(),
        });
        ReceiveError { detail: detail.into(), fault }
    }
}

#[async_trait]
impl Source for GrpcSource {
    async fn receive(&self, capacity: Capacity) -> Result<Vec<Delivery>, ReceiveError> {
        if capacity.messages == 0 {
            return Ok(Vec::new());
        }
        let consumer = &*self.consumer;
        let queue = match consumer.next_queue(consumer.core.request_timeout).await {
            Ok(Some(queue)) => queue,
            Ok(None) => return Ok(Vec::new()),
            Err(Some(problem)) => return Err(self.fail(&problem)),
            Err(None) => {
                let detail = format!(
                    "not connected yet to the cluster behind {}; still trying",
                    consumer.core.endpoints
                );
                return Err(ReceiveError { detail: detail.into(), fault: ReceiveFault::Broker });
            }
        };
        self.receive_from(&queue, capacity).await.map_err(|error| self.fail(&error))
    }

    fn status(&self) -> Option<String> {
        let consumer = &*self.consumer;
        let connected = consumer.sessions.all().iter().any(|seat| seat.view().ready);
        if let Some(problem) = consumer.problem() {
            return Some(problem.to_string());
        }
        if !connected {
            return Some(format!("not connected yet to the cluster behind {}", consumer.core.endpoints));
        }
        let now = consumer.core.clock.now();
        consumer.health.lock().sentence(now)
    }

    fn is_joined(&self) -> bool {
        let consumer = &*self.consumer;
        let now = consumer.core.clock.now();
        let subscribes = consumer.is_lite() && consumer.sessions.is_receiving();
        let is_agreed = |view: &View| view.ready && (view.subscribed || !subscribes);
        let route = consumer.route.lock();
        route.is_served(now, |endpoints| {
            consumer.seat(endpoints.text()).is_some_and(|seat| is_agreed(&seat.view()))
        })
    }

    /// A consumer of other topics that does not ask holds up nobody: only lite topics are offered to clients.
    fn set_receiving(&self, receiving: bool) {
        self.consumer.sessions.set_receiving(receiving);
    }

    async fn close(&self) {
        self.consumer.close().await;
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.consumer.end_receive(&self.queue.broker, self.ended);
    }
}

fn arrival(delivery: &Delivery, asked_wall: Timestamp) -> Option<Arrival<'_>> {
    let stored_at = delivery.message.stored_at?;
    Some(Arrival {
        lite_topic: delivery.message.lite_topic.as_ref()?,
        attempt: delivery.attempt,
        stored_before: asked_wall.saturating_since(stored_at),
    })
}

const fn result_of(fault: ReceiveFault) -> events::ReceiveResult {
    match fault {
        ReceiveFault::Broker => events::ReceiveResult::Broker,
        ReceiveFault::Throttled => events::ReceiveResult::Throttled,
        ReceiveFault::Access => events::ReceiveResult::Access,
        ReceiveFault::Subscription => events::ReceiveResult::Subscription,
    }
}
