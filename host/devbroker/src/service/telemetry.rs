//! The telemetry stream: settings in, settings out, commands to the client.

use std::sync::Arc;

use tidegate_proto::rocketmq as wire;
use tidegate_proto::rocketmq::ClientType;
use tidegate_proto::rocketmq::settings::PubSub;
use tidegate_proto::rocketmq::telemetry_command::Command;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::answer::{ok, status};
use super::call::{Call, Caller, name};
use super::receive::is_lite_type;
use super::validate::{BODY_MAX, LITE_TOPIC_LENGTH_MAX};
use super::{Items, Service};
use crate::faults::{Effect, Method};
use crate::hub::Settling;
use crate::journal;
use crate::options::{Group, Profile};

/// Commands that wait for a client which does not read its stream.
const COMMANDS_MAX: usize = 16;

/// What the server tells consumers.
const RECEIVE_BATCH: i32 = 32;
const LONG_POLLING_SECONDS: i64 = 20;

/// The waits of the default customized backoff of groups, in seconds.
const BACKOFF_SECONDS: &[i64] =
    &[1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1_200, 1_800, 3_600];

/// Settings: producers' attempts and backoff.
const PUBLISH_ATTEMPTS: i32 = 3;

/// A telemetry stream that is open.
struct Session {
    service: Service,
    stream: usize,
    client: Arc<str>,
    caller: Caller,
}

/// What goes out over a telemetry stream.
type Outgoing = mpsc::Sender<Result<wire::TelemetryCommand, Status>>;

impl Service {
    /// Opens a telemetry stream. As with the real proxy the answer's headers come with its first item, so a client must
    /// send its settings before it waits.
    pub(super) async fn open_telemetry(
        &self,
        request: Request<Streaming<wire::TelemetryCommand>>,
    ) -> Result<Response<Items<wire::TelemetryCommand>>, Status> {
        self.thawed().await?;
        let call = Call::new(self, Method::Telemetry, &request);
        match &call.fault {
            Some(Effect::Delay(wait)) => self.sleep(*wait).await?,
            Some(Effect::Grpc { code, message }) => return Err(Status::new((*code).into(), message.clone())),
            _ => {}
        }
        let identified = call.identify();
        let mut incoming = request.into_inner();
        let first = tokio::select! {
            first = incoming.message() => first?,
            () = self.cut.cancelled() => return Err(Status::unavailable("the proxy is stopping")),
        };
        let Some(first) = first else { return Ok(Response::new(Box::pin(tokio_stream::empty()))) };
        let stream = self.hub.proxies[self.proxy].next_stream();
        let (outgoing, answers) = mpsc::channel(COMMANDS_MAX);
        let answer = match (identified, &call.fault) {
            (_, Some(Effect::Code { code, message })) => only_status(status(*code, message.clone())),
            (Err(refusal), _) => only_status(refusal),
            (Ok(()), _) => {
                call.handle_command(first, stream, &outgoing)?.unwrap_or_else(|| only_status(ok()))
            }
        };
        // The channel is empty: this cannot fail.
        let _ = outgoing.try_send(Ok(answer));
        if !matches!(call.fault, Some(Effect::CloseStream)) {
            let session = Session {
                service: self.clone(),
                stream,
                client: Arc::clone(&call.client),
                caller: call.caller(),
            };
            self.hub.tasks.spawn(session.run(incoming, outgoing));
        } else {
            self.end_stream(&call.client, stream);
        }
        Ok(Response::new(Box::pin(ReceiverStream::new(answers))))
    }

    /// A stream that ends takes its client's lite registration with it, unless the client has a newer stream or the
    /// whole proxy is going: then the broker hears nothing of it.
    fn end_stream(&self, client: &str, stream: usize) {
        if self.cut.is_cancelled() {
            return;
        }
        if let Some(settled) = self.hub.proxies[self.proxy].ended_stream(client, stream) {
            self.hub.unregister(self.proxy, &settled.group, client);
        }
    }
}

impl Session {
    /// Answers what the client sends until either side ends the stream.
    async fn run(self, mut incoming: Streaming<wire::TelemetryCommand>, outgoing: Outgoing) {
        loop {
            let message = tokio::select! {
                message = incoming.message() => message,
                () = self.service.cut.cancelled() => break,
                () = outgoing.closed() => break,
            };
            let Ok(Some(command)) = message else { break };
            if self.service.thawed().await.is_err() {
                break;
            }
            let call = Call::continued(&self.service, Arc::clone(&self.client), self.caller.clone());
            let answer = match call.handle_command(command, self.stream, &outgoing) {
                Ok(Some(answer)) => Ok(answer),
                Ok(None) => continue,
                Err(failure) => Err(failure),
            };
            let failed = answer.is_err();
            if outgoing.send(answer).await.is_err() || failed {
                break;
            }
        }
        self.service.end_stream(&self.client, self.stream);
    }
}

