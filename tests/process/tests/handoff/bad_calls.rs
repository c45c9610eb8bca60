//! What a service for workers is sent over gRPC that it must not fall for. Each is told what is wrong, another worker goes
//! on, and the messages come to somebody in the end.

use prost::Message as _;
use tidegate_process_tests::{Home, Tenants, start_broker};
use tidegate_proto::handoff as proto;
use tidegate_proto::handoff::subscribe_request::Kind as Asked;
use tonic::Code;

use crate::service::bodies;
use crate::stream::{Stream, accept, connect, open, send_bytes, settle};
use crate::{Stage, home, start};

/// What no request may have more of.
const TOO_LARGE: usize = 100 << 20;

/// Streams that cannot be opened, for each reason.
#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_beginning_is_named() {
    let stage = Stage::set().await;
    let channel = connect(&stage.service.address).await;
    let mut good = Stream::open(&channel, open(1)).await.expect("opened");
    let long = "tenants ".repeat(1 << 17);
    for (first, code, said) in [
        (Asked::Open(open(1 << 63)), Code::InvalidArgument, "9223372036854775808"),
        // What a language without unsigned numbers makes of -1.
        (Asked::Open(open(u64::MAX)), Code::InvalidArgument, "at most 100000"),
        (Asked::Open(open(100_001)), Code::InvalidArgument, "at most 100000"),
        (
            Asked::Open(proto::Open { credits: None, ..open(1) }),
            Code::InvalidArgument,
            "`credits` are needed",
        ),
        (
            Asked::Open(proto::Open { worker: "a\nb".to_owned(), ..open(1) }),
            Code::InvalidArgument,
            "control characters",
        ),
        (Asked::Open(proto::Open { flow: "tenents".to_owned(), ..open(1) }), Code::NotFound, "`tenants`"),
        (Asked::Open(proto::Open { flow: long, ..open(1) }), Code::NotFound, "there are `tenants`"),
        (Asked::Alive(proto::Alive {}), Code::InvalidArgument, "the first request of a stream is `open`"),
    ] {
        let refused = Stream::begin(&channel, first).await.err().expect("it is refused");
        assert_eq!(refused.code(), code, "{refused}");
        assert!(refused.message().contains(said), "{said}: {refused}");
        assert!(refused.message().len() < 1024, "{} bytes", refused.message().len());
    }
    stage.tenants.send("a", "a").await;
    let taken = good.deliveries().await;
    assert!(good.settle(vec![accept(&taken[0].receipt)]).await);
    assert_eq!(good.settled().await[0].status(), proto::Status::Done);
    stage.end().await;
}

/// Requests that end a stream, for each reason: what its worker held goes to another at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_request_ends_its_stream_and_no_other() {
    let stage = Stage::set().await;
    let (channel, other) = (connect(&stage.service.address).await, connect(&stage.service.address).await);
    let wrong = |kind| proto::SubscribeRequest { kind }.encode_to_vec();
    let credits = |messages| Asked::Credits(proto::Credits { messages, bytes: 1 << 63 });
    let many = |count: usize| {
        let settlements = vec![accept("tg1.AQ"); count];
        Asked::Settle(proto::Settlements { settlements })
    };
    let renewals = vec![proto::Renewal { receipt: "tg1.AQ".to_owned(), length_ms: 1 }; 10_000];
    let cases = [
        (wrong(Some(Asked::Open(open(1)))), Code::InvalidArgument, "a stream is opened once"),
        (wrong(Some(credits(1 << 63))), Code::InvalidArgument, "at most 100000"),
        (wrong(Some(many(10_000))), Code::InvalidArgument, "at most 1000 receipts, not 10000"),
        (
            wrong(Some(Asked::Renew(proto::Renewals { renewals }))),
            Code::InvalidArgument,
            "at most 1000 receipts",
        ),
        (wrong(None), Code::InvalidArgument, "a request says something"),
        (b"\xff\xff\xff\xffthis is no message".to_vec(), Code::InvalidArgument, "no request of tidegate.v1"),
        (vec![0; TOO_LARGE], Code::ResourceExhausted, "too large"),
    ];
    for (number, (request, code, said)) in cases.into_iter().enumerate() {
        let name = number.to_string();
        stage.tenants.send(&name, &name).await;
        let begin = proto::SubscribeRequest { kind: Some(Asked::Open(open(1))) }.encode_to_vec();
        let ended = send_bytes(&channel, "Subscribe", vec![begin, request]).await;
        assert_eq!(ended.code(), code, "{ended}");
        assert!(ended.message().contains(said), "{said}: {ended}");
        let mut good = Stream::open(&other, open(1)).await.expect("opened");
        let taken = good.deliveries().await;
        assert_eq!(taken[0].body, name.as_bytes(), "what the other had");
        assert!(good.settle(vec![accept(&taken[0].receipt)]).await);
        assert_eq!(good.settled().await[0].status(), proto::Status::Done, "{name}");
    }
    let ended = stage.end().await;
    assert!(ended.stderr.contains("a worker's stream was ended"), "{}", ended.stderr);
}

