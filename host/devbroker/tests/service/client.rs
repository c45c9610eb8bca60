//! A client that speaks the protocol by hand: nothing is retried, renewed or hidden.

use std::net::SocketAddr;
use std::time::Duration;

use tidegate_devbroker::{Broker, Control, Group, Options, Topic, TopicKind};
use tidegate_proto::rocketmq as wire;
use tidegate_proto::rocketmq::messaging_service_client::MessagingServiceClient;
use tidegate_proto::rocketmq::receive_message_response::Content;
use tidegate_proto::rocketmq::settings::PubSub;
use tidegate_proto::rocketmq::telemetry_command::Command;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status, Streaming};

pub const LITE: i32 = wire::ClientType::LitePushConsumer as i32;
pub const SIMPLE: i32 = wire::ClientType::SimpleConsumer as i32;

/// The topics and groups most tests need.
pub fn options() -> Options {
    let mut options = Options::new(SocketAddr::from(([127, 0, 0, 1], 0)));
    options.topics = vec![
        Topic::new("LT", TopicKind::Lite),
        Topic::new("LT2", TopicKind::Lite),
        Topic::new("NT", TopicKind::Normal),
        Topic::new("FT", TopicKind::Fifo),
        Topic::new("DT", TopicKind::Delay),
    ];
    options.groups = vec![
        Group::lite("GL", "LT"),
        Group::lite("GL3", "LT").with_attempts_max(3),
        Group { wildcard: false, ..Group::lite("GLnowild", "LT") },
        Group { lite_bind_topic: None, ..Group::lite("GLnobind", "LT") },
        Group::lite("GL2", "LT2"),
        Group::regular("GN"),
        Group::regular("GN3").with_attempts_max(3),
        Group::orderly("GF"),
    ];
    options
}

pub struct Client {
    pub grpc: MessagingServiceClient<Channel>,
    pub id: String,
    pub topic: String,
    pub group: String,
    pub client_type: i32,
    pub broker: String,
    pub authorization: Option<(String, String)>,
    commands: Option<mpsc::Sender<wire::TelemetryCommand>>,
    control: Option<Control>,
}

pub struct Received {
    pub code: i32,
    pub text: String,
    pub messages: Vec<wire::Message>,
    pub order: Vec<&'static str>,
}

impl Client {
    pub async fn connect(broker: &Broker, id: &str, topic: &str, group: &str, client_type: i32) -> Self {
        let mut client = Self::at(broker.address(), id, topic, group, client_type).await;
        client.control = Some(broker.control());
        client
    }

    pub async fn at(address: SocketAddr, id: &str, topic: &str, group: &str, client_type: i32) -> Self {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
        let channel = endpoint.connect().await.unwrap();
        Self::over(channel, id, topic, group, client_type)
    }

    pub fn over(channel: Channel, id: &str, topic: &str, group: &str, client_type: i32) -> Self {
        Self {
            grpc: MessagingServiceClient::new(channel).max_decoding_message_size(64 << 20),
            id: id.to_owned(),
            topic: topic.to_owned(),
            group: group.to_owned(),
            client_type,
            broker: "broker-a".to_owned(),
            authorization: None,
            commands: None,
            control: None,
        }
    }

    /// A lite consumer that has settled and subscribed.
    pub async fn lite(broker: &Broker, id: &str) -> Self {
        let mut client = Self::connect(broker, id, "LT", "GL", LITE).await;
        client.ready().await;
        client
    }

    /// A simple consumer of the normal topic that has settled.
    pub async fn simple(broker: &Broker, id: &str, topic: &str, group: &str) -> Self {
        let mut client = Self::connect(broker, id, topic, group, SIMPLE).await;
        client.settle().await.unwrap();
        client
    }

    pub async fn ready(&mut self) {
        let answer = self.settle().await.unwrap();
        assert_eq!(answer.status.unwrap().code, 20_000);
        assert_eq!(self.sync(wire::LiteSubscriptionAction::CompleteAdd, &[]).await.code, 20_000);
    }

