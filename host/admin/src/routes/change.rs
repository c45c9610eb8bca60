//! The routes that change something.

use std::convert::Infallible;

use axum::body::{Body, Bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Json, Response};
use futures::StreamExt as _;
use serde::Deserialize;

use super::gate::Patience;
use super::{Name, Problem, Shared};
use crate::operate::{OperateError, PauseView, RecordingWanted, RollbackView};

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
    let wanted = match body.trim_ascii_start().first() {
        None => Ok(RecordingWanted::default()),
        Some(b'{') => serde_json::from_slice(&body),
        // An array would be taken for the fields in their order.
        Some(_) => Err(serde::de::Error::custom("it is no JSON object")),
    };
    let wanted = wanted.map_err(|error| Problem {
        status: StatusCode::BAD_REQUEST,
        error: format!("what is to be recorded is not understood: {error}"),
    })?;
    let patience = Patience { receiving: wanted.length + shared.patience };
    let lines = shared.ask(move |host| host.record(&flow, wanted)).await??;
    let mut response = Body::from_stream(lines.map(Ok::<_, Infallible>)).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, JSON_LINES);
    response.extensions_mut().insert(patience);
    Ok(response)
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