/// Calls that are none.
#[tokio::test(flavor = "multi_thread")]
async fn garbage_in_a_call_is_its_sender_s_fault() {
    let stage = Stage::set().await;
    stage.tenants.send("a", "a").await;
    let taken = stage.service.pull_all(1).await;
    let channel = connect(&stage.service.address).await;
    let garbage = || b"\xff\xff\xff\xffthis is no message".to_vec();
    for (method, messages, code, said) in [
        ("Settle", vec![garbage()], Code::InvalidArgument, "no request of tidegate.v1"),
        ("Renew", vec![garbage()], Code::InvalidArgument, "no request of tidegate.v1"),
        ("Subscribe", vec![garbage()], Code::InvalidArgument, "no request of tidegate.v1"),
        ("Settle", vec![vec![0; TOO_LARGE]], Code::ResourceExhausted, "too large"),
        ("Subscribe", vec![vec![0; TOO_LARGE]], Code::ResourceExhausted, "too large"),
        ("Sing", vec![Vec::new()], Code::Unimplemented, ""),
    ] {
        let ended = send_bytes(&channel, method, messages).await;
        assert_eq!(ended.code(), code, "{method}: {ended}");
        assert!(ended.message().contains(said), "{method}, {said}: {ended}");
    }
    let many = vec![accept("tg1.AQ"); 10_000];
    let refused = settle(&channel, many).await.expect_err("too many");
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    assert!(refused.message().contains("at most 1000 receipts, not 10000"), "{refused}");
    let receipt = taken[0]["receipt"].as_str().expect("a receipt");
    let done = settle(&channel, vec![accept(receipt)]).await.expect("an answer");
    assert_eq!(done[0].status(), proto::Status::Done, "the connection is as good as before");
    stage.end().await;
}

