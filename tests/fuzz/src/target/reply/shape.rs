//! Changes to answers that leave them readable: a server that is wrong about everything but the wire format.

use tidegate_proto::rocketmq::receive_message_response::Content;
use tidegate_proto::rocketmq::{Digest, Message, ReceiveMessageResponse, Resource, SystemProperties};

use crate::mutate;
use crate::random::Random;

const SECONDS: [i64; 6] = [0, -1, 1, i64::MIN, i64::MAX, 253_402_300_800];
const NANOS: [i32; 4] = [0, -1, i32::MIN, i32::MAX];
const NUMBERS: [i32; 6] = [0, -1, 1, 5, i32::MIN, i32::MAX];

/// Changes one to four things in an answer.
pub(super) fn mutate(random: &mut Random, items: &mut Vec<ReceiveMessageResponse>) {
    for _ in 0..=random.below(4) {
        let at = random.below(items.len() + 1);
        let other = random.below(items.len() + 1);
        match random.below(10) {
            0 if at < items.len() => drop(items.remove(at)),
            1 if at < items.len() => items.insert(other, items[at].clone()),
            2 if at < items.len() && other < items.len() => items.swap(at, other),
            3 => items.insert(at, ReceiveMessageResponse { content: None }),
            _ => {
                if let Some(Content::Message(message)) =
                    items.get_mut(at).and_then(|item| item.content.as_mut())
                {
                    change(random, message);
                }
            }
        }
    }
}

fn change(random: &mut Random, message: &mut Message) {
    match random.below(6) {
        0 => {
            let mut body = message.body.to_vec();
            mutate::bytes(random, &mut body, b"\x1f\x8b\x08\x00\x78\x9c\x04\x22\x4d\x18\x28\xb5\x2f\xfd");
            message.body = body.into();
        }
        1 => {
            message.topic =
                random.once_in(2).then(|| Resource { name: odd_text(random, "T"), ..Default::default() });
        }
        2 => {
            let name = odd_text(random, "INNER_MULTI_DISPATCH");
            message.user_properties.insert(name, odd_text(random, "%LMQ%$T$a"));
        }
        3 if random.once_in(8) => message.system_properties = None,
        _ => {
            if let Some(system) = message.system_properties.as_mut() {
                change_system(random, system);
            }
        }
    }
}

fn change_system(random: &mut Random, system: &mut SystemProperties) {
    let seconds = SECONDS[random.below(SECONDS.len())];
    let nanos = NANOS[random.below(NANOS.len())];
    let number = NUMBERS[random.below(NUMBERS.len())];
    match random.below(15) {
        0 => system.receipt_handle = random.once_in(2).then(|| odd_text(random, "0 1 60000 999 0 b 0 42 1")),
        1 => system.message_id = odd_text(random, &system.message_id.clone()),
        2 => system.lite_topic = random.once_in(2).then(|| odd_text(random, "tenant-7")),
        3 => system.message_group = Some(odd_text(random, "group")),
        4 => system.body_encoding = number,
        5 => system.body_digest = Some(Digest { r#type: number, checksum: odd_text(random, "3E0D52A") }),
        6 => system.born_timestamp = Some(prost_types::Timestamp { seconds, nanos }),
        7 => system.store_timestamp = Some(prost_types::Timestamp { seconds, nanos }),
        8 => system.invisible_duration = Some(prost_types::Duration { seconds, nanos }),
        9 => system.delivery_timestamp = Some(prost_types::Timestamp { seconds, nanos }),
        10 => system.delivery_attempt = Some(number),
        11 => system.message_type = number,
        12 => system.tag = Some(odd_text(random, "tag")),
        13 => system.keys.push(odd_text(random, "key")),
        _ => system.queue_offset = Some(seconds),
    }
}

/// A text near `text`, empty or long now and then.
fn odd_text(random: &mut Random, text: &str) -> String {
    match random.below(4) {
        0 => text.to_owned(),
        1 => text.repeat(random.below(100)),
        _ => {
            let mut bytes = text.as_bytes().to_vec();
            mutate::bytes(random, &mut bytes, "\u{0}\u{7f} $%|\u{202e}".as_bytes());
            String::from_utf8_lossy(&bytes).into_owned()
        }
    }
}
