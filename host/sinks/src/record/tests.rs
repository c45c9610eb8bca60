use bytes::Bytes;
use tidegate_model::Timestamp;

use super::*;
use crate::testing;

fn record(emission: &Emission) -> String {
    serde_json::to_string_pretty(&Record::new("source", emission, "tg1.receipt")).expect("a record")
}

fn full() -> Message {
    Message {
        lite_topic: Some("tenant-7".into()),
        group: Some("g".into()),
        tag: Some("urgent".into()),
        keys: vec!["a".into(), "b".into()],
        properties: vec![
            ("region".into(), Bytes::from_static(b"eu")),
            ("raw".into(), Bytes::from_static(&[0xff])),
        ],
        body: Bytes::from_static("h\u{e9}llo".as_bytes()),
        born_at: Some(Timestamp::from_unix_millis(1)),
        stored_at: Some(Timestamp::from_unix_millis(2)),
        ..Message::new("main", "01AB")
    }
}

#[test]
fn a_record_has_everything_that_a_message_has() {
    insta::assert_snapshot!(record(&testing::emission(1, full())));
}

#[test]
fn a_record_leaves_out_what_a_message_does_not_have() {
    let message = Message {
        body: Bytes::from_static(&[0xff, 0]),
        body_state: BodyState::Corrupted { reason: "the digest differs".into() },
        ..Message::new("main", "01AB")
    };
    insta::assert_snapshot!(record(&testing::emission(1, message)));
}

#[test]
fn a_dead_letter_says_why_it_was_given_up() {
    let dead = |dead_letter| Emission {
        attempt: 16,
        dead_letter: Some(std::sync::Arc::new(dead_letter)),
        ..testing::emission(1, Message::new("main", "01AB"))
    };
    insta::assert_snapshot!(record(&dead(testing::dead_letter())));
    let by_a_valve = record(&dead(tidegate_model::DeadLetter { policy: None, ..testing::dead_letter() }));
    assert!(!by_a_valve.contains("policy"), "{by_a_valve}");
}
