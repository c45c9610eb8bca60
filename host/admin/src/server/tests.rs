mod change;
mod host;
mod stuck;

use std::net::Ipv4Addr;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use self::host::Host;
use super::*;
use crate::routes::OPENAPI;
use crate::view::{FlowState, PausedBy};

async fn start(options: Options) -> Server {
    let host = Arc::new(Host::new(FlowState::Running, true));
    Server::start(options, host, Telemetry::default()).await.expect("a free port")
}

fn options() -> Options {
    Options::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
}

/// An answer, read to the end of the connection.
#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.into_iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

async fn send(address: SocketAddr, request: &str) -> Answer {
    let mut stream = TcpStream::connect(address).await.expect("connected");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).await.expect("received");
    let (head, body) = text.split_once("\r\n\r\n").expect("an HTTP answer");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    Answer { status, head: head.to_owned(), body: body.to_owned() }
}

async fn ask(address: SocketAddr, method: &str, path: &str) -> Answer {
    send(address, &format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")).await
}

/// Says where `value` is not what `schema` describes. Knows the part of JSON Schema that `openapi.json` uses, and
/// fails on the rest.
fn mismatch(document: &Value, schema: &Value, value: &Value, at: &str) -> Option<String> {
    if let Some(reference) = schema["$ref"].as_str() {
        let target = document.pointer(reference.trim_start_matches('#')).expect("a definition");
        return mismatch(document, target, value, at);
    }
    if let Some(choices) = schema["oneOf"].as_array() {
        let told: Vec<_> = choices.iter().map(|choice| mismatch(document, choice, value, at)).collect();
        return if told.contains(&None) { None } else { told.into_iter().flatten().next() };
    }
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let allowed = match &schema["type"] {
        Value::String(one) => vec![one.as_str()],
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        other => panic!("{at}: a schema without a type: {other}"),
    };
    if !allowed.contains(&kind) {
        return Some(format!("{at} is {kind}, not {allowed:?}"));
    }
    match value {
        Value::String(text) => {
            let words = schema["enum"].as_array()?;
            (!words.contains(&json!(text))).then(|| format!("{at} is `{text}`, not one of {words:?}"))
        }
        Value::Array(items) => items
            .iter()
            .enumerate()
            .find_map(|(index, item)| mismatch(document, &schema["items"], item, &format!("{at}[{index}]"))),
        Value::Object(fields) => mismatched_field(document, schema, fields, at),
        _ => None,
    }
}

fn mismatched_field(
    document: &Value,
    schema: &Value,
    fields: &serde_json::Map<String, Value>,
    at: &str,
) -> Option<String> {
    let required = schema["required"].as_array().map(Vec::as_slice).unwrap_or_default();
    let missing = required.iter().filter_map(Value::as_str).find(|name| !fields.contains_key(*name));
    if let Some(name) = missing {
        return Some(format!("{at}.{name} is missing"));
    }
    fields.iter().find_map(|(name, field)| {
        let known = schema["properties"].get(name).or_else(|| schema.get("additionalProperties"));
        match known {
            Some(known) => mismatch(document, known, field, &format!("{at}.{name}")),
            None => Some(format!("{at}.{name} is not described")),
        }
    })
}

/// Whether an answer is what the document says about its path, as `GET` or as `POST` for those that change something.
fn assert_described(path: &str, answer: &Answer) {
    let document: Value = serde_json::from_str(OPENAPI).expect("JSON");
    let mut response =
        &document["paths"][path][method(&document, path)]["responses"][answer.status.to_string()];
    assert!(response.is_object(), "{path} with {} is not described", answer.status);
    if let Some(reference) = response["$ref"].as_str() {
        response = document.pointer(reference.trim_start_matches('#')).expect("a definition");
    }
    let content = answer.header("content-type").expect("a content type");
    let content = content.split(';').next().expect("a type");
    let schema = &response["content"][content]["schema"];
    assert!(schema.is_object(), "{path} with {content} is not described");
    if content == "application/json" && path != "/openapi.json" {
        assert_eq!(mismatch(&document, schema, &answer.json(), path), None);
    }
}

/// The only method that the document has for a path.
fn method(document: &Value, path: &str) -> &'static str {
    let methods: Vec<_> = document["paths"][path].as_object().expect("a path").keys().collect();
    match methods.as_slice() {
        [one] if *one == "get" => "get",
        [one] if *one == "post" => "post",
        other => panic!("{path} has {other:?}"),
    }
}

/// A path of the document with a name that the host of these tests has.
fn named(path: &str) -> String {
    path.replace("{name}", if path.contains("/flows/") { "first" } else { "broken" })
}

