//! What operators change, and what browsers must not.

use super::*;
use crate::operate::{RecordingWanted, TapWanted, Verdict};

const RELOAD: &str = "/api/policies/{name}/reload";

#[tokio::test]
async fn a_refused_reload_says_so_and_a_dry_run_has_done_its_work() {
    let server = start(options()).await;
    let applied = ask(server.address(), "POST", "/api/policies/broken/reload").await;
    assert_eq!((applied.status, &applied.json()["passed"]), (200, &json!(true)));

    let refused = ask(server.address(), "POST", "/api/policies/absent/reload").await;
    assert_eq!(refused.status, 409);
    assert_described(RELOAD, &refused);
    let report = refused.json();
    assert_eq!(report["error"], "policies/absent.wasm is not there");
    assert_eq!(
        report["rungs"][0],
        json!({ "rung": "read", "outcome": "failed", "text": "policies/absent.wasm is not there", "took-us": 12 })
    );
    assert_eq!(report["rungs"][1]["outcome"], "skipped");

    let tried = ask(server.address(), "POST", "/api/policies/absent/reload?dry-run=true").await;
    assert_eq!(tried.status, 200);
    assert_described(RELOAD, &tried);
    assert_eq!((&tried.json()["passed"], &tried.json()["dry-run"]), (&json!(false), &json!(true)));
}

#[tokio::test]
async fn a_misspelt_dry_run_is_no_reload() {
    let server = start(options()).await;
    for query in ["dryrun=true", "dry-run=yes", "dry-run", "dry_run=true"] {
        let answer = ask(server.address(), "POST", &format!("/api/policies/broken/reload?{query}")).await;
        assert_eq!(answer.status, 400, "{query}: {answer:?}");
        assert_described(RELOAD, &answer);
    }
}

#[tokio::test]
async fn what_is_not_there_or_cannot_be_done_has_a_status_of_its_own() {
    let server = start(options()).await;
    for (action, policy, status, error) in [
        ("reload", "nobody", 404, "there is no policy `nobody`"),
        ("reload", "busy", 503, "the loader has too much to do"),
        ("rollback", "nobody", 404, "there is no policy `nobody`"),
        ("rollback", "absent", 409, "nothing to go back to"),
        ("pause", "nobody", 404, "there is no policy `nobody`"),
        ("resume", "nobody", 404, "there is no policy `nobody`"),
        ("resume", "no%20body", 404, "there is no policy `no body`"),
    ] {
        let answer = ask(server.address(), "POST", &format!("/api/policies/{policy}/{action}")).await;
        assert_eq!((answer.status, answer.json()), (status, json!({ "error": error })), "{action} {policy}");
        assert_described(&format!("/api/policies/{{name}}/{action}"), &answer);
    }
    let unreadable = ask(server.address(), "POST", "/api/policies/%ff/pause").await;
    assert_eq!(unreadable.status, 400);
    assert_described("/api/policies/{name}/pause", &unreadable);

    let policy = ask(server.address(), "GET", "/api/policies/nobody").await;
    assert_eq!(
        (policy.status, policy.json()),
        (404, json!({ "error": "there is no policy `nobody` in this host" }))
    );
    assert_described("/api/policies/{name}", &policy);
    let flow = ask(server.address(), "GET", "/api/flows/nobody/comparisons").await;
    assert_eq!(
        (flow.status, flow.json()),
        (404, json!({ "error": "there is no flow `nobody` in this host" }))
    );
    assert_described("/api/flows/{name}/comparisons", &flow);
}

#[tokio::test]
async fn pausing_and_resuming_are_two_things() {
    let server = start(options()).await;
    for (action, paused) in [("pause", true), ("resume", false)] {
        let answer = ask(server.address(), "POST", &format!("/api/policies/broken/{action}")).await;
        assert_eq!(answer.json(), json!({ "policy": "broken", "paused": paused, "changed": true }));
    }
}

#[tokio::test]
async fn a_flow_without_shadows_has_no_comparisons() {
    let server = start(options()).await;
    let answer = ask(server.address(), "GET", "/api/flows/second/comparisons").await;
    assert_eq!(answer.json(), json!({ "flow": "second", "comparisons": [] }));
}

