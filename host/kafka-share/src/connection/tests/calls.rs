//! Versions, calls, and what becomes of a connection when a call fails.

use std::time::Duration;

use bytes::Bytes;
use kafka_wire::share_fetch_response::{PartitionData, ShareFetchableTopicResponse};
use kafka_wire::{
    ApiVersionsRequest, MetadataRequest, MetadataResponse, ShareFetchRequest, ShareFetchResponse,
};
use kafka_wire_core::{ApiVersion, VersionRange};
use tokio::io::AsyncWriteExt as _;

use super::peer::{Broker, KAFKA_4_3, answer_frame, offer};
use super::*;
use crate::AnswerError;

#[tokio::test]
async fn a_call_is_answered_in_the_newest_common_version() {
    let broker = Broker::greeting(|mut peer| async move {
        let heard = peer.must_hear().await;
        assert_eq!((heard.key, heard.version.value(), &*heard.client_id), (3, 13, "tester"));
        let mut answer = MetadataResponse::default();
        answer.throttle_time_ms = 250;
        answer.controller_id = 7;
        peer.answer::<MetadataRequest>(&heard, &answer).await;
        let heard = peer.must_hear().await;
        assert_eq!(heard.version.value(), 12);
        peer.answer::<MetadataRequest>(&heard, &MetadataResponse::default()).await;
        assert!(peer.hear().await.is_none(), "closed");
    })
    .await;
    let mut connection = open(&broker, options()).await.unwrap();
    assert!(connection.versions().has_renewal());
    let answer = ask(&mut connection).await.unwrap();
    assert_eq!((answer.body.controller_id, answer.version), (7, 13));
    assert_eq!(answer.throttle, Duration::from_millis(250));
    assert!(answer.bytes > 10);
    let within = VersionRange::new(9, 12);
    let answer = connection.call_within(&MetadataRequest::default(), within, LONG).await.unwrap();
    assert_eq!((answer.version, answer.throttle), (12, Duration::ZERO));
    connection.close().await;
}

#[tokio::test]
async fn an_older_broker_is_asked_in_the_version_that_it_names() {
    let broker = Broker::start(|mut peer| async move {
        let heard = peer.must_hear().await;
        assert_eq!((heard.key, heard.version.value()), (18, 4));
        let mut refusal = offer(&[(18, 0, 3)]);
        refusal.error_code = 35;
        let frame = answer_frame::<ApiVersionsRequest>(ApiVersion::new(0), heard.correlation, &refusal);
        peer.say(&frame).await;
        let heard = peer.must_hear().await;
        assert_eq!(heard.version.value(), 3);
        let request: ApiVersionsRequest = heard.body();
        assert_eq!(&*request.client_software_name, "tidegate");
        peer.answer::<ApiVersionsRequest>(&heard, &offer(KAFKA_4_3)).await;
        peer.serve_metadata().await;
    })
    .await;
    let mut connection = open(&broker, options()).await.unwrap();
    ask(&mut connection).await.unwrap();
}

#[tokio::test]
async fn a_broker_that_names_no_version_is_asked_in_the_oldest() {
    let broker = Broker::start(|mut peer| async move {
        let heard = peer.must_hear().await;
        let bare = [&6_u32.to_be_bytes()[..], &heard.correlation.to_be_bytes(), &[0, 35]].concat();
        peer.say(&bare).await;
        let heard = peer.must_hear().await;
        assert_eq!(heard.version.value(), 0);
        peer.answer::<ApiVersionsRequest>(&heard, &offer(&[(3, 0, 9), (18, 0, 0)])).await;
    })
    .await;
    let (text, problem) = refused(&broker, options()).await;
    assert!(text.contains("the broker has no ShareGroupHeartbeat") && text.contains("4.2"), "{text}");
    assert!(!problem.is_retriable());
}

#[tokio::test]
async fn a_broker_that_refuses_every_version_is_not_asked_for_ever() {
    let broker = Broker::start(|mut peer| async move {
        while let Some(heard) = peer.hear().await {
            let mut refusal = offer(&[(18, 0, 4)]);
            refusal.error_code = 35;
            peer.say(&answer_frame::<ApiVersionsRequest>(ApiVersion::new(0), heard.correlation, &refusal))
                .await;
        }
    })
    .await;
    let (text, _) = refused(&broker, options()).await;
    assert!(text.contains("UNSUPPORTED_VERSION (35)"), "{text}");
}

#[tokio::test]
async fn the_share_protocol_of_kafka_4_0_is_told_as_too_old() {
    let broker = Broker::start(|mut peer| async move {
        peer.greet(&[(3, 0, 13), (76, 0, 0), (78, 0, 0), (79, 0, 0)]).await;
    })
    .await;
    let (text, problem) = refused(&broker, options()).await;
    assert!(text.contains("versions 0-0, and this client speaks versions 1-1"), "{text}");
    assert_eq!((problem.phase(), problem.fault()), (Phase::Versions, Fault::Configuration));
}

