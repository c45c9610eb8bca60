use super::*;
use crate::batch;
use crate::error_code::*;
use crate::faults::Fault;
use crate::share::RecordState;
use crate::wire::Api;

fn fetched(effect: Effect) -> (Bench, ShareFetchResponse) {
    let mut bench = Bench::quick(2);
    bench.cluster.inject(Fault::new(Api::ShareFetch, effect, 1));
    let connection = bench.connect(1);
    let answer = bench.fetch(connection, &Fetch { exact: false, records: 100, ..FETCH });
    (bench, answer)
}

#[test]
fn errors_to_order() {
    let (bench, answer) = fetched(Effect::Error(KAFKA_STORAGE_ERROR));
    assert_eq!((answer.error_code, answer.responses.len()), (KAFKA_STORAGE_ERROR, 0));
    assert!(bench.cluster.sessions(1).is_empty(), "nothing was done");
    let (bench, answer) = fetched(Effect::ErrorAfter(KAFKA_STORAGE_ERROR));
    assert_eq!((answer.error_code, answer.responses.len()), (KAFKA_STORAGE_ERROR, 0));
    assert_eq!((bench.cluster.sessions(1).len(), bench.cluster.tally(GROUP).acquired), (1, 100));
    let (_, answer) = fetched(Effect::PartitionError { code: COORDINATOR_NOT_AVAILABLE, partition: None });
    assert_eq!(errors(&answer), [(0, COORDINATOR_NOT_AVAILABLE, 0)]);
    let (mut bench, answer) = fetched(Effect::Throttle(ms(250)));
    assert_eq!((answer.throttle_time_ms, acquired(&answer).len()), (250, 1));
    bench.cluster.inject(Fault::new(Api::ShareFetch, Effect::AcknowledgeError(INVALID_RECORD_STATE), 1));
    let connection = bench.connect(1);
    let said = Fetch { epoch: 1, partitions: &[], said: &[(0, 0, 0, &[1])], records: 0, ..FETCH };
    assert_eq!(errors(&bench.fetch(connection, &said)), [(0, 0, INVALID_RECORD_STATE)]);
    assert_eq!(bench.cluster.tally(GROUP).accepted, 0);
}

/// Not a code that the broker has a reason of its own for.
const KAFKA_STORAGE_ERROR: i16 = 56;

#[test]
fn records_spoilt_to_order() {
    let (_, answer) = fetched(Effect::OverlappingRanges);
    assert_eq!(acquired(&answer), [(0, 0, 99, 1), (0, 0, 99, 1)]);
    let records = |effect| fetched(effect).1.responses[0].partitions[0].records.clone();
    let good = records(Effect::Throttle(Duration::ZERO));
    assert_eq!(records(Effect::NoRecords).len(), 0);
    assert_eq!(records(Effect::CutTail(10)), good.slice(..good.len() - 10));
    let crc_is_right = |bytes: &[u8]| {
        let (length, _) = batch::measure(bytes).expect("a batch");
        bytes[17..21] == crc32c::crc32c(&bytes[21..length]).to_be_bytes()
    };
    assert!(crc_is_right(&good));
    assert!(!crc_is_right(&records(Effect::CorruptRecords)));
    let unknown = records(Effect::UnknownCompression);
    assert!(crc_is_right(&unknown));
    assert_eq!(unknown[22] & 7, 7);
    let empty = records(Effect::EmptyBatch);
    assert_eq!(batch::measure(&empty), Some((batch::HEADER_BYTES, 0)));
    assert_eq!(empty.slice(batch::HEADER_BYTES..), good);
}

#[test]
fn connections_that_end_or_say_nothing() {
    let mut bench = Bench::quick(1);
    let request = Request::new(bench.fetch_body(&FETCH));
    for (effect, acquired) in [(Effect::Disconnect, 0), (Effect::DisconnectAfter, 100)] {
        bench.cluster.inject(Fault::new(Api::ShareFetch, effect, 1));
        let connection = bench.connect(1);
        assert_eq!(
            bench.cluster.handle_request(bench.now, connection, request.clone()),
            [Answer::Disconnect]
        );
        assert_eq!(bench.cluster.tally(GROUP).acquired, acquired);
        assert!(bench.cluster.sessions(1).is_empty());
    }
    bench.cluster.inject(Fault::new(Api::ShareFetch, Effect::Silence, 1));
    let connection = bench.connect(1);
    assert_eq!(bench.cluster.handle_request(bench.now, connection, request.clone()), []);
    assert_eq!(bench.cluster.handle_request(bench.now, connection, request.clone()), [], "never again");
    assert!(bench.wait_until(ms(100_000)).is_empty());
    bench.cluster.inject(Fault::new(Api::ShareFetch, Effect::Garbage(Bytes::from_static(b"?")), 1));
    let connection = bench.connect(1);
    assert_eq!(
        bench.cluster.handle_request(bench.now, connection, request),
        [Answer::Bytes(Bytes::from_static(b"?"))]
    );
    assert_eq!(bench.cluster.journal().count(Api::ShareFetch), 5);
}

