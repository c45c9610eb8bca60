//! The producer: sends messages of every kind, each with several attempts.

mod topics;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::StreamExt as _;
use tidegate_connector::Clock;
use tidegate_model::MessageId;
use tidegate_proto::rocketmq as proto;
use tidegate_telemetry::Telemetry;
use tidegate_telemetry::events::rocketmq as events;

use crate::choice;
use crate::core::{Core, SetupError, host_name};
use crate::credentials::Purpose;
use crate::fault::{CallError, Method, Reason, Subject};
use crate::message_id::MessageIds;
use crate::options::ClientOptions;
use crate::outgoing::{BODY_BYTES_MAX, InvalidMessage, Kind, Outgoing};
use crate::profile::Profile;
use crate::route::Queue;
use crate::sessions::{Note, Seat, Sessions};
use topics::Topics;

/// Attempts of one message, unless told otherwise.
const ATTEMPTS_MAX: u32 = 3;
/// Most messages of one request, and most bytes of their bodies: a broker stores them as one record of at most 4 MiB.
const REQUEST_MESSAGES_MAX: usize = 128;
const REQUEST_BYTES_MAX: usize = 1 << 20;
/// A body of more bytes waits for the server's Settings before it is checked, since they name the limit. No server's
/// limit is below this.
const BODY_BYTES_UNASKED: usize = 64 << 10;
/// Requests of one batch at the same time.
const LANES_IN_FLIGHT_MAX: usize = 64;

/// Sends messages. Clones share one client and may send at the same time.
#[derive(Clone)]
pub struct Producer(Arc<Inner>);

struct Inner {
    core: Arc<Core>,
    sessions: Arc<Sessions>,
    topics: Topics,
    ids: MessageIds,
    born_host: String,
    turns: AtomicUsize,
    attempts_max: u32,
}

/// A message that the broker has stored.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Sent {
    /// The message's id, as receivers will see it.
    pub message_id: MessageId,
    /// Its place in its queue, as the broker says.
    pub offset: i64,
    /// With which a delayed message can be called back; empty for others.
    pub recall_handle: Box<str>,
}

/// Why a message was not sent.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SendError {
    /// It cannot be sent as it is.
    #[error("a message to topic `{topic}` cannot be sent: {problem}")]
    Invalid {
        /// Where to.
        topic: Arc<str>,
        /// What is wrong with it.
        problem: InvalidMessage,
    },
    /// The topic takes other kinds of messages.
    #[error("topic `{topic}` takes no {kind} messages; its `message.type` is {takes}")]
    WrongKind {
        /// Where to.
        topic: Arc<str>,
        /// As given.
        kind: &'static str,
        /// What the topic takes.
        takes: Box<str>,
    },
    /// Its route could not be found, or all attempts failed.
    #[error("a message to topic `{topic}` was not sent after {attempts} attempts")]
    Failed {
        /// Where to.
        topic: Arc<str>,
        /// How often it was tried; zero when no broker was found.
        attempts: u32,
        /// Why the last one failed.
        #[source]
        source: CallError,
    },
}

/// A message on its way.
struct Pending {
    at: usize,
    message: proto::Message,
    queues: Vec<Arc<Queue>>,
    body_bytes: usize,
    /// Messages of one lane keep their order: the lite topic, or the queue of the message group.
    lane: Option<Arc<str>>,
}

type Result<T = Sent, E = SendError> = std::result::Result<T, E>;

impl SendError {
    /// Whether sending the same message again, later, can help.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        match self {
            Self::Invalid { .. } | Self::WrongKind { .. } => false,
            Self::Failed { source, .. } => source.reason().is_retryable(),
        }
    }
}

impl Producer {
    /// A producer for the cluster behind the options' access point. It connects when the first message is sent.
    ///
    /// # Errors
    /// When something on this side of the network is wrong, such as a certificate file.
    #[allow(clippy::unused_async, reason = "connecting may wait one day, and callers should be ready for it")]
    pub async fn connect(
        options: ClientOptions,
        clock: Clock,
        telemetry: Telemetry,
        name: Arc<str>,
    ) -> std::result::Result<Self, SetupError> {
        let subject = Subject {
            access_point: Arc::clone(options.endpoints.text()),
            endpoint: None,
            topic: None,
            group: None,
            topic_kind: None,
            names: options.names,
        };
        let core = Arc::new(Core::new(&options, subject, Purpose::Produce, clock, telemetry, name)?);
        let mut machine = [0; 6];
        getrandom::fill(&mut machine).map_err(SetupError::Random)?;
        Ok(Self(Arc::new(Inner {
            sessions: Arc::new(Sessions::new(Arc::clone(&core), Profile::producer())),
            topics: Topics::new(core.access_point()?),
            ids: MessageIds::new(machine, std::process::id()),
            born_host: host_name(),
            turns: AtomicUsize::new(0),
            attempts_max: ATTEMPTS_MAX,
            core,
        })))
    }

