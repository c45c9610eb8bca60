//! The server: bounded connections, bounded time, an end that waits for answers under way.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::response::Response;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request};
use hyper_util::rt::{TokioIo, TokioTimer};
use tidegate_telemetry::Telemetry;
use tidegate_telemetry::events::host::Listening;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;
use tower::Service as _;

use crate::operate::Operate;
use crate::routes::{Gate, Patience, router};

/// How long to wait after a failed accept: the process is out of file descriptors, and some get free meanwhile.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How the server listens.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Where. Port 0 takes a free one.
    pub listen: SocketAddr,
    /// Whether that may be an address that other machines can reach. The API has no authentication.
    pub allow_remote: bool,
    /// Connections at once; further ones wait to be accepted.
    pub connections_max: usize,
    /// The longest that a client may take to send a request's head, and that an idle connection is kept: a client
    /// that opens connections and sends nothing holds up others for no longer than this.
    pub head_timeout: Duration,
    /// The longest that the host may take for an answer, and after `connection_age_max` that a client may take to
    /// receive it.
    pub request_timeout: Duration,
    /// The same for a change: a reload takes as long as compiling.
    pub change_timeout: Duration,
    /// The age at which a connection is closed: after the answer under way, but a client that does not receive it is
    /// not waited for longer than `request_timeout`, or `change_timeout` when it asked for a change, or for as long as a
    /// recording or a tap was to take.
    pub connection_age_max: Duration,
}

/// A running server. Stops at once when dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// An address that is ours and not answered yet.
#[derive(Debug)]
pub struct Bound {
    listener: TcpListener,
    address: SocketAddr,
    options: Options,
}

/// Why the server could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// It would be open to the network.
    #[error(
        "the admin API would listen on {0}, which other machines can reach, and it has no authentication; use a \
         loopback address such as 127.0.0.1, or allow it with `admin-allow-remote = true`"
    )]
    Remote(SocketAddr),
    /// The address cannot be had.
    #[error("the admin API cannot listen on {address}; choose another `admin-listen`")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

impl Options {
    /// Listening on `listen`, on this machine only, with room for a few people and scrapers.
    #[must_use]
    pub const fn new(listen: SocketAddr) -> Self {
        Self {
            listen,
            allow_remote: false,
            connections_max: 64,
            // People and scrapers send a head in one go; those who ask again later than this connect again.
            head_timeout: Duration::from_secs(3),
            request_timeout: Duration::from_secs(10),
            // Longer than the host itself waits for a reload, so that it says what it is busy with.
            change_timeout: Duration::from_secs(165),
            connection_age_max: Duration::from_secs(60),
        }
    }
}

impl Server {
    /// Binds the address and begins to answer.
    ///
    /// # Errors
    /// When the address would open the API to other machines without leave, or cannot be had.
    pub async fn start(
        options: Options,
        host: Arc<dyn Operate>,
        telemetry: Telemetry,
    ) -> Result<Self, StartError> {
        Ok(Bound::bind(options).await?.serve(host, telemetry))
    }

    /// Where it listens, with the port that was really taken.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops accepting, lets answers under way finish for at most `grace`, then ends.
    pub async fn stop(mut self, grace: Duration) {
        self.stop.cancel();
        if tokio::time::timeout(grace, &mut self.task).await.is_err() {
            self.task.abort();
            // Aborted: nothing to learn from it.
            let _ = (&mut self.task).await;
        }
    }
}

impl Bound {
    /// Binds the address, so that a host learns of a port in use before it joins anything.
    ///
    /// # Errors
    /// When the address would open the API to other machines without leave, or cannot be had.
    pub async fn bind(options: Options) -> Result<Self, StartError> {
        let address = options.listen;
        if !options.allow_remote && !address.ip().is_loopback() {
            return Err(StartError::Remote(address));
        }
        let bind = |source| StartError::Bind { address, source };
        let listener = TcpListener::bind(address).await.map_err(bind)?;
        let address = listener.local_addr().map_err(bind)?;
        Ok(Self { listener, address, options })
    }

    /// Begins to answer.
    #[must_use]
    pub fn serve(self, host: Arc<dyn Operate>, telemetry: Telemetry) -> Server {
        let Self { listener, address, options } = self;
        telemetry.emit(Listening { what: "admin API", address });
        let gate = Gate {
            request_timeout: options.request_timeout,
            change_timeout: options.change_timeout,
            any_host: options.allow_remote,
        };
        let router = router(host, telemetry, gate);
        let stop = CancellationToken::new();
        let task = tokio::spawn(accept(listener, router, options, stop.clone()));
        Server { address, stop, task }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Owns the connections: they end with it.
async fn accept(listener: TcpListener, router: Router, options: Options, stop: CancellationToken) {
    let permits = Arc::new(Semaphore::new(options.connections_max));
    let mut connections = JoinSet::new();
    loop {
        let next = async {
            let permit = Arc::clone(&permits).acquire_owned().await;
            (permit, listener.accept().await)
        };
        tokio::select! {
            (permit, accepted) = next => match accepted {
                Ok((stream, _)) => {
                    let serve = serve(stream, router.clone(), options, stop.clone());
                    connections.spawn(async move {
                        serve.await;
                        drop(permit);
                    });
                }
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
            Some(_) = connections.join_next() => {}
            () = stop.cancelled() => break,
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// One connection. How it ends is the client's affair: whatever went wrong, there is nobody to tell.
async fn serve(stream: TcpStream, router: Router, options: Options, stop: CancellationToken) {
    let patience_millis = Arc::new(AtomicU64::new(0));
    let current = Arc::clone(&patience_millis);
    let answer = service_fn(move |request: Request<Incoming>| {
        let is_change = request.method() == Method::POST;
        let patience = if is_change { options.change_timeout } else { options.request_timeout };
        current.store(millis(patience), Ordering::Relaxed);
        let (mut router, current) = (router.clone(), Arc::clone(&current));
        async move {
            let answered: Result<Response, Infallible> = router.call(request).await;
            if let Ok(response) = &answered
                && let Some(patience) = response.extensions().get::<Patience>()
            {
                current.store(millis(patience.receiving), Ordering::Relaxed);
            }
            answered
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(options.head_timeout)
        .serve_connection(TokioIo::new(stream), answer);
    let mut connection = pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return,
        () = stop.cancelled() => {}
        () = tokio::time::sleep(options.connection_age_max) => {}
    }
    connection.as_mut().graceful_shutdown();
    let patience = Duration::from_millis(patience_millis.load(Ordering::Relaxed));
    let _ = tokio::time::timeout(patience, connection).await;
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