#[test]
fn answers_late_and_twice() {
    let mut bench = Bench::quick(1);
    bench.cluster.inject(Fault::new(Api::ShareFetch, Effect::Delay(ms(300)), 1));
    let connection = bench.connect(1);
    assert!(bench.try_fetch(connection, &FETCH).is_none());
    assert_eq!(bench.cluster.tally(GROUP).acquired, 100, "the work was done");
    let (when, late) = bench.wait_for_fetch(ms(1_000));
    assert_eq!((when, acquired(&late).len()), (ms(300), 1));
    bench.cluster.append(TOPIC, 0, [Record::new("more")]).expect("the topic exists");
    bench.cluster.inject(Fault::new(Api::ShareFetch, Effect::Twice, 1));
    let request = Request::new(bench.fetch_body(&Fetch { epoch: 1, partitions: &[], ..FETCH }));
    let twice = bench.cluster.handle_request(bench.now, connection, request);
    assert_eq!((twice.len(), &twice[0]), (2, &twice[1]));
}

#[test]
fn a_fault_also_befalls_a_fetch_that_waited() {
    let mut bench = Bench::quick(0);
    bench.cluster.inject(Fault::new(Api::ShareFetch, Effect::Twice, 1));
    let connection = bench.connect(1);
    assert!(bench.try_fetch(connection, &FETCH).is_none());
    bench.cluster.append(TOPIC, 0, [Record::new("new")]).expect("the topic exists");
    assert_eq!(bench.wait_until(ms(1)).len(), 2);
}

#[test]
fn nodes_stop_and_others_take_over() {
    let mut bench = Bench::new(Options { nodes: 2, ..Options::quick() }, 1);
    let connection = bench.connect(1);
    bench.fetch(connection, &Fetch { records: 10, ..FETCH });
    bench.cluster.stop_node(bench.now, 1);
    assert_eq!(bench.wait_until(ms(0)), [(ms(0), Answer::Disconnect)]);
    assert_eq!(bench.cluster.connect(1), None);
    assert_eq!(bench.cluster.leader(TOPIC, 0), Some(1), "nobody has noticed yet");
    bench.cluster.fail_over(1);
    assert_eq!((bench.cluster.leader(TOPIC, 0), bench.cluster.coordinator(GROUP)), (Some(2), 2));
    let other = bench.connect(2);
    let again = bench.fetch(other, &Fetch { records: 1, ..FETCH });
    assert_eq!(acquired(&again)[0].1, 0);
    bench.cluster.start_node(1);
    assert!(bench.cluster.connect(1).is_some());
}

#[test]
fn what_became_of_records_can_be_seen() {
    let mut bench = Bench::quick(1);
    let connection = bench.connect(1);
    assert_eq!(bench.cluster.share_state(GROUP, TOPIC, 0), None);
    bench.fetch(connection, &Fetch { records: 10, ..FETCH });
    bench.acknowledge(connection, "a", 1, &[(0, 3, 5, &[3])]);
    let state = bench.cluster.share_state(GROUP, TOPIC, 0).expect("it was fetched");
    assert_eq!((state.start, state.end), (0, 100));
    let runs: Vec<_> =
        state.runs.iter().map(|run| (run.first, run.last, run.state, run.delivery_count)).collect();
    assert_eq!(
        runs,
        [
            (0, 2, RecordState::Acquired, 1),
            (3, 5, RecordState::Archived, 1),
            (6, 9, RecordState::Acquired, 1),
            (10, 99, RecordState::Available, 0),
        ]
    );
    assert_eq!((state.tally.acquired, state.tally.rejected), (10, 3));
}

#[test]
fn a_frozen_node_answers_when_it_is_thawed() {
    let mut bench = Bench::quick(1);
    let connection = bench.connect(1);
    bench.cluster.freeze_node(1);
    let request = Request::new(kafka_wire::MetadataRequest::default());
    assert_eq!(bench.cluster.handle_request(ms(0), connection, request), []);
    assert_eq!(bench.cluster.poll_timeout(), None, "nothing is due");
    assert_eq!(bench.cluster.poll_answers(ms(60_000)), []);
    assert!(bench.cluster.connect(1).is_some(), "the system takes connections for it");
    bench.cluster.thaw_node(ms(60_000), 1);
    let answers = bench.cluster.poll_answers(ms(60_000));
    assert_eq!(answers.len(), 1, "{answers:?}");
}
