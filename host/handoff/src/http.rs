//! The HTTP and JSON twin of the service, for people without gRPC.

mod request;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::rejection::PathRejection;
use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::http::header::{CONTENT_TYPE, HOST};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tidegate_proto::handoff as proto;

use self::request::{Problem, admit, bad, given, maybe_whole, take, whole};
use crate::dispatch::Credits;
use crate::flow::{Command, FlowHandle};
use crate::mailbox::{Item, Mailbox};
use crate::rights::Caller;
use crate::service::Service;
use crate::settle::{BATCH_MAX, Terms, status_word};
use crate::wire;

/// The twin's description, served at `/openapi.json`.
pub const OPENAPI: &str = include_str!("../openapi.json");

/// The largest request body: a thousand receipts of the longest kind.
pub(crate) const BODY_BYTES_MAX: usize = 8 << 20;
/// Messages of one pull.
const PULL_MESSAGES_MAX: u64 = 1000;
/// Bytes of one pull, unless it asks for fewer: an answer is made in memory.
const PULL_BYTES_DEFAULT: usize = 4 << 20;
/// The longest that a pull waits for a message, and what it waits when it does not say.
const WAIT_MAX: Duration = Duration::from_secs(60);
const WAIT_DEFAULT_MILLIS: u64 = 20_000;
/// What more may come after the first message of a pull.
const GATHER: Duration = Duration::from_millis(2);