#[tokio::test]
async fn every_path_is_described_and_answers_so() {
    let server = start(options()).await;
    let document: Value = serde_json::from_str(OPENAPI).expect("JSON");
    let paths = document["paths"].as_object().expect("paths");
    for path in paths.keys() {
        let right = method(&document, path).to_uppercase();
        let answer = ask(server.address(), &right, &named(path)).await;
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        assert_described(path, &answer);
        for wrong in ["DELETE", if right == "GET" { "POST" } else { "GET" }] {
            let refused = ask(server.address(), wrong, &named(path)).await;
            assert_eq!(refused.status, 405, "{path}: {refused:?}");
            assert!(refused.header("allow").is_some_and(|allowed| allowed.contains(&right)), "{refused:?}");
            assert_described(path, &refused);
        }
    }
    // The sentence about unknown paths lists the paths: the same ones, or a route is missing in one of the two.
    let told = ask(server.address(), "GET", "/nowhere").await.json()["error"].to_string();
    let listed = told.trim_end_matches('"').rsplit("the paths are ").next().expect("a list").split(", ");
    let mut listed: Vec<_> = listed.map(str::to_owned).collect();
    listed.sort();
    assert_eq!(listed, paths.keys().cloned().collect::<Vec<_>>());
}

#[tokio::test]
async fn every_definition_is_used() {
    let document: Value = serde_json::from_str(OPENAPI).expect("JSON");
    for kind in ["schemas", "responses"] {
        for name in document["components"][kind].as_object().expect("definitions").keys() {
            // What an unknown path answers belongs to no path.
            let used = OPENAPI.contains(&format!("\"#/components/{kind}/{name}\"")) || name == "NotFound";
            assert!(used, "{kind}/{name}");
        }
    }
}

#[tokio::test]
async fn ready_means_that_every_flow_runs_and_is_served() {
    let server = start(options()).await;
    let ready = ask(server.address(), "GET", "/readyz").await;
    assert_eq!((ready.status, ready.json()), (200, json!({ "ready": true, "reasons": [] })));

    let away = "the flow is not served by its broker: not connected yet to the cluster behind b:8081";
    for (state, joined, reason) in [
        (FlowState::Failed, true, "the flow has failed: standard output is closed"),
        (FlowState::Draining, true, "the flow is draining"),
        (FlowState::Stopped, false, "the flow has stopped"),
        (FlowState::Running, false, away),
    ] {
        let host = Arc::new(Host::new(state, joined));
        let server = Server::start(options(), host, Telemetry::default()).await.expect("a free port");
        let answer = ask(server.address(), "GET", "/readyz").await;
        assert_eq!(answer.status, 503);
        assert_eq!(
            answer.json(),
            json!({ "ready": false, "reasons": [{ "flow": "second", "reason": reason }] })
        );
        assert_described("/readyz", &answer);
        assert_eq!(ask(server.address(), "GET", "/healthz").await.status, 200);
    }
}

/// What an operator has paused is as it should be; a flow that pauses itself asks for somebody.
#[tokio::test]
async fn a_paused_flow_is_ready_when_an_operator_paused_it() {
    for (paused_by, ready) in [(PausedBy::Operator, true), (PausedBy::DeadLetters, false)] {
        let host = Host { paused_by: Some(paused_by), ..Host::new(FlowState::Paused, false) };
        let server =
            Server::start(options(), Arc::new(host), Telemetry::default()).await.expect("a free port");
        let answer = ask(server.address(), "GET", "/readyz").await;
        assert_eq!((answer.status == 200, &answer.json()["ready"]), (ready, &json!(ready)));
        assert_described("/readyz", &answer);
        if !ready {
            let reason = &answer.json()["reasons"][0]["reason"];
            assert_eq!(reason, "the flow is paused: it paused itself");
        }
        let flows = ask(server.address(), "GET", "/api/flows").await;
        assert_described("/api/flows", &flows);
        assert_eq!(flows.json()["flows"][1]["state"], "paused");
    }
}

/// A flow that was drained on purpose is as it should be.
#[tokio::test]
async fn a_drained_flow_is_ready_when_an_operator_drained_it() {
    for state in [FlowState::Draining, FlowState::Stopped] {
        let host = Host { drained: true, ..Host::new(state, false) };
        let server =
            Server::start(options(), Arc::new(host), Telemetry::default()).await.expect("a free port");
        let answer = ask(server.address(), "GET", "/readyz").await;
        assert_eq!((answer.status, &answer.json()["ready"]), (200, &json!(true)));
        let flows = ask(server.address(), "GET", "/api/flows").await;
        assert_described("/api/flows", &flows);
        assert_eq!(flows.json()["flows"][1]["drain"]["released"], 0);
    }
}

