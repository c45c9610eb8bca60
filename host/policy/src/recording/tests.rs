use proptest::prelude::*;
use tidegate_model::Deferral;

use super::*;
use crate::cause::Cause;

fn message(key: &str, properties: Vec<(String, Vec<u8>)>, body: Vec<u8>) -> Arc<Message> {
    Arc::new(Message {
        lite_topic: Some(key.into()),
        tag: Some("new".into()),
        keys: vec![key.into(), "other".into()],
        properties: properties.into_iter().map(|(name, value)| (name.into(), value.into())).collect(),
        body: body.into(),
        ..Message::new("orders", "message-1")
    })
}

fn question<'a>(message: &'a Arc<Message>, key: &'a Arc<str>, n: u64) -> Question<'a> {
    Question {
        source: "orders",
        message,
        key,
        attempt: 3,
        age: Duration::from_millis(n),
        waited: Duration::from_millis(2),
        deferred: Duration::from_millis(1),
        standing: Standing { key_rate: 0.1 + 0.2, flow_throughput: 1e300, ..Standing::default() },
        wall: Timestamp::from_unix_millis(1_700_000_000_000),
        now: Instant::from_nanos(n),
        seed: n,
    }
}

fn deferral() -> Answer {
    Answer::Verdict(Verdict::Defer(Deferral { delay: Duration::from_millis(250), reason: "busy".into() }))
}

fn read(bytes: &[u8]) -> Vec<Result<Recorded, RecordingError>> {
    RecordingReader::new(bytes).unwrap().collect()
}

fn recording(lines: &[Recorded]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let header =
        Header::new("tenants", Some("fair"), Timestamp::from_unix_millis(1), 1.0, &Masking::default());
    header.write(&mut bytes).unwrap();
    lines.iter().for_each(|line| line.write(&mut bytes).unwrap());
    bytes
}

#[test]
fn what_is_masked_is_not_in_the_file_and_equal_keys_stay_equal() {
    let property = |name: &str, value: &str| (name.to_owned(), value.as_bytes().to_vec());
    let properties =
        vec![property("token", "s3cret-1"), property("x-auth", "s3cret-2"), property("tenant", "tenant-7")];
    let message = message("tenant-7", properties, b"s3cret-3".to_vec());
    let key = Arc::from("tenant-7");
    let masking = Masking::new(vec!["token".to_owned(), "x-*".to_owned()], 0, true).unwrap();
    let deferral = Deferral { delay: Duration::ZERO, reason: "tenant-7 has had enough".into() };
    let answer = Answer::Verdict(Verdict::Defer(deferral));
    let recorded = Recorded::of(&question(&message, &key, 5), &answer, &masking);
    let text = serde_json::to_string(&recorded).unwrap();
    assert!(!text.contains("s3cret") && !text.contains("tenant-7"), "{text}");
    recorded.with_question(|question| {
        assert_eq!(question.message.property("token"), Some(MASKED));
        assert_eq!(question.message.body.len(), 8, "its length is kept");
        assert_eq!(question.message.lite_topic.as_ref(), Some(question.key));
        assert!(question.key.starts_with("key-"));
        assert_eq!(question.message.property("tenant"), Some(&**question.key));
    });
}

#[test]
fn a_recording_that_was_broken_off_ends_before_its_last_line() {
    let (message, key) = (message("tenant", vec![], vec![]), Arc::from("tenant"));
    let line = Recorded::of(&question(&message, &key, 1), &deferral(), &Masking::default());
    let bytes = recording(&[line.clone(), line]);
    assert_eq!(read(&bytes).len(), 2);
    assert_eq!(read(&bytes[..bytes.len() - 5]).len(), 1);
}

/// The flow's key may be that very property.
#[test]
fn a_key_that_is_the_value_of_a_masked_property_is_masked_too() {
    let properties = vec![("user".to_owned(), b"alice-secret".to_vec())];
    let message = message("alice-secret", properties, vec![]);
    let key = Arc::from("alice-secret");
    let masking = Masking::new(vec!["us*".to_owned()], 0, false).unwrap();
    let deferral = Deferral { delay: Duration::ZERO, reason: "alice-secret is busy".into() };
    let answer = Answer::Verdict(Verdict::Defer(deferral));
    let text = serde_json::to_string(&Recorded::of(&question(&message, &key, 1), &answer, &masking)).unwrap();
    assert!(!text.contains("alice"), "{text}");
    let open = Masking::new(vec!["other".to_owned()], 0, false).unwrap();
    let text = serde_json::to_string(&Recorded::of(&question(&message, &key, 1), &answer, &open)).unwrap();
    assert!(text.contains("alice-secret is busy"), "{text}");
}