impl Call<'_> {
    /// Takes one command of a client. Only settings have an answer.
    fn handle_command(
        &self,
        command: wire::TelemetryCommand,
        stream: usize,
        outgoing: &Outgoing,
    ) -> Result<Option<wire::TelemetryCommand>, Status> {
        let Some(Command::Settings(settings)) = command.command else { return Ok(None) };
        let (group, topics) = match &settings.pub_sub {
            Some(PubSub::Subscription(subscription)) => {
                let entries = subscription.subscriptions.iter();
                let topics = entries.map(|entry| name(entry.topic.as_ref()).to_owned()).collect();
                (name(subscription.group.as_ref()).to_owned(), topics)
            }
            Some(PubSub::Publishing(publishing)) => {
                let topics = publishing.topics.iter().map(|topic| topic.name.clone()).collect();
                (String::new(), topics)
            }
            None => {
                return Err(Status::invalid_argument("settings have neither publishing nor subscription"));
            }
        };
        let settling = Settling { client_type: settings.client_type.unwrap_or_default(), group, topics };
        self.keep(|| journal::Call::Settings {
            client_type: settling.client_type,
            group: settling.group.clone(),
            topics: settling.topics.clone(),
        });
        let group = (!settling.group.is_empty()).then_some(settling.group.as_str());
        for topic in &settling.topics {
            if let Err(refusal) = self.authorize(Some(topic), group) {
                return Ok(Some(only_status(refusal)));
            }
        }
        let merged = self.merge(settings, &settling).inspect_err(|_| {
            self.hub.proxies[self.proxy].forget_client(&self.client);
        })?;
        if !self.hub.proxies[self.proxy].settle(&self.client, settling, stream, outgoing) {
            return Err(Status::resource_exhausted("the development broker knows too many clients"));
        }
        let command = Some(Command::Settings(merged));
        Ok(Some(wire::TelemetryCommand { status: Some(ok()), command }))
    }

    /// The server's settings: the client's own with what the server decides. The error ends the
    /// stream.
    fn merge(&self, mut settings: wire::Settings, settling: &Settling) -> Result<wire::Settings, Status> {
        let backoff_policy = match &mut settings.pub_sub {
            Some(PubSub::Subscription(subscription)) => {
                let group = self.check_group(settling)?;
                subscription.fifo = Some(group.orderly);
                subscription.receive_batch_size = Some(RECEIVE_BATCH);
                subscription.long_polling_timeout =
                    Some(prost_types::Duration { seconds: LONG_POLLING_SECONDS, nanos: 0 });
                subscription.lite_subscription_quota =
                    Some(i32::try_from(group.subscription_quota).unwrap_or(i32::MAX));
                subscription.max_lite_topic_size = i32::try_from(LITE_TOPIC_LENGTH_MAX).ok();
                consumer_backoff(&group)
            }
            Some(PubSub::Publishing(publishing)) => {
                publishing.max_body_size = i32::try_from(BODY_MAX).unwrap_or(i32::MAX);
                publishing.validate_message_type = true;
                producer_backoff()
            }
            None => return Ok(settings),
        };
        settings.backoff_policy = Some(backoff_policy);
        settings.metric = Some(wire::Metric { on: false, endpoints: None });
        Ok(settings)
    }

    /// Checks that the client type suits the group.
    fn check_group(&self, settling: &Settling) -> Result<Arc<Group>, Status> {
        let name = settling.group.as_str();
        if settling.client_type == i32::from(ClientType::LiteSimpleConsumer)
            && self.hub.profile == Profile::V5_5_0
        {
            let text = "Client type is not consumer, type: LITE_SIMPLE_CONSUMER";
            return Err(Status::internal(format!("{FAILED} {text}")));
        }
        if !is_lite_type(settling.client_type) {
            let group = self.hub.catalog.group_or_new(name);
            let is_lite = group.lite_bind_topic.is_some();
            return if is_lite {
                Err(illegal(&format!("lite group must use LITE mode: {name}")))
            } else {
                Ok(group)
            };
        }
        let group = self.hub.catalog.group(name);
        let bound = group.as_ref().and_then(|group| group.lite_bind_topic.clone());
        let (Some(group), Some(bound)) = (group, bound) else {
            return Err(illegal(&format!("regular group cannot use LITE mode: {name}")));
        };
        match settling.topics.iter().find(|topic| **topic != *bound) {
            Some(topic) => {
                let text =
                    format!("lite group {name} is expected to bind topic {bound}, but actual is {topic}");
                Err(illegal(&text))
            }
            None => Ok(group),
        }
    }
}

/// How the proxy begins every failure of a telemetry stream.
const FAILED: &str = "process client telemetryCommand failed.";

/// A group that does not go with the client type or the topic.
fn illegal(text: &str) -> Status {
    Status::invalid_argument(format!("{FAILED} {text}"))
}

fn consumer_backoff(group: &Group) -> wire::RetryPolicy {
    let next = BACKOFF_SECONDS.iter().map(|seconds| prost_types::Duration { seconds: *seconds, nanos: 0 });
    wire::RetryPolicy {
        max_attempts: i32::try_from(group.attempts_max).unwrap_or(i32::MAX),
        strategy: Some(wire::retry_policy::Strategy::CustomizedBackoff(wire::CustomizedBackoff {
            next: next.collect(),
        })),
    }
}

fn producer_backoff() -> wire::RetryPolicy {
    wire::RetryPolicy {
        max_attempts: PUBLISH_ATTEMPTS,
        strategy: Some(wire::retry_policy::Strategy::ExponentialBackoff(wire::ExponentialBackoff {
            initial: Some(prost_types::Duration { seconds: 0, nanos: 10_000_000 }),
            max: Some(prost_types::Duration { seconds: 1, nanos: 0 }),
            multiplier: 2.0,
        })),
    }
}

fn only_status(status: wire::Status) -> wire::TelemetryCommand {
    wire::TelemetryCommand { status: Some(status), command: None }
}
