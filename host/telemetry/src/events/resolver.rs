//! Events of credential resolvers: requests that they make, answers that they give.
//!
//! No event holds a secret. Origins and endpoints go to the log only.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use crate::metrics::{Name, Registry};
use crate::{Event, Metrics};

/// The metric families that these events move.
#[derive(Debug)]
pub(crate) struct Families {
    answers: Family<OutcomeLabels, Counter>,
    fetches: Family<OutcomeLabels, Counter>,
    held: Family<StateLabels, Gauge>,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct OutcomeLabels {
    policy: Name,
    outcome: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct StateLabels {
    policy: Name,
    state: &'static str,
}

impl Families {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let families =
            Self { answers: Family::default(), fetches: Family::default(), held: Family::default() };
        let area = registry.sub_registry_with_prefix("resolver");
        area.register(
            "answers",
            "Times that a resolver was asked for a secret, by outcome",
            families.answers.clone(),
        );
        area.register(
            "fetches",
            "HTTP requests that a resolver asked for, by outcome",
            families.fetches.clone(),
        );
        area.register(
            "credentials",
            "Endpoints and purposes that a resolver is asked about, by whether their secret may be used",
            families.held.clone(),
        );
        families
    }
}

/// A resolver's request ended.
#[derive(Debug)]
pub struct Fetched<'a> {
    /// The policy.
    pub policy: &'a Arc<str>,
    /// Scheme, host and port.
    pub origin: &'a str,
    /// How it ended: `answered`, `refused`, `timed-out`, `too-large` or `failed`.
    pub outcome: &'static str,
    /// The status, or why there is none.
    pub detail: &'a str,
    /// How long it took.
    pub took: Duration,
}

impl Event for Fetched<'_> {
    fn record(self, metrics: &Metrics) {
        let labels = OutcomeLabels { policy: self.policy.into(), outcome: self.outcome };
        metrics.resolver.fetches.get_or_create(&labels).inc();
        tracing::debug!(
            policy = %self.policy,
            origin = self.origin,
            outcome = self.outcome,
            detail = self.detail,
            took_ms = self.took.as_secs_f64() * 1e3,
            "a resolver's request ended"
        );
    }
}

/// A resolver gave a secret.
#[derive(Debug)]
pub struct Resolved<'a> {
    /// The policy.
    pub policy: &'a Arc<str>,
    /// For whom.
    pub endpoint: &'a str,
    /// What for.
    pub purpose: &'static str,
    /// What kind of secret it is.
    pub kind: &'static str,
    /// Whether it is another one than before.
    pub is_new: bool,
    /// For how long it may be used, if the resolver said so.
    pub valid_for: Option<Duration>,
    /// How long the answer took.
    pub took: Duration,
}

impl Event for Resolved<'_> {
    fn record(self, metrics: &Metrics) {
        let labels = OutcomeLabels { policy: self.policy.into(), outcome: "resolved" };
        metrics.resolver.answers.get_or_create(&labels).inc();
        let valid_for_s = self.valid_for.map(|valid_for| valid_for.as_secs());
        let took_ms = self.took.as_secs_f64() * 1e3;
        if self.is_new {
            tracing::info!(
                policy = %self.policy, endpoint = self.endpoint, purpose = self.purpose, kind = self.kind,
                valid_for_s, took_ms, "credentials resolved"
            );
        } else {
            tracing::debug!(
                policy = %self.policy, endpoint = self.endpoint, purpose = self.purpose, kind = self.kind,
                valid_for_s, took_ms, "credentials stay as they are"
            );
        }
    }
}

/// A resolver gave none.
#[derive(Debug)]
pub struct NotResolved<'a> {
    /// The policy.
    pub policy: &'a Arc<str>,
    /// For whom.
    pub endpoint: &'a str,
    /// What for.
    pub purpose: &'static str,
    /// Why, as a label: `unavailable`, `denied` or `other`.
    pub outcome: &'static str,
    /// Why, as a sentence.
    pub reason: &'a str,
    /// Whether there is an earlier secret that may still be used.
    pub goes_on: bool,
    /// When it is asked again.
    pub again_in: Duration,
}

impl Event for NotResolved<'_> {
    fn record(self, metrics: &Metrics) {
        let labels = OutcomeLabels { policy: self.policy.into(), outcome: self.outcome };
        metrics.resolver.answers.get_or_create(&labels).inc();
        let meanwhile = if self.goes_on { "the present ones stay in use" } else { "calls are not made" };
        tracing::warn!(
            policy = %self.policy,
            endpoint = self.endpoint,
            purpose = self.purpose,
            again_in_ms = self.again_in.as_secs_f64() * 1e3,
            "no credentials ({}): {}; {meanwhile}",
            self.outcome,
            self.reason
        );
    }
}

/// How many secrets a resolver's table holds.
#[derive(Debug)]
pub struct Held<'a> {
    /// The policy.
    pub policy: &'a Arc<str>,
    /// Those that may be used.
    pub usable: usize,
    /// Endpoints and purposes without one.
    pub missing: usize,
}

impl Event for Held<'_> {
    fn record(self, metrics: &Metrics) {
        for (state, count) in [("usable", self.usable), ("missing", self.missing)] {
            let labels = StateLabels { policy: self.policy.into(), state };
            metrics.resolver.held.get_or_create(&labels).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }
}