    /// The same with another number of attempts. For a producer that has no clones yet.
    #[must_use]
    pub fn with_attempts(mut self, attempts_max: u32) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            inner.attempts_max = attempts_max.max(1);
        }
        self
    }

    /// Sends one message.
    ///
    /// # Errors
    /// When the message is not valid, its topic not known, or all attempts failed.
    pub async fn send(&self, message: Outgoing) -> Result {
        let mut results = self.send_batch(vec![message]).await;
        // One result per message.
        results.swap_remove(0)
    }

    /// Sends several messages, those for one queue in few requests; those of one lite topic or message group one after
    /// the other. One result per message, in the same order.
    pub async fn send_batch(&self, messages: Vec<Outgoing>) -> Vec<Result> {
        self.send_all(&messages).await
    }

    /// As [`send_batch`](Self::send_batch); whoever sends may want to send a part of it again.
    pub(crate) async fn send_all(&self, messages: &[Outgoing]) -> Vec<Result> {
        let mut results: Vec<Option<Result>> = Vec::new();
        results.resize_with(messages.len(), || None);
        let mut groups: Vec<Vec<Pending>> = Vec::new();
        for (at, message) in messages.iter().enumerate() {
            match self.0.prepare(at, message).await {
                Ok(pending) => join_group(&mut groups, pending),
                Err(error) => results[at] = Some(Err(error)),
            }
        }
        let lanes = lanes_of(groups).into_iter().map(|lane| self.0.send_lane(messages, lane));
        let mut sending = futures::stream::iter(lanes).buffer_unordered(LANES_IN_FLIGHT_MAX);
        while let Some(done) = sending.next().await {
            for (at, result) in done {
                results[at] = Some(result);
            }
        }
        let results: Vec<Result> = results.into_iter().flatten().collect();
        self.0.tell(&results);
        results
    }

    /// A seed for jitter, different for every producer.
    pub(crate) fn seed(&self) -> u64 {
        self.0.core.seed()
    }

    /// Takes leave of the cluster and waits for every task.
    pub async fn close(&self) {
        self.0.sessions.close().await;
    }
}

impl Inner {
    /// Checks a message and finds the queues to try.
    async fn prepare(&self, at: usize, outgoing: &Outgoing) -> Result<Pending> {
        let topic = &outgoing.topic;
        let invalid = |problem| SendError::Invalid { topic: Arc::clone(topic), problem };
        outgoing.check(usize::MAX).map_err(invalid)?;
        let queues = self.topics.queues(&self.core, topic).await.map_err(|source| SendError::Failed {
            topic: Arc::clone(topic),
            attempts: 0,
            source,
        })?;
        let body_bytes_max = self.body_bytes_max(&queues, outgoing.body.len()).await;
        outgoing.check(body_bytes_max).map_err(invalid)?;
        let turn = self.turns.fetch_add(1, Ordering::Relaxed);
        let isolated = |endpoints: &crate::Endpoints| self.topics.is_isolated(endpoints, &self.sessions);
        let attempts = choice::attempts(&queues, &outgoing.kind, turn, self.attempts_max, isolated);
        if attempts.is_empty() {
            return Err(wrong_kind(outgoing, &queues));
        }
        if self.sessions.profile().publish(topic) {
            for seat in self.sessions.all() {
                seat.note(Note::PublishesMore);
            }
        }
        let now = self.core.clock.wall();
        let message = outgoing.to_proto(self.core.resource(topic), self.ids.next(now), now, &self.born_host);
        let lane = match &outgoing.kind {
            Kind::Lite { lite_topic } => Some(Arc::clone(lite_topic)),
            Kind::Fifo { .. } => {
                let queue = &attempts[0];
                Some(format!("{} {}", queue.broker, queue.message_queue.id).into())
            }
            Kind::Normal | Kind::Delay { .. } => None,
        };
        Ok(Pending { at, message, queues: attempts, body_bytes: outgoing.body.len(), lane })
    }

