//! One call: who makes it, through which proxy, what befalls it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate_proto::rocketmq as wire;
use tidegate_proto::rocketmq::Code;
use tonic::Request;
use tonic::metadata::MetadataMap;

use super::Service;
use super::answer::status;
use crate::auth::{Claim, Refusal, Resource, Users};
use crate::faults::{Effect, Method};
use crate::hub::{Availability, Cell, Hub};
use crate::journal;
use crate::listener::Peer;
use crate::store::{Handle, HandleError};

/// A call being served.
pub(super) struct Call<'a> {
    pub(super) hub: &'a Hub,
    pub(super) proxy: usize,
    pub(super) client: Arc<str>,
    pub(super) fault: Option<Effect>,
    /// The time the caller leaves, from the `grpc-timeout` header.
    pub(super) remaining: Option<Duration>,
    caller: Caller,
}

/// What a caller's headers and connection say about it.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    authorization: Option<String>,
    date_time: Option<String>,
    peer: Option<SocketAddr>,
}

impl<'a> Call<'a> {
    pub(super) fn new<Q>(service: &'a Service, method: Method, request: &Request<Q>) -> Self {
        let metadata = request.metadata();
        let client: Arc<str> = Arc::from(text(metadata, "x-mq-client-id").unwrap_or_default().trim());
        service.hub.journal.count(method, &client);
        let fault = service.hub.faults.take(method, &client);
        Self {
            hub: &service.hub,
            proxy: service.proxy,
            client,
            fault,
            remaining: text(metadata, "grpc-timeout").and_then(parse_timeout),
            caller: Caller {
                authorization: text(metadata, "authorization").map(str::to_owned),
                date_time: text(metadata, "x-mq-date-time").map(str::to_owned),
                peer: request.extensions().get::<Peer>().map(|peer| peer.0),
            },
        }
    }

    /// A later message on the stream this caller opened: nothing befalls it.
    pub(super) fn continued(service: &'a Service, client: Arc<str>, caller: Caller) -> Self {
        Self { hub: &service.hub, proxy: service.proxy, client, fault: None, remaining: None, caller }
    }

    /// Who calls.
    pub(super) fn caller(&self) -> Caller {
        self.caller.clone()
    }

    /// Checks the signature and the client id.
    pub(super) fn identify(&self) -> Result<(), wire::Status> {
        self.hub.users.authenticate(self.claim()).map_err(|refusal| unauthorized(&refusal))?;
        if self.client.is_empty() {
            return Err(status(Code::ClientIdRequired, "client id cannot be empty"));
        }
        Ok(())
    }

    /// Checks that the caller may touch a topic and a group.
    pub(super) fn authorize(&self, topic: Option<&str>, group: Option<&str>) -> Result<(), wire::Status> {
        let user = self.hub.users.authenticate(self.claim()).map_err(|refusal| unauthorized(&refusal))?;
        let peer = self.caller.peer.map(|peer| peer.ip().to_string()).unwrap_or_default();
        let resources = topic.map(Resource::Topic).into_iter().chain(group.map(Resource::Group));
        for resource in resources {
            Users::authorize(user, resource, &peer).map_err(|refusal| unauthorized(&refusal))?;
        }
        Ok(())
    }

    /// Keeps the request for whoever asks later what came in.
    pub(super) fn keep(&self, call: impl FnOnce() -> journal::Call) {
        let at = self.hub.clock.now().since_start;
        self.hub.journal.keep(at, &self.client, self.proxy, call);
    }

    /// Whether a broker can be asked; the error is what the proxy says when it cannot connect.
    pub(super) fn reach(&self, cell: &Cell) -> Result<Availability, wire::Status> {
        match cell.availability(self.hub.clock.now()) {
            Availability::Down => Err(self.cannot_connect()),
            reachable => Ok(reachable),
        }
    }

    /// What a proxy says whose broker does not listen.
    pub(super) fn cannot_connect(&self) -> wire::Status {
        let address = self.hub.proxies[self.proxy].address();
        let text = format!(
            "org.apache.rocketmq.remoting.exception.RemotingConnectException: connect to {address} failed"
        );
        status(Code::InternalServerError, text)
    }

    /// What a proxy says whose broker died with a request in flight.
    pub(super) fn cut_off(&self) -> wire::Status {
        let address = self.hub.proxies[self.proxy].address();
        let text = format!(
            "org.apache.rocketmq.remoting.exception.RemotingSendRequestException: send request to {address} failed"
        );
        status(Code::InternalServerError, text)
    }

    fn claim(&self) -> Claim<'_> {
        Claim {
            authorization: self.caller.authorization.as_deref(),
            date_time: self.caller.date_time.as_deref(),
        }
    }
}

/// Reads a handle as the proxy does: garbage is an internal error.
pub(super) fn parse_handle(text: &str) -> Result<Handle, wire::Status> {
    Handle::parse(text).map_err(|error| {
        let exception = match error {
            HandleError::Fields(_) => "IllegalArgumentException",
            HandleError::Number(_) => "NumberFormatException",
        };
        let text = format!("{error}. {exception}");
        status(Code::InternalServerError, text)
    })
}

/// A resource's name.
pub(super) fn name(resource: Option<&wire::Resource>) -> &str {
    resource.map_or("", |resource| resource.name.as_str())
}

fn unauthorized(refusal: &Refusal) -> wire::Status {
    status(Code::Unauthorized, refusal.to_string())
}

fn text<'m>(metadata: &'m MetadataMap, key: &str) -> Option<&'m str> {
    metadata.get(key).and_then(|value| value.to_str().ok())
}

/// Reads a `grpc-timeout` header: digits and a unit.
fn parse_timeout(header: &str) -> Option<Duration> {
    let (unit_at, unit) = header.char_indices().next_back()?;
    let amount: u64 = header[..unit_at].parse().ok()?;
    Some(match unit {
        'H' => Duration::from_secs(amount.saturating_mul(3_600)),
        'M' => Duration::from_secs(amount.saturating_mul(60)),
        'S' => Duration::from_secs(amount),
        'm' => Duration::from_millis(amount),
        'u' => Duration::from_micros(amount),
        'n' => Duration::from_nanos(amount),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_read_in_every_unit() {
        assert_eq!(parse_timeout("5S"), Some(Duration::from_secs(5)));
        assert_eq!(parse_timeout("7000m"), Some(Duration::from_secs(7)));
        assert_eq!(parse_timeout("1H"), Some(Duration::from_secs(3_600)));
        assert_eq!(parse_timeout("9000000u"), Some(Duration::from_secs(9)));
        assert_eq!(parse_timeout("5"), None);
        assert_eq!(parse_timeout(""), None);
    }
}
