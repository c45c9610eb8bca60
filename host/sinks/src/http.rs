//! The sink that sends deliveries to a web server.
//!
//! 2xx accepts. 5xx, 429, 408, timeouts and failed connections are tried again, with waits that double and that honour
//! `Retry-After`, for as long as the lease lives; then the delivery is given back. Any other answer rejects, with its
//! status and its beginning as the reason. Redirects are not followed, and no proxy is used: no environment variable
//! is looked at. All deliveries of one request share its outcome; an answer that says something about each of them is
//! not read. The same delivery can arrive twice, with the same message id: that is what at-least-once means.
//!
//! Deliveries of one ordered key go one after the other; others side by side.

mod answer;
mod client;
mod options;
mod request;
mod schedule;
mod signature;
mod target;
mod tls;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use secrecy::ExposeSecret as _;
use tidegate_connector::template::Template;
use tidegate_connector::{Clock, Inbox, News, Notice, Sink, SinkError, SinkMonitor};
use tidegate_model::{Emission, Outcome, Report};
use tidegate_telemetry::Telemetry;
use tidegate_telemetry::events::sink::{ReleaseCause, Released, RequestResult, Requested, Retried};
use tokio::task::JoinSet;

use self::answer::{Verdict, excerpt, judge, result_of};
use self::client::{Client, Failure};
use self::options::TLS_CA_FILE;
pub use self::options::{BodyFormat, HTTP, HttpMethod, HttpOptions};
use self::request::Requests;
use self::schedule::{Batch, Rules, Schedule};
use self::target::Targets;
use crate::parts::{Recorder, SinkParts};
use crate::trouble::Trouble;

/// A request takes no more once it has so many bytes of messages.
const BATCH_BYTES: usize = 4 << 20;
/// The first wait before another try.
const WAIT_FIRST: Duration = Duration::from_millis(200);
/// Failures in a row that make it trouble: one answer of a kind is nothing yet.
const PATIENCE: u32 = 3;
/// As many deliveries again as requests can carry, so that those behind one of their own ordered key do not leave requests
/// unused.
const CREDITS_PER_PLACE: usize = 2;

/// Why a sink cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The CA file cannot be used.
    #[error("`{TLS_CA_FILE}` names `{}`, which {problem}; give a PEM file with certificates", path.display())]
    CaFile {
        /// Where it is.
        path: PathBuf,
        /// What is wrong with it.
        problem: Box<str>,
    },
    /// The system has no root certificates.
    #[error("the system has no root certificates to trust; give a file as `{TLS_CA_FILE}`")]
    NoRoots,
    /// TLS cannot be set up.
    #[error("TLS cannot be set up: {0}")]
    Tls(#[source] rustls::Error),
    /// No certificate can be for the host.
    #[error("`url` has the host `{host}`, which is no name that a certificate could be for")]
    ServerName {
        /// The host.
        host: Box<str>,
    },
    /// A header's value is a reference that nobody has looked up.
    #[error("`headers` has a value for `{name}` that begins with `env:` or `file:` and was not looked up")]
    Unresolved {
        /// The header.
        name: Box<str>,
    },
    /// The secret was looked up, and cannot be sent.
    #[error("`authorization` has characters that no header can have, such as the end of a line")]
    Authorization,
}

/// Sends deliveries to a web server; they are accepted once it has answered with 2xx.
#[derive(Debug)]
pub struct Http {
    name: Arc<str>,
    clock: Clock,
    telemetry: Telemetry,
    retry_max_wait: Duration,
    credits: usize,
    targets: Targets,
    schedule: Schedule,
    courier: Courier,
}

/// Makes requests and understands answers.
#[derive(Debug)]
struct Courier {
    name: Arc<str>,
    clock: Clock,
    telemetry: Telemetry,
    trouble: Arc<Trouble>,
    /// As it may be shown.
    origin: String,
    timeout: Duration,
    requests: Requests,
    /// What no answer may bring into a reason.
    secrets: Vec<secrecy::SecretString>,
    client: Client,
}

impl HttpOptions {
    /// Looks at the CA file, or else at the system's roots, when the origin wants TLS, and at the secrets, which were looked
    /// up. Connects to nothing.
    ///
    /// # Errors
    /// As [`Http::open`].
    pub fn check(&self) -> Result<(), HttpError> {
        self.prepare().map(drop)
    }

    fn prepare(&self) -> Result<Client, HttpError> {
        let is_reference = |value: &Template| {
            !value.is_literal() && ["env:", "file:"].iter().any(|prefix| value.as_str().starts_with(prefix))
        };
        if let Some((name, _)) = self.headers.iter().find(|(_, value)| is_reference(value)) {
            return Err(HttpError::Unresolved { name: name.as_str().into() });
        }
        request::authorization(self).map_err(|_| HttpError::Authorization)?;
        let tls = self.origin.is_https().then(|| tls::config(self.tls_ca_file.as_deref())).transpose()?;
        Client::new(&self.origin, tls, self.concurrency.max(1))
    }
}

