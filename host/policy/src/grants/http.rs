//! The client behind granted requests: it goes to the origins that were granted, to addresses that it checked, and
//! nowhere else.
//!
//! Two gates stand before each request. The first compares scheme, host and port with what was granted. The second
//! looks at the address that the name resolved to, and the connection goes to that very address: a name server that
//! answers with an address of the inner network, at once or at the second time of asking, leads nowhere.
//!
//! A request runs on a thread of its own with a runtime of its own, while the calling thread waits. That costs some
//! ten microseconds beside a TLS handshake of a millisecond, works on every thread that may call a policy, and lets
//! a name server that does not answer hold up nobody after the time is over.

mod address;
mod connection;
mod plan;
mod trust;

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tidegate_connector::origin::Origin;

use crate::bindings::v1::given::http::{Failure, Request, Response};
pub(super) use plan::origin_of;

/// How much and how long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// A request's body.
    pub(super) request_bytes_max: usize,
    /// An answer's body.
    pub(super) response_bytes_max: usize,
    /// From the name to the end of TLS.
    pub(super) connect_timeout: Duration,
    /// All of it.
    pub(super) total_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            request_bytes_max: 256 << 10,
            response_bytes_max: 256 << 10,
            connect_timeout: Duration::from_secs(5),
            total_timeout: Duration::from_secs(10),
        }
    }
}

/// What tells the addresses of a name. May block.
pub(crate) trait Names: Send + Sync {
    /// The addresses of `host`.
    fn lookup(&self, host: &str) -> io::Result<Vec<IpAddr>>;
}

/// The system's own way.
#[derive(Debug)]
pub(super) struct SystemNames;

impl Names for SystemNames {
    fn lookup(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        use std::net::ToSocketAddrs as _;
        Ok((host, 0).to_socket_addrs()?.map(|address| address.ip()).collect())
    }
}

/// The client of one policy.
pub(super) struct Client(Arc<Inner>);

struct Inner {
    granted: BTreeSet<Origin>,
    ca_file: Option<PathBuf>,
    limits: Limits,
    names: Arc<dyn Names>,
}

impl Client {
    pub(super) fn new(
        granted: BTreeSet<Origin>,
        ca_file: Option<PathBuf>,
        limits: Limits,
        names: Arc<dyn Names>,
    ) -> Self {
        Self(Arc::new(Inner { granted, ca_file, limits, names }))
    }

    /// Makes a request and waits for its answer, at most `patience`. Blocks the calling thread.
    pub(super) fn fetch(&self, request: Request, patience: Duration) -> Result<Response, Failure> {
        let plan = plan::plan(&self.0.granted, &self.0.limits, request)?;
        let inner = Arc::clone(&self.0);
        let broken = |why: &str| Failure::Other(format!("the host cannot make requests now: {why}"));
        let thread = std::thread::Builder::new()
            .name("policy-http".into())
            .spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                let runtime =
                    runtime.map_err(|error| Failure::Other(format!("the host has no runtime: {error}")))?;
                let total = inner.limits.total_timeout.min(patience);
                let fetching = async { tokio::time::timeout(total, connection::run(inner, plan)).await };
                let result = runtime.block_on(fetching).unwrap_or(Err(Failure::TimedOut));
                // Without waiting for a name server that still does not answer.
                runtime.shutdown_background();
                result
            })
            .map_err(|error| broken(&error.to_string()))?;
        thread.join().unwrap_or_else(|_| Err(broken("its client panicked")))
    }
}

#[cfg(test)]
mod tests;
