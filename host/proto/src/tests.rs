//! Wire bytes recorded from the public protocol: topic `T`, group `G`, message id `01AB`, handle `h1`, lite topic `L`.

use prost_types::Duration;

use crate::rocketmq::{
    AckMessageEntry, AckMessageRequest, Broker, ChangeInvisibleDurationRequest, ClientType, FilterExpression,
    FilterType, Language, LiteSubscriptionAction, MessageQueue, MessageType, Permission,
    ReceiveMessageRequest, Resource, Settings, Subscription, SubscriptionEntry, SyncLiteSubscriptionRequest,
    TelemetryCommand, Ua, settings, telemetry_command,
};

#[test]
fn sync_lite_subscription() {
    check(
        &SyncLiteSubscriptionRequest {
            action: LiteSubscriptionAction::CompleteAdd.into(),
            topic: resource("T"),
            group: resource("G"),
            ..Default::default()
        },
        "080212031201541a03120147",
    );
}

#[test]
fn ack_with_a_lite_topic() {
    let entry = AckMessageEntry {
        message_id: "01AB".into(),
        receipt_handle: "h1".into(),
        lite_topic: Some("L".into()),
    };
    check(
        &AckMessageRequest { group: resource("G"), topic: resource("T"), entries: vec![entry] },
        "0a0312014712031201541a0d0a0430314142120268311a014c",
    );
}

#[test]
fn change_of_a_lite_lease() {
    check(
        &ChangeInvisibleDurationRequest {
            group: resource("G"),
            topic: resource("T"),
            receipt_handle: "h1".into(),
            invisible_duration: seconds(10),
            message_id: "01AB".into(),
            lite_topic: Some("L".into()),
            suspend: Some(true),
        },
        "0a0312014712031201541a0268312202080a2a043031414232014c3801",
    );
}

#[test]
fn settings_of_a_lite_consumer() {
    let settings = Settings {
        client_type: Some(ClientType::LiteSimpleConsumer.into()),
        request_timeout: seconds(3),
        pub_sub: Some(settings::PubSub::Subscription(Subscription {
            group: resource("G"),
            subscriptions: vec![SubscriptionEntry { topic: resource("T"), expression: all() }],
            long_polling_timeout: seconds(20),
            ..Default::default()
        })),
        user_agent: Some(Ua {
            language: Language::Rust.into(),
            version: "5.2.1".into(),
            ..Default::default()
        }),
        ..Default::default()
    };
    check(
        &TelemetryCommand {
            command: Some(telemetry_command::Command::Settings(settings)),
            ..Default::default()
        },
        "122a08062202080332170a03120147120c0a031201541205080112012a2a0208143a0908051205352e322e31",
    );
}

#[test]
fn receive() {
    let queue = MessageQueue {
        topic: resource("T"),
        permission: Permission::ReadWrite.into(),
        broker: Some(Broker { name: "b".into(), ..Default::default() }),
        accept_message_types: vec![MessageType::Lite.into()],
        ..Default::default()
    };
    check(
        &ReceiveMessageRequest {
            group: resource("G"),
            message_queue: Some(queue),
            filter_expression: all(),
            batch_size: 32,
            invisible_duration: seconds(60),
            long_polling_timeout: seconds(20),
            ..Default::default()
        },
        "0a03120147120f0a03120154180422030a01622a01051a05080112012a20202a02083c3a020814",
    );
}

fn check<M: prost::Message + Default + PartialEq + std::fmt::Debug>(message: &M, expected_hex: &str) {
    let bytes = message.encode_to_vec();
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, expected_hex);
    assert_eq!(&M::decode(bytes.as_slice()).expect("own bytes"), message);
}

fn resource(name: &str) -> Option<Resource> {
    Some(Resource { resource_namespace: String::new(), name: name.into() })
}

fn seconds(seconds: i64) -> Option<Duration> {
    Some(Duration { seconds, nanos: 0 })
}

fn all() -> Option<FilterExpression> {
    Some(FilterExpression { r#type: FilterType::Tag.into(), expression: "*".into() })
}
