//! The routes, and errors as sentences.

mod change;
mod gate;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{FromRequestParts, Path, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware;
use axum::response::{Html, IntoResponse, Json, Response};
use axum::routing::{get, post};
use serde::Serialize;
use serde_json::{Value, json};
use tidegate_telemetry::Telemetry;
use tower_http::limit::RequestBodyLimitLayer;

pub(crate) use self::gate::{Gate, Patience};
use crate::operate::Operate;
use crate::view::{PolicyView, Readiness, VersionView};

/// The API's description, served at `/openapi.json`.
pub const OPENAPI: &str = include_str!("../openapi.json");

const PAGE: &str = include_str!("../page.html");
/// Nobody has to send a body at all; this leaves room for clients that do without being asked.
const BODY_BYTES_MAX: usize = 16 * 1024;
/// What OpenMetrics 1.0 asks for.
const OPENMETRICS: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
/// The page brings everything with it and talks to this server alone.
const PAGE_SECURITY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);
const ROUTES_TEXT: &str = "/, /healthz, /readyz, /metrics, /api/flows, /api/flows/{name}/comparisons, \
     /api/flows/{name}/drain, /api/flows/{name}/pause, /api/flows/{name}/recording, /api/flows/{name}/resume, \
     /api/flows/{name}/tap, /api/policies, /api/policies/{name}, /api/policies/{name}/reload, /api/policies/{name}/rollback, \
     /api/policies/{name}/pause, /api/policies/{name}/resume, /api/version, /openapi.json";

/// What handlers share.
#[derive(Clone)]
struct Shared {
    host: Arc<dyn Operate>,
    telemetry: Telemetry,
    /// The longest that a client may take to receive an answer.
    patience: Duration,
}

/// The `{name}` of a path.
struct Name(String);

/// An answer that says what is wrong.
#[derive(Debug, Serialize)]
struct Problem {
    #[serde(skip)]
    status: StatusCode,
    /// In a sentence.
    error: String,
}

impl Shared {
    /// Asks the host away from the runtime's threads, so that one that is stuck costs an answer and not the API.
    async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&dyn Operate) -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let host = Arc::clone(&self.host);
        tokio::task::spawn_blocking(move || question(&*host)).await.map_err(|_panic| Problem {
            status: StatusCode::INTERNAL_SERVER_ERROR,
            error: "the host failed to answer, which is a bug in it; its log says more".to_owned(),
        })
    }
}

pub(crate) fn router(host: Arc<dyn Operate>, telemetry: Telemetry, gate: Gate) -> Router {
    let look = Router::new()
        .route("/", get(page))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/api/flows", get(flows))
        .route("/api/flows/{name}/comparisons", get(comparisons))
        .route("/api/policies", get(policies))
        .route("/api/policies/{name}", get(policy))
        .route("/api/version", get(version))
        .route("/openapi.json", get(openapi))
        .route_layer(middleware::from_fn_with_state(gate.request_timeout, gate::bound))
        .method_not_allowed_fallback(only_shows);
    let change = Router::new()
        .route("/api/flows/{name}/drain", post(change::drain_flow))
        .route("/api/flows/{name}/pause", post(change::pause_flow))
        .route("/api/flows/{name}/recording", post(change::record))
        .route("/api/flows/{name}/resume", post(change::resume_flow))
        .route("/api/flows/{name}/tap", post(change::tap))
        .route("/api/policies/{name}/reload", post(change::reload))
        .route("/api/policies/{name}/rollback", post(change::rollback))
        .route("/api/policies/{name}/pause", post(change::pause))
        .route("/api/policies/{name}/resume", post(change::resume))
        .route_layer(middleware::from_fn_with_state(gate.change_timeout, gate::bound))
        .route_layer(middleware::from_fn(gate::own_site))
        .method_not_allowed_fallback(only_changes);
    let patience = gate.request_timeout;
    look.merge(change)
        .fallback(unknown_path)
        .layer(RequestBodyLimitLayer::new(BODY_BYTES_MAX))
        .layer(middleware::from_fn_with_state(gate, gate::pass))
        .with_state(Shared { host, telemetry, patience })
}

async fn page() -> Response {
    ([(header::CONTENT_SECURITY_POLICY, PAGE_SECURITY)], Html(PAGE)).into_response()
}

async fn healthz() -> Json<Value> {
    Json(json!({ "alive": true }))
}

async fn readyz(State(shared): State<Shared>) -> Result<Response, Problem> {
    let readiness = Readiness::of(&shared.ask(|host| host.flows()).await?);
    let status = if readiness.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    Ok((status, Json(readiness)).into_response())
}

async fn metrics(State(shared): State<Shared>) -> Response {
    ([(header::CONTENT_TYPE, OPENMETRICS)], shared.telemetry.encode()).into_response()
}

async fn flows(State(shared): State<Shared>) -> Result<Json<Value>, Problem> {
    let flows = shared.ask(|host| host.flows()).await?;
    Ok(Json(json!({ "flows": flows })))
}

async fn comparisons(State(shared): State<Shared>, Name(flow): Name) -> Result<Json<Value>, Problem> {
    let name = flow.clone();
    match shared.ask(move |host| host.comparisons(&flow)).await? {
        Some(comparisons) => Ok(Json(json!({ "flow": name, "comparisons": comparisons }))),
        None => Err(Problem::unknown("flow", &name)),
    }
}

async fn policies(State(shared): State<Shared>) -> Result<Json<Value>, Problem> {
    let policies = shared.ask(|host| host.policies()).await?;
    Ok(Json(json!({ "policies": policies })))
}

async fn policy(State(shared): State<Shared>, Name(name): Name) -> Result<Json<PolicyView>, Problem> {
    let policies = shared.ask(|host| host.policies()).await?;
    let found = policies.into_iter().find(|policy| policy.name == name);
    found.map(Json).ok_or_else(|| Problem::unknown("policy", &name))
}

async fn version() -> Json<VersionView> {
    Json(VersionView::current())
}

async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], OPENAPI).into_response()
}

async fn unknown_path(uri: Uri) -> Problem {
    Problem {
        status: StatusCode::NOT_FOUND,
        error: format!("there is nothing at `{}`; the paths are {ROUTES_TEXT}", uri.path()),
    }
}

async fn only_shows(method: Method, uri: Uri) -> Problem {
    Problem {
        status: StatusCode::METHOD_NOT_ALLOWED,
        error: format!("`{}` answers GET and HEAD, not {method}; it changes nothing", uri.path()),
    }
}

async fn only_changes(method: Method, uri: Uri) -> Problem {
    Problem {
        status: StatusCode::METHOD_NOT_ALLOWED,
        error: format!("`{}` answers POST, not {method}; it changes something", uri.path()),
    }
}

impl Problem {
    fn unknown(what: &str, name: &str) -> Self {
        Self { status: StatusCode::NOT_FOUND, error: format!("there is no {what} `{name}` in this host") }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Name {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        path.map(|Path(name)| Self(name))
            .map_err(|rejection| Problem { status: rejection.status(), error: rejection.body_text() })
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        (self.status, Json(self)).into_response()
    }
}