impl Http {
    /// Reads the CA file and prepares; connects to nothing.
    ///
    /// # Errors
    /// When the CA file cannot be used or a secret that was looked up cannot be sent.
    pub fn open(parts: SinkParts, options: &HttpOptions) -> Result<Self, HttpError> {
        let SinkParts { name, source, issuer, clock, telemetry } = parts;
        let client = options.prepare()?;
        let rules = Rules {
            concurrency: options.concurrency.max(1),
            batch_max: options.batch_max.max(1),
            batch_bytes: BATCH_BYTES,
            wait_first: WAIT_FIRST,
            wait_max: options.retry_max_wait,
        };
        let recorder = Recorder::new(source, issuer, clock);
        let courier = Courier {
            name: Arc::clone(&name),
            clock,
            telemetry: telemetry.clone(),
            trouble: Arc::new(Trouble::new(Arc::clone(&name), telemetry.clone(), clock, PATIENCE)),
            origin: options.origin.to_string(),
            timeout: options.timeout,
            requests: Requests::new(options, recorder).ok_or(HttpError::Authorization)?,
            secrets: secrets_of(options),
            client,
        };
        Ok(Self {
            name,
            clock,
            telemetry,
            retry_max_wait: options.retry_max_wait,
            credits: rules.concurrency * rules.batch_max * CREDITS_PER_PLACE,
            targets: Targets::new(options),
            // Jitter needs to differ, not to be unpredictable.
            schedule: Schedule::new(rules, getrandom::u64().unwrap_or(1)),
            courier,
        })
    }
}

/// The secrets, those in headers included, and the part of `authorization` behind its scheme.
fn secrets_of(options: &HttpOptions) -> Vec<secrecy::SecretString> {
    let whole = options.authorization.iter().chain(&options.signature_secret).cloned();
    let tokens = options.authorization.iter().filter_map(|value| {
        let (_, token) = value.expose_secret().split_once(' ')?;
        Some(token.trim().to_owned().into())
    });
    let headers = options.headers.iter().filter(|(_, value)| value.is_literal());
    let headers = headers.map(|(_, value)| secrecy::SecretString::from(value.as_str().to_owned()));
    whole.chain(tokens).chain(headers).collect()
}

#[async_trait]
impl Sink for Http {
    fn credits(&self) -> usize {
        self.credits
    }

    /// For those of renewals, and for the one that says that the flow is about to end: then nothing is tried again.
    fn wants_notices(&self) -> bool {
        true
    }

    fn monitors(&self) -> Vec<Arc<dyn SinkMonitor>> {
        vec![Arc::clone(&self.courier.trouble) as Arc<dyn SinkMonitor>]
    }

    async fn run(self: Box<Self>, inbox: Inbox) -> Result<(), SinkError> {
        let Self { name, clock, telemetry, retry_max_wait, targets, schedule, courier, .. } = *self;
        let courier = Arc::new(courier);
        let mut shift = Shift {
            name,
            clock,
            telemetry,
            retry_max_wait,
            targets,
            schedule,
            courier: Arc::clone(&courier),
            inbox,
            under_way: JoinSet::new(),
            reports: Vec::new(),
            ended: false,
        };
        let result = shift.run().await;
        shift.under_way.shutdown().await;
        drop(shift);
        // The tasks that had their share of it are gone.
        if let Some(courier) = Arc::into_inner(courier) {
            courier.client.close().await;
        }
        result
    }
}

/// The sink at work.
#[derive(Debug)]
struct Shift {
    name: Arc<str>,
    clock: Clock,
    telemetry: Telemetry,
    retry_max_wait: Duration,
    targets: Targets,
    schedule: Schedule,
    courier: Arc<Courier>,
    inbox: Inbox,
    /// At most as many as the rules allow at the same time.
    under_way: JoinSet<(Batch, Verdict)>,
    reports: Vec<Report>,
    ended: bool,
}

impl Shift {
    async fn run(&mut self) -> Result<(), SinkError> {
        loop {
            let now = self.clock.now();
            while let Some(batch) = self.schedule.poll_start(now) {
                let courier = Arc::clone(&self.courier);
                self.under_way.spawn(async move {
                    let verdict = courier.deliver(&batch).await;
                    (batch, verdict)
                });
            }
            self.report().await;
            // With nothing under way and nothing to begin, nothing is left: a drain leaves nothing to be tried again.
            if self.ended && self.under_way.is_empty() {
                return Ok(());
            }
            let timeout = self.schedule.poll_timeout().map(|at| self.clock.deadline(at));
            tokio::select! {
                news = self.inbox.news(), if !self.ended => self.take(news),
                Some(done) = self.under_way.join_next() => {
                    let mut next = Some(done);
                    while let Some(done) = next {
                        self.settle(done)?;
                        next = self.under_way.try_join_next();
                    }
                }
                () = sleep_until(timeout), if timeout.is_some() => {}
            }
        }
    }

