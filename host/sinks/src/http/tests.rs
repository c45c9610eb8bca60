mod server;

use std::collections::HashMap;
use std::fs;
use std::sync::atomic::Ordering;

use http::Version;
use parking_lot::Mutex;
use serde_json::Value;
use tempfile::TempDir;
use tidegate_connector::template::Template;
use tidegate_model::Message;
use tidegate_telemetry::Telemetry;
use tokio::sync::{Barrier, Notify};

use self::server::{Pki, Reply, Road, Server, answer, babbler, status};
use super::*;
use crate::testing::{self, Flow, eventually, metric, numbered};

const IN_TROUBLE: &str = "tidegate_sink_in_trouble{sink=\"out\"}";

/// A running sink.
struct Rig {
    flow: Flow,
    telemetry: Telemetry,
    clock: Clock,
}

fn rig(url: &str, change: impl FnOnce(&mut HttpOptions)) -> Rig {
    let mut options = HttpOptions::new(url).unwrap();
    change(&mut options);
    let parts = testing::parts("out");
    let (telemetry, clock) = (parts.telemetry.clone(), parts.clock);
    let sink = Http::open(parts, &options).unwrap();
    assert_eq!(sink.credits(), options.concurrency * options.batch_max * 2);
    Rig { flow: Flow::start(sink), telemetry, clock }
}

impl Rig {
    fn requests(&self, result: &str) -> u64 {
        metric(&self.telemetry, &format!("tidegate_sink_requests_total{{sink=\"out\",result=\"{result}\"}}"))
    }

    fn released(&self, cause: &str) -> u64 {
        metric(&self.telemetry, &format!("tidegate_sink_released_total{{sink=\"out\",cause=\"{cause}\"}}"))
    }

    fn retries(&self) -> u64 {
        metric(&self.telemetry, "tidegate_sink_retries_total{sink=\"out\"}")
    }

    /// An emission whose lease ends soon.
    fn short(&self, id: u64, lease: Duration) -> Emission {
        Emission { expires_at: self.clock.now() + lease, ..numbered(id, "hello") }
    }
}

fn reason(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::Rejected { reason } => reason,
        other => panic!("{other:?}"),
    }
}

fn ordered(id: u64, order: &str) -> Emission {
    Emission { order: Some(order.into()), ..numbered(id, "") }
}