/// Receipts that are no receipts, of another fleet and of a later kind, beside a good one: each has its own answer, by
/// call and by stream.
#[tokio::test(flavor = "multi_thread")]
async fn a_bad_receipt_spoils_no_other() {
    let broker = start_broker().await;
    let endpoint = broker.address().to_string();
    let tenants = Tenants::of(&broker).await;
    let foreign = foreign_receipt(&endpoint, &tenants).await;
    let home = home(&endpoint, "", "");
    let (host, service) = start(&home).await;
    let channel = connect(&service.address).await;
    let mut worker = Stream::open(&channel, open(10)).await.expect("opened");
    for by_stream in [false, true] {
        tenants.send("a", "a").await;
        let taken = loop {
            // The other host's message comes as well, when its lease ends.
            let taken = worker.deliveries().await;
            if let Some(delivery) = taken.into_iter().find(|delivery| delivery.body == b"a".as_slice()) {
                break delivery.receipt;
            }
        };
        let mut altered = taken.clone().into_bytes();
        let middle = altered.len() / 2;
        altered[middle] = if altered[middle] == b'A' { b'B' } else { b'A' };
        let altered = String::from_utf8(altered).expect("text");
        let bad = [
            ("", "begins with"),
            ("tg1.", "cut short"),
            ("tg1.CQAA", "version 9"),
            (&taken[..taken.len() - 4], "altered"),
            (&altered, "altered"),
            (&foreign, "altered"),
            (&"x".repeat(1 << 20), "at most"),
        ]
        .map(|(receipt, said)| (receipt.to_owned(), said));
        let mut asked: Vec<_> = bad.iter().map(|(receipt, _)| accept(receipt)).collect();
        asked.push(accept(&taken));
        asked.push(proto::Settlement { cost: Some(f64::NAN), ..accept(&taken) });
        asked.push(proto::Settlement { verdict: None, ..accept(&taken) });
        let count = asked.len();
        let mut results = if by_stream {
            assert!(worker.settle(asked).await);
            let mut results = Vec::new();
            while results.len() < count {
                results.extend(worker.settled().await);
            }
            results
        } else {
            settle(&channel, asked).await.expect("an answer")
        };
        // On a stream they come as they are known.
        let mut take = |receipt: &str, status: proto::Status| {
            let at = results.iter().position(|one| one.receipt == receipt && one.status() == status);
            results.swap_remove(at.unwrap_or_else(|| panic!("no {status:?}: {results:?}")))
        };
        for (receipt, said) in &bad {
            let told = take(receipt, proto::Status::Refused);
            assert!(told.detail.contains(said), "{said}: {}", told.detail);
        }
        take(&taken, proto::Status::Done);
        let told = [take(&taken, proto::Status::Refused).detail, take(&taken, proto::Status::Refused).detail];
        assert!(told.iter().any(|detail| detail.contains("a cost is a number")), "{told:?}");
        assert!(told.iter().any(|detail| detail.contains("needs a verdict")), "{told:?}");
    }
    let ended = host.terminate().await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    tenants.close().await;
    broker.stop().await;
}

/// A receipt that a host with another key made.
async fn foreign_receipt(endpoint: &str, tenants: &Tenants) -> String {
    let home: Home = home(endpoint, "", "");
    home.write("fleet.key", "f".repeat(64));
    let (host, service) = start(&home).await;
    tenants.send("foreign", "foreign").await;
    let taken = service.pull_all(1).await;
    host.kill().await;
    taken[0]["receipt"].as_str().expect("a receipt").to_owned()
}

/// Credits of zero are a pause, and byte credits have no bound of their own.
#[tokio::test(flavor = "multi_thread")]
async fn credits_may_be_none_and_many() {
    let stage = Stage::set().await;
    let channel = connect(&stage.service.address).await;
    let mut worker = Stream::open(&channel, open(0)).await.expect("opened");
    stage.tenants.send("a", "a").await;
    assert!(worker.is_quiet().await, "it has no credits");
    let credits = |messages, bytes| Asked::Credits(proto::Credits { messages, bytes });
    assert!(worker.say(credits(1, 1 << 63)).await);
    let first = worker.deliveries().await;
    assert!(worker.say(credits(0, 0)).await);
    assert!(worker.settle(vec![accept(&first[0].receipt)]).await);
    assert_eq!(worker.settled().await[0].status(), proto::Status::Done, "a pause is for what is new");
    stage.tenants.send("b", "b").await;
    assert!(worker.is_quiet().await, "it paused");
    assert!(worker.say(credits(100_000, u64::MAX)).await);
    let second = worker.deliveries().await;
    assert_eq!(second[0].body, b"b".as_slice());
    drop(worker);
    // It held that.
    let again = stage.service.pull_all(1).await;
    assert_eq!(bodies(&again), ["b"]);
    assert_eq!(stage.service.settle(&again, &serde_json::json!({ "verdict": "accept" })), ["done"]);
    stage.end().await;
}