    /// Sends requests one after the other.
    async fn send_lane(&self, messages: &[Outgoing], lane: Vec<Vec<Pending>>) -> Vec<(usize, Result)> {
        let mut done = Vec::new();
        for group in lane {
            done.extend(self.send_group(messages, group).await);
        }
        done
    }

    /// Sends the messages of one request, and those that failed once more, up to the most attempts.
    async fn send_group(&self, messages: &[Outgoing], group: Vec<Pending>) -> Vec<(usize, Result)> {
        let mut done = Vec::with_capacity(group.len());
        let mut open = group;
        for attempt in 1..=self.attempts_max {
            let step = usize::try_from(attempt - 1).unwrap_or(usize::MAX);
            let queue = Arc::clone(&open[0].queues[step]);
            let outcome = self.send_once(&queue, &open).await;
            let mut again = Vec::new();
            for (pending, result) in open.into_iter().zip(outcome) {
                match result {
                    Ok(sent) => done.push((pending.at, Ok(sent))),
                    Err(error) if attempt < self.attempts_max && error.reason().is_retryable() => {
                        let (name, detail) = (Arc::clone(&self.core.name), error.to_string());
                        self.core.telemetry.emit(events::SendRetried { name, attempt, detail });
                        again.push((pending, error));
                    }
                    Err(source) => {
                        let topic = Arc::clone(&messages[pending.at].topic);
                        done.push((pending.at, Err(SendError::Failed { topic, attempts: attempt, source })));
                    }
                }
            }
            let Some((_, error)) = again.first() else { break };
            self.topics.wait_before_retry(error, attempt).await;
            open = again.into_iter().map(|(pending, _)| pending).collect();
        }
        done
    }

    async fn send_once(&self, queue: &Queue, group: &[Pending]) -> Vec<std::result::Result<Sent, CallError>> {
        let fail = |error: CallError| group.iter().map(|_| Err(error.clone())).collect();
        let seat = match self.ready_seat(queue).await {
            Ok(seat) => seat,
            Err(error) => {
                self.topics.isolate(&queue.endpoints, &self.core);
                return fail(error);
            }
        };
        let mut messages: Vec<proto::Message> = group.iter().map(|pending| pending.message.clone()).collect();
        for message in &mut messages {
            if let Some(system) = &mut message.system_properties {
                system.queue_id = queue.message_queue.id;
            }
        }
        let answer = match seat.peer.send(proto::SendMessageRequest { messages }).await {
            Ok(answer) => answer,
            Err(error) => {
                seat.note(Note::CallFailed(error.clone()));
                self.topics.isolate(&queue.endpoints, &self.core);
                return fail(error);
            }
        };
        let mut results = Vec::with_capacity(group.len());
        for (place, pending) in group.iter().enumerate() {
            let entry = answer.entries.get(place);
            let status = entry.and_then(|entry| entry.status.as_ref()).or(answer.status.as_ref());
            results.push(match seat.peer.verdict(Method::SendMessage, status) {
                Ok(()) => Ok(sent(pending, entry)),
                Err(error) => {
                    if error.reason() == Reason::TopicUnknown {
                        self.topics.distrust(&pending.message);
                    }
                    seat.note(Note::CallFailed(error.clone()));
                    Err(seat.peer.noted(error).await)
                }
            });
        }
        results
    }

    async fn ready_seat(&self, queue: &Queue) -> std::result::Result<Arc<Seat>, CallError> {
        let unusable = |said: String| {
            CallError::other(&self.core.subject, Method::SendMessage, Reason::Unreachable, said)
        };
        let seat = self.sessions.ensure(&queue.endpoints).map_err(|error| unusable(error.to_string()))?;
        let seat = seat.ok_or_else(|| unusable("the producer is closed".to_owned()))?;
        if seat.view().ready || self.sessions.ready(&seat, self.core.request_timeout).await {
            return Ok(seat);
        }
        let problem = seat.view().problem.clone();
        Err(problem.unwrap_or_else(|| unusable(format!("no session with {}", queue.endpoints))))
    }

    /// As the servers of a route say, or their default. A small body need not wait for what they say.
    async fn body_bytes_max(&self, queues: &[Arc<Queue>], body_bytes: usize) -> usize {
        let of = |queue: &Arc<Queue>| self.sessions.get(queue.endpoints.text())?.view().body_bytes_max;
        let announced = || queues.iter().filter_map(of).min();
        if let Some(first) = queues.first()
            && body_bytes > BODY_BYTES_UNASKED
            && announced().is_none()
        {
            // A server that is away is told of when the message is sent.
            let _ = self.ready_seat(first).await;
        }
        announced().unwrap_or(BODY_BYTES_MAX)
    }

