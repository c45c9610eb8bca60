//! What every gRPC call has to pass, and what a call is told that is none.

use std::error::Error as _;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use tidegate_telemetry::events::handoff as events;
use tonic::{Code, Status};

use crate::service::Service;
use crate::wire;

/// Calls of ours begin so; health and reflection are for everybody.
const OWN_PATHS: &str = "/tidegate.v1.Handoff/";
/// How long a call may take until its answer begins, its request included. A settlement waits for its flow, and after that
/// for the broker, ten seconds each.
const CALL_PATIENCE: Duration = Duration::from_secs(30);

/// Reads nothing of what a stranger sends, waits for nobody without end, and says whose fault it is.
pub(crate) async fn gate(State(service): State<Service>, request: Request, next: Next) -> Response {
    if request.uri().path().starts_with(OWN_PATHS)
        && let Err(stranger) =
            service.admit(request.headers().get("authorization").map(|value| value.as_bytes()))
    {
        return stranger.into_http::<Body>();
    }
    let Ok(response) = tokio::time::timeout(CALL_PATIENCE, next.run(request)).await else {
        let late = format!("the request did not come within {} s", CALL_PATIENCE.as_secs());
        return refused(&service, Status::deadline_exceeded(late));
    };
    match Status::from_header_map(response.headers()).as_ref().and_then(unreadable) {
        Some(status) => refused(&service, status),
        None => response,
    }
}

fn refused(service: &Service, status: Status) -> Response {
    service.telemetry.emit(events::Refused { cause: "request", detail: status.message(), caller: "?" });
    status.into_http::<Body>()
}

/// What is wrong with a request that cannot be read, if whoever sent it is to blame: the library takes that for an error
/// of ours. `None` when something else happened, most often that the connection is gone.
pub(crate) fn unreadable(status: &Status) -> Option<Status> {
    let detail = wire::in_short(status.message());
    match status.code() {
        // Also what this host says of a connection that sends too much.
        Code::OutOfRange | Code::ResourceExhausted => Some(Status::resource_exhausted(detail)),
        Code::Internal if status.source().is_none() => {
            Some(Status::invalid_argument(format!("this is no request of tidegate.v1: {detail}")))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whose_fault_it_is() {
        let told = |status: Status| unreadable(&status).map(|status| status.code());
        assert_eq!(told(Status::internal("failed to decode")), Some(Code::InvalidArgument));
        assert_eq!(told(Status::out_of_range("decoded message too large")), Some(Code::ResourceExhausted));
        assert_eq!(told(Status::unavailable("the flow ends")), None);
        let broken = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        assert_eq!(told(Status::from_error(Box::new(broken))), None, "the connection is gone");
    }
}
