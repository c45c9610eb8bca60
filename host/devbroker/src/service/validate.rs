//! What may be sent: names, types and sizes, with the codes of the real proxy.

use tidegate_proto::rocketmq as wire;
use tidegate_proto::rocketmq::Code;

use super::answer::status;
use crate::options::TopicKind;

/// Bytes of a body at most.
pub(super) const BODY_MAX: usize = 4 << 20;

/// What the server's own properties of a message take beside its body: the broker behind the proxy counts both
/// together, so that a body of the size allowed is refused. Between 1 and some hundred bytes by measurement.
const OWN_PROPERTIES_BYTES: usize = 256;

/// User properties at most.
const PROPERTIES_MAX: usize = 128;

/// Bytes of all user properties at most.
const PROPERTIES_BYTES_MAX: usize = 16 << 10;

/// Characters of a lite topic's name at most.
pub(super) const LITE_TOPIC_LENGTH_MAX: usize = 64;

/// Characters of a message group: fewer than this.
const MESSAGE_GROUP_LENGTH: usize = 64;

/// Keys the server uses itself. The multi-dispatch key is not among them, which is a trap of 5.5.0.
const RESERVED_KEYS: &[&str] = &[
    "TRACE_ON",
    "MSG_REGION",
    "KEYS",
    "TAGS",
    "WAIT",
    "DELAY",
    "RETRY_TOPIC",
    "REAL_TOPIC",
    "REAL_QID",
    "TRAN_MSG",
    "PGROUP",
    "MIN_OFFSET",
    "MAX_OFFSET",
    "BUYER_ID",
    "ORIGIN_MESSAGE_ID",
    "TRANSFER_FLAG",
    "CORRECTION_FLAG",
    "MQ2_FLAG",
    "RECONSUME_TIME",
    "UNIQ_KEY",
    "EXTEND_UNIQ_INFO",
    "MAX_RECONSUME_TIMES",
    "CONSUME_START_TIME",
    "POP_CK",
    "POP_CK_OFFSET",
    "1ST_POP_TIME",
    "TRAN_PREPARED_QUEUE_OFFSET",
    "DUP_INFO",
    "INSTANCE_ID",
    "CORRELATION_ID",
    "REPLY_TO_CLIENT",
    "TTL",
    "ARRIVE_TIME",
    "PUSH_REPLY_TIME",
    "CLUSTER",
    "MSG_TYPE",
    "TIMER_DELIVER_MS",
    "TIMER_DELAY_SEC",
    "TIMER_DELAY_MS",
    "__SHARDINGKEY",
    "__LITE_TOPIC",
    "__transactionId__",
];

/// Checks one message; the order of the checks is the proxy's.
pub(super) fn check_message(message: &wire::Message) -> Result<(), wire::Status> {
    let system = message.system_properties.clone().unwrap_or_default();
    check_body(message)?;
    if let Some(tag) = &system.tag {
        check_text("tag", Code::IllegalMessageTag, tag)?;
        if tag.contains('|') {
            return Err(status(Code::IllegalMessageTag, "tag cannot contain '|'"));
        }
    }
    for key in &system.keys {
        check_text("key", Code::IllegalMessageKey, key)?;
    }
    check_properties(message)?;
    if system.message_id.trim().is_empty() {
        return Err(status(Code::IllegalMessageId, "message id cannot be empty"));
    }
    if let Some(group) = &system.message_group {
        check_text("message group", Code::IllegalMessageGroup, group)?;
        if group.len() >= MESSAGE_GROUP_LENGTH {
            let text = format!("message group exceed the max size {MESSAGE_GROUP_LENGTH}");
            return Err(status(Code::IllegalMessageGroup, text));
        }
    }
    match &system.lite_topic {
        Some(lite_topic) if !lite_topic.is_empty() => check_lite_topic(lite_topic),
        _ => Ok(()),
    }
}