/// Two workers of one name; each may settle what the other has, once, and hears the truth afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn another_s_message_is_settled_once() {
    let stage = Stage::set().await;
    let channel = connect(&stage.service.address).await;
    let mut holder = Stream::open(&channel, open(1)).await.expect("opened");
    stage.tenants.send("a", "a").await;
    let taken = holder.deliveries().await;
    let mut other = Stream::open(&channel, open(0)).await.expect("opened");
    assert!(other.settle(vec![accept(&taken[0].receipt)]).await);
    assert_eq!(other.settled().await[0].status(), proto::Status::Done);
    assert!(holder.settle(vec![accept(&taken[0].receipt), accept(&taken[0].receipt)]).await);
    let mut told = Vec::new();
    while told.len() < 2 {
        told.extend(holder.settled().await);
    }
    assert!(told.iter().all(|result| result.status() == proto::Status::Done), "the same again: {told:?}");
    let release = proto::settlement::Verdict::Release(proto::Release {});
    let otherwise = proto::Settlement { verdict: Some(release), ..accept(&taken[0].receipt) };
    assert!(holder.settle(vec![otherwise]).await);
    let told = holder.settled().await;
    assert_eq!(told[0].status(), proto::Status::Unknown, "{told:?}");
    assert!(told[0].detail.contains("accepted before"), "{told:?}");
    stage.tenants.send("b", "b").await;
    let next = holder.deliveries().await;
    assert_eq!(next[0].body, b"b".as_slice(), "its credit is free again");
    let (_, described) = stage.service.ask("GET", "/v1/flows", "");
    let workers = described["flows"][0]["workers"].as_array().expect("workers");
    assert_eq!(workers.iter().filter(|worker| worker["name"] == "test").count(), 2, "{described}");
    assert!(holder.settle(vec![accept(&next[0].receipt)]).await);
    assert_eq!(holder.settled().await[0].status(), proto::Status::Done);
    stage.end().await;
}

/// A token that is withdrawn is no good any more, not even for a stream that is open; a mistake withdraws none.
#[tokio::test(flavor = "multi_thread")]
async fn an_edit_of_the_tokens_is_in_force() {
    let broker = start_broker().await;
    let tenants = Tenants::of(&broker).await;
    let home = home(&broker.address().to_string(), "tokens-file = \"tokens.toml\"", "");
    let token = |name: &str| format!("{name}-0123456789abcdef");
    let file = |name: &str| format!("[tokens.{name}]\ntoken = \"{}\"\n", token(name));
    home.write("tokens.toml", file("old"));
    let (host, service) = start(&home).await;
    let channel = connect(&service.address).await;
    let mut worker = Stream::open_with(&channel, &token("old"), open(1)).await.expect("opened");
    tenants.send("a", "a").await;
    assert_eq!(worker.deliveries().await[0].body, b"a".as_slice());
    home.write("tokens.toml", "[tokens");
    host.wait_for_log("the tokens stay as they were").await;
    assert_eq!(service.with_token(&token("old")).ask("GET", "/v1/flows", "").0, 200);
    home.write("tokens.toml", file("new"));
    host.wait_for_log("the tokens have changed").await;
    assert_eq!(service.with_token(&token("old")).ask("GET", "/v1/flows", "").0, 401);
    let ended = worker.next().await.expect_err("its token is gone");
    assert_eq!(ended.code(), Code::Unauthenticated, "{ended}");
    let service = service.with_token(&token("new"));
    let taken = service.pull_all(1).await;
    assert_eq!(bodies(&taken), ["a"], "what it held goes to others");
    assert_eq!(service.settle(&taken, &serde_json::json!({ "verdict": "accept" })), ["done"]);
    let ended = host.terminate().await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(!ended.stderr.contains("0123456789abcdef"), "a token shows");
    tenants.close().await;
    broker.stop().await;
}
