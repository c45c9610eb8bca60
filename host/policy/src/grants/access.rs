//! What one policy may use, ready for use: its grants, how much of them, and what it must not say afterwards.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tidegate_connector::Clock;
use tidegate_model::Instant;
use tidegate_telemetry::{Telemetry, events};

use super::http::{self, Client, Names, SystemNames};
use super::{Grants, Scrubber, files};
use crate::bindings::v1::given::files::Failure as FileFailure;
use crate::bindings::v1::given::http::{Failure as HttpFailure, Request, Response};

/// Requests of one call. A resolver needs one or two; the bound keeps its computing time bounded too, since the
/// watch over that begins anew after each wait.
const FETCHES_MAX: u32 = 16;

/// The grants of one policy in force.
pub(crate) struct Access {
    grants: Grants,
    policy: Arc<str>,
    bytes_max: u64,
    client: Client,
    scrubber: Scrubber,
    clock: Clock,
    telemetry: Telemetry,
}

/// What is left to one call.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Budget {
    until: Option<Instant>,
    fetches_left: u32,
}

impl Budget {
    /// For a call that must be over by then.
    pub(crate) const fn until(until: Instant) -> Self {
        Self { until: Some(until), fetches_left: FETCHES_MAX }
    }
}

impl Access {
    /// `bytes_max` is the most of a file or of a request's body.
    pub(crate) fn new(
        grants: Grants,
        policy: Arc<str>,
        bytes_max: usize,
        clock: Clock,
        telemetry: Telemetry,
    ) -> Self {
        Self::with_names(grants, policy, bytes_max, clock, telemetry, Arc::new(SystemNames))
    }

    pub(crate) fn with_names(
        grants: Grants,
        policy: Arc<str>,
        bytes_max: usize,
        clock: Clock,
        telemetry: Telemetry,
        names: Arc<dyn Names>,
    ) -> Self {
        let limits = http::Limits { request_bytes_max: bytes_max, ..http::Limits::default() };
        let client = Client::new(grants.http.clone(), grants.http_ca_file.clone(), limits, names);
        let bytes_max = bytes_max as u64;
        Self { grants, policy, bytes_max, client, scrubber: Scrubber::default(), clock, telemetry }
    }

    pub(crate) const fn grants(&self) -> &Grants {
        &self.grants
    }

    /// Takes out of texts what the policy was given.
    pub(crate) const fn scrubber(&self) -> &Scrubber {
        &self.scrubber
    }

    /// A variable as it is now. What is not text counts as not set.
    pub(super) fn env(&self, name: &str) -> Option<String> {
        if !self.grants.env.contains(name) {
            return None;
        }
        let value = std::env::var(name).ok()?;
        self.scrubber.learn_all_of(&value);
        Some(value)
    }

    /// A file as it is now.
    pub(super) fn read(&self, path: &str) -> Result<Vec<u8>, FileFailure> {
        let content = files::read(&self.grants.directories, path, self.bytes_max)?;
        self.scrubber.learn_all_of(&String::from_utf8_lossy(&content));
        Ok(content)
    }

    /// Makes a request, within what is left to the call.
    pub(super) fn fetch(&self, budget: &mut Budget, request: Request) -> Result<Response, HttpFailure> {
        let Some(until) = budget.until else {
            let why = "requests are made only while a secret is resolved, not while the policy is loaded";
            return Err(HttpFailure::Refused(why.to_owned()));
        };
        if budget.fetches_left == 0 {
            return Err(HttpFailure::Refused(format!("one call makes at most {FETCHES_MAX} requests")));
        }
        budget.fetches_left -= 1;
        let began = self.clock.now();
        let left = until.saturating_since(began);
        // The host only: paths and queries may hold what nobody may see.
        let origin = http::origin_of(&request.url).map(|origin| origin.to_string()).unwrap_or_default();
        let result = if left == Duration::ZERO {
            Err(HttpFailure::TimedOut)
        } else {
            self.client.fetch(request, left)
        };
        if let Ok(response) = &result {
            self.learn(response);
        }
        let (outcome, detail) = match &result {
            Ok(response) => ("answered", response.status.to_string()),
            Err(HttpFailure::Refused(why)) => ("refused", self.scrubber.scrub(why)),
            Err(HttpFailure::TimedOut) => ("timed-out", String::new()),
            Err(HttpFailure::TooLarge(max)) => ("too-large", format!("more than {max} bytes")),
            Err(HttpFailure::Other(why)) => ("failed", self.scrubber.scrub(why)),
        };
        self.telemetry.emit(events::resolver::Fetched {
            policy: &self.policy,
            origin: &origin,
            outcome,
            detail: &detail,
            took: self.clock.now().saturating_since(began),
        });
        result
    }

    fn learn(&self, response: &Response) {
        self.scrubber.learn_all_of(&String::from_utf8_lossy(&response.body));
        let headers = response.headers.iter().filter(|(name, _)| !OPEN_HEADERS.contains(&name.as_str()));
        headers.for_each(|(_, value)| self.scrubber.learn_all_of(value));
    }
}

/// Headers of an answer that say nothing about secrets, and have words in them that complaints need.
const OPEN_HEADERS: [&str; 6] =
    ["cache-control", "connection", "content-length", "content-type", "date", "server"];

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("grants", &self.grants).finish_non_exhaustive()
    }
}