#[tokio::test]
async fn what_cannot_be_asked_leaves_the_connection_as_it_is() {
    let broker = Broker::greeting(|mut peer| async move { peer.serve_metadata().await }).await;
    let mut connection = open(&broker, options()).await.unwrap();
    let within = VersionRange::new(14, 20);
    let error = connection.call_within(&MetadataRequest::default(), within, LONG).await.unwrap_err();
    assert!(error.to_string().contains("offers Metadata in versions 0-13"), "{error}");
    let mut renewal = ShareFetchRequest::default();
    renewal.is_renew_ack = true;
    let error = connection.call_within(&renewal, VersionRange::new(1, 1), LONG).await.unwrap_err();
    assert!(matches!(error.problem(), CallProblem::Request(_)), "{error}");
    assert!(error.leaves_the_connection() && !error.may_have_been_done() && !error.is_retriable());
    ask(&mut connection).await.unwrap();
}

/// After `error`, nothing goes over the connection any more, and that says why.
async fn assert_ended(mut connection: Connection, why: &str) {
    assert!(!connection.is_usable());
    let error = ask(&mut connection).await.unwrap_err();
    assert!(matches!(error.problem(), CallProblem::Ended(_)), "{error}");
    assert!(error.to_string().contains(why), "{error}");
    assert!(!error.may_have_been_done() && error.is_retriable());
    let again = ask(&mut connection).await.unwrap_err();
    assert_eq!(again.to_string(), error.to_string(), "reasons do not pile up");
}

#[tokio::test]
async fn without_an_answer_in_time_the_connection_is_of_no_use() {
    let broker = Broker::greeting(be_silent).await;
    let mut connection = open(&broker, options()).await.unwrap();
    let error = connection.call(&MetadataRequest::default(), SHORT).await.unwrap_err();
    assert_eq!(error.to_string(), format!("Metadata to {} failed: no answer within 150ms", broker.address));
    assert!(error.may_have_been_done() && error.is_retriable());
    assert_eq!(error.fault(), Fault::Network);
    assert_ended(connection, "no answer within 150ms").await;
}

#[tokio::test]
async fn a_call_that_is_given_up_leaves_the_connection_of_no_use() {
    let broker = Broker::greeting(be_silent).await;
    let mut connection = open(&broker, options()).await.unwrap();
    let given_up = time::timeout(SHORT, ask(&mut connection)).await;
    assert!(given_up.is_err());
    assert_ended(connection, "a call of Metadata was given up").await;
}

#[tokio::test]
async fn the_answer_to_something_else_ends_the_connection() {
    let broker = Broker::greeting(|mut peer| async move {
        let heard = peer.must_hear().await;
        let other = heard.correlation + 1;
        peer.say(&answer_frame::<MetadataRequest>(heard.version, other, &MetadataResponse::default())).await;
        be_silent(peer).await;
    })
    .await;
    let mut connection = open(&broker, options()).await.unwrap();
    let error = ask(&mut connection).await.unwrap_err();
    assert!(matches!(error.problem(), CallProblem::Answer(AnswerError::Correlation { .. })), "{error}");
    assert_eq!(error.fault(), Fault::Broker);
    assert_ended(connection, "the answer is to request").await;
}

