use kafka_wire::share_fetch_response::{PartitionData, ShareFetchableTopicResponse};
use kafka_wire::{RequestHeader, ShareFetchRequest, ShareFetchResponse, api_versions_response};
use kafka_wire_core::KafkaEncode;
use proptest::prelude::*;

use super::*;

const V2: ApiVersion = ApiVersion::new(2);

/// An answer as a frame without its length.
fn answered(header_version: i16, correlation: i32, body: &impl KafkaEncode, version: i16) -> Bytes {
    let mut header = ResponseHeader::default();
    header.correlation_id = correlation;
    let mut frame = BytesMut::new();
    header.encode_into(&mut frame, ApiVersion::new(header_version)).unwrap();
    body.encode_into(&mut frame, ApiVersion::new(version)).unwrap();
    frame.freeze()
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

#[test]
fn a_request_has_length_key_version_correlation_and_client() {
    let frame = encode(&ShareFetchRequest::default(), V2, 7, &StrBytes::from("me")).unwrap();
    let prefix = *frame.first_chunk().unwrap();
    assert_eq!(frame_bytes(prefix, usize::MAX).unwrap(), frame.len() - PREFIX_BYTES);
    let mut decoder = Decoder::new(frame.slice(PREFIX_BYTES..), DecodeLimits::default()).unwrap();
    let header = RequestHeader::decode(&mut decoder, V2).unwrap();
    assert_eq!((header.request_api_key, header.request_api_version, header.correlation_id), (78, 2, 7));
    assert_eq!(header.client_id.as_deref(), Some("me"));
    ShareFetchRequest::decode(&mut decoder, V2).unwrap();
    decoder.finish().unwrap();
}

#[test]
fn what_a_version_cannot_say_is_not_sent() {
    let mut request = ShareFetchRequest::default();
    request.is_renew_ack = true;
    assert!(encode(&request, ApiVersion::new(1), 1, &StrBytes::from("me")).is_err());
    assert!(encode(&request, V2, 1, &StrBytes::from("me")).is_ok());
    assert!(encode(&request, ApiVersion::new(3), 1, &StrBytes::from("me")).is_err());
}

#[test]
fn a_length_is_judged_before_it_is_believed() {
    assert_eq!(frame_bytes([0, 0, 1, 0], 256), Ok(256));
    assert_eq!(frame_bytes([0, 0, 1, 1], 256), Err(AnswerError::TooLong { bytes: 257, limit: 256 }));
    assert_eq!(frame_bytes([0xff; 4], 256), Err(AnswerError::NegativeLength(-1)));
    assert!(matches!(frame_bytes([0x7f, 0xff, 0xff, 0xff], 128 << 20), Err(AnswerError::TooLong { .. })));
}

#[test]
fn records_are_a_slice_of_the_frame() {
    let frame = answered(1, 3, &fetched(Bytes::from(vec![9; 70 << 20])), 2);
    let range = frame.as_ptr_range();
    let answer = decode::<ShareFetchRequest>(frame, V2, 3).unwrap();
    let records = &answer.responses[0].partitions[0].records;
    assert_eq!(records.len(), 70 << 20);
    assert!(range.contains(&records.as_ptr()), "copied");
}

#[test]
fn an_answer_to_something_else_is_none() {
    let frame = answered(1, 3, &fetched(Bytes::new()), 2);
    let other = decode::<ShareFetchRequest>(frame.clone(), V2, 4);
    assert_eq!(other, Err(AnswerError::Correlation { expected: 4, found: 3 }));
    let mut longer = BytesMut::from(&frame[..]);
    longer.extend_from_slice(b"x");
    assert!(matches!(decode::<ShareFetchRequest>(longer.freeze(), V2, 3), Err(AnswerError::Malformed(_))));
    for cut in 0..frame.len() {
        let cut = decode::<ShareFetchRequest>(frame.slice(..cut), V2, 3);
        assert!(matches!(cut, Err(AnswerError::Malformed(_))), "{cut:?}");
    }
}

fn offered(code: i16) -> ApiVersionsResponse {
    let mut range = api_versions_response::ApiVersion::default();
    (range.api_key, range.min_version, range.max_version) = (18, 0, 3);
    let mut answer = ApiVersionsResponse::default();
    answer.error_code = code;
    answer.api_keys = vec![range];
    answer
}

/// The header of an ApiVersions answer is the old one in every version, and a refusal's body is that of version 0.
#[test]
fn versions_are_read_in_the_version_that_was_asked_and_in_version_0_when_refused() {
    let asked = ApiVersion::new(4);
    let good = decode_versions(answered(0, 1, &offered(0), 4), asked, 1).unwrap();
    assert_eq!((good.error_code, good.api_keys.len()), (0, 1));
    let refused = decode_versions(answered(0, 1, &offered(35), 0), asked, 1).unwrap();
    assert_eq!((refused.error_code, refused.api_keys[0].max_version), (35, 3));
    let bare = decode_versions(Bytes::from_static(&[0, 0, 0, 1, 0, 35]), asked, 1).unwrap();
    assert_eq!((bare.error_code, bare.api_keys.len()), (35, 0));
    assert!(decode_versions(Bytes::from_static(&[0, 0, 0, 1, 0, 0]), asked, 1).is_err());
    assert!(decode_versions(Bytes::from_static(&[0, 0, 0, 1]), asked, 1).is_err());
}

proptest! {
    #[test]
    fn no_bytes_are_too_strange(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let frame = Bytes::from([&[0, 0, 0, 1, 0][..], &bytes].concat());
        let _ = decode::<ShareFetchRequest>(frame.clone(), V2, 1);
        let _ = decode_versions(frame, ApiVersion::new(4), 1);
    }
}
