//! Workers and clients that hang, in every place where a service waits for somebody: what they hold goes to others, and
//! others are served meanwhile.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tidegate_process_tests::{Home, PATIENCE, eventually_asked};
use tidegate_proto::handoff as proto;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::service::{Service, bodies};
use crate::stream::{Stream, accept, connect, open, unfinished};
use crate::{Stage, home};

/// Connections that a service has at one time, and some more.
const CONNECTIONS: usize = 1024 + 50;
/// More memory than a host takes for what these tests do, in a build without optimisation, and far less than what is sent
/// to it.
const MEMORY_MAX: u64 = 400 << 20;

/// Connections that say nothing, and such that only begin, are not waited for: they keep nobody out.
#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_keep_nobody_out() {
    let stage = Stage::set().await;
    stage.tenants.send("a", "a").await;
    let beginnings: [&[u8]; 4] = [b"", b"P", b"PRI * HTTP/2.0\r\n", b"GET /v1/flows HTTP/1.1\r\nHost: loc"];
    let silent: Vec<TcpStream> = (0..CONNECTIONS)
        .map(|number| {
            let mut stream = TcpStream::connect(&stage.service.address).expect("connected");
            stream.write_all(beginnings[number % beginnings.len()]).expect("written");
            stream
        })
        .collect();
    let taken = stage.service.pull_all(1).await;
    assert_eq!(stage.service.settle(&taken, &json!({ "verdict": "accept" })), ["done"]);
    for mut stream in silent {
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        // An answer first, or a reset: both are an end.
        let ended = stream.read_to_end(&mut Vec::new());
        assert!(!matches!(&ended, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock), "{ended:?}");
    }
    stage.end().await;
}

/// A body that does not come is not waited for, and who sends it learns so.
#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_does_not_come_is_given_up() {
    let stage = Stage::set().await;
    let mut stream = TcpStream::connect(&stage.service.address).expect("connected");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let head = format!(
        "POST /v1/settle HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{{",
        stage.service.address
    );
    stream.write_all(head.as_bytes()).expect("written");
    let mut answer = vec![0; 4096];
    let read = stream.read(&mut answer).expect("an answer");
    let answer = String::from_utf8_lossy(&answer[..read]).into_owned();
    assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("did not come within 30 s"), "{answer}");
    stage.end().await;
}

/// Somebody who asks for much and reads none of it: the connection ends, and no memory is kept for it.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_nobody_reads_is_given_up() {
    let stage = Stage::set().await;
    let large = "x".repeat(1 << 20);
    for number in 0..4 {
        stage.tenants.send(&format!("tenant-{number}"), &large).await;
    }
    let mut stream = TcpStream::connect(&stage.service.address).expect("connected");
    stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
    let body = r#"{"max-messages":10}"#;
    let request = format!(
        "POST /v1/flows/tenants/pull HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        stage.service.address,
        body.len()
    );
    // One after the other, none of the answers read, until the other end has had enough.
    let mut refused = None;
    for number in 0..1000 {
        refused = stream.write_all(request.as_bytes()).err();
        if refused.is_some() {
            break;
        }
        // The connection takes requests as long as its buffers do.
        tokio::time::sleep(Duration::from_millis(if number > 10 { 100 } else { 0 })).await;
    }
    let refused = refused.expect("the connection ends");
    assert!(
        matches!(refused.kind(), std::io::ErrorKind::ConnectionReset | std::io::ErrorKind::BrokenPipe),
        "{refused}"
    );
    drop(stream);
    // What it took comes again when the leases end.
    let again = stage.service.pull_all(4).await;
    assert_eq!(stage.service.settle(&again, &json!({ "verdict": "accept" })), vec!["done"; 4]);
    stage.end().await;
}

/// A worker that subscribes and never reads gets no more than its connection takes; what it holds goes to another, and
/// the host keeps none of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_never_reads_holds_up_nobody() {
    const MESSAGES: usize = 600;
    // Nothing comes back because its lease has ended.
    let stage = Stage::set_in(patient).await;
    let deaf = Stream::open(&connect(&stage.service.address).await, open(1000)).await.expect("opened");
    let body = "x".repeat(10_000);
    let messages = (0..MESSAGES).map(|number| (format!("tenant-{number}"), format!("{number}-{body}")));
    stage.tenants.send_all(messages).await;
    let taken = eventually_all(&stage.service, MESSAGES).await;
    assert_eq!(taken.len(), MESSAGES);
    assert!(stage.host.log().contains("it has taken nothing for 30 s"), "{}", stage.host.log());
    drop(deaf);
    stage.end().await;
}