#[tokio::test]
async fn garbage_of_every_kind_ends_the_connection_at_once() {
    let cases: [(&'static [u8], &str); 5] = [
        (&[0xff, 0xff, 0xff, 0xff], "the answer's length is -1"),
        (&[0x7f, 0xff, 0xff, 0xff, 0, 0], "2147483647 bytes, and 134217728 are allowed"),
        (&[0, 0, 0, 0], "malformed"),
        (&[0, 0, 0, 2, 0, 0], "malformed"),
        (&[0, 0, 0, 8, 0, 0, 0, 2, 0xff, 0xff, 0xff, 0xff], "malformed"),
    ];
    for (bytes, expected) in cases {
        let broker = Broker::greeting(move |mut peer| async move {
            peer.must_hear().await;
            peer.say(bytes).await;
            be_silent(peer).await;
        })
        .await;
        let mut connection = open(&broker, options()).await.unwrap();
        let error = ask(&mut connection).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert_ended(connection, expected).await;
    }
}

#[tokio::test]
async fn a_longer_answer_than_allowed_is_refused_by_its_length() {
    let broker = Broker::greeting(|mut peer| async move {
        peer.must_hear().await;
        peer.say(&[0, 0, 4, 1]).await;
        be_silent(peer).await;
    })
    .await;
    let small = ClientOptions { answer_bytes_max: 1_024, ..options() };
    let mut connection = open(&broker, small).await.unwrap();
    let error = ask(&mut connection).await.unwrap_err();
    assert!(error.to_string().contains("the answer has 1025 bytes, and 1024 are allowed"), "{error}");
}

#[tokio::test]
async fn a_broker_that_goes_away_is_noticed() {
    let cut: [&'static [u8]; 3] = [b"", &[0, 0], &[0, 0, 0, 20, 0, 0, 0, 2]];
    for bytes in cut {
        let broker = Broker::greeting(move |mut peer| async move {
            let heard = peer.must_hear().await;
            peer.answer::<MetadataRequest>(&heard, &MetadataResponse::default()).await;
            peer.must_hear().await;
            peer.say(bytes).await;
        })
        .await;
        let mut connection = open(&broker, options()).await.unwrap();
        ask(&mut connection).await.unwrap();
        let error = ask(&mut connection).await.unwrap_err();
        assert!(error.to_string().ends_with("failed: the server closed the connection"), "{error}");
        assert!(error.may_have_been_done());
        assert_ended(connection, "closed the connection").await;
    }
}

#[tokio::test]
async fn a_listener_that_wants_sasl_is_suspected_when_it_closes_at_the_first_call() {
    let broker = Broker::greeting(|mut peer| async move {
        peer.must_hear().await;
    })
    .await;
    let mut connection = open(&broker, options()).await.unwrap();
    let error = ask(&mut connection).await.unwrap_err();
    assert!(
        error.to_string().ends_with("if its listener wants SASL, say so with `properties.security.protocol`"),
        "{error}"
    );
}

#[tokio::test]
async fn an_answer_may_come_byte_by_byte() {
    let broker = Broker::greeting(|mut peer| async move {
        let heard = peer.must_hear().await;
        let mut answer = MetadataResponse::default();
        answer.controller_id = 3;
        for byte in answer_frame::<MetadataRequest>(heard.version, heard.correlation, &answer) {
            peer.stream.write_all(&[byte]).await.unwrap();
            time::sleep(Duration::from_millis(1)).await;
        }
        be_silent(peer).await;
    })
    .await;
    let mut connection = open(&broker, options()).await.unwrap();
    assert_eq!(ask(&mut connection).await.unwrap().body.controller_id, 3);
}

/// Nothing of the next answer is taken for a part of this one, though the memory for this one has grown beyond it.
#[tokio::test]
async fn two_answers_may_come_in_one_piece() {
    const BYTES: usize = 20 << 20;
    let broker = Broker::greeting(|mut peer| async move {
        let heard = peer.must_hear().await;
        let mut answers = Vec::new();
        for number in 0..2 {
            let answer = fetched(Bytes::from(vec![7; BYTES]));
            let correlation = heard.correlation + number;
            answers.extend(answer_frame::<ShareFetchRequest>(heard.version, correlation, &answer));
        }
        peer.say(&answers).await;
        be_silent(peer).await;
    })
    .await;
    let mut connection = open(&broker, options()).await.unwrap();
    for _ in 0..2 {
        let answer = connection.call(&ShareFetchRequest::default(), LONG).await.unwrap();
        assert_eq!(answer.body.responses[0].partitions[0].records.len(), BYTES);
    }
}

fn fetched(records: Bytes) -> ShareFetchResponse {
    let mut partition = PartitionData::default();
    partition.records = records;
    let mut topic = ShareFetchableTopicResponse::default();
    topic.partitions = vec![partition];
    let mut answer = ShareFetchResponse::default();
    answer.responses = vec![topic];
    answer
}

/// Small enough for one piece of memory, and so large that it grows several times.
#[tokio::test]
async fn records_of_every_size_arrive_whole() {
    const SIZES: [usize; 3] = [0, 4 << 20, 50 << 20];
    let pattern = |bytes: usize| -> Bytes { (0..bytes).map(|at| (at % 251) as u8).collect() };
    let broker = Broker::greeting(move |mut peer| async move {
        for bytes in SIZES {
            let heard = peer.must_hear().await;
            assert_eq!((heard.key, heard.version.value()), (78, 2));
            let answer = fetched(pattern(bytes));
            peer.answer::<ShareFetchRequest>(&heard, &answer).await;
        }
    })
    .await;
    let mut connection = open(&broker, options()).await.unwrap();
    for bytes in SIZES {
        let answer = connection.call(&ShareFetchRequest::default(), LONG).await.unwrap();
        assert!(answer.bytes > bytes);
        assert!(answer.body.responses[0].partitions[0].records == pattern(bytes), "{bytes} bytes");
    }
}