    fn take(&mut self, news: Option<News>) {
        match news {
            None => {
                self.ended = true;
                self.schedule.handle_drain();
            }
            Some(News::Emissions(emissions)) => {
                for emission in emissions {
                    self.take_emission(emission);
                }
            }
            Some(News::Notices(notices)) => {
                for notice in notices {
                    match notice {
                        Notice::Draining => self.schedule.handle_drain(),
                        Notice::Renewed { id, result: Ok(expires_at) } => {
                            self.schedule.handle_renewed(id, expires_at);
                        }
                        _ => {}
                    }
                }
            }
        }
    }

    fn take_emission(&mut self, emission: Emission) {
        match self.targets.target_of(&emission) {
            Ok(target) => self.schedule.handle_emission(emission, target),
            Err(error) => {
                let outcome = Outcome::Rejected { reason: error.to_string().into() };
                self.reports.push(Report { id: emission.id, outcome, cost: None });
            }
        }
    }

    fn settle(&mut self, done: Result<(Batch, Verdict), tokio::task::JoinError>) -> Result<(), SinkError> {
        let (mut batch, verdict) = done.map_err(|error| SinkError {
            sink: (*self.name).into(),
            detail: format!("a request failed in itself: {error}").into(),
        })?;
        let outcome = match verdict {
            Verdict::Accepted => Outcome::Accepted,
            Verdict::Rejected { reason } => Outcome::Rejected { reason: reason.into() },
            Verdict::Again { detail, retry_after } => {
                let wait = batch.next_wait().max(retry_after.unwrap_or_default()).min(self.retry_max_wait);
                let failures = batch.failures();
                self.telemetry.emit(Retried { sink: &self.name, detail: &detail, failures, again_in: wait });
                self.schedule.handle_failed(batch, self.clock.now() + wait);
                return Ok(());
            }
        };
        self.schedule.handle_ended(&batch);
        let report = |emission: &Emission| Report { id: emission.id, outcome: outcome.clone(), cost: None };
        self.reports.extend(batch.emissions.iter().map(report));
        Ok(())
    }

    async fn report(&mut self) {
        let released = self.schedule.take_released();
        for cause in [ReleaseCause::LeaseOver, ReleaseCause::Overtaken, ReleaseCause::Draining] {
            let deliveries = released.iter().filter(|(_, of)| *of == cause).count();
            if deliveries > 0 {
                self.telemetry.emit(Released { sink: &self.name, cause, deliveries });
            }
        }
        let report = |(id, _)| Report { id, outcome: Outcome::Released, cost: None };
        self.reports.extend(released.into_iter().map(report));
        if !self.reports.is_empty() {
            self.inbox.report(std::mem::take(&mut self.reports)).await;
        }
    }
}

impl Courier {
    /// Makes one request, within its deadline and the lease.
    async fn deliver(&self, batch: &Batch) -> Verdict {
        let began = self.clock.now();
        let request = match self.requests.make(batch, self.clock.wall()) {
            Ok(request) => request,
            Err(error) => return Verdict::Rejected { reason: error.to_string() },
        };
        let deadline = (began + self.timeout).min(batch.work_end());
        let sent = self.client.send(request, self.clock.deadline(deadline)).await;
        let took = self.clock.now().saturating_since(began);
        let origin = &self.origin;
        let (result, status, verdict) = match sent {
            Ok(answer) => {
                let secrets: Vec<_> = self.secrets.iter().map(|secret| secret.expose_secret()).collect();
                let excerpt = excerpt(&answer.body, &secrets);
                let verdict = judge(origin, answer.status, &answer.headers, &excerpt, self.clock.wall());
                (result_of(answer.status), Some(answer.status.as_u16()), verdict)
            }
            Err(Failure::TimedOut) => {
                let detail = format!("`{origin}` has not answered within {took:.1?}");
                (RequestResult::TimedOut, None, Verdict::Again { detail, retry_after: None })
            }
            Err(Failure::Broken(problem)) => {
                let detail = format!("`{origin}` {problem}");
                (RequestResult::Broken, None, Verdict::Again { detail, retry_after: None })
            }
        };
        let (sink, deliveries) = (&self.name, batch.emissions.len());
        self.telemetry.emit(Requested { sink, result, status, deliveries, took });
        match &verdict {
            Verdict::Again { detail, .. } => self.trouble.fails(detail),
            // A server that refuses is there.
            Verdict::Accepted | Verdict::Rejected { .. } => self.trouble.works(),
        }
        verdict
    }
}

async fn sleep_until(at: Option<tokio::time::Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
