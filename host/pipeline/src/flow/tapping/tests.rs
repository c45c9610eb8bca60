use serde_json::{Value, json};
use tidegate_model::{Deferral, Message, Standing, Timestamp, Verdict};
use tidegate_policy::{Cause, Ending};

use super::*;
use crate::flow::tap::Taps;

/// A tap of a flow that is only its onlookers.
struct Stage {
    taps: Taps,
    tap: Tap,
    clock: Clock,
}

impl Stage {
    fn set(options: TapOptions) -> Self {
        let (clock, taps) = (Clock::start(), Taps::default());
        let (tap, watcher) = start(&"tenants".into(), &"orders".into(), options, clock, Telemetry::default());
        taps.attach(watcher).expect("room");
        Self { taps, tap, clock }
    }

    fn decide(&self, key: &str, number: u64, answer: &Answer) {
        let message = Arc::new(Message {
            lite_topic: Some(key.into()),
            properties: vec![("token".into(), "secret".into()), ("colour".into(), "blue".into())],
            body: format!("body-{number}").into(),
            ..Message::new("orders", format!("message-{number}"))
        });
        let question = Question {
            source: "orders",
            message: &message,
            key: &key.into(),
            attempt: 2,
            age: Duration::ZERO,
            waited: Duration::from_millis(3),
            deferred: Duration::ZERO,
            standing: Standing::default(),
            wall: Timestamp::from_unix_millis(7),
            now: self.clock.now(),
            seed: number,
        };
        self.taps.show(&question, answer, Origin::Policy);
    }

    fn deliver(&self, key: &str, number: u64) {
        self.decide(key, number, &Answer::Verdict(Verdict::Deliver));
    }

    fn end(&self, number: u64, ending: Ending) {
        self.taps.show_endings(&[Outcome {
            key: "tenant".into(),
            id: format!("message-{number}").as_str().into(),
            ending,
            attempt: 2,
            spent: Duration::from_millis(12),
            cost: 0.0,
        }]);
    }

    /// All lines up to the end, which comes by itself or with the flow.
    async fn read(mut self) -> Vec<Value> {
        let mut bytes = Vec::new();
        while let Some(lines) = self.tap.next_lines().await {
            assert_eq!(lines.last(), Some(&b'\n'), "whole lines");
            bytes.extend_from_slice(&lines);
        }
        let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines.map(|line| serde_json::from_slice(line).expect("JSON")).collect()
    }
}

fn options() -> TapOptions {
    TapOptions {
        length: Duration::from_secs(60),
        count_max: u64::MAX,
        sample: 1.0,
        key: None,
        verdicts: Vec::new(),
        masking: Masking::default(),
    }
}

fn deferral() -> Answer {
    let deferral = Deferral { delay: Duration::from_millis(250), reason: "busy".into() };
    Answer::Verdict(Verdict::Defer(deferral))
}