/// Checks a lite topic's name.
pub(super) fn check_lite_topic(name: &str) -> Result<(), wire::Status> {
    if name.chars().count() > LITE_TOPIC_LENGTH_MAX {
        let text = format!("lite topic exceed the max size {LITE_TOPIC_LENGTH_MAX}");
        return Err(status(Code::IllegalLiteTopic, text));
    }
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if name.is_empty() || !name.bytes().all(legal) {
        let text = "lite topic can only contain alphanumeric characters, hyphens(-), and underscores(_)";
        return Err(status(Code::IllegalLiteTopic, text));
    }
    Ok(())
}

/// Checks that a message is what its topic takes. The server reads the type off the fields, not off `message_type`,
/// and of several it takes the first of delivery time, message group and lite topic.
pub(super) fn check_type(topic: Option<TopicKind>, message: &wire::Message) -> Result<(), wire::Status> {
    let system = message.system_properties.as_ref();
    let actual = match system {
        Some(system) if system.delivery_timestamp.is_some() => TopicKind::Delay,
        Some(system) if system.message_group.is_some() => TopicKind::Fifo,
        Some(system) if system.lite_topic.as_deref().is_some_and(|name| !name.is_empty()) => TopicKind::Lite,
        _ => TopicKind::Normal,
    };
    let expected = topic.map_or("UNSPECIFIED", TopicKind::name);
    if expected == actual.name() {
        return Ok(());
    }
    let actual = actual.name();
    let text = format!(
        "org.apache.rocketmq.proxy.common.ProxyException: TopicMessageType validate failed, the expected type is \
         {expected}, but actual type is {actual}"
    );
    Err(status(Code::MessagePropertyConflictWithType, text))
}

fn check_body(message: &wire::Message) -> Result<(), wire::Status> {
    let bytes = message.body.len();
    if bytes == 0 {
        return Err(status(Code::MessageBodyEmpty, "message body cannot be empty"));
    }
    if bytes > BODY_MAX {
        let text = format!("message body cannot exceed the max {BODY_MAX}");
        return Err(status(Code::MessageBodyTooLarge, text));
    }
    let properties: usize = message.user_properties.iter().map(|(key, value)| key.len() + value.len()).sum();
    if bytes + properties + OWN_PROPERTIES_BYTES > BODY_MAX {
        let text = format!(
            "the message is illegal, maybe msg body or properties length not matched. msg body length limit \
             {BODY_MAX}B, msg properties length limit 32KB."
        );
        return Err(status(Code::InternalServerError, text));
    }
    Ok(())
}

fn check_text(what: &str, code: Code, text: &str) -> Result<(), wire::Status> {
    if text.trim().is_empty() {
        return Err(status(code, format!("{what} cannot be the char sequence of whitespace")));
    }
    if has_control(text) {
        return Err(status(code, format!("{what} cannot contain control character")));
    }
    Ok(())
}

fn check_properties(message: &wire::Message) -> Result<(), wire::Status> {
    let properties = &message.user_properties;
    if properties.len() > PROPERTIES_MAX {
        let text = format!("too many user properties, max is {PROPERTIES_MAX}");
        return Err(status(Code::MessagePropertiesTooLarge, text));
    }
    let mut bytes = 0;
    for (key, value) in properties {
        if RESERVED_KEYS.contains(&key.as_str()) {
            let text = format!("property is used by system: {key}");
            return Err(status(Code::IllegalMessagePropertyKey, text));
        }
        for (what, text) in [("key", key), ("value", value)] {
            if has_control(text) {
                let text = format!("the {what} of property cannot contain control character");
                return Err(status(Code::IllegalMessagePropertyKey, text));
            }
        }
        bytes += key.len() + value.len();
    }
    if bytes > PROPERTIES_BYTES_MAX {
        let text = format!("the total size of user property is too large, max is {PROPERTIES_BYTES_MAX}");
        return Err(status(Code::MessagePropertiesTooLarge, text));
    }
    Ok(())
}

fn has_control(text: &str) -> bool {
    text.chars().any(char::is_control)
}