    pub fn request<T>(&self, message: T, timeout: Option<Duration>) -> Request<T> {
        let mut request = Request::new(message);
        let metadata = request.metadata_mut();
        metadata.insert("x-mq-client-id", self.id.parse().unwrap());
        metadata.insert("x-mq-language", "RUST".parse().unwrap());
        metadata.insert("x-mq-protocol", "v2".parse().unwrap());
        metadata.insert("x-mq-client-version", "5.2.0".parse().unwrap());
        if let Some((authorization, date_time)) = &self.authorization {
            if !authorization.is_empty() {
                metadata.insert("authorization", authorization.parse().unwrap());
            }
            metadata.insert("x-mq-date-time", date_time.parse().unwrap());
        }
        if let Some(timeout) = timeout {
            request.set_timeout(timeout);
        }
        request
    }

    fn short<T>(&self, message: T) -> Request<T> {
        self.request(message, Some(Duration::from_secs(3)))
    }

    pub fn settings(&self) -> wire::Settings {
        let pub_sub = if self.group.is_empty() {
            PubSub::Publishing(wire::Publishing {
                topics: vec![resource(&self.topic)],
                max_body_size: 0,
                validate_message_type: true,
            })
        } else {
            PubSub::Subscription(wire::Subscription {
                group: Some(resource(&self.group)),
                subscriptions: vec![wire::SubscriptionEntry {
                    topic: Some(resource(&self.topic)),
                    expression: Some(wire::FilterExpression { r#type: 1, expression: "*".to_owned() }),
                }],
                ..wire::Subscription::default()
            })
        };
        wire::Settings {
            client_type: Some(self.client_type),
            pub_sub: Some(pub_sub),
            ..wire::Settings::default()
        }
    }

    /// Opens telemetry and gives the first answer. The stream stays open as long as the client lives.
    pub async fn settle(&mut self) -> Result<wire::TelemetryCommand, Status> {
        self.settle_with(self.settings()).await.map(|(first, _)| first)
    }

    pub async fn settle_with(
        &mut self,
        settings: wire::Settings,
    ) -> Result<(wire::TelemetryCommand, Streaming<wire::TelemetryCommand>), Status> {
        let (commands, outgoing) = mpsc::channel(4);
        let command = Some(Command::Settings(settings));
        commands.send(wire::TelemetryCommand { status: None, command }).await.unwrap();
        self.commands = Some(commands);
        let request = self.request(ReceiverStream::new(outgoing), None);
        let mut answers = self.grpc.telemetry(request).await?.into_inner();
        let first = answers.message().await?.expect("the stream ended without an answer");
        Ok((first, answers))
    }

    /// Ends the telemetry stream from the client's side.
    pub fn hang_up(&mut self) {
        self.commands = None;
    }

    pub async fn sync(&mut self, action: wire::LiteSubscriptionAction, names: &[&str]) -> wire::Status {
        let message = wire::SyncLiteSubscriptionRequest {
            action: action.into(),
            topic: Some(resource(&self.topic)),
            group: Some(resource(&self.group)),
            lite_topic_set: names.iter().map(|name| (*name).to_owned()).collect(),
            ..wire::SyncLiteSubscriptionRequest::default()
        };
        let request = self.short(message);
        self.grpc.sync_lite_subscription(request).await.unwrap().into_inner().status.unwrap()
    }

    pub async fn heartbeat(&mut self) -> wire::Status {
        let group = (!self.group.is_empty()).then(|| resource(&self.group));
        let request = self.short(wire::HeartbeatRequest { group, client_type: self.client_type });
        self.grpc.heartbeat(request).await.unwrap().into_inner().status.unwrap()
    }

    pub async fn terminate(&mut self) -> wire::Status {
        let group = Some(resource(&self.group));
        let request = self.short(wire::NotifyClientTerminationRequest { group });
        self.grpc.notify_client_termination(request).await.unwrap().into_inner().status.unwrap()
    }

    pub async fn route(&mut self) -> wire::QueryRouteResponse {
        self.route_asked_at(&[1]).await
    }

    /// The route as told to a client that knows the proxies by these ports.
    pub async fn route_asked_at(&mut self, ports: &[i32]) -> wire::QueryRouteResponse {
        let address = |port: &i32| wire::Address { host: "some-host".to_owned(), port: *port };
        let endpoints = wire::Endpoints {
            scheme: wire::AddressScheme::DomainName.into(),
            addresses: ports.iter().map(address).collect(),
        };
        let message =
            wire::QueryRouteRequest { topic: Some(resource(&self.topic)), endpoints: Some(endpoints) };
        let request = self.short(message);
        self.grpc.query_route(request).await.unwrap().into_inner()
    }

    /// A message with this body, and the body as its id.
    pub fn message(&self, body: &str) -> wire::Message {
        wire::Message {
            topic: Some(resource(&self.topic)),
            body: bytes::Bytes::copy_from_slice(body.as_bytes()),
            system_properties: Some(wire::SystemProperties {
                message_id: body.to_owned(),
                born_host: "h".to_owned(),
                body_encoding: 1,
                ..wire::SystemProperties::default()
            }),
            ..wire::Message::default()
        }
    }

    pub fn lite_message(&self, body: &str, lite_topic: &str) -> wire::Message {
        let mut message = self.message(body);
        message.system_properties.as_mut().unwrap().lite_topic = Some(lite_topic.to_owned());
        message
    }

    pub async fn send(&mut self, messages: Vec<wire::Message>) -> wire::SendMessageResponse {
        let request = self.short(wire::SendMessageRequest { messages });
        self.grpc.send_message(request).await.unwrap().into_inner()
    }

    pub async fn send_lite(&mut self, body: &str, lite_topic: &str) {
        let message = self.lite_message(body, lite_topic);
        assert_eq!(code(&self.send(vec![message]).await.status), 20_000);
    }

    pub async fn send_all(&mut self, bodies: &[&str], lite_topic: &str) {
        for body in bodies {
            self.send_lite(body, lite_topic).await;
        }
    }

    pub fn receive_request(&self, batch_size: i32, invisible_seconds: i64) -> wire::ReceiveMessageRequest {
        wire::ReceiveMessageRequest {
            group: Some(resource(&self.group)),
            message_queue: Some(wire::MessageQueue {
                topic: Some(resource(&self.topic)),
                broker: Some(wire::Broker { name: self.broker.clone(), ..wire::Broker::default() }),
                ..wire::MessageQueue::default()
            }),
            filter_expression: Some(wire::FilterExpression { r#type: 1, expression: "*".to_owned() }),
            batch_size,
            invisible_duration: Some(seconds(invisible_seconds)),
            long_polling_timeout: Some(seconds(5)),
            ..wire::ReceiveMessageRequest::default()
        }
    }

    pub async fn receive(&mut self, batch_size: i32, invisible_seconds: i64) -> Received {
        let message = self.receive_request(batch_size, invisible_seconds);
        self.receive_with(message, Some(Duration::from_secs(9))).await.unwrap()
    }

    /// The bodies of one receive.
    pub async fn bodies(&mut self, batch_size: i32, invisible_seconds: i64) -> Vec<String> {
        self.receive(batch_size, invisible_seconds).await.messages.iter().map(body).collect()
    }

    pub async fn receive_with(
        &mut self,
        message: wire::ReceiveMessageRequest,
        timeout: Option<Duration>,
    ) -> Result<Received, Status> {
        let request = self.request(message, timeout);
        let mut items = self.grpc.receive_message(request).await?.into_inner();
        let mut received = Received { code: 0, text: String::new(), messages: Vec::new(), order: Vec::new() };
        while let Some(item) = items.message().await? {
            match item.content {
                Some(Content::Status(status)) => {
                    received.code = status.code;
                    received.text = status.message;
                    received.order.push("status");
                }
                Some(Content::Message(message)) => {
                    received.messages.push(message);
                    received.order.push("message");
                }
                Some(Content::DeliveryTimestamp(_)) => received.order.push("time"),
                None => {}
            }
        }
        Ok(received)
    }

    pub async fn ack_entries(&mut self, entries: Vec<wire::AckMessageEntry>) -> wire::AckMessageResponse {
        let message = wire::AckMessageRequest {
            group: Some(resource(&self.group)),
            topic: Some(resource(&self.topic)),
            entries,
        };
        let request = self.short(message);
        self.grpc.ack_message(request).await.unwrap().into_inner()
    }

    /// Acks one message; gives the entry's code and text, or the top one's without entries.
    pub async fn ack(&mut self, message: &wire::Message) -> (i32, String) {
        let answer = self.ack_entries(vec![entry(message)]).await;
        let status = answer.entries.first().and_then(|entry| entry.status.clone()).or(answer.status).unwrap();
        (status.code, status.message)
    }

    pub async fn change(
        &mut self,
        message: &wire::Message,
        seconds_: i64,
        suspend: Option<bool>,
    ) -> wire::ChangeInvisibleDurationResponse {
        let system = message.system_properties.as_ref().unwrap();
        let message = wire::ChangeInvisibleDurationRequest {
            group: Some(resource(&self.group)),
            topic: Some(resource(&self.topic)),
            receipt_handle: handle(message),
            invisible_duration: Some(seconds(seconds_)),
            message_id: system.message_id.clone(),
            lite_topic: system.lite_topic.clone(),
            suspend,
        };
        let request = self.short(message);
        self.grpc.change_invisible_duration(request).await.unwrap().into_inner()
    }

    pub async fn forward(&mut self, message: &wire::Message, with_lite_topic: bool) -> wire::Status {
        let system = message.system_properties.as_ref().unwrap();
        let message = wire::ForwardMessageToDeadLetterQueueRequest {
            group: Some(resource(&self.group)),
            topic: Some(resource(&self.topic)),
            receipt_handle: handle(message),
            message_id: system.message_id.clone(),
            delivery_attempt: 1,
            max_delivery_attempts: 3,
            lite_topic: system.lite_topic.clone().filter(|_| with_lite_topic),
        };
        let request = self.short(message);
        let answer = self.grpc.forward_message_to_dead_letter_queue(request).await.unwrap();
        answer.into_inner().status.unwrap()
    }
}

pub fn resource(name: &str) -> wire::Resource {
    wire::Resource { resource_namespace: String::new(), name: name.to_owned() }
}

pub fn seconds(seconds: i64) -> prost_types::Duration {
    prost_types::Duration { seconds, nanos: 0 }
}

pub fn code(status: &Option<wire::Status>) -> i32 {
    status.as_ref().unwrap().code
}

pub fn body(message: &wire::Message) -> String {
    String::from_utf8(message.body.to_vec()).unwrap()
}

pub fn handle(message: &wire::Message) -> String {
    message.system_properties.as_ref().unwrap().receipt_handle.clone().unwrap()
}

pub fn attempt(message: &wire::Message) -> i32 {
    message.system_properties.as_ref().unwrap().delivery_attempt.unwrap()
}

pub fn entry(message: &wire::Message) -> wire::AckMessageEntry {
    let system = message.system_properties.as_ref().unwrap();
    wire::AckMessageEntry {
        message_id: system.message_id.clone(),
        receipt_handle: handle(message),
        lite_topic: system.lite_topic.clone(),
    }
}

/// The same message with another handle.
pub fn with_handle(message: &wire::Message, handle: &str) -> wire::Message {
    let mut message = message.clone();
    message.system_properties.as_mut().unwrap().receipt_handle = Some(handle.to_owned());
    message
}

/// The same message with one field of its handle replaced.
pub fn with_field(message: &wire::Message, field: usize, value: &str) -> wire::Message {
    let handle = handle(message);
    let mut fields: Vec<&str> = handle.split(' ').collect();
    fields[field] = value;
    with_handle(message, &fields.join(" "))
}

impl Client {
    /// The messages a receive finds at once; an empty long poll is given up after a moment. Returns when the broker
    /// has noticed that, or it would still hand messages to the abandoned poll.
    pub async fn glance(&mut self, batch_size: i32, invisible_seconds: i64) -> Vec<wire::Message> {
        let receive = self.receive(batch_size, invisible_seconds);
        let found = tokio::time::timeout(Duration::from_millis(100), receive).await;
        if let Some(control) = &self.control {
            while control.stats().receives_in_flight > 0 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
        found.map(|received| received.messages).unwrap_or_default()
    }

    /// Asserts that a receive finds nothing at once.
    pub async fn finds_nothing(&mut self) {
        let found: Vec<String> = self.glance(32, 10).await.iter().map(body).collect();
        assert!(found.is_empty(), "found {found:?}");
    }

    /// Receives until there are `count` messages.
    pub async fn gather(&mut self, count: usize, invisible_seconds: i64) -> Vec<wire::Message> {
        let mut all = Vec::new();
        while all.len() < count {
            let received = self.receive(32, invisible_seconds).await;
            assert_eq!(received.code, 20_000, "{}", received.text);
            all.extend(received.messages);
        }
        all
    }
}
