//! A request to the twin: who sent it, what it says, and what is wrong with it.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest as _, Request};
use axum::http::StatusCode;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Json, Response};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize};
use tidegate_telemetry::events::handoff as events;

use super::{BODY_BYTES_MAX, Shared};
use crate::rights::Caller;
use crate::wire;

/// How long a body may take to come, once its head is there.
const BODY_PATIENCE: Duration = Duration::from_secs(30);

/// An answer that says what is wrong.
#[derive(Debug, Serialize)]
pub(super) struct Problem {
    #[serde(skip)]
    pub(super) status: StatusCode,
    pub(super) error: String,
}

/// Lets the caller in, and reads its JSON. Nothing is read of what a stranger sends.
pub(super) async fn take<T: DeserializeOwned>(
    shared: &Shared,
    request: Request,
) -> Result<(Caller, T), Problem> {
    let caller = admit(shared, request.headers())?;
    let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    let is_json = kind.eq_ignore_ascii_case("application/json");
    let body = body(request).await.map_err(|problem| counted(shared, &caller, problem))?;
    // Any other kind is one that a web page may send without asking.
    if shared.unguarded && !body.is_empty() && !is_json {
        let error = "send JSON, with `content-type: application/json`".to_owned();
        return Err(Problem { status: StatusCode::UNSUPPORTED_MEDIA_TYPE, error });
    }
    // Whoever sends none at all means an empty object.
    let text: &[u8] = if body.is_empty() { b"{}" } else { &body };
    match serde_json::from_slice(text) {
        Ok(said) => Ok((caller, said)),
        Err(error) => Err(bad(shared, &caller, format!("the body is not right: {error}"))),
    }
}

pub(super) fn admit(shared: &Shared, headers: &HeaderMap) -> Result<Caller, Problem> {
    let authorization = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes);
    shared.service.rights.admit(authorization).map_err(|stranger| {
        let error = stranger.to_string();
        let refused = events::Refused { cause: "token", detail: &error, caller: "?" };
        shared.service.telemetry.emit(refused);
        Problem { status: StatusCode::UNAUTHORIZED, error }
    })
}

async fn body(request: Request) -> Result<Bytes, Problem> {
    let reading = Bytes::from_request(request, &());
    let Ok(read) = tokio::time::timeout(BODY_PATIENCE, reading).await else {
        let error = format!("the body did not come within {} s", BODY_PATIENCE.as_secs());
        return Err(Problem { status: StatusCode::REQUEST_TIMEOUT, error });
    };
    read.map_err(|rejection| match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => Problem {
            status: StatusCode::PAYLOAD_TOO_LARGE,
            error: format!("a request has a body of at most {} MiB", BODY_BYTES_MAX >> 20),
        },
        _ => Problem { status: StatusCode::BAD_REQUEST, error: format!("the body broke off: {rejection}") },
    })
}

/// What is wrong with a request, in a sentence.
pub(super) fn bad(shared: &Shared, caller: &Caller, error: String) -> Problem {
    counted(shared, caller, Problem { status: StatusCode::BAD_REQUEST, error })
}

fn counted(shared: &Shared, caller: &Caller, problem: Problem) -> Problem {
    let detail = wire::in_short(&problem.error);
    let refused = events::Refused { cause: "request", detail: &detail, caller: &caller.name };
    shared.service.telemetry.emit(refused);
    problem
}

impl Problem {
    pub(super) fn of(status: &tonic::Status) -> Self {
        let code = match status.code() {
            tonic::Code::NotFound => StatusCode::NOT_FOUND,
            tonic::Code::PermissionDenied => StatusCode::FORBIDDEN,
            tonic::Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::BAD_REQUEST,
        };
        Self { status: code, error: status.message().to_owned() }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let error = wire::in_short(&self.error).into_owned();
        (self.status, Json(Self { error, ..self })).into_response()
    }
}

/// A whole number; JSON has one kind of number, and some write every one as `7.0`.
pub(super) fn whole<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    /// Past it a float is not exact.
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    let number = serde_json::Number::deserialize(from)?;
    let float = number.as_f64().filter(|float| float.fract() == 0.0 && (0.0..=EXACT_MAX).contains(float));
    let whole = number.as_u64().or(float.map(|float| float as u64));
    whole.ok_or_else(|| D::Error::custom(format!("`{number}` is no whole number from zero on")))
}

pub(super) fn maybe_whole<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    whole(from).map(Some)
}

/// Something that may be left out, and is not `null` when it is there.
pub(super) fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}
