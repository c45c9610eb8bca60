//! The routes, and errors as sentences.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{Html, IntoResponse, Json, Response};
use axum::routing::get;
use serde::Serialize;
use serde_json::{Value, json};
use tidegate_telemetry::Telemetry;
use tower_http::limit::RequestBodyLimitLayer;

use crate::view::{Inspect, Readiness, VersionView};

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
const ROUTES_TEXT: &str =
    "/, /healthz, /readyz, /metrics, /api/flows, /api/policies, /api/version, /openapi.json";

/// What handlers share.
#[derive(Clone)]
struct Shared {
    inspect: Arc<dyn Inspect>,
    telemetry: Telemetry,
}

/// What every request has to pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gate {
    /// The longest that an answer may take.
    pub(crate) request_timeout: Duration,
    /// Whether the server is meant to be reached by other machines, and so by names that it does not know.
    pub(crate) any_host: bool,
}

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
    async fn look<T: Send + 'static>(
        &self,
        question: impl FnOnce(&dyn Inspect) -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let inspect = Arc::clone(&self.inspect);
        tokio::task::spawn_blocking(move || question(&*inspect)).await.map_err(|_panic| Problem {
            status: StatusCode::INTERNAL_SERVER_ERROR,
            error: "the host failed to answer, which is a bug in it; its log says more".to_owned(),
        })
    }
}

pub(crate) fn router(inspect: Arc<dyn Inspect>, telemetry: Telemetry, gate: Gate) -> Router {
    Router::new()
        .route("/", get(page))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/api/flows", get(flows))
        .route("/api/policies", get(policies))
        .route("/api/version", get(version))
        .route("/openapi.json", get(openapi))
        .fallback(unknown_path)
        .method_not_allowed_fallback(unknown_method)
        .layer(RequestBodyLimitLayer::new(BODY_BYTES_MAX))
        .layer(middleware::from_fn_with_state(gate, pass))
        .with_state(Shared { inspect, telemetry })
}

async fn page() -> Response {
    ([(header::CONTENT_SECURITY_POLICY, PAGE_SECURITY)], Html(PAGE)).into_response()
}

async fn healthz() -> Json<Value> {
    Json(json!({ "alive": true }))
}

async fn readyz(State(shared): State<Shared>) -> Result<Response, Problem> {
    let readiness = Readiness::of(&shared.look(|inspect| inspect.flows()).await?);
    let status = if readiness.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    Ok((status, Json(readiness)).into_response())
}

async fn metrics(State(shared): State<Shared>) -> Response {
    ([(header::CONTENT_TYPE, OPENMETRICS)], shared.telemetry.encode()).into_response()
}

async fn flows(State(shared): State<Shared>) -> Result<Json<Value>, Problem> {
    let flows = shared.look(|inspect| inspect.flows()).await?;
    Ok(Json(json!({ "flows": flows })))
}

async fn policies(State(shared): State<Shared>) -> Result<Json<Value>, Problem> {
    let policies = shared.look(|inspect| inspect.policies()).await?;
    Ok(Json(json!({ "policies": policies })))
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

async fn unknown_method(method: Method, uri: Uri) -> Problem {
    Problem {
        status: StatusCode::METHOD_NOT_ALLOWED,
        error: format!("`{}` answers GET and HEAD, not {method}; this API changes nothing", uri.path()),
    }
}

/// Refuses what must not get in, bounds the time of the rest, and adds what every answer has.
async fn pass(State(gate): State<Gate>, request: Request, next: Next) -> Response {
    let mut response = if gate.any_host || names_this_machine(&request) {
        match tokio::time::timeout(gate.request_timeout, next.run(request)).await {
            Ok(response) if response.status() == StatusCode::PAYLOAD_TOO_LARGE => Problem {
                status: StatusCode::PAYLOAD_TOO_LARGE,
                error: format!("a request to this API has a body of at most {BODY_BYTES_MAX} bytes"),
            }
            .into_response(),
            Ok(response) => response,
            Err(_elapsed) => Problem {
                status: StatusCode::GATEWAY_TIMEOUT,
                error: format!("no answer within {:?}; the host is overloaded", gate.request_timeout),
            }
            .into_response(),
        }
    } else {
        Problem {
            status: StatusCode::FORBIDDEN,
            error: "this API is for this machine; address it as `localhost` or by its IP address".to_owned(),
        }
        .into_response()
    };
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Whether a request is addressed to an IP address or to `localhost`. A browser that a foreign page has tricked into
/// asking this server, by a name that suddenly leads here, sends that name.
fn names_this_machine(request: &Request) -> bool {
    let Some(host) = request.headers().get(header::HOST) else { return true };
    let Ok(host) = host.to_str() else { return false };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.chars().all(|c| c.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok()
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        (self.status, Json(self)).into_response()
    }
}
