//! The client: pooled connections to one origin, HTTP/1.1 or 2 as the server chooses.
//!
//! The pool is the library's. What connects is our own: so each connection has a deadline and an owner, an error says
//! in words why there is none, and no proxy is ever used.

mod dial;

use std::error::Error as _;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client as Pool;
use hyper_util::rt::TokioTimer;
use rustls::ClientConfig;
use tidegate_connector::origin::Origin;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use self::dial::Dialer;
use super::HttpError;

/// Head of an answer in bytes, and its headers: no more is read.
const HEAD_BYTES_MAX: usize = 64 << 10;
const HEADERS_MAX: usize = 100;
/// Body of an answer in bytes: enough for an excerpt, and to read small ones to their end so that the connection can be
/// used again.
const ANSWER_BYTES_MAX: usize = 16 << 10;
/// A body is not waited for longer: the status has said what counts.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// A connection without work is kept for so long. Shorter than usual servers do, so that they seldom close one that is
/// about to be used.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// A connection of HTTP/2 that is silent for so long is asked whether it is there, and given up after as long again:
/// all requests share it, and one that is dead would else fail them until the system notices.
const PING_INTERVAL: Duration = Duration::from_secs(5);

/// Connections to one origin.
pub(super) struct Client {
    pool: Pool<Dialer, Full<Bytes>>,
    tasks: Tasks,
    /// Ends the connections' tasks when the client is dropped.
    stop: DropGuard,
}

/// What came back.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    /// The beginning of the body.
    pub(super) body: Vec<u8>,
}

/// Why nothing came back.
#[derive(Debug)]
pub(super) enum Failure {
    TimedOut,
    /// In words, to be read after the origin's name.
    Broken(String),
}

impl Client {
    /// Connects to nothing yet.
    pub(super) fn new(
        origin: &Origin,
        tls: Option<Arc<ClientConfig>>,
        concurrency: usize,
    ) -> Result<Self, HttpError> {
        let tasks = Tasks { tracker: TaskTracker::new(), stop: CancellationToken::new() };
        let stop = tasks.stop.clone().drop_guard();
        let pool = Pool::builder(tasks.clone())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(concurrency)
            .http1_max_buf_size(HEAD_BYTES_MAX)
            .http1_max_headers(HEADERS_MAX)
            .http2_max_header_list_size(HEAD_BYTES_MAX as u32)
            .http2_keep_alive_interval(PING_INTERVAL)
            .http2_keep_alive_timeout(PING_INTERVAL)
            .build(Dialer::new(origin, tls)?);
        Ok(Self { pool, tasks, stop })
    }

    /// Makes a request and reads the answer's beginning.
    pub(super) async fn send(
        &self,
        request: Request<Full<Bytes>>,
        deadline: Instant,
    ) -> Result<Answer, Failure> {
        let answer = tokio::time::timeout_at(deadline, self.pool.request(request));
        let answer = answer.await.map_err(|_| Failure::TimedOut)?.map_err(|error| broken(&error))?;
        let (head, body) = answer.into_parts();
        let deadline = deadline.min(Instant::now() + ANSWER_TIMEOUT);
        Ok(Answer { status: head.status, headers: head.headers, body: beginning(body, deadline).await })
    }

    /// Closes all connections and joins their tasks.
    pub(super) async fn close(self) {
        let Self { pool, tasks, stop } = self;
        drop(pool);
        drop(stop);
        tasks.tracker.close();
        tasks.tracker.wait().await;
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("tasks", &self.tasks.tracker.len()).finish_non_exhaustive()
    }
}

/// Runs the pool's tasks, which are one for each connection.
#[derive(Clone, Debug)]
struct Tasks {
    tracker: TaskTracker,
    stop: CancellationToken,
}

impl<F> hyper::rt::Executor<F> for Tasks
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, task: F) {
        let stop = self.stop.clone();
        self.tracker.spawn(async move { stop.run_until_cancelled(task).await });
    }
}

/// What comes of a body until it ends, breaks, is too long or takes too long.
async fn beginning(mut body: Incoming, deadline: Instant) -> Vec<u8> {
    let mut read = Vec::new();
    while read.len() < ANSWER_BYTES_MAX
        && let Ok(Some(Ok(frame))) = tokio::time::timeout_at(deadline, body.frame()).await
    {
        if let Ok(data) = frame.into_data() {
            read.extend_from_slice(&data[..data.len().min(ANSWER_BYTES_MAX - read.len())]);
        }
    }
    read
}

fn broken(error: &hyper_util::client::legacy::Error) -> Failure {
    let mut text =
        if error.is_connect() { "cannot be connected to" } else { "broke the connection" }.to_owned();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        // Some repeat what their cause says.
        if !text.contains(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        cause = error.source();
    }
    Failure::Broken(text)
}
