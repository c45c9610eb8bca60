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

/// What is left of a caller's deadline for the road back, at most.
const ROAD_BACK_MAX: Duration = Duration::from_secs(1);

/// A call's deadline as its caller gave it, in the words of the protocol: a number of at most eight digits and a unit.
pub(crate) fn timeout(text: &[u8]) -> Option<Duration> {
    let (unit, digits) = text.split_last()?;
    let count: u64 = str::from_utf8(digits).ok().filter(|digits| digits.len() <= 8)?.parse().ok()?;
    Some(match unit {
        b'H' => Duration::from_secs(count * 3600),
        b'M' => Duration::from_secs(count * 60),
        b'S' => Duration::from_secs(count),
        b'm' => Duration::from_millis(count),
        b'u' => Duration::from_micros(count),
        b'n' => Duration::from_nanos(count),
        _ => return None,
    })
}

/// How long a call's answers may be waited for, so that those that are there arrive within its deadline.
pub(crate) fn patience(timeout: Duration) -> Duration {
    timeout.saturating_sub(ROAD_BACK_MAX.min(timeout / 4))
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
    fn a_deadline_leaves_time_for_the_road_back() {
        assert_eq!(timeout(b"9000m"), Some(Duration::from_secs(9)));
        assert_eq!(timeout(b"2H"), Some(Duration::from_secs(7200)));
        assert_eq!(timeout(b"99999999u"), Some(Duration::from_micros(99_999_999)));
        for wrong in [&b""[..], b"S", b"1", b"1s", b"-1S", b"123456789S", b"\xffS"] {
            assert_eq!(timeout(wrong), None);
        }
        assert_eq!(patience(Duration::from_secs(10)), Duration::from_secs(9));
        assert_eq!(patience(Duration::from_millis(400)), Duration::from_millis(300));
        assert_eq!(patience(Duration::ZERO), Duration::ZERO);
    }

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
