//! A host's service for workers, asked over HTTP.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_process_tests::{PATIENCE, Program, eventually};

/// Where a host serves its workers.
#[derive(Clone)]
pub(crate) struct Service {
    pub(crate) address: String,
    token: Option<String>,
}

impl Service {
    /// The service that the host's log tells of.
    pub(crate) async fn of(program: &Program) -> Self {
        Self::of_sink(program, "").await
    }

    /// That of the sink with this name.
    pub(crate) async fn of_sink(program: &Program, sink: &str) -> Self {
        let address = eventually("where workers are served", || address(&program.log(), sink)).await;
        Self { address, token: None }
    }

    pub(crate) fn with_token(&self, token: &str) -> Self {
        Self { token: Some(token.to_owned()), ..self.clone() }
    }

    /// One request, JSON in and out.
    pub(crate) fn ask(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let (status, text) =
            self.ask_raw(method, path, "application/json", body.as_bytes()).expect("an answer");
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    /// One request of any bytes; an error when the other end broke it off.
    pub(crate) fn ask_raw(
        &self,
        method: &str,
        path: &str,
        kind: &str,
        body: &[u8],
    ) -> std::io::Result<(u16, String)> {
        let mut stream = TcpStream::connect(&self.address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let token =
            self.token.as_ref().map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n{token}Content-Type: {kind}\r\nContent-Length: {}\r\n\r\n",
            self.address,
            body.len()
        );
        stream.write_all(head.as_bytes())?;
        // A server may answer, and close, before it has read all.
        let written = stream.write_all(body);
        let mut answer = Vec::new();
        let read = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let Some(status) = answer.split(' ').nth(1).and_then(|status| status.parse().ok()) else {
            written?;
            read?;
            return Err(std::io::Error::other(format!("no answer: {answer:?}")));
        };
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        let body = if head.to_ascii_lowercase().contains("transfer-encoding: chunked") {
            unchunked(body)
        } else {
            body.to_owned()
        };
        Ok((status, body))
    }

    /// Takes messages.
    pub(crate) fn pull(&self, messages: usize, wait: Duration) -> Vec<Value> {
        let body = json!({ "max-messages": messages, "wait-ms": wait.as_millis() as u64, "worker": "test" });
        let (status, answer) = self.ask("POST", "/v1/flows/tenants/pull", &body.to_string());
        assert_eq!(status, 200, "{answer}");
        answer["deliveries"].as_array().expect("deliveries").clone()
    }

    /// Takes until there are so many.
    pub(crate) async fn pull_all(&self, count: usize) -> Vec<Value> {
        let mut taken = Vec::new();
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while taken.len() < count {
            assert!(tokio::time::Instant::now() < deadline, "{} of {count} came", taken.len());
            let service = self.clone();
            let room = (count - taken.len()).min(1000);
            let pulled =
                tokio::task::spawn_blocking(move || service.pull(room, Duration::from_secs(2))).await;
            taken.extend(pulled.expect("no panic"));
        }
        taken
    }

    /// Settles all alike; gives the statuses.
    pub(crate) fn settle(&self, deliveries: &[Value], verdict: &Value) -> Vec<String> {
        let settlements: Vec<Value> = deliveries
            .iter()
            .map(|delivery| {
                let mut settlement = verdict.clone();
                settlement["receipt"] = delivery["receipt"].clone();
                settlement
            })
            .collect();
        let (status, answer) =
            self.ask("POST", "/v1/settle", &json!({ "settlements": settlements }).to_string());
        assert_eq!(status, 200, "{answer}");
        let results = answer["results"].as_array().expect("results");
        results.iter().map(|result| result["status"].as_str().expect("a status").to_owned()).collect()
    }
}

/// Bodies of deliveries.
pub(crate) fn bodies(deliveries: &[Value]) -> Vec<String> {
    deliveries.iter().map(|delivery| delivery["value"].as_str().expect("text").to_owned()).collect()
}

fn address(log: &str, sink: &str) -> Option<String> {
    let line = log.lines().find(|line| line.contains("workers are served") && line.contains(sink))?;
    let (_, address) = line.split_once("address=")?;
    Some(address.split_whitespace().next()?.to_owned())
}

fn unchunked(mut body: &str) -> String {
    let mut text = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
        if size == 0 {
            break;
        }
        text.push_str(&rest[..size]);
        body = rest[size..].trim_start_matches("\r\n");
    }
    text
}
