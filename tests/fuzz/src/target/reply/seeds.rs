//! Answers as servers give them, to begin from.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use tidegate_proto::rocketmq::receive_message_response::Content;
use tidegate_proto::rocketmq::{
    Code, Digest, DigestType, Encoding, Message, MessageType, ReceiveMessageResponse, Resource, Status,
    SystemProperties,
};

use super::TOPIC;

/// Each answer is a list of stream items.
pub(super) fn all() -> Vec<Vec<ReceiveMessageResponse>> {
    let plain = lite("hello rocketmq");
    let digested = with(plain.clone(), |system| {
        let checksum = "98062D04DAC784C63CEEB3CDB2B1FE4A".into();
        system.body_digest = Some(Digest { r#type: DigestType::Md5.into(), checksum });
    });
    let mut compressed = with(plain.clone(), |system| system.body_encoding = Encoding::Gzip.into());
    compressed.body = zlib(&"compressed ".repeat(200)).into();
    let mut dispatched = plain.clone();
    dispatched.user_properties.insert("INNER_MULTI_DISPATCH".into(), "%LMQ%$T$tenant-7".into());
    dispatched.user_properties.insert("colour".into(), "blue".into());
    vec![
        answer(Code::Ok, vec![plain]),
        answer(Code::Ok, vec![digested, compressed, dispatched]),
        answer(Code::Ok, (0..32).map(|number| lite(&format!("message {number}"))).collect()),
        answer(Code::MessageNotFound, Vec::new()),
        answer(Code::TooManyRequests, Vec::new()),
        answer(Code::InternalServerError, Vec::new()),
        Vec::new(),
    ]
}

fn answer(code: Code, messages: Vec<Message>) -> Vec<ReceiveMessageResponse> {
    let status = Content::Status(Status { code: code.into(), message: "from a server".into() });
    let time = Content::DeliveryTimestamp(prost_types::Timestamp { seconds: 1_764_450_000, nanos: 1 });
    std::iter::once(status)
        .chain(messages.into_iter().map(Content::Message))
        .chain([time])
        .map(|content| ReceiveMessageResponse { content: Some(content) })
        .collect()
}

fn lite(body: &str) -> Message {
    Message {
        topic: Some(Resource { name: TOPIC.into(), ..Default::default() }),
        body: body.to_owned().into(),
        system_properties: Some(SystemProperties {
            message_id: "011B5DBB0F4EC44D8D0B1E50AA00000000".into(),
            message_type: MessageType::Lite.into(),
            body_encoding: Encoding::Identity.into(),
            lite_topic: Some("tenant-7".into()),
            receipt_handle: Some("0 1764450000000 60000 999 0 broker-0 0 42 1000".into()),
            delivery_attempt: Some(1),
            invisible_duration: Some(prost_types::Duration { seconds: 60, nanos: 0 }),
            born_timestamp: Some(prost_types::Timestamp { seconds: 1_764_450_000, nanos: 0 }),
            store_timestamp: Some(prost_types::Timestamp { seconds: 1_764_450_000, nanos: 5 }),
            queue_offset: Some(42),
            tag: Some("a".into()),
            keys: vec!["k".into()],
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn with(mut message: Message, change: impl FnOnce(&mut SystemProperties)) -> Message {
    if let Some(system) = message.system_properties.as_mut() {
        change(system);
    }
    message
}

fn zlib(text: &str) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    // Writing into memory has no way to fail.
    let _ = encoder.write_all(text.as_bytes());
    encoder.finish().unwrap_or_default()
}