#[test]
fn a_body_of_control_characters_stays_readable() {
    let body = vec![1; 4 << 20];
    let (message, key) = (message("tenant", vec![], body.clone()), Arc::from("tenant"));
    let masking = Masking::new(vec![], 4 << 20, false).unwrap();
    let bytes = recording(&[Recorded::of(&question(&message, &key, 1), &deferral(), &masking)]);
    let recorded = read(&bytes).remove(0).unwrap();
    recorded.with_question(|question| assert_eq!(question.message.body, body));
}

#[test]
fn nothing_comes_after_the_end() {
    let (message, key) = (message("tenant", vec![], vec![]), Arc::from("tenant"));
    let line = Recorded::of(&question(&message, &key, 1), &deferral(), &Masking::default());
    let mut bytes = recording(std::slice::from_ref(&line));
    End { end: EndCause::Time, recorded: 1, missed: 0 }.write(&mut bytes).unwrap();
    line.write(&mut bytes).unwrap();
    let found = read(&bytes);
    assert!(matches!(found[1], Err(RecordingError::Line { line: 4, .. })), "{found:?}");
}

#[test]
fn a_recording_says_how_it_ended() {
    let (message, key) = (message("tenant", vec![], vec![]), Arc::from("tenant"));
    let mut bytes =
        recording(&[Recorded::of(&question(&message, &key, 1), &deferral(), &Masking::default())]);
    let end = End { end: EndCause::Count, recorded: 1, missed: 7 };
    end.write(&mut bytes).unwrap();
    assert!(bytes.windows(end::BEGINNING.len()).any(|window| window == end::BEGINNING));
    let mut reader = RecordingReader::new(&bytes[..]).unwrap();
    assert_eq!(reader.by_ref().filter(Result::is_ok).count(), 1);
    assert_eq!(reader.end(), Some(&end));

    let mut broken_off = RecordingReader::new(&bytes[..bytes.len() - 2]).unwrap();
    assert_eq!(broken_off.by_ref().filter(Result::is_ok).count(), 1);
    assert_eq!(broken_off.end(), None);
}

#[test]
fn rubbish_is_named_by_its_line() {
    let mut bytes = recording(&[]);
    bytes.extend_from_slice(b"{\"source\": 1}\n");
    let error = read(&bytes).remove(0).unwrap_err();
    assert!(matches!(error, RecordingError::Line { line: 2, .. }), "{error}");
    assert!(matches!(RecordingReader::new(&b"hello\n"[..]), Err(RecordingError::Header(_))));
    let newer = String::from_utf8(recording(&[]))
        .unwrap()
        .replace("\"tidegate-recording\":1", "\"tidegate-recording\":9");
    assert!(matches!(RecordingReader::new(newer.as_bytes()), Err(RecordingError::Version(9))));
}

#[test]
fn what_became_of_a_message_is_kept_apart_from_who_said_so() {
    let (message, key) = (message("tenant", vec![], vec![]), Arc::from("tenant"));
    let followed =
        |answer: &Answer| Recorded::of(&question(&message, &key, 1), answer, &Masking::default()).followed();
    assert_eq!(followed(&deferral()), Kind::Defer);
    assert_eq!(followed(&Answer::OnError { verdict: Verdict::Deliver, cause: Cause::Panic }), Kind::Deliver);
    assert_eq!(followed(&Answer::Stop { cause: Cause::Panic }), Kind::NoAnswer);
}

proptest! {
    /// Whatever was asked is asked again: through the text and back.
    #[test]
    fn a_question_comes_back_as_it_was(
        key in "\\PC{0,20}",
        properties in prop::collection::vec(("[a-z]{1,8}", prop::collection::vec(any::<u8>(), 0..40)), 0..4),
        body in prop::collection::vec(any::<u8>(), 0..200),
        n: u64,
        rate in any::<f64>().prop_filter("JSON has no others", |rate| rate.is_finite()),
    ) {
        let message = message(&key, properties, body);
        let key: Arc<str> = key.as_str().into();
        let mut asked = question(&message, &key, n);
        asked.standing.flow_rate = rate;
        let recorded = Recorded::of(&asked, &deferral(), &Masking::default());
        let text = serde_json::to_string(&recorded).unwrap();
        let back: Recorded = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(&back, &recorded);
        back.with_question(|again| {
            assert_eq!(**again.message, *message);
            assert_eq!((again.key, again.attempt, again.now, again.seed), (&key, 3, asked.now, n));
            assert_eq!((again.age, again.wall), (asked.age, asked.wall));
            assert_eq!(again.standing, asked.standing);
        });
    }
}