    fn tell(&self, results: &[Result]) {
        let kind = |result: &Result| match result {
            Ok(_) => events::SendResult::Ok,
            Err(error) if error.is_retryable() => events::SendResult::Broker,
            Err(_) => events::SendResult::Refused,
        };
        for result in [events::SendResult::Ok, events::SendResult::Broker, events::SendResult::Refused] {
            let count = results.iter().filter(|sent| kind(sent) == result).count();
            if count > 0 {
                let messages = u64::try_from(count).unwrap_or(u64::MAX);
                self.core.telemetry.emit(events::Sent {
                    name: Arc::clone(&self.core.name),
                    result,
                    messages,
                });
            }
        }
    }
}

impl fmt::Debug for Producer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer").field("endpoints", &self.0.core.endpoints).finish_non_exhaustive()
    }
}

/// Messages whose attempts go to the same queues travel together.
fn join_group(groups: &mut Vec<Vec<Pending>>, pending: Pending) {
    // Several lite messages in one request are answered OK and never reach their lite topics (measured on 5.5.0).
    if kind_of(&pending) == proto::MessageType::Lite {
        groups.push(vec![pending]);
        return;
    }
    let fits = |group: &&mut Vec<Pending>| {
        let bytes: usize = group.iter().map(|member| member.body_bytes).sum();
        group.len() < REQUEST_MESSAGES_MAX
            && bytes + pending.body_bytes <= REQUEST_BYTES_MAX
            && group[0].message.topic == pending.message.topic
            && kind_of(&group[0]) == kind_of(&pending)
            && group[0].queues.iter().zip(&pending.queues).all(|(a, b)| a.broker == b.broker)
            && (kind_of(&pending) != proto::MessageType::Fifo
                || Arc::ptr_eq(&group[0].queues[0], &pending.queues[0]))
    };
    match groups.iter_mut().find(fits) {
        Some(group) => group.push(pending),
        None => groups.push(vec![pending]),
    }
}

/// Requests that must follow each other, in their order; the others are lanes of their own.
fn lanes_of(groups: Vec<Vec<Pending>>) -> Vec<Vec<Vec<Pending>>> {
    let mut lanes: Vec<Vec<Vec<Pending>>> = Vec::new();
    let mut lane_of: HashMap<(Option<proto::Resource>, Arc<str>), usize> = HashMap::new();
    for group in groups {
        let Some(lane) = group[0].lane.clone() else {
            lanes.push(vec![group]);
            continue;
        };
        let key = (group[0].message.topic.clone(), lane);
        let at = *lane_of.entry(key).or_insert_with(|| {
            lanes.push(Vec::new());
            lanes.len() - 1
        });
        lanes[at].push(group);
    }
    lanes
}

fn kind_of(pending: &Pending) -> proto::MessageType {
    pending
        .message
        .system_properties
        .as_ref()
        .map_or(proto::MessageType::Unspecified, |system| system.message_type())
}

fn sent(pending: &Pending, entry: Option<&proto::SendResultEntry>) -> Sent {
    let own_id = pending.message.system_properties.as_ref().map(|system| system.message_id.as_str());
    // A request of several is answered by one entry with all the ids in one text (measured on 5.5.0).
    let given = entry.map(|entry| entry.message_id.as_str()).filter(|id| !id.is_empty() && !id.contains(','));
    Sent {
        message_id: MessageId::from(given.or(own_id).unwrap_or_default()),
        offset: entry.map_or(0, |entry| entry.offset),
        recall_handle: entry.map(|entry| entry.recall_handle.as_str()).unwrap_or_default().into(),
    }
}

fn wrong_kind(outgoing: &Outgoing, queues: &[Arc<Queue>]) -> SendError {
    let mut takes: Vec<&str> = queues
        .iter()
        .flat_map(|queue| queue.message_queue.accept_message_types())
        .map(|kind| kind.as_str_name())
        .collect();
    takes.sort_unstable();
    takes.dedup();
    let takes = if takes.is_empty() { "not writable at all".to_owned() } else { takes.join(", ") };
    SendError::WrongKind {
        topic: Arc::clone(&outgoing.topic),
        kind: outgoing.kind.name(),
        takes: takes.into(),
    }
}