const RECORDING: &str = "/api/flows/{name}/recording";

async fn record(server: &Server, flow: &str, body: &str) -> Answer {
    look_on(server, flow, "recording", body).await
}

async fn look_on(server: &Server, flow: &str, how: &str, body: &str) -> Answer {
    let length = body.len();
    let head = format!("POST /api/flows/{flow}/{how} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
    send(server.address(), &format!("{head}content-length: {length}\r\n\r\n{body}")).await
}

/// It is longer than a connection lives and than any other answer may take.
#[tokio::test]
async fn a_recording_is_given_out_as_it_comes_to_be() {
    let brief = Duration::from_millis(50);
    let options =
        Options { request_timeout: brief, change_timeout: brief, connection_age_max: brief, ..options() };
    let server = start(options).await;
    let body =
        r#"{"length-ms": 400, "sample": 0.5, "count": 7, "mask": ["token", "x-*"], "mask-keys": true}"#;
    let answer = record(&server, "first", body).await;
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/x-ndjson")));
    assert_described(RECORDING, &answer);
    let wanted = RecordingWanted {
        length: Duration::from_millis(400),
        count: Some(7),
        sample: 0.5,
        mask: vec!["token".to_owned(), "x-*".to_owned()],
        mask_keys: true,
        ..RecordingWanted::default()
    };
    assert!(answer.body.contains(&format!("{wanted:?}\n")), "{answer:?}");
    assert!(answer.body.contains("over\n"), "{answer:?}");
}

#[tokio::test]
async fn a_recording_that_is_misunderstood_or_impossible_does_not_begin() {
    let server = start(options()).await;
    for (body, word) in [
        (r#"{"mask_keys": true}"#, "mask_keys"),
        (r#"{"length-ms": 0}"#, "length-ms"),
        (r#"{"length-ms": 3600001}"#, "3600000"),
        (r#"{"sample": 0}"#, "sample"),
        (r#"{"sample": 1.5}"#, "sample"),
        ("{", "EOF"),
        ("[]", "no JSON object"),
        (" [1, null, 1.0]", "no JSON object"),
    ] {
        let answer = record(&server, "first", body).await;
        assert_eq!(answer.status, 400, "{body}: {answer:?}");
        assert!(answer.json()["error"].as_str().expect("a text").contains(word), "{answer:?}");
        assert_described(RECORDING, &answer);
    }
    let conflict = record(&server, "second", "").await;
    assert_eq!(conflict.json(), json!({ "error": "8 others look on at this flow already" }));
    assert_eq!(conflict.status, 409);
    assert_described(RECORDING, &conflict);
    let unknown = record(&server, "nobody", "{}").await;
    assert_eq!(unknown.status, 404);
    assert_described(RECORDING, &unknown);
    let got = ask(server.address(), "GET", "/api/flows/first/recording").await;
    assert_eq!(got.status, 405);
}

const TAP: &str = "/api/flows/{name}/tap";

#[tokio::test]
async fn a_tap_is_given_out_as_it_comes_to_be() {
    let server = start(options()).await;
    let body = r#"{"length-ms": 100, "key": "tenant-*", "verdicts": ["reject", "stop"], "body-bytes": 9}"#;
    let answer = look_on(&server, "first", "tap", body).await;
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/x-ndjson")));
    assert_described(TAP, &answer);
    let wanted = TapWanted {
        length: Duration::from_millis(100),
        key: Some("tenant-*".to_owned()),
        verdicts: vec![Verdict::Reject, Verdict::Stop],
        body_bytes: 9,
        ..TapWanted::default()
    };
    assert!(answer.body.contains(&format!("{wanted:?}\n")) && answer.body.contains("over\n"), "{answer:?}");
    for (flow, body, status, word) in [
        ("first", r#"{"verdicts": ["delivered"]}"#, 400, "delivered"),
        ("first", r#"{"length-ms": 0}"#, 400, "length-ms"),
        ("first", "[]", 400, "what is to be shown is not understood"),
        ("second", "", 409, "look on at this flow already"),
        ("nobody", "", 404, "no flow `nobody`"),
    ] {
        let answer = look_on(&server, flow, "tap", body).await;
        assert_eq!(answer.status, status, "{answer:?}");
        assert!(answer.json()["error"].as_str().expect("a text").contains(word), "{answer:?}");
        assert_described(TAP, &answer);
    }
}

#[tokio::test]
async fn flows_are_paused_resumed_and_drained() {
    let server = start(options()).await;
    let became =
        json!({ "held": 0, "accepted": 0, "deferred": 0, "released": 0, "rejected": 0, "failed": 0 });
    for (action, state) in [("pause", "paused"), ("resume", "running"), ("drain", "stopped")] {
        let drain = if action == "drain" { &became } else { &Value::Null };
        let path = format!("/api/flows/{{name}}/{action}");
        let answer = ask(server.address(), "POST", &format!("/api/flows/first/{action}")).await;
        let told =
            json!({ "flow": "first", "state": state, "changed": true, "in-flight": 3, "drain": drain });
        assert_eq!((answer.status, answer.json()), (200, told));
        assert_described(&path, &answer);
        let answer = ask(server.address(), "POST", &format!("/api/flows/second/{action}")).await;
        let (status, told) = if action == "drain" {
            (
                200,
                json!({ "flow": "second", "state": "draining", "changed": false, "in-flight": 3, "drain": drain }),
            )
        } else {
            (409, json!({ "error": "the flow is draining" }))
        };
        assert_eq!((answer.status, answer.json()), (status, told));
        assert_described(&path, &answer);
        let answer = ask(server.address(), "POST", &format!("/api/flows/nobody/{action}")).await;
        assert_eq!(answer.status, 404);
        assert_described(&path, &answer);
    }
}

async fn pause(server: &Server, host: &str, headers: &str) -> Answer {
    let head = format!("POST /api/policies/broken/pause HTTP/1.1\r\nhost: {host}\r\n{headers}");
    send(server.address(), &format!("{head}content-length: 0\r\nconnection: close\r\n\r\n")).await
}

#[tokio::test]
async fn a_page_of_another_site_changes_nothing() {
    let server = start(options()).await;
    for (host, headers) in [
        ("localhost:9640", ""),
        ("localhost:9640", "origin: http://localhost:9640\r\n"),
        ("127.0.0.1:9640", "origin: http://127.0.0.1:9640\r\nsec-fetch-site: same-origin\r\n"),
        ("[::1]:9640", "origin: http://[::1]:9640\r\n"),
        ("localhost", "sec-fetch-site: none\r\n"),
    ] {
        let answer = pause(&server, host, headers).await;
        assert_eq!(answer.status, 200, "{host} {headers}");
    }
    for (host, headers) in [
        ("localhost:9640", "origin: https://evil.example\r\n"),
        ("localhost:9640", "origin: null\r\n"),
        ("localhost:9640", "origin: http://localhost:3000\r\n"),
        ("localhost:9640", "origin: https://localhost:9640\r\n"),
        ("localhost:9640", "origin: http://localhost:9640.evil.example\r\n"),
        ("localhost:9640", "origin: http://localhost:9640\r\nsec-fetch-site: cross-site\r\n"),
        ("localhost:9640", "sec-fetch-site: same-site\r\n"),
    ] {
        let answer = pause(&server, host, headers).await;
        assert_eq!(answer.status, 403, "{host} {headers}");
        assert_described("/api/policies/{name}/pause", &answer);
    }
    assert_eq!(
        pause(&server, "evil.example", "").await.status,
        403,
        "the name is refused as for every request"
    );
}

/// Where names are allowed, one that a foreign page has made to lead here still proves nothing.
#[tokio::test]
async fn a_name_is_no_proof_of_the_own_site() {
    let server = start(Options { allow_remote: true, ..options() }).await;
    let by_name = "origin: http://evil.example:9640\r\nsec-fetch-site: same-origin\r\n";
    assert_eq!(pause(&server, "evil.example:9640", by_name).await.status, 403);
    assert_eq!(pause(&server, "tidegate.example:9640", "").await.status, 200, "a program");
    let by_address = "origin: http://192.0.2.7:9640\r\n";
    assert_eq!(pause(&server, "192.0.2.7:9640", by_address).await.status, 200);
}
