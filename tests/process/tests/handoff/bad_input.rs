//! What a service for workers is sent that it must not fall for.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::json;
use tidegate_process_tests::{Program, Tenants, run_to_end, start_broker};

use crate::service::Service;
use crate::{Stage, home, start};

/// Where the service of a test's host listens.
const LISTEN: &str = "\nlisten = \"127.0.0.1:0\"\n";

/// Receipts that are no receipts, of another fleet, of a later kind; bodies that are none; and everybody else goes on.
#[tokio::test(flavor = "multi_thread")]
async fn rubbish_is_named_and_harms_nobody() {
    let stage = Stage::set().await;
    stage.tenants.send("a", "a").await;
    let taken = stage.service.pull_all(1).await;
    let receipt = taken[0]["receipt"].as_str().expect("a receipt").to_owned();
    let mut altered = receipt.clone().into_bytes();
    let middle = altered.len() / 2;
    altered[middle] = if altered[middle] == b'A' { b'B' } else { b'A' };
    let altered = String::from_utf8(altered).expect("text");
    let long = format!("tg1.{}", "A".repeat(9_000));
    for (rubbish, said) in [
        ("", "begins with"),
        ("tg1.", "cut short"),
        ("tg1.CQAA", "version 9"),
        ("tg1.not base64", "letters, digits"),
        (&receipt[..receipt.len() - 4], "altered"),
        (&altered, "altered"),
        (&long, "at most"),
    ] {
        let body = json!({ "settlements": [{ "receipt": rubbish, "verdict": "accept" }] });
        let (status, answer) = stage.service.ask("POST", "/v1/settle", &body.to_string());
        let result = &answer["results"][0];
        assert_eq!((status, &result["status"]), (200, &json!("refused")), "{rubbish}: {answer}");
        assert!(result["detail"].as_str().expect("a sentence").contains(said), "{said}: {answer}");
    }
    for (path, body, said) in [
        ("/v1/settle", "", "settlements"),
        ("/v1/settle", "{", "the body is not right"),
        ("/v1/settle", "[]", "the body is not right"),
        ("/v1/settle", r#"{"settlements":[{"receipt":"x","verdict":"eat"}]}"#, "unknown variant"),
        ("/v1/settle", r#"{"settlements":[{"receipt":"x","verdict":"defer"}]}"#, "delay-ms"),
        ("/v1/settle", r#"{"settlements":[{"receipt":"x","verdict":"accept","cost":-1}]}"#, "cost"),
        ("/v1/renew", r#"{"renewals":[{"receipt":"x","length-ms":-5}]}"#, "whole number"),
        ("/v1/flows/tenants/pull", r#"{"max-messages":0}"#, "from 1 to"),
        ("/v1/flows/tenants/pull", r#"{"max-messages":9223372036854775808}"#, "from 1 to"),
        ("/v1/flows/tenants/pull", r#"{"wait-ms":9999999}"#, "at most"),
        ("/v1/flows/tenants/pull", r#"{"max-messsages":1}"#, "unknown field"),
    ] {
        let (status, answer) = stage.service.ask("POST", path, body);
        assert_eq!(status, 400, "{path} {body}: {answer}");
        assert!(answer["error"].as_str().expect("a sentence").contains(said), "{said}: {answer}");
    }
    let (status, answer) = stage.service.ask("POST", "/v1/flows/tenents/pull", "{}");
    assert_eq!(status, 404);
    assert!(answer["error"].as_str().expect("a sentence").contains("`tenants`"), "{answer}");
    let many: Vec<_> = (0..1001).map(|_| json!({ "receipt": "x", "verdict": "accept" })).collect();
    let (status, answer) =
        stage.service.ask("POST", "/v1/settle", &json!({ "settlements": many }).to_string());
    assert_eq!(status, 400, "{answer}");

    // A body of 100 MB is not even read to its end.
    let huge = vec![b'a'; 100 << 20];
    match stage.service.ask_raw("POST", "/v1/settle", "application/json", &huge) {
        Ok((status, _)) => assert_eq!(status, 413),
        Err(error) => assert!(
            matches!(error.kind(), std::io::ErrorKind::ConnectionReset | std::io::ErrorKind::BrokenPipe),
            "{error}"
        ),
    }
    // Frames that are none, in both protocols.
    for garbage in [
        &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\x00\x00\x00\x00\x00\x00garbage"[..],
        b"\x16\x03\x01\x02",
        b"\0\0\0\0",
    ] {
        let mut stream = TcpStream::connect(&stage.service.address).expect("connected");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        stream.write_all(garbage).expect("written");
        stream.shutdown(std::net::Shutdown::Write).expect("shut down");
        // Whatever it says, it ends.
        let _ = stream.read_to_end(&mut Vec::new());
    }
    assert_eq!(
        stage.service.settle(&taken, &json!({ "verdict": "accept" })),
        ["done"],
        "others are not affected"
    );
    let ended = stage.end().await;
    assert!(!ended.stderr.contains(&receipt), "a receipt is not logged");
}

/// A web page that made a browser take this machine for its server is not let in, nor one that sends a form.
#[tokio::test(flavor = "multi_thread")]
async fn a_web_page_is_not_let_in() {
    let stage = Stage::set().await;
    let (status, answer) =
        stage.service.ask_raw("POST", "/v1/settle", "text/plain", b"{}").expect("an answer");
    assert_eq!(status, 415, "{answer}");
    let mut stream = TcpStream::connect(&stage.service.address).expect("connected");
    stream
        .write_all(b"GET /v1/flows HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n")
        .expect("written");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    stage.end().await;
}

/// Tokens open what they are for, and nothing else; none of them shows.
#[tokio::test(flavor = "multi_thread")]
async fn tokens_have_their_flows() {
    let broker = start_broker().await;
    let tenants = Tenants::of(&broker).await;
    let home = home(&broker.address().to_string(), "tokens-file = \"tokens.toml\"", "");
    let (good, other) = ("tenants-0123456789abcdef", "orders-0123456789abcdef");
    home.write(
        "tokens.toml",
        format!("[tokens.a]\ntoken = \"{good}\"\nflows = [\"tenants\"]\n[tokens.b]\ntoken = \"{other}\"\nflows = [\"orders\"]\n"),
    );
    let (host, service) = start(&home).await;
    tenants.send("a", "a").await;
    let taken = service.with_token(good).pull_all(1).await;
    let settle =
        json!({ "settlements": [{ "receipt": taken[0]["receipt"], "verdict": "accept" }] }).to_string();
    assert_eq!(service.ask("POST", "/v1/settle", &settle).0, 401, "no token");
    assert_eq!(service.with_token("guess-0123456789abcdef").ask("POST", "/v1/settle", &settle).0, 401);
    let (status, answer) = service.with_token(other).ask("POST", "/v1/flows/tenants/pull", "{}");
    assert_eq!(status, 403, "{answer}");
    let (status, answer) = service.with_token(other).ask("POST", "/v1/settle", &settle);
    assert_eq!((status, &answer["results"][0]["status"]), (200, &json!("refused")), "{answer}");
    let (_, described) = service.with_token(other).ask("GET", "/v1/flows", "");
    assert_eq!(described["flows"], json!([]));
    assert_eq!(service.with_token(good).settle(&taken, &json!({ "verdict": "accept" })), ["done"]);
    let ended = host.terminate().await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(!ended.stderr.contains("0123456789abcdef"), "a token shows");
    tenants.close().await;
    broker.stop().await;
}

/// What would open a host to others by mistake, and what cannot work, is refused before anything starts.
#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_service_is_refused_before_it_starts() {
    let broker = start_broker().await;
    let endpoint = broker.address().to_string();
    for (lines, code, said) in [
        ("listen = \"0.0.0.0:0\"", 2, "other machines can reach"),
        ("tokens-file = \"gone.toml\"", 2, "gone.toml"),
        ("tls-cert-file = \"gone.pem\"\ntls-key-file = \"gone.pem\"", 2, "gone.pem"),
        ("listen = \"127.0.0.1:0\"\ntls-cert-file = \"gone.pem\"", 2, "tls-key-file"),
    ] {
        let home = home(&endpoint, "", "");
        let text = std::fs::read_to_string(home.file("tidegate.toml")).expect("the configuration");
        home.write("tidegate.toml", text.replace(LISTEN, &format!("\n{lines}\n")));
        let ended = run_to_end(home.path(), &["run"]);
        assert_eq!(ended.code, Some(code), "{lines}: {}", ended.stderr);
        assert!(ended.stderr.contains(said), "{said}: {}", ended.stderr);
    }
    let first_home = home(&endpoint, "", "");
    let (first, service): (Program, Service) = start(&first_home).await;
    let second = home(&endpoint, "", "");
    let text = std::fs::read_to_string(second.file("tidegate.toml")).expect("the configuration");
    second.write("tidegate.toml", text.replace(LISTEN, &format!("\nlisten = \"{}\"\n", service.address)));
    let ended = run_to_end(second.path(), &["run"]);
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
    assert!(ended.stderr.contains("choose another `listen`"), "{}", ended.stderr);
    first.terminate().await;
    broker.stop().await;
}