#[tokio::test]
async fn metrics_are_open_metrics() {
    let server = start(options()).await;
    let answer = ask(server.address(), "GET", "/metrics").await;
    let content = answer.header("content-type");
    assert_eq!(content, Some("application/openmetrics-text; version=1.0.0; charset=utf-8"));
    assert!(answer.body.contains("tidegate_build_info{"), "{}", answer.body);
    assert!(answer.body.ends_with("# EOF\n"), "{}", answer.body);
}

#[tokio::test]
async fn mistakes_are_sentences() {
    let server = start(options()).await;
    let unknown = ask(server.address(), "GET", "/api/flow").await;
    assert_eq!(unknown.status, 404);
    let told = unknown.json()["error"].as_str().expect("a sentence").to_owned();
    assert!(told.starts_with("there is nothing at `/api/flow`; the paths are /, /healthz"), "{told}");

    let method = ask(server.address(), "POST", "/api/flows").await;
    assert_eq!(method.status, 405);
    assert_eq!(
        method.json(),
        json!({ "error": "`/api/flows` answers GET and HEAD, not POST; it changes nothing" })
    );
    let method = ask(server.address(), "GET", "/api/policies/broken/pause").await;
    assert_eq!(
        method.json(),
        json!({ "error": "`/api/policies/broken/pause` answers POST, not GET; it changes something" })
    );

    let request =
        "GET /api/flows HTTP/1.1\r\nhost: localhost\r\ncontent-length: 20000\r\nconnection: close\r\n\r\n";
    let large = send(server.address(), request).await;
    assert_eq!(large.status, 413);
    assert_described("/api/flows", &large);
}

#[tokio::test]
async fn answers_are_not_kept_and_the_page_brings_everything() {
    let server = start(options()).await;
    let page = ask(server.address(), "GET", "/").await;
    assert_eq!(page.header("cache-control"), Some("no-store"));
    assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
    assert!(
        page.header("content-security-policy").is_some_and(|policy| policy.starts_with("default-src 'none'"))
    );
    for foreign in ["http://", "https://", "src=", "@import", "innerHTML"] {
        assert!(!page.body.contains(foreign), "{foreign}");
    }
    let head = ask(server.address(), "HEAD", "/").await;
    assert_eq!((head.status, &*head.body), (200, ""));
}

#[tokio::test]
async fn a_foreign_name_is_refused() {
    let server = start(options()).await;
    let asked_as =
        |host: &str| format!("GET /api/flows HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    for host in ["localhost", "LOCALHOST:9640", "127.0.0.1", "127.0.0.1:9640", "[::1]:9640", "[::1]"] {
        assert_eq!(send(server.address(), &asked_as(host)).await.status, 200, "{host}");
    }
    for host in ["evil.example", "evil.example:9640", "localhost.evil.example", ""] {
        let answer = send(server.address(), &asked_as(host)).await;
        assert_eq!(answer.status, 403, "{host}");
        assert_described("/api/flows", &answer);
    }
    let open = start(Options { allow_remote: true, ..options() }).await;
    assert_eq!(send(open.address(), &asked_as("tidegate.example")).await.status, 200);
}

#[tokio::test]
async fn an_address_for_everyone_has_to_be_allowed() {
    let host = || Arc::new(Host::new(FlowState::Running, true));
    let listen = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let error = Server::start(Options::new(listen), host(), Telemetry::default()).await.expect_err("refused");
    assert_eq!(
        error.to_string(),
        "the admin API would listen on 0.0.0.0:0, which other machines can reach, and it has no authentication; use \
         a loopback address such as 127.0.0.1, or allow it with `admin-allow-remote = true`"
    );
    let options = Options { allow_remote: true, ..Options::new(listen) };
    assert!(Server::start(options, host(), Telemetry::default()).await.is_ok());
}

#[tokio::test]
async fn a_taken_port_is_named() {
    let server = start(options()).await;
    let host = Arc::new(Host::new(FlowState::Running, true));
    let error = Server::start(Options::new(server.address()), host, Telemetry::default())
        .await
        .expect_err("the port is taken");
    let told = format!("the admin API cannot listen on {}; choose another `admin-listen`", server.address());
    assert_eq!(error.to_string(), told);
}