#[derive(Clone)]
struct Shared {
    service: Service,
    /// Whether anybody who reaches the service is let in: then a web page must not.
    unguarded: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
struct Pull {
    #[serde(deserialize_with = "whole")]
    max_messages: u64,
    #[serde(deserialize_with = "whole")]
    max_bytes: u64,
    #[serde(deserialize_with = "whole")]
    wait_ms: u64,
    worker: String,
}

impl Default for Pull {
    fn default() -> Self {
        Self { max_messages: 1, max_bytes: 0, wait_ms: WAIT_DEFAULT_MILLIS, worker: String::new() }
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct SettleBody {
    settlements: Vec<SettleOne>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct SettleOne {
    receipt: String,
    verdict: Verdict,
    #[serde(default, deserialize_with = "maybe_whole")]
    delay_ms: Option<u64>,
    #[serde(default, deserialize_with = "given")]
    reason: Option<String>,
    #[serde(default, deserialize_with = "given")]
    cost: Option<f64>,
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "kebab-case")]
enum Verdict {
    Accept,
    Defer,
    Release,
    Reject,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct RenewBody {
    renewals: Vec<RenewOne>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct RenewOne {
    receipt: String,
    #[serde(deserialize_with = "whole")]
    length_ms: u64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct ElsewhereBody {
    receipts: Vec<String>,
}

pub(crate) fn router(service: Service, unguarded: bool) -> Router {
    Router::new()
        .route("/v1/flows", get(describe))
        .route("/v1/flows/{flow}/pull", post(pull))
        .route("/v1/settle", post(settle))
        .route("/v1/renew", post(renew))
        .route("/v1/elsewhere", post(elsewhere))
        .route("/openapi.json", get(openapi))
        .route("/healthz", get(healthz))
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(middleware::from_fn(for_nobody_else))
        .with_state(Shared { service, unguarded })
}

/// A web page that made a browser believe that this machine is its server must not get in, by neither protocol.
pub(crate) async fn only_machines(State(unguarded): State<bool>, request: Request, next: Next) -> Response {
    let named = request.headers().get(HOST).and_then(|host| host.to_str().ok());
    if unguarded && !named.is_none_or(names_a_machine) {
        let error = "address this service as `localhost` or by its IP address".to_owned();
        return Problem { status: StatusCode::FORBIDDEN, error }.into_response();
    }
    next.run(request).await
}

async fn for_nobody_else(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    response.headers_mut().insert("cache-control", HeaderValue::from_static("no-store"));
    response.headers_mut().insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    response
}

fn names_a_machine(host: &str) -> bool {
    let uri = format!("http://{host}").parse::<Uri>().ok();
    let name = uri.as_ref().and_then(Uri::host).unwrap_or(host);
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

async fn describe(State(shared): State<Shared>, headers: HeaderMap) -> Result<Json<Value>, Problem> {
    let caller = admit(&shared, &headers)?;
    let described = shared.service.description(&caller);
    let flows = described.flows.iter().map(|flow| {
        let workers = flow.workers.iter().map(|worker| {
            json!({ "name": worker.name, "credit-messages": worker.credit_messages, "held": worker.held })
        });
        json!({
            "name": flow.name,
            "ack": ack_word(flow.ack()),
            "key-affinity": flow.key_affinity,
            "held": flow.held,
            "workers": workers.collect::<Vec<_>>(),
        })
    });
    Ok(Json(json!({
        "host": described.host,
        "version": described.version,
        "flows": flows.collect::<Vec<_>>(),
    })))
}

async fn pull(
    State(shared): State<Shared>,
    flow: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, Problem> {
    let (caller, asked): (_, Pull) = take(&shared, request).await?;
    let Path(flow) = flow.map_err(|rejection| bad(&shared, &caller, rejection.body_text()))?;
    let handle = shared.service.flow(&caller, &flow).map_err(|status| Problem::of(&status))?;
    let bad = |problem: String| bad(&shared, &caller, problem);
    if asked.max_messages == 0 || asked.max_messages > PULL_MESSAGES_MAX {
        return Err(bad(format!("`max-messages` is from 1 to {PULL_MESSAGES_MAX}")));
    }
    let wait = Duration::from_millis(asked.wait_ms);
    if wait > WAIT_MAX {
        return Err(bad(format!("`wait-ms` is at most {}", WAIT_MAX.as_millis())));
    }
    let worker = wire::worker_name(&asked.worker).map_err(bad)?;
    let bytes = usize::try_from(asked.max_bytes).unwrap_or(usize::MAX);
    let credits = Credits {
        messages: usize::try_from(asked.max_messages).unwrap_or(usize::MAX),
        bytes: Some(if bytes == 0 { PULL_BYTES_DEFAULT } else { bytes.min(PULL_BYTES_DEFAULT) }),
    };
    let mailbox = Arc::new(Mailbox::default());
    let joined = handle.join(worker, credits, Arc::clone(&mailbox)).await;
    let membership = joined.ok_or_else(|| Problem {
        status: StatusCode::SERVICE_UNAVAILABLE,
        error: format!("flow `{flow}` takes no workers now: it ends, or has 1000 of them"),
    })?;
    let clock = shared.service.clock;
    let mut emissions = Vec::new();
    let first = async {
        loop {
            match mailbox.next(|| clock.now()).await {
                Some(Item::Deliveries(first)) => return first,
                // A lease that ended at once; nobody has to be told.
                Some(Item::Lost(_) | Item::Settled(_) | Item::Renewed(_) | Item::Alive) => {}
                Some(Item::Draining) | None => return Vec::new(),
            }
        }
    };
    tokio::select! {
        () = shared.service.closing.cancelled() => {}
        first = tokio::time::timeout(wait, first) => emissions.extend(first.unwrap_or_default()),
    }
    if !emissions.is_empty() && emissions.len() < credits.messages {
        tokio::time::sleep(GATHER).await;
    }
    handle.detach(membership).await;
    emissions.extend(mailbox.take_deliveries());
    let deliveries: Vec<Value> =
        emissions.iter().map(|emission| delivery(&wire::delivery(emission, &handle.issuer, clock))).collect();
    if handle.options.accepts_on_delivery && !emissions.is_empty() {
        written(&handle, emissions.iter().map(|emission| emission.id).collect()).await;
    }
    let ack = wire::ack_mode(handle.options.accepts_on_delivery);
    Ok(Json(json!({ "flow": flow, "ack": ack_word(ack), "deliveries": deliveries })).into_response())
}

async fn written(flow: &FlowHandle, deliveries: Vec<tidegate_model::DeliveryId>) {
    // A flow that has ended leaves them to their leases.
    let _ = flow.send(Command::Written(deliveries)).await;
}

async fn settle(State(shared): State<Shared>, request: Request) -> Result<Json<Value>, Problem> {
    let (caller, SettleBody { settlements }) = take(&shared, request).await?;
    check_batch(&shared, &caller, settlements.len())?;
    let mut batch = Vec::with_capacity(settlements.len());
    for (at, one) in settlements.into_iter().enumerate() {
        batch.push(
            one.into_proto()
                .map_err(|problem| bad(&shared, &caller, format!("settlement {}: {problem}", at + 1)))?,
        );
    }
    let receipts: Vec<String> = batch.iter().map(|one| one.receipt.clone()).collect();
    let told = shared.service.router.settle(&caller, batch, Terms::OWN).await;
    let results =
        receipts.into_iter().zip(told).map(|(receipt, told)| result(&receipt, told.status, told.detail));
    Ok(Json(json!({ "results": results.collect::<Vec<_>>() })))
}

async fn renew(State(shared): State<Shared>, request: Request) -> Result<Json<Value>, Problem> {
    let (caller, RenewBody { renewals }) = take(&shared, request).await?;
    check_batch(&shared, &caller, renewals.len())?;
    let receipts: Vec<String> = renewals.iter().map(|one| one.receipt.clone()).collect();
    let batch = renewals
        .into_iter()
        .map(|RenewOne { receipt, length_ms }| proto::Renewal { receipt, length_ms })
        .collect();
    let kept = shared.service.router.renew(&caller, batch, Terms::OWN).await;
    let results = receipts.into_iter().zip(kept).map(|(receipt, kept)| {
        let mut result = result(&receipt, kept.told.status, kept.told.detail);
        if kept.told.status == proto::Status::Done {
            result["lease-ms"] = millis(kept.lease).into();
            if !kept.next_receipt.is_empty() {
                result["next-receipt"] = kept.next_receipt.into();
            }
        }
        result
    });
    Ok(Json(json!({ "results": results.collect::<Vec<_>>() })))
}

/// Lets go of what is settled at another host.
async fn elsewhere(State(shared): State<Shared>, request: Request) -> Result<Json<Value>, Problem> {
    let (caller, ElsewhereBody { receipts }) = take(&shared, request).await?;
    check_batch(&shared, &caller, receipts.len())?;
    let told = shared.service.router.leave(&caller, &receipts).await;
    let results = receipts.iter().zip(told).map(|(receipt, told)| result(receipt, told.status, told.detail));
    Ok(Json(json!({ "results": results.collect::<Vec<_>>() })))
}

async fn openapi() -> Response {
    ([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], OPENAPI).into_response()
}

async fn healthz() -> Json<Value> {
    Json(json!({ "alive": true }))
}

async fn wrong_method(uri: Uri) -> Problem {
    Problem {
        status: StatusCode::METHOD_NOT_ALLOWED,
        error: format!("`{}` does not answer this method; see /openapi.json", uri.path()),
    }
}

pub(crate) async fn unknown_path(uri: Uri) -> Response {
    let error = format!(
        "there is nothing at `{}`; the paths are /v1/flows, /v1/flows/{{flow}}/pull, /v1/settle, /v1/renew, \
         /v1/elsewhere, /healthz and /openapi.json, and the gRPC service is tidegate.v1.Handoff",
        uri.path()
    );
    Problem { status: StatusCode::NOT_FOUND, error }.into_response()
}

/// As in the records of other sinks: the body as text when it is text, else in base64.
fn delivery(delivery: &proto::Delivery) -> Value {
    let mut shown = Map::new();
    let mut put = |name: &str, value: Value| {
        shown.insert(name.to_owned(), value);
    };
    put("receipt", delivery.receipt.clone().into());
    match str::from_utf8(&delivery.body) {
        Ok(text) => put("value", text.into()),
        Err(_) => put("value-base64", STANDARD.encode(&delivery.body).into()),
    }
    put("message-id", delivery.message_id.clone().into());
    put("topic", delivery.topic.clone().into());
    put("key", delivery.key.clone().into());
    put("delivery-attempt", delivery.attempt.into());
    put("lease-ms", delivery.lease_ms.into());
    for (name, text) in [
        ("lite-topic", &delivery.lite_topic),
        ("tag", &delivery.tag),
        ("message-group", &delivery.message_group),
        ("corrupted", &delivery.corrupted),
    ] {
        if !text.is_empty() {
            put(name, text.clone().into());
        }
    }
    if !delivery.message_keys.is_empty() {
        put("message-keys", delivery.message_keys.clone().into());
    }
    for (name, at) in [("born-at", delivery.born_at_ms), ("stored-at", delivery.stored_at_ms)] {
        if at > 0 {
            put(name, at.into());
        }
    }
    if !delivery.properties.is_empty() {
        let properties = delivery.properties.iter().map(|property| {
            let value = match str::from_utf8(&property.value) {
                Ok(text) => text.to_owned(),
                Err(_) => STANDARD.encode(&property.value),
            };
            (property.name.clone(), Value::from(value))
        });
        let properties: Map<String, Value> = properties.collect();
        put("properties", properties.into());
    }
    if let Some(dead) = &delivery.dead_letter {
        put("dead-letter", dead_letter(dead));
    }
    shown.into()
}

/// As in the records of other sinks.
fn dead_letter(dead: &proto::DeadLetter) -> Value {
    let mut shown = json!({
        "flow": dead.flow,
        "source": dead.source,
        "reason": dead.reason,
        "attempts": dead.attempts,
        "first-received-at": dead.first_received_at_ms,
        "last-received-at": dead.last_received_at_ms,
    });
    if !dead.policy.is_empty() {
        shown["policy"] = dead.policy.clone().into();
    }
    shown
}

fn result(receipt: &str, status: proto::Status, detail: String) -> Value {
    let mut result = json!({ "receipt": receipt, "status": status_word(status) });
    if !detail.is_empty() {
        result["detail"] = detail.into();
    }
    result
}

fn check_batch(shared: &Shared, caller: &Caller, count: usize) -> Result<(), Problem> {
    if count <= BATCH_MAX {
        return Ok(());
    }
    Err(bad(shared, caller, format!("a request has at most {BATCH_MAX} receipts, not {count}")))
}

fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

const fn ack_word(ack: proto::AckMode) -> &'static str {
    match ack {
        proto::AckMode::Unspecified | proto::AckMode::ByWorker => "by-worker",
        proto::AckMode::OnDelivery => "on-delivery",
    }
}

impl SettleOne {
    fn into_proto(self) -> Result<proto::Settlement, &'static str> {
        use proto::settlement::Verdict as Said;
        match (self.verdict, self.delay_ms) {
            (Verdict::Defer, None) => {
                return Err("a `defer` needs `delay-ms`: in how many milliseconds the message comes again");
            }
            (Verdict::Accept | Verdict::Release | Verdict::Reject, Some(_)) => {
                return Err("`delay-ms` goes with `defer`, and with nothing else");
            }
            _ => {}
        }
        if self.reason.is_some() && self.verdict != Verdict::Reject {
            return Err("`reason` goes with `reject`, and with nothing else");
        }
        if self.cost.is_some_and(|cost| cost < 0.0) {
            return Err("`cost` is a number from zero on");
        }
        let verdict = match self.verdict {
            Verdict::Accept => Said::Accept(proto::Accept {}),
            Verdict::Defer => Said::Defer(proto::Defer { delay_ms: self.delay_ms.unwrap_or_default() }),
            Verdict::Release => Said::Release(proto::Release {}),
            Verdict::Reject => Said::Reject(proto::Reject { reason: self.reason.unwrap_or_default() }),
        };
        Ok(proto::Settlement { receipt: self.receipt, verdict: Some(verdict), cost: self.cost })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_names_itself_is_no_machine() {
        for host in ["localhost", "localhost:9641", "127.0.0.1:9641", "[::1]:9641", "LOCALHOST"] {
            assert!(names_a_machine(host), "{host}");
        }
        for host in ["evil.example", "localhost.evil.example:9641", "127.0.0.1.evil.example", ""] {
            assert!(!names_a_machine(host), "{host}");
        }
    }
}
