//! Names, types, sizes, groups and the checks of receive, with the codes and texts of 5.5.0.

use std::time::Duration;

use tidegate_devbroker::{Broker, Profile};
use tidegate_proto::rocketmq as wire;
use tidegate_proto::rocketmq::LiteSubscriptionAction as Action;
use tidegate_proto::rocketmq::settings::PubSub;

use crate::client::*;

async fn start() -> Broker {
    Broker::start(options()).await.unwrap()
}

fn told(status: wire::Status) -> (i32, String) {
    (status.code, status.message)
}

#[tokio::test]
async fn lite_topic_names() {
    let broker = start().await;
    let mut client = Client::lite(&broker, "c").await;
    for name in ["a", "A-b_9", "0", &"a".repeat(64)] {
        let message = client.lite_message("n", name);
        assert_eq!(code(&client.send(vec![message]).await.status), 20_000, "{name}");
    }
    let characters = "lite topic can only contain alphanumeric characters, hyphens(-), and underscores(_)";
    let mut cases = vec![("a".repeat(65), "lite topic exceed the max size 64")];
    for name in ["a b", "a.b", "a/b", "ü", "a%b", "a$b", "a:b", "%", "a|b", "a@b", "a+b", "a#b", "a\u{1}b"] {
        cases.push((name.to_owned(), characters));
    }
    for (name, text) in cases {
        let message = client.lite_message("n", &name);
        let status = client.send(vec![message]).await.status.unwrap();
        assert_eq!(told(status), (40_020, text.to_owned()), "{name}");
        assert_eq!(client.sync(Action::CompleteAdd, &[&name]).await.code, 40_020, "{name}");
    }
    broker.stop().await;
}

#[tokio::test]
async fn a_topic_takes_its_own_type_only() {
    let broker = start().await;
    let mut client = Client::lite(&broker, "c").await;
    let lite_topic_empty = client.lite_message("m", "");
    let normal = client.message("m");
    let mut fifo = client.message("m");
    fifo.system_properties.as_mut().unwrap().message_group = Some("g".to_owned());
    let mut delay = client.message("m");
    delay.system_properties.as_mut().unwrap().delivery_timestamp =
        Some(prost_types::Timestamp { seconds: 1, nanos: 0 });
    for (message, actual) in
        [(lite_topic_empty, "NORMAL"), (normal, "NORMAL"), (fifo, "FIFO"), (delay, "DELAY")]
    {
        let status = client.send(vec![message]).await.status.unwrap();
        assert_eq!(status.code, 40_014);
        let end = format!("the expected type is LITE, but actual type is {actual}");
        assert!(status.message.ends_with(&end), "{}", status.message);
    }
    for (topic, expected) in [("NT", "NORMAL"), ("FT", "FIFO"), ("NoSuchTopic", "UNSPECIFIED")] {
        client.topic = topic.to_owned();
        let message = client.lite_message("m", "q");
        let status = client.send(vec![message]).await.status.unwrap();
        assert_eq!(status.code, 40_014);
        let end = format!("the expected type is {expected}, but actual type is LITE");
        assert!(status.message.ends_with(&end), "{}", status.message);
    }
    assert_eq!(code(&client.route().await.status), 40_402);
    broker.stop().await;
}