#[tokio::test]
async fn connections_past_the_bound_wait() {
    let server = start(Options { connections_max: 1, ..options() }).await;
    let holder = proven(TcpStream::connect(server.address()).await.expect("connected")).await;
    let mut waiting = tokio::spawn(async move { ask(server.address(), "GET", "/healthz").await.status });
    // On a slow machine this shows less; it never fails by itself.
    let early = tokio::time::timeout(Duration::from_millis(100), &mut waiting).await;
    assert!(early.is_err(), "answered beside the only connection allowed: {early:?}");
    drop(holder);
    assert_eq!(waiting.await.expect("answered"), 200);
}

/// A connection that was answered once and is kept.
async fn proven(mut stream: TcpStream) -> TcpStream {
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.expect("sent");
    let mut byte = [0];
    while byte != *b"}" {
        stream.read_exact(&mut byte).await.expect("received");
    }
    stream
}

#[tokio::test]
async fn a_silent_connection_is_closed() {
    let server = start(Options { head_timeout: Duration::from_millis(50), ..options() }).await;
    for first in [&b""[..], b"GET /healthz HTTP/1.1\r\nhost: loc"] {
        let mut stream = TcpStream::connect(server.address()).await.expect("connected");
        stream.write_all(first).await.expect("sent");
        let mut rest = Vec::new();
        // Returns only when the server closes; the test's own end is the bound.
        stream.read_to_end(&mut rest).await.expect("closed");
        assert!(!String::from_utf8_lossy(&rest).contains("200"), "{rest:?}");
    }
}

#[tokio::test]
async fn an_idle_connection_is_closed() {
    let server = start(Options { head_timeout: Duration::from_millis(50), ..options() }).await;
    let mut idle = proven(TcpStream::connect(server.address()).await.expect("connected")).await;
    let mut rest = Vec::new();
    // Returns only when the server closes; the test's own end is the bound.
    idle.read_to_end(&mut rest).await.expect("closed");
    assert_eq!(rest, b"");
}

#[tokio::test]
async fn a_body_that_never_comes_is_not_waited_for() {
    let server = start(options()).await;
    let mut stream = TcpStream::connect(server.address()).await.expect("connected");
    let head = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\n";
    stream.write_all(head).await.expect("sent");
    let mut rest = String::new();
    let closed = stream.read_to_string(&mut rest);
    let most = options().head_timeout * 5;
    tokio::time::timeout(most, closed).await.expect("closed long before its greatest age").expect("received");
    assert!(rest.contains("200 OK"), "{rest}");
}

/// As many as there is room for, all half open: whoever comes after them waits for the timeout and no longer.
#[tokio::test]
async fn half_open_requests_hold_up_others_only_for_a_moment() {
    let options = options();
    assert!(options.head_timeout <= Duration::from_secs(5), "a few seconds");
    let server = start(Options { head_timeout: Duration::from_millis(100), ..options }).await;
    let mut half_open = Vec::new();
    for number in 0..options.connections_max {
        let mut stream = TcpStream::connect(server.address()).await.expect("connected");
        stream.write_all(&b"GET /healthz HTTP/1.1\r\nhost: loc"[..number % 32]).await.expect("sent");
        half_open.push(stream);
    }
    let answer = ask(server.address(), "GET", "/healthz");
    let answer = tokio::time::timeout(options.connection_age_max / 2, answer).await.expect("in time");
    assert_eq!(answer.status, 200);
    drop(half_open);
}

#[tokio::test]
async fn a_client_that_does_not_receive_is_cut_off() {
    let brief = Duration::from_millis(50);
    let options = Options { request_timeout: brief, connection_age_max: brief, ..options() };
    let server = start(options).await;
    let mut stream = TcpStream::connect(server.address()).await.expect("connected");
    let request = b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n";
    // Asks until the server takes no more, which holds this up, and ends only when the server closes.
    while stream.write_all(request).await.is_ok() {}
}

#[tokio::test]
async fn the_end_closes_idle_connections_at_once() {
    let server = start(options()).await;
    let address = server.address();
    let mut idle = proven(TcpStream::connect(address).await.expect("connected")).await;
    server.stop(Duration::from_secs(60)).await;
    let mut rest = Vec::new();
    idle.read_to_end(&mut rest).await.expect("closed");
    assert_eq!(rest, b"");
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn the_end_does_not_wait_for_a_client_that_never_finishes() {
    let server = start(options()).await;
    let mut stalled = TcpStream::connect(server.address()).await.expect("connected");
    stalled.write_all(b"GET /healthz HTTP/1.1\r\n").await.expect("sent");
    server.stop(Duration::from_millis(50)).await;
    let mut rest = Vec::new();
    // Cut off, whether by an end of file or by a reset.
    let _ = stalled.read_to_end(&mut rest).await;
    assert_eq!(rest, b"");
}
