use tidegate_model::{Deferral, Message, Standing, Timestamp, Verdict};
use tidegate_policy::{EndCause, RecordingReader};

use super::*;
use crate::flow::feed::AROUND_BYTES;
use crate::flow::tap::Taps;

/// A recording of a flow that is only its onlookers.
struct Stage {
    taps: Taps,
    recording: Recording,
    clock: Clock,
}

impl Stage {
    fn set(options: RecordingOptions) -> Self {
        let (clock, taps) = (Clock::start(), Taps::default());
        let masking = &options.masking;
        let header = Header::new("tenants", None, Timestamp::from_unix_millis(1), options.sample, masking);
        let (flow, source) = ("tenants".into(), "orders".into());
        let (recording, recorder) = start(&flow, &source, header, options, clock, Telemetry::default());
        taps.attach(recorder).expect("room");
        Self { taps, recording, clock }
    }

    fn decide(&self, key: &str, number: u64, body_bytes: usize) {
        self.decide_with(key, number, body_bytes, Vec::new());
    }

    fn decide_with(&self, key: &str, number: u64, body_bytes: usize, properties: Vec<(Box<str>, Bytes)>) {
        let message = Arc::new(Message {
            lite_topic: Some(key.into()),
            properties,
            body: vec![b'x'; body_bytes].into(),
            ..Message::new("orders", format!("message-{number}"))
        });
        let question = Question {
            source: "orders",
            message: &message,
            key: &key.into(),
            attempt: 1,
            age: Duration::ZERO,
            waited: Duration::ZERO,
            deferred: Duration::ZERO,
            standing: Standing::default(),
            wall: Timestamp::from_unix_millis(1),
            now: self.clock.now(),
            seed: number,
        };
        let deferral = Deferral { delay: Duration::from_millis(5), reason: "busy".into() };
        self.taps.show(&question, &Answer::Verdict(Verdict::Defer(deferral)), Origin::Policy);
    }

    /// Everything up to the end.
    async fn read(mut self) -> (Vec<Recorded>, Option<End>) {
        let mut bytes = Vec::new();
        while let Some(lines) = self.recording.next_lines().await {
            assert_eq!(lines.last(), Some(&b'\n'), "whole lines");
            bytes.extend_from_slice(&lines);
        }
        let mut reader = RecordingReader::new(&bytes[..]).expect("a header");
        let recorded = reader.by_ref().collect::<Result<_, _>>().expect("decisions");
        (recorded, reader.end().cloned())
    }
}

fn options() -> RecordingOptions {
    RecordingOptions {
        length: Duration::from_secs(60),
        count_max: u64::MAX,
        sample: 1.0,
        masking: Masking::default(),
    }
}

#[tokio::test(start_paused = true)]
async fn everything_is_in_it_in_order_until_its_time_is_over() {
    let stage = Stage::set(options());
    (0..1_000).for_each(|number| stage.decide("tenant", number, 200));
    let (recorded, end) = stage.read().await;
    let ids: Vec<_> = recorded.iter().map(Recorded::message_id).collect();
    assert_eq!(ids, (0..1_000).map(|number| format!("message-{number}")).collect::<Vec<_>>());
    assert_eq!(recorded[0].reason(), Some("busy"));
    assert_eq!(end, Some(End { end: EndCause::Time, recorded: 1_000, missed: 0 }));
}

#[tokio::test(start_paused = true)]
async fn a_busy_flow_does_not_make_it_longer() {
    let stage = Stage::set(options());
    stage.decide("tenant", 0, 0);
    tokio::time::advance(Duration::from_secs(61)).await;
    stage.decide("tenant", 1, 0);
    assert!(!stage.taps.has_any(), "what comes later is neither recorded nor missed");
    let (recorded, end) = stage.read().await;
    assert_eq!(recorded.len(), 1);
    assert_eq!(end, Some(End { end: EndCause::Time, recorded: 1, missed: 0 }));
}

#[tokio::test(start_paused = true)]
async fn it_ends_when_it_has_enough_or_its_flow_ends() {
    let stage = Stage::set(RecordingOptions { count_max: 3, ..options() });
    (0..5).for_each(|number| stage.decide("tenant", number, 0));
    assert!(!stage.taps.has_any(), "it has seen enough");
    let (recorded, end) = stage.read().await;
    assert_eq!(recorded.len(), 3);
    assert_eq!(end, Some(End { end: EndCause::Count, recorded: 3, missed: 0 }));

    let stage = Stage::set(options());
    stage.decide("tenant", 0, 0);
    stage.taps.close();
    let (recorded, end) = stage.read().await;
    assert_eq!(recorded.len(), 1);
    assert_eq!(end, Some(End { end: EndCause::Flow, recorded: 1, missed: 0 }));
}

#[tokio::test(start_paused = true)]
async fn a_key_is_in_it_with_all_its_messages_or_not_at_all() {
    let stage = Stage::set(RecordingOptions { sample: 0.25, ..options() });
    for number in 0..4_000 {
        stage.decide(&format!("tenant-{}", number % 400), number, 0);
    }
    let (recorded, end) = stage.read().await;
    let mut by_key = std::collections::BTreeMap::<_, u32>::new();
    recorded.iter().for_each(|recorded| *by_key.entry(recorded.key()).or_default() += 1);
    assert!(by_key.values().all(|count| *count == 10), "{by_key:?}");
    assert!((40..=180).contains(&by_key.len()), "about a hundred of 400 keys, not {}", by_key.len());
    assert_eq!(end.map(|end| end.missed), Some(0));
}

#[tokio::test(start_paused = true)]
async fn what_nobody_takes_in_is_counted_and_not_kept() {
    let stage = Stage::set(options());
    let body_bytes = 4 << 20;
    (0..20).for_each(|number| stage.decide("tenant", number, body_bytes));
    let fit = (WAITING_BYTES_MAX / (body_bytes + AROUND_BYTES)) as u64;
    let (recorded, end) = stage.read().await;
    assert_eq!(recorded.len() as u64, fit);
    assert_eq!(end, Some(End { end: EndCause::Time, recorded: fit, missed: 20 - fit }));

    // Whatever it is that is large.
    let stage = Stage::set(options());
    let property = (Box::from("big"), Bytes::from(vec![b'x'; body_bytes]));
    (0..20).for_each(|number| stage.decide_with("tenant", number, 0, vec![property.clone()]));
    let (recorded, _) = stage.read().await;
    assert_eq!(recorded.len() as u64, fit);

    let stage = Stage::set(options());
    (0..WAITING_MAX as u64 + 7).for_each(|number| stage.decide("tenant", number, 0));
    let (_, end) = stage.read().await;
    assert_eq!(end.map(|end| end.missed), Some(7));
}

#[tokio::test(start_paused = true)]
async fn one_that_went_leaves_its_place_to_others_though_nothing_is_decided() {
    let Stage { taps, recording, clock } = Stage::set(options());
    let header = || Header::new("tenants", None, Timestamp::from_unix_millis(1), 1.0, &Masking::default());
    let another =
        || start(&"tenants".into(), &"orders".into(), header(), options(), clock, Telemetry::default());
    let mut others = Vec::new();
    let refused = loop {
        let (recording, recorder) = another();
        match taps.attach(recorder) {
            Ok(()) => others.push(recording),
            Err(refused) => break refused,
        }
    };
    assert!(refused.to_string().contains("already"), "{refused}");
    drop(recording);
    let (_recording, recorder) = another();
    taps.attach(recorder).expect("the place of the one that went");
}
