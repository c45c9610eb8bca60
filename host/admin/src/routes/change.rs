//! The routes that change something.

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Json, Response};
use serde::Deserialize;

use super::{Name, Problem, Shared};
use crate::operate::{OperateError, PauseView, RollbackView};

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
