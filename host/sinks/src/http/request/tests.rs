use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt as _;
use serde_json::Value;
use tidegate_connector::Clock;
use tidegate_model::{Instant, Message, ReceiptIssuer, ReceiptKey};

use super::*;
use crate::http::schedule::{Rules, Schedule};
use crate::http::target::Targets;
use crate::testing;

const NOW: Timestamp = Timestamp::from_unix_millis(1_767_323_045_678);

fn recorder() -> Recorder {
    let key = ReceiptKey::new([7; 32]);
    Recorder::new("source".into(), ReceiptIssuer { key, owner: "h".into(), flow: "f".into() }, Clock::start())
}

/// The request of one batch with all these.
fn request(options: &HttpOptions, emissions: Vec<Emission>) -> Result<Request<Full<Bytes>>, RequestError> {
    let wait = Duration::from_secs(1);
    let rules = Rules {
        concurrency: 1,
        batch_max: emissions.len(),
        batch_bytes: 1 << 20,
        wait_first: wait,
        wait_max: wait,
    };
    let (mut schedule, mut targets) = (Schedule::new(rules, 1), Targets::new(options));
    for emission in emissions {
        let target = targets.target_of(&emission).unwrap();
        schedule.handle_emission(emission, target);
    }
    let batch = schedule.poll_start(Instant::ZERO).unwrap();
    Requests::new(options, recorder()).unwrap().make(&batch, NOW)
}

fn options(change: impl FnOnce(&mut HttpOptions)) -> HttpOptions {
    let mut options = HttpOptions::new("https://h:8443/a?b=1").unwrap();
    change(&mut options);
    options
}

async fn body_of(request: Request<Full<Bytes>>) -> Bytes {
    request.into_body().collect().await.unwrap().to_bytes()
}

/// Headers but the receipt, whose bytes are pinned elsewhere and hold the time.
fn shown(headers: &HeaderMap) -> String {
    let mut lines: Vec<_> = headers
        .iter()
        .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
        .filter(|line| !line.starts_with("tidegate-receipt: tg1."))
        .collect();
    lines.sort();
    lines.join("\n")
}

#[tokio::test]
async fn a_record_is_sent_as_it_is_written() {
    let request = request(&options(|_| {}), vec![testing::numbered(1, "hello")]).unwrap();
    assert_eq!(request.method(), Method::POST);
    assert_eq!(request.uri(), "https://h:8443/a?b=1");
    let version = env!("CARGO_PKG_VERSION");
    let expected = format!("content-type: application/json\nuser-agent: tidegate/{version}");
    assert_eq!(shown(request.headers()), expected);
    let record: Value = serde_json::from_slice(&body_of(request).await).unwrap();
    assert_eq!(record["value"], "hello");
    assert_eq!(record["metadata"]["message-id"], "m1");
    assert!(record["receipt"].as_str().unwrap().starts_with("tg1."));
}

#[tokio::test]
async fn a_batch_is_an_array_even_with_one_and_ndjson_is_lines() {
    let both = || vec![testing::numbered(1, "a"), testing::numbered(2, "b")];
    for emissions in [both(), vec![testing::numbered(1, "a")]] {
        let count = emissions.len();
        let array = request(&options(|options| options.batch_max = 10), emissions).unwrap();
        let array: Value = serde_json::from_slice(&body_of(array).await).unwrap();
        let ids: Vec<_> =
            array.as_array().unwrap().iter().map(|one| &one["metadata"]["message-id"]).collect();
        assert_eq!(ids, ["m1", "m2"][..count]);
    }
    let lines = request(&options(|options| options.body = BodyFormat::Ndjson), both()).unwrap();
    assert_eq!(lines.headers()[header::CONTENT_TYPE], "application/x-ndjson");
    let lines = String::from_utf8(body_of(lines).await.to_vec()).unwrap();
    assert!(lines.ends_with('\n') && lines.lines().count() == 2, "{lines}");
    for line in lines.lines() {
        serde_json::from_str::<Value>(line).unwrap();
    }
}

#[tokio::test]
async fn raw_is_the_bytes_with_the_metadata_in_headers() {
    let message = Message {
        lite_topic: Some("t\u{e9}nant 7%".into()),
        group: Some("g".into()),
        tag: Some("urgent".into()),
        keys: vec!["a".into(), "b c".into()],
        properties: vec![
            ("Region".into(), Bytes::from_static(b"eu west")),
            ("raw&".into(), Bytes::from_static(&[0xff, b'='])),
        ],
        body: Bytes::from_static(&[0, 0xff]),
        body_state: BodyState::Corrupted { reason: "the digest differs".into() },
        born_at: Some(Timestamp::from_unix_millis(1)),
        stored_at: Some(Timestamp::from_unix_millis(2)),
        ..Message::new("main", "01AB\r\nx: y")
    };
    let mut emission = testing::emission(1, message);
    emission.dead_letter = Some(Arc::new(testing::dead_letter()));
    let request = request(&options(|options| options.body = BodyFormat::Raw), vec![emission]).unwrap();
    let receipt = request.headers()["tidegate-receipt"].to_str().unwrap();
    assert!(receipt.starts_with("tg1."), "{receipt}");
    insta::assert_snapshot!(shown(request.headers()).replace(env!("CARGO_PKG_VERSION"), "VERSION"));
    assert_eq!(body_of(request).await.as_ref(), [0, 0xff]);
}

#[test]
fn metadata_that_no_server_takes_is_refused() {
    let raw = options(|options| options.body = BodyFormat::Raw);
    let with = |bytes: usize| {
        let properties = vec![("p".into(), Bytes::from(vec![b'x'; bytes]))];
        vec![testing::emission(1, Message { properties, ..Message::new("t", "i") })]
    };
    request(&raw, with(60 << 10)).unwrap();
    let error = request(&raw, with(64 << 10)).unwrap_err().to_string();
    assert!(error.contains("65536 are sent at most"), "{error}");
}

#[tokio::test]
async fn secrets_are_sent_and_marked() {
    let options = options(|options| {
        options.method = HttpMethod::Put;
        options.authorization = Some("Bearer t0ken".to_owned().into());
        options.signature_secret = Some("key".to_owned().into());
        let template = |text| tidegate_connector::template::Template::parse(text).unwrap();
        options.headers = vec![
            (header::CONTENT_TYPE, template("application/cloudevents+json")),
            (HeaderName::from_static("x-key"), template("k-{key}")),
        ];
    });
    let request = request(&options, vec![testing::numbered(1, "hello")]).unwrap();
    assert_eq!(request.method(), Method::PUT);
    let headers = request.headers().clone();
    assert_eq!(headers[header::AUTHORIZATION], "Bearer t0ken");
    assert_eq!(headers[header::CONTENT_TYPE], "application/cloudevents+json");
    assert_eq!(headers["x-key"], "k-k");
    let debug = format!("{headers:?}");
    assert!(!debug.contains("t0ken") && !debug.contains("k-k"), "{debug}");
    let body = body_of(request).await;
    let expected = sign(&"key".to_owned().into(), NOW, &body);
    assert_eq!(headers["tidegate-signature"], expected.as_str());
}