#[tokio::test]
async fn sizes_properties_and_ids() {
    let broker = start().await;
    let mut client = Client::lite(&broker, "c").await;
    let mut refused = async |change: &dyn Fn(&mut wire::Message)| {
        let mut message = client.lite_message("m", "a");
        change(&mut message);
        code(&client.send(vec![message]).await.status)
    };
    let sized = |bytes: usize| move |message: &mut wire::Message| message.body = vec![b'x'; bytes].into();
    assert_eq!(refused(&sized(0)).await, 41_302);
    assert_eq!(refused(&sized((4 << 20) - 1_024)).await, 20_000);
    assert_eq!(refused(&sized((4 << 20) - 1)).await, 50_001);
    assert_eq!(refused(&sized(4 << 20)).await, 50_001);
    assert_eq!(refused(&sized((4 << 20) + 1)).await, 41_301);
    let property = |key: &str, value: &str| {
        let (key, value) = (key.to_owned(), value.to_owned());
        move |message: &mut wire::Message| {
            message.user_properties.insert(key.clone(), value.clone());
        }
    };
    let many = |message: &mut wire::Message| {
        message.user_properties = (0..129).map(|at| (format!("k{at}"), "v".to_owned())).collect();
    };
    assert_eq!(refused(&many).await, 43_101);
    assert_eq!(refused(&property("k", &"v".repeat(16_500))).await, 43_101);
    assert_eq!(refused(&property("UNIQ_KEY", "v")).await, 40_007);
    assert_eq!(refused(&property("k", "a\u{1}b")).await, 40_007);
    assert_eq!(refused(&property("k", "v")).await, 20_000);
    let system =
        |message: &mut wire::Message| message.system_properties.as_mut().unwrap().tag = Some("a|b".into());
    assert_eq!(refused(&system).await, 40_004);
    let blank =
        |message: &mut wire::Message| message.system_properties.as_mut().unwrap().message_id = " ".into();
    assert_eq!(refused(&blank).await, 40_009);
    broker.stop().await;
}

#[tokio::test]
async fn settings_are_answered_with_what_the_server_decides() {
    let broker = start().await;
    let mut lite = Client::connect(&broker, "c", "LT", "GL3", LITE).await;
    let answer = lite.settle().await.unwrap();
    let Some(wire::telemetry_command::Command::Settings(settings)) = answer.command else { panic!() };
    let Some(PubSub::Subscription(subscription)) = settings.pub_sub else { panic!() };
    assert_eq!(subscription.fifo, Some(false));
    assert_eq!(subscription.receive_batch_size, Some(32));
    assert_eq!(subscription.long_polling_timeout, Some(seconds(20)));
    assert_eq!(subscription.lite_subscription_quota, Some(2_000));
    assert_eq!(subscription.max_lite_topic_size, Some(64));
    assert_eq!(settings.backoff_policy.unwrap().max_attempts, 3);
    let mut producer = Client::connect(&broker, "p", "LT", "", wire::ClientType::Producer.into()).await;
    let answer = producer.settle().await.unwrap();
    let Some(wire::telemetry_command::Command::Settings(settings)) = answer.command else { panic!() };
    let Some(PubSub::Publishing(publishing)) = settings.pub_sub else { panic!() };
    assert_eq!((publishing.max_body_size, publishing.validate_message_type), (4 << 20, true));
    assert_eq!(producer.heartbeat().await.code, 20_000);
    let neither = wire::Settings { client_type: Some(1), ..wire::Settings::default() };
    let failure = producer.settle_with(neither).await.unwrap_err();
    assert_eq!(failure.code(), tonic::Code::InvalidArgument);
    broker.stop().await;
}

#[tokio::test]
async fn a_wrong_group_fails_the_telemetry_stream_and_everything_after() {
    let broker = start().await;
    let six = i32::from(wire::ClientType::LiteSimpleConsumer);
    let push = i32::from(wire::ClientType::PushConsumer);
    let bound_null = "lite group {G} is expected to bind topic null, but actual is LT";
    let cases = [
        ("GLnobind", "LT", LITE, "regular group cannot use LITE mode: GLnobind", 40_002),
        ("GN", "LT", LITE, "regular group cannot use LITE mode: GN", 40_002),
        ("NoGroup", "LT", LITE, "regular group cannot use LITE mode: NoGroup", 40_002),
        ("GL", "LT2", LITE, "lite group GL is expected to bind topic LT, but actual is LT2", 40_002),
        ("GL", "LT", SIMPLE, "lite group must use LITE mode: GL", 20_000),
        ("GL", "LT", push, "lite group must use LITE mode: GL", 20_000),
        ("GL", "LT", six, "Client type is not consumer, type: LITE_SIMPLE_CONSUMER", 20_000),
    ];
    for (at, (group, topic, client_type, text, sync)) in cases.into_iter().enumerate() {
        let mut client = Client::connect(&broker, &format!("c{at}"), topic, group, client_type).await;
        let failure = client.settle().await.unwrap_err();
        let expected = if client_type == six { tonic::Code::Internal } else { tonic::Code::InvalidArgument };
        assert_eq!(failure.code(), expected);
        assert_eq!(failure.message(), format!("process client telemetryCommand failed. {text}"));
        let heartbeat = client.heartbeat().await;
        assert_eq!(told(heartbeat), (40_015, "cannot find client settings for this client".to_owned()));
        let received = client.receive(1, 15).await;
        assert_eq!(received.code, 50_001);
        assert!(received.text.contains("because \"settings\" is null"), "{}", received.text);
        let status = client.sync(Action::CompleteAdd, &[]).await;
        assert_eq!(status.code, sync, "{group} {topic}");
        if sync == 40_002 && topic == "LT" {
            assert_eq!(status.message, bound_null.replace("{G}", group));
        }
    }
    broker.stop().await;
}

