//! What every request has to pass, and what every answer has.

use std::net::IpAddr;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use super::{BODY_BYTES_MAX, Problem};

/// What every request has to pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gate {
    /// The longest that an answer may take.
    pub(crate) request_timeout: Duration,
    /// The longest that a change may take.
    pub(crate) change_timeout: Duration,
    /// Whether the server is meant to be reached by other machines, and so by names that it does not know.
    pub(crate) any_host: bool,
}

/// Goes along with an answer that takes longer to receive than others, from its head on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// The longest that receiving it may take.
    pub(crate) receiving: Duration,
}

/// Refuses what must not get in, and adds what every answer has.
pub(super) async fn pass(State(gate): State<Gate>, request: Request, next: Next) -> Response {
    let mut response = if gate.any_host || names_this_machine(request.headers()) {
        let response = next.run(request).await;
        if response.status() == StatusCode::PAYLOAD_TOO_LARGE {
            let error = format!("a request to this API has a body of at most {BODY_BYTES_MAX} bytes");
            Problem { status: StatusCode::PAYLOAD_TOO_LARGE, error }.into_response()
        } else {
            response
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

/// Bounds the time of an answer.
pub(super) async fn bound(State(timeout): State<Duration>, request: Request, next: Next) -> Response {
    match tokio::time::timeout(timeout, next.run(request)).await {
        Ok(response) => response,
        Err(_elapsed) => Problem {
            status: StatusCode::GATEWAY_TIMEOUT,
            error: format!("no answer within {timeout:?}; the host is overloaded"),
        }
        .into_response(),
    }
}

/// Refuses changes that another site's page has made a browser ask for.
pub(super) async fn own_site(request: Request, next: Next) -> Response {
    if is_cross_site(request.headers()) {
        return Problem {
            status: StatusCode::FORBIDDEN,
            error: "a page of another site must not change anything here".to_owned(),
        }
        .into_response();
    }
    next.run(request).await
}

/// Whether a request is addressed to an IP address or to `localhost`. A browser that a foreign page has tricked into
/// asking this server, by a name that suddenly leads here, sends that name.
fn names_this_machine(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(header::HOST) else { return true };
    host.to_str().is_ok_and(is_address_or_localhost)
}

/// Whether a browser says that the page that asks is not this server's. Programs say nothing about that. A name that
/// leads here is no proof, since a foreign page can have one: only an address or `localhost` is.
fn is_cross_site(headers: &HeaderMap) -> bool {
    if let Some(site) = headers.get("sec-fetch-site")
        && site != "same-origin"
        && site != "none"
    {
        return true;
    }
    let Some(origin) = headers.get(header::ORIGIN) else { return false };
    let own = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let origin = origin.to_str().ok().and_then(|origin| origin.strip_prefix("http://"));
    match (origin, own) {
        (Some(origin), Some(own)) => !origin.eq_ignore_ascii_case(own) || !is_address_or_localhost(own),
        _ => true,
    }
}

fn is_address_or_localhost(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.chars().all(|c| c.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok()
}