#[tokio::test(start_paused = true)]
async fn a_line_has_the_message_the_verdict_and_whose_it_is() {
    let masking = Masking::new(vec!["token".to_owned()], 3, false).expect("random numbers");
    let stage = Stage::set(TapOptions { masking, ..options() });
    stage.decide("tenant", 1, &deferral());
    stage.taps.close();
    let lines = stage.read().await;
    assert_eq!(
        lines,
        [
            json!({
                "at-unix-ms": 7, "verdict": "defer", "delay-ms": 250, "reason": "busy", "origin": "policy",
                "key": "tenant", "attempt": 2, "waited-ms": 3, "message-id": "message-1", "topic": "orders",
                "lite-topic": "tenant",
                "properties": [["token", { "text": "[masked]" }], ["colour", { "text": "blue" }]],
                "body": { "text": "bod" }, "body-bytes": 6,
            }),
            json!({ "end": "flow", "shown": 1, "missed": 0, "endings": 0 }),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn what_on_error_says_is_told_with_its_cause() {
    let stage = Stage::set(TapOptions { verdicts: vec![Kind::Deliver, Kind::NoAnswer], ..options() });
    let cause = Cause::Timeout;
    stage.decide("tenant", 1, &Answer::OnError { verdict: Verdict::Deliver, cause });
    stage.decide("tenant", 2, &deferral());
    stage.decide("tenant", 3, &Answer::Stop { cause });
    stage.taps.close();
    let lines = stage.read().await;
    let told: Vec<_> = lines.iter().map(|line| (&line["verdict"], &line["on-error"])).collect();
    assert_eq!(
        told[..2],
        [(&json!("deliver"), &json!("timeout")), (&json!("stop"), &json!("timeout"))],
        "{lines:?}"
    );
    assert_eq!(lines[2]["shown"], 2);
}

#[tokio::test(start_paused = true)]
async fn only_the_wanted_keys_and_verdicts_are_shown() {
    let stage = Stage::set(TapOptions { key: Some("tenant-1*".to_owned()), ..options() });
    for tenant in 0..20 {
        stage.deliver(&format!("tenant-{tenant}"), tenant);
    }
    stage.taps.close();
    let lines = stage.read().await;
    let keys: Vec<_> = lines.iter().filter_map(|line| line["key"].as_str()).collect();
    let expected: Vec<_> = [1, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19].map(|n| format!("tenant-{n}")).into();
    assert_eq!(keys, expected);

    let stage =
        Stage::set(TapOptions { key: Some("tenant".to_owned()), verdicts: vec![Kind::Defer], ..options() });
    stage.deliver("tenant", 1);
    stage.decide("tenants", 2, &deferral());
    stage.decide("tenant", 3, &deferral());
    stage.taps.close();
    let lines = stage.read().await;
    assert_eq!((lines.len(), &lines[0]["message-id"]), (2, &json!("message-3")));
}

#[tokio::test(start_paused = true)]
async fn endings_are_told_once_of_what_was_shown_and_delivered() {
    let stage = Stage::set(TapOptions { key: Some("a".to_owned()), ..options() });
    stage.deliver("a", 1);
    stage.deliver("b", 2);
    stage.decide("a", 3, &deferral());
    for number in 1..=3 {
        stage.end(number, Ending::Accepted);
        stage.end(number, Ending::Expired);
    }
    stage.taps.close();
    let lines = stage.read().await;
    let ending = json!({ "ended": "accepted", "message-id": "message-1", "attempt": 2, "spent-ms": 12 });
    assert_eq!((lines.len(), &lines[2]), (4, &ending), "{lines:?}");
    assert_eq!(lines[3], json!({ "end": "flow", "shown": 2, "missed": 0, "endings": 1 }));
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_endings_that_nobody_looks_at() {
    let stage = Stage::set(TapOptions { count_max: 1, ..options() });
    assert!(stage.taps.want_endings());
    stage.deliver("a", 1);
    assert!(!stage.taps.want_endings() && !stage.taps.has_any(), "it has seen enough");
    let lines = stage.read().await;
    assert_eq!(lines[1], json!({ "end": "count", "shown": 1, "missed": 0, "endings": 0 }));
}

#[tokio::test(start_paused = true)]
async fn what_comes_too_fast_is_counted_and_not_shown() {
    let stage = Stage::set(options());
    let many = u64::from(SHOWN_PER_SECOND_MAX) + 500;
    (0..many).for_each(|number| stage.deliver("tenant", number));
    let lines = stage.read().await;
    let end = lines.last().expect("an end");
    assert_eq!(*end, json!({ "end": "time", "shown": SHOWN_PER_SECOND_MAX, "missed": 500, "endings": 0 }));
    assert_eq!(lines.len() as u64, many - 500 + 1);

    // And what nobody takes in.
    let stage = Stage::set(options());
    for second in 0..3 {
        for number in 0..500 {
            stage.deliver("tenant", second * 500 + number);
        }
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    let lines = stage.read().await;
    let end = lines.last().expect("an end");
    let missed = 1_500 - WAITING_MAX as u64;
    assert_eq!(*end, json!({ "end": "time", "shown": WAITING_MAX, "missed": missed, "endings": 0 }));
}

#[test]
fn endings_are_waited_for_within_bounds() {
    let mut open = Open::default();
    for number in 0..3 * OPEN_MAX {
        open.insert(format!("message-{number}").into(), 1);
    }
    assert_eq!((open.known.len(), open.by_age.len()), (OPEN_MAX, OPEN_MAX));
    assert!(!open.remove(&MessageId::from("message-0"), 1));
    let last = MessageId::from(format!("message-{}", 3 * OPEN_MAX - 1));
    assert!(!open.remove(&last, 2), "another attempt");
    assert!(open.remove(&last, 1) && !open.remove(&last, 1));
}