#[tokio::test]
async fn a_newer_server_takes_the_lite_simple_consumer() {
    let mut options = options();
    options.profile = Profile::V5_5_1;
    let broker = Broker::start(options).await.unwrap();
    let six = wire::ClientType::LiteSimpleConsumer.into();
    let mut client = Client::connect(&broker, "c", "LT", "GL", six).await;
    client.ready().await;
    client.send_lite("m", "L").await;
    assert_eq!(client.bodies(1, 10).await, ["m"]);
    broker.stop().await;
}

#[tokio::test]
async fn a_group_without_the_wildcard_attribute_is_accepted_and_silent() {
    let broker = start().await;
    let mut client = Client::connect(&broker, "c", "LT", "GLnowild", LITE).await;
    client.ready().await;
    client.send_lite("m", "zz").await;
    client.finds_nothing().await;
    assert_eq!(client.sync(Action::PartialAdd, &["zz"]).await.code, 20_000);
    assert_eq!(client.bodies(1, 10).await, ["m"]);
    let names: Vec<String> = (0..2_400).map(|at| format!("q{at}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    assert_eq!(client.sync(Action::PartialAdd, &names[..2_001]).await.code, 20_000);
    let status = client.sync(Action::PartialAdd, &names).await;
    assert_eq!(told(status), (42_902, "lite subscription quota exceeded: 2000".to_owned()));
    broker.stop().await;
}

#[tokio::test]
async fn subscriptions_of_a_wildcard_group() {
    let broker = start().await;
    let mut client = Client::lite(&broker, "c").await;
    let refused = client.sync(Action::PartialAdd, &["a"]).await;
    let text = "IllegalStateException: subscribe lite operation is not supported for this group";
    assert_eq!(told(refused), (50_001, text.to_owned()));
    for (action, names) in [
        (Action::PartialRemove, ["a"].as_slice()),
        (Action::CompleteAdd, ["a"].as_slice()),
        (Action::CompleteRemove, [].as_slice()),
    ] {
        assert_eq!(client.sync(action, names).await.code, 20_000);
    }
    client.send_lite("m", "L").await;
    client.finds_nothing().await;
    broker.stop().await;
}

#[tokio::test]
async fn the_checks_of_receive() {
    let broker = start().await;
    let control = broker.control();
    let mut client = Client::lite(&broker, "c").await;
    let request = client.receive_request(1, 15);
    let invisible = |seconds_: Option<i64>| wire::ReceiveMessageRequest {
        invisible_duration: seconds_.map(seconds),
        ..request.clone()
    };
    let nine = Some(Duration::from_secs(9));
    let small = (40_011, "the invisibleTime is too small. min is 10000");
    let large = (40_011, "the invisibleTime is too large. max is 43200000");
    for (wish, (code, text)) in [(None, small), (Some(0), small), (Some(9), small), (Some(43_201), large)] {
        let received = client.receive_with(invisible(wish), nine).await.unwrap();
        assert_eq!((received.code, received.text.as_str()), (code, text));
        assert_eq!(received.order, ["status", "time"]);
    }
    let short = client.receive_with(request.clone(), Some(Duration::from_secs(4))).await.unwrap();
    assert_eq!(short.code, 40_018);
    let none = client.receive_with(request.clone(), None).await.unwrap();
    assert_eq!(none.code, 50_001);
    assert!(none.text.contains("timeRemaining"), "{}", none.text);
    for batch_size in [0, -1] {
        let message = wire::ReceiveMessageRequest { batch_size, ..request.clone() };
        // An empty poll to its end.
        let poll = client.receive_with(message, nine);
        assert!(tokio::time::timeout(Duration::from_millis(50), poll).await.is_err());
    }
    for at in 0..40 {
        client.send_lite(&format!("m{at}"), "L").await;
    }
    // Asking for 64 gives 32; a wish of 60 s for the poll is no error, nor is any queue id or an odd filter.
    let mut message = client.receive_request(64, 43_200);
    message.long_polling_timeout = Some(seconds(60));
    message.message_queue.as_mut().unwrap().id = 99;
    message.filter_expression = Some(wire::FilterExpression { r#type: 2, expression: "a > 1".to_owned() });
    let received = client.receive_with(message, Some(Duration::from_secs(25))).await.unwrap();
    assert_eq!((received.code, received.messages.len()), (20_000, 32));
    control.advance(Duration::from_secs(1));
    broker.stop().await;
}

#[tokio::test]
async fn a_poll_ends_empty_at_its_time() {
    let broker = start().await;
    let control = broker.control();
    let mut client = Client::lite(&broker, "c").await;
    client.broker = "nobroker".to_owned();
    for polling in [1, 5] {
        // One second is raised to five.
        let mut message = client.receive_request(1, 15);
        message.long_polling_timeout = Some(seconds(polling));
        let receive = client.receive_with(message, Some(Duration::from_secs(9)));
        let received = async {
            while control.stats().receives_in_flight == 0 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            control.advance(Duration::from_millis(4_000));
            tokio::time::sleep(Duration::from_millis(20)).await;
            assert_eq!(control.stats().receives_in_flight, 1);
            control.advance(Duration::from_millis(1_000));
        };
        let (received, ()) = tokio::join!(receive, received);
        let received = received.unwrap();
        assert_eq!((received.code, received.order.as_slice()), (40_401, ["status", "time"].as_slice()));
    }
    broker.stop().await;
}

#[tokio::test]
async fn callers_without_a_name_or_settings() {
    let broker = start().await;
    let mut nameless = Client::connect(&broker, " ", "LT", "GL", LITE).await;
    assert_eq!(nameless.heartbeat().await.code, 40_017);
    let mut client = Client::connect(&broker, "c", "LT", "GL", LITE).await;
    assert_eq!(client.heartbeat().await.code, 40_015);
    assert_eq!(client.terminate().await.code, 40_015);
    assert_eq!(client.receive(1, 15).await.code, 50_001);
    // Route, send and sync need none.
    assert_eq!(code(&client.route().await.status), 20_000);
    client.send_lite("m", "L").await;
    assert_eq!(client.sync(Action::CompleteAdd, &[]).await.code, 20_000);
    broker.stop().await;
}

#[tokio::test]
async fn the_route_names_the_callers_host_and_the_proxys_port() {
    let broker = start().await;
    let mut client = Client::connect(&broker, "c", "LT", "GL", LITE).await;
    let route = client.route().await;
    assert_eq!(route.message_queues.len(), 8);
    let queue = &route.message_queues[0];
    assert_eq!(queue.accept_message_types, [i32::from(wire::MessageType::Lite)]);
    assert_eq!(queue.permission, i32::from(wire::Permission::ReadWrite));
    let address = queue.broker.as_ref().unwrap().endpoints.as_ref().unwrap().addresses[0].clone();
    assert_eq!(address.host, "some-host");
    assert_eq!(address.port, i32::from(broker.address().port()));
    broker.stop().await;
}

#[tokio::test]
async fn pull_calls_are_not_implemented() {
    let broker = start().await;
    let mut client = Client::connect(&broker, "c", "LT", "GL", LITE).await;
    let request = client.request(wire::GetOffsetRequest::default(), None);
    assert_eq!(client.grpc.get_offset(request).await.unwrap_err().code(), tonic::Code::Unimplemented);
    let request = client.request(wire::PullMessageRequest::default(), None);
    assert_eq!(client.grpc.pull_message(request).await.unwrap_err().code(), tonic::Code::Unimplemented);
    broker.stop().await;
}