/// The message ids of a body.
fn ids(body: &[u8]) -> Vec<String> {
    let body: Value = serde_json::from_slice(body).unwrap();
    let records = body.as_array().cloned().unwrap_or_else(|| vec![body]);
    records.iter().map(|record| record["metadata"]["message-id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn deliveries_are_sent_and_accepted() {
    let server = Server::start(|_, _| async { status(204) }).await;
    let mut rig = rig(&server.url("/t/{lite-topic}?n={message-id}"), |options| {
        options.headers =
            vec![(http::HeaderName::from_static("x-tag"), Template::parse("{tag|none}").unwrap())];
        options.signature_secret = Some("key".to_owned().into());
    });
    let message = Message { lite_topic: Some("a/b".into()), ..Message::new("t", "m1") };
    rig.flow.emit(vec![testing::emission(1, message)]);
    assert_eq!(rig.flow.outcomes(1).await, [Outcome::Accepted]);
    let seen = server.seen();
    assert_eq!(seen.len(), 1);
    assert_eq!((seen[0].method.as_str(), seen[0].path.as_str()), ("POST", "/t/a%2Fb?n=m1"));
    assert_eq!(seen[0].version, Version::HTTP_11);
    assert_eq!(seen[0].headers["x-tag"], "none");
    assert_eq!(seen[0].headers["host"], server.address.to_string().as_str());
    assert_eq!(seen[0].headers["content-length"], seen[0].body.len().to_string().as_str());
    assert!(seen[0].headers["tidegate-signature"].to_str().unwrap().starts_with("t="));
    assert_eq!(ids(&seen[0].body), ["m1"]);
    assert_eq!((rig.requests("accepted"), rig.retries()), (1, 0));
    rig.flow.end().await.unwrap();
    // Connections go with the sink.
    eventually("the connections are closed", || server.counts.open.load(Ordering::SeqCst) == 0).await;
}

#[tokio::test]
async fn a_message_without_a_value_for_the_url_is_rejected_and_nothing_is_sent() {
    let server = Server::start(|_, _| async { status(204) }).await;
    let mut rig = rig(&server.url("/{tag}"), |_| {});
    rig.flow.emit(vec![numbered(1, "")]);
    let outcomes = rig.flow.outcomes(1).await;
    assert_eq!(reason(&outcomes[0]), "`url`: the message has no value for `{tag}`");
    assert!(server.seen().is_empty());
    rig.flow.end().await.unwrap();
}

#[tokio::test]
async fn one_connection_serves_many_requests_and_what_waits_is_one_batch() {
    let server = Server::start(|_, _| async { status(200) }).await;
    let mut rig = rig(&server.url("/"), |options| {
        options.concurrency = 1;
        options.batch_max = 10;
    });
    for round in 0..3 {
        rig.flow.emit((0..20).map(|id| numbered(round * 20 + id, "")).collect());
        assert_eq!(rig.flow.outcomes(20).await, vec![Outcome::Accepted; 20]);
    }
    let seen = server.seen();
    assert_eq!(seen.len(), 6);
    assert!(seen.iter().all(|seen| ids(&seen.body).len() == 10));
    assert_eq!(server.counts.connections.load(Ordering::SeqCst), 1);
    rig.flow.end().await.unwrap();
}

#[tokio::test]
async fn a_large_body_arrives_whole() {
    let server = Server::start(|_, _| async { status(200) }).await;
    let mut rig = rig(&server.url("/"), |options| options.body = BodyFormat::Raw);
    let body: Vec<u8> = (0..5_000_000_u32).map(|at| at as u8).collect();
    rig.flow.emit(vec![numbered(1, body.clone())]);
    assert_eq!(rig.flow.outcomes(1).await, [Outcome::Accepted]);
    assert!(server.seen()[0].body == body);
    rig.flow.end().await.unwrap();
}

#[tokio::test]
async fn what_passes_is_tried_again() {
    for code in [500, 502, 503, 504, 408, 429] {
        let server =
            Server::start(move |nth, _| async move { status(if nth < 2 { code } else { 200 }) }).await;
        let mut rig = rig(&server.url("/"), |options| options.retry_max_wait = Duration::from_millis(100));
        rig.flow.emit(vec![numbered(1, "hello")]);
        assert_eq!(rig.flow.outcomes(1).await, [Outcome::Accepted], "{code}");
        let failed = rig.requests(if code == 429 { "throttled" } else { "failed" });
        assert_eq!((failed, rig.requests("accepted"), rig.retries()), (2, 1, 2), "{code}");
        assert_eq!(server.seen().len(), 3);
        rig.flow.end().await.unwrap();
    }
}

#[tokio::test]
async fn a_server_that_says_when_is_not_asked_before() {
    let in_two_seconds = |clock: &Clock| {
        let at = Duration::from_secs(clock.wall().as_unix_millis() / 1_000 + 2);
        httpdate::fmt_http_date(std::time::UNIX_EPOCH + at)
    };
    // A date has whole seconds, so that two of them are more than one.
    for (by_date, at_least) in [(false, Duration::from_secs(1)), (true, Duration::from_millis(900))] {
        let clock = Clock::start();
        let server = Server::start(move |nth, _| async move {
            let value = if by_date { in_two_seconds(&clock) } else { "1".to_owned() };
            if nth == 0 { answer(503, ("retry-after", &value), "") } else { status(200) }
        })
        .await;
        let mut rig = rig(&server.url("/"), |_| {});
        rig.flow.emit(vec![numbered(1, "")]);
        assert_eq!(rig.flow.outcomes(1).await, [Outcome::Accepted]);
        let seen = server.seen();
        assert!(seen[1].at - seen[0].at >= at_least, "{by_date}: {:?}", seen[1].at - seen[0].at);
        rig.flow.end().await.unwrap();
    }
}

#[tokio::test]
async fn a_server_that_wants_a_year_is_asked_before() {
    let server = Server::start(|nth, _| async move {
        if nth == 0 { answer(429, ("retry-after", "31536000"), "") } else { status(200) }
    })
    .await;
    let mut rig = rig(&server.url("/"), |options| options.retry_max_wait = Duration::from_millis(300));
    rig.flow.emit(vec![numbered(1, "")]);
    assert_eq!(rig.flow.outcomes(1).await, [Outcome::Accepted]);
    rig.flow.end().await.unwrap();
}

#[tokio::test]
async fn with_the_lease_it_is_given_back_and_not_sent_again() {
    let server = Server::start(|_, _| async { status(500) }).await;
    let mut rig = rig(&server.url("/"), |options| options.retry_max_wait = Duration::from_millis(100));
    let order = Some(Arc::from("a"));
    let first = Emission { order: order.clone(), ..rig.short(1, Duration::from_millis(500)) };
    rig.flow.emit(vec![first, Emission { order, ..numbered(2, "") }]);
    assert_eq!(rig.flow.outcomes(2).await, vec![Outcome::Released; 2]);
    assert_eq!((rig.released("lease_over"), rig.released("overtaken")), (1, 1));
    let sent = server.seen().len();
    assert!(sent >= 2 && server.seen().iter().all(|seen| ids(&seen.body) == ["m1"]), "{sent}");
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(server.seen().len(), sent);
    rig.flow.end().await.unwrap();
}

/// The answer of a server that is slower than the lease comes too late for everybody.
#[tokio::test]
async fn a_request_ends_with_the_lease() {
    let server = Server::start(|_, _| async { Reply::Nothing }).await;
    let mut rig = rig(&server.url("/"), |_| {});
    let short = rig.short(1, Duration::from_millis(300));
    let began = tokio::time::Instant::now();
    rig.flow.emit(vec![short]);
    assert_eq!(rig.flow.outcomes(1).await, [Outcome::Released]);
    // Far from the ten seconds of a request.
    assert!(began.elapsed() < Duration::from_secs(8));
    assert_eq!(rig.requests("timed_out"), 1);
    rig.flow.end().await.unwrap();
}

#[tokio::test]
async fn what_is_refused_is_rejected_with_what_the_server_says() {
    let server = Server::start(|_, seen| async move {
        match &*seen.path {
            "/400" => answer(400, ("x", "y"), "no\r\nsuch \u{1b}[31mtenant"),
            "/401" => answer(401, ("x", "y"), "{\"got\":\"Bearer t0ken\",\"or\":\"t0ken\",\"key\":\"s1gn\"}"),
            "/301" => answer(301, ("location", "/elsewhere"), "moved"),
            "/304" => status(304),
            _ => status(413),
        }
    })
    .await;
    let mut rig = rig(&server.url("/{message-id}"), |options| {
        options.authorization = Some("Bearer t0ken".to_owned().into());
        options.signature_secret = Some("s1gn".to_owned().into());
    });
    let named = |id: u64, name: &str| testing::emission(id, Message::new("t", name));
    let names = ["400", "401", "301", "304", "413"];
    rig.flow.emit(names.iter().zip(0..).map(|(name, id)| named(id, name)).collect());
    let outcomes = rig.flow.outcomes(5).await;
    let redirect = "redirects are not followed; give the final address as `url`";
    assert_eq!(
        outcomes.iter().map(reason).collect::<Vec<_>>(),
        [
            "HTTP 400: no  such [31mtenant",
            "HTTP 401: {\"got\":\"(secret)\",\"or\":\"(secret)\",\"key\":\"(secret)\"}",
            &format!("HTTP 301: {redirect}"),
            &format!("HTTP 304: {redirect}"),
            "HTTP 413",
        ]
    );
    assert!(server.seen().iter().all(|seen| seen.path != "/elsewhere"));
    assert_eq!((rig.requests("refused"), rig.requests("odd"), rig.retries()), (3, 2, 0));
    rig.flow.end().await.unwrap();
}

#[tokio::test]
async fn a_server_that_dies_and_comes_back_gets_it() {
    let server = Server::start(|_, _| async { status(200) }).await;
    let address = server.address;
    let mut rig = rig(&server.url("/"), |options| options.retry_max_wait = Duration::from_millis(200));
    rig.flow.emit(vec![numbered(1, "")]);
    rig.flow.outcomes(1).await;
    server.stop().await;
    rig.flow.emit((2..10).map(|id| numbered(id, "")).collect());
    eventually("trouble is told", || metric(&rig.telemetry, IN_TROUBLE) == 1).await;
    rig.flow.is_silent_for(Duration::from_millis(300)).await;
    assert!(rig.requests("broken") >= 3);
    let server = Server::start_at(address, None, |_, _| async { status(200) }).await;
    assert_eq!(rig.flow.outcomes(8).await, vec![Outcome::Accepted; 8]);
    assert_eq!(server.seen().len(), 8);
    assert_eq!(metric(&rig.telemetry, IN_TROUBLE), 0);
    rig.flow.end().await.unwrap();
}

#[tokio::test]
async fn a_server_that_stalls_is_asked_again() {
    let server =
        Server::start(|nth, _| async move { if nth == 0 { Reply::Nothing } else { status(200) } }).await;
    let mut rig = rig(&server.url("/"), |options| options.timeout = Duration::from_millis(300));
    rig.flow.emit(vec![numbered(1, "")]);
    assert_eq!(rig.flow.outcomes(1).await, [Outcome::Accepted]);
    assert_eq!((rig.requests("timed_out"), rig.requests("accepted")), (1, 1));
    rig.flow.end().await.unwrap();
}

#[tokio::test]
async fn an_answer_whose_body_stalls_counts_as_its_status_says() {
    let server = Server::start(|_, seen| async move {
        if seen.path == "/m1" { Reply::HeadOnly(200, "thanks") } else { Reply::HeadOnly(422, "it is wrong") }
    })
    .await;
    let mut rig = rig(&server.url("/{message-id}"), |_| {});
    rig.flow.emit(vec![numbered(1, ""), numbered(2, "")]);
    let outcomes = rig.flow.outcomes(2).await;
    assert_eq!(outcomes[0], Outcome::Accepted);
    assert_eq!(reason(&outcomes[1]), "HTTP 422: it is wrong");
    rig.flow.end().await.unwrap();
}

#[tokio::test]
async fn a_large_answer_is_not_read() {
    let server =
        Server::start(|_, seen| async move { Reply::Large(if seen.path == "/m1" { 200 } else { 400 }) })
            .await;
    let mut rig = rig(&server.url("/{message-id}"), |_| {});
    rig.flow.emit(vec![numbered(1, ""), numbered(2, "")]);
    let outcomes = rig.flow.outcomes(2).await;
    assert_eq!(outcomes[0], Outcome::Accepted);
    assert_eq!(reason(&outcomes[1]), format!("HTTP 400: {}", "x".repeat(200)));
    rig.flow.end().await.unwrap();
    // What the system's buffers took, and no more: two answers have 200 MB.
    let taken = server.counts.large_bytes.load(Ordering::SeqCst);
    assert!(taken < 40_000_000, "{taken} bytes");
}

#[tokio::test]
async fn what_is_no_http_is_tried_again_until_the_lease_ends() {
    for (bytes, forever) in [
        (&b"SSH-2.0-OpenSSH_9.6\r\n"[..], false),
        (b"", false),
        (b"HTTP/1.1 200 OK\r\ncontent-length: ", false),
        (b"HTTP/1.1 99999 What\r\n\r\n", false),
        // A head without an end.
        (
            b"HTTP/1.1 200 OK\r\nx: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n",
            true,
        ),
        (b"\x00\xff\x00\xff\x00\xff\x00\xff", true),
    ] {
        let (address, babbling) = babbler(bytes, forever).await;
        let mut rig = rig(&format!("http://{address}/"), |options| {
            options.retry_max_wait = Duration::from_millis(100);
        });
        let short = rig.short(1, Duration::from_millis(600));
        rig.flow.emit(vec![short]);
        assert_eq!(rig.flow.outcomes(1).await, [Outcome::Released], "{bytes:?}");
        assert!(rig.requests("broken") >= 1, "{bytes:?}");
        rig.flow.end().await.unwrap();
        babbling.abort();
    }
}

#[tokio::test]
async fn others_go_side_by_side() {
    const SIDE_BY_SIDE: usize = 8;
    // Nobody is answered before so many have asked: with fewer at a time nothing would go on.
    let barrier = Arc::new(Barrier::new(SIDE_BY_SIDE));
    let server = Server::start(move |_, _| {
        let barrier = Arc::clone(&barrier);
        async move {
            barrier.wait().await;
            status(200)
        }
    })
    .await;
    let mut rig = rig(&server.url("/"), |options| options.concurrency = SIDE_BY_SIDE);
    rig.flow.emit((0..16).map(|id| numbered(id, "")).collect());
    assert_eq!(rig.flow.outcomes(16).await, vec![Outcome::Accepted; 16]);
    assert_eq!(server.counts.in_flight_max.load(Ordering::SeqCst), SIDE_BY_SIDE);
    rig.flow.end().await.unwrap();
}

#[tokio::test]
async fn one_key_goes_one_after_the_other() {
    let under_way: Arc<Mutex<HashMap<String, usize>>> = Arc::default();
    let server = Server::start(move |nth, seen| {
        let under_way = Arc::clone(&under_way);
        async move {
            let key = seen.headers["x-key"].to_str().unwrap().to_owned();
            *under_way.lock().entry(key.clone()).or_default() += 1;
            let most = under_way.lock()[&key];
            tokio::time::sleep(Duration::from_millis(10)).await;
            *under_way.lock().get_mut(&key).unwrap() -= 1;
            // Every fifth fails once, and those behind it wait.
            status(if most > 1 {
                400
            } else if nth % 5 == 4 {
                503
            } else {
                200
            })
        }
    })
    .await;
    let mut rig = rig(&server.url("/"), |options| {
        options.retry_max_wait = Duration::from_millis(100);
        options.headers = vec![(http::HeaderName::from_static("x-key"), Template::parse("{key}").unwrap())];
    });
    let keyed = |id: u64| {
        let key = ["a", "b", "c"][id as usize % 3];
        Emission { key: key.into(), ..ordered(id, key) }
    };
    rig.flow.emit((0..30).map(keyed).collect());
    assert_eq!(rig.flow.outcomes(30).await, vec![Outcome::Accepted; 30]);
    let mut last: HashMap<String, u64> = HashMap::new();
    for seen in server.seen() {
        let id: u64 = ids(&seen.body)[0][1..].parse().unwrap();
        let key = seen.headers["x-key"].to_str().unwrap().to_owned();
        let before = last.insert(key, id);
        assert!(before.is_none_or(|before| before == id || before + 3 == id), "{before:?} then {id}");
    }
    rig.flow.end().await.unwrap();
}

#[tokio::test]
async fn nothing_is_tried_again_when_the_flow_ends() {
    for by_notice in [true, false] {
        let server = Server::start(|_, _| async { status(503) }).await;
        let mut rig = rig(&server.url("/"), |_| {});
        rig.flow.emit((0..4).map(|id| numbered(id, "")).collect());
        eventually("all have failed", || rig.retries() >= 4).await;
        if by_notice {
            rig.flow.drain();
        } else {
            rig.flow.outbox.end_inbox();
        }
        assert_eq!(rig.flow.outcomes(4).await, vec![Outcome::Released; 4]);
        assert_eq!(rig.released("draining"), 4);
        rig.flow.end().await.unwrap();
        assert_eq!(metric(&rig.telemetry, IN_TROUBLE), 0);
    }
}

/// What is under way has its time when the inbox ends.
#[tokio::test]
async fn what_is_under_way_is_finished() {
    let go = Arc::new(Notify::new());
    let held = Arc::clone(&go);
    let server = Server::start(move |_, _| {
        let held = Arc::clone(&held);
        async move {
            held.notified().await;
            status(200)
        }
    })
    .await;
    let mut rig = rig(&server.url("/"), |_| {});
    rig.flow.emit(vec![numbered(1, "")]);
    eventually("it is asked", || server.seen().len() == 1).await;
    rig.flow.drain();
    rig.flow.outbox.end_inbox();
    rig.flow.is_silent_for(Duration::from_millis(100)).await;
    go.notify_one();
    assert_eq!(rig.flow.outcomes(1).await, [Outcome::Accepted]);
    rig.flow.end().await.unwrap();
}

#[tokio::test]
async fn a_sink_that_is_aborted_leaves_no_connection() {
    let server =
        Server::start(|nth, _| async move { if nth == 0 { status(200) } else { Reply::Nothing } }).await;
    let mut rig = rig(&server.url("/"), |_| {});
    rig.flow.emit(vec![numbered(1, "")]);
    rig.flow.outcomes(1).await;
    rig.flow.emit(vec![numbered(2, ""), numbered(3, "")]);
    eventually("they are asked", || server.seen().len() == 3).await;
    rig.flow.abort();
    eventually("the connections are closed", || server.counts.open.load(Ordering::SeqCst) == 0).await;
}

#[tokio::test]
async fn tls_is_checked_and_the_server_chooses_the_version() {
    let (pki, directory) = (Pki::new(), TempDir::new().unwrap());
    let ca_file = directory.path().join("ca.pem");
    fs::write(&ca_file, &pki.ca_pem).unwrap();
    for (protocols, version) in [
        (&["h2", "http/1.1"][..], Version::HTTP_2),
        (&["http/1.1"], Version::HTTP_11),
        (&[], Version::HTTP_11),
    ] {
        let any = "127.0.0.1:0".parse().unwrap();
        let tls = Some(pki.acceptor(protocols));
        let server = Server::start_at(any, tls, |_, _| async { status(200) }).await;
        let url = format!("https://localhost:{}/a", server.address.port());
        let mut rig = rig(&url, |options| options.tls_ca_file = Some(ca_file.clone()));
        rig.flow.emit((0..20).map(|id| numbered(id, "hello")).collect());
        assert_eq!(rig.flow.outcomes(20).await, vec![Outcome::Accepted; 20]);
        assert!(server.seen().iter().all(|seen| seen.version == version), "{protocols:?}");
        rig.flow.end().await.unwrap();
        eventually("the connections are closed", || server.counts.open.load(Ordering::SeqCst) == 0).await;
    }
}

#[tokio::test]
async fn a_server_that_nobody_vouches_for_gets_nothing() {
    let (pki, other, directory) = (Pki::new(), Pki::new(), TempDir::new().unwrap());
    let ca_file = directory.path().join("ca.pem");
    fs::write(&ca_file, &other.ca_pem).unwrap();
    let any = "127.0.0.1:0".parse().unwrap();
    let server = Server::start_at(any, Some(pki.acceptor(&["h2"])), |_, _| async { status(200) }).await;
    // Another authority; the right one and another name; no TLS at all.
    fs::write(directory.path().join("right.pem"), &pki.ca_pem).unwrap();
    let port = server.address.port();
    for (url, ca) in [
        (format!("https://127.0.0.1:{port}/"), Some(ca_file.clone())),
        (format!("https://[::ffff:127.0.0.1]:{port}/"), Some(directory.path().join("right.pem"))),
        (format!("http://127.0.0.1:{port}/"), None),
    ] {
        let mut rig = rig(&url, |options| {
            options.tls_ca_file = ca;
            options.retry_max_wait = Duration::from_millis(100);
        });
        let short = rig.short(1, Duration::from_millis(600));
        rig.flow.emit(vec![short]);
        assert_eq!(rig.flow.outcomes(1).await, [Outcome::Released], "{url}");
        assert!(rig.requests("broken") >= 1, "{url}");
        rig.flow.end().await.unwrap();
    }
    assert!(server.seen().is_empty());
}

/// All requests share a connection of HTTP/2. When it goes silent, the next ones must not wait for it for ever.
#[tokio::test]
async fn a_connection_that_is_dead_is_given_up() {
    let (pki, directory) = (Pki::new(), TempDir::new().unwrap());
    let ca_file = directory.path().join("ca.pem");
    fs::write(&ca_file, &pki.ca_pem).unwrap();
    let any = "127.0.0.1:0".parse().unwrap();
    let server = Server::start_at(any, Some(pki.acceptor(&["h2"])), |_, _| async { status(200) }).await;
    let road = Road::to(server.address).await;
    let mut rig = rig(&format!("https://127.0.0.1:{}/", road.address.port()), |options| {
        options.tls_ca_file = Some(ca_file);
        options.timeout = Duration::from_millis(500);
        options.retry_max_wait = Duration::from_millis(200);
    });
    rig.flow.emit(vec![numbered(1, "")]);
    rig.flow.outcomes(1).await;
    road.silent_below.store(road.count.load(Ordering::SeqCst), Ordering::SeqCst);
    rig.flow.emit(vec![numbered(2, "")]);
    assert_eq!(rig.flow.outcomes(1).await, [Outcome::Accepted]);
    assert!(rig.requests("timed_out") >= 1);
    rig.flow.end().await.unwrap();
}

#[tokio::test]
async fn a_connection_that_fails_is_described() {
    let (pki, other, directory) = (Pki::new(), Pki::new(), TempDir::new().unwrap());
    let write = |name: &str, text: &str| {
        fs::write(directory.path().join(name), text).unwrap();
        Some(directory.path().join(name))
    };
    let any = || "127.0.0.1:0".parse().unwrap();
    let gone = Server::start(|_, _| async { status(200) }).await;
    let port = gone.address.port();
    gone.stop().await;
    let plain = Server::start(|_, _| async { status(200) }).await;
    let tls = Server::start_at(any(), Some(pki.acceptor(&["h2"])), |_, _| async { status(200) }).await;
    let (mute, _mute) = babbler(b"", false).await;
    let (odd, _odd) = babbler(b"SSH-2.0-OpenSSH\r\n", false).await;
    let (ca, other) = (write("ca", &pki.ca_pem), write("other", &other.ca_pem));
    for (url, ca, part) in [
        (
            format!("http://127.0.0.1:{port}"),
            None,
            "cannot be connected to: tcp connect error: Connection refused",
        ),
        (
            format!("https://localhost:{}", tls.address.port()),
            other,
            "cannot be connected to: invalid peer certificate",
        ),
        (format!("https://127.0.0.2:{}", plain.address.port()), ca.clone(), "cannot be connected to: "),
        (format!("https://127.0.0.1:{}", plain.address.port()), ca, "received corrupt message"),
        (format!("http://{mute}"), None, "broke the connection: connection closed before message completed"),
        (format!("http://{odd}"), None, "broke the connection: invalid HTTP"),
    ] {
        let options = HttpOptions::new(&url).unwrap();
        let config = ca.map(|ca| tls::config(Some(&ca)).unwrap());
        let client = Client::new(&options.origin, config, 1).unwrap();
        let request = http::Request::post(&url).body(http_body_util::Full::default()).unwrap();
        match client.send(request, tokio::time::Instant::now() + testing::PATIENCE).await {
            Err(Failure::Broken(said)) => assert!(said.contains(part), "{url}: {said}"),
            other => panic!("{url}: {other:?}"),
        }
        client.close().await;
    }
}

#[tokio::test]
async fn what_cannot_be_used_is_said_at_the_beginning() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("ca.pem");
    let open = |change: &dyn Fn(&mut HttpOptions)| {
        let mut options = HttpOptions::new("https://hooks.example/").unwrap();
        change(&mut options);
        let checked = options.check();
        let opened = Http::open(testing::parts("out"), &options).map(|_| ());
        if let (Err(early), Err(late)) = (&checked, &opened) {
            assert_eq!(early.to_string(), late.to_string());
        }
        assert!(checked.is_ok() || opened.is_err());
        opened.map_err(|error| error.to_string())
    };
    let with_ca = |options: &mut HttpOptions| options.tls_ca_file = Some(path.clone());
    assert!(open(&with_ca).unwrap_err().contains("cannot be read"));
    fs::write(&path, "nothing").unwrap();
    assert!(open(&with_ca).unwrap_err().contains("holds no certificates"));
    fs::write(&path, "-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n").unwrap();
    assert!(open(&with_ca).unwrap_err().contains("is damaged"));
    let odd = open(&|options: &mut HttpOptions| {
        options.tls_ca_file = None;
        options.authorization = Some("Bearer t0ken\n".to_owned().into());
        options.origin = "http://h".parse().unwrap();
    });
    assert!(odd.as_ref().unwrap_err().contains("`authorization` has characters"), "{odd:?}");
    assert!(!odd.unwrap_err().contains("t0ken"));
    let unresolved = open(&|options: &mut HttpOptions| {
        options.origin = "http://h".parse().unwrap();
        options.headers = vec![(http::HeaderName::from_static("x-key"), Template::parse("env:KEY").unwrap())];
    });
    assert!(unresolved.unwrap_err().contains("was not looked up"));
}

#[tokio::test]
async fn a_dead_letter_is_sent_although_its_lease_is_over() {
    let server = Server::start(|nth, _| async move { status(if nth == 0 { 500 } else { 200 }) }).await;
    let mut rig = rig(&server.url("/"), |_| {});
    let now = rig.clock.now();
    let dead = Emission {
        received_at: now,
        expires_at: now,
        dead_letter: Some(Arc::new(testing::dead_letter())),
        ..numbered(1, "")
    };
    rig.flow.emit(vec![dead, Emission { expires_at: now, ..numbered(2, "") }]);
    assert_eq!(rig.flow.outcomes(2).await, [Outcome::Accepted, Outcome::Released]);
    let record: Value = serde_json::from_slice(&server.seen()[1].body).unwrap();
    assert_eq!(record["dead-letter"]["flow"], "tenants");
    rig.flow.end().await.unwrap();
}
