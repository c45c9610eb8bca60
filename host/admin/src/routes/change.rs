//! The routes that change something.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Json, Response};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::gate::Patience;
use super::{Name, Problem, Shared};
use crate::operate::{FlowChange, OperateError, PauseView, RecordingWanted, RollbackView, TapWanted};

/// One JSON object a line.
const JSON_LINES: HeaderValue = HeaderValue::from_static("application/x-ndjson");

/// Unknown keys are refused: a misspelt `dry-run` must not become a reload.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct ReloadQuery {
    #[serde(default)]
    dry_run: bool,
}

pub(super) async fn reload(
    State(shared): State<Shared>,
    Name(policy): Name,
    query: Result<Query<ReloadQuery>, QueryRejection>,
) -> Result<Response, Problem> {
    let Query(ReloadQuery { dry_run }) =
        query.map_err(|rejection| Problem { status: rejection.status(), error: rejection.body_text() })?;
    let report = shared.ask(move |host| host.reload(&policy, dry_run)).await??;
    // A dry run has done what it was asked for when it found the files wrong.
    let status = if report.passed || dry_run { StatusCode::OK } else { StatusCode::CONFLICT };
    Ok((status, Json(report)).into_response())
}

pub(super) async fn rollback(
    State(shared): State<Shared>,
    Name(policy): Name,
) -> Result<Json<RollbackView>, Problem> {
    Ok(Json(shared.ask(move |host| host.roll_back(&policy)).await??))
}

pub(super) async fn pause(
    State(shared): State<Shared>,
    Name(policy): Name,
) -> Result<Json<PauseView>, Problem> {
    Ok(Json(shared.ask(move |host| host.set_paused(&policy, true)).await??))
}

pub(super) async fn resume(
    State(shared): State<Shared>,
    Name(policy): Name,
) -> Result<Json<PauseView>, Problem> {
    Ok(Json(shared.ask(move |host| host.set_paused(&policy, false)).await??))
}

/// It changes nothing that a flow does, and yet is no `GET`: it shows messages, costs the flow some of its time, and
/// leaves one place fewer for others.
pub(super) async fn record(
    State(shared): State<Shared>,
    Name(flow): Name,
    body: Bytes,
) -> Result<Response, Problem> {
    let wanted: RecordingWanted = wanted(&body, "recorded")?;
    let length = wanted.length;
    let lines = shared.ask(move |host| host.record(&flow, wanted)).await??;
    Ok(streamed(lines, length + shared.patience))
}

/// As a recording.
pub(super) async fn tap(
    State(shared): State<Shared>,
    Name(flow): Name,
    body: Bytes,
) -> Result<Response, Problem> {
    let wanted: TapWanted = wanted(&body, "shown")?;
    let length = wanted.length;
    let lines = shared.ask(move |host| host.tap(&flow, wanted)).await??;
    Ok(streamed(lines, length + shared.patience))
}

pub(super) async fn pause_flow(
    State(shared): State<Shared>,
    Name(flow): Name,
) -> Result<Json<FlowChange>, Problem> {
    Ok(Json(shared.ask(move |host| host.set_flow_paused(&flow, true)).await??))
}

pub(super) async fn resume_flow(
    State(shared): State<Shared>,
    Name(flow): Name,
) -> Result<Json<FlowChange>, Problem> {
    Ok(Json(shared.ask(move |host| host.set_flow_paused(&flow, false)).await??))
}

pub(super) async fn drain_flow(
    State(shared): State<Shared>,
    Name(flow): Name,
) -> Result<Json<FlowChange>, Problem> {
    Ok(Json(shared.ask(move |host| host.drain_flow(&flow)).await??))
}

/// What a body asks for; everything as usual when there is none.
fn wanted<T: DeserializeOwned + Default>(body: &[u8], done: &str) -> Result<T, Problem> {
    let wanted = match body.trim_ascii_start().first() {
        None => Ok(T::default()),
        Some(b'{') => serde_json::from_slice(body),
        // An array would be taken for the fields in their order.
        Some(_) => Err(serde::de::Error::custom("it is no JSON object")),
    };
    wanted.map_err(|error| Problem {
        status: StatusCode::BAD_REQUEST,
        error: format!("what is to be {done} is not understood: {error}"),
    })
}

/// An answer of lines that come to be while it is received, for at most so long.
fn streamed(lines: BoxStream<'static, Bytes>, receiving: Duration) -> Response {
    let mut response = Body::from_stream(lines.map(Ok::<_, Infallible>)).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, JSON_LINES);
    response.extensions_mut().insert(Patience { receiving });
    response
}

impl From<OperateError> for Problem {
    fn from(error: OperateError) -> Self {
        let status = match error {
            OperateError::Unknown(_) => StatusCode::NOT_FOUND,
            OperateError::Conflict(_) => StatusCode::CONFLICT,
            OperateError::Busy(_) => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self { status, error: error.to_string() }
    }
}