/// A worker that settles without end and never reads the answers: it is held back, and the host's memory with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_only_talks_is_held_back() {
    let stage = Stage::set().await;
    let talking = Stream::open(&connect(&stage.service.address).await, open(1)).await.expect("opened");
    let long = format!("tg1.{}", "A".repeat(7_000));
    let batch = vec![accept(&long); 1000];
    let talk = async { while talking.settle(batch.clone()).await {} };
    let mut most = 0;
    let watching = async {
        while !stage.host.log().contains("it has taken nothing for 30 s") {
            most = most.max(stage.host.resident_bytes());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    // Seven megabytes each: without a bound, gigabytes within seconds.
    tokio::select! {
        () = talk => panic!("it may go on, and is not heard"),
        () = watching => {}
        () = tokio::time::sleep(PATIENCE + PATIENCE) => panic!("its stream goes on: {} MB", most >> 20),
    }
    assert!(most < MEMORY_MAX, "{} MB", most >> 20);
    stage.tenants.send("a", "a").await;
    let taken = stage.service.pull_all(1).await;
    assert_eq!(stage.service.settle(&taken, &json!({ "verdict": "accept" })), ["done"], "others go on");
    stage.end().await;
}

/// Requests that begin and do not end, as many as a connection may have: they take no more memory than one connection
/// is allowed, and they end.
#[tokio::test(flavor = "multi_thread")]
async fn requests_that_do_not_end_have_a_bound() {
    const REQUESTS: usize = 200;
    let stage = Stage::set().await;
    let channel = connect(&stage.service.address).await;
    let calls: Vec<_> = (0..REQUESTS).map(|_| tokio::spawn(unfinished(channel.clone(), 7 << 20))).collect();
    let mut most = 0;
    for _ in 0..100 {
        most = most.max(stage.host.resident_bytes());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(most < MEMORY_MAX, "{} MB", most >> 20);
    stage.tenants.send("a", "a").await;
    let taken = stage.service.pull_all(1).await;
    assert_eq!(stage.service.settle(&taken, &json!({ "verdict": "accept" })), ["done"], "others go on");
    for call in calls {
        let status = call.await.expect("no panic");
        assert!(
            matches!(status.code(), tonic::Code::ResourceExhausted | tonic::Code::DeadlineExceeded),
            "{status}"
        );
    }
    stage.end().await;
}

/// A worker whose machine is gone without a word: the host notices, and what it held goes to another.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_cut_off_is_noticed() {
    let stage = Stage::set_in(patient).await;
    let line = Line::to(&stage.service.address).await;
    let mut cut_off = Stream::open(&connect(&line.address).await, open(1)).await.expect("opened");
    stage.tenants.send("a", "a").await;
    assert_eq!(cut_off.deliveries().await[0].body, b"a".as_slice());
    line.freeze();
    let mut other = Stream::open(&connect(&stage.service.address).await, open(1)).await.expect("opened");
    // Long before its lease ends.
    let taken = other.deliveries().await;
    assert_eq!(taken[0].body, b"a".as_slice());
    assert!(other.settle(vec![accept(&taken[0].receipt)]).await);
    assert_eq!(other.settled().await[0].status(), proto::Status::Done);
    stage.end().await;
}

/// A pull whose client is gone takes nothing from anybody.
#[tokio::test(flavor = "multi_thread")]
async fn a_pull_that_is_gone_takes_nothing() {
    let stage = Stage::set_in(patient).await;
    let workers = async || {
        let (_, described) = stage.service.ask("GET", "/v1/flows", "");
        described["flows"][0]["workers"].as_array().expect("workers").len()
    };
    let mut gone = TcpStream::connect(&stage.service.address).expect("connected");
    let head = format!("POST /v1/flows/tenants/pull HTTP/1.1\r\nHost: {}\r\n\r\n", stage.service.address);
    gone.write_all(head.as_bytes()).expect("written");
    eventually_asked("the pull is there", async || (workers().await == 1).then_some(())).await;
    drop(gone);
    eventually_asked("the pull is gone", async || (workers().await == 0).then_some(())).await;
    stage.tenants.send("a", "a").await;
    let taken = stage.service.pull_all(1).await;
    assert_eq!(stage.service.settle(&taken, &json!({ "verdict": "accept" })), ["done"]);
    stage.end().await;
}

/// A client that speaks something else than TLS to a service that wants it is counted, with the reason in the log.
#[tokio::test(flavor = "multi_thread")]
async fn a_handshake_that_fails_is_told() {
    let stage = Stage::set_in(|endpoint| {
        let tls = "tls-cert-file = \"cert.pem\"\ntls-key-file = \"key.pem\"";
        let home = home(endpoint, tls, "");
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
        home.write("cert.pem", made.cert.pem());
        home.write("key.pem", made.signing_key.serialize_pem());
        home.edit("[host]", "[host]\nlog-level = \"debug\"");
        home
    })
    .await;
    let mut stream = TcpStream::connect(&stage.service.address).expect("connected");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("written");
    // An alert, and the end.
    let _ = stream.read_to_end(&mut Vec::new());
    let counted = async || {
        let refused = stage.host.metric("handoff_refused_total{cause=\"tls\"}").await;
        (refused == 1).then_some(())
    };
    eventually_asked("it is counted", counted).await;
    stage.host.wait_for_log("a request was refused").await;
    stage.end().await;
}

/// A page in a browser on this machine that has made it believe that this service is its own gets in by neither protocol.
#[tokio::test(flavor = "multi_thread")]
async fn a_web_page_cannot_call() {
    let stage = Stage::set().await;
    for (name, expected) in [("evil.example", 403), ("localhost", 200)] {
        let mut stream = TcpStream::connect(&stage.service.address).expect("connected");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let head = format!(
            "POST /tidegate.v1.Handoff/Describe HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\
             Content-Type: application/grpc\r\nContent-Length: 5\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).expect("written");
        stream.write_all(&[0; 5]).expect("written");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("an answer");
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert!(answer.starts_with(&format!("HTTP/1.1 {expected}")), "{name}: {answer}");
    }
    stage.end().await;
}

/// A host whose leases are so long that nothing comes back because one has ended.
fn patient(endpoint: &str) -> Home {
    let home = home(endpoint, "", "");
    home.edit("invisible-duration = \"30s\"", "invisible-duration = \"10m\"");
    home
}

/// Takes and settles until so many have come.
async fn eventually_all(service: &Service, count: usize) -> Vec<String> {
    let mut seen = std::collections::BTreeSet::new();
    let deadline = tokio::time::Instant::now() + PATIENCE + PATIENCE;
    while seen.len() < count {
        assert!(tokio::time::Instant::now() < deadline, "{} of {count} came", seen.len());
        let asking = service.clone();
        let taken = tokio::task::spawn_blocking(move || {
            let taken = asking.pull(100, Duration::from_secs(2));
            if !taken.is_empty() {
                asking.settle(&taken, &json!({ "verdict": "accept" }));
            }
            taken
        });
        seen.extend(bodies(&taken.await.expect("no panic")));
    }
    seen.into_iter().collect()
}

/// A line to an address, which can be cut without either end being told.
struct Line {
    address: String,
    frozen: watch::Sender<bool>,
}

impl Line {
    async fn to(address: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let here = listener.local_addr().expect("an address").to_string();
        let (frozen, is_frozen) = watch::channel(false);
        let address: Arc<str> = address.into();
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let (address, mut is_frozen) = (Arc::clone(&address), is_frozen.clone());
                tokio::spawn(async move {
                    let mut far = tokio::net::TcpStream::connect(&*address).await.expect("connected");
                    let is_cut = tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => false,
                        cut = is_frozen.wait_for(|frozen| *frozen) => cut.is_ok(),
                    };
                    if is_cut {
                        // Both ends stay open, and nothing passes.
                        std::future::pending::<()>().await;
                    }
                    let _ = near.shutdown().await;
                });
            }
        });
        Self { address: here, frozen }
    }

    fn freeze(&self) {
        self.frozen.send_replace(true);
    }
}
